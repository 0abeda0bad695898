//! Pages that are sent by a ring from where they lie: what receipts say of that, and when a page may be filled again.

use std::collections::BTreeSet;
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use cutthrough::{Adapter, Config, Endpoint, Event, Incoming, Keys, Payload, Placement, Receipt, probe};
use cutthrough_cli::veth::{Pair, Space};
use cutthrough_conform::bytes::{check, pattern};
use cutthrough_conform::join::{PATIENCE, Side, connect};
use cutthrough_conform::suite;

const POOL: u64 = 1 << 20;
/// How soon whoever sends by a ring notices that it is gone, on a machine that has time.
const SOON: Duration = Duration::from_millis(250);

/// A wire for one test alone, where there can be a ring; says so if there is none.
fn wire(mtu: u32) -> Option<Pair> {
    let missing = probe(Adapter::Xdp).into_iter().find_map(|(_, tried)| tried.err());
    let made = missing.map_or_else(|| Pair::make(mtu).map_err(|missing| missing.to_string()), Err);
    made.map_err(cutthrough_conform::skipped).ok()
}

fn ip(space: &Space, words: &str) {
    let ran = space.within(|| Command::new("ip").args(words.split_whitespace()).status()).expect("the namespace");
    assert!(ran.expect("ip runs").success(), "ip {words}");
}

fn config(placement: Placement) -> Config {
    // Nobody is taken for dead, however long the other side does not run.
    let silence = Duration::from_secs(120);
    Config { insecure: true, pool_bytes: POOL, placement, silence, ..suite::config() }
}

fn address() -> String {
    format!("xdp:{}:7000", Pair::FAR)
}

fn listening(wire: &Pair, config: Config) -> Endpoint {
    let mut endpoint = Endpoint::open(config).expect("an endpoint");
    wire.far.within(|| endpoint.listen(&address())).expect("the namespace").expect("a ring");
    endpoint
}

/// Two endpoints in two namespaces, joined.
fn joined(wire: &Pair, config: impl Fn() -> Config) -> (Side, Side) {
    let (mut from, mut to) = (Endpoint::open(config()).expect("an endpoint"), listening(wire, config()));
    let (a, b) = wire.near.within(|| connect(&mut from, &mut to, &address())).expect("the namespace");
    (Side { endpoint: from, channel: a }, Side { endpoint: to, channel: b })
}

/// The next message for a side, and the cookies that the other one is told meanwhile.
fn next(from: &mut Side, to: &mut Side, told: &mut BTreeSet<u64>, when: &str) -> Incoming {
    let begun = Instant::now();
    loop {
        look(from, told, when);
        match to.endpoint.poll() {
            Some(Event::Message(message)) => return message,
            Some(other) => panic!("{when}: instead of a message: {other:?}"),
            None => assert!(begun.elapsed() < PATIENCE, "{when}: no message"),
        }
    }
}

fn look(at: &mut Side, told: &mut BTreeSet<u64>, when: &str) {
    match at.endpoint.poll() {
        Some(Event::Completed(done)) => assert!(told.insert(done.cookie), "{when}: {} twice", done.cookie),
        Some(other) => panic!("{when}: {other:?}"),
        None => {}
    }
}

/// Sends a page with a payload whose cookie is its seed.
fn send(from: &mut Side, seed: u64, bytes: usize) -> Receipt {
    let begun = Instant::now();
    let mut page = loop {
        match from.endpoint.page(from.channel, bytes) {
            Ok(page) => break page,
            Err(why) => assert!(begun.elapsed() < PATIENCE, "{why}"),
        }
    };
    page.copy_from_slice(&pattern(seed, bytes));
    let outgoing = from.endpoint.outgoing(from.channel).expect("a slot").write(b"a page");
    outgoing.attach(page).track(seed).send().expect("sent")
}

/// Takes a payload and checks it.
fn take(by: &mut Side, mut message: Incoming, seed: u64) {
    if let Payload::Landed(landed) = message.payload() {
        return check(seed, &landed.to_vec());
    }
    by.read_checked(&mut message, seed);
}

/// All of a pool can be had, before long, once everybody has all that was sent.
fn pool_is_whole(of: &mut Side, told: &mut BTreeSet<u64>, when: &str) {
    let begun = Instant::now();
    while of.endpoint.page(of.channel, usize::try_from(POOL).expect("small")).is_err() {
        look(of, told, when);
        assert!(begun.elapsed() < PATIENCE, "{when}: pages are missing");
    }
}

fn told_of_all(of: &mut Side, told: &mut BTreeSet<u64>, all: u64, when: &str) {
    let begun = Instant::now();
    while (told.len() as u64) < all {
        look(of, told, when);
        assert!(begun.elapsed() < PATIENCE, "{when}: told of {told:?} of {all}");
    }
    assert!(told.iter().copied().eq(0..all));
}

/// Pages go without a copy by the sender, at both lengths of frames, whether payloads are placed at the other side or
/// not; and each message's memory is named once. Private memory is copied, also such as lies in a page, which may be
/// written as soon as the call has ended.
#[test]
fn pages_go_from_where_they_lie() {
    for (mtu, placement) in [(1500, Placement::Copy), (9000, Placement::Copy), (1500, Placement::HeaderCut)] {
        let Some(wire) = wire(mtu) else { return };
        let when = format!("MTU {mtu}, {placement:?}");
        let (mut a, mut b) = joined(&wire, || config(placement));
        let (mut told, mut seed) = (BTreeSet::new(), 0);
        for _ in 0..20 {
            for bytes in [1, 100, 1408, 4096, 8192, 70_000, 300_001] {
                let sent = send(&mut a, seed, bytes);
                assert_eq!((sent.adapter, sent.copies, sent.bytes), (Adapter::Xdp, 0, bytes as u64), "{when}");
                let message = next(&mut a, &mut b, &mut told, &when);
                take(&mut b, message, seed);
                seed += 1;
            }
        }
        told_of_all(&mut a, &mut told, seed, &when);
        pool_is_whole(&mut a, &mut told, &when);

        // A page of ours that we only lend a part of, and write over at once.
        let mut page = a.endpoint.page(a.channel, 8192).expect("a page");
        for turn in 0..50 {
            page.copy_from_slice(&pattern(turn, 8192));
            let sent = a.send_copy(b"lent", &page, None);
            page.fill(0xee);
            assert!(sent.copies > 0, "{when}: {sent:?}");
            let message = next(&mut a, &mut b, &mut told, &when);
            take(&mut b, message, turn);
        }
    }
}

/// What is sealed is written elsewhere by the seal, and copied from there.
#[test]
fn sealed_pages_are_copied() {
    let Some(wire) = wire(1500) else { return };
    let keys = Arc::new(Keys::from_text(&format!("psk: {}", "5a".repeat(32))).expect("a key"));
    let sealed = || Config { insecure: false, keys: Some(Arc::clone(&keys)), ..config(Placement::Copy) };
    let (mut a, mut b) = joined(&wire, sealed);
    let mut told = BTreeSet::new();
    for seed in 0..20 {
        let sent = send(&mut a, seed, 8192);
        assert_eq!((sent.adapter, sent.copies, sent.sealed), (Adapter::Xdp, 1, true));
        let message = next(&mut a, &mut b, &mut told, "sealed");
        take(&mut b, message, seed);
    }
    told_of_all(&mut a, &mut told, 20, "sealed");
    pool_is_whole(&mut a, &mut told, "sealed");
}

/// There is room for so many pools, and no more: others are copied from. What a channel leaves is another one's.
#[test]
fn pools_in_the_memory_of_a_ring_go_from_channel_to_channel() {
    let Some(wire) = wire(1500) else { return };
    let config = || config(Placement::Copy);
    let (mut from, mut to) = (Endpoint::open(config()).expect("an endpoint"), listening(&wire, config()));
    let mut channels: Vec<_> =
        (0..18).map(|_| wire.near.within(|| connect(&mut from, &mut to, &address())).expect("the namespace")).collect();
    for round in 0..3 {
        for (number, (at_a, at_b)) in channels.iter().copied().enumerate() {
            let when = format!("round {round}, channel {number}");
            let mut told = BTreeSet::new();
            let (mut a, mut b) = (Side { endpoint: from, channel: at_a }, Side { endpoint: to, channel: at_b });
            let sent = send(&mut a, 0, 5000);
            assert_eq!(sent.copies, u32::from(number >= 16), "{when}: 16 pools have room");
            let message = next(&mut a, &mut b, &mut told, &when);
            take(&mut b, message, 0);
            told_of_all(&mut a, &mut told, 1, &when);
            (from, to) = (a.endpoint, b.endpoint);
        }
        // The last ones take the place of those that go; and new ones find none.
        for (at_a, at_b) in channels.drain(..) {
            from.close(at_a);
            let begun = Instant::now();
            let mut open = true;
            while open {
                assert!(from.poll().is_none() && begun.elapsed() < PATIENCE);
                match to.poll() {
                    Some(Event::Closed(channel, _)) => open = channel != at_b,
                    None => {}
                    Some(other) => panic!("{other:?}"),
                }
            }
        }
        let again = (0..18).map(|_| wire.near.within(|| connect(&mut from, &mut to, &address())).expect("there"));
        channels = again.collect();
    }
}

/// The ring is lost while pages are on their way, again and again: everything arrives, each message's memory is named
/// once, and all of the pool is there in the end. A channel whose ring is another one by then is copied from, and a new
/// channel is not.
#[test]
fn a_ring_that_goes_and_comes_back_leaves_all_pages() {
    for placement in [Placement::Copy, Placement::HeaderCut] {
        let Some(wire) = wire(1500) else { return };
        let config = || config(placement);
        let (mut a, mut b) = joined(&wire, config);
        let (mut told, mut seed, mut taken) = (BTreeSet::new(), 0, 0);
        for round in 0..3 {
            let when = format!("{placement:?}, round {round}");
            let begun = Instant::now();
            for (step, bytes) in [30_000; 8].into_iter().chain([1000; 10]).enumerate() {
                if step == 8 {
                    // All others are there: these go at once, and the ring gets the first of them.
                    while taken < seed {
                        let message = next(&mut a, &mut b, &mut told, &when);
                        take(&mut b, message, taken);
                        taken += 1;
                    }
                    ip(&wire.near, "link set near down");
                }
                let sent = send(&mut a, seed, bytes);
                assert!(round > 0 || step > 8 || sent.copies == 0, "{when}: {sent:?}");
                seed += 1;
            }
            let mut more = 1;
            while a.endpoint.net_offers().iter().all(|offer| offer.declined.is_none()) {
                look(&mut a, &mut told, &when);
                assert!(begun.elapsed() < PATIENCE, "{when}: nobody has noticed");
                // Whoever sends by the ring notices: those before may all have gone another way.
                if begun.elapsed() > more * SOON && more <= 20 {
                    send(&mut a, seed, 1000);
                    (seed, more) = (seed + 1, more + 1);
                }
            }
            ip(&wire.near, "link set near up");
            while taken < seed {
                let message = next(&mut a, &mut b, &mut told, &when);
                take(&mut b, message, taken);
                taken += 1;
            }
            told_of_all(&mut a, &mut told, seed, &when);
            pool_is_whole(&mut a, &mut told, &when);
            let begun = Instant::now();
            while a.endpoint.net_offers().iter().any(|offer| offer.declined.is_some()) {
                look(&mut a, &mut told, &when);
                assert!(begun.elapsed() < 2 * PATIENCE, "{when}: {:?}", a.endpoint.net_offers());
            }
        }
        // By the ring again.
        let begun = Instant::now();
        loop {
            let sent = send(&mut a, seed, 5000);
            let message = next(&mut a, &mut b, &mut told, "after all");
            take(&mut b, message, seed);
            seed += 1;
            if sent.adapter == Adapter::Xdp {
                assert_eq!(sent.copies, 1, "{placement:?}: its pages lie in the memory of a ring that is gone");
                break;
            }
            assert!(begun.elapsed() < 2 * PATIENCE, "not by the ring");
        }
        let (mut from, mut to) = (a.endpoint, b.endpoint);
        let (at_a, at_b) = wire.near.within(|| connect(&mut from, &mut to, &address())).expect("the namespace");
        let (mut a, mut b) = (Side { endpoint: from, channel: at_a }, Side { endpoint: to, channel: at_b });
        let sent = send(&mut a, 7, 5000);
        assert_eq!((sent.adapter, sent.copies), (Adapter::Xdp, 0), "{placement:?}: a new channel");
        loop {
            let message = next(&mut a, &mut b, &mut told, "a new channel");
            if message.channel() == at_b {
                take(&mut b, message, 7);
                break;
            }
        }
    }
}
