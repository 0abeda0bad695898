//! The behaviour suite by raw rings across a veth pair: AF_PACKET, AF_XDP, and rings beside the socket, each batch by
//! whatever has cost the least.

mod veth;

use std::collections::HashMap;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use cutthrough::{Adapter, Config, Counter, Endpoint, Event, Keys, Landing, Placement, Receipt, Why, XdpMode, probe};
use cutthrough_cli::veth::Pair;
use cutthrough_conform::bytes::{check, pattern};
use cutthrough_conform::join::{connect, keep_house, landed};
use cutthrough_conform::{Capability, Join, suite};
use veth::Veth;

/// Whether messages are sealed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Seal {
    Plain,
    Key,
}

/// What an endpoint asks for.
#[derive(Debug, Clone, Copy)]
enum Asks {
    /// That the program runs in the driver, at the adapter `xdp`.
    Native,
    /// That payloads land where they belong there, with so much memory for each channel at most.
    Cut(Seal, u64),
    /// That messages are sealed, at any adapter.
    #[cfg(feature = "long")]
    Sealed,
}

/// An adapter, with one of these.
#[derive(Debug)]
struct Asking(Veth, Asks);

fn with_a_key(config: Config) -> Config {
    let keys = Keys::from_text(&format!("psk: {}", "5a".repeat(32))).expect("a key");
    Config { keys: Some(Arc::new(keys)), insecure: false, ..config }
}

impl Join for Asking {
    fn missing(&self) -> Option<String> {
        self.0.missing()
    }

    fn address(&self) -> String {
        self.0.address()
    }

    fn crosses_wire(&self) -> bool {
        true
    }

    fn config(&self, config: Config) -> Config {
        match self.1 {
            Asks::Native => self.0.config(Config { xdp_mode: Some(XdpMode::Native), ..config }),
            Asks::Cut(seal, most) => {
                let landing_bytes = config.landing_bytes.min(most);
                let config = self.0.config(Config { placement: Placement::HeaderCut, landing_bytes, ..config });
                if seal == Seal::Plain { config } else { with_a_key(config) }
            }
            #[cfg(feature = "long")]
            Asks::Sealed => with_a_key(self.0.config(config)),
        }
    }

    fn near(&self, run: &mut (dyn FnMut() + Send)) {
        self.0.near(run);
    }

    fn far(&self, run: &mut (dyn FnMut() + Send)) {
        self.0.far(run);
    }

    fn lacks(&self, capability: Capability) -> Option<String> {
        self.0.lacks(capability)
    }
}

const fn native(mtu: u32) -> Asking {
    Asking(Veth(mtu, "xdp"), Asks::Native)
}

const fn cut(mtu: u32, seal: Seal, most: u64) -> Asking {
    Asking(Veth(mtu, "xdp"), Asks::Cut(seal, most))
}

#[cfg(feature = "long")]
const fn sealed(scheme: &'static str) -> Asking {
    Asking(Veth(1500, scheme), Asks::Sealed)
}

mod packet {
    use super::Veth;

    // To close a ring takes the kernel tens of milliseconds: what opens hundreds of them is left to UDP, or is `long`.
    cutthrough_conform::suite!(Veth(1500, "packet"); opening, control, paths, pages, forward, recall, tokens, arriving,
        waiting, asked);
}

mod packet_jumbo {
    use super::Veth;

    cutthrough_conform::suite!(Veth(9000, "packet"); control, paths, tokens);
}

mod xdp {
    use super::Veth;

    cutthrough_conform::suite!(
        Veth(1500, "xdp");
        opening, control, paths, pages, tokens, arriving, channels, waiting, asked
    );
}

mod xdp_jumbo {
    use super::Veth;

    cutthrough_conform::suite!(Veth(9000, "xdp"); control, paths, tokens);
}

mod native {
    use super::native;

    cutthrough_conform::suite!(native(1500); control, paths, forward, recall, tokens);
}

mod cut {
    use super::{Seal, cut};

    cutthrough_conform::suite!(cut(1500, Seal::Plain, u64::MAX); control, paths, pages, forward, recall, tokens,
        arriving);
}

mod cut_jumbo {
    use super::{Seal, cut};

    cutthrough_conform::suite!(cut(9000, Seal::Plain, u64::MAX); tokens);
}

mod best {
    use super::Veth;

    cutthrough_conform::suite!(Veth(1500, "net"); opening, control, paths, pages, forward, tokens, arriving, waiting);
}

mod best_jumbo {
    use super::Veth;

    cutthrough_conform::suite!(Veth(9000, "net"); control, paths, tokens);
}

/// The rest of the suite, and rings with a key: some four minutes.
#[cfg(feature = "long")]
mod long {
    mod packet {
        use crate::Veth;

        cutthrough_conform::suite!(Veth(1500, "packet"); channels, room, midway, model);
    }

    mod xdp {
        use crate::Veth;

        cutthrough_conform::suite!(Veth(1500, "xdp"); room, midway, model);
    }

    mod native {
        use crate::native;

        cutthrough_conform::suite!(
            native(1500);
            opening, pages, arriving, channels, waiting, room, asked, midway, model
        );
    }

    mod native_jumbo {
        use crate::native;

        cutthrough_conform::suite!(native(9000); control, paths, tokens);
    }

    mod cut {
        use crate::{Seal, cut};

        cutthrough_conform::suite!(cut(1500, Seal::Plain, u64::MAX); opening, waiting, room, asked, midway);
    }

    /// As long as there are many endpoints, less memory to be locked for each.
    mod cut_often {
        use crate::{Seal, cut};

        cutthrough_conform::suite!(cut(1500, Seal::Plain, 16 << 20); model);
    }

    /// With memory for several channels.
    mod cut_small {
        use crate::{Seal, cut};

        cutthrough_conform::suite!(cut(1500, Seal::Plain, 2 << 20); channels);
    }

    mod sealed_packet {
        use crate::sealed;

        cutthrough_conform::suite!(sealed("packet"); control, paths, pages, tokens, arriving, room);
    }

    mod sealed_xdp {
        use crate::sealed;

        cutthrough_conform::suite!(sealed("xdp"); control, paths, pages, tokens, arriving, room);
    }

    mod sealed_best {
        use crate::sealed;

        cutthrough_conform::suite!(sealed("net"); control, paths, pages, tokens, arriving, room);
    }

    mod best {
        use crate::Veth;

        cutthrough_conform::suite!(Veth(1500, "net"); channels, room, asked, midway, model);
    }
}

/// Each scheme takes the adapter that it names, and receipts say so; `net:` has the ring beside its socket.
#[test]
fn receipts_name_the_adapter() {
    for (scheme, ring) in [("udp", None), ("packet", Some(Adapter::Packet)), ("xdp", Some(Adapter::Xdp))] {
        let join = Veth(1500, scheme);
        if let Some(why) = join.missing() {
            cutthrough_conform::skipped(format_args!("{scheme}: {why}"));
            continue;
        }
        let mut pair = join.pair(suite::config(), suite::config());
        assert_eq!(pair.b.endpoint.post(pair.b.channel, 8192, 4), Ok(4));
        let sent = pair.a.send_copy(b"8 KiB", &pattern(1, 8192), None);
        let message = pair.b.message();
        check(1, &landed(&message).to_vec());
        let came = message.receipt();
        let adapter = ring.unwrap_or(Adapter::Udp);
        assert_eq!((sent.adapter, sent.why), (adapter, Why::Only), "{scheme}: {sent:?}");
        assert_eq!(came.adapter, adapter, "{scheme}: {came:?}");
        let bare = pair.a.endpoint.outgoing(pair.a.channel).expect("room").write(b"bare").send().expect("sent");
        assert_eq!((bare.adapter, bare.sealed), (adapter, false), "{scheme}: {bare:?}");
        let message = pair.b.message();
        assert_eq!((message.control(), message.receipt().adapter), (&b"bare"[..], adapter), "{scheme}");
        let offers = pair.a.endpoint.net_offers();
        assert!(offers.iter().all(|offer| offer.declined.is_none() && Some(offer.adapter) == ring), "{offers:?}");
        assert_eq!(offers.len(), usize::from(ring.is_some()));
    }
}

/// What goes one way comes one way: beside a ring, a frame that a socket has sent alone does not come before the train
/// that was sent before it, which would be taken for lost.
#[test]
fn what_a_socket_has_sent_keeps_its_order_beside_a_ring() {
    let join = Veth(1500, "net");
    if let Some(why) = join.missing() {
        cutthrough_conform::skipped(why);
        return;
    }
    let mut pair = join.pair(suite::config(), suite::config());
    for round in 0..100 {
        for part in 0..2 {
            pair.a.send_copy(b"a train", &pattern(2 * round + part, 20_000), None);
            pair.a.say(b"a frame alone");
        }
        for part in 0..2 {
            let mut train = pair.b.message();
            pair.b.read_checked(&mut train, 2 * round + part);
            assert_eq!(pair.b.message().control(), b"a frame alone");
        }
        assert!(pair.a.endpoint.poll().is_none());
    }
    keep_house(&mut pair.a.endpoint, |event| panic!("{event:?}"));
    let [sent, lost] = [Counter::FramesSent, Counter::FramesLost].map(|counter| pair.a.endpoint.counter(counter));
    eprintln!("{lost} of {sent} frames were taken for lost");
    // On a busy machine nothing may be heard for so long that a few go again.
    assert!(sent > 2000 && lost < sent / 100, "{lost} of {sent} frames were taken for lost");
}

/// With `net:` every way is tried, and none is left out for ever.
#[test]
fn both_ways_are_taken_by_net() {
    let join = Veth(1500, "net");
    if let Some(why) = join.missing() {
        cutthrough_conform::skipped(why);
        return;
    }
    let mut pair = join.pair(suite::config(), suite::config());
    assert_eq!(pair.b.endpoint.post(pair.b.channel, 8192, 4), Ok(4));
    let mut taken = HashMap::new();
    let by = |taken: &HashMap<(&str, Why), u32>, adapter: Adapter| -> u32 {
        taken.iter().filter(|((name, _), _)| *name == adapter.name()).map(|(_, n)| n).sum()
    };
    for seed in 0..5000 {
        let sent = pair.a.send_copy(b"one of many", &pattern(seed, 8192), None);
        check(seed, &landed(&pair.b.message()).to_vec());
        // What a message has cost is heard by who looks.
        assert!(pair.a.endpoint.poll().is_none());
        *taken.entry((sent.adapter.name(), sent.why)).or_insert(0) += 1;
        let judged = taken.keys().any(|(_, why)| *why == Why::Cheapest);
        if judged && by(&taken, Adapter::Udp) > 0 && by(&taken, Adapter::Packet) > 0 {
            return eprintln!("{taken:?}");
        }
    }
    panic!("after 5000 messages: {taken:?}");
}

/// Messages of each kind in the test below. The first ones may be copied, for nothing is known of the other side yet;
/// and parts of others: on a busy machine the sender hears nothing for too long, and sends again, or in shorter frames,
/// or goes on on another processor. Where a third of the time was taken from both, 98 % of the bytes landed, and all of
/// 62 to 75 messages. If it is still busier, it is tried again.
const MESSAGES: usize = 100;
const WHOLE: usize = 50;
const PLACED: f64 = 95.0;
const TRIES: usize = 8;
/// The kernel leaves no frame shorter than this.
const REST: u64 = 14;

/// Payloads in posted pages and in pages that a token names, plain and sealed, at both MTUs: nearly all land where they
/// belong, and nobody copies them. The hit rate is printed.
#[test]
fn payloads_land_where_they_belong_without_a_copy() {
    for (mtu, seal) in [(1500, Seal::Plain), (1500, Seal::Key), (9000, Seal::Plain), (9000, Seal::Key)] {
        let join = cut(mtu, seal, u64::MAX);
        if let Some(why) = join.missing() {
            cutthrough_conform::skipped(why);
            return;
        }
        for bytes in [8 << 10, 64 << 10] {
            for token in [false, true] {
                let place = if token { "token" } else { "posted" };
                let what = format!("MTU {mtu} {seal:?} {bytes:5} {place}");
                let landed = (0..TRIES).any(|_| {
                    let receipts = exchange(&join, bytes, token);
                    assert!(receipts.iter().all(|receipt| receipt.sealed == (seal == Seal::Key)));
                    most_have_landed(&what, &receipts)
                });
                assert!(landed, "{what}: too many copies, {TRIES} times");
            }
        }
    }
}

/// Prints the hit rate, and says whether nearly all bytes have landed where they belong.
fn most_have_landed(what: &str, receipts: &[Receipt]) -> bool {
    let placed: u64 = receipts.iter().map(|receipt| receipt.placed).sum();
    let all: u64 = receipts.iter().map(|receipt| receipt.bytes).sum();
    let whole = receipts.iter().filter(|receipt| receipt.copies == 0 && receipt.placed == receipt.bytes).count();
    #[expect(clippy::cast_precision_loss, reason = "for people")]
    let rate = placed as f64 / all as f64 * 100.0;
    eprintln!("{what}: {whole}/{MESSAGES} messages, {rate:.3} % of bytes");
    assert!(receipts.iter().all(|receipt| (receipt.copies == 0) == (receipt.placed == receipt.bytes)));
    // Shorter frames may leave a rest that is too short to be cut free.
    let landed = receipts.iter().filter(|receipt| receipt.bytes - receipt.placed < REST).count();
    landed >= WHOLE && rate >= PLACED
}

/// Sends messages, each after the one before has been looked at: what the receiver's receipts say.
fn exchange(join: &Asking, bytes: usize, token: bool) -> Vec<Receipt> {
    let mut pair = join.pair(suite::config(), suite::config());
    if !token {
        assert_eq!(pair.b.endpoint.post(pair.b.channel, bytes, 4), Ok(4));
    }
    let mut receipts = Vec::new();
    for seed in 0..MESSAGES as u64 {
        let token = token.then(|| pair.b.endpoint.grant(pair.b.channel, Landing::Pages(bytes)).expect("pages"));
        pair.b.say(b"go");
        assert_eq!(pair.a.message().control(), b"go");
        pair.a.send_copy(b"a payload", &pattern(seed, bytes), token);
        let message = pair.b.message();
        check(seed, &landed(&message).to_vec());
        receipts.push(message.receipt());
    }
    let offers = [pair.a.endpoint.net_offers(), pair.b.endpoint.net_offers()].concat();
    assert!(offers.iter().all(|offer| offer.declined.is_none()), "{offers:?}");
    receipts
}

/// An interface whose frames are shorter than greetings can be is told as such, once the call's time is over, not as a
/// firewall.
#[test]
fn an_mtu_that_no_greeting_fits_is_told() {
    for (mtu, fits) in [(1000, false), (1227, false), (1228, true)] {
        for scheme in ["udp", "packet", "net"] {
            let missing = probe(Adapter::Packet).into_iter().find_map(|(_, tried)| tried.err());
            let made = missing.map_or_else(|| Pair::make(1500).map_err(|missing| missing.to_string()), Err);
            let Ok(wire) = made.map_err(cutthrough_conform::skipped) else { return };
            for (space, interface) in [(&wire.near, "near"), (&wire.far, "far")] {
                let words = ["link", "set", interface, "mtu", &mtu.to_string()];
                let ran = space.within(|| Command::new("ip").args(words).status()).expect("the namespace");
                assert!(ran.expect("ip runs").success(), "{words:?}");
            }
            let config = Config { insecure: true, ..Config::default() };
            let [mut near, mut far] = [(); 2].map(|()| Endpoint::open(config.clone()).expect("an endpoint"));
            let address = format!("{scheme}:{}:7000", Pair::FAR);
            wire.far.within(|| far.listen(&address)).expect("the namespace").expect("a free address");
            if fits {
                wire.near.within(|| connect(&mut near, &mut far, &address)).expect("the namespace");
                continue;
            }
            let called = wire.near.within(|| near.connect(&address, Duration::from_millis(200)));
            let error = called.expect("the namespace").expect_err("no frame goes through").to_string();
            let told = format!("has an MTU of {mtu}, less than the 1228 that");
            assert!(error.contains(&told), "{scheme}: {error}");
        }
    }
}

/// What may come unasked, and what is asked for, was measured by the socket's buffer, which is longer than a ring: a
/// receiver that computes lost thousands of frames.
#[test]
fn a_ring_holds_what_its_receiver_asks_for() {
    for (scheme, mtu, senders) in [("packet", 1500, 4), ("packet", 9000, 2), ("xdp", 1500, 1), ("xdp", 9000, 1)] {
        let join = Veth(mtu, scheme);
        if let Some(missing) = join.missing() {
            cutthrough_conform::skipped(missing);
            continue;
        }
        let address = join.address();
        let mut receiver = join.listening(join.config(Config::default()), &address);
        let mut open = || {
            let mut sender = Endpoint::open(join.config(Config::default())).expect("an endpoint");
            let mut joined = None;
            join.near(&mut || joined = Some(connect(&mut sender, &mut receiver, &address)));
            let (at_sender, at_receiver) = joined.expect("a channel");
            receiver.post(at_receiver, 1 << 20, 4).expect("pages");
            (sender, at_sender)
        };
        let ends: Vec<_> = (0..senders).map(|_| open()).collect();
        let over = AtomicBool::new(false);
        let (mut received, begun) = (0, Instant::now());
        thread::scope(|scope| {
            for (mut sender, channel) in ends {
                let over = &over;
                scope.spawn(move || {
                    let payload = pattern(7, 1 << 20);
                    while !over.load(Ordering::Relaxed) {
                        let _ = sender.outgoing(channel).and_then(|outgoing| outgoing.attach_copy(&payload).send());
                        let _ = sender.poll();
                    }
                });
            }
            while begun.elapsed() < Duration::from_secs(1) {
                for _ in 0..200 {
                    if let Some(Event::Message(message)) = receiver.poll() {
                        received += message.receipt().bytes;
                        receiver.release(message);
                    }
                }
                thread::sleep(Duration::from_millis(4));
            }
            over.store(true, Ordering::Relaxed);
        });
        keep_house(&mut receiver, drop);
        let overflows = receiver.counter(Counter::RingOverflows);
        assert!(received > 0 && overflows == 0, "{scheme}, {mtu}: {received} bytes, {overflows} frames without room");
    }
}
