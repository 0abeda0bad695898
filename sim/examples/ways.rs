//! What ways carry that are not like a machine room, by the engine's own code in virtual time.
//!
//! `cargo run --release -p cutthrough-sim --example ways`

use cutthrough_sim::fault::links::cases::{
    self, Crowd, MEGABIT, MILLISECOND, Recovery, SECOND, evenness, far, late_frames, longer, losses, outage,
    shorter_frames, slow_back, slower, standstill, two_ways,
};

const GIGABIT: u64 = 1_000 * MEGABIT;

fn rates(rates: impl IntoIterator<Item = f64>) -> String {
    rates.into_iter().map(|rate| format!(" {rate:.1}")).collect()
}

fn recovery(what: &str, Recovery { before, first_ms, recovered_ms }: Recovery) {
    println!("{what}: {before:.0} Mb/s before, first message after {first_ms:.1} ms, 80 % after {recovered_ms:.0} ms");
}

fn main() {
    for (rate, rounds) in [(100, [5, 16]), (100, [5, 25]), (100, [1, 25]), (1_000, [5, 25])] {
        let carried = two_ways(rate * MEGABIT, rounds.map(|ms| ms * MILLISECOND));
        println!("two ways of {rate} Mb/s in turn, {rounds:?} ms: {carried:.1} Mb/s");
    }
    for per_cent in [2, 10, 100] {
        let carried = late_frames(GIGABIT, 5 * MILLISECOND, (per_cent, 20 * MILLISECOND));
        println!("1 Gb/s, 5 ms, {per_cent} % of frames up to 20 ms later: {carried:.0} Mb/s");
    }
    for (rate, before, after) in [(1_000, 5_000, 50_000), (1_000, 1_000, 3_000), (10_000, 50, 500)] {
        let (carried, then) = longer(rate * MEGABIT, before * 1_000, after * 1_000);
        println!("{rate} Mb/s, {before} us, then {after} us: {carried:.0} Mb/s, then{}", rates(then));
    }
    for (rate, less) in [(1_000, 10), (100, 10)] {
        let (before, carried, then) = slower(rate * MEGABIT, less * MEGABIT, 10 * MILLISECOND);
        println!("{rate} Mb/s, 10 ms, then {less} for 4 s: {before:.0} Mb/s, {carried:.1}, then{}", rates(then));
    }
    for (senders, gap) in [(8, 0), (32, 0), (8, 500)] {
        let crowd = Crowd {
            senders,
            rate: 20 * MEGABIT,
            round: 20 * MILLISECOND,
            gap: gap * MILLISECOND,
            queue_ms: 1_000,
            ahead: 8,
        };
        let until = 20 * SECOND;
        let world = crowd.run(until);
        let even: Vec<f64> = (0..senders).map(|sender| world.rate(sender, until / 2, until)).collect();
        let (waited, even) = (crowd.waited_ms(&world, until), evenness(&even));
        println!(
            "{senders} senders at 20 Mb/s, 20 ms, begun {gap} ms apart: frames wait {waited:.1} ms, index {even:.3}"
        );
    }
    for (senders, rate, round, queue_ms, (gap, seconds)) in [
        (4, 1_000, 100, 4, (0, 2)),
        (8, 1_000, 100, 4, (0, 2)),
        (32, 1_000, 100, 4, (0, 2)),
        (16, 100, 1_000, 60, (0, 10)),
        (16, 100, 1_000, 60, (0, 60)),
        (16, 100, 1_000, 60, (200, 20)),
    ] {
        let gap = gap * MILLISECOND;
        let crowd = Crowd { senders, rate: rate * MEGABIT, round: round * 1_000, gap, queue_ms, ahead: 4 };
        let until = seconds * SECOND;
        let world = crowd.run(until);
        let even: Vec<f64> = (0..senders).map(|sender| world.rate(sender, until / 2, until)).collect();
        let (waited, even, dropped) = (crowd.waited_ms(&world, until), evenness(&even), world.link(0).dropped);
        println!(
            "{senders} senders at {rate} Mb/s, {round} us, begun {} ms apart, for {seconds} s: frames wait {waited:.2} \
             ms of {queue_ms}, index {even:.3}, {dropped} dropped",
            gap / MILLISECOND
        );
    }
    let crowd =
        Crowd { senders: 4, rate: GIGABIT, round: 10 * MILLISECOND, gap: 550 * MILLISECOND, queue_ms: 20, ahead: 32 };
    let world = crowd.run(6 * SECOND);
    println!("4 senders at 1 Gb/s, 10 ms, begun 550 ms apart:");
    for half in (0..6 * SECOND).step_by(500_000_000) {
        println!("  {} ms:{}", half / MILLISECOND, rates((0..4).map(|k| world.rate(k, half, half + SECOND / 2))));
    }
    for (round, bytes, buffer, pages, computes) in [
        (20, 64 << 10, 416 << 10, false, 0),
        (20, 64 << 10, 4 << 20, false, 0),
        (100, 1 << 20, 416 << 10, true, 0),
        (100, 1 << 20, 4 << 20, true, 0),
        (100, 64 << 10, 4 << 20, false, 0),
        (100, 64 << 10, 4 << 20, false, 10),
    ] {
        let (carried, most, dropped) = far(GIGABIT, round * MILLISECOND, (bytes, buffer), pages, computes);
        println!(
            "1 Gb/s, {round} ms, messages of {} KiB{}, sockets of {} KiB, {computes} ms of 20 computed: {carried:.1} \
             Mb/s, {} KiB lay in the socket, {dropped} frames dropped",
            bytes >> 10,
            if pages { "" } else { " that are read" },
            buffer >> 10,
            most >> 10
        );
    }
    for (rate, round, out) in [(1_000, 10, 400), (100, 20, 2_000), (1_000, 1, 2_000)] {
        let what = format!("{rate} Mb/s, {round} ms, nothing comes for {out} ms");
        recovery(&what, outage(rate * MEGABIT, round * MILLISECOND, out * MILLISECOND));
    }
    for round in [20, 100] {
        let what = format!("1 Gb/s, {round} ms, no frames of more than 1300 bytes from now on");
        recovery(&what, shorter_frames(GIGABIT, round * MILLISECOND, 1300));
    }
    recovery("1 Gb/s, 0.1 ms, the receiver stands still for 5 s", standstill(GIGABIT, 100_000, 5 * SECOND));
    for lost in [[0, 300_000], [10_000, 10_000]] {
        let carried = losses(GIGABIT, MILLISECOND, lost);
        println!("1 Gb/s, 1 ms, lost of a million there and back {lost:?}: {carried:.0} Mb/s");
    }
    println!("100 Mb/s there, 0.2 back, 20 ms: {:.1} Mb/s", slow_back(100 * MEGABIT, 200_000, 20 * MILLISECOND));
    for idle in [0, 99, 999] {
        println!("8 KiB, 50 us, beside {idle} idle channels: {:.1} us", cases::beside_idle(idle, 8 << 10));
    }
}
