//! Waiting for the peer in the middle of a message: spin, let others run, sleep, give up.

use std::hint::spin_loop;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use cutthrough_segment::bell::{self, Fence, NAP_MS};
use cutthrough_segment::half::{Own, Peer};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, recv, send};

use crate::clock;
use crate::idle::Idle;
use crate::stall::Stall;

/// How long to look before going to sleep, in nanoseconds: about what a sleep and the wake-up from it cost (5 to 45
/// microseconds where measured), so that waiting never costs more than twice the better choice.
pub(crate) const SPIN_NS: u64 = 50_000;

/// A short nap; and the one where the kernel does not let this side wait for the peer.
const NAP: Duration = Duration::from_millis(NAP_MS.unsigned_abs() as u64);

/// Most rings that are taken off a socket at a time; a socket with default buffers holds some hundreds.
const RINGS: u32 = 1024;

/// What woke a sleeper, or why waiting is over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Waited {
    /// Look again.
    Again,
    /// The peer is gone.
    PeerGone,
    /// There was no progress for the whole deadline.
    Deadline,
}

/// How long a sleep may be at a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Nap {
    /// Until the peer rings.
    Long,
    /// Not longer than [`NAP_MS`]: there is something else to look at.
    Short,
}

/// One wait, from the last progress on.
#[derive(Debug)]
pub(crate) struct Patience {
    stall: Option<Stall>,
    idle: Idle,
    looks: u32,
    deadline: Duration,
}

impl Patience {
    pub(crate) fn new(deadline: Duration) -> Self {
        Self { stall: None, idle: Idle::default(), looks: 0, deadline }
    }

    /// There was progress.
    pub(crate) const fn progress(&mut self) {
        self.stall = None;
        self.looks = 0;
        self.idle.found();
    }

    /// Passes the time until it makes sense to look again; `ready` is asked once more before sleeping.
    pub(crate) fn pass(
        &mut self,
        socket: &OwnedFd,
        (own, fence): (&Own, Fence),
        nap: Nap,
        ready: impl FnOnce() -> bool,
    ) -> Waited {
        spin_loop();
        self.looks += 1;
        if self.idle.look() {
            self.idle.let_others_run();
        }
        if !self.looks.is_multiple_of(64) {
            return Waited::Again;
        }
        let now = clock::now();
        let stall = self.stall.get_or_insert_with(|| Stall::new(self.deadline, now));
        if now.saturating_since(stall.moved()) < SPIN_NS {
            return Waited::Again;
        }
        let Some(left) = stall.left(now) else { return Waited::Deadline };
        drain(socket);
        own.arm();
        let nap = if bell::heavy_fence(fence) { nap } else { Nap::Short };
        let waited = if ready() { Waited::Again } else { sleep(socket, left, nap) };
        own.disarm();
        waited
    }
}

/// Sleeps until the peer rings or goes away.
fn sleep(socket: &OwnedFd, left: Duration, nap: Nap) -> Waited {
    let left = if nap == Nap::Short { left.min(NAP) } else { left };
    let timeout = Timespec::try_from(left).ok();
    let mut polled = [PollFd::new(socket, PollFlags::IN | PollFlags::RDHUP)];
    match poll(&mut polled, timeout.as_ref()) {
        Ok(_) | Err(Errno::INTR) => {}
        // It says nothing of the peer: the kernel has no memory just now, say. If that stays, the deadline ends it.
        Err(_) => {
            std::thread::sleep(left.min(NAP));
            return Waited::Again;
        }
    }
    if polled[0].revents().intersects(PollFlags::RDHUP | PollFlags::HUP | PollFlags::ERR) {
        Waited::PeerGone
    } else {
        Waited::Again
    }
}

/// Takes old rings off the socket, so that only new ones wake. What they say does not matter. Stops after more than any
/// socket holds: a peer that rings without end may keep this side awake, not here.
pub(crate) fn drain(socket: &OwnedFd) {
    let mut bytes = [0; 64];
    for _ in 0..RINGS {
        if !recv(socket.as_fd(), &mut bytes, RecvFlags::DONTWAIT).is_ok_and(|(len, _)| len > 0) {
            return;
        }
    }
}

/// Rings for a peer that is armed: whether it has. Never blocks; a full socket means that rings enough are waiting.
#[cold]
fn ring(socket: &OwnedFd) -> bool {
    send(socket, b"!", SendFlags::DONTWAIT | SendFlags::NOSIGNAL).is_ok()
}

/// Rings if the peer sleeps and was not rung for yet: to be called after publishing anything that it may wait for. True
/// if it rang.
#[inline]
pub(crate) fn wake(peer: &Peer, socket: &OwnedFd) -> bool {
    bell::light_fence();
    peer.wake(|| ring(socket))
}

/// Rings if the peer sleeps, waits for room, and was not rung for yet: to be called after telling it how many of its
/// messages were taken. True if it rang.
pub(crate) fn wake_for_room(peer: &Peer, socket: &OwnedFd) -> bool {
    bell::light_fence();
    peer.wake_for_room(|| ring(socket))
}

#[cfg(test)]
mod tests {
    use std::process::Command;
    use std::time::Instant;

    use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

    use super::*;

    /// Where the kernel does not say how it is with the peer's socket, nothing is known of the peer.
    #[test]
    fn who_may_not_sleep_takes_nobody_for_gone() {
        let mut part = Command::new(std::env::current_exe().unwrap());
        part.args(["--exact", "shm::patience::tests::too_few_files", "--ignored"]);
        let ended = part.output().unwrap();
        let [said, wrong] = [ended.stdout, ended.stderr].map(|text| String::from_utf8_lossy(&text).into_owned());
        // A name that no part has would be no failure.
        assert!(ended.status.success() && said.contains("1 passed"), "{}: {said}{wrong}", ended.status);
    }

    #[test]
    #[ignore = "a part of who_may_not_sleep_takes_nobody_for_gone"]
    fn too_few_files() {
        let (near, _far) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None).unwrap();
        // As where a process gives files up that it has opened: `poll` is refused for fewer than it names.
        setrlimit(Resource::Nofile, Rlimit { current: Some(0), ..getrlimit(Resource::Nofile) }).unwrap();
        let begun = Instant::now();
        assert_eq!(sleep(&near, Duration::from_secs(60), Nap::Long), Waited::Again);
        let took = begun.elapsed();
        assert!(took >= NAP && took < Duration::from_secs(30), "it looks without end, or sleeps: {took:?}");
    }
}
