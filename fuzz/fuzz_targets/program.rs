//! Any frames at an interface with one of the programs.
#![no_main]
libfuzzer_sys::fuzz_target!(|traffic: cutthrough_fuzz::program::Traffic| cutthrough_fuzz::program::run(&traffic));
