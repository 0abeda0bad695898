//! A ring that places payloads, a kernel that does as it is told, and two peers.
#![no_main]
libfuzzer_sys::fuzz_target!(|play: cutthrough_fuzz::placed::Play| {
    cutthrough_fuzz::placed::run(&play);
});
