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

/// The rings that the adapter `net` has beside its socket, and why not those that it has not.
#[must_use]
pub fn beside_a_socket() -> Vec<Check> {
    let ring = |what, checks: Vec<Check>, found: &str| {
        let missing = checks.into_iter().find(|check| !check.ok);
        let ok = missing.is_none();
        Check { what, ok, optional: true, detail: missing.map_or_else(|| found.to_owned(), |missing| missing.detail) }
    };
    vec![
        ring("ring of AF_PACKET", packet(), ""),
        ring("ring of AF_XDP", xdp(), "if it is asked for: Config::net_xdp, perf --net-xdp"),
    ]
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
