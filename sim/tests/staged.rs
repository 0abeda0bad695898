//! The machines of the staged family: what they deliver, that nothing is lost or early, and that loops which skip idle
//! turns do what spinning ones would.

use cutthrough_sim::outcome::Stripe;
use cutthrough_sim::platform::Platform;
use cutthrough_sim::point::{Firmware, Query};
use cutthrough_sim::staged::{self, Lens, Loop, Machine, PLATFORMS, Ran, Run, machine};
use cutthrough_sim::time::{Rate, Span};
use proptest::prelude::*;

const PAGE: u64 = 8192;

fn firmware(text: &str) -> Firmware {
    text.parse().unwrap()
}

fn platform(name: &str) -> Platform {
    let (_, text) = PLATFORMS.iter().find(|(known, _)| *known == name).unwrap();
    Platform::parse(text, name).unwrap()
}

fn latency(host: &Machine, policy: &str, len: u64) -> f64 {
    Run::ping_pong([host, host], firmware(policy), len, 10).unwrap().go().each_us()
}

#[test]
fn every_platform_is_good_and_answers() {
    for (name, _) in PLATFORMS {
        let platform = platform(name);
        for policy in ["store-and-forward", "fixed:1408", "adaptive", "adaptive:384:512", "coroutine", "vendor"] {
            let query = Query { firmware: firmware(policy), payload: PAGE, count: 3, senders: 2 };
            let point = staged::point(&platform, &query).unwrap();
            assert!(point.one_way_us > 0.0 && point.bytes_per_s > 0.0 && point.events > 0, "{name}, {policy}");
            assert_eq!(point.stages.len(), 4);
        }
        assert_eq!(platform.all_used(), Ok(()));
    }
}

/// Time, bandwidth, stages and pulses of a lone message are those of the same runs.
#[test]
fn what_is_said_of_a_lone_message_fits_together() {
    for (name, _) in PLATFORMS {
        let platform = platform(name);
        for policy in ["store-and-forward", "fixed:1408", "adaptive", "adaptive:384:512", "coroutine", "vendor"] {
            let query = Query { firmware: firmware(policy), payload: PAGE, count: 1, senders: 1 };
            let point = staged::point(&platform, &query).unwrap();
            let expected = PAGE as f64 / point.one_way_us * 1e6;
            assert!((point.bytes_per_s - expected).abs() < 1.0, "{name}, {policy}: {point:?}");
            let (rows, stripes) = staged::flow(&platform, &query).unwrap();
            for (row, stage) in point.stages.iter().enumerate() {
                let of_row: Vec<&Stripe> = stripes.iter().filter(|stripe| stripe.row == row).collect();
                assert_eq!((&rows[row], of_row.len() as u64), (&stage.stage, stage.pulses), "{name}, {policy}");
                assert_eq!(of_row[0].start_us, stage.first_us, "{name}, {policy}");
                assert_eq!(of_row[of_row.len() - 1].end_us, stage.last_us, "{name}, {policy}");
                // Half a round trip is the mean of all, the stages are those of one.
                assert!(0.0 < stage.first_us && stage.last_us < 1.05 * point.one_way_us, "{name}, {policy}: {point:?}");
            }
            assert!(stripes.iter().all(|stripe| stripe.message == staged::ROUNDS - 1), "{name}, {policy}");
        }
    }
}

#[test]
fn what_cannot_be_done_is_said() {
    let ask = |policy, payload, count, senders| {
        let query = Query { firmware: firmware(policy), payload, count, senders };
        staged::point(&platform("alphastation500"), &query).unwrap_err().to_string()
    };
    assert!(ask("kernel", PAGE, 1, 1).contains("sockets"));
    assert!(ask("adaptive", PAGE, 0, 1).contains("at least 1"));
    assert!(ask("adaptive", PAGE, 1, 9999).contains("4096 senders"));
    assert!(ask("adaptive", u64::MAX, 1, 1).contains("1 GiB"));
}

#[test]
fn a_wrong_platform_is_refused_with_its_line() {
    let (_, text) = PLATFORMS[0];
    let refused = |key: &str, from: &str, to: &str| {
        let at = text.find(&format!("[{key}]")).unwrap();
        let text = format!("{}{}", &text[..at], text[at..].replacen(from, to, 1));
        let platform = Platform::parse(&text, "x.toml").unwrap();
        Machine::read(&platform).unwrap_err().to_string()
    };
    assert!(refused("sram.send", "value = 64\nunit = \"KiB\"", "value = 1\nunit = \"B\"").contains("at least 64"));
    assert!(refused("sram.size", "value = 256\nunit = \"KiB\"", "value = 1\nunit = \"B\"").contains("rings take"));
    assert!(refused("bus.read", "value = 128", "value = 999").contains("faster than the bus"));
    assert!(refused("bus.at_once", "value = 1", "value = 3").contains("in each direction"));
    assert!(refused("host.poll", "value = 2", "value = 0").contains("takes some time"));
    assert!(refused("control.used", "value = 128", "value = 129").contains("more than"));
}

/// A scripted workload: what goes in comes out, in order.
#[test]
fn messages_come_as_they_were_sent() {
    let lens: Vec<u64> = (0..200).map(|step| [0, 1, 63, 511, 512, 4096, 8191, 8192, 70_000][step % 9]).collect();
    for (name, _) in PLATFORMS {
        for policy in ["store-and-forward", "fixed:1280", "adaptive", "adaptive:512", "coroutine", "vendor"] {
            let taken = staged::deliver(&platform(name), firmware(policy), &lens).unwrap();
            let expected = lens.iter().enumerate().map(|(number, &len)| (number as u64, len));
            assert!(taken.iter().map(|taken| (taken.number, taken.len)).eq(expected), "{name}, {policy}");
        }
    }
}

/// No mover moves bytes that the one before it has not moved, and no mover does two things at once. Stripes are whole
/// transfers, so a transfer's end must not be before the end of what it carries in the stage before.
fn check_stripes(stripes: &[Stripe], messages: u64, len: u64, control: u64) {
    for row in 0..4 {
        let mut last_end = 0.0;
        for stripe in stripes.iter().filter(|stripe| stripe.row == row) {
            assert!(stripe.start_us >= last_end && stripe.end_us >= stripe.start_us, "row {row}: {stripe:?}");
            last_end = stripe.end_us;
        }
    }
    for message in 0..messages {
        let ends = |row: usize| -> Vec<(u64, f64, f64)> {
            let mut sum = 0;
            let of_row = stripes.iter().filter(|stripe| (stripe.row, stripe.message) == (row, message));
            // No pulse of these runs is as long as a control message.
            let payload = of_row.filter(|stripe| stripe.bytes != control);
            let ended = |stripe: &Stripe| {
                sum += stripe.bytes;
                (sum, stripe.start_us, stripe.end_us)
            };
            payload.map(ended).collect()
        };
        for row in 0..4 {
            assert_eq!(ends(row).last().unwrap().0, len, "row {row} of message {message}");
        }
        for row in 1..4 {
            for (sum, start, end) in ends(row) {
                // Bytes up to `sum` have left this stage at `end`; the stage before had moved them by then.
                let (_, before_start, before) = ends(row - 1).into_iter().find(|(source, ..)| *source >= sum).unwrap();
                let slack = if row == 2 { 1e-3 } else { 0.0 };
                assert!(start >= before_start - slack, "row {row} begins before its source");
                let source_done = ends(row - 1).last().unwrap().0 == sum;
                assert!(!source_done || end + slack >= before, "row {row} of message {message} is early");
            }
        }
    }
}

#[test]
fn no_stage_moves_more_than_its_source_has() {
    for name in ["alphastation500", "pentium2-440lx", "pcie4-100g"] {
        for policy in ["store-and-forward", "fixed:1280", "adaptive:512", "coroutine"] {
            let query = Query { firmware: firmware(policy), payload: PAGE, count: 20, senders: 1 };
            let (rows, stripes) = staged::flow(&platform(name), &query).unwrap();
            assert_eq!(rows, ["hostTx", "netTx", "netRcv", "hostRcv"]);
            check_stripes(&stripes, 20, PAGE, machine(name).unwrap().control);
        }
    }
}

fn same(one: &Ran, other: &Ran) {
    assert!(one.complete && other.complete);
    assert_eq!(one.watch.all(), other.watch.all());
    assert_eq!(one.watch.first(), other.watch.first());
    assert_eq!(one.watch.stages(), other.watch.stages());
    assert_eq!(one.deliveries(), other.deliveries());
    assert_eq!(one.stripes(), other.stripes());
}

#[test]
fn runs_repeat_exactly() {
    let host = machine("pentium2-440lx").unwrap();
    let run = || Run::stream([&host, &host], firmware("adaptive"), Lens::Same(PAGE), 50, 7).unwrap();
    let go = || run().deliveries(0).stripes(3, 0).go();
    let (one, other) = (go(), go());
    same(&one, &other);
    assert_eq!(one.events, other.events);
}

fn any_policy() -> impl Strategy<Value = &'static str> {
    let texts =
        ["store-and-forward", "fixed:1280", "fixed:100:3000", "adaptive", "adaptive:512", "coroutine", "vendor"];
    prop::sample::select(texts.to_vec())
}

fn any_machine() -> impl Strategy<Value = Machine> {
    let names: Vec<&str> = PLATFORMS.iter().map(|(name, _)| *name).collect();
    let spans = (200u64..5000, 0u64..5000, 0u64..5000, 0u64..3000);
    let memory = (64u64..20_000, 64u64..20_000, 1u64..5);
    (prop::sample::select(names), spans, memory, 20u64..2000).prop_map(|(name, spans, memory, link)| {
        let mut machine = machine(name).unwrap();
        let (turn, decision, message, setup) = spans;
        (machine.turn, machine.decision) = (Span::from_ns(turn), Span::from_ns(decision));
        (machine.message, machine.bus.read_setup) = (Span::from_ns(message), Span::from_ns(setup));
        (machine.sram.send, machine.sram.recv, machine.sram.slots) = memory;
        machine.link.rate = Rate::from_bytes_per_s(link * 1_000_000).unwrap();
        machine
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    /// Whatever the machine and the rule: a loop that skips turns acts when a spinning one would, and all arrives.
    #[test]
    fn a_parked_loop_does_what_a_spinning_one_does(
        host in any_machine(),
        other in any_machine(),
        policy in any_policy(),
        lens in prop::collection::vec(prop_oneof![0u64..300, 0u64..30_000], 1..12),
        calls in any::<bool>(),
        senders in 1u32..4,
    ) {
        let make = || {
            let pair = [&host, &other];
            if calls {
                Run::calls(pair, firmware(policy), lens[0], 5, u64::from(senders)).unwrap().interrupts()
            } else {
                Run::stream(pair, firmware(policy), Lens::List(lens.clone()), lens.len() as u64, senders).unwrap()
            }
        };
        let go = |turns| make().turns(turns).deliveries(0).stripes(1, 0).go();
        let (parked, spinning) = (go(Loop::Parked), go(Loop::Spinning));
        same(&parked, &spinning);
        prop_assert!(parked.events <= spinning.events);
        if !calls {
            prop_assert_eq!(parked.watch.bytes(), lens.iter().sum::<u64>() * u64::from(senders));
        }
    }

    /// More bytes never take less time, give or take a turn of the loop on either side.
    #[test]
    fn longer_messages_take_longer(today in any::<bool>(), len in 1u64..9000) {
        let host = machine(if today { "pcie5-400g" } else { "alphastation500" }).unwrap();
        let slack = (host.turn * 4 + host.host.poll * 4).as_us();
        for policy in ["store-and-forward", "coroutine"] {
            prop_assert!(latency(&host, policy, len) <= latency(&host, policy, len + 1000) + slack);
        }
    }
}

#[test]
fn a_lone_message_takes_what_its_parts_take() {
    let host = machine("alphastation500").unwrap();
    let run = Run::stream([&host, &host], firmware("store-and-forward"), Lens::Same(PAGE), 1, 1).unwrap();
    let us = run.go().watch.first().as_us();
    let wire = 64.0 + 64.0 + 128.0;
    let setups = (host.bus.read_setup + host.bus.write_setup + host.link.latency).as_us();
    let control = (host.write_control()[0] + host.read_control()[0] + host.host.post + host.host.take).as_us();
    let firmware = (host.decision * 5).as_us();
    let fixed = wire + setups + control + firmware;
    // The rest is turns of the loop (four of them matter, each seen at its next turn), a poll, and shares of the bus.
    let rest = us - fixed;
    assert!(rest > 0.0 && rest < (host.turn * 10 + host.host.poll * 4).as_us() + 64.0 * 0.15, "{us} {fixed}");
}

/// With everything but the wires for nothing, latency is that of the wires.
#[test]
fn extreme_platforms() {
    let mut host = machine("pcie4-100g").unwrap();
    let zero = Span::ZERO;
    (host.turn, host.decision, host.host.poll) = (Span::from_ps(100), zero, Span::from_ps(100));
    (host.host.post, host.host.take, host.pio.write) = (zero, zero, [zero; 2]);
    (host.bus.read_setup, host.bus.write_setup, host.link.latency) = (zero, zero, zero);
    let mb = |rate: u64| Rate::from_bytes_per_s(rate * 1_000_000).unwrap();
    (host.bus.read, host.bus.write, host.link.rate) = (mb(1000), mb(1000), mb(1000));
    // 64 bytes of control over link and bus, of which the link's overlap with the first transfer.
    let us = latency(&host, "store-and-forward", 100_000);
    assert!((300.0..300.3).contains(&us), "{us}");
    let us = latency(&host, "adaptive:64", 100_000);
    assert!((100.0..101.5).contains(&us), "{us}");
    host.link.rate = mb(1_000_000);
    let us = latency(&host, "store-and-forward", 100_000);
    assert!((200.0..200.5).contains(&us), "{us}");
}

#[test]
fn a_slower_part_never_makes_messages_faster() {
    let base = machine("alphastation500").unwrap();
    let slower: [fn(&mut Machine); 5] = [
        |host| host.bus.write_setup = host.bus.write_setup * 10,
        |host| host.bus.read_setup = host.bus.read_setup * 10,
        |host| host.decision = host.decision * 2,
        |host| host.link.rate = Rate::from_bytes_per_s(32_000_000).unwrap(),
        |host| host.pio.read[0] = host.pio.read[0] * 2,
    ];
    for slow in slower {
        let mut host = base.clone();
        slow(&mut host);
        for policy in ["store-and-forward", "fixed:1280", "adaptive:512"] {
            assert!(latency(&host, policy, PAGE) > latency(&base, policy, PAGE), "{policy}");
        }
    }
}

/// Senders that share a receiver get what it can take, together; and everyone gets there.
#[test]
fn an_incast_of_1024_hosts_shares_the_receiver() {
    let host = machine("pentium2-440lx").unwrap();
    let rate = |count, senders| {
        let ran = Run::stream([&host, &host], firmware("adaptive:512"), Lens::Same(PAGE), count, senders).unwrap().go();
        assert!(ran.complete);
        assert_eq!(ran.watch.taken(), count * u64::from(senders));
        ran.bytes_per_s()
    };
    let (alone, crowd) = (rate(400, 1), rate(2, 1023));
    assert!((0.9..1.2).contains(&(crowd / alone)), "{crowd} against {alone}");
}

#[test]
fn all_to_all_completes() {
    let host = machine("pcie5-400g").unwrap();
    let ran = Run::all_to_all(&host, firmware("adaptive"), 4096, 20, 64).unwrap().go();
    assert_eq!((ran.complete, ran.watch.taken()), (true, 20 * 64));
    assert_eq!(ran.watch.bytes(), 20 * 64 * 4096);
}
