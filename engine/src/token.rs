//! The table of tokens: where coming payloads shall land (Trapeze's incoming payload table, USENIX 1998).
//!
//! A token is index and key. It is good for one payload: the first use takes the place out of the table, so duplicates
//! and dangling tokens find nothing. It can be revoked until then. A payload with a token that is not good is dropped;
//! its control message is still delivered and says so.

use alloc::vec::Vec;

use cutthrough_wire::token::TOKENS;
pub use cutthrough_wire::token::Token;

use crate::count::Counter;

/// Why a token is not good.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// No such token was ever given.
    #[error("the token was never given")]
    Wrong,
    /// It was revoked.
    #[error("the token was revoked")]
    Revoked,
    /// It was used before.
    #[error("the token was used before")]
    Used,
    /// The payload is longer than the place that the token names.
    #[error("the payload is longer than the place that the token names")]
    TooLong,
}

impl Refused {
    /// The counter of this reason.
    #[must_use]
    pub const fn counter(self) -> Counter {
        match self {
            Self::Wrong => Counter::TokenWrong,
            Self::Revoked => Counter::TokenRevoked,
            Self::Used => Counter::TokenReused,
            Self::TooLong => Counter::TokenShort,
        }
    }
}

/// What became of the last token of an index.
#[derive(Debug)]
enum State<P> {
    Given(P),
    Used,
    Revoked,
}

#[derive(Debug)]
struct Entry<P> {
    key: u64,
    state: State<P>,
}

/// The places that one side of a channel has granted to the other. `P` is what a place is to the caller.
#[derive(Debug)]
pub struct Tokens<P> {
    entries: Vec<Entry<P>>,
    free: Vec<u16>,
    seed: u64,
    given: u64,
}

impl<P> Tokens<P> {
    /// An empty table. `seed` is a random number of the caller's, so that keys of one life of a channel are not those
    /// of another.
    #[must_use]
    pub const fn new(seed: u64) -> Self {
        Self { entries: Vec::new(), free: Vec::new(), seed, given: 0 }
    }

    /// Grants `place`, or gives it back if all [`TOKENS`] places of the table are taken.
    ///
    /// # Errors
    /// The place, if the table is full.
    pub fn give(&mut self, place: P) -> Result<Token, P> {
        let Some(index) = self.free.pop().or_else(|| u16::try_from(self.entries.len()).ok().filter(|i| *i < TOKENS))
        else {
            return Err(place);
        };
        self.given += 1;
        let key = mix(self.seed.wrapping_add(self.given)).max(1);
        let entry = Entry { key, state: State::Given(place) };
        match self.entries.get_mut(usize::from(index)) {
            Some(slot) => *slot = entry,
            None => self.entries.push(entry),
        }
        Ok(Token { index, key })
    }

    /// The place that `token` names, if it is good, without using the token.
    ///
    /// # Errors
    /// [`Refused`], by reason.
    pub fn look(&self, token: Token) -> Result<&P, Refused> {
        let entry = self.entries.get(usize::from(token.index)).ok_or(Refused::Wrong)?;
        if entry.key != token.key {
            return Err(Refused::Wrong);
        }
        match &entry.state {
            State::Given(place) => Ok(place),
            State::Used => Err(Refused::Used),
            State::Revoked => Err(Refused::Revoked),
        }
    }

    /// All places that are still given.
    pub fn places(&self) -> impl Iterator<Item = &P> {
        self.entries.iter().filter_map(|entry| match &entry.state {
            State::Given(place) => Some(place),
            State::Used | State::Revoked => None,
        })
    }

    /// Uses the token: takes its place out of the table.
    ///
    /// # Errors
    /// [`Refused`], by reason.
    pub fn redeem(&mut self, token: Token) -> Result<P, Refused> {
        self.end(token, State::Used)
    }

    /// Revokes the token: takes its place out of the table. A payload that names it later is dropped.
    ///
    /// # Errors
    /// [`Refused`], if it is not good any more.
    pub fn revoke(&mut self, token: Token) -> Result<P, Refused> {
        self.end(token, State::Revoked)
    }

    fn end(&mut self, token: Token, state: State<P>) -> Result<P, Refused> {
        self.look(token)?;
        let entry = &mut self.entries[usize::from(token.index)];
        self.free.push(token.index);
        match core::mem::replace(&mut entry.state, state) {
            State::Given(place) => Ok(place),
            State::Used | State::Revoked => Err(Refused::Wrong),
        }
    }

    /// Takes every place out of the table that is still given, with its token: the channel ends.
    pub fn clear(&mut self) -> impl Iterator<Item = (Token, P)> + '_ {
        self.free.clear();
        let indexes = 0..u16::MAX;
        self.entries.drain(..).zip(indexes).filter_map(|(Entry { key, state }, index)| match state {
            State::Given(place) => Some((Token { index, key }, place)),
            State::Used | State::Revoked => None,
        })
    }
}

/// Spreads a counter over all 64 bits (the finaliser of SplitMix64; Steele, Lea, Flood, OOPSLA 2014).
const fn mix(value: u64) -> u64 {
    let value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_good_once() {
        let mut tokens = Tokens::new(1);
        let token = tokens.give("here").unwrap();
        assert_eq!(tokens.look(token), Ok(&"here"));
        assert_eq!(tokens.places().collect::<Vec<_>>(), [&"here"]);
        assert_eq!(tokens.redeem(token), Ok("here"));
        assert_eq!(tokens.places().count(), 0);
        assert_eq!(tokens.redeem(token), Err(Refused::Used));
        assert_eq!(tokens.revoke(token), Err(Refused::Used));
    }

    #[test]
    fn a_revoked_token_is_refused_as_revoked() {
        let mut tokens = Tokens::new(1);
        let token = tokens.give(5).unwrap();
        assert_eq!(tokens.revoke(token), Ok(5));
        assert_eq!(tokens.redeem(token), Err(Refused::Revoked));
    }

    #[test]
    fn an_old_token_of_the_same_index_is_wrong() {
        let mut tokens = Tokens::new(1);
        let old = tokens.give(1).unwrap();
        tokens.redeem(old).unwrap();
        let new = tokens.give(2).unwrap();
        assert_eq!(new.index, old.index);
        assert_eq!(tokens.redeem(old), Err(Refused::Wrong));
        assert_eq!(tokens.redeem(Token { index: new.index, key: new.key ^ 1 }), Err(Refused::Wrong));
        assert_eq!(tokens.redeem(Token { index: 999, key: new.key }), Err(Refused::Wrong));
        assert_eq!(tokens.redeem(new), Ok(2));
    }

    #[test]
    fn the_table_is_bounded() {
        let mut tokens = Tokens::new(7);
        for place in 0..TOKENS {
            tokens.give(place).unwrap();
        }
        assert_eq!(tokens.give(999), Err(999));
        assert_eq!(tokens.clear().count(), usize::from(TOKENS));
    }
}
