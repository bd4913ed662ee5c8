//! The documents name the tests that show what they claim: each of them must be there.

#![allow(clippy::unwrap_used, reason = "a test may fail")]

use std::fs;
use std::path::{Path, PathBuf};

const PAGES: [&str; 5] = [
    "docs/completion-events.md",
    "docs/events-howto.md",
    "docs/events-proof.md",
    "docs/events.md",
    "docs/field-reports.md",
];

/// All Rust sources below a folder, as text.
fn sources(folder: &Path, found: &mut Vec<String>) {
    let entries = fs::read_dir(folder).unwrap();
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    for path in paths {
        if path.is_dir() {
            sources(&path, found);
        } else if path.extension().is_some_and(|ext| ext == "rs") {
            found.push(fs::read_to_string(path).unwrap());
        }
    }
}

/// What stands between two of these marks and can be the name of a test.
fn between(text: &str, mark: char) -> impl Iterator<Item = &str> {
    let is_name = |name: &&str| {
        let allowed = |c: char| c.is_ascii_alphanumeric() || "_:…".contains(c);
        name.chars().all(allowed) && name.contains('_') && !name.starts_with('_')
    };
    text.split(mark).skip(1).filter(is_name)
}

#[test]
#[cfg_attr(miri, ignore = "reads the whole tree, which takes Miri too long")]
fn every_test_that_a_document_names_exists() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut all = Vec::new();
    for folder in ["src", "providers", "abi/src", "abi/tests", "tests"] {
        sources(&root.join(folder), &mut all);
    }
    let has = |text: &str| all.iter().any(|source| source.contains(text));
    let mut named = 0;
    let mut missing = Vec::new();
    for page in PAGES {
        let text = fs::read_to_string(root.join(page)).unwrap();
        for name in between(&text, '*') {
            let last = name.rsplit("::").next().unwrap();
            let wanted = match last.split_once('…') {
                Some((start, _)) => format!("fn {start}"),
                None => format!("fn {last}("),
            };
            named += 1;
            if !has(&wanted) {
                missing.push(format!("{page}: {name}"));
            }
        }
        // Cases of the virtual machine go by the string in their table.
        for name in between(&text, '`').filter(|name| name.contains("::")) {
            named += 1;
            if !name.starts_with("event::") && !has(&format!("\"{name}\"")) {
                missing.push(format!("{page}: {name}"));
            }
        }
    }
    assert!(missing.is_empty(), "{missing:#?}");
    assert!(named > 100, "only {named} names were found");
}
