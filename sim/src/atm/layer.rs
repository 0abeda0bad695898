//! What lies above the adapter: a layer of a host's software that cuts blocks into messages, keeps a window, and
//! acknowledges. Raw access, Active Messages and TCP differ in numbers only.

use std::collections::VecDeque;

use crate::time::Span;

use super::aal5;

/// How a message becomes cells.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Framing {
    /// A message is a cell, as in SSAM.
    Cell,
    /// AAL5.
    Aal5,
}

/// A fixed cost and one for each byte.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Cost {
    pub(crate) fixed: Span,
    /// Picoseconds for each byte.
    pub(crate) byte_ps: u64,
}

impl Cost {
    pub(crate) fn of(self, bytes: u64) -> Span {
        self.fixed + Span::from_ps(self.byte_ps) * bytes
    }
}

/// How arrivals are acknowledged.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Acks {
    /// Bytes of a message that says nothing else.
    pub(crate) bytes: u64,
    /// Host time to send one, and to take one in.
    pub(crate) send: Span,
    pub(crate) receive: Span,
    /// Messages after which one is due, unless a message the other way has said it.
    pub(crate) every: u64,
}

/// A layer.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Layer {
    pub(crate) framing: Framing,
    /// Bytes that the layer adds to a message.
    pub(crate) header: u64,
    /// Most bytes of a block in one message.
    pub(crate) chunk: u64,
    /// Host time for a message, by its bytes of payload.
    pub(crate) send: Cost,
    pub(crate) receive: Cost,
    /// Host time for each block that is handed to the layer.
    pub(crate) write: Span,
    /// Whether blocks run together into full messages, as in a stream.
    pub(crate) stream: bool,
    /// Whether every send looks for arrivals as well.
    pub(crate) polls: bool,
    /// Messages and bytes that may be unacknowledged.
    pub(crate) window: u64,
    pub(crate) window_bytes: u64,
    pub(crate) acks: Option<Acks>,
}

impl Layer {
    /// Cells of a message with so many bytes behind the adapter's door.
    pub(crate) fn cells(&self, bytes: u64) -> u64 {
        match self.framing {
            Framing::Cell => 1,
            Framing::Aal5 => aal5::cells(bytes),
        }
    }
}

/// Blocks that an application has handed to the layer.
#[derive(Debug, Clone)]
pub(crate) struct Job {
    /// Host that gets them.
    pub(crate) to: usize,
    /// Bytes of each.
    pub(crate) block: u64,
    /// How many.
    pub(crate) blocks: u64,
    /// Bytes sent of all of them; messages, if they are empty.
    sent: u64,
}

/// The next part of a job, to go in one message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Part {
    pub(crate) bytes: u64,
    /// Whether it ends a block.
    pub(crate) ends: bool,
    /// Blocks that begin in it.
    pub(crate) writes: u64,
}

impl Job {
    pub(crate) fn new(to: usize, block: u64, blocks: u64) -> Self {
        Self { to, block, blocks, sent: 0 }
    }

    fn total(&self) -> u64 {
        self.block.saturating_mul(self.blocks)
    }

    /// Whether all of it has been sent. Blocks without bytes are messages too: one for each.
    pub(crate) fn is_done(&self) -> bool {
        if self.block == 0 { self.sent == self.blocks } else { self.sent == self.total() }
    }

    /// What would go next; only if the job is not done.
    pub(crate) fn next(&self, layer: &Layer) -> Part {
        if self.block == 0 {
            return Part { bytes: 0, ends: true, writes: 1 };
        }
        let into = self.sent % self.block;
        let left = if layer.stream { self.total() - self.sent } else { self.block - into };
        let bytes = left.min(layer.chunk);
        let end = self.sent + bytes;
        let writes = end.div_ceil(self.block) - self.sent.div_ceil(self.block);
        Part { bytes, ends: if layer.stream { end == self.total() } else { end.is_multiple_of(self.block) }, writes }
    }

    pub(crate) fn advance(&mut self, part: Part) {
        self.sent += if self.block == 0 { 1 } else { part.bytes };
    }
}

/// What a host knows of its talk with one peer.
#[derive(Debug, Clone, Default)]
pub(crate) struct Flow {
    /// Number of the next message.
    next: u64,
    /// Bytes of each message that is not acknowledged: the copies kept to be sent again.
    copies: VecDeque<u64>,
    in_flight: u64,
    /// Number of the message that must come next.
    expected: u64,
    /// Messages taken in since the other side was told.
    owed: u64,
    /// Payload taken in.
    pub(crate) delivered: u64,
    /// Blocks taken in.
    pub(crate) blocks: u64,
    /// Most copies that were ever kept.
    pub(crate) most_copies: usize,
}

impl Flow {
    /// Whether a message of `bytes` bytes may go; a first one always may, however long it is.
    pub(crate) fn is_open(&self, bytes: u64, layer: &Layer) -> bool {
        self.copies.is_empty()
            || ((self.copies.len() as u64) < layer.window && self.in_flight + bytes <= layer.window_bytes)
    }

    /// Numbers a message that goes out, and keeps a copy of it if it is going to be acknowledged.
    pub(crate) fn send(&mut self, bytes: u64, layer: &Layer) -> u64 {
        let number = self.next;
        self.next += 1;
        if layer.acks.is_some() {
            self.copies.push_back(bytes);
            self.in_flight += bytes;
            self.most_copies = self.most_copies.max(self.copies.len());
        }
        number
    }

    /// Takes in an acknowledgement of all messages below `upto`, and drops their copies.
    pub(crate) fn acknowledged(&mut self, upto: u64) {
        while self.next - (self.copies.len() as u64) < upto {
            let Some(bytes) = self.copies.pop_front() else { return };
            self.in_flight -= bytes;
        }
    }

    /// Takes in message `number`. Returns whether it is the one that must come next; another one is not delivered.
    pub(crate) fn receive(&mut self, number: u64) -> bool {
        let right = number == self.expected;
        if right {
            self.expected += 1;
            self.owed += 1;
        }
        right
    }

    /// Whether the other side must be told now what has come.
    pub(crate) fn is_due(&self, layer: &Layer) -> bool {
        layer.acks.is_some_and(|acks| self.owed >= acks.every)
    }

    /// The acknowledgement that goes with a message to the other side.
    pub(crate) fn acknowledge(&mut self) -> u64 {
        self.owed = 0;
        self.expected
    }

    /// Numbers of messages sent and of messages acknowledged.
    #[cfg(test)]
    fn numbers(&self) -> (u64, u64) {
        (self.next, self.next - self.copies.len() as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::{Acks, Cost, Flow, Framing, Job, Layer, Part};
    use crate::time::Span;

    const LAYER: Layer = Layer {
        framing: Framing::Aal5,
        header: 8,
        chunk: 100,
        send: Cost { fixed: Span::ZERO, byte_ps: 0 },
        receive: Cost { fixed: Span::ZERO, byte_ps: 0 },
        write: Span::ZERO,
        stream: false,
        polls: false,
        window: 4,
        window_bytes: 250,
        acks: Some(Acks { bytes: 8, send: Span::ZERO, receive: Span::ZERO, every: 2 }),
    };

    fn parts(mut job: Job, layer: &Layer) -> Vec<Part> {
        let mut parts = Vec::new();
        while !job.is_done() {
            parts.push(job.next(layer));
            job.advance(parts[parts.len() - 1]);
        }
        parts
    }

    #[test]
    fn blocks_are_cut_and_streams_run_together() {
        let sizes = |parts: &[Part]| parts.iter().map(|part| (part.bytes, part.ends, part.writes)).collect::<Vec<_>>();
        let cut = parts(Job::new(0, 130, 2), &LAYER);
        assert_eq!(sizes(&cut), [(100, false, 1), (30, true, 0), (100, false, 1), (30, true, 0)]);
        let stream = Layer { stream: true, ..LAYER };
        assert_eq!(sizes(&parts(Job::new(0, 130, 2), &stream)), [(100, false, 1), (100, false, 1), (60, true, 0)]);
        assert_eq!(sizes(&parts(Job::new(0, 40, 4), &stream)), [(100, false, 3), (60, true, 1)]);
        assert_eq!(sizes(&parts(Job::new(0, 0, 2), &stream)), [(0, true, 1), (0, true, 1)]);
        assert_eq!(sizes(&parts(Job::new(0, 100, 1), &LAYER)), [(100, true, 1)]);
    }

    #[test]
    fn a_window_closes_by_messages_and_by_bytes_and_opens_by_acknowledgement() {
        let mut flow = Flow::default();
        assert!(flow.is_open(1_000, &LAYER));
        for number in 0..2 {
            assert_eq!(flow.send(100, &LAYER), number);
        }
        assert!(flow.is_open(50, &LAYER) && !flow.is_open(51, &LAYER));
        for _ in 0..2 {
            flow.send(1, &LAYER);
        }
        assert!(!flow.is_open(0, &LAYER));
        flow.acknowledged(3);
        assert!(flow.is_open(100, &LAYER));
        assert_eq!(flow.numbers(), (4, 3));
        // An old acknowledgement, and one of what was never sent, change nothing more than they can.
        flow.acknowledged(1);
        assert_eq!(flow.numbers(), (4, 3));
        flow.acknowledged(9);
        assert_eq!(flow.numbers(), (4, 4));
    }

    #[test]
    fn a_message_is_taken_in_once_and_in_order() {
        let mut flow = Flow::default();
        assert!(!flow.receive(1) && flow.receive(0) && !flow.receive(0) && !flow.is_due(&LAYER));
        assert!(flow.receive(1) && flow.is_due(&LAYER));
        assert_eq!(flow.acknowledge(), 2);
        assert!(!flow.is_due(&LAYER));
    }
}
