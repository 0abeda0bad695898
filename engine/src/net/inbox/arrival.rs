//! One message with a payload, on its way.

use alloc::boxed::Box;
use alloc::vec::Vec;

use cutthrough_wire::frame::Opening;
use cutthrough_wire::slot::CONTROL_MAX;

use super::super::spans::Spans;
use super::Story;
use crate::time::Instant;
use crate::token::Refused;

/// Where a payload's bytes go.
#[derive(Debug)]
pub(super) enum Target<P> {
    /// Aside.
    Aside(Vec<u8>),
    /// To their place.
    Place(P),
    /// Into memory that is lent by a reader for the time of a call.
    Reader,
    /// Nowhere.
    Away,
}

/// What is known of a message that has not been handed over.
#[derive(Debug)]
pub(super) enum Coming<P> {
    Nothing,
    Control(u8, [u8; CONTROL_MAX]),
    Loaded(Box<Arrival<P>>),
}

impl<P> Coming<P> {
    /// Whether it may still ask for a place that nobody has named.
    pub(super) fn may_ask(&self) -> bool {
        match self {
            Self::Nothing => true,
            Self::Control(..) => false,
            Self::Loaded(arrival) => match &arrival.opening {
                None => true,
                Some(opening) => arrival.later && opening.token.is_none(),
            },
        }
    }

    pub(super) const fn loaded_mut(&mut self) -> Option<&mut Box<Arrival<P>>> {
        match self {
            Self::Loaded(arrival) => Some(arrival),
            Self::Nothing | Self::Control(..) => None,
        }
    }

    pub(super) const fn loaded(&self) -> Option<&Arrival<P>> {
        match self {
            Self::Loaded(arrival) => Some(arrival),
            Self::Nothing | Self::Control(..) => None,
        }
    }
}

/// A message with a payload, on its way.
#[derive(Debug)]
pub(super) struct Arrival<P> {
    pub(super) number: u64,
    pub(super) opening: Option<Box<Opening>>,
    pub(super) target: Target<P>,
    pub(super) have: Spans,
    /// Where the frame ended that came last.
    pub(super) last: u32,
    /// Up to where bytes were allowed: unasked, then granted.
    pub(super) granted: u32,
    /// Bytes that were copied after they had arrived, as opposed to received where they belong.
    pub(super) copied: u32,
    pub(super) frames: u32,
    pub(super) way: u8,
    pub(super) begun: Instant,
    pub(super) refused: Option<Refused>,
    /// Whether the place has to be asked for again.
    pub(super) later: bool,
    pub(super) wants_no_more: bool,
    /// The frame in which the sender was last told so.
    pub(super) told: Option<u64>,
}

impl<P> Arrival<P> {
    pub(super) fn story(&self) -> Story {
        let bytes = self.opening.as_ref().map_or(0, |opening| opening.payload);
        Story { bytes, frames: self.frames, copied: self.copied, begun: self.begun, way: self.way }
    }

    /// Bytes that lie aside, or may come there.
    pub(super) fn promised(&self) -> u64 {
        match &self.target {
            Target::Aside(aside) => u64::from(self.granted).max(aside.len() as u64),
            Target::Place(_) | Target::Reader | Target::Away => 0,
        }
    }

    /// The first gap behind the frame that came last, among the bytes that were allowed: there the next one continues,
    /// whatever was lost before it.
    pub(super) fn ahead(&self) -> Option<(u32, u32)> {
        let payload = self.opening.as_ref()?.payload;
        let (begin, end) = self.have.gap_from(self.last);
        (begin < payload && begin < self.granted).then(|| (begin, end.unwrap_or(payload)))
    }
}
