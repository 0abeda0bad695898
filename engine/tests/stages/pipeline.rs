//! The pulse rule in front of four modelled stages: the table of the design, and what it rests on.

use std::num::NonZeroU64;

use crate::model::{Mover, PLATFORM, World, lone_message};
use cutthrough_engine::adapter::{Capability, Stage};
use cutthrough_engine::pulse::Policy;
use cutthrough_engine::time::Instant;
use cutthrough_engine::transfer::{Step, Transfer};
use cutthrough_engine::tune::Tuner;

const KIB: u64 = 1024;
const SIZES: [u64; 4] = [KIB, 4 * KIB, 8 * KIB, 64 * KIB];

/// Time between two polls that comes closest to the table of the design.
const TABLE_TICK_NS: u64 = 500;

/// Time between two polls of a faster processor.
const FAST_TICK_NS: u64 = 50;

fn fixed(bytes: u64) -> Policy {
    Policy::Fixed(NonZeroU64::new(bytes).unwrap())
}

fn adaptive(minpulse: u64) -> Policy {
    Policy::Adaptive { minpulse: NonZeroU64::new(minpulse) }
}

fn table_ns(movers: [Mover; 4], len: u64, policy: Policy) -> u64 {
    lone_message(movers, len, policy, TABLE_TICK_NS, &mut Default::default(), &mut ())
}

#[test]
fn the_table_of_the_design_comes_out() {
    let table = [
        (Policy::StoreAndForward, [32.5, 117.5, 231.0, 1819.5]),
        (fixed(KIB), [32.5, 61.0, 99.0, 631.0]),
        (adaptive(256), [20.0, 49.8, 84.0, 546.2]),
    ];
    for (policy, expected) in table {
        for (len, expected_us) in SIZES.into_iter().zip(expected) {
            let us = table_ns(PLATFORM, len, policy) as f64 / 1000.0;
            let error = us / expected_us - 1.0;
            assert!(error.abs() < 0.02, "{policy}, {len} bytes: {us} us against {expected_us} us");
        }
    }
}

#[test]
fn it_is_progress_not_completion_that_cuts_through() {
    let blind = PLATFORM.map(|mover| Mover { visible: false, ..mover });
    for len in SIZES {
        let whole = table_ns(PLATFORM, len, Policy::StoreAndForward);
        assert_eq!(table_ns(blind, len, adaptive(256)), whole);
        assert!(table_ns(PLATFORM, len, adaptive(256)) < whole * 2 / 3);
    }
}

/// Tuners that have measured the stages of `movers` by carrying messages of many lengths.
fn taught(movers: [Mover; 4]) -> [Tuner; 4] {
    let mut tuners = Default::default();
    for round in 0..40 {
        for len in [200, KIB, 3 * KIB, 8 * KIB, 40 * KIB].map(|len| len + 64 * round) {
            lone_message(movers, len, Policy::default(), FAST_TICK_NS, &mut tuners, &mut ());
        }
    }
    tuners
}

/// The longest time, over all sizes, that a message takes by default against the best of all fixed pulses.
fn regret(movers: [Mover; 4]) -> f64 {
    let mut tuners = taught(movers);
    let mut regret: f64 = 0.0;
    for len in SIZES.into_iter().chain([64, 512 * KIB]) {
        let mut time = |policy| lone_message(movers, len, policy, FAST_TICK_NS, &mut tuners, &mut ()) as f64;
        let default = time(Policy::default());
        let sweep = (len / 256).max(64).ilog2()..=len.ilog2() + 1;
        let best = sweep.flat_map(|log| [1 << log, 3 << (log - 1)]).map(|pulse| time(fixed(pulse)));
        regret = regret.max(default / best.fold(f64::INFINITY, f64::min));
    }
    regret
}

#[test]
fn the_default_is_no_slower_than_the_best_fixed_pulse() {
    let regret = regret(PLATFORM);
    assert!(regret <= 1.0, "{regret}");
}

/// The longest pulse taken from measured stage times stands in for progress that nobody can see.
#[test]
fn measured_pulses_make_up_for_hidden_progress() {
    let capability = Capability { progress: false, ..Capability::DRIVEN };
    let hidden = PLATFORM.map(|mover| Mover { capability, visible: false, ..mover });
    let regret = regret(hidden);
    assert!(regret <= 1.1, "{regret}");
}

/// Carries `count` messages that are all there from the start. Returns when the last one is through, and the pulses
/// which each of them took at its last stage.
fn burst(movers: [Mover; 4], count: usize, len: u64, policy: Policy) -> (u64, Vec<u32>) {
    let mut world = World::new(movers, count);
    let mut transfers = vec![Transfer::new(len, policy); count];
    let mut tuners = Default::default();
    let mut now = Instant::default();
    loop {
        let mut done = 0;
        for (message, transfer) in transfers.iter_mut().enumerate() {
            let step = transfer.poll(now, &mut world.port(message, 0..4), &mut tuners, &mut ());
            done += usize::from(step == Step::Done);
        }
        if done == count {
            let pulses = transfers.iter().map(|transfer| transfer.times()[Stage::AdapterToHost.index()].pulses);
            return (now.as_nanos(), pulses.collect());
        }
        now = now.after(FAST_TICK_NS);
    }
}

/// The figure of "Network I/O with Trapeze": short pulses for the first message, whole messages for those that queue up
/// behind a slow sink (here an I/O bus that writes at half the rate, as the paper's Alpha did), and the bandwidth of
/// store-and-forward.
#[test]
fn a_burst_falls_back_to_whole_messages() {
    let mut movers = PLATFORM;
    movers[3].byte_ps *= 2;
    let (adaptive_ns, pulses) = burst(movers, 16, 8 * KIB, adaptive(512));
    let (whole_ns, _) = burst(movers, 16, 8 * KIB, Policy::StoreAndForward);
    let (fixed_ns, _) = burst(movers, 16, 8 * KIB, fixed(KIB));
    assert!(pulses[0] >= 3, "{pulses:?}");
    assert!(pulses[3..].iter().all(|&pulses| pulses == 1), "{pulses:?}");
    assert!(adaptive_ns <= whole_ns, "{adaptive_ns} against {whole_ns}");
    assert!(adaptive_ns * 10 < fixed_ns * 11, "{adaptive_ns} against {fixed_ns}");
}
