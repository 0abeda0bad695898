//! What the kernel's own sockets need for a small message between two spinning cores.

use std::io;
use std::net::{Ipv4Addr, UdpSocket};
use std::os::unix::net::UnixDatagram;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use super::{Measured, one_way, turns, two_cores};

/// Bytes of a message.
const MESSAGE: usize = 64;

/// How long to wait for a message that may have been lost.
const LOST: Duration = Duration::from_secs(1);

/// One way of 64 B between two UDP sockets on loopback.
///
/// # Errors
/// If this process may use only one core, or the kernel refuses a socket.
pub fn udp_pingpong(duration: Duration) -> Measured {
    let (a, b) = udp_pair()?;
    pingpong(
        duration,
        |message| a.send(message),
        |buffer| a.recv(buffer),
        |message| b.send(message),
        |buffer| b.recv(buffer),
    )
}

/// One way of 64 B between two Unix datagram sockets.
///
/// # Errors
/// If this process may use only one core, or the kernel refuses a socket.
pub fn unix_pingpong(duration: Duration) -> Measured {
    let (a, b) = UnixDatagram::pair()?;
    a.set_nonblocking(true)?;
    b.set_nonblocking(true)?;
    pingpong(
        duration,
        |message| a.send(message),
        |buffer| a.recv(buffer),
        |message| b.send(message),
        |buffer| b.recv(buffer),
    )
}

fn udp_pair() -> io::Result<(UdpSocket, UdpSocket)> {
    let a = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?;
    let b = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?;
    a.connect(b.local_addr()?)?;
    b.connect(a.local_addr()?)?;
    a.set_nonblocking(true)?;
    b.set_nonblocking(true)?;
    Ok((a, b))
}

fn pingpong(
    duration: Duration,
    mut ask: impl FnMut(&[u8]) -> io::Result<usize> + Send,
    mut get_answer: impl FnMut(&mut [u8]) -> io::Result<usize> + Send,
    mut answer: impl FnMut(&[u8]) -> io::Result<usize> + Send,
    mut get_question: impl FnMut(&mut [u8]) -> io::Result<usize> + Send,
) -> Measured {
    let pair = two_cores()?;
    let done = AtomicBool::new(false);
    let asking = || {
        let never = AtomicBool::new(false);
        let samples = turns(duration, || ask(&[1; MESSAGE]).map(drop), || spin(&mut get_answer, &never).map(drop));
        done.store(true, Ordering::Release);
        samples
    };
    let answering = || {
        while spin(&mut get_question, &done)? {
            answer(&[2; MESSAGE])?;
        }
        Ok(())
    };
    one_way(pair.run(asking, answering))
}

/// Spins until a message is there (true) or `done` is set (false).
fn spin(receive: &mut impl FnMut(&mut [u8]) -> io::Result<usize>, done: &AtomicBool) -> io::Result<bool> {
    const TRIES: usize = 1024;
    let mut buffer = [0; MESSAGE];
    let give_up = Instant::now() + LOST;
    loop {
        for _ in 0..TRIES {
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
