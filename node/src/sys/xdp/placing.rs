//! The program of an endpoint whose payloads land where they belong: a matching register, and a ring of its own.
//!
//! As [`matching`](super::program::matching), but made for one endpoint at one queue, and for nothing else on it:
//!
//! * The register has a list of the frames of one channel that are expected next, of one message or of several in their
//!   order. The one that is due is cut to its payload and goes to the socket, whose fill ring has the place where the
//!   payload belongs. Its headers go to a log, with the number of slots that were given out before it: so user space
//!   knows in which order all of them came.
//! * All other datagrams of the endpoint never reach that socket, and so never take a place: they are copied to slots
//!   of the memory that the program shares with the endpoint. This is the second ring that one queue does not have.
//! * If there is no slot, or the endpoint sleeps, they go to its UDP socket, which holds them, and wakes it.
//!
//! A frame takes its turn by one exchange of [`shared::NEXT`], whose upper half is drawn anew each time that user space
//! aims: whatever the program has compared before was of this aim, or the exchange fails. And user space closes the
//! register by another exchange, which tells it what has been let through so far.
//!
//! Between a frame's turn and its place lies the way to the socket, and the kernel uses places in the order in which
//! frames get there. On one processor that is the order of their turns; on two it need not be, and a long frame in the
//! place of a short one would reach beyond it. So all frames of one aim are of one processor: the first one claims it,
//! and those of others go to the slots.

pub use cutthrough_engine::register::{AHEAD, CLOSED, LEAST};
use cutthrough_engine::register::{Expected, Whose};
use cutthrough_wire::frame::{FRAME_VERSION, Kind, OPENING_BYTES};

use super::code::{Code, Do, Label, Register, When, Width};
use super::program::{
    ADJUST_HEAD, CONTEXT, DATA, DATA_END, ENVELOPE_BYTES, HEADERS, LINK_BYTES, Ours, QUEUE, R0, R1, R2, R3, R4, R5, R7,
    R8, R9, ends, in_frame, is_ours, length_fits, number, short, to_ring,
};

// The kernel leaves no frame shorter than that.
const _: () = assert!(LEAST as u64 == LINK_BYTES as u64);
const LOAD_BYTES: i32 = 189;
pub(super) const PROCESSOR: i32 = 8;
const DROP: i32 = 1;
pub(super) const STACK: Register = Register(10);
/// Where on the stack the number of a slot is kept, and that of the processor.
pub(super) const SLOT: i16 = -8;
pub(super) const MINE: i16 = -16;
/// Frames that the log holds; a power of two.
pub const LOGGED: u32 = 1024;
/// Slots that stay free at least.
const MARGIN: u32 = 64;

/// Entries of the list; a power of two, and more than are listed ahead.
pub const LISTED: u32 = 512;
const _: () = assert!(LISTED as usize >= AHEAD && HEADERS + OPENING_BYTES as u64 <= shared::BEFORE);
/// What an entry is: see [`shared::KIND`].
pub const KNOWN: u32 = 0;
/// See [`KNOWN`].
pub const OPENS: u32 = 1;
/// See [`KNOWN`].
pub const OPENED: u32 = 2;

/// The four words of an entry.
#[must_use]
pub const fn entry(frame: &Expected) -> [u32; 4] {
    let (message, kind) = match frame.whose {
        Whose::Known(message) => (message, KNOWN),
        Whose::Opens(message) => (message, OPENS),
        Whose::Opened => (0, OPENED),
    };
    [message, frame.offset, frame.bytes, kind]
}

/// Where the entry of the frame of this number lies.
#[must_use]
pub const fn entry_at(number: u32) -> u64 {
    shared::LIST + (number % LISTED) as u64 * shared::ENTRY_BYTES
}

/// [`shared::PROCESSOR`] while no frame of the aim has come.
pub const ANY: u32 = i32::MAX as u32;
/// The memory that the program shares with user space, in bytes from its beginning.
pub mod shared {
    use super::{LISTED, LOGGED};

    /// 64 bits: number of the aim in the upper half; in the lower half the number of the listed frame that is due. With
    /// [`CLOSED`](super::CLOSED) nothing is let through any more; the other bits say how many frames were.
    pub const NEXT: u64 = 0;
    /// Words of the aim: channel of the receiver, and which life of it.
    pub const TAG: u64 = 8;
    /// See [`TAG`].
    pub const GENERATION: u64 = 12;
    /// Low half of the number of the message that was opened last; written by the program.
    pub const MESSAGE: u64 = 16;
    /// Number of the first frame that is not listed.
    pub const LIMIT: u64 = 24;
    /// The processor whose frames are let through, or a mark.
    pub const PROCESSOR: u64 = 28;
    /// How many frames were let through to the socket; written by the program.
    pub const TAKEN: u64 = 64;
    /// How many of these were lost, since they could not be cut; written by the program.
    pub const FAILED: u64 = 68;
    /// How many slots were given out; written by the program.
    pub const GIVEN: u64 = 72;
    /// How many of these user space has done with.
    pub const SEEN: u64 = 128;
    /// Not zero while the endpoint sleeps.
    pub const ASLEEP: u64 = 132;
    /// Where the list of frames begins: each is four words, the low half of a message's number and those below.
    pub const LIST: u64 = 256;
    /// Bytes of an entry of it.
    pub const ENTRY_BYTES: u64 = 16;
    /// Where its payload begins in the message's.
    pub const OFFSET: u64 = 4;
    /// Its bytes at most.
    pub const BYTES: u64 = 8;
    /// Whether the message is the one that is named ([`KNOWN`](super::KNOWN)), is opened by it, and is none before the
    /// one that is named ([`OPENS`](super::OPENS)), or is the one that was opened last ([`OPENED`](super::OPENED)).
    pub const KIND: u64 = 12;
    /// Where the log begins: the first bytes of each frame, up to the end of an opening.
    pub const LOG: u64 = LIST + LISTED as u64 * ENTRY_BYTES;
    /// Bytes of an entry of it.
    pub const LOG_BYTES: u64 = 256;
    /// Where in an entry stands how many slots had been given out before its frame took its turn.
    pub const BEFORE: u64 = 252;
    /// Where the slots begin. Each is a stamp of 64 bits (number of the slot from 1 on in the low half, bytes of the
    /// frame, or 0 if it went to the UDP socket, in the upper half), 8 bytes of nothing, and the frame.
    pub const SLOTS: u64 = LOG + LOGGED as u64 * LOG_BYTES;
    /// Where the frame begins in a slot.
    pub const IN_SLOT: u64 = 16;
}

/// The slots of a [`placing`] program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Slots {
    /// How many, as a power of two: 7 to 16.
    pub count_log: u32,
    /// Bytes of each, as a power of two: 7 to 16.
    pub bytes_log: u32,
    /// How many stay free, for processors that have looked whether there is one before another one took it: no fewer
    /// than there are processors, or the program would write to a slot that user space has.
    pub free: u32,
}

impl Slots {
    /// Slots of some 4 MiB in all, for frames of at most `frame_max` bytes, or 16 KiB: longer ones go to the socket. On
    /// a machine that may have so many `processors`; of more than 128 they take more.
    #[must_use]
    pub const fn of(frame_max: u32, processors: u32) -> Self {
        let bytes_log = (frame_max + 16).next_power_of_two().trailing_zeros();
        let bytes_log = if bytes_log > 14 { 14 } else { bytes_log };
        let free = if processors > MARGIN { processors } else { MARGIN };
        let (count_log, least_log) =
            (if bytes_log > 12 { 22 - bytes_log } else { 10 }, (2 * free).next_power_of_two().trailing_zeros());
        Self { count_log: if count_log > least_log { count_log } else { least_log }, bytes_log, free }
    }

    /// Bytes of all that is shared.
    #[must_use]
    pub const fn shared_bytes(self) -> u64 {
        shared::SLOTS + (1 << (self.count_log + self.bytes_log))
    }

    /// Where slot `index` begins.
    #[must_use]
    pub const fn at(self, index: u32) -> u64 {
        shared::SLOTS + (((index & ((1 << self.count_log) - 1)) as u64) << self.bytes_log)
    }
}

/// Sends datagrams of ours that come on `queue` to the socket of that queue in `rings` if the register awaits them, and
/// else to the slots of `memory`, a map of one entry of [`Slots::shared_bytes`]. All else goes to the kernel.
#[must_use]
pub fn placing(ours: &Ours, queue: u32, slots: Slots, rings: i32, memory: i32) -> Vec<u8> {
    let mut code = Code::new();
    let (pass, aside, fresh, failed) = (code.label(), code.label(), code.label(), code.label());

    code.change(CONTEXT, Do::Move, R1);
    code.load(Width::Word, R2, CONTEXT, DATA);
    is_ours(&mut code, ours, number(ENVELOPE_BYTES as u64), pass);
    code.load(Width::Word, R1, CONTEXT, QUEUE);
    code.jump(R1, When::NotEqual, i32::try_from(queue).unwrap_or(i32::MAX), pass);
    length_fits(&mut code, ours, pass);
    // The length of the frame stays here.
    code.change(R9, Do::Move, R0);
    code.call(PROCESSOR).store(Width::Double, STACK, MINE, R0);
    code.memory(R7, memory);
    code.load(Width::Word, R2, CONTEXT, DATA).load(Width::Word, R3, CONTEXT, DATA_END);
    is_at_hand(&mut code, HEADERS, aside);
    let kind = |kind: Kind| i32::from(u16::from_le_bytes([FRAME_VERSION, kind as u8]));
    // Everything that is compared is read after this.
    code.load(Width::Double, R8, R7, short(shared::NEXT));
    for (place, at) in [(shared::TAG, 4), (shared::GENERATION, 8)] {
        code.load(Width::Word, R4, R2, in_frame(at)).load(Width::Word, R5, R7, short(place));
        code.jump(R4, When::NotEqual, R5, aside);
    }
    due(&mut code, aside);
    code.load(Width::Half, R4, R2, in_frame(0));
    code.jump(R4, When::Equal, kind(Kind::Open), fresh);
    code.jump(R4, When::NotEqual, kind(Kind::Data), aside);
    is_next(&mut code, aside);
    let_through(&mut code, 0, rings, failed);
    code.stand(fresh);
    is_first(&mut code, aside);
    let_through(&mut code, OPENING_BYTES as u64, rings, failed);

    code.stand(aside);
    to_slot(&mut code, slots, pass);
    code.stand(failed).change(R4, Do::Move, 1).fetch_add(R7, short(shared::FAILED), R4);
    ends(code, pass)
}

/// Register 1 becomes the entry of the frame that is due, and register 5 what it is; leaves if none is. Destroys
/// register 4.
fn due(code: &mut Code, aside: Label) {
    let listed = code.label();
    low_half(code, R4, R8);
    code.load(Width::Word, R5, R7, short(shared::LIMIT)).jump(R4, When::Less, R5, listed).go(aside);
    // The address is made of the limit, too: no processor looks at an entry before it has seen that it is there.
    code.stand(listed).change(R5, Do::And, 0).change(R4, Do::Add, R5);
    code.change(R4, Do::And, number(u64::from(LISTED) - 1)).change(R4, Do::ShiftUp, 4);
    debug_assert_eq!(shared::ENTRY_BYTES, 1 << 4);
    code.change(R1, Do::Move, R7).change(R1, Do::Add, R4);
    code.load(Width::Word, R5, R1, short(shared::LIST + shared::KIND));
}

/// Leaves unless this frame of kind Data is the one that is due, whose entry is at register 1; takes its turn
/// otherwise.
fn is_next(code: &mut Code, aside: Label) {
    let (opened, compare) = (code.label(), code.label());
    code.jump(R5, When::Equal, number(OPENS.into()), aside).jump(R5, When::Equal, number(OPENED.into()), opened);
    code.load(Width::Word, R5, R1, short(shared::LIST)).go(compare);
    code.stand(opened).load(Width::Word, R5, R7, short(shared::MESSAGE));
    code.stand(compare).load(Width::Word, R4, R2, in_frame(40)).jump(R4, When::NotEqual, R5, aside);
    code.load(Width::Word, R4, R2, in_frame(44)).load(Width::Word, R5, R1, short(shared::LIST + shared::OFFSET));
    code.jump(R4, When::NotEqual, R5, aside);
    code.load(Width::Word, R1, R1, short(shared::LIST + shared::BYTES));
    body_fits(code, 0, aside);
    take_turn(code, aside);
}

/// Leaves unless this frame of kind Open is the one that is due; takes its turn otherwise, and writes down which
/// message it opens.
fn is_first(code: &mut Code, aside: Label) {
    is_at_hand(code, HEADERS + OPENING_BYTES as u64, aside);
    code.load(Width::Word, R4, R2, in_frame(44)).jump(R4, When::NotEqual, 0, aside);
    code.jump(R5, When::NotEqual, number(OPENS.into()), aside);
    // Not one of a message that is sent again: at least as far on as the one that is awaited, as numbers wrap.
    code.load(Width::Word, R4, R2, in_frame(40)).load(Width::Word, R5, R1, short(shared::LIST));
    code.change(R4, Do::Subtract, R5);
    low_half(code, R4, R4);
    code.jump(R4, When::Greater, i32::MAX, aside);
    code.load(Width::Word, R1, R1, short(shared::LIST + shared::BYTES));
    body_fits(code, OPENING_BYTES as u64, aside);
    take_turn(code, aside);
    // Before it is counted: whoever has seen the count sees this, too.
    code.load(Width::Word, R0, R2, in_frame(40)).store(Width::Word, R7, short(shared::MESSAGE), R0);
}

/// Leaves if the payload, of the length in register 4, is longer than register 1, or if another frame has had this
/// turn. If it is shorter, the register is closed from now on. Destroys registers 0, 3, 5 and 8.
fn take_turn(code: &mut Code, aside: Label) {
    let whole = code.label();
    code.jump(R4, When::Greater, R1, aside);
    is_of_one_processor(code, shared::PROCESSOR, aside);
    code.change(R5, Do::Move, R8).change(R0, Do::Move, R8).change(R8, Do::Add, 1);
    code.jump(R4, When::Equal, R1, whole);
    code.change(R8, Do::Add, 1 << 30).change(R8, Do::Add, 1 << 30);
    code.stand(whole).exchange_double_if(R7, short(shared::NEXT), R8).jump(R0, When::NotEqual, R5, aside);
}

/// Leaves if this much cannot be cut off: the kernel cuts only what is in the first part of a frame, and leaves an
/// Ethernet header there. The frame is at register 2, the end of its first part in register 3. Destroys register 4.
fn is_at_hand(code: &mut Code, headers: u64, aside: Label) {
    let bytes = number(headers + u64::from(LINK_BYTES));
    code.change(R4, Do::Move, R2).change(R4, Do::Add, bytes).jump(R4, When::Greater, R3, aside);
}

/// Leaves if frames of another processor have been let through, as the word at `place` of the shared memory says, which
/// is [`ANY`] at first. Destroys registers 0 and 3.
pub(super) fn is_of_one_processor(code: &mut Code, place: u64, aside: Label) {
    let first = code.label();
    code.load(Width::Double, R3, STACK, MINE).change(R0, Do::Move, number(u64::from(ANY)));
    code.exchange_if(R7, short(place), R3).jump(R0, When::Equal, number(u64::from(ANY)), first);
    code.jump(R0, When::NotEqual, R3, aside);
    code.stand(first);
}

/// Register 4 becomes the payload's length; leaves if the frame is not as long as its header says, or the payload is
/// too short to be cut free. Destroys register 0.
fn body_fits(code: &mut Code, opening: u64, aside: Label) {
    code.load(Width::Half, R4, R2, in_frame(2));
    code.change(R0, Do::Move, R4).change(R0, Do::Add, number(HEADERS)).jump(R0, When::NotEqual, R9, aside);
    code.jump(R4, When::Less, number(opening + u64::from(LEAST)), aside);
    code.change(R4, Do::Subtract, number(opening));
}

/// Logs the headers, cuts them off, and gives the rest to the socket.
fn let_through(code: &mut Code, opening: u64, rings: i32, failed: Label) {
    let headers = number(HEADERS + opening);
    code.change(R3, Do::Move, 1).fetch_add(R7, short(shared::TAKEN), R3);
    code.change(R3, Do::And, number(u64::from(LOGGED) - 1)).change(R3, Do::ShiftUp, 8);
    debug_assert_eq!(shared::LOG_BYTES, 1 << 8);
    code.change(R3, Do::Add, R7).change(R3, Do::Add, number(shared::LOG));
    code.load(Width::Word, R4, R7, short(shared::GIVEN)).store(Width::Word, R3, short(shared::BEFORE), R4);
    code.change(R1, Do::Move, CONTEXT).change(R2, Do::Move, 0).change(R4, Do::Move, headers).call(LOAD_BYTES);
    code.jump(R0, When::NotEqual, 0, failed);
    code.change(R1, Do::Move, CONTEXT).change(R2, Do::Move, headers).call(ADJUST_HEAD);
    code.jump(R0, When::NotEqual, 0, failed);
    to_ring(code, rings);
}

/// Copies the frame to a slot, and ends; leaves if there is none, or the endpoint sleeps.
fn to_slot(code: &mut Code, slots: Slots, pass: Label) {
    let void = code.label();
    code.jump(R9, When::Greater, number((1 << slots.bytes_log) - shared::IN_SLOT), pass);
    code.jump(R9, When::Less, number(ENVELOPE_BYTES as u64), pass);
    code.load(Width::Word, R4, R7, short(shared::GIVEN)).load(Width::Word, R1, R7, short(shared::SEEN));
    code.change(R4, Do::Subtract, R1);
    low_half(code, R4, R4);
    code.jump(R4, When::Greater, number((1 << slots.count_log) - u64::from(slots.free)), pass);
    // First the slot, then the look: user space says first that it sleeps, and then looks for slots. One sees the
    // other.
    code.change(R4, Do::Move, 1).fetch_add(R7, short(shared::GIVEN), R4).store(Width::Double, STACK, SLOT, R4);
    code.change(R8, Do::Move, R4).change(R8, Do::And, number((1 << slots.count_log) - 1));
    code.change(R8, Do::ShiftUp, number(u64::from(slots.bytes_log))).change(R8, Do::Add, R7);
    code.change(R8, Do::Add, number(shared::SLOTS));
    code.load(Width::Word, R1, R7, short(shared::ASLEEP)).jump(R1, When::NotEqual, 0, void);
    code.change(R3, Do::Move, R8).change(R3, Do::Add, number(shared::IN_SLOT));
    code.change(R1, Do::Move, CONTEXT).change(R2, Do::Move, 0).change(R4, Do::Move, R9).call(LOAD_BYTES);
    code.jump(R0, When::NotEqual, 0, void);
    code.load(Width::Double, R4, STACK, SLOT).change(R4, Do::Add, 1);
    low_half(code, R4, R4);
    code.change(R9, Do::ShiftUp, 32).change(R4, Do::Add, R9).store(Width::Double, R8, 0, R4);
    code.change(R0, Do::Move, DROP).exit();
    code.stand(void).load(Width::Double, R4, STACK, SLOT).change(R4, Do::Add, 1);
    low_half(code, R4, R4);
    code.store(Width::Double, R8, 0, R4).go(pass);
}

/// `to` becomes the low half of `from`.
fn low_half(code: &mut Code, to: Register, from: Register) {
    if to != from {
        code.change(to, Do::Move, from);
    }
    code.change(to, Do::ShiftUp, 32).change(to, Do::ShiftDown, 32);
}
