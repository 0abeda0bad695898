//! What happened to one message.
//!
//! A claim about copies is a receipt that a test can read: "zero copies" means `copies == 0` here (design contract 5,
//! "counted"). The paths are the ones which the papers tell apart: Trapeze hands page frames over by reference or
//! lands them by direct memory access where a token says (USENIX 1998, incoming payload table), and moves the rest in
//! overlapping pulses (HPDC 1997).

use core::fmt;

pub use crate::net::ways::Why;
use crate::time::Instant;

/// How the payload of a message travelled.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[repr(u32)]
pub enum Path {
    /// There was no payload.
    #[default]
    None,
    /// The page itself changed hands: both sides see it already. No copy.
    Reference,
    /// The sender wrote into the page that the receiver had named. One copy.
    Put,
    /// The receiver read out of the page that the sender had named. One copy.
    Get,
    /// Both copied at the same time, between a page that the sender had named and one that the receiver had. One copy.
    Shared,
    /// Private memory to private memory in overlapping pulses through a shared buffer. Two copies.
    CutThrough,
    /// Over a network: received where it belongs, or copied there from where it had landed. No copy, or one.
    Wire,
    /// The payload was not delivered; the control message says why.
    Dropped,
}

impl fmt::Display for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::None => "none",
            Self::Reference => "reference",
            Self::Put => "put",
            Self::Get => "get",
            Self::Shared => "shared",
            Self::CutThrough => "cut-through",
            Self::Wire => "wire",
            Self::Dropped => "dropped",
        })
    }
}

/// What carries messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Adapter {
    /// Memory that two processes share.
    #[default]
    Shm,
    /// A UDP socket.
    Udp,
    /// A ring of raw frames that the kernel copies (AF_PACKET).
    Packet,
    /// A ring of raw frames of one queue of an interface (AF_XDP).
    Xdp,
}

impl Adapter {
    /// Its name, as people write it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Shm => "shm",
            Self::Udp => "udp",
            Self::Packet => "packet",
            Self::Xdp => "xdp",
        }
    }
}

impl fmt::Display for Adapter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// How payloads get from a ring of the adapter `xdp` to where they belong. Other adapters do not look at it.
///
/// The third placement of Speculative Defragmentation (HPDC 2000), fragments sent last first so that each overwrites
/// the headers of the one before it, is not here: the sender would have to know of it, and the bytes before a page
/// would be written too. `cutthrough perf defrag` measures it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Placement {
    /// Whatever is the cheaper of the two, as measured while payloads come; copies first. It is a setting: what was
    /// taken is one of the others, and receipts say which ([`Receipt::placement`]). When payloads of 4 KiB or more have
    /// come, to landing memory that others could land in, the ring is exchanged for one that can cut headers off, if
    /// there can be one: meanwhile, for some tens of milliseconds, frames come by the UDP socket. Such a ring has up to
    /// 16 MiB of landing memory locked, and some 5 MiB of its own. Copied as ever are payloads of endpoints at `net:`,
    /// of rings in zero-copy mode, and of leased ones.
    #[default]
    Auto,
    /// Frames land in buffers of the ring, and payloads are copied from there.
    Copy,
    /// The program at the interface awaits the next frames of one payload, cuts their headers off, and has them land in
    /// the landing pages where they belong; what it does not await is copied. It serves one channel at a time: the one
    /// that a payload came on last, or for which memory was posted or granted last. The landing memory of the first
    /// channels is locked: one channel's, or that of up to 16 if it is 16 MiB in all. Others are copied as ever, and so
    /// are pages of 2 MiB. Receipts say how much was placed ([`Receipt::placed`]).
    HeaderCut,
}

impl Placement {
    /// Its name, as people write it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Copy => "copy",
            Self::HeaderCut => "header-cut",
        }
    }
}

/// What happened to one message, as one side saw it.
// What is asked for after every message is as wide as a word: what was stored in another width than it is loaded in
// cannot be loaded before all that was stored until then, the message among it, has left the processor.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Receipt {
    /// How the payload travelled.
    pub path: Path,
    /// How often a payload byte was copied on its way, at most, both sides together. Over a network each side counts
    /// its own: 2 at a receiver where parts came before their place was known, or had landed in another one.
    pub copies: u32,
    /// How many processors took part in moving the payload.
    pub movers: u32,
    /// Pulses that this side made; 0 if it moved nothing itself. Of what came over a network these are the frames; its
    /// sender does not know.
    pub pulses: u32,
    /// Length of the payload in bytes.
    pub bytes: u64,
    /// How many of them came over a network straight to where they belong, without a copy in this process. 0 of a
    /// payload that is arriving: that is known once it has been read.
    pub placed: u64,
    /// What carried it: its last frame, if it came over a network. Its sender tells what is cheapest just now: what has
    /// to wait may go by another one.
    pub adapter: Adapter,
    /// Why that adapter was taken, where there was a choice; the receiver does not know.
    pub why: Why,
    /// How its payload was to get from a ring of the adapter `xdp` to where it belongs: by copy, or by the cut, and
    /// then [`placed`](Self::placed) says how much of it has. `None` at the sender, and where it came by another
    /// adapter.
    pub placement: Option<Placement>,
    /// Why that placement was taken.
    pub placement_why: Why,
    /// Whether it crossed a network sealed: encrypted and authenticated.
    pub sealed: bool,
    /// When this side began to move the payload; zero if it moved none of it, or 8 KiB or less, which is not timed:
    /// reading the clock would take as long.
    pub started: Instant,
    /// When this side was done with it; zero as above.
    pub finished: Instant,
}

impl Receipt {
    /// Of a payload of so many bytes that has travelled this way through shared memory: how often it was copied, and
    /// by how many. One that was dropped was not moved.
    #[must_use]
    #[inline(always)]
    pub fn moved(path: Path, bytes: u64) -> Self {
        let (copies, movers) = match path {
            Path::None | Path::Reference | Path::Wire | Path::Dropped => (0, 0),
            Path::Put | Path::Get => (1, 1),
            Path::Shared => (1, 2),
            Path::CutThrough => (2, 2),
        };
        Self { path, copies, movers, bytes, ..Self::default() }
    }

    /// Nanoseconds between beginning and end on this side.
    #[must_use]
    pub const fn elapsed_ns(&self) -> u64 {
        self.finished.saturating_since(self.started)
    }

    /// Whether the payload arrived, or there was none to arrive.
    #[must_use]
    pub const fn delivered(&self) -> bool {
        !matches!(self.path, Path::Dropped)
    }
}

#[cfg(test)]
mod tests {
    extern crate std;
    use std::string::ToString;

    use super::{Path, Receipt};
    use crate::time::Instant;

    #[test]
    fn paths_read_as_lower_case_words() {
        let words = [
            Path::None,
            Path::Reference,
            Path::Put,
            Path::Get,
            Path::Shared,
            Path::CutThrough,
            Path::Wire,
            Path::Dropped,
        ]
        .map(|path| path.to_string());
        assert_eq!(words, ["none", "reference", "put", "get", "shared", "cut-through", "wire", "dropped"]);
    }

    #[test]
    fn a_receipt_of_nothing_is_delivered_in_no_time() {
        let nothing = Receipt::default();
        assert!(nothing.delivered());
        assert_eq!(nothing.elapsed_ns(), 0);
    }

    #[test]
    fn elapsed_time_is_end_minus_beginning() {
        let receipt = Receipt {
            path: Path::Dropped,
            started: Instant::from_nanos(100),
            finished: Instant::from_nanos(350),
            ..Receipt::default()
        };
        assert_eq!(receipt.elapsed_ns(), 250);
        assert!(!receipt.delivered());
    }
}
