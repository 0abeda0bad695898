//! Worlds in which whole endpoints meet faults, for as long as you like:
//! `cargo run --release -p cutthrough-conform --example worlds -- [WORLDS [FIRST SEED [layers|storm|rings]]]`.
//!
//! What is held in them is told in [`cutthrough_conform::layers`] and in [`cutthrough_conform::storm`]. A world in
//! which something is broken is named with its options, and can be run again by its seed alone.

use std::process::ExitCode;

use cutthrough_conform::{layers, storm};

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let number = |at: usize, or: u64| args.get(at).map_or(Some(or), |text| text.parse().ok());
    let kinds = args.get(2).map_or("all", String::as_str);
    let (Some(worlds), Some(first), "all" | "layers" | "storm" | "rings") = (number(0, 1000), number(1, 0), kinds)
    else {
        eprintln!("usage: worlds [WORLDS [FIRST SEED [layers|storm|rings]]]");
        return ExitCode::from(2);
    };
    let (mut calls, mut storms) = (layers::Summary::default(), storm::Summary::default());
    let mut ringed = storm::Summary::default();
    let mut broken = 0_u64;
    let mut note = |what: Result<(), String>| {
        if let Err(what) = what {
            println!("{what}");
            broken += 1;
        }
    };
    for seed in first..first.saturating_add(worlds) {
        if ["all", "layers"].contains(&kinds) {
            note(layers::run(seed).map(|world| calls.add(&world)).map_err(|what| format!("layers: {what}")));
        }
        if ["all", "storm"].contains(&kinds) {
            note(storm::world(seed).map(|world| storms.add(&world)).map_err(|what| format!("storm: {what}")));
        }
        if ["all", "rings"].contains(&kinds) {
            note(storm::ringed(seed).map(|world| ringed.add(&world)).map_err(|what| format!("rings: {what}")));
        }
    }
    println!("{calls}\n{storms}\nby rings: {ringed}\n{broken} broken");
    if broken > 0 { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}
