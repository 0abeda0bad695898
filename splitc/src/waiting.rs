//! A rank that waits: it takes in what has come, serves the others, and finds out who is late or gone.

use std::time::{Duration, Instant};

use cutthrough::Channel;
use cutthrough::am::{Call, CallError, Event, Failed, Failure, Reply};

use crate::Error;
use crate::part::{BLAME, refusal};
use crate::world::World;

/// Shortest and longest sleep of a rank that waits. It sleeps for an eighth of the time that it has waited by then.
const NAPS: (Duration, Duration) = (Duration::from_micros(20), Duration::from_millis(2));

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
    /// Takes in what has come; if that is nothing, waits a little, for `awaited`. That one is late if nothing of what
    /// is waited for comes within the deadline: `progress` is another number whenever something of it has come.
    pub(crate) fn rest(&mut self, patience: &mut Patience, awaited: u32, progress: u64) -> Result<(), Error> {
        if patience.progress != progress {
            *patience = Patience { progress, ..Patience::new() };
        }
        // It says so after all else that it does. What it has done was looked at before.
        let left = awaited != self.rank && self.shared.lock().has_left(awaited);
        if left {
            return Err(self.fail(Error::Left { rank: awaited }));
        }
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
        self.shared.lock().blamed()
    }

    pub(crate) fn heed(&mut self, event: Event) {
        match event {
            Event::Replied(reply) => self.replied(reply),
            Event::Failed(failed) => self.failed(&failed),
            Event::Closed(channel, why) => self.closed(channel, &why.to_string()),
            Event::Opened(_) => {}
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
        let Some(rank) = self.rank_of(channel) else { return };
        self.channels[rank as usize] = None;
        self.all_under_way -= self.at(rank);
        self.under_way[rank as usize].clear();
        let left = {
            let mut part = self.shared.lock();
            part.dismiss(channel);
            part.has_left(rank)
        };
        if !left {
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
            for channel in self.channels.iter().flatten() {
                // Whoever has no room for this has not polled for long, and learns it otherwise.
                let _ = self.node.request_bytes(*channel, BLAME, &rank.to_le_bytes());
            }
        }
        self.broken.insert(error).clone()
    }
}
