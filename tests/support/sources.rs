//! The source files of the project, for tests that hold a page against the tree.

#![allow(dead_code, unreachable_pub, reason = "each test binary uses a part")]

use std::fs;
use std::path::{Path, PathBuf};

/// Every Rust file below a folder.
pub fn sources(dir: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(dir).expect("a folder") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            found.extend(sources(&path));
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
    found
}
