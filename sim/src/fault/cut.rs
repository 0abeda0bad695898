//! A ring before which a register cuts headers off, as endpoints of the adapter `xdp` have it: the engine's own
//! [`Register`] decides where places are and when the kernel writes nowhere. Here are the program at the interface, the
//! kernel and the memory that it decides for.
//!
//! A frame takes its turn at the register and lands a little later, perhaps only after the register was closed. The
//! endpoint looks later still. Everything is held against what came: each frame lies where the register says, what has
//! landed never changes, neither while the register goes on nor after it was quiet, and nothing is written elsewhere.

use std::collections::VecDeque;

use cutthrough_engine::net::Guess;
use cutthrough_engine::register::{BUSY, CLOSED, FRESH, LEAST, Place, Register, Says, Target};
use cutthrough_wire::frame::{HEADER_BYTES, Header, Kind, OPENING_BYTES, low};

use super::Summary;
use super::network::Frame;
use super::random::Random;

/// Bytes of a run of memory, which one aim is for at most; and how many there are, with bytes around each that nobody
/// has to write.
const RUN: u32 = 32 << 10;
const RUNS: usize = 4;
const AROUND: u64 = 4096;
/// Runs that the user keeps.
const KEPT: usize = 2;
/// What nobody has written.
const UNTOUCHED: u8 = 0xee;
/// Of a thousand frames, those that have their turn and land later; and those that open a message and are written down
/// later.
const LATE: u64 = 300;

/// The first place of a run.
const fn run_at(run: usize) -> u64 {
    AROUND + run as u64 * (RUN as u64 + AROUND)
}

/// Parts of a payload, where each lies.
type Parts = Vec<(u64, Vec<u8>)>;

/// What the program knows.
#[derive(Debug)]
struct Program {
    target: Option<Target>,
    /// What is awaited, of which message, and how far there are places.
    next: u32,
    message: u32,
    limit: u32,
    /// What will be awaited when the message that has begun is written down.
    then: Option<u32>,
    /// Frames that have had their turn and are counted: that comes a little later, too.
    through: u32,
}

/// The bytes of a frame that land.
fn payload(frame: &Frame) -> &[u8] {
    let opens = frame.bytes.get(1) == Some(&(Kind::Open as u8));
    frame.bytes.get(HEADER_BYTES + if opens { OPENING_BYTES } else { 0 }..).unwrap_or(&[])
}

impl Program {
    /// Whether this frame is the next one. Then the one behind it is.
    fn takes(&mut self, frame: &Frame, is_late: bool) -> bool {
        let Some(target) = self.target else { return false };
        let Some((head, body)) = frame.bytes.split_first_chunk::<HEADER_BYTES>() else { return false };
        let Ok(header) = Header::from_bytes(head) else { return false };
        let ours = (header.tag, header.generation) == (target.tag, target.generation);
        let [message, offset] = header.words;
        let bytes = u32::try_from(payload(frame).len()).unwrap_or(0);
        if !ours || usize::from(header.body) != body.len() || bytes < LEAST || offset > FRESH {
            return false;
        }
        let opening = u32::try_from(OPENING_BYTES).unwrap_or(0);
        let after = |full: u32| (offset + bytes) | if bytes < full { CLOSED } else { 0 };
        match header.kind {
            Kind::Data => {
                let fits = bytes <= target.slice && offset + bytes <= self.limit;
                if message != self.message || offset != self.next || !fits {
                    return false;
                }
                self.next = after(target.slice);
            }
            Kind::Open => {
                let full = target.slice.saturating_sub(opening);
                let fits = bytes <= full && bytes <= self.limit;
                if self.next != FRESH || offset != 0 || message.wrapping_sub(self.message) > FRESH || !fits {
                    return false;
                }
                (self.next, self.message, self.then) = (BUSY, message, Some(after(full)));
                if !is_late {
                    self.write_down();
                }
            }
            _ => return false,
        }
        true
    }

    /// The message that has begun is written down, unless user space was faster.
    fn write_down(&mut self) {
        if let Some(then) = self.then.take().filter(|_| self.next == BUSY) {
            self.next = then;
        }
    }
}

/// The ring, its memory and its program.
#[derive(Debug)]
pub(super) struct Cut {
    register: Register,
    program: Program,
    /// Bytes that the kernel writes to one place, and those of a full frame's payload.
    piece: u32,
    slice: u32,
    memory: Vec<u8>,
    /// Places that the kernel has.
    offered: VecDeque<u64>,
    /// Frames that have had their turn, how many of them are counted, and those that have landed, where.
    under_way: VecDeque<Frame>,
    counted: usize,
    landed: VecDeque<(Vec<(u64, u32)>, Frame)>,
    /// The run that the register is aimed at, and what has landed there.
    run: usize,
    there: Parts,
    /// What the user has: in which run.
    kept: VecDeque<(usize, Parts)>,
    wrong: Option<String>,
}

impl Cut {
    /// For frames with payloads of `slice` bytes, of which the kernel writes `piece` to one place.
    pub(super) fn new(slice: u32, piece: u32) -> Self {
        let program = Program { target: None, next: CLOSED, message: 0, limit: 0, then: None, through: 0 };
        Self {
            register: Register::new(piece),
            program,
            piece,
            slice,
            memory: vec![UNTOUCHED; usize::try_from(run_at(RUNS)).unwrap_or(0)],
            offered: VecDeque::new(),
            under_way: VecDeque::new(),
            counted: 0,
            landed: VecDeque::new(),
            run: 0,
            there: Vec::new(),
            kept: VecDeque::new(),
            wrong: None,
        }
    }

    /// Whether nothing waits to be looked at, or is under way there.
    pub(super) fn is_empty(&self) -> bool {
        self.landed.is_empty() && self.under_way.is_empty() && self.program.then.is_none()
    }

    /// A frame has come. It is given back if the register does not await it.
    pub(super) fn arrived(&mut self, frame: Frame, random: &mut Random) -> Option<Frame> {
        if !random.chance(LATE) {
            self.go_on();
        }
        if !self.program.takes(&frame, random.chance(LATE)) {
            return Some(frame);
        }
        self.under_way.push_back(frame);
        if !random.chance(LATE) {
            self.count();
        }
        None
    }

    fn count(&mut self) {
        let more = u32::try_from(self.under_way.len() - self.counted).unwrap_or(0);
        (self.program.through, self.counted) = (self.program.through.wrapping_add(more), self.under_way.len());
    }

    /// What is under way lands.
    fn go_on(&mut self) {
        self.program.write_down();
        self.count();
        self.counted = 0;
        while let Some(frame) = self.under_way.pop_front() {
            let mut parts = Vec::new();
            for part in payload(&frame).chunks(self.piece as usize) {
                let Some(at) = self.offered.pop_front() else {
                    self.wrong = Some("a frame was let through for which there is no place".into());
                    return;
                };
                let begin = usize::try_from(at).unwrap_or(0);
                self.memory[begin..begin + part.len()].copy_from_slice(part);
                parts.push((at, u32::try_from(part.len()).unwrap_or(0)));
            }
            self.landed.push_back((parts, frame));
        }
    }

    /// The next frame that has landed.
    pub(super) fn take(&mut self, random: &mut Random, summary: &mut Summary) -> Result<Option<Frame>, String> {
        if self.landed.is_empty() && !random.chance(LATE) {
            self.go_on();
        }
        if let Some(wrong) = self.wrong.take() {
            return Err(wrong);
        }
        let Some((parts, frame)) = self.landed.pop_front() else { return Ok(None) };
        let (at, bytes) = self.register.lands(parts.iter().copied().map(Some)).ok_or("a frame landed astray")?;
        let lies = usize::try_from(at).unwrap_or(0);
        if self.memory.get(lies..lies + usize::try_from(bytes).unwrap_or(0)) != Some(payload(&frame)) {
            return Err(format!("a frame that landed at {at} has other bytes"));
        }
        let header = frame.bytes.first_chunk().and_then(|head| Header::from_bytes(head).ok());
        let header = header.ok_or("a frame without a header was let through")?;
        let [message, offset] = header.words;
        let belongs = self.program.target.filter(|target| {
            let is_its = (target.tag, target.generation) == (header.tag, header.generation);
            is_its && offset >= target.begin && target.place(offset) == at
        });
        if belongs.is_none() {
            return Err(format!("a frame of another aim landed at {at}"));
        }
        self.register.tells(Says { message, offset, opens: header.kind == Kind::Open }, bytes);
        self.there.push((at, payload(&frame).to_vec()));
        summary.placed.cut += 1;
        Ok(Some(frame))
    }

    /// Whether nothing has changed that has landed, and nothing was written outside of every run.
    fn check(&self) -> Result<(), String> {
        let all = self.kept.iter().flat_map(|(_, parts)| parts).chain(&self.there);
        for (at, bytes) in all {
            let begin = usize::try_from(*at).unwrap_or(0);
            if self.memory[begin..begin + bytes.len()] != bytes[..] {
                return Err(format!("what has landed at {at} is not what has come"));
            }
        }
        let around = (0..=RUNS).map(|run| usize::try_from(run_at(run) - AROUND).unwrap_or(0));
        let written = around.flat_map(|begin| self.memory.iter().skip(begin).take(4096)).any(|byte| *byte != UNTOUCHED);
        if written { Err("bytes were written outside of every place".into()) } else { Ok(()) }
    }

    /// What the engine expects next, as a target: at the place where the register would be, or from the first byte of a
    /// run. `life` is the channel's: which one it is, and the number of the first message that has not come whole.
    fn wanted(&self, guess: Guess, (generation, awaited): (u32, u64)) -> Target {
        let (channel, message, begin, end) = match guess {
            Guess::Fresh { channel } => (channel, None, 0, RUN),
            Guess::Rest { channel, message, begin, end } => (channel, Some(low(message)), begin, end),
        };
        let (first, at) = match self.program.target {
            Some(aimed) if self.register.is_aimed() && aimed.begin <= begin => (aimed.begin, aimed.at),
            _ => (begin, run_at(self.run)),
        };
        let at = at + u64::from(begin - first);
        let (tag, end) = (u32::try_from(channel).unwrap_or(u32::MAX), end.min(first.saturating_add(RUN)));
        Target { tag, generation, message, awaited: low(awaited), begin, end, at, slice: self.slice }
    }

    /// What has come has been looked at: the register goes on, or is closed; and once the kernel writes nowhere, it is
    /// aimed anew.
    pub(super) fn aim(&mut self, expected: Option<(Guess, (u32, u64))>, summary: &mut Summary) -> Result<(), String> {
        self.check()?;
        if expected.is_some_and(|(guess, life)| self.register.is_at(&self.wanted(guess, life))) {
            let limit = self.register.extend(|place| offer(&mut self.offered, place))?;
            self.program.limit = limit.unwrap_or(self.program.limit);
            return Ok(());
        }
        if self.register.is_open() {
            self.register.closed(std::mem::replace(&mut self.program.next, CLOSED));
        }
        if !self.register.is_quiet(self.program.through) {
            let stuck = self.landed.is_empty() && self.under_way.is_empty();
            return if stuck { Err("the register is closed, and never quiet".into()) } else { Ok(()) };
        }
        if self.program.target.take().is_some() {
            self.kept.push_back((self.run, std::mem::take(&mut self.there)));
            while self.kept.len() > KEPT {
                self.kept.pop_front();
            }
            self.run = (self.run + 1) % RUNS;
        }
        let Some((guess, life)) = expected else { return Ok(()) };
        let target = self.wanted(guess, life);
        if let Some(aimed) = self.register.aim(target, |place| offer(&mut self.offered, place))? {
            summary.placed.aims += 1;
            self.program.target = Some(target);
            (self.program.next, self.program.message, self.program.limit) = (aimed.next, aimed.message, aimed.limit);
        }
        Ok(())
    }
}

/// Gives the kernel a place.
fn offer(offered: &mut VecDeque<u64>, place: Place) -> Result<(), &'static str> {
    match place {
        Place::Behind(at) => offered.push_back(at),
        Place::Instead(back, at) => {
            let index = offered.len().checked_sub(back as usize);
            *index.and_then(|index| offered.get_mut(index)).ok_or("a place instead of none")? = at;
        }
    }
    Ok(())
}
