//! Rings and their interfaces: which rings there are, and what becomes of them when the interface goes down, or is made
//! anew. Each test has a wire of its own.

use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use cutthrough::{
    Adapter, CloseReason, Config, ConnectError, Counter, Endpoint, Event, Incoming, PageSize, Payload, Placement,
    Receipt, UdpCallError, WaitError, Why, probe,
};
use cutthrough_cli::veth::{Pair, Space};
use cutthrough_conform::bytes::{check, pattern};
use cutthrough_conform::join::{PATIENCE, Side, connect, keep_house};
use cutthrough_conform::suite;
use rustix::time::{ClockId, clock_gettime};

/// Runs `ip` with these words in a namespace.
fn ip(space: &Space, words: &str) {
    let ran = space.within(|| Command::new("ip").args(words.split_whitespace()).status()).expect("the namespace");
    assert!(ran.expect("ip runs").success(), "ip {words}");
}

/// A wire for one test alone, where this adapter can be used; says so if there is none.
fn wire(adapter: Adapter) -> Option<Pair> {
    wire_of(adapter, 1500)
}

/// As [`wire`], with frames of so many bytes.
fn wire_of(adapter: Adapter, mtu: u32) -> Option<Pair> {
    let missing = probe(adapter).into_iter().find_map(|(_, tried)| tried.err());
    let made = missing.map_or_else(|| Pair::make(mtu).map_err(|missing| missing.to_string()), Err);
    made.map_err(cutthrough_conform::skipped).ok()
}

fn at_far(scheme: &str) -> String {
    format!("{scheme}:{}:7000", Pair::FAR)
}

/// Two endpoints in two namespaces, joined; the second one listens at this address.
fn joined(a: (&Space, Config), b: (&Space, Config), address: &str) -> (Side, Side) {
    let [mut from, mut to] = [a.1, b.1].map(|config| Endpoint::open(config).expect("an endpoint"));
    let begun = Instant::now();
    // A program that another test of this process begins has all that is open for a moment, and so what has just been
    // closed here.
    while let Err(error) = b.0.within(|| to.listen(address)).expect("the namespace") {
        assert!(begun.elapsed() < Duration::from_secs(2), "a ring at {address}: {error}");
        thread::sleep(Duration::from_millis(5));
    }
    let (at_a, at_b) = a.0.within(|| connect(&mut from, &mut to, address)).expect("the namespace");
    (Side { endpoint: from, channel: at_a }, Side { endpoint: to, channel: at_b })
}

/// The next message that comes to a side, while both look after themselves.
fn next(from: &mut Side, to: &mut Side, when: &str) -> Incoming {
    let begun = Instant::now();
    loop {
        match to.endpoint.poll() {
            Some(Event::Message(message)) => return message,
            Some(other) => panic!("{when}: instead of a message: {other:?}"),
            None => assert!(from.endpoint.poll().is_none(), "{when}: nothing should have come"),
        }
        assert!(begun.elapsed() < PATIENCE, "{when}: no message");
    }
}

/// Bytes of each payload: some frames.
const BYTES: usize = 8192;

/// Takes a payload, wherever it lies, and checks it.
fn taken(by: &mut Side, mut message: Incoming, seed: u64) -> Receipt {
    if let Payload::Landed(landed) = message.payload() {
        check(seed, &landed.to_vec());
        return message.receipt();
    }
    by.read_checked(&mut message, seed)
}

/// Sends a payload: by which adapter it went.
fn went_by(from: &mut Side, to: &mut Side, seed: u64, when: &str) -> Adapter {
    let sent = from.send_copy(b"one of many", &pattern(seed, BYTES), None);
    let message = next(from, to, when);
    taken(to, message, seed);
    sent.adapter
}

/// Sends to and fro until messages of both sides have gone by this adapter: by others, too, where there are several.
fn until_both_go_by(adapter: Adapter, a: &mut Side, b: &mut Side, when: &str) {
    // A way on which nothing came through is left alone for 10 s.
    let (mut gone, begun) = ([false; 2], Instant::now());
    for seed in 0.. {
        let went = [went_by(a, b, seed, when), went_by(b, a, seed, when)];
        gone = [0, 1].map(|side| gone[side] || went[side] == adapter);
        if gone == [true; 2] {
            return;
        }
        assert!(begun.elapsed() < 2 * PATIENCE, "{when}: not by {adapter:?}, but by {went:?} ({gone:?})");
    }
}

/// An interface goes down while both sides send, at either end, and comes back: what was sent meanwhile arrives, and
/// then all goes by the ring again, which was opened anew.
#[test]
fn a_ring_comes_back_with_its_interface() {
    for (scheme, ring, placement) in [
        ("packet", Adapter::Packet, Placement::Copy),
        ("xdp", Adapter::Xdp, Placement::Copy),
        ("xdp", Adapter::Xdp, Placement::HeaderCut),
        ("net", Adapter::Packet, Placement::Copy),
    ] {
        let Some(wire) = wire(ring) else { return };
        // Nobody is taken for dead meanwhile, and there is room for what is sent while nothing goes.
        let (silence, staging_bytes) = (Duration::from_secs(120), 1 << 20);
        let config = || Config { insecure: true, silence, staging_bytes, placement, ..suite::config() };
        let (mut a, mut b) = joined((&wire.near, config()), (&wire.far, config()), &at_far(scheme));
        for side in [&mut a, &mut b] {
            assert_eq!(side.endpoint.post(side.channel, BYTES, 4), Ok(4));
        }
        let mut lost = 0;
        until_both_go_by(ring, &mut a, &mut b, scheme);
        for (space, name) in [(&wire.near, "near"), (&wire.far, "far")] {
            let when = format!("{scheme} {placement:?}, after {name} was down");
            ip(space, &format!("link set {name} down"));
            let there = if name == "near" { &mut a } else { &mut b };
            // Ways are tried in turn by net:, so that one of a few messages meets the ring that is of no use.
            let (refused, begun) = (there.endpoint.counter(Counter::CallsRefused), Instant::now());
            let mut sent = 0;
            while there.endpoint.counter(Counter::CallsRefused) == refused {
                assert!(begun.elapsed() < PATIENCE, "{when}: nobody has noticed");
                if sent < 20 {
                    there.send_copy(b"meanwhile", &pattern(sent, BYTES), None);
                    sent += 1;
                }
                assert!(there.endpoint.poll().is_none());
            }
            ip(space, &format!("link set {name} up"));
            let (from, to) = if name == "near" { (&mut a, &mut b) } else { (&mut b, &mut a) };
            for seed in 0..sent {
                let message = next(from, to, &when);
                taken(to, message, seed);
            }
            until_both_go_by(ring, &mut a, &mut b, &when);
            // A ring whose first frame tells it that the interface was down is opened again after the message has gone.
            let begun = Instant::now();
            let turnover = loop {
                let turnover = [&mut a, &mut b].map(|side| {
                    keep_house(&mut side.endpoint, |event| panic!("{when}: {event:?}"));
                    [Counter::RingsLost, Counter::RingsReopened].map(|counter| side.endpoint.counter(counter))
                });
                let offers = [a.endpoint.net_offers(), b.endpoint.net_offers()].concat();
                let mut declined = offers.iter().filter(|offer| offer.adapter == ring && offer.declined.is_some());
                if turnover.iter().all(|[lost, reopened]| lost == reopened) && declined.next().is_none() {
                    break turnover;
                }
                assert!(begun.elapsed() < PATIENCE, "{when}: {turnover:?} {offers:?}");
            };
            eprintln!("{when}: rings lost and opened again: {turnover:?}");
            // The socket alone may have met the interface that is down, where there are both.
            let now = turnover.iter().map(|[lost, _]| lost).sum();
            assert!(scheme == "net" || now > lost, "{when}: no ring was lost");
            lost = now;
        }
    }
}

/// A ring that places payloads goes while it is aimed at a channel's memory: a message of that channel that waits for a
/// place gets the first one that somebody lets go of.
#[test]
fn memory_is_free_again_when_its_ring_is_gone() {
    let Some(wire) = wire(Adapter::Xdp) else { return };
    let (silence, placement) = (Duration::from_secs(120), Placement::HeaderCut);
    let config = || Config { insecure: true, silence, placement, landing_bytes: 4 * BYTES as u64, ..suite::config() };
    let (mut a, mut b) = joined((&wire.near, config()), (&wire.far, config()), &at_far("xdp"));
    assert_eq!(b.endpoint.post(b.channel, BYTES, 1), Ok(1));
    until_both_go_by(Adapter::Xdp, &mut a, &mut b, "at first");
    ip(&wire.far, "link set far down");
    let begun = Instant::now();
    b.send_copy(b"meanwhile", &pattern(7, BYTES), None);
    while declined(&b.endpoint, Adapter::Xdp).is_none() {
        assert!(begun.elapsed() < PATIENCE, "nobody has noticed");
        assert!(b.endpoint.poll().is_none());
    }
    ip(&wire.far, "link set far up");
    let message = next(&mut b, &mut a, "meanwhile");
    taken(&mut a, message, 7);
    for seed in 0..5 {
        a.send_pages(b"a page", seed, &[BYTES], None);
    }
    let held: Vec<_> = (0..4).map(|_| next(&mut a, &mut b, "pages")).collect();
    // The last one comes, and has no place.
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_millis(100) {
        assert!(a.endpoint.poll().is_none() && b.endpoint.poll().is_none());
    }
    for (message, seed) in held.into_iter().zip(0..) {
        taken(&mut b, message, seed);
    }
    let message = next(&mut a, &mut b, "the last page");
    taken(&mut b, message, 4);
}

/// An interface goes away and is made anew while an endpoint there only listens, and its application looks away: the
/// ring is given up though nobody sends, and opened at the new interface, where callers reach it.
#[test]
fn a_ring_is_opened_at_an_interface_that_is_made_anew() {
    for (scheme, ring) in [("packet", Adapter::Packet), ("xdp", Adapter::Xdp)] {
        let Some(wire) = wire(ring) else { return };
        let config = || Config { insecure: true, ..suite::config() };
        let mut b = Endpoint::open(config()).expect("an endpoint");
        wire.far.within(|| b.listen(&at_far(scheme))).expect("the namespace").expect("a ring");
        let until = |there: bool| {
            let begun = Instant::now();
            while declined(&b, ring).is_none() != there {
                assert!(begun.elapsed() < PATIENCE, "{scheme}: {:?}", declined(&b, ring));
                std::thread::sleep(Duration::from_millis(1));
            }
        };
        until(true);
        ip(&wire.near, "link del near");
        until(false);
        ip(&wire.near, &format!("link add near type veth peer name far netns {}", wire.far.path().display()));
        for (space, name, address) in [(&wire.near, "near", Pair::NEAR), (&wire.far, "far", Pair::FAR)] {
            ip(space, &format!("addr add {address}/30 dev {name}"));
            ip(space, &format!("link set {name} up"));
        }
        until(true);
        let mut a = Endpoint::open(config()).expect("an endpoint");
        let (at_a, at_b) = wire.near.within(|| connect(&mut a, &mut b, &at_far(scheme))).expect("the namespace");
        let (mut a, mut b) = (Side { endpoint: a, channel: at_a }, Side { endpoint: b, channel: at_b });
        until_both_go_by(ring, &mut a, &mut b, scheme);
        keep_house(&mut b.endpoint, |event| panic!("{event:?}"));
        assert_eq!([Counter::RingsLost, Counter::RingsReopened].map(|counter| b.endpoint.counter(counter)), [1, 1]);
    }
}

/// Sends payloads of so many bytes one by one until `enough` of the receiver's receipts, all of whose bytes are right.
fn receipts(a: &mut Side, b: &mut Side, bytes: usize, mut enough: impl FnMut(&[Receipt]) -> bool) -> Vec<Receipt> {
    let (mut receipts, begun) = (Vec::new(), Instant::now());
    for seed in 0.. {
        a.send_copy(b"one of many", &pattern(seed, bytes), None);
        let message = next(a, b, "a payload");
        receipts.push(taken(b, message, seed));
        if enough(&receipts) {
            break;
        }
        let last = receipts.last();
        assert!(begun.elapsed() < 2 * PATIENCE, "{} payloads of {bytes} bytes; the last: {last:?}", receipts.len());
    }
    receipts
}

/// How many receipts name this placement.
fn count(receipts: &[Receipt], placement: Placement) -> usize {
    receipts.iter().filter(|receipt| receipt.placement == Some(placement)).count()
}

/// What an endpoint's counters say of bytes that came where they belong, and of those that were copied there, and of
/// rings lost and opened again.
fn counters(side: &mut Side) -> [u64; 4] {
    keep_house(&mut side.endpoint, |event| panic!("{event:?}"));
    let all = [Counter::PlacedBytes, Counter::MendedBytes, Counter::RingsLost, Counter::RingsReopened];
    all.map(|counter| side.endpoint.counter(counter))
}

/// By itself an endpoint begins with copies, tries the cut when long payloads come, and goes on with what is cheaper;
/// receipts say what was taken, and why. Short payloads are copied by the ring that is there from the beginning.
#[test]
fn both_placements_are_tried_by_themselves() {
    for mtu in [1500, 9000] {
        let Some(wire) = wire_of(Adapter::Xdp, mtu) else { return };
        let config = || Config { insecure: true, ..suite::config() };
        let (mut a, mut b) = joined((&wire.near, config()), (&wire.far, config()), &at_far("xdp"));
        assert_eq!(b.endpoint.post(b.channel, BYTES, 4), Ok(4));
        let short = receipts(&mut a, &mut b, 1024, |all| all.len() == 200);
        // On a busy machine something may come by the socket.
        let [copied, cut] = [Placement::Copy, Placement::HeaderCut].map(|placement| count(&short, placement));
        assert!(copied > 100 && cut == 0, "{copied} copied, {cut} cut: {:?}", short.last());
        let judged = |all: &[Receipt]| all.last().is_some_and(|last| last.placement_why == Why::Cheapest);
        let long = receipts(&mut a, &mut b, BYTES, judged);
        let [copied, cut] = [Placement::Copy, Placement::HeaderCut].map(|placement| count(&long, placement));
        let elsewhere = long.iter().filter(|receipt| receipt.placement.is_none()).count();
        eprintln!("MTU {mtu}: {copied} copied, {cut} cut, {elsewhere} by the socket: {:?}", long.last());
        assert!(copied >= 8 && cut >= 8, "{copied} copied, {cut} cut");
        for receipt in &long {
            let by_ring = receipt.adapter == Adapter::Xdp;
            assert_eq!(receipt.placement.is_some(), by_ring, "{receipt:?}");
            let asked = !by_ring || receipt.placement_why != Why::Only;
            assert!(asked, "{receipt:?}");
            assert_eq!(receipt.copies == 0, receipt.placed == receipt.bytes, "{receipt:?}");
        }
        // While the ring is exchanged frames come by the socket, which needs no copy: a payload may end by the ring
        // that began by the socket.
        let partly = |receipt: &&Receipt| receipt.placement == Some(Placement::Copy) && receipt.placed > 0;
        let both = long.iter().filter(partly).count();
        assert!(2 * both < copied, "{both} of {copied} that are said to be copied were not, or not all of them");
        let by_cut = long.iter().filter(|receipt| receipt.placement == Some(Placement::HeaderCut));
        assert!(by_cut.map(|receipt| receipt.placed).sum::<u64>() > 0, "nothing was placed");
        // What is sent again may have come before.
        let told = long.iter().chain(&short).fold([0, 0], |[placed, copied], receipt| {
            [placed + receipt.placed, copied + receipt.bytes - receipt.placed]
        });
        let [placed, mended, lost, reopened] = counters(&mut b);
        assert!(placed >= told[0] && mended >= told[1], "{placed} and {mended}, not {told:?}");
        assert_eq!([lost, reopened], [0, 0]);
        let offers = [a.endpoint.net_offers(), b.endpoint.net_offers()].concat();
        assert!(offers.iter().all(|offer| offer.declined.is_none() && offer.copies.is_none()), "{offers:?}");
        // The one that has only sent has its first ring: it takes payloads all the same.
        assert_eq!(a.endpoint.post(a.channel, BYTES, 4), Ok(4));
        let back = receipts(&mut b, &mut a, BYTES, |all| count(all, Placement::HeaderCut) > 0);
        assert!(count(&back, Placement::Copy) >= 8);
    }
}

/// What is asked for is done, and nothing else is tried.
#[test]
fn a_placement_that_is_asked_for_is_the_only_one() {
    for placement in [Placement::Copy, Placement::HeaderCut] {
        let Some(wire) = wire(Adapter::Xdp) else { return };
        let config = || Config { insecure: true, placement, ..suite::config() };
        let (mut a, mut b) = joined((&wire.near, config()), (&wire.far, config()), &at_far("xdp"));
        assert_eq!(b.endpoint.post(b.channel, BYTES, 4), Ok(4));
        let all = receipts(&mut a, &mut b, BYTES, |all| all.len() == 300);
        // On a busy machine something may come by the socket.
        let by_ring = || all.iter().filter(|receipt| receipt.adapter == Adapter::Xdp);
        assert!(by_ring().all(|receipt| (receipt.placement, receipt.placement_why) == (Some(placement), Why::Only)));
        assert!(by_ring().count() > 150);
        let [placed, mended, lost, reopened] = counters(&mut b);
        let told: u64 = all.iter().map(|receipt| receipt.placed).sum();
        assert_eq!(placed > 0, placement == Placement::HeaderCut, "{placed}");
        assert!(placed >= told && mended >= all.iter().map(|receipt| receipt.bytes).sum::<u64>() - told);
        assert_eq!([lost, reopened], [0, 0]);
        assert_eq!(b.endpoint.net_offers().iter().filter(|offer| offer.copies.is_some()).count(), 0);
    }
}

/// Where headers cannot be cut off, an endpoint says so from the beginning, and copies.
#[test]
fn an_endpoint_says_why_it_always_copies() {
    let plain = || Config { insecure: true, ..suite::config() };
    let huge = || Config { page_size: PageSize::M2, pool_bytes: 8 << 20, landing_bytes: 8 << 20, ..plain() };
    for (scheme, config, why) in [("xdp", huge(), "2 MiB"), ("net", Config { net_xdp: true, ..plain() }, "net:")] {
        let Some(wire) = wire(Adapter::Xdp) else { return };
        let (mut a, mut b) = joined((&wire.near, config.clone()), (&wire.far, config), &at_far(scheme));
        let offers = b.endpoint.net_offers();
        let said = offers.iter().find(|offer| offer.adapter == Adapter::Xdp).and_then(|offer| offer.copies.clone());
        assert!(said.as_ref().is_some_and(|said| said.contains(why)), "{scheme}: {offers:?}");
        assert_eq!(b.endpoint.post(b.channel, BYTES, 2), Ok(2));
        let all = receipts(&mut a, &mut b, BYTES, |all| all.len() == 100);
        assert!(all.iter().all(|receipt| receipt.placement != Some(Placement::HeaderCut)));
        assert!(all.iter().all(|receipt| receipt.placement_why == Why::Only));
    }
}

/// A ring that should be exchanged, but for which there is no other, because its interface has longer frames than when
/// the endpoint's memory was laid out: it is opened again as it was, payloads are copied, and the endpoint says why.
#[test]
fn an_endpoint_goes_on_with_copies_where_its_ring_cannot_be_exchanged() {
    let Some(wire) = wire(Adapter::Xdp) else { return };
    let config = || Config { insecure: true, ..suite::config() };
    let (mut a, mut b) = joined((&wire.near, config()), (&wire.far, config()), &at_far("xdp"));
    assert_eq!(b.endpoint.post(b.channel, BYTES, 4), Ok(4));
    ip(&wire.far, "link set far mtu 9000");
    let said = |b: &Side| {
        let offers = b.endpoint.net_offers();
        let offer = offers.into_iter().find(|offer| offer.adapter == Adapter::Xdp).expect("an offer");
        (offer.declined, offer.copies)
    };
    let (mut after, begun) = (0, Instant::now());
    for seed in 0.. {
        a.send_copy(b"one of many", &pattern(seed, BYTES), None);
        let message = next(&mut a, &mut b, "a payload");
        let receipt = taken(&mut b, message, seed);
        assert!(receipt.placement != Some(Placement::HeaderCut), "{receipt:?}");
        let copies = (Some(Placement::Copy), Why::Only);
        after += u32::from((receipt.placement, receipt.placement_why) == copies);
        if after > 100 {
            break;
        }
        assert!(begun.elapsed() < 2 * PATIENCE, "{receipt:?}, {:?}", said(&b));
    }
    let (declined, copies) = said(&b);
    assert_eq!(declined, None);
    assert!(copies.as_ref().is_some_and(|why| why.contains("another length")), "{copies:?}");
    let [placed, _, lost, reopened] = counters(&mut b);
    eprintln!("{placed} bytes were placed by the socket meanwhile");
    assert_eq!([lost, reopened], [0, 0]);
}

/// An endpoint whose ring was exchanged, and that loses it with its interface, copies by the ring that comes back, and
/// has that one exchanged again.
#[test]
fn a_ring_that_was_exchanged_comes_back_with_its_interface() {
    let Some(wire) = wire(Adapter::Xdp) else { return };
    let config = || Config { insecure: true, silence: Duration::from_secs(120), ..suite::config() };
    let (mut a, mut b) = joined((&wire.near, config()), (&wire.far, config()), &at_far("xdp"));
    assert_eq!(b.endpoint.post(b.channel, BYTES, 4), Ok(4));
    let cut = |all: &[Receipt]| count(all, Placement::HeaderCut) > 20;
    receipts(&mut a, &mut b, BYTES, cut);
    ip(&wire.far, "link set far down");
    // The kernel says nothing of a ring of AF_XDP before somebody sends by it.
    b.endpoint.send(b.channel, b"later").expect("room");
    let begun = Instant::now();
    while declined(&b.endpoint, Adapter::Xdp).is_none() {
        assert!(begun.elapsed() < PATIENCE, "nobody has noticed");
        let event = b.endpoint.poll();
        assert!(event.is_none(), "{event:?}");
    }
    ip(&wire.far, "link set far up");
    assert_eq!(next(&mut b, &mut a, "what could not be sent").control(), b"later");
    let all = receipts(&mut a, &mut b, BYTES, cut);
    assert!(count(&all, Placement::Copy) > 0);
    let [.., lost, reopened] = counters(&mut b);
    assert!(lost >= 1 && lost == reopened, "{lost} lost, {reopened} opened again");
}

/// What an endpoint says of an adapter that it was asked for.
fn declined(endpoint: &Endpoint, adapter: Adapter) -> Option<String> {
    let offers = endpoint.net_offers();
    let offer = offers.iter().find(|offer| offer.adapter == adapter).expect("it says something of it");
    offer.declined.clone()
}

/// With `net:`, a ring of AF_XDP is there if it is asked for and can be had: then it is one more way, and what the
/// socket sends comes by the socket.
#[test]
fn net_has_a_ring_of_xdp_if_it_is_asked_for() {
    let Some(wire) = wire(Adapter::Xdp) else { return };
    let config = |net_xdp| Config { insecure: true, net_xdp, ..suite::config() };
    let mut unasked = Endpoint::open(config(false)).expect("an endpoint");
    wire.far.within(|| unasked.listen(&at_far("net"))).expect("the namespace").expect("a free port");
    assert_eq!(declined(&unasked, Adapter::Packet), None);
    assert!(declined(&unasked, Adapter::Xdp).is_some_and(|why| why.contains("Config::net_xdp")));
    drop(unasked);
    let (mut a, mut b) = joined((&wire.near, config(true)), (&wire.far, config(true)), &at_far("net"));
    for endpoint in [&a.endpoint, &b.endpoint] {
        assert_eq!([Adapter::Packet, Adapter::Xdp].map(|adapter| declined(endpoint, adapter)), [None, None]);
    }
    let (mut sent, mut came, begun) = (Vec::new(), Vec::new(), Instant::now());
    let all = [Adapter::Udp, Adapter::Packet, Adapter::Xdp];
    for seed in 0.. {
        sent.push(a.send_copy(b"one of many", &pattern(seed, 512), None).adapter);
        let mut message = next(&mut a, &mut b, "net:");
        came.push(b.read_checked(&mut message, seed).adapter);
        // Both kinds of rings send what rings take, and an interface's program sees it first.
        if all.iter().all(|way| sent.contains(way)) && [all[0], all[2]].iter().all(|way| came.contains(way)) {
            break;
        }
        assert!(begun.elapsed() < PATIENCE, "{seed} messages: {:?}", [&sent, &came].map(|all| seen(all)));
    }
    // Another endpoint there goes on without it.
    let mut late = Endpoint::open(config(true)).expect("an endpoint");
    wire.far.within(|| late.listen(&at_far("net").replace("7000", "7001"))).expect("the namespace").expect("a port");
    assert_eq!(declined(&late, Adapter::Packet), None);
    assert!(declined(&late, Adapter::Xdp).is_some_and(|why| why.contains("queue 0 of far is in use")));
}

/// Which adapters there are, each once.
fn seen(all: &[Adapter]) -> Vec<Adapter> {
    [Adapter::Udp, Adapter::Packet, Adapter::Xdp].into_iter().filter(|way| all.contains(way)).collect()
}

/// Where there can be no ring, `net:` has its socket, and says why.
#[test]
fn net_without_a_ring_says_why() {
    for (host, why) in [("[::1]", "IPv4 only"), ("127.0.0.1", "loopback")] {
        let mut endpoint = Endpoint::open(Config { insecure: true, ..suite::config() }).expect("an endpoint");
        if std::net::UdpSocket::bind(format!("{host}:0")).is_err() {
            cutthrough_conform::skipped(format_args!("this machine has no {host}"));
            continue;
        }
        endpoint.listen(&format!("net:{host}:0")).expect("a socket");
        for adapter in [Adapter::Packet, Adapter::Xdp] {
            let said = declined(&endpoint, adapter).unwrap_or_default();
            assert!(said.contains(why), "{host}: {said}");
        }
    }
}

/// Who answers by its socket and is not beyond the ring's interface cannot be reached by a ring that is a must: that is
/// told before long, whatever the listener has said meanwhile, and nobody spins until then. By `net:` it is reached.
#[test]
fn who_answers_and_is_not_beyond_the_interface_is_out_of_a_rings_way() {
    let Some(wire) = wire(Adapter::Packet) else { return };
    let at_near = |scheme: &str, port: u16| format!("{scheme}:{}:{port}", Pair::NEAR);
    // Nothing else wakes who sleeps.
    let config = || Config { insecure: true, silence: Duration::from_secs(3600), ..suite::config() };
    let open = |address: &str| {
        let mut endpoint = Endpoint::open(config()).expect("an endpoint");
        wire.near.within(|| endpoint.listen(address)).expect("the namespace").expect("a free port");
        endpoint
    };
    let (mut b, stop) = (open(&at_near("udp", 7000)), AtomicBool::new(false));
    let (by_ring, by_both) = (open(&at_near("packet", 7001)), open(&at_near("net", 7002)));
    std::thread::scope(|scope| {
        let stops = Stops(&stop);
        scope.spawn(|| {
            let mut opened = 0;
            while !stop.load(Ordering::Relaxed) {
                if let Some(Event::Opened(channel)) = b.poll() {
                    opened += 1;
                    match opened {
                        2 => {}
                        3 => b.close(channel),
                        _ => b.send(channel, b"welcome").expect("room"),
                    }
                }
            }
        });
        let (mut a, to) = (by_ring, at_near("packet", 7000));
        let is_way = |error: &ConnectError| matches!(error, ConnectError::Net(UdpCallError::Way("packet")));
        for greeting in [true, false] {
            let (begun, call) = (Instant::now(), a.begin_connect(&to, PATIENCE).expect("a call"));
            let told = a.wait(Some(PATIENCE));
            let way = matches!(&told, Ok(Event::Connected(of, Err(error))) if *of == call && is_way(error));
            assert!(way && begun.elapsed() < PATIENCE / 2, "{greeting}, {:?}: {told:?}", begun.elapsed());
        }
        // Its channel may end before that.
        let call = a.begin_connect(&to, PATIENCE).expect("a call");
        let told = a.wait(Some(PATIENCE));
        let ended = UdpCallError::Ended(CloseReason::Peer);
        let is_ended = |error: &ConnectError| matches!(error, ConnectError::Net(error) if *error == ended);
        let over = matches!(&told, Ok(Event::Connected(of, Err(error))) if *of == call && is_ended(error));
        assert!(over, "{told:?}");
        let timeout = Duration::from_secs(1);
        let (begun, called) = (Instant::now(), a.connect(&to, timeout));
        assert!(called.as_ref().is_err_and(is_way) && begun.elapsed() >= timeout, "{:?}: {called:?}", begun.elapsed());
        assert_eq!((a.channels().count(), a.poll().is_none()), (0, true));

        let mut a = by_both;
        let channel = a.connect(&at_near("net", 7000), PATIENCE).expect("a channel");
        let told = a.wait(Some(PATIENCE));
        assert!(matches!(&told, Ok(Event::Message(message)) if message.channel() == channel), "{told:?}");
        drop(stops);
    });
}

/// Tells a thread to stop, also when the test fails.
struct Stops<'a>(&'a AtomicBool);

impl Drop for Stops<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Who waits for a message by a ring sleeps, but for the signs of life that keep its channel.
#[test]
fn who_waits_by_a_ring_uses_no_processor() {
    const WAITED: Duration = Duration::from_secs(2);
    let used = || Duration::try_from(clock_gettime(ClockId::ThreadCPUTime)).expect("a time");
    for (adapter, scheme) in [(Adapter::Packet, "packet"), (Adapter::Xdp, "xdp"), (Adapter::Packet, "net")] {
        let Some(wire) = wire(adapter) else { continue };
        let config = || Config { insecure: true, ..Config::default() };
        let (mut a, mut b) = joined((&wire.near, config()), (&wire.far, config()), &at_far(scheme));
        let waits = |endpoint: &mut Endpoint| {
            let before = used();
            assert!(matches!(endpoint.wait(Some(WAITED)), Err(WaitError::TimedOut)), "{scheme}");
            used() - before
        };
        let used = thread::scope(|scope| {
            let waits = [&mut a, &mut b].map(|side| scope.spawn(|| waits(&mut side.endpoint)));
            waits.map(|waits| waits.join().expect("it has waited"))
        });
        assert!(a.endpoint.outgoing(a.channel).is_ok(), "{scheme}: the channel has ended");
        eprintln!("{scheme}: {used:?} of processor time in {WAITED:?} of waiting");
        assert!(used.iter().all(|used| *used < WAITED / 50), "{scheme}: {used:?} in {WAITED:?} of waiting");
    }
}
