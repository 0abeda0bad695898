//! A ring beside the socket: queues of bounded length, foreign frames among ours, and perhaps a stream into pages.

use std::collections::VecDeque;
use std::net::SocketAddr;

use cutthrough_engine::net::{Guess, Net};
use cutthrough_engine::time::Instant;
use cutthrough_wire::frame::{HEADER_BYTES, Header, Kind};

use super::cut::Cut;
use super::memory::Host;
use super::network::{Frame, Network};
use super::options::Options;
use super::random::Random;
use super::receive::{Given, Lent, bring};
use super::stream::Stream;
use super::{Summary, address};

/// Frames that are taken from a ring before anything else is looked at.
const FRAMES: usize = 64;
/// Bytes of a foreign frame at most.
const STRAY: usize = 300;
/// Who has sent a frame that is no datagram for this endpoint.
pub(super) const NOBODY: usize = usize::MAX;

/// One ring of one endpoint.
#[derive(Debug)]
pub(super) struct Ring {
    way: u8,
    queues: Vec<VecDeque<Frame>>,
    slots: usize,
    stream: Option<Stream>,
    cut: Option<Cut>,
    /// Of the channel that a payload came on last: its number, and which life of it.
    generation: (u32, u32),
}

/// The rings of an endpoint.
#[derive(Debug, Default)]
pub(super) struct Rings(Vec<Ring>);

impl Rings {
    pub(super) fn of(index: usize, options: &Options) -> Self {
        let ways = &options.ways;
        let body = u32::from(options.body);
        let rings = (1_u8..8).filter(|way| ways.of[index] >> way & 1 == 1).map(|way| {
            let placement = ways.placement.filter(|_| way == 2);
            let register = ways.register.filter(|_| placement.is_some());
            Ring {
                way,
                queues: vec![VecDeque::new(); ways.queues],
                slots: ways.slots,
                stream: placement
                    .filter(|_| register.is_none())
                    .map(|placement| Stream::new(placement, body, ways.slots)),
                cut: register.map(|pieces| Cut::new(body, body.div_ceil(pieces))),
                generation: (0, 0),
            }
        });
        Self(rings.collect())
    }

    /// Whether nothing has come that was not taken.
    pub(super) fn is_empty(&self) -> bool {
        self.0.iter().all(Ring::is_empty)
    }

    /// The ring that a frame comes by, which was sent by this way; where there is none of that kind, by another one.
    fn ring(&mut self, way: u8) -> Option<&mut Ring> {
        let at = self.0.iter().position(|ring| ring.way == way).or_else(|| self.0.len().checked_sub(1));
        at.map(|at| &mut self.0[at])
    }

    /// A frame has come. It is given back if the socket takes it.
    pub(super) fn arrived(
        &mut self,
        frame: Frame,
        (options, network): (&Options, &Network),
        random: &mut Random,
        summary: &mut Summary,
    ) -> Option<Frame> {
        // Where the kernel has joined frames, a ring does not get them.
        if self.0.is_empty() || random.chance(100) {
            return Some(frame);
        }
        let ways = &options.ways;
        let ring = self.ring(frame.way)?;
        while random.chance(ways.strays) {
            summary.injected.strays += 1;
            let queue = random.index(ring.queues.len());
            ring.put(queue, stray(frame.to, options.nodes, network, random), random, summary);
        }
        let spread = random.chance(ways.spread);
        let queue = if spread { random.index(ring.queues.len()) } else { frame.from % ring.queues.len() };
        ring.put(queue, frame, random, summary);
        None
    }

    /// Takes in what has come, as much as an endpoint takes at a time.
    pub(super) fn take(
        &mut self,
        (net, given): (&mut Net<Host>, &mut Given),
        now: Instant,
        mut lent: Option<Lent<'_>>,
        random: &mut Random,
        summary: &mut Summary,
    ) -> Result<(), String> {
        for ring in &mut self.0 {
            net.came_by(ring.way);
            ring.take((&mut *net, &mut *given), now, &mut lent, random, summary)?;
        }
        net.came_by(0);
        Ok(())
    }
}

impl Ring {
    fn is_empty(&self) -> bool {
        self.queues.iter().all(VecDeque::is_empty)
            && self.stream.as_ref().is_none_or(Stream::is_empty)
            && self.cut.as_ref().is_none_or(Cut::is_empty)
    }

    fn put(&mut self, queue: usize, frame: Frame, random: &mut Random, summary: &mut Summary) {
        let places = queue == 0 && frame.from != NOBODY;
        let frame = match (&mut self.stream, &mut self.cut) {
            (Some(stream), _) if places => stream.arrived(frame, random, summary),
            (_, Some(cut)) if places => cut.arrived(frame, random),
            _ => Some(frame),
        };
        let Some(frame) = frame else { return };
        if self.queues[queue].len() < self.slots {
            self.queues[queue].push_back(frame);
        } else {
            summary.injected.ring_overflows += 1;
        }
    }

    fn take(
        &mut self,
        (net, given): (&mut Net<Host>, &mut Given),
        now: Instant,
        lent: &mut Option<Lent<'_>>,
        random: &mut Random,
        summary: &mut Summary,
    ) -> Result<(), String> {
        let first = random.index(self.queues.len());
        self.queues.rotate_left(first);
        let mut taken = 0;
        for queue in &mut self.queues {
            while taken < FRAMES
                && let Some(frame) = queue.pop_front()
            {
                taken += 1;
                bring_in((&mut *net, &mut *given), now, frame, &mut self.generation, lent);
            }
        }
        self.queues.rotate_right(first);
        if let Some(cut) = &mut self.cut {
            while let Some(frame) = cut.take(random, summary)? {
                bring_in((&mut *net, &mut *given), now, frame, &mut self.generation, lent);
            }
            let guess = net.guess(None).map(|(guess, _)| guess);
            let expected = guess.and_then(|guess| {
                let (Guess::Fresh { channel } | Guess::Rest { channel, .. }) = guess;
                net.generation(channel).map(|life| (guess, life))
            });
            return cut.aim(expected, random, summary);
        }
        let Some(stream) = &mut self.stream else { return Ok(()) };
        while let Some(frame) = stream.take(summary)? {
            bring_in((&mut *net, &mut *given), now, frame, &mut self.generation, lent);
        }
        let guess = net.guess(None).map(|(guess, _)| guess);
        stream.offer(guess, self.generation)
    }
}

fn bring_in(
    (net, given): (&mut Net<Host>, &mut Given),
    now: Instant,
    mut frame: Frame,
    generation: &mut (u32, u32),
    lent: &mut Option<Lent<'_>>,
) {
    if frame.from == NOBODY {
        return;
    }
    if let Some(header) = frame.bytes.first_chunk::<HEADER_BYTES>().and_then(|head| Header::from_bytes(head).ok())
        && matches!(header.kind, Kind::Open | Kind::Data)
    {
        *generation = (header.tag, header.generation);
    }
    let from: SocketAddr = address(frame.from);
    given.add(&frame.bytes);
    bring(net, now, from, &mut frame.bytes, lent);
}

/// A frame that nobody has sent to this endpoint: of another protocol, for another port, or a stranger's.
pub(super) fn stray(to: usize, nodes: usize, network: &Network, random: &mut Random) -> Frame {
    let noise = |random: &mut Random| (0..random.index(STRAY)).map(|_| random.next().to_le_bytes()[0]).collect();
    let stranger = nodes + random.index(4);
    match random.below(3) {
        0 => Frame { from: NOBODY, to, way: 0, bytes: noise(random) },
        1 => Frame { from: stranger, to, way: 0, bytes: noise(random) },
        _ => match network.old(random) {
            // What one of us has once said, from elsewhere.
            Some(old) => Frame { from: stranger, to, ..old },
            None => Frame { from: stranger, to, way: 0, bytes: noise(random) },
        },
    }
}
