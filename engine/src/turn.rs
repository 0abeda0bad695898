//! Whose turn it is among many channels.
//!
//! The loop must look at busy channels all the time and at idle ones often enough, without paying for a thousand idle
//! ones at each look. So channels are *hot* (they have had work lately) or *cold*. One **turn** looks at every hot
//! channel once and at one cold one at most; a look may find up to [`BUDGET`] units of work, then the next channel is
//! due. A cold channel at which work is found becomes hot at once, a hot one without work for a while becomes cold.
//!
//! What a look at a cold channel costs is a line that other processors have had, tens of nanoseconds, and what comes
//! for a hot one meanwhile waits for it. So while a hot one is in conversation (it has had work in the last [`TALK`]
//! looks) a cold one is looked at only after [`SPARED`] looks at hot ones and units of their work; else in each turn.
//!
//! Both kinds wait in strict rotation, so the longest wait is bounded whatever the busy ones do: a cold channel is
//! looked at within [`SPARED`] times as many looks and units of work as there are cold channels, or as many turns if
//! these are longer, and a turn is at most [`BUDGET`] units of work for each hot one. The rule is the resource-centred
//! loop of Trapeze (HPDC 1997, section 3) with the bounded service per endpoint that U-Net asks of an interface which
//! is shared by endpoints that do not trust each other.

mod rotation;

use alloc::vec::Vec;

use rotation::{Link, NOBODY, Rotation};

/// Units of work that a channel may have before the next one is due.
pub const BUDGET: u32 = 64;

/// Looks (at any channel) after which a hot channel without work becomes cold. At some nanoseconds a look that is the
/// time of several round trips, so a channel in conversation stays hot.
pub const PATIENCE: u64 = 8192;

/// Looks after work was found, at any channel, in which more of it is expected: about a microsecond.
pub const TALK: u64 = 256;

/// Looks at hot channels, and units of their work, for one look at a cold one, while more work is expected: they take
/// about as long.
pub const SPARED: u32 = 32;

/// Which rotation a channel is in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    Gone,
    Hot,
    Cold,
}

/// What is known of one channel.
#[derive(Debug, Clone, Copy)]
struct Seat {
    place: Place,
    /// The value of [`Turn::looks`] when work was last found here.
    worked_at: u64,
}

/// The order in which a poll loop looks at channels, which are known here by small numbers only.
///
/// ```
/// # use cutthrough_engine::turn::Turn;
/// # let mut turn = Turn::new();
/// # turn.add(3);
/// # let mut inbox = vec![7];
/// # let mut take = |_channel: usize| inbox.pop();
/// for _ in 0..turn.looks_per_turn() {
///     let Some(channel) = turn.current() else { break };
///     match take(channel) {
///         Some(_message) => { turn.found(); break }
///         None => turn.empty(),
///     }
/// }
/// ```
#[derive(Debug, Clone)]
pub struct Turn {
    current: usize,
    /// Work that the current channel may still have; 0 if it is cold.
    budget: u32,
    /// Hot channels still to be looked at in this turn, the current one excluded.
    hot_left: usize,
    /// Looks made so far, and how many they were when work was last found.
    looks: u64,
    found_at: u64,
    /// Looks at hot channels, and units of their work, since a cold one was looked at.
    spared: u32,
    hot: Rotation,
    cold: Rotation,
    seats: Vec<Seat>,
    links: Vec<Link>,
}

impl Default for Turn {
    fn default() -> Self {
        Self::new()
    }
}

impl Turn {
    /// Nobody's turn: no channels yet.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            current: NOBODY,
            budget: 0,
            hot_left: 0,
            looks: 0,
            found_at: 0,
            spared: 0,
            hot: Rotation::EMPTY,
            cold: Rotation::EMPTY,
            seats: Vec::new(),
            links: Vec::new(),
        }
    }

    /// Takes in a channel. It is hot to begin with, since a channel is opened in order to be used. Nothing changes if
    /// it is in already. Memory grows with the largest `channel` ever added, so numbers should be re-used.
    pub fn add(&mut self, channel: usize) {
        if channel >= self.seats.len() {
            self.seats.resize(channel + 1, Seat { place: Place::Gone, worked_at: 0 });
            self.links.resize(channel + 1, Link::NONE);
        }
        if self.seats[channel].place == Place::Gone {
            self.seats[channel].worked_at = self.looks;
            self.seat(channel, Place::Hot);
            if self.current == NOBODY {
                self.advance();
            }
        }
    }

    /// Forgets a channel. Nothing changes if it is not in.
    pub fn remove(&mut self, channel: usize) {
        if !self.contains(channel) {
            return;
        }
        self.unseat(channel);
        if self.current == channel {
            self.advance();
        }
    }

    /// Whether a channel is in.
    #[must_use]
    pub fn contains(&self, channel: usize) -> bool {
        self.seats.get(channel).is_some_and(|seat| seat.place != Place::Gone)
    }

    /// Whether nothing else waits for its turn than the channel whose turn it is.
    #[must_use]
    #[inline]
    pub fn alone(&self) -> bool {
        self.hot.len() + self.cold.len() <= 1
    }

    /// Every channel, in no particular order: for a last look at all of them before going to sleep.
    pub fn channels(&self) -> impl Iterator<Item = usize> + '_ {
        let seats = self.seats.iter().enumerate();
        seats.filter(|(_, seat)| seat.place != Place::Gone).map(|(channel, _)| channel)
    }

    /// How many looks make up a turn, if no work is found: all hot channels, and one cold one. A poll that has found
    /// nothing in as many looks may report that there is nothing.
    #[must_use]
    pub fn looks_per_turn(&self) -> usize {
        self.hot.len() + usize::from(self.cold.len() > 0)
    }

    /// The channel to look at now; `None` if there are no channels. Stays the same until [`Turn::found`] has used up
    /// its budget or [`Turn::empty`] has ended its turn.
    #[inline]
    #[must_use]
    pub fn current(&self) -> Option<usize> {
        (self.current != NOBODY).then_some(self.current)
    }

    /// Says that the current channel had a unit of work.
    #[inline]
    pub fn found(&mut self) {
        if self.budget > 1 {
            self.budget -= 1;
        } else {
            self.found_first_or_last();
        }
    }

    /// Says that the current channel had no (more) work, and passes the turn on.
    #[inline]
    pub fn empty(&mut self) {
        if self.current == NOBODY {
            return;
        }
        if self.budget > 0 && self.budget < BUDGET {
            self.seats[self.current].worked_at = self.looks;
            self.worked(BUDGET - self.budget);
        } else if self.budget == BUDGET && self.looks - self.seats[self.current].worked_at > PATIENCE {
            self.unseat(self.current);
            self.seat(self.current, Place::Cold);
        }
        self.advance();
    }

    /// Makes a channel hot, because somebody says that it has work. Nothing changes if it is not in.
    pub fn warm(&mut self, channel: usize) {
        if !self.contains(channel) {
            return;
        }
        self.seats[channel].worked_at = self.looks;
        if self.seats[channel].place == Place::Cold {
            self.unseat(channel);
            self.seat(channel, Place::Hot);
        }
    }

    /// The rare cases of [`Turn::found`]: the first work of a cold channel, or the last that the budget allows.
    #[cold]
    fn found_first_or_last(&mut self) {
        if self.current == NOBODY {
            return;
        }
        let was_cold = self.budget == 0;
        self.warm(self.current);
        if was_cold {
            self.budget = BUDGET - 1;
        } else {
            self.worked(BUDGET);
            self.advance();
        }
    }

    /// So many units of work were found at the current channel.
    const fn worked(&mut self, units: u32) {
        self.found_at = self.looks;
        self.spared = self.spared.saturating_add(units);
    }

    /// Whether it is a cold one's turn, once all hot ones have had theirs.
    const fn is_cold_due(&self) -> bool {
        self.spared >= SPARED || self.looks - self.found_at > TALK
    }

    /// Passes the turn on. A turn begins with one cold channel, if its time has come, and goes on with every hot one.
    fn advance(&mut self) {
        self.looks += 1;
        self.hot_left = self.hot_left.min(self.hot.len());
        if self.hot_left == 0 {
            self.hot_left = self.hot.len();
            if (self.is_cold_due() || self.hot_left == 0)
                && let Some(channel) = self.cold.rotate(&self.links)
            {
                self.current = channel;
                self.budget = 0;
                self.spared = 0;
                return;
            }
        }
        self.spared = self.spared.saturating_add(1);
        self.hot_left = self.hot_left.saturating_sub(1);
        self.current = self.hot.rotate(&self.links).unwrap_or(NOBODY);
        self.budget = BUDGET;
    }

    /// Puts a channel that is in no rotation at the back of one.
    fn seat(&mut self, channel: usize, place: Place) {
        self.seats[channel].place = place;
        match place {
            Place::Hot => self.hot.push_back(channel, &mut self.links),
            Place::Cold => self.cold.push_back(channel, &mut self.links),
            Place::Gone => {}
        }
    }

    /// Takes a channel out of its rotation.
    fn unseat(&mut self, channel: usize) {
        match self.seats[channel].place {
            Place::Hot => self.hot.remove(channel, &mut self.links),
            Place::Cold => self.cold.remove(channel, &mut self.links),
            Place::Gone => {}
        }
        self.seats[channel].place = Place::Gone;
    }
}
