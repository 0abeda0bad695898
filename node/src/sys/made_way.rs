//! What the kernel counts of a thread's turns.

use std::mem::MaybeUninit;

/// How often this thread has made way for another although it could have gone on: by yielding, or because its turn was
/// over. Times that it slept do not count.
pub(crate) fn made_way() -> u64 {
    let mut usage = MaybeUninit::<libc::rusage>::zeroed();
    // SAFETY: the pointer is to writable memory of a `rusage`, of which all bits zero are a value, too.
    let usage = unsafe {
        libc::getrusage(libc::RUSAGE_THREAD, usage.as_mut_ptr());
        usage.assume_init()
    };
    usage.ru_nivcsw.cast_unsigned()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::time::{Duration, Instant};

    use super::made_way;

    #[test]
    fn sleep_is_not_counted_and_a_shared_core_is() {
        let before = made_way();
        std::thread::sleep(Duration::from_millis(1));
        assert!(made_way() - before < 5);
        let core = rustix::thread::sched_getaffinity(None).expect("asked for this thread");
        let first = (0..rustix::thread::CpuSet::MAX_CPU).find(|cpu| core.is_set(*cpu)).expect("one at least");
        let mut one = rustix::thread::CpuSet::new();
        one.set(first);
        let done = Arc::new(AtomicBool::new(false));
        let yielding = || {
            let done = Arc::clone(&done);
            std::thread::spawn(move || {
                rustix::thread::sched_setaffinity(None, &one).expect("a core of ours");
                let (before, begun) = (made_way(), Instant::now());
                while !done.load(Ordering::Relaxed) && begun.elapsed() < Duration::from_secs(20) {
                    std::thread::yield_now();
                    done.fetch_or(made_way() - before >= 10, Ordering::Relaxed);
                }
            })
        };
        for side in [yielding(), yielding()] {
            side.join().expect("no panic");
        }
        assert!(done.load(Ordering::Relaxed), "two that share a core make way for each other");
    }
}
