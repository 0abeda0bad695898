//! The matching register for the frames that Speculative Defragmentation was made for: the fragments of a datagram of
//! IP, as every sender's kernel makes them of a page that is longer than a frame (RFC 791).
//!
//! User space announces datagrams: from whom, of how many bytes. The first fragment that comes of one names its ports,
//! and the register learns the identification from it; then it takes only the fragment of the same identification that
//! is next in order. Whatever else comes goes to the kernel, which puts it together as ever. So a datagram of which the
//! register has taken no fragment is never lost; one of which it has taken some, and another one is lost or overtaken,
//! is lost, as datagrams are.
//!
//! Only the first fragment has a UDP header. All of them are cut by the same 34 bytes ([`HEADERS`]), so that the UDP
//! header lands in the 8 bytes before the page, and says what checksum the bytes shall have.
//!
//! Backwards, the last fragment comes first, and nothing in it names a port: it is taken because of its source and its
//! length, and the first fragment has to be for our port, or the datagram is never complete.
//!
//! Frames get to the socket in the order of their turns only if one processor takes them; see [`super::placing`]. The
//! first one claims [`shared::PROCESSOR`], and user space frees it when nothing is on its way.

use std::net::SocketAddrV4;

use super::code::{Code, Do, Label, When, Width};
use super::placing::{MINE, PROCESSOR, SLOT, STACK, is_of_one_processor};
use super::program::{
    ADJUST_HEAD, BUFFER_LENGTH, CONTEXT, DATA, DATA_END, LINK_BYTES, QUEUE, R0, R1, R2, R3, R4, R5, R7, R8, R9, ends,
    number, short, to_ring,
};

pub use super::placing::ANY;
pub use super::program::{ANNOUNCED, LOGGED};

/// Bytes before the payload of a fragment: Ethernet, IPv4 without options.
pub const HEADERS: u32 = LINK_BYTES + 20;
/// Bytes of the UDP header, with which the payload of the first fragment begins.
pub const UDP_BYTES: u32 = 8;
/// Least bytes of a last fragment: with less, adapters lengthen the frame.
pub const LEAST: u32 = 26;
/// State of an announcement of which no fragment has come. Other states are the identification in the upper half (as it
/// lies in the frame), and in the lower half the offset that is awaited, in units of 8 bytes.
pub const FRESH: u32 = 0xffff;
/// State of an announcement that is complete, or given up.
pub const OVER: u32 = i32::MAX as u32;

/// Which fragments are taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fragmented {
    /// On which queue.
    pub queue: u32,
    /// Bytes of a datagram, with the UDP header.
    pub bytes: u32,
    /// Bytes of IP payload of each fragment but the last one, a multiple of 8.
    pub slice: u32,
    /// Whether the headers are cut off.
    pub cut: bool,
    /// Whether the last fragment comes first.
    pub backwards: bool,
    /// Whether only announced fragments are taken. Otherwise all that come to the address are, whosever and for
    /// whatever port: the adapter of the paper, which has no such register, for experiments.
    pub strict: bool,
}

impl Fragmented {
    /// How many fragments a datagram has.
    #[must_use]
    pub const fn parts(&self) -> u32 {
        self.bytes.div_ceil(self.slice)
    }

    /// Offset of the last fragment, in units of 8 bytes.
    #[must_use]
    pub const fn last(&self) -> u32 {
        (self.parts() - 1) * self.slice / 8
    }

    /// Bytes of IP payload of the last fragment.
    #[must_use]
    pub const fn last_bytes(&self) -> u32 {
        self.bytes - (self.parts() - 1) * self.slice
    }

    /// How many fragments have been taken of an announcement in this state, which is not [`OVER`].
    #[must_use]
    pub const fn taken(&self, state: u32) -> u32 {
        let at = (state & 0xffff) * 8 / self.slice;
        if state == FRESH {
            0
        } else if self.backwards {
            (self.parts() - 1).saturating_sub(at)
        } else {
            at
        }
    }
}

/// The memory that the program shares with user space, in bytes from its beginning. It begins as that of the register
/// for frames of ours; of an announcement it has three words: its state, the source's address and port as they lie in a
/// frame.
pub mod shared {
    use super::LOGGED;

    pub use super::super::program::shared::{ANNOUNCEMENT_BYTES, ANNOUNCEMENTS, CURRENT, END, LOG, TAKEN};

    /// How many fragments it has left to the kernel; written by the program.
    pub const ASIDE: u64 = 12;
    /// The processor whose frames are taken, or [`super::ANY`].
    pub const PROCESSOR: u64 = 24;
    /// Identification of the datagram that was complete last, of which duplicates are no beginning of another one.
    pub const LAST: u64 = 28;
    /// Bytes of an entry of the log: the number of its announcement (64 bits), and bytes 14 to 21 and 26 to 33 of its
    /// frame.
    pub const LOG_BYTES: u64 = 32;
    /// Bytes of it all.
    pub const BYTES: u64 = LOG + LOGGED as u64 * LOG_BYTES;
}

/// Sends the fragments for `local` that come on a queue and are announced in `memory`, the descriptor of a map of one
/// entry of [`shared::BYTES`], to the socket of that queue in `rings`. All else goes to the kernel.
///
/// # Panics
/// If a datagram of that many bytes is not fragmented, its fragments do not begin at units of 8 bytes, or there is no
/// such datagram.
#[must_use]
pub fn fragments(local: SocketAddrV4, matching: &Fragmented, rings: i32, memory: i32) -> Vec<u8> {
    assert!(matching.slice > 0 && matching.slice.is_multiple_of(8), "fragments begin at units of 8 bytes");
    assert!(matching.bytes > matching.slice && matching.bytes < 1 << 16, "a datagram of several fragments");
    let mut code = Code::new();
    let (pass, aside) = (code.label(), code.label());

    code.change(CONTEXT, Do::Move, R1);
    is_fragment(&mut code, local, pass);
    code.load(Width::Word, R1, CONTEXT, QUEUE);
    code.jump(R1, When::NotEqual, number(u64::from(matching.queue)), pass);
    // The length of the frame stays here.
    code.change(R1, Do::Move, CONTEXT).call(BUFFER_LENGTH).change(R9, Do::Move, R0);
    code.call(PROCESSOR).store(Width::Double, STACK, MINE, R0);
    code.memory(R7, memory);
    // What is cut has to leave an Ethernet header; a UDP header is shorter.
    at_hand(&mut code, HEADERS + LINK_BYTES, aside);
    if matching.strict {
        is_next(&mut code, local, matching, aside);
    } else {
        code.jump(R9, When::Greater, number(u64::from(HEADERS + matching.slice)), aside);
        code.change(R4, Do::Move, 0).store(Width::Double, STACK, SLOT, R4);
        is_of_one_processor(&mut code, shared::PROCESSOR, aside);
    }
    log(&mut code);
    if matching.cut {
        code.change(R1, Do::Move, CONTEXT).change(R2, Do::Move, number(u64::from(HEADERS))).call(ADJUST_HEAD);
        code.jump(R0, When::NotEqual, 0, aside);
    }
    to_ring(&mut code, rings);
    code.stand(aside).change(R4, Do::Move, 1).fetch_add(R7, short(shared::ASIDE), R4);
    ends(code, pass)
}

/// Leaves if this is no fragment of UDP over IPv4 without options for this address.
fn is_fragment(code: &mut Code, local: SocketAddrV4, pass: Label) {
    at_hand(code, HEADERS, pass);
    code.load(Width::Half, R4, R2, 12).jump(R4, When::NotEqual, i32::from(u16::from_le_bytes([8, 0])), pass);
    code.load(Width::Byte, R4, R2, 14).jump(R4, When::NotEqual, 0x45, pass);
    code.load(Width::Byte, R4, R2, 23).jump(R4, When::NotEqual, 17, pass);
    code.load(Width::Word, R4, R2, 30);
    code.jump(R4, When::NarrowNotEqual, i32::from_le_bytes(local.ip().octets()), pass);
    // More fragments follow, or others come before.
    code.load(Width::Byte, R4, R2, 20).load(Width::Byte, R5, R2, 21);
    code.change(R4, Do::And, 0x3f).change(R4, Do::Add, R5).jump(R4, When::Equal, 0, pass);
}

/// The frame is at register 2 from here on; leaves if so many bytes of it cannot be read. Destroys registers 3 and 4.
fn at_hand(code: &mut Code, bytes: u32, leave: Label) {
    code.load(Width::Word, R2, CONTEXT, DATA).load(Width::Word, R3, CONTEXT, DATA_END);
    code.change(R4, Do::Move, R2).change(R4, Do::Add, number(bytes.into())).jump(R4, When::Greater, R3, leave);
}

/// Leaves if this is not the fragment that is announced as the next one; claims it otherwise.
fn is_next(code: &mut Code, local: SocketAddrV4, matching: &Fragmented, aside: Label) {
    use shared::{ANNOUNCEMENT_BYTES, ANNOUNCEMENTS, CURRENT, END, LAST};
    let constant = |of: u32| number(of.into());
    // The announcement that is due: current is not the end, else nothing is expected.
    code.load(Width::Word, R8, R7, short(CURRENT)).load(Width::Word, R4, R7, short(END));
    code.jump(R8, When::Equal, R4, aside).store(Width::Double, STACK, SLOT, R8);
    code.change(R8, Do::And, constant(ANNOUNCED - 1)).change(R8, Do::ShiftUp, 5);
    debug_assert_eq!(ANNOUNCEMENT_BYTES, 1 << 5);
    code.change(R8, Do::Add, R7).change(R8, Do::Add, number(ANNOUNCEMENTS));
    code.load(Width::Word, R5, R8, 0).jump(R5, When::Equal, constant(OVER), aside);
    code.load(Width::Word, R4, R2, 26).load(Width::Word, R1, R8, 4).jump(R4, When::NotEqual, R1, aside);
    // Flags in register 0, offset in register 4, identification in register 1.
    code.load(Width::Byte, R0, R2, 20).change(R4, Do::Move, R0);
    code.change(R0, Do::And, 0xe0).change(R4, Do::And, 0x1f).change(R4, Do::ShiftUp, 8);
    code.load(Width::Byte, R1, R2, 21).change(R4, Do::Add, R1);
    code.load(Width::Half, R1, R2, 18);
    let (fresh, right) = (code.label(), code.label());
    code.jump(R5, When::Equal, constant(FRESH), fresh);
    code.change(R1, Do::ShiftUp, 16).change(R1, Do::Add, R4).jump(R1, When::NotEqual, R5, aside).go(right);
    code.stand(fresh).load(Width::Word, R3, R7, short(LAST)).jump(R1, When::Equal, R3, aside);
    let begin = if matching.backwards { matching.last() } else { 0 };
    code.jump(R4, When::NotEqual, constant(begin), aside);
    code.stand(right);
    // The length of the frame, as it is and as the header of IP says; whether more fragments follow.
    let (last, compare) = (code.label(), code.label());
    code.jump(R4, When::Equal, constant(matching.last()), last).jump(R0, When::NotEqual, 0x20, aside);
    code.change(R3, Do::Move, constant(HEADERS + matching.slice)).go(compare);
    code.stand(last).jump(R0, When::NotEqual, 0, aside);
    code.change(R3, Do::Move, constant(HEADERS + matching.last_bytes()));
    code.stand(compare).jump(R9, When::NotEqual, R3, aside);
    code.load(Width::Byte, R1, R2, 16).change(R1, Do::ShiftUp, 8).load(Width::Byte, R0, R2, 17);
    code.change(R1, Do::Add, R0).change(R1, Do::Add, constant(LINK_BYTES)).jump(R1, When::NotEqual, R3, aside);
    // The first one has the UDP header: our port, the sender's, and the bytes of all fragments.
    let rest = code.label();
    let network = |of: u16| i32::from(u16::from_le_bytes(of.to_be_bytes()));
    code.jump(R4, When::NotEqual, 0, rest);
    code.load(Width::Half, R1, R2, 36).jump(R1, When::NotEqual, network(local.port()), aside);
    code.load(Width::Half, R1, R2, 34).load(Width::Word, R0, R8, 8).jump(R1, When::NotEqual, R0, aside);
    let bytes = u16::try_from(matching.bytes).unwrap_or(u16::MAX);
    code.load(Width::Half, R1, R2, 38).jump(R1, When::NotEqual, network(bytes), aside);
    code.stand(rest);
    is_of_one_processor(code, shared::PROCESSOR, aside);
    claim(code, matching, aside);
}

/// Sets the announcement in register 8, whose state is in register 5 and whose fragment at the offset in register 4 has
/// come, to the next fragment; if there is none, goes to the next announcement. Leaves if user space has given it up.
fn claim(code: &mut Code, matching: &Fragmented, aside: Label) {
    use shared::{CURRENT, LAST};
    let (complete, done) = (code.label(), code.label());
    let step = number(u64::from(matching.slice / 8));
    let end = if matching.backwards { 0 } else { number(matching.last().into()) };
    code.load(Width::Half, R1, R2, 18).change(R0, Do::Move, R5);
    code.jump(R4, When::Equal, end, complete);
    code.change(R3, Do::Move, R1).change(R3, Do::ShiftUp, 16).change(R3, Do::Add, R4);
    code.change(R3, if matching.backwards { Do::Subtract } else { Do::Add }, step);
    code.exchange_if(R8, 0, R3).jump(R0, When::NotEqual, R5, aside).go(done);
    code.stand(complete).change(R3, Do::Move, number(OVER.into()));
    code.exchange_if(R8, 0, R3).jump(R0, When::NotEqual, R5, aside);
    code.store(Width::Word, R7, short(LAST), R1);
    code.change(R4, Do::Move, 1).fetch_add(R7, short(CURRENT), R4);
    code.stand(done);
}

/// Writes down which fragment this is.
fn log(code: &mut Code) {
    code.change(R4, Do::Move, 1).fetch_add(R7, short(shared::TAKEN), R4);
    code.change(R4, Do::And, number(u64::from(LOGGED) - 1)).change(R4, Do::ShiftUp, 5);
    debug_assert_eq!(shared::LOG_BYTES, 1 << 5);
    code.change(R4, Do::Add, R7).change(R4, Do::Add, number(shared::LOG));
    code.load(Width::Double, R5, STACK, SLOT).store(Width::Double, R4, 0, R5);
    code.load(Width::Double, R5, R2, 14).store(Width::Double, R4, 8, R5);
    code.load(Width::Double, R5, R2, 26).store(Width::Double, R4, 16, R5);
}
