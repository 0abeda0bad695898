//! A bad wire between two endpoints on loopback: a thread that passes on what each of them sends, but loses some of it,
//! repeats some, and holds some back so that later frames overtake it.
//!
//! It takes trains in and passes trains on, with holes in them, as a lossy network between two machines would.

use std::collections::BTreeMap;
use std::io::{IoSlice, IoSliceMut};
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use cutthrough_conform::random::Random;
use cutthrough_node::sys::datagram::Datagrams;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

/// How bad it is; shares in thousandths of the frames.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Badness {
    /// Lost.
    pub(crate) lost: u64,
    /// Passed on twice, the second time late.
    pub(crate) repeated: u64,
    /// Passed on late alone.
    pub(crate) late: u64,
    /// Longest datagram that gets through, in bytes.
    pub(crate) longest: usize,
    /// Where the sequence of accidents begins.
    pub(crate) seed: u64,
}

/// What has happened to frames.
#[derive(Debug, Default)]
pub(crate) struct Done {
    /// Passed on in time.
    pub(crate) passed: AtomicU64,
    /// Lost, those that were too long left out.
    pub(crate) lost: AtomicU64,
    /// Passed on late.
    pub(crate) late: AtomicU64,
}

/// A running relay; ends when dropped.
#[derive(Debug)]
pub(crate) struct Relay {
    /// Where to call whoever listens behind it.
    pub(crate) address: String,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Relay {
    /// Starts one before an endpoint at this address.
    pub(crate) fn start(to: SocketAddr, badness: Badness, done: Arc<Done>) -> Self {
        let front = socket();
        let address = format!("udp:{}", front.local().expect("its address"));
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let mut wire =
            Wire { front, to, callers: Vec::new(), late: BTreeMap::new(), chance: Random(badness.seed), badness, done };
        let run = move || {
            while !stopped.load(Ordering::Relaxed) {
                wire.pass_on();
            }
        };
        Self { address, stop, thread: Some(thread::spawn(run)) }
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // If it has panicked, so does the test, by what it misses.
            let _ = thread.join();
        }
    }
}

fn socket() -> Datagrams {
    Datagrams::bind(([127, 0, 0, 1], 0).into()).expect("a socket")
}

/// Which way a frame goes.
#[derive(Debug, Clone, Copy)]
enum Way {
    /// From this caller to whoever listens.
    There(usize),
    /// Back to this caller.
    Back(usize),
}

struct Wire {
    front: Datagrams,
    to: SocketAddr,
    /// Each caller, and the socket by which it is heard on the other side.
    callers: Vec<(SocketAddr, Datagrams)>,
    /// Frames that are held back, by when they go on.
    late: BTreeMap<(Instant, u64), (Way, Vec<u8>)>,
    chance: Random,
    badness: Badness,
    done: Arc<Done>,
}

impl Wire {
    /// Waits for frames, and passes them on.
    fn pass_on(&mut self) {
        let due = self.late.first_key_value().map(|((due, _), _)| due.saturating_duration_since(Instant::now()));
        let nap = due.unwrap_or(Duration::MAX).min(Duration::from_millis(20));
        let nap = Timespec { tv_sec: 0, tv_nsec: nap.as_nanos().try_into().expect("less than a second") };
        let sockets = std::iter::once(&self.front).chain(self.callers.iter().map(|(_, socket)| socket));
        let mut watched: Vec<_> = sockets.map(|s| PollFd::from_borrowed_fd(s.as_fd(), PollFlags::IN)).collect();
        let _ = poll(&mut watched, Some(&nap));
        drop(watched);
        let mut train = vec![0; 1 << 16];
        for _ in 0..16 {
            let Ok(received) = self.front.receive(&mut [IoSliceMut::new(&mut train)]) else { break };
            let known = self.callers.iter().position(|(caller, _)| *caller == received.from);
            let caller = known.unwrap_or_else(|| {
                self.callers.push((received.from, socket()));
                self.callers.len() - 1
            });
            self.take(Way::There(caller), &train[..received.bytes], received.segment.into());
        }
        for caller in 0..self.callers.len() {
            for _ in 0..16 {
                let Ok(received) = self.callers[caller].1.receive(&mut [IoSliceMut::new(&mut train)]) else { break };
                self.take(Way::Back(caller), &train[..received.bytes], received.segment.into());
            }
        }
        while let Some(entry) = self.late.first_entry().filter(|entry| entry.key().0 <= Instant::now()) {
            let (way, frame) = entry.remove();
            self.done.late.fetch_add(1, Ordering::Relaxed);
            self.put(way, &[&frame], frame.len());
        }
    }

    /// Passes on what accidents leave of a train.
    fn take(&mut self, way: Way, train: &[u8], segment: usize) {
        let Badness { lost, repeated, late, longest, .. } = self.badness;
        let mut rest: Vec<&[u8]> = Vec::new();
        for frame in train.chunks(segment.max(1)).filter(|frame| frame.len() <= longest) {
            let dice = self.chance.draw() % 1000;
            if dice < lost {
                self.done.lost.fetch_add(1, Ordering::Relaxed);
                continue;
            }
            if dice < lost + repeated + late {
                let due = Instant::now() + Duration::from_micros(50 + self.chance.draw() % 2000);
                let tie = self.chance.draw();
                self.late.insert((due, tie), (way, frame.to_vec()));
            }
            if dice < lost + repeated || dice >= lost + repeated + late {
                rest.push(frame);
            }
        }
        self.done.passed.fetch_add(rest.len() as u64, Ordering::Relaxed);
        if !rest.is_empty() {
            self.put(way, &rest, segment);
        }
    }

    /// Sends frames, all of a length but the last. Those for which there is no room are lost, too.
    fn put(&self, way: Way, frames: &[&[u8]], segment: usize) {
        let parts: Vec<_> = frames.iter().map(|frame| IoSlice::new(frame)).collect();
        let segment = (frames.len() > 1).then(|| segment.try_into().expect("a segment is short"));
        let _ = match way {
            Way::There(caller) => self.callers[caller].1.send(Some(self.to), &parts, segment),
            Way::Back(caller) => self.front.send(Some(self.callers[caller].0), &parts, segment),
        };
    }
}
