//! The trait of whatever protects frames: a check sum, or a cipher with a key (rule N12).

use crate::frame::SEAL_BYTES;

/// Protects the frames that one side of a channel sends, and checks those that it receives. The header given is the
/// part of it that is protected but never hidden ([`SEALED_BYTES`](crate::frame::SEALED_BYTES) bytes, or fewer).
pub trait Seal {
    /// Whether a sealed body is the plain body, so that payloads may be sent from where they lie: then only
    /// [`Seal::sum`] is asked, and [`Seal::seal_into`] never.
    fn is_bare(&self) -> bool;

    /// The seal of a body that stays as it is. Only for those that are [bare](Seal::is_bare).
    fn sum(&mut self, number: u64, header: &[u8], body: &[u8]) -> [u8; SEAL_BYTES];

    /// Seals `body` where it lies.
    fn seal(&mut self, number: u64, header: &[u8], body: &mut [u8]) -> [u8; SEAL_BYTES];

    /// Seals `plain` into `out`, which is as long.
    fn seal_into(&mut self, number: u64, header: &[u8], plain: &[u8], out: &mut [u8]) -> [u8; SEAL_BYTES];

    /// Opens `body` where it lies: whether it is what the other side has sealed. If not, what `body` then holds is of
    /// no use.
    #[must_use]
    fn open(&mut self, number: u64, header: &[u8], seal: &[u8; SEAL_BYTES], body: &mut [u8]) -> bool;

    /// The public key that the other side has proved to hold, if it has one.
    fn peer(&self) -> Option<[u8; 32]> {
        None
    }
}

/// Added to the number of a frame for the seal of its opening, which is apart from that of its payload.
pub const OPENING_NUMBER: u64 = 1 << 63;
