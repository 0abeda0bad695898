//! How many bytes may be in flight: a window that follows the delay, and is safe on a network that others use too.
//!
//! # The rule
//!
//! A round is a window's worth of acknowledgements, and lasts a round trip at least. After each round the window looks
//! at the *least* delay that it saw in it:
//!
//! * the delay is within its target: the window grows by a frame, if it was what held the sender back; on a long way by
//!   half the square root of its frames, at most by one for each 200 us. So a small window grows faster than a large
//!   one for its size, and catches up (binomial increase; Bansal and Balakrishnan, INFOCOM 2001), where a large one
//!   does not take minutes to grow. After five such rounds with hardly a queue and without a loss it grows by a
//!   sixteenth (TIMELY's hyperactive increase; Mittal et al., SIGCOMM 2015);
//! * the delay is above, and more than four frames of this sender's own stand in the queue (Vegas' measure; Brakmo and
//!   Peterson, 1995): the window shrinks to what fits the way without a queue, by half at most. For one round it holds
//!   still lower, so that the queue drains: then every sender on the way sees the way without a queue, also one that
//!   came when there was one and took the queue for part of the way. That is what makes late comers fair;
//! * more than 2 % of the frames were lost: the window is halved.
//!
//! The target is a queue of 250 us, or of a quarter of the way's own round trip if that is longer: Swift's fixed target
//! (Kumar et al., SIGCOMM 2020) made wide enough for machines whose clock readings are software's. The four frames are
//! its flow scaling: the smaller a window is, the more delay it bears, and so it catches up.
//!
//! Where delays vary by themselves, as over radio and between virtual machines, the target is twice of what those of
//! one round differ by, if that is more: a queue that stands makes all delays of a round longer, and their difference
//! no larger. Without this the window shrank to four frames there, for the fewer frames a round has, the longer is the
//! least of their delays.
//!
//! At the beginning, after silence, and when the way proves to be longer than it was, the window doubles each round
//! until the delay is once above the target that holds where nothing varies.
//!
//! # What is not congestion
//!
//! *A machine that was busy with something else.* Then what comes in late comes in all together. A queue delays every
//! frame of a round, and a round takes a round trip; a stop of any length delays one window's worth, which is answered
//! within no time. So a stop cannot fill a round, and the least of the round is a frame that was not stopped.
//!
//! *A frame that is lost now and then.* Losses are compared with 2 % of the frames plus four, over the last few hundred
//! frames: one frame in a hundred that is lost at random is never above that, a queue that overflows soon is.
//!
//! *A frame that others have overtaken.* It may be taken for lost until it proves to have arrived. Then it does not
//! count, and if it was for such frames that the window was halved, it is as before (Eifel; Ludwig and Katz, 2000).
//!
//! *What was in flight when the way fell silent.* It is lost because there was no way, and says nothing of the one that
//! there is again: the window goes on doubling to where it was.
//!
//! *Others, and a way that has become longer.* Where rounds stay above the target though next to nothing in the queue
//! is this sender's ([`Window::is_strange`]), its receiver has all who send to it hold still for a moment, and the
//! window is made to fit what that has shown ([`quiet`](super::quiet)).
//!
//! # What it does not do
//!
//! It gives way to senders that fill every queue until it overflows, as TCP does. And it shrinks to four frames, never
//! below: hundreds of senders on one slow way need a window in time, which Swift has and this does not. In front of a
//! queue that is too short for the target only losses speak; senders then fill the way, but share it less evenly.

use super::rtt::standing;
use crate::time::Instant;

/// The window begins with this many frames (RFC 6928); on a short way with [`BEGIN_BYTES`], if that is more.
const BEGIN_FRAMES: u64 = 10;

/// A payload that most short ways take at once: a millisecond on 0.5 Gb/s, and the smallest buffer that is usual in a
/// switch. A long one may be slow: 64 KiB of each of eight senders stand in front of 20 Mb/s for 200 ms, and whoever
/// comes then takes that for the way.
const BEGIN_BYTES: u64 = 64 << 10;

/// Frames below which the window never shrinks: with fewer, three later frames would not be there to tell a loss.
const LEAST_FRAMES: u64 = 4;

/// Most bytes in flight: 10 Gb/s over 13 ms. More would keep too much memory for what is not acknowledged.
const MOST_BYTES: u64 = 16 << 20;

/// Rounds with hardly a queue after which the window grows faster.
const CALM_ROUNDS: u32 = 5;

/// Rounds above the target after which that seems strange to who holds next to nothing in the queue.
const STRANGE_ROUNDS: u32 = 6;

/// Frames of which losses are remembered: with this many, the older ones count half.
const LOSS_FRAMES: u64 = 256;

/// Round trip in ns below which frames go as they come. Nobody who polls can spread them so finely.
const PACED: u64 = 64_000;

/// Round trip in ns up to which the window of the beginning is larger, and goes out at once.
const LONG: u64 = 1_000_000;

/// For each so many ns of the least round trip the window may grow by a frame in a round: on a long way, whose windows
/// are large and whose rounds are rare, senders would else take minutes to come to equal shares.
const STEP: u64 = 200_000;

/// Longest round trip, in ns, that is reckoned with.
const ROUND_MAX: u64 = 60_000_000_000;

/// Bytes that one sender may have in flight on one way.
#[derive(Debug, Clone)]
pub struct Window {
    frame: u64,
    bytes: u64,
    /// Doubles each round.
    doubles: bool,
    calm: u32,
    round: Round,
    /// While frames from before the window shrank are in flight: their bytes, and the window until then.
    settling: u64,
    hold: u64,
    /// Bytes settled and lost of late.
    settled: u64,
    lost: u64,
    /// The window before it was halved and whether it doubled, until the next round is over; and how many bytes fewer
    /// of those lost had left it as it was.
    halved: Option<(u64, bool, u64)>,
    /// What was said last.
    in_flight: u64,
    least: u64,
    /// By how much delays of one round differ.
    varies: u64,
    /// Bytes that were in flight when the way fell silent, and have not been found lost since.
    silenced: u64,
    /// Rounds above the target in which next to nothing of this sender's stood in the queue, since one was within it.
    strange: u32,
    /// Whether one frame at a time is in flight.
    hushed: bool,
}

/// What has been seen since the round began.
#[derive(Debug, Clone, Default)]
struct Round {
    /// When the first acknowledgement of it came, and the window then.
    began: Option<(Instant, u64)>,
    bytes: u64,
    /// The least delay, and the longest.
    delay: Option<(u64, u64)>,
    /// Whether the window has held the sender back.
    full: bool,
    lossy: bool,
    /// Whether a frame has come and gone within the target, machines and all.
    short: bool,
}

impl Window {
    /// The window of a new channel, whose full frames have `frame_bytes`.
    #[must_use]
    pub fn new(frame_bytes: u32) -> Self {
        let frame = u64::from(frame_bytes.max(1));
        let new = Self {
            frame,
            bytes: 0,
            doubles: true,
            calm: 0,
            round: Round::default(),
            settling: 0,
            hold: 0,
            settled: 0,
            lost: 0,
            halved: None,
            in_flight: 0,
            least: 1,
            varies: 0,
            silenced: 0,
            strange: 0,
            hushed: false,
        };
        Self { bytes: new.begin(), ..new }
    }

    /// Nothing was sent yet, and a round trip seems to take so long.
    pub fn expects(&mut self, round_ns: u64) {
        self.least = round_ns.clamp(1, ROUND_MAX);
        self.set(self.begin());
    }

    fn begin(&self) -> u64 {
        let frames = BEGIN_FRAMES * self.frame;
        if self.least > LONG { frames } else { frames.max(BEGIN_BYTES) }
    }

    /// Bytes that may be sent now, when `in_flight` are in flight.
    #[must_use]
    pub const fn room(&self, in_flight: u64) -> u64 {
        self.bytes().saturating_sub(in_flight)
    }

    /// The window in bytes.
    #[must_use]
    pub const fn bytes(&self) -> u64 {
        match self.settling {
            _ if self.hushed => self.frame,
            0 => self.bytes,
            _ => self.hold,
        }
    }

    /// From now on it is a single frame, and nothing is learnt, or no longer so: for a quiet moment
    /// ([`quiet`](super::quiet)).
    pub fn hush(&mut self, hushed: bool) {
        if core::mem::replace(&mut self.hushed, hushed) != hushed {
            (self.round, self.strange) = (Round::default(), 0);
        }
    }

    /// A quiet moment has shown that the way takes `least_ns`, where round trips took `round_ns`: what stood in a queue
    /// then is let go of, by all who have heeded it at the same time. That makes late comers fair, too.
    pub fn fit(&mut self, least_ns: u64, round_ns: u64) {
        let (least, round) = (least_ns.clamp(1, ROUND_MAX), round_ns.min(ROUND_MAX));
        if round > least + standing(least) {
            let fits = u128::from(self.bytes) * u128::from(least) / u128::from(round);
            self.set(u64::try_from(fits).unwrap_or(self.bytes));
            // What it was halved from, or drains to, was of the time before.
            (self.halved, self.hold) = (None, self.hold.min(self.bytes));
            (self.doubles, self.varies) = (false, 0);
        }
    }

    /// Whether delays have been above the target for a while, though next to nothing in the queue is this sender's: the
    /// way has become longer, or many others share it.
    #[must_use]
    pub const fn is_strange(&self) -> bool {
        self.strange >= STRANGE_ROUNDS
    }

    /// An acknowledgement of `bytes` came. Its newest frame's round trip has taken `round_ns`, and `delay_ns` of that
    /// if all is left out for which a machine may have kept it; `least_ns` is [`Rtt::least`](super::rtt::Rtt::least);
    /// `in_flight` is what was in flight until it came, `bytes` among it.
    pub fn acked(&mut self, now: Instant, bytes: u64, (round_ns, delay_ns): (u64, u64), least_ns: u64, in_flight: u64) {
        let least = least_ns.clamp(1, ROUND_MAX);
        // The windows of a way are far too small for one that is so much longer.
        self.doubles |= least > self.least + self.standing();
        self.least = least;
        self.in_flight = in_flight.saturating_sub(bytes);
        let delay = delay_ns.clamp(self.least, ROUND_MAX);
        let full = in_flight >= self.bytes / 4 * 3;
        self.round.full |= full;
        self.round.short |= round_ns <= self.least + self.standing();
        let (least, most) = self.round.delay.unwrap_or((delay, delay));
        self.round.delay = Some((least.min(delay), most.max(delay)));
        if self.doubles && full && self.settling == 0 && !self.hushed && delay <= self.least + self.standing() {
            self.set(self.bytes.saturating_add(bytes));
        }
        self.advance(now, bytes);
    }

    /// Frames of `bytes` are lost, and are not in flight any more.
    pub fn lost(&mut self, now: Instant, bytes: u64) {
        // What was lost because there was no way says nothing of the way that there is again.
        let silenced = bytes.min(self.silenced);
        self.silenced -= silenced;
        self.lost = self.lost.saturating_add(bytes - silenced);
        self.round.lossy |= bytes > silenced;
        self.in_flight = self.in_flight.saturating_sub(bytes);
        self.advance(now, bytes);
    }

    /// Frames of `bytes` that were taken for lost have arrived.
    pub fn found(&mut self, bytes: u64) {
        let Some((before, doubled, too_much)) = self.halved else {
            self.lost = self.lost.saturating_sub(bytes);
            return;
        };
        // Those that the window was halved for are not among the losses since.
        self.lost = self.lost.saturating_sub(bytes.saturating_sub(too_much));
        self.halved = Some((before, doubled, too_much.saturating_sub(bytes)));
        if bytes >= too_much {
            self.halved = None;
            (self.doubles, self.settling) = (doubled, 0);
            self.set(before.max(self.bytes));
        }
    }

    /// Several probe time-outs have passed, and nothing came back. The window is that of a new channel again, and with
    /// every further silence half of it: nothing is known of the way any more, and probes alone go out until it speaks.
    /// Then it takes a few rounds to double to where it was.
    pub fn silent(&mut self) {
        let begin = self.begin();
        self.set(if self.bytes > begin { begin } else { self.bytes / 2 });
        self.doubles = true;
        self.calm = 0;
        self.settling = 0;
        self.halved = None;
        self.silenced = self.in_flight;
        self.round = Round::default();
    }

    /// Ns for each KiB that is sent, so that a window is spread over four fifths of a round trip of `round_ns` (half
    /// of it while the window doubles). 0 if that is not worth it: for a round trip of less than 64 us, and for a
    /// window no larger than the one of the beginning, which goes out at once then too.
    #[must_use]
    pub fn pace(&self, round_ns: u64) -> u64 {
        if self.hushed || round_ns < PACED || round_ns <= LONG && self.bytes <= self.begin() {
            return 0;
        }
        let spread = round_ns.min(ROUND_MAX);
        let spread = if self.doubles { spread / 2 } else { spread / 5 * 4 };
        (spread << 10) / self.bytes().max(1)
    }

    /// The longest queue, in ns, that is no sign of too much in flight, where delays do not vary by themselves.
    fn standing(&self) -> u64 {
        standing(self.least)
    }

    /// The longest delay, in ns, that is no sign of too much in flight.
    fn target(&self) -> u64 {
        self.least + self.standing().max(2 * self.varies)
    }

    fn set(&mut self, bytes: u64) {
        let least = LEAST_FRAMES * self.frame;
        self.bytes = bytes.clamp(least, MOST_BYTES.max(least));
    }

    /// `bytes` are not in flight any more.
    fn advance(&mut self, now: Instant, bytes: u64) {
        self.settled = self.settled.saturating_add(bytes);
        if self.settling > 0 {
            self.settling = self.settling.saturating_sub(bytes);
            self.round = Round::default();
            return;
        }
        if self.hushed {
            return;
        }
        let (began, window) = *self.round.began.get_or_insert((now, self.bytes));
        self.round.bytes = self.round.bytes.saturating_add(bytes);
        if self.round.bytes >= window && now.saturating_since(began) >= self.least {
            let round = core::mem::take(&mut self.round);
            self.judge(&round);
        }
    }

    /// A round has ended.
    fn judge(&mut self, round: &Round) {
        let bearable = self.settled / 50 + 4 * self.frame;
        let (heavy, too_much) = (self.lost > bearable, self.lost.saturating_sub(bearable));
        (self.halved, self.silenced) = (None, 0);
        if heavy || self.settled > LOSS_FRAMES * self.frame {
            self.settled /= 2;
            self.lost /= 2;
        }
        let (delay, longest) = round.delay.unwrap_or((self.least, self.least));
        // While the window doubles its own queue comes up within a round.
        if !self.doubles {
            let differs = (longest - delay).min(2 * self.varies + self.standing());
            self.varies = (7 * self.varies + differs) / 8;
        }
        let queued = self.bytes - self.without_queue(delay);
        let strange = delay > self.least + self.standing() && queued <= 4 * LEAST_FRAMES * self.frame;
        self.strange = if round.short { 0 } else { self.strange.saturating_add(strange.into()) };
        if heavy {
            (self.settled, self.lost) = (0, 0);
            self.halved = Some((self.bytes, self.doubles, too_much));
            self.shrink(self.bytes / 2, self.bytes / 2);
        } else if delay > self.target() && queued > LEAST_FRAMES * self.frame {
            let fits = self.without_queue(delay);
            self.shrink(fits.max(self.bytes / 2), fits / 4 * 3);
        } else {
            self.doubles &= delay <= self.least + self.standing();
            let calm = !round.lossy && delay < self.least + (self.target() - self.least) / 4;
            self.calm = if calm { self.calm + 1 } else { 0 };
            if round.full && !self.doubles {
                let steady = self.frame * (self.least / STEP).min((self.bytes / self.frame).isqrt() / 2);
                let step = if self.calm > CALM_ROUNDS { self.bytes / 16 } else { steady };
                self.set(self.bytes + step.max(self.frame));
            }
        }
    }

    /// The part of the window that fits the way itself, when all of it took `delay`.
    fn without_queue(&self, delay: u64) -> u64 {
        let part = u128::from(self.bytes) * u128::from(self.least) / u128::from(delay.max(self.least));
        u64::try_from(part).unwrap_or(self.bytes)
    }

    /// The window is `bytes` from now on, but `hold` until what is in flight has left.
    fn shrink(&mut self, bytes: u64, hold: u64) {
        self.set(hold);
        self.hold = self.bytes;
        self.set(bytes);
        self.settling = self.in_flight;
        self.doubles = false;
        self.calm = 0;
    }
}
