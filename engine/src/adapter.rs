//! The trait between the engine and the world: an adapter moves bytes in stages.
//!
//! The four stages are those of "Network I/O with Trapeze" (Hot Interconnects 1999, section "Balancing Latency and
//! Bandwidth": hostTx, netTx, netRcv, hostRcv). Each stage takes bytes from a buffer, its source, and puts them into
//! the next buffer, its sink; the sink of one stage is the source of the next.
//!
//! **Progress, not completion.** [`Adapter::moved`] counts the bytes of the pulse in flight. LANai firmware read the
//! counter registers of its movers (HPDC 1997, section 3.1); without that the first stage would take a whole message
//! in one pulse, nobody downstream could see it move, and cut-through would be store-and-forward under another name.

use core::fmt;

use crate::time::Instant;

/// One mover in an adapter, in the order in which a payload meets them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Stage {
    /// From the sender's memory into the sending adapter.
    HostToAdapter,
    /// From the sending adapter onto the link.
    AdapterToLink,
    /// From the link into the receiving adapter.
    LinkToAdapter,
    /// From the receiving adapter into the receiver's memory.
    AdapterToHost,
}

impl Stage {
    /// How many stages there are.
    pub const COUNT: usize = 4;

    /// Every stage, in the order of travel.
    pub const ALL: [Self; Self::COUNT] =
        [Self::HostToAdapter, Self::AdapterToLink, Self::LinkToAdapter, Self::AdapterToHost];

    /// Position in [`Stage::ALL`], for arrays with one entry per stage.
    #[must_use]
    pub const fn index(self) -> usize {
        self as usize
    }
}

impl fmt::Display for Stage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::HostToAdapter => "host to adapter",
            Self::AdapterToLink => "adapter to link",
            Self::LinkToAdapter => "link to adapter",
            Self::AdapterToHost => "adapter to host",
        })
    }
}

/// Who moves the bytes of a stage, seen from one engine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Role {
    /// The adapter has no such mover: the bytes pass straight on to the next stage.
    Absent,
    /// Somebody else starts the pulses of this stage (the peer's engine), and its progress can be read.
    Observed,
    /// This engine starts the pulses of this stage.
    Driven,
}

/// What an adapter can do at one stage. It stays the same for as long as a message travels.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Capability {
    /// Who moves the bytes.
    pub role: Role,
    /// Whether [`Adapter::moved`] shows the pulse in flight. If not (a socket call), a pulse is seen only when it is
    /// over, and adaptive pulses are kept as short as the stage's measured cost allows.
    pub progress: bool,
    /// The most bytes that one pulse can carry, if the adapter has such a limit.
    pub pulse_max: Option<u64>,
}

impl Capability {
    /// A stage that the adapter does not have.
    pub const ABSENT: Self = Self { role: Role::Absent, progress: false, pulse_max: None };

    /// A stage that another engine drives and whose progress can be read.
    pub const OBSERVED: Self = Self { role: Role::Observed, progress: true, pulse_max: None };

    /// A stage that this engine drives, with visible progress and pulses of any length.
    pub const DRIVEN: Self = Self { role: Role::Driven, progress: true, pulse_max: None };
}

/// One unbroken move by a stage.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Pulse {
    /// First byte, counted from the start of the payload.
    pub offset: u64,
    /// Bytes to move; never 0.
    pub len: u64,
    /// How many bytes may pass, at most, before the mover lets its progress be seen; never 0. Finer reports cost the
    /// mover time, coarser ones make the next stage wait.
    pub report_every: u64,
}

/// A network adapter or its stand-in, as it carries **one** message.
///
/// `now` is the time at which the caller asks. A model answers for that time; a real adapter may ignore it. Methods
/// take `&mut self` because asking may make an adapter look at its hardware, and none of them blocks.
///
/// What an adapter answers may come from another process. [`Transfer`](crate::transfer::Transfer) treats every number
/// as an allegation and stops at the first impossible one.
pub trait Adapter {
    /// What the adapter can do at `stage`.
    fn capability(&self, stage: Stage) -> Capability;

    /// Whether `stage` could start a pulse at once. Asked only of stages that are [`Role::Driven`].
    fn idle(&mut self, now: Instant, stage: Stage) -> bool;

    /// Bytes of this message which `stage` has put into its sink so far, including those of the pulse in flight.
    /// Asked of stages that are [`Role::Driven`] or [`Role::Observed`].
    fn moved(&mut self, now: Instant, stage: Stage) -> u64;

    /// Bytes which the sink of `stage` can take now, beyond the ones moved already; `u64::MAX` if the sink cannot
    /// fill up. Asked of stages that are [`Role::Driven`] or [`Role::Observed`].
    fn room(&mut self, now: Instant, stage: Stage) -> u64;

    /// Starts a pulse on an idle [`Role::Driven`] stage. `pulse.offset` equals what [`Adapter::moved`] says, and
    /// `pulse.len` is at most what is buffered, what [`Adapter::room`] says, and the capability's `pulse_max`.
    ///
    /// An adapter that cannot move all of it (a socket that takes only a part) moves what it can and falls idle.
    fn start(&mut self, now: Instant, stage: Stage, pulse: Pulse);
}

#[cfg(test)]
mod tests {
    use super::Stage;

    #[test]
    fn stages_are_numbered_in_the_order_of_travel() {
        for (position, stage) in Stage::ALL.iter().enumerate() {
            assert_eq!(stage.index(), position);
        }
    }
}
