//! The Rust crates that the bench compares with (`tests/vm/peers/rust`, a workspace of its own): built on
//! demand, each from nothing, and what that took.
//!
//! Must never touch this workspace's lock file or target folder.

use std::env;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeVal;

use super::cache::Cache;
use super::cpio::{Entry, Tree};
use super::debs;
use super::process;
use super::report::{Doing, Problem, say};
use super::twins;
use crate::bench::stats::precise;
use crate::bench::{CRATES, Form, Group, RUST_PEERS, Record, Summary};

/// Where they are, in this package.
const SOURCES: &str = "peers/rust";

/// What building them takes that cargo does not bring.
const PACKAGES: &str = "cmake gcc libc6-dev libclang-dev libibverbs-dev pkg-config";

/// Where the system has shared objects.
const LIBRARIES: [&str; 2] = ["/usr/lib/x86_64-linux-gnu", "/usr/lib64"];

/// Builds each of them twice from nothing, in turn; gives the rows that tell what that took.
pub fn timed(cache: &Cache) -> Result<Vec<Record>, Problem> {
    ready()?;
    let target = cache.make("rust-peers")?;
    let mut builds = CRATES.map(|_| (Vec::new(), Vec::new()));
    let turns = (0..CRATES.len()).chain((0..CRATES.len()).rev());
    for turn in turns {
        let (Some(name), Some((wall, cpu))) = (CRATES.get(turn), builds.get_mut(turn)) else {
            continue;
        };
        let folder = target.join(name);
        if folder.exists() {
            fs::remove_dir_all(&folder).doing(|| format!("removing {}", folder.display()))?;
        }
        let took = build(name, &folder)?;
        say(format_args!(
            "{name}, built from nothing: {:.1} s, {:.1} s of processor time",
            took.wall.as_secs_f64(),
            took.cpu.as_secs_f64()
        ));
        wall.push(took.wall.as_secs_f64());
        cpu.push(took.cpu.as_secs_f64());
    }
    let mut records = Vec::new();
    let mut row = |what: &str, name: &str, unit: &str, rust: Option<Summary>| {
        let name = format!("{what}/{name}");
        let mut record = Record::new(Group::RustBuilds, name, Form::Shared, unit);
        record.rust = rust;
        records.push(record);
    };
    for (name, (wall, cpu)) in CRATES.into_iter().zip(&builds) {
        row("cold_build", name, "s", Summary::of(wall));
        row("cold_build_processor", name, "s", Summary::of(cpu));
        for (what, edges) in [
            ("dependencies_in_program", "normal,no-proc-macro"),
            ("dependencies_to_build", "normal,build"),
        ] {
            let count = precise(dependencies(name, edges)?);
            row(what, name, "crates", Some(Summary::exact(count)));
        }
        let bytes = u64::try_from(read(&target, name)?.len()).unwrap_or_default();
        row(
            "program",
            name,
            "bytes",
            Some(Summary::exact(precise(bytes))),
        );
    }
    Ok(records)
}

/// Builds what has changed, and puts the programs where they belong in the guest.
pub fn gather(cache: &Cache, tree: &mut Tree) -> Result<(), Problem> {
    ready()?;
    let target = cache.make("rust-peers")?;
    for name in CRATES {
        build(name, &target.join(name))?;
        let program = read(&target, name)?;
        twins::put_wanted(cache, tree, &program)?;
        tree.put(&format!("{RUST_PEERS}/{name}"), Entry::File(program, true));
    }
    Ok(())
}

/// What is downloaded is not part of a build's time.
fn ready() -> Result<(), Problem> {
    wanted()?;
    let mut fetch = cargo();
    fetch.args(["fetch", "--locked"]);
    process::quietly(&mut fetch, "fetching the Rust peers").map(drop)
}

fn read(target: &Path, name: &str) -> Result<Vec<u8>, Problem> {
    let file = target
        .join(name)
        .join("release")
        .join(format!("peer-{name}"));
    fs::read(&file).doing(|| format!("reading {}", file.display()))
}

/// Says what is missing before anything is built.
fn wanted() -> Result<(), Problem> {
    let mut missing = Vec::new();
    for program in ["cmake", "cc", "pkg-config"] {
        if !process::has(program) {
            missing.push(program);
        }
    }
    if !has_libclang() {
        missing.push("libclang");
    }
    // Of these, ibverbs links the first and its build looks for the others.
    for library in ["libibverbs", "libnl-3.0", "libnl-route-3.0"] {
        let mut ask = Command::new("pkg-config");
        if !ask
            .args(["--exists", library])
            .status()
            .is_ok_and(|s| s.success())
        {
            missing.push(library);
        }
    }
    if missing.is_empty() {
        return Ok(());
    }
    Err(Problem::new(format!(
        "ibverbs and sideway cannot be built here, there is no {}; run: apt-get install {PACKAGES}",
        missing.join(", ")
    )))
}

fn has_libclang() -> bool {
    let in_folder = |folder: &Path| {
        debs::list(folder).is_ok_and(|names| {
            let mut names = names.iter();
            names.any(|name| {
                name.starts_with("libclang") && !name.contains("cpp") && name.contains(".so")
            })
        })
    };
    env::var_os("LIBCLANG_PATH").is_some_and(|folder| in_folder(Path::new(&folder)))
        || LIBRARIES.iter().any(|folder| in_folder(Path::new(folder)))
}

fn cargo() -> Command {
    let mut cargo = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.current_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join(SOURCES));
    for name in [
        "RUSTFLAGS",
        "CARGO_ENCODED_RUSTFLAGS",
        "CARGO_BUILD_TARGET",
        "CARGO_TARGET_DIR",
        "RUSTC_WRAPPER",
    ] {
        cargo.env_remove(name);
    }
    cargo
}

struct Took {
    wall: Duration,
    /// Of the build and of all that it started.
    cpu: Duration,
}

fn build(name: &str, target: &Path) -> Result<Took, Problem> {
    let mut command = cargo();
    command
        .args(["build", "--release", "--locked", "--offline"])
        .args(["--package", &format!("peer-{name}"), "--target-dir"])
        .arg(target)
        .env("CARGO_PROFILE_RELEASE_STRIP", "symbols");
    let (start, before) = (Instant::now(), processor_time()?);
    process::quietly(&mut command, &format!("building the program of {name}"))?;
    Ok(Took {
        wall: start.elapsed(),
        cpu: processor_time()?.saturating_sub(before),
    })
}

/// Of all processes that this one has started and waited for, and theirs.
fn processor_time() -> Result<Duration, Problem> {
    let usage = getrusage(UsageWho::RUSAGE_CHILDREN)
        .map_err(|e| Problem::new(format!("getrusage: {e}")))?;
    let time = |t: TimeVal| {
        let seconds = Duration::from_secs(u64::try_from(t.tv_sec()).unwrap_or_default());
        seconds + Duration::from_micros(u64::try_from(t.tv_usec()).unwrap_or_default())
    };
    Ok(time(usage.user_time()) + time(usage.system_time()))
}

/// How many other crates the crate brings along these edges, for this target.
fn dependencies(name: &str, edges: &str) -> Result<u64, Problem> {
    let mut command = cargo();
    command.args(["tree", "--locked", "--offline", "--package", name]);
    command.args(["--prefix", "none", "--edges", edges]);
    let said = process::quietly(&mut command, "looking at dependencies")?;
    let crates: std::collections::BTreeSet<String> = String::from_utf8_lossy(&said)
        .lines()
        .map(|line| {
            line.split_whitespace()
                .take(2)
                .collect::<Vec<_>>()
                .join(" ")
        })
        .filter(|line| !line.is_empty())
        .collect();
    // One of them is the crate itself.
    Ok(u64::try_from(crates.len().saturating_sub(1)).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_crate_has_its_program_and_none_is_in_this_workspace() {
        let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join(SOURCES);
        for name in CRATES {
            let manifest = fs::read_to_string(sources.join(name).join("Cargo.toml")).unwrap();
            assert!(
                manifest.contains(&format!("name = \"peer-{name}\"")),
                "{name}"
            );
        }
        let lock = super::super::build::workspace().join("Cargo.lock");
        let lock = fs::read_to_string(lock).unwrap();
        for name in ["ibverbs", "sideway", "bindgen", "cmake"] {
            assert!(!lock.contains(&format!("name = \"{name}\"")), "{name}");
        }
    }
}
