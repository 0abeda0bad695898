//! Any file as the counters of an endpoint.
#![no_main]
libfuzzer_sys::fuzz_target!(|counters: cutthrough_fuzz::watch::Counters| cutthrough_fuzz::watch::stat(&counters));
