//! Who is told of what comes while somebody sleeps; and nobody while the application looks by itself.
//!
//! The kernel tells whoever watches a socket of each datagram that has come to it, and of each that has left it, on
//! that datagram's way: a quarter of a microsecond and more for each, though nobody sleeps. To end that and to have it
//! again takes two calls for each socket. So an application that has found something often enough since it last slept
//! is not told any more, until it sleeps again: it pays twice, at most, what it would pay if it knew how long it will
//! go on without sleep.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::event::epoll;
use rustix::io::Errno;

use super::door::Core;

/// Looks that have found something since the last sleep, after which nobody is told any more. Each of them costs a
/// quarter of a microsecond at least that ending it saves, and the calls for two sockets take less than four.
const FOUND: u32 = 16;

/// Whether somebody is told.
#[derive(Debug)]
pub(super) struct Watch {
    /// What whoever sleeps on the endpoint sleeps on, and as what it is told there of the network.
    sleepers: Option<(OwnedFd, u64)>,
    on: bool,
    /// Looks that have found something since the last sleep.
    found: u32,
}

impl Default for Watch {
    fn default() -> Self {
        Self { sleepers: None, on: true, found: 0 }
    }
}

impl Watch {
    fn has(&self, socket: BorrowedFd<'_>, on: bool) -> Result<(), Errno> {
        let how = epoll::EventFlags::IN | epoll::EventFlags::ET;
        self.sleepers.as_ref().map_or(Ok(()), |(sleepers, number)| tell(sleepers, socket, (*number, how), on))
    }
}

/// Whether those who sleep on `sleepers` are told of what comes by a socket, as this number and so, from now on; and of
/// what has come before, if they are, because the kernel looks then.
///
/// # Errors
/// As the kernel says.
pub(super) fn tell(
    sleepers: &OwnedFd,
    socket: BorrowedFd<'_>,
    (number, how): (u64, epoll::EventFlags),
    on: bool,
) -> Result<(), Errno> {
    let told = match on {
        true => epoll::add(sleepers, socket, epoll::EventData::new_u64(number), how),
        false => epoll::delete(sleepers, socket),
    };
    match told {
        // As it was before.
        Err(Errno::EXIST | Errno::NOENT) => Ok(()),
        told => told,
    }
}

impl Core {
    /// What comes wakes whoever sleeps on `sleepers`, as `number`.
    ///
    /// # Errors
    /// As the kernel says.
    pub(super) fn tells(&mut self, sleepers: BorrowedFd<'_>, number: u64) -> io::Result<()> {
        self.watch.sleepers = Some((sleepers.try_clone_to_owned()?, number));
        if let Some(lanes) = &self.lanes {
            // Whatever rings there are now and later.
            self.watch.has(lanes.watched(), true)?;
        }
        Ok(self.set_watch(true)?)
    }

    /// Has whoever may sleep from now on told of what comes. False if the kernel refuses that: then nobody may sleep.
    pub(super) fn listens(&mut self) -> bool {
        self.watch.found = 0;
        // A child that was forked shares with its parent what that sleeps on.
        self.watch.on || !self.process.is_this() || self.set_watch(true).is_ok()
    }

    /// The application, which is awake, has looked and found something.
    #[inline]
    pub(super) fn has_found(&mut self) {
        if self.watch.on {
            self.watch.found += 1;
            if self.watch.found >= FOUND {
                // Those for which the kernel refuses that are told in vain.
                let _ = self.set_watch(false);
            }
        }
    }

    #[cold]
    fn set_watch(&mut self, on: bool) -> Result<(), Errno> {
        // Where some are told and others are not, nobody may sleep before all are.
        self.watch.on = false;
        self.watch.has(self.socket.as_fd(), on)?;
        if let Some(joined) = &self.joined {
            self.watch.has(joined.as_fd(), on)?;
        }
        if let Some(lanes) = &mut self.lanes {
            lanes.tell(on)?;
        }
        self.watch.on = on;
        Ok(())
    }
}
