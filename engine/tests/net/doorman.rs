//! Who opens a world's channels, and seals their frames: everybody knows the one key.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use cutthrough_engine::seal::{BoxedSeal, Guard, Handshake, Seal, WrongKey};
use cutthrough_wire::frame::FRAME_VERSION;

use super::wire::mix;

#[derive(Debug)]
struct Sum;

pub(crate) fn sum(number: u64, parts: [&[u8]; 2]) -> [u8; 16] {
    let mut hash = 0xcbf2_9ce4_8422_2325 ^ number;
    for byte in parts.into_iter().flatten() {
        hash = (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
    }
    let mut seal = [0; 16];
    seal[..8].copy_from_slice(&hash.to_le_bytes());
    seal
}

impl Seal for Sum {
    fn is_bare(&self) -> bool {
        true
    }
    fn sum(&mut self, number: u64, header: &[u8], body: &[u8]) -> [u8; 16] {
        sum(number, [header, body])
    }
    fn seal(&mut self, number: u64, header: &[u8], body: &mut [u8]) -> [u8; 16] {
        sum(number, [header, body])
    }
    fn seal_into(&mut self, number: u64, header: &[u8], plain: &[u8], out: &mut [u8]) -> [u8; 16] {
        out.copy_from_slice(plain);
        sum(number, [header, plain])
    }
    fn open(&mut self, number: u64, header: &[u8], seal: &[u8; 16], body: &mut [u8]) -> bool {
        sum(number, [header, body]) == *seal
    }
}

#[derive(Debug)]
pub(crate) struct Doorman {
    secret: u64,
    /// Which cookies are told: those of this number, and of the one before, are good.
    span: Arc<AtomicU64>,
    random: u64,
    sum: Sum,
}

impl Doorman {
    /// One whose cookies and random numbers follow from this number.
    pub(crate) fn new(seed: u64) -> Self {
        Self::of(&Arc::default(), mix(seed), mix(seed.wrapping_add(1)))
    }

    /// One with this secret, which tells cookies of this number.
    pub(crate) fn of(span: &Arc<AtomicU64>, secret: u64, random: u64) -> Self {
        Self { secret, span: Arc::clone(span), random, sum: Sum }
    }

    fn cookie_at(&self, span: u64, bytes: &[u8]) -> u64 {
        let secret = self.secret ^ span.wrapping_mul(0x9e37_79b9);
        bytes.iter().fold(secret, |cookie, byte| cookie.wrapping_mul(31).wrapping_add(u64::from(*byte)))
    }
}

/// The answer to a handshake that is bound to this.
pub(crate) fn answer(prologue: &[u8]) -> Vec<u8> {
    [&b"pleased"[..], &sum(0, [prologue, &[]])].concat()
}

/// A handshake that has been begun, and its answer.
struct Begun(Vec<u8>);

impl Handshake for Begun {
    fn finish(&mut self, answer: &[u8]) -> Result<BoxedSeal, WrongKey> {
        if *answer == self.0 { Ok(Box::new(Sum)) } else { Err(WrongKey) }
    }
}

impl Guard for Doorman {
    fn call(&mut self, prologue: &[u8]) -> Result<(Box<dyn Handshake + Send>, Vec<u8>), WrongKey> {
        Ok((Box::new(Begun(answer(prologue))), b"how do you do".to_vec()))
    }
    fn answer(&mut self, prologue: &[u8], first: &[u8]) -> Result<(BoxedSeal, Vec<u8>), WrongKey> {
        // Who speaks another version shall get no key that seals frames of this one.
        let is_meant = first == b"how do you do" && prologue.ends_with(&[FRAME_VERSION]);
        if is_meant { Ok((Box::new(Sum), answer(prologue))) } else { Err(WrongKey) }
    }
    fn plain(&mut self) -> &mut dyn Seal {
        &mut self.sum
    }
    fn cookie(&self, bytes: &[u8]) -> u64 {
        self.cookie_at(self.span.load(Ordering::Relaxed), bytes)
    }
    fn knows(&self, bytes: &[u8], cookie: u64) -> bool {
        let span = self.span.load(Ordering::Relaxed);
        [span, span.saturating_sub(1)].into_iter().any(|span| self.cookie_at(span, bytes).max(1) == cookie)
    }
    fn random(&mut self) -> u64 {
        self.random = mix(self.random);
        self.random
    }
}
