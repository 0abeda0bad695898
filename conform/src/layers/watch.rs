//! One who sees all sides at once, and says what is wrong.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use cutthrough::am::{CallError, Failure, RequestError};
use cutthrough::rma::{Key, Region};
use cutthrough::{Instant, now};

use super::Summary;
use crate::bytes::pattern;

/// A life of a host: which host, and which of its lives.
pub type Life = (usize, u64);

/// How a call has ended.
#[derive(Debug)]
pub enum Outcome {
    /// With these bytes, of the call with this number.
    Right(u64, Vec<u8>),
    /// Without an answer.
    Wrong(CallError),
    /// With an answer that makes no sense, in words.
    Absurd(String),
    /// Its caller has given it up.
    Cancelled,
}

/// A call.
#[derive(Debug)]
struct Call {
    life: Life,
    /// Bytes of its payload, or of its answer's.
    len: usize,
    /// Whether it may be served twice.
    idempotent: bool,
    /// Whether its answer is its number alone.
    stores: bool,
    served: Vec<Life>,
    until: Instant,
    ended: bool,
}

/// What an owner shows to others.
#[derive(Debug, Clone)]
pub struct Owned {
    /// Its memory.
    pub region: Region,
    /// Under which key.
    pub key: Key,
}

/// What has been added to an owner's cell, by ones.
#[derive(Debug, Default)]
pub struct Sum {
    /// That is known to be done.
    pub done: u64,
    /// That may be done, or be done later.
    pub maybe: u64,
    /// What was there before each of them.
    pub before: HashSet<u64>,
}

/// All that there is to know.
#[derive(Debug, Default)]
pub struct Watch {
    calls: Vec<Call>,
    /// Why the last call has failed that did.
    failure: Option<(u64, CallError)>,
    /// Lives that are over.
    dead: HashSet<Life>,
    /// What was found wrong first.
    broken: Option<String>,
    /// Sums of atomic operations, by whose they are.
    pub sums: HashMap<Life, Sum>,
    /// Regions, by whose they are.
    pub owned: HashMap<Life, Owned>,
    /// What has happened.
    pub summary: Summary,
}

/// All of it, as handlers have it.
#[derive(Debug, Clone, Default)]
pub struct Shared(Arc<Mutex<Watch>>);

impl Shared {
    /// For a moment.
    pub fn lock(&self) -> MutexGuard<'_, Watch> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Watch {
    /// Something is wrong.
    pub fn broken(&mut self, what: impl Into<String>) {
        let what = what.into();
        self.broken.get_or_insert(what);
    }

    /// What was found wrong so far.
    ///
    /// # Errors
    /// That.
    pub fn check(&self) -> Result<(), String> {
        self.broken.clone().map_or(Ok(()), Err)
    }

    /// A call is about to be made: its number.
    pub fn begins(&mut self, life: Life, len: usize, idempotent: bool, until: Instant) -> u64 {
        self.summary.calls += 1;
        self.calls.push(Call { life, len, idempotent, stores: false, served: Vec::new(), until, ended: false });
        self.calls.len() as u64 - 1
    }

    fn call(&mut self, number: u64) -> Option<&mut Call> {
        self.calls.get_mut(usize::try_from(number).ok()?)
    }

    /// A handler has got a call; with a payload, if `payload` says so. The bytes of its answer.
    pub fn serves(&mut self, number: u64, here: Life, payload: Option<&[u8]>) -> Vec<u8> {
        let Some(call) = self.call(number) else {
            self.broken(format!("{here:?} serves call {number}, which nobody has made"));
            return Vec::new();
        };
        let bytes = pattern(number, call.len);
        call.served.push(here);
        let served = call.served.clone();
        if served.len() > 1 && !call.idempotent {
            self.broken(format!("call {number} was served by {served:?}"));
        } else if payload.is_some_and(|payload| payload != bytes) {
            self.broken(format!("{here:?} has got other bytes of call {number} than were sent"));
        }
        bytes
    }

    /// A call has ended.
    pub fn ends(&mut self, number: u64, outcome: &Outcome) {
        let at = now();
        let Some(call) = self.call(number) else { return self.broken(format!("call {number} ends")) };
        let (served, until, idempotent) = (call.served.clone(), call.until, call.idempotent);
        let len = if call.stores { 0 } else { call.len };
        let (life, twice) = (call.life, std::mem::replace(&mut call.ended, true));
        if self.dead.contains(&life) {
            return;
        }
        if twice {
            self.broken(format!("call {number} of {life:?} ends again: {outcome:?}"));
        }
        match outcome {
            Outcome::Right(of, bytes) => {
                self.summary.answered += 1;
                if *of != number || *bytes != pattern(number, len) {
                    self.broken(format!("call {number} of {life:?} was answered as {of}, with {} bytes", bytes.len()));
                } else if served.is_empty() {
                    self.broken(format!("call {number} of {life:?} was answered, and served by nobody"));
                }
            }
            Outcome::Wrong(why) => {
                self.summary.failed += 1;
                self.failure = Some((number, *why));
                let unserved = match why {
                    CallError::NotSent(why) => *why != RequestError::Lost,
                    CallError::Failed(why) => matches!(why, Failure::Busy | Failure::Unknown),
                    _ => false,
                };
                // One that may be made again says why it ended in the end.
                if unserved && !idempotent && !served.is_empty() {
                    self.broken(format!("call {number} of {life:?} ends with '{why}', and {served:?} have served it"));
                }
                if *why == CallError::Late && at < until {
                    let early = until.saturating_since(at);
                    self.broken(format!("call {number} of {life:?} is late {early} ns before its time is over"));
                }
            }
            Outcome::Absurd(what) => self.broken(format!("call {number} of {life:?}: {what}")),
            Outcome::Cancelled => self.summary.cancelled += 1,
        }
    }

    /// The last call that has failed, and why.
    pub fn last_failure(&self) -> String {
        self.failure.map_or_else(String::new, |(number, why)| format!("call {number}: {why}"))
    }

    /// When a call has to have ended.
    pub fn until(&mut self, number: u64) -> Instant {
        self.call(number).map(|call| call.until).unwrap_or_default()
    }

    /// A life is over, and with it its calls.
    pub fn dies(&mut self, life: Life) {
        self.summary.deaths += 1;
        self.dead.insert(life);
        self.calls.iter_mut().filter(|call| call.life == life).for_each(|call| call.ended = true);
    }

    /// Calls that have not ended.
    ///
    /// # Errors
    /// The first of them, if it had to have ended so many nanoseconds ago.
    pub fn all_have_ended(&self, grace: u64) -> Result<usize, String> {
        let at = now();
        let open = || self.calls.iter().zip(0_u64..).filter(|(call, _)| !call.ended);
        match open().find(|(call, _)| at.saturating_since(call.until) > grace) {
            Some((call, number)) => {
                let late = at.saturating_since(call.until);
                Err(format!("call {number} of {:?} has not ended {late} ns after its time", call.life))
            }
            None => Ok(open().count()),
        }
    }
}

impl Watch {
    /// The answer to a call is its number alone.
    pub fn stores(&mut self, number: u64) {
        self.call(number).into_iter().for_each(|call| call.stores = true);
    }

    /// Whether it is.
    pub fn is_store(&mut self, number: u64) -> bool {
        self.call(number).is_some_and(|call| call.stores)
    }

    /// The bytes of a call's answer.
    pub fn answer(&mut self, number: u64) -> Vec<u8> {
        let len = self.call(number).map_or(0, |call| call.len);
        pattern(number, len)
    }
}
