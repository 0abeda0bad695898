//! What a kernel does for a ring of a simulated host: it runs the program at the interface on what comes, writes what
//! that lets through to the places that the ring has offered, and sends what the ring has put into it.
//!
//! It works at any time: whenever the endpoint looks at an index of a ring, or at a word that the program shares with
//! it, some of this may have happened, by chance from the seed. Between a frame's turn at the register and its place
//! the kernel may stop, and half of a place may be written. All of it is on the thread of the endpoint.

#[cfg(feature = "fuzz")]
mod script;

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

#[cfg(feature = "fuzz")]
pub use self::script::Deed;
use super::random::Random;
use super::{Carrier, time};
use crate::clock;
use crate::raw::envelope;
use crate::sys::xdp::simulated::{Ends, Loaded, Verdict};

/// Frames of one call that are sent at most, as the kernel has it.
const SENT: usize = 32;
/// Frames that wait at the adapter at most.
const WAIT: usize = 512;
/// Steps of the kernel's while time passes, for each frame that there is to do.
const STEPS: usize = 8;

/// Bytes by which a ring's frames are told from others: kind of frame, IP version, mark, fragments, protocol, and the
/// receiver's address and port.
const TOLD_BY: [usize; 11] = [12, 14, 18, 19, 20, 23, 30, 33, 36, 37, 13];

/// What kernels do to rings. Chances are of each frame, from 0 to 1. More may be added: write what shall be another
/// than the default, and `..Interrupts::default()`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Interrupts {
    /// The chance that a frame comes to another processor than most.
    pub elsewhere: f64,
    /// The chance that the kernel stops while a frame that was let through is on its way to its place.
    pub stops: f64,
    /// For how long at most it does.
    pub stop: Duration,
    /// The chance that a frame which is none of the ring's, but like one of them, comes before that.
    pub strays: f64,
    /// Whether it refuses to say when it has done with what it had begun (`membarrier`).
    pub refuses: bool,
    /// How much longer what a socket sends is on its way than what a ring sends. Peers take the quicker way, as they
    /// measure it.
    pub socket: Duration,
}

impl Default for Interrupts {
    /// A kernel that nothing interrupts.
    fn default() -> Self {
        let (stop, socket) = (Duration::from_micros(10), Duration::ZERO);
        Self { elsewhere: 0.0, stops: 0.0, stop, strays: 0.0, refuses: false, socket }
    }
}

/// What has become of frames at rings, by number.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Frames {
    /// That have come to a ring's interface.
    pub came: u64,
    /// That a register has let through.
    pub through: u64,
    /// On the way of which the kernel has stopped.
    pub stopped: u64,
    /// Like the ring's, and none.
    pub strays: u64,
    /// That the kernel's stack has got.
    pub passed: u64,
    /// For which there was no place.
    pub lost: u64,
}

impl Frames {
    /// Adds others.
    pub(super) const fn add(&mut self, other: &Self) {
        self.came += other.came;
        self.through += other.through;
        self.stopped += other.stopped;
        self.strays += other.strays;
        self.passed += other.passed;
        self.lost += other.lost;
    }
}

/// Frames that one call sends, from where and to where.
type Train = ((SocketAddr, SocketAddr), Vec<Vec<u8>>);

/// A frame on its way to its places.
#[derive(Debug)]
struct OnItsWay {
    bytes: Vec<u8>,
    parts: Vec<(u64, usize)>,
    /// How many of them are written, and how much of the next one.
    written: (usize, usize),
    processor: u32,
}

/// The kernel, as far as it concerns one ring.
#[derive(Debug)]
pub(super) struct Kernel {
    ends: Ends,
    loaded: Loaded,
    random: Random,
    interrupts: Interrupts,
    /// What has come to the interface, and what the stack has got of that.
    came: VecDeque<Vec<u8>>,
    passed: VecDeque<Vec<u8>>,
    on_its_way: Option<OnItsWay>,
    stops_until: u64,
    /// Parts that were sent, of which it has not been said.
    sent: VecDeque<u64>,
    frames: Frames,
    /// What it does out of turn.
    #[cfg(feature = "fuzz")]
    script: script::Script,
}

thread_local! {
    static KERNELS: RefCell<Vec<Weak<Mutex<Kernel>>>> = const { RefCell::new(Vec::new()) };
    /// Whether one of them is at work.
    static BUSY: Cell<bool> = const { Cell::new(false) };
}

pub(super) fn lock(kernel: &Mutex<Kernel>) -> MutexGuard<'_, Kernel> {
    kernel.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Has the kernels of this thread do something, unless they are at it.
fn at_work(mut each: impl FnMut(&mut Kernel)) -> bool {
    // A thread that ends has none any more.
    if BUSY.try_with(|busy| busy.replace(true)) != Ok(false) {
        return false;
    }
    let any = KERNELS.with_borrow(|kernels| {
        let there = kernels.iter().filter_map(Weak::upgrade);
        there.map(|kernel| each(&mut lock(&kernel))).count() > 0
    });
    BUSY.set(false);
    any
}

/// An endpoint looks at what it shares with a kernel: meanwhile that may do something.
#[inline]
pub(crate) fn meanwhile() {
    at_work(|kernel| {
        if kernel.random.below(4) == 0 {
            kernel.step();
        }
    });
}

/// Time passes: kernels do what there is to do, or most of it.
pub(super) fn work() {
    at_work(Kernel::work);
}

/// Has all kernels of this thread finish what they have begun: whether they have. Nothing if there are none.
pub(crate) fn finish() -> Option<bool> {
    let mut done = true;
    let any = at_work(|kernel| done &= kernel.finish());
    any.then_some(done)
}

/// The kernel of a ring, as that has it. It is gone with this.
#[derive(Debug)]
pub(crate) struct Handle {
    kernel: Arc<Mutex<Kernel>>,
    carrier: Arc<Carrier>,
    host: IpAddr,
}

impl Handle {
    /// For a ring of this host.
    pub(super) fn new(carrier: &Arc<Carrier>, host: IpAddr, ends: Ends, loaded: Loaded) -> Self {
        let mut paths = carrier.shared.lock();
        let kernel = Kernel {
            ends,
            loaded,
            random: Random::new(paths.draw()),
            interrupts: paths.interrupts(),
            came: VecDeque::new(),
            passed: VecDeque::new(),
            on_its_way: None,
            stops_until: 0,
            sent: VecDeque::new(),
            frames: Frames::default(),
            #[cfg(feature = "fuzz")]
            script: script::Script::default(),
        };
        let kernel = Arc::new(Mutex::new(kernel));
        paths.plug(host, Arc::clone(&kernel));
        KERNELS.with_borrow_mut(|kernels| {
            kernels.retain(|kernel| kernel.strong_count() > 0);
            kernels.push(Arc::downgrade(&kernel));
        });
        drop(paths);
        Self { kernel, carrier: Arc::clone(carrier), host }
    }

    /// The ring has something to send.
    pub(crate) fn sends(&self) {
        let now = clock::now().as_nanos();
        let mut trains: Vec<Train> = Vec::new();
        BUSY.set(true);
        let mut kernel = lock(&self.kernel);
        for _ in 0..SENT {
            let Some((mut frame, places)) = kernel.ends.sent() else { break };
            kernel.sent.extend(places);
            let Some((from, to, _)) = envelope::parse(&mut frame) else { continue };
            let path = (from.into(), to.into());
            match trains.last_mut().filter(|(last, _)| *last == path) {
                Some((_, train)) => train.push(frame),
                None => trains.push((path, vec![frame])),
            }
        }
        drop(kernel);
        BUSY.set(false);
        let mut paths = self.carrier.shared.lock();
        for (path, train) in &trains {
            paths.send_frames(now, *path, train.iter().map(|frame| &frame[..]));
        }
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.carrier.shared.lock().pull(self.host, &self.kernel);
    }
}

impl Kernel {
    /// A frame has come to the interface.
    pub(super) fn comes(&mut self, frame: Vec<u8>) {
        if self.came.len() < WAIT {
            self.frames.came += 1;
            self.came.push_back(frame);
        } else {
            self.frames.lost += 1;
        }
    }

    /// What the stack has got by now.
    pub(super) fn passed(&mut self) -> VecDeque<Vec<u8>> {
        std::mem::take(&mut self.passed)
    }

    pub(super) const fn frames(&self) -> &Frames {
        &self.frames
    }

    #[cfg(feature = "fuzz")]
    pub(super) fn tell(&mut self, after: u8, deed: Deed) {
        self.script.tell(after, deed);
    }

    pub(super) const fn interrupt(&mut self, interrupts: Interrupts) {
        self.interrupts = interrupts;
    }

    fn work(&mut self) {
        self.ends.hush();
        for _ in 0..STEPS * (2 + self.came.len()) {
            // Now and then something is left until later.
            if self.random.below(200) == 0 {
                return;
            }
            self.step();
        }
    }

    fn step(&mut self) {
        #[cfg(feature = "fuzz")]
        if self.does_as_told() {
            return;
        }
        if self.random.below(2) == 0
            && let Some(at) = self.sent.front()
            && self.ends.complete(*at)
        {
            self.sent.pop_front();
        }
        let now = time::now_at_no_cost().map_or(0, cutthrough_engine::time::Instant::as_nanos);
        let stops = self.stops_until > now;
        match &self.on_its_way {
            Some(_) if !stops => self.go_on(),
            // Another processor goes on with what comes next.
            Some(one) if self.loaded.places() => self.look(1 - one.processor),
            Some(_) => {}
            None if !stops => {
                let processor = u32::from(self.random.chance(self.interrupts.elsewhere));
                self.look(processor);
            }
            None => {}
        }
    }

    /// Runs the program on the next frame, on this processor.
    fn look(&mut self, processor: u32) {
        let Some(frame) = self.came.pop_front() else { return };
        if self.random.chance(self.interrupts.strays) {
            self.stray(&frame, processor);
        }
        let bytes = match self.loaded.run(&frame, (0, processor)) {
            Verdict::Ring(bytes) => bytes.to_vec(),
            Verdict::Stack => {
                self.frames.passed += 1;
                return self.passed.push_back(frame);
            }
            // It was put into a slot.
            Verdict::Dropped => return,
        };
        assert!(self.on_its_way.is_none(), "frames of two processors are let through at once");
        self.frames.through += u64::from(self.loaded.places());
        let Some(parts) = self.ends.take_places(bytes.len()) else {
            self.frames.lost += 1;
            return;
        };
        self.on_its_way = Some(OnItsWay { bytes, parts, written: (0, 0), processor });
        if self.random.chance(self.interrupts.stops) {
            self.stop();
        }
    }

    fn stop(&mut self) {
        let most = u64::try_from(self.interrupts.stop.as_nanos()).unwrap_or(u64::MAX);
        let now = time::now_at_no_cost().map_or(0, cutthrough_engine::time::Instant::as_nanos);
        self.stops_until = now + self.random.below(most + 1);
        self.frames.stopped += 1;
    }

    /// Writes some more of the frame that is on its way, or tells of it.
    fn go_on(&mut self) {
        let Some(one) = &mut self.on_its_way else { return };
        let (part, begin) = one.written;
        let Some((at, bytes)) = one.parts.get(part).copied() else {
            self.ends.tell(&one.parts);
            self.ends.show();
            self.on_its_way = None;
            return;
        };
        let before: usize = one.parts[..part].iter().map(|(_, bytes)| bytes).sum();
        let half = if self.random.below(2) == 0 { bytes } else { begin.midpoint(bytes) };
        self.ends.write(at + begin as u64, &one.bytes[before + begin..before + half]);
        one.written = if half == bytes { (part + 1, 0) } else { (part, half) };
        if half < bytes && self.random.chance(self.interrupts.stops) {
            self.stop();
        }
    }

    /// A frame comes that differs from this one in a field by which the ring's are told from others.
    fn stray(&mut self, frame: &[u8], processor: u32) {
        let mut stray = frame.to_vec();
        let (field, by) = (self.random.below(TOLD_BY.len() as u64), self.random.below(255));
        let at = usize::try_from(field).ok().and_then(|field| TOLD_BY.get(field));
        let Some(byte) = at.and_then(|at| stray.get_mut(*at)) else { return };
        *byte ^= u8::try_from(by + 1).unwrap_or(1);
        self.frames.strays += 1;
        let verdict = self.loaded.run(&stray, (0, processor));
        assert!(matches!(verdict, Verdict::Stack), "{verdict:?} for a frame of somebody else");
        self.passed.push_back(stray);
    }

    /// Finishes what it has begun, if it is willing to say so.
    fn finish(&mut self) -> bool {
        if self.interrupts.refuses {
            return false;
        }
        self.stops_until = 0;
        while self.on_its_way.is_some() {
            self.go_on();
        }
        true
    }
}
