//! The world of one seed: endpoints, the wire, troubles, and time.

use std::collections::{BTreeSet, VecDeque};

use cutthrough_engine::net::batch::Batch;
use cutthrough_engine::net::{Net, Settings};
use cutthrough_engine::time::Instant;
use cutthrough_wire::frame::{FRAME_VERSION, HEADER_BYTES, Header, Kind, SEALED_BYTES};

use super::guard::{Doorkeeper, Sum};
use super::memory::Host;
use super::network::{Frame, Network};
use super::options::Options;
use super::random::{Random, hash};
use super::user::{Around, User};
use super::watch::Watch;
use super::{Bug, Summary, address, receive};

/// Bytes of one call to the network.
const MOST: usize = 65_000;
/// Batches that an endpoint receives before it does something else.
const RECEIVES: usize = 8;
/// Steps of a world, at most: a seed that needs more does not come to an end.
const STEPS: u64 = 3_000_000;

/// What goes wrong at a time, by weight.
const TROUBLES: [fn(&mut World); 9] = [
    World::crash,
    World::pause,
    World::jump,
    World::clog,
    World::cut,
    World::slow,
    World::replay,
    World::forge,
    World::close,
];

/// One life of an endpoint.
struct Living {
    net: Net<Host>,
    user: User,
}

/// An endpoint and its machine.
struct Node {
    living: Option<Living>,
    /// What has come and was not received yet.
    queue: VecDeque<Frame>,
    /// What its clock is ahead.
    ahead: u64,
    /// It does nothing until then.
    paused: u64,
    /// Its user takes nothing until then.
    slow: u64,
    starts: Option<u64>,
    wakes: u64,
    /// How often its user has found nothing to do.
    idle: u32,
}

/// Everything.
pub(super) struct World {
    options: Options,
    bug: Option<Bug>,
    random: Random,
    now: u64,
    nodes: Vec<Node>,
    network: Network,
    watch: Watch,
    summary: Summary,
    /// Who does something when.
    wakes: BTreeSet<(u64, usize)>,
    batch: Batch,
    lives: Vec<u64>,
    calm: Option<u64>,
}

impl World {
    pub(super) fn new(options: Options, bug: Option<Bug>, random: Random) -> Self {
        let nodes = options.nodes;
        let node = || Node {
            living: None,
            queue: VecDeque::new(),
            ahead: 0,
            paused: 0,
            slow: 0,
            starts: Some(0),
            wakes: u64::MAX,
            idle: 0,
        };
        let mut world = Self {
            network: Network::new(nodes),
            options,
            bug,
            random,
            now: 1,
            nodes: (0..nodes).map(|_| node()).collect(),
            watch: Watch::default(),
            summary: Summary { seeds: 1, ..Summary::default() },
            wakes: BTreeSet::new(),
            batch: Batch::default(),
            lives: vec![0; nodes],
            calm: None,
        };
        for index in 0..nodes {
            world.nodes[index].ahead = world.random.below(1 << 40);
            world.start(index);
        }
        world
    }

    /// Runs to the end.
    pub(super) fn run(&mut self) -> Result<(), String> {
        let mut troubles: Vec<u64> =
            (0..self.options.faults).map(|_| self.random.below(self.options.calm_ns)).collect();
        troubles.sort_unstable();
        for at in troubles {
            self.until(at, false)?;
            let mut at = self.random.below(self.options.weights.iter().sum::<u64>().max(1));
            let kind = self.options.weights.iter().position(|weight| {
                let found = at < *weight;
                at = at.saturating_sub(*weight);
                found
            });
            if let Some(kind) = kind {
                TROUBLES[kind](self);
            }
        }
        self.until(self.options.calm_ns, false)?;
        self.heal();
        // Small grants over a long way take their time.
        let patience = self.options.silence_ns * 3 + 120_000_000_000;
        self.until(self.now + patience, true)?;
        self.settled().map_err(|what| format!("nothing goes wrong any more, and still {what}"))?;
        // Everybody can call anybody.
        for _ in 0..self.nodes.len().min(4) {
            let (from, to) = self.pair();
            self.plan(from, to, 2);
        }
        self.until(self.now + patience, true)?;
        self.settled().map_err(|what| format!("with a new channel: {what}"))
    }

    pub(super) fn into_summary(mut self) -> Summary {
        self.summary.virtual_ns = self.now;
        self.summary.messages = self.watch.messages;
        self.summary.payload_bytes = self.watch.payload_bytes;
        self.summary
    }

    pub(super) const fn now(&self) -> u64 {
        self.now
    }

    fn pair(&mut self) -> (usize, usize) {
        let from = self.random.index(self.nodes.len());
        let to = (from + 1 + self.random.index(self.nodes.len() - 1)) % self.nodes.len();
        (from, to)
    }

    fn plan(&mut self, from: usize, to: usize, messages: u64) {
        let at = Instant::from_nanos(self.now + self.nodes[from].ahead);
        if let Some(living) = &mut self.nodes[from].living {
            living.user.plan(at, to, messages);
        }
        self.wake(from, self.now);
    }

    /// A new life.
    fn start(&mut self, index: usize) {
        self.summary.lives += 1;
        let life = self.random.next() | 1;
        let options = &self.options;
        let settings = Settings {
            slots: options.slots,
            unasked: options.unasked,
            granted: options.granted,
            silence_ns: options.silence_ns,
            channels: options.channels,
            body: options.body,
            life,
            process: u32::try_from(index).unwrap_or(0),
            user: 0,
        };
        let guard = Doorkeeper::new(options.sealed, Random::new(self.random.next()));
        let host = Host::new(options.page, options.guesses, options.kept);
        let mut net = Net::new(settings, host, Box::new(guard));
        net.begin_at(options.begin);
        net.listen(true);
        plant(&mut net, self.bug);
        let mut user = User::new((index, life));
        let calls = self.random.between(u64::from(index > 0), 2);
        let now = self.now + self.nodes[index].ahead;
        for _ in 0..calls {
            let to = (index + 1 + self.random.index(self.nodes.len() - 1)) % self.nodes.len();
            let at = now + self.random.below(1_000_000);
            user.plan(Instant::from_nanos(at), to, self.options.messages);
        }
        self.lives[index] = life;
        let node = &mut self.nodes[index];
        (node.living, node.starts) = (Some(Living { net, user }), None);
        node.queue.clear();
        self.wake(index, self.now);
    }

    fn wake(&mut self, index: usize, at: u64) {
        let at = at.max(self.nodes[index].paused).max(self.now);
        let before = self.nodes[index].wakes;
        if at < before {
            self.wakes.remove(&(before, index));
            self.wakes.insert((at, index));
            self.nodes[index].wakes = at;
        }
    }

    /// Lets time go on until then, or until there is nothing to be done.
    fn until(&mut self, end: u64, settles: bool) -> Result<(), String> {
        loop {
            let arrives = self.network.next().unwrap_or(u64::MAX);
            let wakes = self.wakes.first().map_or(u64::MAX, |first| first.0);
            let next = arrives.min(wakes);
            if next >= end || (settles && self.settled().is_ok()) {
                if next >= end {
                    self.now = self.now.max(end);
                }
                return Ok(());
            }
            self.now = self.now.max(next);
            self.summary.steps += 1;
            if self.summary.steps > STEPS {
                return Err(format!("{STEPS} steps were not enough"));
            }
            while let Some(frame) = self.network.take(self.now) {
                self.arrived(frame);
            }
            while let Some((at, index)) = self.wakes.first().copied().filter(|first| first.0 <= self.now) {
                self.wakes.remove(&(at, index));
                self.nodes[index].wakes = u64::MAX;
                self.poll(index)?;
            }
        }
    }

    fn arrived(&mut self, frame: Frame) {
        let (index, most) = (frame.to, self.options.queue);
        self.summary.hash = hash(self.summary.hash ^ self.now, &frame.bytes[..frame.bytes.len().min(HEADER_BYTES)]);
        let node = &mut self.nodes[index];
        if node.living.is_none() {
            return;
        }
        if node.queue.len() >= most {
            self.summary.injected.overflowed += 1;
            return;
        }
        node.queue.push_back(frame);
        let at = self.now + self.random.below(20_000);
        self.wake(index, at);
    }

    /// An endpoint does what there is to do.
    fn poll(&mut self, index: usize) -> Result<(), String> {
        let node = &mut self.nodes[index];
        if let Some(at) = node.starts {
            if at <= self.now {
                self.start(index);
            } else {
                self.wake(index, at);
            }
            return Ok(());
        }
        let Some(Living { net, user }) = &mut node.living else { return Ok(()) };
        let now = Instant::from_nanos(self.now + node.ahead);
        net.tick(now);
        for _ in 0..RECEIVES {
            if node.queue.is_empty() {
                break;
            }
            receive::together(net, now, &mut node.queue, address, user.lends());
        }
        if node.queue.is_empty() {
            net.looked(now);
        }
        let slow = self.now < node.slow;
        let mut around = Around {
            watch: &mut self.watch,
            random: &mut self.random,
            options: &self.options,
            summary: &mut self.summary,
            calm: self.calm.map(|calm| self.now - calm),
            lives: &self.lives,
        };
        let before = user.did;
        user.act(net, now, slow, &mut around)?;
        node.idle = if user.did > before { 0 } else { (node.idle + 1).min(10) };
        if self.random.chance(300) {
            net.hurry();
        }
        while let Some((to, bytes)) = net.greeting() {
            let frame = Frame { from: index, to: super::node_of(to), bytes };
            self.network.send(self.now, &frame, &self.options, &mut self.random, &mut self.summary);
        }
        let most = self.random.pick(&[1, 9_000, MOST, MOST]);
        while let Some((channel, to)) = net.batch(now, &mut self.batch, most) {
            for bytes in receive::frames(net, channel, &self.batch) {
                let frame = Frame { from: index, to: super::node_of(to), bytes };
                self.network.send(self.now, &frame, &self.options, &mut self.random, &mut self.summary);
            }
        }
        if let Some((channel, aside, most)) = net.aside().find(|(_, aside, most)| aside > most) {
            return Err(format!("{aside} bytes lie aside on channel {channel}, of at most {most}"));
        }
        let timer = net.timer().map(|timer| timer.as_nanos().saturating_sub(node.ahead).max(self.now + 1));
        let more = !node.queue.is_empty() || net.has_event() && !slow;
        let soon = if more { Some(self.now + 1_000) } else { None };
        let busy = user.is_busy() || slow;
        let later =
            busy.then(|| self.now + (20_000 << node.idle) + self.random.below(self.options.way_ns * 2 + 50_000));
        if let Some(at) = [timer, soon, later].into_iter().flatten().min() {
            self.wake(index, at);
        }
        Ok(())
    }

    /// What is left to be done, as a sentence.
    fn settled(&mut self) -> Result<(), String> {
        for node in &self.nodes {
            let Some(living) = &node.living else { return Err("an endpoint is down".into()) };
            living.user.is_settled(&mut self.watch)?;
        }
        Ok(())
    }

    fn heal(&mut self) {
        self.network.heal();
        let options = &mut self.options;
        (options.loss, options.duplicates, options.reorder, options.corrupt, options.truncate) = (0, 0, 0, 0, 0);
        self.calm = Some(self.now);
        for index in 0..self.nodes.len() {
            (self.nodes[index].paused, self.nodes[index].slow) = (0, 0);
            if self.nodes[index].living.is_none() {
                self.start(index);
            }
            if let Some(living) = &mut self.nodes[index].living {
                living.user.calm();
            }
            self.wake(index, self.now);
        }
    }

    fn crash(&mut self) {
        let index = self.random.index(self.nodes.len());
        self.summary.injected.crashes += 1;
        let down = self.random.pick(&[0, 1_000_000, 50_000_000, self.options.silence_ns]);
        let node = &mut self.nodes[index];
        node.living = None;
        node.queue.clear();
        node.starts = Some(self.now + down);
        self.lives[index] = 0;
        self.wake(index, self.now + down);
    }

    /// How long something goes on.
    fn span(&mut self) -> u64 {
        let longest = self.random.pick(&[100_000, 5_000_000, 100_000_000, self.options.silence_ns * 2]);
        self.random.below(longest)
    }

    fn pause(&mut self) {
        let index = self.random.index(self.nodes.len());
        self.summary.injected.pauses += 1;
        let until = self.now + self.span();
        self.nodes[index].paused = until;
        let at = self.nodes[index].wakes;
        if at < until {
            self.wakes.remove(&(at, index));
            self.wakes.insert((until, index));
            self.nodes[index].wakes = until;
        }
    }

    fn jump(&mut self) {
        let index = self.random.index(self.nodes.len());
        self.summary.injected.jumps += 1;
        let span = self.span();
        self.nodes[index].ahead += span;
        self.wake(index, self.now);
    }

    fn clog(&mut self) {
        let (from, to) = self.pair();
        self.summary.injected.clogs += 1;
        let until = self.now + self.span();
        self.network.clog(from, to, until);
    }

    fn cut(&mut self) {
        let (from, to) = self.pair();
        self.summary.injected.cuts += 1;
        let until = self.now + self.span();
        self.network.cut(from, to, until);
    }

    fn slow(&mut self) {
        let index = self.random.index(self.nodes.len());
        self.summary.injected.slow += 1;
        self.nodes[index].slow = self.now + self.span();
    }

    fn replay(&mut self) {
        for _ in 0..self.random.between(1, 8) {
            let Some(frame) = self.network.old(&mut self.random) else { return };
            self.summary.injected.replayed += 1;
            self.network.put(self.now + self.random.below(1_000_000), frame);
        }
    }

    fn close(&mut self) {
        let index = self.random.index(self.nodes.len());
        self.summary.injected.closed += 1;
        let mut around = Around {
            watch: &mut self.watch,
            random: &mut self.random,
            options: &self.options,
            summary: &mut self.summary,
            calm: None,
            lives: &self.lives,
        };
        if let Some(living) = &mut self.nodes[index].living {
            living.user.close(&mut living.net, &mut around);
        }
        self.wake(index, self.now);
    }

    /// Frames that nobody has sent.
    fn forge(&mut self) {
        for _ in 0..self.random.between(1, 8) {
            let (from, to) = self.pair();
            self.summary.injected.forged += 1;
            let random = &mut self.random;
            let old = self.network.old(random).filter(|_| random.chance(800));
            let mut frame = old.unwrap_or_else(|| {
                let bytes = (0..random.index(300)).map(|_| random.next().to_le_bytes()[0]).collect();
                Frame { from, to, bytes }
            });
            let kinds = [Kind::Open, Kind::Data, Kind::Records, Kind::Note, Kind::Close, Kind::Probe];
            let hellos = [Kind::Hello, Kind::Retry, Kind::Welcome, Kind::Refuse];
            if frame.bytes.len() >= HEADER_BYTES {
                let greets = Kind::from_raw(frame.bytes[1]).is_some_and(Kind::greets);
                frame.bytes[0] = FRAME_VERSION;
                let len = frame.bytes.len() - HEADER_BYTES;
                let at = random.between(12, 47);
                frame.bytes[usize::try_from(at).unwrap_or(12)] ^= 1 << random.below(8);
                if !greets && random.chance(500) {
                    // Another number, that the channel has not seen.
                    frame.bytes[16] = frame.bytes[16].wrapping_add(random.next().to_le_bytes()[0]);
                    frame.bytes[1] = random.pick(&kinds) as u8;
                }
                if greets && len > 0 {
                    frame.bytes[1] = random.pick(&hellos) as u8;
                    if frame.bytes[1] == Kind::Hello as u8 {
                        forge_hello(&mut frame.bytes, self.options.sealed, random);
                    }
                }
            }
            self.network.put(self.now + random.below(100_000), frame);
        }
    }

    /// Counters of every endpoint, for people.
    pub(super) fn story(&self) -> String {
        let living = self.nodes.iter().filter_map(|node| node.living.as_ref());
        living.map(|living| format!("\n{:?}", living.net)).collect()
    }
}

#[cfg(feature = "planted")]
fn plant(net: &mut Net<Host>, bug: Option<Bug>) {
    net.plant(bug);
}

#[cfg(not(feature = "planted"))]
const fn plant(_: &mut Net<Host>, _: Option<Bug>) {}

/// Makes a hello look right: something in it is changed, and its check sum is good.
fn forge_hello(bytes: &mut [u8], sealed: bool, random: &mut Random) {
    let (head, body) = bytes.split_at_mut(HEADER_BYTES);
    // Without keys nothing but the cookie keeps a forger out, and tag and generation their owner.
    let at = if sealed { random.index(56) } else { random.pick(&[0, 1, 4, 5, 6, 7, 16, 17, 18, 23]) };
    if body.len() <= at {
        return;
    }
    body[at] ^= 1 << random.below(8);
    let Some(header) = head.first_chunk() else { return };
    if Header::from_bytes(header).is_ok_and(|header| usize::from(header.body) == body.len()) {
        let sum = Sum::of(0, &head[..SEALED_BYTES], body);
        head[SEALED_BYTES..].copy_from_slice(&sum);
    }
}
