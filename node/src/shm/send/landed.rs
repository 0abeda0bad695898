//! Payloads that were received and are sent on.
//!
//! The peer has mapped neither the memory of the one that they came from, nor, as pages to be lent, what they have
//! landed in: so they are copied, once. Straight to where the receiver has named a place; else into pages of this
//! channel, which are lent. Nothing of theirs is ever a slice here, so whoever may still write there does no harm.

use std::sync::Arc;

use cutthrough_engine::count::{Count as _, Counter};
use cutthrough_engine::receipt::{Path, Receipt};
use cutthrough_engine::token::{Refused, Token};
use cutthrough_engine::transfer::Trace;
use cutthrough_segment::half::Peer;
use cutthrough_segment::page::{Landed, Page};
use cutthrough_wire::token::Place;

use super::private::Source;
use super::{Control, Sheaf, payload_len};
use crate::clock;
use crate::shm::grant::NoMemory;
use crate::shm::link::{Link, Outbox, SendError};
use crate::shm::meanwhile::Meanwhile;
use crate::stat::Stat;

impl Source for Landed {
    fn put(&self, (begin, end): (usize, usize), _: &mut Outbox, peer: &Peer, to: u64) {
        self.copy_to(begin, end - begin, peer.landing(), to);
    }
}

impl Link {
    /// Sends a payload that was received on another channel, or on this one.
    pub(super) fn send_landed(
        &mut self,
        control: Control<'_>,
        landed: &Arc<Landed>,
        token: Option<Token>,
        cookie: Option<u64>,
        trace: &mut impl Trace,
        (others, stat): (&mut impl Meanwhile, &Stat),
    ) -> Result<Receipt, SendError> {
        let bytes = payload_len(landed.len())?;
        self.check_room(stat)?;
        let started = clock::timed(u64::from(bytes));
        let path = match token.map(|token| (token, self.unused(token))) {
            None => self.put(control, &**landed, bytes, stat)?,
            Some((token, Some(Place::Pages { first, count }))) => {
                Some(self.put_token(control, &**landed, bytes, token, (first, count), stat)?)
            }
            Some((token, Some(Place::Private { bytes: room }))) if bytes > room => {
                Some(self.drop_payload(control, bytes, token, Refused::TooLong, stat))
            }
            Some((_, Some(Place::Private { .. }))) => None,
            Some((token, None)) => Some(self.drop_payload(control, bytes, token, Refused::Wrong, stat)),
        };
        if let Some(path) = path {
            if let Some(cookie) = cookie {
                self.traffic.completed.push_back(cookie);
            }
            return Ok(self.sent(path, 0, bytes, started, stat));
        }
        let receipt = match self.page_for_landed(landed.len(), token.is_some(), stat)? {
            Some(mut page) => {
                landed.read_at(0, &mut page);
                self.send_pages(control, Sheaf::One(page), token, cookie, stat)?
            }
            None => self.send_private(control, &landed.to_vec(), token, cookie, trace, (others, stat))?,
        };
        stat.add(Counter::Copies, 1);
        stat.add(Counter::CopiedBytes, u64::from(bytes));
        let copies = receipt.copies.saturating_add(u32::from(receipt.path != Path::Dropped));
        let (movers, finished) = (receipt.movers.max(1), clock::timed(u64::from(bytes)));
        Ok(Receipt { copies, movers, started, finished, ..receipt })
    }

    /// A page to copy a payload to: none if there is none, or so many lists are on their way that it cannot be sent.
    fn page_for_landed(&mut self, bytes: usize, listed: bool, stat: &Stat) -> Result<Option<Page>, SendError> {
        if listed && !self.has_room_for_list(1, stat) {
            return Ok(None);
        }
        match self.page(bytes, stat) {
            Ok(page) => Ok(Some(page)),
            Err(NoMemory::Closed(reason)) => Err(SendError::Closed(reason)),
            Err(NoMemory::NoPages | NoMemory::NoTokens | NoMemory::TooLong) => Ok(None),
        }
    }
}
