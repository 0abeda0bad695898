//! The pulse rule: how many bytes a stage moves now.
//!
//! Trapeze decided this in adapter firmware. HPDC 1997 (sections 3.1, 4.1, 4.2) compares store-and-forward, fixed
//! pulses, and "eager" pulses that take everything buffered; "Network I/O with Trapeze" (Hot Interconnects 1999,
//! section "Balancing Latency and Bandwidth") keeps the last under the name adaptive pipelining: when a sink is idle,
//! start one transfer of all the data that is buffered for it, if and only if the amount exceeds `minpulse`. The tail
//! of a message must move too, however short it is.
//!
//! Behind a fast source and a slow sink the backlog grows, so pulses grow and the cost per byte falls; behind a slow
//! source many short pulses use the sink's spare time to cut latency. Nobody has to choose a size.
//!
//! Everything here is a plain function of numbers. [`Transfer`](crate::transfer::Transfer) supplies the numbers.

use core::fmt;
use core::num::NonZeroU64;
use core::str::FromStr;

/// How the length of a pulse is chosen.
///
/// Written and read as `store-and-forward`, `fixed:BYTES`, `adaptive` or `adaptive:MINPULSE`; sizes may carry the
/// suffix `KiB` or `MiB`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Policy {
    /// A stage starts when all of the message has arrived in its source. The oldest way, kept as a baseline.
    StoreAndForward,
    /// Pulses of exactly this many bytes, and the tail.
    Fixed(NonZeroU64),
    /// A pulse takes everything buffered, if that is at least `minpulse` or the tail.
    Adaptive {
        /// Fewest bytes worth a pulse; `None` takes it from measured stage times (see [`crate::tune`]).
        minpulse: Option<NonZeroU64>,
    },
}

impl Default for Policy {
    fn default() -> Self {
        Self::Adaptive { minpulse: None }
    }
}

/// What a stage that has fallen idle finds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct View {
    /// Bytes that wait in the source.
    pub buffered: u64,
    /// Bytes of the message which the stage has still to move, those in the source included.
    pub remaining: u64,
    /// Bytes which the sink can take.
    pub room: u64,
    /// Whether nothing more will come into the source before this stage moves: the end of the message is in it, or the
    /// source is as full as it gets (see [`must_drain`]).
    pub source_done: bool,
}

/// Length of the pulse to start now, or `None` to wait for more.
///
/// `minpulse` is the measured one; an [`Policy::Adaptive`] that names its own uses that. The result is never 0, never
/// more than `view.buffered`, and never more than `view.room`. If `view.source_done` and there are bytes and room,
/// there is a pulse, whatever the policy: no message can stop half-way.
#[must_use]
pub fn next_pulse(policy: Policy, view: View, minpulse: u64) -> Option<u64> {
    if view.buffered < least(policy, minpulse, view.remaining) && !view.source_done {
        return None;
    }
    let most = match policy {
        Policy::Fixed(length) => length.get(),
        Policy::StoreAndForward | Policy::Adaptive { .. } => u64::MAX,
    };
    let length = view.buffered.min(view.room).min(most);
    (length > 0).then_some(length)
}

/// Fewest bytes for which `policy` starts a pulse, unless the source is done; `remaining` and `minpulse` are as for
/// [`next_pulse`].
#[must_use]
pub fn least(policy: Policy, minpulse: u64, remaining: u64) -> u64 {
    match policy {
        Policy::StoreAndForward => remaining,
        Policy::Fixed(length) => length.get(),
        Policy::Adaptive { minpulse: chosen } => chosen.map_or(minpulse, NonZeroU64::get),
    }
}

/// Whether a stage must move the `buffered` bytes of its source although the policy would wait for more, because the
/// rest of the message (`remaining` bytes, the buffered ones included) does not fit into the source's `capacity`.
///
/// A message that is longer than a buffer goes through it in halves: one half fills while the other drains. Together
/// with [`offered_room`] this cannot stop: what is buffered and what is room add up to the capacity, so at least one of
/// the two stages that share the buffer finds half of it.
#[must_use]
pub fn must_drain(buffered: u64, capacity: u64, remaining: u64) -> bool {
    remaining > capacity && buffered >= capacity / 2
}

/// How much of `room` a stage should use now: all, or nothing while the room is not worth a pulse and is sure to grow.
///
/// `backlog` is what the sink still holds of this message and will pass on; `least` is what is worth a pulse to the
/// stage itself. Without this a fast source would refill a slow sink in crumbs as fast as the sink makes room: the
/// silly window of TCP (RFC 813), and its cure.
#[must_use]
pub fn offered_room(room: u64, backlog: u64, least: u64) -> u64 {
    let half = room.saturating_add(backlog) / 2;
    if backlog > 0 && room < least.min(half) { 0 } else { room }
}

impl fmt::Display for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::StoreAndForward => f.write_str("store-and-forward"),
            Self::Fixed(length) => write!(f, "fixed:{length}"),
            Self::Adaptive { minpulse: None } => f.write_str("adaptive"),
            Self::Adaptive { minpulse: Some(least) } => write!(f, "adaptive:{least}"),
        }
    }
}

/// Why a text is not a [`Policy`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum PolicyError {
    /// The text does not begin like any policy.
    #[error("unknown policy; use store-and-forward, fixed:BYTES or adaptive[:MINPULSE]")]
    Unknown,
    /// The size is missing, zero, too large or not a number.
    #[error("bad size; use a whole number of bytes above 0, or one with the suffix KiB or MiB")]
    Size,
}

impl FromStr for Policy {
    type Err = PolicyError;

    fn from_str(text: &str) -> Result<Self, PolicyError> {
        match text.split_once(':') {
            None if text == "store-and-forward" => Ok(Self::StoreAndForward),
            None if text == "adaptive" => Ok(Self::default()),
            None if text == "fixed" => Err(PolicyError::Size),
            Some(("fixed", size)) => parse_size(size).map(Self::Fixed),
            Some(("adaptive", size)) => parse_size(size).map(|least| Self::Adaptive { minpulse: Some(least) }),
            _ => Err(PolicyError::Unknown),
        }
    }
}

/// Reads `1408`, `4KiB` or `1MiB` as a number of bytes above 0.
fn parse_size(text: &str) -> Result<NonZeroU64, PolicyError> {
    let (digits, unit) = if let Some(digits) = text.strip_suffix("KiB") {
        (digits, 1 << 10)
    } else if let Some(digits) = text.strip_suffix("MiB") {
        (digits, 1 << 20)
    } else {
        (text, 1)
    };
    if !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(PolicyError::Size);
    }
    let bytes = digits.parse::<u64>().ok().and_then(|number| number.checked_mul(unit));
    bytes.and_then(NonZeroU64::new).ok_or(PolicyError::Size)
}

#[cfg(test)]
mod tests;
