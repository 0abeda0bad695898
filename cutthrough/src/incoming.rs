//! A message that has arrived.

use cutthrough_engine::receipt::{Path, Receipt};
use cutthrough_engine::token::Refused;
use cutthrough_node::clock;
use cutthrough_node::node::Channel;
use cutthrough_node::shm::receive::{self, Arrival, Arriving, ReadError};
use cutthrough_segment::page::Landed;
use cutthrough_segment::ring::Taken;

/// What has become of a message's payload.
#[derive(Debug)]
pub enum Payload {
    /// There is none, or it has been read or taken.
    None,
    /// It lies in pages that both sides see. Dropping it gives the pages back.
    Landed(Landed),
    /// It is on its way: [`Endpoint::read`](crate::Endpoint::read) says where it shall go. Dropped unread, it is thrown
    /// away; left unread while other payloads come, it is set aside at the cost of a copy.
    Arriving(Arriving),
    /// It has landed in the private memory that its token named.
    Buffer(Vec<u8>),
    /// It was dropped, because its token was not good.
    Dropped(Refused),
}

/// A message that has arrived. Its slot is free already; its payload is held until this, or the payload taken out of it,
/// is dropped.
#[derive(Debug)]
pub struct Incoming {
    channel: Channel,
    taken: Taken,
    control_len: u8,
    payload: Payload,
    receipt: Receipt,
}

impl Incoming {
    #[inline]
    pub(crate) fn new(channel: Channel, arrival: Arrival) -> Self {
        let Arrival { taken, control_len, payload, receipt } = arrival;
        let payload = match payload {
            receive::Payload::None => Payload::None,
            receive::Payload::Landed(landed) => Payload::Landed(landed),
            receive::Payload::Arriving(arriving) => Payload::Arriving(arriving),
            receive::Payload::Buffer(buffer) => Payload::Buffer(buffer),
            receive::Payload::Dropped(refused) => Payload::Dropped(refused),
        };
        Self { channel, taken, control_len, payload, receipt }
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
        self.taken.control(self.control_len)
    }

    /// The payload.
    #[must_use]
    pub const fn payload(&self) -> &Payload {
        &self.payload
    }

    pub(crate) const fn payload_mut(&mut self) -> &mut Payload {
        &mut self.payload
    }

    /// Bytes of the payload; 0 if there is none or it was dropped.
    #[must_use]
    #[allow(clippy::cast_possible_truncation, reason = "a payload has at most 1 GiB")]
    pub const fn payload_len(&self) -> usize {
        self.receipt.bytes as usize
    }

    /// Takes the payload out: pages are kept beyond the message, until they are dropped.
    #[must_use]
    pub const fn take_payload(&mut self) -> Payload {
        std::mem::replace(&mut self.payload, Payload::None)
    }

    /// What happened to the message so far, as this side saw it.
    #[must_use]
    pub const fn receipt(&self) -> Receipt {
        self.receipt
    }

    pub(crate) fn read(
        &mut self,
        into: &mut [u8],
        arriving: impl FnOnce(Channel, &mut Arriving, &mut [u8]) -> Result<(), ReadError>,
    ) -> Result<Receipt, ReadError> {
        let len = self.payload_len();
        let into = into.get_mut(..len).ok_or(ReadError::TooSmall(len))?;
        let copied = match &mut self.payload {
            Payload::None | Payload::Dropped(_) => return Err(ReadError::Nothing),
            Payload::Landed(landed) => {
                landed.read_at(0, into);
                true
            }
            Payload::Buffer(buffer) => {
                into.copy_from_slice(buffer);
                true
            }
            Payload::Arriving(payload) => {
                arriving(self.channel, payload, into)?;
                self.payload = Payload::None;
                false
            }
        };
        // A cut-through payload's copies are both in its receipt from the start; any other has just been copied once more.
        self.receipt.copies += u8::from(copied);
        self.receipt.movers = self.receipt.movers.max(1);
        self.receipt.finished = clock::now();
        debug_assert!(copied || self.receipt.path == Path::CutThrough);
        Ok(self.receipt)
    }
}
