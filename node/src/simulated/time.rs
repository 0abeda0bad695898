//! Time that passes when it is told to, on one thread.

use std::cell::RefCell;
use std::marker::PhantomData;
use std::sync::{Arc, Weak};
use std::time::Duration;

use cutthrough_engine::time::Instant;

use super::Shared;
use super::random::Random;

/// Nanoseconds that a look at the clock takes: so whoever looks until it is time comes to an end.
const LOOK_NS: u64 = 500;
/// When it begins.
const BEGIN_NS: u64 = 1_000_000_000;
/// How long somebody sleeps at most who waits for ever, or beside whom others have times of their own, before all of
/// them look again.
const NAP_NS: u64 = 1_000_000;

/// What a thread with simulated time has instead of a clock and of the kernel's chance.
struct Governed {
    now: u64,
    chance: Random,
    network: Weak<Shared>,
    beside: Option<Box<dyn FnMut()>>,
}

thread_local! {
    static GOVERNED: RefCell<Option<Governed>> = const { RefCell::new(None) };
}

/// Simulated time of this thread, as long as this value is there: the endpoints that this thread opens and uses
/// meanwhile know no other, and what they would ask the kernel's chance for comes from the seed. They can be joined
/// over one [`Network`](super::Network), made afterwards, and by no other way; and no other thread may use them.
///
/// Operations that wait let time pass until the next datagram arrives, or until their own time is over. The other
/// endpoints are polled meanwhile by what [`Time::beside`] is given, if it is.
///
/// An endpoint that is dropped says goodbye once, and does not wait until what it has sent has arrived.
#[derive(Debug)]
pub struct Time {
    /// It belongs to its thread.
    here: PhantomData<*const ()>,
}

impl Time {
    /// From now on this thread's time passes only when it is told to.
    ///
    /// # Panics
    /// If it does so already.
    #[must_use]
    pub fn begin(seed: u64) -> Self {
        GOVERNED.with_borrow_mut(|governed| {
            assert!(governed.is_none(), "this thread has simulated time");
            let chance = Random::new(seed ^ 0x5eed_0f71_3e00_0000);
            *governed = Some(Governed { now: BEGIN_NS, chance, network: Weak::new(), beside: None });
        });
        Self { here: PhantomData }
    }

    /// Lets time pass until the next datagram arrives, but no longer than this: whatever has arrived by then can be
    /// polled for.
    pub fn pass(&self, most: Duration) {
        pass(u64::try_from(most.as_nanos()).unwrap_or(u64::MAX >> 8), false);
    }

    /// Has this run whenever an operation waits and lets time pass: to poll the endpoints that do not wait. It is not
    /// run by what waits within it.
    pub fn beside(&self, run: impl FnMut() + 'static) {
        let run: Box<dyn FnMut()> = Box::new(run);
        let before = GOVERNED.with_borrow_mut(|governed| governed.as_mut().and_then(|its| its.beside.replace(run)));
        // Endpoints that it owns say goodbye, and ask for the time.
        drop(before);
    }
}

impl Drop for Time {
    fn drop(&mut self) {
        // What it has others run may own endpoints, which say goodbye.
        let beside = GOVERNED.with_borrow_mut(|governed| governed.as_mut().and_then(|governed| governed.beside.take()));
        drop(beside);
        GOVERNED.with_borrow_mut(Option::take);
    }
}

/// Has this thread's time move with a network, if it is simulated; whether it is.
pub(super) fn governs(network: &Arc<Shared>) -> bool {
    GOVERNED.with_borrow_mut(|governed| {
        let Some(governed) = governed else { return false };
        assert!(governed.network.strong_count() == 0, "this thread has a simulated network");
        governed.network = Arc::downgrade(network);
        true
    })
}

/// The time, if this thread's is simulated.
#[inline]
pub(crate) fn now() -> Option<Instant> {
    GOVERNED.with_borrow_mut(|governed| {
        let governed = governed.as_mut()?;
        governed.now += LOOK_NS;
        Some(Instant::from_nanos(governed.now))
    })
}

/// The same, for whom a look takes no time.
pub(crate) fn now_at_no_cost() -> Option<Instant> {
    GOVERNED.with_borrow(|governed| governed.as_ref().map(|governed| Instant::from_nanos(governed.now)))
}

/// Whether this thread's time is simulated.
#[inline]
pub(crate) fn is_simulated() -> bool {
    GOVERNED.with_borrow(Option::is_some)
}

/// Chance, where time is simulated: fills `bytes`. Else false.
pub(crate) fn chance(bytes: &mut [u8]) -> bool {
    GOVERNED.with_borrow_mut(|governed| {
        let Some(governed) = governed else { return false };
        for part in bytes.chunks_mut(8) {
            let number = governed.chance.next().to_le_bytes();
            part.copy_from_slice(&number[..part.len()]);
        }
        true
    })
}

/// An operation waits for so many nanoseconds at most, or for ever. False if this thread's time is not simulated.
pub(crate) fn sleep(most: Option<u64>) -> bool {
    let simulated = is_simulated();
    if simulated {
        pass(most.unwrap_or(NAP_NS), true);
    }
    simulated
}

fn pass(most: u64, beside: bool) {
    let (network, run) = GOVERNED.with_borrow_mut(|governed| {
        let governed = governed.as_mut().expect("it has begun");
        (governed.network.upgrade(), governed.beside.take_if(|_| beside))
    });
    let mut most = most;
    if let Some(mut run) = run {
        most = most.min(NAP_NS);
        run();
        GOVERNED.with_borrow_mut(|governed| {
            if let Some(governed) = governed.as_mut().filter(|governed| governed.beside.is_none()) {
                governed.beside = Some(run);
            }
        });
    }
    let mut paths = network.as_ref().map(|network| network.lock());
    let next = paths.as_ref().and_then(|paths| paths.next());
    let now = GOVERNED.with_borrow_mut(|governed| {
        let governed = governed.as_mut().expect("it has begun");
        let until = governed.now.saturating_add(most);
        governed.now = next.map_or(until, |next| next.clamp(governed.now, until));
        governed.now
    });
    paths.iter_mut().for_each(|paths| paths.carry(now));
    drop(paths);
    super::kernel::work();
}
