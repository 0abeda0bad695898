//! Placement: guesses that hold, guesses that fail, and pages that are right in either case.

use std::collections::{BTreeMap, VecDeque};

use cutthrough_engine::place::{Fragment, Layout, Mend, Part, Placer, Source, Spot, Verdict};
use proptest::prelude::*;

/// The longest header, and so the spare bytes in front of each page.
const HEADER: usize = 8;

/// A fragment is at least as long as a header.
const SHORTEST: u32 = 8;

/// A frame on the wire.
#[derive(Debug, Clone, PartialEq)]
struct Frame {
    fragment: Option<Fragment>,
    payload: Vec<u8>,
}

/// The `at`-th byte of a page, as its sender wrote it.
fn byte(stream: u64, message: u64, at: u32) -> u8 {
    let [low, ..] = (stream * 101 + message * 31 + u64::from(at) * 7 + 1).to_le_bytes();
    low
}

fn frame(stream: u64, message: u64, part: Part) -> Frame {
    let payload = (part.offset..part.offset + part.len).map(|at| byte(stream, message, at)).collect();
    Frame { fragment: Some(Fragment { stream, message, part }), payload }
}

fn foreign(len: usize) -> Frame {
    Frame { fragment: None, payload: vec![0xee; len] }
}

/// A receive ring and the memory that it points into. Frames land ahead of the moment in which they are looked at.
struct Ring {
    placer: Placer,
    memory: Vec<Vec<u8>>,
    /// Bytes of header that land in front of the payload; none if the adapter puts headers aside.
    header: usize,
    slots: usize,
    /// Frames that have landed, and the bytes that did not fit the descriptor.
    landed: VecDeque<(Frame, Vec<u8>)>,
    /// Pages that came out whole, and are right.
    whole: Vec<(u64, u64)>,
}

impl Ring {
    fn new(layout: Layout, header: usize, slots: usize, pages: u32, open_max: usize) -> Self {
        let memory = vec![vec![0; HEADER + layout.page_len() as usize]; pages as usize];
        let mut placer = Placer::new(layout, open_max);
        (0..pages).for_each(|page| placer.give(page));
        let mut ring = Self { placer, memory, header, slots, landed: VecDeque::new(), whole: Vec::new() };
        ring.refill();
        ring
    }

    fn refill(&mut self) {
        while self.placer.posted() < self.slots && self.placer.post().is_some() {}
    }

    fn bytes(&mut self, spot: Spot) -> &mut [u8] {
        let start = HEADER + spot.part.offset as usize;
        &mut self.memory[spot.page as usize][start..start + spot.part.len as usize]
    }

    /// The adapter fills the next descriptor; without one, the frame is lost.
    fn land(&mut self, frame: Frame) {
        let Some(spot) = self.placer.guess(self.landed.len()) else { return };
        let start = HEADER + spot.part.offset as usize;
        self.memory[spot.page as usize][start - self.header..start].fill(0xdd);
        let fits = frame.payload.len().min(spot.part.len as usize);
        self.bytes(spot)[..fits].copy_from_slice(&frame.payload[..fits]);
        let rest = frame.payload[fits..].to_vec();
        self.landed.push_back((frame, rest));
    }

    /// The driver looks at all that has landed. Returns the verdicts.
    fn look(&mut self) -> Vec<Verdict> {
        std::iter::from_fn(|| self.look_at_one()).collect()
    }

    fn look_at_one(&mut self) -> Option<Verdict> {
        let (frame, rest) = self.landed.pop_front()?;
        let mut mends = Vec::new();
        let arrival = self.placer.arrived(frame.fragment, |mend| mends.push(mend)).unwrap();
        mends.into_iter().for_each(|mend| self.mend(mend, arrival.landed, &rest));
        if let Some(whole) = arrival.whole {
            let page = &self.memory[whole.page as usize][HEADER..];
            let sent: Vec<_> =
                (0..page.len()).map(|at| byte(whole.stream, whole.message, u32::try_from(at).unwrap())).collect();
            assert_eq!(page, sent, "message {} of stream {}", whole.message, whole.stream);
            self.whole.push((whole.stream, whole.message));
            self.placer.give(whole.page);
        }
        self.refill();
        Some(arrival.verdict)
    }

    fn mend(&mut self, mend: Mend, landed: Spot, rest: &[u8]) {
        let len = mend.to.part.len as usize;
        let mut bytes = match mend.from {
            Source::Placed(spot) => self.bytes(spot).to_vec(),
            Source::Arrived => [&*self.bytes(landed), rest].concat(),
        };
        bytes.truncate(len);
        self.bytes(mend.to).copy_from_slice(&bytes);
    }

    /// The driver takes back what has not landed, and guesses anew.
    fn resync(&mut self) {
        while self.placer.posted() > self.landed.len() {
            self.placer.withdraw();
        }
        self.refill();
    }

    /// Lets frames land and be looked at one by one.
    fn take(&mut self, frames: impl IntoIterator<Item = Frame>) -> Vec<Verdict> {
        let mut verdicts = Vec::new();
        for frame in frames {
            self.land(frame);
            verdicts.extend(self.look());
        }
        verdicts
    }
}

fn ethernet() -> Layout {
    Layout::first_first(&[1460, 1480, 1156]).unwrap()
}

/// The frames of messages `from..to` of a stream.
fn pages(layout: &Layout, stream: u64, from: u64, to: u64) -> Vec<Frame> {
    (from..to).flat_map(|message| layout.parts().iter().map(move |&part| frame(stream, message, part))).collect()
}

use Verdict::{Apart, Duplicate, Hit, Miss};

#[test]
fn one_stream_alone_is_always_guessed_right() {
    for slots in 1..9 {
        let mut ring = Ring::new(ethernet(), 0, slots, 8, 4);
        let verdicts = ring.take(pages(&ethernet(), 1, 0, 50));
        assert!(verdicts.iter().all(|&verdict| verdict == Hit), "{slots} descriptors");
        let tally = ring.placer.tally();
        assert_eq!((tally.hits, tally.misses, tally.copies, tally.resyncs, tally.whole), (150, 0, 0, 0, 50));
    }
}

#[test]
fn descriptors_point_at_the_fragments_of_a_page_in_turn() {
    let mut placer = Placer::new(ethernet(), 1);
    (0..2).for_each(|page| placer.give(page));
    let spots: Vec<_> = std::iter::from_fn(|| placer.post()).collect();
    let offsets: Vec<_> = spots.iter().map(|spot| (spot.part.offset, spot.part.len)).collect();
    assert_eq!(offsets, [(0, 1460), (1460, 1480), (2940, 1156)].repeat(2));
    assert_ne!(spots[2].page, spots[3].page);
}

#[test]
fn a_foreign_frame_costs_nothing_more_if_the_adapter_gives_descriptors_back() {
    let mut ring = Ring::new(ethernet(), 0, 6, 8, 4);
    let all = pages(&ethernet(), 1, 0, 3);
    assert_eq!(ring.take(all[..4].to_vec()), [Hit; 4]);
    assert_eq!(ring.take([foreign(6)]), [Apart]);
    assert!(!ring.placer.in_step());
    ring.resync();
    assert!(ring.placer.in_step());
    assert_eq!(ring.take(all[4..].to_vec()), [Hit; 5]);
    assert_eq!((ring.whole.len(), ring.placer.tally().copies), (3, 0));
    assert!(ring.placer.tally().resyncs > 0);
}

#[test]
fn it_costs_the_descriptors_that_are_posted_if_the_adapter_keeps_them() {
    let mut ring = Ring::new(ethernet(), 0, 6, 9, 4);
    let all = pages(&ethernet(), 1, 0, 9);
    ring.take(all[..3].to_vec());
    ring.take([foreign(6)]);
    let verdicts = ring.take(all[3..].to_vec());
    let misses = verdicts.iter().filter(|&&verdict| verdict == Miss).count();
    let why = "five were posted when the frame came; the sixth frame is of a page that was mended already";
    assert_eq!((misses, &verdicts[6..]), (6, &[Hit; 18][..]), "{why}");
    assert_eq!((ring.whole.len(), ring.placer.tally().copies), (9, 6));
}

#[test]
fn two_streams_that_interleave_are_mended() {
    let mut ring = Ring::new(ethernet(), 0, 6, 20, 4);
    let (a, b) = (pages(&ethernet(), 1, 0, 20), pages(&ethernet(), 2, 0, 20));
    ring.take(a.into_iter().zip(b).flat_map(|(a, b)| [a, b]));
    let tally = ring.placer.tally();
    assert_eq!(ring.whole.len(), 40);
    assert!(tally.hits < tally.misses, "{tally:?}");
}

#[test]
fn only_the_admitted_stream_is_placed() {
    let mut ring = Ring::new(ethernet(), 0, 3, 8, 4);
    ring.placer.admit(Some(2));
    assert_eq!(ring.take(pages(&ethernet(), 1, 0, 1)), [Apart; 3]);
    ring.resync();
    assert_eq!(ring.take(pages(&ethernet(), 2, 0, 1)), [Hit; 3]);
    assert_eq!(ring.whole, [(2, 0)]);
}

#[test]
fn what_is_there_is_not_placed_again() {
    let mut ring = Ring::new(ethernet(), 0, 6, 8, 4);
    let page = pages(&ethernet(), 1, 0, 1);
    let twice = [page[0].clone(), page[0].clone(), page[1].clone(), page[1].clone(), page[2].clone()];
    assert_eq!(ring.take(twice), [Hit, Duplicate, Miss, Duplicate, Miss]);
    assert_eq!(ring.whole, [(1, 0)]);
}

#[test]
fn a_frame_of_the_wrong_length_or_offset_is_not_believed() {
    let mut ring = Ring::new(ethernet(), 0, 6, 8, 4);
    let odd = [(0, 1459), (1, 1460), (1460, 1460), (4096, 1156), (u32::MAX, u32::MAX)];
    let odd = odd.map(|(offset, len)| Frame {
        fragment: Some(Fragment { stream: 1, message: 0, part: Part { offset, len } }),
        payload: vec![1; 99],
    });
    assert_eq!(ring.take(odd), [Apart; 5]);
    assert_eq!(ring.placer.tally().apart, 5);
}

#[test]
fn messages_that_never_end_cost_no_pages() {
    let mut ring = Ring::new(ethernet(), 0, 3, 6, 2);
    ring.take((0..99).map(|message| frame(1, message, ethernet().parts()[0])));
    assert_eq!(ring.placer.tally().dropped, 97);
    ring.take(pages(&ethernet(), 1, 100, 101));
    ring.resync();
    assert_eq!(ring.take(pages(&ethernet(), 1, 101, 102)), [Hit; 3]);
}

#[test]
fn nothing_posted_nothing_arrives() {
    let mut placer = Placer::new(ethernet(), 1);
    assert_eq!((placer.post(), placer.withdraw(), placer.guess(0)), (None, None, None));
    assert!(placer.in_step() && placer.arrived(None, |_| ()).is_none());
}

#[test]
fn no_header_reaches_into_a_payload_that_was_mended() {
    let layout = Layout::last_first(&[8; 4]).unwrap();
    let mut ring = Ring::new(layout.clone(), HEADER, 3, 4, 4);
    let page = pages(&layout, 1, 0, 1);
    ring.slots = 0;
    let out_of_order = [page[0].clone(), page[3].clone(), page[1].clone()];
    assert_eq!(ring.take(out_of_order), [Hit, Miss, Miss]);
    ring.slots = 3;
    ring.refill();
    ring.take([page[2].clone()]);
    assert_eq!(ring.whole, [(1, 0)]);
}

#[test]
fn no_descriptor_is_posted_whose_header_would_reach_into_a_payload() {
    let layout = Layout::last_first(&[8; 5]).unwrap();
    let mut ring = Ring::new(layout.clone(), HEADER, 3, 4, 4);
    let page = pages(&layout, 1, 0, 1);
    ring.slots = 0;
    assert_eq!(ring.take([page[0].clone(), page[4].clone(), page[2].clone()]), [Hit, Miss, Hit]);
    ring.slots = 3;
    ring.refill();
    ring.take([page[3].clone(), page[1].clone()]);
    assert_eq!(ring.whole, [(1, 0)]);
}

/// One thing that befalls the ring.
#[derive(Debug, Clone)]
enum Fate {
    /// The next frame of a stream arrives.
    Next(u64),
    /// It is lost.
    Lost(u64),
    /// It arrives twice.
    Twice(u64),
    /// The one after it arrives first.
    Swapped(u64),
    /// A frame that is none of ours arrives.
    Foreign(usize),
    /// A frame of one of our streams with a length that no page has.
    Odd(u64, u32),
    /// The driver looks.
    Look,
    /// The driver takes back so many descriptors, if as many have not been filled.
    Withdraw(usize),
    /// The driver wants so many descriptors posted from now on.
    Slots(usize),
    /// Another stream is admitted, or all are.
    Admit(Option<u64>),
    /// A stream is gone.
    Forget(u64),
}

fn fates() -> impl Strategy<Value = Vec<Fate>> {
    let fate = prop_oneof![
        20 => (0u64..3).prop_map(Fate::Next),
        2 => (0u64..3).prop_map(Fate::Lost),
        2 => (0u64..3).prop_map(Fate::Twice),
        2 => (0u64..3).prop_map(Fate::Swapped),
        2 => (0usize..60).prop_map(Fate::Foreign),
        1 => (0u64..3, 1u32..40).prop_map(|(stream, len)| Fate::Odd(stream, len)),
        8 => Just(Fate::Look),
        3 => (0usize..14).prop_map(Fate::Withdraw),
        2 => (0usize..14).prop_map(Fate::Slots),
        1 => prop_oneof![Just(None), (0u64..3).prop_map(Some)].prop_map(Fate::Admit),
        1 => (0u64..3).prop_map(Fate::Forget),
    ];
    prop::collection::vec(fate, 0..200)
}

/// Where each stream is: its next frame.
#[derive(Default)]
struct Streams(BTreeMap<u64, usize>);

impl Streams {
    fn next(&mut self, layout: &Layout, stream: u64) -> Frame {
        let at = self.0.entry(stream).or_default();
        let (message, part) = (*at / layout.parts().len(), *at % layout.parts().len());
        *at += 1;
        frame(stream, message as u64, layout.parts()[part])
    }
}

fn befall(ring: &mut Ring, streams: &mut Streams, fate: &Fate) {
    let layout = ring.placer.layout().clone();
    match *fate {
        Fate::Next(stream) => ring.land(streams.next(&layout, stream)),
        Fate::Lost(stream) => drop(streams.next(&layout, stream)),
        Fate::Twice(stream) => {
            let frame = streams.next(&layout, stream);
            ring.land(frame.clone());
            ring.land(frame);
        }
        Fate::Swapped(stream) => {
            let early = streams.next(&layout, stream);
            ring.land(streams.next(&layout, stream));
            ring.land(early);
        }
        Fate::Foreign(len) => ring.land(foreign(len)),
        Fate::Odd(stream, len) => {
            let fragment = Fragment { stream, message: 0, part: Part { offset: 1, len } };
            ring.land(Frame { fragment: Some(fragment), payload: vec![0xcc; len as usize] });
        }
        Fate::Look => drop(ring.look()),
        Fate::Withdraw(most) => {
            let unfilled = ring.placer.posted() - ring.landed.len();
            for _ in 0..most.min(unfilled) {
                ring.placer.withdraw();
            }
        }
        Fate::Slots(slots) => ring.slots = slots,
        Fate::Admit(stream) => ring.placer.admit(stream),
        Fate::Forget(stream) => ring.placer.forget(stream),
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, ..ProptestConfig::default() })]

    /// Whatever befalls the ring, a page that comes out is the page that was sent, and no page of memory is lost.
    #[test]
    fn no_wrong_guess_corrupts(
        lengths in prop::collection::vec(SHORTEST..40, 1..6),
        last_first: bool,
        slots in 1usize..14,
        pages in 1u32..20,
        open_max in 0usize..5,
        fates in fates(),
    ) {
        let layout = if last_first { Layout::last_first(&lengths) } else { Layout::first_first(&lengths) }.unwrap();
        let frames = layout.parts().len();
        let header = if last_first { HEADER } else { 0 };
        let mut ring = Ring::new(layout, header, slots, pages, open_max);
        let mut streams = Streams::default();
        for fate in fates {
            befall(&mut ring, &mut streams, &fate);
        }
        ring.look();
        let tally = ring.placer.tally();
        prop_assert_eq!(tally.whole, ring.whole.len() as u64);
        prop_assert!(tally.copies >= tally.misses);

        // Guesses made anew are in step.
        while ring.placer.withdraw().is_some() {}
        ring.refill();
        prop_assert!(ring.placer.in_step());

        // Every page is still there: all of them can be posted.
        while ring.placer.withdraw().is_some() {}
        (0..3).for_each(|stream| ring.placer.forget(stream));
        ring.placer.admit(Some(99));
        let posted: Vec<_> = std::iter::from_fn(|| ring.placer.post()).collect();
        prop_assert_eq!(posted.len(), pages as usize * frames);
    }

    /// With pages enough, and nothing lost, every message comes out, in whatever order the frames of it arrive.
    #[test]
    fn nothing_that_arrived_is_missing(
        order in Just((0..24usize).collect::<Vec<_>>()).prop_shuffle(),
        slots in 1usize..9,
        every in 1usize..7,
    ) {
        let layout = Layout::first_first(&[9, 11, 5]).unwrap();
        let all: Vec<_> = [pages(&layout, 1, 0, 4), pages(&layout, 2, 0, 4)].concat();
        let mut ring = Ring::new(layout, 0, slots, 40, 8);
        for (count, &which) in order.iter().enumerate() {
            if ring.landed.len() == slots || count % every == 0 {
                ring.look();
            }
            ring.land(all[which].clone());
        }
        ring.look();
        ring.whole.sort_unstable();
        let sent: Vec<_> = (1..3).flat_map(|stream| (0..4).map(move |message| (stream, message))).collect();
        prop_assert_eq!(ring.whole, sent);
    }
}
