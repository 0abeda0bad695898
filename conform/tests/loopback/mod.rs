//! Two endpoints of one process, joined over UDP on the loopback interface.

use std::sync::Arc;

use cutthrough::{Config, Keys};
use cutthrough_conform::{Capability, Join, free_udp_address};

/// Joins over UDP on loopback: sealed by these keys, or plain text.
#[derive(Debug)]
pub(crate) struct Loopback(pub(crate) Option<Arc<Keys>>);

impl Join for Loopback {
    fn address(&self) -> String {
        format!("udp:{}", free_udp_address())
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
