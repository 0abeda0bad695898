//! Any frame of Ethernet, and such as were written as datagrams.
#![no_main]
libfuzzer_sys::fuzz_target!(|frame: cutthrough_fuzz::envelope::Frame| cutthrough_fuzz::envelope::run(&frame));
