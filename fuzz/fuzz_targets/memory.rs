//! Operations of a hostile peer on memory of others, and the arguments of its calls.
#![no_main]
libfuzzer_sys::fuzz_target!(|steps: Vec<cutthrough_fuzz::memory::Step>| cutthrough_fuzz::memory::run(&steps));
