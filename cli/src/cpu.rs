//! Which cores this process may use, and pinning threads to them.

use std::fs;
use std::io;
use std::sync::Barrier;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::{self, Builder, Scope, ScopedJoinHandle};

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// The cores this process may use, in ascending order; never empty.
#[must_use]
pub fn allowed() -> Vec<usize> {
    let Ok(set) = sched_getaffinity(None) else {
        return vec![0];
    };
    (0..CpuSet::MAX_CPU).filter(|&cpu| set.is_set(cpu)).collect()
}

/// Pins the calling thread to one core.
///
/// # Errors
/// If this process may not use that core.
pub fn pin(cpu: usize) -> io::Result<()> {
    if cpu >= CpuSet::MAX_CPU {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    allow(&[cpu])
}

/// Lets the calling thread run on these cores alone.
///
/// # Errors
/// If this process may use none of them.
pub fn allow(cores: &[usize]) -> io::Result<()> {
    let mut set = CpuSet::new();
    cores.iter().filter(|&&cpu| cpu < CpuSet::MAX_CPU).for_each(|&cpu| set.set(cpu));
    Ok(sched_setaffinity(None, &set)?)
}

/// One of these cores that is not `core`, nor another thread of that one if there is a choice. None if there is none.
#[must_use]
pub fn apart_from(core: usize, cores: &[usize]) -> Option<usize> {
    let siblings = siblings_of(core);
    let mut others = cores.iter().copied().filter(|&other| other != core);
    let first = others.next()?;
    std::iter::once(first).chain(others).find(|other| !siblings.contains(other)).or(Some(first))
}

/// A thread of this scope. `Scope::spawn` would panic where the system gives no more of them.
///
/// # Errors
/// What the system says.
pub fn spawn<'scope, R: Send + 'scope>(
    scope: &'scope Scope<'scope, '_>,
    run: impl FnOnce() -> R + Send + 'scope,
) -> io::Result<ScopedJoinHandle<'scope, R>> {
    Builder::new().spawn_scoped(scope, run)
}

/// Runs this on one core, in a thread of its own, so that the caller may use all cores afterwards.
///
/// # Errors
/// If this process may not use that core, or have another thread; then it does not run.
///
/// # Panics
/// If it panics.
pub fn on<R: Send>(cpu: usize, run: impl FnOnce() -> R + Send) -> io::Result<R> {
    thread::scope(|scope| {
        let thread = spawn(scope, || pin(cpu).map(|()| run()))?;
        thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

/// The cores that the two sides of a measurement run on; both may be the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pair {
    /// Where the side that asks runs.
    pub first: usize,
    /// Where the side that answers runs.
    pub second: usize,
}

impl Pair {
    /// Two different cores, not two threads of one core if there is a choice. None if this process may use only one.
    #[must_use]
    pub fn apart() -> Option<Self> {
        let cores = allowed();
        let first = *cores.first()?;
        Some(Self { first, second: apart_from(first, &cores)? })
    }

    /// One core for both sides.
    #[must_use]
    pub fn together() -> Self {
        let core = allowed().first().copied().unwrap_or_default();
        Self { first: core, second: core }
    }

    /// Runs both sides, each in its own thread pinned to its core, and returns what they return. They start together.
    ///
    /// # Errors
    /// If there is no thread for one, or it cannot be pinned; then neither side runs.
    ///
    /// # Panics
    /// If a side panics, after both have ended.
    pub fn run<A: Send, B: Send>(
        self,
        ask: impl FnOnce() -> A + Send,
        answer: impl FnOnce() -> B + Send,
    ) -> io::Result<(A, B)> {
        let start = Start::default();
        thread::scope(|scope| {
            let first = spawn(scope, || start.pinned(self.first).then(ask))?;
            // In its place, so that the first does not wait for it for ever.
            let second = spawn(scope, || start.pinned(self.second).then(answer)).inspect_err(|_| start.without())?;
            let first = first.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            let second = second.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            first.zip(second).ok_or_else(|| io::Error::other("a thread cannot be pinned to its core"))
        })
    }
}

/// Both sides wait here until each has been pinned, so that none runs alone if the other could not.
struct Start {
    pinned: AtomicUsize,
    both: Barrier,
}

impl Default for Start {
    fn default() -> Self {
        Self { pinned: 0.into(), both: Barrier::new(2) }
    }
}

impl Start {
    fn pinned(&self, cpu: usize) -> bool {
        if pin(cpu).is_ok() {
            self.pinned.fetch_add(1, Ordering::SeqCst);
        }
        self.both.wait();
        self.pinned.load(Ordering::SeqCst) == 2
    }

    /// There is no second side: the first does not run.
    fn without(&self) {
        self.both.wait();
    }
}

fn siblings_of(cpu: usize) -> Vec<usize> {
    let path = format!("/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list");
    parse_list(&fs::read_to_string(path).unwrap_or_default())
}

/// Reads the kernel's lists of processors, such as `0-3,8,10-11`; what is not a number is left out.
#[must_use]
pub fn parse_list(text: &str) -> Vec<usize> {
    let range = |part: &str| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        Some(first.trim().parse().ok()?..=last.trim().parse().ok()?)
    };
    text.split(',').filter_map(range).flatten().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_processors_are_read() {
        assert_eq!(parse_list("0-3,8,10-11\n"), [0, 1, 2, 3, 8, 10, 11]);
        assert_eq!(parse_list("5"), [5]);
        assert_eq!(parse_list(""), Vec::<usize>::new());
        assert_eq!(parse_list("x,2"), [2]);
    }

    #[test]
    fn another_core_is_found_if_there_is_one() {
        assert_eq!(apart_from(1 << 20, &[1 << 20]), None);
        assert_eq!(apart_from(1 << 20, &[1 << 20, 7, 8]), Some(7));
        assert_eq!(apart_from(1 << 20, &[3]), Some(3));
        assert_eq!(apart_from(0, &[]), None);
    }

    #[test]
    fn both_sides_run_on_their_core() {
        let pair = Pair::together();
        let here = || rustix::thread::sched_getcpu();
        let cores = pair.run(here, here).expect("an allowed core can be pinned to");
        assert_eq!(cores, (pair.first, pair.second));
    }

    #[test]
    fn a_core_that_does_not_exist_stops_both_sides() {
        let pair = Pair { first: allowed()[0], second: usize::MAX };
        assert!(pair.run(|| (), || ()).is_err());
    }

    #[test]
    fn a_side_alone_does_not_run() {
        let start = Start::default();
        let ran = thread::scope(|scope| {
            let first = spawn(scope, || start.pinned(allowed()[0])).expect("a thread");
            start.without();
            first.join().expect("no panic")
        });
        assert!(!ran);
    }
}
