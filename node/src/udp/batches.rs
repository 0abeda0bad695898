//! Batches out: what goes at once, and what waits for others to fill a train.

use std::any::Any;
use std::io::IoSlice;
use std::net::{IpAddr, SocketAddr};

use cutthrough_engine::net::batch::Piece;
use cutthrough_engine::net::memory::Load as _;
use cutthrough_engine::time::Instant;
use rustix::io::Errno;

use super::carried::Lies;
use super::door::Core;
use super::lanes::Unsent;
use super::outgoing::Outgoing;
use crate::clock;
use crate::sys::datagram::TRAIN_BYTES;

/// For how many nanoseconds a batch may wait for room in a socket, while others wait behind it.
const BLOCKED_NS: u64 = 5_000_000;
/// Bytes of a batch that finds room in the endpoint's socket though much is on its way.
const SHORT: usize = 2048;
/// Bytes of a train of which it counts what it costs to send it in either way.
const LONG: usize = 24 << 10;
/// Messages that wait for each other at most.
const HELD: u64 = 512;
/// How long after the application was told of several messages what it answers to them goes together, in nanoseconds.
/// Who takes longer answers one by one.
const TOGETHER_NS: u64 = 20_000;

impl Core {
    /// Sends what there is to send; unless `all`, what waits for a sink that is busy only as far as it fills trains.
    pub(super) fn transmit(&mut self, now: Instant, all: bool) {
        if !self.process.is_this() {
            return;
        }
        self.greet();
        let busy = !all && self.sink.is_busy(now);
        if busy && !self.net.has_train(now, self.most) {
            return;
        }
        self.aim();
        self.send_off(now, busy);
    }

    /// Sends batches; with `whole`, only those that are trains as long as may be.
    fn send_off(&mut self, now: Instant, whole: bool) {
        if !self.process.is_this() {
            return;
        }
        let mut moment = now;
        loop {
            if let Some((channel, to, since)) = self.stuck.take() {
                if !self.put(channel, to) && !self.blocks(channel, to, moment.saturating_since(since)) {
                    self.stuck = Some((channel, to, since));
                    return;
                }
                self.carried.take(channel, &mut self.batch, &self.spare);
                moment = clock::again();
            }
            self.make_room();
            let next = match whole {
                true => self.net.train(moment, &mut self.batch, self.most),
                false => self.net.batch(moment, &mut self.batch, self.most),
            };
            let Some((channel, to)) = next else { break };
            let before = moment;
            let spliced = self.spliced();
            self.went = 0;
            if !self.put(channel, to) {
                self.stuck = Some((channel, to, before));
                return;
            }
            self.carried.take(channel, &mut self.batch, &self.spare);
            moment = clock::again();
            self.sink.sent(before, moment);
            if self.batch.way().number == 0 {
                let ns = moment.saturating_since(before);
                self.net.took(self.batch.bytes(), ns);
                self.compare((channel, to), self.spliced() > spliced, ns);
            }
        }
    }

    /// How many trains the kernel has sent from where they lay.
    fn spliced(&self) -> u64 {
        self.joined.as_ref().map_or(0, |joined| joined.spliced())
    }

    /// Has what a train has cost, which the kernel might have copied or sent from where it lies, decide on later ones.
    fn compare(&mut self, (channel, to): (usize, SocketAddr), spliced: bool, ns: u64) {
        let bytes = self.batch.bytes();
        if bytes < LONG || self.batch.frames() < 2 {
            return;
        }
        // What is shorter travels with control messages.
        let either = |load: &Outgoing| load.len() > super::send::SHORT;
        let first = self.batch.first().and_then(|message| self.net.load(channel, message));
        let from = self.sources.as_ref().and_then(|sources| sources.get(channel));
        if first.is_some_and(either)
            && let Some(joined) = self.joined.as_mut().filter(|joined| joined.leads(to, from).is_some())
            && joined.took(spliced, ns.saturating_mul(1000) / bytes as u64)
        {
            self.net.says_little(channel);
        }
    }

    /// Whether others wait for a batch that nobody needs, or that a socket has not taken for long: its peer's way
    /// stands still, perhaps, and not that of others. It is as if lost on its way. What follows goes by the other
    /// socket if it was the joined one; if it was the endpoint's own, what follows and is not taken is given up at
    /// once, until it takes something again.
    fn blocks(&mut self, channel: usize, to: SocketAddr, for_ns: u64) -> bool {
        if self.net.peer(channel).is_none_or(|(peer, ..)| peer != to) {
            return true;
        }
        if self.batch.way().number > 0 {
            return false;
        }
        let from = self.sources.as_ref().and_then(|sources| sources.get(channel));
        let late = for_ns > BLOCKED_NS;
        let blocks = match self.joined.as_mut().filter(|joined| joined.leads(to, from).is_some()) {
            Some(joined) if late => {
                joined.let_go();
                true
            }
            Some(_) => false,
            None => {
                self.blocked = self.net.channels() > 1 && (late || self.blocked);
                self.blocked
            }
        };
        self.troubles.refused_calls += u64::from(blocks);
        blocks
    }

    /// After a message was queued: sends, unless it may wait for others. With `more`, the application has got several
    /// messages at once, and has not looked at the last of them: what it answers to those goes together, and at the
    /// latest when it looks for more. `bytes` is what the message takes; `clock` says the time. Whether it waits.
    pub(super) fn queued(&mut self, channel: usize, more: bool, bytes: usize, clock: impl Fn() -> Instant) -> bool {
        let held = HELD.min((TRAIN_BYTES / bytes.max(1)) as u64);
        if more && self.net.unsent(channel) < held && clock().saturating_since(self.told_at) < TOGETHER_NS {
            self.owed = true;
            return true;
        }
        let keeps = if self.net.unsent(channel) < held { self.sink.keeps() } else { Some(false) };
        if keeps == Some(true) {
            return true;
        }
        let now = clock();
        if keeps.is_none() && self.sink.keeps_at(now) {
            return true;
        }
        self.transmit(now, true);
        false
    }

    /// After a payload was queued: sends what fills trains, and the rest too unless it may wait, as [`Core::queued`]
    /// has it. Whether something waits.
    pub(super) fn gathers(&mut self, channel: usize, more: bool, now: Instant) -> bool {
        let answers = more && now.saturating_since(self.told_at) < TOGETHER_NS;
        self.owed |= answers;
        let waits = answers || self.sink.keeps_at(now);
        if waits && self.net.has_train(now, self.most) {
            self.aim();
            self.send_off(now, true);
        } else if !waits {
            self.transmit(now, true);
        }
        waits && self.net.behind(channel) > 0
    }

    /// Hands the batch to the socket. False if it takes nothing now.
    fn put(&mut self, channel: usize, to: SocketAddr) -> bool {
        let from = self.sources.as_ref().and_then(|sources| sources.get(channel));
        let segment = (self.batch.frames() > 1).then(|| u16::try_from(self.batch.segment()).unwrap_or(u16::MAX));
        let way = self.batch.way().number;
        if let Some(segment) = segment.filter(|_| way == 0)
            && let Some(sent) = self.splice((from, to), segment)
        {
            return self.was_taken(channel, (from, to), Some(segment), sent);
        }
        let load = |message, offset, len| {
            let load = self.net.load(channel, message).map(|load: &Outgoing| load.piece(offset, len));
            load.filter(|bytes| bytes.len() == len)
        };
        let (lone, several);
        let parts = match *self.batch.pieces() {
            [Piece::Own { at, len }] => {
                lone = [IoSlice::new(&self.batch.own()[at..at + len])];
                &lone[..]
            }
            ref pieces => {
                several = gather(pieces, self.batch.own(), self.batch.segment(), load);
                &several[..]
            }
        };
        if parts.is_empty() {
            return true;
        }
        if let Some(lanes) = self.lanes.as_mut().filter(|_| way > 0) {
            let borrowed = borrowed(self.batch.pieces(), |message| self.net.load(channel, message));
            return match lanes.send(channel, way, (parts, self.batch.segment()), borrowed) {
                Ok(sent) => sent,
                Err(why) => {
                    // What was in the batch is sent again, by another way or in shorter frames. Of what this peer or
                    // this batch lacks, the others do not suffer.
                    match why {
                        Unsent::Elsewhere => {}
                        // As if lost on its way: the channel finds out, and the others go on.
                        Unsent::Blocked => {
                            self.troubles.refused_calls += 1;
                            return true;
                        }
                        Unsent::TooLong => self.net.too_long(clock::now(), channel, self.batch.segment()),
                        Unsent::Failed(why) => self.give_up(way, &why),
                    }
                    let usable = self.lanes.as_mut().map_or(1, |lanes| lanes.join(channel, to));
                    self.net.set_ways(channel, usable);
                    self.troubles.refused_calls += 1;
                    true
                }
            };
        }
        let mut sent = self.hand_over((from, to), parts, segment);
        if let (Err(Errno::IO | Errno::INVAL), Some(segment)) = (sent, segment) {
            // Or the frames are too long, as those alone will show.
            let (went, alone) = self.one_by_one((from, to), parts, usize::from(segment));
            (self.went, sent) = (went, alone);
            self.troubles.divided_trains += u64::from(alone.is_ok());
        }
        self.was_taken(channel, (from, to), segment, sent)
    }

    /// The socket has said what became of the batch. False if it takes nothing now.
    fn was_taken(
        &mut self,
        channel: usize,
        (from, to): Route,
        segment: Option<u16>,
        sent: Result<usize, Errno>,
    ) -> bool {
        if sent.is_ok() {
            self.blocked &= self.joined.as_ref().is_some_and(|joined| joined.leads(to, from).is_some());
            if let Some(joined) = &mut self.joined {
                joined.sent(to, from, (&self.socket, self.bound));
            }
        }
        match sent {
            Ok(_) => true,
            Err(Errno::AGAIN | Errno::NOBUFS) => false,
            // Longer than the interface takes by now; a train of such frames is refused as an invalid one.
            Err(why) if why == Errno::MSGSIZE || why == Errno::INVAL && segment.is_some() => {
                self.net.too_long(clock::now(), channel, self.batch.segment());
                self.troubles.refused_calls += 1;
                true
            }
            // Whatever else the system says: the frames are lost, and sent again if anybody is there.
            Err(_) => {
                self.troubles.refused_calls += 1;
                true
            }
        }
    }

    /// How trains of this channel may lie so that the kernel can send them from there.
    pub(super) fn splices(&mut self, channel: usize) -> Lies {
        let Some(joined) = self.joined.as_mut().filter(|joined| joined.is_joined()) else { return Lies::Anywhere };
        if !joined.lays_out() || !self.net.peer(channel).is_some_and(|(to, ..)| joined.splices_to(to)) {
            return Lies::Anywhere;
        }
        if joined.has_no_berths() {
            // New memory is for another peer than before: nothing may keep the old one that has arrived.
            self.carried.take_back(true, |channel, message| self.net.is_done(channel, message));
        }
        let lies = if self.net.is_bare(channel) { Lies::LaidOut } else { Lies::Sealed };
        joined.berths().map_or(Lies::Anywhere, lies)
    }

    /// Takes memory of trains back that have arrived: the next one asks for some.
    fn make_room(&mut self) {
        let Some(all) = self.carried.lacks_room() else { return };
        self.carried.take_back(all, |channel, message| self.net.is_done(channel, message));
        self.take_back_of_lent();
    }

    /// Whatever has arrived of the payload that is lent gives its memory back.
    fn take_back_of_lent(&mut self) {
        if let Some((channel, message)) = self.carried.lent() {
            let mut upto = usize::MAX;
            self.net.lacks(channel, message, |begin, _| upto = upto.min(begin));
            self.carried.have_arrived(upto);
        }
    }

    /// Has the kernel send the batch, which is a train, from where it lies. Nothing if that cannot be.
    fn splice(&mut self, (from, to): Route, segment: u16) -> Option<Result<usize, Errno>> {
        let train: &dyn Any = self.batch.hold()?;
        let joined = self.joined.as_mut().filter(|joined| joined.splices_to(to))?;
        joined.leads(to, from)?;
        joined.splice(train.downcast_ref()?, segment)
    }
}

#[cfg(test)]
impl Core {
    /// Trains that lie where the kernel has sent them from, and are held.
    pub(super) fn trains_under_way(&mut self) -> usize {
        self.carried.take_back(true, |channel, message| self.net.is_done(channel, message));
        self.joined.as_ref().map_or(0, |joined| joined.trains_under_way())
    }
}

/// Where a datagram goes: from which address of this machine, if that matters, and to which.
type Route = (Option<IpAddr>, SocketAddr);

impl Core {
    /// Hands datagrams to the socket that leads there.
    fn hand_over(&self, (from, to): Route, parts: &[IoSlice<'_>], segment: Option<u16>) -> Result<usize, Errno> {
        if let Some(joined) = self.joined.as_ref().filter(|joined| joined.leads(to, from).is_some()) {
            // Whatever else it says may be about a datagram that went before.
            if let sent @ (Ok(_) | Err(Errno::AGAIN | Errno::NOBUFS)) = joined.send(parts, segment) {
                return sent;
            }
        }
        // A half of it is left to short ones: those to peers whose way is free, and whom others' do not concern.
        let bytes: usize = parts.iter().map(|part| part.len()).sum();
        if bytes > SHORT && self.net.channels() > 1 && self.socket.is_half_full() {
            return Err(Errno::AGAIN);
        }
        self.socket.send_from(from, Some(to), parts, segment)
    }

    /// A train that the system does not take as one, frame by frame, from the first that has not gone: a device that
    /// computes no check sums takes none before Linux 6.11, nor does a way through IPsec. How many have gone.
    fn one_by_one(&self, route: Route, parts: &[IoSlice<'_>], segment: usize) -> (usize, Result<usize, Errno>) {
        let mut bytes = 0;
        for (number, frame) in frames(parts, segment).iter().enumerate().skip(self.went) {
            match self.hand_over(route, frame, None) {
                Ok(sent) => bytes += sent,
                Err(why) => return (number, Err(why)),
            }
        }
        (0, Ok(bytes))
    }
}

/// The parts of each frame of a train.
fn frames<'a>(parts: &'a [IoSlice<'_>], segment: usize) -> Vec<Vec<IoSlice<'a>>> {
    let mut frames: Vec<Vec<IoSlice<'a>>> = Vec::new();
    let mut room = 0;
    for part in parts {
        let mut rest: &[u8] = part;
        while !rest.is_empty() {
            if room == 0 {
                room = segment;
                frames.push(Vec::new());
            }
            let (now, later) = rest.split_at(rest.len().min(room));
            frames.last_mut().into_iter().for_each(|frame| frame.push(IoSlice::new(now)));
            (rest, room) = (later, room - now.len());
        }
    }
    frames
}

/// If pages are among the pieces of a batch that lie in the memory of a ring, what of it does not belong to them
/// although it may lie there too: memory that the caller of a send lends, of whom there is one at a time.
fn borrowed<'a>(pieces: &[Piece], load: impl Fn(u64) -> Option<&'a Outgoing>) -> Option<&'a [u8]> {
    let (mut pages, mut borrowed) = (false, &[][..]);
    for piece in pieces {
        let Piece::Payload { message, .. } = *piece else { continue };
        match load(message) {
            Some(Outgoing::Pages(_, flights, _)) => pages |= flights.is_some(),
            Some(Outgoing::Lent(lent, _)) => borrowed = lent.bytes(),
            Some(Outgoing::Copy(_) | Outgoing::Landed(..)) | None => {}
        }
    }
    pages.then_some(borrowed)
}

/// The bytes of a batch, where they lie. What has been acknowledged since it was made, by a frame that was sent before,
/// may be gone: the frames that carry it are left out, and nobody needs them.
fn gather<'a>(
    pieces: &[Piece],
    own: &'a [u8],
    segment: usize,
    load: impl Fn(u64, usize, usize) -> Option<&'a [u8]>,
) -> Vec<IoSlice<'a>> {
    let found = |piece: &Piece| match *piece {
        Piece::Own { at, len } => Some(&own[at..at + len]),
        Piece::Payload { message, offset, len } => load(message, offset, len),
    };
    let mut parts = Vec::with_capacity(pieces.len());
    if pieces.iter().all(|piece| found(piece).map(|bytes| parts.push(IoSlice::new(bytes))).is_some()) {
        return parts;
    }
    parts.clear();
    // Of the frame that is looked at: its first part, its bytes so far, and whether all of them are there.
    let (mut first, mut done, mut whole) = (0, 0, true);
    for piece in pieces {
        let (Piece::Own { len, .. } | Piece::Payload { len, .. }) = *piece;
        let bytes = found(piece);
        let mut at = 0;
        while at < len {
            if done == segment {
                (first, done, whole) = (parts.len(), 0, true);
            }
            let more = (len - at).min(segment - done);
            match bytes {
                Some(bytes) if whole => parts.push(IoSlice::new(&bytes[at..at + more])),
                _ => {
                    whole = false;
                    parts.truncate(first);
                }
            }
            (at, done) = (at + more, done + more);
        }
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Frames of ten bytes: a header of four of its own and six of a payload, or ten of its own; the last is shorter.
    fn batch(gone: &'static [u64]) -> Vec<u8> {
        const OWN: &[u8] = b"HEADheadownframe..tail";
        const LOAD: &[u8] = b"abcdefghijkl";
        let own = |at, len| Piece::Own { at, len };
        let of = |message, offset, len| Piece::Payload { message, offset, len };
        let pieces = [own(0, 4), of(7, 0, 6), own(4, 4), of(8, 6, 6), own(8, 14), of(9, 0, 2)];
        let load = |message, offset, len| (!gone.contains(&message)).then(|| LOAD.get(offset..offset + len)).flatten();
        gather(&pieces, OWN, 10, load).iter().flat_map(|part| part.to_vec()).collect()
    }

    #[test]
    fn a_train_is_divided_at_its_frames() {
        let parts = [&b"HEAD"[..], b"abcdef", b"", b"headghijklownframe..", b"tail"].map(IoSlice::new);
        let whole: Vec<Vec<u8>> =
            frames(&parts, 10).iter().map(|frame| frame.iter().flat_map(|part| part.to_vec()).collect()).collect();
        assert_eq!(whole, [&b"HEADabcdef"[..], b"headghijkl", b"ownframe..", b"tail"]);
    }

    #[test]
    fn frames_whose_payload_is_gone_are_left_out_and_no_others() {
        assert_eq!(batch(&[]), b"HEADabcdefheadghijklownframe..tailab");
        assert_eq!(batch(&[7]), b"headghijklownframe..tailab");
        assert_eq!(batch(&[8]), b"HEADabcdefownframe..tailab");
        assert_eq!(batch(&[9]), b"HEADabcdefheadghijklownframe..");
        assert_eq!(batch(&[7, 8, 9]), b"ownframe..");
    }
}
