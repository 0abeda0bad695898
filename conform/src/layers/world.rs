//! The world of a seed: hosts, what they do, what happens to them, and time.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::{Arc, Weak};
use std::time::Duration;

use cutthrough::am::Service;
use cutthrough::simulated::{Network, Time, Wire};
use cutthrough::{Instant, now};

use super::Summary;
use super::calls::GivenBack;
use super::life::Life;
use super::pages::check_sum;
use super::watch::Shared;
use crate::random::Random;
use crate::worlds::options::Options;
use crate::worlds::{address, host, mend};

/// The longest time between two looks at a host, in nanoseconds.
const STEP_NS: u64 = 1_000_000;
/// How long a call may be awaited after its time, by what is not polled for: see `am`, which looks at its clock seldom.
const GRACE_NS: u64 = 300_000_000;

/// Hosts, as those see them that run beside an operation which waits.
#[derive(Default)]
struct Beside {
    services: Vec<Option<Arc<Service>>>,
    /// Until when each does nothing.
    paused: Vec<Instant>,
}

/// Everything.
pub(super) struct World {
    options: Options,
    random: Random,
    network: Network,
    watch: Shared,
    lives: Vec<Option<Life>>,
    births: Vec<u64>,
    /// When a host that is down comes back, and when all wires are whole again.
    returns: Vec<Instant>,
    mends: Option<Instant>,
    beside: Rc<RefCell<Beside>>,
    back: GivenBack,
    /// Services that are kept by calls which they go on with, though their hosts are down.
    left: Vec<(usize, Weak<Service>)>,
    /// After all that knows the time.
    time: Time,
}

impl World {
    pub(super) fn new(seed: u64, options: Options, random: Random, time: Time) -> Self {
        let hosts = options.hosts;
        let network = Network::new(seed, options.wire);
        let beside = Beside { services: vec![None; hosts], paused: vec![Instant::default(); hosts] };
        let beside = Rc::new(RefCell::new(beside));
        let others = Rc::clone(&beside);
        time.beside(move || {
            let at = now();
            let many = others.borrow().services.len();
            for index in 0..many {
                let others = others.borrow();
                let service = others.services[index].clone().filter(|_| others.paused[index] <= at);
                drop(others);
                service.iter().for_each(|service| service.turn());
            }
        });
        let mut world = Self {
            options,
            random,
            network,
            watch: Shared::default(),
            lives: (0..hosts).map(|_| None).collect(),
            births: vec![0; hosts],
            returns: vec![Instant::default(); hosts],
            mends: None,
            beside,
            back: GivenBack::default(),
            left: Vec::new(),
            time,
        };
        (0..hosts).for_each(|index| world.start(index));
        world
    }

    /// Runs to the end: what has happened.
    pub(super) fn run(&mut self) -> Result<Summary, String> {
        let pause = u64::try_from(self.options.pause.as_nanos()).unwrap_or(u64::MAX);
        for _ in 0..self.options.deeds {
            let for_ns = self.random.below(pause);
            self.pass(for_ns)?;
            if self.random.below(1000) < self.options.faults {
                self.fault();
            } else {
                self.act()?;
            }
        }
        self.calm()?;
        self.back.check(true)?;
        let watch = self.watch.lock();
        watch.check()?;
        for (name, sum) in &watch.sums {
            check_sum(*name, &watch.owned[name], sum.done, sum.maybe)?;
        }
        let mut summary = Summary { seeds: 1, ..watch.summary };
        summary.count(&self.network.counts());
        Ok(summary)
    }

    fn start(&mut self, index: usize) {
        self.births[index] += 1;
        let life = Life::begin((index, self.births[index]), &self.network, &self.options, &self.watch);
        self.beside.borrow_mut().services[index] = Some(Arc::clone(&life.service));
        self.lives[index] = Some(life);
    }

    fn end(&mut self, index: usize) {
        self.beside.borrow_mut().services[index] = None;
        if let Some(life) = self.lives[index].take() {
            self.watch.lock().dies(life.name);
            self.left.push((index, Arc::downgrade(&life.service)));
        }
    }

    /// Lets so much time pass.
    fn pass(&mut self, for_ns: u64) -> Result<(), String> {
        let until = now().after(for_ns);
        loop {
            self.turn()?;
            let left = until.saturating_since(now());
            if left == 0 {
                return Ok(());
            }
            self.time.pass(Duration::from_nanos(STEP_NS.min(left)));
        }
    }

    /// Has everybody do what there is to do now.
    fn turn(&mut self) -> Result<(), String> {
        let at = now();
        if self.mends.is_some_and(|mends| mends <= at) {
            self.mend();
        }
        self.left.retain(|(_, service)| service.upgrade().inspect(|service| service.turn()).is_some());
        for index in 0..self.lives.len() {
            let is_left = self.left.iter().any(|(of, _)| *of == index);
            if self.lives[index].is_none() && self.returns[index] <= at && !is_left {
                self.mend_but(index);
                self.start(index);
            }
            if self.beside.borrow().paused[index] > at {
                continue;
            }
            if let Some(life) = &mut self.lives[index] {
                life.service.turn();
                life.poll(&self.watch, &mut self.back);
            }
        }
        self.back.check(false)?;
        self.watch.lock().check()
    }

    /// All wires are whole again, but those to hosts that are down.
    fn mend(&mut self) {
        self.mend_but(usize::MAX);
    }

    fn mend_but(&mut self, starts: usize) {
        self.mends = None;
        let down = |index: &usize| *index != starts && self.lives[*index].is_none();
        mend(&self.network, (0..self.lives.len()).filter(down));
    }

    fn index(&mut self, end: usize) -> usize {
        usize::try_from(self.random.below(end as u64)).unwrap_or_default()
    }

    /// Somebody who is there, and somebody else.
    fn two(&mut self) -> Option<(usize, usize)> {
        let (at, many) = (now(), self.lives.len());
        let from = self.index(many);
        let to = (from + 1 + self.index(many - 1)) % many;
        (self.lives[from].is_some() && self.beside.borrow().paused[from] <= at).then_some((from, to))
    }

    /// Somebody does something.
    fn act(&mut self) -> Result<(), String> {
        let Some((from, to)) = self.two() else { return Ok(()) };
        let Self { lives, random, options, watch, back, births, .. } = self;
        let Some(life) = &mut lives[from] else { return Ok(()) };
        match random.below(12) {
            0..7 => {
                for _ in 0..=random.below(4) {
                    if let Some(client) = life.client(to, options.within) {
                        life.call(random, &client, options.longest, options.within, watch);
                    }
                }
            }
            7 => life.cancel(random, watch, back),
            8 | 9 => life.answer(random, false),
            _ => {
                let name = (to, births[to]);
                let owned = watch.lock().owned.get(&name).cloned();
                if let (Some(channel), Some(owned)) = (life.channel(to), owned) {
                    let done = life.operate(random, (name, channel, &owned), options.within, watch)?;
                    let summary = &mut watch.lock().summary;
                    let count = if done { &mut summary.moved } else { &mut summary.unmoved };
                    *count += 1;
                }
            }
        }
        Ok(())
    }

    /// Something goes wrong.
    fn fault(&mut self) {
        let at = now();
        let silence = u64::try_from(self.options.silence.as_nanos()).unwrap_or(u64::MAX);
        let long = self.random.below(2 * silence);
        let many = self.lives.len();
        let (from, to) = (self.index(many), self.index(many));
        match self.random.below(6) {
            0 => {
                self.network.cut(host(from), host(to));
                self.mends = Some(at.after(long));
            }
            1 => {
                self.network.unplug(host(from));
                self.end(from);
                self.returns[from] = at.after(long / 2);
            }
            // In good order: what it says last may be lost.
            2 => {
                self.end(from);
                self.network.unplug(host(from));
                self.returns[from] = at.after(long / 2);
            }
            3 => self.beside.borrow_mut().paused[from] = at.after(long),
            4 => {
                let wire = Wire { loss: 0.3, ..self.options.wire };
                self.network.set_wire(host(from), host(to), wire);
            }
            _ => self.network.set_wires(self.options.wire),
        }
    }

    /// Nothing goes wrong any more: everything ends, and everybody reaches everybody.
    fn calm(&mut self) -> Result<(), String> {
        let Wire { mtu, latency, bandwidth, .. } = self.options.wire;
        self.network.set_wires(Wire { mtu, latency, bandwidth, ..Wire::default() });
        self.beside.borrow_mut().paused.fill(Instant::default());
        self.returns.fill(Instant::default());
        self.turn()?;
        self.mend();
        let silence = u64::try_from(self.options.silence.as_nanos()).unwrap_or(u64::MAX);
        // Who is not there any more is noticed, and every deadline passes.
        let until = now().after(3 * silence + 5_000_000_000);
        while now() < until {
            for life in self.lives.iter().flatten() {
                life.answer(&mut self.random, true);
            }
            self.pass(20_000_000)?;
            self.watch.lock().all_have_ended(GRACE_NS)?;
        }
        let open = self.watch.lock().all_have_ended(0)?;
        if open > 0 {
            return Err(format!("{open} calls have no deadline"));
        }
        for from in 0..self.lives.len() {
            for to in (0..self.lives.len()).filter(|to| *to != from) {
                self.reaches(from, to).map_err(|what| format!("{} to {}: {what}", from, address(to)))?;
            }
        }
        Ok(())
    }

    /// Where nothing goes wrong everybody can call everybody, and use the other's memory.
    fn reaches(&mut self, from: usize, to: usize) -> Result<(), String> {
        let within = Duration::from_secs(10);
        let name = (to, self.births[to]);
        let failed = self.watch.lock().summary.failed;
        for _ in 0..3 {
            let life = self.lives[from].as_mut().ok_or("nobody is there")?;
            let client = life.client(to, within).ok_or("no client can be had")?;
            life.call_again(&client, self.options.longest, within, &self.watch);
            let until = now().after(12_000_000_000);
            while now() < until && self.lives[from].as_ref().is_some_and(|life| !life.under.is_empty()) {
                self.pass(100_000)?;
            }
            if self.watch.lock().summary.failed > failed {
                let why = self.watch.lock().last_failure();
                return Err(format!("a call has failed where nothing goes wrong: {why}"));
            }
        }
        let until = now().after(5_000_000_000);
        let channel = loop {
            let life = self.lives[from].as_ref().ok_or("nobody is there")?;
            match life.channel(to) {
                Some(channel) => break channel,
                None if now() > until => return Err("no channel can be had".into()),
                None => self.pass(STEP_NS)?,
            }
        };
        let owned = self.watch.lock().owned.get(&name).cloned().ok_or("no region")?;
        for _ in 0..5 {
            let life = self.lives[from].as_mut().ok_or("nobody is there")?;
            if !life.operate(&mut self.random, (name, channel, &owned), within, &self.watch)? {
                return Err("an operation on a region has failed where nothing goes wrong".into());
            }
            self.watch.lock().summary.moved += 1;
            self.turn()?;
        }
        Ok(())
    }
}

impl Drop for World {
    fn drop(&mut self) {
        (0..self.lives.len()).for_each(|index| self.end(index));
    }
}
