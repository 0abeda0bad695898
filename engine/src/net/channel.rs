//! One channel over a network: its frames out, its frames in, its times.

mod arrived;
mod quiet;
mod reach;
mod run;
mod send;
mod times;
mod unseal;

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::net::SocketAddr;

use cutthrough_wire::frame::{Header, Kind, LIMITS_BYTES, Limits, Malformed, Note, Opening, Records};
use cutthrough_wire::seal::Seal;

use self::reach::Reach;
use self::times::Stands;
use super::grants::Distance;
use super::inbox::{Bytes, Inbox, Reading};
use super::memory::{Memory, bytes_of, front};
use super::outbox::{Content, Outbox, frame_bytes, widen};
use super::pulses::Pulses;
use super::ways::Ways;
use super::{Settings, Tally};
use crate::check::Breach;
use crate::flow::owed::Owed;
use crate::flow::quiet::Quiet;
use crate::flow::rtt::Rtt;
use crate::flow::seen::{Ack, Seen};
use crate::flow::sent::Sent;
use crate::flow::window::Window;
use crate::time::Instant;

/// Ranges of numbers in a note.
const RANGES: usize = 32;
/// Probe time-outs in a row after which nothing is known of the way any more.
const SILENT: u32 = 4;
/// A peer is dead when it has been asked for a sign of life so often in vain, and nothing was heard of it for as long
/// as it may be silent: time in which this machine, or this process, was stopped says nothing of it.
const QUESTIONS: u32 = 3;
/// Probe time-outs in a row of which one was of a long frame, after which a short one is sent beside it.
const DOUBTS: u32 = 2;
/// Nanoseconds without any acknowledgement before anything is concluded from time-outs: an application, or a machine,
/// that does not look for some milliseconds is no network that loses frames.
const LONG_SILENCE_NS: u64 = 50_000_000;

/// Why a channel over a network has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ending {
    /// This side has closed it.
    Here,
    /// The peer has closed it.
    Peer,
    /// Nothing has been heard of the peer for as long as the settings allow.
    Silent,
    /// The peer broke a rule.
    Breach(Breach),
    /// An operation of this side made no progress, and this side has given the channel up.
    Stalled,
}

/// How a channel ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum End {
    /// It does not.
    None,
    /// This side ends it, after what it has sent; the end itself has been sent or not.
    Here { told: bool, acked: bool },
    /// The other side ends it, after so many messages.
    Peer { messages: u64 },
}

/// Where the body of a frame lies.
#[derive(Debug)]
pub enum Body<'a> {
    /// Aside: all of it, in one piece.
    Aside(&'a mut [u8]),
    /// A payload that has landed where the guess said; before it the opening, if the guess was of a new message.
    Landed {
        /// The opening, with its seal.
        opening: Option<&'a mut [u8]>,
        /// Bytes of payload.
        len: usize,
    },
}

/// Where the bodies of frames lie that came together.
#[derive(Debug)]
pub enum Bodies<'a> {
    /// Where the guess said, one behind the other.
    Landed,
    /// Aside, each behind its header, a frame to every so many bytes, of which there is at least one.
    Aside(&'a mut [u8], usize),
}

/// What the handshake has agreed on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Agreed {
    pub(super) address: SocketAddr,
    pub(super) tag: u32,
    pub(super) generation: u32,
    pub(super) life: u64,
    pub(super) process: u32,
    pub(super) user: u32,
    pub(super) body: u16,
    pub(super) limits: Limits,
}

impl Agreed {
    /// What tells the other side from everybody else who calls, or has called.
    pub(super) const fn caller(&self) -> (SocketAddr, u32, u32) {
        (self.address, self.tag, self.generation)
    }
}

/// An open channel.
pub(super) struct Channel<M: Memory> {
    pub(super) index: usize,
    pub(super) peer: Agreed,
    pub(super) seal: Box<dyn Seal + Send>,
    pub(super) number: u64,
    pub(super) seen: Seen,
    sent: Sent<Content>,
    rtt: Rtt,
    window: Window,
    backoff: u32,
    pub(super) outbox: Outbox<M::Load>,
    pub(super) inbox: Inbox<M::Place>,
    /// What this channel was dealt of the bytes that may be on their way unasked: at least what it may use of them.
    pub(super) dealt: u64,
    reach: Reach,
    probe: Option<u16>,
    pub(super) heard: Instant,
    asked: Instant,
    /// How often it was asked for a sign of life since it was heard.
    questions: u32,
    /// Whether the other side asks for a sign of life, and got none yet.
    is_asked: bool,
    /// When something that was sent was last acknowledged.
    progressed: Instant,
    /// How often anything has come that brings messages on, here or there: their frames, acknowledgements, grants.
    pub(super) strides: u64,
    /// When the other side has said last that bytes of a payload have come.
    pub(super) taken: Instant,
    /// How often it had when it was looked last whether the channel is calm; and since when it is.
    calm: (u64, Instant),
    /// For how long the frame that is taken in may have lain here.
    lag: u64,
    /// Where the payload lies of the last opening that has landed and was proved.
    proved_at: usize,
    /// What has come and is not acknowledged yet.
    owed: Owed,
    /// What the last frame has acknowledged, how long it was held, and when it came, until somebody sees to it.
    unheeded: Option<(Ack, u16, Instant)>,
    /// What was seen to last.
    heeded: Option<Ack>,
    /// Room for what an acknowledgement covers, so that each does not need memory of its own.
    arrived: Vec<Content>,
    /// Whether there was more to send than the window takes when it was last looked.
    waits: bool,
    /// How many quiet moments this side has called; what the other side has just asked for one by; and those that it
    /// has called itself.
    calls: u8,
    pub(super) call_asked: u8,
    quiet: Quiet,
    /// Before this time nothing new is sent, so that a window does not go out all at once.
    paced: Instant,
    /// When the last bytes went that are spread, and how many.
    spreads: (Instant, u64),
    /// How long its batches are.
    pulses: Pulses,
    /// The ways that its frames may go, if there are several.
    pub(super) ways: Option<Box<Ways>>,
    /// Whether what is to be sent waits until nothing is in flight any more, for another way.
    resting: bool,
    note: bool,
    grants: Vec<(u64, u32)>,
    /// Whether a note was lost: all grants that are not used up are told again.
    regrant: bool,
    /// Whether a frame with limits was lost, and none was sent since.
    unlimited: bool,
    /// Whether payloads that are not read do not keep the channel any more.
    pub(super) let_go: bool,
    /// Whether the last frame had landed in a place that its message did not get.
    pub(super) guess_failed: bool,
    pub(super) end: End,
    /// For how long it has made no progress, once it is to end.
    stands: Option<Stands>,
    /// Whether the other side has said that it ends it.
    pub(super) is_closed_there: bool,
    /// When the timer of this channel is set for, so that it is not set twice.
    pub(super) timer_set: Option<Instant>,
    /// Whether it is in the list of channels that have changed.
    pub(super) changed: bool,
    /// Whether it is in the list of channels that may owe an acknowledgement.
    pub(super) owing: bool,
    /// Whether it is in the list of channels that have something to send.
    pub(super) listed: bool,
    /// Since when it waits for company, though it has something to send.
    pub(super) waits_since: Option<Instant>,
    /// Whether it is in the list of channels that have messages ready.
    pub(super) queued: bool,
    pub(super) confirmed: bool,
    /// Whether acknowledgements of what was never sent are let pass.
    #[cfg(feature = "planted")]
    credulous: bool,
}

impl<M: Memory<Load: core::fmt::Debug, Place: core::fmt::Debug>> core::fmt::Debug for Channel<M> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Channel")
            .field("index", &self.index)
            .field("peer", &self.peer.address)
            .field("end", &self.end)
            .field("in_flight", &self.sent.in_flight())
            .field("window", &self.window.bytes())
            .field("backoff", &self.backoff)
            .field("grants", &self.grants)
            .field("outbox", &self.outbox)
            .field("inbox", &self.inbox)
            .finish_non_exhaustive()
    }
}

impl<M: Memory> Channel<M> {
    pub(super) fn new(
        index: usize,
        peer: Agreed,
        seal: Box<dyn Seal + Send>,
        (settings, begin): (&Settings, u64),
        allowance: u64,
        now: Instant,
    ) -> Self {
        Self {
            index,
            peer,
            seal,
            number: begin,
            seen: Seen::starting_at(begin),
            sent: Sent::default(),
            rtt: Rtt::default(),
            window: Window::new(u32::from(peer.body)),
            backoff: 0,
            outbox: Outbox::new(peer.limits, begin),
            inbox: Inbox::new(settings.slots, allowance, begin),
            dealt: allowance,
            reach: Reach::new(peer.body),
            probe: None,
            heard: now,
            asked: now,
            questions: 0,
            is_asked: false,
            progressed: now,
            strides: 0,
            taken: Instant::default(),
            calm: (0, now),
            lag: 0,
            proved_at: 0,
            owed: Owed::default(),
            unheeded: None,
            heeded: None,
            arrived: Vec::new(),
            waits: false,
            calls: 0,
            call_asked: 0,
            quiet: Quiet::default(),
            paced: now,
            spreads: (now, 0),
            ways: None,
            resting: false,
            pulses: Pulses::default(),
            note: false,
            grants: Vec::new(),
            regrant: false,
            unlimited: false,
            let_go: false,
            guess_failed: false,
            end: End::None,
            stands: None,
            is_closed_there: false,
            timer_set: None,
            changed: false,
            owing: false,
            listed: false,
            waits_since: None,
            queued: false,
            confirmed: false,
            #[cfg(feature = "planted")]
            credulous: false,
        }
    }

    #[cfg(feature = "planted")]
    pub(super) fn plant(&mut self, bug: Option<super::Planted>) {
        self.credulous = bug == Some(super::Planted::Unsent);
        self.inbox.plant(bug);
    }

    /// Bytes of the longest frame.
    pub(super) const fn full(&self) -> usize {
        frame_bytes(self.reach.body() as usize)
    }

    /// Takes a frame in that names this channel.
    pub(super) fn receive(
        &mut self,
        (header, head): (&Header, &[u8]),
        body: Body<'_>,
        mut reading: Option<&mut Reading<'_>>,
        memory: &mut M,
        (now, looked): (Instant, Instant),
        tally: &mut Tally,
    ) -> Result<(), Breach> {
        // Unless the message of an opening that has landed gets the place, the frames behind it lie elsewhere.
        self.guess_failed = matches!(&body, Body::Landed { opening: Some(_), .. });
        let (mut body, ok) = self.unseal(header, head, body, memory, reading.as_deref_mut());
        if !ok {
            tally.forged += 1;
            return Ok(());
        }
        if !self.seen.is_new(header.number) {
            tally.duplicates += 1;
            // Our acknowledgement may have been lost. One note must not ask for another.
            self.note |= header.kind != Kind::Note || note_asks(header);
            return Ok(());
        }
        let bytes = match &body {
            Body::Aside(body) => body.len(),
            Body::Landed { len, .. } => *len,
        };
        let taken = self.take_in(header, &mut body, reading, memory, now, tally)?;
        tally.mended_bytes += self.inbox.take_mended();
        if !taken {
            tally.unplaced += 1;
            return Ok(());
        }
        self.count_in(header, 1, frame_bytes(bytes), (now, looked), tally);
        self.acknowledged(header, now)?;
        self.heed_unless_told(tally);
        Ok(())
    }

    /// Remembers that `frames` frames have come, of which this is the last, with so many bytes of frames in all.
    fn count_in(
        &mut self,
        header: &Header,
        frames: u64,
        bytes: usize,
        (now, looked): (Instant, Instant),
        tally: &mut Tally,
    ) {
        self.lag = now.saturating_since(looked);
        let gaps = self.seen.gaps();
        self.seen.insert_run(header.number + 1 - frames, frames);
        let awaited = widen(header.awaited, header.number).min(header.number);
        self.seen.forget_below(awaited);
        let in_flight = (header.number - awaited + 1).saturating_mul(bytes as u64 / frames);
        (self.heard, self.confirmed, self.questions) = (now, true, 0);
        self.hear_calls(header, now);
        let of_messages = matches!(header.kind, Kind::Records | Kind::Open | Kind::Data);
        self.strides += u64::from(of_messages);
        tally.frames_received += frames;
        if !matches!(header.kind, Kind::Note) || note_asks(header) {
            let round = self.rtt.usual();
            self.owed.came(bytes as u64, (in_flight, header.waits), (now, looked), round);
            if of_messages {
                self.owed.may_be_answered();
            }
            // The sender waits to hear that something was lost, and that it has come again (RFC 9000, section 13.2.1).
            self.note |= self.seen.gaps() != gaps || self.seen.has_late();
        }
    }

    pub(super) fn message(&self, header: &Header) -> u64 {
        widen(header.words[0], self.inbox.received())
    }

    /// What the frame says. False if there is no memory for it now.
    fn take_in(
        &mut self,
        header: &Header,
        body: &mut Body<'_>,
        reading: Option<&mut Reading<'_>>,
        memory: &mut M,
        now: Instant,
        tally: &mut Tally,
    ) -> Result<bool, Breach> {
        let message = self.message(header);
        match (header.kind, body) {
            (Kind::Records, Body::Aside(body)) => {
                let (limits, records) = body.split_at_checked(LIMITS_BYTES).ok_or(Breach::Descriptor)?;
                let records = Records::new(records);
                if !records.are(header.words[1]) {
                    return Err(Breach::Descriptor);
                }
                self.inbox.records(message, header.words[1], records)?;
                self.outbox.allow(Limits::from_bytes(limits), header.number);
            }
            (Kind::Open, Body::Aside(body)) => {
                let (opening, payload) = body.split_first_chunk().ok_or(Breach::Descriptor)?;
                let opening = Opening::from_bytes(opening).map_err(|_: Malformed| Breach::Descriptor)?;
                self.outbox.allow(opening.limits, header.number);
                self.inbox.open(message, Box::new(opening), self.index, memory, now)?;
                self.count_miss(message, (1, payload.len()), tally);
                return self.inbox.data(message, 0, &Bytes::Here(payload), reading, now);
            }
            (Kind::Open, Body::Landed { opening: Some(opening), len }) => {
                let opening = opening.first_chunk().ok_or(Breach::Descriptor)?;
                let opening = Opening::from_bytes(opening).map_err(|_: Malformed| Breach::Descriptor)?;
                self.outbox.allow(opening.limits, header.number);
                let guessed = self.inbox.open(message, Box::new(opening), self.index, memory, now)?;
                let there = u32::try_from(*len).map_err(|_| Breach::Length)?;
                if guessed {
                    self.guess_failed = false;
                    tally.hit(*len);
                    let there = Bytes::There { len: there, frames: 1, full: there };
                    return self.inbox.data(message, 0, &there, reading, now);
                }
                self.count_miss(message, (1, *len), tally);
                // To find the place may have taken what was guessed, with what has landed there: that comes again.
                let guess = memory.guess(self.index);
                let there = guess.and_then(|place| (front(place, *len) == self.proved_at).then_some(place));
                let aside = there.map(|place| bytes_of(place, *len)).unwrap_or_default();
                if aside.len() < *len {
                    return Ok(false);
                }
                return self.inbox.data(message, 0, &Bytes::Here(&aside), reading, now);
            }
            (Kind::Data, Body::Aside(body)) => {
                self.count_miss(message, (1, body.len()), tally);
                return self.inbox.data(message, header.words[1], &Bytes::Here(body), reading, now);
            }
            (Kind::Data, Body::Landed { opening: None, len }) => {
                tally.hit(*len);
                let there = u32::try_from(*len).map_err(|_| Breach::Length)?;
                let there = Bytes::There { len: there, frames: 1, full: there };
                return self.inbox.data(message, header.words[1], &there, reading, now);
            }
            (Kind::Note, Body::Aside(body)) => {
                let note = Note::from_bytes(body).map_err(|_: Malformed| Breach::Descriptor)?;
                self.outbox.allow(note.limits, header.number);
                self.noted(&note, header.held, now, tally)?;
            }
            (Kind::Probe, Body::Aside(body)) => self.asks(now, low16(body.len())),
            (Kind::Close, Body::Aside(_)) => {
                if self.end == End::None {
                    self.end = End::Peer { messages: message };
                }
                (self.note, self.is_closed_there) = (true, true);
            }
            _ => return Err(Breach::Descriptor),
        }
        Ok(true)
    }

    /// Counts frames whose payload has to be copied to the place that their message has.
    fn count_miss(&mut self, message: u64, (frames, len): (usize, usize), tally: &mut Tally) {
        if len > 0 && self.inbox.landing(message).is_some() {
            tally.misses += frames as u64;
        }
    }

    /// Whether there is anything to send now.
    pub(super) fn has_work(&self, now: Instant) -> bool {
        let room = self.window.room(self.sent.in_flight()) > 0;
        self.note_is_due(now)
            || self.probe.is_some()
            || matches!(self.end, End::Here { told: false, .. }) && self.outbox.waiting() == 0
            || room && now >= self.paced && !self.rests() && self.outbox.has_next()
    }

    /// Whether messages wait until those before them, which went another way, have arrived. What goes beside messages
    /// has no order to keep: a peer that streams itself asks for it all the time.
    fn rests(&self) -> bool {
        self.resting && self.sent.any(|content| content.is_of_messages())
    }

    /// Whether the other side waits for an acknowledgement, or should hear anything else of what it has sent.
    pub(super) fn owes_a_note(&self) -> bool {
        self.note_is_due(Instant::from_nanos(u64::MAX))
    }

    fn note_is_due(&self, now: Instant) -> bool {
        self.has_to_tell() || self.ack_at().is_some_and(|at| now >= at)
    }

    /// Whether there is anything to say that messages do not say by the way, or that none has said yet.
    pub(super) fn has_to_tell(&self) -> bool {
        self.tells() || self.unlimited || self.inbox.limits_are_old()
    }

    /// Whether there is anything to say that messages do not say by the way.
    fn tells(&self) -> bool {
        self.note || !self.grants.is_empty() || self.regrant || self.inbox.tells_unwanted()
    }

    /// When an acknowledgement goes out although nothing else does.
    fn ack_at(&self) -> Option<Instant> {
        self.owed.at(self.rtt.smoothed())
    }

    /// Whether an acknowledgement waits for company.
    pub(super) const fn owes(&self) -> bool {
        self.owed.is_some()
    }

    /// Sends what waits for company, before this side goes to sleep.
    pub(super) fn hurry(&mut self) {
        self.note |= self.owed.is_some();
    }

    /// Grants the other side bytes of a payload.
    pub(super) fn grant(&mut self, message: u64, upto: u32) {
        self.inbox.granted(message, upto);
        self.grants.push((message, upto));
    }

    /// The system refuses frames of so many bytes.
    pub(super) fn too_long(&mut self, now: Instant, bytes: usize) {
        self.reach.shorten(now, u32::try_from(bytes).unwrap_or(u32::MAX));
    }

    /// How far away the other side is.
    pub(super) fn distance(&self) -> Distance {
        Distance { round_ns: self.rtt.smoothed(), least_ns: self.rtt.least() }
    }

    /// After how long the other side sends again what this side has not acknowledged, if its way is as long as ours.
    pub(super) fn probe_ns(&self) -> u64 {
        self.rtt.probe_timeout(0, 0)
    }

    /// Asks the other side for a sign of life.
    pub(super) const fn probe(&mut self, body: u16) {
        self.probe = Some(body);
    }
}

/// Whether a note wants to be acknowledged: one with grants does.
const fn note_asks(header: &Header) -> bool {
    header.words[0] == 1
}

#[allow(clippy::cast_possible_truncation, reason = "a body has at most 64 KiB")]
pub(super) const fn low16(len: usize) -> u16 {
    len as u16
}

#[allow(clippy::cast_possible_truncation, reason = "a frame has at most 64 KiB")]
const fn low32(len: usize) -> u32 {
    len as u32
}
