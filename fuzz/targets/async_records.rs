//! Any bytes in an event file: `cargo +nightly fuzz run async_records`.
#![no_main]

#[path = "../checks.rs"]
mod checks;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| checks::async_records(bytes));
