//! Batches that a socket does not take.

use super::super::door::STUCK_NS;
use super::*;

/// A batch that the socket has not taken is a reason to look again; and not one of who gets the channel's number next.
#[test]
fn what_is_stuck_is_looked_after_until_its_channel_is_another_one() {
    let (near, far, channel) = pair();
    let mut core = near.shared.lock();
    core.stuck = Some((channel, far.local(), clock::now()));
    let timer = core.timer();
    assert!(timer.is_some_and(|timer| timer <= clock::now().after(STUCK_NS)));
    core.furnish(channel + 1);
    assert!(core.stuck.is_some());
    core.furnish(channel);
    assert!(core.stuck.is_none());
}

/// An endpoint and two peers, and its channels to these.
fn three(config: &Config) -> ([Udp; 3], [usize; 2]) {
    let all = [(); 3].map(|()| at(Ipv4Addr::LOCALHOST, config.clone()));
    let [near, far, other] = &all;
    let channels = [far, other].map(|peer| {
        peer.listen().unwrap();
        near.call(peer.local(), None, PATIENCE).unwrap()
    });
    (all, channels)
}

/// Nobody is taken for dead, and given up for that, before a test is.
fn patient() -> Config {
    Config { silence: 3 * PATIENCE, deadline: 3 * PATIENCE, ..Config::default() }
}

/// The end of a test whose endpoints cannot say goodbye to each other: each would wait for that until its silence was
/// over, one after the other.
fn leave(all: [Udp; 3]) {
    std::thread::scope(|scope| {
        for one in all {
            one.shared.lock().config.silence = Duration::ZERO;
            scope.spawn(move || drop(one));
        }
    });
}

/// The device on the way to one peer stands still, as one does that was told to: nobody else hears less for that.
#[test]
fn a_socket_that_takes_nothing_keeps_nobody_waiting_but_its_peer() {
    let ([near, far, other], [to_far, to_other]) = three(&Config::default());
    let say = |channel| send(&near, channel, b"a word", Cargo { load: Load::None, token: None, cookie: None });
    let all_turn = || [&near, &far].map(|at| drop(at.turn(64, |_, _| ())));
    let begun = Instant::now();
    while near.shared.lock().joined.as_ref().is_none_or(|joined| joined.leads(far.local(), None).is_none()) {
        say(to_far);
        all_turn();
        assert!(begun.elapsed() < PATIENCE, "no socket is joined");
    }
    let _reader = near.shared.lock().joined.as_mut().unwrap().stand_still();
    say(to_far);
    near.flush();
    // Unless so much time has passed already that it is given up.
    let stuck = near.shared.lock().stuck.is_some();
    assert!(stuck || near.tally().1.refused_calls > 0);
    say(to_other);
    let mut heard = false;
    while !heard {
        all_turn();
        other.turn(64, |_, told| heard |= matches!(told, Told::Message(..)));
        assert!(begun.elapsed() < PATIENCE, "it waits for the other one");
    }
    assert!(near.tally().1.refused_calls > 0);
}

/// The same for the endpoint's own socket: who is reached by the joined one does not wait for a peer that is not.
#[test]
fn a_socket_of_all_that_takes_nothing_keeps_the_joined_peer_not_waiting() {
    let (all, [to_far, to_other]) = three(&patient());
    let [near, far, _] = &all;
    let say = |channel| send(near, channel, b"a word", Cargo { load: Load::None, token: None, cookie: None });
    let heard_by = |at: &Udp| {
        let mut heard = 0;
        at.turn(64, |_, told| heard += u32::from(matches!(told, Told::Message(..))));
        heard
    };
    let begun = Instant::now();
    let (mut said, mut heard) = (0, 0);
    while near.shared.lock().joined.as_ref().is_none_or(|joined| joined.leads(far.local(), None).is_none()) {
        say(to_far);
        said += 1;
        near.turn(64, |_, _| ());
        heard += heard_by(far);
        assert!(begun.elapsed() < PATIENCE, "no socket is joined");
    }
    let _reader = near.shared.lock().socket.stand_still(usize::MAX);
    say(to_other);
    near.flush();
    say(to_far);
    said += 1;
    while heard < said {
        near.turn(64, |_, _| ());
        heard += heard_by(far);
        assert!(begun.elapsed() < PATIENCE, "it waits for the other one");
    }
    leave(all);
}

/// A peer whose way stands still gets a part of the endpoint's own socket, and others have the rest for what is short.
#[test]
fn a_peer_that_takes_nothing_leaves_room_for_others() {
    let (all, [to_far, to_other]) = three(&patient());
    let [near, ..] = &all;
    let reader = near.shared.lock().socket.stand_still(64 << 10);
    let begun = Instant::now();
    while near.shared.lock().stuck.is_none() {
        let load = Load::Pages(Sheaf::One(near.page(to_other, 60_000).unwrap()));
        send(near, to_other, b"long", Cargo { load, token: None, cookie: None });
        near.flush();
        assert!(begun.elapsed() < PATIENCE, "it takes all");
    }
    send(near, to_far, b"a word", Cargo { load: Load::None, token: None, cookie: None });
    let (mut went, mut frame) = (false, vec![0; 64 << 10]);
    let mut look = || match rustix::net::recv(&reader, &mut frame[..], rustix::net::RecvFlags::empty()) {
        Ok((bytes, _)) => frame[..bytes].windows(6).any(|part| part == b"a word"),
        Err(_) => false,
    };
    while !went {
        near.turn(64, |_, _| ());
        // As long as it is there, nobody takes anything.
        if near.shared.lock().net.unsent(to_far) == 0 {
            went = look();
        }
        assert!(begun.elapsed() < PATIENCE, "it waits for the other one");
    }
    leave(all);
}
