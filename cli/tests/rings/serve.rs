//! The other end of measurements at an address of rings: it has one while something is measured, and else none.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command};
use std::time::Instant;

use cutthrough::{Config, Endpoint};
use cutthrough_cli::veth::Pair;

use super::{PATIENCE, at, program, text, wire, within};

pub(crate) const PORT: u16 = 7400;

/// The other end of a measurement, killed when dropped.
pub(crate) struct Server(Child);

impl Server {
    /// At the far end, once it listens.
    pub(crate) fn start(pair: &Pair) -> Self {
        let words = ["perf", "serve", "--insecure", "--listen", &at("xdp", Pair::FAR, PORT)];
        let mut server = within(&pair.far, || program(&words).spawn()).expect("the program can be started");
        let mut said = String::new();
        let output = server.stdout.as_mut().expect("its output");
        assert!(BufReader::new(output).read_line(&mut said).expect("its output") > 0, "it does not listen");
        Self(server)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Whether there is a program for rings at the far interface.
fn is_ringed(pair: &Pair) -> bool {
    let ip = || Command::new("ip").args(["link", "show", "far"]).output().expect("ip runs");
    text(&within(&pair.far, ip).stdout).contains("xdp")
}

/// Waits until what has ended has left the interface.
fn leaves(pair: &Pair) {
    let begun = Instant::now();
    while is_ringed(pair) {
        assert!(begun.elapsed() < PATIENCE, "it has a ring still");
    }
}

/// While it waits, the interface and its queue are free for others. Who comes then measures by rings all the same, as
/// often as it likes.
#[test]
fn a_ring_is_there_while_something_is_measured() {
    let Some(pair) = wire() else { return };
    let _server = Server::start(&pair);
    leaves(&pair);
    let config = Config { insecure: true, ..Config::default() };
    for round in 1..=3 {
        let mut other = Endpoint::open(config.clone()).expect("an endpoint");
        let its = at("xdp", Pair::FAR, PORT + 50);
        let other = within(&pair.far, move || other.listen(&its).map(|()| other)).expect("nobody has the queue");
        assert!(is_ringed(&pair));
        drop(other);
        leaves(&pair);

        let peer = at("xdp", Pair::FAR, PORT);
        let words = ["perf", "lat", "--peer", &peer, "--insecure", "--size", "64,8KiB", "--seconds", "0.01", "--json"];
        let output = within(&pair.near, || program(&words).output()).expect("the program can be started");
        assert!(output.status.success(), "{round}: {}", text(&output.stderr));
        let said = text(&output.stdout);
        assert_eq!(said.matches("\"adapter\":\"xdp\"").count(), 2, "{said}");
        leaves(&pair);
    }
}
