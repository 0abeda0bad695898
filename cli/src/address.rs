//! Whether an address of a network can be one, before anything is opened: what is wrong with it is said in words that
//! name it as it was given.

use std::net::SocketAddrV6;

use crate::failure::Failure;

/// What an address is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Use {
    /// `--listen`; port 0 is any free one.
    Listen,
    /// `--peer`; a public key may stand behind it.
    Peer,
    /// What is leased; port 0 is any free one.
    Lease,
}

/// Looks at an address of a network. Names of shared memory, and of adapters that are not known, are for others.
///
/// # Errors
/// What is wrong with it, and what one looks like.
pub fn check(address: &str, what_for: Use) -> Result<(), Failure> {
    let Some((scheme @ ("udp" | "net" | "packet" | "xdp"), rest)) = address.split_once(':') else { return Ok(()) };
    let wrong = |why: &str| {
        let also = if matches!(scheme, "udp" | "net") { format!(" or {scheme}:[fd00::1]:7000") } else { String::new() };
        let option = match what_for {
            Use::Listen => "--listen ",
            Use::Peer => "--peer ",
            Use::Lease => "",
        };
        let remedy = format!("give {option}an address such as {scheme}:10.0.0.1:7000{also}");
        Err(Failure::new(format!("'{address}' is no address: {why}"), remedy))
    };
    let place = if what_for == Use::Peer { rest.split('#').next().unwrap_or(rest) } else { rest };
    if place.contains('#') {
        return wrong("a public key stands behind the address of a peer alone");
    }
    let (host, port) = match place.rsplit_once(':') {
        Some((host, port)) if !port.ends_with(']') => (host, port),
        _ if place.is_empty() => return wrong("it has neither host nor port"),
        _ => return wrong("it has no port"),
    };
    if host.is_empty() {
        return wrong("it has no host");
    }
    if host.contains(char::is_whitespace) {
        return wrong("there is a space in its host");
    }
    match port.parse::<u16>() {
        Ok(0) if what_for == Use::Peer => return wrong("nobody listens at port 0"),
        Ok(_) => {}
        Err(_) if port.is_empty() => return wrong("it has no port"),
        Err(_) => return wrong(&format!("'{port}' is no port, which is a number up to 65535")),
    }
    // The resolver finds an interface that is named.
    let unscoped = match host.split_once('%') {
        Some((bare, scope)) if scope.len() > 1 && scope.ends_with(']') => format!("{bare}]"),
        _ => host.to_owned(),
    };
    if host.contains(['[', ']']) && format!("{unscoped}:0").parse::<SocketAddrV6>().is_err() {
        return wrong("what stands in brackets is an IPv6 address");
    }
    if !host.starts_with('[') && host.contains(':') {
        return wrong("an IPv6 address stands in brackets");
    }
    if host.starts_with('[') && matches!(scheme, "packet" | "xdp") {
        return wrong("rings carry IPv4 alone, so far");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(address: &str, what_for: Use) -> String {
        check(address, what_for).expect_err(address).to_string()
    }

    #[test]
    fn what_can_be_an_address_is_taken() {
        for address in [
            "udp:127.0.0.1:7000",
            "udp:localhost:1",
            "net:[::1]:65535",
            "net:[fe80::1%2]:70",
            "udp:[fe80::1%eth0]:70",
            "packet:10.0.0.1:80",
            "shm:name",
            "fabric:x",
            "name",
        ] {
            for what_for in [Use::Listen, Use::Peer, Use::Lease] {
                assert!(check(address, what_for).is_ok(), "{address}");
            }
        }
        assert!(check("udp:127.0.0.1:0", Use::Listen).is_ok());
        assert!(check("xdp:10.0.0.1:0", Use::Lease).is_ok());
        assert!(check("udp:10.0.0.1:7#00ff", Use::Peer).is_ok());
    }

    #[test]
    fn what_cannot_is_named_as_it_was_given() {
        for (address, why) in [
            ("udp:", "it has neither host nor port"),
            ("net:", "it has neither host nor port"),
            ("udp:host", "it has no port"),
            ("udp:host:", "it has no port"),
            ("udp:[::1]", "it has no port"),
            ("udp::7000", "it has no host"),
            ("udp:host:99999", "'99999' is no port, which is a number up to 65535"),
            ("packet:10.0.0.1:-1", "'-1' is no port, which is a number up to 65535"),
            ("udp: host:7", "there is a space in its host"),
            ("udp:[::1:7000", "what stands in brackets is an IPv6 address"),
            ("udp:[host]:7000", "what stands in brackets is an IPv6 address"),
            ("udp:[fe80::1%]:7000", "what stands in brackets is an IPv6 address"),
            ("udp:[host%eth0]:7000", "what stands in brackets is an IPv6 address"),
            ("udp:::1:7000", "an IPv6 address stands in brackets"),
            ("xdp:[::1]:70", "rings carry IPv4 alone, so far"),
            ("packet:[fd00::1]:70", "rings carry IPv4 alone, so far"),
            ("udp:fe80::1", "an IPv6 address stands in brackets"),
        ] {
            for (what_for, option) in [(Use::Listen, "--listen "), (Use::Peer, "--peer "), (Use::Lease, "")] {
                let begin = format!("'{address}' is no address: {why}; give {option}an address such as ");
                assert!(said(address, what_for).starts_with(&begin), "{}", said(address, what_for));
            }
        }
        assert!(said("udp:10.0.0.1:0", Use::Peer).contains("nobody listens at port 0"));
        assert!(said("udp:10.0.0.1:7#00", Use::Listen).contains("of a peer alone"));
        assert!(said("net:x", Use::Peer).ends_with("such as net:10.0.0.1:7000 or net:[fd00::1]:7000"));
        assert!(said("xdp:x", Use::Lease).ends_with("such as xdp:10.0.0.1:7000"));
    }
}
