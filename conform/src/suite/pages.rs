//! Pages move by ownership: who holds them, and when they come back.

use std::time::Duration;

use cutthrough::{CloseReason, Config, Counter, Landing, NoMemory, Path, Payload, SendError};

use super::config;
use crate::bytes::{check, pattern};
use crate::join::landed;
use crate::{Capability, Join, Pair};

/// A dropped payload posts its pages again: two runs carry any number of messages.
pub fn the_free_queue_refills_by_drop(join: &dyn Join) {
    let mut pair = join.pair(config(), config());
    assert_eq!(pair.b.endpoint.post(pair.b.channel, 4096, 2), Ok(2));
    // Where messages cross a wire, each may wake a sleeper, which on a busy machine takes milliseconds.
    for number in 0..if pair.wire { 1000 } else { 10_000u64 } {
        let receipt = pair.a.send_copy(b"", &pattern(number, 4096), None);
        assert_eq!(receipt.path, pair.path(Path::Put), "message {number}");
        let message = pair.b.message();
        check(number, &landed(&message).to_vec());
        drop(message);
        assert!(pair.b.endpoint.poll().is_none());
    }
}

/// So does one that is given back by name, among others that are dropped, and one that holds nothing any more.
pub fn the_free_queue_refills_by_release(join: &dyn Join) {
    let mut pair = join.pair(config(), config());
    assert_eq!(pair.b.endpoint.post(pair.b.channel, 4096, 2), Ok(2));
    for number in 0..1000u64 {
        assert_eq!(pair.a.send_copy(b"", &pattern(number, 4096), None).path, pair.path(Path::Put), "message {number}");
        let mut message = pair.b.message();
        check(number, &landed(&message).to_vec());
        match number % 4 {
            0 => drop(message),
            1 => {
                drop(message.take_payload());
                pair.b.endpoint.release(message);
            }
            _ => pair.b.endpoint.release(message),
        }
        assert!(pair.b.endpoint.poll().is_none());
    }
    pair.a.send_copy(b"", &pattern(0, 4096), None);
    let message = pair.b.message();
    pair.b.endpoint.close(pair.b.channel);
    check(0, &landed(&message).to_vec());
    pair.b.endpoint.release(message);
}

/// A payload that lies in pages can be read as often as one likes; its receipt counts the copies.
pub fn a_payload_in_pages_can_be_read_often(join: &dyn Join) {
    let mut pair = join.pair(config(), config());
    assert_eq!(pair.b.endpoint.post(pair.b.channel, 4096, 1), Ok(1));
    assert_eq!(pair.a.send_copy(b"", &pattern(3, 4096), None).path, pair.path(Path::Put));
    let mut message = pair.b.message();
    let before = message.receipt().copies;
    for _ in 0..300 {
        pair.b.read_checked(&mut message, 3);
    }
    assert_eq!(message.receipt().copies, before + 300);
}

/// Unread private memory that is given back is thrown away, and holds nobody up.
pub fn a_payload_released_unread_is_gone(join: &dyn Join) {
    let mut pair = join.pair(config(), config());
    pair.both(
        |a| {
            for number in 0..20 {
                a.send_copy(b"", &pattern(number, 100_000), None);
            }
        },
        |b| {
            for number in 0..20 {
                let mut message = b.message();
                if number % 2 == 0 {
                    b.endpoint.release(message);
                } else {
                    b.read_checked(&mut message, number);
                }
            }
        },
    );
}

/// A payload taken out of its message keeps its pages until it is dropped; then they are posted again.
pub fn a_detached_payload_keeps_its_pages(join: &dyn Join) {
    let mut pair = join.pair(config(), config());
    assert_eq!(pair.b.endpoint.post(pair.b.channel, 4096, 4), Ok(4));
    let mut kept = Vec::new();
    for number in 0..4 {
        assert_eq!(pair.a.send_copy(b"", &pattern(number, 4096), None).path, pair.path(Path::Put));
        let mut message = pair.b.message();
        kept.push(message.take_payload());
        assert!(matches!(message.payload(), Payload::None));
    }
    let sent = pair.a.send_copy(b"", &pattern(9, 4096), None);
    assert_eq!(sent.path, pair.path(Path::CutThrough), "no page was free");
    let mut message = pair.b.message();
    assert!(matches!(message.payload(), Payload::Arriving(_)), "no page was free: {message:?}");
    pair.b.read_checked(&mut message, 9);
    for (number, payload) in (0..).zip(&kept) {
        match payload {
            Payload::Landed(landed) => check(number, &landed.to_vec()),
            other => panic!("{other:?}"),
        }
    }
    drop(kept);
    assert!(pair.b.endpoint.poll().is_none());
    assert_eq!(pair.a.send_copy(b"", &pattern(10, 4096), None).path, pair.path(Path::Put));
    check(10, &landed(&pair.b.message()).to_vec());
}

/// A page sent by reference comes back when its reader releases it, and not before: the completion says so.
pub fn a_released_page_completes(join: &dyn Join) {
    if join.skips(Capability::SharedPages) {
        return;
    }
    let mut pair = join.pair(config(), config());
    for cookie in 0..3 {
        let page = pair.a.endpoint.page(pair.a.channel, 4096).expect("a page");
        let outgoing = pair.a.endpoint.outgoing(pair.a.channel).expect("a slot");
        outgoing.attach(page).track(cookie).send().expect("sent");
    }
    let held: Vec<_> = (0..3).map(|_| pair.b.message()).collect();
    assert!(pair.b.endpoint.poll().is_none());
    assert!(pair.a.endpoint.poll().is_none(), "completed while it was read");
    // Released in any order, completed in the order of release; several at a time.
    for message in held.into_iter().rev() {
        drop(message);
    }
    assert!(pair.b.endpoint.poll().is_none());
    assert_eq!([pair.a.completed(), pair.a.completed(), pair.a.completed()], [2, 1, 0]);
    assert_eq!(pair.a.endpoint.counter(Counter::PagesReturned), 3);
}

/// What is still read when its channel ends completes no more, be it given back afterwards: the end is the last word.
pub fn what_is_out_at_the_end_never_completes(join: &dyn Join) {
    if join.skips(Capability::SharedPages) {
        return;
    }
    let mut pair = join.pair(config(), config());
    let mut held = Vec::new();
    for cookie in 0..2 {
        let page = pair.a.endpoint.page(pair.a.channel, 4096).expect("a page");
        let outgoing = pair.a.endpoint.outgoing(pair.a.channel).expect("a slot");
        outgoing.attach(page).track(cookie).send().expect("sent");
        held.push(pair.b.message());
    }
    held.pop();
    assert!(pair.b.endpoint.poll().is_none());
    pair.b.endpoint.close(pair.b.channel);
    // What was given back before is told before.
    assert_eq!(pair.a.completed(), 1);
    assert_eq!(pair.a.closed(), CloseReason::Peer);
    drop(held);
    for _ in 0..100 {
        assert!(pair.b.endpoint.poll().is_none());
        assert!(pair.a.endpoint.poll().is_none(), "told of a channel that has ended");
    }
}

/// A frozen page stays where it is. It is sent while others read it, alone, in lists and to where a token says, more
/// often than its pool has pages, and is there again when nobody has it any more.
pub fn a_frozen_page_is_sent_again_and_again(join: &dyn Join) {
    let small = Config { pool_bytes: 3 * 4096, ..config() };
    let mut pair = join.pair(small, config());
    let mut page = pair.a.endpoint.page(pair.a.channel, 4096).expect("a page");
    page.copy_from_slice(&pattern(7, 4096));
    let page = page.freeze();
    let again = page.clone();
    let mut held = Vec::new();
    for cookie in 0..20 {
        let outgoing = pair.a.endpoint.outgoing(pair.a.channel).expect("a slot");
        let receipt = outgoing.attach_frozen(&page).track(cookie).send().expect("sent");
        assert_eq!((receipt.path, receipt.bytes), (pair.path(Path::Reference), 4096));
        let mut message = pair.b.message();
        pair.b.read_checked(&mut message, 7);
        held.push(message);
    }
    drop(page);
    // Behind a page that is sent once, and before one.
    for frozen_first in [true, false] {
        let mut own = pair.a.endpoint.page(pair.a.channel, 4096).expect("a page");
        own.copy_from_slice(&pattern(8, 4096));
        let [frozen, own] = [again.clone(), own.freeze()];
        let pages = if frozen_first { [&frozen, &own] } else { [&own, &frozen] };
        let outgoing = pair.a.endpoint.outgoing(pair.a.channel).expect("a slot");
        outgoing.attach_frozen_list(&pages).track(20).send().expect("sent");
        let mut message = pair.b.message();
        let mut both = [0; 2 * 4096];
        pair.b.endpoint.read(&mut message, &mut both).expect("a payload");
        let expected = if frozen_first { [7, 8] } else { [8, 7] };
        expected.iter().zip(both.chunks(4096)).for_each(|(seed, bytes)| check(*seed, bytes));
        held.push(message);
    }
    let token = pair.b.endpoint.grant(pair.b.channel, Landing::Buffer(vec![0; 4096])).expect("a token");
    let outgoing = pair.a.endpoint.outgoing(pair.a.channel).expect("a slot");
    outgoing.attach_frozen(&again).to(token).track(22).send().expect("sent");
    let message = pair.b.message();
    let Payload::Buffer(bytes) = message.payload() else { panic!("{message:?}") };
    check(7, bytes);
    held.push(message);
    held.into_iter().for_each(drop);
    assert!(pair.b.endpoint.poll().is_none());
    let mut completed: Vec<_> = (0..23).map(|_| pair.a.completed()).collect();
    completed.sort_unstable();
    assert_eq!(completed, (0..20).chain([20, 20, 22]).collect::<Vec<_>>());
    check(7, &again);
    // Nobody reads it any more, but it is kept.
    assert_eq!(pair.a.endpoint.page(pair.a.channel, 3 * 4096).map(|_| ()), Err(NoMemory::NoPages));
    drop(again);
    pair.a.endpoint.page(pair.a.channel, 3 * 4096).expect("all pages");
}

/// What nobody reads on is lent any number of times, up to a bound: then the sender is told to wait.
pub fn frozen_pages_are_lent_up_to_a_bound(join: &dyn Join) {
    if join.skips(Capability::SharedPages) {
        return;
    }
    let mut pair = join.pair(Config { pool_bytes: 4096, ..config() }, config());
    let page = pair.a.endpoint.page(pair.a.channel, 4096).expect("a page").freeze();
    let mut held = Vec::new();
    let refused = loop {
        let room = pair.a.endpoint.has_room_for_list(pair.a.channel, 1);
        let outgoing = pair.a.endpoint.outgoing(pair.a.channel).expect("a slot");
        match outgoing.attach_frozen(&page).send() {
            Ok(_) => held.push(pair.b.message()),
            Err(error) => break (room, error),
        }
        assert!(room && held.len() <= 1024, "{} are lent", held.len());
    };
    assert_eq!((refused, held.len()), ((false, SendError::TooManyRuns), 1024));
    held.truncate(1000);
    assert!(pair.b.endpoint.poll().is_none());
    assert!(pair.a.endpoint.poll().is_none());
    assert!(pair.a.endpoint.has_room_for_list(pair.a.channel, 1));
    pair.a.endpoint.outgoing(pair.a.channel).expect("a slot").attach_frozen(&page).send().expect("sent");
    drop(pair.b.message());
    pair.b.say(b"still here");
    assert_eq!(pair.a.message().control(), b"still here");
}

/// A copied payload's memory may be used again at once; its completion comes all the same.
pub fn private_memory_completes_at_once(join: &dyn Join) {
    let mut pair = join.pair(config(), config());
    let payload = pattern(5, 100);
    for cookie in [7, 8] {
        let outgoing = pair.a.endpoint.outgoing(pair.a.channel).expect("a slot");
        outgoing.attach_copy(&payload).track(cookie).send().expect("sent");
    }
    let outgoing = pair.a.endpoint.outgoing(pair.a.channel).expect("a slot");
    outgoing.track(9).send().expect("sent");
    assert_eq!([pair.a.completed(), pair.a.completed(), pair.a.completed()], [7, 8, 9]);
}

/// Pages that are dropped, or attached to a message that is not sent, go back to their pool.
pub fn unsent_pages_go_back(join: &dyn Join) {
    if join.skips(Capability::SharedPages) {
        return;
    }
    let small = Config { pool_bytes: 8 * 4096, ..config() };
    let mut pair = join.pair(small, config());
    for _ in 0..100 {
        let page = pair.a.endpoint.page(pair.a.channel, 8 * 4096).expect("all pages");
        drop(pair.a.endpoint.outgoing(pair.a.channel).expect("a slot").write(b"no").attach(page));
        drop(pair.a.endpoint.page(pair.a.channel, 5 * 4096).expect("five pages"));
    }
    pair.a.say(b"yes");
    assert_eq!(pair.b.message().control(), b"yes");
}

/// A page goes only through the channel that it was taken from, and is not lost by the attempt.
pub fn foreign_pages_are_refused(join: &dyn Join) {
    if join.skips(Capability::SharedPages) {
        return;
    }
    let small = Config { pool_bytes: 4096, ..config() };
    let mut one = join.pair(small.clone(), config());
    let mut other = join.pair(small, config());
    let page = one.a.endpoint.page(one.a.channel, 4096).expect("a page");
    let outgoing = other.a.endpoint.outgoing(other.a.channel).expect("a slot");
    assert_eq!(outgoing.attach(page).send().map(|_| ()), Err(SendError::ForeignPage));
    one.a.endpoint.page(one.a.channel, 4096).expect("it came back");
    other.a.say(b"still here");
    assert_eq!(other.b.message().control(), b"still here");
}

/// A list of no pages is no payload.
pub fn an_empty_list_is_no_payload(join: &dyn Join) {
    let mut pair = join.pair(config(), config());
    let outgoing = pair.a.endpoint.outgoing(pair.a.channel).expect("a slot");
    assert_eq!(outgoing.write(b"none").attach_list(Vec::new()).send().expect("sent").path, Path::None);
    let message = pair.b.message();
    assert_eq!((message.control(), message.payload_len()), (&b"none"[..], 0));
}

/// A pool without pages says so, and has them again when they come back.
pub fn an_empty_pool_says_so(join: &dyn Join) {
    if join.skips(Capability::SharedPages) {
        return;
    }
    let small = Config { pool_bytes: 4 * 4096, landing_bytes: 4 * 4096, ..config() };
    let mut pair = join.pair(small.clone(), small);
    pair.a.send_pages(b"", 1, &[4096; 4], None);
    assert_eq!(pair.a.endpoint.page(pair.a.channel, 1).map(|_| ()), Err(NoMemory::NoPages));
    drop(pair.b.message());
    assert!(pair.b.endpoint.poll().is_none());
    pair.a.endpoint.page(pair.a.channel, 4 * 4096).expect("they came back");
    assert_eq!(pair.b.endpoint.post(pair.b.channel, 4096, 9), Ok(4));
    assert_eq!(pair.b.endpoint.post(pair.b.channel, 4096, 1), Err(NoMemory::NoPages));
    let long = usize::try_from(cutthrough::PAYLOAD_MAX).unwrap_or(usize::MAX) + 1;
    assert_eq!(pair.a.endpoint.page(pair.a.channel, long).map(|_| ()), Err(NoMemory::TooLong));
    assert_eq!(pair.b.endpoint.post(pair.b.channel, long, 1), Err(NoMemory::TooLong));
}

/// Lists of pages go on for ever, while the receiver only polls: it tells the sender of the room they left.
pub fn a_thousand_lists_of_pages(join: &dyn Join) {
    if join.skips(Capability::SharedPages) {
        return;
    }
    let mut pair = join.pair(Config::default(), Config::default());
    for number in 0..1000 {
        pair.a.send_pages(b"", number, &[4096; 100], None);
        let message = loop {
            if let Some(cutthrough::Event::Message(message)) = pair.b.endpoint.poll() {
                break message;
            }
        };
        check(number, &landed(&message).to_vec());
        drop(message);
        assert!(pair.b.endpoint.poll().is_none());
    }
}

/// Pages that name no place, for which there is no room in the receiver's landing memory and will be none, are read
/// like private memory; those for which there will be some wait for it.
pub fn pages_without_room_to_land_come_all_the_same(join: &dyn Join) {
    let config = || Config { landing_bytes: 8 * 4096, deadline: Duration::from_secs(5), ..config() };
    let mut pair = join.pair(config(), config());
    let arrives = |pair: &mut Pair, seed: u64, pages: usize| {
        pair.a.send_pages(b"", seed, &[pages * 4096], None);
        let mut message = pair.b.message();
        pair.b.read_checked(&mut message, seed);
        message
    };
    // Longer than all of it.
    for pages in [9, 8, 100, 8, 8] {
        drop(arrives(&mut pair, pages as u64, pages));
    }
    // Longer than what tokens leave of it, behind which the payload comes that one of them names.
    let token = pair.b.endpoint.grant(pair.b.channel, Landing::Pages(5 * 4096)).expect("a token");
    pair.a.send_pages(b"", 1, &[4 * 4096], None);
    pair.a.send_pages(b"", 2, &[5 * 4096], Some(token));
    for seed in [1, 2] {
        let mut message = pair.b.message();
        pair.b.read_checked(&mut message, seed);
    }
    // What is left is in two parts, though it would be enough.
    let token = pair.b.endpoint.grant(pair.b.channel, Landing::Pages(3 * 4096)).expect("a token");
    let between = pair.b.endpoint.grant(pair.b.channel, Landing::Pages(4096)).expect("a token");
    pair.b.endpoint.revoke(pair.b.channel, token).expect("it is good");
    drop(arrives(&mut pair, 3, 7));
    pair.b.endpoint.revoke(pair.b.channel, between).expect("it is good");
    // Longer than what was posted, and than what that leaves.
    assert_eq!(pair.b.endpoint.post(pair.b.channel, 4096, 3), Ok(3));
    drop(arrives(&mut pair, 4, 7));
    drop(pair);
    // What the receiver holds comes back: who waits for it is not read elsewhere.
    let mut pair = join.pair(config(), config());
    let held = arrives(&mut pair, 5, 5);
    pair.a.send_pages(b"", 6, &[4 * 4096], None);
    if matches!(held.payload(), Payload::Landed(_)) && pair.wire {
        assert!((0..100).all(|_| pair.b.endpoint.poll().is_none()));
    }
    drop(held);
    let message = pair.b.message();
    check(6, &landed(&message).to_vec());
}
