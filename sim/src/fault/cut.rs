//! A ring before which a register cuts headers off, as endpoints of the adapter `xdp` have it: the engine's own
//! [`Register`] decides where places are and when the kernel writes nowhere. Here are the program at the interface, the
//! kernel and the memory that it decides for.
//!
//! A frame takes its turn at the register and lands a little later, perhaps only after the register was closed. The
//! endpoint looks later still. Everything is held against what came: each frame lies where the register says, what has
//! landed never changes, neither while the register goes on nor after it was quiet, and nothing is written elsewhere.

use std::collections::VecDeque;

use cutthrough_engine::net::Guess;
use cutthrough_engine::register::{CLOSED, Expected, LEAST, Place, Register, Whose};
use cutthrough_wire::frame::{HEADER_BYTES, Header, Kind, OPENING_BYTES, low};

use super::Summary;
use super::network::Frame;
use super::random::Random;

/// Bytes of a run of memory, which one message has; and how many there are, with bytes around each that nobody has to
/// write.
const RUN: u32 = 32 << 10;
const RUNS: usize = 6;
const AROUND: u64 = 4096;
/// What nobody has written.
const UNTOUCHED: u8 = 0xee;
/// Of a thousand frames, those that have their turn and land later; and of looks at a register that awaits what comes
/// later, those that leave it at that.
const LATE: u64 = 300;
/// Frames that are looked at ahead, and those of them that are let pass at most.
const LISTED: usize = 64;
const PASS: usize = 4;

/// The first place of a run.
const fn run_at(run: usize) -> u64 {
    AROUND + run as u64 * (RUN as u64 + AROUND)
}

/// Where pieces of a frame lie, and how many bytes each has.
type Pieces = Vec<(u64, u32)>;
/// Parts of a payload, where each lies.
type Parts = Vec<(u64, Vec<u8>)>;

/// What the program knows.
#[derive(Debug)]
struct Program {
    /// The channel of the receiver, and which life of it.
    life: (u32, u32),
    /// The listed frames from the one on that is due, and the number of that one.
    listed: VecDeque<Expected>,
    due: u32,
    /// The message that was opened last.
    message: u32,
    /// Frames that have had their turn and are counted: that comes a little later, too.
    through: u32,
}

/// The bytes of a frame that land.
fn payload(frame: &Frame) -> &[u8] {
    let opens = frame.bytes.get(1) == Some(&(Kind::Open as u8));
    frame.bytes.get(HEADER_BYTES + if opens { OPENING_BYTES } else { 0 }..).unwrap_or(&[])
}

impl Program {
    /// Whether this frame is the one that is due. Then the one behind it is: where it lands.
    fn takes(&mut self, frame: &Frame) -> Option<Expected> {
        let due = *self.listed.front().filter(|_| self.due & CLOSED == 0)?;
        let (head, body) = frame.bytes.split_first_chunk::<HEADER_BYTES>()?;
        let header = Header::from_bytes(head).ok()?;
        let [message, offset] = header.words;
        let bytes = u32::try_from(payload(frame).len()).unwrap_or(0);
        let whole = usize::from(header.body) == body.len() && (header.tag, header.generation) == self.life;
        if !whole || !(LEAST..=due.bytes).contains(&bytes) || offset != due.offset {
            return None;
        }
        let its = match (header.kind, due.whose) {
            (Kind::Data, Whose::Known(known)) => message == known,
            (Kind::Data, Whose::Opened) => message == self.message,
            (Kind::Open, Whose::Opens(least)) => message.wrapping_sub(least) < 1 << 31,
            _ => false,
        };
        if !its {
            return None;
        }
        self.listed.pop_front();
        self.due = (self.due + 1) | if bytes < due.bytes { CLOSED } else { 0 };
        if header.kind == Kind::Open {
            self.message = message;
        }
        Some(due)
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
    under_way: VecDeque<(Expected, Frame)>,
    counted: usize,
    landed: VecDeque<(Pieces, Expected, Frame)>,
    /// The run that the next message gets; the message that has got one last, in which life of which channel, the byte
    /// of it that lies first there, and which run that is; what lies in each run.
    run: usize,
    placed: Option<((u32, u32), u32, u32, usize)>,
    there: [Parts; RUNS],
    /// Bytes of the last message that came to its end, and of the one before.
    ended: [u32; 2],
    wrong: Option<String>,
}

impl Cut {
    /// For frames with payloads of `slice` bytes, of which the kernel writes `piece` to one place.
    pub(super) fn new(slice: u32, piece: u32) -> Self {
        let program = Program { life: (0, 0), listed: VecDeque::new(), due: CLOSED, message: 0, through: 0 };
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
            placed: None,
            there: Default::default(),
            ended: [0, 1],
            wrong: None,
        }
    }

    /// Whether nothing waits to be looked at, or is under way there.
    pub(super) fn is_empty(&self) -> bool {
        self.landed.is_empty() && self.under_way.is_empty()
    }

    /// A frame has come. It is given back if the register does not await it.
    pub(super) fn arrived(&mut self, frame: Frame, random: &mut Random) -> Option<Frame> {
        if !random.chance(LATE) {
            self.go_on();
        }
        let Some(due) = self.program.takes(&frame) else { return Some(frame) };
        self.under_way.push_back((due, frame));
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
        self.count();
        self.counted = 0;
        while let Some((due, frame)) = self.under_way.pop_front() {
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
            self.landed.push_back((parts, due, frame));
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
        let Some((parts, due, frame)) = self.landed.pop_front() else { return Ok(None) };
        let (at, bytes) = self.register.lands(parts.iter().copied().map(Some)).ok_or("a frame landed astray")?;
        let lies = usize::try_from(at).unwrap_or(0);
        if self.memory.get(lies..lies + usize::try_from(bytes).unwrap_or(0)) != Some(payload(&frame)) {
            return Err(format!("a frame that landed at {at} has other bytes"));
        }
        if at != due.at {
            return Err(format!("a frame landed at {at} that belongs at {}", due.at));
        }
        let header = frame.bytes.first_chunk().and_then(|head| Header::from_bytes(head).ok());
        let [message, offset] = header.ok_or("a frame without a header was let through")?.words;
        self.register.tells(message, bytes);
        if matches!(due.whose, Whose::Opens(_)) {
            self.place(self.program.life, message, 0, run_of(at));
        }
        if bytes < u64::from(self.slice) && !matches!(due.whose, Whose::Opens(_)) {
            self.ended = [offset + u32::try_from(bytes).unwrap_or(0), self.ended[0]];
        }
        self.there[run_of(at)].push((at, payload(&frame).to_vec()));
        summary.placed.cut += 1;
        Ok(Some(frame))
    }

    /// A message has got this run, in which this byte of it lies first.
    fn place(&mut self, of: (u32, u32), message: u32, first: u32, run: usize) {
        self.placed = Some((of, message, first, run));
        self.run = (run + 1) % RUNS;
    }

    /// Whether nothing has changed that has landed, and nothing was written outside of every run.
    fn check(&self) -> Result<(), String> {
        for (at, bytes) in self.there.iter().flatten() {
            let begin = usize::try_from(*at).unwrap_or(0);
            if self.memory[begin..begin + bytes.len()] != bytes[..] {
                return Err(format!("what has landed at {at} is not what has come"));
            }
        }
        let around = (0..=RUNS).map(|run| usize::try_from(run_at(run) - AROUND).unwrap_or(0));
        let written = around.flat_map(|begin| self.memory.iter().skip(begin).take(4096)).any(|byte| *byte != UNTOUCHED);
        if written { Err("bytes were written outside of every place".into()) } else { Ok(()) }
    }

    /// The frames that the engine expects next: the rest of a message that has a run, and two messages behind it, the
    /// second one only if messages are alike. `awaited` is the first message that has not come whole.
    fn forecast(&self, guess: Guess, of: (u32, u32), awaited: u64) -> Vec<Expected> {
        let (mut list, mut least) = (Vec::new(), low(awaited));
        if let Guess::Rest { message, begin, end, .. } = guess {
            let is_placed = |placed: &(_, u32, u32, _)| (placed.0, placed.1) == (of, low(message)) && placed.2 <= begin;
            let Some((_, _, first, run)) = self.placed.filter(is_placed) else { return list };
            least = low(message).wrapping_add(1);
            let end = end.min(first.saturating_add(RUN));
            for offset in (begin..end).step_by(self.slice as usize) {
                let at = run_at(run) + u64::from(offset - first);
                list.push(Expected {
                    whose: Whose::Known(low(message)),
                    offset,
                    bytes: self.slice.min(end - offset),
                    at,
                });
            }
        }
        let alike = self.ended[0] == self.ended[1] && (1..RUN).contains(&self.ended[0]);
        for ahead in 0..if alike { 2 } else { 1 } {
            let (first, bytes) = (run_at((self.run + ahead) % RUNS), if alike { self.ended[0] } else { RUN });
            let opening = u32::try_from(OPENING_BYTES).unwrap_or(0);
            let mut offset = 0;
            while offset < bytes && self.slice > opening {
                let full = if offset == 0 { self.slice - opening } else { self.slice };
                let whose = if offset == 0 { Whose::Opens(least) } else { Whose::Opened };
                let frame = Expected { whose, offset, bytes: full.min(bytes - offset), at: first + u64::from(offset) };
                offset += frame.bytes;
                list.push(frame);
            }
            least = least.wrapping_add(1);
        }
        list.retain(|frame| frame.bytes >= LEAST);
        list.truncate(LISTED);
        list
    }

    /// What has come has been looked at: the register goes on, or is closed; and once the kernel writes nowhere, it is
    /// aimed anew, perhaps some frames ahead. Of the channel that is expected on, its life and the first message that
    /// has not come whole.
    pub(super) fn aim(
        &mut self,
        expected: Option<(Guess, (u32, u64))>,
        random: &mut Random,
        summary: &mut Summary,
    ) -> Result<(), String> {
        self.check()?;
        let of = expected.map_or((0, 0), |(guess, (generation, _))| {
            let (Guess::Fresh { channel } | Guess::Rest { channel, .. }) = guess;
            (u32::try_from(channel).unwrap_or(u32::MAX), generation)
        });
        let list = expected.map(|(guess, (_, awaited))| self.forecast(guess, of, awaited)).unwrap_or_default();
        if list.first().is_some_and(|next| self.register.awaits(of, next) || self.register.is_through(of)) {
            self.prepare(&list);
            self.register.extend(list.iter().copied(), |place| offer(&mut self.offered, place))?;
            let known = self.program.due + u32::try_from(self.program.listed.len()).unwrap_or(0);
            let more: Vec<_> = self.register.listed(known).map(|(_, frame)| *frame).collect();
            self.program.listed.extend(more);
            return Ok(());
        }
        if list.iter().any(|frame| self.register.awaits(of, frame)) && random.chance(LATE) {
            return Ok(());
        }
        if self.register.is_open() {
            self.register.closed(std::mem::replace(&mut self.program.due, CLOSED));
        }
        if !self.register.is_quiet(self.program.through) {
            let stuck = self.landed.is_empty() && self.under_way.is_empty();
            return if stuck { Err("the register is closed, and never quiet".into()) } else { Ok(()) };
        }
        self.program.listed.clear();
        let Some((guess, (_, awaited))) = expected else { return Ok(()) };
        if let Guess::Rest { message, begin, .. } = guess
            && self.placed.is_none_or(|placed| (placed.0, placed.1) != (of, low(message)) || placed.2 > begin)
        {
            self.there[self.run].clear();
            self.place(of, low(message), begin, self.run);
        }
        let pass = if random.chance(LATE) { random.index(PASS) } else { 0 };
        let list: Vec<_> = self.forecast(guess, of, awaited).into_iter().skip(pass).collect();
        let list: Vec<_> = list.into_iter().skip_while(|frame| frame.whose == Whose::Opened).collect();
        self.prepare(&list);
        if self.register.aim(of, list, |place| offer(&mut self.offered, place))? > 0 {
            summary.placed.aims += 1;
            self.program.life = of;
            self.program.listed = self.register.listed(0).map(|(_, frame)| *frame).collect();
            self.program.due = 0;
        }
        Ok(())
    }

    /// What lay in the runs of messages that begin is dropped, and what lay where bytes of a message that has begun are
    /// still missing: it did not count.
    fn prepare(&mut self, list: &[Expected]) {
        for frame in list {
            let its = |other: &Expected| frame.at < other.at + u64::from(other.bytes) && other.at < frame.at + 1;
            if self.register.listed(0).any(|(_, other)| its(other)) {
                continue;
            }
            let run = run_of(frame.at);
            let begins = !matches!(frame.whose, Whose::Known(_));
            let listed = self.register.listed(0).any(|(_, other)| run_of(other.at) == run);
            if begins && !listed {
                self.there[run].clear();
            }
            let (at, end) = (frame.at, frame.at + u64::from(frame.bytes));
            self.there[run].retain(|(other, bytes)| end <= *other || other + bytes.len() as u64 <= at);
        }
    }
}

/// The run that a byte lies in.
fn run_of(at: u64) -> usize {
    usize::try_from((at - AROUND) / (u64::from(RUN) + AROUND)).unwrap_or(0)
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
