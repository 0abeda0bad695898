//! Two endpoints of one process in two network namespaces, joined by a veth pair: over UDP, or by raw rings.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU16, Ordering};
use std::thread::{self, ThreadId};

use cutthrough::{Adapter, Config, probe};
use cutthrough_cli::veth::{Missing, Pair};
use cutthrough_conform::{Capability, Join};

/// Joins across a wire of this MTU, by the adapter of this scheme, in plain text. The side that listens is in the far
/// namespace.
#[derive(Debug)]
pub(crate) struct Veth(pub(crate) u32, pub(crate) &'static str);

/// A wire, or why there is none.
type Made = Result<Pair, Missing>;

impl Veth {
    /// The wire: one for each MTU, made when it is needed first, gone with this process. A queue has one ring of
    /// AF_XDP: there each test has a wire of its own.
    fn wire(&self) -> &'static Made {
        static WIRES: Mutex<Vec<(u32, Option<ThreadId>, &'static Made)>> = Mutex::new(Vec::new());
        let own = (self.1 == "xdp").then(|| thread::current().id());
        let mut wires = WIRES.lock().expect("nobody panics here");
        if let Some((.., wire)) = wires.iter().find(|(mtu, owner, _)| *mtu == self.0 && *owner == own) {
            return wire;
        }
        let wire: &'static Made = Box::leak(Box::new(Pair::make(self.0)));
        wires.push((self.0, own, wire));
        wire
    }

    fn made(&self) -> &'static Pair {
        self.wire().as_ref().expect("it was asked whether there is one")
    }
}

impl Join for Veth {
    /// There, for who is root in namespaces of its own alone may have other sockets there than here.
    fn missing(&self) -> Option<String> {
        let wire = match self.wire() {
            Ok(wire) => wire,
            Err(missing) => return Some(missing.to_string()),
        };
        let ring = match self.1 {
            "packet" | "net" => Adapter::Packet,
            "xdp" => Adapter::Xdp,
            _ => return None,
        };
        let tried = wire.near.within(|| probe(ring)).expect("the near namespace");
        tried.into_iter().find_map(|(what, tried)| tried.err().map(|why| format!("{what}: {why}")))
    }

    fn address(&self) -> String {
        // Nobody else is in the namespace.
        static PORTS: AtomicU16 = AtomicU16::new(7000);
        format!("{}:{}:{}", self.1, Pair::FAR, PORTS.fetch_add(1, Ordering::Relaxed))
    }

    fn crosses_wire(&self) -> bool {
        true
    }

    fn config(&self, config: Config) -> Config {
        Config { insecure: true, ..config }
    }

    fn near(&self, run: &mut (dyn FnMut() + Send)) {
        self.made().near.within(run).expect("the near namespace");
    }

    fn far(&self, run: &mut (dyn FnMut() + Send)) {
        self.made().far.within(run).expect("the far namespace");
    }

    fn lacks(&self, capability: Capability) -> Option<String> {
        match capability {
            Capability::SharedPages => Some("two machines share no memory".into()),
            Capability::ThousandChannels => None,
            Capability::ManyEndpoints => (self.1 == "xdp").then(|| "a queue has one ring of AF_XDP".into()),
        }
    }
}
