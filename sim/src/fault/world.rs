//! The world of one seed: endpoints, the wire, troubles, and time.

mod liars;
pub(super) mod trouble;

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use cutthrough_engine::net::batch::Batch;
use cutthrough_engine::net::trains::Trains;
use cutthrough_engine::net::ways::WAYS;
use cutthrough_engine::net::{Net, Settings};
use cutthrough_engine::time::Instant;
use cutthrough_wire::frame::HEADER_BYTES;

use super::bounds::Bounds;
use super::guard::Doorkeeper;
use super::liar::Liar;
use super::memory::Host;
use super::network::{Frame, Network};
use super::options::Options;
use super::random::{Random, hash};
use super::receive::Given;
use super::ring::{NOBODY, Rings};
use super::user::{Around, User};
use super::watch::{Life, Watch};
use super::{Bug, Summary, receive};

/// Bytes of one call to the network.
const MOST: usize = 65_000;
/// What a batch of the first way costs: nanoseconds for each, and bytes in a nanosecond.
const BATCH_NS: u64 = 2_000;
const BYTES_A_NS: u64 = 4;
/// For how long the sink is busy at most, when messages wait for others.
const BUSY_NS: u64 = 20_000;
/// Batches that an endpoint receives before it does something else.
const RECEIVES: usize = 8;
/// Messages of each channel when nothing goes wrong any more, where there is more than one way to try.
const RING_CALM: u64 = 24;
/// Within which time users have said most of what they have to say.
const SOON_NS: [u64; 3] = [1_000_000, 5_000_000, 20_000_000];
/// Frames lost in per mille, at most, where nobody is silent by chance.
const SMALL_LOSS: u64 = 50;
/// Time between two looks for channels to the dead.
const MOURN_NS: u64 = 100_000_000;
/// Steps of a world, at most: a seed that needs more does not come to an end.
const STEPS: u64 = 3_000_000;

/// One life of an endpoint.
struct Living {
    net: Net<Host>,
    trains: Trains,
    given: Given,
    user: User,
    bounds: Bounds,
}

/// An endpoint and its machine.
struct Node {
    living: Option<Living>,
    /// What has come and was not received yet.
    queue: VecDeque<Frame>,
    rings: Rings,
    /// The ways that it has now, a bit for each.
    ways: u8,
    /// What its clock is ahead.
    ahead: u64,
    /// It does nothing until then.
    paused: u64,
    /// Its user takes nothing until then.
    slow: u64,
    /// It was paused since it looked at its clock, or that was set.
    held: bool,
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
    /// Those that lie: their addresses follow those of the others.
    liars: Vec<Liar>,
    network: Network,
    watch: Watch,
    summary: Summary,
    /// Who does something when.
    wakes: BTreeSet<(u64, usize)>,
    batch: Batch,
    lives: Vec<u64>,
    calm: Option<u64>,
    /// Until when something goes wrong, of all that has begun so far.
    troubled: u64,
    /// Everybody has closed everything.
    closing: bool,
    /// What was found wrong while something went wrong.
    broken: Option<String>,
    /// How often the keys of frames have moved on.
    moved: Arc<AtomicU64>,
}

impl World {
    pub(super) fn new(options: Options, bug: Option<Bug>, random: Random) -> Self {
        let nodes = options.nodes;
        let node = |index: usize| Node {
            living: None,
            queue: VecDeque::new(),
            rings: Rings::default(),
            ways: options.ways.of[index],
            ahead: 0,
            paused: 0,
            slow: 0,
            held: false,
            starts: Some(0),
            wakes: u64::MAX,
            idle: 0,
        };
        let mut world = Self {
            network: Network::new(nodes + options.liars.count),
            bug,
            random,
            now: 1,
            nodes: (0..nodes).map(node).collect(),
            liars: Vec::new(),
            options,
            watch: Watch::default(),
            summary: Summary { seeds: 1, ..Summary::default() },
            wakes: BTreeSet::new(),
            batch: Batch::default(),
            lives: vec![0; nodes],
            calm: None,
            troubled: 0,
            closing: false,
            broken: None,
            moved: Arc::default(),
        };
        for index in 0..nodes {
            world.nodes[index].ahead = world.options.calls.clock(world.random.below(1 << 40));
            world.start(index);
        }
        world.let_liars_in();
        world
    }

    /// Runs to the end.
    pub(super) fn run(&mut self) -> Result<(), String> {
        for at in self.troubles() {
            if self.options.busy && self.random.chance(700) {
                let lead = self.random.below(self.options.way_ns * 4 + 50_000);
                self.until(at.saturating_sub(lead), false)?;
                self.go_on_talking();
            }
            self.until(at, false)?;
            self.trouble();
            self.broken.take().map_or(Ok(()), Err)?;
        }
        self.until(self.options.calm_ns, false)?;
        self.heal();
        self.mourn()?;
        // Small grants over a long way take their time.
        let patience = self.options.silence_ns * 3 + 120_000_000_000;
        self.until(self.now + patience, true)?;
        self.settled().map_err(|what| format!("nothing goes wrong any more, and still {what}"))?;
        // Who has nothing to say is not taken for dead.
        self.until(self.now + self.options.notice_ns() + 2 * self.options.silence_ns, false)?;
        if !self.liars.is_empty() {
            // One of them may have given somebody something to do just now.
            self.until(self.now + patience, true)?;
        }
        self.settled().map_err(|what| format!("nobody has said anything, and {what}"))?;
        // Everybody can call anybody.
        for _ in 0..self.nodes.len().min(4) {
            let (from, to) = self.pair();
            self.plan(from, to, 2);
        }
        self.until(self.now + patience, true)?;
        self.settled().map_err(|what| format!("with a new channel: {what}"))?;
        // Everybody closes everything: then nothing is held for anybody.
        self.close_all()?;
        self.until(self.now + self.options.deadline_ns + self.options.notice_ns(), true)?;
        self.settled().map_err(|what| format!("all channels were closed, and still {what}"))?;
        let mut living = self.nodes.iter().filter_map(|node| node.living.as_ref());
        living.try_for_each(|living| living.user.has_ended(&living.net))
    }

    /// When something goes wrong. Users say what they have to say at once, so half of it comes early, and a quarter
    /// soon after something else.
    fn troubles(&mut self) -> Vec<u64> {
        let calm = self.options.calm_ns;
        let mut times: Vec<u64> = Vec::new();
        for _ in 0..self.options.faults {
            let kind = if self.options.busy { self.random.below(4) } else { 3 };
            let at = match kind {
                3 => self.random.below(calm),
                kind => {
                    let soon = self.random.pick(&SOON_NS);
                    let after = if kind == 2 { times.last().copied().unwrap_or(0) } else { 0 };
                    after + self.random.below(soon)
                }
            };
            times.push(at.min(calm - 1));
        }
        times.sort_unstable();
        times
    }

    /// Everybody has something to say: something shall be under way when the next thing goes wrong.
    fn go_on_talking(&mut self) {
        for index in 0..self.nodes.len() {
            let has_talks = match &mut self.nodes[index].living {
                Some(living) => living.user.talk_on(&mut self.random),
                None => continue,
            };
            if !has_talks {
                let to = (index + 1 + self.random.index(self.nodes.len() - 1)) % self.nodes.len();
                self.plan(index, to, 8);
            }
            self.wake(index, self.now);
        }
    }

    fn close_all(&mut self) -> Result<(), String> {
        self.closing = true;
        for (index, node) in self.nodes.iter_mut().enumerate() {
            let Some(living) = &mut node.living else { continue };
            let mut around = Around {
                watch: &mut self.watch,
                random: &mut self.random,
                options: &self.options,
                summary: &mut self.summary,
                time: self.now,
                now: Instant::from_nanos(self.now + node.ahead),
                calm: Some(0),
                lives: &self.lives,
                ways: node.ways,
                held: false,
            };
            living.user.close_all(&mut living.net, &mut around)?;
            self.wakes.remove(&(node.wakes, index));
            self.wakes.insert((self.now, index));
            node.wakes = self.now;
        }
        Ok(())
    }

    pub(super) fn into_summary(mut self) -> Summary {
        self.summary.virtual_ns = self.now;
        self.summary.injected.moved_keys = self.moved.load(Ordering::Relaxed);
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
            deadline_ns: options.deadline_ns,
            channels: options.channels,
            body: options.body,
            life,
            process: u32::try_from(index).unwrap_or(0),
            user: 0,
        };
        let mut guard = Doorkeeper::new(Random::new(self.random.next()));
        if options.sealed {
            guard = guard.with_keys(index, options.locks, &self.moved);
        }
        let host = Host::new(options.page, options.guesses, options.kept);
        let mut net = Net::new(settings, host, Box::new(guard));
        net.begin_at(options.begin);
        net.listen(true);
        net.divide(options.policy);
        for way in (1..WAYS).filter(|_| options.ways.has_rings(index)) {
            net.limit_way(way, options.limit());
        }
        plant(&mut net, self.bug);
        let mut user = User::new((index, life), &self.options.calls);
        let calls = self.random.between(u64::from(index > 0), 2);
        let now = self.now + self.nodes[index].ahead;
        for _ in 0..calls {
            let to = (index + 1 + self.random.index(self.nodes.len() - 1)) % self.nodes.len();
            let at = now + self.random.below(1_000_000);
            user.plan(Instant::from_nanos(at), to, self.options.messages);
        }
        for liar in 0..self.options.liars.count {
            let at = Instant::from_nanos(now + self.random.below(1_000_000));
            if self.random.chance(600) && self.calm.is_none() {
                user.plan(at, self.options.nodes + liar, self.options.messages);
            }
        }
        self.lives[index] = life;
        let node = &mut self.nodes[index];
        let (trains, given, bounds) = (Trains::default(), Given::default(), Bounds::default());
        (node.living, node.starts) = (Some(Living { net, trains, given, user, bounds }), None);
        node.queue.clear();
        node.rings = Rings::of(index, &self.options);
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
            let next = arrives.min(wakes).min(self.liars_wake());
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
            self.lie()?;
        }
    }

    fn arrived(&mut self, frame: Frame) {
        let (index, most) = (frame.to, self.options.queue);
        self.summary.hash = hash(self.summary.hash ^ self.now, &frame.bytes[..frame.bytes.len().min(HEADER_BYTES)]);
        if self.options.lies(index) {
            return self.liar_hears(frame);
        }
        let node = &mut self.nodes[index];
        if node.living.is_none() {
            return;
        }
        let around = (&self.options, &self.network);
        let Some(frame) = node.rings.arrived(frame, around, &mut self.random, &mut self.summary) else {
            return self.look_soon(index);
        };
        if frame.from == NOBODY {
            // The kernel knows what to do with it.
            return;
        }
        if node.queue.len() >= most {
            self.summary.injected.overflowed += 1;
            return;
        }
        node.queue.push_back(frame);
        self.look_soon(index);
    }

    fn look_soon(&mut self, index: usize) {
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
        let Some(Living { net, user, trains, given, bounds }) = &mut node.living else { return Ok(()) };
        let now = Instant::from_nanos(self.now + node.ahead);
        let channels = (net.channels(), user.talks.len());
        for _ in 0..RECEIVES {
            if node.queue.is_empty() {
                break;
            }
            receive::receive((net, trains, given), now, &mut node.queue, user.lends(), &mut self.summary)?;
        }
        node.rings.take((net, given), now, user.lends(), &mut self.random, &mut self.summary)?;
        if self.options.liars.count == 0 {
            given.are_counted(net.tally(), 0)?;
        }
        let all = node.queue.is_empty() && node.rings.is_empty();
        if all {
            net.looked(now);
        }
        net.tick(now);
        if self.options.relief > 0 && self.random.chance(self.options.relief) {
            let still_ns = self.random.pick(&[0, 0, 20_000_000]);
            let waits = |net: &Net<_>| net.relieves_at(Instant::default(), 1).is_some();
            self.summary.injected.relieved += u64::from(still_ns == 0 && waits(net));
            net.relieve(now, still_ns);
            if still_ns == 0 && waits(net) {
                return Err("a payload that nobody reads has not made way".into());
            }
        }
        let slow = self.now < node.slow;
        let mut around = Around {
            watch: &mut self.watch,
            random: &mut self.random,
            options: &self.options,
            summary: &mut self.summary,
            time: self.now,
            now,
            calm: self.calm.map(|calm| self.now - calm),
            lives: &self.lives,
            ways: node.ways,
            held: std::mem::take(&mut node.held),
        };
        let before = user.did;
        user.act(net, now, slow, &mut around)?;
        if self.closing && self.options.liars.count > 0 {
            user.close_all(net, &mut around)?;
        }
        if !net.has_event() {
            given.are_counted(net.tally(), user.breached + net.tally().untold.iter().sum::<u64>())?;
        }
        let silent = std::mem::take(&mut user.silent);
        around.watch.are_counted((index, self.lives[index]), net.tally())?;
        node.idle = if user.did > before { 0 } else { (node.idle + 1).min(10) };
        if self.random.chance(300) {
            net.hurry();
        }
        while let Some((to, bytes)) = net.greeting() {
            let frame = Frame { from: index, to: super::node_of(to), way: 0, bytes };
            self.network.send(self.now, &frame, &self.options, &mut self.random, &mut self.summary);
        }
        let most = self.random.pick(&[1, 9_000, MOST, MOST]);
        // Where the sink is busy, what fills no train waits until it is not.
        let gathers = self.random.chance(250);
        loop {
            let next = match gathers {
                true => net.train(now, &mut self.batch, most),
                false => net.batch(now, &mut self.batch, most),
            };
            let Some((channel, to)) = next else { break };
            let way = self.batch.way().number;
            if user.talks.iter().any(|talk| talk.index == channel && talk.ways >> way & 1 == 0) {
                return Err(format!("channel {channel} goes way {way}, which it does not have"));
            }
            if way > 0 && self.batch.frames() > 1 && self.batch.bytes() > self.options.limit() {
                return Err(format!("{} bytes at once by way {way}", self.batch.bytes()));
            }
            if way == 0 {
                net.took(self.batch.bytes(), BATCH_NS + self.batch.bytes() as u64 / BYTES_A_NS);
            }
            for bytes in receive::frames(net, channel, &self.batch) {
                let frame = Frame { from: index, to: super::node_of(to), way, bytes };
                self.network.send(self.now, &frame, &self.options, &mut self.random, &mut self.summary);
            }
        }
        bounds.are_kept(net, now, user, &self.options)?;
        net.memory.are_untouched()?;
        if channels != (net.channels(), user.talks.len()) {
            user.has_all_back(net)?;
        }
        let timer = net.timer().into_iter().chain(user.due()).min();
        let timer = timer.map(|timer| timer.as_nanos().saturating_sub(node.ahead).max(self.now + 1));
        let more = !all || net.has_event() && !slow;
        let waits = gathers && net.has_work();
        let soon = if more { Some(self.now + 1_000) } else { waits.then(|| self.now + BUSY_NS) };
        let busy = user.is_busy() || slow;
        let later =
            busy.then(|| self.now + (20_000 << node.idle) + self.random.below(self.options.way_ns * 2 + 50_000));
        if let Some(at) = [timer, soon, later].into_iter().flatten().min() {
            self.wake(index, at);
        }
        self.have_cause(&silent)
    }

    /// Whether these may have been taken for dead while something went wrong. Where frames are hardly ever lost, and
    /// nothing else has gone wrong for as long as one may be silent, nobody may that lives and has the channel.
    fn have_cause(&self, silent: &[(Life, usize)]) -> Result<(), String> {
        let is_quiet =
            self.options.loss <= SMALL_LOSS && self.now > self.troubled.saturating_add(self.options.silence_ns);
        let talks = |&&((index, life), line): &&(Life, usize)| {
            let living = self.nodes[index].living.as_ref().filter(|_| self.lives[index] == life);
            living.is_some_and(|living| living.user.talks.iter().any(|talk| talk.line == line))
        };
        match silent.iter().find(talks).filter(|_| is_quiet && self.calm.is_none()) {
            Some((peer, _)) => Err(format!("{peer:?} is taken for dead, and nothing had gone wrong for that long")),
            None => Ok(()),
        }
    }

    /// What is left to be done, as a sentence.
    fn settled(&mut self) -> Result<(), String> {
        for node in &self.nodes {
            let Some(living) = &node.living else { return Err("an endpoint is down".into()) };
            living.user.is_settled(&mut self.watch)?;
            let channels = living.net.channels();
            let thrown_away = living.net.thrown_away();
            if thrown_away > 0 && (self.liars.is_empty() || self.closing) {
                return Err(format!("nobody has heard of {thrown_away} payloads that were thrown away"));
            }
            if self.closing && channels > 0 {
                return Err(format!("{channels} channels are open"));
            }
        }
        Ok(())
    }

    /// Lets as much time go on as it may take until the dead are known as dead, whatever else is left to be done.
    fn mourn(&mut self) -> Result<(), String> {
        let due = self.now + self.options.notice_ns();
        while self.now < due && self.dead_talk().is_some() {
            self.until(due.min(self.now + MOURN_NS), false)?;
        }
        self.dead_talk().map_or(Ok(()), Err)
    }

    /// A channel to an endpoint that has died, as a sentence.
    fn dead_talk(&self) -> Option<String> {
        let mut living = self.nodes.iter().filter_map(|node| node.living.as_ref());
        living.find_map(|living| living.user.talks_to_dead(&self.lives))
    }

    fn heal(&mut self) {
        self.network.heal(self.options.stays_narrow);
        let options = &mut self.options;
        (options.loss, options.duplicates, options.reorder, options.corrupt, options.truncate) = (0, 0, 0, 0, 0);
        self.calm = Some(self.now);
        for index in 0..self.nodes.len() {
            (self.nodes[index].paused, self.nodes[index].slow) = (0, 0);
            if self.nodes[index].living.is_none() {
                self.start(index);
            }
            let due = Instant::from_nanos(self.now + self.nodes[index].ahead + self.options.notice_ns());
            if let Some(living) = &mut self.nodes[index].living {
                living.user.calm(if self.options.ways.has_rings(index) { RING_CALM } else { 1 }, due);
            }
            self.heal_ways(index);
            self.wake(index, self.now);
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
