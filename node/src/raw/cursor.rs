//! A list of parts, read from its beginning on.

use std::io::IoSlice;

/// How far it has been read.
#[derive(Debug)]
pub(super) struct Cursor<'a, 'b> {
    parts: &'a [IoSlice<'b>],
    /// Bytes of the first part that were read.
    at: usize,
}

impl<'a, 'b> Cursor<'a, 'b> {
    pub(super) const fn new(parts: &'a [IoSlice<'b>]) -> Self {
        Self { parts, at: 0 }
    }

    /// What comes next, as far as it lies in one part.
    #[inline]
    pub(super) fn next_part(&self) -> &'a [u8] {
        self.parts.first().map_or(&[], |part| &part[self.at..])
    }

    /// The next bytes, at most `most`, as far as they lie in one part; nothing at the end.
    #[inline]
    pub(super) fn take(&mut self, most: usize) -> Option<&'a [u8]> {
        loop {
            let (part, others) = self.parts.split_first()?;
            let bytes = &part[self.at..];
            let bytes = &bytes[..bytes.len().min(most)];
            self.at += bytes.len();
            if self.at == part.len() {
                (self.parts, self.at) = (others, 0);
            }
            if !bytes.is_empty() || most == 0 {
                return Some(bytes);
            }
        }
    }

    /// Copies the next bytes to all of `room`, as far as there are any.
    #[inline]
    pub(super) fn copy_to(&mut self, mut room: &mut [u8]) {
        while !room.is_empty() {
            let Some(bytes) = self.take(room.len()) else { return };
            let (now, later) = room.split_at_mut(bytes.len());
            now.copy_from_slice(bytes);
            room = later;
        }
    }

    /// Leaves so many bytes out.
    pub(super) fn skip(&mut self, mut bytes: usize) {
        while bytes > 0 {
            let Some(left_out) = self.take(bytes) else { return };
            bytes -= left_out.len();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_read_one_behind_the_other() {
        let parts = [&b"ab"[..], b"", b"cdef", b"gh"].map(IoSlice::new);
        let mut cursor = Cursor::new(&parts);
        let mut three = [0; 3];
        cursor.copy_to(&mut three);
        assert_eq!((&three, cursor.next_part()), (b"abc", &b"def"[..]));
        cursor.skip(2);
        assert_eq!(cursor.take(9), Some(&b"f"[..]));
        assert_eq!(cursor.take(1), Some(&b"g"[..]));
        cursor.skip(9);
        assert_eq!((cursor.take(1), cursor.next_part()), (None, &b""[..]));
    }
}
