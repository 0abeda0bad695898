//! Keys, check sums and randomness of a simulated endpoint: all from a seed.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use cutthrough_engine::seal::{BoxedSeal, Guard, Handshake, OPENING_NUMBER, Seal, WrongKey};
use cutthrough_seal::{Cipher, EPOCH, Initiator, Keys, PrivateKey, Session, SharedKey, Terms, respond_on};

use super::options::Locks;

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

/// The seal of a channel with keys. It counts how often the other side's keys have moved on.
struct Moving {
    session: Session,
    /// The last epoch of which a frame has opened.
    epoch: u64,
    moved: Arc<AtomicU64>,
}

impl Moving {
    fn boxed(session: Session, moved: &Arc<AtomicU64>) -> BoxedSeal {
        Box::new(Self { session, epoch: 0, moved: Arc::clone(moved) })
    }
}

impl Seal for Moving {
    fn is_bare(&self) -> bool {
        self.session.is_bare()
    }
    fn sum(&mut self, number: u64, header: &[u8], body: &[u8]) -> [u8; SEAL] {
        self.session.sum(number, header, body)
    }
    fn seal(&mut self, number: u64, header: &[u8], body: &mut [u8]) -> [u8; SEAL] {
        Seal::seal(&mut self.session, number, header, body)
    }
    fn seal_into(&mut self, number: u64, header: &[u8], plain: &[u8], out: &mut [u8]) -> [u8; SEAL] {
        self.session.seal_into(number, header, plain, out)
    }
    fn open(&mut self, number: u64, header: &[u8], seal: &[u8; SEAL], body: &mut [u8]) -> bool {
        let opens = Seal::open(&mut self.session, number, header, seal, body);
        let epoch = (number & !OPENING_NUMBER) / EPOCH;
        if opens && epoch > self.epoch {
            self.epoch = epoch;
            self.moved.fetch_add(1, Ordering::Relaxed);
        }
        opens
    }
    fn peer(&self) -> Option<[u8; 32]> {
        Seal::peer(&self.session)
    }
}

struct Begun(Initiator, Arc<AtomicU64>);

impl Handshake for Begun {
    fn finish(&mut self, answer: &[u8]) -> Result<BoxedSeal, WrongKey> {
        let session = self.0.hear(answer).map_err(|_| WrongKey)?;
        Ok(Moving::boxed(session, &self.1))
    }
}

/// The keys of an endpoint, and the cipher that it would like.
pub(super) fn keys_of(index: usize, locks: Locks) -> (Keys, Cipher) {
    let of = |index: usize| PrivateKey::generate([u8::try_from(index).unwrap_or(0) + 1; 32]);
    let keys = if locks.pairs {
        Keys::Static { own: of(index), peers: vec![of(1 - index).public()] }
    } else {
        Keys::Shared(SharedKey::from_bytes([7; 32]))
    };
    let chacha = locks.chacha >> (index % 64) & 1 == 1;
    (keys, if chacha { Cipher::ChaCha20Poly1305 } else { Cipher::Aes256Gcm })
}

/// The guard of one life of an endpoint.
#[derive(Debug)]
pub(super) struct Doorkeeper {
    keys: Option<(Keys, Cipher)>,
    moved: Arc<AtomicU64>,
    secret: u64,
    random: Random,
    plain: Sum,
}

impl Doorkeeper {
    /// Without keys: frames have a check sum.
    pub(super) fn new(mut random: Random) -> Self {
        Self { keys: None, moved: Arc::default(), secret: random.next(), random, plain: Sum }
    }

    /// The keys of one endpoint: one that all share, or a pair of its own. `moved` counts how often the keys of frames
    /// have moved on.
    pub(super) fn with_keys(mut self, index: usize, locks: Locks, moved: &Arc<AtomicU64>) -> Self {
        self.keys = Some(keys_of(index, locks));
        self.moved = Arc::clone(moved);
        self
    }
}

impl Guard for Doorkeeper {
    fn call(&mut self, prologue: &[u8]) -> Result<(Box<dyn Handshake + Send>, Vec<u8>), WrongKey> {
        let Some((keys, cipher)) = &self.keys else { return Ok((Box::new(Sum), Vec::new())) };
        let terms = Terms { peer: None, cipher: *cipher };
        let begun = Initiator::begin_on(keys, terms, prologue, self.random.bytes());
        let (initiator, first) = begun.map_err(|_| WrongKey)?;
        Ok((Box::new(Begun(initiator, Arc::clone(&self.moved))), first))
    }

    fn answer(&mut self, prologue: &[u8], first: &[u8]) -> Result<(BoxedSeal, Vec<u8>), WrongKey> {
        match &self.keys {
            None if first.is_empty() => Ok((Box::new(Sum), Vec::new())),
            None => Err(WrongKey),
            Some((keys, cipher)) => {
                let answer = respond_on(keys, *cipher, prologue, self.random.bytes(), first);
                let (session, second) = answer.map_err(|_| WrongKey)?;
                Ok((Moving::boxed(session, &self.moved), second))
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
