//! The placer against a model of a fill ring and of memory, with all that can go wrong on a wire.

use alloc::vec;

use proptest::prelude::*;

use super::*;

const PAGES: u64 = 8;
const LOOSE: u64 = 16;

/// A kernel that writes whatever comes to the next place that it has been offered.
struct Model {
    shape: Shape,
    memory: Vec<u8>,
    offered: VecDeque<u64>,
    placer: Placer,
    /// Pages that are complete and belong to us, with the byte that each must hold at each place.
    ours: Vec<(Key, u64)>,
}

fn key(number: u32) -> Key {
    Key { tag: 7, generation: 9, message: number, first: number % 2 * 8192 }
}

/// What the page of this key holds.
fn content(key: Key, at: u32) -> u8 {
    let value = key.message.wrapping_mul(31).wrapping_add(at.wrapping_mul(7)).wrapping_add(at >> 3);
    value.to_le_bytes()[0]
}

impl Model {
    fn new(shape: Shape) -> Self {
        Self::with(shape, Placer::new)
    }

    fn with(shape: Shape, placer: fn(Shape, Vec<u64>, Vec<u64>) -> Placer) -> Self {
        // Room before the first page; a page that is not offered by the placer is one at the beginning of the memory.
        let stride = shape.stride(false);
        let pages: Vec<u64> = (0..PAGES).map(|page| 4096 + page * stride).collect();
        let frame = u64::from(shape.before + shape.slice);
        let base = 4096 + PAGES * stride;
        let loose: Vec<u64> = (0..LOOSE).map(|buffer| base + buffer * frame).collect();
        let memory = vec![0xee; usize::try_from(base + LOOSE * frame).unwrap()];
        Self { shape, memory, offered: VecDeque::new(), placer: placer(shape, pages, loose), ours: Vec::new() }
    }

    fn offer(&mut self) {
        self.placer.make_up();
        let offered = &mut self.offered;
        self.placer.offer(|at| offered.push_back(at));
    }

    /// Whether a frame with this payload found a place; if so, what it was taken for.
    fn arrive(&mut self, told: Option<Told>, payload: &[u8]) -> Option<Landing> {
        let at = self.offered.pop_front()?;
        let begin = usize::try_from(at).unwrap();
        let before = self.shape.before as usize;
        self.memory[begin..begin + before].fill(0xdd);
        self.memory[begin + before..begin + before + payload.len()].copy_from_slice(payload);
        let mut moves = Vec::new();
        let (landing, complete) = self.placer.landed(at, told, &mut moves);
        for Move { from, to, bytes } in moves {
            let (from, to, bytes) = (usize::try_from(from).unwrap(), usize::try_from(to).unwrap(), bytes as usize);
            self.memory.copy_within(from..from + bytes, to);
        }
        if let Some(complete) = complete {
            self.ours.push((complete.key, complete.at));
        }
        Some(landing)
    }

    fn fragment(&mut self, key: Key, part: u32) -> Option<Landing> {
        let bytes = self.shape.part_bytes(part);
        let offset = part * self.shape.slice;
        let payload: Vec<u8> = (offset..offset + bytes).map(|at| content(key, at)).collect();
        let Key { tag, generation, message, first } = key;
        self.arrive(Some(Told { tag, generation, message, offset: first + offset, bytes }), &payload)
    }

    /// Every page that was shown as complete is whole, and stays so.
    fn check(&self) {
        for (key, at) in &self.ours {
            for inside in 0..self.shape.page {
                let place = usize::try_from(*at).unwrap() + inside as usize;
                assert_eq!(self.memory[place], content(*key, inside), "page {} at byte {inside}", key.message);
            }
        }
    }
}

fn shape() -> impl Strategy<Value = Shape> {
    (prop_oneof![Just(4096_u32), Just(8192)], prop_oneof![Just(1408_u32), Just(4000), Just(8192), 200..1500_u32], 0..3)
        .prop_map(|(page, slice, kind)| Shape {
            page,
            slice,
            before: if kind == 0 { 0 } else { 106 },
            // Without cutting, only this order works.
            backwards: kind > 0,
        })
}

/// What happens to the next fragment in order.
#[derive(Debug, Clone, Copy)]
enum Fate {
    Arrives,
    Lost,
    /// Comes after the next one.
    Late,
    Twice,
    /// A stranger's frame of this many bytes comes first.
    AfterStray(u32),
    /// A fragment of a page that nobody expects comes first.
    AfterAnother,
    /// The kernel uses two places in the other order.
    Swapped,
}

fn fate() -> impl Strategy<Value = Fate> {
    prop_oneof![
        12 => Just(Fate::Arrives),
        1 => Just(Fate::Lost),
        1 => Just(Fate::Late),
        1 => Just(Fate::Twice),
        1 => (1..200_u32).prop_map(Fate::AfterStray),
        1 => Just(Fate::AfterAnother),
        1 => Just(Fate::Swapped),
    ]
}

#[test]
fn without_faults_everything_is_where_it_belongs() {
    for (before, backwards) in [(0, false), (106, true)] {
        let shape = Shape { page: 8192, slice: 1408, before, backwards };
        let mut model = Model::new(shape);
        for number in 0..50 {
            assert!(model.placer.expect(key(number)));
            model.offer();
            for part in shape.order() {
                assert_eq!(model.fragment(key(number), part), Some(Landing::Hit));
            }
            model.check();
            let (_, at) = model.ours.pop().expect("it is complete");
            model.placer.release(at);
        }
        assert_eq!(*model.placer.counts(), Counts { hits: 300, ..Counts::default() });
    }
}

/// A frame that is lost costs the rest of its page, and the next page's first fragment, their places; then all is well.
#[test]
fn the_shift_ends_with_the_page_that_follows() {
    let shape = Shape { page: 4096, slice: 1408, before: 106, backwards: true };
    let mut model = Model::new(shape);
    for number in 0..4 {
        assert!(model.placer.expect(key(number)));
        model.offer();
        let lost = usize::from(number == 0);
        let landings: Vec<_> =
            shape.order().skip(lost).map(|part| model.fragment(key(number), part).expect("a place")).collect();
        let expected: &[Landing] = match number {
            0 => &[Landing::Miss, Landing::Miss],
            1 => &[Landing::Miss, Landing::Hit, Landing::Hit],
            _ => &[Landing::Hit; 3],
        };
        assert_eq!(landings, expected, "page {number}");
        if number == 0 {
            model.placer.give_up(key(0));
        }
        model.check();
    }
}

/// A page that comes another way leaves all of its places; the next page takes them, and nothing is copied.
#[test]
fn a_page_that_never_came_costs_nothing() {
    let shape = Shape { page: 4096, slice: 1408, before: 106, backwards: true };
    let mut model = Model::new(shape);
    for number in 0..20 {
        let (comes, comes_not) = (key(2 * number), key(2 * number + 1));
        assert!(model.placer.expect(comes) && model.placer.expect(comes_not));
        model.offer();
        for part in shape.order() {
            assert_eq!(model.fragment(comes, part), Some(Landing::Hit), "page {number}");
        }
        model.placer.give_up(comes_not);
        model.check();
        let (_, at) = model.ours.pop().expect("it is complete");
        model.placer.release(at);
    }
}

/// The page that moves must not move to the one whose last place its fragment has just landed in: it was free a moment
/// too early once, and the fragments that had come before were copied over the one that had just come.
#[test]
fn a_page_does_not_move_onto_its_own_fragment() {
    let shape = Shape { page: 4096, slice: 1408, before: 0, backwards: false };
    let mut model = Model::new(shape);
    let (first, second) = (key(0), key(1));
    assert!(model.placer.expect(first) && model.placer.expect(second));
    model.offer();
    model.placer.give_up(first);
    // The kernel uses the places in another order: the second page's first one, then those of the first page.
    let [a, b, c, d, e, f] = model.offered.make_contiguous() else { panic!("six places") };
    [*a, *b, *c, *d, *e, *f] = [*d, *b, *c, *a, *e, *f];
    assert_eq!(model.fragment(second, 0), Some(Landing::Hit));
    assert_eq!(model.arrive(None, &[0xaa; 100]), Some(Landing::Stray));
    assert_eq!(model.arrive(None, &[0xaa; 100]), Some(Landing::Stray));
    assert_eq!(model.fragment(second, 1), Some(Landing::Miss));
    assert_eq!(model.fragment(second, 2), Some(Landing::Miss));
    assert_eq!(model.ours.len(), 1);
    model.check();
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    /// Whatever happens: complete pages are whole and stay whole, a page is complete when all of its fragments have
    /// been kept, and nobody else's memory is written (the model's memory has no other).
    #[test]
    fn no_fault_breaks_a_page(
        shape in shape(), fates in prop::collection::vec(fate(), 1..200), window in 1..5_usize, hold in 0..2_usize,
    ) {
        let mut model = Model::new(shape);
        let (mut number, mut next) = (0, 0);
        let mut fates = fates.into_iter();
        let mut queue: VecDeque<(Key, u32)> = VecDeque::new();
        let mut seen: Vec<(Key, u64)> = Vec::new();
        let mut late: Option<(Key, u32)> = None;
        'all: loop {
            while model.placer.expected() < window && model.placer.expect(key(number)) {
                queue.extend(shape.order().map(|part| (key(number), part)));
                number += 1;
            }
            model.offer();
            let Some((page, part)) = queue.pop_front() else { break };
            let Some(fate) = fates.next() else { break 'all };
            let mut arrived = Vec::new();
            match fate {
                Fate::Arrives => arrived.push((page, part)),
                Fate::Lost => {}
                Fate::Swapped => {
                    if model.offered.len() > 1 {
                        model.offered.swap(0, 1);
                    }
                    arrived.push((page, part));
                }
                Fate::Late => arrived.extend(late.replace((page, part))),
                Fate::Twice => arrived.extend([(page, part), (page, part)]),
                Fate::AfterStray(bytes) => {
                    let bytes = bytes.min(shape.slice);
                    let landing = model.arrive(None, &vec![0xaa; bytes as usize]);
                    prop_assert!(matches!(landing, None | Some(Landing::Stray)));
                    model.offer();
                    arrived.push((page, part));
                }
                Fate::AfterAnother => {
                    model.fragment(Key { tag: 8, ..page }, part);
                    model.offer();
                    arrived.push((page, part));
                }
            }
            if !matches!(fate, Fate::Late) {
                arrived.extend(late.take());
            }
            for (key, part) in arrived {
                let bit = 1 << part;
                let known = model.placer.expected.iter().find(|page| page.key == key).map(|page| page.come & bit == 0);
                let landing = model.fragment(key, part);
                let kept = matches!(landing, Some(Landing::Hit | Landing::Miss));
                if known == Some(true) {
                    prop_assert!(!matches!(landing, Some(Landing::Stray | Landing::Lie)));
                    if kept {
                        seen.push((key, bit));
                    }
                } else {
                    prop_assert!(!kept);
                }
                model.check();
                model.offer();
            }
            // Pages are complete exactly when every fragment was kept.
            for (key, _) in &model.ours {
                let all = seen.iter().filter(|(of, _)| of == key).fold(0_u64, |bits, (_, bit)| bits | bit);
                prop_assert_eq!(all.count_ones(), shape.parts());
            }
            while model.ours.len() > hold {
                let (_, at) = model.ours.remove(0);
                model.placer.release(at);
            }
            // Pages whose time is over are given up, as an engine does whose retransmission came another way.
            let oldest = queue.front().map_or(number, |(key, _)| key.message);
            let over: Vec<Key> = model.placer.expected.iter().map(|page| page.key)
                .filter(|key| key.message + 1 < oldest && late.is_none_or(|(late, _)| late != *key)).collect();
            for key in over {
                model.placer.give_up(key);
            }
            next += 1;
        }
        // No memory is lost: what is not free is expected, held by the kernel, or ours.
        let placer = &model.placer;
        let pages = placer.free.len() + placer.held.len() + placer.expected.len() + model.ours.len();
        prop_assert_eq!(pages as u64, PAGES);
        prop_assert!(next > 0 || number > 0);
    }

    /// Places that were never offered, or were used already, are refused.
    #[test]
    fn a_lie_is_refused(at in any::<u64>(), shape in shape()) {
        let mut model = Model::new(shape);
        model.placer.expect(key(0));
        model.offer();
        prop_assume!(!model.offered.contains(&at));
        let told = Told { tag: 7, generation: 9, message: 0, offset: 0, bytes: shape.slice };
        let mut moves = Vec::new();
        prop_assert_eq!(model.placer.landed(at, Some(told), &mut moves), (Landing::Lie, None));
        prop_assert!(moves.is_empty());
        let first = model.offered[0];
        model.placer.landed(first, None, &mut moves);
        prop_assert_eq!(model.placer.landed(first, None, &mut moves), (Landing::Lie, None));
    }
}

/// Where nothing is guessed, every fragment is copied once, in whatever order they come, and strangers cost nothing.
#[test]
fn a_placer_that_copies_copies_every_fragment() {
    let shape = Shape { page: 4104, slice: 1480, before: 34, backwards: false };
    let mut model = Model::with(shape, Placer::copying);
    for (number, order) in (0..).zip([[0, 1, 2], [2, 1, 0], [1, 0, 2]].into_iter().cycle().take(30)) {
        assert!(model.placer.expect(key(number)));
        model.offer();
        for part in order {
            assert_eq!(model.arrive(None, &[1; 700]), Some(Landing::Stray));
            model.offer();
            assert_eq!(model.fragment(key(number), part), Some(Landing::Miss));
        }
        assert_eq!(model.ours.len(), 1);
        model.check();
        model.placer.release(model.ours.remove(0).1);
    }
    assert_eq!((model.placer.counts().copies, model.placer.counts().hits), (90, 0));
}
