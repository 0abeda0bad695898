//! What the adapters `packet` and `xdp` need of the kernel, each thing tried.

use cutthrough::{Adapter, probe};

use super::Check;

/// Tries the socket of frames that the kernel copies.
#[must_use]
pub fn packet() -> Vec<Check> {
    checks(Adapter::Packet)
}

/// Tries the socket of a queue's frames, and to load the program that fills it.
#[must_use]
pub fn xdp() -> Vec<Check> {
    checks(Adapter::Xdp)
}

fn checks(adapter: Adapter) -> Vec<Check> {
    let tried = probe(adapter).into_iter();
    tried
        .map(|(what, tried)| Check {
            what,
            ok: tried.is_ok(),
            optional: false,
            detail: tried.err().unwrap_or_default(),
        })
        .collect()
}
