//! Requests and answers of a hostile rank of Split-C, and of a stranger.
#![no_main]
libfuzzer_sys::fuzz_target!(|steps: Vec<cutthrough_fuzz::part::Step>| cutthrough_fuzz::part::run(&steps));
