//! Frames in flight: which are acknowledged, and which are lost.
//!
//! The rules are those of RFC 9002, section 6. A frame is lost when one that was sent three numbers later is
//! acknowledged, or when any later one is and the frame is older than [`Rtt::loss_delay`]. When nothing comes back for
//! [`Rtt::probe_timeout`] after the last frame left, the oldest are sent again to make the other side speak; unlike the
//! RFC's probes these are taken as lost, because at the end of a transfer they nearly always are, and because a caller
//! then has one way only to send something again.
//!
//! On some ways frames overtake each other. Where one that was given up, because others had overtaken it, proves to
//! have arrived, only time counts, and as much more of it as the last of those would have needed, up to four round
//! trips; until no frame has been overtaken for a second (compare RFC 8985, section 6.2, which bears one round trip:
//! then two ways of which one is four times as long as the other carry next to nothing).

use alloc::collections::VecDeque;

use super::rtt::Rtt;
use super::seen::Ack;
use crate::time::Instant;

/// A frame is lost if one with a number greater by this is acknowledged (RFC 9002, section 6.1.1).
const LATER: u64 = 3;

/// Nanoseconds after which it is forgotten that frames have overtaken each other.
const DISORDER_NS: u64 = 1_000_000_000;

/// Frames that a probe sends again (RFC 9002, section 6.2.4).
const PROBES: usize = 2;

/// Frames for which room is kept when none is in flight.
const KEPT: usize = 32;

/// Round trips by which a frame is borne to be later than others, at most.
const BORNE_ROUNDS: u64 = 4;

/// Lost numbers that are remembered, to know when giving them up was wrong; and for how many round trips since they
/// were sent, and nanoseconds at least.
const GIVEN_UP_MAX: usize = 128;
const GIVEN_UP_ROUNDS: u64 = 8;
const GIVEN_UP_NS: u64 = 15_000_000_000;

/// What an acknowledgement has settled.
#[derive(Default, Clone, Copy, Debug)]
pub struct Acked {
    /// Frames newly acknowledged.
    pub frames: u32,
    /// Their bytes.
    pub bytes: u64,
    /// Bytes of the longest of them.
    pub longest: u32,
    /// Number and time of sending of the largest of them: what gives a sample of the round trip.
    pub newest: Option<(u64, Instant)>,
    /// When the largest was sent of those that prove to have arrived after they were given up. Where nothing else is
    /// acknowledged this is what there is to learn from: that the way is longer than was believed.
    pub late: Option<Instant>,
    /// How many of those there are.
    pub late_frames: u32,
    /// Whether one of them proves it though nothing is acknowledged yet that was sent after it was given up.
    pub unprobed: bool,
    /// Their bytes, as far as [`Sent::lost`] has told of them.
    pub late_bytes: u64,
    /// By how many numbers any of these, or of those, were overtaken at most; 0 if by none.
    pub overtaken: u64,
}

impl Acked {
    /// A frame is acknowledged; until now one less than `reached` was the largest number that was.
    fn add(&mut self, number: u64, sent: Instant, bytes: u32, reached: u64) {
        self.overtaken = self.overtaken.max(reached.saturating_sub(number + 1));
        self.frames += 1;
        self.bytes += u64::from(bytes);
        self.longest = self.longest.max(bytes);
        self.newest = Some((number, sent));
    }
}

/// A frame that is taken for lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lost {
    /// Its number.
    pub number: u64,
    /// Its bytes.
    pub bytes: u32,
}

/// A frame. Without contents it is settled already, and only keeps its place.
#[derive(Debug)]
struct Entry<T> {
    number: u64,
    sent: Instant,
    bytes: u32,
    content: Option<T>,
}

/// A number that was given up, and what its frame carried.
#[derive(Debug)]
struct GivenUp<T> {
    number: u64,
    content: T,
    sent: Instant,
    /// Its bytes, if they were told as lost.
    bytes: u32,
    /// The next number at that time: only frames from here on tell the receiver to forget `number`.
    next: u64,
}

/// The frames that a side has sent on a channel and that are not settled. `T` is what a frame carried.
///
/// Each content that is pushed comes out once: acknowledged, lost, or drained; and one that was lost may come out once
/// more, as acknowledged, because its frame proves to have arrived ([`Acked::late`]): it need not be sent again, if it
/// has not been yet. After [`Sent::rest`] an idle channel keeps room for a few frames at most.
///
/// Numbers in acknowledgements must be of frames that were sent: [`Ack::from_wire`] sees to it, for ranges it is the
/// caller who does, and who keeps the ranges of one frame apart from each other. A lie costs only the channel on which
/// it is told: its frames are given up, and sent again, early.
#[derive(Debug)]
pub struct Sent<T> {
    /// By rising number. The first one is in flight.
    entries: VecDeque<Entry<T>>,
    live: usize,
    bytes: u64,
    /// One past the largest number pushed.
    next: u64,
    /// One past the largest number acknowledged.
    reached: u64,
    last_sent: Instant,
    /// By rising number: what is given up is older than what is not.
    given_up: VecDeque<GivenUp<T>>,
    spurious: u64,
    /// Where frames that are not lost were overtaken: for how many ns longer than usual, and when that was last seen.
    disorder: Option<(u64, Instant)>,
}

impl<T> Default for Sent<T> {
    fn default() -> Self {
        Self {
            entries: VecDeque::new(),
            live: 0,
            bytes: 0,
            next: 0,
            reached: 0,
            last_sent: Instant::default(),
            given_up: VecDeque::new(),
            spurious: 0,
            disorder: None,
        }
    }
}

impl<T: Copy> Sent<T> {
    /// A frame with this number leaves now. `bytes` is what it takes of the window. Numbers rise, and gaps are allowed:
    /// a frame that asks for no acknowledgement is not pushed.
    pub fn push(&mut self, number: u64, now: Instant, bytes: u32, content: T) {
        debug_assert!(number >= self.next, "frame numbers rise");
        if number < self.reached {
            // It cannot have been acknowledged before it was sent. So that was a lie, and says nothing of losses.
            self.reached = 0;
        }
        self.entries.push_back(Entry { number, sent: now, bytes, content: Some(content) });
        self.live += 1;
        self.bytes += u64::from(bytes);
        self.next = number.saturating_add(1);
        self.last_sent = now;
    }

    /// Takes out what `ack` covers, and hands each content to `each`, by rising number; then those that were given up
    /// and have arrived. Frames were sent up to, but not including, the number `end`, also some that were not pushed.
    pub fn acked(&mut self, ack: Ack, end: u64, mut each: impl FnMut(T)) -> Acked {
        let mut acked = Acked::default();
        let reached = self.reached;
        self.reached = reached.max(ack.end());
        while self.entries.front().is_some_and(|entry| entry.number < ack.below) {
            if let Some(Entry { number, sent, bytes, content: Some(content) }) = self.entries.pop_front() {
                acked.add(number, sent, bytes, reached);
                each(content);
            }
        }
        if ack.bits != 0 {
            for entry in self.entries.iter_mut().take_while(|entry| entry.number < ack.end()) {
                if ack.has_bit(entry.number)
                    && let Some(content) = entry.content.take()
                {
                    acked.add(entry.number, entry.sent, entry.bytes, reached);
                    each(content);
                }
            }
        }
        // The bits reach as far as anything was sent, so they show the largest number that arrived.
        let shows_all = end <= ack.below.saturating_add(65);
        // Below it is also what the receiver was told not to wait for. If that comes, a range says so.
        let tells = |lost: &GivenUp<T>| {
            lost.number >= ack.below || shows_all && (ack.end() <= lost.next || lost.number + 1 == ack.end())
        };
        // Numbers rise, and where they were given up too: what says nothing of the last says nothing of those before.
        if self.given_up.back().is_some_and(tells) {
            let arrived = |lost: &GivenUp<T>| tells(lost) && (lost.number < ack.below || ack.has_bit(lost.number));
            self.look_back(&mut acked, reached, arrived, each);
        }
        self.settle(acked.frames, acked.bytes);
        acked
    }

    /// As [`Sent::acked`], for the numbers from `first` up to, but not including, `end`.
    pub fn acked_range(&mut self, first: u64, end: u64, mut each: impl FnMut(T)) -> Acked {
        let mut acked = Acked::default();
        if first >= end {
            return acked;
        }
        let reached = self.reached;
        self.reached = reached.max(end);
        let place = self.entries.partition_point(|entry| entry.number < first);
        for entry in self.entries.range_mut(place..).take_while(|entry| entry.number < end) {
            if let Some(content) = entry.content.take() {
                acked.add(entry.number, entry.sent, entry.bytes, reached);
                each(content);
            }
        }
        let place = self.given_up.partition_point(|lost| lost.number < first);
        if self.given_up.get(place).is_some_and(|lost| lost.number < end) {
            self.look_back(&mut acked, reached, |lost| (first..end).contains(&lost.number), each);
        }
        self.settle(acked.frames, acked.bytes);
        acked
    }

    /// Where frames were given up that have arrived, as an acknowledgement has said at this time, because others had
    /// overtaken them, so much is borne from now on.
    pub fn bear(&mut self, now: Instant, acked: &Acked, rtt: &Rtt) {
        let before = self.disorder.map(|(longer, _)| longer);
        let longer = match acked.late {
            Some(sent) if acked.overtaken > 0 => {
                let longer =
                    now.saturating_since(sent).saturating_sub(rtt.loss_delay()).min(BORNE_ROUNDS * rtt.smoothed());
                Some(longer.max(before.unwrap_or(0)))
            }
            // As far as that it is borne, and still needed.
            _ => before.filter(|_| acked.overtaken >= LATER),
        };
        self.disorder = longer.map_or(self.disorder, |longer| Some((longer, now)));
    }

    /// Takes out what is to be taken as lost, and hands each content to `each`, by rising number. Returns the bytes of
    /// the lost frames.
    pub fn lost(&mut self, now: Instant, rtt: &Rtt, mut each: impl FnMut(T, Lost)) -> u64 {
        self.disorder = self.disorder.filter(|(_, seen)| now.saturating_since(*seen) < DISORDER_NS);
        let forgets = GIVEN_UP_NS.max(GIVEN_UP_ROUNDS * rtt.smoothed());
        while self.given_up.front().is_some_and(|lost| lost.sent.after(forgets) <= now) {
            self.given_up.pop_front();
        }
        let (mut frames, mut bytes) = (0, 0);
        let (reached, next, delay) = (self.reached, self.next, self.loss_delay(rtt));
        let in_order = self.disorder.is_none();
        for entry in self.entries.iter_mut().take_while(|entry| overtaken(entry.number, reached)) {
            let far = in_order && reached - entry.number > LATER;
            if (far || entry.sent.after(delay) <= now)
                && let Some(content) = entry.content.take()
            {
                let Entry { number, sent, bytes: lost, .. } = *entry;
                remember(&mut self.given_up, GivenUp { number, content, sent, bytes: lost, next });
                frames += 1;
                bytes += u64::from(lost);
                each(content, Lost { number: entry.number, bytes: entry.bytes });
            }
        }
        self.settle(frames, bytes);
        bytes
    }

    /// If the probe time-out has passed: takes out the oldest frames, at most two, to be sent again, hands their
    /// contents to `each`, and returns true.
    ///
    /// `backoff` is how many time-outs have passed since something was acknowledged; all that came until `looked` has
    /// been looked at. There is no probe while [`Sent::lost`] has still to judge a frame: call that first.
    pub fn probe(
        &mut self,
        (now, looked): (Instant, Instant),
        rtt: &Rtt,
        backoff: u32,
        mut each: impl FnMut(T, Lost),
    ) -> bool {
        let Some(first) = self.entries.front() else { return false };
        let lag = now.saturating_since(looked);
        if overtaken(first.number, self.reached) || now < self.last_sent.after(rtt.probe_timeout(backoff, lag)) {
            return false;
        }
        let (mut frames, mut bytes) = (0, 0);
        let next = self.next;
        for entry in self.entries.iter_mut().filter(|entry| entry.content.is_some()).take(PROBES) {
            let Some(content) = entry.content.take() else { continue };
            let Entry { number, sent, bytes: lost, .. } = *entry;
            remember(&mut self.given_up, GivenUp { number, content, sent, bytes: 0, next });
            frames += 1;
            bytes += u64::from(lost);
            each(content, Lost { number, bytes: lost });
        }
        self.settle(frames, bytes);
        true
    }

    /// When [`Sent::lost`] or [`Sent::probe`] has something to do next, if nothing comes before; perhaps a time that
    /// has passed. None if nothing is in flight.
    #[must_use]
    pub fn timer(&self, rtt: &Rtt, backoff: u32) -> Option<Instant> {
        let first = self.entries.front()?;
        Some(if overtaken(first.number, self.reached) {
            first.sent.after(self.loss_delay(rtt))
        } else {
            self.last_sent.after(rtt.probe_timeout(backoff, 0))
        })
    }

    /// How old a frame must be to be lost when a later one is acknowledged.
    fn loss_delay(&self, rtt: &Rtt) -> u64 {
        rtt.loss_delay() + self.disorder.map_or(0, |(longer, _)| longer)
    }

    /// Bytes in flight.
    #[must_use]
    pub const fn in_flight(&self) -> u64 {
        self.bytes
    }

    /// Whether any frame is in flight whose content is such.
    pub fn any(&self, is: impl Fn(&T) -> bool) -> bool {
        self.entries.iter().filter_map(|entry| entry.content.as_ref()).any(is)
    }

    /// Whether nothing is in flight.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.live == 0
    }

    /// Frames in flight.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.live
    }

    /// The least number in flight.
    #[must_use]
    pub fn oldest(&self) -> Option<u64> {
        self.entries.front().map(|entry| entry.number)
    }

    /// Frames that were given up as lost and had arrived after all, as far as is known: of the numbers given up only
    /// the last 128 are remembered, for some seconds.
    #[must_use]
    pub const fn spurious(&self) -> u64 {
        self.spurious
    }

    /// Takes out all that is in flight: the channel ends, or begins anew.
    pub fn drain(&mut self, each: impl FnMut(T)) {
        self.entries.drain(..).filter_map(|entry| entry.content).for_each(each);
        self.given_up.clear();
        self.settle(0, 0);
        (self.live, self.bytes) = (0, 0);
    }

    /// Lets go of memory, if nothing is in flight: to be called where nothing has been for a while. A sender that waits
    /// for each train before the next would else ask for the same memory again and again.
    pub fn rest(&mut self) {
        if self.entries.is_empty() && self.entries.capacity() > KEPT {
            self.entries = VecDeque::new();
        }
    }

    /// Lets go of all memory in which nothing lies, and forgets what was given up: to be called where nothing has been
    /// in flight for long.
    pub fn settle_down(&mut self) {
        self.entries.shrink_to_fit();
        self.given_up = VecDeque::new();
    }

    /// Counts and removes those given up of which `arrived` says that they have, and hands their contents to `each`.
    /// Until now one less than `reached` was the largest number acknowledged.
    fn look_back(
        &mut self,
        acked: &mut Acked,
        reached: u64,
        arrived: impl Fn(&GivenUp<T>) -> bool,
        mut each: impl FnMut(T),
    ) {
        if self.given_up.is_empty() {
            return;
        }
        let (spurious, mut late) = (&mut self.spurious, None);
        self.given_up.retain(|lost| {
            let arrived = arrived(lost);
            if arrived {
                *spurious += 1;
                each(lost.content);
                late = late.max(Some((lost.number, lost.sent)));
                acked.late_frames += 1;
                acked.unprobed |= self.reached <= lost.next;
                acked.late_bytes += u64::from(lost.bytes);
                acked.overtaken = acked.overtaken.max(reached.saturating_sub(lost.number + 1));
            }
            !arrived
        });
        acked.late = late.map(|(_, sent)| sent);
    }

    /// Frames were taken out: counts that, lets a frame in flight be the first, and lets go of memory.
    fn settle(&mut self, frames: u32, bytes: u64) {
        self.live -= frames as usize;
        self.bytes -= bytes;
        while self.entries.front().is_some_and(|entry| entry.content.is_none()) {
            self.entries.pop_front();
        }
        if self.given_up.is_empty() && self.given_up.capacity() > 0 {
            self.given_up = VecDeque::new();
        }
    }
}

/// Whether a later number than this has been acknowledged, where `reached` is one past the largest that has.
const fn overtaken(number: u64, reached: u64) -> bool {
    number < reached.saturating_sub(1)
}

fn remember<T>(given_up: &mut VecDeque<GivenUp<T>>, lost: GivenUp<T>) {
    if given_up.len() == GIVEN_UP_MAX {
        given_up.pop_front();
    }
    debug_assert!(given_up.back().is_none_or(|before| before.number < lost.number), "given up out of their order");
    given_up.push_back(lost);
}
