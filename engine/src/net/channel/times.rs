//! A channel's times: what is repeated, asked for, and given up when nothing comes; and its end.

use super::super::greet::CONFIRM_NS;
use super::super::memory::Memory;
use super::super::ways::SILENT_NS;
use super::super::{Settings, Tally};
use super::{Channel, DOUBTS, End, Ending, LONG_SILENCE_NS, QUESTIONS, SILENT};
use crate::flow::rtt::Rtt;
use crate::time::Instant;

/// Probe time-outs in a row after which the way is suspected.
const WAY_FAILS: u32 = 2;
/// A look that comes later than it was due by one of so many parts of a silence says nothing of the peer.
const LATE: u64 = 8;
/// Between two looks no more of the deadline is over than one of so many parts, however long that was.
const PARTS: u64 = 4;

/// How long a channel that is to end has made no progress. Time in which nobody has looked counts for little: this
/// machine, or this process, may have been stopped, and the peer with it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Stands {
    looked: Instant,
    ns: u64,
}

impl Stands {
    /// It begins to be counted now, or anew.
    pub(super) const fn since(now: Instant) -> Self {
        Self { looked: now, ns: 0 }
    }

    /// Whether that is as long as the deadline by now.
    fn look(&mut self, now: Instant, deadline_ns: u64) -> bool {
        self.ns += now.saturating_since(self.looked).min(deadline_ns.div_ceil(PARTS));
        self.looked = self.looked.max(now);
        self.ns >= deadline_ns
    }

    /// When it will be, if somebody looks often enough.
    const fn over(&self, deadline_ns: u64) -> Instant {
        self.looked.after(deadline_ns.saturating_sub(self.ns))
    }
}

impl<M: Memory> Channel<M> {
    /// When this channel has to be looked at next, though nothing comes.
    pub(in crate::net) fn timer(&self, settings: &Settings, now: Instant) -> Instant {
        if self.peer_is_through() {
            return self.ack_at().unwrap_or(Instant::from_nanos(u64::MAX));
        }
        let silence_ns = self.silence_ns(settings);
        let ask = self.heard.max(self.asked).after(silence_ns / 4);
        let mut next = if self.questions < QUESTIONS { ask } else { ask.max(self.heard.after(silence_ns)) };
        if let Some(timer) = self.sent.timer(&self.rtt, self.backoff) {
            next = next.min(timer);
        }
        if let Some(at) = self.ack_at() {
            next = next.min(at);
        }
        if let Some(at) = self.reach.try_at().filter(|_| self.probe.is_none() && self.confirmed) {
            next = next.min(at);
        }
        if self.paced > now && self.outbox.has_next() {
            next = next.min(self.paced);
        }
        if let Some(until) = self.quiet.until() {
            next = next.min(until);
        }
        if let Some(stands) = &self.stands {
            next = next.min(stands.over(settings.deadline_ns));
        }
        next
    }

    /// Whether frames are given up now unless something comes that acknowledges them.
    pub(in crate::net) fn doubts(&self, now: Instant) -> bool {
        self.sent.timer(&self.rtt, self.backoff).is_some_and(|at| at <= now)
    }

    /// For how long nothing may be heard. Who was let in is waited for a while, however short that is.
    fn silence_ns(&self, settings: &Settings) -> u64 {
        if self.confirmed { settings.silence_ns } else { settings.silence_ns.max(CONFIRM_NS) }
    }

    /// Looks at the times, when all that came until `looked` has been taken in, as was due at the first of these. Says
    /// why the channel has ended, if it has.
    pub(in crate::net) fn tick(
        &mut self,
        (due, now, looked): (Instant, Instant, Instant),
        settings: &Settings,
        tally: &mut Tally,
    ) -> Option<Ending> {
        if self.peer_is_through() {
            // It is kept for what is still being read.
            return None;
        }
        let silence_ns = self.silence_ns(settings);
        let unanswered = self.questions >= QUESTIONS && now.saturating_since(self.asked) >= silence_ns / 4;
        // Who comes as late as that has stood still, and its peer perhaps, too: it asks once more. Or it never looks
        // more often, and would ask for ever.
        let stood_still = now.saturating_since(due) >= silence_ns / LATE && self.questions < 2 * QUESTIONS;
        if unanswered && !stood_still && now.saturating_since(self.heard) >= silence_ns {
            return Some(if matches!(self.end, End::Here { .. }) { Ending::Here } else { Ending::Silent });
        }
        if self.stands.as_mut().is_some_and(|stands| stands.look(now, settings.deadline_ns)) {
            // The other side is there, but takes nothing; or it has closed, and does not send what it has counted.
            return Some(if matches!(self.end, End::Here { .. }) { Ending::Here } else { Ending::Peer });
        }
        self.sent.rest();
        self.rest(now, silence_ns);
        self.end_quiet(now);
        self.find_lost(now, tally);
        let (sent, rtt, backoff, mut losses) = self.losses(now);
        let timed_out = sent.probe((now, looked), rtt, backoff, |content, frame| losses.take(content, frame));
        let (frames, of_messages) = (losses.frames, losses.of_messages);
        if timed_out && frames > 0 {
            tally.frames_lost += frames;
            tally.timeouts += 1;
            self.backoff += 1;
            self.rtt.probes();
            let silent = now.saturating_since(self.progressed) >= SILENT_NS;
            if let Some(ways) = &mut self.ways {
                ways.lost(now, of_messages);
                if silent && self.backoff >= WAY_FAILS {
                    ways.fails(now);
                }
            }
            if now.saturating_since(self.progressed) >= LONG_SILENCE_NS && self.backoff >= SILENT {
                self.window.silent();
            }
            if self.reach.is_doubtful() && self.backoff >= DOUBTS && self.confirmed {
                // A short frame beside the long ones.
                self.probe.get_or_insert(0);
            }
        }
        if self.probe.is_none() && self.confirmed {
            self.probe = self.reach.tries(now);
        }
        if now.saturating_since(self.heard.max(self.asked)) >= silence_ns / 4 {
            (self.asked, self.questions) = (now, self.questions + 1);
            // Who was let in and has said nothing yet may let go of this channel and get another one for the same call:
            // then frames of this one would be taken for frames of that, where no key tells them apart.
            if self.confirmed {
                self.probe.get_or_insert(0);
            }
        }
        None
    }

    /// What was needed while there was much to say is given back when nothing was said for a quarter of a silence.
    fn rest(&mut self, now: Instant, silence_ns: u64) {
        self.inbox.rest(now);
        let (strides, since) = self.calm;
        if strides != self.strides || !self.sent.is_empty() {
            self.calm = (self.strides, now);
        } else if now.saturating_since(since) >= silence_ns / 4 {
            self.outbox.settle_down();
            self.inbox.settle_down();
            self.sent.settle_down();
            self.seen.settle_down();
            self.arrived.shrink_to_fit();
            self.grants.shrink_to_fit();
        }
    }

    /// The handshake has taken so long, until `now`, from one side to the other and back: no less than a frame, and
    /// perhaps more, if it was repeated. So before anything is measured no frame is given up on a long way, and no
    /// queue that stands there already is taken for the way.
    pub(in crate::net) fn expects(&mut self, now: Instant, round_ns: u64) {
        if self.sent.is_empty() {
            self.rtt = Rtt::greeted(now, round_ns);
            self.window.expects(round_ns);
        }
    }

    /// The handshake has shown no longer bodies than this.
    pub(in crate::net) fn reaches(&mut self, now: Instant, body: u16) {
        self.reach.narrow(now, body);
    }

    /// The path is believed to carry bodies of so many bytes.
    pub(in crate::net) fn hopes(&mut self, now: Instant, most: u16) {
        self.reach.hope(now, most);
    }

    /// The other side asks for a sign of life, with a body so long: what comes one way may go the other.
    pub(super) fn asks(&mut self, now: Instant, body: u16) {
        self.is_asked = true;
        self.reach.hope(now, body);
    }

    /// Closes the channel, once everything has arrived that was sent. False if it ends already.
    pub(in crate::net) fn close(&mut self) -> bool {
        let closes = self.end == End::None;
        if closes {
            self.end = End::Here { told: false, acked: false };
        }
        closes
    }

    /// From now on it is counted for how long it makes no progress, if it is to end.
    pub(in crate::net) fn begins_to_end(&mut self, now: Instant) {
        if self.end != End::None {
            self.stands.get_or_insert(Stands::since(now));
        }
    }

    /// Whether nothing is to come or to go any more.
    pub(in crate::net) fn is_over(&self) -> Option<Ending> {
        match self.end {
            // If both sides have closed, nobody is there any more to take anything, nor to wait for.
            End::Here { acked, .. } if acked || self.is_closed_there => Some(Ending::Here),
            End::Peer { .. } if self.peer_is_through() && (self.let_go || !self.inbox.is_read()) => Some(Ending::Peer),
            _ => None,
        }
    }

    /// Whether it would be over, but for payloads that its user may still read.
    pub(in crate::net) fn waits_for_reader(&self) -> bool {
        self.peer_is_through() && !self.let_go && self.inbox.is_read()
    }

    /// Whether the other side has closed the channel, and everything that it has sent is here: it says nothing more.
    fn peer_is_through(&self) -> bool {
        matches!(self.end, End::Peer { messages } if self.inbox.is_complete(messages))
    }
}
