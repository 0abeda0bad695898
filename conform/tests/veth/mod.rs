//! Two endpoints of one process in two network namespaces, joined over UDP by a veth pair.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU16, Ordering};

use cutthrough::Config;
use cutthrough_cli::veth::{Missing, Pair};
use cutthrough_conform::{Capability, Join};

/// Joins across a wire of this MTU, in plain text. The side that listens is in the far namespace.
#[derive(Debug)]
pub(crate) struct Veth(pub(crate) u32);

/// A wire, or why there is none.
type Made = Result<Pair, Missing>;

impl Veth {
    /// The wire: one for each MTU, made when it is needed first, gone with this process.
    fn wire(&self) -> &'static Made {
        static WIRES: Mutex<Vec<(u32, &'static Made)>> = Mutex::new(Vec::new());
        let mut wires = WIRES.lock().expect("nobody panics here");
        if let Some((_, wire)) = wires.iter().find(|(mtu, _)| *mtu == self.0) {
            return wire;
        }
        let wire: &'static Made = Box::leak(Box::new(Pair::make(self.0)));
        wires.push((self.0, wire));
        wire
    }

    fn made(&self) -> &'static Pair {
        self.wire().as_ref().expect("it was asked whether there is one")
    }
}

impl Join for Veth {
    fn missing(&self) -> Option<String> {
        self.wire().as_ref().err().map(ToString::to_string)
    }

    fn address(&self) -> String {
        // Nobody else is in the namespace.
        static PORTS: AtomicU16 = AtomicU16::new(7000);
        format!("udp:{}:{}", Pair::FAR, PORTS.fetch_add(1, Ordering::Relaxed))
    }

    fn crosses_wire(&self) -> bool {
        true
    }

    fn config(&self, config: Config) -> Config {
        Config { insecure: true, ..config }
    }

    fn near<R: Send>(&self, run: impl FnOnce() -> R + Send) -> R {
        self.made().near.within(run).expect("the near namespace")
    }

    fn far<R: Send>(&self, run: impl FnOnce() -> R + Send) -> R {
        self.made().far.within(run).expect("the far namespace")
    }

    fn lacks(&self, capability: Capability) -> Option<String> {
        match capability {
            Capability::SharedPages => Some("two machines share no memory".into()),
            Capability::ThousandChannels => None,
        }
    }
}
