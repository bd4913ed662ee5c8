//! Any bytes in a slot of a completion queue: `cargo +nightly fuzz run completions`.
#![no_main]

#[path = "../checks.rs"]
mod checks;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| checks::completions(bytes));
