//! Several rings at one interface, each at a queue of its own.

use rustix::thread::{CapabilitySet, capabilities, set_capabilities};

use super::*;
use crate::sys::xdp::dispatcher::Dispatcher;
use crate::sys::xdp::program::redirect;

const MODES: [Mode; 2] = [Mode::Generic, Mode::Native];

fn at(queue: u32) -> (SocketAddrV4, SocketAddrV4) {
    let port = PORT + u16::try_from(queue).unwrap();
    (SocketAddrV4::new(NEAR, port), SocketAddrV4::new(FAR, port))
}

fn open(name: &str, local: SocketAddrV4, queue: u32, mode: Mode) -> Result<XdpRing, XdpError> {
    XdpRing::open(&Interface::named(name)?, local, queue, Some(mode), PAGES)
}

/// From which queue frames come to this one, across a pair whose program runs in this mode: a veth that has it run in
/// generic mode does not say on which queue a frame came, and the number that its sender gave is read as if it had.
const fn from(queue: u32, mode: Mode) -> u32 {
    if matches!(mode, Mode::Generic) && queue > 0 { queue + 1 } else { queue }
}

/// A ring at this queue of the near end, in this mode, one of the far end whose frames come there, and the way.
fn pair(wire: &Wire, queue: u32, mode: Mode) -> (XdpRing, XdpRing, Hop) {
    let (here, there) = at(queue);
    let near = wire.near(|| open("near", here, queue, mode)).unwrap();
    let far = wire.far(|| open("far", there, from(queue, mode), Mode::Native)).unwrap();
    let to_near = Hop::new((there, FAR_MAC), (here, NEAR_MAC), far.interface.index, Instant::default());
    (near, far, to_near)
}

fn carries((near, far, to_near): &mut (XdpRing, XdpRing, Hop), seed: usize) {
    let word = body(1000, seed);
    assert!(far.send(to_near, &[IoSlice::new(&word)], 1000).unwrap());
    assert!(take(near, 1, to_near.local()) == [word], "queue {}", near.xsk.settings().queue);
}

/// Each takes what is for it; what one does, and its end, is nothing to the others. The first one brought the program
/// that is at the interface: it stays without it.
#[test]
fn rings_at_queues_of_their_own_share_an_interface() {
    for mode in MODES {
        let Some(wire) = Wire::with_queues(1500, 4) else { return };
        let mut pairs: Vec<_> = (0..3).map(|queue| pair(&wire, queue, mode)).collect();
        for seed in 0..20 {
            pairs.iter_mut().for_each(|pair| carries(pair, seed));
        }
        let taken = wire.near(|| open("near", at(0).0, 0, mode)).expect_err("it has a ring");
        assert!(matches!(taken, XdpError::QueueTaken { queue: 0, .. }), "{taken}");
        drop(pairs.remove(0));
        pairs.iter_mut().for_each(|pair| carries(pair, 20));
        pairs.push(pair(&wire, 0, mode));
        for seed in 21..40 {
            pairs.iter_mut().for_each(|pair| carries(pair, seed));
        }
        // With the last one all is gone: others find the interface free.
        drop(pairs);
        let interface = wire.near(|| Interface::named("near").unwrap());
        let other = Program::load(&redirect(&wire.ours(), Rings::new(1).unwrap().number())).unwrap();
        wire.near(|| other.attach(interface.index, mode).map(drop)).unwrap();
    }
}

/// What a killed process leaves where others are: its program, which is not run any more, and takes no frame from the
/// kernel's socket. The next one has the queue.
#[test]
fn a_ring_that_was_killed_takes_no_frames_any_more() {
    for (mode, placing) in [(Mode::Generic, false), (Mode::Native, false), (Mode::Generic, true), (Mode::Native, true)]
    {
        let Some(wire) = Wire::with_queues(1500, 3) else { return };
        let mut other = pair(&wire, 1, mode);
        let mut killed = pair(&wire, 0, mode);
        if placing {
            drop(killed.0);
            let again = wire.near(|| {
                XdpRing::open_placing(&Interface::named("near").unwrap(), at(0).0, 0, Some(mode), PAGES).unwrap()
            });
            killed.0 = again;
        }
        carries(&mut killed, 1);
        let (mut near, mut far, to_near) = killed;
        near.seat.leave();
        drop(near);
        let socket = wire.near(|| UdpSocket::bind(at(0).0).unwrap());
        // A process that another test begins has a copy of the ring's socket until it runs its own program; as long as
        // that is there, the ring takes frames.
        socket.set_read_timeout(Some(Duration::from_millis(20))).unwrap();
        let (mut room, begun) = ([0; 2000], std::time::Instant::now());
        loop {
            assert!(far.send(&to_near, &[IoSlice::new(&body(1000, 0))], 1000).unwrap());
            match socket.recv(&mut room) {
                Ok(bytes) => break assert!(room[..bytes] == body(1000, 0)),
                Err(error) => assert!(begun.elapsed() < PATIENCE, "{mode:?} {placing}: {error}"),
            }
        }
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        for seed in 1..20 {
            let word = body(1000, seed);
            assert!(far.send(&to_near, &[IoSlice::new(&word)], 1000).unwrap());
            // One of those before may have come late.
            let came = || socket.recv(&mut room).map(|bytes| room[..bytes].to_vec());
            let came = std::iter::repeat_with(came).find(|came| !matches!(came, Ok(came) if *came == body(1000, 0)));
            assert!(came.unwrap().unwrap() == word, "{mode:?} {placing}");
        }
        carries(&mut other, 2);
        let near = wire.near(|| open("near", at(0).0, 0, mode)).unwrap();
        carries(&mut (near, far, to_near), 3);
        carries(&mut other, 4);
    }
}

/// All rings of an interface run in one mode: who asks for another one is told, who leaves it open gets it.
#[test]
fn rings_of_an_interface_run_in_one_mode() {
    let Some(wire) = Wire::with_queues(1500, 3) else { return };
    let near = |queue, mode| {
        wire.near(|| {
            // As at an adapter, where the best mode is tried first.
            let interface = Interface { is_virtual: false, ..Interface::named("near").unwrap() };
            XdpRing::open(&interface, at(queue).0, queue, mode, PAGES)
        })
    };
    let _first = near(0, Some(Mode::Generic)).unwrap();
    let refused = near(1, Some(Mode::Native)).expect_err("it runs in generic mode");
    assert!(matches!(refused, XdpError::OtherMode { there: Mode::Generic, .. }), "{refused}");
    let second = near(1, None).unwrap();
    assert_eq!(second.mode(), Mode::Generic);
    let why = |(_, why): &(Mode, XdpError)| matches!(why, XdpError::OtherMode { .. } | XdpError::Unsupported { .. });
    assert!(second.declined().iter().any(|(mode, _)| *mode == Mode::Native) && second.declined().iter().all(why));
}

/// Where the first one chose another mode than the one that a software interface has by itself, too.
#[test]
fn who_leaves_the_mode_open_has_that_of_the_others() {
    let Some(wire) = Wire::with_queues(1500, 2) else { return };
    let near =
        |queue, mode| wire.near(|| XdpRing::open(&Interface::named("near").unwrap(), at(queue).0, queue, mode, PAGES));
    let _first = near(0, Some(Mode::Native)).unwrap();
    let second = near(1, None).unwrap();
    assert_eq!((second.mode(), second.declined().len()), (Mode::Native, 1));
}

/// What is at the interface can be seen with the rights of root alone; what is of somebody else is not joined.
#[test]
fn what_cannot_be_joined_is_said() {
    let Some(wire) = Wire::with_queues(1500, 3) else { return };
    let first = wire.near(|| open("near", at(0).0, 0, Mode::Generic)).unwrap();
    let enter_within =
        |patience| Dispatcher::enter(&Interface::named("near").unwrap(), Mode::Generic, patience).map(drop);
    let enter = || enter_within(Duration::ZERO);
    let blind = wire.near(|| {
        let mut sets = capabilities(None).unwrap();
        sets.effective.remove(CapabilitySet::SYS_ADMIN);
        set_capabilities(None, sets).unwrap();
        enter()
    });
    let said = blind.expect_err("it sees nothing").to_string();
    assert!(said.contains("with CAP_SYS_ADMIN") && !said.contains('\n') && said.len() < 200, "{said}");
    wire.near(enter).unwrap();
    drop(first);
    // The same instructions for another interface are another dispatcher.
    let other = wire.near(|| {
        let near = Interface::named("near").unwrap();
        let elsewhere = Interface { namespace: near.namespace.map(|number| number + 1), ..near };
        Dispatcher::enter(&elsewhere, Mode::Generic, PATIENCE).unwrap()
    });
    let refused = wire.near(enter).expect_err("it is of somebody else");
    assert!(matches!(refused, XdpError::Occupied { .. }), "{refused}");
    drop(other);
    wire.near(|| enter_within(PATIENCE)).unwrap();
}

/// A ring that was passed on keeps what is at the interface for those who join it, when its helper has gone.
#[test]
fn a_leased_ring_and_others_share_an_interface() {
    use crate::raw::xdp::lease::Lease;
    let Some(wire) = Wire::with_queues(1500, 3) else { return };
    let (here, there) = at(0);
    let path = std::env::temp_dir().join(format!("cutthrough-lease-several-{}", std::process::id()));
    let lease = wire.near(|| Lease::open(&format!("xdp:{here}"), 0, Some(Mode::Generic), &path)).unwrap();
    let helper = std::thread::spawn(move || lease.pass(rustix::process::geteuid().as_raw(), |_| panic!("a stranger")));
    let (_socket, leased) = wire.near(|| crate::raw::xdp::lease::take(&path, here.into())).unwrap();
    helper.join().unwrap().unwrap();
    assert!(leased.seat.cannot_change(), "who leases one may not take those of others away");
    let far = wire.far(|| open("far", there, 0, Mode::Native)).unwrap();
    let to_near = Hop::new((there, FAR_MAC), (here, NEAR_MAC), far.interface.index, Instant::default());
    let mut leased = (leased, far, to_near);
    let mut other = pair(&wire, 1, Mode::Generic);
    for seed in 0..20 {
        carries(&mut leased, seed);
        carries(&mut other, seed);
    }
    drop(leased);
    carries(&mut other, 20);
}

/// The namespaces of both ends have an interface of the same number, and each its own program.
#[test]
fn interfaces_of_other_namespaces_are_others() {
    let Some(wire) = Wire::make(1500) else { return };
    let (near, far) = (wire.near(|| Interface::named("near")).unwrap(), wire.far(|| Interface::named("far")).unwrap());
    assert_eq!(near.index, far.index, "as the kernel numbers them");
    assert_ne!(near.namespace, far.namespace);
}
