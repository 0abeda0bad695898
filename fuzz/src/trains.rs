//! Trains at an endpoint that has them scattered over its memory before it looks at any byte of them.
//!
//! Two peers have a channel with the victim: a friend, whose frames are lost, repeated, changed and cut on their way,
//! and a foe, whose frames are made to say anything, under a right seal. What has come is received in trains as a
//! socket would join them, or as none would: with frames said to be longer or shorter than they are.
//!
//! Whatever comes: nothing panics; what the friend has sent arrives once, in order, with its own bytes; a place that
//! was not shown as a guess has no byte behind its payload; and every byte of a place was received there or copied
//! there, and counted as that.

use std::collections::VecDeque;
use std::net::SocketAddr;

use arbitrary::Arbitrary;
use cutthrough_engine::net::batch::Batch;
use cutthrough_engine::net::channel::Body;
use cutthrough_engine::net::inbox::{Reading, Ready, ReadyPayload};
use cutthrough_engine::net::trains::{Came, Line, TRAIN_BYTES, Train, Trains};
use cutthrough_engine::net::{Cargo, Net, NetEvent, Settings};
use cutthrough_engine::time::Instant;
use cutthrough_wire::frame::{HEADER_BYTES, Header, Kind};

use crate::ground::{Doorman, Ground, PLACE_MAX, Plot, Sum, bytes, seal};

/// Frames that a socket joins at most.
const TOGETHER: usize = 64;
/// Frames on their way at most; others are lost.
const FLYING: usize = 512;
/// Bytes that all channels together may send unasked.
const UNASKED: u64 = 64 << 10;

/// Who has a channel with the victim.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Arbitrary)]
pub enum Peer {
    /// It keeps the rules.
    Friend,
    /// It does not.
    Foe,
}

/// What happens next.
#[derive(Debug, Arbitrary)]
pub enum Step {
    /// A peer sends so many messages with payloads of so many bytes, or without, from pages or not.
    Send(Peer, u8, Option<u16>, bool),
    /// What a peer has to say is on its way.
    Say(Peer),
    /// A place is posted.
    Post(u16),
    /// There is no memory for places, or there is again.
    Scarce(bool),
    /// So many microseconds pass, times a power of two.
    Pass(u16, u8),
    /// A frame on its way is changed.
    Edit(u8, Edit),
    /// Bytes that nobody has sent come from a peer's address.
    Noise(Peer, Vec<u8>),
    /// The victim receives what came first: as a socket does it, or so many frames as one train whose frames are said
    /// to be so long.
    Receive(Option<(u8, u16)>),
    /// The victim lends memory to the first payload of a peer that waits for it, if it has not lent any.
    Read(Peer),
    /// The victim drops a payload of the foe unread.
    Forget,
    /// The victim ends its channel with the foe, or the foe comes again.
    Part,
}

/// How a frame is changed.
#[derive(Debug, Clone, Copy, Arbitrary)]
pub enum Edit {
    /// It is lost.
    Drop,
    /// It comes once more, behind so many others.
    Again(u8),
    /// The next one overtakes it.
    Swap,
    /// Its end is lost.
    Cut(u16),
    /// It has bytes behind its end.
    Pad(u8),
    /// A bit is another one.
    Flip(u16, u8),
    /// The foe says something else in a field of its header.
    Field(Field, u32),
    /// The foe's frame has another kind.
    Kind(u8),
}

/// Fields of a header that a foe changes.
#[derive(Debug, Clone, Copy, Arbitrary)]
pub enum Field {
    /// Bytes of the body.
    Body,
    /// The channel.
    Tag,
    /// Its life.
    Generation,
    /// The frame's number: so many more or less.
    Number,
    /// The message: so many more or less.
    Message,
    /// Where its bytes begin: so many more or less.
    Offset,
}

/// A peer, and what it has sent.
struct Side {
    net: Net<Ground>,
    channel: usize,
    /// Number of the channel at the victim, if there is one.
    there: Option<usize>,
    /// Messages sent, and those that have not arrived.
    sent: u32,
    due: VecDeque<(u32, Option<usize>)>,
    /// Payloads that wait for their reader: number, and the message they are of, with their bytes.
    unread: VecDeque<(u64, u32, usize)>,
}

/// A payload to which the victim has lent memory.
struct Lent {
    peer: Peer,
    number: u64,
    message: u32,
    valid: usize,
    into: Vec<u8>,
}

struct World {
    now: u64,
    victim: Net<Ground>,
    trains: Trains,
    friend: Side,
    foe: Side,
    /// Frames on their way to the victim.
    flying: VecDeque<(Peer, Vec<u8>)>,
    lent: Option<Lent>,
    /// Bytes of payloads that have places, and how many of them were copied there.
    landed: u64,
    copied: u64,
}

/// What has come to the victim's socket.
struct Socket<'a> {
    flying: &'a mut VecDeque<(Peer, Vec<u8>)>,
    at: Instant,
    /// How many frames are one train, and how long they are said to be.
    odd: Option<(u8, u16)>,
}

impl Line for Socket<'_> {
    type Part<'a> = &'a mut [u8];

    fn part(bytes: &mut [u8]) -> &mut [u8] {
        bytes
    }

    fn peek(&mut self, head: &mut [u8; HEADER_BYTES]) -> Option<usize> {
        let (_, first) = self.flying.front()?;
        let bytes = first.len().min(head.len());
        head[..bytes].copy_from_slice(&first[..bytes]);
        Some(bytes)
    }

    fn receive(&mut self, parts: &mut [&mut [u8]]) -> Option<Train> {
        let (from, mut bytes) = self.flying.pop_front()?;
        let segment = bytes.len();
        let most = self.odd.map_or(TOGETHER, |(frames, _)| usize::from(frames).min(TOGETHER));
        let (mut frames, mut last) = (1, segment);
        while frames < most
            && (last == segment || self.odd.is_some())
            && let Some((_, next)) = self.flying.pop_front_if(|(other, next)| {
                let fits = self.odd.is_some() || next.len() <= segment && segment > 0;
                *other == from && fits && bytes.len() + next.len() <= TRAIN_BYTES
            })
        {
            last = next.len();
            bytes.extend_from_slice(&next);
            frames += 1;
        }
        let mut rest = &bytes[..];
        for part in parts {
            let (now, later) = rest.split_at(rest.len().min(part.len()));
            part[..now.len()].copy_from_slice(now);
            rest = later;
        }
        let segment = self.odd.map_or(segment, |(_, segment)| segment.into());
        Some(Train { at: self.at, from: address(from), bytes: bytes.len(), segment, cut: !rest.is_empty() })
    }
}

const fn host(peer: Peer) -> u8 {
    match peer {
        Peer::Friend => 2,
        Peer::Foe => 3,
    }
}

fn address(peer: Peer) -> SocketAddr {
    SocketAddr::from(([10, 0, 0, host(peer)], 7))
}

fn victims() -> SocketAddr {
    SocketAddr::from(([10, 0, 0, 1], 7))
}

fn node(life: u8) -> Net<Ground> {
    let settings = Settings {
        slots: 16,
        unasked: UNASKED,
        granted: 32 << 10,
        silence_ns: 3_600_000_000_000,
        deadline_ns: 3_600_000_000_000,
        channels: 8,
        body: 1408,
        life: life.into(),
        process: 0,
        user: 0,
    };
    Net::new(settings, Ground::default(), Box::new(Doorman { random: life.into(), sum: Sum }))
}

fn pattern(peer: Peer, message: u32, len: usize) -> Vec<u8> {
    let step = usize::try_from(message % 251).unwrap_or(0) + usize::from(host(peer));
    (0..len).map(|at| u8::try_from(1 + at * step % 253).unwrap_or(1)).collect()
}

/// Takes all steps; then everything that the friend has sent has to arrive.
///
/// # Panics
/// If something does not hold.
pub fn run(steps: &[Step]) {
    let mut world = World::new();
    for step in steps.iter().take(200) {
        world.step(step);
        world.carry_back();
        world.events();
    }
    world.finish();
}

impl World {
    fn new() -> Self {
        let side = |peer| Side {
            net: node(host(peer)),
            channel: 0,
            there: None,
            sent: 0,
            due: VecDeque::new(),
            unread: VecDeque::new(),
        };
        let mut world = Self {
            now: 1_000_000,
            victim: node(1),
            trains: Trains::default(),
            friend: side(Peer::Friend),
            foe: side(Peer::Foe),
            flying: VecDeque::new(),
            lent: None,
            landed: 0,
            copied: 0,
        };
        world.victim.listen(true);
        world.join(Peer::Friend);
        world.join(Peer::Foe);
        world
    }

    const fn time(&self) -> Instant {
        Instant::from_nanos(self.now)
    }

    const fn side(&mut self, peer: Peer) -> &mut Side {
        match peer {
            Peer::Friend => &mut self.friend,
            Peer::Foe => &mut self.foe,
        }
    }

    /// A peer opens its channel, over a network without faults.
    fn join(&mut self, peer: Peer) {
        let now = self.time();
        let Some(channel) = self.side(peer).net.call(now, victims(), 1408) else { return };
        self.side(peer).channel = channel;
        let others = std::mem::take(&mut self.flying);
        for _ in 0..8 {
            self.say(peer);
            while !self.flying.is_empty() {
                self.receive(None);
            }
            self.carry_back();
            self.events();
        }
        self.flying = others;
    }

    fn step(&mut self, step: &Step) {
        match step {
            Step::Send(peer, count, len, pages) => {
                (0..*count % 8).for_each(|_| self.send(*peer, len.map(usize::from), *pages));
            }
            Step::Say(peer) => self.say(*peer),
            Step::Post(bytes) => {
                self.victim.memory.post(*bytes);
                let friend = self.friend.there.unwrap_or_default();
                self.victim.expect(self.foe.there.filter(|_| bytes % 2 == 1).unwrap_or(friend));
            }
            Step::Scarce(scarce) => {
                self.victim.memory.scarce = *scarce;
                self.victim.memory_came_back(self.time());
            }
            Step::Pass(micros, shift) => self.now += (u64::from(*micros) * 1000) << (shift % 5),
            Step::Edit(which, edit) => self.edit(usize::from(*which), *edit),
            Step::Noise(peer, bytes) => self.fly(*peer, bytes.clone()),
            Step::Receive(odd) => self.receive(*odd),
            Step::Read(peer) => self.lend(*peer),
            Step::Forget => {
                if let (Some((number, ..)), Some(there)) = (self.foe.unread.pop_front(), self.foe.there) {
                    self.victim.forget(there, number);
                }
            }
            Step::Part => match self.foe.there {
                Some(there) => self.victim.close(there),
                None => self.join(Peer::Foe),
            },
        }
    }

    fn send(&mut self, peer: Peer, len: Option<usize>, pages: bool) {
        let side = self.side(peer);
        let load = len.map(|len| pattern(peer, side.sent, len));
        let cargo = load.map(|load| Cargo { load, token: None, pages, cookie: None });
        if side.net.send(side.channel, &side.sent.to_le_bytes(), cargo).is_ok() {
            side.due.push_back((side.sent, len));
            side.sent += 1;
        }
    }

    fn fly(&mut self, peer: Peer, bytes: Vec<u8>) {
        if self.flying.len() < FLYING {
            self.flying.push_back((peer, bytes));
        }
    }

    fn say(&mut self, peer: Peer) {
        let now = self.time();
        let (net, mut frames) = (&mut self.side(peer).net, Vec::new());
        net.tick(now);
        net.looked(now);
        while let Some((_, frame)) = net.greeting() {
            frames.push(frame);
        }
        let mut batch = Batch::default();
        while let Some((index, _)) = net.batch(now, &mut batch, TRAIN_BYTES) {
            frames.extend(bytes(net, index, &batch).chunks(batch.segment()).map(<[u8]>::to_vec));
        }
        frames.into_iter().for_each(|frame| self.fly(peer, frame));
    }

    fn edit(&mut self, which: usize, edit: Edit) {
        if self.flying.is_empty() {
            return;
        }
        let at = which % self.flying.len();
        let (peer, frame) = &mut self.flying[at];
        let peer = *peer;
        match edit {
            Edit::Drop => drop(self.flying.remove(at)),
            Edit::Again(later) => {
                let (frame, to) = (frame.clone(), (at + 1 + usize::from(later)).min(self.flying.len()));
                self.flying.insert(to, (peer, frame));
            }
            Edit::Swap => {
                let next = (at + 1) % self.flying.len();
                self.flying.swap(at, next);
            }
            Edit::Cut(len) => frame.truncate(len.into()),
            Edit::Pad(len) => frame.resize(frame.len() + usize::from(len), 7),
            Edit::Flip(at, bit) => {
                let len = frame.len().max(1);
                if let Some(byte) = frame.get_mut(usize::from(at) % len) {
                    *byte ^= 1 << (bit % 8);
                }
            }
            Edit::Field(field, value) if peer == Peer::Foe => say_otherwise(frame, |header| match field {
                Field::Body => header.body = u16::try_from(value % 1500).unwrap_or(0),
                Field::Tag => header.tag = value,
                Field::Generation => header.generation = value,
                Field::Number => header.number = header.number.wrapping_add_signed(i64::from(value.cast_signed())),
                Field::Message => header.words[0] = header.words[0].wrapping_add(value),
                Field::Offset => header.words[1] = header.words[1].wrapping_add(value),
            }),
            Edit::Kind(kind) if peer == Peer::Foe => {
                say_otherwise(frame, |header| header.kind = Kind::from_raw(kind).unwrap_or(header.kind));
            }
            Edit::Field(..) | Edit::Kind(_) => {}
        }
    }

    fn receive(&mut self, odd: Option<(u8, u16)>) {
        let (at, none) = (self.time(), self.flying.is_empty());
        let mut socket = Socket { flying: &mut self.flying, at, odd };
        let of = |lent: &Lent| if lent.peer == Peer::Friend { self.friend.there } else { self.foe.there };
        let there = self.lent.as_ref().and_then(of);
        let mut reading = self
            .lent
            .as_mut()
            .zip(there)
            .map(|(lent, there)| (there, Reading { message: lent.number, into: &mut lent.into }));
        let reading = reading.as_mut().map(|(channel, reading)| (*channel, reading));
        let came = self.trains.receive(&mut self.victim, &mut socket, reading);
        assert_eq!(came, if none { Came::Nothing } else { Came::Train });
        self.read();
        if self.flying.is_empty() {
            self.victim.looked(self.time());
        }
    }

    /// Lends memory to a payload, which stays lent until all of it is there.
    fn lend(&mut self, peer: Peer) {
        if self.lent.is_some() {
            return;
        }
        if let Some((number, message, len)) = self.side(peer).unread.pop_front() {
            self.lent = Some(Lent { peer, number, message, valid: 0, into: vec![0; len] });
            self.read();
        }
    }

    /// Reads what has come of the payload to which memory was lent.
    fn read(&mut self) {
        let now = self.time();
        let Some(Lent { peer, number, message, valid, into }) = &mut self.lent else { return };
        let there = if *peer == Peer::Friend { self.friend.there } else { self.foe.there };
        let Some(there) = there else {
            self.lent = None;
            return;
        };
        let mut reading = Reading { message: *number, into };
        let read = self.victim.read(now, there, &mut reading, *valid, true);
        match read {
            Some((now_valid, whole)) => {
                *valid = now_valid;
                if *peer == Peer::Friend {
                    let whole = pattern(*peer, *message, into.len());
                    assert!(into[..now_valid] == whole[..now_valid], "bytes that nobody has sent in message {message}");
                }
                if !whole {
                    return;
                }
                self.victim.forget(there, *number);
            }
            None => assert!(*peer == Peer::Foe, "a payload of the friend is gone"),
        }
        self.lent = None;
    }

    /// What the victim has to say reaches the others at once.
    fn carry_back(&mut self) {
        let now = self.time();
        self.victim.tick(now);
        self.victim.looked(now);
        let mut frames = Vec::new();
        while let Some((to, frame)) = self.victim.greeting() {
            frames.push((to, frame));
        }
        let mut batch = Batch::default();
        while let Some((index, to)) = self.victim.batch(now, &mut batch, TRAIN_BYTES) {
            let all = bytes(&self.victim, index, &batch);
            frames.extend(all.chunks(batch.segment()).map(|frame| (to, frame.to_vec())));
        }
        for (to, mut frame) in frames {
            let (head, body) = frame.split_first_chunk_mut::<HEADER_BYTES>().expect("a header");
            for peer in [Peer::Friend, Peer::Foe] {
                if to == address(peer) {
                    self.side(peer).net.frame(now, victims(), head, Body::Aside(body), None);
                }
            }
        }
    }

    fn events(&mut self) {
        while let Some(event) = self.victim.next_event() {
            match event {
                NetEvent::Opened(index) => {
                    let from = self.victim.peer(index).map(|(from, ..)| from);
                    let peer = if from == Some(address(Peer::Friend)) { Peer::Friend } else { Peer::Foe };
                    let side = self.side(peer);
                    assert!(peer == Peer::Foe || side.there.is_none(), "the friend has two channels");
                    side.there = Some(index);
                }
                NetEvent::Message(index, message) if self.friend.there == Some(index) => {
                    self.arrived(Peer::Friend, message);
                }
                NetEvent::Message(index, message) if self.foe.there == Some(index) => self.arrived(Peer::Foe, message),
                NetEvent::Closed(index, ending) => {
                    assert!(self.friend.there != Some(index), "the friend's channel has ended: {ending:?}");
                    if self.foe.there == Some(index) {
                        self.foe.there = None;
                        self.foe.unread.clear();
                        self.lent.take_if(|lent| lent.peer == Peer::Foe);
                    }
                }
                NetEvent::Message(..) | NetEvent::Connected(_) | NetEvent::Failed(..) | NetEvent::Completed(..) => {}
            }
        }
        self.victim.let_go();
        while let Some(event) = self.friend.net.next_event() {
            assert!(!matches!(event, NetEvent::Closed(..)), "{event:?}");
        }
        while let Some(event) = self.foe.net.next_event() {
            if matches!(event, NetEvent::Closed(..)) {
                self.foe.due.clear();
            }
        }
    }

    fn arrived(&mut self, peer: Peer, message: Ready<Plot>) {
        let due = self.side(peer).due.pop_front();
        if peer == Peer::Friend {
            let (number, len) = due.expect("a message that was sent");
            assert_eq!(message.control[..usize::from(message.control_len)], number.to_le_bytes());
            assert_eq!(len.is_some(), !matches!(message.payload, ReadyPayload::None));
        }
        match message.payload {
            ReadyPayload::None => {}
            ReadyPayload::Landed(plot, story) => {
                let (whole, behind) = plot.bytes.split_at(story.bytes as usize);
                if let Some((number, Some(len))) = due.filter(|_| peer == Peer::Friend) {
                    assert!(whole == pattern(peer, number, len), "message {number} has other bytes");
                }
                let touched = behind.iter().any(|byte| *byte != Plot::EMPTY);
                assert!(plot.shown.get() || !touched, "bytes behind a payload");
                assert!(story.copied <= story.bytes);
                (self.landed, self.copied) =
                    (self.landed + u64::from(story.bytes), self.copied + u64::from(story.copied));
            }
            ReadyPayload::Arriving(number, story) => {
                let bytes = story.bytes as usize;
                if bytes <= PLACE_MAX {
                    self.side(peer).unread.push_back((number, due.map_or(0, |(message, _)| message), bytes));
                }
            }
            ReadyPayload::Refused(why, _) => assert!(peer == Peer::Foe, "the friend is refused: {why}"),
        }
    }

    /// Nothing goes wrong any more: everything that the friend has sent arrives.
    fn finish(&mut self) {
        self.victim.memory.scarce = false;
        self.victim.memory_came_back(self.time());
        // The foe's channel lives, and nothing comes of what it was asked for: it keeps nobody waiting.
        self.lent.take_if(|lent| lent.peer == Peer::Foe);
        for (len, pages) in [(None, false), (Some(20_000), true), (Some(20_000), false)] {
            self.send(Peer::Friend, len, pages);
        }
        for _ in 0..4000 {
            self.lend(Peer::Friend);
            self.say(Peer::Friend);
            while !self.flying.is_empty() {
                self.receive(None);
                self.events();
            }
            self.carry_back();
            self.events();
            if self.friend.due.is_empty() && self.friend.unread.is_empty() && self.lent.is_none() {
                // Each byte of a place was received there, or copied there.
                let placed = self.victim.tally().placed_bytes;
                assert!(placed + self.copied >= self.landed, "{placed} {} {}", self.copied, self.landed);
                let unshown = self.victim.memory.posted.iter().filter(|plot| !plot.shown.get());
                assert!(unshown.into_iter().all(|plot| plot.bytes.iter().all(|byte| *byte == Plot::EMPTY)));
                return;
            }
            let timers = [&self.victim, &self.friend.net].into_iter().filter_map(|net| net.timer());
            self.now = timers.map(Instant::as_nanos).min().unwrap_or_default().max(self.now + 1_000);
        }
        panic!("messages of the friend are missing: {:?} {:?}", self.friend.due, self.victim.tally());
    }
}

/// Changes a header, and makes the seal right again.
fn say_otherwise(frame: &mut [u8], change: impl FnOnce(&mut Header)) {
    let Some((head, body)) = frame.split_first_chunk_mut::<HEADER_BYTES>() else { return };
    let Ok(mut header) = Header::from_bytes(head) else { return };
    change(&mut header);
    let version = head[0];
    *head = header.to_bytes();
    head[0] = version;
    let whole = usize::from(header.body).min(body.len());
    seal(&header, head, &mut body[..whole], false);
}
