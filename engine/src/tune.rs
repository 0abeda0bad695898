//! What is worth a pulse: the cost of a stage, learnt from the pulses it made.
//!
//! # The model
//!
//! A pulse of `n` bytes takes `overhead + n / rate`. A message of `len` bytes that goes in pulses of `p` bytes through
//! a stage and on through the next one, both of that cost, is there after
//!
//! ```text
//! T(p) = len / rate  +  p / rate  +  (len / p) * overhead
//!        all of it      the next      each pulse
//!                       stage lags
//!                       one pulse
//! ```
//!
//! which is least at `p = sqrt(len * overhead * rate)`: the classical optimum of pipelined transfers, of which the 1280
//! bytes that HPDC 1997 (section 4.1) found best for 8 KiB by a sweep are an instance. Shorter pulses cost more than
//! they bring, so this is [`Tuner::minpulse`].
//!
//! # The noise
//!
//! Measured durations err on one side only: a preempted core, a busy bus or a late poll makes a pulse look 10 to 1000
//! times longer, and nothing makes it shorter. So the fit is a line *below* the measurements. For each power of two of
//! the pulse length the fastest recent pulse is kept; among all lines that lie below those points the one nearest to
//! them (in relative terms) is the edge of their lower convex hull which spans their weighted mean. Moon, Skelly and
//! Towsley use the same linear program against one-sided network delay ("Estimation and removal of clock skew from
//! network delay measurements", INFOCOM 1999).
//!
//! "Recent" is the present and the last batch of [`BATCH`] pulses, so that a stage that has become slower is believed
//! after at most twice that many; one that has become faster, as soon as its lengths have been seen again.

mod hull;

use hull::{Fastest, Hull};

/// Pulses after which the older half of what is known is forgotten.
pub const BATCH: u32 = 64;

/// Pulses between two fits. A fit costs some hundred instructions, a pulse in between just a comparison.
const FIT_EVERY: u32 = 16;

/// One class for each power of two of the pulse length, from below 128 bytes to 2 MiB and above.
const CLASSES: usize = 16;

/// Bytes of the longest pulse of class 0, as a power of two (exclusive).
const FIRST_CLASS_LOG2: u32 = 7;

/// No pulse is worth less than this, unless the message is shorter: four cache lines.
const MINPULSE_FLOOR: u64 = 256;

/// Pulses are whole cache lines.
const LINE: u64 = 64;

/// Overhead of a stage before its first pulse, in nanoseconds: a system call, or a few lines of cache traffic.
const PRIOR_OVERHEAD_NS: u64 = 200;

/// Rate of a stage before its first pulse, in bytes per microsecond: a plain copy through shared cache.
const PRIOR_BYTES_PER_US: u64 = 8_000;

/// Unseen pulses are so long that overhead takes one part in this many of the time, which keeps 0.95 of the bandwidth.
const OVERHEAD_SHARE: u64 = 20;

/// The measured cost of one stage, and the pulse lengths that follow from it. Fixed size, no allocation.
#[derive(Debug, Clone)]
pub struct Tuner {
    overhead_ns: u64,
    bytes_per_us: u64,
    /// What pulses of one length leave as it was believed to be: what is worth a pulse, or the overhead.
    leaves_worth: bool,
    /// Pulses in the present batch.
    seen: u32,
    present: [Fastest; CLASSES],
    last: [Fastest; CLASSES],
}

/// Payloads of which one is timed, after the first [`BATCH`] of them.
const TIMED: u32 = 16;

/// Bytes beside which it costs nothing to read a clock for each pulse.
const LONG: u64 = 256 << 10;

/// Whether the pulses of the payload `number`, of `len` bytes, are worth timing. To read a clock takes as long as to
/// move 2 KiB, and it is read twice or more for each pulse, while what is to be learnt changes slowly.
#[must_use]
pub const fn is_timed(number: u32, len: u64) -> bool {
    len >= LONG || number < BATCH || number.is_multiple_of(TIMED)
}

impl Default for Tuner {
    fn default() -> Self {
        Self::with_prior(PRIOR_OVERHEAD_NS, PRIOR_BYTES_PER_US)
    }
}

impl Tuner {
    /// A tuner that believes in the given cost until pulses have been measured: `overhead_ns` nanoseconds for each
    /// pulse, `bytes_per_us` bytes in each microsecond (that is, MB/s). Values below 1 count as 1.
    #[must_use]
    pub fn with_prior(overhead_ns: u64, bytes_per_us: u64) -> Self {
        Self {
            overhead_ns: overhead_ns.max(1),
            bytes_per_us: bytes_per_us.max(1),
            leaves_worth: false,
            seen: 0,
            present: [Fastest::NONE; CLASSES],
            last: [Fastest::NONE; CLASSES],
        }
    }

    /// The same tuner, but what is worth a pulse stays as it was believed to be while pulses have been of one length.
    /// It is for a stage that may begin with pulses far shorter than the messages it divides later, as a network does
    /// with control messages: what these take is overhead for the most part, and to keep to an overhead that was
    /// believed in leaves hardly any rate.
    #[must_use]
    pub fn after_short_ones(self) -> Self {
        Self { leaves_worth: true, ..self }
    }

    /// Takes note that a pulse of `bytes` bytes lasted `ns` nanoseconds. Empty pulses say nothing and are ignored.
    pub fn observe(&mut self, bytes: u64, ns: u64) {
        if bytes == 0 {
            return;
        }
        let pulse = Fastest { bytes: saturating_u32(bytes), ns: saturating_u32(ns.max(1)).min(u32::MAX - 1) };
        let class = &mut self.present[class_of(pulse.bytes)];
        *class = class.of(pulse);
        self.seen += 1;
        if self.seen.is_multiple_of(FIT_EVERY) || (self.seen < FIT_EVERY && self.seen.is_power_of_two()) {
            self.fit();
        }
        if self.seen == BATCH {
            self.last = self.present;
            self.present = [Fastest::NONE; CLASSES];
            self.seen = 0;
        }
    }

    /// Cost of starting a pulse, in nanoseconds; at least 1.
    #[must_use]
    pub fn overhead_ns(&self) -> u64 {
        self.overhead_ns
    }

    /// Rate of a pulse under way, in bytes per microsecond (MB/s); at least 1.
    #[must_use]
    pub fn bytes_per_us(&self) -> u64 {
        self.bytes_per_us
    }

    /// Fewest bytes worth a pulse for a message of `len` bytes: `sqrt(len * overhead * rate)` in whole cache lines, at
    /// least 256, at most `len`.
    #[must_use]
    pub fn minpulse(&self, len: u64) -> u64 {
        let square = len.saturating_mul(self.overhead_bytes());
        square.isqrt().max(MINPULSE_FLOOR).next_multiple_of(LINE).min(len)
    }

    /// Longest pulse for a stage whose progress is not visible: overhead takes a twentieth of it, so that a stream of
    /// such pulses reaches 0.95 of the stage's rate while the next stage waits no longer than that takes.
    #[must_use]
    pub fn pulse_max(&self) -> u64 {
        let bytes = self.overhead_bytes().saturating_mul(OVERHEAD_SHARE - 1);
        bytes.clamp(MINPULSE_FLOOR, u64::MAX - LINE).next_multiple_of(LINE)
    }

    /// What the stage could move in the time that starting a pulse costs.
    fn overhead_bytes(&self) -> u64 {
        self.overhead_ns.saturating_mul(self.bytes_per_us) / 1000
    }

    /// Draws the line anew.
    fn fit(&mut self) {
        let mut hull = Hull::EMPTY;
        for (present, last) in self.present.iter().zip(&self.last) {
            let fastest = present.of(*last);
            if fastest.ns < u32::MAX {
                hull.push(fastest);
            }
        }
        match hull.edge() {
            Some((short, long)) => self.take_line(short, long),
            None => self.take_point(hull.points[0]),
        }
    }

    /// Takes the line through two points, of which `long` has more bytes and took longer.
    fn take_line(&mut self, short: Fastest, long: Fastest) {
        let bytes = u64::from(long.bytes - short.bytes);
        let ns = u64::from(long.ns - short.ns);
        let moving_ns = u64::from(short.bytes) * ns / bytes;
        self.overhead_ns = u64::from(short.ns).saturating_sub(moving_ns).max(1);
        self.bytes_per_us = (bytes * 1000 / ns).max(1);
    }

    /// With pulses of one length only, overhead and rate cannot be told apart: keeps the overhead as far as it can be
    /// true, and takes the rate from the rest. Or takes the stage for as many times slower in both as such a pulse took
    /// longer than was believed: then what is worth a pulse stays as it was.
    fn take_point(&mut self, point: Fastest) {
        let (bytes, ns) = (u64::from(point.bytes), u64::from(point.ns));
        let moving_ns = if self.leaves_worth {
            let believed_ns = u128::from((bytes * 1000).div_ceil(self.bytes_per_us));
            let all_ns = u128::from(self.overhead_ns) + believed_ns;
            u64::try_from(u128::from(ns) * believed_ns / all_ns).unwrap_or(ns)
        } else {
            ns.saturating_sub(self.overhead_ns.min(ns / 2).max(1))
        };
        let moving_ns = moving_ns.max(1);
        self.overhead_ns = ns.saturating_sub(moving_ns).max(1);
        self.bytes_per_us = (bytes * 1000 / moving_ns).max(1);
    }
}

/// The class of a pulse of `bytes` bytes, which is not 0.
fn class_of(bytes: u32) -> usize {
    let class = (bytes.ilog2() + 1).saturating_sub(FIRST_CLASS_LOG2);
    (class as usize).min(CLASSES - 1)
}

fn saturating_u32(value: u64) -> u32 {
    u32::try_from(value).unwrap_or(u32::MAX)
}
