//! Any words as tokens, runs, places, sizes and counters.
#![no_main]
libfuzzer_sys::fuzz_target!(|words: cutthrough_fuzz::decode::Words| cutthrough_fuzz::decode::words(&words));
