//! What the adapter `udp` needs of the kernel, each thing tried.

use std::net::{Ipv4Addr, SocketAddr};

use cutthrough::{Config, Endpoint};
use cutthrough_node::sys::datagram::{Datagrams, RECEIVE_BYTES};

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
    vec![
        needed("UDP with GRO", socket.map(|_| String::new()).map_err(|error| format!("{error}; needs Linux 5.0"))),
        buffer(bytes),
        needed("listening endpoint", listening()),
        Check {
            what: "sealed by default",
            ok: true,
            optional: true,
            detail: "by --key FILE; plain text only by --insecure".into(),
        },
    ]
}

/// What a buffer of so many bytes is worth, and what makes it larger, if anything does.
fn buffer(bytes: usize) -> Check {
    let more =
        if bytes < RECEIVE_BYTES { "; more comes with CAP_NET_ADMIN, or a larger net.core.rmem_max" } else { "" };
    let detail = format!("{} KiB{more}", bytes >> 10);
    Check { what: "large socket buffer", ok: bytes >= ROOMY, optional: true, detail }
}

fn listening() -> Result<String, String> {
    let config = Config { insecure: true, ..Config::default() };
    let mut endpoint = Endpoint::open(config).map_err(|error| error.to_string())?;
    endpoint.listen("udp:127.0.0.1:0").map(|()| String::new()).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_makes_a_buffer_larger_is_said_only_where_something_does() {
        let (most, some, few) = (buffer(64 << 20), buffer(8 << 20), buffer(416 << 10));
        assert_eq!((most.ok, most.detail.as_str()), (true, "65536 KiB"));
        assert!(some.ok && some.detail.starts_with("8192 KiB; more comes with CAP_NET_ADMIN"), "{some:?}");
        assert!(!few.ok && few.detail.starts_with("416 KiB; more comes with CAP_NET_ADMIN"), "{few:?}");
    }
}
