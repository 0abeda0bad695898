//! A kernel that does as it is told, for the fuzzer: out of turn, and not always what a kernel does.

use std::collections::VecDeque;

use super::Kernel;
use crate::simulated::time;

/// What a kernel does out of turn. Frames that have come to the interface are named by their place there, as places
/// wrap.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Deed {
    /// Loses a frame that has come.
    Lose(u8),
    /// Has a frame come once more, behind all others.
    Repeat(u8),
    /// Has a frame come behind so many of the others.
    Move(u8, u8),
    /// Changes a byte of a frame: which one, and by what.
    Spoil(u8, u16, u8),
    /// Has a frame come on another queue, where the stack gets it.
    Stack(u8),
    /// Holds a frame back.
    Hold(u8),
    /// Has what was held back come, before all others.
    Return,
    /// Has a frame come that is like the next one, and somebody else's.
    Stray,
    /// Runs the program on the next frame, on one of two processors.
    Look(bool),
    /// Stops: for two to the power of this, in nanoseconds, up to two seconds.
    Stop(u8),
    /// Goes on with the frame that is on its way, whether or not it has stopped.
    GoOn,
    /// Has finished with the frame that is on its way.
    Finish,
    /// Loses the frame that is on its way.
    Drop,
    /// Lies: tells of the frame that is on its way, and writes no more of it.
    Half,
    /// Lies: says of the frame on its way that it begins so much later, and is so much longer.
    Lie(i16, i16),
    /// Lies: tells of the parts of the frame on its way in another order.
    Swap,
    /// Lies: tells of the frame on its way twice.
    Twice,
    /// Lies: writes the frame that is on its way, and tells of it when it is told [`Deed::Then`].
    Later,
    /// Tells of what it has not told.
    Then,
    /// Says of a part that it has sent that it was, before those that it sent earlier.
    Complete(u8),
}

impl Deed {
    /// Whether no kernel does so that is in order.
    #[must_use]
    pub const fn is_lie(self) -> bool {
        matches!(self, Self::Half | Self::Lie(..) | Self::Swap | Self::Twice | Self::Later)
    }
}

/// What a kernel is told to do, each after so many of its steps; and what it holds back.
#[derive(Debug, Default)]
pub(super) struct Script {
    deeds: VecDeque<(u8, Deed)>,
    held: VecDeque<Vec<u8>>,
    untold: Vec<(u64, usize)>,
}

impl Script {
    pub(super) fn tell(&mut self, after: u8, deed: Deed) {
        self.deeds.push_back((after, deed));
    }
}

impl Kernel {
    /// Does what it is told to do next, if it is time. Whether it has.
    pub(super) fn does_as_told(&mut self) -> bool {
        let Some((after, deed)) = self.script.deeds.front_mut() else { return false };
        if let Some(less) = after.checked_sub(1) {
            *after = less;
            return false;
        }
        let deed = *deed;
        self.script.deeds.pop_front();
        self.does(deed);
        true
    }

    fn does(&mut self, deed: Deed) {
        let place = |of: u8, all: usize| usize::from(of).checked_rem(all);
        match deed {
            Deed::Lose(of) => drop(self.out(of)),
            Deed::Repeat(of) => {
                let frame = place(of, self.came.len()).and_then(|at| self.came.get(at)).cloned();
                self.came.extend(frame);
            }
            Deed::Move(of, behind) => {
                if let Some(frame) = self.out(of) {
                    self.came.insert(usize::from(behind).min(self.came.len()), frame);
                }
            }
            Deed::Spoil(of, at, by) => {
                let frame = place(of, self.came.len()).and_then(|at| self.came.get_mut(at));
                if let Some(frame) = frame
                    && let Some(byte) = usize::from(at).checked_rem(frame.len()).and_then(|at| frame.get_mut(at))
                {
                    *byte ^= by;
                }
            }
            Deed::Stack(of) => {
                let frame = self.out(of);
                self.frames.passed += u64::from(frame.is_some());
                self.passed.extend(frame);
            }
            Deed::Hold(of) => {
                let frame = self.out(of);
                self.script.held.extend(frame);
            }
            Deed::Return => {
                while let Some(frame) = self.script.held.pop_back() {
                    self.came.push_front(frame);
                }
            }
            Deed::Stray => {
                if let Some(frame) = self.came.front().cloned() {
                    self.stray(&frame, 0);
                }
            }
            Deed::Look(other) => {
                // Who has stopped with a frame looks at no other one meanwhile.
                let busy = self.on_its_way.as_ref().map(|one| one.processor);
                if busy != Some(u32::from(other)) && (busy.is_none() || self.loaded.places()) {
                    self.look(u32::from(other));
                }
            }
            Deed::Stop(long) => {
                let now = time::now_at_no_cost().map_or(0, cutthrough_engine::time::Instant::as_nanos);
                self.stops_until = now + (1 << (long % 32));
                self.frames.stopped += 1;
            }
            Deed::GoOn => self.go_on(),
            Deed::Finish => {
                while self.on_its_way.is_some() {
                    self.go_on();
                }
            }
            Deed::Drop => {
                self.frames.lost += u64::from(self.on_its_way.take().is_some());
            }
            Deed::Half => {
                if let Some(one) = self.on_its_way.take() {
                    self.tells(&one.parts);
                }
            }
            Deed::Lie(later, longer) => {
                let mut parts = self.written();
                if let Some((at, bytes)) = parts.last_mut() {
                    *at = at.saturating_add_signed(later.into());
                    *bytes = bytes.saturating_add_signed(longer.into());
                }
                self.tells(&parts);
            }
            Deed::Swap => {
                let mut parts = self.written();
                parts.reverse();
                self.tells(&parts);
            }
            Deed::Twice => {
                let parts = self.written();
                self.tells(&parts);
                self.tells(&parts);
            }
            Deed::Later => {
                let parts = self.written();
                self.script.untold.extend(parts);
            }
            Deed::Then => {
                let parts = std::mem::take(&mut self.script.untold);
                self.tells(&parts);
            }
            Deed::Complete(of) => {
                let at = place(of, self.sent.len()).and_then(|at| self.sent.remove(at));
                if let Some(at) = at.filter(|at| !self.ends.complete(*at)) {
                    self.sent.push_front(at);
                }
            }
        }
    }

    /// Writes all of the frame that is on its way, and forgets it: its parts.
    fn written(&mut self) -> Vec<(u64, usize)> {
        let Some(one) = self.on_its_way.take() else { return Vec::new() };
        let mut rest = &one.bytes[..];
        for (at, bytes) in &one.parts {
            let (part, later) = rest.split_at(*bytes);
            self.ends.write(*at, part);
            rest = later;
        }
        one.parts
    }

    /// Tells of these parts as of one frame.
    fn tells(&mut self, parts: &[(u64, usize)]) {
        if !parts.is_empty() {
            self.ends.tell(parts);
            self.ends.show();
        }
    }

    /// Takes a frame out that has come.
    fn out(&mut self, of: u8) -> Option<Vec<u8>> {
        let at = usize::from(of).checked_rem(self.came.len())?;
        self.came.remove(at)
    }
}
