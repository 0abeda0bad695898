//! Messages that are published while their receiver falls asleep, and taken while their sender does, for want of room.

use std::sync::Arc;

use cutthrough_segment::bell::{Fence, ROOM, Rung, heavy_fence, light_fence};
use cutthrough_segment::ring::Peek;
use cutthrough_segment::sync::Ordering;
use loom::thread;

use super::{counter, explore, publish, ring, take};

/// Messages against one sleeper: the last was found by the last look, or the sleeper was rung for, once.
fn publish_against_sleep(light: impl Fn() + Send + 'static, heavy: impl Fn()) {
    let (mut producer, mut consumer) = ring(2);
    let armed = counter();
    let seen = Arc::clone(&armed);
    let publisher = thread::spawn(move || {
        let (rung, mut rings) = (Rung::default(), 0);
        for _ in 0..2 {
            producer.publish_control(0);
            light();
            let armed = seen.load(Ordering::Relaxed);
            if rung.is_due(armed) {
                rung.done(armed);
                rings += 1;
            }
        }
        rings
    });
    armed.store(2, Ordering::Release);
    heavy();
    let mut found = 0;
    while !matches!(consumer.peek(), Peek::Nothing(_)) {
        consumer.take_control();
        found += 1;
    }
    let rings = publisher.join().unwrap();
    assert!(rings <= 1, "it was rung for twice");
    assert!(found == 2 || rings == 1, "the sleeper sleeps, and nobody will wake it");
}

#[test]
fn no_wakeup_is_lost() {
    explore(3, || publish_against_sleep(light_fence, || drop(heavy_fence(Fence::Expedited))));
}

#[test]
#[should_panic = "nobody will wake it"]
fn without_the_publishers_fence_a_wakeup_is_lost() {
    explore(3, || publish_against_sleep(|| (), || drop(heavy_fence(Fence::Expedited))));
}

#[test]
#[should_panic = "nobody will wake it"]
fn without_the_sleepers_fence_a_wakeup_is_lost() {
    explore(3, || publish_against_sleep(light_fence, || ()));
}

/// The same with a sleeper that sleeps and wakes again and again, as it does in the middle of a payload.
#[test]
fn a_sleeper_that_is_rung_for_finds_everything_in_the_end() {
    explore(3, || {
        let (mut producer, mut consumer) = ring(2);
        let (armed, rings) = (counter(), counter());
        let (seen, bell) = (Arc::clone(&armed), Arc::clone(&rings));
        let publisher = thread::spawn(move || {
            let rung = Rung::default();
            for _ in 0..2 {
                producer.publish_control(0);
                light_fence();
                let armed = seen.load(Ordering::Relaxed);
                if rung.is_due(armed) {
                    bell.fetch_add(1, Ordering::Release);
                    rung.done(armed);
                }
            }
        });
        let (mut taken, mut number) = (0, 1);
        while taken < 2 {
            if !matches!(consumer.peek(), Peek::Nothing(_)) {
                consumer.take_control();
                taken += 1;
                continue;
            }
            // As in `patience`: old rings are taken off before it arms.
            let heard = rings.load(Ordering::Acquire);
            number += 1;
            armed.store(number, Ordering::Release);
            heavy_fence(Fence::Expedited);
            while !consumer.ready() && rings.load(Ordering::Acquire) == heard {
                thread::yield_now();
            }
            armed.store(0, Ordering::Release);
        }
        publisher.join().unwrap();
    });
}

/// Two messages fill the ring and are taken, against a sender that sleeps until there is room: its last look found
/// some, or it was rung for, once.
fn take_against_sleep(light: impl Fn() + Send + 'static, heavy: impl Fn()) {
    let (mut producer, mut consumer) = ring(2);
    (0..2).for_each(|_| producer.publish_control(0));
    let (armed, consumed) = (counter(), counter());
    let (seen, reported) = (Arc::clone(&armed), Arc::clone(&consumed));
    let taker = thread::spawn(move || {
        let (rung, mut rings) = (Rung::default(), 0);
        for _ in 0..2 {
            assert_eq!(consumer.peek(), Peek::Control(0));
            // Not by `take`, which yields: loom shows nobody an old value twice who yields in between.
            consumer.take_control();
            reported.store(consumer.taken(), Ordering::Release);
            light();
            let armed = seen.load(Ordering::Relaxed);
            if rung.is_due_for_room(armed) {
                rung.done(armed);
                rings += 1;
            }
        }
        rings
    });
    armed.store(2 | ROOM, Ordering::Release);
    heavy();
    producer.refresh(consumed.load(Ordering::Acquire)).unwrap();
    let rings = taker.join().unwrap();
    assert!(rings <= 1, "it was rung for twice");
    assert!(producer.has_room() || rings == 1, "the sender sleeps, and nobody will wake it");
}

#[test]
fn no_room_is_slept_over() {
    explore(3, || take_against_sleep(light_fence, || drop(heavy_fence(Fence::Expedited))));
}

#[test]
#[should_panic = "nobody will wake it"]
fn without_the_takers_fence_room_is_slept_over() {
    explore(3, || take_against_sleep(|| (), || drop(heavy_fence(Fence::Expedited))));
}

#[test]
#[should_panic = "nobody will wake it"]
fn without_the_senders_fence_room_is_slept_over() {
    explore(3, || take_against_sleep(light_fence, || ()));
}

/// A sender that sleeps whenever the ring is full sends everything in the end.
#[test]
fn a_sender_that_is_rung_for_sends_everything_in_the_end() {
    explore(2, || {
        let (mut producer, mut consumer) = ring(2);
        let (armed, rings, consumed) = (counter(), counter(), counter());
        let (seen, bell, reported) = (Arc::clone(&armed), Arc::clone(&rings), Arc::clone(&consumed));
        let taker = thread::spawn(move || {
            let rung = Rung::default();
            for number in 0..4 {
                while !take(&mut consumer, number) {
                    thread::yield_now();
                }
                reported.store(consumer.taken(), Ordering::Release);
                light_fence();
                let armed = seen.load(Ordering::Relaxed);
                if rung.is_due_for_room(armed) {
                    bell.fetch_add(1, Ordering::Release);
                    rung.done(armed);
                }
            }
        });
        let (mut sent, mut number) = (0, 1);
        while sent < 4 {
            producer.refresh(consumed.load(Ordering::Acquire)).unwrap();
            if producer.has_room() {
                publish(&mut producer, sent);
                sent += 1;
                continue;
            }
            let heard = rings.load(Ordering::Acquire);
            number += 1;
            armed.store(number | ROOM, Ordering::Release);
            heavy_fence(Fence::Expedited);
            producer.refresh(consumed.load(Ordering::Acquire)).unwrap();
            while !producer.has_room() && rings.load(Ordering::Acquire) == heard {
                thread::yield_now();
            }
            armed.store(0, Ordering::Release);
        }
        taker.join().unwrap();
    });
}
