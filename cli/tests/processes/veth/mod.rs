//! Two namespaces and a wire between them: what crosses it, what is said where they cannot be made, and that nothing of
//! them is left.

mod left;
mod lossy;
mod measured;
pub(crate) mod modes;
mod refused;
mod space;

use cutthrough_cli::veth::{Missing, Pair};

/// A pair, or none, and the reason where the test's output goes.
pub(crate) fn pair(mtu: u32) -> Option<Pair> {
    match Pair::make(mtu) {
        Ok(pair) => Some(pair),
        Err(missing @ Missing::Mtu(_)) => panic!("{missing}"),
        Err(missing) => {
            crate::skipped(format_args!("no veth pair: {missing}"));
            None
        }
    }
}
