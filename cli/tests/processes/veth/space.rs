//! The pair itself, as tests of other crates use it.

use std::collections::BTreeSet;
use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::path::PathBuf;
use std::time::Duration;

use cutthrough_cli::veth::{Pair, Space};
use cutthrough_node::sys::datagram::Datagrams;

use super::pair;

/// The namespace that a thread is in: the name that the kernel gives it.
fn name() -> PathBuf {
    std::fs::read_link("/proc/thread-self/ns/net").expect("a link")
}

#[test]
fn two_threads_in_two_namespaces_hear_each_other() {
    let Some(pair) = pair(1500) else { return };
    let before = name();
    std::thread::scope(|scope| {
        let near = scope.spawn(|| {
            pair.near.enter()?;
            let near = UdpSocket::bind((Pair::NEAR, 7000))?;
            near.set_read_timeout(Some(Duration::from_secs(10)))?;
            let mut room = [0; 10];
            let (bytes, from) = near.recv_from(&mut room)?;
            near.send_to(b"and you", from)?;
            io::Result::Ok((name(), room[..bytes].to_vec(), from.ip()))
        });
        let far = scope.spawn(|| {
            pair.far.enter()?;
            let far = UdpSocket::bind((Pair::FAR, 0))?;
            far.set_read_timeout(Some(Duration::from_millis(100)))?;
            let mut room = [0; 10];
            for _ in 0..100 {
                // The other one may not listen yet.
                far.send_to(b"hear me", (Pair::NEAR, 7000))?;
                if let Ok(bytes) = far.recv(&mut room) {
                    return io::Result::Ok((name(), room[..bytes].to_vec()));
                }
            }
            Err(io::ErrorKind::TimedOut.into())
        });
        let (there, heard, from) = near.join().expect("no panic").expect("it was heard");
        let (elsewhere, answer) = far.join().expect("no panic").expect("it was answered");
        assert_eq!((heard.as_slice(), from, answer.as_slice()), (&b"hear me"[..], Pair::FAR, &b"and you"[..]));
        assert_eq!(BTreeSet::from([there, elsewhere, before.clone()]).len(), 3);
    });
    assert_eq!(name(), before);
}

#[test]
fn the_wire_has_the_mtu_that_was_asked_for() {
    for mtu in [1280, 1500, 9000, 65_535] {
        let Some(pair) = pair(mtu) else { return };
        let to = SocketAddr::new(Pair::FAR, 9);
        let near = pair.near.within(|| Datagrams::route_mtu(to)).expect("it can be entered").expect("a way");
        let to = SocketAddr::new(Pair::NEAR, 9);
        let far = pair.far.within(|| Datagrams::route_mtu(to)).expect("it can be entered").expect("a way");
        assert_eq!((near, far), (mtu, mtu));
    }
}

#[test]
fn another_process_finds_the_namespace_by_its_path() {
    let Some(pair) = pair(1500) else { return };
    let seen = Space::at(&pair.far.path()).and_then(|far| far.within(name)).expect("it can be entered");
    assert_eq!(seen, pair.far.within(name).expect("it can be entered"));
}
