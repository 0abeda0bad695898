//! Whether this process may open the rings that an adapter is. It is asked before anybody is called: the other end is
//! found by a socket, which needs no right, and would only be heard of in vain where the two have no ring between them.

use cutthrough::probe;
use rustix::thread::{CapabilitySet, capabilities};

use crate::args::Adapter;
use crate::failure::Failure;

/// What stands for a right in what the kernel, and `setpriv`, call it.
const NAMES: [(CapabilitySet, &str); 3] = [
    (CapabilitySet::NET_RAW, "CAP_NET_RAW"),
    (CapabilitySet::NET_ADMIN, "CAP_NET_ADMIN"),
    (CapabilitySet::BPF, "CAP_BPF"),
];

/// Tries what rings of this adapter need, if it is one of rings. A ring that is leased needs nothing.
///
/// # Errors
/// Which rights are missing, or what else the kernel said.
pub fn check(adapter: Adapter) -> Result<(), Failure> {
    let (ring, remedy) = match adapter {
        Adapter::Packet => (cutthrough::Adapter::Packet, "run it as root, or use udp:, which needs no rights"),
        Adapter::Xdp if std::env::var_os("CUTTHROUGH_LEASE").is_none() => {
            (cutthrough::Adapter::Xdp, "run it as root, have root run 'cutthrough lease' for you, or use udp:")
        }
        Adapter::Xdp | Adapter::Shm | Adapter::Udp | Adapter::Net | Adapter::Fabric => return Ok(()),
    };
    let Some(said) = probe(ring).into_iter().find_map(|(_, tried)| tried.err()) else { return Ok(()) };
    let have = capabilities(None).map_or(CapabilitySet::all(), |sets| sets.effective);
    let missing = missing(adapter, have);
    let what = format!("rings of the adapter {} cannot be opened here", adapter.name());
    if missing.is_empty() {
        // Rights over a namespace of one's own are not always enough.
        return Err(Failure::from_error(&format!("{what}: {said}"), remedy));
    }
    Err(Failure::new(format!("{what}: this process lacks {}", missing.join(" and ")), remedy))
}

/// The rights that rings of this adapter need, and a process that has these lacks.
fn missing(adapter: Adapter, have: CapabilitySet) -> Vec<&'static str> {
    let needed = match adapter {
        Adapter::Packet => CapabilitySet::NET_RAW,
        _ => CapabilitySet::NET_RAW | CapabilitySet::NET_ADMIN | CapabilitySet::BPF,
    };
    // As for the kernel, who may do everything may load programs, too.
    let have = if have.contains(CapabilitySet::SYS_ADMIN) { have | CapabilitySet::BPF } else { have };
    NAMES
        .into_iter()
        .filter(|(right, _)| needed.contains(*right) && !have.contains(*right))
        .map(|(_, name)| name)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exactly_the_rights_that_are_missing_are_named() {
        let none = CapabilitySet::empty();
        assert_eq!(missing(Adapter::Packet, none), ["CAP_NET_RAW"]);
        assert_eq!(missing(Adapter::Xdp, none), ["CAP_NET_RAW", "CAP_NET_ADMIN", "CAP_BPF"]);
        assert_eq!(missing(Adapter::Xdp, CapabilitySet::NET_RAW | CapabilitySet::BPF), ["CAP_NET_ADMIN"]);
        assert_eq!(missing(Adapter::Xdp, CapabilitySet::SYS_ADMIN), ["CAP_NET_RAW", "CAP_NET_ADMIN"]);
        assert!(missing(Adapter::Xdp, CapabilitySet::all()).is_empty());
    }

    #[test]
    fn an_adapter_of_sockets_needs_no_rights() {
        for adapter in [Adapter::Shm, Adapter::Udp, Adapter::Net] {
            assert!(check(adapter).is_ok(), "{adapter:?}");
        }
    }
}
