//! The receiver of an incast: lets the senders begin and stop, and counts what comes of each.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use cutthrough::{Channel, Config, Counter, Endpoint, Event, Incoming, Payload, SendError};
use cutthrough_node::sys::datagram::Datagrams;

use super::super::case::few;
use super::super::lane::{LaneError, PATIENCE, on_core};
use super::super::peer::{Process, open};
use super::super::way::{Way, own_name};
use super::{IncastArgs, kernel};
use crate::args::Adapter;
use crate::cpu::Pair;
use crate::failure::Failure;
use crate::hint;
use crate::units::Size;

/// First bytes of control messages: begin to send, stop; a payload; no more of them, and after it how many frames went
/// again since the last one.
pub(super) const GO: u8 = 1;
pub(super) const STOP: u8 = 2;
pub(super) const PAYLOAD: u8 = 3;
pub(super) const STOPPED: u8 = 4;
/// So many payloads have been taken, and their pages posted again.
pub(super) const TAKEN: u8 = 5;

/// Time between two looks at what the kernel and the memory say.
const LOOK: Duration = Duration::from_millis(10);

/// One sender alone, then all of them.
#[derive(Clone, Debug, Default)]
pub struct Round {
    /// The one.
    pub one: Phase,
    /// All.
    pub all: Phase,
}

/// What came while some senders sent.
#[derive(Clone, Debug, Default)]
pub struct Phase {
    /// Messages of each sender.
    pub each: Vec<u64>,
    /// In this time.
    pub time: Duration,
    /// Frames that went again, also while the senders stopped.
    pub lost: u64,
    /// Payload bytes that were received where they belong, and all.
    pub placed: [u64; 2],
}

impl Phase {
    /// Messages of all senders.
    #[must_use]
    pub fn messages(&self) -> u64 {
        self.each.iter().sum()
    }
}

/// What was seen of the receiver.
#[derive(Clone, Copy, Debug, Default)]
pub struct Seen {
    /// Datagrams for which its socket had no room, or frames for which its ring had none. Beside a ring the socket
    /// drops what the ring has taken, too, and the kernel counts all of that as one.
    pub overruns: Option<u64>,
    /// Most bytes that stood in its socket.
    pub queue_bytes: u64,
    /// What the socket may hold; none if there is no socket.
    pub queue_limit_bytes: Option<u64>,
    /// By how much its memory grew at most.
    pub memory_bytes: u64,
}

/// The receiver, with the senders that it has started.
#[derive(Debug)]
pub struct Receiver {
    // Dropped in this order: the senders end when the channels have.
    endpoint: Endpoint,
    senders: Process,
    /// The channel of each sender.
    channels: Vec<Channel>,
    /// Pages posted for each: for so many payloads.
    runs: u32,
    size: usize,
    room: Vec<u8>,
    core: usize,
    /// Payload bytes that were received where they belong, and all, since a phase began.
    placed: [u64; 2],
    port: u16,
    overruns: Option<u64>,
    /// Whether frames come by a ring.
    by_ring: bool,
    limit: Option<u64>,
    watch: Watch,
}

impl Receiver {
    /// Listens at the near end of this way, and starts the senders at the far end.
    ///
    /// # Errors
    /// If there is no memory, the senders cannot be started or do not come.
    pub fn open(way: &Way, args: &IncastArgs, size: Size, cores: Pair) -> Result<Self, Failure> {
        let (address, port, limit) = address(way)?;
        let bytes = u32::try_from(size.0).unwrap_or(u32::MAX);
        // What a payload lay in is there again before its sender hears that it may send another one.
        let runs = if args.unposted { 0 } else { under_way(bytes) };
        let config = Config::default();
        let needed = u64::from(runs + 1) * size.0.next_multiple_of(4096);
        // A ring of AF_XDP has little memory, and each channel that finds a part of it free gets one.
        let landing_bytes = if way.adapter == Adapter::Xdp { needed } else { config.landing_bytes.max(needed) };
        let (placement, xdp_mode) = (args.across.placement.unwrap_or_default(), way.xdp_mode.0);
        let mut endpoint = open(way.seal.apply(Config { landing_bytes, placement, xdp_mode, ..config })?)?;
        let see = format!("see '{}'", hint::command("info"));
        endpoint.listen(&address).map_err(|error| Failure::from_error(&error, &see))?;
        let overruns = kernel::sockets(port).map(|sockets| sockets.drops);
        let watch =
            Watch::begin(port).map_err(|error| Failure::of_start("there is no thread to look beside it", &error))?;
        let (senders, bytes) = (args.senders.to_string(), size.0.to_string());
        // A queue has one ring of AF_XDP: what it hears is sent by rings of the other kind.
        let to = address.strip_prefix("xdp:").map(|at| format!("packet:{at}")).unwrap_or(address);
        let words = ["perf", "incast", "--to", &to, "--senders", &senders, "--size", &bytes];
        let senders = Process::start(&words, cores.second, way)?;
        let mut receiver = Self {
            endpoint,
            senders,
            channels: Vec::new(),
            runs,
            size: size.bytes(),
            room: vec![0; size.bytes()],
            core: cores.first,
            placed: [0; 2],
            port,
            overruns,
            by_ring: matches!(way.adapter, Adapter::Xdp | Adapter::Packet | Adapter::Net),
            limit,
            watch,
        };
        receiver.let_in(args.senders as usize)?;
        Ok(receiver)
    }

    fn let_in(&mut self, senders: usize) -> Result<(), Failure> {
        let begun = Instant::now();
        while self.channels.len() < senders {
            match self.endpoint.wait(Some(Duration::from_millis(50))) {
                Ok(Event::Opened(channel)) => {
                    self.endpoint.post(channel, self.size, self.runs).map_err(LaneError::from)?;
                    self.channels.push(channel);
                }
                Ok(_) => return Err(LaneError::Unexpected.into()),
                Err(_) if begun.elapsed() < PATIENCE => self.senders.running()?,
                Err(_) => return Err(LaneError::Silent(PATIENCE).into()),
            }
        }
        Ok(())
    }

    /// One sender alone for so long, then all of them.
    ///
    /// # Errors
    /// If one of them goes away.
    pub fn round(&mut self, number: u32, time: Duration) -> Result<Round, Failure> {
        let alone = number as usize % self.channels.len();
        let all: Vec<usize> = (0..self.channels.len()).collect();
        let one = on_core(self.core, || self.phase(&[alone], time))?;
        let all = on_core(self.core, || self.phase(&all, time))?;
        Ok(Round { one, all })
    }

    /// These senders send for so long.
    fn phase(&mut self, which: &[usize], time: Duration) -> Result<Phase, LaneError> {
        for &sender in which {
            self.tell(sender, GO)?;
        }
        let warm = Instant::now() + time / 10;
        while Instant::now() < warm {
            self.take()?;
        }
        let mut phase = Phase { each: vec![0; self.channels.len()], ..Phase::default() };
        self.placed = [0; 2];
        let begun = Instant::now();
        loop {
            phase.time = begun.elapsed();
            if phase.time >= time {
                break;
            }
            if let Some((sender, PAYLOAD, _)) = self.take()? {
                phase.each[sender] += 1;
            }
        }
        phase.placed = self.placed;
        for &sender in which {
            self.tell(sender, STOP)?;
        }
        let (mut stopped, asked) = (0, Instant::now());
        while stopped < which.len() {
            match self.take()? {
                Some((_, STOPPED, frames)) => {
                    stopped += 1;
                    phase.lost += frames;
                }
                None if asked.elapsed() > PATIENCE => return Err(LaneError::Silent(PATIENCE)),
                _ => {}
            }
        }
        Ok(phase)
    }

    fn tell(&mut self, sender: usize, what: u8) -> Result<(), LaneError> {
        let begun = Instant::now();
        loop {
            match self.endpoint.send(self.channels[sender], &[what]) {
                Ok(()) => return Ok(()),
                Err(SendError::Full) if begun.elapsed() < PATIENCE => std::thread::yield_now(),
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// The next message, if one is there: whose it is, what it says, and the number in it.
    fn take(&mut self) -> Result<Option<(usize, u8, u64)>, LaneError> {
        match self.endpoint.poll() {
            None => Ok(None),
            Some(Event::Message(message)) => self.read(message).map(Some),
            Some(Event::Closed(_, reason)) => Err(LaneError::Closed(reason)),
            Some(_) => Ok(None),
        }
    }

    fn read(&mut self, mut message: Incoming) -> Result<(usize, u8, u64), LaneError> {
        let channel = message.channel();
        let sender = self.channels.iter().position(|other| *other == channel).ok_or(LaneError::Unexpected)?;
        let (&what, rest) = message.control().split_first().ok_or(LaneError::Unexpected)?;
        let number = rest.try_into().map_or(0, u64::from_le_bytes);
        if what == PAYLOAD {
            let landed = matches!(message.payload(), Payload::Landed(_));
            if !landed {
                // All pages were taken, or none is posted.
                self.endpoint.read(&mut message, &mut self.room)?;
            }
            let receipt = message.receipt();
            self.placed = [self.placed[0] + receipt.placed, self.placed[1] + receipt.bytes];
            drop(message);
            // Posts again what was given back, before the sender hears that it may go on.
            self.endpoint.post(channel, self.size, 0)?;
            self.tell(sender, TAKEN)?;
        }
        Ok((sender, what, number))
    }

    /// What was seen so far.
    #[must_use]
    pub fn seen(&self) -> Seen {
        Seen {
            overruns: self.overruns(),
            queue_bytes: self.watch.queue.load(Ordering::Relaxed),
            queue_limit_bytes: self.limit,
            memory_bytes: self.watch.memory.load(Ordering::Relaxed).saturating_sub(self.watch.before),
        }
    }

    fn overruns(&self) -> Option<u64> {
        if self.by_ring {
            return Some(self.endpoint.counter(Counter::RingOverflows));
        }
        let now = kernel::sockets(self.port)?.drops;
        Some(now.saturating_sub(self.overruns?))
    }

    /// Bytes of all landing pages that were posted.
    #[must_use]
    pub fn posted_bytes(&self) -> u64 {
        self.channels.len() as u64 * u64::from(self.runs) * (self.size as u64).next_multiple_of(4096)
    }

    /// Ends the senders.
    pub fn close(mut self) {
        for channel in std::mem::take(&mut self.channels) {
            self.endpoint.close(channel);
        }
        drop(self.endpoint);
        self.senders.end();
    }
}

/// Payloads that a sender may have under way: there is a page for each. Of long ones it is one, as of nodes that answer
/// the same question: who posts several for each of many senders has memory that is in no cache when its turn comes.
pub(super) fn under_way(bytes: u32) -> u32 {
    few(bytes)
}

/// An address for the receiver, its port, and the bytes that a socket there may hold.
fn address(way: &Way) -> Result<(String, u16, Option<u64>), Failure> {
    if way.adapter == Adapter::Shm {
        return Ok((own_name(), 0, None));
    }
    let socket = way.wire.near(|at| Datagrams::bind(SocketAddr::new(at, 0)));
    let found = socket.and_then(|socket| Ok((socket.local()?, socket.receive_bytes() as u64)));
    let (free, limit) =
        found.map_err(|error| Failure::new(format!("no address for the receiver: {error}"), "try again"))?;
    Ok((format!("{}:{free}", way.adapter.name()), free.port(), Some(limit)))
}

/// Looks at the receiver's socket and memory again and again, beside it.
#[derive(Debug)]
struct Watch {
    before: u64,
    queue: Arc<AtomicU64>,
    memory: Arc<AtomicU64>,
    over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Watch {
    fn begin(port: u16) -> io::Result<Self> {
        let (queue, memory, over) = (Arc::<AtomicU64>::default(), Arc::<AtomicU64>::default(), Arc::default());
        let before = kernel::resident();
        let thread = std::thread::Builder::new().spawn({
            let (queue, memory, over) = (Arc::clone(&queue), Arc::clone(&memory), Arc::<AtomicBool>::clone(&over));
            move || {
                while !over.load(Ordering::Relaxed) {
                    queue.fetch_max(kernel::sockets(port).map_or(0, |sockets| sockets.queued), Ordering::Relaxed);
                    memory.fetch_max(kernel::resident(), Ordering::Relaxed);
                    std::thread::sleep(LOOK);
                }
            }
        })?;
        Ok(Self { before, queue, memory, over, thread: Some(thread) })
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // It does nothing that could panic.
            let _ = thread.join();
        }
    }
}
