//! ATM cells and AAL5, to the byte (ITU-T I.361, I.432, I.363.5).
//!
//! A cell is a 5-byte header and 48 bytes of payload. AAL5 puts a message into whole cells: the message, padding, and a
//! trailer of 8 bytes that ends the last cell and holds the message's length and a CRC-32 over everything before it.
//! The header of the last cell says that it is the last.

/// Bytes of a cell.
pub const CELL: usize = 53;
/// Bytes of a cell's header.
pub const HEADER: usize = 5;
/// Bytes that a cell carries.
pub const PAYLOAD: usize = 48;
/// Bytes of the trailer.
pub const TRAILER: usize = 8;
/// Longest message of AAL5, by the width of the trailer's length.
pub const LONGEST: usize = 65_535;
/// Longest message that fits into one cell.
pub const IN_ONE_CELL: usize = PAYLOAD - TRAILER;

/// Cells of a message of `bytes` bytes: never 0.
#[must_use]
pub const fn cells(bytes: u64) -> u64 {
    (bytes + TRAILER as u64).div_ceil(PAYLOAD as u64)
}

/// Why cells are not a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Damage {
    /// The message is longer than AAL5 can say.
    #[error("a message of {0} bytes; AAL5 carries at most {LONGEST}")]
    TooLong(usize),
    /// No cell, or one in the middle that says that it is the last, or a last one that does not.
    #[error("the end of the message is not where the cells say")]
    End,
    /// A header's check byte does not match.
    #[error("the header of cell {0} is damaged")]
    Header(usize),
    /// A cell belongs to another channel.
    #[error("cell {0} belongs to another channel")]
    Channel(usize),
    /// The trailer's length does not go with the number of cells.
    #[error("a length of {0} bytes does not go with the number of cells")]
    Length(usize),
    /// The CRC does not match.
    #[error("the message is damaged")]
    Payload,
}

/// Cuts `message` into cells of the virtual channel `vci` (of virtual path 0).
///
/// # Errors
/// [`Damage::TooLong`].
pub fn segment(message: &[u8], vci: u16) -> Result<Vec<[u8; CELL]>, Damage> {
    let length = u16::try_from(message.len()).map_err(|_| Damage::TooLong(message.len()))?;
    let mut pdu = message.to_vec();
    pdu.resize((message.len() + TRAILER).next_multiple_of(PAYLOAD) - 6, 0);
    pdu.extend(length.to_be_bytes());
    pdu.extend(crc32(&pdu).to_be_bytes());
    let count = pdu.len() / PAYLOAD;
    let cells = pdu.chunks_exact(PAYLOAD).enumerate().map(|(number, payload)| {
        let mut cell = [0; CELL];
        cell[..HEADER].copy_from_slice(&header(vci, number + 1 == count));
        cell[HEADER..].copy_from_slice(payload);
        cell
    });
    Ok(cells.collect())
}

/// Puts the cells of one message of the virtual channel `vci` together again.
///
/// # Errors
/// The first thing that is wrong: lost, mixed and damaged cells are all found, but for one in 2^32 by chance.
pub fn reassemble(cells: &[[u8; CELL]], vci: u16) -> Result<Vec<u8>, Damage> {
    let mut pdu = Vec::with_capacity(cells.len() * PAYLOAD);
    for (number, cell) in cells.iter().enumerate() {
        if cell[HEADER - 1] != header_check([cell[0], cell[1], cell[2], cell[3]]) {
            return Err(Damage::Header(number));
        }
        let last = cell[3] & 0b10 != 0;
        if cell[..HEADER] != header(vci, last) {
            return Err(Damage::Channel(number));
        }
        if last != (number + 1 == cells.len()) {
            return Err(Damage::End);
        }
        pdu.extend(&cell[HEADER..]);
    }
    let (body, crc) = pdu.split_last_chunk::<4>().ok_or(Damage::End)?;
    if crc32(body) != u32::from_be_bytes(*crc) {
        return Err(Damage::Payload);
    }
    let (_, length) = body.split_last_chunk::<2>().ok_or(Damage::End)?;
    let length = usize::from(u16::from_be_bytes(*length));
    if (length + TRAILER).div_ceil(PAYLOAD) != cells.len() {
        return Err(Damage::Length(length));
    }
    pdu.truncate(length);
    Ok(pdu)
}

/// A cell's header at the user-network interface: no flow control, path 0, channel, end of message, check byte.
fn header(vci: u16, last: bool) -> [u8; HEADER] {
    let [high, low] = vci.to_be_bytes();
    let four = [0, high >> 4, (high << 4) | (low >> 4), (low << 4) | if last { 0b10 } else { 0 }];
    [four[0], four[1], four[2], four[3], header_check(four)]
}

/// The header's check byte: CRC-8 with x^8 + x^2 + x + 1, and 0x55 added (I.432).
fn header_check(four: [u8; 4]) -> u8 {
    let step = |crc: u8, _| (crc << 1) ^ if crc & 0x80 == 0 { 0 } else { 0x07 };
    0x55 ^ four.iter().fold(0, |crc, byte| (0..8).fold(crc ^ byte, step))
}

/// The CRC-32 of AAL5: the most significant bit first, from all ones, complemented.
fn crc32(bytes: &[u8]) -> u32 {
    let step = |crc: u32, _| (crc << 1) ^ if crc & 0x8000_0000 == 0 { 0 } else { 0x04c1_1db7 };
    !bytes.iter().fold(u32::MAX, |crc, &byte| (0..8).fold(crc ^ (u32::from(byte) << 24), step))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{CELL, Damage, HEADER, IN_ONE_CELL, LONGEST, PAYLOAD, cells, crc32, header, reassemble, segment};

    #[test]
    fn checks_are_those_of_the_standards() {
        // CRC-32/BZIP2 is the same polynomial with the same start and end.
        assert_eq!(crc32(b"123456789"), 0xfc89_1918);
        // The cell that fills a link without traffic (I.432) has the header 00 00 00 01 52.
        assert_eq!(super::header_check([0, 0, 0, 1]), 0x52);
        // A message and its check leave the same remainder, whatever the message is.
        let mut pdu = b"any message".to_vec();
        pdu.extend(crc32(&pdu).to_be_bytes());
        assert_eq!(!crc32(&pdu), 0xc704_dd7b);
    }

    #[test]
    fn a_trailer_takes_8_bytes_and_the_rest_is_padding() {
        assert_eq!([0, 1, 40, 41, 48, 88, 89].map(cells), [1, 1, 1, 2, 2, 2, 3]);
        assert_eq!(cells(9216), 193);
        assert_eq!(cells(IN_ONE_CELL as u64), 1);
        let cells = segment(&[7; 41], 0x123).unwrap();
        assert_eq!(cells[0][..HEADER], header(0x123, false));
        assert_eq!(cells[0][..4], [0, 0, 0x12, 0x30]);
        assert_eq!(cells[1][..4], [0, 0, 0x12, 0x32]);
        assert!(cells[0][HEADER..HEADER + 41].iter().all(|&byte| byte == 7));
        assert!(cells[0][HEADER + 41..].iter().chain(&cells[1][HEADER..CELL - 6]).all(|&byte| byte == 0));
        assert_eq!(cells[1][CELL - 6..CELL - 4], [0, 41]);
        assert_eq!(segment(&vec![0; LONGEST + 1], 1), Err(Damage::TooLong(LONGEST + 1)));
    }

    proptest! {
        #[test]
        fn a_message_comes_out_as_it_went_in(message in prop::collection::vec(any::<u8>(), 0..400), vci: u16) {
            let cut = segment(&message, vci).unwrap();
            prop_assert_eq!(cut.len() as u64, cells(message.len() as u64));
            prop_assert_eq!(reassemble(&cut, vci), Ok(message));
        }

        #[test]
        fn damage_is_found(
            message in prop::collection::vec(any::<u8>(), 0..400), place: prop::sample::Index, bit in 0..8u8, vci: u16
        ) {
            let mut cut = segment(&message, vci).unwrap();
            let place = place.index(cut.len() * CELL);
            cut[place / CELL][place % CELL] ^= 1 << bit;
            prop_assert!(reassemble(&cut, vci).is_err());
        }

        #[test]
        fn a_lost_or_repeated_cell_is_found(length in PAYLOAD..400, which: prop::sample::Index, lost: bool) {
            let mut cut = segment(&vec![1; length], 5).unwrap();
            let which = which.index(cut.len());
            if lost {
                cut.remove(which);
            } else {
                cut.insert(which, cut[which]);
            }
            prop_assert!(reassemble(&cut, 5).is_err());
        }
    }
}
