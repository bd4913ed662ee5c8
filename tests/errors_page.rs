//! `docs/errors.md` lists every message: it and the code say the same.

#![allow(clippy::unwrap_used, reason = "a test may fail")]

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use uverbs::WcStatus;

fn sources(dir: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            if !path.ends_with("tests") && !path.ends_with("fake") {
                sources(&path, found);
            }
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
}

/// The string literal that begins at or after the start of `code`, before anything but white space.
fn literal(code: &str) -> Option<String> {
    let code = code.trim_start();
    // `write!` names where it writes to first.
    let code = code.strip_prefix("f,").unwrap_or(code).trim_start();
    let mut chars = code.strip_prefix('"')?.chars().peekable();
    let mut text = String::new();
    while let Some(c) = chars.next() {
        match c {
            '"' => return Some(text),
            '\\' => match chars.next()? {
                '\n' => while chars.next_if(|c| c.is_whitespace()).is_some() {},
                other => text.push(other),
            },
            other => text.push(other),
        }
    }
    None
}

/// A message as the page has it: what is filled in is `…`, and what joins it to another is left out.
fn plain(text: &str) -> String {
    let mut plain = String::new();
    let mut depth = 0;
    // Of several parts, each after the first begins with what joins it.
    let text = text.strip_prefix("{lead}").unwrap_or(text);
    for c in text.chars() {
        match c {
            '{' => {
                if depth == 0 {
                    plain.push('…');
                }
                depth += 1;
            }
            '}' => depth -= 1,
            other if depth == 0 => plain.push(other),
            _ => {}
        }
    }
    while plain.contains("……") {
        plain = plain.replace("……", "…");
    }
    let parts = [';', ':', ',', ' '];
    plain
        .trim_matches(parts.as_slice())
        .trim_start_matches("…; ")
        .to_owned()
}

fn words(text: &str) -> usize {
    let letters = |word: &&str| word.chars().any(char::is_alphabetic);
    text.split(' ').filter(letters).count()
}

/// The code as one text, with literals that go over several lines put together.
fn all_code(root: &Path) -> String {
    let mut files = Vec::new();
    for dir in ["abi/src", "providers/src", "src"] {
        sources(&root.join(dir), &mut files);
    }
    let mut code = String::new();
    for path in files {
        for line in fs::read_to_string(path).unwrap().lines() {
            match line.strip_suffix('\\') {
                Some(part) => code.push_str(part),
                None => {
                    code.push_str(line);
                    code.push('\n');
                }
            }
        }
    }
    // The next line of a literal is indented, and the indentation is no part of it.
    let mut joined = String::new();
    for word in code.split(' ').filter(|word| !word.is_empty()) {
        joined.push_str(word);
        joined.push(' ');
    }
    joined.replace("\\\"", "\"")
}

/// Every message of the code.
fn messages(root: &Path) -> BTreeSet<String> {
    let mut files = Vec::new();
    for dir in ["abi/src", "providers/src", "src"] {
        sources(&root.join(dir), &mut files);
    }
    assert!(files.len() > 60, "only {} files", files.len());
    let mut found = BTreeSet::new();
    for path in files {
        let text = fs::read_to_string(&path).unwrap();
        let code = text.split("#[cfg(test)]\nmod tests").next().unwrap();
        let told = path.strip_prefix(root).unwrap();
        // Where errors write their own text, and not only in an attribute.
        let writes = [
            "src/error",
            "src/diagnose",
            "abi/src/error.rs",
            "providers/src/error",
            "src/qp/modify_error.rs",
        ]
        .iter()
        .any(|place| told.starts_with(place));
        let starts: &[&str] = if writes {
            &[
                "#[error(",
                "write!(",
                "write_str(",
                "=> \"",
                "Some(Errno::ENODEV) => ",
            ]
        } else {
            &["#[error("]
        };
        for start in starts {
            // The quote of `=> "` belongs to the literal.
            let keep = usize::from(start.ends_with('"'));
            for (at, _) in code.match_indices(start) {
                let from = at + start.len() - keep;
                if let Some(message) = literal(&code[from..]).map(|text| plain(&text))
                    && words(&message) >= 3
                {
                    found.insert(message);
                }
            }
        }
    }
    for raw in 1..=21 {
        found.insert(WcStatus::from_raw(raw).to_string());
    }
    found
}

#[test]
#[cfg_attr(miri, ignore = "Miri has no files here")]
fn the_page_lists_every_message_and_no_other() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let page = fs::read_to_string(root.join("docs/errors.md")).unwrap();
    let listed: BTreeSet<String> = page
        .lines()
        .filter_map(|line| line.strip_prefix("| `")?.split_once("` |"))
        .map(|(message, _)| message.to_owned())
        .collect();
    let found = messages(root);
    assert!(found.len() > 80, "only {} messages were found", found.len());
    let missing: Vec<_> = found.difference(&listed).cloned().collect();
    // A line of the page is made of pieces that stand in the code.
    let code = all_code(root);
    let in_code = |message: &String| {
        let mut pieces = message
            .split('…')
            .map(|piece| piece.trim_matches([';', ' ']));
        pieces.all(|piece| code.contains(piece))
    };
    let stale: Vec<_> = listed
        .iter()
        .filter(|line| !in_code(line))
        .cloned()
        .collect();
    assert!(
        missing.is_empty() && stale.is_empty(),
        "not on the page:\n{}\nnot in the code:\n{}",
        missing.join("\n"),
        stale.join("\n")
    );
    // Cause and remedy are not left blank.
    for line in page.lines().filter(|line| line.starts_with("| `")) {
        let cells: Vec<_> = line.trim_matches('|').split(" | ").map(str::trim).collect();
        assert!(
            cells.len() == 3 && cells.iter().all(|cell| !cell.is_empty()),
            "{line}"
        );
    }
}

#[test]
#[cfg_attr(miri, ignore = "Miri has no files here")]
fn messages_are_in_one_voice() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    for message in messages(root) {
        assert!(
            !message.ends_with('.') && !message.ends_with('!'),
            "{message}"
        );
        let first = message.split([' ', '…']).next().unwrap_or_default();
        let shouted = first
            .chars()
            .all(|c| c.is_uppercase() || "_→0123456789".contains(c));
        let starts_small = !first.starts_with(char::is_uppercase);
        let name = ["RNR", "GID", "Linux"].contains(&first);
        assert!(starts_small || shouted || name, "{message}");
    }
}
