//! Memory for payloads: pages to send from, pages posted for the peer, places granted by token.

use std::fmt;

use cutthrough_engine::check::Breach;
use cutthrough_engine::count::{Count as _, Counter};
use cutthrough_engine::token::{Refused, Token};
use cutthrough_segment::page::Page;
use cutthrough_wire::slot::PAYLOAD_MAX;
use cutthrough_wire::token;

use super::link::{CloseReason, Link};
use super::pages::Place;
use crate::stat::Stat;

/// Messages whose pages may be lent before the next page is taken only after a look at what has come back.
const LENT_LIMIT: u32 = 8;

/// Where a payload that carries a token shall land. Shown (`{:?}`) by its length: an error that gives one back is to be
/// read by people.
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Landing {
    /// In fresh landing pages for so many bytes, rounded up to whole pages: the sender puts the payload there itself
    /// (one copy).
    Pages(usize),
    /// In this memory, as long as it is: the payload comes through the staging ring (two copies, overlapping), or is
    /// fetched from the sender's pages (one copy).
    Buffer(Vec<u8>),
}

impl fmt::Debug for Landing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Pages(bytes) => write!(f, "Pages({bytes})"),
            Self::Buffer(bytes) => write!(f, "Buffer({} bytes)", bytes.len()),
        }
    }
}

/// Why there is no memory for a payload.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NoMemory {
    /// All pages are lent, posted or granted. Release some, or open the endpoint with more.
    #[error("no free pages: release some, or open the endpoint with a larger pool or landing memory")]
    NoPages,
    /// All tokens of the channel are granted.
    #[error("all {} tokens of the channel are granted", token::TOKENS)]
    NoTokens,
    /// Longer than the longest payload.
    #[error("a payload has at most 1 GiB")]
    TooLong,
    /// The channel has ended.
    #[error("the channel has ended: {0}")]
    Closed(CloseReason),
}

/// Why a token was not revoked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RevokeError {
    /// The sender is writing at this moment: the message is about to arrive.
    #[error("the payload is on its way: its message is about to arrive")]
    InFlight,
    /// It is not granted any more.
    #[error(transparent)]
    Refused(#[from] Refused),
    /// The channel has ended, and all its tokens with it.
    #[error("the channel has ended: {0}")]
    Closed(CloseReason),
}

impl From<Place> for Landing {
    fn from(place: Place) -> Self {
        match place {
            Place::Buffer(buffer) => Self::Buffer(buffer),
            Place::Pages { bytes, .. } => Self::Pages(bytes as usize),
        }
    }
}

impl Link {
    /// Contiguous pages of this channel's pool, to be filled and sent by reference.
    ///
    /// Inlined, so that the page need not be moved: see `Link::unload`.
    ///
    /// # Errors
    /// [`NoMemory`].
    #[inline(always)]
    pub fn page(&mut self, bytes: usize, stat: &Stat) -> Result<Page, NoMemory> {
        if bytes as u64 > PAYLOAD_MAX {
            return Err(NoMemory::TooLong);
        }
        // Looking at what the peer has returned costs a transfer of a cache line, and polls do it anyway when nothing
        // else waits: here it is done only when too much is out, so that the pages in use stay few and warm.
        if self.traffic.lends.messages() < LENT_LIMIT
            && let Some(page) = self.traffic.pages.take(bytes)
        {
            return Ok(page);
        }
        self.look_for_pages(stat)?;
        self.traffic.pages.take(bytes).ok_or_else(|| no_pages(stat))
    }

    #[cold]
    fn look_for_pages(&mut self, stat: &Stat) -> Result<(), NoMemory> {
        self.tidy(stat).map_err(|breach| self.out_of_order(breach))
    }

    /// Posts up to `count` runs of landing pages of `bytes` bytes each into the free queue: how many it posted. The
    /// peer puts payloads there; a released payload is posted again by itself.
    ///
    /// # Errors
    /// [`NoMemory`], if not one could be posted.
    pub fn post(&mut self, bytes: usize, count: u32, stat: &Stat) -> Result<u32, NoMemory> {
        self.tidy(stat).map_err(|breach| self.out_of_order(breach))?;
        let pages = self.pages_for(bytes)?;
        let posted = self.traffic.post(&self.own, &self.peer, pages, count);
        match posted.map_err(|breach| self.out_of_order(breach))? {
            0 if count > 0 => Err(no_pages(stat)),
            posted => Ok(posted),
        }
    }

    /// Wants the runs back that are posted and not filled: how many are still out. The peer gives them back when it
    /// looks after its endpoint.
    ///
    /// # Errors
    /// The breach that has ended the channel.
    pub fn recall(&mut self, stat: &Stat) -> Result<u32, CloseReason> {
        let tidied = self.tidy(stat).inspect_err(|breach| self.end(CloseReason::Breach(*breach)));
        tidied.map_err(CloseReason::Breach)?;
        self.traffic.recall(&self.own);
        self.wake_peer(stat);
        Ok(self.traffic.recalled())
    }

    /// Grants a place for one payload: the token, to be put into a request.
    ///
    /// # Errors
    /// [`NoMemory`], and the place.
    pub fn grant(&mut self, landing: Landing, stat: &Stat) -> Result<Token, (NoMemory, Landing)> {
        if let Err(breach) = self.tidy(stat) {
            return Err((self.out_of_order(breach), landing));
        }
        let place = match landing {
            Landing::Buffer(buffer) if buffer.len() as u64 > PAYLOAD_MAX => {
                return Err((NoMemory::TooLong, Landing::Buffer(buffer)));
            }
            Landing::Buffer(buffer) => Place::Buffer(buffer),
            Landing::Pages(bytes) => self.place_in_pages(bytes, stat).map_err(|why| (why, landing))?,
        };
        let seen = match &place {
            Place::Buffer(buffer) => token::Place::Private { bytes: u32::try_from(buffer.len()).unwrap_or(0) },
            Place::Pages { first, count, .. } => token::Place::Pages { first: *first, count: *count },
        };
        match self.traffic.tokens.give(place) {
            Ok(token) => {
                self.own.set_token(token.index, token.key, seen);
                Ok(token)
            }
            Err(place) => {
                self.put_back(&place);
                Err((NoMemory::NoTokens, place.into()))
            }
        }
    }

    fn place_in_pages(&mut self, bytes: usize, stat: &Stat) -> Result<Place, NoMemory> {
        let count = self.pages_for(bytes)?;
        let first = self.traffic.landing.take(count).ok_or_else(|| no_pages(stat))?;
        Ok(Place::Pages { first, count, bytes: u32::try_from(bytes).map_err(|_| NoMemory::TooLong)? })
    }

    /// Takes a token back: from now on a payload that carries it is dropped. The memory that it named comes back.
    ///
    /// # Errors
    /// [`RevokeError::InFlight`], if the sender has already begun: then the message arrives.
    pub fn revoke(&mut self, token: Token) -> Result<Landing, RevokeError> {
        let seen = match self.traffic.tokens.look(token)? {
            Place::Buffer(buffer) => token::Place::Private { bytes: u32::try_from(buffer.len()).unwrap_or(0) },
            Place::Pages { first, count, .. } => token::Place::Pages { first: *first, count: *count },
        };
        self.own.clear_token(token.index);
        if self.peer.claim(token.index) == token.key {
            self.own.set_token(token.index, token.key, seen);
            return Err(RevokeError::InFlight);
        }
        let place = self.traffic.tokens.revoke(token)?;
        self.put_back(&place);
        Ok(place.into())
    }

    /// Takes the private memory back that tokens name, or named until their payload began: the channel has ended.
    pub fn take_grants(&mut self) -> Vec<(Token, Vec<u8>)> {
        let given = self.traffic.tokens.clear();
        let private = given.filter_map(|(token, place)| match place {
            Place::Buffer(buffer) => Some((token, buffer)),
            Place::Pages { .. } => None,
        });
        let mut grants: Vec<_> = private.collect();
        grants.extend(self.take_expected());
        grants
    }

    pub(super) fn put_back(&mut self, place: &Place) {
        if let Place::Pages { first, count, .. } = place {
            self.traffic.landing.give(*first, *count);
        }
    }

    fn pages_for(&self, bytes: usize) -> Result<u32, NoMemory> {
        if bytes as u64 > PAYLOAD_MAX {
            return Err(NoMemory::TooLong);
        }
        u32::try_from(bytes.max(1).div_ceil(self.sizes.page_bytes as usize)).map_err(|_| NoMemory::TooLong)
    }

    fn out_of_order(&mut self, breach: Breach) -> NoMemory {
        self.end(CloseReason::Breach(breach));
        NoMemory::Closed(CloseReason::Breach(breach))
    }
}

/// There are no pages: counted.
#[cold]
fn no_pages(stat: &Stat) -> NoMemory {
    stat.add(Counter::NoPage, 1);
    NoMemory::NoPages
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_landing_is_shown_by_its_length() {
        assert_eq!(format!("{:?}", Some(Landing::Buffer(vec![7; 4096]))), "Some(Buffer(4096 bytes))");
        assert_eq!(format!("{:?}", Landing::Pages(8192)), "Pages(8192)");
    }
}
