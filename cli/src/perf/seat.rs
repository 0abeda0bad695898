//! A seat among those that are measured in turn: what sits there stays open, or is opened anew for each of its turns
//! where two of them would be in each other's way.

use std::time::Duration;

use super::case::{Case, Rig, Slice, Test};
use super::peer::Peer;
use crate::clock::{Length, Span};
use crate::failure::Failure;
use crate::units::Size;

/// How long what was just opened is used before it is measured, at least: its frames have to find out how many of them
/// go at once, and who has just come has nothing in a cache.
const SETTLING: Duration = Duration::from_millis(40);

/// What can be measured in turn with others.
pub trait Subject {
    /// It, while it is open at both ends.
    type Open;

    /// What is measured of it.
    fn test(&self) -> Test;

    /// How much is measured.
    fn length(&self) -> Length;

    /// Bytes of one message or operation.
    fn size(&self) -> Size;

    /// The name of its row, if it is one of several of a test.
    fn what(&self) -> Option<&'static str>;

    /// Opens it.
    ///
    /// # Errors
    /// If either end cannot.
    fn open(&self, peer: &mut Peer, core: usize) -> Result<Self::Open, Failure>;

    /// Measures it once, on `core`.
    ///
    /// # Errors
    /// If the other end goes away.
    fn measure(
        &self,
        open: &mut Self::Open,
        peer: &mut Peer,
        core: usize,
        test: Test,
        length: Length,
    ) -> Result<Slice, Failure>;

    /// Closes it.
    ///
    /// # Errors
    /// If the other end has gone.
    fn close(open: Self::Open, peer: &mut Peer) -> Result<(), Failure>;
}

impl Subject for Case {
    type Open = Rig;

    fn test(&self) -> Test {
        self.test
    }

    fn length(&self) -> Length {
        self.length
    }

    fn size(&self) -> Size {
        Self::size(self)
    }

    fn what(&self) -> Option<&'static str> {
        None
    }

    fn open(&self, peer: &mut Peer, _: usize) -> Result<Rig, Failure> {
        Rig::open(peer, self.clone())
    }

    fn measure(
        &self,
        open: &mut Rig,
        peer: &mut Peer,
        core: usize,
        test: Test,
        length: Length,
    ) -> Result<Slice, Failure> {
        open.measure_as(peer, core, test, length)
    }

    fn close(open: Rig, peer: &mut Peer) -> Result<(), Failure> {
        open.close(peer)
    }
}

/// A subject in its seat.
#[derive(Debug)]
pub struct Seat<'a, S: Subject> {
    /// What is measured.
    pub subject: &'a S,
    open: Option<S::Open>,
    anew: bool,
}

impl<'a, S: Subject> Seat<'a, S> {
    /// Opens a subject, unless that is done `anew` for each turn.
    ///
    /// # Errors
    /// As [`Subject::open`].
    pub fn take(subject: &'a S, peer: &mut Peer, core: usize, anew: bool) -> Result<Self, Failure> {
        let open = if anew { None } else { Some(subject.open(peer, core)?) };
        Ok(Self { subject, open, anew })
    }

    /// Has a turn: whatever is done with what is open.
    ///
    /// # Errors
    /// As [`Subject::open`] and [`Subject::measure`].
    pub fn turn<R>(
        &mut self,
        peer: &mut Peer,
        core: usize,
        run: impl FnOnce(&S, &mut S::Open, &mut Peer) -> Result<R, Failure>,
    ) -> Result<R, Failure> {
        let mut open = self.open.take().map_or_else(|| self.subject.open(peer, core), Ok)?;
        let result = run(self.subject, &mut open, peer)?;
        if self.anew {
            S::close(open, peer)?;
            // Who answers this has closed it, too.
            peer.cpu_time()?;
        } else {
            self.open = Some(open);
        }
        Ok(result)
    }

    /// How long a turn takes that is to take so long: more, if something is opened for it.
    #[must_use]
    pub fn length(&self, length: Length) -> Length {
        if self.anew { settled(length) } else { length }
    }

    /// Has a turn in which this is measured.
    ///
    /// # Errors
    /// As [`Seat::turn`].
    pub fn measure(&mut self, peer: &mut Peer, core: usize, test: Test, length: Length) -> Result<Slice, Failure> {
        let length = self.length(length);
        self.turn(peer, core, |subject, open, peer| subject.measure(open, peer, core, test, length))
    }

    /// Closes what is open.
    ///
    /// # Errors
    /// As [`Subject::close`].
    pub fn leave(self, peer: &mut Peer) -> Result<(), Failure> {
        self.open.map_or(Ok(()), |open| S::close(open, peer))
    }
}

/// This length with a warm-up of what was just opened, if it is no number of messages.
fn settled(length: Length) -> Length {
    match length.warmup {
        Span::Time(time) => Length { warmup: Span::Time(time.max(SETTLING)), ..length },
        Span::Count(_) => length,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_just_opened_settles_first() {
        let length = |ms| Length { warmup: Span::Time(Duration::from_millis(ms)), measure: Span::Count(7) };
        assert_eq!([1, 60].map(|ms| settled(length(ms))), [length(40), length(60)]);
        let counted = Length { warmup: Span::Count(0), measure: Span::Count(7) };
        assert_eq!(settled(counted), counted);
    }
}
