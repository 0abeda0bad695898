//! Pages by ownership: what is dropped comes back once, and reading stays within the payload.

use std::sync::Arc;

use cutthrough_segment::copy::Copying;
use cutthrough_segment::landing::LandingMemory;
use cutthrough_segment::map::{Mapping, Writers};
use cutthrough_segment::page::{Ground, Landed, Page, Pages, Release, Releases, Runs, Shelf};
use proptest::prelude::*;

const PAGE: u32 = 4096;
const COUNT: u32 = 16;
/// The pool starts behind something else.
const START: u64 = 8192;

fn pages() -> (Pages, Arc<Shelf>) {
    let shelf = Arc::new(Shelf::default());
    let (mapping, _) =
        Mapping::create("pages", START + u64::from(COUNT * PAGE), u64::from(PAGE), Writers::Maker).unwrap();
    let ground = Ground::new((mapping, START), PAGE, shelf.clone());
    // SAFETY: the only pool in memory that nobody else has.
    (unsafe { Pages::new(ground, COUNT) }, shelf)
}

/// Takes back what lies on the shelf.
fn tidy(pages: &mut Pages, shelf: &Shelf) {
    let mut items = Vec::new();
    shelf.clear(&mut items);
    for item in items {
        let Release::Page { first, count } = item else { panic!("only pages were dropped") };
        pages.give(first, count);
    }
}

#[derive(Debug, Clone)]
enum Step {
    Take(usize, u8),
    Drop(usize),
    Send(usize),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        3 => (0..5 * PAGE as usize, any::<u8>()).prop_map(|(bytes, fill)| Step::Take(bytes, fill)),
        1 => any::<usize>().prop_map(Step::Drop),
        1 => any::<usize>().prop_map(Step::Send),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Every page has one owner: what one wrote, nobody else changes; and every page comes back.
    #[test]
    fn a_page_has_one_owner(steps in proptest::collection::vec(step(), 0..60)) {
        let (mut pages, shelf) = pages();
        let mut held: Vec<(Page, u8)> = Vec::new();
        let mut sent: Vec<(u32, u32)> = Vec::new();
        for step in steps {
            match step {
                Step::Take(bytes, fill) => {
                    tidy(&mut pages, &shelf);
                    if let Some(mut page) = pages.take(bytes) {
                        prop_assert_eq!(page.len(), bytes);
                        page.fill(fill);
                        held.push((page, fill));
                    }
                }
                Step::Drop(_) | Step::Send(_) if held.is_empty() => {}
                Step::Drop(which) => drop(held.swap_remove(which % held.len())),
                Step::Send(which) => {
                    let (first, count, bytes) = held.swap_remove(which % held.len()).0.into_run();
                    prop_assert!(bytes <= (count * PAGE) as usize && first + count <= COUNT);
                    sent.push((first, count));
                }
            }
            prop_assert!(held.iter().all(|(page, fill)| page.iter().all(|byte| byte == fill)));
        }
        held.clear();
        tidy(&mut pages, &shelf);
        prop_assert_eq!(pages.lent(), sent.iter().map(|run| run.1).sum::<u32>());
        for (first, count) in sent {
            pages.give(first, count);
        }
        prop_assert!(pages.take((COUNT * PAGE) as usize).is_some(), "all pages are there again");
    }

    /// A payload in runs reads like the same bytes in one piece.
    #[test]
    fn a_landed_payload_reads_like_a_slice(
        runs in proptest::collection::vec((0..COUNT, 1..4_u32), 1..5),
        cut in any::<prop::sample::Index>(),
        ends in any::<[prop::sample::Index; 2]>(),
    ) {
        let (mapping, _) =
            Mapping::create("landed", START + u64::from(COUNT + 4) * u64::from(PAGE), 4096, Writers::Both).unwrap();
        for page in 0..COUNT + 4 {
            let bytes: Vec<u8> = (0..PAGE).map(|at| (at ^ (page * 37)).to_le_bytes()[0]).collect();
            mapping.copy_in(START + u64::from(page * PAGE), &bytes, Copying::Pieces);
        }
        let mut whole = Vec::new();
        for (first, count) in &runs {
            let mut bytes = vec![0; (count * PAGE) as usize];
            mapping.copy_out(START + u64::from(first * PAGE), &mut bytes, Copying::Pieces);
            whole.extend(bytes);
        }
        whole.truncate(cut.index(whole.len() + 1));
        let shelf = Arc::new(Shelf::default());
        let releases = vec![Release::Lend { number: 3 }, Release::Posted { id: 4 }];
        let release = Releases::Many(releases.clone());
        let ground = Ground::new((mapping, START), PAGE, shelf.clone());
        let landed = Landed::new(ground, Runs::Many(runs), whole.len(), release);
        prop_assert_eq!(landed.len(), whole.len());
        prop_assert_eq!(&landed.to_vec(), &whole);
        prop_assert_eq!(landed.pieces().map(|piece| piece.1).sum::<usize>(), whole.len());

        let [one, other] = ends.map(|end| end.index(whole.len() + 1));
        let (from, to) = (one.min(other), one.max(other));
        let mut part = vec![0; to - from];
        landed.read_at(from, &mut part);
        prop_assert_eq!(&part, &whole[from..to]);

        let (elsewhere, _) = LandingMemory::create("copy", whole.len() as u64 + 5, 4096).unwrap();
        landed.copy_to(0, landed.len(), &elsewhere, 5);
        let mut copy = vec![0; whole.len()];
        elsewhere.copy_out(5, &mut copy, Copying::Pieces);
        prop_assert_eq!(&copy, &whole);
        landed.copy_to(from, to - from, &elsewhere, 0);
        let mut copy = vec![0; to - from];
        elsewhere.copy_out(0, &mut copy, Copying::Pieces);
        prop_assert_eq!(&copy, &whole[from..to]);
        prop_assert!(!landed.is_sole() && landed.piece(0).is_empty(), "others may write there");

        prop_assert!(!shelf.filled());
        drop(landed);
        let mut items = Vec::new();
        shelf.clear(&mut items);
        prop_assert_eq!(items, releases);
    }
}

/// Only what was handed over by a pool can be had as slices: nobody writes there.
#[test]
fn what_a_pool_has_handed_over_is_had_in_pieces() {
    let (mut pages, _) = Pages::create("handed", COUNT, PAGE, Arc::default()).unwrap();
    let shelf = Arc::new(Shelf::default());
    let handed = pages.handed(Arc::clone(&shelf));
    let mut runs = Vec::new();
    for (number, count) in [(1, 2), (2, 1)] {
        let mut page = pages.take((count * PAGE) as usize).unwrap();
        page.fill(number);
        let (first, count, _) = page.into_run();
        runs.push((first, count));
    }
    let release = Releases::One(Release::Posted { id: 0 });
    let landed = Landed::new(handed, Runs::Many(runs), 2 * PAGE as usize + 10, release);
    assert!(landed.is_sole() && landed.runs() == 2 && landed.belongs_to(&shelf));
    let long = 2 * PAGE as usize;
    assert_eq!((landed.piece(0), landed.piece(long - 1)), (&vec![1; long][..], &[1][..]));
    assert_eq!((landed.piece(long), landed.piece(long + 9)), (&[2; 10][..], &[2][..]));
    assert!(landed.piece(long + 10).is_empty());
}

#[test]
#[should_panic = "beyond the payload"]
fn reading_beyond_the_payload_is_refused() {
    let (mapping, _) = Mapping::create("landed", 8192, 4096, Writers::Both).unwrap();
    let ground = Ground::new((mapping, 0), PAGE, Arc::default());
    let landed = Landed::new(ground, Runs::One(0, 1), 100, Releases::One(Release::Posted { id: 0 }));
    landed.read_at(99, &mut [0; 2]);
}

#[test]
fn a_page_belongs_to_the_pool_that_it_was_taken_from() {
    let ((mut pages, shelf), (_, other)) = (pages(), pages());
    let mut page = pages.take(10).unwrap();
    assert!(page.belongs_to(&shelf) && !page.belongs_to(&other));
    page.truncate(3);
    page.truncate(7);
    assert_eq!(page.len(), 3);
    assert!(!page.is_full() && pages.take(2 * PAGE as usize).unwrap().is_full());
}

#[test]
fn pages_may_be_dropped_on_another_thread_after_their_pool() {
    let (mut pages, shelf) = pages();
    let mut page = pages.take(PAGE as usize).unwrap();
    drop(pages);
    std::thread::spawn(move || page.fill(1)).join().unwrap();
    assert!(shelf.filled());
}
