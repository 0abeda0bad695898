//! How `perf` refuses, where there can be no ring: one line, exit code 2.

use std::net::{Ipv4Addr, SocketAddrV4};

use cutthrough::{Config, Endpoint};
use cutthrough_cli::veth::{Pair, Space};
use cutthrough_node::sys::xdp::bpf::{Attached, Program, Rings};
use cutthrough_node::sys::xdp::program::{Ours, redirect};
use cutthrough_node::sys::xdp::{Interface, Mode};

use super::serve::{PORT, Server};
use super::{at, program, refusal, wire, within};

/// What a measurement from the near end says.
fn measured(pair: &Pair) -> String {
    let peer = at("xdp", Pair::FAR, PORT);
    let words = ["perf", "lat", "--peer", &peer, "--insecure", "--size", "64", "--seconds", "0.01"];
    refusal(&within(&pair.near, || program(&words).output()).expect("the program can be started"))
}

/// Somebody else's program at an interface.
fn occupy(space: &Space, name: &str) -> Attached {
    within(space, || {
        let interface = Interface::named(name).expect("an interface");
        let rings = Rings::new(1).expect("a map");
        let ours = Ours { local: SocketAddrV4::new(Ipv4Addr::LOCALHOST, 9), frame_max: 1514, of_rings: true };
        let program = Program::load(&redirect(&ours, rings.number())).expect("a program");
        program.attach(interface.index, Mode::Generic).expect("nobody else is there")
    })
}

#[test]
fn another_program_at_either_end_is_named() {
    let Some(pair) = wire() else { return };
    let _server = Server::start(&pair);
    for (space, name) in [(&pair.near, "near"), (&pair.far, "far")] {
        let occupied = occupy(space, name);
        let said = measured(&pair);
        assert!(said.contains(&format!("another XDP program is at {name}; ")), "{said}");
        drop(occupied);
    }
}

#[test]
fn a_queue_in_use_is_named() {
    let Some(pair) = wire() else { return };
    let _server = Server::start(&pair);
    let mut endpoint = Endpoint::open(Config { insecure: true, ..Config::default() }).expect("an endpoint");
    let here = at("xdp", Pair::NEAR, PORT);
    let _endpoint = within(&pair.near, move || endpoint.listen(&here).map(|()| endpoint)).expect("a ring");
    let said = measured(&pair);
    assert!(said.contains("queue 0 of near is in use by another AF_XDP socket; "), "{said}");
}

#[test]
fn an_interface_that_has_no_rings_is_named() {
    let Some(pair) = wire() else { return };
    let run =
        |words: &[&str]| refusal(&within(&pair.near, || program(words).output()).expect("the program can be started"));
    let said = run(&["perf", "lat", "--adapter", "xdp", "--size", "64", "--seconds", "0.01"]);
    assert!(said.contains("needs a network interface"), "{said}");
    for measurement in [&["perf", "lat", "--adapter", "xdp"][..], &["perf", "defrag"]] {
        for mtu in ["1000", "70000"] {
            let said = run(&[measurement, &["--veth", mtu]].concat());
            assert!(said.contains(&format!("an MTU of {mtu} is out of 1280..65535; ")), "{said}");
        }
    }
}
