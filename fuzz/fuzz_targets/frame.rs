//! Any bytes as a frame.
#![no_main]
libfuzzer_sys::fuzz_target!(|bytes: &[u8]| cutthrough_fuzz::frame::decode(bytes));
