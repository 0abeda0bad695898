//! Quiet moments (rule N17): who calls them, who hears of them, and what they show. What they are for is shown by
//! `sim/tests/links.rs`.

use cutthrough_engine::net::Cargo;
use cutthrough_engine::net::batch::Batch;
use cutthrough_wire::frame::{Header, Kind};

use super::rules::{Forger, VICTIM, still_works, world};
use super::wire::{World, pattern};

const MS: u64 = 1_000_000;

/// A forger's frame that asks for a moment, or says how many it has called.
fn says(forger: &mut Forger, world: &mut World, calls: u8, asks: u8) {
    let header = Header { calls, asks, ..forger.header(Kind::Probe, [0, 0], &[]) };
    forger.number += 1;
    forger.bring(world, &header, &[]);
}

/// Has the victim send all that it can: how many moments it says to have called, to each of these.
fn called<const N: usize>(forgers: [&Forger; N], world: &mut World) -> [Vec<u8>; N] {
    let (now, net) = (world.now(), &mut world.nodes[VICTIM].net);
    let (mut batch, mut calls) = (Batch::default(), [const { Vec::new() }; N]);
    net.tick(now);
    net.hurry();
    while let Some((index, _)) = net.batch(now, &mut batch, 65_000) {
        let header = Header::from_bytes(batch.own().first_chunk().unwrap()).unwrap();
        let to = forgers.iter().position(|forger| forger.tag as usize == index);
        to.into_iter().for_each(|to| calls[to].push(header.calls));
    }
    calls
}

#[test]
fn who_asks_is_called_together_with_all_others() {
    let (mut world, _, mut one) = world();
    let mut other = Forger::joined_as(&mut world, 10);
    assert!(called([&one, &other], &mut world).concat().iter().all(|calls| *calls == 0));
    says(&mut one, &mut world, 0, 10);
    // The other has asked for nothing, nor is anything owed to it.
    assert_eq!(called([&one, &other], &mut world), [[1], [1]]);
    // Not again before long, whoever asks.
    for _ in 0..100 {
        world.pass(MS);
        says(&mut one, &mut world, 0, 1);
        says(&mut other, &mut world, 0, 10);
    }
    let [to_one, to_other] = called([&one, &other], &mut world);
    assert!([to_one, to_other].concat().iter().all(|calls| *calls == 1));
    world.pass(200 * MS);
    says(&mut other, &mut world, 0, 10);
    assert_eq!(called([&one, &other], &mut world), [[2], [2]]);
    // One that says to be far away has to wait longer.
    world.pass(300 * MS);
    says(&mut one, &mut world, 0, 31);
    assert_eq!(called([&one], &mut world), [[2]]);
    // Who is not heard is not called: when it comes back that would be over.
    let third = Forger::joined_as(&mut world, 11);
    assert_eq!(called([&third], &mut world), [[0]]);
    world.pass(1_100 * MS);
    says(&mut other, &mut world, 0, 10);
    says(&mut one, &mut world, 0, 0);
    assert_eq!(called([&one, &other], &mut world), [[2], [3]]);
}

/// How many frames the victim sends now.
fn sends(world: &mut World) -> u64 {
    let before = world.nodes[VICTIM].net.tally().frames_sent;
    called([], world);
    world.nodes[VICTIM].net.tally().frames_sent - before
}

/// To somebody who acknowledges nothing.
#[test]
fn who_is_called_sends_a_frame_at_a_time_and_goes_on() {
    for calls in [0, 1] {
        let (mut world, a, mut forger) = world();
        says(&mut forger, &mut world, calls, 0);
        let cargo = Cargo { load: pattern(1, 60_000), token: None, pages: false, cookie: None };
        world.nodes[VICTIM].net.send(forger.tag as usize, b"long", Some(cargo)).unwrap();
        let sent = sends(&mut world);
        assert!(if calls == 1 { sent == 1 } else { sent > 30 }, "{sent} frames");
        // The moment is over before long: then the rest goes, though nobody has said anything more.
        world.pass(20 * MS);
        let then = sends(&mut world);
        assert!(sent + then > 30, "{sent} frames, and {then}");
        still_works(&mut world, a);
    }
}

/// What the victim sends to one now: kinds of frames, and one past the number of the last of them.
fn kinds(world: &mut World, forger: &Forger) -> (Vec<Kind>, u64) {
    let (now, net) = (world.now(), &mut world.nodes[VICTIM].net);
    let (mut batch, mut kinds, mut next) = (Batch::default(), Vec::new(), 0);
    net.tick(now);
    net.hurry();
    while let Some((index, _)) = net.batch(now, &mut batch, 65_000) {
        if index == forger.tag as usize {
            let header = Header::from_bytes(batch.own().first_chunk().unwrap()).unwrap();
            kinds.push(header.kind);
            next = header.number + 1;
        }
    }
    (kinds, next)
}

/// Where nothing else is under way, what goes by itself as a whole is one of those frames, or goes after the moment.
#[test]
fn who_is_called_sends_a_short_payload() {
    let (mut world, a, mut forger) = world();
    says(&mut forger, &mut world, 0, 0);
    let (_, next) = kinds(&mut world, &forger);
    // It has all of that, and calls. The answer is not under way: nobody acknowledges it.
    let header = Header { calls: 1, below: u32::try_from(next).unwrap(), ..forger.header(Kind::Probe, [0, 0], &[]) };
    forger.number += 1;
    forger.bring(&mut world, &header, &[]);
    assert_eq!(kinds(&mut world, &forger).0, [Kind::Note]);
    let cargo = Cargo { load: pattern(1, 300), token: None, pages: false, cookie: None };
    world.nodes[VICTIM].net.send(forger.tag as usize, b"short", Some(cargo)).unwrap();
    let (mut sent, _) = kinds(&mut world, &forger);
    world.pass(20 * MS);
    sent.extend(kinds(&mut world, &forger).0);
    assert!(sent.contains(&Kind::Open), "it never leaves: {sent:?}");
    still_works(&mut world, a);
}
