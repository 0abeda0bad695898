//! Two endpoints of one process, joined over UDP on the loopback interface.

use std::net::UdpSocket;

use cutthrough_conform::{Capability, Join};

/// Joins over UDP on loopback.
#[derive(Debug)]
pub(crate) struct Loopback;

impl Join for Loopback {
    fn address(&self) -> String {
        // A port that was free a moment ago; the system does not give it to others soon.
        let socket = UdpSocket::bind("127.0.0.1:0").expect("a socket");
        format!("udp:{}", socket.local_addr().expect("its address"))
    }

    fn crosses_wire(&self) -> bool {
        true
    }

    fn lacks(&self, capability: Capability) -> Option<String> {
        match capability {
            Capability::SharedPages => Some("two machines share no memory".into()),
            Capability::ThousandChannels => None,
        }
    }
}
