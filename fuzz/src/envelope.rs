//! Frames of Ethernet with IPv4 and UDP, written and taken apart.

use std::net::{Ipv4Addr, SocketAddrV4};

use arbitrary::Arbitrary;
use cutthrough_node::fuzz::{envelope, parse};

/// Bytes before the body of a datagram.
const HEADERS: usize = 42;

/// A frame, and what becomes of it on its way.
#[derive(Debug, Arbitrary)]
pub struct Frame {
    /// Who sends, and to whom: address, port, address of the adapter.
    pub ends: [([u8; 4], u16, [u8; 6]); 2],
    /// Body of the datagram.
    pub body: Vec<u8>,
    /// Bytes behind the datagram.
    pub padding: u8,
    /// Bytes that are changed: which, and by how much.
    pub changes: Vec<(u16, u8)>,
    /// Whether the check sum is made right again.
    pub mended: bool,
    /// Bytes that are left, if not all are.
    pub keep: Option<u16>,
    /// No frame of ours at all.
    pub noise: Vec<u8>,
}

/// Writes a frame, takes it apart, changes it and takes it apart again.
///
/// # Panics
/// If what is read is not what the frame says, in plain words.
pub fn run(frame: &Frame) {
    same(&frame.noise);
    let [from, to] = frame.ends.map(|(ip, port, mac)| (SocketAddrV4::new(ip.into(), port), mac));
    let mut bytes = envelope(from, to, frame.body.len()).to_vec();
    bytes.extend_from_slice(&frame.body);
    bytes.resize(bytes.len() + usize::from(frame.padding), 0x5a);
    let written = (!is_nobody(*from.0.ip())).then_some((from.0, to.0, frame.body.len()));
    assert_eq!(plain(&bytes), written, "a frame that was written is one");
    assert_eq!((&bytes[..6], &bytes[6..12]), (&to.1[..], &from.1[..]));
    same(&bytes);
    for (at, by) in &frame.changes {
        let at = usize::from(*at) % bytes.len();
        bytes[at] = bytes[at].wrapping_add(*by);
    }
    if frame.mended {
        bytes[24..26].fill(0);
        let sum = !sum(&bytes[14..34]);
        bytes[24..26].copy_from_slice(&sum.to_be_bytes());
    }
    bytes.truncate(frame.keep.map_or(usize::MAX, usize::from));
    same(&bytes);
}

/// What is taken apart is what the plain words say, and the body is where they say.
fn same(bytes: &[u8]) {
    let mut taken = bytes.to_vec();
    let found = parse(&mut taken).map(|(from, to, body)| (from, to, body.to_vec()));
    let expected = plain(bytes).map(|(from, to, len)| (from, to, bytes[HEADERS..HEADERS + len].to_vec()));
    assert_eq!(found, expected);
    assert_eq!(taken, bytes, "looking changes nothing");
}

/// RFC 894, 791 and 768 in plain words: from, to, and bytes of the body, if it is a datagram that a ring carries.
fn plain(bytes: &[u8]) -> Option<(SocketAddrV4, SocketAddrV4, usize)> {
    let number = |at: usize| usize::from(u16::from_be_bytes([bytes[at], bytes[at + 1]]));
    if bytes.len() < HEADERS || number(12) != 0x0800 || bytes[14] != 0x45 || bytes[23] != 17 {
        return None;
    }
    // "Don't fragment" alone, no offset.
    if number(20) != 0x4000 || sum(&bytes[14..34]) != 0xffff {
        return None;
    }
    let (total, udp) = (number(16), number(38));
    if total != udp + 20 || udp < 8 || bytes.len() < 14 + total {
        return None;
    }
    let end = |ip: usize, port: usize| {
        let ip = Ipv4Addr::new(bytes[ip], bytes[ip + 1], bytes[ip + 2], bytes[ip + 3]);
        SocketAddrV4::new(ip, u16::from_be_bytes([bytes[port], bytes[port + 1]]))
    };
    let (from, to) = (end(26, 34), end(30, 36));
    (!is_nobody(*from.ip())).then_some((from, to, udp - 8))
}

/// Whether this cannot be the address of another machine.
fn is_nobody(ip: Ipv4Addr) -> bool {
    ip.octets()[0] == 127 || (224..240).contains(&ip.octets()[0]) || [0, u32::MAX].contains(&ip.to_bits())
}

/// The sum in ones' complement, carried as it is added up.
fn sum(header: &[u8]) -> u16 {
    header.chunks(2).fold(0, |sum: u16, word| {
        let (sum, carry) = sum.overflowing_add(u16::from_be_bytes([word[0], word[1]]));
        sum + u16::from(carry)
    })
}
