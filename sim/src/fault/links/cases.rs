//! Ways that are not like a machine room, and what they carry.

use super::{Flow, Link, Machine, World};

/// Nanoseconds.
pub const MILLISECOND: u64 = 1_000_000;
/// Nanoseconds.
pub const SECOND: u64 = 1_000_000_000;
/// Bits in a second.
pub const MEGABIT: u64 = 1_000_000;

/// Bytes that a link carries in so many milliseconds.
const fn queue(rate: u64, ms: u64) -> u64 {
    rate / 8_000 * ms
}

/// Messages of 64 KiB from machine 0 to machine 1, of which so many are under way at a time.
fn stream(ahead: u64) -> [Flow; 1] {
    [Flow::stream((0, 1), ahead)]
}

/// Frames that go in turn by two links of such a rate, whose round trips take so long: Mbit/s after 3 s.
#[must_use]
pub fn two_ways(rate: u64, rounds: [u64; 2]) -> f64 {
    let link = |round| Link::new(rate, 1 << 20, round / 2);
    let links = vec![link(rounds[0]), link(rounds[1]), link(rounds[0])];
    let mut world = World::new(vec![Machine::default(); 2], links, &stream(32), 1);
    world.path((0, 1), &[&[0], &[1]]);
    world.path((1, 0), &[&[2]]);
    world.run_until(6 * SECOND);
    world.rate(0, 3 * SECOND, 6 * SECOND)
}

/// So many per cent of frames come up to `late` later than others: Mbit/s after 3 s.
#[must_use]
pub fn late_frames(rate: u64, round: u64, (per_cent, late): (u64, u64)) -> f64 {
    let delay = move |_, draw: u64| round / 2 + if draw % 100 < per_cent { (draw >> 16) % late } else { 0 };
    let there = Link::new(rate, 1 << 20, 0).delaying(delay);
    let mut world = World::pair(Machine::default(), [there, Link::new(rate, 1 << 20, round / 2)], &stream(32));
    world.run_until(6 * SECOND);
    world.rate(0, 3 * SECOND, 6 * SECOND)
}

/// A round trip that takes `after` instead of `before` from 4 s on: Mbit/s before that, and in each second after it.
#[must_use]
pub fn longer(rate: u64, before: u64, after: u64) -> (f64, Vec<f64>) {
    let delay = move |now, _| if now < 4 * SECOND { before / 2 } else { after / 2 };
    let links = [0, 1].map(|_| Link::new(rate, queue(rate, 50), 0).delaying(delay));
    let mut world = World::pair(Machine::default(), links, &stream(64));
    world.run_until(20 * SECOND);
    let rates = (4..20).map(|second| world.rate(0, second * SECOND, (second + 1) * SECOND));
    (world.rate(0, 2 * SECOND, 4 * SECOND), rates.collect())
}

/// A link that carries `less` from 3 s on, for 4 s: Mbit/s before, in the last second of that time, and in each half
/// second after it.
#[must_use]
pub fn slower(rate: u64, less: u64, round: u64) -> (f64, f64, Vec<f64>) {
    let (begun, end) = (3 * SECOND, 7 * SECOND);
    let carries = move |now, _| if (begun..end).contains(&now) { less } else { rate };
    let there = Link::new(rate, queue(rate, 20), round / 2).carrying(carries);
    let mut world = World::pair(Machine::default(), [there, Link::new(rate, queue(rate, 20), round / 2)], &stream(64));
    world.run_until(9 * SECOND);
    let halves = (0..4).map(|half| end + half * SECOND / 2);
    let after = halves.map(|from| world.rate(0, from, from + SECOND / 2)).collect();
    (world.rate(0, begun - SECOND, begun), world.rate(0, end - SECOND, end), after)
}

/// Senders who share one link to a receiver, each begun `gap` after the one before.
#[derive(Debug, Clone, Copy)]
pub struct Crowd {
    /// How many.
    pub senders: usize,
    /// Bits in a second.
    pub rate: u64,
    /// The round trip in nanoseconds.
    pub round: u64,
    /// In nanoseconds.
    pub gap: u64,
    /// Milliseconds that a frame waits at most.
    pub queue_ms: u64,
    /// Messages of each that are under way at a time.
    pub ahead: u64,
}

impl Crowd {
    /// Has them send until then. Flow `k` is that of sender `k`; link 0 is the one that they share.
    #[must_use]
    pub fn run(&self, until: u64) -> World {
        let Self { senders, rate, round, gap, queue_ms, ahead } = *self;
        let mut links = vec![Link::new(rate, queue(rate, queue_ms), round / 2)];
        links.push(Link::new(rate.max(1_000 * MEGABIT), u64::MAX, round / 2));
        links.extend((0..senders).map(|_| Link::new(10_000 * MEGABIT, u64::MAX, 500)));
        let flow = |number: usize| Flow { begins: number as u64 * gap, ..Flow::stream((number + 1, 0), ahead) };
        let flows: Vec<Flow> = (0..senders).map(flow).collect();
        let mut world = World::new(vec![Machine::default(); senders + 1], links, &flows, 1);
        for sender in 1..=senders {
            world.path((sender, 0), &[&[sender + 1, 0]]);
            world.path((0, sender), &[&[1]]);
        }
        world.run_until(until);
        world
    }

    /// How long a frame has waited for the link that they share, in milliseconds on average.
    #[must_use]
    pub fn waited_ms(&self, world: &World, until: u64) -> f64 {
        let bytes = world.link(0).stood / u128::from(until);
        u32::try_from(bytes).map_or(f64::INFINITY, f64::from) * 8e3 / self.rate as f64
    }
}

/// How even rates are (Jain's index): 1 if they are equal, and one of so many if only one is not 0.
#[must_use]
pub fn evenness(rates: &[f64]) -> f64 {
    let sum: f64 = rates.iter().sum();
    sum * sum / (rates.len() as f64 * rates.iter().map(|rate| rate * rate).sum::<f64>())
}

/// Messages of so many bytes over a long way, 64 MiB of them under way at a time, from pages to pages or not, to a
/// machine with a socket of `buffer` bytes that computes for so many of every 20 ms: Mbit/s after 3 s, most bytes that
/// have waited in the socket, and frames for which it had no room.
#[must_use]
pub fn far(rate: u64, round: u64, (bytes, buffer): (usize, u64), pages: bool, computes_ms: u64) -> (f64, u64, u64) {
    let links = [0, 1].map(|_| Link::new(rate, queue(rate, 50), round / 2));
    let flow = Flow { bytes, pages, ..Flow::stream((0, 1), (64 << 20) / bytes as u64) };
    let pauses = if computes_ms == 0 { 0..0 } else { 0..300 };
    let pauses = pauses.map(|at| (at * 20 * MILLISECOND, (at * 20 + computes_ms) * MILLISECOND)).collect();
    let receiver = Machine { buffer, pauses, ..Machine::default() };
    let mut world = World::new(vec![Machine { buffer, ..Machine::default() }, receiver], links.into(), &[flow], 1);
    world.path((0, 1), &[&[0]]);
    world.path((1, 0), &[&[1]]);
    world.run_until(6 * SECOND);
    let (most, dropped) = world.socket(1);
    (world.rate(0, 3 * SECOND, 6 * SECOND), most, dropped)
}

/// What comes after nothing has come through for a while.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Recovery {
    /// Mbit/s before.
    pub before: f64,
    /// Milliseconds from its end to the first message.
    pub first_ms: f64,
    /// Milliseconds from its end until four fifths of that rate were carried for a while.
    pub recovered_ms: f64,
}

impl Recovery {
    /// That of the first flow, of which nothing has come through since `begun`, until `end`.
    fn of(world: &World, (begun, end): (u64, u64), while_ns: u64) -> Self {
        let before = world.rate(0, begun - SECOND, begun);
        let ends = (1..4_000).map(|quarter| end + while_ns + quarter * (while_ns / 4));
        let recovered = ends.take_while(|at| *at <= end + 20 * SECOND);
        let recovered = recovered.into_iter().find(|at| world.rate(0, at - while_ns, *at) >= 0.8 * before);
        let ms = |after: Option<u64>| after.map_or(f64::INFINITY, |nanos| nanos as f64 / 1e6);
        let first_ms = ms(world.first_after(0, end));
        Self { before, first_ms, recovered_ms: ms(recovered.map(|at| at - end)) }
    }
}

/// Nothing comes through for `out`, in either direction.
#[must_use]
pub fn outage(rate: u64, round: u64, out: u64) -> Recovery {
    let (begun, end) = (3 * SECOND, 3 * SECOND + out);
    let link = |_| Link::new(rate, queue(rate, 20), round / 2).losing(move |now, _, _| (begun..end).contains(&now));
    let mut world = World::pair(Machine { buffer: 32 << 20, ..Machine::default() }, [0, 1].map(link), &stream(64));
    world.run_until(end + 4 * SECOND);
    Recovery::of(&world, (begun, end), (4 * round).max(10 * MILLISECOND))
}

/// No frame of more than so many bytes comes through from now on.
#[must_use]
pub fn shorter_frames(rate: u64, round: u64, most: usize) -> Recovery {
    let begun = 2 * SECOND;
    let there = Link::new(rate, queue(rate, 20), round / 2).losing(move |now, _, len| now >= begun && len > most);
    let mut world = World::pair(Machine::default(), [there, Link::new(rate, queue(rate, 20), round / 2)], &stream(16));
    world.run_until(begun + 22 * SECOND);
    Recovery::of(&world, (begun, begun + 2 * round), (5 * round).max(20 * MILLISECOND))
}

/// A receiver that stands still for a while.
#[must_use]
pub fn standstill(rate: u64, round: u64, still: u64) -> Recovery {
    let (begun, end) = (2 * SECOND, 2 * SECOND + still);
    let links = vec![Link::new(rate, queue(rate, 20), round / 2), Link::new(rate, queue(rate, 20), round / 2)];
    let machines = vec![Machine::default(), Machine { pauses: vec![(begun, end)], ..Machine::default() }];
    let mut world = World::new(machines, links, &stream(16), 1);
    world.path((0, 1), &[&[0]]);
    world.path((1, 0), &[&[1]]);
    world.run_until(end + 4 * SECOND);
    Recovery::of(&world, (begun, end), (4 * round).max(10 * MILLISECOND))
}

/// So many frames in a million are lost there, and so many back: Mbit/s after a second.
#[must_use]
pub fn losses(rate: u64, round: u64, [there, back]: [u64; 2]) -> f64 {
    let lossy = |per_million| {
        let link = Link::new(rate, queue(rate, 20), round / 2);
        link.losing(move |_, draw, _| draw % 1_000_000 < per_million)
    };
    let mut world = World::pair(Machine::default(), [lossy(there), lossy(back)], &stream(32));
    world.run_until(2 * SECOND);
    world.rate(0, SECOND, 2 * SECOND)
}

/// Much more comes there than back: Mbit/s after 5 s.
#[must_use]
pub fn slow_back(rate: u64, back: u64, round: u64) -> f64 {
    let links = [Link::new(rate, queue(rate, 50), round / 2), Link::new(back, 64 << 10, round / 2)];
    let mut world = World::pair(Machine::default(), links, &stream(32));
    world.run_until(10 * SECOND);
    world.rate(0, 5 * SECOND, 10 * SECOND)
}

/// Payloads of so many bytes, one after the other, to a receiver with so many other channels, on which nothing has come
/// for long: how long the median takes, in microseconds.
#[must_use]
pub fn beside_idle(idle: usize, bytes: usize) -> f64 {
    let (rate, round) = (10_000 * MEGABIT, 50_000);
    let mut links = vec![Link::new(rate, 4 << 20, round / 2), Link::new(rate, u64::MAX, round / 2)];
    links.extend((0..=idle).map(|_| Link::new(rate, u64::MAX, 500)));
    let greets = |number: usize| Flow {
        begins: number as u64 * MILLISECOND,
        messages: 1,
        bytes: 0,
        ..Flow::stream((number + 2, 0), 1)
    };
    let begins = (idle as u64 + 100) * MILLISECOND;
    let active = Flow { begins, bytes, ..Flow::stream((1, 0), 1) };
    let flows: Vec<Flow> = [active].into_iter().chain((0..idle).map(greets)).collect();
    let machine = Machine { buffer: 416 << 10, ..Machine::default() };
    let mut world = World::new(vec![machine; idle + 2], links, &flows, 1);
    for sender in 1..idle + 2 {
        world.path((sender, 0), &[&[sender + 1, 0]]);
        world.path((0, sender), &[&[1]]);
    }
    let until = begins + 200 * MILLISECOND;
    world.run_until(until);
    world.percentile(0, begins + 100 * MILLISECOND, until, 50) as f64 / 1e3
}
