//! What is done with the bytes of a region: by its node, with the request in its hands, or by whoever had them locked.

use std::ops::Range;

use cutthrough_node::incoming::Payload;

use super::extents::{self, EXTENT_BYTES, Extent, total};
use super::{ATOMIC, AWAIT, GATHER, GATHER_MAX, GET, Locked, PUT, Region, SCATTER};
use crate::am::{Body, Failure, Request};

pub(super) const NO_REGION: &[u8] = b"no region has that key";
pub(super) const LOCKED: &[u8] = b"the owner polls while it has locked the region";
pub(super) const OUTSIDE: &[u8] = b"outside of the region, not aligned, or too much";

/// What an operation answers.
#[derive(Debug, Default)]
pub(super) struct Done {
    pub(super) args: Vec<u8>,
    pub(super) payload: Vec<u8>,
}

/// Why one is not done, and in which words.
#[derive(Debug)]
pub(super) struct Failed(pub(super) Failure, pub(super) &'static [u8]);

impl Failed {
    pub(super) const NO_REGION: Self = Self(Failure::Refused, NO_REGION);
    const OUTSIDE: Self = Self(Failure::Refused, OUTSIDE);
    const ARGUMENTS: Self = Self(Failure::Arguments, &[]);

    fn tell(self, request: Request<'_>) {
        match self {
            Self(Failure::Refused, words) => request.refuse(words),
            Self(why, _) => request.fail(why),
        }
    }
}

/// The operations, by who has the bytes and the request: as few copies as can be.
pub(super) fn put(mut request: Request<'_>, mut bytes: Locked<'_>) {
    let len = request.payload_len();
    match Region::written(request.args(), len, &mut bytes) {
        Ok(place) => {
            if len > 0 && request.read(place).is_err() {
                request.fail(Failure::Abandoned);
            }
        }
        Err(failed) => failed.tell(request),
    }
}

pub(super) fn get(mut request: Request<'_>, mut bytes: Locked<'_>) {
    let place = match Region::asked(request.args(), &mut bytes) {
        Ok(place) => place,
        Err(failed) => return failed.tell(request),
    };
    if request.place().is_none()
        && let Ok(mut page) = request.page(place.len())
    {
        page.copy_from_slice(place);
        return request.reply_with(&[], Body::Page(page));
    }
    request.reply_with(&[], Body::Copy(place));
}

pub(super) fn atomic(request: Request<'_>, mut bytes: Locked<'_>) {
    let before = Region::change(request.args(), &mut bytes);
    drop(bytes);
    match before {
        Ok(before) => request.reply_bytes(&before.to_le_bytes()),
        Err(failed) => failed.tell(request),
    }
}

pub(super) fn scatter(mut request: Request<'_>, mut bytes: Locked<'_>) {
    let (len, payload) = (request.payload_len(), request.take_payload());
    let region = bytes.region;
    if let Err(failed) = region.scatter(request.args(), len, &mut bytes, |at, into| copy(&payload, at, into)) {
        failed.tell(request);
    }
}

pub(super) fn gather(mut request: Request<'_>, mut bytes: Locked<'_>) {
    let (len, payload) = (request.payload_len(), request.take_payload());
    let (list, len) = match Region::gathered(request.args(), len, &mut bytes, |at, into| copy(&payload, at, into)) {
        Ok(listed) => listed,
        Err(failed) => return failed.tell(request),
    };
    match request.page(len) {
        Ok(mut page) => {
            Region::gather(&list, &mut bytes, &mut page);
            request.reply_with(&[], Body::Page(page));
        }
        // All pages are out: the reply waits for its turn in memory of its own.
        Err(_) => {
            let mut copy = vec![0; len];
            Region::gather(&list, &mut bytes, &mut copy);
            request.reply_with(&[], Body::Copy(&copy));
        }
    }
}

pub(super) fn await_pages(mut request: Request<'_>, bytes: Locked<'_>) {
    let (len, payload) = (request.payload_len(), request.take_payload());
    let known = bytes.region.await_pages(request.args(), len, |at, into| copy(&payload, at, into));
    drop(bytes);
    if let Err(failed) = known {
        failed.tell(request);
    }
}

/// Bytes of a payload that has come. None of one that has not: what is read is told from that by its length.
fn copy(payload: &Payload, at: usize, into: &mut [u8]) -> Option<()> {
    match payload {
        Payload::Landed(landed) => landed.read_at(at, into),
        Payload::Buffer(from) => into.copy_from_slice(&from[at..at + into.len()]),
        _ => return None,
    }
    Some(())
}

/// The same operations on arguments and bytes, whoever has them.
impl Region {
    /// The bytes of a run, if it lies in the region.
    fn run(bytes: &mut [u8], extent: Extent) -> Option<&mut [u8]> {
        let start = usize::try_from(extent.offset).ok()?;
        bytes.get_mut(start..start.checked_add(extent.len as usize)?)
    }

    /// The slots that a run covers from end to end; the region's last one may be shorter than the others.
    fn slots_of(&self, extent: Extent) -> Range<u32> {
        let (slot, len) = (u64::from(self.inside.slot), self.inside.len);
        let end = extent.offset + u64::from(extent.len);
        let [first, end] = [extent.offset.div_ceil(slot), if end == len { len.div_ceil(slot) } else { end / slot }];
        let [first, end] = [first, end].map(|number| u32::try_from(number).unwrap_or(u32::MAX));
        first..end
    }

    /// The slots of which a run covers something; none, if it does not lie in the region.
    fn slots_under(&self, extent: Extent) -> Range<u32> {
        let slot = u64::from(self.inside.slot);
        let end = extent.offset.checked_add(u64::from(extent.len)).filter(|end| *end <= self.inside.len);
        let bounds = end.map_or([0, 0], |end| [extent.offset / slot, end.div_ceil(slot)]);
        let [first, end] = bounds.map(|number| u32::try_from(number).unwrap_or(u32::MAX));
        first..end
    }

    /// One that has waited, with its payload.
    pub(super) fn apply(&self, handler: u16, args: &[u8], payload: &[u8], bytes: &mut [u8]) -> Result<Done, Failed> {
        let copy = |at: usize, into: &mut [u8]| {
            into.copy_from_slice(&payload[at..at + into.len()]);
            Some(())
        };
        let mut done = Done::default();
        match handler {
            PUT => Self::written(args, payload.len(), bytes)?.copy_from_slice(payload),
            GET => done.payload = Self::asked(args, bytes)?.to_vec(),
            ATOMIC => done.args = Self::change(args, bytes)?.to_le_bytes().to_vec(),
            SCATTER => self.scatter(args, payload.len(), bytes, copy)?,
            GATHER => {
                let (list, len) = Self::gathered(args, payload.len(), bytes, copy)?;
                done.payload = vec![0; len];
                Self::gather(&list, bytes, &mut done.payload);
            }
            AWAIT => self.await_pages(args, payload.len(), copy)?,
            _ => return Err(Failed::ARGUMENTS),
        }
        Ok(done)
    }

    /// How many bytes the payload of its answer has, if it is done.
    pub(super) fn answered(handler: u16, args: &[u8], payload: &[u8]) -> usize {
        let len = match handler {
            GET => Some(word(args, 4) as usize),
            GATHER => {
                let list = (word(args, 2) as usize).checked_mul(EXTENT_BYTES).and_then(|head| payload.get(..head));
                list.and_then(|list| total(&extents::decode(list)))
            }
            _ => None,
        };
        // Of more nothing is sent.
        len.filter(|len| *len <= GATHER_MAX).unwrap_or(0)
    }

    /// Where a put writes so many bytes.
    fn written<'b>(args: &[u8], len: usize, bytes: &'b mut [u8]) -> Result<&'b mut [u8], Failed> {
        let extent = u32::try_from(len).ok().map(|len| Extent { offset: offset(args, 2), len });
        extent.and_then(|extent| Self::run(bytes, extent)).ok_or(Failed::OUTSIDE)
    }

    /// What a get reads.
    fn asked<'b>(args: &[u8], bytes: &'b mut [u8]) -> Result<&'b mut [u8], Failed> {
        let extent = Extent { offset: offset(args, 2), len: word(args, 4) };
        Self::run(bytes, extent).filter(|place| place.len() <= GATHER_MAX).ok_or(Failed::OUTSIDE)
    }

    /// Does an atomic operation: what the cell was before.
    fn change(args: &[u8], bytes: &mut [u8]) -> Result<u64, Failed> {
        let (at, operand, expected) = (offset(args, 3), offset(args, 5), offset(args, 7));
        let cell = Self::run(bytes, Extent { offset: at, len: 8 }).filter(|_| at.is_multiple_of(8));
        let cell = cell.and_then(|cell| cell.first_chunk_mut::<8>()).ok_or(Failed::OUTSIDE)?;
        let before = u64::from_le_bytes(*cell);
        let after = match word(args, 2) {
            0 => before.wrapping_add(operand),
            1 => operand,
            2 if before == expected => operand,
            2 => before,
            _ => return Err(Failed::ARGUMENTS),
        };
        *cell = after.to_le_bytes();
        Ok(before)
    }

    /// The runs that are listed at the start of a payload, of which `copy` copies bytes.
    fn list(
        args: &[u8],
        len: usize,
        copy: &mut impl FnMut(usize, &mut [u8]) -> Option<()>,
    ) -> Result<Vec<Extent>, Failed> {
        let head = (word(args, 2) as usize).checked_mul(EXTENT_BYTES).filter(|head| *head <= len);
        let mut head = vec![0; head.ok_or(Failed::ARGUMENTS)?];
        copy(0, &mut head).ok_or(Failed::ARGUMENTS)?;
        Ok(extents::decode(&head))
    }

    /// Writes the runs that are listed at the start of a payload with the bytes behind the list.
    fn scatter(
        &self,
        args: &[u8],
        len: usize,
        bytes: &mut [u8],
        mut copy: impl FnMut(usize, &mut [u8]) -> Option<()>,
    ) -> Result<(), Failed> {
        let (list, pages) = (Self::list(args, len, &mut copy)?, word(args, 3) == 1);
        let mut at = list.len() * EXTENT_BYTES;
        // All is looked at before anything is written.
        let inside = list.iter().all(|extent| Self::run(bytes, *extent).is_some());
        if !inside || total(&list).and_then(|bytes| bytes.checked_add(at)) != Some(len) {
            return Err(Failed::OUTSIDE);
        }
        for extent in &list {
            let Some(place) = Self::run(bytes, *extent) else { continue };
            copy(at, place).ok_or(Failed::ARGUMENTS)?;
            at += place.len();
            if pages {
                self.slots_of(*extent).for_each(|slot| self.validate(slot));
            }
        }
        Ok(())
    }

    /// The runs that are asked for by a list in a payload, and how many bytes they are together.
    fn gathered(
        args: &[u8],
        len: usize,
        bytes: &mut [u8],
        mut copy: impl FnMut(usize, &mut [u8]) -> Option<()>,
    ) -> Result<(Vec<Extent>, usize), Failed> {
        let list = Self::list(args, len, &mut copy)?;
        let inside = list.iter().all(|extent| Self::run(bytes, *extent).is_some());
        // What is asked for may be more than was ever registered, by runs that lie on top of each other.
        let len = total(&list).filter(|len| inside && *len <= GATHER_MAX).ok_or(Failed::OUTSIDE)?;
        Ok((list, len))
    }

    /// Copies the bytes of runs that lie in the region, one behind the other.
    fn gather(list: &[Extent], bytes: &mut [u8], into: &mut [u8]) {
        let mut at = 0;
        for extent in list {
            if let Some(place) = Self::run(bytes, *extent) {
                into[at..at + place.len()].copy_from_slice(place);
                at += place.len();
            }
        }
    }

    /// Pages are about to come: what lies in their slots is not what shall lie there. A slot outside of the region is
    /// passed over, for its page will be refused; and one that is named often is looked at once.
    fn await_pages(
        &self,
        args: &[u8],
        len: usize,
        mut copy: impl FnMut(usize, &mut [u8]) -> Option<()>,
    ) -> Result<(), Failed> {
        let list = Self::list(args, len, &mut copy)?;
        let mut under: Vec<_> = list.iter().map(|extent| self.slots_under(*extent)).collect();
        under.sort_unstable_by_key(|slots| slots.start);
        let mut next = 0;
        for slots in under {
            (slots.start.max(next)..slots.end).for_each(|slot| self.invalidate(slot));
            next = next.max(slots.end);
        }
        Ok(())
    }
}

/// A word of the arguments.
fn word(args: &[u8], at: usize) -> u32 {
    args.get(at * 4..).and_then(|word| word.first_chunk()).map_or(0, |word| u32::from_le_bytes(*word))
}

/// Two words of the arguments.
fn offset(args: &[u8], at: usize) -> u64 {
    u64::from(word(args, at)) | u64::from(word(args, at + 1)) << 32
}
