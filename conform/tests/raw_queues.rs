//! Rings of AF_XDP at queues of their own: which queue a ring serves, and several endpoints at one interface.

use std::io::{BufRead as _, BufReader};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use cutthrough::{Adapter, CloseReason, Config, Counter, Endpoint, Event, Lease, Placement, XdpMode as Mode, probe};
use cutthrough_cli::veth::{Pair, Space};
use cutthrough_conform::bytes::pattern;
use cutthrough_conform::join::{PATIENCE, Side, connect};
use cutthrough_conform::suite;

/// Runs `ip` with these words in a namespace.
fn ip(space: &Space, words: &str) {
    let ran = space.within(|| Command::new("ip").args(words.split_whitespace()).status()).expect("the namespace");
    assert!(ran.expect("ip runs").success(), "ip {words}");
}

const NEAR: &str = "10.73.2.1";
const FAR: &str = "10.73.2.2";

/// Two namespaces, joined by one more pair, which has so many queues at either end.
fn wire(queues: u32) -> Option<Pair> {
    let missing = probe(Adapter::Xdp).into_iter().find_map(|(_, tried)| tried.err());
    let made = missing.map_or_else(|| Pair::make(1500).map_err(|missing| missing.to_string()), Err);
    let wire = made.map_err(cutthrough_conform::skipped).ok()?;
    let queues = format!("numtxqueues {queues} numrxqueues {queues}");
    let far = wire.far.path();
    ip(&wire.near, &format!("link add near2 {queues} type veth peer name far2 {queues} netns {}", far.display()));
    for (space, name, address) in [(&wire.near, "near2", NEAR), (&wire.far, "far2", FAR)] {
        ip(space, &format!("addr add {address}/30 dev {name}"));
        ip(space, &format!("link set {name} up"));
    }
    Some(wire)
}

fn config(xdp_queue: u32, mode: Mode, placement: Placement) -> Config {
    Config { insecure: true, xdp_queue, xdp_mode: Some(mode), placement, ..suite::config() }
}

/// Listens in the near namespace; what has just been closed there may be open for a moment in a program that another
/// test of this process begins.
fn listening(wire: &Pair, config: Config, port: u16) -> Endpoint {
    let mut endpoint = Endpoint::open(config).expect("an endpoint");
    let begun = Instant::now();
    while let Err(error) = wire.near.within(|| endpoint.listen(&format!("xdp:{NEAR}:{port}"))).expect("the namespace") {
        assert!(begun.elapsed() < Duration::from_secs(2), "a ring at queue {}: {error}", port % 10);
        thread::sleep(Duration::from_millis(5));
    }
    endpoint
}

/// An endpoint at this queue of the far end, joined to one at the same queue of the near end.
fn joined(wire: &Pair, queue: u32, mode: Mode, placement: Placement) -> (Side, Side) {
    let port = 7000 + u16::try_from(queue).expect("few queues");
    let mut to = listening(wire, config(queue, mode, placement), port);
    let mut from = Endpoint::open(config(queue, mode, placement)).expect("an endpoint");
    let address = format!("xdp:{NEAR}:{port}");
    let (at_a, at_b) = wire.far.within(|| connect(&mut from, &mut to, &address)).expect("the namespace");
    (Side { endpoint: from, channel: at_a }, Side { endpoint: to, channel: at_b })
}

/// Sends payloads of some frames to and fro, between the ends of each pair in turn, by their rings: also at the other
/// end, where one that cuts headers off has the socket wake it.
fn exchange(pairs: &mut [(Side, Side)], rounds: u64) {
    let mut by_rings = vec![0; pairs.len()];
    for seed in 0..rounds {
        for (pair, by_rings) in pairs.iter_mut().zip(&mut by_rings) {
            *by_rings +=
                u64::from(went(&mut pair.0, &mut pair.1, seed)) + u64::from(went(&mut pair.1, &mut pair.0, seed));
        }
    }
    assert!(by_rings.iter().all(|came| *came >= rounds), "{by_rings:?} of {} came by rings", 2 * rounds);
}

/// Sends one of them: whether it came by a ring.
fn went(from: &mut Side, to: &mut Side, seed: u64) -> bool {
    let sent = from.send_copy(b"by a ring", &pattern(seed, 8192), None);
    assert_eq!(sent.adapter, Adapter::Xdp);
    let begun = Instant::now();
    let mut message = loop {
        match to.endpoint.poll() {
            Some(Event::Message(message)) => break message,
            Some(other) => panic!("instead of a message: {other:?}"),
            None => assert!(from.endpoint.poll().is_none(), "nothing should have come"),
        }
        assert!(begun.elapsed() < PATIENCE, "no message");
    };
    to.read_checked(&mut message, seed);
    message.receipt().adapter == Adapter::Xdp
}

/// A ring serves the queue that it is asked for; one that is not there, or is in use, is named.
#[test]
fn a_ring_serves_the_queue_that_is_asked_for() {
    let Some(wire) = wire(2) else { return };
    let listens = |queue| {
        let config = Config { insecure: true, xdp_queue: queue, ..suite::config() };
        let mut endpoint = Endpoint::open(config).expect("an endpoint");
        let address = format!("xdp:{NEAR}:{}", 7002 + queue);
        let listened = wire.near.within(|| endpoint.listen(&address)).expect("the namespace");
        listened.err().map(|error| error.to_string())
    };
    let path = std::env::temp_dir().join(format!("cutthrough-queue-{}", std::process::id()));
    let other = wire.near.within(|| Lease::open(&format!("xdp:{NEAR}:7001"), 1, None, &path)).expect("the namespace");
    let other = other.expect("a ring");
    assert_eq!(listens(0), None, "nobody has it");
    for (queue, why) in [
        (1, "queue 1 of near2 is in use by another AF_XDP socket; "),
        (2, "near2 has no queue 2: it has 2, counted from 0; "),
    ] {
        let said = listens(queue);
        assert!(said.as_ref().is_some_and(|said| said.contains(why) && said.lines().count() == 1), "{said:?}");
    }
    drop(other);
    exchange(&mut [joined(&wire, 1, Mode::Native, Placement::Copy)], 100);
}

/// Endpoints at queues of their own share an interface: what comes for each is its alone, by its ring, also when the
/// one that came first has gone, and when its queue has another.
#[test]
fn endpoints_at_queues_of_their_own_share_an_interface() {
    let Some(wire) = wire(3) else { return };
    let mut pairs: Vec<_> = [Placement::Copy, Placement::HeaderCut, Placement::Copy]
        .into_iter()
        .zip(0..)
        .map(|(placement, queue)| joined(&wire, queue, Mode::Native, placement))
        .collect();
    exchange(&mut pairs, 40);
    drop(pairs.remove(0));
    exchange(&mut pairs, 40);
    pairs.push(joined(&wire, 0, Mode::Native, Placement::HeaderCut));
    exchange(&mut pairs, 40);
    let strays: u64 = pairs
        .iter()
        .map(|(a, b)| a.endpoint.counter(Counter::RingStrays) + b.endpoint.counter(Counter::RingStrays))
        .sum();
    assert_eq!(strays, 0, "frames of other queues");
}

/// This program again, as a process that listens at queue 0 and answers nobody.
struct Other(Child);

impl Other {
    fn start(wire: &Pair) -> Self {
        let mut command = Command::new(std::env::current_exe().expect("this program"));
        command.args(["--exact", "who_is_killed", "--ignored", "--nocapture"]).stdout(Stdio::piped());
        let mut child = wire.near.within(|| command.spawn()).expect("the namespace").expect("a process");
        let mut output = BufReader::new(child.stdout.take().expect("its output"));
        let mut said = String::new();
        while !said.contains("listens") {
            said.clear();
            assert!(output.read_line(&mut said).expect("its output") > 0, "it has ended");
        }
        Self(child)
    }
}

impl Drop for Other {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A process is killed that has brought what rings at the interface share: the others go on, its caller hears of its
/// end, and its address and queue are free at once.
#[test]
fn who_is_killed_takes_nothing_from_others() {
    let Some(wire) = wire(2) else { return };
    let other = Other::start(&wire);
    let mut pairs = vec![joined(&wire, 1, Mode::Native, Placement::Copy)];
    let mut caller = Endpoint::open(config(0, Mode::Native, Placement::Copy)).expect("an endpoint");
    let address = format!("xdp:{NEAR}:7000");
    let channel = wire.far.within(|| caller.connect(&address, PATIENCE)).expect("the namespace").expect("a channel");
    exchange(&mut pairs, 1);
    drop(other);
    let begun = Instant::now();
    loop {
        exchange(&mut pairs, 1);
        match caller.poll() {
            Some(Event::Closed(closed, CloseReason::Died)) if closed == channel => break,
            other => assert!(other.is_none(), "{other:?}"),
        }
        assert!(begun.elapsed() < PATIENCE, "nobody has noticed");
    }
    drop(caller);
    pairs.push(joined(&wire, 0, Mode::Native, Placement::HeaderCut));
    exchange(&mut pairs, 40);
}

#[test]
#[ignore = "a part of who_is_killed_takes_nothing_from_others"]
fn who_is_killed() {
    let mut endpoint = Endpoint::open(config(0, Mode::Native, Placement::HeaderCut)).expect("an endpoint");
    endpoint.listen(&format!("xdp:{NEAR}:7000")).expect("a ring");
    println!("listens");
    loop {
        let _ = endpoint.wait(Some(Duration::from_secs(60)));
    }
}
