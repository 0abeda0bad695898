//! A channel whose two sides keep the rules, against a model.
#![no_main]
libfuzzer_sys::fuzz_target!(|steps: Vec<cutthrough_fuzz::pair::Step>| cutthrough_fuzz::pair::run(&steps));
