//! What the adapter `udp` needs of the kernel, each thing tried.

use std::net::{Ipv4Addr, SocketAddr};

use cutthrough::{Config, Endpoint};
use cutthrough_node::sys::datagram::Datagrams;

use super::Check;

/// Bytes of a socket's buffer below which long payloads come in small grants.
const ROOMY: usize = 4 << 20;

/// Tries a socket that cuts and joins trains of datagrams, and last an endpoint that listens.
#[must_use]
pub fn checks() -> Vec<Check> {
    let any = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    let socket = Datagrams::bind(any);
    let needed = |what, tried: Result<String, String>| {
        let ok = tried.is_ok();
        Check { what, ok, optional: false, detail: tried.unwrap_or_else(|why| why) }
    };
    let bytes = socket.as_ref().map_or(0, Datagrams::receive_bytes);
    let roomy = format!("{} KiB; more comes with CAP_NET_ADMIN, or a larger net.core.rmem_max", bytes >> 10);
    vec![
        needed("UDP with GRO", socket.map(|_| String::new()).map_err(|error| format!("{error}; needs Linux 5.0"))),
        Check { what: "large socket buffer", ok: bytes >= ROOMY, optional: true, detail: roomy },
        needed("listening endpoint", listening()),
        Check {
            what: "sealed by default",
            ok: true,
            optional: true,
            detail: "by --key FILE; plain text only by --insecure".into(),
        },
    ]
}

fn listening() -> Result<String, String> {
    let config = Config { insecure: true, ..Config::default() };
    let mut endpoint = Endpoint::open(config).map_err(|error| error.to_string())?;
    endpoint.listen("udp:127.0.0.1:0").map(|()| String::new()).map_err(|error| error.to_string())
}
