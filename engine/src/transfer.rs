//! One message's payload on its way through the stages of an adapter.
//!
//! This is the resource-centred loop of the Trapeze firmware (HPDC 1997, section 3 and Figure 3): each pass asks which
//! movers are idle and what they can do. It holds numbers only; the bytes stay behind the [`Adapter`].
//!
//! Within a poll the stages are read from the last to the first, and of each stage first `idle`, then `room`, then
//! `moved`. While bytes move on at the same time, the numbers then err on the safe side: no stage seems to have moved
//! more than the one before it, no pulse seems to have ended early, and no buffer seems smaller than it is.

use core::num::NonZeroU64;

use crate::adapter::{Adapter, Capability, Pulse, Role, Stage};
use crate::pulse::{Policy, View, least, must_drain, next_pulse, offered_room};
use crate::time::Instant;
use crate::tune::Tuner;

/// Hears of every pulse that has ended.
pub trait Trace {
    /// Whether anybody listens; if not, nobody need read a clock for it.
    const LISTENS: bool = true;

    /// `stage` moved the `len` bytes at `offset` of the payload between `start` and `end`, which are times of polls.
    fn pulse(&mut self, stage: Stage, offset: u64, len: u64, start: Instant, end: Instant) {
        let _ = (stage, offset, len, start, end);
    }
}

/// Listens to nothing.
impl Trace for () {
    const LISTENS: bool = false;
}

/// What a poll of a [`Transfer`] found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// A pulse of this engine is in flight. Poll again.
    Moving,
    /// Nothing of this engine's is in flight and nothing can be started before the other side has moved on.
    Waiting,
    /// Every stage that this engine drives has moved all of the message.
    Done,
    /// `stage` reported progress that cannot be true: it went backwards, or beyond what there was to move. The
    /// transfer is void; the caller closes the channel.
    Misreported {
        /// The stage whose numbers are wrong.
        stage: Stage,
    },
}

/// When a stage was at work on a message, as seen by the polls.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct StageTimes {
    /// Start of the first pulse; for an observed stage the first poll that saw bytes.
    pub first_start: Option<Instant>,
    /// End of the latest pulse; for an observed stage the latest poll that saw it move on.
    pub last_end: Option<Instant>,
    /// Pulses ended; 0 for an observed stage.
    pub pulses: u32,
    /// Bytes moved.
    pub bytes: u64,
}

/// A pulse that has been started and not yet been seen to end.
#[derive(Debug, Clone, Copy)]
struct Flight {
    start: Instant,
    offset: u64,
    len: u64,
}

/// What a transfer remembers of a stage between two polls.
#[derive(Debug, Clone, Copy, Default)]
struct Track {
    flight: Option<Flight>,
    /// The measured minpulse for this message, once it has been needed.
    minpulse: Option<u64>,
    times: StageTimes,
}

/// What one poll has read of a stage that the adapter has. It holds plain numbers because polls that find nothing are
/// the most frequent ones, and with options inside they took twice as long.
#[derive(Debug, Clone, Copy)]
struct Reading {
    stage: Stage,
    /// Whether this engine drives the stage and could start a pulse.
    idle: bool,
    /// Whether a pulse in flight can be seen.
    progress: bool,
    /// The most that a pulse can carry.
    pulse_max: u64,
    room: u64,
    moved: u64,
    /// How much of that the next stage has not moved on; 0 if there is no next stage.
    backlog: u64,
}

/// Whether the stages of one role have moved everything; `None` if there is none.
type AllMoved = Option<bool>;

/// One message's payload through the stages.
#[derive(Debug, Clone)]
pub struct Transfer {
    len: u64,
    policy: Policy,
    downstream_minpulse: Option<u64>,
    minpulse_max: u64,
    timed: bool,
    tracks: [Track; Stage::COUNT],
}

impl Transfer {
    /// A transfer of `len` bytes, none of which has moved.
    #[must_use]
    pub fn new(len: u64, policy: Policy) -> Self {
        Self {
            len,
            policy,
            downstream_minpulse: None,
            minpulse_max: u64::MAX,
            timed: true,
            tracks: [Track::default(); Stage::COUNT],
        }
    }

    /// Says how many bytes the stages downstream find worth a pulse, as far as they are driven by the far side:
    /// adaptive pulses then report their progress that often. Without it they report as often as this side itself
    /// would like.
    pub fn set_downstream_minpulse(&mut self, minpulse: Option<u64>) {
        self.downstream_minpulse = minpulse;
    }

    /// Bounds what the measured cost may demand of a pulse. An adapter whose buffer is small, or whose stages hand
    /// over at next to no cost, knows that longer ones cannot pay, however its pulses were measured.
    pub fn set_minpulse_max(&mut self, minpulse: u64) {
        self.minpulse_max = minpulse.max(1);
    }

    /// Says whether the times of polls are times, which they are if nobody says otherwise. If not, nothing is learnt
    /// from this transfer's pulses: see [`is_timed`](crate::tune::is_timed).
    pub fn set_timed(&mut self, timed: bool) {
        self.timed = timed;
    }

    /// Whether the times of polls are times.
    #[must_use]
    pub fn is_timed(&self) -> bool {
        self.timed
    }

    /// Length of the payload in bytes.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Whether there is no payload at all.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// When each stage was at work, indexed by [`Stage::index`]; all zero for stages the adapter does not have.
    #[must_use]
    pub fn times(&self) -> [StageTimes; Stage::COUNT] {
        self.tracks.map(|track| track.times)
    }

    /// Pulses which the stages of this engine have made.
    #[must_use]
    pub fn pulses(&self) -> u32 {
        self.tracks.iter().fold(0, |sum, track| sum.saturating_add(track.times.pulses))
    }

    /// Looks at every stage once and starts a pulse on each that is idle and has something worth moving.
    ///
    /// `adapter` carries this message and no other. Durations of pulses that have ended go to the stage's entry in
    /// `tuners` and to `trace`; a duration is exact to the time between two polls. Costs a few reads per stage, never
    /// allocates, and may be called again after [`Step::Done`].
    pub fn poll(
        &mut self,
        now: Instant,
        adapter: &mut impl Adapter,
        tuners: &mut [Tuner; Stage::COUNT],
        trace: &mut impl Trace,
    ) -> Step {
        self.pass(now, adapter, tuners, trace).unwrap_or_else(|stage| Step::Misreported { stage })
    }

    /// Goes through the stages once, last to first. Each can be moved on as soon as its source, the stage before it,
    /// has been read. The error is the stage whose numbers cannot be right.
    fn pass(
        &mut self,
        now: Instant,
        adapter: &mut impl Adapter,
        tuners: &mut [Tuner; Stage::COUNT],
        trace: &mut impl Trace,
    ) -> Result<Step, Stage> {
        let mut sink: Option<Reading> = None;
        let (mut driven, mut observed): (AllMoved, AllMoved) = (None, None);
        for stage in Stage::ALL.into_iter().rev() {
            let capability = adapter.capability(stage);
            let all_moved = match capability.role {
                Role::Absent => continue,
                Role::Observed => &mut observed,
                Role::Driven => &mut driven,
            };
            let source = self.read(now, stage, capability, sink.as_ref(), adapter)?;
            *all_moved = Some(all_moved.unwrap_or(true) && source.moved == self.len);
            if let Some(sink) = sink {
                self.move_on(now, &sink, Some(&source), tuners, adapter, trace);
            }
            sink = Some(source);
        }
        if let Some(first) = sink {
            self.move_on(now, &first, None, tuners, adapter, trace);
        }
        let moving = self.tracks.iter().any(|track| track.flight.is_some());
        Ok(match driven.or(observed) {
            _ if moving => Step::Moving,
            Some(false) => Step::Waiting,
            Some(true) | None => Step::Done,
        })
    }

    /// Reads `stage`, and checks what it says against its past and against `sink`, the stage after it.
    fn read(
        &mut self,
        now: Instant,
        stage: Stage,
        capability: Capability,
        sink: Option<&Reading>,
        adapter: &mut impl Adapter,
    ) -> Result<Reading, Stage> {
        let idle = capability.role == Role::Driven && adapter.idle(now, stage);
        let room = adapter.room(now, stage);
        let moved = adapter.moved(now, stage);
        self.check_moved(now, stage, capability.role, moved)?;
        let passed_on = sink.map_or(moved, |sink| sink.moved);
        match sink {
            Some(sink) if capability.progress && passed_on > moved => Err(sink.stage),
            _ => Ok(Reading {
                stage,
                idle,
                progress: capability.progress,
                pulse_max: capability.pulse_max.unwrap_or(u64::MAX).max(1),
                room,
                moved,
                backlog: moved.saturating_sub(passed_on),
            }),
        }
    }

    /// Believes `moved` of `stage`, if it is neither less than before nor more than there was to move.
    fn check_moved(&mut self, now: Instant, stage: Stage, role: Role, moved: u64) -> Result<(), Stage> {
        let Track { flight, times, .. } = &mut self.tracks[stage.index()];
        let most = match (role, *flight) {
            (Role::Driven, Some(flight)) => flight.offset + flight.len,
            (Role::Driven, None) => times.bytes,
            (Role::Observed | Role::Absent, _) => self.len,
        };
        if moved < times.bytes || moved > most {
            return Err(stage);
        }
        if role == Role::Observed && moved > times.bytes {
            times.first_start.get_or_insert(now);
            times.last_end = Some(now);
        }
        times.bytes = moved;
        Ok(())
    }

    /// Moves on a stage that is idle and this engine's: settles the pulse that has ended, starts the next.
    fn move_on(
        &mut self,
        now: Instant,
        reading: &Reading,
        source: Option<&Reading>,
        tuners: &mut [Tuner; Stage::COUNT],
        adapter: &mut impl Adapter,
        trace: &mut impl Trace,
    ) {
        if reading.idle {
            let tuner = &mut tuners[reading.stage.index()];
            self.end_pulse(now, reading.stage, tuner, trace);
            self.start_pulse(now, reading, source, tuner, adapter);
        }
    }

    /// Settles the account of the pulse that has ended on the idle `stage`, if there was one.
    fn end_pulse(&mut self, now: Instant, stage: Stage, tuner: &mut Tuner, trace: &mut impl Trace) {
        let Track { flight, times, .. } = &mut self.tracks[stage.index()];
        let Some(Flight { start, offset, .. }) = flight.take() else {
            return;
        };
        let len = times.bytes - offset;
        times.last_end = Some(now);
        times.pulses = times.pulses.saturating_add(1);
        if self.timed {
            tuner.observe(len, now.saturating_since(start));
        }
        trace.pulse(stage, offset, len, start, now);
    }

    /// Starts a pulse on an idle stage, if the rule finds one.
    fn start_pulse(
        &mut self,
        now: Instant,
        reading: &Reading,
        source: Option<&Reading>,
        tuner: &Tuner,
        adapter: &mut impl Adapter,
    ) {
        let &Reading { stage, moved, .. } = reading;
        let remaining = self.len - moved;
        if remaining == 0 || reading.room == 0 {
            return;
        }
        let track = &mut self.tracks[stage.index()];
        let minpulse = *track.minpulse.get_or_insert_with(|| tuner.minpulse(self.len).min(self.minpulse_max));
        let worth = least(self.policy, minpulse, remaining);
        let Some(len) = next_pulse(self.policy, view(reading, source, self.len, worth), minpulse) else {
            return;
        };
        let len = len.min(longest(self.policy, reading, minpulse, tuner));
        let report_every = match self.policy {
            Policy::StoreAndForward => len,
            Policy::Fixed(length) => length.get(),
            Policy::Adaptive { .. } => self.downstream_minpulse.unwrap_or(worth),
        };
        track.flight = Some(Flight { start: now, offset: moved, len });
        track.times.first_start.get_or_insert(now);
        adapter.start(now, stage, Pulse { offset: moved, len, report_every: report_every.clamp(1, len) });
    }
}

/// What a stage finds, if its source is the stage `source` (none before the first: all of the message is there) and
/// `worth` bytes are worth a pulse to it.
fn view(reading: &Reading, source: Option<&Reading>, len: u64, worth: u64) -> View {
    let &Reading { room, moved, backlog, .. } = reading;
    let remaining = len - moved;
    let (buffered, source_done) = match source {
        None => (remaining, true),
        Some(source) => {
            let buffered = source.moved.saturating_sub(moved);
            let capacity = source.room.saturating_add(buffered);
            (buffered, source.moved == len || must_drain(buffered, capacity, remaining))
        }
    };
    let room = offered_room(room, backlog, worth.min(remaining));
    View { buffered, remaining, room, source_done }
}

/// The longest pulse that makes sense on a stage. A pulse whose progress nobody can see is kept as short as its cost
/// allows, because the next stage has to wait for its end; baselines stay what they are.
fn longest(policy: Policy, reading: &Reading, minpulse: u64, tuner: &Tuner) -> u64 {
    match policy {
        Policy::Adaptive { minpulse: chosen } if !reading.progress => {
            let unseen = minpulse.min(tuner.pulse_max()).max(chosen.map_or(1, NonZeroU64::get));
            unseen.min(reading.pulse_max)
        }
        Policy::Adaptive { .. } | Policy::Fixed(_) | Policy::StoreAndForward => reading.pulse_max,
    }
}
