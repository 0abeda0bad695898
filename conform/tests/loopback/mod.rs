//! Two endpoints of one process, joined over UDP on the loopback interface.

use std::net::UdpSocket;
use std::sync::Arc;

use cutthrough::{Config, Keys};
use cutthrough_conform::{Capability, Join};

/// Joins over UDP on loopback: sealed by these keys, or plain text.
#[derive(Debug)]
pub(crate) struct Loopback(pub(crate) Option<Arc<Keys>>);

/// An address on loopback that nobody listens at. The system does not give a port that was free a moment ago to others
/// soon.
pub(crate) fn free() -> String {
    let socket = UdpSocket::bind("127.0.0.1:0").expect("a socket");
    format!("udp:{}", socket.local_addr().expect("its address"))
}

impl Join for Loopback {
    fn address(&self) -> String {
        free()
    }

    fn crosses_wire(&self) -> bool {
        true
    }

    fn config(&self, config: Config) -> Config {
        Config { insecure: self.0.is_none(), keys: self.0.clone(), ..config }
    }

    fn lacks(&self, capability: Capability) -> Option<String> {
        match capability {
            Capability::ManyEndpoints => None,
            Capability::SharedPages => Some("two machines share no memory".into()),
            Capability::ThousandChannels => None,
        }
    }
}
