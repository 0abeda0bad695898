//! A peer that shares copies with its victim, and lies about how far it has come while the victim copies.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use cutthrough::{Landing, Path, Payload, Token};
use cutthrough_segment::map::Mapping;
use cutthrough_segment::ring::Slots;
use cutthrough_wire::layout::{Line, RECORDS, RUNS};
use cutthrough_wire::run::Run;
use cutthrough_wire::slot::{Header, Kind};
use cutthrough_wire::token::Place;

use crate::liar::{Liar, Victim, sizes};
use crate::scribble::Dice;

/// Payloads that are shared in each direction.
const ROUNDS: u64 = 1000;
/// Bytes of each: many chunks of a shared copy, the last of them short.
const LEN: usize = 200_001;

/// Moves the lines of shared copies to and fro until it is told to stop. Mostly they are about the message on its way.
fn move_lines(out: &Mapping, message: &AtomicU64, stop: &AtomicBool) {
    let mut dice = Dice::new(1);
    while !stop.load(Ordering::Relaxed) {
        let number = message.load(Ordering::Relaxed);
        for line in [Line::ShareSent, Line::ShareTaken] {
            let word = |word: u64| out.word(line.offset() + word * 8);
            for part in [1, 2] {
                let far = if dice.below(2) == 0 { dice.below(LEN as u64 + 2) } else { dice.number() };
                word(part).store(far, Ordering::Release);
            }
            let about = [number, number, number, number - 1, number + 1, dice.number()];
            word(0).store(about[usize::try_from(dice.below(6)).unwrap_or(0)], Ordering::Release);
        }
        if dice.below(16) == 0 {
            thread::yield_now();
        }
    }
}

/// Does something round after round, `act` with the number of the message, while a liar moves its lines.
fn survive(mut act: impl FnMut(&mut Victim, &mut Liar, u64)) {
    let mut victim = Victim::open();
    let mut liar = Liar::join(&mut victim);
    let out = Arc::clone(&liar.out);
    let (message, stop) = (AtomicU64::new(1), AtomicBool::new(false));
    thread::scope(|scope| {
        scope.spawn(|| move_lines(&out, &message, &stop));
        let done = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            for number in 1..=ROUNDS {
                message.store(number, Ordering::Relaxed);
                act(&mut victim, &mut liar, number);
            }
        }));
        stop.store(true, Ordering::Relaxed);
        done.expect("every round");
    });
    victim.honest_channel_works(1);
}

#[test]
fn a_victim_that_receives_its_part_survives_any_lines() {
    let layout = sizes().layout().expect("good sizes");
    let run = Run { first: 0, count: pages(), id: 0 }.to_word();
    survive(|victim, liar, number| {
        let token = victim.endpoint.grant(liar.channel, Landing::Pages(LEN)).expect("room for one payload");
        let out = Arc::clone(&liar.out);
        for (place, word) in ((number - 1) * 3..).zip([u64::from(token.index), token.key, run]) {
            out.word(layout.runs + place % u64::from(RUNS) * 8).store(word, Ordering::Relaxed);
        }
        liar.say(Kind::Share, 1, u32::try_from(LEN).expect("few bytes"), 0, number);
        let message = victim.message();
        assert!(matches!(message.receipt().path, Path::Put | Path::Shared | Path::Get));
        assert!(matches!(message.payload(), Payload::Landed(landed) if landed.len() == LEN));
        drop(message);
        liar.own.set(Line::Reclaimed, liar.peer.get(Line::Returned));
    });
}

#[test]
fn a_victim_that_sends_its_part_survives_any_lines() {
    let layout = sizes().layout().expect("good sizes");
    let (mut together, mut returned) = (0, 0);
    survive(|victim, liar, number| {
        let token = Token { index: 0, key: number };
        liar.own.set_token(token.index, token.key, Place::Pages { first: 0, count: pages() });
        let page = victim.endpoint.page(liar.channel, LEN).expect("a page");
        let outgoing = victim.endpoint.outgoing(liar.channel).expect("a slot");
        let sent = outgoing.attach(page).to(token).send().expect("sent");
        assert!(matches!(sent.path, Path::Put | Path::Shared), "{sent:?}");
        let slots = liar.peer.slots(sizes().slots);
        let slot = Slots::slot(&slots, usize::try_from(number - 1).unwrap_or(0) % slots.count());
        let words = [1, 2, 3].map(|word: usize| slot.load(word, Ordering::Relaxed));
        let header = Header::from_words(words).expect("a header");
        if header.kind == Kind::Share {
            together += 1;
            let place = layout.returns + returned % u64::from(RECORDS) * 8;
            liar.out.word(place).store(header.name, Ordering::Relaxed);
            returned += 1;
            liar.own.set(Line::Returned, returned);
        }
        liar.own.set(Line::Consumed, number);
    });
    assert!(together > 0, "no copy was shared");
}

/// Pages of a payload.
fn pages() -> u32 {
    u32::try_from(LEN).expect("few bytes").div_ceil(sizes().page_bytes)
}
