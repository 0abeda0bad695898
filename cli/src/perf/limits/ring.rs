//! What rings of raw frames can do across a veth pair, with nothing around them.

use std::io;
use std::net::{SocketAddr, SocketAddrV4, UdpSocket};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use cutthrough::Adapter;
use cutthrough_node::raw::bare::Bare;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::retry_on_intr;

use super::wire::{LOST, Wire};
use super::{Measured, Unavailable, message_wake_rested, one_way, percentiles, two_cores};
use crate::clock::{Length, round_trips};
use crate::perf::across::Mode;
use crate::stats::Samples;
use crate::units::Size;

/// Bytes of a small message.
const MESSAGE: usize = 64;
/// Tries between two looks at the time.
const SPINS: usize = 1024;
/// Bytes handed to the ring in one call of a stream, at most.
const CALL: usize = 32 << 10;

/// Two rings across the wire, at its near and its far end.
fn ends(wire: &Wire, adapter: Adapter) -> Result<(Bare, Bare), Unavailable> {
    if wire.pair().is_none() {
        return Err(Unavailable("rings need an interface; give --veth 1500 or --veth 9000".into()));
    }
    let Mode(mode) = wire.xdp_mode;
    let near = wire.near(|at| UdpSocket::bind((at, 0)))?;
    let far = wire.far(|at| UdpSocket::bind((at, 0)))?;
    let (to_far, to_near) = (version_4(&far)?, version_4(&near)?);
    let near = wire.near(|_| Bare::open(adapter, near, to_far, mode))?;
    let far = wire.far(|_| Bare::open(adapter, far, to_near, mode))?;
    Ok((near, far))
}

fn version_4(socket: &UdpSocket) -> io::Result<SocketAddrV4> {
    match socket.local_addr()? {
        SocketAddr::V4(address) => Ok(address),
        SocketAddr::V6(_) => Err(io::ErrorKind::Unsupported.into()),
    }
}

/// One way of 64 B by rings of `adapter`; both ends spin.
///
/// # Errors
/// If there are no two cores, or no rings.
pub fn ring_pingpong(wire: &Wire, adapter: Adapter, duration: Duration) -> Measured {
    one_way(Ok(exchange(wire, adapter, MESSAGE, duration)?))
}

/// Asking for `size` bytes with 64, and copying what comes out of the ring; both ends spin. A whole round trip.
///
/// # Errors
/// As [`ring_pingpong`].
pub fn ring_fetch(wire: &Wire, adapter: Adapter, size: Size, duration: Duration) -> Measured {
    let bytes = usize::try_from(size.0).map_err(|_| Unavailable("too long".into()))?;
    let (samples, answered) = exchange(wire, adapter, bytes, duration)?;
    answered?;
    percentiles(&samples?, 1.0)
}

type Sides = (io::Result<Samples>, io::Result<()>);

fn exchange(wire: &Wire, adapter: Adapter, answer: usize, duration: Duration) -> Result<Sides, Unavailable> {
    let pair = two_cores()?;
    let (mut near, mut far) = ends(wire, adapter)?;
    let done = AtomicBool::new(false);
    let frame = near.frame_max();
    let asking = || {
        let mut page = vec![0; answer];
        let samples = round_trips(
            Length::of(duration),
            &mut near,
            |ring| send(ring, &[1; MESSAGE], frame),
            |ring| fill(ring, &mut page, &AtomicBool::new(false)).map(drop),
        );
        done.store(true, Ordering::Release);
        samples
    };
    let answering = || {
        let (mut question, page) = ([0; MESSAGE], vec![2; answer]);
        while fill(&mut far, &mut question, &done)? {
            send(&mut far, &page, frame)?;
        }
        Ok(())
    };
    Ok(pair.run(asking, answering)?)
}

fn send(ring: &mut Bare, bytes: &[u8], frame: usize) -> io::Result<()> {
    while !ring.send(bytes, frame)? {
        std::hint::spin_loop();
    }
    Ok(())
}

/// Copies frames out of the ring until all of `into` is there (true) or `done` is set (false).
fn fill(ring: &mut Bare, into: &mut [u8], done: &AtomicBool) -> io::Result<bool> {
    let give_up = Instant::now() + LOST;
    let mut have = 0;
    loop {
        for _ in 0..SPINS {
            ring.receive(|frame| {
                let take = frame.len().min(into.len() - have);
                into[have..have + take].copy_from_slice(&frame[..take]);
                have += take;
            });
            if have == into.len() {
                return Ok(true);
            }
            if done.load(Ordering::Relaxed) {
                return Ok(false);
            }
        }
        if Instant::now() > give_up {
            return Err(io::Error::new(io::ErrorKind::TimedOut, "a message was lost"));
        }
    }
}

/// Waking a thread that sleeps in `poll(2)` on a bare ring of `adapter`, by one frame of 64 B from an end that was
/// awake meanwhile: from the sending until the thread has the frame out of its ring. As [`futex_wake_rested`] does, it
/// has slept for a while.
///
/// [`futex_wake_rested`]: super::futex_wake_rested
///
/// # Errors
/// As [`ring_pingpong`].
pub fn ring_wake_rested(wire: &Wire, adapter: Adapter, duration: Duration) -> Measured {
    let (mut near, mut far) = ends(wire, adapter)?;
    let frame = near.frame_max();
    let mut message = [0; MESSAGE];
    let sleep = || {
        sleep_for_frame(&far)?;
        let came = far.receive(|frame| {
            let take = frame.len().min(MESSAGE);
            message[..take].copy_from_slice(&frame[..take]);
        });
        Ok(came as u64)
    };
    message_wake_rested(duration, || send(&mut near, &[1; MESSAGE], frame), sleep)
}

/// Sleeps in `poll(2)` until a frame is in the ring.
fn sleep_for_frame(ring: &Bare) -> io::Result<()> {
    let until = Timespec::try_from(2 * LOST).map_err(io::Error::other)?;
    let watched = ring.watched();
    match retry_on_intr(|| poll(&mut [PollFd::new(&watched, PollFlags::IN)], Some(&until)))? {
        0 => Err(io::Error::new(io::ErrorKind::TimedOut, "a message was lost")),
        _ => Ok(()),
    }
}

/// Bytes per second of full frames that arrive, by rings of `adapter`.
///
/// # Errors
/// As [`ring_pingpong`].
pub fn ring_stream(wire: &Wire, adapter: Adapter, duration: Duration) -> Result<f64, Unavailable> {
    let pair = two_cores()?;
    let (mut near, mut far) = ends(wire, adapter)?;
    let (done, came) = (AtomicBool::new(false), AtomicU64::new(0));
    let frame = near.frame_max();
    let bytes = vec![3; (CALL / frame).max(1) * frame];
    let sending = || {
        let begun = Instant::now();
        let mut sent = Ok(());
        while sent.is_ok() && begun.elapsed() < duration {
            sent = near.send(&bytes, frame).map(drop);
        }
        let rate = came.load(Ordering::Acquire) as f64 / begun.elapsed().as_secs_f64();
        done.store(true, Ordering::Release);
        sent.map(|()| rate)
    };
    let receiving = || {
        while !done.load(Ordering::Acquire) {
            let mut bytes = 0;
            far.receive(|frame| bytes += frame.len() as u64);
            came.fetch_add(bytes, Ordering::Release);
        }
    };
    let (rate, ()) = pair.run(sending, receiving)?;
    Ok(rate?)
}
