//! The memory, the check sum and the guard of an endpoint that is fuzzed: all of it a function of its input.

use std::cell::Cell;
use std::collections::VecDeque;

use cutthrough_engine::net::Net;
use cutthrough_engine::net::batch::{Batch, Piece};
use cutthrough_engine::net::memory::{Load as _, Memory, Place, Placing, Want};
use cutthrough_engine::seal::{BoxedSeal, Guard, Handshake, Seal, WrongKey};
use cutthrough_engine::token::Refused;
use cutthrough_wire::frame::{HEADER_BYTES, Header, Kind, OPENING_BYTES, SEAL_BYTES, SEALED_BYTES};
use cutthrough_wire::seal::OPENING_NUMBER;

/// Longest payload that gets a place.
pub const PLACE_MAX: usize = 64 << 10;

/// Places that are posted at most.
const POSTED: usize = 4;

/// A place, in pieces of this many bytes.
#[derive(Debug)]
pub struct Plot {
    /// What has landed.
    pub bytes: Vec<u8>,
    /// Whether it was shown as a guess: then anything may have landed there.
    pub shown: Cell<bool>,
    piece: usize,
}

impl Plot {
    /// What no byte has landed on.
    pub const EMPTY: u8 = 0;

    fn new(bytes: usize, piece: usize) -> Self {
        Self { bytes: vec![Self::EMPTY; bytes], shown: Cell::new(false), piece }
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
    /// Where the next payloads may land, in their order.
    pub posted: VecDeque<Plot>,
    /// Whether there is no memory now.
    pub scarce: bool,
}

impl Ground {
    /// Posts a place behind the others; instead of the first of them, if there are many.
    pub fn post(&mut self, bytes: u16) {
        if self.posted.len() == POSTED {
            self.posted.pop_front();
        }
        self.posted.push_back(Plot::new(usize::from(bytes), usize::MAX));
    }
}

impl Memory for Ground {
    type Load = Vec<u8>;
    type Place = Plot;

    fn place<'a>(&mut self, _channel: usize, want: &Want, _: impl Iterator<Item = &'a Plot>) -> Placing<Plot> {
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
        match self.posted.pop_front_if(|posted| posted.bytes.len() >= bytes) {
            Some(posted) => Placing::Guessed(posted),
            None => Placing::Here(Plot::new(bytes, usize::MAX)),
        }
    }

    fn guess(&mut self, channel: usize) -> Option<&mut Plot> {
        self.guesses(channel).next()
    }

    fn guesses(&mut self, _channel: usize) -> impl Iterator<Item = &mut Plot> {
        self.posted.iter_mut().inspect(|plot| plot.shown.set(true))
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

/// Makes the check sums of a frame right, or wrong.
pub fn seal(header: &Header, head: &mut [u8; HEADER_BYTES], body: &mut [u8], broken: bool) {
    let number = if header.kind.greets() { 0 } else { header.number };
    let (protected, place) = head.split_at_mut(SEALED_BYTES);
    if header.kind == Kind::Open
        && let Some((opening, payload)) = body.split_first_chunk_mut::<OPENING_BYTES>()
    {
        let (plain, sum) = opening.split_at_mut(OPENING_BYTES - SEAL_BYTES);
        sum.copy_from_slice(&Sum::of(number | OPENING_NUMBER, protected, plain));
        place.copy_from_slice(&Sum::of(number, protected, payload));
    } else {
        place.copy_from_slice(&Sum::of(number, protected, body));
    }
    place[0] ^= u8::from(broken);
}

/// The bytes of a batch.
pub fn bytes(net: &Net<Ground>, index: usize, batch: &Batch) -> Vec<u8> {
    let mut bytes = Vec::new();
    for piece in batch.pieces() {
        match *piece {
            Piece::Own { at, len } => bytes.extend_from_slice(&batch.own()[at..at + len]),
            Piece::Payload { message, offset, len } => {
                bytes.extend_from_slice(net.load(index, message).expect("a payload").piece(offset, len));
            }
        }
    }
    bytes
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
