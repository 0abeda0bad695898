//! Every order in which two processors can see each other's stores: rings, wake-ups, teardown, revocation, copies that
//! both sides make.
//!
//! Run with `RUSTFLAGS="--cfg loom" cargo test -p cutthrough-segment --test loom`. What is expected to fail
//! without its fence is shown to fail, so that a model which sees nothing does not pass for a proof.
#![cfg(loom)]

#[path = "loom/bell.rs"]
mod bell;

use std::ops::Deref;
use std::sync::Arc;

use cutthrough_segment::bell::{Fence, heavy_fence, light_fence};
use cutthrough_segment::record::{Reader, Words, Writer};
use cutthrough_segment::ring::{Consumer, Peek, PeerSlot, Producer, Slots};
use cutthrough_segment::share::{Hears, Part, Says};
use cutthrough_segment::shelf::{Filled, Release, Shelf, Waker};
use cutthrough_segment::sync::{AtomicU64, Ordering, Slot, fence};
use loom::cell::UnsafeCell;
use loom::thread;

/// Slots that both ends see.
#[derive(Debug, Clone)]
struct SlotMemory(Arc<[Slot]>);

impl Deref for SlotMemory {
    type Target = [Slot];
    fn deref(&self) -> &[Slot] {
        &self.0
    }
}

impl Slots for SlotMemory {
    fn count(&self) -> usize {
        self.0.len()
    }
    fn slot(&self, index: usize) -> PeerSlot<'_> {
        PeerSlot::new(&self.0[index])
    }
}

/// Words that both ends see.
#[derive(Debug, Clone)]
struct WordMemory(Arc<[AtomicU64]>);

impl Deref for WordMemory {
    type Target = [AtomicU64];
    fn deref(&self) -> &[AtomicU64] {
        &self.0
    }
}

impl Words for WordMemory {
    fn count(&self) -> usize {
        self.0.len()
    }
    fn load(&self, index: usize) -> u64 {
        self.0[index].load(Ordering::Relaxed)
    }
}

/// A ring of `slots` slots.
fn ring(slots: usize) -> (Producer<SlotMemory>, Consumer<SlotMemory>) {
    let memory = SlotMemory((0..slots).map(|_| Slot::zeroed()).collect());
    (Producer::new(memory.clone()), Consumer::new(memory))
}

/// A counter in one side's memory, as the other side sees it too.
fn counter() -> Arc<AtomicU64> {
    Arc::new(AtomicU64::new(0))
}

/// Tries every order with at most so many switches that a thread did not ask for.
fn explore(switches: usize, body: impl Fn() + Sync + Send + 'static) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(switches);
    model.check(body);
}

/// A header whose kind says that there is a payload.
const LOADED: u64 = 4 << 8 | 8;

/// Message number `number`: every word of it says the number.
fn publish(producer: &mut Producer<SlotMemory>, number: u64) {
    producer.write_control(&number.to_le_bytes());
    if number.is_multiple_of(2) {
        producer.publish([LOADED, number, number]);
    } else {
        producer.publish_control(8);
    }
}

/// Takes the next message, if there is one, and checks that every word of it says `number`. Yields between the two
/// halves of that: then loom lets the writer run there.
fn take(consumer: &mut Consumer<SlotMemory>, number: u64) -> bool {
    let seen = match consumer.peek() {
        Peek::Nothing(_) => return false,
        Peek::Control(len) => Err(len),
        Peek::Loaded(words) => Ok(words),
    };
    thread::yield_now();
    let due = if number.is_multiple_of(2) { Ok([LOADED, number, number]) } else { Err(8) };
    assert_eq!((seen, consumer.take_control().bytes(8)), (due, &number.to_le_bytes()[..]));
    true
}

/// Sends `count` messages over a ring of two slots, and takes them. `early` is how many messages the reader reports
/// before it has copied them out.
fn send_and_take(count: u64, early: u64) {
    let (mut producer, mut consumer) = ring(2);
    let consumed = counter();
    let reported = Arc::clone(&consumed);
    let writer = thread::spawn(move || {
        for number in 0..count {
            while !producer.has_room() {
                producer.refresh(consumed.load(Ordering::Acquire)).unwrap();
                thread::yield_now();
            }
            publish(&mut producer, number);
        }
    });
    for number in 0..count {
        while !consumer.ready() {
            thread::yield_now();
        }
        reported.store(consumer.taken() + early, Ordering::Release);
        assert!(take(&mut consumer, number));
        reported.store(consumer.taken(), Ordering::Release);
    }
    assert!(!take(&mut consumer, count), "nothing is there that was not sent");
    writer.join().unwrap();
}

#[test]
fn a_reader_never_sees_a_torn_an_old_or_a_future_message() {
    explore(3, || send_and_take(3, 0));
}

#[test]
#[should_panic]
fn a_reader_that_reports_too_early_is_caught() {
    explore(3, || send_and_take(4, 1));
}

/// A word ring of two words carries three.
#[test]
fn words_come_out_in_order_and_whole() {
    explore(3, || {
        let memory = WordMemory((0..2).map(|_| AtomicU64::new(0)).collect());
        let (mut writer, mut reader) = (Writer::new(memory.clone()), Reader::new(memory));
        let (written, taken) = (counter(), counter());
        let (written_seen, taken_seen) = (Arc::clone(&written), Arc::clone(&taken));
        let side = thread::spawn(move || {
            for word in 1..=3 {
                while !writer.push(word) {
                    writer.refresh(taken_seen.load(Ordering::Acquire)).unwrap();
                    thread::yield_now();
                }
                written.store(writer.written(), Ordering::Release);
            }
        });
        for expected in 1..=3 {
            let word = loop {
                reader.refresh(written_seen.load(Ordering::Acquire)).unwrap();
                if let Some(word) = reader.pop() {
                    break word;
                }
                thread::yield_now();
            };
            assert_eq!(word, expected);
            taken.store(reader.taken(), Ordering::Release);
        }
        side.join().unwrap();
    });
}

/// A page dropped by another thread, against an endpoint that falls asleep: it was found by the last look, or the
/// endpoint is woken.
fn drop_against_sleep() {
    let waker = Arc::new(Waker::new().unwrap());
    let shelf = Arc::new(Shelf::new(Arc::clone(&waker)));
    let left = Arc::clone(&shelf);
    let dropper = thread::spawn(move || left.put(Release::Posted { id: 1 }));
    if waker.sleep() {
        dropper.join().unwrap();
        assert!(waker.event().load(Ordering::Acquire) == 1, "the endpoint sleeps, and nobody will wake it");
    } else {
        assert!(shelf.filled(), "it looks, and finds nothing");
        dropper.join().unwrap();
    }
    let mut found = Vec::new();
    shelf.clear(&mut found);
    assert_eq!(found, [Release::Posted { id: 1 }]);
}

#[test]
fn a_page_dropped_beside_a_sleeper_wakes_it() {
    loom::model(drop_against_sleep);
}

/// An endpoint that looks at listed shelves, sleeps and wakes gets everything that two others drop meanwhile.
#[test]
fn every_page_that_is_dropped_comes_back() {
    explore(2, || {
        let (waker, list) = (Arc::new(Waker::new().unwrap()), Arc::new(Filled::default()));
        let shelf = Arc::new(Shelf::new(Arc::clone(&waker)).listed_in(Arc::clone(&list), 3));
        let droppers = [1, 2].map(|id| {
            let shelf = Arc::clone(&shelf);
            thread::spawn(move || shelf.put(Release::Posted { id }))
        });
        let (mut found, mut channels, mut heard) = (Vec::new(), Vec::new(), 0);
        while found.len() < 2 {
            list.clear(&mut channels);
            assert!(channels.len() <= 1, "it is listed once");
            if channels.pop().is_some() {
                shelf.unlist();
                shelf.clear(&mut found);
            } else if waker.sleep() {
                while waker.event().load(Ordering::Acquire) == heard {
                    thread::yield_now();
                }
                heard = waker.event().load(Ordering::Acquire);
                waker.awake();
            }
        }
        assert_eq!(found.len(), 2);
        droppers.into_iter().for_each(|dropper| dropper.join().unwrap());
    });
}

/// Who sees that the peer has left finds everything that it sent before, and then nothing more.
#[test]
fn nothing_sent_before_leaving_is_lost() {
    explore(3, || {
        let (mut producer, mut consumer) = ring(2);
        let left = counter();
        let leaves = Arc::clone(&left);
        let peer = thread::spawn(move || {
            for number in 0..2 {
                publish(&mut producer, number);
            }
            leaves.store(1, Ordering::Release);
        });
        let mut number = 0;
        loop {
            let gone = left.load(Ordering::Acquire) != 0;
            while take(&mut consumer, number) {
                number += 1;
            }
            if gone {
                break;
            }
            thread::yield_now();
        }
        assert_eq!(number, 2);
        peer.join().unwrap();
    });
}

/// What a peer and a sleeper share beside the ring, and what the kernel says of the peer.
#[derive(Default)]
struct Bond {
    armed: AtomicU64,
    rings: AtomicU64,
    left: AtomicU64,
    hung_up: AtomicU64,
}

/// A peer that sends two messages, rings for who is armed, and leaves; killed, it makes no more than so many `steps` of
/// that. Either way the kernel hangs up in the end. A sleeper hears of everything that was published, and of the end.
fn end_against_sleep(steps: usize) {
    let (mut producer, mut consumer) = ring(2);
    let bond = Arc::new(Bond::default());
    let peers = Arc::clone(&bond);
    let peer = thread::spawn(move || {
        for step in 0..steps {
            match step {
                0 | 2 => publish(&mut producer, step as u64 / 2),
                1 | 3 => {
                    light_fence();
                    if peers.armed.load(Ordering::Relaxed) != 0 {
                        peers.rings.fetch_add(1, Ordering::Release);
                    }
                }
                _ => peers.left.store(1, Ordering::Release),
            }
        }
        peers.hung_up.store(1, Ordering::Release);
    });
    let (mut number, mut heard) = (0, 0);
    let left = loop {
        let gone = bond.hung_up.load(Ordering::Acquire) != 0;
        // As in `Link::peer_gone`: why it is gone is looked at once, when it is.
        let left = bond.left.load(Ordering::Acquire) != 0;
        while take(&mut consumer, number) {
            number += 1;
        }
        if gone {
            break left;
        }
        bond.armed.store(1, Ordering::Release);
        heavy_fence(Fence::Expedited);
        let rung = || bond.rings.load(Ordering::Acquire) != heard;
        while !consumer.ready() && !rung() && bond.hung_up.load(Ordering::Acquire) == 0 {
            thread::yield_now();
        }
        heard = bond.rings.load(Ordering::Acquire);
        bond.armed.store(0, Ordering::Release);
    };
    assert_eq!(number, steps.min(4).div_ceil(2) as u64, "what was published before the end is delivered");
    assert_eq!(left, steps > 4, "who was killed has not left");
    peer.join().unwrap();
}

#[test]
fn a_sleeper_hears_of_every_end() {
    for steps in 0..=5 {
        explore(2, move || end_against_sleep(steps));
    }
}

/// Pages are returned to a peer that leaves meanwhile: whoever looks at the return ring after that finds whole words,
/// and no more than were written.
#[test]
fn pages_returned_to_who_leaves_are_whole() {
    explore(3, || {
        let memory = WordMemory((0..2).map(|_| AtomicU64::new(0)).collect());
        let (mut writer, mut reader) = (Writer::new(memory.clone()), Reader::new(memory));
        let (returned, gone) = (counter(), counter());
        let (returned_seen, leaves) = (Arc::clone(&returned), Arc::clone(&gone));
        let owner = thread::spawn(move || {
            // It takes back what has come by now, and goes.
            reader.refresh(returned_seen.load(Ordering::Acquire)).unwrap();
            let taken: Vec<u64> = std::iter::from_fn(|| reader.pop()).collect();
            leaves.store(1, Ordering::Release);
            taken
        });
        let mut number = 0;
        while number < 2 && gone.load(Ordering::Acquire) == 0 {
            number += 1;
            assert!(writer.push(number));
            returned.store(writer.written(), Ordering::Release);
        }
        let taken = owner.join().unwrap();
        assert!(taken.iter().copied().eq(1..=taken.len() as u64) && taken.len() as u64 <= number, "{taken:?}");
    });
}

/// A granted place, the granter's table entry and the sender's claim, as `Own` and `Peer` hold them.
struct Granted {
    token: AtomicU64,
    claim: AtomicU64,
    place: UnsafeCell<u64>,
    published: AtomicU64,
}

// SAFETY: loom reports every access to the cell that is not ordered after the one before.
unsafe impl Sync for Granted {}

const KEY: u64 = 77;

impl Granted {
    /// The sender's side: claim, look again, write, publish, drop the claim. The accesses to token and claim are
    /// sequentially consistent in `half`; loom takes such accesses for acquire and release only, and knows the fence,
    /// so `order` stands for what lies between the two in the one order of them all.
    fn put(&self, order: impl Fn()) {
        if self.token.load(Ordering::Acquire) != KEY {
            return;
        }
        self.claim.store(KEY, Ordering::Release);
        order();
        if self.token.load(Ordering::Acquire) == KEY {
            // SAFETY: the protocol under test makes this the only access.
            self.place.with_mut(|place| unsafe { *place = 1 });
            self.published.store(1, Ordering::Release);
        }
        self.claim.store(0, Ordering::Release);
    }

    /// The granter's side: take the key away, look for a claim. True if the place is the granter's own again.
    fn revoke(&self, order: impl Fn()) -> bool {
        self.token.store(0, Ordering::Release);
        order();
        if self.claim.load(Ordering::Acquire) == KEY {
            self.token.store(KEY, Ordering::Release);
            return false;
        }
        true
    }
}

/// One put against one revocation: where it succeeds, the granter uses the place for something else at once.
fn put_against_revoke(order: impl Fn() + Copy + Send + 'static) {
    let granted = Arc::new(Granted {
        token: AtomicU64::new(KEY),
        claim: AtomicU64::new(0),
        place: UnsafeCell::new(0),
        published: AtomicU64::new(0),
    });
    let sender_side = Arc::clone(&granted);
    let sender = thread::spawn(move || sender_side.put(order));
    if granted.revoke(order) {
        // SAFETY: the protocol under test makes this the only access.
        granted.place.with_mut(|place| unsafe { *place = 2 });
        sender.join().unwrap();
        // SAFETY: the other thread has ended.
        assert_eq!(granted.place.with(|place| unsafe { *place }), 2, "written after it was revoked");
    } else if granted.published.load(Ordering::Acquire) == 1 {
        // SAFETY: the message says that the payload is there.
        assert_eq!(granted.place.with(|place| unsafe { *place }), 1);
        sender.join().unwrap();
    } else {
        sender.join().unwrap();
    }
}

#[test]
fn a_revoked_place_is_never_written() {
    loom::model(|| put_against_revoke(|| fence(Ordering::SeqCst)));
}

#[test]
#[should_panic]
fn without_the_one_order_a_revoked_place_is_written() {
    loom::model(|| put_against_revoke(|| ()));
}

/// A payload of as many chunks as there are words in its place, which both sides copy there. One: every look at the
/// other side is three loads, and with two chunks there are more orders than can be tried.
#[derive(Default)]
struct Together {
    sent: [AtomicU64; 3],
    taken: [AtomicU64; 3],
    published: AtomicU64,
    /// Whether the place is granted anew.
    granted: AtomicU64,
    place: [AtomicU64; CHUNKS],
}

const CHUNKS: usize = 1;

impl Together {
    /// Copies chunks of message `number` - 1: each of its words says the number.
    fn copy(&self, number: u64, start: u64, end: u64) {
        for chunk in start..end {
            self.place[usize::try_from(chunk).unwrap()].store(number, Ordering::Relaxed);
        }
    }

    /// The whole payload, as the receiver sees it.
    fn seen(&self) -> [u64; CHUNKS] {
        self.place.each_ref().map(|word| word.load(Ordering::Relaxed))
    }

    fn part<'a>(&self, number: u64, own: &'a [AtomicU64; 3], peer: &'a [AtomicU64; 3]) -> Part<'a> {
        Part { number, len: CHUNKS as u64, chunk: 1, own: Says::new(own), peer: Hears::new(peer) }
    }

    /// Says that message `number` - 1 is about to be sent.
    fn begin(&self, number: u64) {
        Says::new(&self.sent).begin(number, CHUNKS as u64, CHUNKS as u64);
        self.published.store(number, Ordering::Release);
    }

    /// The sender's part of it.
    fn send(&self, number: u64) {
        self.part(number, &self.sent, &self.taken).send(|start, end| self.copy(number, start, end));
    }

    /// The receiver's part, which waits for the sender so many times.
    fn receive(&self, number: u64, mut times: u32) {
        while self.published.load(Ordering::Acquire) < number {
            thread::yield_now();
        }
        let wait = || {
            thread::yield_now();
            times -= u32::from(times > 0);
            times > 0
        };
        self.part(number, &self.taken, &self.sent).receive(|start, end| self.copy(number, start, end), wait);
        assert_eq!(self.seen(), [number; CHUNKS], "delivered before all of it is there");
    }
}

/// One payload that both sides copy, and a sender that goes on to the next as soon as it is done. A receiver that does
/// not wait may copy everything itself.
fn copy_together(times: u32) {
    let copy = Arc::new(Together::default());
    copy.begin(1);
    let sending = Arc::clone(&copy);
    let sender = thread::spawn(move || {
        sending.send(1);
        Says::new(&sending.sent).begin(2, 0, 0);
    });
    copy.receive(1, times);
    sender.join().unwrap();
    assert_eq!(copy.seen(), [1; CHUNKS]);
}

#[test]
fn a_payload_that_both_copy_is_whole_when_it_is_delivered() {
    explore(1, || copy_together(2));
}

#[test]
fn a_payload_that_both_copy_is_whole_without_the_sender() {
    explore(1, || copy_together(0));
}

/// The receiver copies alone, and grants the place anew while the sender may still be at its last chunk.
#[test]
fn a_late_chunk_of_a_shared_copy_harms_no_later_payload() {
    explore(1, || {
        let copy = Arc::new(Together::default());
        copy.begin(1);
        let sending = Arc::clone(&copy);
        let sender = thread::spawn(move || {
            sending.send(1);
            if sending.granted.load(Ordering::Acquire) == 1 {
                sending.copy(2, 0, CHUNKS as u64);
                sending.published.store(2, Ordering::Release);
            }
        });
        copy.receive(1, 0);
        copy.granted.store(1, Ordering::Release);
        let next = copy.published.load(Ordering::Acquire);
        assert!(next == 1 || copy.seen() == [2; CHUNKS], "an old chunk came later than the new payload");
        sender.join().unwrap();
        let last = copy.published.load(Ordering::Acquire);
        assert_eq!(copy.seen(), [last; CHUNKS]);
    });
}
