//! Batches across a veth pair whose payloads lie in the ring's memory.

use std::time::{Duration, Instant as Clock};

use cutthrough_segment::page::{Ground, Page};

use super::super::tests::{Ends, ends};
use super::super::{ENTRIES, Ring as _};
use super::*;
use crate::raw::RingCounts;
use crate::sys::xdp::socket::pages_of;
use crate::sys::xdp::wire::Wire;

const PATIENCE: Duration = Duration::from_secs(10);
const HEAD: usize = 64;

fn body(bytes: usize, seed: usize) -> Vec<u8> {
    (0..bytes).map(|at| ((at + seed) * 7 / 8).to_le_bytes()[0]).collect()
}

/// The frames that have come to a ring, with those that come until there are so many.
fn take(ring: &mut XdpRing, count: usize) -> Vec<Vec<u8>> {
    let begun = Clock::now();
    let mut frames: Vec<Vec<u8>> = Vec::new();
    while frames.len() < count {
        ring.receive(count - frames.len(), &mut |_, body| frames.push(body.to_vec()));
        assert!(begun.elapsed() < PATIENCE, "{} of {count} frames came", frames.len());
    }
    frames
}

/// All pages of a ring, as a channel has them that sends them.
fn page(ring: &mut XdpRing) -> Page {
    let site = ring.site().unwrap();
    let pages = u32::try_from((site.end - site.begin) / UNIT).unwrap();
    let ground = Ground::new((site.mapping, site.begin), 4096, Arc::default());
    pages_of(ground, pages).take(pages as usize * 4096).unwrap()
}

/// Waits until the kernel has let go of all that was sent.
fn until_idle(ring: &mut XdpRing) {
    let begun = Clock::now();
    while ring.flights.all() > 0 {
        ring.look_after_sent().unwrap();
        assert!(begun.elapsed() < PATIENCE, "{} parts are out", ring.flights.all());
    }
}

/// Frames of a header and a slice of pages, wherever that begins; one without pages among them; and a last one that is
/// shorter.
#[test]
fn batches_go_with_pages_where_they_lie() {
    let cases = [(1500, Mode::Generic), (9000, Mode::Generic), (1500, Mode::Native), (9000, Mode::Native)];
    for (mtu, mode) in cases {
        let Some(wire) = Wire::make(mtu) else { return };
        let Ends { mut near, mut far, to_near, .. } = ends(&wire, mode);
        assert!(far.gathers() && far.site().is_some());
        let (segment, frames) = (far.body_max(), if mtu == 1500 { 40 } else { 6 });
        let slice = segment - HEAD;
        let mut page = page(&mut far);
        for begin in [0, 1, 100, 2047, 4095, 5000] {
            let all = page.len();
            page.copy_from_slice(&body(all, begin));
            let (heads, lies) = (body(frames * HEAD + segment, begin), &page[begin..begin + frames * slice]);
            let mut parts = Vec::new();
            for (number, (head, part)) in heads.chunks(HEAD).zip(lies.chunks(slice)).enumerate() {
                if number == 2 {
                    // One that is copied, as those of other messages are.
                    parts.push(IoSlice::new(&heads[frames * HEAD..]));
                }
                parts.extend([IoSlice::new(head), IoSlice::new(part)]);
            }
            parts.push(IoSlice::new(b"the last one is shorter"));
            let whole = parts.iter().map(|part| &part[..]).collect::<Vec<_>>().concat();
            assert!(far.send_pages(&to_near, &parts, segment, &[]).unwrap());
            // Nobody has looked at completions since: each slice is one part, or more where buffers end within it.
            assert!(far.flights.all() >= frames as u64, "{mode:?} {mtu}: {} parts in place", far.flights.all());
            let came = take(&mut near, frames + 2);
            assert!(came.concat() == whole, "{mode:?} {mtu}, from {begin} on");
            assert!(came[..frames + 1].iter().all(|frame| frame.len() == segment));
            until_idle(&mut far);
        }
        assert_eq!((near.counts(), far.counts()), (RingCounts::default(), RingCounts::default()));
        assert_eq!(far.free.len(), far.plan.send_slots as usize, "all places are free again");
    }
}

/// Memory that somebody only lends is copied, though it lies there; and so are frames of too many parts.
#[test]
fn what_is_borrowed_or_in_too_many_pieces_is_copied() {
    let Some(wire) = Wire::make(9000) else { return };
    let Ends { mut near, mut far, to_near, .. } = ends(&wire, Mode::Generic);
    let mut page = page(&mut far);
    let payload = body(6000, 1);
    page[..6000].copy_from_slice(&payload);
    let lies = &page[..6000];
    for borrowed in [lies, &lies[5999..], &lies[..1]] {
        let parts = [IoSlice::new(&[1; HEAD]), IoSlice::new(lies)];
        assert!(far.send_pages(&to_near, &parts, HEAD + 6000, borrowed).unwrap());
        assert_eq!(far.flights.all(), 0);
        assert!(take(&mut near, 1).concat()[HEAD..] == payload);
    }
    // Memory beside it changes nothing.
    let beside = &page[6000..6100];
    let parts = [IoSlice::new(&[1; HEAD]), IoSlice::new(lies)];
    assert!(far.send_pages(&to_near, &parts, HEAD + 6000, beside).unwrap());
    assert!(far.flights.all() > 0);
    assert!(take(&mut near, 1).concat()[HEAD..] == payload);
    until_idle(&mut far);

    let pieces: Vec<&[u8]> = lies.chunks(100).collect();
    let parts: Vec<IoSlice<'_>> =
        pieces.iter().flat_map(|piece| [IoSlice::new(b"between"), IoSlice::new(piece)]).collect();
    let whole = parts.iter().map(|part| &part[..]).collect::<Vec<_>>().concat();
    assert!(far.send_pages(&to_near, &parts, whole.len(), &[]).unwrap());
    assert_eq!(far.flights.all(), 0);
    assert!(take(&mut near, 1).concat() == whole);
    assert_eq!((near.counts(), far.counts()), (RingCounts::default(), RingCounts::default()));
}

/// A frame has arrived, and its page is still the kernel's: until its completion has been taken in, and that of each
/// part that was sent again.
#[test]
fn a_page_is_the_kernels_until_its_completions_are_back() {
    let Some(wire) = Wire::make(1500) else { return };
    let Ends { mut near, mut far, to_near, .. } = ends(&wire, Mode::Generic);
    let base = far.pages().1;
    let flights = far.site().unwrap().flights;
    let page = page(&mut far);
    let lies = &page[4096..8192];
    assert!(flights.is_idle(base, 64 << 10));
    let envelope = Envelope::write(&to_near, HEAD + 1000);
    for _ in 0..3 {
        // Completions are not looked at.
        assert!(far.gather([&envelope, &[2; HEAD]], far.place_of(&lies[1000..2000]).unwrap(), 1000).unwrap());
        far.xsk.kick().unwrap();
    }
    take(&mut near, 3);
    assert_eq!(flights.all(), 3);
    assert!(!flights.is_idle(base + 4096, 1) && !flights.is_idle(base, 8192));
    assert!(flights.is_idle(base, 4096) && flights.is_idle(base + 8192, 4096));
    until_idle(&mut far);
    assert!(flights.is_idle(base, 64 << 10));

    // What the kernel would not say: parts that it did not have, at places where nothing lies.
    for at in [0, base - 1, base, base + 4096, far.plan.pages_end, u64::MAX] {
        flights.end(at);
    }
    assert_eq!(flights.all(), 0);
    assert!(!flights.is_idle(far.plan.pages_end, 4096), "memory that is none is never free");
    assert!(far.send_pages(&to_near, &[IoSlice::new(lies)], 1400, &[]).unwrap());
    assert!(flights.all() >= 3);
    // The ring is gone, and what it has not said; then the kernel has none any more.
    drop(far);
    assert!(!flights.is_idle(base + 4096, 4096));
    flights.over();
    assert!(flights.is_idle(base, 64 << 10));
}

/// Completions are not taken in until the kernel has no room for more. It stops in the middle of a frame, and so many
/// frames are put behind that one that the ring is full; no part of a frame is lost, and none is put that does not fit
/// with all others of its frame.
#[test]
fn without_room_for_completions_frames_wait_and_stay_whole() {
    let Some(wire) = Wire::make(1500) else { return };
    let Ends { mut near, mut far, to_near, .. } = ends(&wire, Mode::Generic);
    let bytes = 1400;
    let mut page = page(&mut far);
    let all = page.len();
    page.copy_from_slice(&body(all, 0));
    let lies = &page[..32 << 10];
    let base = far.pages().1;
    let (mut put, mut came): (usize, Vec<Vec<u8>>) = (0, Vec::new());
    loop {
        // Each is another slice; at most two parts of it, with the one of the header.
        let at = put * 61 % (30 << 10);
        let header = (put as u64).to_le_bytes();
        let envelope = Envelope::write(&to_near, header.len() + bytes);
        if !far.gather([&envelope, &header], base + at as u64, bytes).unwrap() {
            break;
        }
        put += 1;
        far.xsk.kick().unwrap();
        near.receive(usize::MAX, &mut |_, frame| came.push(frame.to_vec()));
        assert!(put < ENTRIES as usize, "the ring is never full");
    }
    assert!(came.len() < put, "all of them had room");
    assert!(far.xsk.room().unwrap() < 4 && far.xsk.unsent().unwrap() > 900, "it is the ring that is full");
    let batch: Vec<IoSlice<'_>> =
        (0..520).flat_map(|_| [IoSlice::new(&[9; 8]), IoSlice::new(&lies[..bytes])]).collect();
    let begun = Clock::now();
    while came.len() < put {
        far.look_after_sent().unwrap();
        near.receive(usize::MAX, &mut |_, frame| came.push(frame.to_vec()));
        assert!(begun.elapsed() < PATIENCE, "{} of {put} frames came", came.len());
    }
    for (number, frame) in came.iter().enumerate() {
        let at = number * 61 % (30 << 10);
        assert!(frame[..8] == (number as u64).to_le_bytes() && frame[8..] == lies[at..at + bytes], "frame {number}");
    }
    until_idle(&mut far);
    assert!(!far.send_pages(&to_near, &batch, 8 + bytes, &[]).unwrap(), "more parts than the ring has entries");
    assert_eq!((far.flights.all(), far.xsk.unsent().unwrap()), (0, 0));
    assert_eq!(far.free.len(), far.plan.send_slots as usize);
    assert!(far.send_pages(&to_near, &batch[..200], 8 + bytes, &[]).unwrap());
    let after = take(&mut near, 100);
    assert!(after.iter().all(|frame| frame[..8] == [9; 8] && frame[8..] == lies[..bytes]));
    assert_eq!((near.counts(), far.counts()), (RingCounts::default(), RingCounts::default()));
}
