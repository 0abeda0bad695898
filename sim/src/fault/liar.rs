//! A peer that holds the key and lies. It comes to channels as anybody does, by an engine of its own; but of the frames
//! which that sends some are changed, and others are added, all of them with good seals ([`lies`]). What it is told by
//! the others may be nonsense to its own engine, which then ends the channel: it goes on without.

mod lies;
mod tap;

use std::collections::VecDeque;
use std::fmt;

use cutthrough_engine::check::Breach;
use cutthrough_engine::net::batch::Batch;
use cutthrough_engine::net::inbox::{Reading, ReadyPayload};
use cutthrough_engine::net::trains::Trains;
use cutthrough_engine::net::{Cargo as Load, Net, NetEvent, Settings};
use cutthrough_engine::time::Instant;
use cutthrough_engine::token::Token;
use cutthrough_wire::frame::{HEADER_BYTES, Header, Kind};
use serde::Serialize;

use self::lies::{Around, LIES, lie, lie_for_certain};
use self::tap::{Known, LyingGuard, Plain, Shared, Taps, lock};
use super::guard::Sum;
use super::memory::{Cargo, Host};
use super::network::{Frame, Network};
use super::options::Options;
use super::random::Random;
use super::receive::{self, Given};
use super::world::trouble::{forge_answer, forge_hello};
use super::{Summary, address, node_of};

/// Bytes of one call to the network.
const MOST: usize = 65_000;
/// Events and batches at a time.
const EVENTS: usize = 32;
/// Tokens that are remembered, used up or not.
const TOKENS: usize = 64;
/// Channels whose frames are remembered, longer than their ends.
const CHANNELS: usize = 12;
/// Looks after which they are half as often.
const LOOKS: u64 = 128;
/// Nanoseconds between looks when nothing else goes wrong any more, at least.
const CALM_NS: u64 = 10_000_000;

/// What peers with keys have lied, and what it has come to.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Lies {
    /// Frames that were changed before they went.
    pub changed: u64,
    /// Frames that were added.
    pub added: u64,
    /// Frames of handshakes that were changed.
    pub greetings: u64,
    /// Frames of channels of others, with the seal of one of its own.
    pub misplaced: u64,
    /// Frames that nobody can believe, brought in by themselves.
    pub certain: u64,
    /// How many of those have ended their channel: others are of one that had ended, or have a number that was used.
    pub caught: u64,
    /// Messages that were handed over, of channels whose other side lies.
    pub messages: u64,
    /// Channels that have ended because their peer broke a rule, by the rule: index, descriptor, length, and three that
    /// only shared memory has.
    pub breaches: [u64; Breach::ALL.len()],
}

impl Lies {
    /// Adds what has happened elsewhere.
    pub(super) fn add(&mut self, other: &Self) {
        let Self { changed, added, greetings, misplaced, certain, caught, messages, breaches } = self;
        let pairs = [
            (changed, other.changed),
            (added, other.added),
            (greetings, other.greetings),
            (misplaced, other.misplaced),
            (certain, other.certain),
            (caught, other.caught),
            (messages, other.messages),
        ];
        let all = pairs.into_iter().chain(breaches.iter_mut().zip(other.breaches));
        all.for_each(|(ours, theirs)| *ours += theirs);
    }
}

/// Who lies in a world, and how: drawn apart from everything else. Chances are in per mille.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Liars {
    pub(super) count: usize,
    /// Which lies there are, a bit for each.
    kinds: u32,
    /// Frames that are changed, and frames that are added, of those that are sent; and those that come at a time.
    changed: u64,
    added: u64,
    alone: u64,
    /// Looks at which one comes that cannot be believed.
    certain: u64,
    /// Handshakes that are changed.
    greetings: u64,
    /// Nanoseconds between two looks.
    pace_ns: u64,
    /// Whether what it says of itself when it calls is beyond all measure.
    boasts: bool,
    /// Whether it says that its life is that of another.
    pub(super) poses: bool,
}

impl Liars {
    pub(super) fn draw(random: &mut Random) -> Self {
        let one = 1 << random.index(LIES.len());
        let some = low_bits(random.next());
        let kinds = random.pick(&[one, one, some, some, (1 << LIES.len()) - 1]);
        Self {
            count: usize::try_from(random.pick(&[1, 1, 1, 1, 2, 3])).unwrap_or(1),
            kinds: if kinds == 0 { one } else { kinds },
            changed: random.pick(&[0, 2, 20, 100, 300]),
            added: random.pick(&[0, 2, 20, 100, 300]),
            alone: random.pick(&[5, 50, 300]),
            certain: random.pick(&[0, 1, 5, 20]),
            greetings: random.pick(&[0, 0, 100]),
            pace_ns: random.pick(&[100_000, 500_000, 2_000_000, 20_000_000]),
            boasts: random.chance(300),
            poses: random.chance(200),
        }
    }
}

#[allow(clippy::cast_possible_truncation, reason = "some bits of many")]
const fn low_bits(of: u64) -> u32 {
    of as u32 & ((1 << LIES.len()) - 1)
}

impl fmt::Display for Liars {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { count, kinds, changed, added, alone, certain, greetings, pace_ns, boasts, poses } = self;
        if *count == 0 {
            return Ok(());
        }
        write!(
            f,
            " liars {count} kinds {kinds:x} changed {changed} added {added} alone {alone} certain {certain} \
             greetings {greetings} pace_ns {pace_ns} boasts {boasts} poses {poses}"
        )
    }
}

/// A liar.
pub(super) struct Liar {
    index: usize,
    net: Net<Host>,
    trains: Trains,
    pub(super) queue: VecDeque<Frame>,
    batch: Batch,
    taps: Taps,
    random: Random,
    /// Channels of its engine's, and those that it has had in all.
    talks: Vec<usize>,
    channels: VecDeque<(usize, Shared)>,
    reads: VecDeque<(usize, u64, Vec<u8>, usize)>,
    tokens: Vec<Token>,
    looks: u64,
    /// When it does something next.
    pub(super) wakes: u64,
    /// When it looks next, whatever comes.
    due: u64,
}

/// What a liar does something in.
pub(super) struct Stage<'a> {
    pub(super) now: u64,
    pub(super) is_calm: bool,
    /// Nobody is called any more.
    pub(super) is_closing: bool,
    pub(super) options: &'a Options,
    /// Frames that have to be refused, and by whom.
    pub(super) certain: &'a mut Vec<Frame>,
    pub(super) network: &'a mut Network,
    pub(super) random: &'a mut Random,
    pub(super) summary: &'a mut Summary,
}

impl Liar {
    /// The one at this address, whose life is this.
    pub(super) fn new(index: usize, life: u64, options: &Options, mut random: Random) -> Self {
        let boasts = options.liars.boasts;
        let far =
            |random: &mut Random, honest: u64| if boasts { random.pick(&[honest, 1 << 20, 1 << 31]) } else { honest };
        let settings = Settings {
            slots: far(&mut random, options.slots),
            unasked: far(&mut random, options.unasked),
            granted: options.granted,
            silence_ns: options.silence_ns,
            deadline_ns: options.deadline_ns,
            channels: options.channels,
            body: options.body,
            life,
            process: u32::MAX,
            user: u32::MAX,
        };
        let taps = Taps::default();
        let guard = LyingGuard {
            keys: options.sealed.then_some((index, options.locks)),
            random: Random::new(random.next()),
            taps: taps.clone(),
            plain: Sum,
        };
        let mut net = Net::new(settings, Host::new(options.page, options.guesses, usize::MAX), Box::new(guard));
        net.begin_at(options.begin);
        net.listen(true);
        Self {
            index,
            net,
            trains: Trains::default(),
            queue: VecDeque::new(),
            batch: Batch::default(),
            taps,
            random,
            talks: Vec::new(),
            channels: VecDeque::new(),
            reads: VecDeque::new(),
            tokens: Vec::new(),
            looks: 0,
            wakes: 0,
            due: 0,
        }
    }

    /// Does what there is to do, and lies.
    pub(super) fn act(&mut self, stage: &mut Stage<'_>) -> Result<(), String> {
        let now = Instant::from_nanos(stage.now);
        while !self.queue.is_empty() {
            let nets = (&mut self.net, &mut self.trains, &mut Given::default());
            receive::receive(nets, now, &mut self.queue, None, &mut Summary::default())?;
        }
        self.net.looked(now);
        self.net.tick(now);
        for _ in 0..EVENTS {
            let Some(event) = self.net.next_event() else { break };
            self.event(event, stage);
        }
        self.read(now);
        let looks = stage.now >= self.due;
        if looks {
            self.looks += 1;
            self.talk(now, stage);
            if self.random.chance(stage.options.liars.alone) {
                self.lie_alone(stage);
            }
            if self.random.chance(stage.options.liars.certain) {
                self.lie_for_certain(stage);
            }
        }
        self.transmit(now, stage);
        if looks {
            let least = if stage.is_calm { CALM_NS } else { 0 };
            let pace = (stage.options.liars.pace_ns << (self.looks / LOOKS).min(10)).clamp(least, 1_000_000_000);
            self.due = stage.now + 1 + self.random.below(2 * pace);
        }
        let timer = self.net.timer().map_or(u64::MAX, |timer| timer.as_nanos().max(stage.now + 1_000));
        self.wakes = self.due.min(timer);
        Ok(())
    }

    fn event(&mut self, event: NetEvent<super::memory::Pages>, stage: &Stage<'_>) {
        match event {
            NetEvent::Opened(index) | NetEvent::Connected(index) => self.talks.push(index),
            NetEvent::Closed(index, _) => {
                self.talks.retain(|talk| *talk != index);
                self.reads.retain(|read| read.0 != index);
                self.net.memory.clear(index);
            }
            NetEvent::Message(index, ready) => {
                let control = &ready.control[..usize::from(ready.control_len)];
                self.tokens.extend(super::watch::token(control));
                if self.tokens.len() > TOKENS {
                    self.tokens.remove(0);
                }
                if let ReadyPayload::Arriving(message, story) = ready.payload
                    && u64::from(story.bytes) <= 2 * stage.options.longest
                {
                    self.reads.push_back((index, message, vec![0; story.bytes as usize], 0));
                }
            }
            NetEvent::Failed(..) | NetEvent::Completed(..) => {}
        }
    }

    /// Reads some of what has come, and leaves the rest.
    fn read(&mut self, now: Instant) {
        let Some((index, message, mut into, valid)) = self.reads.pop_front() else { return };
        let mut reading = Reading { message, into: &mut into };
        match self.net.read(now, index, &mut reading, valid, false) {
            Some((valid, false)) if self.random.chance(900) => self.reads.push_back((index, message, into, valid)),
            _ => drop(self.net.forget(index, message)),
        }
    }

    /// Calls somebody, says something, or ends something, as anybody may.
    fn talk(&mut self, now: Instant, stage: &Stage<'_>) {
        let (options, random) = (stage.options, &mut self.random);
        let few = self.talks.len() < options.nodes.min(4);
        if !stage.is_closing && random.chance(if few { 200 } else { 5 }) {
            let _ = self.net.call(now, address(random.index(options.nodes)), options.body);
        }
        if self.talks.is_empty() {
            return;
        }
        let at = random.index(self.talks.len());
        let index = self.talks[at];
        if random.chance(10) {
            self.talks.swap_remove(at);
            self.reads.retain(|read| read.0 != index);
            match random.chance(500) {
                true => self.net.close(index),
                false => self.net.abandon(index),
            }
            self.net.memory.clear(index);
            return;
        }
        for _ in 0..random.below(4) {
            if self.net.room(index).unwrap_or(0) == 0 {
                break;
            }
            let tells = random.chance(200).then(|| self.net.memory.grant(index, random.index(5000) + 1)).flatten();
            let control = super::watch::with_token(tells.map(|(token, _)| token), random);
            let most = random.pick(&[0, 0, 500, options.longest, 3 * options.longest]);
            let len = usize::try_from(random.below(most + 1)).unwrap_or(0);
            let token =
                (!self.tokens.is_empty() && random.chance(500)).then(|| self.tokens[random.index(self.tokens.len())]);
            let cargo = (len > 0).then(|| Load {
                load: Cargo { bytes: vec![0x5a; len], page: options.page, _counts: self.net.memory.cargoes.clone() },
                token,
                pages: random.chance(500),
                cookie: None,
            });
            let _ = self.net.send(index, &control, cargo);
        }
    }

    /// Sends what its engine sends, some of it changed, and more.
    fn transmit(&mut self, now: Instant, stage: &mut Stage<'_>) {
        while let Some((to, mut bytes)) = self.net.greeting() {
            let greets = bytes.get(1).copied().and_then(Kind::from_raw).filter(|kind| kind.greets());
            if self.random.chance(stage.options.liars.greetings)
                && let Some(kind) = greets
            {
                stage.summary.lies.greetings += 1;
                match kind {
                    Kind::Hello => forge_hello(&mut bytes, stage.options.sealed, &mut self.random),
                    _ => forge_answer(&mut bytes, &mut self.random),
                }
            }
            self.send(node_of(to), bytes, stage);
        }
        for _ in 0..EVENTS {
            let Some((channel, to)) = self.net.batch(now, &mut self.batch, MOST) else { break };
            self.net.took(self.batch.bytes(), 2_000);
            for bytes in receive::frames(&self.net, channel, &self.batch) {
                self.pass(node_of(to), bytes, stage);
            }
        }
    }

    /// A frame of its engine's goes, or what it is changed to; perhaps another one behind it.
    fn pass(&mut self, to: usize, bytes: Vec<u8>, stage: &mut Stage<'_>) {
        let header = bytes.first_chunk::<HEADER_BYTES>().and_then(|head| Header::from_bytes(head).ok());
        let known = header.and_then(|header| Some((header.number, self.taps.of(&header)?)));
        let Some((number, known)) = known else { return self.send(to, bytes, stage) };
        if !self.channels.iter().any(|(_, other)| std::sync::Arc::ptr_eq(other, &known)) {
            self.channels.push_back((to, known.clone()));
            if self.channels.len() > CHANNELS {
                self.channels.pop_front();
            }
        }
        let liars = stage.options.liars;
        let mut known = lock(&known);
        let true_one = known.plain(number).cloned();
        let changes = self.random.chance(liars.changed);
        match true_one.clone().filter(|_| changes) {
            Some(plain) => {
                stage.summary.lies.changed += 1;
                let bytes = self.lie(&mut known, plain, stage);
                self.send(to, bytes, stage);
            }
            None => self.send(to, bytes, stage),
        }
        if self.random.chance(liars.added)
            && let Some(plain) = true_one
        {
            let bytes = self.add(&mut known, plain, stage);
            self.send(to, bytes, stage);
        }
    }

    /// A frame of any channel, though its engine has nothing to say; also of those that have ended.
    fn lie_alone(&mut self, stage: &mut Stage<'_>) {
        if self.channels.is_empty() {
            return;
        }
        for _ in 0..self.random.between(1, 4) {
            let (to, known) = self.channels[self.random.index(self.channels.len())].clone();
            let mut known = lock(&known);
            if known.sent.is_empty() {
                continue;
            }
            let plain = known.sent[self.random.index(known.sent.len())].clone();
            if self.random.chance(50) {
                self.misplace(&mut known, plain, stage);
                continue;
            }
            let bytes = self.add(&mut known, plain, stage);
            self.send(to, bytes, stage);
        }
    }

    /// A frame that ends its channel, if it is new and there still is one.
    fn lie_for_certain(&mut self, stage: &mut Stage<'_>) {
        let Some((to, known)) = self.channels.back().cloned() else { return };
        let mut known = lock(&known);
        let Some(mut plain) = known.sent.back().cloned() else { return };
        known.top += 1;
        plain.header.number = known.top;
        let around = Around::new(stage.options, &known, &self.tokens, &mut self.random);
        lie_for_certain(&mut plain, &around, &mut self.random);
        let bytes = known.sealed(&plain);
        stage.certain.push(Frame { from: self.index, to, way: 0, bytes });
    }

    /// A lie with a number of its own: its engine will send others by it, which then come too late.
    fn add(&mut self, known: &mut Known, mut plain: Plain, stage: &mut Stage<'_>) -> Vec<u8> {
        stage.summary.lies.added += 1;
        known.top += self.random.pick(&[1, 1, 1, 2, 40]);
        plain.header.number = known.top;
        self.lie(known, plain, stage)
    }

    fn lie(&mut self, known: &mut Known, mut plain: Plain, stage: &Stage<'_>) -> Vec<u8> {
        let around = Around::new(stage.options, known, &self.tokens, &mut self.random);
        lie(&mut plain, stage.options.liars.kinds, &around, &mut self.random);
        known.sealed(&plain)
    }

    /// A frame that says to be of a channel of others, and has a good seal of another one. Where there are no keys
    /// whoever says to be somebody else is that, so there it comes from here.
    fn misplace(&mut self, known: &mut Known, mut plain: Plain, stage: &mut Stage<'_>) {
        let Some(old) = stage.network.old(&mut self.random) else { return };
        let header = old.bytes.first_chunk::<HEADER_BYTES>().and_then(|head| Header::from_bytes(head).ok());
        let Some(header) = header.filter(|header| !header.kind.greets() && old.to < stage.options.nodes) else {
            return;
        };
        if old.from == self.index {
            return;
        }
        (plain.header.tag, plain.header.generation) = (header.tag, header.generation);
        plain.header.number = header.number.wrapping_add(self.random.below(20));
        stage.summary.lies.misplaced += 1;
        let bytes = known.sealed(&plain);
        let from = if stage.options.sealed && self.random.chance(500) { old.from } else { self.index };
        stage.network.put(stage.now + self.random.below(100_000), Frame { from, to: old.to, way: 0, bytes });
    }

    fn send(&self, to: usize, bytes: Vec<u8>, stage: &mut Stage<'_>) {
        let frame = Frame { from: self.index, to, way: 0, bytes };
        stage.network.send(stage.now, &frame, stage.options, stage.random, stage.summary);
    }
}
