//! The keys of a peer that lies: those of a channel that it has come to in good order, which it uses for other frames
//! than its engine sends. So these are sealed as well as any.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use cutthrough_engine::seal::{BoxedSeal, Guard, Handshake, OPENING_NUMBER, Seal, WrongKey};
use cutthrough_seal::{EPOCH, Initiator, Terms, respond_on};
use cutthrough_wire::frame::{HEADER_BYTES, Header, Kind, OPENING_BYTES, SEAL_BYTES, SEALED_BYTES};

use super::super::guard::{Sum, keys_of};
use super::super::options::Locks;
use super::super::random::Random;

/// Bytes of an opening without its seal.
pub(super) const OPENING: usize = OPENING_BYTES - SEAL_BYTES;
/// Frames that are remembered of each channel, sent and heard.
const SENT: usize = 96;
const HEARD: usize = 16;
/// Epochs that a liar goes ahead at most: each costs a key.
const AHEAD: u64 = 4;

/// A frame before it is sealed.
#[derive(Debug, Clone)]
pub(super) struct Plain {
    pub(super) header: Header,
    /// The opening, without its seal, of a frame that has one.
    pub(super) opening: Option<Vec<u8>>,
    pub(super) body: Vec<u8>,
}

/// How a channel's keys were come by: so they can be had once more. A session seals no number twice.
#[derive(Debug, Clone)]
enum Recipe {
    /// There are none.
    Sum,
    Called {
        index: usize,
        locks: Locks,
        prologue: Vec<u8>,
        entropy: [u8; 32],
        answer: Vec<u8>,
    },
    Answered {
        index: usize,
        locks: Locks,
        prologue: Vec<u8>,
        entropy: [u8; 32],
        first: Vec<u8>,
    },
}

impl Recipe {
    fn seal(&self) -> Option<BoxedSeal> {
        match self {
            Self::Sum => Some(Box::new(Sum)),
            Self::Called { index, locks, prologue, entropy, answer } => {
                let (keys, cipher) = keys_of(*index, *locks);
                let begun = Initiator::begin_on(&keys, Terms { peer: None, cipher }, prologue, *entropy);
                Some(Box::new(begun.ok()?.0.hear(answer).ok()?))
            }
            Self::Answered { index, locks, prologue, entropy, first } => {
                let (keys, cipher) = keys_of(*index, *locks);
                Some(Box::new(respond_on(&keys, cipher, prologue, *entropy, first).ok()?.0))
            }
        }
    }
}

/// Seals lies.
struct Forger {
    seal: BoxedSeal,
    /// The least number that it can still seal: of bodies, and of openings.
    least: [u64; 2],
    epoch: u64,
}

/// What a liar knows of a channel.
pub(super) struct Known {
    seal: BoxedSeal,
    again: Recipe,
    forger: Option<Forger>,
    /// An opening whose payload is still to be sealed, and its number.
    begun: Option<(u64, Vec<u8>)>,
    pub(super) sent: VecDeque<Plain>,
    /// The greatest number that has gone.
    pub(super) top: u64,
    /// Headers of frames that have opened.
    pub(super) heard: VecDeque<Header>,
}

impl Known {
    /// The true frame with this number.
    pub(super) fn plain(&self, number: u64) -> Option<&Plain> {
        self.sent.iter().rev().find(|plain| plain.header.number == number)
    }

    /// A frame's bytes: with a good seal, whatever it says.
    pub(super) fn sealed(&mut self, plain: &Plain) -> Vec<u8> {
        let (number, header) = (plain.header.number, plain.header.to_bytes());
        let header = &header[..SEALED_BYTES];
        let mut bytes = header.to_vec();
        let mut opening = plain.opening.clone();
        let sum = opening.as_mut().map(|opening| self.text(number | OPENING_NUMBER, header, opening));
        let mut body = plain.body.clone();
        bytes.extend_from_slice(&self.text(number, header, &mut body));
        bytes.extend(opening.into_iter().flatten().chain(sum.into_iter().flatten()).chain(body));
        bytes
    }

    fn text(&mut self, number: u64, header: &[u8], body: &mut [u8]) -> [u8; SEAL_BYTES] {
        let (frame, side) = (number & !OPENING_NUMBER, usize::from(number >= OPENING_NUMBER));
        let keyed = !matches!(self.again, Recipe::Sum);
        let good =
            self.forger.as_ref().is_some_and(|forger| frame >= forger.least[side] && frame / EPOCH >= forger.epoch);
        if self.forger.is_none() || keyed && !good {
            self.forger = self.again.seal().map(|seal| Forger { seal, least: [0; 2], epoch: 0 });
        }
        let Some(Forger { seal, least, epoch }) = &mut self.forger else { return [0; SEAL_BYTES] };
        if keyed {
            if frame / EPOCH > *epoch + AHEAD {
                return [0; SEAL_BYTES];
            }
            while frame / EPOCH > *epoch + 1 {
                *epoch += 1;
                seal.seal(*epoch * EPOCH, &[], &mut []);
                least[0] = *epoch * EPOCH + 1;
            }
            (least[side], *epoch) = (frame + 1, frame / EPOCH);
        }
        seal.seal(number, header, body)
    }

    /// Its engine has sealed this.
    fn keep(&mut self, number: u64, header: &[u8], text: Vec<u8>) {
        let mut head = [0; HEADER_BYTES];
        let Some(place) = head.get_mut(..header.len()).filter(|place| place.len() == SEALED_BYTES) else { return };
        place.copy_from_slice(header);
        let Ok(header) = Header::from_bytes(&head) else { return };
        if number & OPENING_NUMBER != 0 {
            if let Some(plain) = self.sent.back_mut().filter(|plain| plain.header.number == header.number) {
                plain.opening = Some(text);
            } else {
                self.begun = Some((header.number, text));
            }
            return;
        }
        let opening = self.begun.take().filter(|begun| begun.0 == header.number).map(|begun| begun.1);
        self.sent.push_back(Plain { header, opening, body: text });
        if self.sent.len() > SENT {
            self.sent.pop_front();
        }
        self.top = self.top.max(header.number);
    }
}

/// What several have in one thread: the engine that seals by it, and the liar.
pub(super) type Shared = Arc<Mutex<Known>>;

pub(super) fn lock<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The channels of a liar, by the tag and the generation that their frames have.
#[derive(Clone, Default)]
pub(super) struct Taps(Arc<Mutex<BTreeMap<(u32, u32), Shared>>>);

impl Taps {
    /// The channel that a frame of its own is of.
    pub(super) fn of(&self, header: &Header) -> Option<Shared> {
        lock(&self.0).get(&(header.tag, header.generation)).cloned()
    }

    fn seal(&self, seal: BoxedSeal, again: Recipe) -> BoxedSeal {
        let known =
            Known { seal, again, forger: None, begun: None, sent: VecDeque::new(), top: 0, heard: VecDeque::new() };
        Box::new(Tap { known: Arc::new(Mutex::new(known)), taps: self.clone(), is_listed: false })
    }
}

/// A seal that its owner looks through.
struct Tap {
    known: Shared,
    taps: Taps,
    is_listed: bool,
}

impl Tap {
    fn keep(&mut self, number: u64, header: &[u8], text: &[u8]) {
        lock(&self.known).keep(number, header, text.to_vec());
        if !self.is_listed
            && let Some(plain) = lock(&self.known).sent.back()
        {
            self.is_listed = true;
            let name = (plain.header.tag, plain.header.generation);
            lock(&self.taps.0).insert(name, Arc::clone(&self.known));
        }
    }
}

impl Seal for Tap {
    fn is_bare(&self) -> bool {
        lock(&self.known).seal.is_bare()
    }
    fn sum(&mut self, number: u64, header: &[u8], body: &[u8]) -> [u8; SEAL_BYTES] {
        self.keep(number, header, body);
        lock(&self.known).seal.sum(number, header, body)
    }
    fn seal(&mut self, number: u64, header: &[u8], body: &mut [u8]) -> [u8; SEAL_BYTES] {
        self.keep(number, header, body);
        lock(&self.known).seal.seal(number, header, body)
    }
    fn seal_into(&mut self, number: u64, header: &[u8], plain: &[u8], out: &mut [u8]) -> [u8; SEAL_BYTES] {
        self.keep(number, header, plain);
        lock(&self.known).seal.seal_into(number, header, plain, out)
    }
    fn open(&mut self, number: u64, header: &[u8], seal: &[u8; SEAL_BYTES], body: &mut [u8]) -> bool {
        let mut known = lock(&self.known);
        let opens = known.seal.open(number, header, seal, body);
        let mut head = [0; HEADER_BYTES];
        if opens && number < OPENING_NUMBER && header.len() == SEALED_BYTES {
            head[..SEALED_BYTES].copy_from_slice(header);
            known.heard.extend(Header::from_bytes(&head).ok().filter(|header| header.kind != Kind::Probe));
            if known.heard.len() > HEARD {
                known.heard.pop_front();
            }
        }
        opens
    }
}

/// The guard of a liar.
pub(super) struct LyingGuard {
    pub(super) keys: Option<(usize, Locks)>,
    pub(super) random: Random,
    pub(super) taps: Taps,
    pub(super) plain: Sum,
}

struct Begun {
    initiator: Option<Initiator>,
    recipe: Recipe,
    taps: Taps,
}

impl Handshake for Begun {
    fn finish(&mut self, heard: &[u8]) -> Result<BoxedSeal, WrongKey> {
        let seal: BoxedSeal = match &mut self.initiator {
            None if heard.is_empty() => Box::new(Sum),
            None => return Err(WrongKey),
            Some(initiator) => Box::new(initiator.hear(heard).map_err(|_| WrongKey)?),
        };
        if let Recipe::Called { answer, .. } = &mut self.recipe {
            *answer = heard.to_vec();
        }
        Ok(self.taps.seal(seal, self.recipe.clone()))
    }
}

impl Guard for LyingGuard {
    fn call(&mut self, prologue: &[u8]) -> Result<(Box<dyn Handshake + Send>, Vec<u8>), WrongKey> {
        let Some((index, locks)) = self.keys else {
            let begun = Begun { initiator: None, recipe: Recipe::Sum, taps: self.taps.clone() };
            return Ok((Box::new(begun), Vec::new()));
        };
        let entropy = self.random.bytes();
        let (keys, cipher) = keys_of(index, locks);
        let begun = Initiator::begin_on(&keys, Terms { peer: None, cipher }, prologue, entropy);
        let (initiator, first) = begun.map_err(|_| WrongKey)?;
        let recipe = Recipe::Called { index, locks, prologue: prologue.to_vec(), entropy, answer: Vec::new() };
        Ok((Box::new(Begun { initiator: Some(initiator), recipe, taps: self.taps.clone() }), first))
    }

    fn answer(&mut self, prologue: &[u8], first: &[u8]) -> Result<(BoxedSeal, Vec<u8>), WrongKey> {
        let Some((index, locks)) = self.keys else {
            let sum = || self.taps.seal(Box::new(Sum), Recipe::Sum);
            return if first.is_empty() { Ok((sum(), Vec::new())) } else { Err(WrongKey) };
        };
        let entropy = self.random.bytes();
        let (keys, cipher) = keys_of(index, locks);
        let (session, second) = respond_on(&keys, cipher, prologue, entropy, first).map_err(|_| WrongKey)?;
        let (prologue, first) = (prologue.to_vec(), first.to_vec());
        let recipe = Recipe::Answered { index, locks, prologue, entropy, first };
        Ok((self.taps.seal(Box::new(session), recipe), second))
    }

    fn plain(&mut self) -> &mut dyn Seal {
        &mut self.plain
    }

    fn cookie(&self, bytes: &[u8]) -> u64 {
        super::super::random::hash(5, bytes)
    }

    fn random(&mut self) -> u64 {
        self.random.next()
    }
}
