//! Addresses of the form `udp:HOST:PORT`.

use std::net::{SocketAddr, ToSocketAddrs};

/// What such an address begins with.
pub const SCHEME: &str = "udp:";

/// Whether an address is one of this adapter.
#[must_use]
pub fn is_udp(address: &str) -> bool {
    address.starts_with(SCHEME)
}

/// Why an address cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum UdpAddressError {
    /// It is not of the form.
    #[error("'{0}' is no address: say udp:HOST:PORT, for example udp:127.0.0.1:7000 or udp:[::1]:7000")]
    Malformed(String),
    /// The host has no address.
    #[error("'{host}': {source}")]
    Host {
        /// Host and port.
        host: String,
        /// What the resolver said.
        source: std::io::Error,
    },
    /// Neither a key nor the permission to go without.
    #[error("no key is configured: give a key file (--key FILE), or ask for plain text by name (--insecure)")]
    NoKey,
    /// The system does not give the socket.
    #[error("{address}: {source}")]
    Socket {
        /// The address.
        address: SocketAddr,
        /// What the system said.
        source: std::io::Error,
    },
}

/// The socket address that an address names; the first, if the host has several.
///
/// # Errors
/// [`UdpAddressError`].
pub fn parse(address: &str) -> Result<SocketAddr, UdpAddressError> {
    let malformed = || UdpAddressError::Malformed(address.to_owned());
    let host = address.strip_prefix(SCHEME).filter(|host| !host.is_empty()).ok_or_else(malformed)?;
    if let Ok(numbers) = host.parse() {
        return Ok(numbers);
    }
    if host.rsplit_once(':').is_none_or(|(name, port)| name.is_empty() || port.parse::<u16>().is_err()) {
        return Err(malformed());
    }
    let refused = |source| UdpAddressError::Host { host: host.to_owned(), source };
    host.to_socket_addrs().map_err(refused)?.next().ok_or_else(malformed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_taken_as_they_are() {
        assert_eq!(parse("udp:10.0.0.1:7").unwrap(), SocketAddr::from(([10, 0, 0, 1], 7)));
        assert!(parse("udp:[::1]:7").unwrap().is_ipv6());
    }

    #[test]
    fn what_is_no_address_is_refused_with_an_example() {
        for address in ["udp:", "udp:host", "udp::7", "udp:host:99999", "shm:x"] {
            let error = parse(address).unwrap_err();
            assert!(matches!(error, UdpAddressError::Malformed(_)), "{address}: {error}");
        }
    }
}
