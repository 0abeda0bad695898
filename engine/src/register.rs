//! A matching register at an interface: which frames it lets through, and which places the kernel has for them.
//!
//! The register has a list of the frames that will probably come next, in their order: the rest of a message, and those
//! of the messages behind it. The one that is due is let through, any other one is put aside. For each listed frame
//! there is a place where its payload belongs, and the kernel uses places in their order. Places that are left over
//! cannot be taken back; the next aim writes its own over them. Numbers go in and come out: the program at the
//! interface, its memory and the rings are the adapter's.

use alloc::collections::VecDeque;

/// Set in the number of the frame that is due while the register lets nothing through.
pub const CLOSED: u32 = 1 << 31;
/// Frames that are listed in one aim at most.
pub const LAST: u32 = 1 << 30;
/// Least bytes of payload that land: the kernel leaves no frame shorter than an Ethernet header.
pub const LEAST: u32 = 14;
/// Places that are offered ahead of the frames: as many as one turn of a fast sender fills.
pub const AHEAD: usize = 256;
/// How few of them are left when there are more.
const AGAIN: usize = 128;

/// Whose payload a frame brings, by the low half of a message's number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Whose {
    /// That of this message.
    Known(u32),
    /// That of the next message, whichever this is, which it opens: this one, or one behind it.
    Opens(u32),
    /// That of the message which was opened last.
    Opened,
}

/// A frame that will probably come, and where its payload belongs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Expected {
    /// Whose payload.
    pub whose: Whose,
    /// Where in it.
    pub offset: u32,
    /// How many bytes. If there are fewer, the register closes behind them.
    pub bytes: u32,
    /// Where they belong, in the memory of the ring.
    pub at: u64,
}

/// A place that the kernel is to have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// Behind all that it has.
    Behind(u64),
    /// Instead of one that is left over: so many from the end, the last one being 1.
    Instead(u32, u64),
}

/// What the register is aimed at, and what has come of it.
#[derive(Debug)]
struct Aim {
    /// Channel of the receiver, and which life of it.
    of: (u32, u32),
    /// The frames that have not landed, in their order, and the number of the first that is not listed.
    listed: VecDeque<Expected>,
    limit: u32,
    /// How many have landed, and of which message the last one was.
    landed: u32,
    message: Option<u32>,
    /// Whether one was shorter than expected: then the program has closed the register.
    over: bool,
    /// Once user space has closed the register, how many frames it has let through.
    closed: Option<u32>,
}

/// The register, as user space knows it.
#[derive(Debug)]
pub struct Register {
    /// Most bytes of a frame that the kernel writes to one place.
    piece: u32,
    /// How many frames have been taken in that were let through.
    taken: u32,
    /// What the kernel has, in the order in which it will use it; and how many of the first ones are for the aim.
    places: VecDeque<u64>,
    meant: usize,
    aim: Option<Aim>,
}

impl Register {
    /// Aimed at nothing. The kernel writes up to `piece` bytes of a frame to one place.
    ///
    /// # Panics
    /// If a place has no bytes.
    #[must_use]
    pub const fn new(piece: u32) -> Self {
        assert!(piece > 0, "places without bytes");
        Self { piece, taken: 0, places: VecDeque::new(), meant: 0, aim: None }
    }

    /// Whether the next frame would be let through, or something that was has not been taken in.
    #[must_use]
    pub const fn is_aimed(&self) -> bool {
        self.aim.is_some()
    }

    /// Whether it is aimed at memory of this channel.
    #[must_use]
    pub fn watches(&self, tag: u32) -> bool {
        self.aim.as_ref().is_some_and(|aim| aim.of.0 == tag)
    }

    /// How many frames have been taken in that were let through.
    #[must_use]
    pub const fn taken(&self) -> u32 {
        self.taken
    }

    /// How many have been taken in since it was aimed.
    #[must_use]
    pub fn landed(&self) -> u32 {
        self.aim.as_ref().map_or(0, |aim| aim.landed)
    }

    /// How many listed frames have not landed.
    #[must_use]
    pub fn left(&self) -> usize {
        self.aim.as_ref().map_or(0, |aim| aim.listed.len())
    }

    /// The listed frames that have not landed, from this number on, and their numbers.
    pub fn listed(&self, from: u32) -> impl Iterator<Item = (u32, &Expected)> {
        self.aim.iter().flat_map(move |aim| {
            let skipped = from.saturating_sub(aim.landed);
            let rest = aim.listed.iter().skip(usize::try_from(skipped).unwrap_or(usize::MAX));
            (aim.landed.max(from)..).zip(rest)
        })
    }

    /// Whether frames may land in any of these bytes.
    #[must_use]
    pub fn reaches(&self, at: u64, bytes: u64) -> bool {
        let meets = |frame: &Expected| frame.at < at.saturating_add(bytes) && at < frame.at + u64::from(frame.bytes);
        self.aim.iter().flat_map(|aim| &aim.listed).any(meets)
    }

    /// Whether this frame, of this life of a channel, is the next one that it lets through.
    #[must_use]
    pub fn awaits(&self, of: (u32, u32), next: &Expected) -> bool {
        let Some(Aim { of: aimed, listed, message, over: false, closed: None, .. }) = &self.aim else { return false };
        let Some(due) = listed.front().filter(|_| *aimed == of) else { return false };
        let same = match (due.whose, next.whose) {
            (Whose::Known(due), Whose::Known(next)) => due == next,
            (Whose::Opened, Whose::Known(next)) => *message == Some(next),
            (Whose::Opens(_), Whose::Opens(_)) => true,
            _ => false,
        };
        same && is_there(due, next)
    }

    /// Whether it has let through all that is listed, so that anything of this life of the channel may be listed behind
    /// that.
    #[must_use]
    pub fn is_through(&self, of: (u32, u32)) -> bool {
        let Some(Aim { of: aimed, listed, limit, over: false, closed: None, .. }) = &self.aim else { return false };
        *aimed == of && listed.is_empty() && *limit < LAST
    }

    /// Aims at frames of this life of a channel: `offer` gives the kernel places. The register is closed, and quiet.
    /// How many are listed; those that are too short to be cut free are not, and if that leaves none it is aimed at
    /// nothing.
    ///
    /// # Errors
    /// As `offer`.
    pub fn aim<E>(
        &mut self,
        of: (u32, u32),
        frames: impl IntoIterator<Item = Expected>,
        offer: impl FnMut(Place) -> Result<(), E>,
    ) -> Result<u32, E> {
        debug_assert!(self.aim.is_none(), "an aim before it");
        self.meant = 0;
        let listed = VecDeque::new();
        self.aim = Some(Aim { of, listed, limit: 0, landed: 0, message: None, over: false, closed: None });
        self.list(frames, offer)?;
        let limit = self.aim.as_ref().map_or(0, |aim| aim.limit);
        self.aim.take_if(|_| limit == 0);
        Ok(limit)
    }

    /// Whether few places are left, so that more may be listed.
    #[must_use]
    pub fn is_low(&self) -> bool {
        self.meant <= AGAIN && self.is_open()
    }

    /// Lists more: of `frames`, which are those to come, what lies behind all that is listed. From which number on, and
    /// how many there are now, if these are more.
    ///
    /// # Errors
    /// As `offer`.
    pub fn extend<E>(
        &mut self,
        frames: impl IntoIterator<Item = Expected>,
        offer: impl FnMut(Place) -> Result<(), E>,
    ) -> Result<Option<(u32, u32)>, E> {
        let Some(aim) = self.aim.as_ref().filter(|aim| aim.closed.is_none() && !aim.over) else { return Ok(None) };
        let (before, mut known) = (aim.limit, aim.listed.iter());
        let mut frames = frames.into_iter().filter(|frame| frame.bytes >= LEAST).peekable();
        // The first ones may be listed; then all of them are, as they are expected now.
        if known.len() > 0 && !known.all(|listed| frames.next().is_some_and(|frame| is_there(listed, &frame))) {
            return Ok(None);
        }
        self.list(frames, offer)?;
        let limit = self.aim.as_ref().map_or(0, |aim| aim.limit);
        Ok((limit > before).then_some((before, limit)))
    }

    /// Lists frames, and offers places for them.
    fn list<E>(
        &mut self,
        frames: impl IntoIterator<Item = Expected>,
        mut offer: impl FnMut(Place) -> Result<(), E>,
    ) -> Result<(), E> {
        let Some(aim) = &mut self.aim else { return Ok(()) };
        for frame in frames {
            if self.meant >= AHEAD || aim.limit >= LAST {
                break;
            }
            if frame.bytes < LEAST {
                continue;
            }
            for piece in (0..frame.bytes).step_by(self.piece as usize) {
                let at = frame.at + u64::from(piece);
                // Places that are left over from another aim are written over: the register lets nothing through that
                // would use them.
                let back = self.places.len() - self.meant.min(self.places.len());
                if let Some(left) = self.places.get_mut(self.meant) {
                    *left = at;
                    offer(Place::Instead(u32::try_from(back).unwrap_or(u32::MAX), at))?;
                } else {
                    offer(Place::Behind(at))?;
                    self.places.push_back(at);
                }
                self.meant += 1;
            }
            aim.listed.push_back(frame);
            aim.limit += 1;
        }
        Ok(())
    }

    /// Whether user space has not closed it since the last aim.
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.aim.as_ref().is_some_and(|aim| aim.closed.is_none())
    }

    /// User space has closed it. `due` is the number of the frame that was due until then, as the program has left it.
    pub fn closed(&mut self, due: u32) {
        let Some(aim) = self.aim.as_mut().filter(|aim| aim.closed.is_none()) else { return };
        aim.closed = Some(due & !CLOSED);
    }

    /// Whether it is closed, and all that it has let through has been taken in; `through` frames, as the program says.
    pub fn is_quiet(&mut self, through: u32) -> bool {
        let Some(aim) = &self.aim else { return true };
        let Some(reached) = aim.closed else { return false };
        if aim.landed < reached || through != self.taken {
            return false;
        }
        self.aim = None;
        true
    }

    /// The parts of a frame have landed, where and how many bytes: where all of it lies, and its bytes. Nothing if they
    /// are not one behind the other, each where the next place was, or one of them is nowhere.
    pub fn lands(&mut self, parts: impl IntoIterator<Item = Option<(u64, u32)>>) -> Option<(u64, u64)> {
        let mut run: Option<(u64, u64)> = None;
        for part in parts {
            let ((at, bytes), place) = part.zip(self.places.pop_front())?;
            self.meant = self.meant.saturating_sub(1);
            let (begin, before) = run.unwrap_or((at, 0));
            if at != place || begin.checked_add(before) != Some(at) {
                return None;
            }
            run = Some((begin, before + u64::from(bytes)));
        }
        run
    }

    /// The headers say which message the frame is of that has landed last, which has so many bytes. Nothing of that has
    /// been checked.
    pub fn tells(&mut self, message: u32, bytes: u64) {
        self.taken = self.taken.wrapping_add(1);
        let Some(aim) = &mut self.aim else { return };
        aim.message = Some(message);
        aim.landed = aim.landed.saturating_add(1);
        aim.over |= aim.listed.pop_front().is_none_or(|frame| bytes < u64::from(frame.bytes));
    }
}

/// Whether two frames are expected to bring the same bytes to the same place.
const fn is_there(one: &Expected, other: &Expected) -> bool {
    one.offset == other.offset && one.at == other.at && one.bytes == other.bytes
}
