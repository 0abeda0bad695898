//! Waking a sleeper without a fence on the sender's path.
//!
//! The receiver arms, makes sure that every sender sees it, looks at its rings once more, and only then sleeps. The
//! sender publishes, then looks whether the receiver is armed. Between those two the processor must not swap the
//! sender's store and load; a fence there would make every message wait for its own cache miss. So the fence is
//! asymmetric: the sender only keeps the compiler from swapping ([`light_fence`]), and the receiver, who is about to
//! sleep anyway, makes every running thread of every registered process execute a fence for it (`membarrier`,
//! [`heavy_fence`]).
//!
//! The armed word has one writer, the receiver, and the socket that wakes it belongs to this one channel: a hostile
//! peer can neither disarm it for others nor swallow a wake-up of others. (A futex or an event that several peers
//! share could be reset by any of them; an event of one peer could be made to block whoever rings it.)

#[cfg(not(loom))]
use core::sync::atomic::{AtomicBool, compiler_fence};

use crate::sync::{AtomicU64, Ordering, fence};

/// Whether the fences of others pass this process by, because the kernel has refused to register it.
#[cfg(not(loom))]
static OUT_OF_REACH: AtomicBool = AtomicBool::new(false);

/// Keeps the store that published a message before the load that looks whether the receiver is armed. Costs a look at a
/// flag; works only together with [`heavy_fence`] on the other side. In a process which that does not reach, it is a
/// fence itself.
#[inline]
pub fn light_fence() {
    #[cfg(not(loom))]
    {
        compiler_fence(Ordering::SeqCst);
        if OUT_OF_REACH.load(Ordering::Relaxed) {
            fence(Ordering::SeqCst);
        }
    }
    #[cfg(loom)]
    fence(Ordering::SeqCst);
}

/// What an armed word says that tells one time from another by nothing: it is rung for whenever it is seen.
pub const ARMED: u64 = 1;

/// Bit of an armed word: whoever armed it waits for room as well, and is rung for when messages of its own have been
/// taken. Others are not: most sleepers have room enough, and nothing to gain from being woken for more.
pub const ROOM: u64 = 1 << 63;

/// For which time that the peer armed it was rung last: one ring wakes it, however much is published before it runs.
#[derive(Debug, Default)]
pub struct Rung(AtomicU64);

impl Rung {
    /// Whether a peer whose armed word says this has to be rung for.
    #[inline]
    #[must_use]
    pub fn is_due(&self, armed: u64) -> bool {
        armed != 0 && (armed & !ROOM == ARMED || self.0.load(Ordering::Relaxed) != armed)
    }

    /// The same, where nothing has come for it but room.
    #[inline]
    #[must_use]
    pub fn is_due_for_room(&self, armed: u64) -> bool {
        armed & ROOM != 0 && self.is_due(armed)
    }

    /// It was, and the ring has gone out.
    pub fn done(&self, armed: u64) {
        self.0.store(armed, Ordering::Relaxed);
    }
}

/// How the receiver makes its armed word seen before it looks at its rings for the last time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Fence {
    /// The kernel runs a fence on every core that runs a registered process.
    Expedited,
    /// The kernel lacks that; it waits until every core has passed through the scheduler (milliseconds).
    Slow,
    /// The kernel has neither: the receiver may not sleep longer than [`NAP_MS`].
    None,
}

/// Longest sleep, in milliseconds, where the kernel has no `membarrier` at all.
pub const NAP_MS: i32 = 1;

#[cfg(not(loom))]
mod kernel {
    use core::sync::atomic::{self, Ordering};

    use super::{Fence, OUT_OF_REACH};
    use rustix::thread::{MembarrierCommand, membarrier, membarrier_query};

    /// Registers this process, so that others' heavy fences reach its threads, and says which fence it can use itself.
    /// Where it may not (its own sandbox may be stricter than that of others), it fences itself from now on.
    #[must_use]
    pub fn register() -> Fence {
        let offered = membarrier_query();
        if offered.contains(rustix::thread::MembarrierQuery::REGISTER_GLOBAL_EXPEDITED)
            && membarrier(MembarrierCommand::RegisterGlobalExpedited).is_ok()
        {
            return Fence::Expedited;
        }
        OUT_OF_REACH.store(true, Ordering::Relaxed);
        if offered.contains(rustix::thread::MembarrierQuery::GLOBAL) { Fence::Slow } else { Fence::None }
    }

    /// Makes every store of this thread visible to, and every earlier store visible from, all running threads that
    /// share memory with it. One system call; microseconds with [`Fence::Expedited`].
    ///
    /// False if that is not so: with [`Fence::None`], or because the kernel refuses by now what it offered when this
    /// process registered (its sandbox may have become stricter). Then the caller may not sleep longer than
    /// [`NAP_MS`](super::NAP_MS).
    pub fn heavy_fence(fence: Fence) -> bool {
        let command = match fence {
            Fence::Expedited => Some(MembarrierCommand::GlobalExpedited),
            Fence::Slow => Some(MembarrierCommand::Global),
            Fence::None => None,
        };
        let fenced = command.is_some_and(|command| membarrier(command).is_ok());
        if !fenced {
            atomic::fence(Ordering::SeqCst);
        }
        fenced
    }

    /// Whether others' heavy fences reach the threads of this process, as far as is known.
    #[must_use]
    pub fn is_reached() -> bool {
        !OUT_OF_REACH.load(Ordering::Relaxed)
    }
}
#[cfg(not(loom))]
pub use kernel::{heavy_fence, is_reached, register};

/// Stands in for the system call under loom.
#[cfg(loom)]
pub fn heavy_fence(_fence: Fence) -> bool {
    fence(Ordering::SeqCst);
    true
}
