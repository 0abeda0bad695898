//! A channel whose other side does anything, in any order.
#![no_main]
libfuzzer_sys::fuzz_target!(|steps: Vec<cutthrough_fuzz::hostile::Step>| {
    cutthrough_fuzz::hostile::run(&steps);
});
