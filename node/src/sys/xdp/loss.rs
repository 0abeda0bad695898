//! A wire that loses frames at random: what measurements need where the kernel has no `netem`.
//!
//! The program counts every frame of IP that comes to the interface, draws a number, and drops the frame if the number
//! is below the share that user space has set, at any time while it runs. It runs in the driver: there the kernel has
//! cut trains into frames before (a veth whose peer has such a program sends no trains), so that each frame has its own
//! fate, as on a wire. ARP always passes: a neighbour that is not found costs a second and says nothing of a transport.

use super::bpf::{Attached, Program, READ, SharedMemory};
use super::code::{Code, Do, When, Width};
use super::program::{CONTEXT, DATA, DATA_END, LINK_BYTES, PASS, R0, R1, R2, R3, R4, R7, R8, R9, number, short};
use super::{Interface, Mode, XdpError};

/// Verdict of the kernel's manual.
const DROP: i32 = 1;
/// A random number of 32 bits.
const RANDOM: i32 = 7;

/// Places in the memory shared with the program: frames of which 2^31 are lost, frames that came, and those dropped.
const SHARE: u64 = 0;
const CAME: u64 = 8;
const DROPPED: u64 = 16;

/// What [`Lossy::set`] is counted in.
pub const MILLION: u32 = 1_000_000;

/// An interface that loses frames which come to it, as long as this value or its process lives.
#[derive(Debug)]
pub struct Lossy {
    memory: SharedMemory,
    _attached: Attached,
}

/// Frames that came to an interface since its program is there. Both wrap at 2^32.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Frames {
    /// All of them.
    pub came: u32,
    /// Those that were dropped.
    pub dropped: u32,
}

impl Lossy {
    /// Puts the program at an interface of the calling thread's network namespace. It drops nothing yet.
    ///
    /// # Errors
    /// [`XdpError`]: no privilege or support, another program is there, the MTU is too long.
    pub fn attach(interface: &Interface) -> Result<Self, XdpError> {
        let memory = SharedMemory::new(24)?;
        let attached = Program::load(&code(memory.number()))?.attach(interface.index, Mode::Native)?;
        Ok(Self { memory, _attached: attached })
    }

    /// Of a million frames so many are lost from now on, at random; at most all.
    pub fn set(&self, per_million: u32) {
        let share = (u64::from(per_million.min(MILLION)) << 31) / u64::from(MILLION);
        self.memory.word(SHARE).store(u32::try_from(share).unwrap_or(1 << 31), std::sync::atomic::Ordering::Release);
    }

    /// What has come so far.
    #[must_use]
    pub fn frames(&self) -> Frames {
        let count = |place| self.memory.word(place).load(READ);
        Frames { came: count(CAME), dropped: count(DROPPED) }
    }
}

/// The program.
fn code(memory: i32) -> Vec<u8> {
    let mut code = Code::new();
    let (drop, pass) = (code.label(), code.label());
    code.change(CONTEXT, Do::Move, R1).memory(R7, memory);
    code.load(Width::Word, R2, CONTEXT, DATA).load(Width::Word, R3, CONTEXT, DATA_END);
    code.change(R4, Do::Move, R2).change(R4, Do::Add, number(LINK_BYTES.into())).jump(R4, When::Greater, R3, pass);
    let arp = i32::from(u16::from_le_bytes([0x08, 0x06]));
    code.load(Width::Half, R4, R2, 12).jump(R4, When::Equal, arp, pass);
    code.change(R8, Do::Move, 1).fetch_add(R7, short(CAME), R8);
    code.load(Width::Word, R9, R7, short(SHARE));
    // 31 bits, so that every share up to all of them can be compared.
    code.call(RANDOM).change(R0, Do::And, i32::MAX).jump(R0, When::Less, R9, drop).go(pass);
    code.stand(drop).change(R8, Do::Move, 1).fetch_add(R7, short(DROPPED), R8);
    code.change(R0, Do::Move, DROP).exit();
    code.stand(pass).change(R0, Do::Move, PASS).exit();
    code.finish()
}

#[cfg(test)]
mod tests {
    use std::io::IoSlice;
    use std::net::{SocketAddr, SocketAddrV4, UdpSocket};
    use std::time::{Duration, Instant};

    use super::super::wire::{FAR, NEAR, PORT, Wire};
    use super::*;
    use crate::sys::datagram::Datagrams;

    const TRAINS: u32 = 50;
    const CARS: u32 = 40;
    const CAR_BYTES: u16 = 1400;

    /// A socket at the far end. Made once for a wire: a port is not free as long as a process that another test starts
    /// at that moment has a copy of the socket.
    fn ear(wire: &Wire) -> UdpSocket {
        let far = wire.far(|| UdpSocket::bind((FAR, PORT)).unwrap());
        far.set_read_timeout(Some(Duration::from_millis(300))).unwrap();
        far
    }

    /// Sends trains from near to far, and returns the datagrams that were heard there.
    fn heard(wire: &Wire, far: &UdpSocket) -> u32 {
        let to = SocketAddr::V4(SocketAddrV4::new(FAR, PORT));
        let near = wire.near(|| Datagrams::bind(SocketAddr::V4(SocketAddrV4::new(NEAR, 0))).unwrap());
        let train = vec![7; usize::from(CAR_BYTES) * CARS as usize];
        let (mut heard, mut room) = (0, [0; 2048]);
        for _ in 0..TRAINS {
            let begun = Instant::now();
            while near.send(Some(to), &[IoSlice::new(&train)], Some(CAR_BYTES)).is_err() {
                assert!(begun.elapsed() < Duration::from_secs(10), "the way is full for ever");
                std::thread::yield_now();
            }
            // No more than one train waits there, so that no queue overflows; the last of it may be lost.
            far.set_nonblocking(true).unwrap();
            while far.recv(&mut room).is_ok() {
                heard += 1;
            }
        }
        far.set_nonblocking(false).unwrap();
        while far.recv(&mut room).is_ok() {
            heard += 1;
        }
        heard
    }

    #[test]
    fn each_frame_of_a_train_has_its_own_fate() {
        for mtu in [1500, 9000] {
            let Some(wire) = Wire::make(mtu) else { return };
            let far = ear(&wire);
            let lossy = wire.far(|| Lossy::attach(&Interface::named("far").unwrap())).unwrap();
            let all = TRAINS * CARS;
            // Whatever the kernel says by itself comes too.
            let mut before = lossy.frames();
            for (share, least, most) in [(0, 0, 0), (MILLION / 2, 800, 1200), (MILLION, all, all + 100)] {
                lossy.set(share);
                let heard = heard(&wire, &far);
                let now = lossy.frames();
                let (came, dropped) = (now.came - before.came, now.dropped - before.dropped);
                before = now;
                assert!((all..all + 100).contains(&came), "{came} frames came of {all} that were sent");
                assert!((least..=most).contains(&dropped), "{dropped} of {came} at {share} in a million");
                assert!(heard.abs_diff(all - dropped.min(all)) < 100, "{heard} heard, {dropped} dropped");
            }
        }
    }

    #[test]
    fn it_goes_with_its_value() {
        let Some(wire) = Wire::make(1500) else { return };
        wire.far(|| {
            let interface = Interface::named("far").unwrap();
            let lossy = Lossy::attach(&interface).unwrap();
            lossy.set(MILLION);
            drop(lossy);
            // Another can be there at once.
            Lossy::attach(&interface).map(drop).unwrap();
        });
        assert_eq!(heard(&wire, &ear(&wire)), TRAINS * CARS);
    }
}
