//! What UDP needs for a long message one way where one call sends and receives many datagrams (a train), and where the
//! scatter lists of both ends alone decide what lies where: headers aside, slices of the payload at their places.
//!
//! This is the bare loop of an adapter over UDP: no window, no repair, no seal. Both ends spin; payloads go from
//! private memory to private memory; every header and every byte is compared, outside of the time that counts.

use std::io::{self, IoSlice, IoSliceMut};
use std::time::{Duration, Instant};

use cutthrough_node::sys::datagram::{Datagrams, Received};

use super::stream::{Meter, Stamp};
use super::wire::{LOST, Wire, spin, spin_for};
use super::{Measured, Unavailable, percentiles, two_cores};
use crate::clock::{Length, Pace, Phase};
use crate::perf::lane::spare;
use crate::perf::room::filled;
use crate::stats::{Samples, nanoseconds};
use crate::units::Size;

/// Bytes of headers of IPv4 and UDP.
const IP_UDP: usize = 28;
/// Most bytes of a train.
const TRAIN: usize = 65_000;
/// Most datagrams of a train, which every kernel with trains takes.
const DATAGRAMS: usize = 64;
/// Bytes of the datagram back, which says that the next message may come.
const BACK: usize = 64;
/// What ends it, of either end: one byte.
const END: [u8; 1] = [0];

/// Trains of a stream that may be under way, and after how many the receiver says so.
const WINDOW: u64 = 16;
const CONFIRM_EVERY: u64 = 4;

/// How a payload is cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Cut {
    /// Bytes of our own header in each datagram.
    header: usize,
    /// Bytes of payload in each datagram but the last.
    slice: usize,
    /// Datagrams of each train but the last.
    datagrams: usize,
}

impl Cut {
    /// For a payload of so many bytes: as few trains as will do, all of about the same length, so that both ends are at
    /// work at the same time.
    fn new(mtu: usize, header: usize, bytes: usize) -> Self {
        let segment = (mtu - IP_UDP).min(TRAIN);
        let slice = segment - header;
        let most = (TRAIN / segment).clamp(1, DATAGRAMS);
        let slices = bytes.div_ceil(slice).max(1);
        let trains = slices.div_ceil(most);
        Self { header, slice, datagrams: slices.div_ceil(trains) }
    }

    /// For trains without headers that are as long as can be.
    fn longest(mtu: usize) -> Self {
        let segment = (mtu - IP_UDP).min(TRAIN);
        Self::new(mtu, 0, TRAIN / segment * segment)
    }

    fn segment(self) -> u16 {
        u16::try_from(self.header + self.slice).unwrap_or(u16::MAX)
    }

    /// Bytes of payload in a train.
    fn payload(self) -> usize {
        self.slice * self.datagrams
    }
}

/// From the first call for a message until all of it lies at its place in the receiver's private memory. `header` is
/// the bytes of our own header in each datagram, 24 at least.
///
/// # Errors
/// If this process may use only one core, the kernel refuses a socket, or something was lost or lies elsewhere.
///
/// # Panics
/// If the header is shorter, or does not fit into a datagram.
pub fn udp_gso_oneway(wire: &Wire, size: Size, header: usize, duration: Duration) -> Measured {
    let (near, far) = wire.datagrams()?;
    let cut = Cut::new(wire.mtu(), header, size.bytes());
    let payload = pattern(size.bytes());
    // All memory is there before the first datagram is: a receiver that has to wait for pages loses some.
    let mut headers = filled(payload.len().div_ceil(cut.slice) * header, 0)?;
    let mut landing = filled(payload.len(), 0)?;
    let mut sender = Sender { socket: &near, cut, payload: &payload, headers: headers.clone() };
    let clock = Instant::now();
    let sending = || -> io::Result<()> {
        let mut pace = Pace::new(Length::of(duration), Instant::now());
        let mut number = 0;
        while pace.phase() != Phase::Over {
            sender.head(number);
            let counts = pace.phase() == Phase::Measure;
            Stamp { ns: nanoseconds(clock.elapsed()), counts }.write(&mut sender.headers[8..]);
            sender.send()?;
            if receive_checked(&near, size)? != BACK {
                // The other end says why.
                return Ok(());
            }
            number += 1;
            pace.tick(Instant::now(), 1);
        }
        send(&near, &[IoSlice::new(&END)], None)
    };
    let receiving = || {
        let taken = take_all(&far, cut, &payload, &mut headers, &mut landing, clock);
        if taken.is_err() {
            send(&far, &[IoSlice::new(&END)], None)?;
        }
        taken
    };
    let (sent, samples) = two_cores()?.run(sending, receiving)?;
    let samples = samples?;
    sent?;
    percentiles(&samples, 1.0)
}

struct Sender<'a> {
    socket: &'a Datagrams,
    cut: Cut,
    payload: &'a [u8],
    headers: Vec<u8>,
}

impl Sender<'_> {
    /// Writes the headers of a message: its number and that of the slice.
    fn head(&mut self, number: u32) {
        for (index, bytes) in (0_u32..).zip(self.headers.chunks_exact_mut(self.cut.header)) {
            bytes[..8].copy_from_slice(&name(number, index));
        }
    }

    /// Sends a message, a train in each call.
    fn send(&self) -> io::Result<()> {
        let cut = self.cut;
        let headers = self.headers.chunks(cut.header * cut.datagrams);
        for (headers, payload) in headers.zip(self.payload.chunks(cut.payload())) {
            let mut parts = [IoSlice::new(&[]); 2 * DATAGRAMS];
            let mut used = 0;
            for (header, slice) in headers.chunks(cut.header).zip(payload.chunks(cut.slice)) {
                parts[used] = IoSlice::new(header);
                parts[used + 1] = IoSlice::new(slice);
                used += 2;
            }
            send(self.socket, &parts[..used], Some(cut.segment()))?;
        }
        Ok(())
    }
}

/// Takes every message until the end: how long each took, of those that count.
fn take_all(
    socket: &Datagrams,
    cut: Cut,
    payload: &[u8],
    headers: &mut [u8],
    landing: &mut [u8],
    clock: Instant,
) -> io::Result<Samples> {
    let mut samples = Samples::new();
    // The lists are the same for every message; each call gets its part of them.
    let slices = headers.chunks_mut(cut.header).zip(landing.chunks_mut(cut.slice));
    let mut places: Vec<IoSliceMut<'_>> =
        slices.flat_map(|(header, slice)| [IoSliceMut::new(header), IoSliceMut::new(slice)]).collect();
    for number in 0.. {
        for train in places.chunks_mut(2 * cut.datagrams) {
            let received = receive(socket, train)?;
            if received.bytes == END.len() {
                return Ok(samples);
            }
            let expected: usize = train.iter().map(|part| part.len()).sum();
            if received.bytes != expected || received.truncated {
                return Err(io::Error::other("a train came in another shape than it was sent"));
            }
        }
        let now = nanoseconds(clock.elapsed());
        if let Some(stamp) = Stamp::read(&places[0][8..]).filter(|stamp| stamp.counts) {
            samples.record(now.saturating_sub(stamp.ns));
        }
        check(&mut places, number, payload.chunks(cut.slice))?;
        send(socket, &[IoSlice::new(&[1; BACK])], None)?;
    }
    Ok(samples)
}

/// Compares everything that has arrived, and wipes it, so that the next message cannot be taken for this one.
fn check<'a>(places: &mut [IoSliceMut<'_>], number: u32, sent: impl Iterator<Item = &'a [u8]>) -> io::Result<()> {
    for ((index, place), sent) in (0_u32..).zip(places.chunks_exact_mut(2)).zip(sent) {
        if place[0][..8] != name(number, index) || *place[1] != *sent {
            return Err(io::Error::other(format!("slice {index} of message {number} lies elsewhere")));
        }
        place[1].fill(0);
    }
    Ok(())
}

/// Bytes per second of trains that are as long as can be, in the order in which they come, read into one buffer; both
/// ends spin. A few are under way at a time, so that none is lost.
///
/// # Errors
/// As [`udp_gso_oneway`].
pub fn udp_gso_stream(wire: &Wire, duration: Duration) -> Result<f64, Unavailable> {
    let (near, far) = wire.datagrams()?;
    let cut = Cut::longest(wire.mtu());
    let sending = || -> io::Result<()> {
        let train = vec![0x5a; cut.payload()];
        let (mut sent, mut taken) = (0, 0);
        let end = Instant::now() + duration;
        while Instant::now() < end {
            while sent - taken >= WINDOW {
                receive(&near, &mut [IoSliceMut::new(&mut [0; BACK])])?;
                taken += CONFIRM_EVERY;
            }
            send(&near, &[IoSlice::new(&train)], Some(cut.segment()))?;
            sent += 1;
        }
        send(&near, &[IoSlice::new(&END)], None)
    };
    let receiving = || -> io::Result<Option<f64>> {
        let mut room = vec![0; TRAIN];
        let mut meter = Meter::new(duration / 10);
        for number in 1_u64.. {
            let received = receive(&far, &mut [IoSliceMut::new(&mut room)])?;
            if received.bytes == END.len() {
                break;
            }
            meter.add(received.bytes);
            if number.is_multiple_of(CONFIRM_EVERY) {
                send(&far, &[IoSlice::new(&[1; BACK])], None)?;
            }
        }
        Ok(meter.bytes_per_s())
    };
    let (sent, rate) = two_cores()?.run(sending, receiving)?;
    let rate = rate?;
    sent?;
    rate.ok_or_else(|| Unavailable("nothing was measured in the time given".into()))
}

fn send(socket: &Datagrams, parts: &[IoSlice<'_>], segment: Option<u16>) -> io::Result<()> {
    spin(|| Ok(socket.send(None, parts, segment)?)).map(drop)
}

fn receive(socket: &Datagrams, parts: &mut [IoSliceMut<'_>]) -> io::Result<Received> {
    spin(|| Ok(socket.receive(parts)?))
}

/// Receives what comes back once the other end has compared a message of so many bytes, however long that takes: how
/// many bytes that is.
fn receive_checked(socket: &Datagrams, size: Size) -> io::Result<usize> {
    let mut back = [0; BACK];
    let mut parts = [IoSliceMut::new(&mut back)];
    Ok(spin_for(LOST + spare(size.0), || Ok(socket.receive(&mut parts)?))?.bytes)
}

/// The bytes by which a slice is known.
fn name(message: u32, slice: u32) -> [u8; 8] {
    (u64::from(message) << 32 | u64::from(slice)).to_le_bytes()
}

/// A payload of which no slice of usual length is like another, and no byte is 0.
fn pattern(bytes: usize) -> Vec<u8> {
    (0..bytes).map(|at| (at * 31 / 8).to_le_bytes()[0] | 1).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn trains_are_few_and_of_one_length() {
        let cut = |mtu, header, bytes| Cut::new(mtu, header, bytes);
        assert_eq!(cut(1500, 32, 8 << 10), Cut { header: 32, slice: 1440, datagrams: 6 });
        assert_eq!(cut(1500, 32, 64 << 10), Cut { header: 32, slice: 1440, datagrams: 23 });
        assert_eq!(cut(1500, 32, 1 << 20), Cut { header: 32, slice: 1440, datagrams: 43 });
        assert_eq!(cut(9000, 64, 1 << 20), Cut { header: 64, slice: 8908, datagrams: 7 });
        assert_eq!(cut(65_535, 32, 1 << 20), Cut { header: 32, slice: 64_968, datagrams: 1 });
        assert_eq!((Cut::longest(1500).segment(), Cut::longest(1500).payload()), (1472, 44 * 1472));
    }

    #[test]
    fn what_lies_elsewhere_is_found() {
        let sent = pattern(30);
        let mut headers: Vec<u8> = (0..3).flat_map(|index| name(5, index)).collect();
        let mut landed = sent.clone();
        let check = |headers: &mut [u8], landed: &mut [u8]| {
            let slices = headers.chunks_mut(8).zip(landed.chunks_mut(10));
            let mut places: Vec<IoSliceMut<'_>> =
                slices.flat_map(|(header, slice)| [IoSliceMut::new(header), IoSliceMut::new(slice)]).collect();
            super::check(&mut places, 5, sent.chunks(10)).is_ok()
        };
        assert!(check(&mut headers, &mut landed));
        assert_eq!(landed, [0; 30]);
        assert!(!check(&mut headers, &mut landed));
        let mut swapped = sent.clone();
        swapped[..20].rotate_left(10);
        assert!(!check(&mut headers, &mut swapped));
        headers[8] ^= 1;
        assert!(!check(&mut headers, &mut sent.clone()));
    }
}
