//! Any frames at any place of a ring whose buffers are parts of pages.
#![no_main]
libfuzzer_sys::fuzz_target!(|play: cutthrough_fuzz::place::Any| play.run());
