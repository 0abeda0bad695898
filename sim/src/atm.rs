//! ATM: SPARCstations that talk by cells. SSAM (Active Messages by traps over a FIFO adapter) and U-Net (the same
//! adapter under emulated endpoints, and an adapter with a processor), with Active Messages and TCP above them.
//!
//! | file | what |
//! |---|---|
//! | [`aal5`] | cells and AAL5, to the byte |
//! | `parts` | what a platform's file says of traps, FIFOs, bus and firmware |
//! | `layer` | blocks into messages, windows, acknowledgements |
//! | `world` | hosts, fibres and the switch; what happens in them |
//! | `host` | the host's processor: programmed I/O and the layer |
//! | `firmware` | the SBA-200's i960, which asks the engine |
//! | `run` | whole machines at work |
//! | `ssam`, `unet` | the papers' results |
//!
//! The SBA-100 has no mover of its own. Each cell goes through the host's processor, so there is nothing for the engine
//! to decide and [`point`] takes any of its rules for the same. On the SBA-200 the unchanged engine decides every
//! pulse, and a pulse is at most one cell.

pub mod aal5;
mod firmware;
mod host;
mod layer;
mod parts;
mod run;
mod ssam;
#[cfg(test)]
mod tests;
pub(crate) mod unet;
mod world;

use crate::outcome::Experiment;
use crate::platform::Platform;
use crate::point::{Firmware, POLICIES, Point, PointError, Query};

use run::{Emulated, Ssam, Unet, Vendor, cell_by_cell};

/// Values of `model` that this family serves.
pub const MODELS: &[&str] = &["ssam", "unet-fifo", "unet-i960", "vendor-i960"];

/// The platforms: name, and text of the file.
pub const PLATFORMS: &[(&str, &str)] = &[
    ("ss20-sba100", include_str!("../platforms/ss20-sba100.toml")),
    ("ss1plus-sba100", include_str!("../platforms/ss1plus-sba100.toml")),
    ("unet-sba100", include_str!("../platforms/unet-sba100.toml")),
    ("unet-sba200", include_str!("../platforms/unet-sba200.toml")),
    ("fore-sba200", include_str!("../platforms/fore-sba200.toml")),
];

/// Figures that the model misses by more than the table of results allows, and why: SSAM's authors say of their parts
/// that they only roughly add, and on the SS-1+ they do not. The experiment, what was measured, under which conditions.
pub const MISSED: [(&str, &str, &str); 4] = [
    ("S1", "each cell of a trap that reads 16", "SS-1+"),
    ("S1", "trap that sends a cell and finds none", "SS-1+"),
    ("S1", "trap that sends a cell and reads 1", "SS-1+"),
    ("S2", "system call that finds no cell", "SS-1+"),
];

/// The rows S and U of the table of results.
#[must_use]
pub fn experiments() -> Vec<Experiment> {
    ssam::EXPERIMENTS.iter().chain(unet::EXPERIMENTS).copied().collect()
}

/// Answers one question: for SSAM, remote writes by Active Messages (or, asked for the kernel, by system calls); for
/// U-Net and the vendor's firmware, raw messages (or, asked for the kernel, its TCP).
///
/// One sender of SSAM is joined to the receiver directly, as in the paper; everything else goes through a switch.
///
/// # Errors
/// The platform's file is wrong, or the platform cannot do what is asked.
pub fn point(platform: &Platform, query: &Query) -> Result<Point, PointError> {
    let &Query { firmware, payload, count, senders } = query;
    let cannot = |what: &str| Err(PointError::Impossible(format!("{} {what}", platform.name())));
    match platform.model() {
        "ssam" if firmware.has_rule() => {
            cannot("has no stage that a policy decides about; ask for `adaptive`, or `kernel`")
        }
        "unet-fifo" if firmware.has_rule() => cannot("has no stage that a policy decides about; ask for `adaptive`"),
        "ssam" => {
            let ssam = Ssam::read(platform)?;
            match firmware {
                Firmware::Engine { .. } | Firmware::Kernel => {
                    ssam.point(firmware == Firmware::Kernel, payload, count, senders)
                }
                _ => cannot("has an adapter without a processor, and no such policy; ask for `adaptive`, or `kernel`"),
            }
        }
        "unet-fifo" => {
            let emulated = Emulated::read(platform)?;
            match firmware {
                Firmware::Engine { .. } => emulated.point(payload, count, senders),
                _ => cannot("has an adapter without a processor, and no such policy; ask for `adaptive`"),
            }
        }
        "unet-i960" => {
            let unet = Unet::read(platform)?;
            match firmware {
                Firmware::Engine { send, recv } => unet.base.point([send, recv], payload, count, senders),
                _ => cannot(&format!("has no such policy; ask for one of {POLICIES}, or ask `fore-sba200`")),
            }
        }
        "vendor-i960" => {
            let vendor = Vendor::read(platform)?;
            match firmware {
                Firmware::Engine { send, recv } => vendor.base.point([send, recv], payload, count, senders),
                Firmware::Vendor => vendor.base.point([cell_by_cell(); 2], payload, count, senders),
                Firmware::Kernel => vendor.kernel_point(payload, count, senders),
                Firmware::Coroutine => {
                    cannot(&format!("has no such policy; ask for one of {POLICIES}, `vendor`, `kernel`"))
                }
            }
        }
        _ => Err(platform.unknown_model(MODELS).into()),
    }
}

/// A built-in platform.
///
/// # Panics
/// There is none of that name, or its file is wrong: a mistake in this crate, which its tests find.
fn built_in(name: &str) -> Platform {
    let text = PLATFORMS.iter().find(|(known, _)| *known == name).map_or("", |(_, text)| text);
    Platform::parse(text, &format!("{name}.toml")).expect("a built-in platform is well formed")
}
