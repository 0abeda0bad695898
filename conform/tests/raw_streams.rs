//! Streams by a ring that places payloads: nobody looks while several messages come, and all of them land where they
//! belong.

use std::time::{Duration, Instant};

use cutthrough::{Adapter, Config, Endpoint, Event, Incoming, Payload, Placement, probe};
use cutthrough_cli::veth::Pair;
use cutthrough_conform::bytes::{check, pattern};
use cutthrough_conform::join::{PATIENCE, Side, connect};
use cutthrough_conform::suite;

/// Messages that come while nobody looks.
const BURST: u64 = 6;
const BURSTS: u64 = 30;
/// Runs of memory that wait for them.
const POSTED: u32 = 12;

/// Two endpoints across a wire of its own, where there can be a ring; says so if there is none.
fn joined(mtu: u32) -> Option<(Pair, Side, Side)> {
    let missing = probe(Adapter::Xdp).into_iter().find_map(|(_, tried)| tried.err());
    let made = missing.map_or_else(|| Pair::make(mtu).map_err(|missing| missing.to_string()), Err);
    let wire = made.map_err(cutthrough_conform::skipped).ok()?;
    let silence = Duration::from_secs(120);
    let config = || Config { insecure: true, placement: Placement::HeaderCut, silence, ..suite::config() };
    let [mut from, mut to] = [config(), config()].map(|config| Endpoint::open(config).expect("an endpoint"));
    let address = format!("xdp:{}:7000", Pair::FAR);
    wire.far.within(|| to.listen(&address)).expect("the namespace").expect("a ring");
    let (a, b) = wire.near.within(|| connect(&mut from, &mut to, &address)).expect("the namespace");
    Some((wire, Side { endpoint: from, channel: a }, Side { endpoint: to, channel: b }))
}

fn next(from: &mut Side, to: &mut Side) -> Incoming {
    let begun = Instant::now();
    loop {
        match to.endpoint.poll() {
            Some(Event::Message(message)) => return message,
            Some(other) => panic!("instead of a message: {other:?}"),
            None => assert!(from.endpoint.poll().is_none(), "nothing should have come"),
        }
        assert!(begun.elapsed() < PATIENCE, "no message");
    }
}

/// Bursts of messages with payloads of so many bytes, and with messages beside them that have none: how many bytes of
/// all but the first bursts landed where they belong, and of how many.
fn bursts(mtu: u32, bytes: usize, beside: bool) -> Option<[u64; 2]> {
    let (_wire, mut a, mut b) = joined(mtu)?;
    assert_eq!(b.endpoint.post(b.channel, bytes, POSTED), Ok(POSTED));
    let (mut placed, mut all) = (0, 0);
    for burst in 0..BURSTS {
        for seed in burst * BURST..(burst + 1) * BURST {
            a.send_copy(b"one of many", &pattern(seed, bytes), None);
            if beside {
                a.endpoint.send(a.channel, b"nothing with it").expect("sent");
            }
        }
        let mut seed = burst * BURST;
        while seed < (burst + 1) * BURST {
            let message = next(&mut a, &mut b);
            let Payload::Landed(landed) = message.payload() else { continue };
            check(seed, &landed.to_vec());
            let receipt = message.receipt();
            if burst > 2 {
                (placed, all) = (placed + receipt.placed, all + receipt.bytes);
            }
            drop(message);
            b.endpoint.post(b.channel, bytes, 0).expect("posted again");
            seed += 1;
        }
    }
    Some([placed, all])
}

#[test]
fn messages_of_one_length_land_while_nobody_looks() {
    for (mtu, bytes) in [(1500, 8192), (1500, 20_000), (9000, 8192), (9000, 32 << 10)] {
        for beside in [false, true] {
            // Who is taken from its core for some milliseconds sends again what had arrived, and what comes again lands
            // elsewhere: that is no fault of the register's, unless it happens each time.
            let mut tried: Vec<[u64; 2]> = Vec::new();
            while tried.last().is_none_or(|[placed, all]| placed * 100 < all * 99) {
                assert!(tried.len() < 4, "{mtu} {bytes} {beside}: {tried:?}");
                let Some(counted) = bursts(mtu, bytes, beside) else { return };
                tried.push(counted);
            }
        }
    }
}
