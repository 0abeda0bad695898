//! Any bytes as the messages of a cipher's handshake.
#![no_main]
libfuzzer_sys::fuzz_target!(|attack: cutthrough_fuzz::handshake::Attack| cutthrough_fuzz::handshake::run(&attack));
