//! What dropped values give back, and what wakes an endpoint that sleeps meanwhile.

use std::sync::{Arc, PoisonError};

use rustix::io::Errno;

use crate::sync::{AtomicBool, Mutex, Ordering};

#[cfg(not(loom))]
mod kernel {
    use std::os::fd::OwnedFd;

    use rustix::event::{EventfdFlags, eventfd};
    use rustix::io::Errno;

    /// What wakes an endpoint: a file descriptor that becomes readable.
    pub type Event = OwnedFd;

    pub(super) fn event() -> Result<Event, Errno> {
        eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
    }

    /// An event that cannot count higher is readable.
    pub(super) fn ring(event: &Event) {
        let _ = rustix::io::write(event, &1_u64.to_ne_bytes());
    }
}
#[cfg(not(loom))]
pub use kernel::Event;
#[cfg(not(loom))]
use kernel::{event, ring};

/// Stands in for the file descriptor under loom: how often it was written to.
#[cfg(loom)]
pub type Event = crate::sync::AtomicU64;

#[cfg(loom)]
#[allow(clippy::unnecessary_wraps, reason = "the system may have none")]
fn event() -> Result<Event, Errno> {
    Ok(Event::new(0))
}

#[cfg(loom)]
fn ring(event: &Event) {
    event.fetch_add(1, Ordering::Release);
}

/// Something that a dropped value gives back to its channel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Release {
    /// A page of our pool that was not sent.
    Page {
        /// First page of the run.
        first: u32,
        /// Pages of the run.
        count: u32,
    },
    /// Pages of the peer's pool, lent to us under this number.
    Lend {
        /// The peer's number.
        number: u64,
    },
    /// A run of our landing pages that was posted under this number.
    Posted {
        /// Our number.
        id: u16,
    },
    /// Landing pages that a token named.
    Landing {
        /// First page of the run.
        first: u32,
        /// Pages of the run.
        count: u32,
    },
    /// A payload in the staging ring that nobody will read.
    Unread {
        /// Its number.
        ticket: u64,
    },
}

/// Wakes an endpoint that sleeps while something is left on one of its shelves: a payload may be dropped on another
/// thread, and the peer may be waiting for its pages.
#[derive(Debug)]
pub struct Waker {
    filled: AtomicBool,
    asleep: AtomicBool,
    event: Event,
}

impl Waker {
    /// A waker.
    ///
    /// # Errors
    /// If the system gives no event.
    pub fn new() -> Result<Self, Errno> {
        Ok(Self { filled: AtomicBool::new(false), asleep: AtomicBool::new(false), event: event()? })
    }

    /// The event that wakes the endpoint.
    #[must_use]
    pub const fn event(&self) -> &Event {
        &self.event
    }

    /// Says that the endpoint is about to sleep. False if something has been left since the last time: then it must
    /// look at its shelves first.
    pub fn sleep(&self) -> bool {
        // SYNC POINT shelf: both sides exchange the same word, and who comes second knows of all that the other did
        // before: here of what was left, by whomever, there of the sleeper.
        self.asleep.store(true, Ordering::Relaxed);
        if !self.filled.swap(false, Ordering::AcqRel) {
            return true;
        }
        self.asleep.store(false, Ordering::Relaxed);
        false
    }

    /// Says that the endpoint is awake. The event keeps counting: it is watched for edges, and nobody reads it.
    pub fn awake(&self) {
        self.asleep.store(false, Ordering::Relaxed);
    }

    /// Says that there is something to look at, and wakes the endpoint if it sleeps.
    pub fn wake(&self) {
        // SYNC POINT shelf: see `Waker::sleep`. Were it stored, not exchanged, the sleeper would know of the last who
        // stored alone.
        self.filled.swap(true, Ordering::AcqRel);
        if self.asleep.load(Ordering::Relaxed) {
            ring(&self.event);
        }
    }
}

/// Which channels have something on a shelf, so that nobody has to look at all of them.
#[derive(Debug, Default)]
pub struct Filled(Mutex<Vec<usize>>);

impl Filled {
    /// Moves the numbers of channels to `into`. Those of one channel may come twice.
    pub fn clear(&self, into: &mut Vec<usize>) {
        into.append(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner));
    }
}

/// Where dropped values leave what they give back.
#[derive(Debug, Default)]
pub struct Shelf {
    filled: AtomicBool,
    items: Mutex<Vec<Release>>,
    waker: Option<Arc<Waker>>,
    /// Where it is said for which channel something lies here, and whether it is.
    list: Option<(Arc<Filled>, usize)>,
    listed: AtomicBool,
}

impl Shelf {
    /// An empty shelf of an endpoint that this waker wakes.
    #[must_use]
    pub fn new(waker: Arc<Waker>) -> Self {
        Self { waker: Some(waker), ..Self::default() }
    }

    /// The same shelf, as one of a channel of this number: when something is left, that number is listed, once until
    /// [`Shelf::unlist`].
    #[must_use]
    pub fn listed_in(self, list: Arc<Filled>, channel: usize) -> Self {
        Self { list: Some((list, channel)), ..self }
    }

    /// Leaves something.
    ///
    /// SYNC POINT shelf: it lies there before it is said.
    pub fn put(&self, item: Release) {
        self.items.lock().unwrap_or_else(PoisonError::into_inner).push(item);
        self.filled.store(true, Ordering::Release);
        if let Some((list, channel)) = &self.list
            && !self.listed.swap(true, Ordering::AcqRel)
        {
            list.0.lock().unwrap_or_else(PoisonError::into_inner).push(*channel);
        }
        if let Some(waker) = &self.waker {
            waker.wake();
        }
    }

    /// Whether anything lies here. One load.
    #[inline]
    #[must_use]
    pub fn filled(&self) -> bool {
        self.filled.load(Ordering::Relaxed)
    }

    /// Says that what lies here is looked at: what is left from now on is listed again.
    ///
    /// SYNC POINT shelf: both sides exchange the same word. Who leaves something, and finds that it is listed, is seen
    /// by the look that follows.
    pub fn unlist(&self) {
        self.listed.swap(false, Ordering::AcqRel);
    }

    /// Moves everything that lies here to `into`.
    pub fn clear(&self, into: &mut Vec<Release>) {
        self.filled.store(false, Ordering::Relaxed);
        into.append(&mut self.items.lock().unwrap_or_else(PoisonError::into_inner));
    }
}
