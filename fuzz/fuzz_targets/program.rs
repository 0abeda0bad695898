//! Any frames at an interface with one of the programs.
#![no_main]
libfuzzer_sys::fuzz_target!(|play: cutthrough_fuzz::program::Play| play.run());
