//! The memory, the check sum and the guard of an endpoint that is fuzzed: all of it a function of its input.

use cutthrough_engine::net::memory::{Memory, Place, Placing, Want};
use cutthrough_engine::seal::{BoxedSeal, Guard, Handshake, Seal, WrongKey};
use cutthrough_engine::token::Refused;

/// Longest payload that gets a place.
pub const PLACE_MAX: usize = 64 << 10;

/// A place, in pieces of this many bytes.
#[derive(Debug)]
pub struct Plot {
    /// What has landed.
    pub bytes: Vec<u8>,
    piece: usize,
}

impl Plot {
    fn new(bytes: usize, piece: usize) -> Self {
        Self { bytes: vec![0; bytes], piece }
    }
}

impl Place for Plot {
    fn len(&self) -> usize {
        self.bytes.len()
    }
    fn piece(&mut self, offset: usize, most: usize) -> &mut [u8] {
        assert!(offset < self.bytes.len() && most > 0, "byte {offset} of {}", self.bytes.len());
        let border = (offset / self.piece + 1) * self.piece;
        let end = self.bytes.len().min(border).min(offset.saturating_add(most));
        &mut self.bytes[offset..end]
    }
}

/// Memory that gives places by what is asked for, so that the input reaches every answer.
#[derive(Debug, Default)]
pub struct Ground {
    /// Where the next payload may land.
    pub posted: Option<Plot>,
    /// Whether there is no memory now.
    pub scarce: bool,
}

impl Ground {
    /// Posts a place.
    pub fn post(&mut self, bytes: u16) {
        self.posted = Some(Plot::new(usize::from(bytes), usize::MAX));
    }
}

impl Memory for Ground {
    type Load = Vec<u8>;
    type Place = Plot;

    fn place(&mut self, _channel: usize, want: &Want) -> Placing<Plot> {
        let bytes = want.bytes as usize;
        if let Some(token) = want.token {
            return match token.index % 3 {
                _ if bytes > PLACE_MAX => Placing::Refused(Refused::TooLong),
                0 => Placing::Refused(Refused::Wrong),
                1 => Placing::Here(Plot::new(bytes, 512)),
                _ => Placing::Here(Plot::new(bytes, usize::MAX)),
            };
        }
        if !want.pages {
            return Placing::Reader;
        }
        if self.scarce || bytes > PLACE_MAX {
            return Placing::Later;
        }
        match self.posted.take_if(|posted| posted.bytes.len() >= bytes) {
            Some(posted) => Placing::Guessed(posted),
            None => Placing::Here(Plot::new(bytes, usize::MAX)),
        }
    }

    fn guess(&mut self, _channel: usize) -> Option<&mut Plot> {
        self.posted.as_mut()
    }
}

/// A check sum over number, header and body, which anybody can make.
#[derive(Debug, Clone, Copy)]
pub struct Sum;

impl Sum {
    /// The seal.
    #[must_use]
    pub fn of(number: u64, header: &[u8], body: &[u8]) -> [u8; 16] {
        let mut hash = 0xcbf2_9ce4_8422_2325 ^ number;
        for byte in header.iter().chain(body) {
            hash = (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
        }
        let mut seal = [0; 16];
        seal[..8].copy_from_slice(&hash.to_le_bytes());
        seal
    }
}

impl Seal for Sum {
    fn is_bare(&self) -> bool {
        true
    }
    fn sum(&mut self, number: u64, header: &[u8], body: &[u8]) -> [u8; 16] {
        Self::of(number, header, body)
    }
    fn seal(&mut self, number: u64, header: &[u8], body: &mut [u8]) -> [u8; 16] {
        Self::of(number, header, body)
    }
    fn seal_into(&mut self, number: u64, header: &[u8], plain: &[u8], out: &mut [u8]) -> [u8; 16] {
        out.copy_from_slice(plain);
        Self::of(number, header, plain)
    }
    fn open(&mut self, number: u64, header: &[u8], seal: &[u8; 16], body: &mut [u8]) -> bool {
        Self::of(number, header, body) == *seal
    }
}

impl Handshake for Sum {
    fn finish(&mut self, answer: &[u8]) -> Result<BoxedSeal, WrongKey> {
        if answer.is_empty() { Ok(Box::new(Self)) } else { Err(WrongKey) }
    }
}

/// A guard without keys.
#[derive(Debug)]
pub struct Doorman {
    /// What its random numbers are counted from.
    pub random: u64,
    /// Its check sum.
    pub sum: Sum,
}

impl Guard for Doorman {
    fn call(&mut self, _prologue: &[u8]) -> Result<(Box<dyn Handshake + Send>, Vec<u8>), WrongKey> {
        Ok((Box::new(Sum), Vec::new()))
    }
    fn answer(&mut self, _prologue: &[u8], first: &[u8]) -> Result<(BoxedSeal, Vec<u8>), WrongKey> {
        if first.is_empty() { Ok((Box::new(Sum), Vec::new())) } else { Err(WrongKey) }
    }
    fn plain(&mut self) -> &mut dyn Seal {
        &mut self.sum
    }
    fn cookie(&self, bytes: &[u8]) -> u64 {
        u64::from_le_bytes(Sum::of(7, bytes, &[])[..8].try_into().unwrap_or_default())
    }
    fn random(&mut self) -> u64 {
        self.random = self.random.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
        self.random >> 16
    }
}
