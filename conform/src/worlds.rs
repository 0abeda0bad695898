//! What worlds from seeds have in common: options, hosts and their wires, and how what fails is named.

pub(crate) mod options;

use std::panic::{AssertUnwindSafe, catch_unwind};

use cutthrough::simulated::{Counts, Network};

/// The address of a host.
pub(crate) fn host(index: usize) -> [u8; 4] {
    [10, 0, 0, 1 + u8::try_from(index).expect("a few hosts")]
}

/// Where it listens.
pub(crate) fn address(index: usize) -> String {
    address_by("udp", index)
}

/// The same for other ways.
pub(crate) fn address_by(scheme: &str, index: usize) -> String {
    let [a, b, c, d] = host(index);
    format!("{scheme}:{a}.{b}.{c}.{d}:7000")
}

/// Mends all wires, but those to the hosts that are down.
pub(crate) fn mend(network: &Network, down: impl Iterator<Item = usize>) {
    network.mend();
    down.for_each(|index| network.unplug(host(index)));
}

/// Datagrams that were lost, damaged, or cut off.
pub(crate) const fn spoilt(counts: &Counts) -> u64 {
    counts.lost + counts.damaged + counts.cut_off + counts.overrun
}

/// Runs a world: what was wrong, also if it panicked.
pub(crate) fn caught<T>(run: impl FnOnce() -> Result<T, String>) -> Result<T, String> {
    catch_unwind(AssertUnwindSafe(run)).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().cloned();
        Err(text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned())).unwrap_or_default())
    })
}
