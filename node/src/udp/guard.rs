//! Keys and check sums: what the engine asks of whoever proves who is who.

use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;

use crc_fast::{CrcAlgorithm, Digest};
use cutthrough_engine::seal::{BoxedSeal, Guard, Handshake, Seal, WrongKey};
use cutthrough_seal::{Initiator, Keys, Session, respond};
use cutthrough_wire::frame::SEAL_BYTES;

/// Seals with CRC-32C over header and body: finds what the wire has changed, and proves nothing.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct CheckSum;

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

/// A session of the crate `seal`.
struct Sealed(Session);

impl Seal for Sealed {
    fn is_bare(&self) -> bool {
        false
    }
    fn sum(&mut self, number: u64, header: &[u8], body: &[u8]) -> [u8; SEAL_BYTES] {
        self.0.sealer.seal_in_place(number, header, &mut body.to_vec())
    }
    fn seal(&mut self, number: u64, header: &[u8], body: &mut [u8]) -> [u8; SEAL_BYTES] {
        self.0.sealer.seal_in_place(number, header, body)
    }
    fn seal_into(&mut self, number: u64, header: &[u8], plain: &[u8], out: &mut [u8]) -> [u8; SEAL_BYTES] {
        self.0.sealer.seal(number, header, plain, out)
    }
    fn open(&mut self, number: u64, header: &[u8], seal: &[u8; SEAL_BYTES], body: &mut [u8]) -> bool {
        self.0.opener.open(number, header, seal, body).is_ok()
    }
}

impl Handshake for CheckSum {
    fn finish(&mut self, answer: &[u8]) -> Result<BoxedSeal, WrongKey> {
        if answer.is_empty() { Ok(Box::new(*self)) } else { Err(WrongKey) }
    }
}

struct Begun(Initiator);

impl Handshake for Begun {
    fn finish(&mut self, answer: &[u8]) -> Result<BoxedSeal, WrongKey> {
        let session = self.0.hear(answer).map_err(|_| WrongKey)?;
        Ok(Box::new(Sealed(session)))
    }
}

/// The guard of one endpoint.
#[derive(Debug)]
pub(crate) struct Doorkeeper {
    keys: Option<Arc<Keys>>,
    secret: RandomState,
    plain: CheckSum,
}

impl Doorkeeper {
    pub(crate) fn new(keys: Option<Arc<Keys>>) -> Self {
        Self { keys, secret: RandomState::new(), plain: CheckSum }
    }
}

fn entropy() -> [u8; 32] {
    let mut bytes = [0; 32];
    let mut have = 0;
    while have < bytes.len() {
        // It fails only where there is no such call, and it waits until there is randomness.
        let flags = rustix::rand::GetRandomFlags::empty();
        have += rustix::rand::getrandom(&mut bytes[have..], flags).expect("random numbers of the kernel");
    }
    bytes
}

impl Guard for Doorkeeper {
    fn call(&mut self, prologue: &[u8]) -> Result<(Box<dyn Handshake + Send>, Vec<u8>), WrongKey> {
        let Some(keys) = &self.keys else { return Ok((Box::new(CheckSum), Vec::new())) };
        let (initiator, first) = Initiator::begin(keys, prologue, entropy()).map_err(|_| WrongKey)?;
        Ok((Box::new(Begun(initiator)), first))
    }

    fn answer(&mut self, prologue: &[u8], first: &[u8]) -> Result<(BoxedSeal, Vec<u8>), WrongKey> {
        match &self.keys {
            None if first.is_empty() => Ok((Box::new(CheckSum), Vec::new())),
            None => Err(WrongKey),
            Some(keys) => {
                let (session, second) = respond(keys, prologue, entropy(), first).map_err(|_| WrongKey)?;
                Ok((Box::new(Sealed(session)), second))
            }
        }
    }

    fn plain(&mut self) -> &mut dyn Seal {
        &mut self.plain
    }

    fn cookie(&self, bytes: &[u8]) -> u64 {
        self.secret.hash_one(bytes)
    }

    fn random(&mut self) -> u64 {
        let [a, b, c, d, e, f, g, h, ..] = entropy();
        u64::from_le_bytes([a, b, c, d, e, f, g, h])
    }
}
