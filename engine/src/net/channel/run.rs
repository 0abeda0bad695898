//! Frames that came together, one behind the other, and landed where they belong: taken in as one.

use cutthrough_wire::frame::{HEADER_BYTES, Header, Kind, SEALED_BYTES};

use super::super::Tally;
use super::super::inbox::{Bytes, Reading};
use super::super::memory::{Memory, Place};
use super::{Channel, frame_bytes, low32};
use crate::check::Breach;
use crate::time::Instant;

/// What the headers of such frames say.
struct Run {
    first: Header,
    frames: usize,
    /// Bytes of payload in all.
    len: usize,
}

impl Run {
    /// The longest run that the frames with these headers begin with: parts of one payload without a gap, of equal
    /// length but for the last, which acknowledge the same.
    fn of(heads: &[[u8; HEADER_BYTES]]) -> Option<Self> {
        let first = heads.first().and_then(|head| Header::from_bytes(head).ok())?;
        let mut run = Self { first, frames: 0, len: 0 };
        let mut last = first.body;
        for head in heads {
            let Ok(header) = Header::from_bytes(head) else { break };
            // Nothing of this has been proved.
            let number = first.number.checked_add(run.frames as u64)?;
            let offset = u32::try_from(run.len).ok().and_then(|len| first.words[1].checked_add(len))?;
            let due = Header { number, body: header.body, words: [first.words[0], offset], ..first };
            if header != due || last < first.body || header.body > first.body {
                break;
            }
            last = header.body;
            run.frames += 1;
            run.len += usize::from(header.body);
        }
        (first.kind == Kind::Data && first.body > 0).then_some(run)
    }

    /// The last of its frames.
    const fn last(&self) -> Header {
        Header { number: self.first.number + self.frames as u64 - 1, ..self.first }
    }
}

impl<M: Memory> Channel<M> {
    /// Takes in frames that have landed in the place of their message, one behind the other: how many of them, from the
    /// first on. Frame by frame it would come to the same; whatever is not as usual is left to that.
    pub(in crate::net) fn receive_run(
        &mut self,
        heads: &[[u8; HEADER_BYTES]],
        reading: Option<&mut Reading<'_>>,
        (now, looked): (Instant, Instant),
        tally: &mut Tally,
    ) -> Result<usize, Breach> {
        let Some(mut run) = Run::of(heads).filter(|run| self.is_welcome(run)) else { return Ok(0) };
        let (message, offset, full) = (self.message(&run.first), run.first.words[1], usize::from(run.first.body));
        let mut reading = reading.filter(|reading| reading.message == message);
        let begin = offset as usize;
        let bytes = match &mut reading {
            Some(reading) => reading.into.get_mut(begin..begin + run.len),
            None => self
                .inbox
                .landing(message)
                .filter(|place| begin + run.len <= place.len())
                .map(|place| place.piece(begin, run.len)),
        };
        let Some(bytes) = bytes.filter(|bytes| bytes.len() == run.len) else { return Ok(0) };
        // Up to the first that is forged.
        (run.frames, run.len) = (0, 0);
        for (head, body) in heads.iter().zip(bytes.chunks_mut(full)) {
            let (protected, seal) = head.split_at(SEALED_BYTES);
            let number = run.first.number + run.frames as u64;
            if !seal.first_chunk().is_some_and(|seal| self.seal.open(number, protected, seal, body)) {
                break;
            }
            run.frames += 1;
            run.len += body.len();
        }
        if run.frames == 0 {
            return Ok(0);
        }
        tally.hits += run.frames as u64;
        tally.placed_bytes += run.len as u64;
        let there = Bytes::There { len: low32(run.len), frames: low32(run.frames), full: low32(full) };
        if !self.inbox.data(message, offset, &there, reading, now)? {
            tally.unplaced += run.frames as u64;
            return Ok(run.frames);
        }
        let last = run.last();
        self.count_in(&last, run.frames as u64, run.len + frame_bytes(0) * run.frames, (now, looked), tally);
        self.acknowledged(&last, now, tally)?;
        Ok(run.frames)
    }

    /// Whether nothing is known yet of what is in these frames.
    fn is_welcome(&mut self, run: &Run) -> bool {
        run.frames > 1
            && self.seen.are_next(run.first.number, run.frames as u64)
            && !self.inbox.has_some(self.message(&run.first), run.first.words[1], run.len)
    }
}
