//! What runs at the interface for every frame: our datagrams to our rings, everything else to the kernel.
//!
//! Two programs. [`redirect`] takes every datagram for one address and port. [`matching`] is the matching register
//! that the authors of Speculative Defragmentation wished for: on one queue it takes only the very next fragments of
//! pages that user space has announced, logs their headers, and cuts them off if told so; all that comes otherwise
//! goes on to the kernel's socket, and so never takes the place of a fragment.
//!
//! Both know their numbers as constants. They look at nothing before they have compared it with the end of the frame,
//! or the kernel refuses them.

use std::net::SocketAddrV4;

use cutthrough_wire::frame::{FRAME_VERSION, HEADER_BYTES, Kind};

use crate::raw::envelope::MARK;

use super::code::{Code, Do, Label, Register, When, Width};

/// Bytes before the body of a datagram: Ethernet, IPv4 without options, UDP.
pub const ENVELOPE_BYTES: usize = 14 + 20 + 8;
/// Bytes of a frame of Ethernet before the datagram of IP.
pub const LINK_BYTES: u32 = 14;

/// Verdicts of the kernel's manual.
pub const PASS: i32 = 2;

const REDIRECT_MAP: i32 = 51;
pub(super) const ADJUST_HEAD: i32 = 44;
pub(super) const BUFFER_LENGTH: i32 = 188;

/// Bytes before a fragment.
pub(super) const HEADERS: u64 = (ENVELOPE_BYTES + HEADER_BYTES) as u64;

pub(super) fn short(number: u64) -> i16 {
    i16::try_from(number).unwrap_or(i16::MAX)
}

pub(super) fn number(number: u64) -> i32 {
    i32::try_from(number).unwrap_or(i32::MAX)
}

/// Where byte `at` of our header (see `cutthrough_wire::frame`) lies, counted from the header of Ethernet.
pub(super) fn in_frame(at: usize) -> i16 {
    short((ENVELOPE_BYTES + at) as u64)
}

pub(super) const R0: Register = Register(0);
pub(super) const R1: Register = Register(1);
pub(super) const R2: Register = Register(2);
pub(super) const R3: Register = Register(3);
pub(super) const R4: Register = Register(4);
pub(super) const R5: Register = Register(5);
/// Where the program keeps what the kernel gave it.
pub(super) const CONTEXT: Register = Register(6);
pub(super) const R7: Register = Register(7);
pub(super) const R8: Register = Register(8);
pub(super) const R9: Register = Register(9);

/// Places in what the kernel gives: first byte of the frame, end of it, number of the queue.
pub(super) const DATA: i16 = 0;
pub(super) const DATA_END: i16 = 4;
pub(super) const QUEUE: i16 = 16;

/// Which datagrams are ours.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ours {
    /// Their destination.
    pub local: SocketAddrV4,
    /// The longest frame that the interface carries, with 14 bytes of Ethernet: what is longer has been joined by the
    /// kernel, and belongs to it.
    pub frame_max: u32,
    /// Whether only what a ring has sent is ours, by its mark; otherwise what sockets have sent is, too.
    pub of_rings: bool,
}

/// Which fragments a [`matching`] program takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Matching {
    /// On which queue.
    pub queue: u32,
    /// Bytes of payload of each fragment of a page but the last one.
    pub slice: u32,
    /// Whether the headers are cut off.
    pub cut: bool,
    /// Whether the last fragment of a page comes first.
    pub backwards: bool,
    /// Whether only announced fragments are taken. Otherwise all fragments are, whosever they are: the adapter of the
    /// paper, which has no such register, for experiments.
    pub strict: bool,
}

/// Announcements that [`matching`] keeps; a power of two.
pub const ANNOUNCED: u32 = 64;
/// Headers that it keeps; a power of two.
pub const LOGGED: u32 = 1024;

/// The memory that a [`matching`] program shares with user space, in bytes from its beginning.
pub mod shared {
    use super::{ANNOUNCED, HEADER_BYTES, LOGGED};

    /// Number of the announcement that the next fragment belongs to; written by the program.
    pub const CURRENT: u64 = 0;
    /// How many fragments it has taken; written by the program.
    pub const TAKEN: u64 = 8;
    /// Number of the first announcement that has not been made; written by user space.
    pub const END: u64 = 16;
    /// Where the announcements begin.
    pub const ANNOUNCEMENTS: u64 = 64;
    /// Bytes of an announcement: tag, generation, message, next offset, first offset, bytes of the page, 32 bits each.
    pub const ANNOUNCEMENT_BYTES: u64 = 32;
    /// Where the headers begin, each of [`HEADER_BYTES`].
    pub const LOG: u64 = ANNOUNCEMENTS + ANNOUNCED as u64 * ANNOUNCEMENT_BYTES;
    /// Bytes of it all.
    pub const BYTES: u64 = LOG + LOGGED as u64 * HEADER_BYTES as u64;
}

/// Sends every datagram of ours to the ring of the queue that it came on; where that queue has none, the kernel takes
/// it. `rings` is the descriptor of the map of rings.
#[must_use]
pub fn redirect(ours: &Ours, rings: i32) -> Vec<u8> {
    let mut code = Code::new();
    let pass = code.label();
    code.change(CONTEXT, Do::Move, R1);
    code.load(Width::Word, R2, CONTEXT, DATA);
    is_ours(&mut code, ours, number(ENVELOPE_BYTES as u64), pass);
    length_fits(&mut code, ours, pass);
    to_ring(&mut code, rings);
    ends(code, pass)
}

/// As [`redirect`], but on the queue of `matching` only announced fragments are taken, and logged in `memory`, the
/// descriptor of a map of one entry of [`shared::BYTES`].
///
/// An announcement names a page: which channel, which life of it, which message, at which offset of the message's
/// payload the page begins, and its bytes. The program takes its fragments in their order only, whole ones of `slice`
/// bytes and one last one of the rest, and turns to the next announcement when a page is complete. A fragment that is
/// lost stops it, until user space puts it on.
///
/// # Panics
/// If `slice` is 0.
#[must_use]
pub fn matching(ours: &Ours, matching: &Matching, rings: i32, memory: i32) -> Vec<u8> {
    use shared::{LOG, TAKEN};
    assert!(matching.slice > 0, "a fragment has bytes");
    let mut code = Code::new();
    let (pass, take) = (code.label(), code.label());

    code.change(CONTEXT, Do::Move, R1);
    code.load(Width::Word, R2, CONTEXT, DATA);
    is_ours(&mut code, ours, number(ENVELOPE_BYTES as u64), pass);
    code.load(Width::Word, R1, CONTEXT, QUEUE);
    code.jump(R1, When::NotEqual, i32::try_from(matching.queue).unwrap_or(i32::MAX), take);
    // A fragment of a page, with all of its header.
    code.change(R4, Do::Move, R2).change(R4, Do::Add, number(HEADERS));
    code.jump(R4, When::Greater, R3, pass);
    code.load(Width::Half, R4, R2, in_frame(0));
    code.jump(R4, When::NotEqual, i32::from(u16::from_le_bytes([FRAME_VERSION, Kind::Data as u8])), pass);
    code.memory(R7, memory);
    if matching.strict {
        is_next(&mut code, matching, pass);
    } else {
        length_fits(&mut code, ours, pass);
    }
    // Its header goes to the log.
    code.load(Width::Word, R2, CONTEXT, DATA).load(Width::Word, R3, CONTEXT, DATA_END);
    code.change(R4, Do::Move, R2).change(R4, Do::Add, number(HEADERS)).jump(R4, When::Greater, R3, pass);
    code.change(R4, Do::Move, 1).fetch_add(R7, short(TAKEN), R4);
    code.change(R4, Do::And, number(u64::from(LOGGED) - 1)).change(R4, Do::ShiftUp, 6);
    debug_assert_eq!(HEADER_BYTES, 1 << 6);
    code.change(R4, Do::Add, R7).change(R4, Do::Add, number(LOG));
    for word in (0..HEADER_BYTES).step_by(8) {
        code.load(Width::Double, R5, R2, in_frame(word));
        code.store(Width::Double, R4, short(word as u64), R5);
    }
    if matching.cut {
        code.change(R1, Do::Move, CONTEXT).change(R2, Do::Move, number(HEADERS)).call(ADJUST_HEAD);
        code.jump(R0, When::NotEqual, 0, pass);
    }
    let taken = code.label();
    code.go(taken).stand(take);
    length_fits(&mut code, ours, pass);
    code.stand(taken);
    to_ring(&mut code, rings);
    ends(code, pass)
}

/// Leaves if this is not the fragment that is announced as the next one; claims it otherwise. The frame is at register
/// 2, the shared memory at register 7.
fn is_next(code: &mut Code, matching: &Matching, pass: Label) {
    use shared::{ANNOUNCEMENT_BYTES, ANNOUNCEMENTS, CURRENT, END};
    // The announcement that is due: current is not the end, else nothing is expected.
    code.load(Width::Word, R8, R7, short(CURRENT));
    code.load(Width::Word, R4, R7, short(END));
    code.jump(R8, When::Equal, R4, pass);
    code.change(R8, Do::And, number(u64::from(ANNOUNCED) - 1)).change(R8, Do::ShiftUp, 5);
    debug_assert_eq!(ANNOUNCEMENT_BYTES, 1 << 5);
    code.change(R8, Do::Add, R7).change(R8, Do::Add, number(ANNOUNCEMENTS));
    // Tag, generation, message, offset: four words, in the header at 4, 8, 40, 44.
    for (place, at) in [(0, 4), (4, 8), (8, 40), (12, 44)] {
        code.load(Width::Word, R4, R2, in_frame(at)).load(Width::Word, R5, R8, place);
        code.jump(R4, When::NotEqual, R5, pass);
    }
    // No page goes that far; this is the mark of one that is complete.
    code.jump(R5, When::Greater, i32::MAX, pass);
    // What is left of the page from the offset on is the expected length, if it is no more than a slice.
    let (whole, compare) = (code.label(), code.label());
    let slice = i32::try_from(matching.slice).unwrap_or(i32::MAX);
    code.load(Width::Word, R4, R8, 16).load(Width::Word, R9, R8, 20);
    code.change(R9, Do::Add, R4).change(R9, Do::Subtract, R5);
    code.jump(R9, When::Greater, slice, whole).go(compare);
    code.stand(whole).change(R9, Do::Move, slice);
    // The body, as the header says and as the frame is long.
    code.stand(compare).load(Width::Half, R4, R2, in_frame(2)).jump(R4, When::NotEqual, R9, pass);
    code.change(R1, Do::Move, CONTEXT).call(BUFFER_LENGTH);
    code.change(R0, Do::Subtract, number(HEADERS));
    code.jump(R0, When::NotEqual, R9, pass);
    claim(code, matching, pass);
}

/// Sets the announcement in register 8, whose fragment of register 9 bytes has come, to the next fragment; if there is
/// none, goes to the next announcement. Leaves if another frame was faster: several processors may run this at once.
fn claim(code: &mut Code, matching: &Matching, pass: Label) {
    let (complete, done) = (code.label(), code.label());
    code.load(Width::Word, R5, R8, 16);
    code.load(Width::Word, R2, CONTEXT, DATA).load(Width::Word, R3, CONTEXT, DATA_END);
    code.change(R4, Do::Move, R2).change(R4, Do::Add, number(HEADERS)).jump(R4, When::Greater, R3, pass);
    code.load(Width::Word, R0, R2, in_frame(44));
    code.change(R2, Do::Move, R0).change(R4, Do::Move, R0);
    let slice = i32::try_from(matching.slice).unwrap_or(i32::MAX);
    if matching.backwards {
        // The one at the page's beginning is the last one.
        code.jump(R4, When::Equal, R5, complete);
        code.change(R4, Do::Subtract, slice);
    } else {
        code.load(Width::Word, R1, R8, 20).change(R5, Do::Add, R1).change(R4, Do::Add, R9);
        code.jump(R4, When::Equal, R5, complete);
    }
    code.exchange_if(R8, 12, R4).jump(R0, When::NotEqual, R2, pass).go(done);
    code.stand(complete);
    code.change(R4, Do::Move, -1).exchange_if(R8, 12, R4).jump(R0, When::NotEqual, R2, pass);
    let current = short(shared::CURRENT);
    code.change(R4, Do::Move, 1).fetch_add(R7, current, R4);
    code.stand(done);
}

/// Leaves if this is no datagram for us, or the first `bytes` of the frame are not at hand. The frame is at register
/// 2, its end in register 3 afterwards; register 4 is destroyed.
pub(super) fn is_ours(code: &mut Code, ours: &Ours, bytes: i32, pass: Label) {
    let network = |bytes: [u8; 2]| i32::from(u16::from_le_bytes(bytes));
    code.load(Width::Word, R3, CONTEXT, DATA_END);
    code.change(R4, Do::Move, R2).change(R4, Do::Add, bytes).jump(R4, When::Greater, R3, pass);
    // IPv4; five words of header; sent by a ring, or by anybody; not to be fragmented, and no fragment; UDP.
    code.load(Width::Half, R4, R2, 12).jump(R4, When::NotEqual, network([0x08, 0x00]), pass);
    code.load(Width::Byte, R4, R2, 14).jump(R4, When::NotEqual, 0x45, pass);
    if ours.of_rings {
        code.load(Width::Half, R4, R2, 18).jump(R4, When::NotEqual, network(MARK), pass);
    }
    code.load(Width::Half, R4, R2, 20).jump(R4, When::NotEqual, network([0x40, 0x00]), pass);
    code.load(Width::Byte, R4, R2, 23).jump(R4, When::NotEqual, 17, pass);
    code.load(Width::Word, R4, R2, 30);
    code.jump(R4, When::NarrowNotEqual, i32::from_le_bytes(ours.local.ip().octets()), pass);
    code.load(Width::Half, R4, R2, 36).jump(R4, When::NotEqual, network(ours.local.port().to_be_bytes()), pass);
}

/// Leaves if the frame, with all its parts, is longer than the interface carries. Destroys registers 0 to 5.
pub(super) fn length_fits(code: &mut Code, ours: &Ours, pass: Label) {
    code.change(R1, Do::Move, CONTEXT).call(BUFFER_LENGTH);
    code.jump(R0, When::Greater, i32::try_from(ours.frame_max).unwrap_or(i32::MAX), pass);
}

/// Gives the frame to the ring of its queue, or to the kernel if there is none.
pub(super) fn to_ring(code: &mut Code, rings: i32) {
    code.load(Width::Word, R2, CONTEXT, QUEUE);
    code.map(R1, rings).change(R3, Do::Move, PASS).call(REDIRECT_MAP).exit();
}

pub(super) fn ends(mut code: Code, pass: Label) -> Vec<u8> {
    code.stand(pass).change(R0, Do::Move, PASS).exit();
    code.finish()
}
