//! What the two processes of the demo say to each other: how to meet, on a pipe; everything else in control messages.

use std::path::PathBuf;

use cutthrough::{CONTROL_MAX, Instant, TOKEN_BYTES};
use serde::{Deserialize, Serialize};

use crate::timeline::Pulse;

/// What the serving process answers on its pipe when it listens; anything else is the reason why it does not.
pub const READY: &str = "ready";

/// How the serving process shall open its next endpoint: one line of JSON on its pipe.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq, Serialize)]
pub struct Setup {
    /// Where a folder to meet in is made.
    pub folder: PathBuf,
    /// The core to run on; any if none.
    pub core: Option<usize>,
    /// The policy, as on the command line.
    pub policy: String,
    /// Bytes of the staging ring.
    pub staging_bytes: u32,
    /// Bytes of the pool, and of the landing memory.
    pub memory_bytes: u64,
    /// Whether it shall listen at a socket of the kernel's instead, and open none.
    pub socket: bool,
    /// How long the file is, so that a file which has changed meanwhile is noticed.
    pub file_bytes: usize,
}

impl Setup {
    /// Where to listen.
    #[must_use]
    pub fn address(&self) -> String {
        format!("shm:{}/demo.sock", self.folder.display())
    }
}

/// A request, in one control message.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq, Serialize)]
pub enum Request {
    /// Send this page out of private memory.
    Page(u32),
    /// Send this page to where the token says.
    PageTo(u32, [u8; TOKEN_BYTES]),
    /// Hand over this page as it lies in the pool. Once after each [`Request::Fill`].
    PageItself(u32),
    /// Put the whole file into pages of the pool, and say when that is done.
    Fill,
    /// Send the file in messages of so many bytes, so many times over.
    Stream {
        /// Bytes of a message.
        bytes: u32,
        /// How many times over.
        laps: u32,
    },
    /// Send the first so many bytes of the file as one message, then how many pulses that took, then the pulses.
    Traced(u32),
}

impl Request {
    /// Writes it into `into`: the bytes of the control message.
    ///
    /// # Panics
    /// Never: the longest request is far shorter than a control message.
    #[must_use]
    pub fn write(self, into: &mut [u8; CONTROL_MAX]) -> &[u8] {
        postcard::to_slice(&self, into).expect("a request fits into a control message")
    }

    /// Reads a control message; none if it is no request.
    #[must_use]
    pub fn read(control: &[u8]) -> Option<Self> {
        postcard::from_bytes(control).ok()
    }
}

/// Bytes of a pulse in a control message: start, end and length.
const PULSE_BYTES: usize = 24;

/// How many pulses one control message holds.
pub const PULSES: usize = CONTROL_MAX / PULSE_BYTES;

/// A pulse between these times.
#[must_use]
pub fn pulse(start: Instant, end: Instant, bytes: u64) -> Pulse {
    Pulse { start_ns: start.as_nanos(), end_ns: end.as_nanos(), bytes }
}

/// Up to [`PULSES`] pulses as a control message.
#[must_use]
pub fn write_pulses(pulses: &[Pulse]) -> Vec<u8> {
    pulses.iter().flat_map(|pulse| [pulse.start_ns, pulse.end_ns, pulse.bytes]).flat_map(u64::to_le_bytes).collect()
}

/// The pulses of a control message.
#[must_use]
pub fn read_pulses(control: &[u8]) -> Vec<Pulse> {
    let words: Vec<u64> = control.as_chunks().0.iter().map(|word| u64::from_le_bytes(*word)).collect();
    let pulse = |&[start_ns, end_ns, bytes]: &[u64; 3]| Pulse { start_ns, end_ns, bytes };
    words.as_chunks().0.iter().map(pulse).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_request_fits_and_is_read_back() {
        let mut control = [0; CONTROL_MAX];
        for request in [
            Request::PageTo(u32::MAX, [0xff; TOKEN_BYTES]),
            Request::Stream { bytes: u32::MAX, laps: u32::MAX },
            Request::Fill,
        ] {
            assert_eq!(Request::read(request.write(&mut control)), Some(request));
        }
        assert_eq!(Request::read(&[0xff; CONTROL_MAX]), None);
        assert_eq!(Request::read(&[]), None);
    }

    #[test]
    fn pulses_are_read_back() {
        let pulses: Vec<Pulse> =
            (0..PULSES as u64).map(|n| Pulse { start_ns: n, end_ns: u64::MAX - n, bytes: n * 7 }).collect();
        let control = write_pulses(&pulses);
        assert!(control.len() <= CONTROL_MAX);
        assert_eq!(read_pulses(&control), pulses);
        assert_eq!(read_pulses(&[1, 2, 3]), []);
    }
}
