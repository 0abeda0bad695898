//! The layers above messages in a world where things go wrong: whole endpoints on simulated hosts, in simulated time,
//! on one thread; clients and servers of [`cutthrough::rpc`], requests that are handed over, regions of
//! [`cutthrough::rma`]; wires that lose, repeat, reorder, change and cut datagrams, hosts that die, stand still and
//! come back. All of it follows from a seed.
//!
//! What is held, at every step, by one who sees all of them at once ([`watch`]):
//!
//! - a call is served at most once, unless it may be served twice, and never if it says that it was not sent, or that
//!   its server was busy;
//! - what is served and what is answered are the bytes that were sent;
//! - a call ends once, and no later than its deadline says; so does each operation on a region;
//! - memory that a call gives back, whatever became of it, is written by nobody any more;
//! - what was put is what is got, sums of atomic operations are theirs, and of pages that were moved in vain it is true
//!   what is said of each.
//!
//! Then nothing goes wrong any more, and everybody has to be able to call everybody.

mod calls;
mod life;
mod pages;
pub mod watch;
mod world;

use std::fmt;

use cutthrough::simulated::{Counts, Time};

use crate::random::Random;
use crate::worlds::options::Options;
use crate::worlds::{caught, spoilt};
use world::World;

/// What has happened.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Summary {
    /// Worlds.
    pub seeds: u64,
    /// Calls that were made, and how they ended: with the right answer, with an error, cancelled.
    pub calls: u64,
    /// See [`Summary::calls`].
    pub answered: u64,
    /// See [`Summary::calls`].
    pub failed: u64,
    /// See [`Summary::calls`].
    pub cancelled: u64,
    /// Calls that were handed over.
    pub handed_over: u64,
    /// Operations on regions that were done, and that were not, or not in time.
    pub moved: u64,
    /// See [`Summary::moved`].
    pub unmoved: u64,
    /// Hosts that have died, or gone in good order.
    pub deaths: u64,
    /// Datagrams.
    pub sent: u64,
    /// Datagrams that were lost, damaged, or cut off.
    pub spoilt: u64,
    /// A digest of every datagram: equal for equal runs.
    pub digest: u64,
}

impl Summary {
    /// Adds another one.
    pub const fn add(&mut self, other: &Self) {
        self.seeds += other.seeds;
        self.calls += other.calls;
        self.answered += other.answered;
        self.failed += other.failed;
        self.cancelled += other.cancelled;
        self.handed_over += other.handed_over;
        self.moved += other.moved;
        self.unmoved += other.unmoved;
        self.deaths += other.deaths;
        self.sent += other.sent;
        self.spoilt += other.spoilt;
        self.digest = self.digest.rotate_left(7) ^ other.digest;
    }

    const fn count(&mut self, counts: &Counts) {
        self.sent = counts.sent;
        self.spoilt = spoilt(counts);
        self.digest = counts.digest;
    }
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} worlds: {} calls ({} answered, {} failed, {} cancelled, {} handed over), {} operations on regions ({} \
             not done), {} deaths, {} datagrams ({} spoilt), digest {:016x}",
            self.seeds,
            self.calls,
            self.answered,
            self.failed,
            self.cancelled,
            self.handed_over,
            self.moved + self.unmoved,
            self.unmoved,
            self.deaths,
            self.sent,
            self.spoilt,
            self.digest,
        )
    }
}

/// Runs the world of a seed, in time of its own on this thread.
///
/// # Errors
/// What was broken, with the seed and its options.
pub fn run(seed: u64) -> Result<Summary, String> {
    let mut random = Random(seed);
    let options = Options::draw(&mut random);
    let run = || World::new(seed, options, random, Time::begin(seed)).run();
    caught(run).map_err(|what| format!("seed {seed} ({options}): {what}"))
}
