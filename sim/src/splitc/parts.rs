//! What a platform's file says of a cluster: its processors, and what a message costs.

use cutthrough_space::Work;

use crate::platform::{Platform, PlatformError};
use crate::time::{Rate, Span};

/// Lanes of a window: short messages, and chunks of bulk transfers.
pub(crate) const SHORT: usize = 0;
pub(crate) const BULK: usize = 1;

/// Nodes that are all the same, and the network between them.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Machine {
    /// Time for one operation.
    integer: Span,
    float: Span,
    /// Processor time to send a message and to take one in.
    send: Span,
    handle: Span,
    /// Processor time for each byte of a bulk message, at either side, in picoseconds.
    copy_ps: u64,
    /// From the sender's port to the receiver's, for a message of no length; and what a bulk message needs more.
    latency: Span,
    bulk_extra: Span,
    /// What a message takes of a port besides its bytes; the port's rate; bytes that a message adds.
    gap: Span,
    rate: Rate,
    header: u64,
    /// Most bytes of a short message, and of a chunk.
    short: u64,
    chunk: u64,
    /// Requests to one node that may be without an answer, by lane.
    pub(crate) window: [u64; 2],
    /// Nodes of the machine.
    pub(crate) hosts: usize,
}

/// Most nodes: each keeps a window for every other.
const MOST_HOSTS: u64 = 1024;

impl Machine {
    pub(crate) fn read(platform: &Platform) -> Result<Self, PlatformError> {
        let [send, handle] = [platform.time("message.send")?, platform.time("message.handle")?];
        let copies = platform.has("bulk.copy");
        let copy_ps = if copies { platform.rate("bulk.copy")?.span(1_000_000).as_ps() / 1_000_000 } else { 0 };
        let positive = |key: &str, value: u64| match value {
            0 => Err(platform.refuse(key, "must be at least 1")),
            value => Ok(value),
        };
        let mut machine = Self {
            integer: platform.time("processor.integer")?,
            float: platform.time("processor.float")?,
            send,
            handle,
            copy_ps,
            latency: Span::ZERO,
            bulk_extra: platform.time("bulk.extra")?,
            gap: platform.time("port.gap")?,
            rate: platform.rate("port.rate")?,
            header: platform.size("message.header")?,
            short: platform.size("message.short")?,
            chunk: positive("bulk.chunk", platform.size("bulk.chunk")?)?,
            window: [
                positive("message.window", platform.count("message.window")?)?,
                positive("bulk.window", platform.count("bulk.window")?)?,
            ],
            hosts: 0,
        };
        let hosts = positive("hosts", platform.count("hosts")?)?;
        if hosts > MOST_HOSTS {
            return Err(platform.refuse("hosts", "at most 1024"));
        }
        machine.hosts = usize::try_from(hosts).unwrap_or(usize::MAX);
        let half = Span::from_ps(platform.time("message.round_trip")?.as_ps() / 2);
        let known = send + handle + machine.on_port(machine.short);
        if half < known {
            let why = "is less than two messages take in the processors and the ports";
            return Err(platform.refuse("message.round_trip", why));
        }
        machine.latency = half - known;
        platform.all_used()?;
        Ok(machine)
    }

    /// Time that a port is taken by a message of `bytes` bytes.
    pub(crate) fn on_port(&self, bytes: u64) -> Span {
        self.gap + self.rate.span(self.header.saturating_add(bytes))
    }

    /// Time from one port to the other.
    pub(crate) fn travel(&self, bytes: u64) -> Span {
        if bytes > self.short { self.latency + self.bulk_extra } else { self.latency }
    }

    /// Processor time to send `bytes` bytes.
    pub(crate) fn send_cost(&self, bytes: u64) -> Span {
        self.send + self.copy(bytes)
    }

    /// Processor time to take `bytes` bytes in.
    pub(crate) fn handle_cost(&self, bytes: u64) -> Span {
        self.handle + self.copy(bytes)
    }

    fn copy(&self, bytes: u64) -> Span {
        if bytes > self.short { Span::from_ps(self.copy_ps) * bytes } else { Span::ZERO }
    }

    pub(crate) fn time_of(&self, work: Work) -> Span {
        self.integer * work.integer + self.float * work.float
    }

    /// Whether a transfer of so many bytes is short or bulk.
    pub(crate) const fn lane(&self, bytes: u64) -> usize {
        if bytes > self.short { BULK } else { SHORT }
    }

    /// Messages that so many bytes are cut into.
    pub(crate) fn parts(&self, bytes: u64) -> u64 {
        bytes.div_ceil(self.chunk_of(self.lane(bytes)).max(1)).max(1)
    }

    /// Most bytes of one message of a lane.
    pub(crate) const fn chunk_of(&self, lane: usize) -> u64 {
        if lane == BULK { self.chunk } else { self.short }
    }
}
