//! `docs/architecture.md` says which files may hold `unsafe`: those, and no others, do.

#![allow(clippy::unwrap_used, reason = "a test may fail")]

mod support;

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use support::sources::sources;

/// Whether a line of code, comments apart, uses or declares something unsafe.
fn is_unsafe(line: &str) -> bool {
    let code = line.split("//").next().unwrap_or_default();
    ["unsafe {", "unsafe fn", "unsafe impl", "unsafe trait"]
        .iter()
        .any(|word| code.contains(word))
}

#[test]
#[cfg_attr(miri, ignore = "Miri has no files here")]
fn the_table_of_rooms_is_the_tree() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let page = fs::read_to_string(root.join("docs/architecture.md")).unwrap();
    let section = page
        .split("## What may be unsafe, and where")
        .nth(1)
        .unwrap();
    let section = section.split("\n## ").next().unwrap();
    let mut listed: BTreeSet<String> = section
        .lines()
        .filter_map(|line| line.strip_prefix("| `")?.split('`').next())
        .map(str::to_owned)
        .collect();
    assert!(listed.len() >= 6, "the table was not found: {listed:?}");
    listed.insert("providers/src/fake/memory.rs".to_owned());

    let mut files = Vec::new();
    for dir in ["abi/src", "providers/src", "src"] {
        files.extend(sources(&root.join(dir)));
    }
    assert!(
        files.len() > 60,
        "only {} files were looked at",
        files.len()
    );
    let with_unsafe: BTreeSet<String> = files
        .iter()
        .filter(|path| !path.components().any(|part| part.as_os_str() == "tests"))
        .filter(|path| fs::read_to_string(path).unwrap().lines().any(is_unsafe))
        .map(|path| {
            path.strip_prefix(root)
                .unwrap()
                .to_string_lossy()
                .into_owned()
        })
        .collect();
    assert_eq!(with_unsafe, listed);
}
