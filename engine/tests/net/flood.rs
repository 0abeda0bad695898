//! What a flood of forged frames costs: bounded memory, and no answer longer than what asked for it.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::net::SocketAddr;

use cutthrough_engine::net::batch::Batch;
use cutthrough_engine::net::channel::Body;
use cutthrough_engine::net::inbox::ReadyPayload;
use cutthrough_engine::net::{Cargo, NetEvent, Tally};
use cutthrough_engine::time::Instant;
use cutthrough_wire::frame::{BODY_MIN, Greeting, HEADER_BYTES, Header, Kind};

use super::rules::{FIRST, Forger, VICTIM, greeting, sealed};
use super::wire::{Faults, World, pattern};

thread_local! {
    /// Bytes that this thread has taken from the heap, less those that it has given back.
    static HELD: Cell<i64> = const { Cell::new(0) };
}

struct Counting;

#[global_allocator]
static COUNTING: Counting = Counting;

// SAFETY: everything is passed on to the system's allocator; beside that there is only a counter.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        HELD.set(HELD.get() + layout.size().cast_signed() as i64);
        // SAFETY: the caller's promises are those of the system's allocator.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        HELD.set(HELD.get() - layout.size().cast_signed() as i64);
        // SAFETY: as above.
        unsafe { System.dealloc(memory, layout) }
    }
}

const KINDS: [Kind; 10] = [
    Kind::Hello,
    Kind::Retry,
    Kind::Welcome,
    Kind::Refuse,
    Kind::Records,
    Kind::Open,
    Kind::Data,
    Kind::Note,
    Kind::Probe,
    Kind::Close,
];

/// Forged frames of each kind.
const FRAMES: u64 = 100_000;

/// Bytes that the memory of an endpoint may differ by at any time of a flood.
const MOST: i64 = 64 << 10;

/// What is wrong with a frame that names the honest channel.
#[derive(Debug, Clone, Copy)]
enum Lie {
    Address,
    Generation,
    Seal,
}

/// Throws a frame at a node, and takes what it says to that: it is no longer than what came.
fn throw(world: &mut World, from: SocketAddr, header: &Header, body: &mut [u8], head: &[u8]) {
    let (now, came) = (world.now(), HEADER_BYTES + body.len());
    let net = &mut world.nodes[1].net;
    net.frame(now, from, head.first_chunk().unwrap(), Body::Aside(body), None);
    let answers: usize = std::iter::from_fn(|| net.greeting()).map(|(_, frame)| frame.len()).sum();
    assert!(answers <= came, "{answers} bytes answer {came}: {header:?}");
}

/// Throws a forged frame at node 1, which names its channel `b` of this generation.
fn forge(world: &mut World, body: &mut [u8], (kind, lie, number): (Kind, Lie, u64), (b, generation): (usize, u32)) {
    body[..56].copy_from_slice(&greeting(number).to_bytes(0));
    let mut forger = Forger::stranger(9);
    forger.number = number;
    let low = u32::try_from(number).unwrap();
    let words = match kind {
        Kind::Records | Kind::Data => [low, 1],
        Kind::Open | Kind::Close => [low, 0],
        Kind::Note => [low % 2, 0],
        _ => [0, 0],
    };
    let mut header = forger.header(kind, words, body);
    header.tag = u32::try_from(b).unwrap();
    header.generation = generation;
    let honest = world.address(0);
    let from = match lie {
        Lie::Address => {
            let [low, high, ..] = number.to_le_bytes();
            SocketAddr::from(([10, 1, high, low], 9))
        }
        Lie::Generation => {
            header.generation = header.generation.wrapping_add(1 + low);
            honest
        }
        Lie::Seal => honest,
    };
    let mut head = header.to_bytes();
    if kind.greets() {
        head[..].copy_from_slice(&sealed(&header, body).0);
    } else {
        head[48] = 1;
    }
    throw(world, from, &header, body, &head);
}

fn flood(lie: Lie) {
    let mut world = World::new(31, Faults::NONE);
    let (a, b) = world.join();
    world.settle();
    let generation = world.generation;
    let mut body = vec![0; usize::from(BODY_MIN)];
    let mut batch = Batch::default();
    let before = HELD.get();
    for kind in KINDS {
        for number in 0..FRAMES {
            forge(&mut world, &mut body, (kind, lie, number), (b, generation));
            if number % 64 == 63 {
                // One note for many frames that had come before, at most.
                let sent = std::iter::from_fn(|| {
                    let now = world.now();
                    world.nodes[1].net.batch(now, &mut batch, 65_000)
                });
                let sent: usize = sent.count();
                assert!(sent <= 1, "{kind:?}: {sent} batches");
            }
            let held = HELD.get() - before;
            assert!(held < MOST, "{kind:?} {lie:?}: {held} bytes more after {number} frames");
        }
    }
    assert_eq!(world.nodes[1].net.channels(), 1);
    let tally = *world.nodes[1].net.tally();
    match lie {
        Lie::Address | Lie::Generation => assert!(tally.stale >= 6 * FRAMES, "{tally:?}"),
        Lie::Seal => assert!(tally.forged + tally.duplicates >= 6 * FRAMES, "{tally:?}"),
    }
    world.nodes[0].net.send(a, b"after the flood", None).unwrap();
    let (index, message) = world.message(1);
    assert_eq!((index, &message.control[..15]), (b, &b"after the flood"[..]));
}

#[test]
fn a_flood_from_strangers_costs_nothing_that_stays() {
    flood(Lie::Address);
}

#[test]
fn a_flood_of_an_earlier_life_costs_nothing_that_stays() {
    flood(Lie::Generation);
}

#[test]
fn a_flood_with_wrong_seals_costs_nothing_that_stays() {
    flood(Lie::Seal);
}

/// Forged frames beside each message of an honest peer: some ten for each frame of its.
const BESIDE: u64 = 34;

/// What comes beside the messages of an honest peer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Flood {
    None,
    Forged,
    /// All frames that the peer has sent, from its first on, again and again.
    Replayed,
}

/// When each of the messages of an honest peer arrives, and how many frames it has sent for all of them.
fn arrivals(flood: Flood) -> (Vec<Instant>, u64) {
    let mut world = World::new(34, Faults::NONE);
    world.kept = (flood == Flood::Replayed).then(Vec::new);
    let (a, b) = world.join();
    world.settle();
    let generation = world.generation;
    let mut body = vec![0; usize::from(BODY_MIN)];
    let arrivals = (0..300).map(|message| {
        let payload = pattern(message, 20_000);
        let cargo = Cargo { load: payload.clone(), token: None, pages: true, cookie: None };
        world.nodes[0].net.send(a, b"honest", (message % 3 == 0).then_some(cargo)).unwrap();
        for number in message * BESIDE..(message + 1) * BESIDE {
            let kind = KINDS[usize::try_from(number).unwrap() % KINDS.len()];
            for lie in [Lie::Address, Lie::Generation, Lie::Seal].into_iter().filter(|_| flood == Flood::Forged) {
                forge(&mut world, &mut body, (kind, lie, number), (b, generation));
            }
            if let Some(kept) = world.kept.take() {
                let sealed = kept.iter().filter(|frame| is_sealed(frame));
                let many = sealed.clone().count();
                let at = usize::try_from(number).unwrap() * 3 % many.max(1);
                sealed.cycle().skip(at).take(3.min(many)).for_each(|frame| replay(&mut world, frame));
                world.kept = Some(kept);
            }
            world.go_on(100);
        }
        let (_, arrived) = world.message(1);
        if let ReadyPayload::Landed(place, _) = arrived.payload {
            assert_eq!(place, payload);
        }
        world.now()
    });
    let arrivals = arrivals.collect();
    world.settle();
    (arrivals, world.nodes[0].net.tally().frames_sent)
}

/// What is refused changes nothing that an honest frame waits for: each message arrives at the nanosecond at which it
/// arrives without a flood, and none is sent again.
#[test]
fn a_flood_beside_honest_traffic_delays_none_of_it() {
    let (alone, beside) = (arrivals(Flood::None), arrivals(Flood::Forged));
    assert!(alone.1 < 3000, "{} frames", alone.1);
    assert_eq!(alone, beside);
}

/// Genuine frames that come again have the victim say at once what it would have said later: so each message arrives
/// no later than without them, and no more frames are sent for all of them.
#[test]
fn replays_beside_honest_traffic_delay_none_of_it() {
    let (alone, beside) = (arrivals(Flood::None), arrivals(Flood::Replayed));
    assert!(beside.1 <= alone.1, "{} frames, and {} without a flood", beside.1, alone.1);
    let later = alone.0.iter().zip(&beside.0).position(|(alone, beside)| beside > alone);
    assert_eq!((later, beside.0.len()), (None, alone.0.len()));
}

/// Whether a frame is sealed by the keys of a channel.
fn is_sealed(frame: &[u8]) -> bool {
    Header::from_bytes(frame.first_chunk().unwrap()).is_ok_and(|header| !header.kind.greets())
}

/// Throws a frame of node 0 at node 1 once more, as it was.
fn replay(world: &mut World, frame: &[u8]) {
    let (head, body) = frame.split_first_chunk::<HEADER_BYTES>().unwrap();
    let header = Header::from_bytes(head).unwrap();
    let honest = world.address(0);
    throw(world, honest, &header, &mut body.to_vec(), head);
}

/// Genuine frames, caught on their way and thrown again and again: each is refused as a duplicate. The answer to many
/// of them is one note, nothing is taken in or kept, and who has sent them goes on.
#[test]
fn a_flood_of_genuine_frames_costs_nothing_that_stays() {
    let mut world = World::new(37, Faults::NONE);
    world.kept = Some(Vec::new());
    let (a, b) = world.join();
    let payload = pattern(37, 300_000);
    let cargo = || Some(Cargo { load: payload.clone(), token: None, pages: true, cookie: None });
    let exchange = |world: &mut World| {
        for (from, to, channel) in [(0, 1, a), (1, 0, b)] {
            world.nodes[from].net.send(channel, b"short", None).unwrap();
            world.nodes[from].net.send(channel, b"long", cargo()).unwrap();
            assert_eq!(&world.message(to).1.control[..5], b"short");
            let ReadyPayload::Landed(place, _) = world.message(to).1.payload else { panic!("no payload in its place") };
            assert_eq!(place, payload);
        }
        world.settle();
    };
    exchange(&mut world);
    let mut kept = world.kept.take().unwrap();
    kept.retain(|frame| is_sealed(frame));
    for kind in [Kind::Records, Kind::Open, Kind::Data, Kind::Note] {
        assert!(kept.iter().any(|frame| frame[1] == kind as u8), "no {kind:?} among {} frames", kept.len());
    }
    let (before, held, mut notes) = (*world.nodes[1].net.tally(), HELD.get(), 0);
    let mut batch = Batch::default();
    for (number, frame) in (1..=FRAMES).zip(kept.iter().cycle()) {
        replay(&mut world, frame);
        if number % 64 == 0 {
            let now = world.now();
            let sent = std::iter::from_fn(|| world.nodes[1].net.batch(now, &mut batch, 65_000)).count();
            assert!(sent <= 1, "{sent} batches answer 64 frames");
            notes += sent as u64;
        }
        let more = HELD.get() - held;
        assert!(more < MOST, "{more} bytes more after {number} frames");
    }
    assert!(world.nodes[1].net.next_event().is_none());
    // That they were refused and what was answered is all that has changed.
    let after = *world.nodes[1].net.tally();
    assert_eq!((after.duplicates - before.duplicates, after.notes_sent - before.notes_sent), (FRAMES, notes));
    let unchanged = Tally { duplicates: before.duplicates, notes_sent: before.notes_sent, ..after };
    assert_eq!(unchanged, before);
    exchange(&mut world);
    assert_eq!(world.nodes[0].net.tally().frames_lost, 0);
    // Of a channel that has ended they are nothing at all.
    world.nodes[0].net.close(a);
    assert!(matches!(world.event(1), NetEvent::Closed(index, _) if index == b));
    world.empties();
    let stale = world.nodes[1].net.tally().stale;
    kept.iter().for_each(|frame| replay(&mut world, frame));
    assert!(world.nodes[1].net.next_event().is_none() && world.nodes[1].net.channels() == 0);
    assert_eq!(world.nodes[1].net.tally().stale - stale, kept.len() as u64);
}

/// Callers at so many ports of one host, each with a good cookie.
fn with_cookies(world: &mut World, ports: u16) -> Vec<(Forger, u64)> {
    let caller = |port| {
        let mut caller = Forger::stranger(9);
        caller.address.set_port(port);
        let retry = caller.hello(world, 0, FIRST, BODY_MIN).expect("a cookie");
        (caller, u64::from_le_bytes(*retry[HEADER_BYTES..].first_chunk().unwrap()))
    };
    (1..=ports).map(caller).collect()
}

/// Hellos with good cookies that are said again and again, from many ports of one host, and an honest caller beside
/// them: each round takes every place of those who were let in and not heard of since.
#[test]
fn an_honest_caller_gets_in_beside_one_who_replays_hellos() {
    let mut world = World::new(33, Faults::NONE);
    let mut replayers = with_cookies(&mut world, 40);
    let mut replay = |world: &mut World| {
        for (replayer, cookie) in &mut replayers {
            replayer.says_hello(world, *cookie, FIRST, BODY_MIN);
        }
    };
    replay(&mut world);
    let (now, to) = (world.now(), world.address(1));
    let a = world.nodes[0].net.call(now, to, 1408).expect("a seat");
    let opened = (0..100).find_map(|_| {
        replay(&mut world);
        world.go_on(1_000);
        world.nodes[1].net.next_event()
    });
    assert!(matches!(opened, Some(NetEvent::Opened(_))), "{opened:?}");
    // The first hello was heard: it is repeated after 10 ms.
    assert!(world.now() < Instant::from_nanos(9_000_000), "{:?}", world.now());
    assert!(matches!(world.event(0), NetEvent::Connected(index) if index == a));
    world.nodes[0].net.send(a, b"honest", None).unwrap();
    let (_, message) = world.message(1);
    assert_eq!(&message.control[..6], b"honest");
}

/// Says hello to node 1.
fn call(world: &mut World, caller: &Forger, hello: &Greeting, first: &[u8]) {
    let mut body = hello.to_bytes(u16::try_from(first.len()).unwrap()).to_vec();
    body.extend_from_slice(first);
    body.resize(BODY_MIN.into(), 0);
    let header = caller.header(Kind::Hello, [0, 0], &body);
    let head = sealed(&header, &body).0;
    let now = world.now();
    let net = &mut world.nodes[1].net;
    net.frame(now, caller.address, head.first_chunk().unwrap(), Body::Aside(&mut body), None);
}

/// Hellos with a good cookie from one port, each for another channel, and an honest caller of the same host: it has a
/// port of its own, and gets in by its first hello with a cookie.
#[test]
fn an_honest_caller_gets_in_beside_one_of_its_own_host() {
    let mut world = World::new(35, Faults::NONE);
    let mut other = Forger::stranger(1);
    other.address.set_port(99);
    assert_eq!(other.address.ip(), world.address(0).ip());
    let retry = other.hello(&mut world, 0, FIRST, BODY_MIN).expect("a cookie");
    let cookie = u64::from_le_bytes(*retry[HEADER_BYTES..].first_chunk().unwrap());
    let mut generation = 100;
    let mut crowd = |world: &mut World| {
        for _ in 0..20 {
            generation += 1;
            call(world, &other, &Greeting { generation, ..greeting(cookie) }, FIRST);
        }
    };
    crowd(&mut world);
    let (now, to) = (world.now(), world.address(1));
    world.nodes[0].net.call(now, to, 1408).expect("a seat");
    let opened = (0..100).find_map(|_| {
        crowd(&mut world);
        world.go_on(1_000);
        world.nodes[1].net.next_event()
    });
    assert!(matches!(opened, Some(NetEvent::Opened(_))), "{opened:?}");
    assert!(world.now() < Instant::from_nanos(9_000_000), "{:?}", world.now());
    assert!(matches!(world.event(0), NetEvent::Connected(_)));
}

#[test]
fn times_that_mean_nothing_any_more_do_not_pile_up() {
    let mut world = World::new(32, Faults::NONE);
    let (a, _) = world.join();
    let mut pass = |count: u32| {
        for _ in 0..count {
            world.nodes[0].net.send(a, b"again", None).unwrap();
            world.message(1);
            world.settle();
        }
        HELD.get()
    };
    let before = pass(2000);
    let after = pass(50_000);
    assert!(after - before < 8 << 10, "{} bytes more", after - before);
}

#[test]
fn callers_that_are_not_heard_of_again_have_their_bound_and_their_time() {
    // A caller takes its channel for open as long as it takes a silent peer for alive.
    for (silence_ns, time) in [(500_000_000, 1_000_000_000), (3_000_000_000, 3_000_000_000)] {
        let mut world = World::with_silence(25, silence_ns);
        let let_in = |world: &mut World, host: u8| {
            let mut forger = Forger::stranger(host);
            let retry = forger.hello(world, 0, FIRST, BODY_MIN).unwrap();
            let cookie = u64::from_le_bytes(*retry[HEADER_BYTES..].first_chunk().unwrap());
            forger.hello(world, cookie, FIRST, BODY_MIN).map(|answer| answer[1])
        };
        for host in 20..36 {
            assert_eq!(let_in(&mut world, host), Some(Kind::Welcome as u8));
        }
        assert_eq!(let_in(&mut world, 36), Some(Kind::Refuse as u8));
        assert_eq!(world.nodes[VICTIM].net.channels(), 16);
        assert!(Forger::stranger(0).events(&mut world).is_empty());
        let pass = |world: &mut World, nanos: u64| {
            for _ in 0..10 {
                world.pass(nanos / 10);
                let now = world.now();
                world.nodes[VICTIM].net.looked(now);
                world.nodes[VICTIM].net.tick(now);
            }
        };
        pass(&mut world, time - 1_000_000);
        assert_eq!(world.nodes[VICTIM].net.channels(), 16);
        pass(&mut world, 2_000_000);
        assert_eq!(let_in(&mut world, 36), Some(Kind::Welcome as u8));
        assert_eq!(world.nodes[VICTIM].net.channels(), 1);
    }
}

/// A caller of another host gets in by its first hello with a cookie.
fn gets_in_beside(world: &mut World, mut crowd: impl FnMut(&mut World)) {
    let (now, to) = (world.now(), world.address(1));
    world.nodes[0].net.call(now, to, 1408).expect("a seat");
    let opened = (0..100).find_map(|_| {
        crowd(world);
        world.go_on(1_000);
        world.nodes[1].net.next_event()
    });
    assert!(matches!(opened, Some(NetEvent::Opened(_))), "{opened:?}");
    assert!(world.now() < now.after(9_000_000), "{:?}", world.now());
}

/// Hellos with good cookies from many ports of a host, with a key that does not fit, which is found at the price of an
/// answer: so many are looked at and no more, and a caller of another host gets in by its first hello with a cookie.
#[test]
fn a_flood_of_hellos_with_cookies_is_answered_at_a_rate() {
    let mut world = World::new(36, Faults::NONE);
    let mut ports = with_cookies(&mut world, 20);
    let mut generation = 100;
    let mut crowd = |world: &mut World| {
        for _ in 0..10 {
            for (other, cookie) in &mut ports {
                generation += 1;
                call(world, other, &Greeting { generation, ..greeting(*cookie) }, b"another key");
            }
        }
    };
    let (mut answered, begun) = (0, world.now());
    for _ in 0..200 {
        crowd(&mut world);
        let answers = std::iter::from_fn(|| world.nodes[1].net.greeting());
        answered += answers.inspect(|(_, frame)| assert_eq!(frame[1], Kind::Refuse as u8)).count() as u64;
        world.pass(1_000_000);
    }
    let took = world.now().saturating_since(begun);
    assert!(answered <= 256 + took / 500_000, "{answered} in {took} ns");
    assert!(answered >= took / 1_000_000, "{answered} in {took} ns");
    gets_in_beside(&mut world, crowd);
}

/// Who has no cookie is told to come again, and who calls where nobody listens is told that: so many are and no more,
/// for to say so takes a call of the kernel, and those who are in want their time, too. A caller of another host gets
/// in beside them.
#[test]
fn a_flood_of_hellos_without_cookies_is_answered_at_a_rate() {
    for listens in [true, false] {
        let mut world = World::new(37, Faults::NONE);
        world.nodes[1].net.listen(listens);
        let answer = if listens { Kind::Retry } else { Kind::Refuse };
        let mut other = Forger::stranger(1);
        other.address = SocketAddr::from(([10, 9, 9, 9], 99));
        let mut generation = 100;
        let mut crowd = |world: &mut World| {
            for _ in 0..100 {
                generation += 1;
                call(world, &other, &Greeting { generation, ..greeting(0) }, b"");
            }
        };
        let (mut answered, begun) = (0, world.now());
        for _ in 0..200 {
            crowd(&mut world);
            let answers = std::iter::from_fn(|| world.nodes[1].net.greeting());
            answered += answers.inspect(|(_, frame)| assert_eq!(frame[1], answer as u8)).count() as u64;
            world.pass(1_000_000);
        }
        let took = world.now().saturating_since(begun);
        assert!(answered <= 256 + took / 25_000, "{answered} in {took} ns");
        assert!(answered >= took / 50_000, "{answered} in {took} ns");
        let refused = world.nodes[1].net.tally().refused;
        assert_eq!(refused, if listens { 20_000 - answered } else { 20_000 });
        if listens {
            gets_in_beside(&mut world, crowd);
        }
    }
}
