//! What the kernel's own sockets need for a small message, and back.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixDatagram;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use super::wire::{LOST, Wire};
use super::{Measured, message_wake_rested, one_way, turns, two_cores};

/// Bytes of a message.
const MESSAGE: usize = 64;

/// How long a sleeper sleeps before it looks whether there will be any more messages.
const NAP: Duration = Duration::from_millis(20);

/// Looks for a message between two looks at the time: of one who spins, and of one who sleeps at each of them.
const SPINS: usize = 1024;
const SLEEPS: usize = 1;

/// One way of 64 B between two UDP sockets that are joined to each other; both ends spin.
///
/// # Errors
/// If this process may use only one core, or the kernel refuses a socket.
pub fn udp_pingpong(wire: &Wire, duration: Duration) -> Measured {
    let (a, b) = wire.udp()?;
    a.set_nonblocking(true)?;
    b.set_nonblocking(true)?;
    pingpong(
        duration,
        SPINS,
        |message| a.send(message),
        |buffer| a.recv(buffer),
        |message| b.send(message),
        |buffer| b.recv(buffer),
    )
}

/// The same; both ends sleep until a message is there.
///
/// # Errors
/// As [`udp_pingpong`].
pub fn udp_pingpong_sleeping(wire: &Wire, duration: Duration) -> Measured {
    let (a, b) = wire.udp()?;
    a.set_read_timeout(Some(NAP))?;
    b.set_read_timeout(Some(NAP))?;
    pingpong(
        duration,
        SLEEPS,
        |message| a.send(message),
        |buffer| a.recv(buffer),
        |message| b.send(message),
        |buffer| b.recv(buffer),
    )
}

/// Waking a thread that sleeps in `recv(2)` on a UDP socket, by one datagram of 64 B from an end that was awake
/// meanwhile. As [`futex_wake_rested`] does, it has slept for a while.
///
/// [`futex_wake_rested`]: super::futex_wake_rested
///
/// # Errors
/// As [`udp_pingpong`].
pub fn udp_wake_rested(wire: &Wire, duration: Duration) -> Measured {
    let (near, far) = wire.udp()?;
    far.set_read_timeout(Some(2 * LOST))?;
    let mut message = [0; MESSAGE];
    let sleep = || far.recv(&mut message).map(|_| 1);
    message_wake_rested(duration, || near.send(&[1; MESSAGE]).map(drop), sleep)
}

/// One way of 64 B over TCP without delay; both ends spin.
///
/// # Errors
/// As [`udp_pingpong`].
pub fn tcp_pingpong(wire: &Wire, duration: Duration) -> Measured {
    let (a, b) = wire.tcp()?;
    pingpong(duration, SPINS, |message| (&a).write(message), whole(&a), |message| (&b).write(message), whole(&b))
}

/// One way of 64 B between two Unix datagram sockets; both ends spin.
///
/// # Errors
/// As [`udp_pingpong`].
pub fn unix_pingpong(duration: Duration) -> Measured {
    let (a, b) = UnixDatagram::pair()?;
    a.set_nonblocking(true)?;
    b.set_nonblocking(true)?;
    pingpong(
        duration,
        SPINS,
        |message| a.send(message),
        |buffer| a.recv(buffer),
        |message| b.send(message),
        |buffer| b.recv(buffer),
    )
}

/// Reads a whole message of a stream, however many tries it takes.
fn whole(stream: &TcpStream) -> impl FnMut(&mut [u8]) -> io::Result<usize> {
    let mut stream = stream;
    let mut read = 0;
    move |buffer| {
        while read < buffer.len() {
            match stream.read(&mut buffer[read..])? {
                0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                more => read += more,
            }
        }
        read = 0;
        Ok(buffer.len())
    }
}

fn pingpong(
    duration: Duration,
    tries: usize,
    mut ask: impl FnMut(&[u8]) -> io::Result<usize> + Send,
    mut get_answer: impl FnMut(&mut [u8]) -> io::Result<usize> + Send,
    mut answer: impl FnMut(&[u8]) -> io::Result<usize> + Send,
    mut get_question: impl FnMut(&mut [u8]) -> io::Result<usize> + Send,
) -> Measured {
    let pair = two_cores()?;
    let done = AtomicBool::new(false);
    let asking = || {
        let never = AtomicBool::new(false);
        let samples =
            turns(duration, || ask(&[1; MESSAGE]).map(drop), || wait(&mut get_answer, &never, tries).map(drop));
        done.store(true, Ordering::Release);
        samples
    };
    let answering = || {
        while wait(&mut get_question, &done, tries)? {
            answer(&[2; MESSAGE])?;
        }
        Ok(())
    };
    one_way(pair.run(asking, answering))
}

/// Waits until a message is there (true) or `done` is set (false); looks at the time after so many tries.
fn wait(receive: &mut impl FnMut(&mut [u8]) -> io::Result<usize>, done: &AtomicBool, tries: usize) -> io::Result<bool> {
    let mut buffer = [0; MESSAGE];
    let give_up = Instant::now() + LOST;
    loop {
        for _ in 0..tries {
            match receive(&mut buffer) {
                Ok(_) => return Ok(true),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Err(error),
            }
            if done.load(Ordering::Acquire) {
                return Ok(false);
            }
        }
        if Instant::now() > give_up {
            return Err(io::Error::new(io::ErrorKind::TimedOut, "a message was lost"));
        }
    }
}
