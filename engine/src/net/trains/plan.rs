//! How the frames of the next train should land: headers aside, and each payload in its place, message after message.
//!
//! A train carries the rest of one payload, or the first message that comes next, and whatever follows: as far as
//! places are known for those, each begins with a frame of its own. Frames are of one length, so that behind the end of
//! a payload there may be bytes that nobody wants.

use alloc::vec::Vec;

use cutthrough_wire::frame::{HEADER_BYTES, OPENING_BYTES};

use super::TRAIN_BYTES;

/// Frames of a train at most for which there is a plan.
pub(super) const FRAMES: usize = 64;
/// Bytes of the headers of as many frames, of which each may open a message.
pub(super) const HEADS: usize = FRAMES * (HEADER_BYTES + OPENING_BYTES);

/// Trains for which there is a plan for as many messages as one of them had.
const REMEMBERED: u32 = 64;

/// What trains were like of late: the next one will probably be so, too.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Like {
    /// Bytes of a frame, once one came with several; and of the last one, if it had several.
    pub(super) segment: Option<usize>,
    pub(super) last: Option<usize>,
    /// Messages that were opened, or went on, at most.
    pub(super) messages: usize,
    /// Trains since one had so many.
    since: u32,
}

impl Like {
    /// A train has come, of so many messages; how long its frames are, if it had several.
    pub(super) fn came(&mut self, messages: usize, segment: Option<usize>) {
        (self.segment, self.last) = (segment.or(self.segment), segment);
        self.since += 1;
        if messages >= self.messages || self.since > REMEMBERED {
            (self.messages, self.since) = (messages, 0);
        }
    }
}

/// Frames of one payload, one behind the other, into one run of a place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Stretch {
    /// The first frame, and how many there are.
    pub(super) frame: usize,
    pub(super) frames: usize,
    /// First byte of the run in the payload, and how many there are.
    pub(super) first: usize,
    pub(super) len: usize,
    /// Where the run lies in memory: by this it is known again.
    pub(super) at: usize,
    /// Bytes behind the header of the first frame that are not of the payload.
    opening: usize,
    /// Where its headers lie, and what it has in the train before it that nobody wants.
    head: usize,
    scrap: usize,
}

impl Stretch {
    /// Whether it begins with the opening of a message.
    pub(super) const fn opens(&self) -> bool {
        self.opening > 0
    }

    /// The frame behind its last.
    pub(super) const fn end(&self) -> usize {
        self.frame + self.frames
    }

    /// Bytes that nobody wants behind its last frame, if that is as long as the others.
    const fn pad(&self, full: usize) -> usize {
        self.frames * (full - HEADER_BYTES) - self.opening - self.len
    }
}

/// A frame as it should land: where its header lies, its part of the payload, and bytes behind that.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Planned {
    /// The stretch that it is of.
    pub(super) stretch: usize,
    pub(super) head: usize,
    pub(super) head_len: usize,
    pub(super) offset: usize,
    pub(super) len: usize,
    pub(super) pad: usize,
}

impl Planned {
    /// Bytes of the frame.
    pub(super) const fn bytes(&self) -> usize {
        self.head_len + self.len + self.pad
    }
}

/// How the frames of a train should land.
#[derive(Debug, Default)]
pub(super) struct Plan {
    /// Bytes of a full frame.
    full: usize,
    stretches: Vec<Stretch>,
}

impl Plan {
    /// A new plan, for frames of `full` bytes.
    pub(super) fn begin(&mut self, full: usize) {
        self.full = full;
        self.stretches.clear();
    }

    /// Has as many frames as a train has land in `len` bytes of a place that lie at `at`, from byte `first` of the
    /// payload on. False if the train is full, or the frames are too short for that.
    pub(super) fn add(&mut self, first: usize, (at, len): (usize, usize), opens: bool) -> bool {
        let opening = if opens { OPENING_BYTES } else { 0 };
        let last = self.stretches.last();
        let frame = last.map_or(0, Stretch::end);
        let most = (TRAIN_BYTES / self.full.max(1)).min(FRAMES).saturating_sub(frame);
        if len == 0 {
            return most > 0;
        }
        let Some(body) = self.full.checked_sub(HEADER_BYTES).filter(|body| *body > opening && most > 0) else {
            return false;
        };
        let frames = (len + opening).div_ceil(body).min(most);
        let (head, scrap) = last.map_or((0, 0), |last| {
            (last.head + last.frames * HEADER_BYTES + last.opening, last.scrap + last.pad(self.full))
        });
        let len = len.min(frames * body - opening);
        self.stretches.push(Stretch { frame, frames, first, len, at, opening, head, scrap });
        true
    }

    /// How many frames there are.
    #[inline]
    pub(super) fn frames(&self) -> usize {
        self.stretches.last().map_or(0, Stretch::end)
    }

    /// Bytes of all of it.
    pub(super) fn bytes(&self) -> usize {
        self.stretches.last().map_or(0, |last| {
            let frames = last.frame * self.full + last.frames * HEADER_BYTES;
            frames + last.opening + last.len
        })
    }

    /// The stretch of this number.
    pub(super) fn stretch(&self, number: usize) -> Option<&Stretch> {
        self.stretches.get(number)
    }

    /// The `k`-th frame.
    #[inline]
    pub(super) fn get(&self, k: usize) -> Option<Planned> {
        let number = self.stretches.iter().position(|stretch| k < stretch.end())?;
        let stretch = self.stretches.get(number)?;
        let is_last = number + 1 == self.stretches.len();
        let (k, body) = (k - stretch.frame, self.full - HEADER_BYTES);
        // The opening is behind the first header, and takes that much of the first frame.
        let (before, opening) = if k == 0 { (0, stretch.opening) } else { (stretch.opening, 0) };
        let done = k * body - before;
        let len = (body - opening).min(stretch.len - done);
        Some(Planned {
            stretch: number,
            head: stretch.head + k * HEADER_BYTES + before,
            head_len: HEADER_BYTES + opening,
            offset: stretch.first + done,
            len,
            pad: if is_last { 0 } else { body - opening - len },
        })
    }

    /// Where in the train's scraps those behind the last frame of a stretch lie.
    pub(super) fn scrap(&self, number: usize) -> usize {
        self.stretches.get(number).map_or(0, |stretch| stretch.scrap)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = Planned> + '_ {
        (0..self.frames()).map_while(|k| self.get(k))
    }

    /// Gives the memory where a train lands by this plan to `each`, in the order of travel: of each frame its header,
    /// its part of the run of its stretch, and, behind the last one of a stretch, what nobody wants. `heads` and
    /// `scraps` have room for a whole train, and each run is as long as it was when it was added.
    pub(super) fn scatter<'a>(
        &self,
        (mut heads, mut scraps): (&'a mut [u8], &'a mut [u8]),
        runs: impl Iterator<Item = &'a mut [u8]>,
        mut each: impl FnMut(&'a mut [u8]),
    ) {
        let body = self.full.saturating_sub(HEADER_BYTES);
        for (number, (stretch, run)) in self.stretches.iter().zip(runs).enumerate() {
            let (head, others) = heads.split_at_mut(HEADER_BYTES + stretch.opening);
            let run = &mut run[..stretch.len];
            let (first, rest) = run.split_at_mut((body - stretch.opening).min(stretch.len));
            each(head);
            each(first);
            let (those, others) = others.split_at_mut((stretch.frames - 1) * HEADER_BYTES);
            for (head, part) in those.chunks_exact_mut(HEADER_BYTES).zip(rest.chunks_mut(body)) {
                each(head);
                each(part);
            }
            heads = others;
            let pad = if number + 1 == self.stretches.len() { 0 } else { stretch.pad(self.full) };
            if pad > 0 {
                let (pad, others) = scraps.split_at_mut(pad);
                each(pad);
                scraps = others;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec;

    use proptest::prelude::*;

    use super::*;

    /// The plan by its definition: run after run, frame after frame, until there is none left or the train is full.
    fn step_by_step(runs: &[(usize, usize, bool)], full: usize) -> Vec<Planned> {
        let mut plan: Vec<Planned> = Vec::new();
        let mut head = 0;
        for (stretch, &(first, len, opens)) in runs.iter().enumerate() {
            let mut done = 0;
            while done < len && (plan.len() + 1) * full <= TRAIN_BYTES && plan.len() < FRAMES {
                let head_len = HEADER_BYTES + if opens && done == 0 { OPENING_BYTES } else { 0 };
                let body = (full - head_len).min(len - done);
                plan.push(Planned { stretch, head, head_len, offset: first + done, len: body, pad: 0 });
                done += body;
                head += head_len;
            }
        }
        for k in 1..plan.len() {
            if plan[k - 1].stretch < plan[k].stretch {
                plan[k - 1].pad = full - plan[k - 1].bytes();
            }
        }
        plan
    }

    proptest! {
        #[test]
        fn a_plan_is_what_its_definition_says(
            goes_on in any::<bool>(),
            runs in prop::collection::vec((0_usize..1 << 20, prop_oneof![1_usize..5000, 1_usize..1 << 18]), 0..12),
            full in 300_usize..TRAIN_BYTES,
        ) {
            let opens = |number| number > 0 || !goes_on;
            let runs: Vec<_> = runs.iter().enumerate().map(|(number, run)| (run.0, run.1, opens(number))).collect();
            let mut plan = Plan::default();
            plan.begin(full);
            for &(first, len, opens) in &runs {
                if !plan.add(first, (7, len), opens) {
                    break;
                }
            }
            let planned: Vec<Planned> = plan.iter().collect();
            prop_assert_eq!(&planned, &step_by_step(&runs, full));
            prop_assert_eq!(plan.bytes(), planned.iter().map(Planned::bytes).sum::<usize>());
            prop_assert_eq!((plan.frames(), plan.get(planned.len())), (planned.len(), None));
            let mut scrap = 0;
            for frame in &planned {
                prop_assert!(frame.pad == 0 || plan.scrap(frame.stretch) == scrap);
                prop_assert!(frame.head + frame.head_len <= HEADS);
                scrap += frame.pad;
            }
            prop_assert!(scrap <= TRAIN_BYTES);
            let (mut heads, mut scraps) = (vec![0; HEADS], vec![0; TRAIN_BYTES]);
            let mut memory: Vec<Vec<u8>> = runs.iter().map(|(_, len, _)| vec![0; *len]).collect();
            let mut parts = Vec::new();
            plan.scatter((&mut heads, &mut scraps), memory.iter_mut().map(|run| &mut run[..]), |part| {
                parts.push(part.len());
            });
            let pad = |frame: &Planned| Some(frame.pad).filter(|pad| *pad > 0);
            let parts_of = |frame: &Planned| [Some(frame.head_len), Some(frame.len), pad(frame)];
            prop_assert_eq!(parts, planned.iter().flat_map(parts_of).flatten().collect::<Vec<_>>());
        }
    }

    #[test]
    fn the_most_messages_of_late_are_remembered() {
        let mut like = Like::default();
        like.came(8, Some(1488));
        for _ in 0..REMEMBERED {
            like.came(1, None);
            assert_eq!((like.messages, like.segment), (8, Some(1488)));
        }
        like.came(2, Some(700));
        assert_eq!((like.messages, like.segment), (2, Some(700)));
    }

    #[test]
    fn frames_too_short_for_an_opening_have_no_plan() {
        let mut plan = Plan::default();
        plan.begin(HEADER_BYTES + OPENING_BYTES);
        assert!(!plan.add(0, (0, 100), true) && plan.frames() == 0 && plan.bytes() == 0);
        assert!(plan.add(0, (0, 100), false));
    }
}
