//! What the fuzzer has found worth keeping, and inputs by property, through the checks that it runs:
//! without a fuzzer, on a stable compiler.

#![allow(clippy::unwrap_used, reason = "a test may fail")]
#![allow(
    clippy::print_stdout,
    reason = "a failure follows the name of its file"
)]

use std::fs;
use std::path::Path;

use proptest::prelude::*;

#[path = "../fuzz/checks.rs"]
mod checks;

/// Runs every file of a corpus, of which there are at least so many.
fn replay(target: &str, at_least: usize, check: impl Fn(&[u8])) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/corpus");
    let mut files: Vec<_> = fs::read_dir(folder.join(target))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    files.sort();
    assert!(files.len() >= at_least, "{} files", files.len());
    for file in files {
        println!("{}", file.display());
        check(&fs::read(&file).unwrap());
    }
}

#[test]
fn no_event_file_of_the_corpus_is_read_wrongly() {
    replay("async_records", 8, checks::async_records);
}

#[test]
fn no_completion_of_the_corpus_is_read_wrongly() {
    replay("completions", 4, checks::completions);
}

/// A record: mostly of a type there is, often with the token of an object there is.
fn record() -> impl Strategy<Value = Vec<u8>> {
    let element = prop_oneof![
        3 => (0u64..6).prop_map(|index| 0x1_0000_0000 + index),
        1 => 0u64..4,
        1 => any::<u64>(),
    ];
    let kind = prop_oneof![4 => 0u32..23, 1 => any::<u32>()];
    (element, kind, any::<u32>()).prop_map(|(element, kind, reserved)| {
        let mut bytes = element.to_ne_bytes().to_vec();
        bytes.extend(kind.to_ne_bytes());
        bytes.extend(reserved.to_ne_bytes());
        bytes
    })
}

fn cases() -> ProptestConfig {
    // Miri is slow, and has no folder to write failures to.
    let (cases, failure_persistence) = if cfg!(miri) { (8, None) } else { (256, None) };
    ProptestConfig {
        cases,
        failure_persistence,
        ..ProptestConfig::default()
    }
}

proptest! {
    #![proptest_config(cases())]

    #[test]
    fn records_in_any_number_are_each_told_as_they_are(
        records in proptest::collection::vec(record(), 0..40),
        tail in proptest::collection::vec(any::<u8>(), 0..16),
    ) {
        let mut bytes = records.concat();
        bytes.extend(tail);
        checks::async_records(&bytes);
    }

    #[test]
    fn any_bytes_at_all_are_a_completion(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        checks::completions(&bytes);
    }
}
