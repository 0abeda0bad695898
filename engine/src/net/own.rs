//! The memory of a batch: of its own, or of whoever has the payloads.

use alloc::boxed::Box;
use alloc::vec::Vec;

use super::inbox::copy;
use super::memory::Hold;

/// Bytes that are written one behind the other.
#[derive(Debug, Default)]
pub(super) struct Own {
    vec: Vec<u8>,
    hold: Option<Box<dyn Hold>>,
}

impl Own {
    /// Empty, and its own.
    pub(super) fn clear(&mut self) {
        self.vec.clear();
        self.hold = None;
    }

    /// Is written to this memory from now on; it is empty.
    pub(super) fn lie(&mut self, hold: Box<dyn Hold>) {
        debug_assert!(self.vec.is_empty() && hold.bytes().is_empty(), "it is empty");
        self.hold = Some(hold);
    }

    /// The memory that it lies in, if it is not its own.
    pub(super) fn hold(&self) -> Option<&dyn Hold> {
        self.hold.as_deref()
    }

    pub(super) fn take_hold(&mut self) -> Option<Box<dyn Hold>> {
        self.hold.take()
    }

    /// Its own memory, if it lies there.
    pub(super) fn vec_mut(&mut self) -> &mut Vec<u8> {
        &mut self.vec
    }

    pub(super) fn bytes(&self) -> &[u8] {
        self.hold.as_ref().map_or(&self.vec, |hold| hold.bytes())
    }

    pub(super) fn bytes_mut(&mut self) -> &mut [u8] {
        match &mut self.hold {
            Some(hold) => hold.bytes_mut(),
            None => &mut self.vec,
        }
    }

    pub(super) fn len(&self) -> usize {
        self.bytes().len()
    }

    /// So many bytes more, which are to be written.
    pub(super) fn grow(&mut self, by: usize) {
        if let Some(hold) = &mut self.hold {
            if hold.grow(by) {
                return;
            }
            // No batch is that long; but what is lies in its own memory.
            self.vec.extend_from_slice(hold.bytes());
            self.hold = None;
        }
        self.vec.resize(self.vec.len() + by, 0);
    }

    #[inline]
    pub(super) fn extend(&mut self, bytes: &[u8]) {
        if self.hold.is_none() {
            self.vec.extend_from_slice(bytes);
        } else {
            self.extend_hold(bytes);
        }
    }

    /// As [`Own::extend`], with what is made only where it is written: from registers. What was laid down in parts
    /// first and is then read as a whole waits until all that was written before, a whole payload, has left the core.
    #[inline(always)]
    pub(super) fn extend_with<const N: usize>(&mut self, make: impl Fn() -> [u8; N]) {
        if self.hold.is_none() {
            self.vec.extend_from_slice(&make());
        } else if let Some(place) = self.grown(N).first_chunk_mut() {
            *place = make();
        }
    }

    fn extend_hold(&mut self, bytes: &[u8]) {
        copy(self.grown(bytes.len()), bytes);
    }

    /// So many bytes more, to be written.
    #[inline]
    fn grown(&mut self, by: usize) -> &mut [u8] {
        let at = self.len();
        self.grow(by);
        &mut self.bytes_mut()[at..]
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// Memory for so many bytes.
    #[derive(Debug)]
    pub(in crate::net) struct Few(pub(in crate::net) Vec<u8>, pub(in crate::net) usize);

    impl Hold for Few {
        fn bytes(&self) -> &[u8] {
            &self.0
        }
        fn bytes_mut(&mut self) -> &mut [u8] {
            &mut self.0
        }
        fn grow(&mut self, by: usize) -> bool {
            let fits = self.0.len() + by <= self.1;
            self.0.resize(self.0.len() + if fits { by } else { 0 }, 0xee);
            fits
        }
    }

    #[test]
    fn what_is_written_is_the_same_wherever_it_lies() {
        for room in [0, 3, 4, 9, 10] {
            let mut own = Own::default();
            own.lie(Box::new(Few(Vec::new(), room)));
            own.extend(b"abcd");
            own.grow(2);
            own.bytes_mut()[4..].copy_from_slice(b"ef");
            own.extend(b"ghij");
            assert_eq!((own.bytes(), own.len()), (&b"abcdefghij"[..], 10));
            assert_eq!(own.hold().is_some(), room == 10);
            assert_eq!(own.take_hold().is_some(), room == 10);
            own.clear();
            assert_eq!(own.len(), 0);
        }
    }
}
