//! What this crate makes, as the wire knows it: seals of frames.

use cutthrough_wire::frame::SEAL_BYTES;
use cutthrough_wire::seal::Seal;
use twox_hash::XxHash3_64;

use crate::Session;

/// Seals with XXH3 of 64 bits, one of the header and one of the body: finds what the wire has changed, and proves
/// nothing. Not a CRC, which finds no more that matters behind those of the links, and takes two to three times as
/// long where the processor has no wide carry-less multiplication.
#[derive(Debug, Clone, Copy)]
pub struct CheckSum {
    of_long: fn(&[u8]) -> u64,
}

impl Default for CheckSum {
    fn default() -> Self {
        Self::with(XxHash3_64::oneshot)
    }
}

impl CheckSum {
    /// Headers, and bodies of no more bytes than this, are summed here in any case: all is over before any vector
    /// could help.
    pub const SHORT: usize = 240;

    /// Sums by this function for the XXH3 of 64 bits, with the seed 0, of more than [`SHORT`](Self::SHORT) bytes: who
    /// may use what this processor alone can do has a faster one.
    #[must_use]
    pub const fn with(of_long: fn(&[u8]) -> u64) -> Self {
        Self { of_long }
    }

    /// As one number: a processor that reads back what it has just written in two pieces waits.
    #[inline]
    fn of(self, number: u64, header: &[u8], body: &[u8]) -> u128 {
        let of_body = if body.len() > Self::SHORT { (self.of_long)(body) } else { XxHash3_64::oneshot(body) };
        // An opening and its payload have the same header: the mark of the opening keeps their seals apart.
        let opening = number >> 63;
        let of_header = XxHash3_64::oneshot_with_seed(opening, header);
        u128::from(of_header) | u128::from(of_body) << 64
    }
}

impl Seal for CheckSum {
    fn is_bare(&self) -> bool {
        true
    }
    fn sum(&mut self, number: u64, header: &[u8], body: &[u8]) -> [u8; SEAL_BYTES] {
        self.of(number, header, body).to_le_bytes()
    }
    fn seal(&mut self, number: u64, header: &[u8], body: &mut [u8]) -> [u8; SEAL_BYTES] {
        self.of(number, header, body).to_le_bytes()
    }
    fn seal_into(&mut self, number: u64, header: &[u8], plain: &[u8], out: &mut [u8]) -> [u8; SEAL_BYTES] {
        out.copy_from_slice(plain);
        self.of(number, header, plain).to_le_bytes()
    }
    fn open(&mut self, number: u64, header: &[u8], seal: &[u8; SEAL_BYTES], body: &mut [u8]) -> bool {
        self.of(number, header, body) == u128::from_le_bytes(*seal)
    }
}

impl Seal for Session {
    fn is_bare(&self) -> bool {
        false
    }
    fn sum(&mut self, number: u64, header: &[u8], body: &[u8]) -> [u8; SEAL_BYTES] {
        self.sealer.seal_in_place(number, header, &mut body.to_vec())
    }
    fn seal(&mut self, number: u64, header: &[u8], body: &mut [u8]) -> [u8; SEAL_BYTES] {
        self.sealer.seal_in_place(number, header, body)
    }
    fn seal_into(&mut self, number: u64, header: &[u8], plain: &[u8], out: &mut [u8]) -> [u8; SEAL_BYTES] {
        self.sealer.seal(number, header, plain, out)
    }
    fn open(&mut self, number: u64, header: &[u8], seal: &[u8; SEAL_BYTES], body: &mut [u8]) -> bool {
        self.opener.open(number, header, seal, body).is_ok()
    }
    fn peer(&self) -> Option<[u8; 32]> {
        self.peer.map(|key| *key.bytes())
    }
}
