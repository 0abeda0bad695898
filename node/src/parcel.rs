//! Memory for what comes with a message that has a payload: used again, since to have it from the allocator and to
//! give it back takes as long as many a payload does.

use std::cell::RefCell;
use std::mem;

use crate::incoming::{Arrived, Payload};

/// What comes with a message that has a payload; or nothing. When it is dropped, on whatever thread, its memory is kept
/// for the next one there.
#[derive(Debug, Default)]
pub(crate) struct Parcel(Option<Box<Arrived>>);

/// Memory that a thread keeps, at most: for so many parcels.
const SPARES: usize = 64;

thread_local! {
    /// What the parcels of this thread have left, without payloads.
    #[allow(clippy::vec_box, reason = "what is kept is the memory that a message goes about with")]
    static LEFT: RefCell<Vec<Box<Arrived>>> = const { RefCell::new(Vec::new()) };
}

impl Parcel {
    /// Nothing.
    pub(crate) const NOTHING: Self = Self(None);

    /// Memory for a parcel.
    #[inline]
    pub(crate) fn memory() -> Box<Arrived> {
        LEFT.try_with(|left| left.borrow_mut().pop()).ok().flatten().unwrap_or_else(more)
    }

    /// A parcel in memory that was had for it.
    #[inline(always)]
    pub(crate) fn fill(mut memory: Box<Arrived>, arrived: Arrived) -> Self {
        // Written where it stays; and in there is no payload that would have to be dropped.
        mem::forget(mem::replace(&mut *memory, arrived));
        Self(Some(memory))
    }

    /// What is in it.
    #[inline]
    pub(crate) fn get(&self) -> Option<&Arrived> {
        self.0.as_deref()
    }

    /// What is in it.
    #[inline]
    pub(crate) fn get_mut(&mut self) -> Option<&mut Arrived> {
        self.0.as_deref_mut()
    }

    /// Takes the payload out.
    #[inline]
    pub(crate) fn take_payload(&mut self) -> Payload {
        self.get_mut().map_or(Payload::None, |arrived| mem::take(&mut arrived.payload))
    }
}

#[cold]
fn more() -> Box<Arrived> {
    Box::default()
}

impl Drop for Parcel {
    // By value and always inlined: a message with something whose address is taken is moved as a whole, which has to
    // wait for its parts.
    #[inline(always)]
    fn drop(&mut self) {
        if let Some(memory) = self.0.take() {
            leave(memory);
        }
    }
}

/// Drops the payload, and keeps the memory.
#[inline(never)]
fn leave(mut memory: Box<Arrived>) {
    if !matches!(memory.payload, Payload::None) {
        memory.payload = Payload::None;
    }
    // A thread that is about to end keeps nothing.
    let _ = LEFT.try_with(|left| {
        let mut left = left.borrow_mut();
        if left.len() < SPARES {
            left.push(memory);
        }
    });
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use cutthrough_segment::page::{Shelf, Waker};

    use super::*;
    use crate::incoming::Arriving;

    /// A parcel with a payload that says when it is dropped, and who hears of it.
    fn parcel() -> (Parcel, Arc<Shelf>) {
        let shelf = Arc::new(Shelf::new(Arc::new(Waker::new().unwrap())));
        let payload = Payload::Arriving(Arriving { ticket: 1, bytes: 2, valid: 0, shelf: Some(Arc::clone(&shelf)) });
        (Parcel::fill(Parcel::memory(), Arrived { payload, ..Arrived::default() }), shelf)
    }

    fn address(parcel: &Parcel) -> *const Arrived {
        parcel.get().unwrap()
    }

    #[test]
    fn what_is_dropped_leaves_its_memory_and_not_its_payload() {
        let (first, shelf) = parcel();
        let place = address(&first);
        assert!(!shelf.filled());
        drop(first);
        assert!(shelf.filled(), "the payload is gone");
        let (next, shelf) = parcel();
        assert_eq!(address(&next), place);
        assert!(!shelf.filled(), "and is none of the next parcel's");
    }

    #[test]
    fn a_payload_that_was_taken_out_is_not_dropped() {
        let (mut parcel, shelf) = parcel();
        let payload = parcel.take_payload();
        drop(parcel);
        assert!(!shelf.filled());
        drop(payload);
        assert!(shelf.filled());
        assert!(matches!(Parcel::default().take_payload(), Payload::None));
    }

    #[test]
    fn a_thread_keeps_memory_for_so_many_and_no_more() {
        let parcels: Vec<_> = (0..SPARES + 10).map(|_| parcel()).collect();
        drop(parcels);
        assert_eq!(LEFT.with_borrow(Vec::len), SPARES);
    }

    #[test]
    fn parcels_may_be_dropped_on_other_threads() {
        let (parcel, shelf) = parcel();
        std::thread::spawn(move || drop(parcel)).join().unwrap();
        assert!(shelf.filled());
    }
}
