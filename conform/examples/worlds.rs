//! Worlds in which the layers above messages meet faults, for as long as you like:
//! `cargo run --release -p cutthrough-conform --example worlds -- [WORLDS [FIRST SEED]]`.
//!
//! What is held in them is told in [`cutthrough_conform::layers`]. A world in which something is broken is named with
//! its options, and can be run again by its seed alone.

use std::process::ExitCode;

use cutthrough_conform::layers::{Summary, run};

fn main() -> ExitCode {
    let mut numbers = std::env::args().skip(1).map(|text| text.parse::<u64>().expect("a number"));
    let (worlds, first) = (numbers.next().unwrap_or(1000), numbers.next().unwrap_or(0));
    let mut summary = Summary::default();
    let mut broken = 0_u64;
    for seed in first..first.saturating_add(worlds) {
        match run(seed) {
            Ok(world) => summary.add(&world),
            Err(what) => {
                println!("{what}");
                broken += 1;
            }
        }
    }
    println!("{summary}; {broken} broken");
    if broken > 0 { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}
