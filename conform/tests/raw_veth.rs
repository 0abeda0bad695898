//! The behaviour suite by raw rings across a veth pair: AF_PACKET, AF_XDP, and rings beside the socket, each batch by
//! whatever has cost the least.

mod veth;

use std::collections::BTreeMap;

use cutthrough::{Adapter, Why};
use cutthrough_conform::bytes::{check, pattern};
use cutthrough_conform::join::landed;
use cutthrough_conform::{Join as _, suite};
use veth::Veth;

mod packet {
    use super::Veth;

    // To close a ring takes the kernel tens of milliseconds: what opens hundreds of them is left to UDP.
    cutthrough_conform::suite!(Veth(1500, "packet"); control, paths, pages, tokens, arriving, channels, waiting);
}

mod packet_jumbo {
    use super::Veth;

    cutthrough_conform::suite!(Veth(9000, "packet"); control, paths, tokens);
}

mod xdp {
    use super::Veth;

    cutthrough_conform::suite!(Veth(1500, "xdp"); control, paths, pages, tokens, arriving, channels, waiting);
}

mod xdp_jumbo {
    use super::Veth;

    cutthrough_conform::suite!(Veth(9000, "xdp"); control, paths, tokens);
}

mod best {
    use super::Veth;

    cutthrough_conform::suite!(Veth(1500, "net"); control, paths, pages, tokens, arriving, channels, waiting);
}

mod best_jumbo {
    use super::Veth;

    cutthrough_conform::suite!(Veth(9000, "net"); control, paths, tokens);
}

/// Each scheme takes the adapter that it names, and receipts say so; `net:` has the ring beside its socket.
#[test]
fn receipts_name_the_adapter() {
    for (scheme, ring) in [("udp", None), ("packet", Some(Adapter::Packet)), ("xdp", Some(Adapter::Xdp))] {
        let join = Veth(1500, scheme);
        if let Some(why) = join.missing() {
            eprintln!("skipped: {why}");
            return;
        }
        let mut pair = join.pair(suite::config(), suite::config());
        assert_eq!(pair.b.endpoint.post(pair.b.channel, 8192, 4), Ok(4));
        let sent = pair.a.send_copy(b"8 KiB", &pattern(1, 8192), None);
        let message = pair.b.message();
        check(1, &landed(&message).to_vec());
        let came = message.receipt();
        let adapter = ring.unwrap_or(Adapter::Udp);
        assert_eq!((sent.adapter, sent.why), (adapter, Why::Only), "{scheme}: {sent:?}");
        // What one frame holds is taken by a ring although a socket has sent it, and the other way round.
        assert_eq!(came.adapter, adapter, "{scheme}: {came:?}");
        let offers = pair.a.endpoint.net_offers();
        assert!(offers.iter().all(|offer| offer.declined.is_none() && Some(offer.adapter) == ring), "{offers:?}");
        assert_eq!(offers.len(), usize::from(ring.is_some()));
    }
}

/// With `net:` every way is tried, and none is left out for ever.
#[test]
fn both_ways_are_taken_by_net() {
    let join = Veth(1500, "net");
    if let Some(why) = join.missing() {
        eprintln!("skipped: {why}");
        return;
    }
    let mut pair = join.pair(suite::config(), suite::config());
    assert_eq!(pair.b.endpoint.post(pair.b.channel, 8192, 4), Ok(4));
    let mut taken = BTreeMap::new();
    for seed in 0..200 {
        let sent = pair.a.send_copy(b"one of many", &pattern(seed, 8192), None);
        check(seed, &landed(&pair.b.message()).to_vec());
        *taken.entry((sent.adapter.name(), format!("{:?}", sent.why))).or_insert(0) += 1;
    }
    eprintln!("{taken:?}");
    let by =
        |adapter: Adapter| taken.iter().filter(|((name, _), _)| *name == adapter.name()).map(|(_, n)| n).sum::<u32>();
    assert!(by(Adapter::Udp) > 0 && by(Adapter::Packet) > 0, "{taken:?}");
    assert!(taken.keys().any(|(_, why)| *why == format!("{:?}", Why::Cheapest)), "{taken:?}");
}
