//! Any bytes as a hello.
#![no_main]
libfuzzer_sys::fuzz_target!(|bytes: &[u8]| cutthrough_fuzz::decode::hello(bytes));
