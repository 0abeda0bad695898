//! Tells a process from its copies: a page that a child finds empty. And what each of them has for itself.

use std::ffi::c_void;
use std::ptr::{NonNull, null_mut};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicPtr, AtomicU32, Ordering};

use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous};

use crate::process::Process;

/// Bytes of the page, or of a part of one where pages are longer: the kernel rounds up.
const BYTES: usize = 4096;

/// Memory that is empty in every child at first (`MADV_WIPEONFORK`), however it was forked; none if the kernel gives
/// none (before Linux 4.14).
fn wiped() -> Option<&'static AtomicU32> {
    static PAGE: OnceLock<Option<&'static AtomicU32>> = OnceLock::new();
    *PAGE.get_or_init(|| {
        // SAFETY: new memory, where the kernel likes.
        let page = unsafe { mmap_anonymous(null_mut(), BYTES, ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE) };
        let page: NonNull<c_void> = NonNull::new(page.ok()?)?;
        // SAFETY: it is the page that was mapped, and nobody else has it.
        unsafe { madvise(page.as_ptr(), BYTES, Advice::LinuxWipeOnFork) }.ok()?;
        // SAFETY: it is aligned, all of it is 0, it stays mapped as long as the process lives, and is used in this way
        // alone.
        Some(unsafe { page.cast::<AtomicU32>().as_ref() })
    })
}

/// A number that a process has for as long as it lives, and that no child of it has which was forked after it was first
/// asked for. It costs no call of the kernel, but the first time. It is not the kernel's: where processes have name
/// spaces of their own, a child may have its parent's, and the kernel gives those of the dead away again.
#[inline]
pub(crate) fn own_number() -> u32 {
    /// The last that was given: a child goes on where its parent was when it was forked.
    static NUMBERS: AtomicU32 = AtomicU32::new(0);
    let Some(wiped) = wiped() else { return std::process::id() };
    match wiped.load(Ordering::Relaxed) {
        0 => {
            let next = NUMBERS.fetch_add(1, Ordering::Relaxed) + 1;
            // Another thread may have been the first.
            wiped.compare_exchange(0, next, Ordering::Relaxed, Ordering::Relaxed).map_or_else(|theirs| theirs, |_| next)
        }
        number => number,
    }
}

/// State that every process has for itself. A child that is forked begins with its own: in what it has a copy of, a
/// thread that it lacks may have locked something, or counted what only that thread would take off.
#[derive(Debug)]
pub(crate) struct Own<T: 'static>(AtomicPtr<(Process, T)>);

impl<T: Default + Send + Sync> Own<T> {
    pub(crate) const fn new() -> Self {
        Self(AtomicPtr::new(null_mut()))
    }

    /// That of this process. What a child finds there of its parent's is left alone, and never freed.
    pub(crate) fn get(&self) -> &'static T {
        let found = self.0.load(Ordering::Acquire);
        // SAFETY: what is stored there was leaked, whole, before it was stored.
        if let Some((process, own)) = unsafe { found.as_ref() }
            && process.is_this()
        {
            return own;
        }
        let new = Box::into_raw(Box::new((Process::this(), T::default())));
        let stored = self.0.compare_exchange(found, new, Ordering::AcqRel, Ordering::Acquire);
        let own = match stored {
            Ok(_) => new,
            Err(of_another_thread) => {
                // SAFETY: it was made here, and nobody else has seen it.
                drop(unsafe { Box::from_raw(new) });
                of_another_thread
            }
        };
        // SAFETY: as above. Only threads of this process have stored anything since `found` was there.
        unsafe { &(*own).1 }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    #[test]
    fn a_child_waits_for_no_lock_of_a_thread_that_it_lacks() {
        static OWN: Own<Mutex<u32>> = Own::new();
        *OWN.get().lock().expect("nobody panics") = 7;
        let held = OWN.get().lock().expect("nobody panics");
        // SAFETY: the child looks at memory of its own, and ends.
        let child = unsafe { libc::fork() };
        if child == 0 {
            let begins_anew = OWN.get().try_lock().is_ok_and(|own| *own == 0);
            let stays = OWN.get().try_lock().is_ok_and(|mut own| std::mem::replace(&mut *own, 1) == 0)
                && OWN.get().try_lock().is_ok_and(|own| *own == 1);
            // SAFETY: it ends the process.
            unsafe { libc::_exit(i32::from(!begins_anew || !stays)) };
        }
        let mut status = 0;
        // SAFETY: a child of this process, and a place for what has become of it.
        assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
        assert_eq!(status, 0, "the child has what its parent has");
        assert_eq!(*held, 7);
    }

    /// Waits for a child, or is it: what the child's work comes to.
    fn fork(work: impl FnOnce() -> i32) -> i32 {
        // SAFETY: the child looks at memory of its own, makes calls of the kernel, and ends.
        let child = unsafe { libc::fork() };
        if child == 0 {
            // SAFETY: it ends the process.
            unsafe { libc::_exit(work()) };
        }
        let mut status = 0;
        // SAFETY: a child of this process, and a place for what has become of it.
        assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
        libc::WEXITSTATUS(status)
    }

    /// The first process of a container may fork the first process of another one: both have number 1.
    #[test]
    fn a_child_is_another_process_though_it_has_the_number_of_its_parent() {
        const NOT_HERE: i32 = 77;
        // SAFETY: what is made from now on, in a process of one thread, is in name spaces of its own.
        let apart = |spaces| unsafe { libc::unshare(spaces) } == 0;
        let same = fork(|| {
            if !apart(libc::CLONE_NEWUSER | libc::CLONE_NEWPID) {
                return NOT_HERE;
            }
            fork(|| {
                let first = Process::this();
                if std::process::id() != 1 || !apart(libc::CLONE_NEWPID) {
                    return NOT_HERE;
                }
                fork(|| i32::from(std::process::id() != 1 || first.is_this()))
            })
        });
        if same == NOT_HERE {
            crate::skipped("no name spaces of processes can be had here");
        } else {
            assert_eq!(same, 0, "the child is taken for its parent");
        }
    }

    #[test]
    fn all_threads_of_a_process_have_the_same() {
        static OWN: Own<AtomicU32> = Own::new();
        std::thread::scope(|scope| {
            (0..8).for_each(|_| drop(scope.spawn(|| OWN.get().fetch_add(1, Ordering::Relaxed))));
        });
        assert_eq!(OWN.get().load(Ordering::Relaxed), 8);
    }
}
