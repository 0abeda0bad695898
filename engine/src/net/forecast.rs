//! Which frames will probably come next on a channel, and where their payloads belong: what a register is aimed at.
//!
//! Of messages that have begun it is known, as far as their bytes may be sent; whether they go on behind that, or the
//! next message comes before, hangs on when their sender hears that more may be sent. Those behind them begin where
//! their payloads would get their places, and are as long as the last ones, if these were alike; else nobody knows
//! where the next but one begins.

use alloc::vec::Vec;
use core::iter::from_fn;

use arrayvec::ArrayVec;
use cutthrough_wire::frame::{HEADER_BYTES, OPENING_BYTES, low};

use super::memory::{Memory, Place};
use super::{Guess, Net};
use crate::register::{Expected, LEAST, Whose};

/// Messages that have begun and are listed at most.
const GOING: usize = 8;

/// Frames that are left out at most, beside one for each that is listed: whatever lies elsewhere ends the list soon.
const LEFT_OUT: usize = 8;

/// The frames of a payload from `begin` to `end`, full ones of `slice` bytes: where each begins, and its bytes. An
/// opening leaves the first one less.
fn frames((begin, end): (u32, u32), opening: u32, slice: u32) -> impl Iterator<Item = (u32, u32)> {
    let mut offset = begin;
    from_fn(move || {
        let full = if offset == begin { slice.saturating_sub(opening) } else { slice };
        let frame = (offset, full.min(end - offset));
        (frame.1 > 0).then(|| {
            offset += frame.1;
            frame
        })
    })
}

impl<M: Memory> Net<M> {
    /// Lists the frames that will probably come on the channel that this guess speaks of, up to `most`, if each full
    /// one has `full` bytes. `at` says where in the memory of a ring bytes lie; frames are left out that belong
    /// elsewhere, or to two places, or are too short to be cut free.
    pub fn forecast(
        &mut self,
        (guess, full): (Guess, usize),
        most: usize,
        at: impl Fn(&[u8]) -> Option<u64>,
        list: &mut Vec<Expected>,
    ) {
        list.clear();
        let (Guess::Fresh { channel } | Guess::Rest { channel, .. }) = guess;
        let slice = u32::try_from(full.saturating_sub(HEADER_BYTES)).unwrap_or(0);
        let opening = u32::try_from(OPENING_BYTES).unwrap_or(0);
        let Some(inbox) = self.channel(channel).map(|channel| &channel.inbox) else { return };
        let (mut least, alike) = (inbox.received(), inbox.alike());
        if slice <= opening {
            return;
        }
        let mut left_out = 0;
        let is_full = |list: &[Expected], left_out: usize| list.len() >= most || left_out > list.len() + LEFT_OUT;
        let add = |list: &mut Vec<Expected>, place: &mut M::Place, from: u32, frame: (u32, u32), whose: Whose| {
            let (offset, bytes) = frame;
            let piece = place.piece((offset - from) as usize, bytes as usize);
            if bytes >= LEAST
                && piece.len() == bytes as usize
                && let Some(at) = at(piece)
            {
                list.push(Expected { whose, offset, bytes, at });
                return 0;
            }
            1
        };
        let going: ArrayVec<_, GOING> = inbox.coming().take(GOING).collect();
        for (message, (begin, end), whole) in going {
            least = least.max(message + 1);
            let Some(place) = self.channel(channel).and_then(|channel| channel.inbox.landing(message)) else { return };
            for frame in frames((begin, end), 0, slice) {
                if is_full(list, left_out) || !whole && frame.1 < slice {
                    return;
                }
                left_out += add(list, place, 0, frame, Whose::Known(low(message)));
            }
            if !whole {
                return;
            }
        }
        let mut places = self.memory.guesses(channel);
        let mut next = places.next();
        while let Some(mut place) = next.take() {
            let run = u32::try_from(place.len()).unwrap_or(u32::MAX);
            let whole = alike.unwrap_or(run);
            // Where in the payload this place begins: a long one has several.
            let (mut from, mut to) = (0, run);
            for frame in frames((0, whole), opening, slice) {
                if is_full(list, left_out) {
                    return;
                }
                while frame.0 >= to {
                    let Some(another) = places.next() else { return };
                    (place, from) = (another, to);
                    to = from.saturating_add(u32::try_from(place.len()).unwrap_or(u32::MAX));
                    if to == from {
                        return;
                    }
                }
                let whose = if frame.0 == 0 { Whose::Opens(low(least)) } else { Whose::Opened };
                left_out += add(list, place, from, frame, whose);
            }
            if alike.is_none() {
                return;
            }
            least += 1;
            // A payload that ends in this place has all of it.
            while to < whole {
                let Some(another) = places.next() else { return };
                to = to.saturating_add(u32::try_from(another.len()).unwrap_or(u32::MAX));
            }
            next = places.next();
        }
    }
}
