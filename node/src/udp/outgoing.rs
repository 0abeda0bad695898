//! Payloads on their way out, and the copies of what may have to go again.
//!
//! Pages of the pool stay as they are until they have arrived, and are sent from where they lie, or copied where the
//! kernel then copies nothing. Private memory is the caller's again when its call ends: what is not acknowledged then
//! is copied. Where frames are short it has been copied already, behind the headers of the batches that carried it
//! ([`super::carried`]), and those batches' memory is kept instead.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use cutthrough_engine::net::memory::{Hold, Load, copy_pieces};
use cutthrough_segment::page::{Landed, Page};

use super::carried::{Carried, Haul, Hauls, Lies, Spare};
use crate::raw::xdp::Flights;
use crate::sys::lent::Lent;

/// Bytes of private memory in a frame up to which they are copied behind its header. To name the two in a list costs
/// the kernel 130 to 150 ns; to copy 1,424 bytes takes 40 ns, and to copy 8,924 longer than that.
pub(super) const COALESCED: usize = 4096;
/// Bytes of a channel's payloads of which copies are kept. Counted under the endpoint's lock.
#[derive(Debug, Clone, Default)]
pub(super) struct KeptBytes(Arc<AtomicUsize>);

impl KeptBytes {
    pub(super) fn get(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }

    fn add(&self, bytes: usize) {
        self.0.fetch_add(bytes, Ordering::Relaxed);
    }

    fn sub(&self, bytes: usize) {
        self.0.fetch_sub(bytes, Ordering::Relaxed);
    }
}

/// A copy of what is not acknowledged yet of a payload.
#[derive(Debug)]
pub(crate) struct Kept {
    len: usize,
    /// Memory of batches, which may hold more than has to be kept.
    carried: Hauls,
    /// The rest, and how many bytes are to be kept in all.
    copied: Haul,
    wanted: usize,
    home: Spare,
    /// How its trains lie when it goes.
    lies: Lies,
    /// Bytes that are kept, and where all of the channel's are counted.
    bytes: usize,
    all: KeptBytes,
}

impl Kept {
    /// Room for copies of parts of this payload, which uses what batches have carried of it; they are counted in `all`.
    pub(super) fn new(payload: &[u8], carried: &mut Carried, spare: &Spare, all: KeptBytes) -> Self {
        let lies = carried.what_is_kept();
        let (carried, copied, home) = (carried.hauls(), Haul::default(), spare.clone());
        Self { len: payload.len(), carried, copied, wanted: 0, home, lies, bytes: 0, all }
    }

    /// What lies from `begin` to `end` in the payload is to be kept: to be said of all of it before any is.
    pub(super) fn want(&mut self, begin: usize, end: usize) {
        self.wanted += end - begin;
        self.carried.want(begin, end);
    }

    /// That was all: lets go of batches of which hardly anything is to be kept.
    pub(super) fn keep_what_is_wanted(&mut self) {
        self.carried.keep_what_is_wanted(&self.home);
    }

    /// Keeps what lies from `begin` to `end` in the payload; behind the parts before it.
    pub(super) fn add(&mut self, begin: usize, end: usize, payload: &[u8]) {
        self.bytes += end - begin;
        self.all.add(end - begin);
        let mut from = begin;
        while from < end {
            let (to, goes_on) =
                self.carried.next(from).map_or((end, end), |(begin, goes_on)| (begin.min(end), goes_on));
            if from < to {
                if self.copied.bytes.capacity() == 0 {
                    self.copied = self.home.take();
                    // Of a long payload that is but a part of what lies behind.
                    self.copied.bytes.reserve(self.wanted);
                }
                self.copied.add(from, payload.get(from..to).unwrap_or(&[]));
            }
            from = goes_on;
        }
    }

    /// What lies from `offset` on, up to the end of the part that it is in.
    fn piece(&self, offset: usize) -> &[u8] {
        self.carried.piece(offset).unwrap_or_else(|| self.copied.piece(offset))
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        self.all.sub(self.bytes);
        let copied = core::mem::take(&mut self.copied);
        self.home.give(self.carried.own.drain(..).chain([copied]));
    }
}

/// A payload that goes.
#[derive(Debug)]
pub(crate) enum Outgoing {
    /// Pages of the channel's pool, and where each begins in the payload; what a ring has of them, if they lie in its
    /// memory; and how trains of them lie where they are sealed.
    Pages(Vec<(usize, Page)>, Option<Arc<Flights>>, Lies),
    /// A payload that was received; and how its trains lie, as of pages. If somebody may still write there, it is
    /// copied behind the headers of its frames: a frame whose bytes change after its check sum was made would be lost,
    /// as often as it is sent.
    Landed(Arc<Landed>, Lies),
    /// A copy.
    Copy(Kept),
    /// Memory that the caller lends until its call ends; and how its trains lie.
    Lent(Lent, Lies),
}

impl Outgoing {
    /// Whether it lies in pages: they stay as they are until it has arrived, however often it goes.
    const fn lies_in_pages(&self) -> bool {
        matches!(self, Self::Pages(..) | Self::Landed(..))
    }

    /// How its trains lie.
    const fn lies(&self) -> &Lies {
        match self {
            Self::Copy(kept) => &kept.lies,
            Self::Pages(_, _, lies) | Self::Landed(_, lies) | Self::Lent(_, lies) => lies,
        }
    }
}

impl Load for Outgoing {
    fn len(&self) -> usize {
        match self {
            Self::Pages(pages, ..) => pages.last().map_or(0, |(begin, page)| begin + page.len()),
            Self::Landed(landed, _) => landed.len(),
            Self::Copy(kept) => kept.len,
            Self::Lent(lent, _) => lent.bytes().len(),
        }
    }

    fn piece(&self, offset: usize, most: usize) -> &[u8] {
        let bytes = match self {
            Self::Pages(pages, ..) => {
                let index = pages.partition_point(|(begin, _)| *begin <= offset).saturating_sub(1);
                let Some((begin, page)) = pages.get(index) else { return &[] };
                page.get(offset - begin..).unwrap_or(&[])
            }
            Self::Landed(landed, _) => landed.piece(offset),
            Self::Copy(kept) => kept.piece(offset),
            Self::Lent(lent, _) => lent.bytes().get(offset..).unwrap_or(&[]),
        };
        &bytes[..bytes.len().min(most)]
    }

    fn copy_out(&self, offset: usize, out: &mut [u8]) -> bool {
        let Self::Landed(landed, _) = self else { return copy_pieces(self, offset, out) };
        landed.read_at(offset, out);
        true
    }

    fn coalesces(&self, len: usize, held: bool) -> bool {
        // Pages are copied only where the kernel does not copy them, too.
        held || len <= COALESCED && !self.lies_in_pages()
    }

    fn hold(&self) -> Option<Box<dyn Hold>> {
        // What has to be copied out first is summed or sealed where it is copied to.
        let is_copied = matches!(self, Self::Landed(landed, _) if !landed.is_sole());
        let berth = self.lies().memory().filter(|_| !is_copied)?.berth()?;
        Some(Box::new(berth))
    }

    fn is_in_use(&self) -> bool {
        let Self::Pages(pages, Some(flights), _) = self else { return false };
        !pages.iter().all(|(_, page)| flights.is_idle(page.place().offset(), page.len() as u64))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::carried::WASTE;
    use super::*;

    /// Memory of batches as they would have carried these parts of a payload in frames, headers between them.
    fn carried(payload: &[u8], parts: &[(usize, usize)], body: usize) -> Carried {
        let hauls = parts.iter().map(|&(begin, end)| {
            let mut haul: Haul = Haul::default();
            for (at, frame) in (begin..).step_by(body).zip(payload[begin..end].chunks(body)) {
                haul.bytes.extend_from_slice(&[0xee; 64]);
                haul.add(at, frame);
            }
            haul
        });
        Carried::by(hauls)
    }

    /// A message is in use while a ring has a part of one of its pages, wherever in it that begins; and not the message
    /// whose pages lie beside them.
    #[test]
    fn a_payload_is_in_use_while_a_ring_has_a_part_of_any_of_its_pages() {
        use cutthrough_segment::map::{Mapping, Writers};
        use cutthrough_segment::page::Ground;

        use crate::sys::xdp::socket::pages_of;
        let (mapping, _file) = Mapping::create("test", 1 << 20, 4096, Writers::Maker).unwrap();
        let (begin, flights) = (64 << 10, Arc::new(Flights::new(64 << 10, 1 << 20)));
        let mut pool = pages_of(Ground::new((mapping, begin), 4096, Arc::default()), 16);
        let mut message = |lens: &[usize]| {
            let begins = lens.iter().scan(0, |end, len| Some(core::mem::replace(end, *end + len)));
            let pages = begins.zip(lens).map(|(begin, len)| (begin, pool.take(*len).unwrap()));
            Outgoing::Pages(pages.collect(), Some(Arc::clone(&flights)), Lies::Anywhere)
        };
        let (one, two) = (message(&[100]), message(&[8192, 5000]));
        assert!(!one.is_in_use() && !two.is_in_use());
        let runs = |message: &Outgoing| match message {
            Outgoing::Pages(pages, ..) => pages.iter().map(|(_, page)| page.place().offset()).collect::<Vec<_>>(),
            other => panic!("{other:?}"),
        };
        for at in [runs(&two)[0], runs(&two)[0] + 8191, runs(&two)[1] + 4096] {
            flights.begin(at);
            flights.begin(at);
            assert!(two.is_in_use() && !one.is_in_use(), "{at}");
            flights.end(at);
            assert!(two.is_in_use());
            flights.end(at);
            assert!(!two.is_in_use());
        }
        flights.begin(runs(&one)[0] + 99);
        assert!(one.is_in_use() && !two.is_in_use());
        // Pages that lie elsewhere are in nobody's ring.
        let Outgoing::Pages(pages, ..) = one else { panic!("pages") };
        assert!(!Outgoing::Pages(pages, None, Lies::Anywhere).is_in_use());
    }

    /// A frame that was lost at the beginning of a long payload, and what was sent last, are all that is not there yet:
    /// the copy takes no more memory than they do.
    #[test]
    fn room_for_copies_is_for_what_is_kept() {
        const BYTES: usize = 32 << 20;
        let (payload, all) = (vec![1; BYTES], KeptBytes::default());
        let mut kept = Kept::new(&payload, &mut Carried::default(), &Spare::default(), all.clone());
        let wanted = [(1000, 2000), (BYTES - 5000, BYTES)];
        wanted.iter().for_each(|&(begin, end)| kept.want(begin, end));
        kept.keep_what_is_wanted();
        wanted.iter().for_each(|&(begin, end)| kept.add(begin, end, &payload));
        assert_eq!((kept.copied.bytes.len(), all.get()), (6000, 6000));
        assert!(kept.copied.bytes.capacity() < 10 * 6000, "{} bytes", kept.copied.bytes.capacity());
    }

    fn pairs(cuts: &std::collections::BTreeSet<usize>) -> Vec<(usize, usize)> {
        let cuts: Vec<usize> = cuts.iter().copied().collect();
        cuts.chunks_exact(2).map(|cut| (cut[0], cut[1])).collect()
    }

    proptest! {
        /// Every byte that was asked for is found, and none is copied that a batch has carried whose memory is kept,
        /// which is not much more than was asked for; what is neither is not there.
        #[test]
        fn copies_are_of_what_no_batch_has_carried(
            wanted in prop::collection::btree_set(0_usize..500, 0..20),
            by_batches in prop::collection::btree_set(0_usize..500, 0..20),
            body in 1_usize..200,
        ) {
            let payload: Vec<u8> = (0..500_u32).map(|at| at.to_le_bytes()[0]).collect();
            let (wanted, by_batches) = (pairs(&wanted), pairs(&by_batches));
            let (spare, all) = (Spare::default(), KeptBytes::default());
            let is_in = |parts: &[(usize, usize)], at: usize| parts.iter().any(|part| (part.0..part.1).contains(&at));
            for _ in 0..2 {
                let mut carried = carried(&payload, &by_batches, body);
                let mut kept = Kept::new(&payload, &mut carried, &spare, all.clone());
                wanted.iter().for_each(|&(begin, end)| kept.want(begin, end));
                kept.keep_what_is_wanted();
                let held: Vec<_> = kept.carried.own.iter().map(|haul| (haul.begin(), haul.end())).collect();
                wanted.iter().for_each(|&(begin, end)| kept.add(begin, end, &payload));
                let copied = (0..500).filter(|&at| is_in(&wanted, at) && !is_in(&held, at)).count();
                prop_assert_eq!(kept.copied.bytes.len(), copied);
                prop_assert_eq!(all.get(), wanted.iter().map(|&(begin, end)| end - begin).sum::<usize>());
                let bytes: usize = kept.carried.own.iter().map(|haul| haul.bytes.len()).sum();
                prop_assert!(bytes <= (WASTE + 1) * all.get(), "{bytes} bytes are held");
                let copy = Outgoing::Copy(kept);
                prop_assert_eq!(copy.len(), 500);
                for at in 0..500 {
                    let piece = copy.piece(at, 1000);
                    prop_assert_eq!(!piece.is_empty(), is_in(&wanted, at) || is_in(&held, at));
                    prop_assert!(payload[at..].starts_with(piece));
                    prop_assert_eq!(copy.piece(at, 1).len(), piece.len().min(1));
                }
                drop(copy);
                prop_assert_eq!(all.get(), 0);
            }
        }
    }
}
