//! What moves frames: bus, adapters, links and the switch, each one transfer at a time.

use std::collections::VecDeque;

use cutthrough_engine::place::Part;

use super::frame::Length;
use crate::time::{Span, Time};

/// What a frame is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum What {
    /// A part of a segment (of TCP) or datagram.
    Data {
        /// Which of the connection.
        segment: u64,
        /// Its bytes.
        bytes: u64,
        /// How many frames it travels in.
        frames: usize,
        /// Which part of a page this frame carries, if it is a page that the receiver may guess.
        part: Option<Part>,
        /// Whether it ends a message.
        last: bool,
    },
    /// An acknowledgement: bytes received, and up to where the window reaches.
    Ack { edge: u64 },
    /// A driver asks to send so many bytes in one burst.
    Ask { bytes: u64 },
    /// It may.
    Grant,
    /// A page is asked for.
    Request,
}

/// What crosses the wire.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Frame {
    pub connection: usize,
    /// The host that it goes to.
    pub to: usize,
    pub length: Length,
    /// Descriptors that the sending adapter gathers it from.
    pub descriptors: u64,
    pub what: What,
}

/// When a part of the machine was at work.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Meter {
    pub span: Option<(Time, Time)>,
    pub busy: Span,
    pub pulses: u64,
}

impl Meter {
    /// It has just been at work for `busy`.
    pub(crate) fn worked(&mut self, until: Time, busy: Span) {
        let from = Time::START + (until.saturating_since(Time::START) - busy);
        let first = self.span.map_or(from, |(first, _)| first);
        self.span = Some((first, until));
        self.busy += busy;
        self.pulses += 1;
    }
}

/// Which way bytes cross a host's bus.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Way {
    /// From memory to the adapter.
    Out,
    /// From the adapter to memory.
    In,
}

/// A host's I/O bus: one transfer at a time, first come, first served.
#[derive(Debug, Default)]
pub(crate) struct Bus {
    /// The first of these is under way.
    wanted: VecDeque<(Way, Span)>,
    pub meter: Meter,
}

impl Bus {
    /// Asks for the bus. Returns when to come back, if it is free.
    pub(crate) fn want(&mut self, way: Way, span: Span) -> Option<Span> {
        self.wanted.push_back((way, span));
        (self.wanted.len() == 1).then_some(span)
    }

    /// The transfer is over: which way it went, and how long the next one takes.
    pub(crate) fn done(&mut self, now: Time) -> Option<(Way, Option<Span>)> {
        let (way, span) = self.wanted.pop_front()?;
        self.meter.worked(now, span);
        Some((way, self.wanted.front().map(|&(_, span)| span)))
    }
}

/// A sending adapter and its link to the switch.
#[derive(Debug, Default)]
pub(crate) struct Sender {
    /// Frames that the driver has posted.
    pub ring: VecDeque<Frame>,
    /// The frame that is being fetched from memory.
    pub fetching: Option<Frame>,
    /// Frames in the adapter.
    pub fifo: VecDeque<Frame>,
    pub fifo_bytes: u64,
    /// The frame on the link.
    pub link: Option<Frame>,
    /// Whether the switch has stopped the link.
    pub held: bool,
    pub meter: Meter,
}

/// A port of the switch, and its link to a receiving adapter.
#[derive(Debug, Default)]
pub(crate) struct Port {
    pub queue: VecDeque<Frame>,
    /// Bytes in the queue and on their way into it.
    pub bytes: u64,
    pub link: Option<Frame>,
    pub meter: Meter,
    /// Hosts whose links wait for room here, the first to go on first.
    pub holds: VecDeque<usize>,
}
