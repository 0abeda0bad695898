//! What has to be true of every call, whatever goes wrong: each is written down here when it is made, and held against
//! every handler that runs, every answer that is given and every end that is told.

use cutthrough_engine::am::Failure;
use cutthrough_engine::am::budget::Budget;
use cutthrough_engine::am::message::Message;
use cutthrough_engine::token::Token;

use super::super::memory::pattern;
use super::super::random::mix;
use super::super::watch::Life;
use super::PASS;

/// Bytes of arguments that say which call it is.
pub(super) const NUMBER: usize = 8;

/// What a handler has answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Said {
    /// Arguments; the payload's seed, and whether it can be sent.
    Reply(Vec<u8>, Option<(u64, bool)>),
    /// Why not, and the handler's own words.
    Failed(Failure, Vec<u8>),
}

/// How a call has ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum End {
    /// By a reply with these arguments, the payload's seed, and where the payload was sent.
    Replied(Vec<u8>, Option<u64>, Option<Token>),
    /// It was not served.
    Failed(Failure, Vec<u8>),
    /// The payload of its reply was dropped.
    Dropped,
    /// Its deadline has passed.
    Late,
    Cancelled,
    /// A channel has ended.
    Lost,
}

#[derive(Debug)]
struct Call {
    from: Life,
    to: Life,
    handler: u16,
    args: Vec<u8>,
    token: Option<Token>,
    budget: Option<Budget>,
    /// When it was made.
    at: u64,
    /// Whether a handler has run for it.
    served: bool,
    /// Who has handed it over, to whom, and for which handler.
    passed: Option<(Life, Life, u16)>,
    /// Whether a handler of the endpoint that it was handed to has run.
    taken: bool,
    said: Option<Said>,
    end: Option<End>,
}

/// A request, as it was made.
#[derive(Debug, Clone, Copy)]
pub(super) struct Asked {
    pub(super) from: Life,
    pub(super) to: Life,
    pub(super) handler: u16,
    pub(super) token: Option<Token>,
    pub(super) budget: Option<Budget>,
    pub(super) at: u64,
}

/// Every call of a world.
#[derive(Debug, Default)]
pub(in super::super) struct Ledger {
    calls: Vec<Call>,
}

/// The arguments of a call: its number, and what follows from that.
pub(super) fn args(number: u64, len: usize) -> Vec<u8> {
    let mut args = number.to_le_bytes().to_vec();
    args.extend(pattern(mix(number), len.saturating_sub(NUMBER)));
    args
}

/// The call that arguments speak of.
pub(super) fn number(args: &[u8]) -> Option<u64> {
    args.first_chunk().map(|bytes| u64::from_le_bytes(*bytes))
}

impl Ledger {
    /// The number of the next call.
    pub(super) const fn next(&self) -> u64 {
        self.calls.len() as u64
    }

    /// The next call was made.
    pub(super) fn asked(&mut self, asked: Asked, args: Vec<u8>) {
        let Asked { from, to, handler, token, budget, at } = asked;
        let (served, passed, taken, said, end) = (false, None, false, None, None);
        self.calls.push(Call { from, to, handler, args, token, budget, at, served, passed, taken, said, end });
    }

    fn call(&mut self, number: u64) -> Result<&mut Call, String> {
        let index = usize::try_from(number).unwrap_or(usize::MAX);
        self.calls.get_mut(index).ok_or_else(|| format!("call {number} was never made"))
    }

    /// A request has come to `at` on a channel to `from`, and a handler is about to run: which call it is.
    pub(super) fn serves(&mut self, at: Life, from: Life, message: &Message<'_>, handed: bool) -> Result<u64, String> {
        let number = number(message.args).ok_or("a request without a number")?;
        let call = self.call(number)?;
        if call.args != message.args {
            return Err(format!("call {number}: its arguments are not what was sent"));
        }
        let (once, handler, right) = if handed {
            let Some((by, to, handler)) = call.passed else { return Err(format!("call {number} was never passed on")) };
            (&mut call.taken, handler, (by, to) == (from, at))
        } else {
            let same = call.token == message.token && call.budget == message.budget;
            (&mut call.served, call.handler, same && (call.from, call.to) == (from, at))
        };
        if !right || handler != message.handler {
            return Err(format!("call {number} has come to {at:?} from {from:?}, or as another: {message:?}"));
        }
        if std::mem::replace(once, true) {
            return Err(format!("call {number}: a handler has run twice"));
        }
        Ok(number)
    }

    /// So much of the time that it may take is left to a request that has come. No time is taken off that has not
    /// passed since it was made, or since nothing had come to whoever serves it, whose clock may have jumped.
    pub(super) fn is_left(&mut self, args: &[u8], left: u64, now: u64, lain: u64) -> Result<(), String> {
        let number = number(args).ok_or("a request without a number")?;
        let call = self.call(number)?;
        let (age, nanos) = (now - call.at, call.budget.map_or(0, |budget| budget.nanos()));
        if left > nanos || left < nanos.saturating_sub(age.max(lain)) {
            return Err(format!("call {number}: {left} of {nanos} ns are left after {age}"));
        }
        Ok(())
    }

    /// A request was handed over.
    pub(super) fn passed(&mut self, number: u64, by: Life, to: Life, handler: u16) -> Result<(), String> {
        let call = self.call(number)?;
        if call.passed.replace((by, to, handler)).is_some() {
            return Err(format!("call {number} was handed over twice"));
        }
        Ok(())
    }

    /// A request could not be handed over after all.
    pub(super) fn kept(&mut self, number: u64) -> Result<(), String> {
        self.call(number)?.passed = None;
        Ok(())
    }

    /// A handler has answered.
    pub(super) fn said(&mut self, number: u64, said: Said) -> Result<(), String> {
        let call = self.call(number)?;
        if call.said.replace(said).is_some() {
            return Err(format!("call {number} was answered twice"));
        }
        Ok(())
    }

    /// A call of `at` has ended.
    pub(super) fn ended(&mut self, number: u64, at: Life, end: End) -> Result<(), String> {
        let call = self.call(number)?;
        if call.from != at {
            return Err(format!("call {number} of {:?} has ended at {at:?}", call.from));
        }
        if let Some(before) = &call.end {
            return Err(format!("call {number} has ended by {before:?}, and again by {end:?}"));
        }
        let right = match (&end, &call.said) {
            (End::Replied(args, payload, to), Some(Said::Reply(said, load))) => {
                let whole = payload.is_none() || *to == if call.passed.is_some() { None } else { call.token };
                call.served && args == said && *payload == load.map(|(seed, _)| seed) && whole
            }
            (End::Dropped, Some(Said::Reply(_, Some((_, true))))) => call.token.is_some(),
            (End::Failed(why, args), Some(Said::Failed(said, words))) if why == said && args == words => call.served,
            (End::Failed(Failure::TooLong, args), Some(Said::Reply(_, Some((_, false))))) => args.is_empty(),
            (End::Failed(Failure::NoRoute | Failure::Gone | Failure::Late, args), _) => {
                call.handler == PASS && args.is_empty()
            }
            (End::Late | End::Cancelled | End::Lost, _) => true,
            _ => false,
        };
        if !right {
            return Err(format!("call {number} has ended by {end:?}: {call:?}"));
        }
        call.end = Some(end);
        Ok(())
    }
}
