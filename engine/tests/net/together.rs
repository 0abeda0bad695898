//! Short messages with payloads, which share batches.

use cutthrough_engine::net::Cargo;
use cutthrough_engine::net::batch::Batch;
use cutthrough_engine::net::inbox::{Reading, ReadyPayload};

use super::wire::{Faults, World, pattern};

fn short(number: usize, len: usize) -> Cargo<Vec<u8>> {
    Cargo { load: pattern(number as u64, len), token: None, pages: false, cookie: None }
}

/// Frames of one call are of one length, but for the last, which may be shorter; what comes behind that goes next.
/// Lost as a whole, they come again, in their order.
#[test]
fn short_messages_of_one_length_share_a_batch() {
    let mut world = World::new(31, Faults::NONE);
    let (a, b) = world.join();
    world.settle();
    let lens: Vec<usize> = [300; 20].into_iter().chain([200, 300]).collect();
    for (number, len) in lens.iter().enumerate() {
        world.nodes[0].net.send(a, &[7], Some(short(number, *len))).unwrap();
    }
    let (mut batch, mut frames) = (Batch::default(), Vec::new());
    let now = world.now();
    while world.nodes[0].net.batch(now, &mut batch, 65_000).is_some() {
        frames.push(batch.frames());
        assert!(batch.bytes() <= batch.frames() * batch.segment());
    }
    assert_eq!(frames, [21, 1]);
    for (number, len) in lens.iter().enumerate() {
        let (_, message) = world.message(1);
        let ReadyPayload::Arriving(ticket, _) = message.payload else { panic!("{:?}", message.payload) };
        let mut into = vec![0; *len];
        world.read(1, b, &mut Reading { message: ticket, into: &mut into });
        assert!(into == pattern(number as u64, *len), "message {number}");
    }
}

/// Sends so many messages of `len` bytes, and says of how many frames each batch is that is full, then of the rest.
fn trains(messages: usize, len: usize) -> (Vec<usize>, Vec<usize>) {
    let mut world = World::new(31, Faults::NONE);
    let (a, b) = world.join();
    world.settle();
    for number in 0..messages {
        world.nodes[0].net.send(a, &[7], Some(short(number, len))).unwrap();
    }
    let (mut batch, now, net) = (Batch::default(), world.now(), &mut world.nodes[0].net);
    let (mut full, mut rest) = (Vec::new(), Vec::new());
    while net.train(now, &mut batch, 20_000).is_some() {
        full.push(batch.frames());
        assert!(batch.bytes() > 20_000 - batch.segment(), "{} bytes", batch.bytes());
    }
    assert!(!net.has_train(now, 20_000));
    while net.batch(now, &mut batch, 20_000).is_some() {
        rest.push(batch.frames());
        assert!(batch.bytes() <= batch.frames() * batch.segment());
    }
    // Lost as a whole, they come again, in their order.
    for number in 0..messages {
        let (_, message) = world.message(1);
        let ReadyPayload::Arriving(ticket, _) = message.payload else { panic!("{:?}", message.payload) };
        let mut into = vec![0; len];
        world.read(1, b, &mut Reading { message: ticket, into: &mut into });
        assert!(into == pattern(number as u64, len), "message {number}");
    }
    (full, rest)
}

/// While the sink is busy only full batches go, of parts of as many messages as it takes; the rest waits.
#[test]
fn what_fills_no_train_waits_for_others() {
    assert_eq!(trains(1, 3000), (vec![], vec![3]));
    assert_eq!(trains(9, 3000), (vec![17], vec![10]), "frames of like length, for others to follow");
    assert_eq!(trains(4, 8192), (vec![13], vec![11]));
}

/// Who streams to one peer keeps no other waiting for long: what another channel has goes after 20 us, though it fills
/// nothing.
#[test]
fn a_stream_does_not_keep_other_channels_waiting() {
    let mut world = World::new(31, Faults::NONE);
    let (streams, _) = world.join();
    let (other, _) = world.join();
    world.settle();
    let (mut batch, mut now, net) = (Batch::default(), world.now(), &mut world.nodes[0].net);
    net.send(other, &[7], None).unwrap();
    let mut went = Vec::new();
    for number in 0..4 {
        (0..2).for_each(|half| assert!(net.send(streams, &[7], Some(short(number * 2 + half, 5000))).is_ok()));
        while let Some((channel, _)) = net.train(now, &mut batch, 9000) {
            went.push(channel);
        }
        now = now.after(10_000);
    }
    assert!(went.iter().filter(|channel| **channel == streams).count() >= 3, "{went:?}");
    assert!(went.contains(&other), "{went:?}");
}

/// What an answer acknowledges is seen to after it was told of, but before its channel counts as full.
#[test]
fn an_answer_makes_room_for_who_sends_at_once() {
    let mut world = World::with_slots(34, Faults::NONE, 1);
    let (a, b) = world.join();
    for _ in 0..5 {
        world.nodes[0].net.send(a, b"question", None).unwrap();
        world.message(1);
        world.nodes[1].net.send(b, b"answer", None).unwrap();
        world.message(0);
    }
}

/// What a sender waits for that is far ahead of its receiver: payloads that go, and such that have not gone.
#[test]
fn what_is_outstanding_counts_until_it_has_arrived() {
    let mut world = World::new(35, Faults::NONE);
    let (a, b) = world.join();
    world.settle();
    let mut sums = Vec::new();
    for number in 0..3 {
        world.nodes[0].net.send(a, b"long", Some(short(number, 60_000))).unwrap();
        sums.push(world.nodes[0].net.outstanding(a, u64::MAX));
    }
    assert!(sums[0] > 30_000 && sums.is_sorted(), "{sums:?}");
    let mut read = vec![0; 60_000];
    for number in 0..3 {
        let (_, message) = world.message(1);
        let ReadyPayload::Arriving(message, _) = message.payload else { panic!("{:?}", message.payload) };
        let left = world.nodes[0].net.outstanding(a, u64::MAX);
        assert!(left >= 60_000 * (2 - number) / 2, "{left} bytes with {number} read");
        world.read(1, b, &mut Reading { message, into: &mut read });
    }
    world.settle();
    // A sign of life may be under way.
    let left = world.nodes[0].net.outstanding(a, u64::MAX);
    assert!(left < 1000, "{left} bytes at rest");
}

/// So it is where question and answer have a payload each, and there is none between.
#[test]
fn an_answer_with_a_payload_makes_room_for_who_sends_at_once() {
    let mut world = World::with_slots(35, Faults::NONE, 1);
    let (a, b) = world.join();
    for number in 0..5 {
        for (from, channel, to, other) in [(0, a, 1, b), (1, b, 0, a)] {
            world.nodes[from].net.send(channel, b"a page", Some(short(number, 300))).unwrap();
            let (_, message) = world.message(to);
            let ReadyPayload::Arriving(ticket, _) = message.payload else { panic!("{:?}", message.payload) };
            let mut into = [0; 300];
            world.read(to, other, &mut Reading { message: ticket, into: &mut into });
            assert!(into[..] == pattern(number as u64, 300), "message {number}");
        }
    }
    world.settle();
    assert!(world.nodes.iter().all(|node| node.net.is_settled()));
}
