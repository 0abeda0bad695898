//! A link in one direction: a queue, a rate, a delay and losses, each of which may change.

use std::collections::VecDeque;
use std::fmt;
use std::rc::Rc;

use super::super::network::Frame;

/// Bytes around a frame on a link.
const AROUND: u64 = 66;

/// A number that depends on the time in nanoseconds, and on chance: a draw from all numbers.
type Law = Box<dyn Fn(u64, u64) -> u64>;

/// A link in one direction.
pub struct Link {
    rate: Law,
    queue: u64,
    delay: Law,
    loses: Box<dyn Fn(u64, u64, usize) -> bool>,
    /// The first of them is leaving.
    waiting: VecDeque<Going>,
    passed: Passed,
    /// Since when so much waits.
    since: u64,
}

/// A frame on its way: by which links, how many of which are behind it.
#[derive(Debug)]
pub(super) struct Going {
    pub(super) frame: Frame,
    pub(super) path: Rc<[usize]>,
    pub(super) behind: usize,
}

impl Going {
    const fn bytes(&self) -> u64 {
        self.frame.bytes.len() as u64 + AROUND
    }
}

/// What a link has seen.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Passed {
    /// Bytes that wait.
    pub queued: u64,
    /// Most bytes that have waited.
    pub most: u64,
    /// Byte-nanoseconds of all that has waited.
    pub stood: u128,
    /// Frames for which there was no room.
    pub dropped: u64,
}

impl fmt::Debug for Link {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.debug_struct("Link").field("queue", &self.queue).field("passed", &self.passed).finish_non_exhaustive()
    }
}

impl Link {
    /// A link of so many bits in a second, with a queue of so many bytes and a delay of so many nanoseconds.
    #[must_use]
    pub fn new(rate: u64, queue: u64, delay_ns: u64) -> Self {
        Self {
            rate: Box::new(move |_, _| rate),
            queue,
            delay: Box::new(move |_, _| delay_ns),
            loses: Box::new(|_, _, _| false),
            waiting: VecDeque::new(),
            passed: Passed::default(),
            since: 0,
        }
    }

    /// Its rate in bits in a second, for each frame anew: by the time, and by chance.
    #[must_use]
    pub fn carrying(self, rate: impl Fn(u64, u64) -> u64 + 'static) -> Self {
        Self { rate: Box::new(rate), ..self }
    }

    /// Its delay in nanoseconds, for each frame anew: by the time, and by chance.
    #[must_use]
    pub fn delaying(self, delay: impl Fn(u64, u64) -> u64 + 'static) -> Self {
        Self { delay: Box::new(delay), ..self }
    }

    /// Which frames it loses: by the time, by chance, and by their bytes.
    #[must_use]
    pub fn losing(self, loses: impl Fn(u64, u64, usize) -> bool + 'static) -> Self {
        Self { loses: Box::new(loses), ..self }
    }

    /// What it has seen until now.
    pub(super) fn passed(&self, now: u64) -> Passed {
        let Passed { queued, stood, .. } = self.passed;
        Passed { stood: stood + u128::from(queued) * u128::from(now.saturating_sub(self.since)), ..self.passed }
    }

    /// A frame comes to it. Whether it begins to leave: [`Link::leaves_at`] says when it does.
    pub(super) fn enters(&mut self, now: u64, draw: u64, going: Going) -> bool {
        if (self.loses)(now, draw, going.frame.bytes.len()) {
            return false;
        }
        let queued = self.passed.queued + going.bytes();
        if !self.waiting.is_empty() && queued > self.queue {
            self.passed.dropped += 1;
            return false;
        }
        self.holds(now, queued);
        self.waiting.push_back(going);
        self.waiting.len() == 1
    }

    /// When the first of its frames has left, if it begins to leave now.
    pub(super) fn leaves_at(&self, now: u64, draw: u64) -> Option<u64> {
        let bits = self.waiting.front()?.bytes() * 8;
        Some(now + bits * 1_000_000_000 / (self.rate)(now, draw).max(1))
    }

    /// The first of its frames leaves: when it is at the other end.
    pub(super) fn leaves(&mut self, now: u64, draw: u64) -> Option<(u64, Going)> {
        let going = self.waiting.pop_front()?;
        self.holds(now, self.passed.queued - going.bytes());
        Some((now + (self.delay)(now, draw), Going { behind: going.behind + 1, ..going }))
    }

    fn holds(&mut self, now: u64, queued: u64) {
        self.passed = Passed { queued, most: self.passed.most.max(queued), ..self.passed(now) };
        self.since = now;
    }
}
