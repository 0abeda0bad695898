//! What arrives: messages, payloads, and the other things that happen to an endpoint.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use cutthrough_engine::receipt::{Adapter, Receipt};
use cutthrough_engine::token::Refused;
use cutthrough_segment::page::{Landed, Release, Shelf};
use cutthrough_segment::ring::Control;

use crate::node::ConnectError;
use crate::parcel::Parcel;
use crate::shm::link::CloseReason;

/// Names one channel of one endpoint of this process: numbers are re-used, lives are not. To any other endpoint it is a
/// channel that has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Channel {
    pub(crate) index: u32,
    pub(crate) life: u32,
}

impl Channel {
    /// A new name for the channel with this number of any endpoint.
    pub(crate) fn name(index: u32) -> Self {
        static LIVES: AtomicU32 = AtomicU32::new(1);
        Self { index, life: LIVES.fetch_add(1, Ordering::Relaxed) }
    }

    /// The channel's number: its row in the counters.
    #[must_use]
    pub const fn index(self) -> u32 {
        self.index
    }
}

/// Which channel somebody has at the moment: read as one word, and without a lock.
#[derive(Debug)]
pub struct CurrentChannel(AtomicU64);

impl CurrentChannel {
    const fn word(channel: Channel) -> u64 {
        (channel.life as u64) << 32 | channel.index as u64
    }

    /// This one, for now.
    #[must_use]
    pub const fn new(channel: Channel) -> Self {
        Self(AtomicU64::new(Self::word(channel)))
    }

    /// Which it is. What was done before it was exchanged is seen by who reads it.
    #[must_use]
    #[inline]
    #[allow(clippy::cast_possible_truncation, reason = "the two halves of the word")]
    pub fn get(&self) -> Channel {
        let word = self.0.load(Ordering::Acquire);
        Channel { index: word as u32, life: (word >> 32) as u32 }
    }

    /// It is another one from now on.
    pub fn set(&self, channel: Channel) {
        self.0.store(Self::word(channel), Ordering::Release);
    }
}

/// Names a channel that is being opened. To any other endpoint of this process it is one that was told of already.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Connecting(pub(crate) u64);

/// Something that has happened at an endpoint.
#[derive(Debug)]
#[allow(clippy::large_enum_variant, reason = "nearly every event is a message, and none may cost an allocation")]
#[non_exhaustive]
pub enum Event {
    /// A message has arrived.
    Message(Incoming),
    /// A peer has opened a channel to us.
    Opened(Channel),
    /// What has become of a channel that we began to open.
    Connected(Connecting, Result<Channel, ConnectError>),
    /// A channel has ended. Everything that had arrived whole on it was delivered before; what of it still waits for
    /// its reader may be read after, if the peer was the one to end, or stood still.
    Closed(Channel, CloseReason),
    /// The pages (or the private memory) of a message that was sent with a cookie may be used again. A channel that has
    /// ended completes nothing more: its pages end with it, and whoever counts what is out starts again.
    Completed(Completion),
    /// There is room for a message of this channel, as was asked to be told: until then it was refused as full.
    Room(Channel),
}

impl Event {
    /// The channel that it is told of.
    pub(crate) const fn channel(&self) -> Option<Channel> {
        match self {
            Self::Message(message) => Some(message.channel()),
            Self::Opened(channel)
            | Self::Connected(_, Ok(channel))
            | Self::Closed(channel, _)
            | Self::Room(channel) => Some(*channel),
            Self::Connected(_, Err(_)) => None,
            Self::Completed(completion) => Some(completion.channel),
        }
    }
}

/// What happens rarely makes no event longer.
const _: () = assert!(size_of::<Event>() <= size_of::<Incoming>() + 8);

/// Which message's memory may be used again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Completion {
    /// The channel that it was sent on.
    pub channel: Channel,
    /// The number that the sender gave to the message.
    pub cookie: u64,
}

/// What has become of a message's payload.
#[derive(Default)]
#[non_exhaustive]
pub enum Payload {
    /// There is none, or it has been read or taken.
    #[default]
    None,
    /// It lies in pages that both sides see. Dropping it gives the pages back.
    Landed(Landed),
    /// It is on its way: the receiver says where it shall go by reading it. Dropped unread, it is thrown away; left
    /// unread while other such payloads come, it is set aside at the cost of a copy.
    Arriving(Arriving),
    /// It has landed in the private memory that its token named.
    Buffer(Vec<u8>),
    /// It was dropped, because its token was not good.
    Dropped(Refused),
}

impl fmt::Debug for Payload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::None => f.write_str("None"),
            Self::Landed(landed) => write!(f, "Landed({} bytes)", landed.len()),
            Self::Arriving(arriving) => write!(f, "Arriving({} bytes)", arriving.bytes),
            Self::Buffer(buffer) => write!(f, "Buffer({} bytes)", buffer.len()),
            Self::Dropped(why) => f.debug_tuple("Dropped").field(why).finish(),
        }
    }
}

/// Bytes as they are written in a program: most control messages are text, or have some.
pub struct Bytes<'a>(pub &'a [u8]);

impl fmt::Debug for Bytes<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "b\"{}\"", self.0.escape_ascii())
    }
}

/// A message that has arrived. Its slot is free already; its payload is held until this, or the payload taken out of
/// it, is dropped.
// In this order, because a message is moved out of its event in pieces of 16 bytes: the last one is the cargo alone,
// which was written as a whole, and so need not be waited for.
#[repr(C)]
pub struct Incoming {
    control: Control,
    channel: Channel,
    /// At most 255. Wider than that takes, since a byte is read as part of a word, which has to wait for its parts.
    /// In the bits above, of a message without a payload that crossed a network, by what, and whether it was sealed.
    control_len: u32,
    /// Whether there is cargo. It says nothing new, but its unused bit patterns are where the compiler tells events
    /// apart: a tag of its own would put the control message at an odd place, and every move of it would stall.
    loaded: Loaded,
    /// Only a message with a payload has one, so that the others stay small and cost no allocation.
    cargo: Parcel,
}

/// Whether a message has cargo: as wide as what lies beside it.
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
enum Loaded {
    No,
    Yes,
}

/// A payload, and what happened to it.
#[derive(Debug, Default)]
pub(crate) struct Arrived {
    pub(crate) payload: Payload,
    pub(crate) receipt: Receipt,
}

impl fmt::Debug for Incoming {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("Incoming");
        shown.field("channel", &self.channel).field("control", &Bytes(self.control()));
        if self.is_loaded() {
            shown.field("payload", self.payload());
        }
        shown.finish()
    }
}

/// Where the adapter stands in the word of the length, and the mark of what was sealed.
const ADAPTER: u32 = 8;
const SEALED: u32 = 1 << 16;

impl Incoming {
    /// A message without a payload that crossed a network.
    #[inline(always)]
    pub(crate) const fn by_wire(channel: Channel, control_len: u8, control: Control, by: (Adapter, bool)) -> Self {
        let (adapter, sealed) = by;
        let told = control_len as u32 | (adapter as u32) << ADAPTER | if sealed { SEALED } else { 0 };
        Self { control, channel, control_len: told, loaded: Loaded::No, cargo: Parcel::NOTHING }
    }

    #[inline(always)]
    pub(crate) const fn new(channel: Channel, control_len: u8, control: Control) -> Self {
        Self { control, channel, control_len: control_len as u32, loaded: Loaded::No, cargo: Parcel::NOTHING }
    }

    #[inline(always)]
    pub(crate) const fn loaded(channel: Channel, control_len: u8, control: Control, cargo: Parcel) -> Self {
        Self { control, channel, control_len: control_len as u32, loaded: Loaded::Yes, cargo }
    }

    /// The channel that it came on.
    #[inline]
    #[must_use]
    pub const fn channel(&self) -> Channel {
        self.channel
    }

    /// The control message.
    #[inline]
    #[must_use]
    pub fn control(&self) -> &[u8] {
        self.control.bytes(self.control_len & 0xff)
    }

    /// Whether the message has, or had, a payload.
    #[inline]
    #[must_use]
    pub const fn is_loaded(&self) -> bool {
        matches!(self.loaded, Loaded::Yes)
    }

    /// The payload.
    #[inline]
    #[must_use]
    pub fn payload(&self) -> &Payload {
        self.cargo.get().map_or(&Payload::None, |cargo| &cargo.payload)
    }

    /// Bytes of the payload; 0 if there is none or it was dropped.
    #[must_use]
    #[allow(clippy::cast_possible_truncation, reason = "a payload has at most 1 GiB")]
    #[inline]
    pub fn payload_len(&self) -> usize {
        self.cargo.get().map_or(0, |cargo| cargo.receipt.bytes as usize)
    }

    /// Takes the payload out: pages are kept beyond the message, until they are dropped.
    #[must_use]
    pub fn take_payload(&mut self) -> Payload {
        self.cargo.take_payload()
    }

    /// Keeps a payload that was read, in the memory that it was read to, as if it had landed there.
    pub fn hold(&mut self, bytes: Vec<u8>) {
        if let Some(cargo) = self.cargo.get_mut() {
            cargo.payload = Payload::Buffer(bytes);
        }
    }

    /// What happened to the message so far, as this side saw it.
    #[must_use]
    pub fn receipt(&self) -> Receipt {
        self.cargo.get().map_or_else(|| self.bare_receipt(), |cargo| cargo.receipt)
    }

    /// What happened to a message without a payload.
    fn bare_receipt(&self) -> Receipt {
        let adapters = [Adapter::Shm, Adapter::Udp, Adapter::Packet, Adapter::Xdp];
        let told = (self.control_len >> ADAPTER) & 0xff;
        let adapter = adapters.into_iter().find(|adapter| *adapter as u32 == told).unwrap_or_default();
        Receipt { adapter, sealed: self.control_len & SEALED != 0, ..Receipt::default() }
    }

    /// Takes all that came with it.
    pub(crate) fn take_cargo(&mut self) -> Parcel {
        std::mem::take(&mut self.cargo)
    }

    pub(crate) fn cargo_mut(&mut self) -> Option<&mut Arrived> {
        self.cargo.get_mut()
    }
}

/// The right to a payload that is still arriving. Dropped unread, the payload is thrown away.
#[derive(Debug)]
pub struct Arriving {
    pub(crate) ticket: u64,
    pub(crate) bytes: u32,
    /// Bytes that were copied out so far, where reading does not keep count itself.
    pub(crate) valid: usize,
    /// Taken out once the payload has been read.
    pub(crate) shelf: Option<Arc<Shelf>>,
}

impl Arriving {
    /// Bytes of the payload.
    #[must_use]
    pub const fn bytes(&self) -> u32 {
        self.bytes
    }
}

impl Drop for Arriving {
    fn drop(&mut self) {
        if let Some(shelf) = self.shelf.take() {
            shelf.put(Release::Unread { ticket: self.ticket });
        }
    }
}

/// Memory for a payload. Its sender says how long it is, and memory that cannot be had ends the process: so that is
/// tried first. Zeros that come straight from the system are not written here.
#[must_use]
pub fn zeros(bytes: usize) -> Option<Vec<u8>> {
    let mut tried = Vec::<u8>::new();
    tried.try_reserve_exact(bytes).ok()?;
    drop(std::hint::black_box(tried));
    Some(vec![0; bytes])
}
