//! The program of an endpoint whose payloads land where they belong, against the same decisions in plain words.

use arbitrary::Arbitrary;
use cutthrough_engine::register::{Expected, LEAST, Whose};
use cutthrough_node::fuzz::{Aim, Ran, payload, run as run_program, set_word, word};
use cutthrough_node::sys::xdp::placing::{ANY, CLOSED, LOGGED, Slots, placing, shared};
use cutthrough_wire::frame::{Header, Kind, OPENING_BYTES};

use super::program::{FRAME_MAX, PASS, QUEUE, datagram, is_ours, ours};

const DROP: u64 = 1;
pub(crate) const SLOTS: Slots = Slots { count_log: 7, bytes_log: 11, free: 64 };
/// Slots that stay free.
const MARGIN: usize = 64;
/// The least number of a message that may begin; the one before it is sent again.
const AWAITED: u32 = u32::MAX;
pub(crate) const OPENING: u32 = 144;

/// What happens at the interface, or in user space.
#[derive(Debug, Clone, Arbitrary)]
pub enum Step {
    /// The frame that is due comes, as long as this part of a full one in 255, and this much longer than it says.
    Next(u8, u8),
    /// It, full, and some bytes of it changed by this much.
    Changed(Vec<(u8, u8)>),
    /// Some frame of the channel: whether it opens, which message, where, and how long.
    Other(bool, u8, u32, u16),
    /// A datagram for us with this body.
    Ours(Vec<u8>),
    /// Anything.
    Noise(Vec<u8>),
    /// The frame that is due, on another queue.
    Elsewhere,
    /// What comes from now on comes on this processor.
    On(bool),
    /// User space has read so many slots.
    Read(u8),
    /// It falls asleep, or wakes up.
    Sleep(bool),
    /// It closes the register.
    Close,
    /// It aims anew: at any message, or one that has begun.
    Aim(bool),
}

/// What comes, and on which conditions.
#[derive(Debug, Clone, Arbitrary)]
pub struct Arrivals {
    /// Bytes of a full frame, beside the least.
    pub slice: u16,
    /// Where a message that has begun goes on.
    pub begin: u32,
    /// Bytes of its rest, and of the next message.
    pub reach: u16,
    /// What happens, and how many bytes of the frame can be read.
    pub steps: Vec<(Step, u16)>,
    /// What stands in the shared memory instead of an aim.
    pub noise: Option<Vec<u32>>,
}

/// Frames that are listed at most.
const LISTED: usize = 256;
pub(crate) const TAG: u32 = 3;
pub(crate) const GENERATION: u32 = 4;

struct World {
    aim: Aim,
    epoch: u32,
    memory: Vec<u8>,
    /// What was cut off, and how many slots had been given out before.
    logged: Vec<(Vec<u8>, usize)>,
    /// What lies in each slot; nothing if the endpoint slept.
    given: Vec<Option<Vec<u8>>>,
    seen: usize,
    asleep: bool,
    processor: u32,
}

pub(crate) fn at(place: u64) -> usize {
    usize::try_from(place).expect("a place")
}

/// Lets it happen.
///
/// # Panics
/// If the program reaches out of bounds, or does other than the plain words.
pub fn run(arrivals: &Arrivals) {
    let program = placing(&ours(), QUEUE, SLOTS, Ran::RINGS, Ran::MEMORY);
    let mut world = World {
        aim: Aim { tag: TAG, generation: GENERATION, ..Aim::default() },
        epoch: 0,
        memory: vec![0; at(SLOTS.shared_bytes())],
        logged: Vec::new(),
        given: Vec::new(),
        seen: 0,
        asleep: false,
        processor: 0,
    };
    world.aim(arrivals, true);
    if let Some(noise) = &arrivals.noise {
        (0..shared::LOG / 4).zip(noise).for_each(|(word, noise)| set_word(&mut world.memory, word * 4, *noise));
    }
    for (number, (step, split)) in (0..).zip(&arrivals.steps) {
        let Some((whole, queue)) = world.step(arrivals, step, number) else { continue };
        let linear = &whole[..whole.len().min(usize::from(*split))];
        let beyond = whole.len() - linear.len();
        if arrivals.noise.is_some() {
            world.stays_inside(&program, linear, beyond, queue);
        } else {
            world.comes(&program, linear, beyond, queue);
            world.check();
        }
    }
    if arrivals.noise.is_none() {
        world.end();
    }
}

impl World {
    fn aim(&mut self, arrivals: &Arrivals, fresh: bool) {
        let slice = OPENING + LEAST + u32::from(arrivals.slice) % 1250;
        let (message, begin) = if fresh { (None, 0) } else { (Some(1), arrivals.begin & 0x3fff_ffff) };
        let mut listed = payload(message, AWAITED, (begin, begin + u32::from(arrivals.reach)), slice);
        listed.extend(payload(None, AWAITED.wrapping_add(1), (0, u32::from(arrivals.reach)), slice));
        listed.truncate(LISTED);
        self.aim = Aim { listed, due: 0, over: false, closed: false, processor: None, ..self.aim.clone() };
        self.epoch += 1;
        self.aim.announce(&mut self.memory, self.epoch);
    }

    /// The frame that comes, and its queue; nothing if it is user space that does something.
    fn step(&mut self, arrivals: &Arrivals, step: &Step, number: u64) -> Option<(Vec<u8>, u32)> {
        let whole = match step {
            Step::Next(part, longer) => {
                let mut frame = self.next(*part, number);
                frame.resize(frame.len() + usize::from(longer >> 6), 9);
                frame
            }
            Step::Changed(changes) => {
                let mut frame = self.next(255, number);
                for (at, by) in changes {
                    if let Some(byte) = frame.get_mut(usize::from(*at)) {
                        *byte = byte.wrapping_add(*by);
                    }
                }
                frame
            }
            Step::Other(open, message, offset, bytes) => {
                let kind = if *open { Kind::Open } else { Kind::Data };
                made(kind, u32::from(*message % 4).wrapping_sub(2), *offset, u32::from(*bytes % 1600), number)
            }
            Step::Ours(body) => datagram(body),
            Step::Noise(frame) => frame.clone(),
            Step::Elsewhere => return Some((self.next(255, number), QUEUE - 1)),
            Step::On(other) => {
                self.processor = u32::from(*other);
                return None;
            }
            Step::Read(count) => {
                self.seen = (self.seen + usize::from(*count)).min(self.given.len());
                set_word(&mut self.memory, shared::SEEN, u32::try_from(self.seen).expect("a few"));
                return None;
            }
            Step::Sleep(sleeps) => {
                self.asleep = *sleeps;
                set_word(&mut self.memory, shared::ASLEEP, u32::from(*sleeps));
                return None;
            }
            Step::Close => {
                self.aim.closed = true;
                set_word(&mut self.memory, shared::NEXT, CLOSED);
                set_word(&mut self.memory, shared::NEXT + 4, 0);
                return None;
            }
            Step::Aim(fresh) => {
                self.aim(arrivals, *fresh);
                return None;
            }
        };
        Some((whole, QUEUE))
    }

    /// The frame that is due, as long as this part of a full one in 255; when all have come, the last one again.
    fn next(&self, part: u8, number: u64) -> Vec<u8> {
        let due = self.aim.next().or(self.aim.listed.last()).copied();
        let due = due.unwrap_or(Expected { whose: Whose::Opened, offset: 0, bytes: LEAST, at: 0 });
        let (kind, message) = match due.whose {
            Whose::Opens(_) => (Kind::Open, self.aim.message.wrapping_add(1)),
            Whose::Known(message) => (Kind::Data, message),
            Whose::Opened => (Kind::Data, self.aim.message),
        };
        made(kind, message, due.offset, due.bytes * u32::from(part) / 255, number)
    }

    /// With any words in the shared memory. What was aimed at is not known; what is closed lets nothing through, unless
    /// the memory has been told to reach further than user space ever says.
    fn stays_inside(&mut self, program: &[u8], linear: &[u8], beyond: usize, queue: u32) {
        let next = word(&self.memory, shared::NEXT);
        let closed = next & CLOSED != 0 && word(&self.memory, shared::LIMIT) <= 1 << 30;
        let ran = run_program(program, linear, beyond, (queue, self.processor), &[0, QUEUE], &mut self.memory);
        assert!(is_ours(linear) && queue == QUEUE || ran == Ran { verdict: PASS, cut: 0 });
        assert!(!closed || ran.verdict != Ran::REDIRECT);
    }

    /// Whatever comes, the register lets through exactly what it awaits, cut to its payload and logged; the rest of
    /// what is ours lies in the slots, or goes to the kernel while there is none, or user space sleeps.
    fn comes(&mut self, program: &[u8], linear: &[u8], beyond: usize, queue: u32) {
        let ran = run_program(program, linear, beyond, (queue, self.processor), &[0, QUEUE], &mut self.memory);
        let length = linear.len() + beyond;
        let mut whole = linear.to_vec();
        whole.resize(length, Ran::BEYOND);
        if !is_ours(linear) || queue != QUEUE || length > FRAME_MAX {
            assert_eq!(ran, Ran { verdict: PASS, cut: 0 });
        } else if let Some(cut) = self.aim.takes(linear, beyond, self.processor) {
            assert_eq!(ran, Ran { verdict: Ran::REDIRECT, cut });
            self.logged.push((whole[..cut].to_vec(), self.given.len()));
        } else if self.given.len() - self.seen > MARGIN {
            assert_eq!(ran, Ran { verdict: PASS, cut: 0 });
        } else {
            assert_eq!(ran, Ran { verdict: if self.asleep { PASS } else { DROP }, cut: 0 });
            let index = u32::try_from(self.given.len()).expect("a few");
            let stamp = (word(&self.memory, SLOTS.at(index)), word(&self.memory, SLOTS.at(index) + 4));
            let bytes = if self.asleep { 0 } else { u32::try_from(length).expect("1514 at most") };
            assert_eq!(stamp, (index + 1, bytes));
            self.given.push((!self.asleep).then_some(whole));
        }
    }

    /// What user space reads of the program is what has happened.
    fn check(&self) {
        let get = |place| word(&self.memory, place);
        assert_eq!(get(shared::TAKEN) as usize, self.logged.len());
        assert_eq!(get(shared::GIVEN) as usize, self.given.len());
        assert_eq!(get(shared::FAILED), 0);
        assert_eq!(get(shared::PROCESSOR), self.aim.processor.unwrap_or(ANY));
        assert_eq!((get(shared::NEXT), get(shared::NEXT + 4)), self.aim.says(self.epoch));
    }

    /// What has not been read lies whole in the slots, in order; and what was cut off, in the log.
    fn end(&self) {
        for (index, frame) in (0..).zip(&self.given).skip(self.seen) {
            let place = at(SLOTS.at(index) + shared::IN_SLOT);
            if let Some(frame) = frame {
                assert_eq!(self.memory[place..place + frame.len()], frame[..], "slot {index}");
            }
        }
        for (index, (head, before)) in self.logged.iter().enumerate().rev().take(LOGGED as usize) {
            let place = at(shared::LOG + (index as u64 % u64::from(LOGGED)) * shared::LOG_BYTES);
            assert_eq!(self.memory[place..place + head.len()], head[..], "header {index}");
            assert_eq!(word(&self.memory, place as u64 + shared::BEFORE) as usize, *before, "before {index}");
        }
    }
}

/// A frame of the channel.
pub(crate) fn made(kind: Kind, message: u32, offset: u32, payload: u32, number: u64) -> Vec<u8> {
    let opening = if kind == Kind::Open { OPENING_BYTES } else { 0 };
    let bytes = opening + payload as usize;
    let header = Header {
        kind,
        body: u16::try_from(bytes).expect("some thousand bytes"),
        tag: TAG,
        generation: GENERATION,
        awaited: 1,
        number,
        below: 2,
        held: 3,
        waits: false,
        calls: 0,
        asks: 0,
        bits: 4,
        words: [message, offset],
    };
    let body = (0..bytes).map(|at| (at as u64 + number).to_le_bytes()[0]);
    datagram(&header.to_bytes().into_iter().chain(body).collect::<Vec<u8>>())
}

const _: () = assert!(OPENING as usize == OPENING_BYTES);
