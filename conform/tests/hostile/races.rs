//! What either side does step by step, where both keep the rules and are as quick or as slow as may be: nothing is
//! lost, and nothing is written twice.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use cutthrough::{Event, Landing, Path, Payload, Refused, RevokeError, Token};
use cutthrough_wire::layout::Line;
use cutthrough_wire::run::Run;
use cutthrough_wire::slot::Kind;
use cutthrough_wire::token::Place;

use crate::liar::{Liar, PATIENCE, Victim, sizes};

/// A token is revoked while its sender looks at it: the sender finds it gone, and we find the sender about to write.
/// Its message says that nothing was written, and then the pages are free again.
#[test]
fn a_token_that_both_sides_let_go_of_gives_its_pages_back() {
    let mut victim = Victim::open();
    let mut liar = Liar::join(&mut victim);
    let all = Landing::Pages(usize::try_from(sizes().landing_pages * sizes().page_bytes).expect("few bytes"));
    for _ in 0..3 {
        let token = victim.endpoint.grant(liar.channel, all.clone()).expect("all pages are free");
        liar.own.set_claim(token.index, token.key);
        assert_eq!(victim.endpoint.revoke(liar.channel, token), Err(RevokeError::InFlight));
        liar.own.set_claim(token.index, 0);
        liar.say(Kind::Dropped, 0, 1, token.index.into(), token.key);
        assert!(matches!(victim.message().payload(), Payload::Dropped(Refused::Revoked)));
        assert_eq!(liar.peer.token(token.index, token.key), None, "the token is dead");
        let refused = RevokeError::Refused(Refused::Revoked);
        assert_eq!(victim.endpoint.revoke(liar.channel, token), Err(refused), "and known to be");
    }
    victim.honest_channel_works(0);
}

/// What a token names is fetched by who has granted it, perhaps later: meanwhile nothing else is written there.
#[test]
fn a_token_is_used_up_by_a_list_that_will_be_fetched() {
    let mut victim = Victim::open();
    let liar = Liar::join(&mut victim);
    let token = Token { index: 0, key: 7 };
    liar.own.set_token(token.index, token.key, Place::Pages { first: 0, count: 2 });
    let pages = (0..2).map(|_| victim.endpoint.page(liar.channel, 4096).expect("a page")).collect();
    let listed = victim.endpoint.outgoing(liar.channel).expect("a slot").attach_list(pages).to(token).send();
    assert_eq!(listed.expect("sent").path, Path::Get);
    let copied = victim.endpoint.outgoing(liar.channel).expect("a slot").attach_copy(&[1; 4096]).to(token).send();
    assert_eq!(copied.expect("sent").path, Path::Dropped);
    // One that is too long for it uses nothing up.
    let token = Token { index: 1, key: 8 };
    liar.own.set_token(token.index, token.key, Place::Pages { first: 2, count: 1 });
    let pages = (0..2).map(|_| victim.endpoint.page(liar.channel, 4096).expect("a page")).collect();
    victim.endpoint.outgoing(liar.channel).expect("a slot").attach_list(pages).to(token).send().expect("sent");
    let copied = victim.endpoint.outgoing(liar.channel).expect("a slot").attach_copy(&[1; 4096]).to(token).send();
    assert_eq!(copied.expect("sent").path, Path::Put);
}

/// A list to a token that is not known uses up none that is.
#[test]
fn a_list_to_a_stale_token_uses_nothing_up() {
    let mut victim = Victim::open();
    let liar = Liar::join(&mut victim);
    let (good, stale) = (Token { index: 0, key: 7 }, Token { index: 0, key: 6 });
    liar.own.set_token(good.index, good.key, Place::Pages { first: 0, count: 1 });
    let copied = |victim: &mut Victim| {
        let outgoing = victim.endpoint.outgoing(liar.channel).expect("a slot");
        outgoing.attach_copy(&[1; 4096]).to(good).send().expect("sent").path
    };
    assert_eq!(copied(&mut victim), Path::Put);
    let page = victim.endpoint.page(liar.channel, 4096).expect("a page");
    let listed = victim.endpoint.outgoing(liar.channel).expect("a slot").attach_list(vec![page]).to(stale).send();
    assert_eq!(listed.expect("sent").path, Path::Get);
    assert_eq!(copied(&mut victim), Path::Dropped, "the first lies there, and may have been shown");
}

/// A payload that was read in part is set aside as soon as the rest of it leaves no room for the next one.
#[test]
fn what_fills_the_ring_unread_makes_way() {
    const RING: u32 = 64 << 10;
    let mut victim = Victim::open();
    for rest in [RING, RING - 127] {
        let mut liar = Liar::join(&mut victim);
        let whole = RING + rest;
        liar.own.set(Line::Staged, RING.into());
        liar.say(Kind::Staged, 0, whole, RING.into(), 0);
        let mut message = victim.message();
        let mut bytes = vec![0; whole as usize];
        let valid = victim.endpoint.read_some(&mut message, &mut bytes).expect("what is there");
        assert_eq!(valid, RING as usize);
        liar.own.set(Line::Staged, whole.into());
        let begun = std::time::Instant::now();
        while liar.peer.get(Line::Drained) < whole.into() {
            assert!(victim.endpoint.poll().is_none());
            assert!(begun.elapsed() < PATIENCE, "its sender would wait without end");
        }
        let valid = victim.endpoint.read_some(&mut message, &mut bytes).expect("all of it");
        assert_eq!(valid, bytes.len());
        victim.endpoint.close(liar.channel);
    }
    victim.honest_channel_works(0);
}

/// An empty payload begins where its start is within the ring, though nothing of it has to lie there.
#[test]
fn an_empty_payload_waits_for_room_to_begin_in() {
    const RING: u64 = 64 << 10;
    // Behind what fills the ring to its last byte, the next one would begin beyond it.
    const READ: u64 = 1001;
    let mut victim = Victim::open();
    let liar = Liar::join(&mut victim);
    let begun = std::time::Instant::now();
    thread::scope(|scope| {
        scope.spawn(|| {
            let wait_for = |staged: u64| {
                while liar.peer.get(Line::Staged) < staged && begun.elapsed() < PATIENCE {
                    thread::yield_now();
                }
            };
            wait_for(RING);
            liar.own.set(Line::Drained, READ);
            wait_for(RING + READ);
            thread::sleep(std::time::Duration::from_millis(20));
            assert!(liar.peer.get(Line::Staged) <= READ + RING, "more than the ring holds");
            liar.own.set(Line::Drained, READ + RING);
        });
        for len in [RING + READ, 0] {
            let payload = vec![1; usize::try_from(len).expect("few bytes")];
            let outgoing = victim.endpoint.outgoing(liar.channel).expect("a slot");
            outgoing.attach_copy(&payload).send().expect("sent");
        }
    });
    victim.honest_channel_works(0);
}

/// Who sends without end does not keep the other side from hearing what has completed.
#[test]
fn messages_without_end_keep_no_completion() {
    let mut victim = Victim::open();
    let mut liar = Liar::join(&mut victim);
    victim.endpoint.outgoing(liar.channel).expect("a slot").track(5).send().expect("sent");
    let completed = (0..10_000).any(|_| {
        while liar.has_room() {
            liar.say(Kind::Control, 0, 0, 0, 0);
        }
        match victim.endpoint.poll() {
            Some(Event::Completed(completion)) => completion.cookie == 5,
            other => {
                assert!(matches!(other, Some(Event::Message(_)) | None), "{other:?}");
                false
            }
        }
    });
    assert!(completed);
}

/// The words of a list are the sender's again as soon as its message counts as consumed, and not before they are read.
#[test]
fn a_list_is_read_before_its_words_are_given_back() {
    const RUNS: u16 = 4000;
    let layout = sizes().layout().expect("good sizes");
    // At some of these the receiver tells how far it is.
    for before in 0..sizes().slots / 8 * 2 {
        let mut victim = Victim::open();
        let mut liar = Liar::join(&mut victim);
        for _ in 0..before {
            liar.say(Kind::Control, 0, 0, 0, 0);
        }
        for place in 0..u64::from(RUNS) {
            liar.out
                .word(layout.runs + place * 8)
                .store(Run { first: 0, count: 1, id: 0 }.to_word(), Ordering::Relaxed);
        }
        liar.say(Kind::Reference, RUNS, u32::from(RUNS) * 4096, 0, 1);
        let waits = AtomicBool::new(false);
        let message = thread::scope(|scope| {
            let (Liar { out, peer, .. }, waits) = (&liar, &waits);
            scope.spawn(move || {
                waits.store(true, Ordering::Relaxed);
                let begun = std::time::Instant::now();
                while peer.get(Line::Consumed) <= u64::from(before) && begun.elapsed() < PATIENCE {
                    std::hint::spin_loop();
                }
                // They may be written over now, by the next list.
                for place in (0..u64::from(RUNS)).rev() {
                    out.word(layout.runs + place * 8).store(0, Ordering::Relaxed);
                }
            });
            while !waits.load(Ordering::Relaxed) {
                thread::yield_now();
            }
            (0..1_000_000).filter_map(|_| victim.endpoint.poll()).nth(before as usize)
        });
        assert!(matches!(&message, Some(Event::Message(message)) if message.is_loaded()), "{message:?}");
    }
}
