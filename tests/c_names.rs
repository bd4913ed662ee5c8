//! `docs/from-libibverbs.md` and the aliases in the API documentation name the same C names.

#![allow(clippy::unwrap_used, reason = "a test may fail")]

mod support;

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use support::sources::sources;

/// The names in backticks that a C program could have written.
fn c_names(text: &str) -> impl Iterator<Item = String> + '_ {
    text.split('`')
        .skip(1)
        .step_by(2)
        .filter(|name| name.starts_with("ibv_"))
        .map(str::to_owned)
}

#[test]
#[cfg_attr(miri, ignore = "Miri has no files here")]
fn the_page_and_the_aliases_have_the_same_names() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let page = fs::read_to_string(root.join("docs/from-libibverbs.md")).unwrap();
    let on_the_page: BTreeSet<String> = page
        .lines()
        .filter_map(|line| line.strip_prefix('|')?.split('|').next())
        .flat_map(c_names)
        .collect();

    let mut aliases = BTreeSet::new();
    for dir in ["abi/src", "providers/src", "src"] {
        for path in sources(&root.join(dir)) {
            let text = fs::read_to_string(path).unwrap();
            let found = text.split("doc(alias = \"ibv_").skip(1);
            aliases.extend(found.map(|rest| format!("ibv_{}", rest.split('"').next().unwrap())));
        }
    }
    assert!(aliases.len() > 40, "{aliases:?}");
    let missing: Vec<_> = aliases.difference(&on_the_page).collect();
    assert!(missing.is_empty(), "not on the page: {missing:?}");
    let unknown: Vec<_> = on_the_page.difference(&aliases).collect();
    assert!(unknown.is_empty(), "on the page, but no alias: {unknown:?}");

    // What is said not to be here is not.
    let later = page.split("## Not here yet").nth(1).unwrap();
    let here: Vec<_> = c_names(later)
        .filter(|name| aliases.contains(name))
        .collect();
    assert!(here.is_empty(), "said to be missing, but here: {here:?}");
}
