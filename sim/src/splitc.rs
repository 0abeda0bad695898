//! Split-C: seven programs on a cluster of nodes, by which U-Net was compared with the CM-5 and the CS-2.
//!
//! | file | what |
//! |---|---|
//! | `parts` | what a platform's file says of processors and messages |
//! | `world` | nodes, ports, and what happens |
//! | `rank`, `memory` | a rank of a program on a node, and what lies where |
//! | `play` | a program on all nodes, one rank at a time |
//! | `results` | rows U7 and M5 |
//!
//! The programs are those of [`cutthrough_space::programs`], which run for real in `cutthrough-splitc`. Here their
//! ranks compute and move bytes as well, and a node goes through what that takes: it computes, sends short requests or
//! bulk transfers in chunks, waits for answers, or meets the others at a barrier. Every request is answered, and the
//! answer gives its place in the window back. A processor takes arrivals in when it sends and when it waits, never
//! while it computes.
//!
//! A cluster has a processor's time for each message and no adapter that could cut it through, so there is nothing for
//! the engine to decide and [`point`] takes any of its rules for the same.

mod memory;
mod parts;
mod play;
mod rank;
mod results;
#[cfg(test)]
mod tests;
mod world;

use crate::outcome::Experiment;
use crate::platform::Platform;
use crate::point::{Firmware, Point, PointError, Query};

pub use play::{PlayError, Played, play};
pub use rank::{Coming, Rank, RankError};

use parts::Machine;
use world::{Step, run};

/// Values of `model` that this family serves.
pub const MODELS: &[&str] = &["cluster"];

/// The platforms: name, and text of the file.
pub const PLATFORMS: &[(&str, &str)] = &[
    ("unet-cluster", include_str!("../platforms/unet-cluster.toml")),
    ("cm5", include_str!("../platforms/cm5.toml")),
    ("cs2", include_str!("../platforms/cs2.toml")),
    ("udp-cluster", include_str!("../platforms/udp-cluster.toml")),
];

/// Most messages of a question, chunks counted one by one.
const MOST_MESSAGES: u128 = 1 << 22;

/// Rows U7 and M5 of the table of results.
#[must_use]
pub fn experiments() -> Vec<Experiment> {
    vec![
        Experiment { id: "U7", title: "Split-C: seven programs on 8 nodes", run: results::programs },
        Experiment { id: "M5", title: "Today: speed-up of Split-C on 8 hosts with UDP", run: results::today },
    ]
}

/// Answers one question: nodes put blocks of `payload` bytes into the memory of one, which waits for them.
///
/// # Errors
/// The platform's file is wrong, or the platform cannot do what is asked.
pub fn point(platform: &Platform, query: &Query) -> Result<Point, PointError> {
    let &Query { firmware, payload, count, senders } = query;
    if platform.model() != MODELS[0] {
        return Err(platform.unknown_model(MODELS).into());
    }
    let machine = Machine::read(platform)?;
    let cannot = |what: &str| Err(PointError::Impossible(format!("{} {what}", platform.name())));
    if !matches!(firmware, Firmware::Engine { .. }) || firmware.has_rule() {
        return cannot(
            "is known by what its messages cost, and has no stage that a policy decides about; ask for `adaptive`",
        );
    }
    let senders = senders as usize;
    if count == 0 || senders == 0 || senders >= machine.hosts {
        return cannot("needs at least one message, and from 1 to all but one of its nodes that send");
    }
    let parts = machine.parts(payload);
    if u128::from(parts) * u128::from(count) * senders as u128 > MOST_MESSAGES {
        return cannot("is asked for too much: at most 4,194,304 messages, chunks counted one by one");
    }
    let mut steps = vec![Vec::new()];
    let puts = || (0..count).map(|_| Step::Put { to: 0, bytes: payload }).chain([Step::Sync]).collect();
    steps.extend((0..senders).map(|_| puts()));
    let first = if count == 1 && senders == 1 {
        None
    } else {
        run(&machine, vec![Vec::new(), vec![Step::Put { to: 0, bytes: payload }]]).last.into()
    };
    let whole = run(&machine, steps);
    let seconds = whole.last.as_us() / 1e6;
    let bytes = payload as f64 * count as f64 * senders as f64;
    Ok(Point {
        one_way_us: first.unwrap_or(whole.last).as_us(),
        bytes_per_s: if seconds > 0.0 { bytes / seconds } else { 0.0 },
        stages: Vec::new(),
        events: whole.events,
    })
}

/// A built-in machine.
///
/// # Panics
/// There is none of that name, or its file is wrong: a mistake in this crate, which its tests find.
fn built_in(name: &str) -> Machine {
    let text = PLATFORMS.iter().find(|(known, _)| *known == name).map_or("", |(_, text)| text);
    let platform = Platform::parse(text, &format!("{name}.toml")).expect("a built-in platform is well formed");
    Machine::read(&platform).expect("a built-in platform suits its model")
}
