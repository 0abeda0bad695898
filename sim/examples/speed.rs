//! How many events the simulator handles in a second: a long burst, an incast and an all-to-all of 1,024 hosts.
//!
//! `cargo run --release -p cutthrough-sim --example speed [ROUNDS [SHARE]]`: the best round counts, since machines are
//! shared; of the messages that each case names, one in SHARE is sent (all by default).

use std::time::Instant;

use cutthrough_sim::point::Firmware;
use cutthrough_sim::staged::{Lens, Machine, Run, machine};

/// A case: its name, and how to make its run.
type Case<'a> = (&'a str, Box<dyn Fn() -> Run + 'a>);

fn cases(host: &Machine, firmware: Firmware, share: u64) -> Vec<Case<'_>> {
    let stream = move |count: u64, senders| {
        Run::stream([host, host], firmware, Lens::Same(8192), count.div_ceil(share), senders)
    };
    let all = move |count: u64, hosts| Run::all_to_all(host, firmware, 8192, count.div_ceil(share), hosts);
    let known = "the engine runs on every platform";
    vec![
        ("burst of 1,000,000 messages of 8 KiB", Box::new(move || stream(1_000_000, 1).expect(known))),
        ("incast, 16 hosts", Box::new(move || stream(12_500, 16).expect(known))),
        ("incast, 1,024 hosts", Box::new(move || stream(200, 1024).expect(known))),
        ("all to all, 16 hosts", Box::new(move || all(12_500, 16).expect(known))),
        ("all to all, 128 hosts", Box::new(move || all(1600, 128).expect(known))),
        ("all to all, 1,024 hosts", Box::new(move || all(200, 1024).expect(known))),
    ]
}

fn main() {
    let argument = |number, default| {
        std::env::args().nth(number).map_or(default, |text| text.parse::<u32>().expect("a whole number above 0").max(1))
    };
    let (rounds, share) = (argument(1, 3), u64::from(argument(2, 1)));
    let host = machine("pentium2-440lx").expect("a built-in platform");
    let firmware = "adaptive:512".parse().expect("a policy");
    for (name, make) in cases(&host, firmware, share) {
        let mut best: f64 = 0.0;
        let (mut events, mut queue) = (0, 0);
        for _ in 0..rounds {
            let run = make();
            let start = Instant::now();
            let ran = run.go();
            (events, queue) = (ran.events, ran.longest_queue);
            best = best.max(ran.events as f64 / start.elapsed().as_secs_f64());
        }
        let doublings = f64::log2(queue as f64);
        let (rate, each) = (best / 1e6, 1e9 / best);
        println!("{name}: {events} events, {rate:.1} million/s, {each:.0} ns each; at most 2^{doublings:.1} wait");
    }
}
