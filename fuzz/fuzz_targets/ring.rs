//! Rings whose other side writes anything.
#![no_main]
libfuzzer_sys::fuzz_target!(|steps: Vec<cutthrough_fuzz::ring::Step>| cutthrough_fuzz::ring::run(&steps));
