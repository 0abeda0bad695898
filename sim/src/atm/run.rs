//! Whole machines at work: a stream of blocks, or one question after another.

use std::num::NonZeroU64;

use cutthrough_engine::pulse::Policy;

use crate::platform::{Platform, PlatformError};
use crate::point::{Point, PointError};
use crate::time::{Span, Time};

use super::aal5;
use super::firmware::Firmware;
use super::layer::{Acks, Cost, Framing, Job, Layer};
use super::parts::{Calls, Coprocessor, Nic, Traps, Wire};
use super::world::{Delivered, RECEIVER, World};

/// Most payload of one run: an hour of simulated fibre, and hours of ours.
const MOST_BYTES: u64 = 1 << 36;

/// Firmware that takes a cell as soon as there is one.
pub(crate) fn cell_by_cell() -> Policy {
    Policy::Adaptive { minpulse: NonZeroU64::new(aal5::PAYLOAD as u64) }
}

/// Two or more hosts, and how their adapters' firmware decides.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Machine {
    pub(crate) nic: Nic,
    pub(crate) wire: Wire,
    pub(crate) send: Policy,
    pub(crate) recv: Policy,
}

impl Machine {
    pub(crate) fn new(nic: Nic, wire: Wire) -> Self {
        Self { nic, wire, send: cell_by_cell(), recv: cell_by_cell() }
    }

    fn world(&self, layer: Layer, senders: usize) -> World {
        World::new(self.nic, self.wire, layer, senders, &Firmware::new(self.send, self.recv))
    }

    /// Lets each of `senders` hosts send `count` blocks of `block` bytes to one receiver.
    pub(crate) fn stream(&self, layer: Layer, senders: usize, block: u64, count: u64) -> Stream {
        let mut world = self.world(layer, senders);
        world.block = block;
        for host in &mut world.hosts[1..] {
            host.jobs.push_back(Job::new(RECEIVER, block, count));
        }
        world.run();
        Stream { events: world.heap.taken(), delivered: world.delivered, world }
    }

    /// Time from a question of `question` bytes until its answer of `answer` bytes is there: the mean of `rounds`, of
    /// which each meets the polling of the other side in another phase. The second value is the number of events.
    pub(crate) fn round_trip(&self, layer: Layer, question: u64, answer: u64, rounds: u64) -> (Span, u64) {
        let mut world = self.world(layer, 1);
        world.block = question;
        world.hosts[RECEIVER].answer = Some(answer);
        world.hosts[1].jobs.push_back(Job::new(RECEIVER, question, 1));
        world.hosts[1].question = question;
        world.hosts[1].rounds = rounds.saturating_sub(1);
        world.run();
        let whole = (world.delivered.answered - Time::START).as_ps();
        (Span::from_ps(whole / rounds.max(1)), world.heap.taken())
    }
}

/// A stream that is over.
#[derive(Debug)]
pub(crate) struct Stream {
    pub(crate) events: u64,
    pub(crate) delivered: Delivered,
    pub(crate) world: World,
}

impl Stream {
    /// Bytes per second once the first block is there: the rate of a stream that lasts.
    pub(crate) fn steady(&self) -> f64 {
        let first = self.delivered.first.unwrap_or_default();
        let span = self.delivered.last - first;
        let bytes = self.delivered.bytes - self.delivered.until_first;
        if span == Span::ZERO { self.overall() } else { bytes as f64 / span.as_s() }
    }

    /// Bytes per second of the whole run.
    pub(crate) fn overall(&self) -> f64 {
        let span = self.delivered.last - Time::START;
        if span == Span::ZERO { 0.0 } else { self.delivered.bytes as f64 / span.as_s() }
    }

    /// The answer to a query.
    pub(crate) fn point(&self) -> Result<Point, PointError> {
        let Delivered { first, lost, disordered, .. } = self.delivered;
        if lost > 0 || disordered > 0 {
            let why = "an input FIFO overflowed and a cell was lost, which this model does not send again";
            return Err(PointError::Impossible(format!("{why}; ask for fewer senders, or a larger `fifo.in`")));
        }
        let first = first.ok_or_else(|| PointError::Impossible("the stream never got through".to_owned()))?;
        Ok(Point {
            one_way_us: first.as_us(),
            bytes_per_s: self.overall(),
            stages: self.world.stages(),
            events: self.events,
        })
    }
}

/// Refuses what would have no answer, or none today. Returns the number of senders.
pub(crate) fn reasonable(payload: u64, count: u64, senders: u32) -> Result<usize, PointError> {
    let refuse = |why: &str| Err(PointError::Impossible(why.to_owned()));
    if count == 0 || senders == 0 {
        return refuse("at least one sender must send at least one message");
    }
    if payload.max(1).saturating_mul(count).saturating_mul(u64::from(senders)) > MOST_BYTES {
        return refuse("that is more than 64 GiB to simulate; ask for fewer or shorter messages");
    }
    usize::try_from(senders).map_err(|_| PointError::Impossible("too many senders".to_owned()))
}

/// Messages that one of `senders` may have under way so that all of them together cannot overrun the receiver's FIFO.
fn share(wire: &Wire, senders: usize, cells: u64, window: u64) -> Result<u64, PointError> {
    let room = (wire.input / senders) as u64;
    if room == 0 {
        let why = format!("{senders} senders cannot share an input FIFO of {} cells", wire.input);
        return Err(PointError::Impossible(why));
    }
    Ok(window.min(room / cells).max(1))
}

/// SSAM on a host with an SBA-100.
#[derive(Debug)]
pub(crate) struct Ssam {
    pub(crate) wire: Wire,
    pub(crate) traps: Traps,
    pub(crate) calls: Calls,
    pub(crate) null_call: Span,
    pub(crate) send: Span,
    pub(crate) handle: Span,
    pub(crate) window: u64,
    pub(crate) slot: u64,
}

/// Bytes of data in a cell of SSAM: 10 words.
pub(crate) const SSAM_DATA: u64 = 40;
/// The same, if one word says where the data goes.
pub(crate) const SSAM_BULK: u64 = SSAM_DATA - 4;

impl Ssam {
    pub(crate) fn read(platform: &Platform) -> Result<Self, PlatformError> {
        let traps = Traps::read(platform)?;
        let window = platform.count("am.window")?;
        if window == 0 {
            return Err(platform.refuse("am.window", "a window must let at least 1 cell through"));
        }
        let ssam = Self {
            wire: Wire::read(platform)?,
            calls: Calls::read(platform, &traps)?,
            traps,
            null_call: platform.time("syscall.null")?,
            send: platform.time("am.send")?,
            handle: platform.time("am.handle")?,
            window,
            slot: platform.size("am.slot")?,
        };
        platform.all_used()?;
        Ok(ssam)
    }

    /// Two hosts back to back, as in the paper.
    pub(crate) fn pair(&self) -> Machine {
        Machine::new(Nic::Fifo(self.traps.access(Span::ZERO)), self.wire.back_to_back())
    }

    /// The layer, with `chunk` bytes of data in each cell.
    pub(crate) fn layer(&self, chunk: u64) -> Layer {
        let byte_ps = self.traps.copy().as_ps() / aal5::PAYLOAD as u64;
        let acks = Acks { bytes: 0, send: self.send, receive: self.handle, every: (self.window / 4).max(1) };
        Layer {
            framing: Framing::Cell,
            header: aal5::PAYLOAD as u64 - SSAM_DATA,
            chunk,
            send: Cost { fixed: self.send, byte_ps },
            receive: Cost { fixed: self.handle, byte_ps },
            write: Span::ZERO,
            stream: false,
            polls: true,
            window: self.window,
            window_bytes: u64::MAX,
            acks: Some(acks),
        }
    }

    /// Long messages, as the authors proposed them: the header goes once, and cells are all data.
    pub(crate) fn long_messages(&self) -> Layer {
        let layer = self.layer(aal5::PAYLOAD as u64);
        let cost = Cost { fixed: Span::ZERO, byte_ps: layer.send.byte_ps };
        Layer { header: 0, send: cost, receive: cost, write: self.send + self.handle, ..layer }
    }

    /// Pinned memory for the window of one connection, in bytes: four windows of cells.
    pub(crate) fn pinned(&self) -> u64 {
        4 * self.window * self.slot
    }

    pub(crate) fn point(&self, by_call: bool, payload: u64, count: u64, senders: u32) -> Result<Point, PointError> {
        let senders = reasonable(payload, count, senders)?;
        let access = if by_call { self.calls.access() } else { self.traps.access(Span::ZERO) };
        let wire = if senders == 1 { self.wire.back_to_back() } else { self.wire };
        let window = share(&wire, senders, 1, self.window)?;
        let layer = self.layer(if payload <= SSAM_DATA { SSAM_DATA } else { SSAM_BULK });
        let acks = layer.acks.map(|acks| Acks { every: (window / 4).max(1), ..acks });
        let layer = Layer { window, acks, ..layer };
        Machine::new(Nic::Fifo(access), wire).stream(layer, senders, payload, count).point()
    }
}

/// U-Net endpoints that the kernel emulates over an SBA-100, with AAL5 in software.
#[derive(Debug)]
pub(crate) struct Emulated {
    wire: Wire,
    traps: Traps,
    crc: Span,
    send: Span,
    receive: Span,
}

impl Emulated {
    pub(crate) fn read(platform: &Platform) -> Result<Self, PlatformError> {
        let emulated = Self {
            wire: Wire::read(platform)?,
            traps: Traps::read(platform)?,
            crc: platform.time("aal5.crc")?,
            send: platform.time("endpoint.send")?,
            receive: platform.time("endpoint.receive")?,
        };
        platform.all_used()?;
        Ok(emulated)
    }

    pub(crate) fn machine(&self) -> Machine {
        Machine::new(Nic::Fifo(self.traps.access(self.crc)), self.wire)
    }

    /// Raw messages of `payload` bytes. Receiving takes longer than sending, so a stream of them needs a window: as
    /// many cells as the receivers' FIFO holds.
    pub(crate) fn layer(&self, payload: u64, senders: usize) -> Result<Layer, PointError> {
        let chunk = aal5::LONGEST as u64;
        let window = share(&self.wire, senders, aal5::cells(payload.min(chunk)), u64::MAX)?;
        let acks = Acks { bytes: 0, send: self.send, receive: self.receive, every: (window / 4).max(1) };
        Ok(Layer {
            framing: Framing::Aal5,
            header: 0,
            chunk,
            send: Cost { fixed: self.send, byte_ps: 0 },
            receive: Cost { fixed: self.receive, byte_ps: 0 },
            write: Span::ZERO,
            stream: false,
            polls: false,
            window,
            window_bytes: u64::MAX,
            acks: Some(acks),
        })
    }

    /// Host time to send and to receive a cell of AAL5.
    pub(crate) fn cell_costs(&self) -> [Span; 2] {
        [self.crc + self.traps.write(), self.crc + self.traps.cell()]
    }

    pub(crate) fn point(&self, payload: u64, count: u64, senders: u32) -> Result<Point, PointError> {
        let senders = reasonable(payload, count, senders)?;
        self.machine().stream(self.layer(payload, senders)?, senders, payload, count).point()
    }
}

/// What every host with an SBA-200 has.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Base {
    pub(crate) wire: Wire,
    pub(crate) firmware: Coprocessor,
    /// Host time to find a message in the receive queue.
    poll: Span,
}

/// Messages of each of several senders that may be under way, so that the switch's queue stays short.
const RAW_WINDOW: u64 = 8;

impl Base {
    pub(crate) fn read(platform: &Platform) -> Result<Self, PlatformError> {
        let firmware = Coprocessor::read(platform)?;
        Ok(Self { wire: Wire::read(platform)?, firmware, poll: platform.time("host.poll")? })
    }

    pub(crate) fn machine(&self) -> Machine {
        Machine::new(Nic::Coprocessor(self.firmware), self.wire)
    }

    /// Raw messages. One sender cannot overrun a receiver that is as fast, and needs no window; several keep one.
    pub(crate) fn raw(&self, senders: usize) -> Layer {
        let acks = Acks { bytes: 0, send: Span::ZERO, receive: self.poll, every: RAW_WINDOW / 4 };
        Layer {
            framing: Framing::Aal5,
            header: 0,
            chunk: aal5::LONGEST as u64,
            send: Cost::default(),
            receive: Cost { fixed: self.poll, byte_ps: 0 },
            write: Span::ZERO,
            stream: false,
            polls: false,
            window: if senders == 1 { u64::MAX } else { RAW_WINDOW },
            window_bytes: u64::MAX,
            acks: (senders > 1).then_some(acks),
        }
    }

    /// Raw messages with firmware that decides by these rules.
    pub(crate) fn point(
        &self,
        [send, recv]: [Policy; 2],
        payload: u64,
        count: u64,
        senders: u32,
    ) -> Result<Point, PointError> {
        let senders = reasonable(payload, count, senders)?;
        let machine = Machine { send, recv, ..self.machine() };
        let mut layer = self.raw(senders);
        if senders > 1 {
            layer.window = share(&self.wire, senders, layer.cells(payload.min(layer.chunk)), RAW_WINDOW)?;
            layer.acks = layer.acks.map(|acks| Acks { every: (layer.window / 4).max(1), ..acks });
        }
        machine.stream(layer, senders, payload, count).point()
    }
}

/// U-Net on the SBA-200, with Active Messages and TCP above it.
#[derive(Debug)]
pub(crate) struct Unet {
    pub(crate) base: Base,
    pub(crate) uam: Layer,
    pub(crate) tcp: Layer,
}

impl Unet {
    pub(crate) fn read(platform: &Platform) -> Result<Self, PlatformError> {
        let base = Base::read(platform)?;
        let copy_ps = platform.rate("host.copy")?.span(1_000_000).as_ps() / 1_000_000;
        let [send, handle] = [platform.time("am.send")?, platform.time("am.handle")?];
        let (header, window) = (platform.size("am.header")?, platform.count("am.window")?);
        let receive = base.poll + handle;
        let cost = |fixed, byte_ps| Cost { fixed, byte_ps };
        let uam = Layer {
            header,
            chunk: positive(platform, "am.chunk")?,
            send: cost(send, copy_ps),
            receive: cost(receive, copy_ps),
            window,
            acks: Some(Acks { bytes: header, send, receive, every: (window / 4).max(1) }),
            ..base.raw(1)
        };
        if window == 0 {
            return Err(platform.refuse("am.window", "a window must let at least 1 message through"));
        }
        let segment = platform.time("tcp.segment")?;
        let byte_ps = copy_ps + platform.rate("tcp.checksum")?.span(1_000_000).as_ps() / 1_000_000;
        let header = platform.size("tcp.header")?;
        let tcp = Layer {
            header,
            chunk: positive(platform, "tcp.chunk")?,
            send: cost(segment, byte_ps),
            receive: cost(base.poll + segment, byte_ps),
            write: platform.time("tcp.write")?,
            stream: true,
            window_bytes: platform.size("tcp.window")?,
            acks: Some(Acks { bytes: header, send: segment, receive: base.poll + segment, every: TCP_ACK_EVERY }),
            ..base.raw(1)
        };
        platform.all_used()?;
        Ok(Self { base, uam, tcp })
    }
}

/// Segments that TCP acknowledges at once (RFC 1122, 4.2.3.2).
const TCP_ACK_EVERY: u64 = 2;

/// The vendor's firmware on the SBA-200, and the kernel's TCP above it.
#[derive(Debug)]
pub(crate) struct Vendor {
    pub(crate) base: Base,
    tcp: Layer,
    call: Span,
    /// Time for one kernel buffer, bytes of a large one and of a small one.
    mbuf: Span,
    cluster: u64,
    small: u64,
}

impl Vendor {
    pub(crate) fn read(platform: &Platform) -> Result<Self, PlatformError> {
        let base = Base::read(platform)?;
        let byte_ps = platform.rate("kernel.bytes")?.span(1_000_000).as_ps() / 1_000_000;
        let (fixed, header) = (platform.time("kernel.pass")?, platform.size("kernel.header")?);
        let cost = Cost { fixed, byte_ps };
        let tcp = Layer {
            header,
            chunk: positive(platform, "kernel.segment")?,
            send: cost,
            receive: cost,
            stream: true,
            window_bytes: platform.size("kernel.window")?,
            acks: Some(Acks { bytes: header, send: fixed, receive: fixed, every: TCP_ACK_EVERY }),
            ..base.raw(1)
        };
        let vendor = Self {
            base,
            tcp,
            call: platform.time("kernel.call")?,
            mbuf: platform.time("kernel.mbuf")?,
            cluster: positive(platform, "kernel.cluster")?,
            small: positive(platform, "kernel.small")?,
        };
        platform.all_used()?;
        Ok(vendor)
    }

    /// The kernel's TCP for writes of `bytes` bytes. BSD puts a rest of more than half a cluster into a cluster, and a
    /// smaller one into a chain of small buffers: that is the saw-tooth.
    pub(crate) fn tcp(&self, bytes: u64) -> Layer {
        let rest = bytes % self.cluster;
        let rest = if rest > self.cluster / 2 { 1 } else { rest.div_ceil(self.small) };
        Layer { write: self.call + self.mbuf * (bytes / self.cluster + rest), ..self.tcp }
    }

    /// Writes of `payload` bytes into kernel sockets.
    pub(crate) fn kernel_point(&self, payload: u64, count: u64, senders: u32) -> Result<Point, PointError> {
        let senders = reasonable(payload, count, senders)?;
        self.base.machine().stream(self.tcp(payload), senders, payload, count).point()
    }
}

/// A size that must not be 0.
fn positive(platform: &Platform, key: &str) -> Result<u64, PlatformError> {
    match platform.size(key)? {
        0 => Err(platform.refuse(key, "must not be 0")),
        bytes => Ok(bytes),
    }
}
