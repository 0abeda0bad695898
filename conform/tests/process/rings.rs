//! A process with raw rings is killed at any instant: nothing of it stays at its interface, which is the kernel's
//! again, and the next process has the same address at once.

use std::net::UdpSocket;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use cutthrough::{Adapter, Config, Endpoint, SendError, probe};
use cutthrough_cli::veth::{Pair, Space};

use crate::child::{CUT, Other, PATIENCE, XDP, config};

const PORT: u16 = 7000;
/// How often each is killed.
const ROUNDS: u64 = 5;

/// What it is killed in the middle of: its part, and what its peer does meanwhile.
const DOINGS: [(&str, Meanwhile); 4] = [
    // Opens its rings and closes them, again and again.
    ("reopen", Meanwhile::Nothing),
    // Waits for somebody to come.
    ("listen", Meanwhile::Nothing),
    // Receives as fast as it can.
    ("listen", Meanwhile::Sends),
    // Sends as fast as it can.
    ("listen-send", Meanwhile::Receives),
];

#[derive(Debug, Clone, Copy)]
enum Meanwhile {
    Nothing,
    Sends,
    Receives,
}

fn within<R: Send>(space: &Space, run: impl FnOnce() -> R + Send) -> R {
    space.within(run).expect("the namespace")
}

/// Waits for something that the kernel does at its leisure.
fn soon(what: &str, mut happened: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !happened() {
        assert!(begun.elapsed() < PATIENCE, "not in time: {what}");
        thread::sleep(Duration::from_millis(1));
    }
}

/// Lines of a file of `/proc/net` of a namespace, without its heading.
fn listed(space: &Space, name: &str) -> Vec<String> {
    let text = within(space, || std::fs::read_to_string(format!("/proc/thread-self/net/{name}")).unwrap_or_default());
    text.lines().skip(1).map(ToOwned::to_owned).collect()
}

/// Keeps the other side busy for so long.
fn keep_busy(endpoint: &mut Endpoint, pair: &Pair, doing: Meanwhile, time: Duration) {
    let begun = Instant::now();
    if matches!(doing, Meanwhile::Nothing) {
        return thread::sleep(time);
    }
    let peer = format!("udp:{}:{PORT}", Pair::NEAR);
    let channel = within(&pair.far, || endpoint.connect(&peer, PATIENCE)).expect("a channel");
    let payload = vec![7; 100_000];
    while begun.elapsed() < time {
        if matches!(doing, Meanwhile::Sends) {
            match endpoint.outgoing(channel).and_then(|outgoing| outgoing.attach_copy(&payload).send()) {
                Ok(_) | Err(SendError::Full) => {}
                Err(error) => panic!("{error}"),
            }
        }
        let _ = endpoint.poll();
    }
}

/// Whether there is a program at the interface, which takes frames out before the kernel has them.
fn has_program(pair: &Pair) -> bool {
    let output = within(&pair.near, || Command::new("ip").args(["link", "show", "near"]).output());
    String::from_utf8(output.expect("ip runs").stdout).expect("it is text").contains("xdp")
}

/// Nothing is left of the one that was killed. The next one asks for the same.
fn nothing_is_left(pair: &Pair, needs: Adapter, address: &str, net_xdp: bool) {
    soon("no program at the interface", || !has_program(pair));
    no_socket_is_left(pair);
    // The kernel's own sockets reach each other.
    let near = within(&pair.near, || UdpSocket::bind((Pair::NEAR, PORT))).expect("a free port");
    let far = within(&pair.far, || UdpSocket::bind((Pair::FAR, 0))).expect("a port");
    near.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    far.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    far.send_to(b"alive", (Pair::NEAR, PORT)).expect("sent");
    let mut bytes = [0; 10];
    let (len, from) = loop {
        // What the dead one was still being sent may come first.
        match near.recv_from(&mut bytes) {
            Ok((len, from)) if bytes.starts_with(b"alive") => break (len, from),
            received => drop(received.expect("a datagram")),
        }
    };
    near.send_to(&bytes[..len], from).expect("sent");
    assert_eq!(far.recv(&mut bytes).expect("an echo"), len);
    drop(near);
    no_socket_is_left(pair);
    // And the next one has its rings at once.
    let mut next = Endpoint::open(Config { net_xdp, ..config() }).expect("an endpoint");
    let next = within(&pair.near, move || next.listen(address).map(|()| next)).expect("the address of the dead");
    // What is not asked for is not there.
    let mut asked = next.net_offers().into_iter().filter(|offer| offer.adapter == needs);
    assert!(asked.next().is_some_and(|offer| offer.declined.is_none()), "{:?}", next.net_offers());
    drop(next);
    no_socket_is_left(pair);
}

/// Our own too: what another test starts has our files for an instant.
fn no_socket_is_left(pair: &Pair) {
    for sockets in ["packet", "udp"] {
        soon("no socket", || listed(&pair.near, sockets).is_empty());
    }
}

/// A process with an endpoint of this scheme, and with this setting beside, is killed at many instants; at last its
/// namespace goes too, which anything that were left would keep.
fn kill(scheme: &str, needs: Adapter, setting: Option<&str>) {
    let missing = probe(needs).into_iter().find_map(|(_, tried)| tried.err());
    let pair = match (missing, Pair::make(1500)) {
        (None, Ok(pair)) => pair,
        (Some(missing), _) => return cutthrough_conform::skipped(missing),
        (None, Err(missing)) => return cutthrough_conform::skipped(missing),
    };
    let address = format!("{scheme}:{}:{PORT}", Pair::NEAR);
    // It need not wait long for the dead.
    let config = Config { silence: Duration::from_millis(300), ..config() };
    let mut endpoint = Endpoint::open(config).expect("an endpoint");
    for round in 0..ROUNDS {
        for (part, doing) in DOINGS {
            let mut command = Other::command(part, &address);
            command.envs(setting.map(|setting| (setting, "1")));
            let mut other = within(&pair.near, || Other::start(command));
            assert_eq!(other.says(), "ready");
            // One that opens its rings again and again has none now and then.
            assert!(part == "reopen" || has_program(&pair) == (needs == Adapter::Xdp), "its rings are not those");
            let micros = if part == "reopen" { round * 23_017 % 60_000 } else { 2_000 + round * 7_919 % 20_000 };
            keep_busy(&mut endpoint, &pair, doing, Duration::from_micros(micros));
            drop(other);
            nothing_is_left(&pair, needs, &address, setting == Some(XDP));
        }
    }
    drop(endpoint);
    let Pair { near, far, .. } = pair;
    drop(near);
    soon("no namespace", || !listed(&far, "dev").iter().any(|line| line.trim_start().starts_with("far:")));
}

#[test]
fn a_killed_process_with_xdp_rings_leaves_nothing() {
    kill("xdp", Adapter::Xdp, None);
}

#[test]
fn a_killed_process_whose_rings_cut_payloads_free_leaves_nothing() {
    kill("xdp", Adapter::Xdp, Some(CUT));
}

#[test]
fn a_killed_process_with_packet_rings_leaves_nothing() {
    kill("packet", Adapter::Packet, None);
}

#[test]
fn a_killed_process_with_all_ways_leaves_nothing() {
    kill("net", Adapter::Packet, None);
}

/// The socket, a packet ring and a ring of AF_XDP, at one address.
#[test]
fn a_killed_process_with_all_ways_and_an_xdp_ring_leaves_nothing() {
    kill("net", Adapter::Xdp, Some(XDP));
}
