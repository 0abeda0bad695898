//! Any active messages of two hostile peers, beside an honest one.
#![no_main]
libfuzzer_sys::fuzz_target!(|steps: Vec<cutthrough_fuzz::am::Step>| cutthrough_fuzz::am::run(&steps));
