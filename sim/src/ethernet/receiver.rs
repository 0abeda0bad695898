//! The receiving adapter: descriptors that the driver has posted, by guess or not, and what lands in them.

use std::collections::{BTreeSet, VecDeque};

use cutthrough_engine::place::{Admission, Chain, Fragment, Placer, Register, Verdict};

use super::frame::{self, ETHERNET, IP, TCP};
use super::wire::{Frame, What};

/// How a receiver guesses, and whom it lets send.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Control {
    /// Senders ask before they send a message, and one is admitted at a time.
    pub admission: bool,
    /// The adapter has a matching register and a second chain of descriptors.
    pub register: bool,
}

/// A frame in memory that the driver has not looked at yet.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Landed {
    pub frame: Frame,
    /// Guessed descriptors (pairs) that it used up; 0 if it landed in an ordinary buffer.
    pub slots: usize,
}

/// What the driver found out about a frame in guessed descriptors.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Found {
    pub verdict: Verdict,
    /// Bytes that had to be copied.
    pub copied: u64,
    /// Whether it completed a page, and whether any of that had to be copied.
    pub whole: Option<bool>,
}

/// Receive descriptors that point into pages by the engine's guess.
#[derive(Debug)]
pub(crate) struct Guessing {
    placer: Placer,
    register: Option<Register>,
    /// Whether the register's stream has begun a page since the register was set: it takes over at a first fragment.
    armed: bool,
    pub admission: Option<Admission>,
    ring: usize,
    /// Descriptors of frames that have landed, or are about to.
    filled: usize,
    /// Segments of which a frame was copied: connection and number.
    mended: BTreeSet<(u64, u64)>,
}

/// The receiving side of an adapter.
#[derive(Debug)]
pub(crate) struct Receiver {
    /// Frames in the adapter.
    pub fifo: VecDeque<Frame>,
    /// Bytes in the adapter and on their way into it.
    pub fifo_bytes: u64,
    /// The frame that is being put into memory.
    pub putting: Option<Landed>,
    pub landed: VecDeque<Landed>,
    /// Whether the interrupt handler is at work.
    pub handling: bool,
    pub guessing: Option<Guessing>,
    ring: usize,
}

impl Receiver {
    pub(crate) fn new(ring: usize, guessing: Option<Guessing>) -> Self {
        Self {
            fifo: VecDeque::new(),
            fifo_bytes: 0,
            putting: None,
            landed: VecDeque::new(),
            handling: false,
            guessing,
            ring,
        }
    }

    /// Takes descriptors for the next frame in the adapter. Returns how many, or `None` if there is no frame, another
    /// one is under way, or there are too few descriptors.
    pub(crate) fn put_next(&mut self) -> Option<u64> {
        let &frame = self.fifo.front().filter(|_| self.putting.is_none())?;
        let chain = self.guessing.as_mut().map_or(Chain::Ordinary, |guessing| guessing.chain(&frame));
        let slots = match (&mut self.guessing, chain) {
            (Some(guessing), Chain::Guessed) => guessing.fill(frame.length.bytes())?,
            _ if self.landed.len() < self.ring => 0,
            _ => return None,
        };
        self.fifo.pop_front();
        self.putting = Some(Landed { frame, slots });
        Some(if slots == 0 { 1 } else { 2 * slots as u64 })
    }
}

impl Guessing {
    /// Descriptors for `ring` frames, and pages enough for each of `peers` hosts to have one under way.
    pub(crate) fn new(ring: usize, peers: usize, control: Control) -> Option<Self> {
        let open = 2 * peers + 2;
        let mut placer = Placer::new(frame::page_layout().ok()?, open);
        (0..u32::try_from(ring + open).ok()?).for_each(|page| placer.give(page));
        let mut guessing = Self {
            placer,
            register: control.register.then(Register::default),
            armed: false,
            admission: control.admission.then(Admission::new),
            ring,
            filled: 0,
            mended: BTreeSet::new(),
        };
        guessing.refill();
        Some(guessing)
    }

    /// Lets one connection's frames be placed: by the adapter's register if it has one, else by the driver.
    pub(crate) fn admit(&mut self, connection: usize) {
        let stream = Some(connection as u64);
        if let Some(register) = self.register.as_mut().filter(|register| register.stream != stream) {
            register.stream = stream;
            self.armed = false;
        }
        self.placer.admit(stream);
    }

    /// Whether there is a register that nobody sets: it is left to the stream that comes first.
    pub(crate) fn is_open(&self) -> bool {
        self.admission.is_none() && self.register.is_some_and(|register| register.stream.is_none())
    }

    /// Which descriptors the adapter takes for a frame.
    fn chain(&mut self, frame: &Frame) -> Chain {
        let Some(register) = self.register else { return Chain::Guessed };
        let What::Data { part: Some(part), .. } = frame.what else { return Chain::Ordinary };
        let chain = register.chain(Some(frame.connection as u64));
        self.armed |= chain == Chain::Guessed && part.offset == 0;
        if self.armed { chain } else { Chain::Ordinary }
    }

    /// Fills as many descriptors as `bytes` take: what does not fit one goes into the next.
    fn fill(&mut self, bytes: u64) -> Option<usize> {
        let (mut slots, mut room) = (0, 0);
        while room < bytes {
            let part = self.placer.guess(self.filled + slots)?.part;
            let header = ETHERNET + IP + if part.offset == 0 { TCP } else { 0 };
            room += header + u64::from(part.len);
            slots += 1;
        }
        self.filled += slots;
        Some(slots)
    }

    /// The driver looks at a frame that has landed.
    pub(crate) fn look(&mut self, landed: &Landed) -> Option<Found> {
        self.filled -= landed.slots;
        let &Frame { connection, length, what, .. } = &landed.frame;
        let stream = connection as u64;
        let fragment = match what {
            What::Data { segment, part: Some(part), .. } => Some(Fragment { stream, message: segment, part }),
            _ => None,
        };
        let mut copied = 0;
        let arrival = self.placer.arrived(fragment, |mend| copied += u64::from(mend.to.part.len))?;
        for _ in 1..landed.slots {
            self.placer.arrived(None, |_| ());
        }
        match arrival.verdict {
            Verdict::Apart => copied += length.payload,
            Verdict::Miss => self.mended.extend(fragment.map(|fragment| (stream, fragment.message))),
            Verdict::Hit | Verdict::Duplicate => {}
        }
        let whole = arrival.whole.map(|whole| {
            self.placer.give(whole.page);
            self.mended.remove(&(whole.stream, whole.message))
        });
        Some(Found { verdict: arrival.verdict, copied, whole })
    }

    /// Posts descriptors; those that the adapter has not begun to fill are posted anew if they are out of step.
    /// Returns whether they were.
    pub(crate) fn refill(&mut self) -> bool {
        let resync = !self.placer.in_step() && self.placer.posted() > self.filled;
        if resync {
            while self.placer.posted() > self.filled && self.placer.withdraw().is_some() {}
        }
        while self.placer.posted() < self.ring && self.placer.post().is_some() {}
        resync
    }
}
