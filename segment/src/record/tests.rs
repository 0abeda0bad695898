//! The ring of words against a queue, from anywhere in the range of its counters.

use std::collections::VecDeque;
use std::sync::Arc;
use std::vec::Vec;

use proptest::prelude::*;

use super::*;

/// The same words for both ends, as in shared memory.
#[derive(Debug, Clone)]
struct Memory(Arc<[AtomicU64]>);

impl Deref for Memory {
    type Target = [AtomicU64];
    fn deref(&self) -> &[AtomicU64] {
        &self.0
    }
}

impl Words for Memory {
    fn count(&self) -> usize {
        self.0.len()
    }
    fn load(&self, index: usize) -> u64 {
        self.0[index].load(Ordering::Relaxed)
    }
}

/// A ring of `words` words that has already carried `start` words.
fn ring(words: usize, start: u64) -> (Writer<Memory>, Reader<Memory>) {
    let memory = Memory((0..words).map(|_| AtomicU64::new(0)).collect());
    let writer = Writer { written: start, taken: start, ..Writer::new(memory.clone()) };
    let reader = Reader { written: start, taken: start, ..Reader::new(memory) };
    (writer, reader)
}

#[derive(Debug, Clone)]
enum Step {
    Push(u64),
    Publish,
    Pop,
    Report,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => any::<u64>().prop_map(Step::Push),
        2 => Just(Step::Publish),
        4 => Just(Step::Pop),
        1 => Just(Step::Report),
    ]
}

/// Starts near every edge of the counters, and anywhere.
fn start() -> impl Strategy<Value = u64> {
    prop_oneof![0..4_u64, (0..40_u64).prop_map(|back| u64::MAX - back), any::<u64>()]
}

proptest! {
    #[test]
    fn a_ring_of_words_is_a_queue(
        power in 0..5_u32,
        start in start(),
        steps in proptest::collection::vec(step(), 0..200),
    ) {
        let words = 1_usize << power;
        let (mut writer, mut reader) = ring(words, start);
        let (mut hidden, mut seen): (VecDeque<u64>, VecDeque<u64>) = Default::default();
        let mut unreported = 0;
        for step in steps {
            match step {
                Step::Push(word) => {
                    let room = words - hidden.len() - seen.len() - unreported;
                    prop_assert_eq!(writer.room(), room as u64);
                    prop_assert_eq!(writer.push(word), room > 0);
                    hidden.extend((room > 0).then_some(word));
                }
                Step::Publish => {
                    prop_assert_eq!(reader.refresh(writer.written()), Ok(()));
                    seen.append(&mut hidden);
                }
                Step::Pop => {
                    let expected = seen.pop_front();
                    unreported += usize::from(expected.is_some());
                    prop_assert_eq!(reader.pop(), expected);
                }
                Step::Report => {
                    prop_assert_eq!(writer.refresh(reader.taken()), Ok(()));
                    unreported = 0;
                }
            }
            prop_assert_eq!(writer.pending(), (hidden.len() + seen.len() + unreported) as u64);
        }
    }

    /// Whatever counters the writer alleges, the reader never takes more than the ring holds without a new one.
    #[test]
    fn a_reader_survives_any_counter(
        start in start(),
        lies in proptest::collection::vec((any::<u64>(), 0..12_u64), 1..20),
    ) {
        let (_, mut reader) = ring(8, start);
        for (far, near) in lies {
            for alleged in [far, reader.taken().wrapping_add(near)] {
                let before = reader.taken();
                let _ = reader.refresh(alleged);
                let taken: Vec<u64> = std::iter::from_fn(|| reader.pop()).collect();
                prop_assert!(taken.len() <= 8);
                prop_assert_eq!(reader.taken(), before.wrapping_add(taken.len() as u64));
            }
        }
    }
}

#[test]
fn a_reader_believes_what_is_possible_only() {
    let (_, mut reader) = ring(4, 0);
    assert_eq!(reader.refresh(5), Err(Impossible));
    assert_eq!(reader.refresh(3), Ok(()));
    assert_eq!(reader.refresh(2), Err(Impossible));
    assert!(reader.pop().is_some());
    assert_eq!(reader.refresh(5), Ok(()));
    assert_eq!(std::iter::from_fn(|| reader.pop()).count(), 4);
}

#[test]
fn a_writer_believes_what_is_possible_only() {
    let (mut writer, _) = ring(4, u64::MAX);
    assert!(writer.push(1) && writer.push(2));
    assert_eq!(writer.refresh(2), Err(Impossible));
    assert_eq!(writer.refresh(u64::MAX - 1), Err(Impossible));
    assert_eq!(writer.refresh(0), Ok(()));
    assert_eq!(writer.room(), 3);
}
