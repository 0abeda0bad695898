//! What the kernel's TCP needs for a long message one way, and how much it carries.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use super::wire::{Wire, spin};
use super::{Measured, Unavailable, percentiles, two_cores};
use crate::clock::{Length, Pace, Phase};
use crate::stats::{Samples, nanoseconds};
use crate::units::Size;

/// Bytes of the message back, which says that the next one may come.
const BACK: usize = 64;

/// Bytes that one call of a stream writes, and reads at most.
const PIECE: usize = 256 << 10;

/// The beginning of a message: when it was sent, on the clock of both ends, and whether that counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Stamp {
    /// Nanoseconds since a moment that both ends know.
    pub(super) ns: u64,
    /// Whether the warm-up is over.
    pub(super) counts: bool,
}

impl Stamp {
    pub(super) const BYTES: usize = 16;

    pub(super) fn write(self, to: &mut [u8]) {
        to[..8].copy_from_slice(&self.ns.to_le_bytes());
        to[8] = u8::from(self.counts);
    }

    /// None if there is no room for one.
    pub(super) fn read(from: &[u8]) -> Option<Self> {
        let (ns, rest) = from.split_first_chunk()?;
        Some(Self { ns: u64::from_le_bytes(*ns), counts: *rest.first()? != 0 })
    }
}

/// From the first write of a message until all of it lies in the receiver's private memory. Both ends spin and read the
/// same clock; the next message is sent when the other end says so.
///
/// # Errors
/// If this process may use only one core, or the kernel refuses a socket.
pub fn tcp_oneway(wire: &Wire, size: Size, duration: Duration) -> Measured {
    let (near, far) = wire.tcp()?;
    let bytes = size.bytes().max(Stamp::BYTES);
    let clock = Instant::now();
    // Each end owns its stream, so that the other one hears of its end.
    let sending = move || -> io::Result<()> {
        let mut stream = &near;
        let mut message = vec![0x5a; bytes];
        let mut pace = Pace::new(Length::of(duration), Instant::now());
        while pace.phase() != Phase::Over {
            let counts = pace.phase() == Phase::Measure;
            Stamp { ns: nanoseconds(clock.elapsed()), counts }.write(&mut message);
            let mut left = &message[..];
            while !left.is_empty() {
                let written = spin(|| stream.write(left))?;
                left = &left[written..];
            }
            read_all(stream, &mut [0; BACK])?;
            pace.tick(Instant::now(), 1);
        }
        Ok(())
    };
    let receiving = move || -> io::Result<Samples> {
        let mut stream = &far;
        let mut message = vec![0; bytes];
        let mut samples = Samples::new();
        while read_all(stream, &mut message)? {
            let now = nanoseconds(clock.elapsed());
            if let Some(stamp) = Stamp::read(&message).filter(|stamp| stamp.counts) {
                samples.record(now.saturating_sub(stamp.ns));
            }
            spin(|| stream.write(&[1; BACK]))?;
        }
        Ok(samples)
    };
    let (sent, samples) = two_cores()?.run(sending, receiving)?;
    let samples = samples?;
    sent?;
    percentiles(&samples, 1.0)
}

/// Fills the buffer, spinning: false if the stream ended instead.
fn read_all(mut stream: &TcpStream, buffer: &mut [u8]) -> io::Result<bool> {
    let mut read = 0;
    while read < buffer.len() {
        match spin(|| stream.read(&mut buffer[read..]))? {
            0 => return Ok(false),
            more => read += more,
        }
    }
    Ok(true)
}

/// Bytes per second of one stream, from the receiver's reads; both ends spin.
///
/// # Errors
/// As [`tcp_oneway`].
pub fn tcp_stream(wire: &Wire, duration: Duration) -> Result<f64, Unavailable> {
    let (near, far) = wire.tcp()?;
    let sending = move || -> io::Result<()> {
        let mut stream = &near;
        let piece = vec![0x5a; PIECE];
        let end = Instant::now() + duration;
        while Instant::now() < end {
            spin(|| stream.write(&piece))?;
        }
        Ok(())
    };
    let receiving = move || -> io::Result<Option<f64>> {
        let mut stream = &far;
        let mut piece = vec![0; PIECE];
        let mut meter = Meter::new(duration / 10);
        loop {
            match spin(|| stream.read(&mut piece))? {
                0 => return Ok(meter.bytes_per_s()),
                read => meter.add(read),
            }
        }
    };
    let (sent, rate) = two_cores()?.run(sending, receiving)?;
    let rate = rate?;
    sent?;
    rate.ok_or_else(|| Unavailable("nothing was measured in the time given".into()))
}

/// Counts what arrives, from the end of the warm-up to the last arrival.
#[derive(Debug)]
pub(super) struct Meter {
    warm: Duration,
    first: Option<Instant>,
    counted: Option<(Instant, Instant)>,
    bytes: u64,
}

impl Meter {
    /// One whose warm-up begins with the first arrival.
    pub(super) fn new(warm: Duration) -> Self {
        Self { warm, first: None, counted: None, bytes: 0 }
    }

    /// So many bytes have arrived.
    #[inline]
    pub(super) fn add(&mut self, bytes: usize) {
        let now = Instant::now();
        if let Some((_, last)) = &mut self.counted {
            *last = now;
            self.bytes += bytes as u64;
        } else if now - *self.first.get_or_insert(now) >= self.warm {
            self.counted = Some((now, now));
        }
    }

    /// None if nothing came after the warm-up.
    pub(super) fn bytes_per_s(&self) -> Option<f64> {
        let (begun, last) = self.counted?;
        Some(self.bytes as f64 / (last - begun).as_secs_f64()).filter(|rate| rate.is_finite() && *rate > 0.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stamp_is_read_as_it_was_written() {
        let mut bytes = [0xff; Stamp::BYTES];
        for stamp in [Stamp { ns: 0, counts: false }, Stamp { ns: u64::MAX - 1, counts: true }] {
            stamp.write(&mut bytes);
            assert_eq!(Stamp::read(&bytes), Some(stamp));
        }
        assert_eq!(Stamp::read(&bytes[..8]), None);
    }

    #[test]
    fn a_meter_counts_what_comes_after_the_warm_up() {
        let mut meter = Meter::new(Duration::ZERO);
        assert_eq!(meter.bytes_per_s(), None);
        meter.add(1_000_000);
        assert_eq!(meter.bytes_per_s(), None);
        std::thread::sleep(Duration::from_millis(10));
        meter.add(1000);
        let rate = meter.bytes_per_s().expect("a rate");
        assert!(rate > 0.0 && rate <= 100_000.0, "{rate}");
    }
}
