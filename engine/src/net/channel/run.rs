//! Frames of one payload that came together, one behind the other: taken in as one.

use cutthrough_wire::frame::{HEADER_BYTES, Header, Kind, SEALED_BYTES};
use cutthrough_wire::seal::Seal;

use super::super::Tally;
use super::super::inbox::{Bytes, Reading};
use super::super::memory::{Memory, Place};
use super::{Bodies, Channel, frame_bytes, low32};
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
        let (mut last, sealed) = (first.body, first.sealed());
        for head in heads {
            // Nothing of this has been proved.
            let number = first.number.checked_add(run.frames as u64)?;
            let offset = u32::try_from(run.len).ok().and_then(|len| first.words[1].checked_add(len))?;
            if last < first.body {
                break;
            }
            if !sealed.part(number, first.body, offset).is(head) {
                // The last one may be shorter.
                let Ok(Header { body, .. }) = Header::from_bytes(head) else { break };
                if !sealed.part(number, body, offset).is(head) || body > first.body {
                    break;
                }
                last = body;
            }
            run.frames += 1;
            run.len += usize::from(last);
        }
        (first.kind == Kind::Data && first.body > 0).then_some(run)
    }

    /// Opens the bodies of its frames, and keeps those up to the first that is forged.
    fn keep_good<'a>(
        &mut self,
        seal: &mut dyn Seal,
        heads: &[[u8; HEADER_BYTES]],
        bodies: impl Iterator<Item = &'a mut [u8]>,
    ) {
        let most = core::mem::take(&mut self.frames);
        self.len = 0;
        for (head, body) in heads.iter().zip(bodies).take(most) {
            let (protected, tag) = head.split_at(SEALED_BYTES);
            let number = self.first.number + self.frames as u64;
            if !tag.first_chunk().is_some_and(|tag| seal.open(number, protected, tag, body)) {
                return;
            }
            self.frames += 1;
            self.len += body.len();
        }
    }

    /// The last of its frames.
    const fn last(&self) -> Header {
        Header { number: self.first.number + self.frames as u64 - 1, ..self.first }
    }
}

impl<M: Memory> Channel<M> {
    /// Takes in frames of one payload that came together, one behind the other: how many of them, from the first on.
    /// Frame by frame it would come to the same; whatever is not as usual is left to that.
    pub(in crate::net) fn receive_run(
        &mut self,
        (heads, bodies): (&[[u8; HEADER_BYTES]], Bodies<'_>),
        reading: Option<&mut Reading<'_>>,
        (now, looked): (Instant, Instant),
        tally: &mut Tally,
    ) -> Result<usize, Breach> {
        let Some(mut run) = Run::of(heads).filter(|run| self.is_welcome(run)) else { return Ok(0) };
        let (message, offset, full) = (self.message(&run.first), run.first.words[1], usize::from(run.first.body));
        let mut reading = reading.filter(|reading| reading.message == message);
        let mut bodies = bodies;
        match &mut bodies {
            Bodies::Landed => {
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
                run.keep_good(&mut *self.seal, heads, bytes.chunks_mut(full));
            }
            Bodies::Aside(..) if !self.inbox.takes(message, reading.is_some()) => return Ok(0),
            Bodies::Aside(frames, segment) => {
                let all = run.len;
                let lens = (0..all).step_by(full).map(|begin| full.min(all - begin));
                let parts = frames.chunks_mut(*segment).zip(lens);
                let parts = parts.map_while(|(frame, len)| frame.get_mut(HEADER_BYTES..HEADER_BYTES + len));
                run.keep_good(&mut *self.seal, heads, parts);
            }
        }
        if run.frames == 0 {
            return Ok(0);
        }
        let bytes = match bodies {
            Bodies::Landed => {
                tally.hits += run.frames as u64;
                tally.placed_bytes += run.len as u64;
                Bytes::There { len: low32(run.len), frames: low32(run.frames), full: low32(full) }
            }
            Bodies::Aside(frames, segment) => {
                self.count_miss(message, (run.frames, run.len), tally);
                Bytes::Apart { frames, segment, len: low32(run.len), full: low32(full) }
            }
        };
        let taken = self.inbox.data(message, offset, &bytes, reading, now)?;
        tally.mended_bytes += self.inbox.take_mended();
        if !taken {
            tally.unplaced += run.frames as u64;
            return Ok(run.frames);
        }
        let last = run.last();
        self.count_in(&last, run.frames as u64, run.len + frame_bytes(0) * run.frames, (now, looked), tally);
        self.acknowledged(&last, now)?;
        self.heed_unless_told(tally);
        Ok(run.frames)
    }

    /// Whether nothing is known yet of what is in these frames.
    fn is_welcome(&mut self, run: &Run) -> bool {
        run.frames > 1
            && self.seen.are_next(run.first.number, run.frames as u64)
            && !self.inbox.has_some(self.message(&run.first), run.first.words[1], run.len)
    }
}
