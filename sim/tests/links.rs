//! Ways that are not like a machine room: what they carry, in virtual time, by the engine's own code. Each run is the
//! same, so these are counts.

use std::thread;

use cutthrough_sim::fault::links::cases::{
    Crowd, MEGABIT, MILLISECOND, SECOND, beside_idle, evenness, far, late_frames, longer, losses, outage, standstill,
    two_ways,
};

const GIGABIT: u64 = 1_000 * MEGABIT;

/// Runs each of these worlds beside the others, which takes as long as the longest of them.
fn at_once<T: Send, const N: usize>(worlds: [T; N], run: impl Fn(T) + Sync) {
    thread::scope(|scope| {
        let run = &run;
        worlds.into_iter().for_each(|world| drop(scope.spawn(move || run(world))));
    });
}

/// What came later than others by more than 1.5 round trips was refused as old, and 3.7 Mb/s were carried.
#[test]
fn ways_of_unequal_length_are_both_used() {
    let carried = two_ways(100 * MEGABIT, [MILLISECOND, 25 * MILLISECOND]);
    assert!(carried > 170.0, "{carried} Mb/s of 200");
}

#[test]
fn frames_that_come_late_now_and_then_do_not_stop_the_others() {
    let carried = late_frames(GIGABIT, 5 * MILLISECOND, (2, 20 * MILLISECOND));
    assert!(carried > 400.0, "{carried} Mb/s");
}

/// With 64 KiB at first frames waited for 94 ms.
#[test]
fn who_begins_on_a_slow_way_does_not_fill_it() {
    let crowd = Crowd { senders: 8, rate: 20 * MEGABIT, round: 20 * MILLISECOND, gap: 0, queue_ms: 1_000, ahead: 8 };
    let until = 20 * SECOND;
    let world = crowd.run(until);
    let waited = crowd.waited_ms(&world, until);
    assert!(waited < 45.0, "{waited} ms");
    let rates: Vec<f64> = (0..8).map(|sender| world.rate(sender, until / 2, until)).collect();
    assert!(evenness(&rates) > 0.95, "{rates:?}");
}

/// One of four had nothing for ever: the oldest of payloads that are equally long was left out. Then, at this gap, the
/// last one had 44 Mb/s: its window grew by a frame in a round where those of the others grew by a 64th of theirs.
#[test]
fn late_comers_get_their_share() {
    let gap = 550 * MILLISECOND;
    let crowd = Crowd { senders: 4, rate: GIGABIT, round: 10 * MILLISECOND, gap, queue_ms: 20, ahead: 32 };
    let world = crowd.run(5 * SECOND);
    let rates: Vec<f64> = (0..4).map(|sender| world.rate(sender, 3 * SECOND, 5 * SECOND)).collect();
    assert!(rates.iter().sum::<f64>() > 850.0 && evenness(&rates) > 0.98, "{rates:?}");
}

/// Who met the frames of the others took their queue for the way: frames waited for 2.6 ms of 4, and one sender had 21
/// Mb/s, another 287.
#[test]
fn who_begin_at_once_share_a_short_way() {
    let crowd = Crowd { senders: 8, rate: GIGABIT, round: 100_000, gap: 0, queue_ms: 4, ahead: 4 };
    let until = 2 * SECOND;
    let world = crowd.run(until);
    let waited = crowd.waited_ms(&world, until);
    assert!(waited < 1.2, "{waited} ms");
    let rates: Vec<f64> = (0..8).map(|sender| world.rate(sender, until / 2, until)).collect();
    assert!(rates.iter().sum::<f64>() > 850.0 && evenness(&rates) > 0.95, "{rates:?}");
}

/// Until the least round trip was forgotten, all above it was taken for a queue: 2 Mb/s for 6 s, and 22 at the shorter
/// way. And windows that had shrunk to four frames grew by a sixteenth in a round.
#[test]
fn a_way_that_has_become_longer_is_filled_before_long() {
    let at_least: [(_, _, &[(usize, f64)]); 2] = [(5, 50, &[(3, 200.0), (5, 350.0)]), (1, 3, &[(1, 800.0)])];
    at_once(at_least, |(before, after, at_least)| {
        let (_, rates) = longer(GIGABIT, before * MILLISECOND, after * MILLISECOND);
        assert!(at_least.iter().all(|(second, rate)| rates[*second] > *rate), "{rates:?}");
    });
}

/// Four frames of each are more than the way holds, so its queue is never empty. Once the way without it was forgotten,
/// each took the frames of the others for the way: after half a minute frames waited for 20 ms.
#[test]
fn a_crowd_does_not_forget_how_long_its_way_is() {
    at_once([0, 200 * MILLISECOND], |gap| {
        let crowd = Crowd { senders: 16, rate: 100 * MEGABIT, round: MILLISECOND, gap, queue_ms: 60, ahead: 4 };
        let until = 25 * SECOND;
        let world = crowd.run(until);
        let waited = crowd.waited_ms(&world, until);
        assert!(waited < 9.0 && world.link(0).dropped == 0, "{waited} ms, {} dropped", world.link(0).dropped);
        let rates: Vec<f64> = (0..16).map(|sender| world.rate(sender, until / 2, until)).collect();
        assert!(rates.iter().sum::<f64>() > 85.0 && evenness(&rates) > 0.99, "{rates:?}");
    });
}

/// What was lost then ended the doubling of the window: 450 ms.
#[test]
fn what_an_outage_has_lost_does_not_slow_down_what_comes_after_it() {
    let after = outage(GIGABIT, 10 * MILLISECOND, 400 * MILLISECOND);
    assert!(after.recovered_ms < 300.0, "{after:?}");
}

#[test]
fn a_receiver_that_stands_still_is_sent_to_as_quickly_as_before() {
    let after = standstill(GIGABIT, 100_000, SECOND);
    assert!(after.first_ms < 5.0 && after.recovered_ms < 30.0, "{after:?}");
}

#[test]
fn acknowledgements_that_are_lost_cost_little() {
    let carried = losses(GIGABIT, MILLISECOND, [0, 300_000]);
    assert!(carried > 700.0, "{carried} Mb/s");
}

/// What was on its way counted as if all of it came at once: 87 Mb/s from pages to pages. Payloads that are read had
/// 79, and 5 if they have 64 KiB: what came unasked of later ones left no room to ask for the one that was to be read.
#[test]
fn a_long_way_is_filled() {
    at_once([(true, 0), (false, 0), (false, 10)], |(pages, computes_ms)| {
        let (carried, most, dropped) = far(GIGABIT, 100 * MILLISECOND, (1 << 20, 4 << 20), pages, computes_ms);
        assert!(carried > 600.0 && dropped == 0, "{pages}, {computes_ms}: {carried} Mb/s, {most} bytes, {dropped}");
    });
}

/// Channels that sent nothing kept what they were dealt first, and one that came late was asked for all but a short
/// frame: 98 us.
#[test]
fn idle_channels_keep_nobody_waiting() {
    let took = beside_idle(60, 8 << 10);
    assert!(took < 50.0, "{took} us");
}

/// A socket as an unprivileged process gets: no more is asked for than it holds while its owner computes.
#[test]
fn a_small_socket_at_the_end_of_a_long_way_does_not_overflow() {
    let (carried, most, dropped) = far(GIGABIT, 100 * MILLISECOND, (1 << 20, 416 << 10), true, 10);
    assert!(carried > 60.0 && dropped == 0, "{carried} Mb/s, {most} bytes, {dropped}");
}
