//! Two endpoints of one process, joined over a network that is not there.

use std::net::Ipv4Addr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};

use cutthrough::simulated::{Host, Network, Wire};
use cutthrough::{Config, Keys, SharedKey};
use cutthrough_conform::{Capability, Join};

/// The only host of a test: the wire from it leads to itself. Endpoints are told apart by their ports, as on loopback.
const HOST: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);

/// Joins over a simulated network of its own.
#[derive(Debug)]
pub(crate) struct Wires {
    host: Host,
    keys: Option<Arc<Keys>>,
    damages: bool,
    next: AtomicU16,
}

impl Wires {
    /// Whose wires are like this one.
    pub(crate) fn new(wire: Wire) -> Self {
        // A check sum finds most of what has changed, a seal all of it.
        let keys = (wire.corrupts > 0.0).then(|| Arc::new(Keys::Shared(SharedKey::from_bytes([7; 32]))));
        let damages = wire.corrupts + wire.truncates > 0.0;
        Self { host: Network::new(1, wire).host(HOST), keys, damages, next: AtomicU16::new(2000) }
    }
}

impl Join for Wires {
    fn address(&self) -> String {
        format!("udp:{HOST}:{}", self.next.fetch_add(1, Ordering::Relaxed))
    }

    fn crosses_wire(&self) -> bool {
        true
    }

    fn damages(&self) -> bool {
        self.damages
    }

    fn config(&self, config: Config) -> Config {
        Config { insecure: self.keys.is_none(), keys: self.keys.clone(), host: Some(self.host.clone()), ..config }
    }

    fn lacks(&self, capability: Capability) -> Option<String> {
        (capability == Capability::SharedPages).then(|| "two machines share no memory".into())
    }
}
