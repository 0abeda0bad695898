//! The memory of a simulated endpoint: pages that payloads land in, posted or named by tokens, and payloads to be sent.

use std::cell::Cell;
use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::ops::Range;
use std::rc::Rc;

use cutthrough_engine::net::memory::{Load, Memory, Place, Placing, Want};
use cutthrough_engine::token::{Token, Tokens};

use super::random::mix;

/// Byte of a page that nothing was written to.
pub(super) const EMPTY: u8 = 0xa5;

/// Bytes that a payload may have at most: only who lies has more. There is no such place, and nobody makes one.
const LONGEST: usize = 1 << 20;
/// Places that are posted at most.
const POSTED: usize = 4;

/// The bytes of a payload, from a seed.
pub(super) fn pattern(seed: u64, len: usize) -> Vec<u8> {
    pattern_of(seed, 0..len)
}

/// Some of these bytes.
pub(super) fn pattern_of(seed: u64, range: Range<usize>) -> Vec<u8> {
    let first = range.start / 8 * 8;
    let mut bytes = Vec::with_capacity(range.end.saturating_sub(first) + 8);
    let mut at = range.start as u64 / 8;
    while bytes.len() < range.end.saturating_sub(first) {
        bytes.extend_from_slice(&mix(seed.wrapping_add(at)).to_le_bytes());
        at += 1;
    }
    bytes.truncate(range.end.saturating_sub(first));
    bytes.drain(..range.start - first);
    bytes
}

/// How many of something there are: each that has a part of it counts, until it is dropped.
#[derive(Debug, Clone, Default)]
pub(super) struct Count(Rc<()>);

impl Count {
    /// Those that have a part of it.
    pub(super) fn get(&self) -> usize {
        Rc::strong_count(&self.0) - 1
    }
}

/// A payload that is sent out of pages that do not lie side by side.
pub(super) struct Cargo {
    pub(super) bytes: Vec<u8>,
    pub(super) page: usize,
    /// One of those that are being sent.
    pub(super) _counts: Count,
}

impl fmt::Debug for Cargo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes", self.bytes.len())
    }
}

impl Load for Cargo {
    fn len(&self) -> usize {
        self.bytes.len()
    }
    fn piece(&self, offset: usize, most: usize) -> &[u8] {
        let end = (offset / self.page + 1) * self.page;
        &self.bytes[offset..self.bytes.len().min(end).min(offset.saturating_add(most))]
    }
    fn coalesces(&self, len: usize, _held: bool) -> bool {
        // Some do, some do not.
        (self.bytes.len() ^ len) & 1 == 1
    }
}

/// Pages that a payload lands in.
pub(super) struct Pages {
    /// No two places have the same.
    pub(super) id: u64,
    pub(super) bytes: Vec<u8>,
    /// Whether it was shown as a guess: then anything may have landed there.
    pub(super) shown: Cell<bool>,
    page: usize,
    /// One of those that are in use.
    _counts: Count,
}

impl Pages {
    /// Whether nothing was written there.
    fn is_untouched(&self) -> bool {
        static NOTHING: [u8; 4096] = [EMPTY; 4096];
        self.bytes.chunks(NOTHING.len()).all(|bytes| *bytes == NOTHING[..bytes.len()])
    }
}

impl fmt::Debug for Pages {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "place {} of {} bytes", self.id, self.bytes.len())
    }
}

impl Place for Pages {
    fn len(&self) -> usize {
        self.bytes.len()
    }
    fn piece(&mut self, offset: usize, most: usize) -> &mut [u8] {
        let end = ((offset / self.page + 1) * self.page).min(self.bytes.len()).min(offset.saturating_add(most));
        &mut self.bytes[offset.min(end)..end]
    }
}

/// The memory of one life of an endpoint.
#[derive(Debug)]
pub(super) struct Host {
    page: usize,
    guesses: bool,
    places: u64,
    /// By channel, with how many places are granted there and not used.
    tokens: BTreeMap<usize, (Tokens<Pages>, usize)>,
    posted: VecDeque<Pages>,
    /// Bytes that the user keeps, and how many it may keep before places have to wait.
    pub(super) kept: usize,
    most: usize,
    /// Pages in use, and payloads being sent.
    pages: Count,
    pub(super) cargoes: Count,
}

impl Host {
    pub(super) fn new(page: usize, guesses: bool, most: usize) -> Self {
        Self {
            page,
            guesses,
            places: 0,
            tokens: BTreeMap::new(),
            posted: VecDeque::new(),
            kept: 0,
            most,
            pages: Count::default(),
            cargoes: Count::default(),
        }
    }

    /// Places in use; and those of them that are posted or granted, and have not been used.
    pub(super) fn in_use(&self) -> (usize, usize) {
        let granted: usize = self.tokens.values().map(|(_, granted)| granted).sum();
        (self.pages.get(), self.posted.len() + granted)
    }

    fn pages(&mut self, bytes: usize) -> Pages {
        self.places += 1;
        let whole = bytes.max(1).next_multiple_of(self.page.min(4096));
        Pages {
            id: self.places,
            bytes: vec![EMPTY; whole],
            shown: Cell::new(false),
            page: self.page,
            _counts: self.pages.clone(),
        }
    }

    /// Nothing lies where nothing may: in places that are granted and were not used, and in posted ones that no guess
    /// has named.
    pub(super) fn are_untouched(&self) -> Result<(), String> {
        let granted = self.tokens.values().flat_map(|(tokens, _)| tokens.places());
        let posted = self.posted.iter().filter(|posted| !posted.shown.get());
        match granted.chain(posted).find(|pages| !pages.is_untouched()) {
            Some(pages) => Err(format!("something lies in {pages:?}, which nothing was sent to")),
            None => Ok(()),
        }
    }

    /// Channels on which places were granted.
    pub(super) fn grants(&self) -> impl Iterator<Item = usize> {
        self.tokens.keys().copied()
    }

    /// Posts pages, if few are.
    pub(super) fn post(&mut self, bytes: usize) -> bool {
        let posts = self.guesses && self.posted.len() < POSTED;
        if posts {
            let pages = self.pages(bytes);
            self.posted.push_back(pages);
        }
        posts
    }

    /// Grants pages of a channel, and says which.
    pub(super) fn grant(&mut self, channel: usize, bytes: usize) -> Option<(Token, u64)> {
        let pages = self.pages(bytes);
        let (id, seed) = (pages.id, self.places);
        let (tokens, granted) = self.tokens.entry(channel).or_insert_with(|| (Tokens::new(mix(seed)), 0));
        let token = tokens.give(pages).ok()?;
        *granted += 1;
        Some((token, id))
    }

    /// Takes a place back that was granted on a channel, unless a payload lies there or is about to.
    pub(super) fn revoke(&mut self, channel: usize, token: Token) -> Option<Pages> {
        let (tokens, granted) = self.tokens.get_mut(&channel)?;
        let pages = tokens.revoke(token).ok()?;
        *granted -= 1;
        Some(pages)
    }

    /// The channel has ended.
    pub(super) fn clear(&mut self, channel: usize) {
        self.tokens.remove(&channel);
    }
}

impl Memory for Host {
    type Load = Cargo;
    type Place = Pages;

    fn place<'a>(&mut self, channel: usize, want: &Want, _: impl Iterator<Item = &'a Pages>) -> Placing<Pages> {
        let bytes = want.bytes as usize;
        if let Some(token) = want.token {
            let Some((tokens, granted)) = self.tokens.get_mut(&channel) else {
                return Placing::Refused(cutthrough_engine::token::Refused::Wrong);
            };
            return match tokens.look(token) {
                Ok(pages) if pages.bytes.len() < bytes => Placing::Refused(cutthrough_engine::token::Refused::TooLong),
                Ok(_) => match tokens.redeem(token) {
                    Ok(pages) => {
                        *granted -= 1;
                        Placing::Here(pages)
                    }
                    Err(refused) => Placing::Refused(refused),
                },
                Err(refused) => Placing::Refused(refused),
            };
        }
        if !want.pages {
            return Placing::Reader;
        }
        if bytes > LONGEST {
            return Placing::Refused(cutthrough_engine::token::Refused::TooLong);
        }
        if self.kept > self.most {
            return Placing::Later;
        }
        match self.posted.pop_front_if(|posted| posted.bytes.len() >= bytes) {
            Some(posted) => Placing::Guessed(posted),
            None => Placing::Here(self.pages(bytes)),
        }
    }

    fn guess(&mut self, channel: usize) -> Option<&mut Pages> {
        self.guesses(channel).next()
    }

    fn guesses(&mut self, _channel: usize) -> impl Iterator<Item = &mut Pages> {
        self.posted.iter_mut().inspect(|posted| posted.shown.set(true))
    }
}
