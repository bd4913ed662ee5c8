//! The kernel's uapi headers, for the test that compares `abi`'s layouts with them.
//!
//! Must never fail the set-up, since no guest needs them; and never touch the system's own headers.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::apt::Apt;
use super::cache::Cache;
use super::packages::{self, Package};
use super::report::{Doing, Problem, say};

/// The package that holds them.
const PACKAGE: &str = "linux-libc-dev";

/// Each line of kernels whose headers are wanted, with the suites that have it.
///
/// One at a time, since an index of several suites has only the newest version of a package.
const LINES: [(&str, &[&str]); 3] = [
    ("6.1", &["bookworm", "bookworm-security"]),
    ("6.12", &["trixie", "trixie-security"]),
    ("newest", &["trixie-backports"]),
];

/// How long a failure is remembered unless a refresh is asked for, so that work without a network is
/// not held up each time.
const MEMORY: Duration = Duration::from_secs(3600);

/// Whether nothing is to be done: each line is there, or could not be had a short while ago.
pub fn settled(cache: &Cache) -> bool {
    LINES
        .iter()
        .all(|(line, _)| is_there(&folder(cache, line)) || failed_lately(cache, line))
}

/// Unpacks what is missing; says what cannot be had, and leaves a note of it for the test.
pub fn ensure(cache: &Cache, refresh: bool) {
    for (line, suites) in LINES {
        let there = is_there(&folder(cache, line));
        if !refresh && (there || failed_lately(cache, line)) {
            continue;
        }
        let note = note(cache, line);
        match fetch(cache, line, suites) {
            Ok(()) => drop(fs::remove_file(note)),
            Err(e) => {
                // What a program said is long, and the same for each line.
                let all = e.to_string();
                let why = all.lines().next().unwrap_or_default().trim_end_matches(':');
                say(format_args!(
                    "headers {line}: not to be had, going on: {why}; to try again: cargo vm setup \
                     --refresh"
                ));
                if !there && cache.make("headers").is_ok() {
                    let _ = fs::write(note, why);
                }
            }
        }
    }
}

fn folder(cache: &Cache, line: &str) -> PathBuf {
    cache.at("headers").join(line)
}

/// Says why a line is not there; read by the test too.
fn note(cache: &Cache, line: &str) -> PathBuf {
    cache.at("headers").join(format!("{line}.why"))
}

fn is_there(folder: &Path) -> bool {
    folder.join("usr/include/rdma/ib_user_verbs.h").is_file()
}

fn failed_lately(cache: &Cache, line: &str) -> bool {
    fs::metadata(note(cache, line))
        .and_then(|m| m.modified())
        .is_ok_and(|at| at.elapsed().is_ok_and(|age| age < MEMORY))
}

fn fetch(cache: &Cache, line: &str, suites: &[&str]) -> Result<(), Problem> {
    say(format_args!("looking for the headers of kernel {line}"));
    let apt = Apt::for_suites(cache, suites)?;
    let index = apt.index()?;
    let Some(package) = choose(&index, line) else {
        return Err(Problem::new(format!(
            "no {PACKAGE} {line} in {}",
            suites.join(", ")
        )));
    };
    let folder = folder(cache, line);
    let mark = folder.join("version");
    let same = fs::read_to_string(&mark).is_ok_and(|v| v == package.version);
    if !(same && is_there(&folder)) {
        cache.make("headers")?;
        apt.unpack(&[package], &folder)?;
        fs::write(&mark, &package.version).doing(|| format!("writing {}", mark.display()))?;
    }
    if !is_there(&folder) {
        return Err(Problem::new(format!(
            "{PACKAGE} {} has no headers of RDMA",
            package.version
        )));
    }
    say(format_args!(
        "headers {line}: {} in {}",
        package.version,
        folder.display()
    ));
    Ok(())
}

fn choose<'a>(index: &'a [Package], line: &str) -> Option<&'a Package> {
    let in_line = |version: &str| {
        line == "newest"
            || version
                .strip_prefix(line)
                .is_some_and(|rest| rest.starts_with('.'))
    };
    index
        .iter()
        .filter(|p| p.name == PACKAGE && in_line(&p.version))
        .max_by(|a, b| packages::compare(&a.version, &b.version))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_of_a_line() {
        let index = packages::parse(
            "Package: linux-libc-dev\nVersion: 6.1.176-1\n\n\
             Package: linux-libc-dev\nVersion: 6.1.192-3\n\n\
             Package: linux-libc-dev\nVersion: 6.12.9-1\n\n\
             Package: linux-libc-dev-amd64-cross\nVersion: 6.1.999-1\n",
        );
        let version = |line| choose(&index, line).map(|p| p.version.as_str());
        assert_eq!(version("6.1"), Some("6.1.192-3"));
        assert_eq!(version("6.12"), Some("6.12.9-1"));
        assert_eq!(version("newest"), Some("6.12.9-1"));
        assert_eq!(version("5.10"), None);
    }
}
