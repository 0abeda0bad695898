//! What two hosts have agreed on: a stream of messages by TCP, or pages that are asked for one by one.

use std::collections::VecDeque;

use super::world::Segment;
use crate::time::{Span, Time};

/// What goes over a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Messages one after the other, with TCP's window and acknowledgements.
    Stream {
        /// Whether the sender asks before each message.
        asks: bool,
    },
    /// Datagrams, each asked for by the receiver when it has the one before.
    Fetch,
}

/// A connection, as both of its ends see it.
#[derive(Debug)]
pub(crate) struct Connection {
    pub kind: Kind,
    pub from: usize,
    pub to: usize,
    /// Bytes of each message.
    pub payload: u64,
    /// Messages.
    pub count: u64,

    /// Messages that the sender has begun.
    pub begun: u64,
    /// Bytes of the message that have not been sent.
    pub left: u64,
    /// Segments sent.
    pub segments: u64,
    /// Bytes sent.
    pub sent: u64,
    /// Up to where the receiver takes them.
    pub edge: u64,
    /// Whether the sending process is at work.
    pub sending: bool,
    /// Whether it had to wait.
    pub blocked: bool,
    /// Whether it has asked to send its message, and whether it may.
    pub asked: bool,
    pub granted: bool,
    /// Pauses between messages, and whether one of them is on.
    pub pauses: VecDeque<Span>,
    pub resting: bool,

    /// Bytes that the receiver's stack has.
    pub received: u64,
    /// Up to where it has said that it takes them.
    pub advertised: u64,
    /// Segments since the last acknowledgement.
    pub unacknowledged: u64,
    pub unread: VecDeque<Segment>,
    pub unread_bytes: u64,
    /// Whether the reading process is at work.
    pub reading: bool,
    /// Bytes read.
    pub read: u64,

    /// When each of the first message's and the last byte was read.
    pub first_done: Option<Time>,
    pub last_done: Option<Time>,
}

impl Connection {
    /// `count` messages of `payload` bytes; a stream has a window of `window` bytes.
    pub(crate) fn new(kind: Kind, from: usize, to: usize, payload: u64, count: u64, window: u64) -> Self {
        Self {
            kind,
            from,
            to,
            payload,
            count,
            begun: 0,
            left: 0,
            segments: 0,
            sent: 0,
            edge: window,
            sending: false,
            blocked: false,
            asked: false,
            granted: false,
            pauses: VecDeque::new(),
            resting: false,
            received: 0,
            advertised: window,
            unacknowledged: 0,
            unread: VecDeque::new(),
            unread_bytes: 0,
            reading: false,
            read: 0,
            first_done: None,
            last_done: None,
        }
    }

    /// Bytes have been read.
    pub(crate) fn read(&mut self, bytes: u64, now: Time) {
        self.read += bytes;
        self.unread_bytes -= bytes;
        if self.read >= self.payload && self.first_done.is_none() {
            self.first_done = Some(now);
        }
        self.last_done = Some(now);
    }

    /// Whether the window has opened so far that the sender should hear of it: to twice of what it knows of.
    pub(crate) fn window_opened(&self, window: u64, segment: u64) -> bool {
        let known = self.advertised.saturating_sub(self.received);
        let free = window.saturating_sub(self.unread_bytes);
        free > known && free >= 2 * known && free >= 2 * segment
    }

    /// The receiver acknowledges all that it has, and says how much it takes. Returns up to where.
    pub(crate) fn acknowledge(&mut self, window: u64) -> u64 {
        self.unacknowledged = 0;
        self.advertised = self.received + window.saturating_sub(self.unread_bytes);
        self.advertised
    }
}
