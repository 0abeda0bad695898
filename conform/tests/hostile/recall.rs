//! A peer that is asked for the runs back that were posted for it, and lies; and one that asks for nonsense.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use cutthrough::{Breach, CloseReason, Landing, SendError};
use cutthrough_conform::join::keep_house;
use cutthrough_wire::layout::{Line, RECORDS};
use cutthrough_wire::slot::Kind;

use crate::liar::{Liar, PATIENCE, Victim};
use crate::lies::{lend, run, tell};

/// The number under which a posted run comes back.
const fn number(id: u64) -> u64 {
    u32::MAX as u64 | id << 32
}

/// The victim posts runs, of which it wants `recalled` back.
fn post(liar: &Liar, victim: &mut Victim, recalled: u32, others: u32) {
    assert_eq!(victim.endpoint.post(liar.channel, 4096, recalled), Ok(recalled));
    if recalled > 0 {
        assert_eq!(victim.endpoint.recall(liar.channel), Ok(recalled));
    }
    if others > 0 {
        assert_eq!(victim.endpoint.post(liar.channel, 4096, others), Ok(others));
    }
    assert_eq!(liar.peer.get(Line::Posted), u64::from(recalled + others));
    assert_eq!(liar.peer.get(Line::Recalled), u64::from(recalled));
}

/// The liar gives these back, and says so.
fn give_back(liar: &Liar, ids: &[u64]) {
    liar.own.set(Line::Taken, liar.peer.get(Line::Posted));
    for (place, id) in ids.iter().enumerate() {
        liar.own.returns()[place].store(number(*id), Ordering::Relaxed);
    }
    liar.own.set(Line::Returned, ids.len() as u64);
}

#[test]
fn runs_that_are_not_given_back_as_they_were_posted() {
    tell(&[
        ("what was not wanted", Breach::Lend, |liar, victim| {
            post(liar, victim, 1, 1);
            give_back(liar, &[1]);
        }),
        ("while nothing is wanted", Breach::Lend, |liar, victim| {
            post(liar, victim, 0, 1);
            lend(liar, victim, 1);
            give_back(liar, &[0]);
        }),
        ("what was never posted", Breach::Lend, |liar, victim| {
            post(liar, victim, 2, 0);
            give_back(liar, &[0, 2]);
        }),
        ("by a number that nothing has", Breach::Lend, |liar, victim| {
            post(liar, victim, 1, 0);
            give_back(liar, &[u64::from(u32::MAX)]);
        }),
        ("one twice", Breach::Lend, |liar, victim| {
            post(liar, victim, 2, 0);
            give_back(liar, &[1, 1]);
        }),
        ("what it has filled", Breach::Lend, |liar, victim| {
            post(liar, victim, 2, 0);
            liar.say(Kind::Put, 1, 10, run(0, 1, 0), 0);
            let message = victim.message();
            victim.forget(message);
            give_back(liar, &[0]);
        }),
        ("and fills it", Breach::Page, |liar, victim| {
            post(liar, victim, 2, 0);
            give_back(liar, &[0]);
            while victim.endpoint.recall(liar.channel) == Ok(2) {}
            liar.say(Kind::Put, 1, 10, run(0, 1, 0), 0);
        }),
        ("more than the ring holds", Breach::Index, |liar, victim| {
            post(liar, victim, 1, 0);
            liar.own.set(Line::Returned, u64::from(RECORDS) + 1);
        }),
    ]);
}

/// Who gives nothing back keeps what was posted for it, and nothing else; with its channel that is gone.
#[test]
fn who_keeps_what_was_posted_for_it_keeps_nothing_else() {
    let mut victim = Victim::open();
    let liar = Liar::join(&mut victim);
    post(&liar, &mut victim, 100, 0);
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_millis(300) {
        assert!(victim.endpoint.poll().is_none());
        assert_eq!(victim.endpoint.recall(liar.channel), Ok(100));
    }
    victim.endpoint.grant(liar.channel, Landing::Pages(156 * 4096)).expect("all others are there");
    victim.honest_channel_works(1);
    let channel = liar.channel;
    drop(liar);
    assert_eq!(victim.closed(), CloseReason::Died);
    assert!(victim.endpoint.recall(channel).is_err());
    victim.honest_channel_works(2);
}

/// What the liar wants back of its own runs is a hint: it gets what it has posted, once, and no more waits for it than
/// its ring holds, however often it asks and takes nothing.
#[test]
fn who_asks_for_its_runs_gets_what_it_has_posted() {
    let mut victim = Victim::open();
    let liar = Liar::join(&mut victim);
    let records = u64::from(RECORDS);
    let polls = |victim: &mut Victim| {
        for _ in 0..3 {
            keep_house(&mut victim.endpoint, |event| panic!("{event:?}"));
        }
    };
    for wanted in [1, records, records + 1, u64::MAX, u64::MAX / 2] {
        liar.own.set(Line::Recalled, wanted);
        polls(&mut victim);
        assert_eq!(liar.peer.get(Line::Returned), 0, "it has posted nothing");
    }
    for (place, word) in liar.own.free().iter().enumerate() {
        word.store(run(0, 1, u16::try_from(place).unwrap_or(0)), Ordering::Relaxed);
    }
    liar.own.set(Line::Recalled, 2);
    liar.own.set(Line::Posted, 3);
    let begun = Instant::now();
    while liar.peer.get(Line::Returned) < 2 {
        assert!(victim.endpoint.poll().is_none() && begun.elapsed() < PATIENCE);
    }
    assert_eq!(liar.peer.get(Line::Taken), 3);
    let peers = liar.peer.returns();
    assert_eq!([0, 1].map(|place| peers.load_acquire(place)), [number(0), number(1)]);
    // The third is the victim's to fill.
    polls(&mut victim);
    assert_eq!(liar.peer.get(Line::Returned), 2);
    victim.endpoint.outgoing(liar.channel).expect("a slot").attach_copy(b"put").send().expect("sent");
    assert_eq!(liar.peer.get(Line::Taken), 3);
    for round in 1..20 {
        let posted = liar.peer.get(Line::Taken) + records;
        liar.own.set(Line::Recalled, posted);
        liar.own.set(Line::Posted, posted);
        polls(&mut victim);
        assert!(liar.peer.get(Line::Returned) <= records, "round {round}");
        assert!(liar.peer.get(Line::Taken) <= 3 * records, "round {round}: they wait without end");
    }
    assert!(!matches!(victim.endpoint.send(liar.channel, b""), Err(SendError::Closed(_))));
    victim.honest_channel_works(1);
}
