//! Payloads whose headers the program at the interface cuts off: an aimed register, the program itself, a kernel that
//! uses places in their order at any time, and a wire that brings anything.

use std::collections::VecDeque;

use arbitrary::Arbitrary;
use cutthrough_engine::register::{CLOSED, Expected, LEAST, Place, Register, Whose};
use cutthrough_node::fuzz::{Ran, announce, list, payload, run as run_program, set_word, word};
use cutthrough_node::sys::xdp::placing::{placing, shared};
use cutthrough_wire::frame::Kind;

use super::placing::{GENERATION, OPENING, SLOTS, TAG, at, made};
use super::program::{ENVELOPE, FRAME_MAX, HEADERS, QUEUE, ours};

/// Bytes of the memory that payloads land in.
const MEMORY: usize = 1 << 17;
/// Most places that the kernel may have: the entries of its ring.
const RING: usize = 1024;
const AWAITED: u32 = u32::MAX - 1;
const OF: (u32, u32) = (TAG, GENERATION);

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
    /// they belong; and at the next message behind it.
    Aim(bool, u16, u16, u16),
    /// It lists more: what is left of what it expects, and behind that another message of so many bytes.
    GoOn(u16),
    /// It closes the register.
    Close,
    /// The frame that is due comes, as long as this part of a full one in 255, to one of two processors.
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
    message: u32,
    due: Expected,
    payload: Vec<u8>,
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
    /// What the register is to let through, as it was listed, and all that is expected.
    listed: VecDeque<Expected>,
    expected: Vec<Expected>,
    next_at: u64,
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
        listed: VecDeque::new(),
        expected: Vec::new(),
        next_at: 0,
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
            Step::GoOn(bytes) => self.go_on(u32::from(bytes)),
            Step::Close => self.close(),
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

    /// Where the next message belongs: apart from all others, as long as there is room.
    fn placed(&mut self, frames: Vec<Expected>, begin: u32) -> Vec<Expected> {
        let bytes: u64 = frames.iter().map(|frame| u64::from(frame.bytes)).sum();
        if at(self.next_at + bytes) + FRAME_MAX > MEMORY {
            return Vec::new();
        }
        let first = self.next_at;
        self.next_at += bytes;
        frames.into_iter().map(|frame| Expected { at: first + frame.at - u64::from(begin), ..frame }).collect()
    }

    fn aim(&mut self, fresh: bool, begin: u32, bytes: u32, place: u64) {
        let (message, begin) = if fresh { (None, 0) } else { (Some(AWAITED), begin) };
        self.next_at = place;
        let first = payload(message, AWAITED, (begin, begin + bytes), self.slice);
        let second = payload(None, AWAITED.wrapping_add(1), (0, bytes), self.slice);
        self.expected = self.placed(first, begin);
        let second = self.placed(second, 0);
        self.expected.extend(second);
        let limit = self.register.aim(OF, self.expected.iter().copied(), offered(&mut self.offered));
        if limit.expect("nobody refuses") == 0 {
            assert!(self.expected.iter().all(|frame| frame.bytes < LEAST) && !self.register.is_aimed());
            return;
        }
        assert!(self.offered.len() <= RING);
        self.epoch += 1;
        announce(&mut self.shared, OF, self.register.listed(0), (0, self.epoch));
        self.listed = self.register.listed(0).map(|(_, frame)| *frame).collect();
        self.expected.retain(|frame| frame.bytes >= LEAST);
        assert!(self.register.awaits(OF, &self.expected[0]) && self.register.watches(TAG));
    }

    /// It expects another message, too, and lists more if few are left.
    fn go_on(&mut self, bytes: u32) {
        let more = payload(None, AWAITED.wrapping_add(2), (0, bytes), self.slice);
        let more = self.placed(more, 0);
        self.expected.extend(more.into_iter().filter(|frame| frame.bytes >= LEAST));
        let more = self.register.extend(self.expected.iter().copied(), offered(&mut self.offered));
        if let Some((from, limit)) = more.expect("nobody refuses") {
            assert!(self.register.is_open() && from == word(&self.shared, shared::LIMIT) && limit > from);
            assert_eq!(list(&mut self.shared, self.register.listed(from)), Some(limit));
            self.listed.extend(self.register.listed(from).map(|(_, frame)| *frame));
            set_word(&mut self.shared, shared::LIMIT, limit);
        }
        assert!(self.offered.len() <= RING);
    }

    fn close(&mut self) {
        if self.register.is_open() {
            let due = word(&self.shared, shared::NEXT);
            set_word(&mut self.shared, shared::NEXT, CLOSED);
            set_word(&mut self.shared, shared::NEXT + 4, 0);
            self.register.closed(due);
            self.listed.clear();
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

    /// The frame that is due; if none is, one that is sent again.
    fn next(&mut self, part: u8) -> Vec<u8> {
        self.frames += 1;
        let begun = word(&self.shared, shared::MESSAGE);
        let due = self.listed.front().or(self.expected.first()).copied();
        let due = due.unwrap_or(Expected { whose: Whose::Known(AWAITED), offset: 0, bytes: LEAST, at: 0 });
        let (kind, message) = match due.whose {
            Whose::Opens(least) => (Kind::Open, least),
            Whose::Known(message) => (Kind::Data, message),
            Whose::Opened => (Kind::Data, begun),
        };
        made(kind, message, due.offset, due.bytes * u32::from(part) / 255, self.frames)
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
        let due = self.listed.pop_front().expect("one is due");
        let word = |at: usize| u32::from_le_bytes(*frame[ENVELOPE + at..].first_chunk().expect("a header"));
        let (message, offset) = (word(40), word(44));
        let payload = frame[ran.cut..].to_vec();
        assert!(offset == due.offset && payload.len() <= due.bytes as usize, "{message} {offset} for {due:?}");
        assert_eq!(ran.cut > HEADERS, matches!(due.whose, Whose::Opens(_)));
        assert!(!matches!(due.whose, Whose::Known(known) if known != message));
        self.under_way.push_back(Through { message, due, payload });
    }

    /// The kernel writes the payload of the next frame to its next places.
    fn land(&mut self) {
        let Some(through) = self.under_way.pop_front() else { return };
        let mut parts = Vec::new();
        for part in through.payload.chunks(self.piece as usize) {
            let place = self.offered.pop_front().expect("a place for all that is let through");
            parts.push((place, u32::try_from(part.len()).expect("1514 at most")));
            let belongs = through.due.at + (parts.len() as u64 - 1) * u64::from(self.piece);
            assert_eq!(place, belongs, "a payload lands where it does not belong");
            self.memory[at(place)..at(place) + part.len()].copy_from_slice(part);
        }
        self.landed.push_back(Landed { through, parts });
    }

    fn look(&mut self) {
        let Some(Landed { through: Through { message, due, payload }, parts }) = self.landed.pop_front() else {
            return;
        };
        let reaches = |register: &Register| register.reaches(due.at, payload.len() as u64);
        assert!(payload.is_empty() || reaches(&self.register), "it may land, and the register does not know");
        let (place, bytes) = self.register.lands(parts.into_iter().map(Some)).expect("where it was offered");
        assert_eq!((place, bytes), (due.at, payload.len() as u64));
        self.register.tells(message, bytes);
        assert_eq!(self.memory[at(place)..at(place) + payload.len()], payload, "written over before it was looked at");
        assert!(!reaches(&self.register), "it has landed, and may be written over");
        if self.expected.first() == Some(&due) {
            self.expected.remove(0);
        }
        // If nothing else is on its way, and nothing has closed the register, it awaits what is expected now.
        let open = word(&self.shared, shared::NEXT) & CLOSED == 0 && self.register.is_open();
        if self.under_way.is_empty() && self.landed.is_empty() {
            assert_eq!(self.register.is_through(OF), open && self.listed.is_empty());
            if let Some(next) = self.listed.front() {
                let whose = if next.whose == Whose::Opened { Whose::Known(message) } else { next.whose };
                assert_eq!(self.register.awaits(OF, &Expected { whose, ..*next }), open, "{next:?}");
                assert!(!self.register.awaits(OF, &Expected { whose, at: next.at + 1, ..*next }));
            }
        }
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
