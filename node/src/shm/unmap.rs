//! Memory of channels that have ended, given back elsewhere.
//!
//! Whoever lets go of memory last has its pages freed: a tenth to a third of a millisecond for each MiB that was used.
//! A peer that dies lets go first, and its channel ends in a poll, which all others would wait for.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use crate::sys::forked::Own;

/// Bytes of a channel's memory, used or not, from which on it is given back elsewhere: to start a thread for it takes
/// as long as to free a little.
pub(crate) const LARGE: u64 = 1 << 20;
/// Channels whose memory waits for that, at most. That of others is given back at once: who ends channels faster than
/// their memory can be freed waits for it.
const MOST: usize = 64;

/// Memory that waits, and whether there is a thread that gives it back.
#[derive(Default)]
struct Waiting {
    memory: Vec<Box<dyn Send>>,
    served: bool,
}

/// What waits in a process.
#[derive(Default)]
struct Unmapping {
    waiting: Mutex<Waiting>,
    /// Told when nothing waits, and the thread ends.
    done: Condvar,
}

static OWN: Own<Unmapping> = Own::new();

fn waiting() -> MutexGuard<'static, Waiting> {
    OWN.get().waiting.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Drops this in a thread of its own, or at once if too much waits or there is no thread to be had.
pub(crate) fn later(memory: impl Send + 'static) {
    let mut all = waiting();
    if all.memory.len() >= MOST {
        drop(all);
        return drop(memory);
    }
    all.memory.push(Box::new(memory));
    if std::mem::replace(&mut all.served, true) {
        return;
    }
    drop(all);
    let thread = std::thread::Builder::new().name("cutthrough-unmap".into()).stack_size(64 << 10);
    if thread.spawn(serve).is_err() {
        serve();
    }
}

/// Drops what waits, until nothing does.
fn serve() {
    loop {
        let mut all = waiting();
        let Some(memory) = all.memory.pop() else {
            all.served = false;
            drop(all);
            return OWN.get().done.notify_all();
        };
        drop(all);
        // Whatever happens there, somebody may wait for the end.
        let _ = catch_unwind(AssertUnwindSafe(|| drop(memory)));
    }
}

/// Returns when nothing waits any more: an endpoint that has gone leaves no memory behind.
pub(crate) fn finish() {
    let mut all = waiting();
    while all.served {
        all = OWN.get().done.wait(all).unwrap_or_else(PoisonError::into_inner);
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use std::sync::mpsc::{Receiver, Sender, channel};
    use std::thread::ThreadId;
    use std::time::Duration;

    use super::*;

    /// Who has all that waits to himself.
    static ALONE: Mutex<()> = Mutex::new(());

    /// Does something while nothing that waits is given back.
    pub(crate) fn while_all_waits<T>(work: impl FnOnce() -> T) -> T {
        let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
        let (says, by) = channel();
        let (lets, may) = channel();
        later(Heavy(says, Some(may)));
        by.recv_timeout(PATIENCE).expect("it is dropped");
        let made = work();
        drop(lets);
        finish();
        made
    }

    const PATIENCE: Duration = Duration::from_secs(20);

    /// Says by whom it is dropped, and takes as long as it is told to.
    struct Heavy(Sender<ThreadId>, Option<Receiver<()>>);

    impl Drop for Heavy {
        fn drop(&mut self) {
            let _ = self.0.send(std::thread::current().id());
            if let Some(may) = &self.1 {
                let _ = may.recv();
            }
        }
    }

    #[test]
    fn nobody_waits_for_memory_that_is_given_back_unless_too_much_waits() {
        let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
        let (says, by) = channel();
        let (lets, may) = channel();
        later(Heavy(says.clone(), Some(may)));
        let (here, there) = (std::thread::current().id(), by.recv_timeout(PATIENCE).expect("it is dropped"));
        assert_ne!(here, there, "whoever lets go waits for it");
        // That takes a while, and so many more may wait. Other tests end channels, too.
        for _ in 0..=MOST {
            later(Heavy(says.clone(), None));
        }
        assert_eq!(by.try_recv(), Ok(here), "more wait than may");
        lets.send(()).expect("it waits for that");
        finish();
        assert!(by.try_iter().all(|by| by == here || by == there), "one thread is enough");
    }
}
