//! What the network part of the engine asks of whoever has the memory: payloads to send, places for payloads that come.

use alloc::boxed::Box;
use core::any::Any;
use core::fmt::Debug;

use cutthrough_wire::token::Token;

use crate::token::Refused;

/// Memory of whoever has the payloads, to which a batch of sealed frames is written, in the place of the batch's own:
/// so that it need not be copied once more to where it is sent from.
pub trait Hold: Any + Debug + Send {
    /// The bytes that were written.
    fn bytes(&self) -> &[u8];

    /// The same, to be written.
    fn bytes_mut(&mut self) -> &mut [u8];

    /// There are so many more of them, behind those before, whatever they are. False if there is no room for them.
    fn grow(&mut self, by: usize) -> bool;
}

/// A payload that is being sent: bytes that do not change until it is given back, or are only copied out.
pub trait Load {
    /// Bytes of the payload.
    fn len(&self) -> usize;

    /// Whether there are none.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// At least one and at most `most` bytes from `offset` on, as far as they lie in one piece. Asked only for bytes
    /// that are there. None of a payload that somebody else may write: it is copied out.
    fn piece(&self, offset: usize, most: usize) -> &[u8];

    /// Copies the bytes from `offset` on out. False if they are there no more.
    fn copy_out(&self, offset: usize, out: &mut [u8]) -> bool {
        copy_pieces(self, offset, out)
    }

    /// Whether `len` bytes of it that go bare, in one frame, are copied behind the frame's header, so that the batch is
    /// one piece, rather than sent from where they lie. `held` says whether the batch lies in memory of a load's
    /// ([`Load::hold`]).
    fn coalesces(&self, len: usize, held: bool) -> bool {
        let _ = (len, held);
        false
    }

    /// Memory for a batch that begins with a part of it, which is copied or sealed into it; the batch's own if there is
    /// none.
    fn hold(&self) -> Option<Box<dyn Hold>> {
        None
    }

    /// Whether an adapter may still read its memory, whatever has arrived. Asked when all of it has, and with every
    /// [`Net::release`](super::Net::release) from then on; it is given back when nobody does.
    fn is_in_use(&self) -> bool {
        false
    }
}

/// Copies the bytes of a payload from `offset` on out, piece by piece. False if there are none at some place.
pub fn copy_pieces(load: &(impl Load + ?Sized), offset: usize, out: &mut [u8]) -> bool {
    let mut done = 0;
    while done < out.len() {
        let piece = load.piece(offset + done, out.len() - done);
        if piece.is_empty() {
            return false;
        }
        out[done..done + piece.len()].copy_from_slice(piece);
        done += piece.len();
    }
    true
}

/// Memory that a payload lands in. Nobody else sees it until it is handed over.
pub trait Place {
    /// Bytes that fit.
    fn len(&self) -> usize;

    /// Whether nothing fits.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// As [`Load::piece`], to be written.
    fn piece(&mut self, offset: usize, most: usize) -> &mut [u8];
}

/// What is known of a payload when its place is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Want {
    /// Its length in bytes.
    pub bytes: u32,
    /// Where the sender wants it to land.
    pub token: Option<Token>,
    /// Whether it comes from pages and has to land in pages.
    pub pages: bool,
}

/// Where a payload goes.
#[derive(Debug)]
pub enum Placing<P> {
    /// Into this place; the message is handed over when all of it is there.
    Here(P),
    /// Into the place that [`Memory::guess`] has shown last, which is this one.
    Guessed(P),
    /// Wherever the reader says: the message is handed over at once.
    Reader,
    /// Nowhere yet: there is no memory. The question is asked again later.
    Later,
    /// Nowhere: the token is not good.
    Refused(Refused),
}

/// Whoever has the memory.
pub trait Memory {
    /// Payloads to be sent.
    type Load: Load;
    /// Places for payloads that come.
    type Place: Place;

    /// Where a payload of a channel goes. For it the place that was guessed may be given up: what has landed there
    /// comes again, unless it is there still. `behind` are the places that messages behind it have got already: they
    /// do not come back before it is handed over.
    fn place<'a>(
        &mut self,
        channel: usize,
        want: &Want,
        behind: impl Iterator<Item = &'a Self::Place>,
    ) -> Placing<Self::Place>
    where
        Self::Place: 'a;

    /// The place where the next payload of this channel will probably land. It stays where it is.
    fn guess(&mut self, channel: usize) -> Option<&mut Self::Place>;

    /// The same, with those behind it where more messages will probably land in their order, as far as they are known.
    fn guesses(&mut self, channel: usize) -> impl Iterator<Item = &mut Self::Place> {
        self.guess(channel).into_iter()
    }
}

/// Where so many bytes of a place begin; or, of none, where the first one would.
pub(super) fn front<P: Place>(place: &mut P, len: usize) -> usize {
    if place.is_empty() { 0 } else { place.piece(0, len.max(1)).as_ptr().addr() }
}

/// The first bytes of a place, as many as it has of so many.
pub(super) fn bytes_of<P: Place>(place: &mut P, len: usize) -> alloc::vec::Vec<u8> {
    let mut bytes = alloc::vec::Vec::with_capacity(len);
    while bytes.len() < len {
        let piece = place.piece(bytes.len(), len - bytes.len());
        if piece.is_empty() {
            break;
        }
        bytes.extend_from_slice(piece);
    }
    bytes
}

impl Load for alloc::vec::Vec<u8> {
    fn len(&self) -> usize {
        self.len()
    }
    fn piece(&self, offset: usize, most: usize) -> &[u8] {
        &self[offset..self.len().min(offset.saturating_add(most))]
    }
}

impl Place for alloc::vec::Vec<u8> {
    fn len(&self) -> usize {
        self.len()
    }
    fn piece(&mut self, offset: usize, most: usize) -> &mut [u8] {
        let end = self.len().min(offset.saturating_add(most));
        &mut self[offset..end]
    }
}
