//! What goes wrong at a time: machines, users, paths, ways, and frames that nobody has sent.

use cutthrough_engine::net::ways::WAYS;
use cutthrough_engine::time::Instant;
use cutthrough_wire::frame::{FRAME_VERSION, HEADER_BYTES, Header, Kind, SEALED_BYTES};

use super::super::blind;
use super::super::guard::Sum;
use super::super::network::Frame;
use super::super::random::Random;
use super::super::ring::stray;
use super::super::user::Around;
use super::{Living, World};

/// What goes wrong at a time, by weight; each says whether it has done anything.
const TROUBLES: [fn(&mut World) -> bool; 14] = [
    World::crash,
    World::pause,
    World::jump,
    World::clog,
    World::cut,
    World::slow,
    World::replay,
    World::forge,
    World::close,
    World::swallow,
    World::change_ways,
    World::flood,
    World::narrow,
    World::guess,
];

impl World {
    /// Something goes wrong.
    pub(super) fn trouble(&mut self) {
        let weights = || {
            let options = &self.options;
            options.weights.iter().chain(&options.ways.weights).chain([&options.narrow, &options.blind])
        };
        let mut at = self.random.below(weights().sum::<u64>().max(1));
        let kind = weights().position(|weight| {
            let found = at < *weight;
            at = at.saturating_sub(*weight);
            found
        });
        if let Some(kind) = kind {
            self.troubled = self.troubled.max(self.now);
            let amid = self.is_amid_talk();
            self.summary.injected.amid += u64::from(TROUBLES[kind](self) && amid);
        }
    }

    /// Whether anybody waits for anything.
    fn is_amid_talk(&mut self) -> bool {
        let watch = &mut self.watch;
        self.nodes.iter().filter_map(|node| node.living.as_ref()).any(|living| living.user.is_settled(watch).is_err())
    }

    fn crash(&mut self) -> bool {
        let index = self.random.index(self.nodes.len());
        let lived = self.nodes[index].living.is_some();
        self.summary.injected.crashes += u64::from(lived);
        let down = self.random.pick(&[0, 1_000_000, 50_000_000, self.options.silence_ns]);
        let node = &mut self.nodes[index];
        node.living = None;
        node.queue.clear();
        node.starts = Some(self.now + down);
        self.troubled = self.troubled.max(self.now + down);
        self.lives[index] = 0;
        self.wake(index, self.now + down);
        lived
    }

    /// How long something goes on from now on.
    fn span(&mut self) -> u64 {
        let longest = self.random.pick(&[100_000, 5_000_000, 100_000_000, self.options.silence_ns * 2]);
        let span = self.random.below(longest);
        self.troubled = self.troubled.max(self.now + span);
        span
    }

    fn pause(&mut self) -> bool {
        let index = self.random.index(self.nodes.len());
        self.summary.injected.pauses += 1;
        let until = self.now + self.span();
        (self.nodes[index].paused, self.nodes[index].held) = (until, true);
        let at = self.nodes[index].wakes;
        if at < until {
            self.wakes.remove(&(at, index));
            self.wakes.insert((until, index));
            self.nodes[index].wakes = until;
        }
        true
    }

    fn jump(&mut self) -> bool {
        let index = self.random.index(self.nodes.len());
        self.summary.injected.jumps += 1;
        let span = self.span();
        self.nodes[index].ahead += span;
        self.nodes[index].held = true;
        self.wake(index, self.now);
        true
    }

    fn clog(&mut self) -> bool {
        let (from, to) = self.pair();
        self.summary.injected.clogs += 1;
        let until = self.now + self.span();
        self.network.clog(from, to, until);
        true
    }

    fn cut(&mut self) -> bool {
        let (from, to) = self.pair();
        self.summary.injected.cuts += 1;
        let until = self.now + self.span();
        self.network.cut(from, to, until);
        true
    }

    /// A path carries less from now on, or as much as at first again.
    fn narrow(&mut self) -> bool {
        let (from, to) = self.pair();
        self.summary.injected.narrowed += 1;
        self.troubled = u64::MAX;
        let carries = self.random.pick(&[Some(1200), Some(1200), Some(1452), Some(1464), Some(3000), None]);
        self.network.narrow(from, to, carries);
        true
    }

    fn slow(&mut self) -> bool {
        let index = self.random.index(self.nodes.len());
        self.summary.injected.slow += 1;
        self.nodes[index].slow = self.now + self.span();
        true
    }

    fn replay(&mut self) -> bool {
        for _ in 0..self.random.between(1, 8) {
            let Some(frame) = self.network.old(&mut self.random) else { return false };
            self.summary.injected.replayed += 1;
            self.network.put(self.now + self.random.below(1_000_000), frame);
        }
        true
    }

    fn close(&mut self) -> bool {
        let index = self.random.index(self.nodes.len());
        let mut around = Around {
            watch: &mut self.watch,
            random: &mut self.random,
            options: &self.options,
            summary: &mut self.summary,
            time: self.now,
            now: Instant::from_nanos(self.now + self.nodes[index].ahead),
            calm: None,
            lives: &self.lives,
            ways: 1,
            held: false,
        };
        let mut closes = false;
        if let Some(living) = &mut self.nodes[index].living {
            closes = !living.user.talks.is_empty();
            self.broken = living.user.close(&mut living.net, &mut around).err();
        }
        self.summary.injected.closed += u64::from(closes);
        self.wake(index, self.now);
        closes
    }

    /// One way of an endpoint swallows everything.
    fn swallow(&mut self) -> bool {
        let index = self.random.index(self.nodes.len());
        let Some(way) = self.any_way(index) else { return false };
        self.summary.injected.black_holes += 1;
        let until = self.now + self.span();
        self.network.swallow(index, way, until);
        true
    }

    /// Any way of an endpoint that has more than the socket.
    fn any_way(&mut self, index: usize) -> Option<usize> {
        let of = self.options.ways.of[index];
        let ways: Vec<usize> = (0..WAYS).filter(|way| of >> way & 1 == 1).collect();
        self.options.ways.has_rings(index).then(|| self.random.pick(&ways))
    }

    /// Ways are taken away from an endpoint, or given back: from all of its channels or only from some.
    fn change_ways(&mut self) -> bool {
        let index = self.random.index(self.nodes.len());
        if !self.options.ways.has_rings(index) {
            return false;
        }
        self.summary.injected.ways_changed += 1;
        self.troubled = u64::MAX;
        let of = self.options.ways.of[index];
        let some = of & self.random.next().to_le_bytes()[0];
        let node = &mut self.nodes[index];
        node.ways = if some == 0 { 1 } else { some };
        if let Some(living) = &mut node.living {
            for talk in &mut living.user.talks {
                talk.ways = if self.random.chance(700) { node.ways } else { of };
                living.net.set_ways(talk.index, talk.ways);
            }
        }
        self.wake(index, self.now);
        true
    }

    /// An endpoint has all of its ways again, and they work: but for one, perhaps, where there is another.
    pub(super) fn heal_ways(&mut self, index: usize) {
        let of = self.options.ways.of[index];
        let node = &mut self.nodes[index];
        node.ways = of;
        if let Some(living) = &mut node.living {
            for talk in &mut living.user.talks {
                talk.ways = of;
            }
            // So have those that are closed here, and still wait for the other side to hear so.
            (0..self.options.channels).for_each(|index| living.net.set_ways(index, of));
        }
        if of > 1 && of & 1 == 1 && self.random.chance(self.options.ways.stays_away) {
            let way = if of == 0b111 { self.random.pick(&[1, 2]) } else { usize::from(of >> 1) };
            self.summary.injected.black_holes += 1;
            self.network.swallow(index, way, u64::MAX);
        }
    }

    /// Foreign frames, more than a ring holds.
    fn flood(&mut self) -> bool {
        let index = self.random.index(self.nodes.len());
        for _ in 0..self.random.between(1, 100) {
            self.summary.injected.strays += 1;
            let frame = stray(index, self.options.nodes, &self.network, &mut self.random);
            self.network.put(self.now + self.random.below(100_000), frame);
        }
        true
    }

    /// Frames of channels by who hears nothing: some come at once, and alone, the rest among others.
    fn guess(&mut self) -> bool {
        for _ in 0..self.random.between(1, 16) {
            let pair = self.pair();
            self.summary.injected.guessed += 1;
            let frame = blind::frame(pair, &self.options, &mut self.random);
            let node = &mut self.nodes[frame.to];
            let now = Instant::from_nanos(self.now + node.ahead);
            match &mut node.living {
                Some(Living { net, given, .. }) if node.paused <= self.now && self.random.chance(500) => {
                    let refused = blind::is_refused((net, given), now, frame);
                    self.broken = self.broken.take().or(refused.err());
                }
                _ => self.network.put(self.now + self.random.below(100_000), frame),
            }
        }
        true
    }

    /// Frames that nobody has sent.
    fn forge(&mut self) -> bool {
        for _ in 0..self.random.between(1, 8) {
            let (from, to) = self.pair();
            self.summary.injected.forged += 1;
            let random = &mut self.random;
            let old = self.network.old(random).filter(|_| random.chance(800));
            let mut frame = old.unwrap_or_else(|| {
                let bytes = (0..random.index(300)).map(|_| random.next().to_le_bytes()[0]).collect();
                Frame { from, to, way: 0, bytes }
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
                    } else {
                        forge_answer(&mut frame.bytes, random);
                    }
                }
            }
            self.network.put(self.now + random.below(100_000), frame);
        }
        true
    }
}

/// Makes an answer to a hello look right, with something in it changed: nothing but a sum keeps anybody from that.
pub(in super::super) fn forge_answer(bytes: &mut [u8], random: &mut Random) {
    let (head, body) = bytes.split_at_mut(HEADER_BYTES);
    // Who forges answers knows what their headers have to be.
    head[12..SEALED_BYTES].fill(0);
    if random.chance(700) && !body.is_empty() {
        body[random.index(body.len().min(64))] ^= 1 << random.below(8);
    }
    let sum = Sum::of(0, &head[..SEALED_BYTES], body);
    head[SEALED_BYTES..].copy_from_slice(&sum);
}

/// Makes a hello look right: something in it is changed, and its check sum is good.
pub(in super::super) fn forge_hello(bytes: &mut [u8], sealed: bool, random: &mut Random) {
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
