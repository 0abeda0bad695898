//! What this crate makes, as the wire knows it: seals of frames.

use crc_fast::{CrcAlgorithm, Digest};
use cutthrough_wire::frame::SEAL_BYTES;
use cutthrough_wire::seal::Seal;

use crate::Session;

/// Seals with CRC-32C over header and body: finds what the wire has changed, and proves nothing.
#[derive(Debug, Default, Clone, Copy)]
pub struct CheckSum;

impl CheckSum {
    fn of(number: u64, header: &[u8], body: &[u8]) -> [u8; SEAL_BYTES] {
        let mut digest = Digest::new(CrcAlgorithm::Crc32Iscsi);
        digest.update(header);
        digest.update(body);
        let mut seal = [0; SEAL_BYTES];
        seal[..4].copy_from_slice(&digest.finalize().to_le_bytes()[..4]);
        // An opening and its payload have the same header: the mark of the opening keeps their seals apart.
        seal[4] = u8::from(number >> 63 == 1);
        seal
    }
}

impl Seal for CheckSum {
    fn is_bare(&self) -> bool {
        true
    }
    fn sum(&mut self, number: u64, header: &[u8], body: &[u8]) -> [u8; SEAL_BYTES] {
        Self::of(number, header, body)
    }
    fn seal(&mut self, number: u64, header: &[u8], body: &mut [u8]) -> [u8; SEAL_BYTES] {
        Self::of(number, header, body)
    }
    fn seal_into(&mut self, number: u64, header: &[u8], plain: &[u8], out: &mut [u8]) -> [u8; SEAL_BYTES] {
        out.copy_from_slice(plain);
        Self::of(number, header, plain)
    }
    fn open(&mut self, number: u64, header: &[u8], seal: &[u8; SEAL_BYTES], body: &mut [u8]) -> bool {
        Self::of(number, header, body) == *seal
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
