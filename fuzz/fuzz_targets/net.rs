//! Any frames, in any order, at an endpoint with channels over a network.
#![no_main]
libfuzzer_sys::fuzz_target!(|steps: Vec<cutthrough_fuzz::net::Step>| {
    cutthrough_fuzz::net::run(&steps);
});
