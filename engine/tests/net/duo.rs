//! Two endpoints that do only what a test says, one thing at a time: nobody looks, and no frame comes, unless it says
//! so.

use std::collections::VecDeque;
use std::net::SocketAddr;

use cutthrough_engine::net::batch::{Batch, Piece};
use cutthrough_engine::net::channel::Body;
use cutthrough_engine::net::inbox::{Reading, Ready, ReadyPayload};
use cutthrough_engine::net::memory::Load as _;
use cutthrough_engine::net::{Cargo, Net, NetEvent, Settings};
use cutthrough_engine::seal::Guard;
use cutthrough_engine::time::Instant;

use super::wire::{Pages, pattern};

/// How long either may say nothing, and make no progress when it ends.
const SILENCE_NS: u64 = 20_000_000_000;

/// What a user has been told, without the channel's number.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Told {
    /// A message: its number as its sender has written it.
    Message(u64),
    /// A payload may be used again.
    Completed(u64),
    /// The channel has ended.
    Closed,
}

/// A payload that waits for a reader: its message, its number as its sender has written it, and what was read so far.
pub(crate) struct Unread {
    message: u64,
    number: u64,
    bytes: Vec<u8>,
    valid: usize,
}

/// One of the two.
pub(crate) struct End {
    pub(crate) net: Net<Pages>,
    pub(crate) channel: usize,
    /// Frames that wait to be brought in, as they were sent.
    pub(crate) coming: VecDeque<Vec<u8>>,
    pub(crate) told: Vec<Told>,
    /// Payloads that wait for a reader.
    pub(crate) unread: VecDeque<Unread>,
    pub(crate) sent: u64,
}

/// Both, and the time.
pub(crate) struct Duo {
    pub(crate) ends: [End; 2],
    pub(crate) now: u64,
}

/// A control message that says which payload goes with it.
fn control(number: u64, len: usize) -> [u8; 16] {
    let mut control = [0; 16];
    control[..8].copy_from_slice(&number.to_le_bytes());
    control[8..].copy_from_slice(&(len as u64).to_le_bytes());
    control
}

pub(crate) fn address(end: usize) -> SocketAddr {
    SocketAddr::from(([10, 0, 0, u8::try_from(end).unwrap() + 1], 7))
}

/// An endpoint in this life.
fn endpoint(life: u64, guard: Box<dyn Guard + Send>) -> End {
    let settings = Settings {
        slots: 64,
        unasked: 64 << 10,
        granted: 256 << 10,
        silence_ns: SILENCE_NS,
        deadline_ns: SILENCE_NS,
        channels: 16,
        body: 1408,
        life,
        process: 0,
        user: 0,
    };
    let mut net = Net::new(settings, Pages::default(), guard);
    net.listen(true);
    End { net, channel: 0, coming: VecDeque::new(), told: Vec::new(), unread: VecDeque::new(), sent: 0 }
}

impl Duo {
    /// Two in their first lives, that have a channel.
    pub(crate) fn new(mut guard: impl FnMut(u64) -> Box<dyn Guard + Send>) -> Self {
        let mut duo = Self { ends: [1, 2].map(|life| endpoint(life, guard(life))), now: 1 };
        duo.join();
        duo
    }

    /// One of them begins anew, in this life, and calls the other.
    pub(crate) fn restart(&mut self, end: usize, life: u64, guard: Box<dyn Guard + Send>) {
        self.ends[end] = endpoint(life, guard);
        let other = &mut self.ends[1 - end];
        (other.sent, other.channel) = (0, usize::MAX);
        other.unread.clear();
        self.join_from(end);
        self.ends.iter_mut().for_each(|end| end.told.clear());
    }

    fn join(&mut self) {
        self.join_from(0);
    }

    fn join_from(&mut self, caller: usize) {
        let now = self.now();
        self.ends[caller].channel = self.ends[caller].net.call(now, address(1 - caller), 1408).unwrap();
        for _ in 0..100 {
            self.pass(1_000_000);
            for end in [caller, 1 - caller] {
                self.look(end);
                while let Some(event) = self.ends[end].net.next_event() {
                    match event {
                        NetEvent::Opened(index) => self.ends[end].channel = index,
                        NetEvent::Connected(index) => {
                            self.look(end);
                            assert_eq!(index, self.ends[end].channel);
                        }
                        _ => {}
                    }
                }
            }
            let is_open = |end: &mut End| end.net.ends(end.channel).is_some();
            if self.ends.iter_mut().all(is_open) {
                let [one, other] = &mut self.ends;
                let named = one.net.ends(one.channel).zip(other.net.ends(other.channel));
                if named.is_some_and(|([here, there], [other_here, other_there])| {
                    (here, there) == (other_there, other_here)
                }) {
                    return;
                }
            }
        }
        panic!("they have no channel");
    }

    pub(crate) const fn now(&self) -> Instant {
        Instant::from_nanos(self.now)
    }

    pub(crate) const fn pass(&mut self, nanos: u64) {
        self.now += nanos;
    }

    /// Sends a message with a payload of `len` bytes, or without one. False if there is no room.
    pub(crate) fn send(&mut self, end: usize, len: Option<usize>, pages: bool) -> bool {
        let End { net, channel, sent, .. } = &mut self.ends[end];
        let load = |len| pattern(*sent, len);
        let cargo = len.map(|len| Cargo { load: load(len), token: None, pages, cookie: Some(*sent) });
        let goes = net.send(*channel, &control(*sent, len.unwrap_or(0)), cargo).is_ok();
        *sent += u64::from(goes);
        goes
    }

    /// Takes in all that has come, keeps house, and sends all that there is to send.
    pub(crate) fn look(&mut self, end: usize) {
        let now = self.now();
        while self.bring(end, None) {}
        self.ends[end].net.looked(now);
        self.ends[end].net.tick(now);
        self.go_out(end);
    }

    /// Sends all that there is to send.
    pub(crate) fn go_out(&mut self, end: usize) {
        let (now, mut batch) = (self.now(), Batch::default());
        let [one, other] = &mut self.ends;
        let (from, to) = if end == 0 { (one, other) } else { (other, one) };
        while let Some((_, frame)) = from.net.greeting() {
            to.coming.push_back(frame);
        }
        while let Some((channel, _)) = from.net.batch(now, &mut batch, 65_000) {
            let mut bytes = Vec::new();
            for piece in batch.pieces() {
                match *piece {
                    Piece::Own { at, len } => bytes.extend_from_slice(&batch.own()[at..at + len]),
                    Piece::Payload { message, offset, len } => {
                        bytes.extend_from_slice(from.net.load(channel, message).unwrap().piece(offset, len));
                    }
                }
            }
            to.coming.extend(bytes.chunks(batch.segment()).map(<[u8]>::to_vec));
        }
    }

    /// Brings the next frame in, or this one. False if there is none.
    pub(crate) fn bring(&mut self, end: usize, frame: Option<Vec<u8>>) -> bool {
        let now = self.now();
        let Some(mut frame) = frame.or_else(|| self.ends[end].coming.pop_front()) else { return false };
        let (head, body) = frame.split_first_chunk_mut().unwrap();
        self.ends[end].net.frame(now, address(1 - end), head, Body::Aside(body), None);
        true
    }

    /// Takes what has happened, at most so much.
    pub(crate) fn take(&mut self, end: usize, most: usize) {
        for _ in 0..most {
            let End { net, channel, told, unread, .. } = &mut self.ends[end];
            match net.next_event() {
                Some(NetEvent::Message(of, ready)) if of == *channel => {
                    let (number, later) = checked(ready);
                    told.push(Told::Message(number));
                    unread.extend(later);
                }
                Some(NetEvent::Completed(of, cookie)) if of == *channel => told.push(Told::Completed(cookie)),
                Some(NetEvent::Closed(of, _)) if of == *channel => told.push(Told::Closed),
                Some(_) => {}
                None => return,
            }
        }
    }

    /// Reads the payload that waits longest, as far as it has come; or throws it away.
    pub(crate) fn read(&mut self, end: usize, throw: bool) {
        let now = self.now();
        let End { net, channel, unread, .. } = &mut self.ends[end];
        let Some(Unread { message, number, bytes, valid }) = unread.front_mut() else { return };
        if !throw {
            let mut reading = Reading { message: *message, into: bytes };
            let Some((now_valid, whole)) = net.read(now, *channel, &mut reading, *valid, false) else { return };
            *valid = now_valid;
            if !whole {
                return;
            }
            assert!(*bytes == pattern(*number, bytes.len()), "payload {number}");
        }
        net.forget(*channel, *message);
        unread.pop_front();
    }

    /// Until nothing more happens: what went is there, read and acknowledged.
    pub(crate) fn come_to_rest(&mut self) {
        for _ in 0..20_000 {
            let comes = self.ends.iter().any(|end| !end.coming.is_empty());
            let timers = self.ends.iter().filter_map(|end| end.net.timer()).map(Instant::as_nanos);
            self.now = timers.min().filter(|_| !comes).unwrap_or(0).max(self.now + 1_000);
            for end in [0, 1] {
                self.look(end);
                self.take(end, usize::MAX);
                self.read(end, false);
            }
            let rests = |end: &mut End| {
                let flies = end.net.in_flight(end.channel) > 0;
                !flies && end.net.is_settled() && end.coming.is_empty() && end.unread.is_empty()
            };
            if self.ends.iter_mut().all(rests) {
                return;
            }
        }
        let state = self.ends.iter().map(|end| (&end.net, end.unread.len(), end.coming.len()));
        panic!("it never rests: {:?}", state.collect::<Vec<_>>());
    }
}

/// The number of a message, whose payload is right; or waits for its reader.
fn checked(ready: Ready<Vec<u8>>) -> (u64, Option<Unread>) {
    let [number, len] = [0, 8].map(|at| u64::from_le_bytes(*ready.control[at..].first_chunk().unwrap()));
    let len = usize::try_from(len).unwrap();
    match ready.payload {
        ReadyPayload::None => assert_eq!(len, 0),
        ReadyPayload::Landed(place, _) => assert!(place == pattern(number, len), "payload {number}"),
        ReadyPayload::Arriving(message, _) => {
            return (number, Some(Unread { message, number, bytes: vec![0; len], valid: 0 }));
        }
        ReadyPayload::Refused(why, _) => panic!("refused: {why}"),
    }
    (number, None)
}
