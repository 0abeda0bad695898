//! What an active message looks like inside a control message.
//!
//! ```text
//!  0     1      2      3     4        6        8              16              16 + len
//!  kind  flags  len    code  handler  stamp    call (u64)     arguments       token, budget, origin: where flagged
//! ```
//!
//! All numbers are little-endian. A token takes 10 bytes (index, key), a budget 6 (nanoseconds), an origin 16
//! (generation, call). The length of the control message is exactly what its parts add up to. The stamp is what its
//! sender's clock said when the budget was left, in units of 2^20 ns; without a budget it is 0 ([`Budget`]).

use cutthrough_wire::slot::{CONTROL_MAX, short_word};
use cutthrough_wire::token::Token;

use super::budget::Budget;
use super::terms::Failure;

/// Most bytes of arguments in a control message: 16 words of 32 bits.
pub const ARGS_MAX: usize = 64;
/// Bytes before the arguments.
const HEAD: usize = 16;
const TOKEN: usize = 10;
const BUDGET: usize = 6;
const ORIGIN: usize = 16;
/// Nanoseconds of the longest budget that a message can say: 78 hours.
pub const BUDGET_MAX: u64 = (1 << 48) - 1;

/// Which call of a requester's; its table knows the rest. Both of its numbers are one word, which most only pass on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CallId(u64);

impl CallId {
    /// A call of this place in the requester's table, and the number that tells it from earlier ones there.
    #[inline(always)]
    #[must_use]
    pub const fn new(index: u32, nonce: u32) -> Self {
        Self(index as u64 | (nonce as u64) << 32)
    }

    /// Its place in the requester's table.
    #[inline(always)]
    #[must_use]
    #[allow(clippy::cast_possible_truncation, reason = "the lower half of the word")]
    pub const fn index(self) -> u32 {
        self.0 as u32
    }

    /// What tells it from earlier ones of the same place.
    #[inline(always)]
    #[must_use]
    pub const fn nonce(self) -> u32 {
        (self.0 >> 32) as u32
    }

    /// Both numbers in one.
    #[inline(always)]
    #[must_use]
    pub const fn to_word(self) -> u64 {
        self.0
    }

    /// Takes [`CallId::to_word`] back.
    #[inline(always)]
    #[must_use]
    pub const fn from_word(word: u64) -> Self {
        Self(word)
    }
}

/// Arguments as their caller has them.
#[derive(Debug, Clone, Copy)]
pub enum Arguments<'a> {
    /// Bytes.
    Bytes(&'a [u8]),
    /// Words, which travel little-endian.
    Words(&'a [u32]),
}

impl Default for Arguments<'_> {
    fn default() -> Self {
        Self::Bytes(&[])
    }
}

impl<'a> Arguments<'a> {
    /// Bytes of them.
    #[inline(always)]
    #[must_use]
    pub const fn len(self) -> usize {
        match self {
            Self::Bytes(bytes) => bytes.len(),
            Self::Words(words) => words.len() * 4,
        }
    }

    /// Whether there are none.
    #[must_use]
    pub const fn is_empty(self) -> bool {
        self.len() == 0
    }

    /// Writes them; up to 8 bytes behind them may be written, too. There are at most [`ARGS_MAX`].
    ///
    /// In steps of eight bytes, on the whole way: a processor passes a value from a store to a load only where the load
    /// lies within the store. Steps from the back overlap those from the front, so that each length takes few branches,
    /// and no call.
    #[inline(always)]
    fn write(self, into: &mut [u8; ARGS_MAX]) {
        let len = self.len().min(ARGS_MAX);
        let Some(last) = len.checked_sub(8) else {
            into[..8].copy_from_slice(&self.few().to_le_bytes());
            return;
        };
        self.step(0, into);
        self.step(last, into);
        if len > 16 {
            self.step(8, into);
            self.step(last - 8, into);
        }
        if len > 32 {
            self.step(16, into);
            self.step(24, into);
            self.step(last - 24, into);
            self.step(last - 16, into);
        }
    }

    #[inline(always)]
    fn step(self, at: usize, into: &mut [u8; ARGS_MAX]) {
        into[at..at + 8].copy_from_slice(&self.eight(at).to_le_bytes());
    }

    /// Fewer than eight bytes.
    #[inline(always)]
    const fn few(self) -> u64 {
        match self {
            Self::Bytes(bytes) => short_word(bytes),
            Self::Words([word]) => *word as u64,
            Self::Words(_) => 0,
        }
    }

    /// Eight bytes from here on.
    #[inline(always)]
    fn eight(self, at: usize) -> u64 {
        match self {
            Self::Bytes(bytes) => bytes[at..].first_chunk().map_or(0, |word| u64::from_le_bytes(*word)),
            Self::Words(words) => {
                words[at / 4..].first_chunk().map_or(0, |[low, high]| u64::from(*low) | u64::from(*high) << 32)
            }
        }
    }

    /// The arguments as bytes, in `buffer` if they are words; `None` if they are too long.
    pub(super) fn as_bytes(self, buffer: &'a mut [u8; ARGS_MAX]) -> Option<&'a [u8]> {
        if self.len() > ARGS_MAX {
            return None;
        }
        match self {
            Self::Bytes(bytes) => Some(bytes),
            Self::Words(_) => {
                self.write(buffer);
                Some(&buffer[..self.len()])
            }
        }
    }
}

/// What a message is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Kind {
    /// Runs a handler. It is answered by exactly one [`Kind::Reply`], [`Kind::Failed`] or [`Kind::Handed`].
    Request = 1,
    /// Answers a request.
    Reply = 2,
    /// Answers a request: it was not served, and the code says why.
    Failed = 3,
    /// Answers a request that was handed over: whoever took it has replied.
    Handed = 4,
    /// The requester does not wait any more. Answered by the answer to the request.
    Cancel = 5,
    /// Another endpoint will reply: its generation is the origin.
    HandOver = 6,
    /// Replies to a request that was handed over, on a channel of its own.
    Direct = 7,
    /// Gives the larger window back.
    Back = 8,
}

impl Kind {
    const fn of(byte: u8) -> Option<Self> {
        Some(match byte {
            1 => Self::Request,
            2 => Self::Reply,
            3 => Self::Failed,
            4 => Self::Handed,
            5 => Self::Cancel,
            6 => Self::HandOver,
            7 => Self::Direct,
            8 => Self::Back,
            _ => return None,
        })
    }
}

/// Whether a control message that is an active message has come from whoever a request was handed to.
#[must_use]
pub fn is_direct(control: &[u8]) -> bool {
    control.first().is_some_and(|kind| *kind == Kind::Direct as u8)
}

/// Whether an active message that was encoded here is a reply, and says of no failure.
pub(super) fn is_reply(control: &[u8]) -> bool {
    Message::decode(control).is_ok_and(|said| matches!(said.kind, Kind::Reply | Kind::Direct) && said.code == 0)
}

/// A handed-over request: who asked first, and for which of its calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Origin {
    /// Generation of the endpoint.
    pub generation: u64,
    /// Its call.
    pub call: CallId,
}

/// A message, taken apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Message<'a> {
    /// What it is for.
    pub kind: Kind,
    /// The requester would like the larger window (request), or has it (answer).
    pub window: bool,
    /// Why a request failed; 0 otherwise.
    pub code: u8,
    /// The handler of a request.
    pub handler: u16,
    /// The call: always one of the requester's numbers.
    pub call: CallId,
    /// Arguments, at most [`ARGS_MAX`] bytes.
    pub args: &'a [u8],
    /// Where the reply's payload shall land.
    pub token: Option<Token>,
    /// How much time is left until nobody waits for the answer any more.
    pub budget: Option<Budget>,
    /// Who asked first.
    pub origin: Option<Origin>,
}

/// A control message that is no active message. Its sender breaks the rules: the channel is to be closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Malformed {
    /// Too short, too long, or its parts do not add up.
    #[error("an active message of a wrong length")]
    Length,
    /// No such kind, or flags that this kind does not have.
    #[error("an active message of an unknown kind")]
    Kind,
    /// An answer to a call that nobody waits for on this channel, or more requests at a time than a window holds.
    #[error("an answer or a request that cannot be")]
    Unexpected,
}

const F_TOKEN: u8 = 1;
const F_BUDGET: u8 = 2;
const F_ORIGIN: u8 = 4;
const F_WINDOW: u8 = 8;

/// What may be set in the first word of a message without a code and without optional parts but a budget: kind, that
/// flag, length, handler.
const PLAIN: u64 = 0xff | (F_BUDGET as u64) << 8 | 0xff << 16 | 0xffff << 32;
/// Where the stamp lies in that word: nothing may be set there without a budget.
const STAMP: u32 = 48;

/// The first word of a message.
#[inline(always)]
const fn head(kind: Kind, flags: u8, len: usize, code: u8, handler: u16, budget: Option<Budget>) -> u64 {
    let stamp = if let Some(budget) = budget { (budget.stamp() as u64) << STAMP } else { 0 };
    kind as u64 | (flags as u64) << 8 | (len as u64) << 16 | (code as u64) << 24 | (handler as u64) << 32 | stamp
}

/// A message with nothing beside its arguments, but perhaps a budget: most are. Its head is one word from the
/// beginning: to put it together from bytes in memory would take a wait.
#[derive(Debug, Clone, Copy)]
pub struct Short<'a> {
    head: u64,
    call: CallId,
    args: Arguments<'a>,
    /// Nanoseconds of its budget.
    budget: Option<u64>,
}

impl<'a> Short<'a> {
    /// A message of this kind for a handler, or for none, about this call; `None` if there are more than [`ARGS_MAX`]
    /// bytes of arguments.
    #[inline(always)]
    pub(super) fn new(
        kind: Kind,
        handler: u16,
        call: CallId,
        args: Arguments<'a>,
        budget: Option<Budget>,
    ) -> Option<Self> {
        let flags = if budget.is_some() { F_BUDGET } else { 0 };
        let head = head(kind, flags, args.len(), 0, handler, budget);
        let budget = budget.map(Budget::nanos);
        (args.len() <= ARGS_MAX).then_some(Self { head, call, args, budget })
    }

    /// Writes the message: how many bytes.
    #[inline(always)]
    #[must_use]
    pub fn write(self, into: &mut [u8; CONTROL_MAX]) -> usize {
        into[..8].copy_from_slice(&self.head.to_le_bytes());
        into[8..HEAD].copy_from_slice(&self.call.to_word().to_le_bytes());
        if let Some(args) = into[HEAD..].first_chunk_mut() {
            self.args.write(args);
        }
        let end = HEAD + self.args.len();
        let Some(budget) = self.budget else { return end };
        into[end..end + 8].copy_from_slice(&budget.min(BUDGET_MAX).to_le_bytes());
        end + BUDGET
    }
}

/// The first word of a message, as it is read.
#[derive(Debug, Clone, Copy)]
pub(super) struct Head {
    pub(super) kind: u8,
    pub(super) flags: u8,
    pub(super) len: u8,
    pub(super) handler: u16,
    stamp: u16,
}

impl Head {
    /// The head and the call of a message that asks for nothing beside and has no optional part, but perhaps a
    /// [budget](Head::budget); `None` for others.
    #[inline(always)]
    #[allow(clippy::cast_possible_truncation, reason = "each part of the word is cut out of it")]
    pub(super) fn read_plain(bytes: &[u8]) -> Option<(Self, CallId)> {
        let (head, args) = bytes.split_first_chunk::<HEAD>()?;
        let ([word, call], _) = head.as_chunks() else { return None };
        let (word, call) = (u64::from_le_bytes(*word), u64::from_le_bytes(*call));
        let (kind, flags, len, handler) = (word as u8, (word >> 8) as u8, (word >> 16) as u8, (word >> 32) as u16);
        let stamp = (word >> STAMP) as u16;
        let more = word & !PLAIN;
        if more != 0 && (flags != F_BUDGET || more != u64::from(stamp) << STAMP) {
            return None;
        }
        let optional = if flags == 0 { 0 } else { BUDGET };
        if args.len() != usize::from(len) + optional || usize::from(len) > ARGS_MAX {
            return None;
        }
        Some((Self { kind, flags, len, handler, stamp }, CallId::from_word(call)))
    }

    /// The budget of a message whose head was read so.
    #[inline(always)]
    pub(super) fn budget(self, bytes: &[u8]) -> Option<Budget> {
        if self.flags == 0 {
            return None;
        }
        // Its last bytes; there are more before them.
        bytes.last_chunk().map(|word| Budget::new(u64::from_le_bytes(*word) >> 16, self.stamp))
    }
}

impl<'a> Message<'a> {
    /// A message of this kind about this call, without anything else.
    #[must_use]
    pub const fn new(kind: Kind, call: CallId) -> Self {
        Self { kind, window: false, code: 0, handler: 0, call, args: &[], token: None, budget: None, origin: None }
    }

    /// What is said instead of this answer, which cannot be given.
    pub(super) const fn instead(self, why: Failure) -> Self {
        let kind = if matches!(self.kind, Kind::Direct) { Kind::Direct } else { Kind::Failed };
        Self { kind, code: why as u8, args: &[], ..self }
    }

    /// Writes the message into `into`: how many bytes, or `None` if its parts are too long together.
    #[inline]
    pub fn encode(&self, into: &mut [u8; CONTROL_MAX]) -> Option<usize> {
        let len = self.args.len();
        if len > ARGS_MAX {
            return None;
        }
        let flags = (if self.token.is_some() { F_TOKEN } else { 0 })
            | (if self.budget.is_some() { F_BUDGET } else { 0 })
            | (if self.origin.is_some() { F_ORIGIN } else { 0 })
            | (if self.window { F_WINDOW } else { 0 });
        let head = head(self.kind, flags, len, self.code, self.handler, self.budget);
        let end = Short { head, call: self.call, args: Arguments::Bytes(self.args), budget: None }.write(into);
        if flags & (F_TOKEN | F_BUDGET | F_ORIGIN) == 0 { Some(end) } else { self.encode_rest(into, end) }
    }

    /// The optional parts.
    fn encode_rest(&self, into: &mut [u8; CONTROL_MAX], mut end: usize) -> Option<usize> {
        if let Some(token) = self.token {
            // As two words, the second of which is overwritten by what follows: see `Arguments::write`.
            let word = u64::from(token.index) | token.key << 16;
            let place = into.get_mut(end..)?;
            match place.first_chunk_mut::<16>() {
                Some(words) => *words = (u128::from(word) | u128::from(token.key >> 48) << 64).to_le_bytes(),
                None => {
                    place.get_mut(..8)?.copy_from_slice(&word.to_le_bytes());
                    place.get_mut(8..TOKEN)?.copy_from_slice(&token.key.to_le_bytes()[6..]);
                }
            }
            end += TOKEN;
        }
        if let Some(budget) = self.budget {
            let bytes = budget.nanos().to_le_bytes();
            into.get_mut(end..end + BUDGET)?.copy_from_slice(&bytes[..BUDGET]);
            end += BUDGET;
        }
        if let Some(origin) = self.origin {
            into.get_mut(end..end + 8)?.copy_from_slice(&origin.generation.to_le_bytes());
            into.get_mut(end + 8..end + ORIGIN)?.copy_from_slice(&origin.call.to_word().to_le_bytes());
            end += ORIGIN;
        }
        Some(end)
    }

    /// Takes a control message apart. Never panics, whatever the bytes.
    ///
    /// # Errors
    /// [`Malformed`].
    #[inline]
    pub fn decode(bytes: &'a [u8]) -> Result<Self, Malformed> {
        let (head, rest) = bytes.split_first_chunk::<HEAD>().ok_or(Malformed::Length)?;
        let [kind, flags, len, code, low, high, first, second, call @ ..] = *head;
        let stamp = u16::from_le_bytes([first, second]);
        let kind = Kind::of(kind).ok_or(Malformed::Kind)?;
        let known = F_TOKEN | F_BUDGET | F_ORIGIN | F_WINDOW;
        if flags & !known != 0 || (flags & F_BUDGET == 0 && stamp != 0) {
            return Err(Malformed::Kind);
        }
        if usize::from(len) > ARGS_MAX {
            return Err(Malformed::Length);
        }
        let (args, rest) = rest.split_at_checked(usize::from(len)).ok_or(Malformed::Length)?;
        let message = Self {
            kind,
            window: flags & F_WINDOW != 0,
            code,
            handler: u16::from_le_bytes([low, high]),
            call: CallId::from_word(u64::from_le_bytes(call)),
            args,
            token: None,
            budget: None,
            origin: None,
        };
        if flags & (F_TOKEN | F_BUDGET | F_ORIGIN) == 0 && rest.is_empty() {
            return Ok(message);
        }
        message.decode_rest(flags, stamp, rest)
    }

    fn decode_rest(mut self, flags: u8, stamp: u16, mut rest: &[u8]) -> Result<Self, Malformed> {
        if flags & F_TOKEN != 0 {
            let (index, after) = rest.split_first_chunk().ok_or(Malformed::Length)?;
            let (key, after) = after.split_first_chunk().ok_or(Malformed::Length)?;
            self.token = Some(Token { index: u16::from_le_bytes(*index), key: u64::from_le_bytes(*key) });
            rest = after;
        }
        if flags & F_BUDGET != 0 {
            let ([a, b, c, d, e, f], after) = rest.split_first_chunk().ok_or(Malformed::Length)?;
            let nanos = u64::from_le_bytes([*a, *b, *c, *d, *e, *f, 0, 0]);
            self.budget = Some(Budget::new(nanos, stamp));
            rest = after;
        }
        if flags & F_ORIGIN != 0 {
            let (generation, after) = rest.split_first_chunk().ok_or(Malformed::Length)?;
            let (call, after) = after.split_first_chunk().ok_or(Malformed::Length)?;
            let call = CallId::from_word(u64::from_le_bytes(*call));
            self.origin = Some(Origin { generation: u64::from_le_bytes(*generation), call });
            rest = after;
        }
        if rest.is_empty() { Ok(self) } else { Err(Malformed::Length) }
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use proptest::prelude::*;

    use super::*;

    fn calls() -> impl Strategy<Value = CallId> {
        any::<u64>().prop_map(CallId::from_word)
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(
            kind in 1_u8..=8,
            (window, code, handler, call) in (any::<bool>(), any::<u8>(), any::<u16>(), calls()),
            args in proptest::collection::vec(any::<u8>(), 0..=ARGS_MAX),
            token in proptest::option::of((any::<u16>(), any::<u64>())),
            budget in proptest::option::of((0..=BUDGET_MAX, any::<u16>())),
            origin in proptest::option::of((any::<u64>(), calls())),
        ) {
            let budget = budget.map(|(nanos, stamp)| Budget::new(nanos, stamp));
            let message = Message {
                kind: Kind::of(kind).unwrap(), window, code, handler, call, args: &args, budget,
                token: token.map(|(index, key)| Token { index, key }),
                origin: origin.map(|(generation, call)| Origin { generation, call }),
            };
            let parts = HEAD + args.len() + token.map_or(0, |_| 10) + budget.map_or(0, |_| 6)
                + origin.map_or(0, |_| 16);
            let mut bytes = [0; CONTROL_MAX];
            match message.encode(&mut bytes) {
                None => prop_assert!(parts > CONTROL_MAX),
                Some(len) => {
                    prop_assert_eq!(len, parts);
                    prop_assert_eq!(Message::decode(&bytes[..len]), Ok(message));
                    let plain = Head::read_plain(&bytes[..len]);
                    let is_plain = token.is_none() && origin.is_none() && !window && code == 0;
                    prop_assert_eq!(plain.is_some(), is_plain);
                    if let Some((head, its)) = plain {
                        prop_assert_eq!(head.budget(&bytes[..len]), budget);
                        let mut again = [0; CONTROL_MAX];
                        let short = Short::new(message.kind, handler, call, Arguments::Bytes(&args), budget);
                        prop_assert_eq!(short.unwrap().write(&mut again), len);
                        prop_assert_eq!(&again[..len], &bytes[..len]);
                        prop_assert_eq!((head.kind, usize::from(head.len), its), (kind, args.len(), call));
                        prop_assert_eq!(head.handler, handler);
                    }
                    if len < CONTROL_MAX {
                        prop_assert_eq!(Message::decode(&bytes[..=len]), Err(Malformed::Length));
                    }
                    prop_assert_eq!(Message::decode(&bytes[..len - 1]), Err(Malformed::Length));
                }
            }
        }

        #[test]
        fn words_are_their_bytes(words in proptest::collection::vec(any::<u32>(), 0..20)) {
            let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
            let (mut one, mut two) = ([0; ARGS_MAX], [0; ARGS_MAX]);
            let packed = Arguments::Words(&words).as_bytes(&mut one);
            prop_assert_eq!(packed, Arguments::Bytes(&bytes).as_bytes(&mut two));
            prop_assert_eq!(packed.is_none(), words.len() > 16);
            prop_assert!(packed.is_none_or(|packed| packed == bytes));
            let (mut one, mut two) = ([0; ARGS_MAX], [0; ARGS_MAX]);
            Arguments::Words(&words).write(&mut one);
            Arguments::Bytes(&bytes).write(&mut two);
            prop_assert_eq!(one, two);
        }

        #[test]
        fn no_bytes_panic(bytes in proptest::collection::vec(any::<u8>(), 0..=CONTROL_MAX)) {
            if let Ok(message) = Message::decode(&bytes) {
                let mut again = [0; CONTROL_MAX];
                prop_assert_eq!(message.encode(&mut again), Some(bytes.len()));
                prop_assert_eq!(&again[..bytes.len()], bytes.as_slice());
            }
        }

        #[test]
        fn hostile_heads_never_panic(
            (kind, flags, len) in (0_u8..10, any::<u8>(), any::<u8>()),
            rest in proptest::collection::vec(any::<u8>(), 0..=CONTROL_MAX - 3),
        ) {
            let bytes: Vec<u8> = [kind, flags, len].into_iter().chain(rest).collect();
            let _ = Message::decode(&bytes);
        }
    }
}
