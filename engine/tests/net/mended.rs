//! What the simulator of faults has found: each as the smallest world that shows it.

use cutthrough_engine::net::batch::Batch;
use cutthrough_engine::net::channel::Body;
use cutthrough_engine::net::inbox::{Left, Reading, ReadyPayload};
use cutthrough_engine::net::{Cargo, NetEvent};
use cutthrough_engine::time::Instant;
use cutthrough_wire::token::Token;

use super::wire::{Faults, World, pattern};

fn to_be_read(seed: u64, len: usize) -> Cargo<Vec<u8>> {
    Cargo { load: pattern(seed, len), token: None, pages: false, cookie: None }
}

#[test]
fn a_channel_that_takes_one_message_at_a_time_comes_to_rest() {
    let mut world = World::with_slots(11, Faults::NONE, 1);
    let (a, _) = world.join();
    for _ in 0..5 {
        world.nodes[0].net.send(a, b"one", None).unwrap();
        world.message(1);
        world.settle();
    }
}

/// Also of what lay aside, for want of its opening or of a reader: counted when it is copied.
#[test]
fn bytes_that_were_copied_are_counted_wherever_they_lay_before() {
    let faults = Faults { loss: 5, duplicates: 3, reorder: 30, corrupt: 2 };
    for seed in 0..20 {
        let mut world = World::new(seed, faults);
        let (a, _) = world.join();
        let sent = [200_000, 1, 70_000, 5_000, 300_000];
        for (seed, len) in (0..).zip(sent) {
            world.nodes[0].net.send(a, b"", Some(Cargo { pages: true, ..to_be_read(seed, len) })).unwrap();
        }
        let copied = sent.map(|_| match world.message(1).1.payload {
            ReadyPayload::Landed(_, story) => u64::from(story.copied),
            other => panic!("{other:?}"),
        });
        assert_eq!(world.nodes[1].net.tally().mended_bytes, copied.iter().sum::<u64>(), "seed {seed}: {copied:?}");
    }
    for lends in [false, true] {
        let mut world = World::new(12, Faults::NONE);
        let (a, b) = world.join();
        world.nodes[0].net.send(a, b"", Some(to_be_read(5, 200_000))).unwrap();
        let (_, message) = world.message(1);
        let ReadyPayload::Arriving(message, _) = message.payload else { panic!("{:?}", message.payload) };
        let mut into = vec![0; 200_000];
        let reading = &mut Reading { message, into: &mut into };
        match lends {
            true => world.read(1, b, reading),
            false => world.read_some(1, b, reading),
        }
        assert_eq!(into, pattern(5, 200_000));
        let tally = world.nodes[1].net.tally();
        assert_eq!(tally.placed_bytes + tally.mended_bytes, 200_000, "{lends}: {tally:?}");
    }
}

#[test]
fn a_payload_can_be_read_after_its_sender_has_closed() {
    let mut world = World::new(12, Faults::NONE);
    let (a, b) = world.join();
    world.nodes[0].net.send(a, b"last words", Some(to_be_read(5, 3000))).unwrap();
    let (_, message) = world.message(1);
    let ReadyPayload::Arriving(number, _) = message.payload else { panic!("{:?}", message.payload) };
    world.nodes[0].net.close(a);
    world.settle_side(0);
    let mut into = vec![0; 3000];
    world.read(1, b, &mut Reading { message: number, into: &mut into });
    assert_eq!(into, pattern(5, 3000));
    assert!(matches!(world.event(1), NetEvent::Closed(..)));
}

/// What is here whole when a channel ends is left to its user; what is not, is lost with it.
#[test]
fn payloads_that_had_arrived_outlive_their_channel() {
    for closes in [true, false] {
        let mut world = World::with_silence(12, 300_000_000);
        let ((a, b), _other) = (world.join(), world.join());
        world.nodes[0].net.send(a, b"whole", Some(to_be_read(5, 3000))).unwrap();
        world.message(1);
        if closes {
            world.nodes[0].net.close(a);
            world.go_on(1_000_000);
            world.nodes[1].net.let_go();
        } else {
            world.nodes[0].net.send(a, b"in part", Some(to_be_read(6, 500_000))).unwrap();
            world.message(1);
            world.nodes[0].net.abandon(a);
        }
        assert!(matches!(world.event(1), NetEvent::Closed(index, _) if index == b));
        let left = world.nodes[1].net.take_left(b);
        let [Left { message: 0, from: 0, bytes, story }] = &left[..] else { panic!("{left:?}") };
        assert_eq!((bytes, story.bytes, story.copied), (&pattern(5, 3000), 3000, 3000));
        assert_eq!(world.nodes[1].net.take_left(b), []);
    }
}

#[test]
fn two_sides_that_close_do_not_wait_for_each_other_to_read() {
    let mut world = World::new(13, Faults::NONE);
    let (a, b) = world.join();
    for _ in 0..4 {
        world.nodes[0].net.send(a, b"unread", Some(to_be_read(6, 500_000))).unwrap();
        world.nodes[1].net.send(b, b"unread", Some(to_be_read(7, 500_000))).unwrap();
    }
    world.message(0);
    world.message(1);
    world.nodes[0].net.close(a);
    world.nodes[1].net.close(b);
    world.empties();
}

#[test]
fn a_payload_that_was_read_gives_its_unasked_bytes_back() {
    let mut world = World::new(14, Faults::NONE);
    let (a, b) = world.join();
    // Ten times what may be sent unasked: the last ones are sent at once as the first ones were.
    for seed in 0..40 {
        world.nodes[0].net.send(a, b"to be read", Some(to_be_read(seed, 16 << 10))).unwrap();
        let (_, message) = world.message(1);
        let ReadyPayload::Arriving(number, _) = message.payload else { panic!("{:?}", message.payload) };
        let mut into = vec![0; 16 << 10];
        world.read(1, b, &mut Reading { message: number, into: &mut into });
        world.settle();
    }
    let [_, _, _, sent, received] = world.nodes[1].net.counts(b).unwrap();
    assert_eq!((sent, received), (0, 40 * (16 << 10)));
}

#[test]
fn a_changed_version_is_no_other_version() {
    let mut world = World::new(15, Faults::NONE);
    let to = world.address(1);
    world.nodes[0].net.call(Instant::from_nanos(1), to, 1408).unwrap();
    world.change_versions();
    assert!(matches!(world.event(0), NetEvent::Connected(_)));
}

#[test]
fn the_number_of_an_ended_channel_is_not_given_away_before_its_user_knows() {
    let mut world = World::new(16, Faults::NONE);
    let (a, b) = world.join();
    world.nodes[0].net.close(a);
    world.empties();
    let to = world.address(0);
    world.nodes[0].net.listen(true);
    let next = world.nodes[1].net.call(Instant::from_nanos(2), to, 1408).unwrap();
    assert_ne!(next, b);
    assert!(matches!(world.event(1), NetEvent::Closed(index, _) if index == b));
    assert_eq!(world.nodes[1].net.call(Instant::from_nanos(3), to, 1408), Some(b));
}

/// Probes of a channel whose welcome was lost came to another one that the same call had got meanwhile, late: there
/// they were acknowledged, and the other side had never sent as much.
#[test]
fn who_was_let_in_and_has_said_nothing_hears_nothing_but_the_welcome() {
    let mut world = World::new(16, Faults::NONE);
    let (caller, called, now) = (world.address(0), world.address(1), world.now());
    world.nodes[0].net.call(now, called, 1408).unwrap();
    for (from, to, address) in [(0, 1, caller), (1, 0, called), (0, 1, caller)] {
        let (_, mut frame) = world.nodes[from].net.greeting().expect("a frame of the handshake");
        let (head, body) = frame.split_first_chunk_mut().unwrap();
        world.nodes[to].net.frame(now, address, head, Body::Aside(body), None);
    }
    assert_eq!(world.nodes[1].net.channels(), 1);
    assert!(world.nodes[1].net.greeting().is_some(), "the welcome, which is lost");
    let mut batch = Batch::default();
    for _ in 0..40 {
        world.pass(500_000_000);
        let now = world.now();
        world.nodes[1].net.tick(now);
        assert!(world.nodes[1].net.batch(now, &mut batch, 65_000).is_none());
    }
}

/// A way on trial that leads nowhere takes all with it that is sent. On a long path it is only found out after several
/// round trips, and by then the other side must not have taken this one for dead.
#[test]
fn a_black_way_on_trial_does_not_look_like_death() {
    let mut world = World::with_silence(15, 400_000_000);
    world.delay = 50_000_000;
    let (a, b) = world.join();
    world.nodes[0].net.set_ways(a, 0b11);
    world.black = Some((0, 1));
    for number in 0..40 {
        world.nodes[0].net.send(a, &[number], None).unwrap();
        let (index, message) = world.message(1);
        assert_eq!((index, &message.control[..usize::from(message.control_len)]), (b, &[number][..]));
        world.settle();
    }
    assert!(world.swallowed > 0, "the black way was never tried");
}

/// Far more payloads wait for their readers than may come unasked, or than are looked at when it is chosen who is asked
/// for more; whichever is read comes.
#[test]
fn payloads_are_read_in_any_order_however_many_wait() {
    const COUNT: usize = 300;
    let mut world = World::with_slots(31, Faults::NONE, 1024);
    let (a, b) = world.join();
    for seed in 0..COUNT {
        let cargo = Cargo { load: pattern(seed as u64, 5_000), token: None, pages: false, cookie: None };
        world.nodes[0].net.send(a, b"", Some(cargo)).unwrap();
    }
    let mut numbers = Vec::new();
    for _ in 0..COUNT {
        let (_, message) = world.message(1);
        let ReadyPayload::Arriving(number, _) = message.payload else { panic!("{:?}", message.payload) };
        numbers.push(number);
    }
    // The last first, then the first, and so on towards the middle.
    let order = (0..COUNT / 2).flat_map(|at| [COUNT - 1 - at, at]);
    for at in order {
        let mut into = vec![0; 5_000];
        world.read(1, b, &mut Reading { message: numbers[at], into: &mut into });
        assert!(into == pattern(at as u64, 5_000), "{at}");
    }
    world.settle();
}

/// As long as a payload has its place it is asked for, whatever lies unread before it.
#[test]
fn a_payload_with_a_place_comes_however_many_unread_ones_were_before_it() {
    let mut world = World::with_slots(32, Faults::NONE, 1024);
    let (a, _) = world.join();
    for seed in 0..100 {
        let cargo = Cargo { load: pattern(seed, 5_000), token: None, pages: false, cookie: None };
        world.nodes[0].net.send(a, b"", Some(cargo)).unwrap();
    }
    let cargo = Cargo { load: pattern(100, 500_000), token: None, pages: true, cookie: None };
    world.nodes[0].net.send(a, b"", Some(cargo)).unwrap();
    let landed = (0..=100).find_map(|_| match world.message(1).1.payload {
        ReadyPayload::Landed(place, _) => Some(place),
        _ => None,
    });
    assert!(landed == Some(pattern(100, 500_000)));
}

/// The opening of a message has been overtaken by one that a token names, and that has got its place. Nobody gets that
/// back before the first one is handed over, so whoever has the memory must not have it wait for that.
#[test]
fn who_asks_for_a_place_says_which_ones_are_behind_it() {
    let mut world = World::new(34, Faults::NONE);
    let (a, _) = world.join();
    world.settle();
    let (now, from) = (world.now(), world.address(0));
    let mut frames = Vec::new();
    for (len, token) in [(1000, None), (900, Some(Token { index: 0, key: 1 }))] {
        let cargo = Cargo { load: pattern(len as u64, len), token, pages: true, cookie: None };
        world.nodes[0].net.send(a, b"", Some(cargo)).unwrap();
        let mut batch = Batch::default();
        world.nodes[0].net.batch(now, &mut batch, 65_000).expect("there is something to send");
        assert_eq!(batch.frames(), 1);
        frames.push(world.bytes(0, a, &batch));
    }
    let behind: [&[usize]; 2] = [&[], &[900]];
    for (frame, behind) in frames.iter_mut().rev().zip(behind) {
        let (head, body) = frame.split_first_chunk_mut().unwrap();
        world.nodes[1].net.frame(now, from, head, Body::Aside(body), None);
        assert_eq!(world.nodes[1].net.memory.behind, behind);
    }
    for len in [1000, 900] {
        let ReadyPayload::Landed(place, _) = world.message(1).1.payload else { panic!("it has a place") };
        assert!(place == pattern(len as u64, len));
    }
}

/// A short payload fits into what may lie aside, where none of the long ones before it does: who reads it without
/// lending memory gets it, however many they are.
#[test]
fn a_short_payload_is_read_from_aside_behind_many_long_ones() {
    let mut world = World::with_slots(33, Faults::NONE, 1024);
    let (a, b) = world.join();
    let lens: Vec<usize> = [20_000].into_iter().chain([100_000; 40]).chain([3_000]).collect();
    for (seed, len) in (0..).zip(&lens) {
        world.nodes[0].net.send(a, b"", Some(to_be_read(seed, *len))).unwrap();
    }
    let mut numbers = Vec::new();
    while numbers.len() < lens.len() {
        let (_, message) = world.message(1);
        let ReadyPayload::Arriving(number, _) = message.payload else { panic!("{:?}", message.payload) };
        numbers.push(number);
    }
    let last = lens.len() - 1;
    for at in [0, last] {
        let mut into = vec![0; lens[at]];
        world.read_some(1, b, &mut Reading { message: numbers[at], into: &mut into });
        assert!(into == pattern(at as u64, lens[at]), "{at}");
    }
}
