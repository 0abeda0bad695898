//! A rank that waits: it takes in what has come, serves the others, and finds out who is late or gone.

use std::time::{Duration, Instant};

use cutthrough::Channel;
use cutthrough::am::{Call, CallError, Event, Failed, Failure, Reply};

use crate::Error;
use crate::part::{BLAME, part, part_mut, refusal};
use crate::world::World;

/// Shortest and longest sleep of a rank that waits. It sleeps for an eighth of the time that it has waited by then.
const NAPS: (Duration, Duration) = (Duration::from_micros(20), Duration::from_millis(2));

/// Cores, as a rank sees them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Cores {
    /// Those that this thread may run on.
    pub(crate) allowed: usize,
    /// How many of them it gets the time of: fewer, where a share of time is all that it may have.
    pub(crate) usable: usize,
    /// Those of the machine.
    pub(crate) online: usize,
}

impl Cores {
    pub(crate) fn seen() -> Self {
        let usable = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        let status = std::fs::read_to_string("/proc/thread-self/status").unwrap_or_default();
        let allowed = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:")).and_then(count);
        let online = std::fs::read_to_string("/sys/devices/system/cpu/online").ok();
        let online = online.as_deref().and_then(count);
        Self { allowed: allowed.unwrap_or(usable), usable, online: online.unwrap_or(usable) }
    }
}

/// How many numbers a list of the kernel's has, such as `0-3,8`.
fn count(list: &str) -> Option<usize> {
    list.trim().split(',').try_fold(0, |sum, run| {
        let (first, last) = run.split_once('-').unwrap_or((run, run));
        let (first, last): (usize, usize) = (first.parse().ok()?, last.parse().ok()?);
        Some(sum + last.checked_sub(first)? + 1)
    })
}

/// Whether each rank has a core of its own, as far as one of them can tell. One that may run on some cores alone was
/// pinned, and so were the others, each elsewhere: that is what starters do. Where they were not, they let each other
/// run all the same.
pub(crate) const fn has_a_core_each(ranks: usize, cores: Cores) -> bool {
    let Cores { allowed, usable, online } = cores;
    let pinned = usable >= allowed && allowed < online;
    ranks <= if pinned { online } else { usable }
}

/// How long a rank has waited by now, in vain.
#[derive(Debug)]
pub(crate) struct Patience {
    begun: Option<Instant>,
    looks: u32,
    /// How much of what it waits for was there, or was missing, when it began to.
    progress: u64,
}

impl Patience {
    pub(crate) const fn new() -> Self {
        Self { begun: None, looks: 0, progress: 0 }
    }
}

impl World {
    /// Sends what has gathered, and takes in what has come; if that is nothing, waits a little, for `awaited`. That one
    /// is late if nothing of what is waited for comes within the deadline: `progress` is another number whenever
    /// something of it has come.
    pub(crate) fn rest(&mut self, patience: &mut Patience, awaited: u32, progress: u64) -> Result<(), Error> {
        if patience.progress != progress {
            *patience = Patience { progress, ..Patience::new() };
        }
        // It says so after all else that it does. What it has done was looked at before.
        let left = awaited != self.rank && part(&self.node).has_left(awaited);
        if left {
            return Err(self.fail(Error::Left { rank: awaited }));
        }
        self.hand_over_all()?;
        let moved = self.pump();
        if let Some(error) = &self.broken {
            return Err(error.clone());
        }
        if moved {
            patience.looks = 0;
            return Ok(());
        }
        patience.looks += 1;
        if patience.looks == 1 && patience.begun.is_none() {
            patience.begun = Some(Instant::now());
        }
        if patience.looks < self.looks {
            std::hint::spin_loop();
            return Ok(());
        }
        let waited = patience.begun.map_or(Duration::ZERO, |begun| begun.elapsed());
        if waited >= self.deadline {
            return Err(self.fail(Error::Late { rank: awaited, within: self.deadline }));
        }
        // A handler that has run ends no sleep, so none is long beside what was waited for already.
        if let Ok(event) = self.node.wait(Some((waited / 8).clamp(NAPS.0, NAPS.1))) {
            self.heed(event);
        }
        Ok(())
    }

    /// Takes in what has come. Whether there was an event; handlers tell of nothing.
    pub(crate) fn pump(&mut self) -> bool {
        let mut any = false;
        while let Some(event) = self.node.poll() {
            any = true;
            self.heed(event);
        }
        if let Some(rank) = self.blamed() {
            self.fail(Error::Lost { rank, why: "another rank says so".into() });
        }
        any
    }

    fn blamed(&self) -> Option<u32> {
        part(&self.node).blamed()
    }

    pub(crate) fn heed(&mut self, event: Event) {
        match event {
            Event::Replied(reply) => self.replied(reply),
            Event::Failed(failed) => self.failed(&failed),
            Event::Closed(channel, why) => self.closed(channel, &why.to_string()),
            Event::Opened(_) | Event::Connected(..) => {}
            // To leave out what it does not know could leave a rank waiting.
            other => unreachable!("{other:?} is no event that ranks know of"),
        }
    }

    fn rank_of(&self, channel: Channel) -> Option<u32> {
        let rank = self.ranks.get(channel.index() as usize).copied().flatten()?;
        (self.channels[rank as usize] == Some(channel)).then_some(rank)
    }

    fn replied(&mut self, reply: Reply) {
        let Some(rank) = self.rank_of(reply.channel()) else { return };
        self.settle(rank, reply.call());
        if reply.args().is_empty() {
            return;
        }
        if reply.payload_len() > 0 {
            self.pieces[rank as usize] = self.pieces[rank as usize].saturating_sub(1);
        }
        if let Err(why) = self.gets.take(reply, &mut self.node) {
            self.fail(Error::Broken { rank, why: why.into() });
        }
    }

    /// A request has ended. False if it was none of those under way at this rank. Answers come nearly in order.
    fn settle(&mut self, rank: u32, call: Call) -> bool {
        let calls = &mut self.under_way[rank as usize];
        let place = calls.iter().position(|other| *other == call);
        let known = place.is_some_and(|place| calls.remove(place).is_some());
        self.all_under_way -= u64::from(known);
        known
    }

    fn failed(&mut self, failed: &Failed) {
        let Some(rank) = (0..self.size).find(|rank| self.settle(*rank, failed.call)) else { return };
        let error = match failed.error {
            // The end of the channel says more.
            CallError::Closed(_) => return,
            CallError::Late => Error::Late { rank, within: self.deadline },
            CallError::Failed(Failure::Refused) => match refusal(&failed.args) {
                Some((_, error)) => error,
                None => Error::Broken { rank, why: failed.error.to_string() },
            },
            error => Error::Broken { rank, why: error.to_string() },
        };
        self.fail(error);
    }

    fn closed(&mut self, channel: Channel, why: &str) {
        // Also one that has said who it is and was not met yet: it may come again.
        part_mut(&mut self.node).dismiss(channel);
        let Some(rank) = self.rank_of(channel) else { return };
        self.channels[rank as usize] = None;
        self.all_under_way -= self.at(rank);
        self.under_way[rank as usize].clear();
        if !part(&self.node).has_left(rank) {
            // If it has ended because of another, it has said so before.
            let (rank, why) = self.blamed().map_or((rank, why), |blamed| (blamed, "another rank says so"));
            self.fail(Error::Lost { rank, why: why.to_owned() });
        }
    }

    /// Nothing works any more. The first reason counts. If it is that a rank is gone, all others hear who it is, before
    /// they find this one gone, too.
    pub(crate) fn fail(&mut self, error: Error) -> Error {
        if let Some(first) = &self.broken {
            return first.clone();
        }
        if let Error::Lost { rank, .. } = error {
            self.blame(rank);
        }
        self.broken.insert(error).clone()
    }

    /// Tells all others of the rank for whose sake this one ends.
    pub(crate) fn blame(&mut self, rank: u32) {
        for channel in self.channels.iter().flatten() {
            // Whoever has no room for this has not polled for long, and learns it otherwise.
            let _ = self.node.request_bytes(*channel, BLAME, &rank.to_le_bytes());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_cores_are_counted() {
        for (list, cores) in [("0\n", 1), ("0-1", 2), ("\t0-3,8", 5), ("1,3,5-6", 4)] {
            assert_eq!(count(list), Some(cores), "{list:?}");
        }
        for list in ["", "x", "3-1", "0-", "0,,1"] {
            assert_eq!(count(list), None, "{list:?}");
        }
    }

    #[test]
    fn ranks_that_were_pinned_have_a_core_each() {
        let cores = |allowed, usable, online| Cores { allowed, usable, online };
        // Nobody was pinned.
        assert!(has_a_core_each(2, cores(2, 2, 2)) && !has_a_core_each(3, cores(2, 2, 2)));
        // Each has one core, or the two halves of one.
        assert!(has_a_core_each(2, cores(1, 1, 2)) && !has_a_core_each(3, cores(1, 1, 2)));
        assert!(has_a_core_each(16, cores(2, 2, 32)));
        // A container with the time of two cores of eight, pinned or not.
        assert!(has_a_core_each(2, cores(8, 2, 8)) && !has_a_core_each(4, cores(8, 2, 8)));
        assert!(!has_a_core_each(4, cores(4, 2, 8)));
        // This machine's lists can be read.
        let seen = Cores::seen();
        assert!(seen.usable > 0 && seen.allowed > 0 && seen.online > 0, "{seen:?}");
    }
}
