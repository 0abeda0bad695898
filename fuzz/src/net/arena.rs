//! The victim, its friend, and whoever else sends it frames.

mod landing;

use std::net::SocketAddr;

use cutthrough_engine::net::batch::Batch;
use cutthrough_engine::net::channel::{Body, Ending};
use cutthrough_engine::net::inbox::{Reading, Ready, ReadyPayload};
use cutthrough_engine::net::{Cargo, Net, NetEvent, Settings};
use cutthrough_engine::time::Instant;
use cutthrough_wire::frame::{BODY_MIN, FRAME_VERSION, Greeting, HEADER_BYTES, Header, Kind, Limits, NOTE_BYTES};

use super::{Frame, From, Heard, Message, Number, Step, VICTIMS_LIFE, Walked, body, vouched};
use crate::ground::{Doorman, Ground, PLACE_MAX, Plot, Sum, bytes, seal};

const VICTIM: u8 = 1;
const FRIEND: u8 = 2;
const HOSTILE: u8 = 3;
const CALLED: u8 = 4;
const STRANGER: u8 = 5;

/// Nanoseconds that a frame is on its way.
const WAY_NS: u64 = 5_000;
/// Bytes that all channels together may send unasked.
const UNASKED: u64 = 64 << 10;
/// Bytes of a payload that is read from aside which may lie there beyond what was read, once and as much again.
const READ: u64 = 64 << 10;
/// Batches that an endpoint sends at one moment, at most.
const BATCHES: usize = 1000;
/// Messages of a channel that may be on their way.
const SLOTS: u64 = 16;
/// Channels of an endpoint, and as many that close.
const CHANNELS: usize = 8;
/// Bytes of a note that acknowledges, and grants nothing. A close of a channel that has ended is shorter, and answered
/// by that: only its peer can make one, and each under a new number.
const NOTE: usize = HEADER_BYTES + NOTE_BYTES;

fn address(host: u8) -> SocketAddr {
    SocketAddr::from(([10, 0, 0, host], 7))
}

/// What the hostile side knows of a channel of the victim.
#[derive(Debug, Clone, Copy, Default)]
struct Known {
    index: u32,
    generation: u32,
    /// Number of the next frame.
    number: u64,
    /// Messages that were opened.
    message: u32,
    /// One past the largest number of the victim's frames.
    heard: u64,
}

/// The victim, its friend, and what the hostile side knows.
pub(super) struct Arena {
    now: u64,
    victim: Net<Ground>,
    friend: Net<Ground>,
    at_victim: usize,
    at_friend: usize,
    /// The friend's channel, as a listener on the way would know it.
    of_friend: Known,
    /// The hostile side's channel: the one that it had last, which may have ended.
    own: Option<Known>,
    /// The channel that the victim calls from.
    called: Known,
    cookie: u64,
    joins: u32,
    /// Payloads of the hostile side: channel, message, bytes.
    unread: Vec<(usize, u64, u32)>,
    /// How often one was read: it has room of its own, until its sender has heard that no more of it is wanted.
    reads: u64,
    /// The friend's messages: how many were sent, and those not yet received.
    sent: u32,
    due: std::collections::VecDeque<(u32, Option<usize>)>,
    endings: Vec<Ending>,
    cookies: Vec<u64>,
    connected: u32,
    again: u32,
}

fn node(life: u64) -> Net<Ground> {
    let settings = Settings {
        slots: SLOTS,
        unasked: UNASKED,
        granted: 32 << 10,
        silence_ns: 20_000_000_000,
        deadline_ns: 20_000_000_000,
        channels: CHANNELS,
        body: 1408,
        life,
        process: 0,
        user: 0,
    };
    Net::new(settings, Ground::default(), Box::new(Doorman { random: life, sum: Sum }))
}

fn pattern(message: u32, len: usize) -> Vec<u8> {
    let step = usize::try_from(message % 251).unwrap_or(0) + 1;
    (0..len).map(|at| u8::try_from(at * step % 253).unwrap_or(0)).collect()
}

impl Arena {
    /// The friend's channel is open, and the hostile side let in.
    pub(super) fn new() -> Self {
        let mut arena = Self {
            now: 1_000_000,
            victim: node(VICTIMS_LIFE),
            friend: node(2),
            at_victim: 0,
            at_friend: 0,
            of_friend: Known::default(),
            own: None,
            called: Known::default(),
            cookie: 1,
            joins: 0,
            unread: Vec::new(),
            reads: 0,
            sent: 0,
            due: std::collections::VecDeque::new(),
            endings: Vec::new(),
            cookies: Vec::new(),
            connected: 0,
            again: 0,
        };
        arena.victim.listen(true);
        arena.at_friend = arena.friend.call(arena.time(), address(VICTIM), 1408).expect("a seat");
        arena.pump(None);
        let opened = arena.victim.next_event();
        let Some(NetEvent::Opened(index)) = opened else { panic!("{opened:?}") };
        arena.at_victim = index;
        assert!(matches!(arena.friend.next_event(), Some(NetEvent::Connected(_))));
        arena.join();
        arena
    }

    const fn time(&self) -> Instant {
        Instant::from_nanos(self.now)
    }

    /// What has to hold at any time.
    pub(super) fn check(&mut self) {
        for (index, aside, most) in self.victim.aside() {
            let bound = 3 * UNASKED + 2 * READ * self.reads;
            assert!(aside <= most && most <= bound, "channel {index}: {aside} bytes aside, and {most} may be");
        }
        assert!(self.victim.channels() <= 2 * CHANNELS);
        assert_eq!(self.victim.leak(), None);
    }

    pub(super) fn step(&mut self, step: &Step) {
        match step {
            Step::Frame(frame) => self.frame(frame),
            Step::Join => self.join(),
            Step::Pass(micros, shift) => self.now += (u64::from(*micros) * 1000) << (shift % 5),
            Step::Post(bytes) => {
                self.victim.memory.post(*bytes);
                if let Some(own) = self.own {
                    self.victim.expect(own.index as usize);
                }
            }
            Step::Scarce(scarce) => {
                self.victim.memory.scarce = *scarce;
                self.victim.memory_came_back(self.time());
            }
            Step::Send(len, pages) => {
                let index = self.own.map_or(usize::MAX, |own| own.index as usize);
                let cargo = len.map(|len| cargo(vec![4; usize::from(len)], *pages));
                let _ = self.victim.send(index, &[0; 40], cargo);
            }
            Step::Read(which, lend) => self.read(*which, *lend),
            Step::Forget(which) => {
                if !self.unread.is_empty() {
                    let (index, message, _) = self.unread.swap_remove(usize::from(*which) % self.unread.len());
                    self.victim.forget(index, message);
                }
            }
            Step::Close => {
                if let Some(own) = self.own {
                    self.victim.close(own.index as usize);
                }
            }
            Step::Call => {
                let _ = self.victim.call(self.time(), address(CALLED), 1408);
            }
            Step::Friend(len, pages) => self.befriend(len.map(usize::from), *pages),
            Step::Hurry => self.victim.hurry(),
        }
        self.pump(None);
        self.events();
    }

    /// The friend sends a message.
    fn befriend(&mut self, len: Option<usize>, pages: bool) {
        let cargo = len.map(|len| cargo(pattern(self.sent, len), pages));
        if self.friend.send(self.at_friend, &self.sent.to_le_bytes(), cargo).is_ok() {
            self.due.push_back((self.sent, len));
            self.sent += 1;
        }
    }

    /// Carries what there is to carry, without any loss, until nobody has anything to say at this moment.
    fn pump(&mut self, mut reading: Option<&mut Reading<'_>>) {
        for round in 0.. {
            assert!(round < 1000, "they never stop talking");
            let now = self.time();
            self.victim.tick(now);
            self.victim.looked(now);
            let to_victim = self.friend_says();
            let mut all = 0;
            while let Some((to, frame)) = self.victim.greeting() {
                all += 1;
                self.victim_says(to, frame);
            }
            let mut batch = Batch::default();
            while let Some((index, to)) = self.victim.batch(now, &mut batch, 65_000) {
                all += 1;
                assert!(all < BATCHES, "the victim never stops sending: {:?}", self.victim);
                let bytes = bytes(&self.victim, index, &batch);
                bytes.chunks(batch.segment()).for_each(|frame| self.victim_says(to, frame.to_vec()));
            }
            if all == 0 && to_victim.is_empty() {
                return;
            }
            self.now += WAY_NS;
            for mut frame in to_victim {
                self.of_friend.number += 1;
                let (head, body) = frame.split_first_chunk_mut::<HEADER_BYTES>().expect("a header");
                if let Ok(header) = Header::from_bytes(head)
                    && !header.kind.greets()
                {
                    (self.of_friend.index, self.of_friend.generation) = (header.tag, header.generation);
                    self.of_friend.number = header.number + 1;
                }
                let reading = reading.as_deref_mut().map(|reading| (self.at_victim, reading));
                self.victim.frame(Instant::from_nanos(self.now), address(FRIEND), head, Body::Aside(body), reading);
            }
        }
    }

    /// What the friend has to say.
    fn friend_says(&mut self) -> Vec<Vec<u8>> {
        let now = self.time();
        self.friend.tick(now);
        self.friend.looked(now);
        let mut frames = Vec::new();
        while let Some((_, frame)) = self.friend.greeting() {
            frames.push(frame);
        }
        let mut batch = Batch::default();
        while let Some((index, _)) = self.friend.batch(now, &mut batch, 65_000) {
            let bytes = bytes(&self.friend, index, &batch);
            frames.extend(bytes.chunks(batch.segment()).map(<[u8]>::to_vec));
        }
        frames
    }

    /// The victim has sent a frame.
    fn victim_says(&mut self, to: SocketAddr, mut frame: Vec<u8>) {
        let (head, body) = frame.split_first_chunk_mut::<HEADER_BYTES>().expect("a header");
        let header = Header::from_bytes(head).expect("a frame of this version");
        if to == address(FRIEND) {
            self.of_friend.heard = self.of_friend.heard.max(header.number + 1);
            self.friend.frame(self.time(), address(VICTIM), head, Body::Aside(body), None);
        } else if to == address(HOSTILE) {
            match header.kind {
                Kind::Retry => self.cookie = u64::from_le_bytes(*body.first_chunk().expect("a cookie")),
                Kind::Welcome => {
                    let (greeting, _) = Greeting::from_bytes(body).expect("a greeting");
                    let new = Known { index: greeting.tag, generation: greeting.generation, ..Known::default() };
                    if self.own.is_none_or(|own| own.generation != new.generation) {
                        self.own = Some(Known { heard: 1, ..new });
                    }
                }
                Kind::Refuse => {}
                _ => {
                    if let Some(own) = self.own.as_mut() {
                        own.heard = own.heard.max(header.number + 1);
                    }
                }
            }
        } else if to == address(CALLED) && header.kind == Kind::Hello {
            let (greeting, _) = Greeting::from_bytes(body).expect("a greeting");
            self.cookies.push(greeting.cookie);
            self.called = Known { index: greeting.tag, generation: greeting.generation, ..Known::default() };
        } else if to == address(CALLED) && !header.kind.greets() {
            self.called.heard = self.called.heard.max(header.number + 1);
        }
    }

    /// The hostile side is let in as anybody is.
    fn join(&mut self) {
        self.joins += 1;
        for _ in 0..2 {
            let greeting = Greeting {
                tag: self.joins,
                generation: self.joins,
                life: 3,
                cookie: self.cookie,
                body: BODY_MIN,
                limits: Limits { messages: 8, unasked: 4096 },
                process: 0,
                user: 0,
            };
            let mut hello = greeting.to_bytes(0).to_vec();
            hello.resize(usize::from(BODY_MIN), 0);
            self.bring(HOSTILE, &header(Kind::Hello, &hello, &Known::default()), hello, false, None);
            self.pump(None);
        }
        if let Some(own) = &mut self.own {
            let known = *own;
            own.number += 1;
            self.bring(HOSTILE, &header(Kind::Probe, &[], &known), Vec::new(), false, None);
        }
    }

    /// A frame of the input comes.
    fn frame(&mut self, frame: &Frame) {
        let (host, known) = match frame.from {
            From::Hostile => (HOSTILE, self.own.unwrap_or_default()),
            From::Friend => (FRIEND, self.of_friend),
            From::Called => (CALLED, self.called),
            From::Stranger => (STRANGER, self.own.unwrap_or(self.of_friend)),
        };
        let message = match frame.message {
            Message::Near(near) => known.message.wrapping_add_signed(i32::from(near)),
            Message::Any(any) => any,
        };
        #[allow(clippy::cast_possible_truncation, reason = "low halves travel")]
        let heard = known.heard as u32;
        let (kind, words, mut body) = body(&frame.body, (message, heard, self.cookie));
        body.truncate(4096);
        let kind = frame.kind.and_then(Kind::from_raw).unwrap_or(kind);
        if kind == Kind::Welcome
            && frame.from == From::Called
            && !frame.broken
            && let Some(proved) = vouched(&body)
        {
            body = proved;
        }
        let number = match frame.number {
            Number::Next => known.number,
            Number::Near(near) => known.number.saturating_add_signed(i64::from(near)),
            Number::Any(any) => any,
        };
        let (below, bits) = match frame.heard {
            Heard::None => (0, 0),
            Heard::All => (heard, 0),
            Heard::Some(before, bits) => (heard.saturating_sub(u32::from(before)), bits),
            Heard::Any(below, bits) => (below, bits),
        };
        let mut header = header(kind, &body, &known);
        if let Some((tag, generation)) = frame.tag {
            (header.tag, header.generation) = (tag, generation);
        }
        #[allow(clippy::cast_possible_truncation, reason = "low halves travel")]
        let awaited = frame.awaited.unwrap_or(number as u32);
        let (calls, asks) = (frame.quiet & 3, frame.quiet >> 2 & 31);
        header = Header { number, below, bits, awaited, held: frame.held, waits: frame.waits, calls, asks, ..header };
        let fits = matches!(frame.message, Message::Near(_)) && frame.kind.is_none();
        header.words = [if fits { words[0] } else { message }, frame.second.unwrap_or(words[1])];
        let padding = usize::try_from(frame.padding).unwrap_or(0);
        let missing = usize::from(frame.padding.unsigned_abs()) - padding;
        let true_len = body.len();
        body.resize(true_len.saturating_sub(missing) + padding, 0);
        let sender = match frame.from {
            From::Hostile => self.own.as_mut(),
            From::Called => Some(&mut self.called),
            From::Friend | From::Stranger => None,
        };
        if let Some(known) = sender.filter(|_| !frame.broken) {
            known.number = known.number.max(number.min(1 << 40).saturating_add(1));
            let last = if header.kind == Kind::Records { header.words[1] } else { 1 };
            if matches!(header.kind, Kind::Records | Kind::Open) && message.wrapping_sub(known.message) < 64 {
                known.message = message.wrapping_add(last.min(64));
            }
        }
        self.bring(host, &header, body, frame.broken || frame.from == From::Friend, frame.landed);
    }

    /// Brings a frame to the victim, and looks what it says to that at once.
    fn bring(&mut self, host: u8, header: &Header, mut body: Vec<u8>, broken: bool, landed: Option<bool>) {
        let whole = usize::from(header.body);
        let mut header = *header;
        let plan = landed.and_then(|loose| self.plan(&mut header, body.len(), loose));
        if plan == Some(0) && header.kind == Kind::Data && whole == body.len() && whole > 1 && header.held & 7 > 1 {
            return self.bring_together(host, &header, &mut body, broken);
        }
        let mut head = header.to_bytes();
        if let Some(sealed) = body.get_mut(..whole) {
            seal(&header, &mut head, sealed, broken);
        }
        head[0] = if header.held == 0x7fff { FRAME_VERSION + 1 } else { FRAME_VERSION };
        let sent = HEADER_BYTES + body.len();
        let now = self.time();
        let body = match (plan, &mut body) {
            (Some(before), body) => {
                let (opening, payload) = body.split_at_mut(before);
                self.land(payload);
                Body::Landed { opening: (before > 0).then_some(opening), len: payload.len() }
            }
            (None, body) => Body::Aside(body),
        };
        self.victim.frame(now, address(host), &head, body, None);
        let mut said = 0;
        while let Some((to, frame)) = self.victim.greeting() {
            said += 1;
            assert!(said == 1, "one frame is answered more than once");
            assert!(to == address(host), "somebody else is answered");
            let again = header.kind == Kind::Close && frame[1] == Kind::Note as u8;
            self.again += u32::from(again);
            let most = if again { NOTE } else { sent };
            assert!(host == CALLED || frame.len() <= most, "{} bytes are answered with {}", sent, frame.len());
            self.victim_says(to, frame);
        }
    }

    /// The victim reads a payload of the hostile side.
    fn read(&mut self, which: u8, lend: bool) {
        if self.unread.is_empty() {
            return;
        }
        let which = usize::from(which) % self.unread.len();
        let (index, message, bytes) = self.unread[which];
        if bytes as usize > PLACE_MAX {
            return;
        }
        self.reads += 1;
        let mut into = vec![0; bytes as usize];
        let mut reading = Reading { message, into: &mut into };
        let read = self.victim.read(self.time(), index, &mut reading, 0, lend);
        if read.is_none_or(|(_, whole)| whole) {
            self.unread.swap_remove(which);
            self.victim.forget(index, message);
        }
    }

    /// Takes what has happened.
    fn events(&mut self) {
        while let Some(event) = self.victim.next_event() {
            match event {
                NetEvent::Message(index, message) if index == self.at_victim => self.of_friend(message),
                NetEvent::Message(index, message) => {
                    if let ReadyPayload::Arriving(number, story) = message.payload {
                        self.unread.push((index, number, story.bytes));
                    }
                }
                NetEvent::Closed(index, ending) => {
                    assert!(index != self.at_victim, "the friend's channel has ended: {ending:?}");
                    self.endings.push(ending);
                    self.unread.retain(|unread| unread.0 != index);
                }
                NetEvent::Connected(_) => self.connected += 1,
                NetEvent::Opened(_) | NetEvent::Failed(..) | NetEvent::Completed(..) => {}
            }
        }
        let unread = &self.unread;
        assert!(
            unread.iter().all(|one| unread.iter().filter(|other| one.0 == other.0 && one.1 == other.1).count() == 1)
        );
        self.victim.let_go();
        while let Some(event) = self.friend.next_event() {
            assert!(!matches!(event, NetEvent::Closed(..)), "{event:?}");
        }
    }

    /// A message of the friend has come.
    fn of_friend(&mut self, message: Ready<Plot>) {
        let (number, len) = self.due.pop_front().expect("a message that was sent");
        assert_eq!(message.control[..usize::from(message.control_len)], number.to_le_bytes());
        let bytes = match message.payload {
            ReadyPayload::None => None,
            ReadyPayload::Landed(place, story) => Some(place.bytes[..story.bytes as usize].to_vec()),
            ReadyPayload::Arriving(message, story) => {
                let mut into = vec![0; story.bytes as usize];
                let mut reading = Reading { message, into: &mut into };
                for round in 0.. {
                    assert!(round < 1000, "a payload of the friend never comes: {:?} {:?}", self.victim, self.friend);
                    let now = self.time();
                    let read = self.victim.read(now, self.at_victim, &mut reading, 0, true).expect("a payload");
                    if read.1 {
                        break;
                    }
                    self.pump(Some(&mut reading));
                    self.now += 1_000_000;
                }
                self.victim.forget(self.at_victim, message);
                Some(into)
            }
            ReadyPayload::Refused(why, _) => panic!("refused: {why}"),
        };
        assert_eq!(bytes, len.map(|len| pattern(number, len)), "message {number}");
    }

    /// What has come of the steps.
    pub(super) fn walked(self) -> Walked {
        let Self { victim, endings, cookies, connected, again, .. } = self;
        Walked { tally: *victim.tally(), endings, cookies, connected, again }
    }

    /// The friend's messages arrive, also those that are sent now.
    pub(super) fn finish(&mut self) {
        self.victim.memory.scarce = false;
        self.victim.memory_came_back(self.time());
        for (len, pages) in [(None, false), (Some(20_000), true), (Some(20_000), false)] {
            self.befriend(len, pages);
        }
        for _ in 0..1000 {
            self.pump(None);
            self.events();
            self.check();
            if self.due.is_empty() {
                return;
            }
            self.now += 1_000_000;
        }
        panic!("messages of the friend are missing: {:?} {:?} {:?}", self.due, self.victim, self.friend);
    }
}

fn cargo(load: Vec<u8>, pages: bool) -> Cargo<Vec<u8>> {
    Cargo { load, token: None, pages, cookie: Some(1) }
}

fn header(kind: Kind, body: &[u8], known: &Known) -> Header {
    Header {
        kind,
        body: u16::try_from(body.len()).expect("a short body"),
        tag: known.index,
        generation: known.generation,
        awaited: 0,
        number: known.number,
        below: 0,
        held: 0,
        waits: false,
        calls: 0,
        asks: 0,
        bits: 0,
        words: [0, 0],
    }
}
