//! Every single-field lie, and what the victim says to it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use cutthrough::{Breach, CloseReason, Config, Counter, Event, Landing, Payload, Refused, SendError, Token};
use cutthrough_conform::join::keep_house;
use cutthrough_segment::bell::ROOM;
use cutthrough_segment::copy::Copying;
use cutthrough_wire::layout::Line;
use cutthrough_wire::run::Run;
use cutthrough_wire::slot::Kind;
use cutthrough_wire::token::Place;
use rustix::net::{SendFlags, send};

use crate::liar::{Liar, Victim, breach, config, sizes};

/// A lie: what the liar does, and what the victim does meanwhile.
pub(crate) type Lie = fn(&mut Liar, &mut Victim);

/// Tells each lie to a victim, which has to close the channel for that reason, count it, and go on.
pub(crate) fn tell(lies: &[(&str, Breach, Lie)]) {
    let mut victim = Victim::open();
    for (round, (name, reason, lie)) in (0..).zip(lies) {
        let mut liar = Liar::join(&mut victim);
        let before = victim.endpoint.counter(reason.counter());
        eprintln!("{name}");
        lie(&mut liar, &mut victim);
        assert_eq!(breach(victim.closed()), Some(*reason), "{name}");
        assert_eq!(victim.endpoint.counter(reason.counter()), before + 1, "{name}: counted");
        assert!(matches!(victim.endpoint.send(liar.channel, b""), Err(SendError::Closed(_))), "{name}");
        victim.honest_channel_works(round);
    }
}

/// A run of pages as a word.
pub(crate) const fn run(first: u32, count: u32, id: u16) -> u64 {
    Run { first, count, id }.to_word()
}

/// The victim sends private memory to the liar, which may end in an error.
fn send_copy(liar: &Liar, victim: &mut Victim, len: usize) {
    let payload = vec![1; len];
    if let Ok(outgoing) = victim.endpoint.outgoing(liar.channel) {
        let _ = outgoing.attach_copy(&payload).send();
    }
}

/// The victim lends so many pages to the liar: the numbers that it has to return.
pub(crate) fn lend(liar: &Liar, victim: &mut Victim, pages: usize) -> Vec<u64> {
    let slots = liar.peer.slots(64);
    (0..pages)
        .map(|number| {
            let page = victim.endpoint.page(liar.channel, 4096).expect("a page");
            victim.endpoint.outgoing(liar.channel).expect("a slot").attach(page).send().expect("sent");
            cutthrough_segment::ring::Slots::slot(&slots, number).load(3, Ordering::Acquire)
        })
        .collect()
}

/// The liar stages a payload of 1 MiB of which nothing has come, and the victim reads what is there.
fn read_some(liar: &mut Liar, victim: &mut Victim, staged: &[u64]) {
    liar.say(Kind::Staged, 0, 1 << 20, 0, 0);
    let mut message = victim.message();
    let mut bytes = vec![0; 1 << 20];
    for position in staged {
        liar.own.set(Line::Staged, *position);
        let _ = victim.endpoint.read_some(&mut message, &mut bytes);
    }
}

#[test]
fn counters_that_cannot_be_true() {
    tell(&[
        ("consumed before anything was sent", Breach::Index, |liar, _| liar.own.set(Line::Consumed, 1)),
        ("consumed at the end of all numbers", Breach::Index, |liar, _| liar.own.set(Line::Consumed, u64::MAX)),
        ("consumed backwards", Breach::Index, |liar, victim| {
            for _ in 0..64 {
                victim.endpoint.send(liar.channel, b"").expect("room");
            }
            liar.own.set(Line::Consumed, 40);
            victim.endpoint.send(liar.channel, b"").expect("room again");
            liar.own.set(Line::Consumed, 39);
        }),
        ("posted more than the ring holds", Breach::Index, |liar, victim| {
            liar.own.set(Line::Posted, 4097);
            send_copy(liar, victim, 10);
        }),
        ("posted without end", Breach::Index, |liar, victim| {
            liar.own.set(Line::Posted, u64::MAX);
            send_copy(liar, victim, 10);
        }),
        ("posted backwards", Breach::Index, |liar, victim| {
            liar.own.free()[0].store(run(0, 1, 0), Ordering::Relaxed);
            liar.own.free()[1].store(run(1, 1, 1), Ordering::Relaxed);
            liar.own.set(Line::Posted, 2);
            send_copy(liar, victim, 8192);
            liar.own.set(Line::Posted, 1);
            send_copy(liar, victim, 10);
        }),
        ("taken before anything was posted", Breach::Index, |liar, victim| {
            liar.own.set(Line::Taken, 1);
            assert!(victim.endpoint.post(liar.channel, 4096, 1).is_err());
        }),
        ("returned more than the ring holds", Breach::Index, |liar, victim| {
            lend(liar, victim, 1);
            liar.own.set(Line::Returned, 4097);
        }),
        ("returned backwards", Breach::Index, |liar, victim| {
            let lent = lend(liar, victim, 2);
            liar.own.returns()[0].store(lent[0], Ordering::Relaxed);
            liar.own.set(Line::Returned, 1);
            while victim.endpoint.counter(cutthrough::Counter::PagesReturned) == 0 {
                assert!(victim.endpoint.poll().is_none());
            }
            liar.own.set(Line::Returned, 0);
        }),
        ("reclaimed what was not returned", Breach::Index, |liar, victim| {
            liar.own.set(Line::Reclaimed, u64::MAX);
            for number in 0..4097 {
                liar.say(Kind::Reference, 1, 1, run(0, 1, 0), number);
                drop(victim.message());
                assert!(number == 4096 || victim.endpoint.poll().is_none());
            }
        }),
    ]);
}

#[test]
fn progress_that_cannot_be_true() {
    tell(&[
        ("staged beyond the ring", Breach::Progress, |liar, victim| read_some(liar, victim, &[(64 << 10) + 1])),
        ("staged without end", Breach::Progress, |liar, victim| read_some(liar, victim, &[u64::MAX])),
        ("staged backwards", Breach::Progress, |liar, victim| read_some(liar, victim, &[1000, 999])),
        ("a second half beyond the ring", Breach::Progress, |liar, victim| {
            liar.say(Kind::Staged, 0, 4096, 2048, 0);
            liar.own.set(Line::Staged, (64 << 10) + 1);
            let mut message = victim.message();
            let _ = victim.endpoint.read(&mut message, &mut [0; 4096]);
        }),
        ("announced more than the payload", Breach::Progress, |liar, _| liar.say(Kind::Staged, 0, 10, 11, 0)),
        ("announced more than the ring", Breach::Progress, |liar, _| {
            liar.say(Kind::Staged, 0, 1 << 20, (64 << 10) + 1, 0);
        }),
        ("drained what was not staged", Breach::Progress, |liar, victim| {
            liar.own.set(Line::Drained, 1);
            send_copy(liar, victim, 100_000);
        }),
        ("drained without end", Breach::Progress, |liar, victim| {
            liar.own.set(Line::Drained, u64::MAX);
            send_copy(liar, victim, 100_000);
        }),
        ("drained backwards", Breach::Progress, |liar, victim| {
            send_copy(liar, victim, 1000);
            liar.own.set(Line::Drained, 1000);
            send_copy(liar, victim, 65_000);
            liar.own.set(Line::Drained, 999);
            send_copy(liar, victim, 1000);
        }),
    ]);
}

#[test]
fn descriptors_that_make_no_sense() {
    tell(&[
        ("a kind without meaning", Breach::Descriptor, |liar, _| liar.publish([77 << 8, 0, 0])),
        ("the last kind", Breach::Descriptor, |liar, _| liar.publish([255 << 8, 0, 0])),
        ("a control message that does not fit", Breach::Length, |liar, _| liar.publish([97, 0, 0])),
        ("the longest control message", Breach::Length, |liar, _| liar.publish([255, 0, 0])),
        ("a payload above 1 GiB", Breach::Length, |liar, _| liar.publish([4 << 8 | ((1 << 30) + 1) << 32, 0, 0])),
        ("the longest payload", Breach::Length, |liar, _| liar.publish([1 << 8 | 1 << 16 | 0xffff_ffff << 32, 0, 0])),
        ("a control message with payload", Breach::Descriptor, |liar, _| liar.say(Kind::Control, 0, 1, 0, 0)),
        ("a control message with runs", Breach::Descriptor, |liar, _| liar.say(Kind::Control, 1, 0, 0, 0)),
        ("a reference to no runs", Breach::Descriptor, |liar, _| liar.say(Kind::Reference, 0, 1, 0, 0)),
        ("a put into no runs", Breach::Descriptor, |liar, _| liar.say(Kind::Put, 0, 1, 0, 0)),
        ("a fetch from no runs", Breach::Descriptor, |liar, _| liar.say(Kind::GetToken, 0, 1, 0, 0)),
        ("a staged payload with runs", Breach::Descriptor, |liar, _| liar.say(Kind::Staged, 1, 1, 0, 0)),
        ("a dropped payload with runs", Breach::Descriptor, |liar, _| liar.say(Kind::Dropped, 1, 1, 0, 0)),
        ("a put by token with runs", Breach::Descriptor, |liar, _| liar.say(Kind::PutToken, 1, 1, 0, 0)),
        ("a list longer than its ring", Breach::Index, |liar, _| liar.say(Kind::Reference, 5000, 1, 0, 0)),
        ("the longest list", Breach::Index, |liar, _| liar.say(Kind::GetToken, u16::MAX, 1, 0, 0)),
    ]);
}

#[test]
fn pages_that_were_not_given() {
    tell(&[
        ("a reference beyond the pool", Breach::Page, |liar, _| liar.say(Kind::Reference, 1, 1, run(256, 1, 0), 0)),
        ("a reference across its end", Breach::Page, |liar, _| liar.say(Kind::Reference, 1, 1, run(255, 2, 0), 0)),
        ("a reference to no pages", Breach::Page, |liar, _| liar.say(Kind::Reference, 1, 0, run(0, 0, 0), 0)),
        ("the largest run", Breach::Page, |liar, _| liar.say(Kind::Reference, 1, 1, u64::MAX, 0)),
        ("a payload longer than its pages", Breach::Length, |liar, _| {
            liar.say(Kind::Reference, 1, 4097, run(0, 1, 0), 0);
        }),
        ("a bad run in a list", Breach::Page, |liar, _| {
            liar.own.runs()[0].store(run(0, 1, 0), Ordering::Relaxed);
            liar.own.runs()[1].store(run(300, 1, 0), Ordering::Relaxed);
            liar.say(Kind::Reference, 2, 8192, 0, 0);
        }),
        ("a bad run to fetch from", Breach::Page, |liar, _| {
            liar.own.runs()[2].store(run(256, 1, 0), Ordering::Relaxed);
            liar.say(Kind::GetToken, 1, 10, 0, 0);
        }),
        ("a put into a run that was never posted", Breach::Page, |liar, _| liar.say(Kind::Put, 1, 1, run(0, 1, 0), 0)),
        ("a put into a run twice", Breach::Page, |liar, victim| {
            assert_eq!(victim.endpoint.post(liar.channel, 4096, 1), Ok(1));
            liar.say(Kind::Put, 1, 1, run(0, 1, 0), 0);
            let held = victim.message();
            liar.say(Kind::Put, 1, 1, run(0, 1, 0), 0);
            victim.forget(held);
        }),
        ("a put longer than its run", Breach::Length, |liar, victim| {
            assert_eq!(victim.endpoint.post(liar.channel, 4096, 1), Ok(1));
            liar.say(Kind::Put, 1, 4097, run(0, 256, 0), 0);
        }),
        ("a posted run beyond the landing memory", Breach::Page, |liar, victim| {
            liar.own.free()[0].store(run(255, 2, 0), Ordering::Relaxed);
            liar.own.set(Line::Posted, 1);
            send_copy(liar, victim, 10);
        }),
        ("a posted run of no pages", Breach::Page, |liar, victim| {
            liar.own.free()[0].store(run(0, 0, 0), Ordering::Relaxed);
            liar.own.set(Line::Posted, 1);
            send_copy(liar, victim, 10);
        }),
        ("a granted place beyond the landing memory", Breach::Page, |liar, victim| {
            liar.own.set_token(3, 99, Place::Pages { first: 256, count: 1 });
            let token = Token { index: 3, key: 99 };
            let outgoing = victim.endpoint.outgoing(liar.channel).expect("a slot");
            assert!(outgoing.attach_copy(b"payload").to(token).send().is_err());
        }),
    ]);
}

#[test]
fn lends_and_tokens_that_are_not() {
    tell(&[
        ("the return of a number that is not lent", Breach::Lend, |liar, victim| {
            lend(liar, victim, 1);
            liar.own.returns()[0].store(77, Ordering::Relaxed);
            liar.own.set(Line::Returned, 1);
        }),
        ("the return of an older lend", Breach::Lend, |liar, victim| {
            let lent = lend(liar, victim, 1);
            liar.own.returns()[0].store(lent[0] ^ 1 << 32, Ordering::Relaxed);
            liar.own.set(Line::Returned, 1);
        }),
        ("a double return", Breach::Lend, |liar, victim| {
            let lent = lend(liar, victim, 2);
            liar.own.returns()[0].store(lent[0], Ordering::Relaxed);
            liar.own.returns()[1].store(lent[0], Ordering::Relaxed);
            liar.own.set(Line::Returned, 2);
        }),
        ("more lends than pages", Breach::Lend, |liar, victim| {
            for number in 0..256 + 1024 {
                liar.say(Kind::Reference, 1, 1, run(0, 1, 0), number);
                let message = victim.message();
                victim.forget(message);
            }
            liar.say(Kind::Reference, 1, 1, run(0, 1, 0), 256 + 1024);
        }),
        ("more lends than pages, all of them dropped and none taken back", Breach::Lend, |liar, victim| {
            for number in 0..4096 + 256 + 1024 {
                liar.say(Kind::Reference, 1, 1, run(0, 1, 0), number);
                drop(victim.message());
                assert!(victim.endpoint.poll().is_none());
            }
            liar.say(Kind::Reference, 1, 1, run(0, 1, 0), 0);
        }),
        ("a put to a token of private memory", Breach::Descriptor, |liar, victim| {
            let token = victim.endpoint.grant(liar.channel, Landing::Buffer(vec![0; 10])).expect("a token");
            liar.say(Kind::PutToken, 0, 1, token.index.into(), token.key);
        }),
        ("a staged payload to a token of pages", Breach::Descriptor, |liar, victim| {
            let token = victim.endpoint.grant(liar.channel, Landing::Pages(10)).expect("a token");
            liar.say(Kind::StagedToken, 0, 1, u64::from(token.index) << 32, token.key);
        }),
        ("a put longer than its token's pages", Breach::Length, |liar, victim| {
            let token = victim.endpoint.grant(liar.channel, Landing::Pages(4096)).expect("a token");
            liar.say(Kind::PutToken, 0, 4097, token.index.into(), token.key);
        }),
    ]);
}

#[test]
fn tokens_that_are_not_good_drop_the_payload_alone() {
    let mut victim = Victim::open();
    let mut liar = Liar::join(&mut victim);
    let kept = victim.endpoint.grant(liar.channel, Landing::Buffer(vec![9; 10])).expect("a token");
    let dropped = |victim: &mut Victim, why: Refused| match victim.message().payload() {
        Payload::Dropped(reason) => assert_eq!(*reason, why),
        other => panic!("{other:?}"),
    };
    liar.say(Kind::PutToken, 0, 1, u64::MAX, u64::MAX);
    dropped(&mut victim, Refused::Wrong);
    liar.say(Kind::StagedToken, 0, 0, u64::from(kept.index) << 32, kept.key ^ 1);
    dropped(&mut victim, Refused::Wrong);
    liar.say(Kind::Dropped, 0, 1 << 30, u64::MAX, 0);
    dropped(&mut victim, Refused::Wrong);
    liar.say(Kind::Dropped, 0, 1 << 30, u64::from(kept.index) | 1 << 32, kept.key);
    dropped(&mut victim, Refused::TooLong);
    // The sender found it revoked when it looked, and it was granted again because a payload seemed to be on its way.
    for other_bits in [0, 1 << 16, 1 << 33, !0 << 33] {
        liar.say(Kind::Dropped, 0, 1, u64::from(kept.index) | other_bits, kept.key);
        dropped(&mut victim, Refused::Revoked);
    }
    liar.say(Kind::StagedToken, 0, 1 << 30, u64::from(kept.index) << 32, kept.key);
    dropped(&mut victim, Refused::TooLong);
    let untouched = victim.endpoint.revoke(liar.channel, kept);
    assert_eq!(untouched, Ok(Landing::Buffer(vec![9; 10])));
}

#[test]
fn stamps_that_are_not_due_are_never_there() {
    let mut victim = Victim::open();
    let liar = Liar::join(&mut victim);
    for place in 0..u64::from(sizes().slots) {
        liar.out.word(liar.slot(place)).store(if place == 0 { u64::MAX } else { 5000 }, Ordering::Release);
    }
    victim.honest_channel_works(1);
    assert!(victim.endpoint.poll().is_none());
}

#[test]
fn an_absurd_minpulse_does_no_harm() {
    let mut victim = Victim::open();
    for minpulse in [1, u64::MAX, 1 << 40] {
        let mut liar = Liar::join(&mut victim);
        let channel = liar.channel;
        liar.own.set_minpulse(minpulse);
        let done = AtomicBool::new(false);
        thread::scope(|scope| {
            scope.spawn(|| {
                while !done.load(Ordering::Relaxed) {
                    liar.take();
                    thread::yield_now();
                }
            });
            let payload = vec![3; 1 << 20];
            let outgoing = victim.endpoint.outgoing(channel).expect("a slot");
            let sent = outgoing.attach_copy(&payload).send();
            done.store(true, Ordering::Relaxed);
            sent.expect("sent");
        });
        victim.honest_channel_works(minpulse);
    }
}

/// A sender that lies about its part of a shared copy: the receiver copies everything itself, and soon.
#[test]
fn a_share_that_is_not_done_is_done_alone() {
    const LEN: usize = 100_000;
    let mut victim = Victim::open();
    for (begun, done) in [(0, u64::MAX), (u64::MAX, u64::MAX), (u64::MAX, 1), (0, 0), (50_000, 60_000)] {
        let mut liar = Liar::join(&mut victim);
        let token = victim.endpoint.grant(liar.channel, Landing::Pages(LEN)).expect("a token");
        let runs = liar.own.runs();
        for (place, word) in [token.index.into(), token.key, run(0, 25, 0)].into_iter().enumerate() {
            runs[place].store(word, Ordering::Relaxed);
        }
        liar.own.begin_share(Line::ShareSent, 1, begun, done);
        liar.say(Kind::Share, 1, 100_000, 0, 0);
        match victim.message().payload() {
            Payload::Landed(landed) => assert_eq!(landed.to_vec(), vec![0; LEN]),
            other => panic!("{other:?}"),
        }
        victim.endpoint.close(liar.channel);
        victim.honest_channel_works(begun);
    }
}

#[test]
fn a_flood_of_rings_does_no_harm() {
    let mut victim = Victim::open();
    let liar = Liar::join(&mut victim);
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                for _ in 0..1000 {
                    let _ = send(&liar.socket, b"ring", SendFlags::DONTWAIT | SendFlags::NOSIGNAL);
                }
            }
        });
        for round in 0..2000 {
            victim.honest_channel_works(round);
            if victim.endpoint.arm() {
                assert!(victim.endpoint.poll().is_none());
            }
        }
        done.store(true, Ordering::Relaxed);
    });
}

/// A peer that sleeps and waits for room whenever it is looked at costs one ring for each eighth of its ring.
#[test]
fn who_always_waits_for_room_costs_few_rings() {
    const MESSAGES: u64 = 640;
    let mut victim = Victim::open();
    let mut liar = Liar::join(&mut victim);
    let rung = |victim: &mut Victim| {
        keep_house(&mut victim.endpoint, |event| panic!("unasked: {event:?}"));
        victim.endpoint.counter(Counter::WakesSent)
    };
    let before = rung(&mut victim);
    for number in 0..MESSAGES {
        liar.own.set(Line::Armed, (number + 2) | ROOM);
        liar.say(Kind::Control, 0, 0, 0, 0);
        while victim.endpoint.poll().is_none() {}
    }
    let rung = rung(&mut victim) - before;
    // The last eighth is told with the next message.
    assert_eq!(rung, MESSAGES / (64 / 8) - 1);
    victim.honest_channel_works(1);
}

/// A short payload goes by halves. Who reads it waits for the second one, however late it is, and not without end.
#[test]
fn the_second_half_of_a_short_payload_may_be_late() {
    const LEN: u32 = 4096;
    let mut victim = Victim::open();
    let mut liar = Liar::join(&mut victim);
    let payload = cutthrough_conform::bytes::pattern(9, LEN as usize);
    let half = payload.len() / 2;
    let staging = liar.own.staging();
    staging.copy_in(0, &payload[..half], Copying::Pieces);
    liar.own.set(Line::Staged, half as u64);
    liar.say(Kind::Staged, 0, LEN, half as u64, 0);
    let mut message = victim.message();
    let mut bytes = vec![0; payload.len()];
    let valid = victim.endpoint.read_some(&mut message, &mut bytes).expect("it may go on");
    assert_eq!(valid, half, "what is there is shown");
    let own = &liar.own;
    thread::scope(|scope| {
        scope.spawn(|| {
            thread::sleep(std::time::Duration::from_millis(20));
            staging.copy_in(half as u64, &payload[half..], Copying::Pieces);
            own.set(Line::Staged, u64::from(LEN));
        });
        victim.endpoint.read(&mut message, &mut bytes).expect("all of it");
    });
    assert_eq!(bytes, payload);
    let base = u64::from(LEN);
    liar.own.set(Line::Staged, base + 1024);
    liar.say(Kind::Staged, 0, 2048, 1024, 0);
    let mut message = victim.message();
    victim.endpoint.read(&mut message, &mut bytes).expect_err("nothing more comes");
    victim.closed();
    victim.honest_channel_works(0);
}

#[test]
fn a_shorter_lap_while_the_ring_is_full_is_refused() {
    let mut victim = Victim::open();
    let long = Config { staging_bytes: 2 << 20, ..config() }.sizes().expect("good sizes");
    let mut liar = Liar::join_with(&mut victim, &long);
    // The whole ring is full behind a short payload, whose end the victim looks for.
    liar.own.set(Line::Staged, 2 << 20);
    liar.say(Kind::Staged, 0, 100, 0, 0);
    let mut short = victim.message();
    victim.endpoint.read(&mut short, &mut [0; 100]).expect("it is there");
    // The next goes round in 64 KiB of it, is longer than that, and would be there already.
    liar.say(Kind::Staged, 16, 512 << 10, 0, 0);
    // One behind it would have it set aside.
    liar.say(Kind::Staged, 16, 100, 0, 0);
    assert_eq!(breach(victim.closed()), Some(Breach::Progress));
    victim.honest_channel_works(0);
}

/// What a liar has sent is not told any more once a lie was found, whatever else is still told of its channel.
#[test]
fn nothing_of_a_liar_is_delivered_after_its_lie() {
    let mut victim = Victim::open();
    let mut liar = Liar::join(&mut victim);
    let lent: Vec<u64> = (0..2)
        .map(|cookie| {
            let page = victim.endpoint.page(liar.channel, 4096).expect("a page");
            let outgoing = victim.endpoint.outgoing(liar.channel).expect("a slot");
            outgoing.attach(page).track(cookie).send().expect("sent");
            let slots = liar.peer.slots(64);
            let number = usize::try_from(cookie).expect("one of two");
            cutthrough_segment::ring::Slots::slot(&slots, number).load(3, Ordering::Acquire)
        })
        .collect();
    liar.own.set(Line::Staged, 10_000);
    liar.say(Kind::Staged, 0, 10_000, 10_000, 0);
    let unread = victim.message();
    for (place, word) in lent.into_iter().enumerate() {
        liar.own.returns()[place].store(word, Ordering::Relaxed);
    }
    liar.own.set(Line::Returned, 2);
    liar.own.set(Line::Consumed, 1 << 40);
    let next = |victim: &mut Victim| loop {
        if let Some(event) = victim.endpoint.poll() {
            return event;
        }
    };
    while victim.endpoint.send(liar.channel, b"").is_ok() {}
    drop(unread);
    for cookie in 0..2 {
        assert!(matches!(next(&mut victim), Event::Completed(done) if done.cookie == cookie));
        liar.say(Kind::Control, 0, 0, 0, 0);
    }
    let event = next(&mut victim);
    assert!(matches!(event, Event::Closed(_, CloseReason::Breach(Breach::Index))), "{event:?}");
    victim.honest_channel_works(0);
}

/// Memory that a token named comes back, too, if its sender goes in the middle of the payload.
#[test]
fn what_was_granted_comes_back_from_who_goes_in_the_middle() {
    const LEN: u32 = 512 << 10;
    let mut victim = Victim::open();
    let liar = &mut Some(Liar::join(&mut victim));
    let channel = liar.as_ref().expect("here").channel;
    let token = victim.endpoint.grant(channel, Landing::Buffer(vec![1; LEN as usize + 1])).expect("a token");
    if let Some(liar) = liar.as_mut() {
        liar.own.set(Line::Staged, 10_000);
        liar.say(Kind::StagedToken, 0, LEN, 10_000 | u64::from(token.index) << 32, token.key);
        for _ in 0..100 {
            assert!(victim.endpoint.poll().is_none());
        }
        assert!(victim.endpoint.revoke(channel, token).is_err(), "it is being written");
    }
    *liar = None;
    assert_eq!(victim.closed(), CloseReason::Died);
    match victim.endpoint.revoke(channel, token) {
        Ok(Landing::Buffer(buffer)) => assert_eq!(buffer.len(), LEN as usize + 1),
        other => panic!("{other:?}"),
    }
    assert!(victim.endpoint.revoke(channel, token).is_err(), "it comes back once");
    victim.honest_channel_works(0);
}

/// And if its sender is found to lie there.
#[test]
fn what_was_granted_comes_back_from_who_lies_in_the_middle() {
    const LEN: u32 = 512 << 10;
    let mut victim = Victim::open();
    // Found by a poll, and by a wait for the liar in the middle of a payload of our own.
    for waits in [false, true] {
        let mut liar = Liar::join(&mut victim);
        let token = victim.endpoint.grant(liar.channel, Landing::Buffer(vec![1; LEN as usize])).expect("a token");
        liar.own.set(Line::Staged, 10_000);
        liar.say(Kind::StagedToken, 0, LEN, 10_000 | u64::from(token.index) << 32, token.key);
        assert!((0..100).all(|_| victim.endpoint.poll().is_none()));
        liar.own.set(Line::Staged, 9_999);
        if waits {
            send_copy(&liar, &mut victim, 1 << 20);
        }
        assert_eq!(breach(victim.closed()), Some(Breach::Progress));
        match victim.endpoint.revoke(liar.channel, token) {
            Ok(Landing::Buffer(buffer)) => assert_eq!(buffer.len(), LEN as usize),
            other => panic!("{other:?}"),
        }
        victim.honest_channel_works(0);
    }
}

#[test]
fn a_peer_that_stops_moving_ends_by_the_deadline() {
    let mut victim = Victim::open();
    let mut liar = Liar::join(&mut victim);
    let begun = std::time::Instant::now();
    send_copy(&liar, &mut victim, 1 << 20);
    assert_eq!(victim.closed(), CloseReason::Stalled);
    // One that goes on talking is not listened to any longer.
    liar = Liar::join(&mut victim);
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                liar.publish([0, 0, 0]);
            }
        });
        let outcome = victim.endpoint.outgoing(victim.endpoint.channels().last().expect("the liar"));
        let sent = outcome.expect("a slot").attach_copy(&vec![1; 1 << 20]).send();
        let reason = victim.closed();
        done.store(true, Ordering::Relaxed);
        assert!(sent.is_err());
        assert!(matches!(reason, CloseReason::Stalled | CloseReason::Breach(_)), "{reason}");
    });
    assert!(begun.elapsed() < crate::liar::PATIENCE);
    victim.honest_channel_works(0);
}
