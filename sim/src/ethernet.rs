//! Ethernet: Speculative Defragmentation on Pentium II hosts with a plain gigabit adapter, and the AlphaStations that
//! fetched pages from one another's memory over Fast Ethernet (GMS).
//!
//! | file | what |
//! |---|---|
//! | `frame` | frames and IP fragments, to the byte |
//! | `parts` | what a platform's file says of hosts, bus, adapter and network |
//! | `stack` | the ways through a host that the papers' bars compare |
//! | `cpu` | a processor: interrupts, stack, processes |
//! | `wire` | bus, links, switch |
//! | `receiver` | receive descriptors, posted by [`cutthrough_engine::place`]: the guesses are the engine's |
//! | `connection` | TCP's window; pages that are asked for |
//! | `world`, `host` | what happens in the machine, and in the host's software |
//! | `random` | chance, from a seed |
//! | `run` | whole machines at work |
//! | `bars`, `success`, `wire_format` | the papers' results |
//!
//! An Ethernet adapter moves whole frames and has no processor, so there is no pulse for the engine to decide: whoever
//! asks for one of its policies gets the way on which the engine does decide, placement by guess.

mod bars;
mod connection;
mod cpu;
mod frame;
mod host;
mod parts;
pub(crate) mod random;
mod receiver;
mod run;
mod stack;
mod success;
#[cfg(test)]
mod tests;
mod wire;
mod wire_format;
mod world;

use crate::outcome::Experiment;
use crate::platform::Platform;
use crate::point::{Firmware, Point, PointError, Query};

use parts::Parts;
use run::Streams;
use stack::Method;

/// Values of `model` that this family serves.
pub const MODELS: &[&str] = &["ethernet-stream", "ethernet-fetch"];

/// The platforms: name, and text of the file.
pub const PLATFORMS: &[(&str, &str)] = &[
    ("gige-pentium2", include_str!("../platforms/gige-pentium2.toml")),
    ("gms-fast-ethernet", include_str!("../platforms/gms-fast-ethernet.toml")),
];

/// Most bytes of all messages of a question together, so that sums stay far from the end of their range.
const MOST_BYTES: u128 = 1 << 50;
/// Most senders of a question.
const MOST_SENDERS: u32 = 1024;

/// The rows D of the table of results.
#[must_use]
pub fn experiments() -> Vec<Experiment> {
    [bars::EXPERIMENTS, success::EXPERIMENTS, wire_format::EXPERIMENTS].concat()
}

/// Answers one question.
///
/// For `ethernet-stream`, messages by TCP: by Speculative Defragmentation with fbufs for any policy of the engine, by
/// the operating system as it was for `kernel`. The stream is an old one: its congestion window is open.
///
/// For `ethernet-fetch`, pages of other hosts' memory: a message is a page that was asked for, its time runs from the
/// page fault until the page is there, and the senders are the hosts that are asked at the same time.
///
/// # Errors
/// The platform's file is wrong, or the platform cannot do what is asked.
pub fn point(platform: &Platform, query: &Query) -> Result<Point, PointError> {
    let &Query { firmware, payload, count, senders } = query;
    let impossible = |what: &str| PointError::Impossible(format!("{} {what}", platform.name()));
    let bytes = u128::from(payload).saturating_mul(u128::from(count)).saturating_mul(u128::from(senders));
    if payload == 0 || count == 0 || senders == 0 {
        return Err(impossible("needs at least one message of one byte from one sender"));
    }
    if bytes > MOST_BYTES || senders > MOST_SENDERS {
        return Err(impossible("is asked for too much: at most 1024 senders, and 1 PiB together"));
    }
    if firmware.has_rule() {
        return Err(impossible("has no stage that a policy decides about; ask for `adaptive`, or `kernel`"));
    }
    let guessing = match firmware {
        Firmware::Engine { .. } => true,
        Firmware::Kernel => false,
        Firmware::Coroutine | Firmware::Vendor => {
            return Err(impossible(
                "has an adapter without a processor, and no such policy; ask for `adaptive`, or `kernel`",
            ));
        }
    };
    match platform.model() {
        "ethernet-stream" => {
            let method = if guessing { Method::Fbufs } else { Method::Standard };
            let what = Streams { payload, count, senders, ..Streams::new(method, method) };
            Ok(run::streams(&Parts::of_streams(platform)?, &what).point())
        }
        "ethernet-fetch" if payload > frame::DATAGRAM => {
            Err(impossible("fetches pages in one datagram: at most 65,507 bytes"))
        }
        "ethernet-fetch" => {
            Ok(run::fetches(&Parts::of_fetches(platform)?, Method::Standard, payload, count, senders).point())
        }
        _ => Err(platform.unknown_model(MODELS).into()),
    }
}

/// A built-in platform that streams.
///
/// # Panics
/// There is none of that name, or its file is wrong: a mistake in this crate, which its tests find.
fn built_in(name: &str) -> Parts {
    let text = PLATFORMS.iter().find(|(known, _)| *known == name).map_or("", |(_, text)| text);
    let platform = Platform::parse(text, &format!("{name}.toml")).expect("a built-in platform is well formed");
    Parts::of_streams(&platform).expect("a built-in platform names its parts")
}
