//! Ethernet, IPv4 and UDP around the body of a datagram (RFC 894, RFC 791, RFC 768).
//!
//! Every frame that is written is one whole datagram: no IP options, "don't fragment", a time to live of 64, and no UDP
//! checksum (0), because the frames of this project carry their own seal. Only such frames are read, whatever their
//! time to live and UDP checksum.
//!
//! The number that IPv4 gives a datagram for its fragments may be anything where there are none (RFC 6864). Here it is
//! [`MARK`]: it says that a ring has sent the frame, so that a ring takes it in. What a socket has sent, one datagram
//! alone too, stays with the socket, and so comes in the order in which it was sent.

use std::net::{Ipv4Addr, SocketAddrV4};

use super::{Hop, Mac};

/// Bytes of the three headers.
pub(crate) const ENVELOPE_BYTES: usize = ETHERNET_BYTES + IP_BYTES + UDP_BYTES;
/// Bytes of an Ethernet header without a tag.
pub(crate) const ETHERNET_BYTES: usize = 14;
/// Bytes of an IPv4 header without options.
pub(crate) const IP_BYTES: usize = 20;
/// Bytes of a UDP header.
pub(crate) const UDP_BYTES: usize = 8;
/// Longest body: what the 16-bit length of IPv4 leaves.
pub(crate) const BODY_MAX: usize = 65_535 - IP_BYTES - UDP_BYTES;

/// Type of an Ethernet frame that carries IPv4.
pub(crate) const ETHERTYPE: [u8; 2] = [0x08, 0x00];
/// Version 4, five words of header.
pub(crate) const VERSION_AND_LENGTH: u8 = 0x45;
/// Not to be fragmented, and no fragment: flags and offset of every frame that a ring carries.
pub(crate) const WHOLE: [u8; 2] = [0x40, 0x00];
/// The number of every datagram that a ring has sent. A kernel gives its own, unfragmented, 0 or the next of a count:
/// at most one in 65,536 of them bears it by chance. Nothing is wrong with that one but its order.
pub(crate) const MARK: [u8; 2] = *b"ct";
/// UDP in IP.
pub(crate) const PROTOCOL: u8 = 17;
const TIME_TO_LIVE: u8 = 64;

/// Where the fields lie in the frame.
const IP: usize = ETHERNET_BYTES;
const TOTAL: usize = IP + 2;
const IDENT: usize = IP + 4;
const FLAGS: usize = IP + 6;
const CHECKSUM: usize = IP + 10;
const SOURCE: usize = IP + 12;
const DESTINATION: usize = IP + 16;
const UDP: usize = IP + IP_BYTES;
const UDP_LENGTH: usize = UDP + 4;

/// The headers of all frames of one way; what differs from frame to frame is 0.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Envelope {
    bytes: [u8; ENVELOPE_BYTES],
    /// Sum of the words of the IP header, of which there are ten: it fits.
    sum: u32,
}

impl Envelope {
    /// Headers from one address to another.
    pub(crate) const fn new((local, from): (SocketAddrV4, Mac), (remote, to): (SocketAddrV4, Mac)) -> Self {
        let mut bytes = [0; ENVELOPE_BYTES];
        put(&mut bytes, 0, to);
        put(&mut bytes, 6, from);
        put(&mut bytes, 12, ETHERTYPE);
        put(&mut bytes, IP, [VERSION_AND_LENGTH, 0]);
        put(&mut bytes, IDENT, MARK);
        put(&mut bytes, FLAGS, WHOLE);
        put(&mut bytes, IP + 8, [TIME_TO_LIVE, PROTOCOL]);
        put(&mut bytes, SOURCE, local.ip().octets());
        put(&mut bytes, DESTINATION, remote.ip().octets());
        put(&mut bytes, UDP, local.port().to_be_bytes());
        put(&mut bytes, UDP + 2, remote.port().to_be_bytes());
        let mut sum = 0;
        let mut at = IP;
        while at < UDP {
            sum += u16::from_be_bytes([bytes[at], bytes[at + 1]]) as u32;
            at += 2;
        }
        Self { bytes, sum }
    }

    /// The headers of a frame with a body of so many bytes.
    ///
    /// # Panics
    /// If the body is longer than [`BODY_MAX`].
    #[inline]
    pub(crate) fn write(hop: &Hop, body_len: usize) -> [u8; ENVELOPE_BYTES] {
        assert!(body_len <= BODY_MAX, "a UDP body of {body_len} bytes");
        let Self { mut bytes, sum } = hop.envelope;
        #[expect(clippy::cast_possible_truncation, reason = "it was compared above")]
        let (total, udp) = ((body_len + IP_BYTES + UDP_BYTES) as u16, (body_len + UDP_BYTES) as u16);
        put(&mut bytes, TOTAL, total.to_be_bytes());
        put(&mut bytes, CHECKSUM, (!folded(sum + u32::from(total))).to_be_bytes());
        put(&mut bytes, UDP_LENGTH, udp.to_be_bytes());
        bytes
    }
}

/// Headers of a fragment of a datagram: Ethernet and IPv4.
pub(crate) const FRAGMENT_BYTES: usize = ETHERNET_BYTES + IP_BYTES;

/// The headers of the fragment of datagram `ident` that begins at `offset` and has `bytes` bytes of IP payload, the UDP
/// header counted as payload; `more` says that it is not the last one. None if no datagram has such a fragment.
pub(crate) fn fragment(
    hop: &Hop,
    ident: u16,
    (offset, bytes, more): (usize, usize, bool),
) -> Option<[u8; FRAGMENT_BYTES]> {
    let Envelope { bytes: all, sum } = hop.envelope;
    let fits = offset.is_multiple_of(8) && offset + bytes <= BODY_MAX + UDP_BYTES;
    let total = u16::try_from(bytes + IP_BYTES).ok().filter(|_| fits)?;
    let place = u16::try_from(offset / 8).ok()? | if more { 0x2000 } else { 0 };
    let mut head = [0; FRAGMENT_BYTES];
    head.copy_from_slice(&all[..FRAGMENT_BYTES]);
    // What stands there for all frames is taken out of the sum again.
    let sum = sum - u32::from(u16::from_be_bytes(WHOLE)) - u32::from(u16::from_be_bytes(MARK));
    let sum = sum + u32::from(total) + u32::from(ident) + u32::from(place);
    for (at, field) in [(TOTAL, total), (IDENT, ident), (FLAGS, place), (CHECKSUM, !folded(sum))] {
        head[at..at + 2].copy_from_slice(&field.to_be_bytes());
    }
    Some(head)
}

/// The UDP header of a datagram with this body, and its checksum if it shall have one.
pub(crate) fn udp(hop: &Hop, body: &[u8], vouched: bool) -> Option<[u8; UDP_BYTES]> {
    let bytes = u16::try_from(body.len() + UDP_BYTES).ok()?;
    let mut head = [0; UDP_BYTES];
    head[..4].copy_from_slice(&hop.envelope.bytes[UDP..UDP + 4]);
    head[4..6].copy_from_slice(&bytes.to_be_bytes());
    if vouched {
        let sum = !datagram_sum((*hop.local.ip(), *hop.remote.ip()), bytes, &head, body);
        // 0 would say that there is none (RFC 768).
        head[6..].copy_from_slice(&if sum == 0 { u16::MAX } else { sum }.to_be_bytes());
    }
    Some(head)
}

/// The sum that the checksum of UDP makes 0xffff: addresses, protocol and length, header, body (RFC 768).
pub(crate) fn datagram_sum((from, to): (Ipv4Addr, Ipv4Addr), bytes: u16, head: &[u8; 8], body: &[u8]) -> u16 {
    let mut pseudo = [0; 12];
    pseudo[..4].copy_from_slice(&from.octets());
    pseudo[4..8].copy_from_slice(&to.octets());
    pseudo[9] = PROTOCOL;
    pseudo[10..].copy_from_slice(&bytes.to_be_bytes());
    let all = wide_sum(&pseudo) + wide_sum(head) + wide_sum(body);
    let folds = (all & 0xffff_ffff) + (all >> 32);
    let folds = (folds & 0xffff) + (folds >> 16 & 0xffff) + (folds >> 32);
    folded(u32::try_from(folds).unwrap_or(u32::MAX))
}

/// The words of these bytes added up. Four bytes at a time: the sum in ones' complement is that of the halves.
fn wide_sum(bytes: &[u8]) -> u64 {
    let (fours, rest) = bytes.as_chunks::<4>();
    let sum: u64 = fours.iter().map(|four| u64::from(u32::from_be_bytes(*four))).sum();
    let mut last = [0; 4];
    last[..rest.len()].copy_from_slice(rest);
    sum + u64::from(u32::from_be_bytes(last))
}

/// Takes a frame apart: who has sent it, for whom, and the body.
///
/// Everything in it is an allegation. None if it is not a whole IPv4 datagram of UDP without options that must not be
/// fragmented, if its lengths contradict each other or the frame, if the checksum of the IP header is wrong, or if it
/// says to be from [where nobody is](is_nobody). What follows the datagram in the frame (the padding of short frames)
/// is no part of the body.
#[inline]
pub(crate) fn parse(frame: &mut [u8]) -> Option<(SocketAddrV4, SocketAddrV4, &mut [u8])> {
    let (head, rest) = frame.split_first_chunk_mut::<ENVELOPE_BYTES>()?;
    let head = &*head;
    let whole = [head[12], head[13]] == ETHERTYPE
        && head[IP] == VERSION_AND_LENGTH
        && [head[FLAGS], head[FLAGS + 1]] == WHOLE
        && head[IP + 9] == PROTOCOL;
    let sum = head[IP..UDP].chunks_exact(2).map(|word| u32::from(u16::from_be_bytes([word[0], word[1]]))).sum();
    let total = usize::from(number(head, TOTAL));
    let udp = usize::from(number(head, UDP_LENGTH));
    if !whole || folded(sum) != u16::MAX || total != udp + IP_BYTES {
        return None;
    }
    let body = rest.get_mut(..udp.checked_sub(UDP_BYTES)?)?;
    let from = address(head, SOURCE, UDP);
    (!is_nobody(*from.ip())).then_some((from, address(head, DESTINATION, UDP + 2), body))
}

/// Whether no other machine has this address (RFC 1122, section 3.2.1.3). The kernel shows no socket what comes from
/// there, and a ring takes frames before it looks. What is answered would go to everybody who hears a multicast, or
/// into this very machine.
const fn is_nobody(from: Ipv4Addr) -> bool {
    from.is_unspecified() || from.is_loopback() || from.is_multicast() || from.is_broadcast()
}

/// The sum in ones' complement (RFC 1071).
const fn folded(sum: u32) -> u16 {
    let sum = (sum & 0xffff) + (sum >> 16);
    let sum = (sum & 0xffff) + (sum >> 16);
    #[expect(clippy::cast_possible_truncation, reason = "after two carries nothing is left above")]
    let word = sum as u16;
    word
}

const fn put<const N: usize>(bytes: &mut [u8; ENVELOPE_BYTES], at: usize, field: [u8; N]) {
    let mut index = 0;
    while index < N {
        bytes[at + index] = field[index];
        index += 1;
    }
}

const fn number(bytes: &[u8; ENVELOPE_BYTES], at: usize) -> u16 {
    u16::from_be_bytes([bytes[at], bytes[at + 1]])
}

const fn address(bytes: &[u8; ENVELOPE_BYTES], ip: usize, port: usize) -> SocketAddrV4 {
    let ip = Ipv4Addr::new(bytes[ip], bytes[ip + 1], bytes[ip + 2], bytes[ip + 3]);
    SocketAddrV4::new(ip, number(bytes, port))
}

#[cfg(test)]
mod tests {
    use cutthrough_engine::time::Instant;
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    fn end() -> impl Strategy<Value = (SocketAddrV4, Mac)> {
        let any_end = any::<([u8; 4], u16, Mac)>();
        let end = any_end.prop_map(|(ip, port, mac)| (SocketAddrV4::new(ip.into(), port), mac));
        end.prop_filter("somebody's", |(address, _)| !is_nobody(*address.ip()))
    }

    fn frame(from: (SocketAddrV4, Mac), to: (SocketAddrV4, Mac), body: &[u8]) -> Vec<u8> {
        let hop = Hop::new(from, to, 1, Instant::default());
        [&Envelope::write(&hop, body.len())[..], body].concat()
    }

    /// The checksum as RFC 791 defines it, added up one by one.
    fn checksum(header: &[u8]) -> u16 {
        let mut sum = 0_u32;
        for word in header.chunks(2) {
            sum += u32::from(word[0]) * 256 + u32::from(word[1]);
            if sum > 0xffff {
                sum -= 0xffff;
            }
        }
        !u16::try_from(sum).unwrap()
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(
            from in end(), to in end(), body in vec(any::<u8>(), 0..3000), padding in 0..64_usize,
        ) {
            let mut frame = frame(from, to, &body);
            frame.extend(vec![0x5a; padding]);
            let mut expected = body.clone();
            prop_assert_eq!(parse(&mut frame), Some((from.0, to.0, &mut expected[..])));
        }

        #[test]
        fn the_checksum_is_that_of_the_header(from in end(), to in end(), len in 0..=BODY_MAX) {
            let mut head = Envelope::write(&Hop::new(from, to, 1, Instant::default()), len);
            let written = number(&head, CHECKSUM);
            put(&mut head, CHECKSUM, [0, 0]);
            let expected = checksum(&head[IP..UDP]);
            // In ones' complement there are two zeros.
            prop_assert!(written == expected || (written % 0xffff, expected % 0xffff) == (0, 0));
        }

        /// Fragments say where they belong, and their checksum is that of the header.
        #[test]
        fn fragments_have_the_headers_of_their_place(
            from in end(), to in end(), ident: u16, at in 0..8190_usize, bytes in 0..=1480_usize, more: bool,
        ) {
            let hop = Hop::new(from, to, 1, Instant::default());
            let head = fragment(&hop, ident, (at * 8, bytes, more));
            let fits = at * 8 + bytes <= BODY_MAX + UDP_BYTES;
            prop_assert_eq!(head.is_some(), fits);
            prop_assert_eq!(fragment(&hop, ident, (at * 8 + 4, bytes, more)), None);
            if let Some(mut head) = head {
                let number = |at: usize| u16::from_be_bytes([head[at], head[at + 1]]);
                let place = u16::try_from(at).unwrap() | if more { 0x2000 } else { 0 };
                prop_assert_eq!((number(IDENT), number(FLAGS)), (ident, place));
                prop_assert_eq!(usize::from(number(TOTAL)), bytes + 20);
                let written = number(CHECKSUM);
                prop_assert_eq!(&head[..IP], &Envelope::write(&hop, 0)[..IP]);
                prop_assert_eq!(&head[SOURCE..UDP], &Envelope::write(&hop, 0)[SOURCE..UDP]);
                head[CHECKSUM..CHECKSUM + 2].fill(0);
                let expected = checksum(&head[IP..]);
                prop_assert!(written == expected || (written % 0xffff, expected % 0xffff) == (0, 0));
            }
        }

        /// The checksum of a datagram is that of RFC 768, added up word by word; it finds one byte that has changed.
        #[test]
        fn datagrams_have_the_checksum_of_their_bytes(
            from in end(), to in end(), body in vec(any::<u8>(), 1..5000), change in any::<(prop::sample::Index, u8)>(),
        ) {
            let hop = Hop::new(from, to, 1, Instant::default());
            let head = udp(&hop, &body, true).unwrap();
            let length = u16::try_from(body.len() + 8).unwrap();
            let pseudo =
                [&from.0.ip().octets()[..], &to.0.ip().octets(), &[0, 17], &length.to_be_bytes()].concat();
            let mut all = [&pseudo[..], &head, &body].concat();
            if !all.len().is_multiple_of(2) {
                all.push(0);
            }
            prop_assert_eq!(checksum(&all), 0);
            prop_assert_ne!(&head[6..], &[0, 0]);
            prop_assert_eq!(&udp(&hop, &body, false).unwrap()[6..], &[0, 0][..]);
            let ends = (*from.0.ip(), *to.0.ip());
            prop_assert_eq!(datagram_sum(ends, length, &head, &body), u16::MAX);
            let (mut changed, (at, by)) = (body.clone(), change);
            let at = at.index(body.len());
            changed[at] ^= by;
            prop_assert_eq!(datagram_sum(ends, length, &head, &changed) == u16::MAX, by == 0);
        }

        /// Anything at all, and anything that was a frame before some bytes of it were changed and its end cut off.
        #[test]
        fn nothing_makes_it_panic(
            body in vec(any::<u8>(), 0..200), changes in vec((0..300_usize, any::<u8>()), 0..4), keep in 0..300_usize,
            noise in vec(any::<u8>(), 0..100), from in end(), to in end(),
        ) {
            let _ = parse(&mut noise.clone());
            let mut frame = frame(from, to, &body);
            for (at, byte) in changes {
                if let Some(target) = frame.get_mut(at) {
                    *target = byte;
                }
            }
            frame.truncate(keep);
            let lengths = frame.len();
            if let Some((_, _, body)) = parse(&mut frame) {
                prop_assert!(body.len() + ENVELOPE_BYTES <= lengths);
            }
        }

        /// The checksum finds every header of which one byte is another.
        #[test]
        fn a_changed_ip_header_is_refused(from in end(), to in end(), at in IP..UDP, change in 1..=255_u8) {
            let mut frame = frame(from, to, b"body");
            frame[at] ^= change;
            prop_assert_eq!(parse(&mut frame), None);
        }
    }

    /// Each field by itself, with a checksum that fits, so that it is the field that is refused.
    #[test]
    fn what_is_not_for_a_ring_is_refused() {
        let ends = (
            (SocketAddrV4::new([10, 0, 0, 1].into(), 7), [2; 6]),
            (SocketAddrV4::new([10, 0, 0, 2].into(), 8), [4; 6]),
        );
        let good = frame(ends.0, ends.1, b"some body");
        assert!(parse(&mut good.clone()).is_some());
        let changed = |at: usize, bytes: &[u8]| {
            let mut frame = good.clone();
            frame[at..at + bytes.len()].copy_from_slice(bytes);
            frame[CHECKSUM..CHECKSUM + 2].fill(0);
            let sum = checksum(&frame[IP..UDP]);
            frame[CHECKSUM..CHECKSUM + 2].copy_from_slice(&sum.to_be_bytes());
            frame
        };
        assert!(parse(&mut changed(IP + 8, &[1])).is_some(), "any time to live will do");
        assert!(parse(&mut changed(SOURCE, &[240, 0, 0, 1])).is_some(), "Linux takes these, too");
        let refused: [(&str, usize, &[u8]); 13] = [
            ("ethertype", 12, &[0x86, 0xdd]),
            ("version", IP, &[0x65]),
            ("options", IP, &[0x46]),
            ("more fragments", FLAGS, &[0x60, 0]),
            ("offset", FLAGS, &[0x40, 1]),
            ("may be fragmented", FLAGS, &[0, 0]),
            ("protocol", IP + 9, &[6]),
            ("total length", TOTAL, &[0, 38]),
            ("UDP length", UDP_LENGTH, &[0, 7]),
            ("from nowhere", SOURCE, &[0, 0, 0, 0]),
            ("from this machine", SOURCE, &[127, 0, 0, 1]),
            ("from a group", SOURCE, &[224, 0, 0, 251]),
            ("from everybody", SOURCE, &[255; 4]),
        ];
        for (what, at, bytes) in refused {
            assert_eq!(parse(&mut changed(at, bytes)), None, "{what}");
        }
        for keep in 0..good.len() {
            assert_eq!(parse(&mut good[..keep].to_vec()), None, "cut to {keep}");
        }
        let mut short = changed(TOTAL, &[0, 27]);
        short[UDP_LENGTH..UDP_LENGTH + 2].copy_from_slice(&[0, 7]);
        assert_eq!(parse(&mut short), None, "shorter than a UDP header");
    }
}
