//! The ring against a queue, from anywhere in the range of its counters.

use std::collections::VecDeque;
use std::sync::Arc;
use std::vec::Vec;

use proptest::prelude::*;

use super::*;

/// The same slots for both ends, as in shared memory.
#[derive(Debug, Clone)]
struct Memory(Arc<[Slot]>);

impl Memory {
    fn new(slots: usize) -> Self {
        Self((0..slots).map(|_| Slot::zeroed()).collect())
    }
}

impl Deref for Memory {
    type Target = [Slot];
    fn deref(&self) -> &[Slot] {
        &self.0
    }
}

// SAFETY: one thread has both ends, and uses the one when it has nothing of the other.
unsafe impl Sole for Memory {}

impl Slots for Memory {
    fn count(&self) -> usize {
        self.0.len()
    }
    fn slot(&self, index: usize) -> PeerSlot<'_> {
        PeerSlot::new(&self.0[index])
    }
}

/// A ring of `slots` slots that has already carried `start` messages.
fn ring(slots: usize, start: u64) -> (Producer<Memory>, Consumer<Memory>) {
    let memory = Memory::new(slots);
    let mask = slots as u64 - 1;
    for back in 1..=slots as u64 {
        let number = start.wrapping_sub(back);
        let index = usize::try_from(number & mask).unwrap();
        memory.0[index].0[0].store(number.wrapping_add(1), Ordering::Relaxed);
    }
    let producer = Producer { next: start, consumed: start, ..Producer::new(memory.clone()) };
    let consumer = Consumer { next: start, ..Consumer::new(memory) };
    (producer, consumer)
}

#[derive(Debug, Clone)]
enum Step {
    Send(Vec<u8>, [u64; 2]),
    Control(Vec<u8>),
    Take,
    Peek,
    Report,
}

fn step() -> impl Strategy<Value = Step> {
    let control = || proptest::collection::vec(any::<u8>(), 0..=CONTROL_MAX);
    prop_oneof![
        2 => (control(), any::<[u64; 2]>()).prop_map(|(bytes, rest)| Step::Send(bytes, rest)),
        3 => control().prop_map(Step::Control),
        3 => Just(Step::Take),
        2 => Just(Step::Peek),
        1 => Just(Step::Report),
    ]
}

/// Starts near every edge of the counters, and anywhere.
fn start() -> impl Strategy<Value = u64> {
    prop_oneof![0..4_u64, (0..40_u64).prop_map(|back| u64::MAX - back), any::<u64>()]
}

/// A header word that no control message without payload has: the kind is not 0.
const LOADED: u64 = 4 << 8;

/// What a message is to the oracle: its header, if it is not a plain control message, and its bytes.
type Message = (Option<[u64; 3]>, Vec<u8>);

/// Takes the next message, if there is one. The length of one with a payload is `len`.
fn take(consumer: &mut Consumer<impl Slots>, len: usize) -> Option<Message> {
    let (header, len) = match consumer.peek() {
        Peek::Nothing(_) => return None,
        Peek::Control(alleged) => (None, alleged),
        Peek::Loaded(header) => (Some(header), u8::try_from(len).unwrap()),
    };
    Some((header, consumer.take_control().bytes(len.into()).to_vec()))
}

/// All looks so far, whether they found something.
#[derive(Default)]
struct Looks(Vec<bool>);

impl Looks {
    fn look(&mut self, found: bool) {
        self.0.push(found);
    }

    /// The messages before the last look, which was in vain, and since the one in vain before.
    fn run(&self) -> u64 {
        self.0.iter().rev().skip(1).take_while(|found| **found).count() as u64
    }
}

proptest! {
    #[test]
    fn a_ring_is_a_queue(
        power in 1..5_u32,
        start in start(),
        evicts in any::<bool>(),
        steps in proptest::collection::vec(step(), 0..200),
    ) {
        let slots = 1 << power;
        let (mut producer, mut consumer) = ring(slots, start);
        consumer.set_eviction(Eviction::of_this_processor().filter(|_| evicts));
        let mut looks = Looks::default();
        let mut queue: VecDeque<Message> = VecDeque::new();
        let mut unreported = 0;
        for step in steps {
            match step {
                Step::Send(..) | Step::Control(_) if !producer.has_room() => {
                    prop_assert_eq!(queue.len() + unreported, slots);
                }
                Step::Send(control, [two, three]) => {
                    let header = [LOADED | control.len() as u64, two, three];
                    producer.write_control(&control);
                    producer.publish(header);
                    queue.push_back((Some(header), control));
                }
                Step::Control(control) => {
                    producer.control_mut()[..control.len()].copy_from_slice(&control);
                    producer.publish_control(control.len() as u64);
                    queue.push_back((None, control));
                }
                Step::Take => {
                    let expected = queue.pop_front();
                    prop_assert_eq!(consumer.ready(), expected.is_some());
                    unreported += usize::from(expected.is_some());
                    let len = expected.as_ref().map_or(0, |message| message.1.len());
                    looks.look(expected.is_some());
                    prop_assert_eq!(take(&mut consumer, len), expected);
                }
                Step::Peek => {
                    // What is there is shown as often as anybody looks, and counts when it is taken.
                    let seen = match queue.front() {
                        Some((None, control)) => Peek::Control(u8::try_from(control.len()).unwrap()),
                        Some((Some(header), _)) => Peek::Loaded(*header),
                        None => {
                            looks.look(false);
                            Peek::Nothing(looks.run())
                        }
                    };
                    prop_assert_eq!(consumer.peek(), seen);
                }
                Step::Report => {
                    prop_assert_eq!(producer.refresh(consumer.taken()), Ok(()));
                    unreported = 0;
                }
            }
            prop_assert_eq!(producer.next().wrapping_sub(consumer.taken()), queue.len() as u64);
        }
    }

    /// Whatever the writer leaves in its memory, the reader takes at most what lies there, and goes round once.
    #[test]
    fn a_reader_survives_any_memory(
        words in proptest::collection::vec(any::<[u64; SLOT_WORDS]>(), 4),
        near in any::<bool>(),
    ) {
        let memory = Memory::new(4);
        for (number, (slot, words)) in (1..).zip(memory.0.iter().zip(words)) {
            for (place, word) in slot.0.iter().zip(words) {
                place.store(word, Ordering::Relaxed);
            }
            if near {
                slot.0[0].store(number, Ordering::Relaxed);
            }
        }
        let mut consumer = Consumer::new(memory);
        let mut taken = 0;
        loop {
            match consumer.peek() {
                Peek::Nothing(_) => break,
                Peek::Control(len) => prop_assert!(usize::from(len) <= CONTROL_MAX),
                Peek::Loaded([word1, ..]) => prop_assert!(word1 > CONTROL_MAX as u64),
            }
            prop_assert!(consumer.take_control().bytes(u32::MAX).len() <= CONTROL_MAX);
            taken += 1;
        }
        prop_assert!(taken <= 4);
    }

    #[test]
    fn a_counter_is_believed_within_its_bounds_only(previous in start(), room in 0..=1_u64 << 40, alleged in start()) {
        let limit = previous.wrapping_add(room);
        let inside = u128::from(alleged.wrapping_sub(previous)) <= u128::from(room);
        prop_assert_eq!(check_counter(previous, alleged, limit), if inside { Ok(alleged) } else { Err(Impossible) });
    }

    #[test]
    fn a_writer_keeps_its_count_when_the_reader_lies(sent in 0..=4_u64, start in start(), lie in any::<u64>()) {
        let (mut producer, _) = ring(4, start);
        for _ in 0..sent {
            producer.publish_control(0);
        }
        let honest = lie.wrapping_sub(start) <= sent;
        prop_assert_eq!(producer.refresh(lie).is_ok(), honest);
        prop_assert_eq!(producer.consumed(), if honest { lie } else { start });
    }
}

#[test]
fn a_counter_has_exact_edges() {
    assert_eq!(check_counter(5, 5, 5), Ok(5));
    assert_eq!(check_counter(5, 6, 5), Err(Impossible));
    assert_eq!(check_counter(5, 4, 9), Err(Impossible));
    assert_eq!(check_counter(5, 9, 9), Ok(9));
    assert_eq!(check_counter(5, 10, 9), Err(Impossible));
    assert_eq!(check_counter(u64::MAX, 0, 0), Ok(0));
    assert_eq!(check_counter(u64::MAX, u64::MAX, 0), Ok(u64::MAX));
    assert_eq!(check_counter(u64::MAX, 1, 0), Err(Impossible));
    assert_eq!(check_counter(u64::MAX - 1, u64::MAX - 2, 3), Err(Impossible));
}

#[test]
fn a_long_control_message_is_cut() {
    let (mut producer, mut consumer) = ring(2, 0);
    producer.write_control(&[7; CONTROL_MAX + 5]);
    producer.publish_control(CONTROL_MAX as u64);
    assert_eq!(consumer.peek(), Peek::Control(96));
    assert_eq!(consumer.take_control().bytes(96), [7; CONTROL_MAX]);
    assert_eq!(consumer.peek(), Peek::Nothing(1));
}

#[test]
#[should_panic = "power of two"]
fn a_ring_of_three_slots_is_refused() {
    let _ = Producer::new(Memory::new(3));
}
