//! What goes in and out of [`Net`](super::Net) besides frames: settings, events, counts.

use cutthrough_wire::frame::Refusal;

use super::channel::Ending;
use super::inbox::Ready;
use super::memory::Memory;
use super::outbox::Cargo;
use crate::check::Breach;

/// Settings of the network side of an endpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Settings {
    /// Control messages of a channel that may be on their way, or not yet taken by the user.
    pub slots: u64,
    /// Payload bytes that channels may send unasked, divided among those that are open. Who was there before others
    /// keeps more until it has used it: all together may send up to three times as many, and a short frame each.
    pub unasked: u64,
    /// Payload bytes that are granted at a time.
    pub granted: u32,
    /// Nanoseconds without any sign of life after which a peer is taken for dead.
    pub silence_ns: u64,
    /// Nanoseconds without any progress after which a channel that its user has closed is given up.
    pub deadline_ns: u64,
    /// Most channels, those of other kinds counted in ([`Net::has_others`](super::Net::has_others)); but not those that
    /// are closed and wait for the other side to hear of it, of which there may be as many at most.
    pub channels: usize,
    /// Longest body that this side can receive.
    pub body: u16,
    /// Random number of this life of the endpoint.
    pub life: u64,
    /// Process number, for people to read.
    pub process: u32,
    /// User number, for people to read.
    pub user: u32,
}

/// What has been counted since the beginning.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Tally {
    /// Frames taken in.
    pub frames_received: u64,
    /// Frames sent, without notes.
    pub frames_sent: u64,
    /// Frames sent that only acknowledge or grant.
    pub notes_sent: u64,
    /// Frames taken for lost, whose contents were sent again.
    pub frames_lost: u64,
    /// Frames taken for lost that prove to have arrived.
    pub frames_late: u64,
    /// Times nothing was heard for so long that frames were sent again.
    pub timeouts: u64,
    /// Frames that had arrived before.
    pub duplicates: u64,
    /// Frames whose seal was wrong.
    pub forged: u64,
    /// Frames of no channel: of an earlier life, from elsewhere, or malformed.
    pub stale: u64,
    /// Frames for which there was no memory; they come again.
    pub unplaced: u64,
    /// Callers refused.
    pub refused: u64,
    /// Channels whose peers have broken a rule without an event that says so: by the first frame, when the user knew
    /// nothing of the channel yet, or after the user had closed it. By [`Breach`], in its order.
    pub untold: [u64; Breach::ALL.len()],
    /// Payload bytes that were received where they belong.
    pub placed_bytes: u64,
    /// Payload bytes that were copied to where they belong, as stories say; but not of what a channel has left behind.
    pub mended_bytes: u64,
    /// Frames whose payload was received where it belongs.
    pub hits: u64,
    /// Frames whose payload was received elsewhere, though where it belongs was known.
    pub misses: u64,
    /// Messages taken for sending.
    pub messages_sent: u64,
    /// Messages handed over.
    pub messages_received: u64,
    /// Payload bytes of messages taken for sending.
    pub payload_sent: u64,
}

impl Tally {
    /// New frames that have opened, whether there was memory for them or not.
    pub(super) const fn opened(&self) -> u64 {
        self.frames_received + self.unplaced
    }

    pub(super) const fn hit(&mut self, bytes: usize) {
        self.hits += 1;
        self.placed_bytes += bytes as u64;
    }
}

/// A bug that a test puts in, to see that it is found. It does nothing but in a build with the feature `planted`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Planted {
    /// A payload is handed over although bytes in it are missing.
    Unwritten,
    /// The generation of frames is not looked at.
    Stale,
    /// Some grants are noted here and not told.
    Ungranted,
    /// What was asked for on a channel is not forgotten when it ends.
    Unforgotten,
    /// Acknowledgements of what was never sent do not end a channel.
    Unsent,
    /// Parts of a payload are taken that lie beyond it.
    Unbounded,
}

/// Why a call did not come to a channel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CallError {
    /// The other side has refused, and not because of the version.
    Refused(Refusal),
    /// It speaks another version of the wire: this one.
    Version(u8),
    /// It has refused for a reason that this version has no word for.
    Unknown(u8),
    /// Its answer proves another key than ours.
    Key,
}

/// Something that has happened.
#[derive(Debug)]
pub enum NetEvent<P> {
    /// A peer has opened a channel to us.
    Opened(usize),
    /// A call of ours has been answered.
    Connected(usize),
    /// A call of ours has failed; its channel is free again.
    Failed(usize, CallError),
    /// A message has arrived on a channel.
    Message(usize, Ready<P>),
    /// The memory of a message that was sent with this cookie may be used again.
    Completed(usize, u64),
    /// A channel has ended. Everything that had come before was handed over.
    Closed(usize, Ending),
}

/// A payload to be sent, in the memory that `M` has.
pub type CargoOf<M> = Cargo<<M as Memory>::Load>;

/// Why a message was not taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refused {
    /// Too many are on their way.
    Full,
    /// There is no such channel any more.
    Closed,
}

/// Where the next frames will probably land.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Guess {
    /// In the place that [`Memory::guess`] shows, from its first byte on: the first frame opens a message.
    Fresh {
        /// The channel.
        channel: usize,
    },
    /// In the place of a message of which a part is there already.
    Rest {
        /// The channel.
        channel: usize,
        /// The message.
        message: u64,
        /// First byte that is missing.
        begin: u32,
        /// End of the gap.
        end: u32,
    },
}
