//! Programs of any kind against a serial one, and the arithmetic of places and elements.
#![allow(clippy::cast_possible_truncation, reason = "the numbers of these tests are small")]

use cutthrough_splitc::{Element, Global, Spread, World};
use proptest::prelude::*;

/// What each rank does in a phase: nobody writes where another does.
#[derive(Debug, Clone)]
struct Phase {
    writes: Vec<(usize, u64, u8)>,
    reads: Vec<usize>,
}

const LEN: usize = 97;

fn phase() -> impl Strategy<Value = Phase> {
    let writes = prop::collection::vec((0..LEN, any::<u64>(), 0..5_u8), 0..700);
    let reads = prop::collection::vec(0..LEN, 0..700);
    (writes, reads).prop_map(|(writes, reads)| Phase { writes, reads })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    #[test]
    fn reads_and_writes_are_those_of_one_array(
        size in 1..4_u32,
        block in 1..40_usize,
        phases in prop::collection::vec(phase(), 1..5),
    ) {
        // The serial run.
        let mut array = vec![0_u64; LEN];
        let expected: Vec<Vec<u64>> = phases.iter().map(|phase| {
            for (at, value, _) in &phase.writes {
                array[*at] = *value;
            }
            phase.reads.iter().map(|at| array[*at]).collect()
        }).collect();
        World::threads(size, |world| {
            let spread = world.spread::<u64>(LEN, block)?;
            for (phase, expected) in phases.iter().zip(&expected) {
                // The writes of an element are all of one rank, and arrive in order.
                for (at, value, way) in &phase.writes {
                    if *at as u32 % world.size() != world.rank() {
                        continue;
                    }
                    let place = spread.place(*at);
                    match way {
                        0 => world.put(place, *value)?,
                        1 => world.store(place, *value)?,
                        2 if value.is_multiple_of(8) => world.write_now(place, *value)?,
                        2 => world.store_bulk(place, &[*value])?,
                        // Of another length, and so in a batch of its own.
                        3 => {
                            let halves = Global::<u32>::new(place.rank(), place.offset());
                            world.put(halves, *value as u32)?;
                            world.put(halves.at(1), (*value >> 32) as u32)?;
                        }
                        _ => world.put_bulk(place, &[*value])?,
                    }
                }
                world.all_store_sync()?;
                let coming = phase.reads.iter().map(|at| world.get(spread.place(*at)));
                let coming: Vec<_> = coming.collect::<Result<_, _>>()?;
                world.sync()?;
                let came: Vec<u64> = coming.into_iter().map(|coming| world.take(coming)).collect::<Result<_, _>>()?;
                assert_eq!(&came, expected);
                world.barrier()?;
            }
            Ok(())
        }).expect("no rank fails");
    }

    #[test]
    fn a_spread_array_has_each_element_once(size in 1..9_u32, len in 0..300_usize, block in 1..50_usize) {
        // The arithmetic alone: a world of threads for each case would test no more.
        let spread = spread_of(size, len, block);
        let mut seen = std::collections::HashSet::new();
        for index in 0..len {
            let place = spread.place(index);
            prop_assert!(place.rank() < size);
            prop_assert!(seen.insert((place.rank(), place.offset())));
            // Neighbours within a block lie side by side.
            if index % block > 0 {
                prop_assert_eq!(place, spread.place(index - 1).at(1));
            }
        }
        let mut listed: Vec<usize> = Vec::new();
        for rank in 0..size {
            let mut place = spread.part_of(rank);
            for (first, count) in spread.runs(rank) {
                for index in first..first + count {
                    prop_assert_eq!(spread.place(index), place);
                    place = place.at(1);
                    listed.push(index);
                }
            }
            prop_assert_eq!(spread.count(rank), spread.runs(rank).map(|(_, count)| count).sum::<usize>());
        }
        listed.sort_unstable();
        prop_assert_eq!(listed, (0..len).collect::<Vec<_>>());
    }

    #[test]
    fn numbers_are_what_their_bytes_say(whole in any::<Vec<i64>>(), floats in any::<Vec<f32>>()) {
        fn there_and_back<T: Element>(values: &[T]) -> Vec<T> {
            let mut bytes = vec![0; values.len() * T::BYTES];
            T::write_all(values, &mut bytes);
            let mut back = vec![T::default(); values.len()];
            T::read_all(&bytes, &mut back);
            back
        }
        prop_assert_eq!(there_and_back(&whole), whole);
        let bits = |values: &[f32]| values.iter().map(|value| value.to_bits()).collect::<Vec<_>>();
        prop_assert_eq!(bits(&there_and_back(&floats)), bits(&floats));
    }
}

/// A spread array of a world that has as many ranks, made by rank 0 of it.
fn spread_of(size: u32, len: usize, block: usize) -> Spread<u64> {
    Spread::lay_out(Global::new(0, 0), size, len, block)
}
