//! Private memory: put where the receiver has named a place, else through the staging ring.

use cutthrough_engine::check;
use cutthrough_engine::count::{Count as _, Counter};
use cutthrough_engine::receipt::{Path, Receipt};
use cutthrough_engine::time::Instant;
use cutthrough_engine::token::{Refused, Token};
use cutthrough_engine::transfer::Trace;
use cutthrough_segment::half::Peer;
use cutthrough_wire::layout::Line;
use cutthrough_wire::run::Run;
use cutthrough_wire::slot::{Header, Kind};
use cutthrough_wire::token::Place;

use super::{Control, list_len, payload_len};
use crate::clock;
use crate::shm::link::{Link, Outbox, SendError};
use crate::shm::meanwhile::Meanwhile;
use crate::stat::Stat;

/// Longest payload whose next place is asked for in advance, bytes: of a longer one it is while it is copied.
const SHORT: usize = 1024;

/// A payload that is put where the receiver has named a place.
pub(super) trait Source {
    /// Copies its bytes from `begin` to `end` to a place in the peer's landing memory.
    fn put(&self, of: (usize, usize), outbox: &mut Outbox, peer: &Peer, to: u64);
}

impl Source for [u8] {
    #[inline(always)]
    fn put(&self, (begin, end): (usize, usize), outbox: &mut Outbox, peer: &Peer, to: u64) {
        outbox.put(peer, to, &self[begin..end]);
    }
}

impl Link {
    /// Sends a message with private memory: what [`Link::send`] does with [`Load::Copy`](super::Load::Copy).
    ///
    /// # Errors
    /// As of [`Link::send`].
    pub fn send_private(
        &mut self,
        control: Control<'_>,
        payload: &[u8],
        token: Option<Token>,
        cookie: Option<u64>,
        trace: &mut impl Trace,
        (others, stat): (&mut impl Meanwhile, &Stat),
    ) -> Result<Receipt, SendError> {
        let bytes = payload_len(payload.len())?;
        if token.is_none() && self.goes_at_once(bytes) {
            let header = Header { kind: Kind::Staged, payload_len: bytes, ..Header::control(0) };
            self.stage_at_once(header, control, payload, trace);
            if let Some(cookie) = cookie {
                self.traffic.completed.push_back(cookie);
            }
            return Ok(self.sent(Path::CutThrough, u32::from(bytes > 0), bytes, Instant::default(), stat));
        }
        self.check_room(stat)?;
        let started = clock::timed(u64::from(bytes));
        let (path, pulses) = self.send_copy(control, payload, bytes, token, trace, (others, stat))?;
        if let Some(cookie) = cookie {
            self.traffic.completed.push_back(cookie);
        }
        Ok(self.sent(path, pulses, bytes, started, stat))
    }

    /// Private memory: put where the receiver has named a place, else pulsed through the staging ring.
    #[inline]
    fn send_copy(
        &mut self,
        control: Control<'_>,
        payload: &[u8],
        bytes: u32,
        token: Option<Token>,
        trace: &mut impl Trace,
        (others, stat): (&mut impl Meanwhile, &Stat),
    ) -> Result<(Path, u32), SendError> {
        let Some(token) = token else {
            if let Some(path) = self.put(control, payload, bytes, stat)? {
                return Ok((path, 0));
            }
            let header = Header { kind: Kind::Staged, payload_len: bytes, ..Header::control(0) };
            return self.stage(header, control, payload, None, trace, (others, stat));
        };
        match self.unused(token) {
            Some(Place::Pages { first, count }) => {
                let path = self.put_token(control, payload, bytes, token, (first, count), stat)?;
                Ok((path, 0))
            }
            Some(Place::Private { bytes: room }) if bytes <= room => {
                let header =
                    Header { kind: Kind::StagedToken, payload_len: bytes, name: token.key, ..Header::control(0) };
                self.stage(header, control, payload, Some(token), trace, (others, stat))
            }
            Some(Place::Private { .. }) => Ok((self.drop_payload(control, bytes, token, Refused::TooLong, stat), 0)),
            None => Ok((self.drop_payload(control, bytes, token, Refused::Wrong, stat), 0)),
        }
    }

    /// Sends the control message alone, with the reason why its payload was dropped before a byte moved.
    pub(super) fn drop_payload(
        &mut self,
        control: Control<'_>,
        bytes: u32,
        token: Token,
        why: Refused,
        stat: &Stat,
    ) -> Path {
        let control_len = self.place(control);
        let too_long = u64::from(why == Refused::TooLong) << 32;
        let detail = u64::from(token.index) | too_long;
        let header = Header { control_len, kind: Kind::Dropped, runs: 0, payload_len: bytes, detail, name: token.key };
        self.producer.publish(header.to_words());
        stat.add(Counter::PayloadDropped, 1);
        Path::Dropped
    }

    /// Into pages of the peer's free queue, if it has posted enough.
    pub(super) fn put(
        &mut self,
        control: Control<'_>,
        payload: &(impl Source + ?Sized),
        bytes: u32,
        stat: &Stat,
    ) -> Result<Option<Path>, SendError> {
        let page_bytes = u64::from(self.peer_sizes.page_bytes);
        let wanted = u64::from(bytes.max(1));
        if let Some(run) = self.traffic.claim_front(page_bytes, wanted) {
            payload.put((0, bytes as usize), &mut self.outbox, &self.peer, u64::from(run.first) * page_bytes);
            self.publish_put(control, bytes, 1, run.to_word());
            self.warm_next_place(bytes as usize);
            return Ok(Some(Path::Put));
        }
        let claimed = self.traffic.claim(&self.peer, &self.peer_sizes, wanted);
        let Some(list) = claimed.map_err(|breach| self.broken(breach))? else { return Ok(None) };
        let runs = list.as_slice();
        let Some(count) = list_len(runs.len()) else {
            self.traffic.unclaim(list);
            return Ok(None);
        };
        if count > 1
            && let Err(error) = self.room_for_list(count, stat)
        {
            self.traffic.unclaim(list);
            return Err(error);
        }
        let mut done = 0;
        for run in runs {
            let room = usize::try_from(u64::from(run.count) * page_bytes).unwrap_or(usize::MAX);
            let end = (bytes as usize).min(done + room);
            payload.put((done, end), &mut self.outbox, &self.peer, u64::from(run.first) * page_bytes);
            done = end;
        }
        let detail = self.write_list(count, runs.iter().map(|run| run.to_word()), None);
        self.publish_put(control, bytes, count, detail);
        Ok(Some(Path::Put))
    }

    /// Asks for the lines that the next payload will lie in, if it is as long: the receiver has read what lay there
    /// before.
    #[inline]
    fn warm_next_place(&self, bytes: usize) {
        // No page is shorter.
        if bytes <= SHORT
            && let Some(next) = self.traffic.next_place()
        {
            let page_bytes = u64::from(self.peer_sizes.page_bytes);
            self.peer.landing().prefetch_write(u64::from(next.first) * page_bytes, bytes);
        }
    }

    /// Announces a payload that lies in pages of the peer's free queue.
    #[inline(always)]
    fn publish_put(&mut self, control: Control<'_>, bytes: u32, runs: u16, detail: u64) {
        self.own.set(Line::Taken, self.traffic.taken());
        let control_len = self.place(control);
        let header = Header { control_len, kind: Kind::Put, runs, payload_len: bytes, detail, name: 0 };
        self.producer.publish(header.to_words());
    }

    /// Into the landing pages that a token names. The claim tells the receiver that bytes are on their way, so that it
    /// does not revoke the token meanwhile; the token is looked at again after the claim (Dekker's rule, both sides
    /// sequentially consistent).
    pub(super) fn put_token(
        &mut self,
        control: Control<'_>,
        payload: &(impl Source + ?Sized),
        bytes: u32,
        token: Token,
        (first, count): (u32, u32),
        stat: &Stat,
    ) -> Result<Path, SendError> {
        let run = check::run(Run { first, count, id: 0 }, self.peer_sizes.landing_pages);
        let run = run.map_err(|breach| self.broken(breach))?;
        let page_bytes = self.peer_sizes.page_bytes;
        if check::covered(bytes, u64::from(run.count), page_bytes).is_err() {
            return Ok(self.drop_payload(control, bytes, token, Refused::TooLong, stat));
        }
        self.own.set_claim(token.index, token.key);
        if self.peer.token(token.index, token.key).is_none() {
            self.own.set_claim(token.index, 0);
            return Ok(self.drop_payload(control, bytes, token, Refused::Revoked, stat));
        }
        self.outbox.use_up(token);
        let to = u64::from(run.first) * u64::from(page_bytes);
        payload.put((0, bytes as usize), &mut self.outbox, &self.peer, to);
        let header = Header {
            control_len: self.place(control),
            kind: Kind::PutToken,
            runs: 0,
            payload_len: bytes,
            detail: u64::from(token.index),
            name: token.key,
        };
        self.producer.publish(header.to_words());
        self.own.set_claim(token.index, 0);
        Ok(Path::Put)
    }
}
