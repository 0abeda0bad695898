//! A storm on hosts that are not there.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::fmt;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use cutthrough::simulated::{Frames, Network, Time, Wire};
use cutthrough::{Config, Endpoint, Event, Instant, Keys, Placement, SharedKey, now};

use super::Node;
use crate::random::Random;
use crate::worlds::options::{Options, Ringed};
use crate::worlds::{address_by, caught, host, mend, spoilt};

/// The longest time between two looks at a host, in nanoseconds.
const STEP_NS: u64 = 1_000_000;
/// How long one operation may take: 3 MiB over the worst of these wires.
const LONGEST: Duration = Duration::from_secs(60);
/// Events that are taken from an endpoint beside an operation which waits.
const BESIDE: usize = 8;

/// What has happened.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Summary {
    /// Worlds.
    pub seeds: u64,
    /// Messages that have come.
    pub messages: u64,
    /// Bytes of payloads that were read.
    pub bytes: u64,
    /// Hosts that have died.
    pub deaths: u64,
    /// Datagrams.
    pub sent: u64,
    /// Datagrams that were lost, damaged, or cut off.
    pub spoilt: u64,
    /// Frames that have come to rings, that have landed where they belong or have been about to, and on the way of
    /// which the kernel has stopped.
    pub came: u64,
    /// See `came`.
    pub through: u64,
    /// See `came`.
    pub stopped: u64,
    /// Frames with parts of payloads that have come to hosts whose rings place them.
    pub loaded: u64,
    /// Worlds in which a third of these or more were let through.
    pub streamed: u64,
    /// A digest of every datagram: equal for equal runs.
    pub digest: u64,
}

impl Summary {
    /// Adds another one.
    pub const fn add(&mut self, other: &Self) {
        self.seeds += other.seeds;
        self.messages += other.messages;
        self.bytes += other.bytes;
        self.deaths += other.deaths;
        self.sent += other.sent;
        self.spoilt += other.spoilt;
        self.came += other.came;
        self.through += other.through;
        self.stopped += other.stopped;
        self.loaded += other.loaded;
        self.streamed += other.streamed;
        self.digest = self.digest.rotate_left(7) ^ other.digest;
    }
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { seeds, messages, bytes, deaths, sent, spoilt, came, through, stopped, .. } = self;
        let Self { loaded, streamed, digest, .. } = self;
        let mib = bytes >> 20;
        write!(
            f,
            "{seeds} storms: {messages} messages, {mib} MiB read, {deaths} deaths, {sent} datagrams ({spoilt} spoilt), \
             {came} frames at rings ({through} of {loaded} let through, {stopped} stopped; a third or more in \
             {streamed} worlds), digest {digest:016x}"
        )
    }
}

/// Runs the storm of a seed, in time of its own on this thread.
///
/// # Errors
/// What was broken, with the seed and its options.
pub fn world(seed: u64) -> Result<Summary, String> {
    let mut random = Random(seed);
    let options = Options::draw(&mut random);
    let run = || World::new(seed, options, None, random, Time::begin(seed)).run();
    caught(run).map_err(|what| format!("seed {seed} ({options}): {what}"))
}

/// The same where each host has a ring of AF_XDP, most of which place payloads where they belong, and kernels that stop
/// wherever they may. What has landed and was handed over is looked at again and again.
///
/// # Errors
/// As of [`world`].
pub fn ringed(seed: u64) -> Result<Summary, String> {
    let mut random = Random(seed ^ 0x7165);
    let mut options = Options::draw(&mut random);
    let ringed = Ringed::draw(&mut random);
    if ringed.streams {
        options.steady(&mut random);
    }
    let run = || World::new(seed, options, Some(ringed), random, Time::begin(seed)).run();
    caught(run).map_err(|what| format!("seed {seed} ({options}; {ringed:?}): {what}"))
}

/// A host: who is there, what it has not heard yet, and until when it does nothing.
#[derive(Default)]
struct Place {
    node: Option<Node>,
    unheard: VecDeque<Event>,
    paused: Instant,
    returns: Instant,
}

struct World {
    options: Options,
    ringed: Option<Ringed>,
    config: Config,
    random: Random,
    network: Network,
    places: Rc<Vec<RefCell<Place>>>,
    mends: Option<Instant>,
    /// Whose turn it is for a while, and for how many turns.
    streams: (usize, u64),
    summary: Summary,
    /// After all that knows the time.
    time: Time,
}

impl World {
    fn new(seed: u64, options: Options, ringed: Option<Ringed>, random: Random, time: Time) -> Self {
        let network = Network::new(seed, options.wire);
        ringed.iter().for_each(|ringed| network.interrupt(ringed.interrupts));
        let places: Rc<Vec<RefCell<Place>>> = Rc::new((0..options.hosts).map(|_| RefCell::default()).collect());
        let others = Rc::clone(&places);
        time.beside(move || {
            for place in others.iter() {
                // Who waits is in use.
                let Ok(mut place) = place.try_borrow_mut() else { continue };
                let Place { node: Some(node), unheard, paused, .. } = &mut *place else { continue };
                if *paused <= now() {
                    unheard.extend((0..BESIDE).map_while(|_| node.poll()));
                }
            }
        });
        let keys = options.sealed.then(|| Arc::new(Keys::Shared(SharedKey::from_bytes([7; 32]))));
        let config = Config {
            insecure: keys.is_none(),
            keys,
            slots: options.slots,
            // Whatever is sent has room.
            pool_bytes: 8 << 20,
            landing_bytes: ringed.map_or(32 << 20, |ringed| ringed.landing_bytes),
            staging_bytes: options.staging_bytes,
            silence: options.silence,
            ..Config::default()
        };
        let mut world = Self {
            options,
            ringed,
            config,
            random,
            network,
            places,
            mends: None,
            streams: (0, 0),
            summary: Summary { seeds: 1, ..Summary::default() },
            time,
        };
        (0..options.hosts).for_each(|index| world.start(index));
        world
    }

    fn start(&mut self, index: usize) {
        let copies = self.ringed.is_some() && self.random.below(4) == 0;
        let placement = if copies { Placement::Copy } else { Placement::HeaderCut };
        let config = Config { host: Some(self.network.host(host(index))), placement, ..self.config.clone() };
        let mut endpoint = Endpoint::open(config).expect("an endpoint");
        let address = |index| address_by(if self.ringed.is_some() { "xdp" } else { "udp" }, index);
        endpoint.listen(&address(index)).expect("a free port");
        let others = (0..self.places.len()).filter(|other| *other != index).map(address).collect();
        let mut node = Node::new(endpoint, Random(self.random.draw()), others);
        node.places = self.ringed.is_some();
        node.awaits = self.ringed.is_some_and(|ringed| ringed.streams);
        node.cuts = self.ringed.is_some() && !copies;
        node.stalls = self.ringed.is_some_and(|ringed| ringed.interrupts.refuses);
        *self.places[index].borrow_mut() = Place { node: Some(node), ..Place::default() };
    }

    fn end(&mut self, index: usize) {
        let place = std::mem::take(&mut *self.places[index].borrow_mut());
        if let Some(node) = &place.node {
            let (messages, bytes) = node.counts();
            self.summary.messages += messages;
            self.summary.bytes += bytes;
            self.summary.loaded += node.loaded();
        }
    }

    fn run(mut self) -> Result<Summary, String> {
        let pause = u64::try_from(self.options.pause.as_nanos()).unwrap_or(u64::MAX);
        for _ in 0..self.options.deeds * 4 {
            let for_ns = self.random.below(pause / 4 + 1);
            self.pass(for_ns);
            if self.random.below(4000) < self.options.faults {
                self.fault();
            }
            let index = self.turn();
            self.act(index);
        }
        self.calm()?;
        (0..self.places.len()).for_each(|index| self.end(index));
        let counts = self.network.counts();
        self.summary.sent = counts.sent;
        self.summary.spoilt = spoilt(&counts);
        let Frames { came, through, stopped, .. } = self.network.frames();
        (self.summary.came, self.summary.through, self.summary.stopped) = (came, through, stopped);
        self.summary.streamed = u64::from(through > 0 && through * 3 >= self.summary.loaded);
        self.summary.digest = counts.digest;
        Ok(self.summary)
    }

    fn index(&mut self) -> usize {
        usize::try_from(self.random.below(self.places.len() as u64)).unwrap_or_default()
    }

    /// Whose turn it is: where there are streams, that of one host for a while, as a rule.
    fn turn(&mut self) -> usize {
        if !self.ringed.is_some_and(|ringed| ringed.streams) {
            return self.index();
        }
        let (host, left) = self.streams;
        if left > 0 {
            self.streams.1 -= 1;
            return if self.random.below(8) == 0 { self.index() } else { host };
        }
        if let Some(node) = &mut self.places[host].borrow_mut().node {
            node.streams_to(None);
        }
        self.streams = (self.index(), 10 + self.random.below(40));
        let draw = self.random.draw();
        if let Some(node) = &mut self.places[self.streams.0].borrow_mut().node {
            node.streams_to(Some(draw));
        }
        self.streams.0
    }

    /// Lets so much time pass, while everybody hears what happens.
    fn pass(&mut self, for_ns: u64) {
        let until = now().after(for_ns);
        loop {
            self.hear();
            let left = until.saturating_since(now());
            if left == 0 {
                return;
            }
            self.time.pass(Duration::from_nanos(STEP_NS.min(left)));
        }
    }

    fn hear(&mut self) {
        let at = now();
        if self.mends.is_some_and(|mends| mends <= at) {
            self.mend(usize::MAX);
        }
        for index in 0..self.places.len() {
            let (is_down, returns) = {
                let place = self.places[index].borrow();
                (place.node.is_none(), place.returns)
            };
            if is_down && returns <= at {
                self.mend(index);
                self.start(index);
            }
            let mut place = self.places[index].borrow_mut();
            let Place { node: Some(node), unheard, paused, .. } = &mut *place else { continue };
            if self.ringed.is_some() && self.random.below(8) == 0 {
                node.look();
            }
            for _ in 0..if *paused > at { 0 } else { 64 } {
                let Some(event) = unheard.pop_front().or_else(|| node.poll()) else { break };
                node.hear(event);
            }
        }
    }

    fn act(&self, index: usize) {
        let begun = now();
        let mut place = self.places[index].borrow_mut();
        let paused = place.paused;
        let Some(node) = place.node.as_mut().filter(|_| paused <= begun) else { return };
        let _ = node.act();
        let took = Duration::from_nanos(now().saturating_since(begun));
        assert!(took < LONGEST, "{took:?} for one operation");
    }

    /// All wires are whole again, but those to hosts that are down.
    fn mend(&mut self, starts: usize) {
        self.mends = None;
        let is_down = |index: &usize| *index != starts && self.places[*index].borrow().node.is_none();
        mend(&self.network, (0..self.places.len()).filter(is_down));
    }

    fn fault(&mut self) {
        let at = now();
        let silence = u64::try_from(self.options.silence.as_nanos()).unwrap_or(u64::MAX);
        let long = self.random.below(2 * silence);
        let (from, to) = (self.index(), self.index());
        match self.random.below(5) {
            0 => {
                self.network.cut(host(from), host(to));
                self.mends = Some(at.after(long));
            }
            1 => {
                self.network.unplug(host(from));
                self.end(from);
                self.summary.deaths += 1;
                self.places[from].borrow_mut().returns = at.after(long / 2);
            }
            2 => self.places[from].borrow_mut().paused = at.after(long),
            3 => self.network.set_wire(host(from), host(to), Wire { loss: 0.3, ..self.options.wire }),
            _ => self.network.set_wires(self.options.wire),
        }
    }

    /// Nothing goes wrong any more: everybody comes to rest, and has everything back.
    fn calm(&mut self) -> Result<(), String> {
        let Wire { mtu, latency, bandwidth, .. } = self.options.wire;
        self.network.set_wires(Wire { mtu, latency, bandwidth, ..Wire::default() });
        for place in self.places.iter() {
            let mut place = place.borrow_mut();
            (place.paused, place.returns) = (Instant::default(), Instant::default());
        }
        self.hear();
        self.mend(usize::MAX);
        let silence = u64::try_from(self.options.silence.as_nanos()).unwrap_or(u64::MAX);
        // Who is not there any more is noticed, and calls have ended.
        self.pass(3 * silence + 3_000_000_000);
        let until = now().after(20_000_000_000);
        loop {
            let late: Vec<String> = self
                .places
                .iter()
                .zip(0..)
                .flat_map(|(place, index)| {
                    let mut place = place.borrow_mut();
                    let late = place.node.as_mut().map(|node| node.rests(&self.config)).unwrap_or_default();
                    late.into_iter().map(move |what| format!("host {index}: {what}"))
                })
                .collect();
            if late.is_empty() {
                break;
            }
            if now() > until {
                return Err(format!("after 20 s of rest: {late:#?}"));
            }
            self.pass(5 * STEP_NS);
        }
        // Says goodbye, and hears what is on its way.
        for _ in 0..3 {
            for place in self.places.iter() {
                place.borrow_mut().node.iter_mut().for_each(Node::close_all);
            }
            self.pass(200_000_000);
        }
        let open = self.places.iter().filter(|place| place.borrow().node.as_ref().is_some_and(Node::has_channels));
        match open.count() {
            0 => Ok(()),
            many => Err(format!("{many} hosts have channels after everybody has closed all")),
        }
    }
}
