//! Which frames a ring takes, and which stay with the socket: one rule, as two programs for the kernel.
//!
//! The kernel shows an arriving frame to both, to the ring's tap first (at its Ethernet header) and to the UDP socket
//! later (at its UDP header). Each frame must arrive exactly once, so both programs decide by the same bytes: those of
//! its IP and UDP headers. What the tap accepts is what the socket drops:
//!
//! * for this address, this port, and by this interface. What comes another way (from this machine itself, by another
//!   adapter) never passes the tap;
//! * for this host by its hardware address, and not by broadcast;
//! * sent by a ring, by its mark. What a socket has sent stays with the socket: two ways in for one way out would
//!   change the order, and let the sender take what is only late for lost;
//! * a whole datagram without options that must not be fragmented. A datagram that the kernel has put together from
//!   fragments looks whole to the socket, but has lost that mark on the way;
//! * of at most the length that a slot of the ring takes, by the length in the IP header. That of a train (GSO) is the
//!   whole train's: where those of sockets are taken, the short ones go to the ring and the long ones to the socket.
//!
//! The lengths that the kernel itself counts (`skb->len`) are of no use here: they begin at different headers, and
//! include the padding of short frames at the tap alone.

use std::net::SocketAddrV4;

use libc::sock_filter as Instruction;

use super::envelope::{ETHERNET_BYTES, IP_BYTES, MARK, PROTOCOL, VERSION_AND_LENGTH, WHOLE};

/// What a ring takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Rule {
    /// Address and port of the endpoint.
    pub(crate) to: SocketAddrV4,
    /// Index of the ring's interface.
    pub(crate) interface: u32,
    /// Most bytes of the datagram, with the headers of IP and UDP.
    pub(crate) total_max: u16,
    /// Whether it takes only what a ring has sent; otherwise what sockets have sent, too.
    pub(crate) of_rings: bool,
}

/// The program of the tap: accepts what the ring takes.
pub(crate) fn tap(rule: &Rule) -> Vec<Instruction> {
    let at = Headers { ip: number(ETHERNET_BYTES), udp: number(ETHERNET_BYTES + IP_BYTES) };
    program(rule, &at, u32::MAX, 0)
}

/// The program of the UDP socket: drops what the ring takes.
pub(crate) fn socket(rule: &Rule) -> Vec<Instruction> {
    // The kernel has read both headers already when it asks, so none of these loads can fail, which would be a drop.
    let at = Headers { ip: libc::SKF_NET_OFF.cast_unsigned(), udp: 0 };
    program(rule, &at, 0, u32::MAX)
}

/// From where on the headers are read.
struct Headers {
    ip: u32,
    udp: u32,
}

/// Returns `taken` for frames that the ring takes, else `left`.
fn program(rule: &Rule, at: &Headers, taken: u32, left: u32) -> Vec<Instruction> {
    const BYTE: u32 = libc::BPF_LD | libc::BPF_B | libc::BPF_ABS;
    const HALF: u32 = libc::BPF_LD | libc::BPF_H | libc::BPF_ABS;
    const WORD: u32 = libc::BPF_LD | libc::BPF_W | libc::BPF_ABS;
    const EQUAL: u32 = libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K;
    const ABOVE: u32 = libc::BPF_JMP | libc::BPF_JGT | libc::BPF_K;
    const EQUAL_TO_X: u32 = libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_X;
    const ADD: u32 = libc::BPF_ALU | libc::BPF_ADD | libc::BPF_K;
    const TO_X: u32 = libc::BPF_MISC | libc::BPF_TAX;
    const RETURN: u32 = libc::BPF_RET | libc::BPF_K;
    let about = |what: i32| (libc::SKF_AD_OFF + what).cast_unsigned();
    // What most frames of an interface fail at comes first.
    let steps = [
        (BYTE, at.ip + 9),
        (EQUAL, u32::from(PROTOCOL)),
        (HALF, at.udp + 2),
        (EQUAL, u32::from(rule.to.port())),
        (WORD, at.ip + 16),
        (EQUAL, rule.to.ip().to_bits()),
        (WORD, about(libc::SKF_AD_IFINDEX)),
        (EQUAL, rule.interface),
        (WORD, about(libc::SKF_AD_PKTTYPE)),
        (EQUAL, u32::from(libc::PACKET_HOST)),
        (BYTE, at.ip),
        (EQUAL, u32::from(VERSION_AND_LENGTH)),
        (HALF, at.ip + 4),
        // To add compares nothing.
        (if rule.of_rings { EQUAL } else { ADD }, u32::from(u16::from_be_bytes(MARK))),
        (HALF, at.ip + 6),
        (EQUAL, u32::from(u16::from_be_bytes(WHOLE))),
        // UDP fills the datagram.
        (HALF, at.udp + 4),
        (ADD, number(IP_BYTES)),
        (TO_X, 0),
        (HALF, at.ip + 2),
        (EQUAL_TO_X, 0),
        (ABOVE, u32::from(rule.total_max)),
        (RETURN, taken),
        (RETURN, left),
    ];
    let last = steps.len() - 1;
    let instruction = |(index, &(code, k)): (usize, &(u32, u32))| {
        // From each comparison that fails to the last instruction.
        let away = u8::try_from(last - index).unwrap_or(0).wrapping_sub(1);
        let (jt, jf) = match code {
            EQUAL | EQUAL_TO_X => (0, away),
            ABOVE => (away, 0),
            _ => (0, 0),
        };
        Instruction { code: u16::try_from(code).unwrap_or(0), jt, jf, k }
    };
    steps.iter().enumerate().map(instruction).collect()
}

/// A small number of bytes.
#[expect(clippy::cast_possible_truncation, reason = "headers have a few bytes")]
const fn number(bytes: usize) -> u32 {
    bytes as u32
}

#[cfg(test)]
mod tests {
    use cutthrough_engine::time::Instant;
    use proptest::prelude::*;

    use super::super::Hop;
    use super::super::envelope::{ENVELOPE_BYTES, Envelope, parse};
    use super::*;

    /// A frame as the kernel knows it.
    #[derive(Debug, Clone)]
    struct Frame {
        bytes: Vec<u8>,
        interface: u32,
        kind: u32,
    }

    /// What the kernel's interpreter does with these few instructions; `begin` is where the program's offset 0 lies.
    fn run(program: &[Instruction], frame: &Frame, begin: usize) -> u32 {
        let load = |k: u32, bytes: usize| -> Option<u32> {
            let signed = k.cast_signed();
            match signed - libc::SKF_AD_OFF {
                libc::SKF_AD_IFINDEX => return Some(frame.interface),
                libc::SKF_AD_PKTTYPE => return Some(frame.kind),
                _ => {}
            }
            let at = match usize::try_from(signed) {
                Ok(k) => begin + k,
                Err(_) => ETHERNET_BYTES + usize::try_from(signed - libc::SKF_NET_OFF).unwrap(),
            };
            Some(frame.bytes.get(at..at + bytes)?.iter().fold(0, |word, byte| word << 8 | u32::from(*byte)))
        };
        let (mut a, mut x, mut at) = (0, 0, 0);
        loop {
            let Instruction { code, jt, jf, k } = program[at];
            at += 1;
            let mut jump = |yes: bool| at += usize::from(if yes { jt } else { jf });
            match code {
                0x20 | 0x28 | 0x30 => match load(k, [4, 2, 1][usize::from(code - 0x20) / 8]) {
                    Some(word) => a = word,
                    None => return 0,
                },
                0x15 => jump(a == k),
                0x1d => jump(a == x),
                0x25 => jump(a > k),
                0x04 => a = a.wrapping_add(k),
                0x07 => x = a,
                0x06 => return k,
                _ => panic!("an instruction of code {code:#x}"),
            }
        }
    }

    const RULE: Rule = Rule {
        to: SocketAddrV4::new(std::net::Ipv4Addr::new(10, 0, 0, 2), 7000),
        interface: 3,
        total_max: 1500,
        of_rings: true,
    };

    /// Frames that the rule takes, but for a few bytes.
    fn frame() -> impl Strategy<Value = Frame> {
        let change = prop_oneof![
            3 => Just(None),
            2 => (0..ENVELOPE_BYTES, any::<u8>()).prop_map(Some),
            1 => (Just(20), prop_oneof![Just(0_u8), Just(0x20), Just(0x40), Just(0x60)]).prop_map(Some),
        ];
        let body = prop_oneof![0..100_usize, 1460..1480_usize, 3000..3010_usize];
        let around = (prop_oneof![5 => Just(3_u32), 1 => Just(4)], prop_oneof![5 => Just(0_u32), 1 => 1..5_u32]);
        (body, change, around).prop_map(|(body, change, (interface, kind))| {
            let from = (SocketAddrV4::new([10, 0, 0, 1].into(), 9), [2; 6]);
            let hop = Hop::new(from, (RULE.to, [4; 6]), 3, Instant::default());
            let mut bytes = [&Envelope::write(&hop, body)[..], &vec![0; body]].concat();
            if let Some((at, byte)) = change {
                bytes[at] = byte;
            }
            Frame { bytes, interface, kind }
        })
    }

    /// The rule in words.
    fn takes(frame: &Frame) -> bool {
        let bytes = &frame.bytes;
        let half = |at: usize| u16::from_be_bytes([bytes[at], bytes[at + 1]]);
        frame.interface == RULE.interface
            && frame.kind == 0
            && bytes[14] == 0x45
            && bytes[18..20] == MARK
            && half(20) == 0x4000
            && bytes[23] == 17
            && bytes[30..34] == RULE.to.ip().octets()
            && half(36) == RULE.to.port()
            && half(16) <= RULE.total_max
            && u32::from(half(38)) + 20 == u32::from(half(16))
    }

    proptest! {
        #[test]
        fn each_frame_goes_one_way(frame in frame()) {
            let taken = run(&tap(&RULE), &frame, 0) != 0;
            let left = run(&socket(&RULE), &frame, ETHERNET_BYTES + IP_BYTES) != 0;
            prop_assert_eq!(taken, takes(&frame));
            prop_assert_eq!(left, !taken);
        }

        /// What the tap takes is a datagram to the ring too, unless the kernel would refuse it as well.
        #[test]
        fn what_is_taken_is_read(frame in frame()) {
            let mut bytes = frame.bytes.clone();
            let read = parse(&mut bytes).is_some_and(|(_, to, body)| to == RULE.to && body.len() + 28 <= 1500);
            if read && frame.interface == 3 && frame.kind == 0 {
                prop_assert!(run(&tap(&RULE), &frame, 0) != 0);
            }
        }
    }

    #[test]
    fn there_are_frames_of_both_kinds() {
        let hop = Hop::new((RULE.to, [2; 6]), (RULE.to, [4; 6]), 3, Instant::default());
        for (body, taken) in [(0, true), (1472, true), (1473, false)] {
            let bytes = [&Envelope::write(&hop, body)[..], &vec![0; body]].concat();
            assert_eq!(run(&tap(&RULE), &Frame { bytes, interface: 3, kind: 0 }, 0) != 0, taken, "{body}");
        }
    }
}
