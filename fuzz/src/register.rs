//! Payloads whose headers the program at the interface cuts off: an aimed register, the program itself, a kernel that
//! uses places in their order at any time, and a wire that brings anything.

use std::collections::VecDeque;

use arbitrary::Arbitrary;
use cutthrough_engine::register::{BUSY, CLOSED, FRESH, Place, Register, Says, Target};
use cutthrough_node::fuzz::{Ran, announce, run as run_program, set_word, word};
use cutthrough_node::sys::xdp::placing::{LEAST, placing, shared};
use cutthrough_wire::frame::Kind;

use super::placing::{GENERATION, OPENING, SLOTS, TAG, at, made};
use super::program::{ENVELOPE, FRAME_MAX, HEADERS, QUEUE, ours};

/// Bytes of the memory that payloads land in.
const MEMORY: usize = 1 << 17;
/// Most places that the kernel may have: the entries of its ring.
const RING: usize = 1024;
const AWAITED: u32 = u32::MAX - 1;

/// A play: how frames are cut into pieces, and what happens.
#[derive(Debug, Arbitrary)]
pub struct Play {
    /// Bytes of payload of a full frame, beside the least.
    pub slice: u16,
    /// Bytes that the kernel writes to one place, beside the least.
    pub piece: u16,
    /// What happens.
    pub steps: Vec<Step>,
}

/// What happens next.
#[derive(Debug, Clone, Copy, Arbitrary)]
pub enum Step {
    /// The endpoint settles, and aims: at a new message or one that has begun, from where on, how many bytes, and where
    /// they belong.
    Aim(bool, u16, u16, u16),
    /// It sees whether the register goes on with its target, and offers more places.
    GoOn,
    /// It closes the register.
    Close,
    /// The same, while the program writes down which message has begun.
    CloseBusy,
    /// The frame that is awaited comes, as long as this part of a full one in 255, to one of two processors.
    Next(u8, bool),
    /// Some frame of the channel: whether it opens, which message, where, and how long.
    Other(bool, u8, u16, u16),
    /// A frame that was let through gets to its place.
    Land,
    /// The endpoint looks at the next frame that has landed.
    Look,
    /// It is told of a frame in parts elsewhere, and gives the ring up.
    Lie(u32, u16),
}

/// A frame that was let through.
struct Through {
    says: Says,
    payload: Vec<u8>,
    target: Target,
}

/// One that has landed: its parts, where each is and how long.
struct Landed {
    through: Through,
    parts: Vec<(u64, u32)>,
}

struct World {
    slice: u32,
    piece: u32,
    register: Register,
    program: Vec<u8>,
    shared: Vec<u8>,
    memory: Vec<u8>,
    /// What the register was aimed at last.
    target: Option<Target>,
    /// The kernel's places.
    offered: VecDeque<u64>,
    under_way: VecDeque<Through>,
    landed: VecDeque<Landed>,
    epoch: u32,
    frames: u64,
}

/// Plays it.
///
/// # Panics
/// If a payload lands elsewhere than it belongs, if the register is quiet while one is on its way, or is not when none
/// is.
pub fn run(play: &Play) {
    let piece = u32::from(play.piece) % 1500 + 100;
    let mut world = World {
        slice: u32::from(play.slice) % 1250 + OPENING + LEAST,
        piece,
        register: Register::new(piece),
        program: placing(&ours(), QUEUE, SLOTS, Ran::RINGS, Ran::MEMORY),
        shared: vec![0; at(SLOTS.shared_bytes())],
        memory: vec![0; MEMORY],
        target: None,
        offered: VecDeque::new(),
        under_way: VecDeque::new(),
        landed: VecDeque::new(),
        epoch: 0,
        frames: 0,
    };
    set_word(&mut world.shared, shared::NEXT, CLOSED);
    for step in &play.steps {
        if let Step::Lie(at, bytes) = *step {
            world.lie(u64::from(at), u32::from(bytes));
            return;
        }
        world.step(*step);
    }
    world.settle();
}

impl World {
    fn step(&mut self, step: Step) {
        match step {
            Step::Aim(fresh, begin, bytes, at) => {
                self.settle();
                self.aim(fresh, u32::from(begin), u32::from(bytes), u64::from(at));
            }
            Step::GoOn => self.go_on(),
            Step::Close => self.close(),
            Step::CloseBusy => self.close_busy(),
            Step::Next(part, other) => {
                let frame = self.next(part);
                self.comes(&frame, other);
            }
            Step::Other(open, message, offset, bytes) => {
                let kind = if open { Kind::Open } else { Kind::Data };
                let message = AWAITED.wrapping_add(u32::from(message % 4));
                self.frames += 1;
                let most = if open { self.slice - OPENING } else { self.slice };
                let frame = made(kind, message, offset.into(), u32::from(bytes) % (most + 1), self.frames);
                self.comes(&frame, false);
            }
            Step::Land => self.land(),
            Step::Look => self.look(),
            Step::Lie(..) => {}
        }
    }

    fn aim(&mut self, fresh: bool, begin: u32, bytes: u32, at: u64) {
        let (message, begin) = if fresh { (None, 0) } else { (Some(AWAITED), begin) };
        let (end, slice) = (begin + bytes, self.slice);
        let target = Target { tag: TAG, generation: GENERATION, message, awaited: AWAITED, begin, end, at, slice };
        let Some(aimed) = self.register.aim(target, offered(&mut self.offered)).expect("nobody refuses") else {
            assert!(bytes < LEAST && !self.register.is_aimed(), "{target:?}");
            return;
        };
        assert!(self.offered.len() <= RING && aimed.limit <= end);
        self.epoch += 1;
        let words = [aimed.next, aimed.message, slice, aimed.limit];
        announce(&mut self.shared, (TAG, GENERATION), words, self.epoch);
        self.target = Some(target);
        assert!(self.register.is_at(&target) && self.register.watches(TAG));
    }

    /// What has been taken in is where the endpoint expects more, if the register goes on.
    fn go_on(&mut self) {
        if let Some(limit) = self.register.extend(offered(&mut self.offered)).expect("nobody refuses") {
            assert!(self.register.is_open() && limit > word(&self.shared, shared::LIMIT));
            set_word(&mut self.shared, shared::LIMIT, limit);
        }
        assert!(self.offered.len() <= RING);
    }

    fn close(&mut self) {
        if self.register.is_open() {
            let awaited = word(&self.shared, shared::NEXT);
            set_word(&mut self.shared, shared::NEXT, CLOSED);
            set_word(&mut self.shared, shared::NEXT + 4, 0);
            self.register.closed(awaited);
            self.waits();
        }
    }

    /// A first frame is between its two exchanges when the register is closed: the second one fails, and it goes on.
    fn close_busy(&mut self) {
        if !self.register.is_open() || word(&self.shared, shared::NEXT) != FRESH {
            return;
        }
        let before = self.under_way.len();
        let frame = self.next(255);
        self.comes(&frame, false);
        if self.under_way.len() > before {
            set_word(&mut self.shared, shared::NEXT, CLOSED);
            set_word(&mut self.shared, shared::NEXT + 4, 0);
            self.register.closed(BUSY);
            self.waits();
        }
    }

    /// A register that was closed is not quiet while something is on its way, whether or not the program is seen to
    /// have counted that.
    fn waits(&mut self) {
        let (through, taken) = (word(&self.shared, shared::TAKEN), self.register.taken());
        let all = self.under_way.is_empty() && self.landed.is_empty();
        assert!(all || !self.register.is_quiet(through) && !self.register.is_quiet(taken), "quiet too soon");
    }

    /// The frame that is awaited.
    fn next(&mut self, part: u8) -> Vec<u8> {
        self.frames += 1;
        let (kind, message, offset) = match word(&self.shared, shared::NEXT) & !CLOSED {
            FRESH => (Kind::Open, AWAITED.wrapping_add(1), 0),
            offset => (Kind::Data, word(&self.shared, shared::MESSAGE), offset),
        };
        let opening = if kind == Kind::Open { OPENING } else { 0 };
        let left = word(&self.shared, shared::LIMIT).saturating_sub(offset);
        let payload = (self.slice - opening).min(left) * u32::from(part) / 255;
        made(kind, message, offset, payload, self.frames)
    }

    fn comes(&mut self, frame: &[u8], other: bool) {
        assert!(frame.len() <= FRAME_MAX);
        let place = (QUEUE, u32::from(other));
        let ran = run_program(&self.program, frame, 0, place, &[QUEUE], &mut self.shared);
        // The slots are read at once.
        let given = word(&self.shared, shared::GIVEN);
        set_word(&mut self.shared, shared::SEEN, given);
        if ran.verdict != Ran::REDIRECT {
            return;
        }
        assert!(self.register.is_open(), "a closed register lets a frame through");
        let target = self.target.expect("an open register has one");
        let word = |at: usize| u32::from_le_bytes(*frame[ENVELOPE + at..].first_chunk().expect("a header"));
        let says = Says { message: word(40), offset: word(44), opens: ran.cut > HEADERS };
        let payload = frame[ran.cut..].to_vec();
        let reach = says.offset + u32::try_from(payload.len()).expect("1514 at most");
        assert!(says.offset >= target.begin && reach <= target.end, "{says:?} of {target:?}");
        self.under_way.push_back(Through { says, payload, target });
    }

    /// The kernel writes the payload of the next frame to its next places.
    fn land(&mut self) {
        let Some(through) = self.under_way.pop_front() else { return };
        let mut parts = Vec::new();
        for part in through.payload.chunks(self.piece as usize) {
            let place = self.offered.pop_front().expect("a place for all that is let through");
            parts.push((place, u32::try_from(part.len()).expect("1514 at most")));
            let belongs = through.target.place(through.says.offset) + (parts.len() as u64 - 1) * u64::from(self.piece);
            assert_eq!(place, belongs, "a payload lands where it does not belong");
            self.memory[at(place)..at(place) + part.len()].copy_from_slice(part);
        }
        self.landed.push_back(Landed { through, parts });
    }

    fn look(&mut self) {
        let Some(Landed { through: Through { says, payload, target }, parts }) = self.landed.pop_front() else {
            return;
        };
        let (place, bytes) = self.register.lands(parts.into_iter().map(Some)).expect("where it was offered");
        assert_eq!((place, bytes), (target.place(says.offset), payload.len() as u64));
        self.register.tells(says, bytes);
        assert_eq!(self.memory[at(place)..at(place) + payload.len()], payload, "written over before it was looked at");
        // If nothing else is on its way, and nothing has closed the register, it awaits what is expected now.
        let begin = says.offset + u32::try_from(bytes).expect("1514 at most");
        let next = Target { message: Some(says.message), begin, at: target.place(begin), ..target };
        let awaits = word(&self.shared, shared::NEXT) == begin && self.register.is_open();
        if self.under_way.is_empty() && self.landed.is_empty() {
            assert_eq!(self.register.is_at(&next), awaits, "{next:?}");
        }
        assert!(!self.register.is_at(&Target { at: next.at + 1, ..next }));
    }

    /// As an endpoint does before it writes to that memory itself: closes the register, and takes in all that is left.
    fn settle(&mut self) {
        self.close();
        loop {
            if self.under_way.is_empty() && self.landed.is_empty() {
                let through = word(&self.shared, shared::TAKEN);
                assert!(self.register.is_quiet(through), "not quiet with nothing under way");
                assert!(!self.register.is_aimed());
                return;
            }
            self.waits();
            if self.landed.is_empty() {
                self.land();
            }
            self.look();
        }
    }

    fn lie(&mut self, place: u64, bytes: u32) {
        let due = self.landed.front().and_then(|landed| landed.parts.first().copied());
        let due = due.map(|(at, _)| at).or_else(|| self.offered.front().copied());
        if due != Some(place) {
            assert_eq!(self.register.lands([Some((place, bytes))]), None);
        }
        assert_eq!(self.register.lands([None]), None);
    }
}

/// The kernel's end of the ring of places.
fn offered(places: &mut VecDeque<u64>) -> impl FnMut(Place) -> Result<(), ()> + '_ {
    |place| {
        match place {
            Place::Behind(at) => places.push_back(at),
            Place::Instead(back, at) => {
                let index = places.len().checked_sub(back as usize).expect("a place that it has");
                places[index] = at;
            }
        }
        Ok(())
    }
}
