//! What rings do to channels, and channels to rings.

use std::io::IoSlice;
use std::os::unix::net::UnixDatagram;

use super::super::door::Core;
use super::super::lanes::Unsent;
use super::*;
use crate::raw::xdp::XdpRing;
use crate::sys::xdp::Interface;
use crate::sys::xdp::dispatcher::take_off;

/// Has both sides look until the channel that the first one has closed is over for it.
fn until_over(near: &Udp, far: &Udp, channel: usize) {
    let begun = Instant::now();
    while near.shared.lock().net.peer(channel).is_some() {
        near.turn(64, |_, _| ());
        far.turn(64, |_, _| ());
        assert!(begun.elapsed() < PATIENCE, "it does not end");
    }
}

/// Two endpoints of `packet:`, and the number that the first one gives to the channel between them.
fn by_packets(wire: &Wire) -> (Udp, Udp, usize) {
    across(wire, Ways::Packet)
}

/// There is memory of a ring for one channel, where a channel's is as long as it is by itself. Whoever comes after that
/// channel has it, by whatever number, and however the one before has ended.
#[test]
fn who_comes_after_a_channel_has_its_landing_memory() {
    let Some(wire) = Wire::make(1500) else { return };
    let config = |placement| Config { placement, ..Config::default() };
    let near = wire.near(|| by(Ways::Xdp, SocketAddr::from((NEAR, PORT)), config(Placement::HeaderCut)));
    let far = wire.far(|| by(Ways::Xdp, SocketAddr::from((FAR, PORT)), config(Placement::Copy)));
    far.listen().unwrap();
    let call = || wire.near(|| near.call(far.local(), None, PATIENCE).unwrap());
    let places = |channel: usize| {
        let core = &mut *near.shared.lock();
        let page = core.net.memory.get(channel).unwrap().landing(4096).unwrap();
        core.lanes.as_mut().unwrap().placing().unwrap().place_of(&page).is_some()
    };
    let close = |channel: usize, retired: bool| {
        near.close(channel);
        if retired {
            near.retire(channel);
        }
        until_over(&near, &far, channel);
    };
    let [first, second] = [(); 2].map(|()| call());
    assert!(places(first) && !places(second));
    for channel in [first, second] {
        close(channel, true);
    }
    let third = call();
    assert_eq!(third, second, "not the number of the one that had the memory");
    assert!(places(third), "what lands there is copied");
    // As a call that has failed after all.
    close(third, false);
    assert_eq!(call(), third);
    assert!(places(third), "what lands there is copied");
}

/// A ring by which nothing goes, because nobody is at the other end of the wire, holds up nobody whose frames go
/// another way.
#[test]
fn a_ring_by_which_nothing_goes_holds_nobody_else_up() {
    let Some(wire) = Wire::make(1500) else { return };
    wire.near(|| ip("link set lo up"));
    let config = || Config { silence: Duration::from_secs(3), ..Config::default() };
    let near = wire.near(|| by(Ways::All, SocketAddr::from((NEAR, 0)), config()));
    let beside = wire.near(|| by(Ways::Udp, SocketAddr::from((NEAR, 0)), config()));
    let far = wire.far(|| by(Ways::All, SocketAddr::from((FAR, PORT)), config()));
    let called = [&far, &beside].map(|to| {
        to.listen().unwrap();
        wire.near(|| near.call(to.local(), None, PATIENCE).unwrap())
    });
    wire.far(|| ip("link set far down"));
    let refused = {
        let core = &mut *near.shared.lock();
        let bytes = [0; 1000];
        let fill = (&[IoSlice::new(&bytes)][..], bytes.len());
        while core.lanes.as_mut().unwrap().send(called[0], 1, fill, None).unwrap() {}
        core.net.set_ways(called[0], 0b10);
        core.net.send(called[0], b"by the ring", None).unwrap();
        core.transmit(clock::now(), true);
        assert!(core.stuck.is_some());
        core.net.send(called[1], b"by the socket", None).unwrap();
        core.troubles.refused_calls
    };
    let (begun, mut came) = (Instant::now(), false);
    while !came {
        near.turn(64, |_, _| ());
        beside.turn(64, |_, what| came |= matches!(what, Told::Message(..)));
        assert!(begun.elapsed() < Duration::from_secs(2), "it waits for the ring");
    }
    assert!(near.shared.lock().troubles.refused_calls > refused);
}

/// Whose interface has been down for a moment has no ring any more, also if that was full: it is given up, or frames go
/// by it again. Nobody has looked meanwhile whether it has failed.
#[test]
fn a_full_ring_whose_interface_was_down_does_not_stay_full() {
    let Some(wire) = Wire::make(1500) else { return };
    let (near, _far, channel) = by_packets(&wire);
    let core = &mut *near.shared.lock();
    let lanes = core.lanes.as_mut().unwrap();
    let bytes = [0; 1000];
    let mut send = || lanes.send(channel, 1, (&[IoSlice::new(&bytes)], bytes.len()), None);
    wire.far(|| ip("link set far down"));
    while send().unwrap() {}
    wire.near(|| ["link set near down", "link set near up"].map(ip));
    wire.far(|| ip("link set far up"));
    let begun = Instant::now();
    loop {
        match send() {
            Ok(true) | Err(Unsent::Failed(_)) => break,
            Ok(false) | Err(Unsent::Blocked) => assert!(begun.elapsed() < Duration::from_secs(1), "it stays full"),
            Err(why) => panic!("{why:?}"),
        }
    }
}

/// Where frames may be long a ring has few places, and short messages go at once all the same.
#[test]
fn short_messages_go_at_once_where_frames_may_be_long() {
    const MESSAGES: usize = 64;
    for ways in [Ways::Packet, Ways::Xdp] {
        let Some(wire) = Wire::make(65_535) else { return };
        let (near, far, channel) = across(&wire, ways);
        near.shared.lock().sink.busy_until(clock::now().after(60_000_000_000));
        for _ in 0..MESSAGES {
            send(&near, channel, b"", Cargo { load: Load::Copy(&[7; 100]), token: None, cookie: None });
        }
        near.flush();
        let (begun, mut came) = (Instant::now(), 0);
        while came < MESSAGES {
            near.turn(64, |_, _| ());
            far.turn(64, |_, what| came += usize::from(matches!(what, Told::Message(..))));
            assert!(begun.elapsed() < PATIENCE, "{came} of {MESSAGES} have come");
        }
        let troubles = [&near, &far].map(|end| end.tally().1);
        let lost = troubles.map(|all| (all.refused_calls, all.rings.refused, all.rings.overflows));
        assert_eq!(lost, [(0, 0, 0); 2], "{ways:?}");
        // What a ring has taken the socket leaves out, and loses nothing by that.
        assert_eq!(troubles.map(|all| all.overruns), [0; 2], "{ways:?}");
    }
}

/// What the kernel leaves in a ring, because it had no room for more just then, goes when somebody looks, whether
/// pages are under way or not.
#[test]
fn what_the_kernel_has_left_in_a_ring_goes_with_the_next_look() {
    let Some(wire) = Wire::make(1500) else { return };
    let config = |placement| Config { placement, ..Config::default() };
    let near = wire.near(|| by(Ways::Xdp, SocketAddr::from((NEAR, PORT)), config(Placement::HeaderCut)));
    let far = wire.far(|| by(Ways::Xdp, SocketAddr::from((FAR, PORT)), config(Placement::Copy)));
    far.listen().unwrap();
    let channel = wire.near(|| near.call(far.local(), None, PATIENCE).unwrap());
    // Held throughout, so that nobody sends it again.
    let core = &mut *near.shared.lock();
    let ring = |core: &mut Core, socket| core.lanes.as_mut().unwrap().placing().unwrap().exchange(socket);
    // It takes the call, and no frame.
    let (nobody, _other) = UnixDatagram::pair().unwrap();
    let kernel = ring(core, nobody.into());
    core.net.send(channel, b"a word", None).unwrap();
    core.transmit(clock::now(), true);
    ring(core, kernel);
    assert!(!core.net.has_in_use());
    core.release_pages();
    let (begun, mut came) = (Instant::now(), false);
    while !came {
        far.turn(64, |_, what| came |= matches!(what, Told::Message(..)));
        assert!(begun.elapsed() < PATIENCE, "it stays there");
    }
    assert!(core.releases_at().is_none(), "there is no more to look after");
}

/// A ring of AF_XDP that is lost again and again, with nobody who has pages under way, leaves nothing behind.
#[test]
fn rings_that_are_lost_leave_nothing_behind() {
    let Some(wire) = Wire::make(1500) else { return };
    let config = Config { pool_bytes: 1 << 20, ..Config::default() };
    let near = wire.near(|| by(Ways::Xdp, SocketAddr::from((NEAR, PORT)), config));
    for times in 1..=4 {
        near.shared.lock().give_up(PLACING, &std::io::Error::other("a test"));
        let begun = Instant::now();
        while near.shared.lock().lanes.as_ref().unwrap().turnover().1 < times {
            assert!(begun.elapsed() < PATIENCE, "it is not opened again");
            std::thread::sleep(Duration::from_millis(1));
        }
    }
    assert_eq!(near.shared.lock().lanes.as_ref().unwrap().closed(), 0);
}

/// A ring whose program somebody else takes off the interface is lost, and comes back: frames that went on by the
/// socket would be all that shows it.
#[test]
fn a_ring_whose_program_is_taken_away_is_lost() {
    let Some(wire) = Wire::make(1500) else { return };
    for ways in [Ways::Xdp, Ways::All] {
        let config = Config { net_xdp: true, ..Config::default() };
        let (near, far, channel) = across_with(&wire, ways, &config);
        let word = |control: &[u8]| {
            send(&near, channel, control, Cargo { load: Load::Copy(&[]), token: None, cookie: None });
            let (begun, mut came) = (Instant::now(), false);
            while !came {
                near.turn(64, |_, _| ());
                far.turn(64, |_, what| came |= matches!(what, Told::Message(..)));
                assert!(begun.elapsed() < PATIENCE, "{ways:?}: {control:?} does not come");
            }
        };
        word(b"before");
        let turnover = || far.tally().1.rings_lost + 10 * far.tally().1.rings_reopened;
        assert_eq!(turnover(), 0);
        wire.far(|| take_off(&Interface::named("far").unwrap()));
        let begun = Instant::now();
        while turnover() != 11 {
            word(b"after");
            assert!(begun.elapsed() < PATIENCE, "{ways:?}: {} (ones: lost, tens: opened again)", turnover());
        }
    }
}

/// A call that reads has the lock for as long as it waits, perhaps for what goes by the ring that has come back.
#[test]
fn a_ring_comes_back_to_who_has_the_lock() {
    let Some(wire) = Wire::make(1500) else { return };
    let (near, _far, _) = across_with(&wire, Ways::Xdp, &Config::default());
    near.shared.lock().give_up(PLACING, &std::io::Error::other("a test"));
    let begun = Instant::now();
    // While the attendant opens it, nothing else is to be opened.
    while near.shared.due.left() < u64::MAX {
        assert!(begun.elapsed() < PATIENCE, "it is not opened again");
        std::thread::sleep(Duration::from_micros(100));
    }
    let core = &mut *near.shared.lock();
    while !core.lanes.as_ref().unwrap().has_rings() {
        core.turn(None);
        assert!(begun.elapsed() < PATIENCE, "it does not come back");
    }
}

/// What a message has acknowledged is seen to after it was told of: whoever sends one page for each answer has it.
#[test]
fn a_page_that_has_arrived_is_there_for_who_was_answered() {
    let Some(wire) = Wire::make(1500) else { return };
    let config = Config { pool_bytes: 4096, ..Config::default() };
    let (near, far, channel) = across_with(&wire, Ways::Xdp, &config);
    let await_message = |end: &Udp| {
        let (begun, mut from) = (Instant::now(), None);
        while from.is_none() {
            end.turn(64, |_, what| {
                if let Told::Message(index, _) = what {
                    from = Some(index);
                }
            });
            assert!(begun.elapsed() < PATIENCE, "it does not come");
        }
        from.unwrap()
    };
    for round in 0..20 {
        let page = near.page(channel, 1000).unwrap_or_else(|why| panic!("{why:?} in round {round}"));
        let cargo = Cargo { load: Load::Pages(Sheaf::One(page)), token: None, cookie: None };
        assert_eq!(send(&near, channel, b"a page", cargo).copies, 0);
        let back = await_message(&far);
        send(&far, back, b"an answer", Cargo { load: Load::Copy(&[7; 100]), token: None, cookie: None });
        await_message(&near);
    }
}

/// Nobody asks for the way to the peer of a channel that is over, though its user is not told of the end.
#[test]
fn who_has_closed_a_channel_asks_for_its_way_no_more() {
    let Some(wire) = Wire::make(1500) else { return };
    let (near, far, channel) = by_packets(&wire);
    let asks_later = || {
        let mut core = near.shared.lock();
        let before = core.lanes.as_ref().unwrap().asked();
        core.tend_lanes(clock::now().after(60_000_000_000));
        core.lanes.as_ref().unwrap().asked() - before
    };
    assert!(asks_later() > 0);
    near.close(channel);
    until_over(&near, &far, channel);
    assert_eq!(asks_later(), 0);
}

/// How much goes at once by a ring depends on how long it is, not on how full it is when another one has come back.
#[test]
fn a_ring_that_is_full_takes_no_shorter_batches_later() {
    let Some(wire) = Wire::make(1500) else { return };
    let (near, _far, channel) = by_packets(&wire);
    let core = &mut *near.shared.lock();
    let lanes = core.lanes.as_mut().unwrap();
    let whole: Vec<_> = lanes.limits().collect();
    wire.far(|| ip("link set far down"));
    let bytes = [0; 1000];
    while lanes.send(channel, 1, (&[IoSlice::new(&bytes)], bytes.len()), None).unwrap() {}
    assert_eq!(lanes.limits().collect::<Vec<_>>(), whole);
}

/// The queue of a ring that is gone is somebody else's: while it is tried again and again, an application that computes
/// is answered for.
#[test]
fn who_waits_for_a_queue_answers_its_peers() {
    let Some(wire) = Wire::make(1500) else { return };
    let near = wire.near(|| by(Ways::Xdp, SocketAddr::from((NEAR, PORT)), Config::default()));
    let far = wire.far(|| by(Ways::Xdp, SocketAddr::from((FAR, PORT)), Config::default()));
    near.listen().unwrap();
    let channel = wire.far(|| far.call(near.local(), None, PATIENCE).unwrap());
    let (turnover, _taken) = {
        let mut core = near.shared.lock();
        core.give_up(PLACING, &std::io::Error::other("a test"));
        let taken = wire.near(|| {
            let local = std::net::SocketAddrV4::new(NEAR, PORT + 1);
            XdpRing::open(&Interface::named("near").unwrap(), local, 0, None, 0).unwrap()
        });
        (core.lanes.as_ref().unwrap().turnover(), taken)
    };
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_secs(3) {
        send(&far, channel, b"a word", Cargo { load: Load::Copy(&[]), token: None, cookie: None });
        let slept = Instant::now();
        while slept.elapsed() < Duration::from_millis(50) {
            let other = far.turn(64, |_, _| ());
            assert!(other.is_none(), "after {:?}: {other:?}", begun.elapsed());
            std::thread::sleep(Duration::from_micros(100));
        }
    }
    assert_eq!(near.shared.lock().lanes.as_ref().unwrap().turnover(), turnover, "the queue was not taken");
}
