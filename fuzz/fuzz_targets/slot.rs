//! Any words as the header of a message.
#![no_main]
libfuzzer_sys::fuzz_target!(|words: [u64; 3]| cutthrough_fuzz::decode::slot(words));
