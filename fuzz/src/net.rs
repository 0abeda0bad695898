//! Anybody throws frames at an endpoint that has channels over a network, and makes the check sums right.
//!
//! The victim has a channel with a friend that keeps the rules, listens, lets the hostile side in, and calls an address
//! that the hostile side answers from. Whatever comes: nothing panics, what lies aside stays within its bound, nothing
//! is held for who has gone, nobody is answered with more than he has sent, but for a note to who closes once more, and
//! every message of the friend arrives once, in order, whole.

mod arena;

use arbitrary::Arbitrary;
use cutthrough_engine::net::Tally;
use cutthrough_engine::net::channel::Ending;
use cutthrough_wire::frame::{
    BODY_MIN, GREETING_BYTES, Greeting, Kind, LIMITS_BYTES, Limits, Note, OPENING_BYTES, Opening,
};
use cutthrough_wire::slot::{CONTROL_MAX, PAYLOAD_MAX};
use cutthrough_wire::token::Token;

use self::arena::Arena;
use crate::ground::Sum;

/// What happens next.
#[derive(Debug, Arbitrary)]
pub enum Step {
    /// A frame comes.
    Frame(Frame),
    /// The hostile side asks for a channel as it should, and is let in.
    Join,
    /// So many microseconds pass, times a power of two.
    Pass(u16, u8),
    /// Memory is posted where the next payload of the hostile side may land.
    Post(u16),
    /// There is no memory for places, or there is again.
    Scarce(bool),
    /// The victim sends the hostile side a message with a payload of so many bytes, or without.
    Send(Option<u16>, bool),
    /// The victim reads a payload of the hostile side: what is there, or by lending its memory.
    Read(u8, bool),
    /// The victim drops a payload of the hostile side.
    Forget(u8),
    /// The victim closes the channel of the hostile side.
    Close,
    /// The victim calls an address that the hostile side answers from.
    Call,
    /// The friend sends a message with a payload of so many bytes, or without.
    Friend(Option<u16>, bool),
    /// The victim sends what it owes and gets ready to sleep.
    Hurry,
}

/// Where a frame says that it comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Arbitrary)]
pub enum From {
    /// The hostile side's own address, and its own channel.
    Hostile,
    /// The friend's address and channel; the check sum is wrong, as it would be with a key.
    Friend,
    /// The address that the victim calls, and the channel that it calls from.
    Called,
    /// Another address.
    Stranger,
}

/// The number of a frame.
#[derive(Debug, Clone, Copy, Arbitrary)]
pub enum Number {
    /// The one that is due.
    Next,
    /// So many behind or before it.
    Near(i8),
    /// Any.
    Any(u64),
}

/// What a frame says of the victim's frames.
#[derive(Debug, Clone, Copy, Arbitrary)]
pub enum Heard {
    /// None has arrived.
    None,
    /// All have.
    All,
    /// So many before the last, and some of those.
    Some(u8, u64),
    /// Anything.
    Any(u32, u64),
}

/// Which message a frame is about.
#[derive(Debug, Clone, Copy, Arbitrary)]
pub enum Message {
    /// One near the last that was opened.
    Near(i8),
    /// Any.
    Any(u32),
}

/// Limits that a frame tells.
#[derive(Debug, Clone, Copy, Arbitrary)]
pub enum Allows {
    /// As many as anybody needs.
    Enough,
    /// Any.
    Any(u32, u32),
}

/// The body of a frame.
#[derive(Debug, Arbitrary)]
pub enum Shape {
    /// Any bytes.
    Any(Vec<u8>),
    /// So many zeroes.
    Zeroes(u16),
    /// Control messages of these lengths, and how many there are said to be, if not that.
    Records(Allows, Vec<u8>, Option<u32>),
    /// An opening, and so many bytes of payload behind it.
    Open {
        /// Bytes of the payload: modulo so many bits.
        payload: (u32, u8),
        /// How many of them come unasked, if not all.
        unasked: Option<u32>,
        /// Where it shall land.
        token: Option<(u16, u64)>,
        /// Whether it comes from pages.
        pages: bool,
        /// Limits.
        allows: Allows,
        /// Bytes of the control message.
        control: u8,
        /// Bytes behind the opening.
        len: u16,
    },
    /// Bytes of a payload: where they begin, and how many.
    Data(u32, u16),
    /// Ranges and grants.
    Note(Allows, Vec<(i8, u8)>, Vec<(i8, u32)>, bool),
    /// A greeting: with the cookie that was told, or another, of a body so long, with a handshake behind it. Some of
    /// them name the victim's own life.
    Greeting(Option<u64>, u16, Vec<u8>, u16),
    /// A cookie.
    Cookie(u64),
}

/// A frame.
#[derive(Debug, Arbitrary)]
pub struct Frame {
    /// Who is said to have sent it.
    pub from: From,
    /// Its kind, if not that of its body.
    pub kind: Option<u8>,
    /// Tag and generation, if not the right ones.
    pub tag: Option<(u32, u32)>,
    /// Its number.
    pub number: Number,
    /// What it acknowledges.
    pub heard: Heard,
    /// The least number that is still waited for, if not none.
    pub awaited: Option<u32>,
    /// For how long the acknowledgement was held back.
    pub held: u16,
    /// Whether its sender is said to wait for room in its window.
    pub waits: bool,
    /// What it says of quiet moments.
    pub quiet: u8,
    /// The message; in frames that are about none only if it is any.
    pub message: Message,
    /// Another second word than that of the body.
    pub second: Option<u32>,
    /// The body.
    pub body: Shape,
    /// Whether the check sum is wrong.
    pub broken: bool,
    /// Whether the payload lands where the guess says, and if so, whether whatever the header says.
    pub landed: Option<bool>,
    /// Bytes of padding, or bytes that are missing at the end.
    pub padding: i8,
}

/// What the victim has made of the steps.
#[derive(Debug)]
pub struct Walked {
    /// What it has counted; the friend's frames, too.
    pub tally: Tally,
    /// Why the channels of the hostile side have ended.
    pub endings: Vec<Ending>,
    /// The cookies that it has called with.
    pub cookies: Vec<u64>,
    /// How often its calls have come to a channel.
    pub connected: u32,
    /// How often a close was acknowledged whose channel had ended.
    pub again: u32,
}

/// Takes all steps, and looks whether the friend's channel is as it was: what has come of them.
///
/// # Panics
/// If something does not hold.
pub fn run(steps: &[Step]) -> Walked {
    let mut arena = Arena::new();
    for step in steps.iter().take(256) {
        arena.step(step);
        arena.check();
    }
    arena.finish();
    arena.walked()
}

/// The number of the victim's life.
const VICTIMS_LIFE: u64 = 1;

const fn limits(allows: Allows, message: u32) -> Limits {
    match allows {
        Allows::Enough => Limits { messages: message.wrapping_add(1 << 10), unasked: 1 << 20 },
        Allows::Any(messages, unasked) => Limits { messages, unasked },
    }
}

/// What a body is made of: its kind, the words of a header that fits it, and the bytes.
fn body(shape: &Shape, (message, sent, cookie): (u32, u32, u64)) -> (Kind, [u32; 2], Vec<u8>) {
    match shape {
        Shape::Any(bytes) => (Kind::Records, [message, 0], bytes.clone()),
        Shape::Zeroes(len) => (Kind::Probe, [0, 0], vec![0; usize::from(*len)]),
        Shape::Records(allows, lens, count) => {
            let mut bytes = limits(*allows, sent).to_bytes().to_vec();
            for len in lens {
                bytes.extend_from_slice(&[*len, 0]);
                bytes.resize(bytes.len() + usize::from(*len), 1);
            }
            let whole = u32::try_from(lens.len()).unwrap_or(0);
            debug_assert!(bytes.len() >= LIMITS_BYTES);
            (Kind::Records, [message, count.unwrap_or(whole)], bytes)
        }
        Shape::Open { payload, unasked, token, pages, allows, control, len } => {
            let payload = payload.0 & 1_u32.unbounded_shl(u32::from(payload.1 % 32)).wrapping_sub(1);
            let opening = Opening {
                payload: payload.min(u32::try_from(PAYLOAD_MAX).unwrap_or(u32::MAX)),
                unasked: unasked.unwrap_or(payload.min(4096)).min(payload),
                token: token.map(|(index, key)| Token { index, key }),
                pages: *pages,
                limits: limits(*allows, sent),
                control_len: *control % 100,
                control: [2; CONTROL_MAX],
            };
            let mut bytes = opening.to_bytes().to_vec();
            bytes.resize(OPENING_BYTES + usize::from(*len).min(payload as usize), 3);
            (Kind::Open, [message, 0], bytes)
        }
        Shape::Data(offset, len) => (Kind::Data, [message, *offset], vec![3; usize::from(*len)]),
        Shape::Note(allows, ranges, grants, asks) => {
            let long = |len: usize| u16::try_from(len).unwrap_or(0);
            let mut bytes = Note::head(limits(*allows, sent), long(ranges.len()), long(grants.len())).to_vec();
            for (first, count) in ranges {
                bytes.extend_from_slice(&Note::entry(sent.wrapping_add_signed(i32::from(*first)), u32::from(*count)));
            }
            for (of, upto) in grants {
                bytes.extend_from_slice(&Note::entry(message.wrapping_add_signed(i32::from(*of)), *upto));
            }
            (Kind::Note, [u32::from(*asks), 0], bytes)
        }
        Shape::Greeting(other, body, handshake, len) => {
            let greeting = Greeting {
                tag: 9,
                generation: message,
                life: if len & 15 == 15 { VICTIMS_LIFE } else { 4 },
                cookie: other.unwrap_or(cookie),
                body: (*body).max(BODY_MIN - 1),
                limits: limits(Allows::Enough, sent),
                process: 0,
                user: 0,
            };
            let mut bytes = greeting.to_bytes(u16::try_from(handshake.len()).unwrap_or(u16::MAX)).to_vec();
            bytes.extend_from_slice(handshake);
            bytes.resize(bytes.len().max(GREETING_BYTES + usize::from(*len)), 0);
            (Kind::Hello, [0, 0], bytes)
        }
        Shape::Cookie(cookie) => (Kind::Retry, [0, 0], cookie.to_le_bytes().to_vec()),
    }
}

/// The body of a welcome, with the proof that only the one who was called can make.
fn vouched(body: &[u8]) -> Option<Vec<u8>> {
    let (greeting, handshake) = Greeting::from_bytes(body).ok()?;
    let proof = Sum::of(0, &Greeting { body: BODY_MIN, ..greeting }.to_bytes(0), &[]);
    let long = u16::try_from(handshake.len() + proof.len()).ok()?;
    let mut bytes = greeting.to_bytes(long).to_vec();
    bytes.extend_from_slice(handshake);
    bytes.extend_from_slice(&proof);
    bytes.resize(bytes.len().max(body.len()), 0);
    Some(bytes)
}
