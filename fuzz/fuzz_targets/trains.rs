//! Trains of any frames, cut anywhere, at an endpoint that scatters them over memory before it looks at them.
#![no_main]
libfuzzer_sys::fuzz_target!(|steps: Vec<cutthrough_fuzz::trains::Step>| cutthrough_fuzz::trains::run(&steps));
