//! Active messages over the channels of simulated endpoints: what a seed decides of them.
//!
//! Where both endpoints of a channel speak them, the core of active messages drives that channel as an endpoint of the
//! library does, and nothing else goes over it; on all others the user's own messages do.
//!
//! | file | what |
//! |---|---|
//! | this one | what a seed decides |
//! | `party` | who asks and who is told; the way out |
//! | `serve` | handlers: replies, replies put off, requests handed over |
//! | `ledger` | what has to be true of every call |

mod ledger;
mod party;
mod serve;

use std::fmt;
use std::num::NonZeroU64;

use cutthrough_engine::am::{Failure, WINDOW};
use serde::Serialize;

pub(super) use self::ledger::Ledger;
pub(super) use self::party::{Message, Party};
use super::random::Random;

/// Nanoseconds after which the stamps of a clock begin anew.
const STAMPS_NS: u64 = 1 << 36;
/// Kinds of handlers that requests ask for.
pub(super) const HANDLERS: usize = 8;
/// Replies with words.
const ECHO: u16 = 0;
/// Replies with a payload, to where the requester wants it.
const PAGE: u16 = 1;
/// Puts its answer off.
const LATER: u16 = 2;
/// Hands the request over to another endpoint.
const PASS: u16 = 3;
/// Replies with a token for the payload of a later request.
const GRANT: u16 = 4;
/// Refuses, in its own words.
const REFUSE: u16 = 5;
/// Replies with a payload that cannot be sent.
const HUGE: u16 = 6;
// The last one is no handler.

/// What has become of calls.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Calls {
    /// Requests that were made.
    pub asked: u64,
    /// Requests that came to who answers them; one that is handed over to another endpoint counts there alone, and one
    /// whose handler is not known is answered with a failure.
    pub served: u64,
    /// Calls that ended with a reply.
    pub replied: u64,
    /// Calls that were answered with a failure, by its code, which counts from 1.
    pub failed: [u64; Failure::HandlerBusy as usize],
    /// Calls whose deadline has passed.
    pub late: u64,
    /// Calls that were cancelled.
    pub cancelled: u64,
    /// Calls that ended with a channel.
    pub lost: u64,
    /// Requests whose answer was put off.
    pub put_off: u64,
    /// Requests that were handed over to another endpoint.
    pub handed_over: u64,
    /// Requests of whose time something was taken off, for they had been under way for longer than others.
    pub aged: u64,
    /// Direct replies that came before they were announced.
    pub early: u64,
    /// Places of cancelled and late calls that were given back before anything landed there.
    pub given_back: u64,
    /// Times that a request found no room.
    pub full: u64,
    /// Looks at a channel that had the larger window.
    pub lent: u64,
}

impl Calls {
    /// Adds what has happened elsewhere.
    pub(super) fn add(&mut self, other: &Self) {
        let Self { asked, served, replied, failed, late, cancelled, lost, put_off, handed_over, .. } = self;
        let pairs = [
            (asked, other.asked),
            (served, other.served),
            (replied, other.replied),
            (late, other.late),
            (cancelled, other.cancelled),
            (lost, other.lost),
            (put_off, other.put_off),
            (handed_over, other.handed_over),
            (&mut self.aged, other.aged),
            (&mut self.early, other.early),
            (&mut self.given_back, other.given_back),
            (&mut self.full, other.full),
            (&mut self.lent, other.lent),
        ];
        pairs.into_iter().for_each(|(ours, theirs)| *ours += theirs);
        failed.iter_mut().zip(other.failed).for_each(|(ours, theirs)| *ours += theirs);
    }
}

/// The active messages of a world. Chances are in per mille.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Habits {
    /// Which endpoints speak them.
    pub(super) of: Vec<bool>,
    /// Requests under way on a channel.
    pub(super) window: u32,
    /// Requests beside the messages that a channel has anyway.
    pub(super) more: u64,
    /// Answers that are put off at a time, at most.
    pub(super) serve: usize,
    /// How often an endpoint answers what was put off.
    pub(super) answers: u64,
    /// How often an endpoint cancels a call.
    pub(super) cancels: u64,
    /// Nanoseconds until a deadline, at most.
    pub(super) patience: u64,
    /// Which handlers are asked for, by weight.
    pub(super) weights: [u64; HANDLERS],
    /// What the first call of each place is named by.
    pub(super) first: u32,
    /// How many nanoseconds of an endpoint's clock are left until its stamps begin anew, at first and at most.
    pub(super) stamps: Option<NonZeroU64>,
}

impl Habits {
    pub(super) fn draw(nodes: usize, random: &mut Random) -> Self {
        let any = random.chance(350);
        let of = (0..nodes).map(|_| random.chance(850) && any).collect();
        // A larger window is asked for only by many requests at a time.
        let heavy = nodes < 6 && random.chance(60);
        let mut weights = core::array::from_fn(|_| if random.chance(700) { random.below(10) } else { 0 });
        weights[if heavy { LATER } else { ECHO } as usize] += 5;
        Self {
            of,
            window: if heavy { WINDOW } else { random.pick(&[1, 2, 4, 16, WINDOW]) },
            more: if heavy { 1500 } else { random.pick(&[0, 0, 50]) },
            serve: if heavy { 4000 } else { random.pick(&[1, 8, 1000]) },
            answers: if heavy { 60 } else { random.pick(&[30, 300, 900]) },
            cancels: random.pick(&[0, 0, 20, 200]),
            patience: random.pick(&[100_000, 5_000_000, 100_000_000, 2_000_000_000, 2_000_000_000]),
            weights,
            first: 1,
            stamps: None,
        }
    }

    /// In half of the worlds names soon begin anew, and in half of them stamps.
    pub(super) fn begin(&mut self, random: &mut Random) {
        if !self.of.contains(&true) {
            return;
        }
        let (names, first) = (random.chance(500), random.below(8));
        self.first = if names { u32::MAX - u32::try_from(first).unwrap_or(0) } else { 1 };
        let stamps = NonZeroU64::new(random.pick(&[1_000_000, 20_000_000, 500_000_000]));
        self.stamps = stamps.filter(|_| random.chance(500));
    }

    /// What an endpoint's clock shows instead of this.
    pub(super) const fn clock(&self, nanos: u64) -> u64 {
        match self.stamps {
            Some(most) => (nanos | (STAMPS_NS - 1)) - super::random::mix(nanos) % most.get(),
            None => nanos,
        }
    }

    /// A world in which nobody speaks them.
    pub(super) fn nobody(&mut self) {
        self.of.fill(false);
    }

    /// Whether a channel between these two is for active messages.
    pub(super) fn between(&self, one: usize, other: usize) -> bool {
        self.of[one] && self.of.get(other) == Some(&true)
    }
}

impl fmt::Display for Habits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.of.contains(&true) {
            return Ok(());
        }
        let of: Vec<u8> = self.of.iter().map(|speaks| u8::from(*speaks)).collect();
        write!(
            f,
            "calls {of:?} window {} more {} serve {} answers {} cancels {} patience {} handlers {:?} first {} \
             stamps {} ",
            self.window,
            self.more,
            self.serve,
            self.answers,
            self.cancels,
            self.patience,
            self.weights,
            self.first,
            self.stamps.map_or(0, NonZeroU64::get),
        )
    }
}
