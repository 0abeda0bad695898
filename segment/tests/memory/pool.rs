//! The pool against a set of pages.

use std::collections::BTreeSet;

use cutthrough_segment::pool::Pool;
use proptest::prelude::*;

#[derive(Debug, Clone)]
enum Step {
    Take(u32),
    Give(usize),
    /// Gives back the first half of a run only, and the rest later.
    Split(usize),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        3 => (0..12_u32).prop_map(Step::Take),
        2 => any::<usize>().prop_map(Step::Give),
        1 => any::<usize>().prop_map(Step::Split),
    ]
}

/// Whether `count` pages in a row are free.
fn has_run(free: &BTreeSet<u32>, count: u32) -> bool {
    count > 0 && free.iter().any(|first| (*first..*first + count).all(|page| free.contains(&page)))
}

proptest! {
    #[test]
    fn a_pool_lends_what_is_free_and_only_that(pages in 0..40_u32, steps in proptest::collection::vec(step(), 0..200)) {
        let mut pool = Pool::new(pages);
        let mut free: BTreeSet<u32> = (0..pages).collect();
        let mut out: Vec<(u32, u32)> = Vec::new();
        for step in steps {
            match step {
                Step::Take(count) => match pool.take(count) {
                    Some(first) => {
                        for page in first..first + count {
                            prop_assert!(free.remove(&page), "page {page} was lent twice");
                        }
                        out.push((first, count));
                    }
                    None => prop_assert!(!has_run(&free, count), "{count} pages in a row were free"),
                },
                Step::Give(_) | Step::Split(_) if out.is_empty() => {}
                Step::Give(which) => {
                    let (first, count) = out.swap_remove(which % out.len());
                    pool.give(first, count);
                    free.extend(first..first + count);
                }
                Step::Split(which) => {
                    let place = which % out.len();
                    let (first, count) = out[place];
                    let half = count / 2;
                    pool.give(first, half);
                    free.extend(first..first + half);
                    out[place] = (first + half, count - half);
                }
            }
            prop_assert_eq!(pool.lent() as usize, pages as usize - free.len());
        }
        for (first, count) in out.drain(..) {
            pool.give(first, count);
        }
        prop_assert_eq!(pool.take(pages), (pages > 0).then_some(0), "all pages are one run again");
    }
}

#[test]
fn the_run_freed_last_is_lent_first() {
    let mut pool = Pool::new(8);
    let runs: Vec<u32> = (0..4).filter_map(|_| pool.take(2)).collect();
    pool.give(runs[2], 2);
    pool.give(runs[0], 2);
    assert_eq!(pool.take(2), Some(runs[0]));
    assert_eq!(pool.take(2), Some(runs[2]));
    assert_eq!(pool.take(1), None);
}

#[test]
#[should_panic = "never lent"]
fn more_than_was_lent_is_not_taken_back() {
    let mut pool = Pool::new(8);
    pool.take(2);
    pool.give(0, 3);
}
