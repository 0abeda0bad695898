//! A frame is believed when its seal has been checked, wherever its body lies.

use cutthrough_wire::frame::{Header, Kind};
use cutthrough_wire::seal::Seal;

use super::super::inbox::Reading;
use super::super::memory::{Memory, Place, front};
use super::{Body, Channel};

impl<M: Memory> Channel<M> {
    /// Opens a frame's body where it lies. Whether it is what its sender has sealed.
    pub(super) fn unseal<'a>(
        &mut self,
        header: &Header,
        head: &[u8],
        body: Body<'a>,
        memory: &mut M,
        reading: Option<&mut Reading<'_>>,
    ) -> (Body<'a>, bool) {
        let (protected, seal) = head.split_at(cutthrough_wire::frame::SEALED_BYTES);
        let Some(seal) = seal.first_chunk() else { return (body, false) };
        match body {
            Body::Aside(all) => {
                if header.kind != Kind::Open {
                    let ok = self.seal.open(header.number, protected, seal, all);
                    return (Body::Aside(all), ok);
                }
                let Some((opening, payload)) = all.split_at_mut_checked(cutthrough_wire::frame::OPENING_BYTES) else {
                    return (Body::Aside(all), false);
                };
                let ok = open_opening(&mut *self.seal, header, protected, opening)
                    && self.seal.open(header.number, protected, seal, payload);
                (Body::Aside(all), ok)
            }
            Body::Landed { opening: Some(opening), len } => {
                let ok = open_opening(&mut *self.seal, header, protected, opening)
                    && memory.guess(self.index).is_some_and(|place| {
                        self.proved_at = front(place, len);
                        opens(&mut *self.seal, header, protected, seal, place, 0, len)
                    });
                (Body::Landed { opening: Some(opening), len }, ok)
            }
            Body::Landed { opening: None, len } => {
                let (message, offset) = (self.message(header), header.words[1] as usize);
                if self.inbox.has_some(message, header.words[1], len) {
                    // A frame that was brought in before has the same bytes, and has written them over these.
                    return (Body::Landed { opening: None, len }, false);
                }
                let ok = if let Some(reading) = reading.filter(|reading| reading.message == message) {
                    let body = reading.into.get_mut(offset..offset + len);
                    body.is_some_and(|body| self.seal.open(header.number, protected, seal, body))
                } else {
                    let place = self.inbox.landing(message);
                    place.is_some_and(|place| opens(&mut *self.seal, header, protected, seal, place, offset, len))
                };
                (Body::Landed { opening: None, len }, ok)
            }
        }
    }
}

fn open_opening(seal: &mut dyn Seal, header: &Header, protected: &[u8], opening: &mut [u8]) -> bool {
    let Some((plain, sum)) = opening.split_last_chunk_mut::<{ cutthrough_wire::frame::SEAL_BYTES }>() else {
        return false;
    };
    let sum = *sum;
    seal.open(header.number | cutthrough_wire::seal::OPENING_NUMBER, protected, &sum, plain)
}

fn opens<P: Place>(
    seal: &mut dyn Seal,
    header: &Header,
    protected: &[u8],
    sum: &[u8; cutthrough_wire::frame::SEAL_BYTES],
    place: &mut P,
    offset: usize,
    len: usize,
) -> bool {
    if len == 0 {
        return seal.open(header.number, protected, sum, &mut []);
    }
    // What the header says has not been proved yet.
    if offset.checked_add(len).is_none_or(|end| end > place.len()) {
        return false;
    }
    let body = place.piece(offset, len);
    body.len() == len && seal.open(header.number, protected, sum, body)
}
