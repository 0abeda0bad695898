//! Keys, check sums and randomness of a simulated endpoint: all from a seed.

use cutthrough_engine::seal::{BoxedSeal, Guard, Handshake, Seal, WrongKey};
use cutthrough_seal::{Cipher, Initiator, Keys, SharedKey, Terms, respond_on};

use super::random::{Random, hash, mix};

/// Bytes of a seal.
const SEAL: usize = 16;

/// A check sum over number, header and body.
#[derive(Debug)]
pub(super) struct Sum;

impl Sum {
    pub(super) fn of(number: u64, header: &[u8], body: &[u8]) -> [u8; SEAL] {
        let sum = hash(hash(mix(number), header), body);
        let mut seal = [0; SEAL];
        seal[..8].copy_from_slice(&sum.to_le_bytes());
        seal
    }
}

impl Seal for Sum {
    fn is_bare(&self) -> bool {
        true
    }
    fn sum(&mut self, number: u64, header: &[u8], body: &[u8]) -> [u8; SEAL] {
        Self::of(number, header, body)
    }
    fn seal(&mut self, number: u64, header: &[u8], body: &mut [u8]) -> [u8; SEAL] {
        Self::of(number, header, body)
    }
    fn seal_into(&mut self, number: u64, header: &[u8], plain: &[u8], out: &mut [u8]) -> [u8; SEAL] {
        out.copy_from_slice(plain);
        Self::of(number, header, plain)
    }
    fn open(&mut self, number: u64, header: &[u8], seal: &[u8; SEAL], body: &mut [u8]) -> bool {
        Self::of(number, header, body) == *seal
    }
}

impl Handshake for Sum {
    fn finish(&mut self, answer: &[u8]) -> Result<BoxedSeal, WrongKey> {
        if answer.is_empty() { Ok(Box::new(Self)) } else { Err(WrongKey) }
    }
}

struct Begun(Initiator);

impl Handshake for Begun {
    fn finish(&mut self, answer: &[u8]) -> Result<BoxedSeal, WrongKey> {
        let session = self.0.hear(answer).map_err(|_| WrongKey)?;
        Ok(Box::new(session))
    }
}

/// The guard of one life of an endpoint.
#[derive(Debug)]
pub(super) struct Doorkeeper {
    keys: Option<Keys>,
    secret: u64,
    random: Random,
    plain: Sum,
}

impl Doorkeeper {
    /// With `sealed`, frames are sealed with a key that all endpoints share.
    pub(super) fn new(sealed: bool, mut random: Random) -> Self {
        let keys = sealed.then(|| Keys::Shared(SharedKey::from_bytes([7; 32])));
        Self { keys, secret: random.next(), random, plain: Sum }
    }
}

impl Guard for Doorkeeper {
    fn call(&mut self, prologue: &[u8]) -> Result<(Box<dyn Handshake + Send>, Vec<u8>), WrongKey> {
        let Some(keys) = &self.keys else { return Ok((Box::new(Sum), Vec::new())) };
        let terms = Terms { peer: None, cipher: Cipher::Aes256Gcm };
        let begun = Initiator::begin_on(keys, terms, prologue, self.random.bytes());
        begun.map(|(initiator, first)| (Box::new(Begun(initiator)) as _, first)).map_err(|_| WrongKey)
    }

    fn answer(&mut self, prologue: &[u8], first: &[u8]) -> Result<(BoxedSeal, Vec<u8>), WrongKey> {
        match &self.keys {
            None if first.is_empty() => Ok((Box::new(Sum), Vec::new())),
            None => Err(WrongKey),
            Some(keys) => {
                let answer = respond_on(keys, Cipher::Aes256Gcm, prologue, self.random.bytes(), first);
                let (session, second) = answer.map_err(|_| WrongKey)?;
                Ok((Box::new(session), second))
            }
        }
    }

    fn plain(&mut self) -> &mut dyn Seal {
        &mut self.plain
    }

    fn cookie(&self, bytes: &[u8]) -> u64 {
        hash(self.secret, bytes)
    }

    fn random(&mut self) -> u64 {
        self.random.next()
    }
}
