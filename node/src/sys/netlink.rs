//! Questions to the kernel about the network: one request, one answer (netlink(7), rtnetlink(7)).

use std::io;
use std::os::fd::OwnedFd;
use std::time::Duration;

use rustix::io::Errno;
use rustix::net::netlink::SocketAddrNetlink;
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, bind, recv, send, socket_with, sockopt,
};

/// Bytes of the head of every message.
const HEAD: usize = 16;
/// Most bytes of an answer; the longest is that about an interface, some kilobytes.
const ANSWER: usize = 32 << 10;
/// The kernel answers at once; only if it had no memory for the answer would nothing ever come.
const PATIENCE: Duration = Duration::from_secs(1);

const REQUEST: u16 = 1;
const ERROR: u16 = 2;

/// A netlink socket of the network namespace of the thread that has opened it.
#[derive(Debug)]
pub(crate) struct Netlink {
    fd: OwnedFd,
    sequence: u32,
    answer: Box<[u8]>,
}

/// One answer: the bytes behind its head.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Answer<'a>(&'a [u8]);

impl Netlink {
    /// Opens one. No right is needed.
    ///
    /// # Errors
    /// As the kernel says: no more files, or no netlink.
    pub(crate) fn open() -> io::Result<Self> {
        let flags = SocketFlags::CLOEXEC;
        // No protocol means 0, which is `NETLINK_ROUTE`.
        let fd = socket_with(AddressFamily::NETLINK, SocketType::RAW, flags, None)?;
        sockopt::set_socket_timeout(&fd, sockopt::Timeout::Recv, Some(PATIENCE))?;
        Ok(Self { fd, sequence: 0, answer: vec![0; ANSWER].into() })
    }

    /// How many things were asked for.
    #[cfg(test)]
    pub(crate) const fn asked(&self) -> u32 {
        self.sequence
    }

    /// Asks for one thing: a request of this kind with these bytes, and attributes behind them.
    ///
    /// # Errors
    /// As the kernel answers.
    pub(crate) fn ask(&mut self, kind: u16, fixed: &[u8], attributes: &[(u16, [u8; 4])]) -> Result<Answer<'_>, Errno> {
        self.sequence = self.sequence.wrapping_add(1);
        let request = request(kind, self.sequence, fixed, attributes);
        send(&self.fd, &request, SendFlags::empty())?;
        loop {
            let (bytes, whole) = recv(&self.fd, &mut self.answer[..], RecvFlags::TRUNC)?;
            if whole > bytes {
                return Err(Errno::MSGSIZE);
            }
            // An answer that came too late for an earlier question is of no use any more.
            let (kind, sequence) = head(&self.answer[..bytes]).ok_or(Errno::PROTO)?;
            if sequence == self.sequence {
                let answer = Answer(&self.answer[HEAD..bytes]);
                return if kind == ERROR { Err(answer.error()) } else { Ok(answer) };
            }
        }
    }
}

/// States in which a neighbour's hardware address is to be used: reachable, stale, delay, probe, no-ARP, permanent.
pub(crate) const USABLE: u16 = 0x02 | 0x04 | 0x08 | 0x10 | 0x40 | 0x80;
/// Kinds of notices: a neighbour that is known, and one that is forgotten.
const NEW_NEIGHBOUR: u16 = 28;
const OLD_NEIGHBOUR: u16 = 29;
/// Whom notices are of, a bit for each: interfaces, neighbours, addresses and ways of IPv4.
const GROUPS: u32 = 0x01 | 0x04 | 0x10 | 0x40;
/// Most calls in which notices are taken in at a time.
const NOTICES: u32 = 64;

/// What the kernel says by itself of changes, in the network namespace of the thread that has opened it.
#[derive(Debug)]
pub(crate) struct Notices {
    fd: OwnedFd,
    space: Box<[u8]>,
}

impl Notices {
    /// Opens them: what changes from now on is told. No right is needed.
    ///
    /// # Errors
    /// As the kernel says.
    pub(crate) fn open() -> io::Result<Self> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let fd = socket_with(AddressFamily::NETLINK, SocketType::RAW, flags, None)?;
        bind(&fd, &SocketAddrNetlink::new(0, GROUPS))?;
        Ok(Self { fd, space: vec![0; 8 << 10].into() })
    }

    /// Whether anything has changed, since this was asked last, by which a way may have come up.
    pub(crate) fn any(&mut self) -> bool {
        let mut any = false;
        for _ in 0..NOTICES {
            match recv(&self.fd, &mut self.space[..], RecvFlags::TRUNC) {
                Ok((bytes, whole)) => any |= whole > bytes || tell_of_ways(&self.space[..bytes]),
                // Some were lost.
                Err(Errno::NOBUFS) => any = true,
                Err(_) => break,
            }
        }
        any
    }
}

/// Whether any of these notices may be about a way that has come up. That a neighbour is looked for, or was not found,
/// is not.
fn tell_of_ways(mut notices: &[u8]) -> bool {
    while let Some((kind, _)) = head(notices) {
        let length = field(notices, 0).map_or(0, |length| u32::from_ne_bytes(length) as usize);
        let (notice, rest) = notices.split_at(length);
        let state = u16::from_ne_bytes(Answer(&notice[HEAD..]).fixed(8));
        if kind != OLD_NEIGHBOUR && (kind != NEW_NEIGHBOUR || state & USABLE != 0) {
            return true;
        }
        notices = rest.get(length.next_multiple_of(4) - length..).unwrap_or_default();
    }
    false
}

/// The bytes of a request.
fn request(kind: u16, sequence: u32, fixed: &[u8], attributes: &[(u16, [u8; 4])]) -> Vec<u8> {
    let mut request = vec![0; 4];
    request.extend(kind.to_ne_bytes());
    request.extend(REQUEST.to_ne_bytes());
    request.extend(sequence.to_ne_bytes());
    request.extend([0; 4]);
    request.extend(fixed);
    for (kind, value) in attributes {
        request.extend(8_u16.to_ne_bytes());
        request.extend(kind.to_ne_bytes());
        request.extend(value);
    }
    let length = u32::try_from(request.len()).unwrap_or(u32::MAX);
    request[..4].copy_from_slice(&length.to_ne_bytes());
    request
}

/// Kind and sequence number of a message; none if it is not whole.
fn head(message: &[u8]) -> Option<(u16, u32)> {
    let length = u32::from_ne_bytes(field(message, 0)?);
    let whole = (HEAD..=message.len()).contains(&usize::try_from(length).ok()?);
    whole.then_some(())?;
    Some((u16::from_ne_bytes(field(message, 4)?), u32::from_ne_bytes(field(message, 8)?)))
}

/// The bytes at an offset.
fn field<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    bytes.get(at..)?.first_chunk().copied()
}

impl<'a> Answer<'a> {
    /// The fixed field at an offset behind the head; 0 where the answer is shorter.
    pub(crate) fn fixed<const N: usize>(&self, at: usize) -> [u8; N] {
        field(self.0, at).unwrap_or([0; N])
    }

    /// The value of the first attribute of this kind, behind `fixed` bytes. None if there is none, or the lengths of
    /// the attributes before it contradict each other.
    pub(crate) fn attribute(&self, fixed: usize, wanted: u16) -> Option<&'a [u8]> {
        // The two highest bits of a kind are flags.
        const KIND: u16 = 0x3fff;
        let mut rest = self.0.get(fixed..)?;
        loop {
            let length = usize::from(u16::from_ne_bytes(field(rest, 0)?));
            let kind = u16::from_ne_bytes(field(rest, 2)?) & KIND;
            let value = rest.get(4..length)?;
            if kind == wanted {
                return Some(value);
            }
            rest = rest.get(length.next_multiple_of(4)..)?;
        }
    }

    /// What the kernel refuses with.
    fn error(&self) -> Errno {
        // Negative, and above this no number of an error.
        let number = i32::from_ne_bytes(self.fixed(0)).checked_neg().filter(|number| (1..4096).contains(number));
        Errno::from_raw_os_error(number.unwrap_or(libc::EPROTO))
    }
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn attributes_are_found_again(values in vec((1..100_u16, any::<[u8; 4]>()), 0..8), fixed in 0..20_usize) {
            let request = request(7, 9, &vec![0xff; fixed], &values);
            prop_assert_eq!(head(&request), Some((7, 9)));
            let answer = Answer(&request[HEAD..]);
            for wanted in 1..100 {
                let expected = values.iter().find(|(kind, _)| *kind == wanted).map(|(_, value)| &value[..]);
                prop_assert_eq!(answer.attribute(fixed, wanted), expected);
            }
        }

        #[test]
        fn nothing_makes_it_panic(bytes in vec(any::<u8>(), 0..80), fixed in 0..40_usize, wanted: u16) {
            let _ = (head(&bytes), tell_of_ways(&bytes));
            let answer = Answer(&bytes);
            let _ = (answer.attribute(fixed, wanted), answer.error(), answer.fixed::<4>(fixed));
        }
    }

    #[test]
    fn neighbours_that_are_not_there_are_no_change() {
        let neighbour = |state: u16| {
            let mut fixed = [0; 12];
            fixed[8..10].copy_from_slice(&state.to_ne_bytes());
            request(NEW_NEIGHBOUR, 0, &fixed, &[])
        };
        // Incomplete, failed, forgotten; reachable; a new way, or one that is gone.
        let [looked_for, failed, found] = [1, 0x20, 2].map(neighbour);
        let old = request(OLD_NEIGHBOUR, 0, &[0; 12], &[(1, [1; 4])]);
        let none = [looked_for, failed, old].concat();
        assert!(!tell_of_ways(&none) && !tell_of_ways(&[]));
        for some in [found, request(24, 0, &[0; 12], &[]), request(25, 0, &[0; 12], &[])] {
            assert!(tell_of_ways(&[none.clone(), some].concat()));
        }
    }

    #[test]
    fn an_error_without_a_number_is_one() {
        for number in [0, 1, i32::MIN, i32::MAX, -4096] {
            assert_eq!(Answer(&number.to_ne_bytes()).error(), Errno::PROTO);
        }
        assert_eq!(Answer(&(-libc::ENODEV).to_ne_bytes()).error(), Errno::NODEV);
    }

    #[test]
    fn a_question_that_makes_no_sense_is_refused() {
        let mut netlink = Netlink::open().unwrap();
        assert!(netlink.ask(1000, &[0; 16], &[]).is_err());
        // RTM_GETLINK of an interface that nobody has.
        let mut none = [0; 16];
        none[4..8].copy_from_slice(&i32::MAX.to_ne_bytes());
        assert_eq!(netlink.ask(18, &none, &[]).err(), Some(Errno::NODEV));
    }
}
