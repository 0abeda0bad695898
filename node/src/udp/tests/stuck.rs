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

/// The device on the way to one peer stands still, as one does that was told to: nobody else hears less for that.
#[test]
fn a_socket_that_takes_nothing_keeps_nobody_waiting_but_its_peer() {
    let [near, far, other] = [(); 3].map(|()| at(Ipv4Addr::LOCALHOST, Config::default()));
    let [to_far, to_other] = [&far, &other].map(|peer| {
        peer.listen().unwrap();
        near.call(peer.local(), None, PATIENCE).unwrap()
    });
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
