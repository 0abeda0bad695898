//! A matching register at an interface: what it is aimed at, and which places the kernel has for what it lets through.
//!
//! The register knows one run of memory at a time, the [`Target`]. For each frame that it will let through there is a
//! place where the payload belongs, and the kernel uses places in their order. Places that are left over cannot be
//! taken back; the next aim writes its own over them. Numbers go in and come out: the program at the interface, its
//! memory and the rings are the adapter's.

use alloc::collections::VecDeque;

use cutthrough_wire::frame::OPENING_BYTES;

/// What the register awaits while that is the first frame of any message.
pub const FRESH: u32 = i32::MAX as u32;
/// While one has come and its message is being written down.
pub const BUSY: u32 = FRESH - 1;
/// Set while it lets nothing through.
pub const CLOSED: u32 = 1 << 31;
/// Least bytes of payload that land: the kernel leaves no frame shorter than an Ethernet header.
pub const LEAST: u32 = 14;
/// Places that are offered ahead of the frames: as many as one turn of a fast sender fills.
pub const AHEAD: usize = 256;
/// How few of them are left when there are more.
const AGAIN: usize = 128;

/// What the next frames are expected to be, and where their payloads belong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Target {
    /// Channel of the receiver, and which life of it.
    pub tag: u32,
    /// See `tag`.
    pub generation: u32,
    /// Low half of the message's number; nothing if it is whichever comes next.
    pub message: Option<u32>,
    /// Low half of the number of the first message that has not been handed over: those before it are sent again.
    pub awaited: u32,
    /// Offset in the payload from which on bytes are missing, and up to which there is memory.
    pub begin: u32,
    /// See `begin`.
    pub end: u32,
    /// Where the byte at offset `begin` belongs, in the memory of the ring.
    pub at: u64,
    /// Bytes of payload of a full frame.
    pub slice: u32,
}

impl Target {
    /// Payloads of full frames from `from` on: where each begins, and its bytes, the last one shorter. The first frame
    /// of a message has an opening too. Too little to be cut free is none.
    fn frames(&self, from: u32) -> impl Iterator<Item = (u32, u32)> + use<> {
        let Self { message, begin, end, slice, .. } = *self;
        let opening = u32::try_from(OPENING_BYTES).unwrap_or(u32::MAX);
        let mut offset = from;
        core::iter::from_fn(move || {
            let full = if message.is_none() && offset == begin { slice.saturating_sub(opening) } else { slice };
            let bytes = full.min(end.saturating_sub(offset));
            let frame = (bytes >= LEAST).then_some((offset, bytes))?;
            offset += bytes;
            Some(frame)
        })
    }

    /// Where the byte at `offset` belongs.
    #[must_use]
    pub fn place(&self, offset: u32) -> u64 {
        self.at + u64::from(offset - self.begin)
    }
}

/// A place that the kernel is to have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// Behind all that it has.
    Behind(u64),
    /// Instead of one that is left over: so many from the end, the last one being 1.
    Instead(u32, u64),
}

/// What an aim tells the program, beside what stands in the target.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Aimed {
    /// What is awaited: an offset, or [`FRESH`].
    pub next: u32,
    /// The message; or the least one that may come.
    pub message: u32,
    /// How far there are places.
    pub limit: u32,
}

/// What the headers of a frame that has landed say. Nothing of it has been checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Says {
    /// Low half of the message's number.
    pub message: u32,
    /// Where in it the payload begins.
    pub offset: u32,
    /// Whether there was an opening.
    pub opens: bool,
}

/// What the register is aimed at, and what has come of it.
#[derive(Debug)]
struct Aim {
    target: Target,
    /// How far places have been offered.
    limit: u32,
    /// The message that it has turned out to be.
    message: Option<u32>,
    /// How far what has landed reaches.
    landed: u32,
    /// Whether a frame has come that was shorter than a full one: then the program has closed the register.
    over: bool,
    /// Once user space has closed the register, how far what was let through reaches; one byte if that is not known
    /// yet.
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
        self.aim.as_ref().is_some_and(|aim| aim.target.tag == tag)
    }

    /// How far places have been offered.
    #[must_use]
    pub fn reach(&self) -> Option<u32> {
        self.aim.as_ref().map(|aim| aim.limit)
    }

    /// How many frames have been taken in that were let through.
    #[must_use]
    pub const fn taken(&self) -> u32 {
        self.taken
    }

    /// Whether what is expected now is what the register awaits.
    #[must_use]
    pub fn is_at(&self, wanted: &Target) -> bool {
        let Some(Aim { target, message, landed, over: false, closed: None, .. }) = &self.aim else { return false };
        let same = (target.tag, target.generation, target.slice) == (wanted.tag, wanted.generation, wanted.slice);
        // A message that has begun goes on where it began.
        let goes_on = match wanted.message {
            None => message.is_none() && wanted.begin == target.begin,
            Some(_) => *message == wanted.message && wanted.begin == *landed,
        };
        // That it may end sooner has turned out since; what has come elsewhere would have closed the register.
        let there = wanted.begin >= target.begin && target.place(wanted.begin) == wanted.at;
        same && goes_on && there && wanted.end <= target.end
    }

    /// Aims at a target: `offer` gives the kernel places. The register is closed, and quiet. Nothing if there is too
    /// little that could land.
    ///
    /// # Errors
    /// As `offer`.
    pub fn aim<E>(&mut self, target: Target, offer: impl FnMut(Place) -> Result<(), E>) -> Result<Option<Aimed>, E> {
        debug_assert!(self.aim.is_none(), "an aim before it");
        self.meant = 0;
        let limit = self.offer(&target, target.begin, offer)?;
        if limit == target.begin {
            return Ok(None);
        }
        let (message, landed) = (target.message, target.begin);
        self.aim = Some(Aim { target, limit, message, landed, over: false, closed: None });
        let next = if message.is_none() { FRESH } else { target.begin };
        Ok(Some(Aimed { next, message: message.unwrap_or(target.awaited), limit }))
    }

    /// Offers more places for the same target, if few are left: how far there are places then, if that is farther.
    ///
    /// # Errors
    /// As `offer`.
    pub fn extend<E>(&mut self, offer: impl FnMut(Place) -> Result<(), E>) -> Result<Option<u32>, E> {
        if self.meant > AGAIN {
            return Ok(None);
        }
        let Some(Aim { target, limit, closed: None, .. }) = &self.aim else { return Ok(None) };
        let (target, before) = (*target, *limit);
        let limit = self.offer(&target, before, offer)?;
        self.aim.iter_mut().for_each(|aim| aim.limit = limit);
        Ok((limit > before).then_some(limit))
    }

    /// Offers places for the frames from `from` on. How far they reach.
    fn offer<E>(
        &mut self,
        target: &Target,
        from: u32,
        mut offer: impl FnMut(Place) -> Result<(), E>,
    ) -> Result<u32, E> {
        let mut limit = from;
        for (offset, bytes) in target.frames(from) {
            if self.meant >= AHEAD {
                break;
            }
            for piece in (0..bytes).step_by(self.piece as usize) {
                let at = target.place(offset + piece);
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
            limit = offset + bytes;
        }
        Ok(limit)
    }

    /// Whether user space has not closed it since the last aim.
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.aim.as_ref().is_some_and(|aim| aim.closed.is_none())
    }

    /// User space has closed it. `awaited` is what it awaited until then, as the program has left it.
    pub fn closed(&mut self, awaited: u32) {
        let Some(aim) = self.aim.as_mut().filter(|aim| aim.closed.is_none()) else { return };
        aim.closed = Some(match awaited & !CLOSED {
            FRESH => aim.target.begin,
            BUSY => aim.target.begin + 1,
            reached => reached,
        });
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

    /// What the headers say of the frame that has landed last, which has so many bytes.
    pub fn tells(&mut self, says: Says, bytes: u64) {
        self.taken = self.taken.wrapping_add(1);
        let Some(aim) = &mut self.aim else { return };
        aim.landed = aim.landed.max(says.offset.saturating_add(u32::try_from(bytes).unwrap_or(u32::MAX)));
        aim.message = Some(says.message);
        let full = aim.target.slice as usize - if says.opens { OPENING_BYTES } else { 0 };
        aim.over |= bytes < full as u64;
    }
}
