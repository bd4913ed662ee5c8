//! What C is in the bench: Debian's rdma-core, unpacked into the cache, and the C twin, built here by
//! the system's compiler against Debian's headers.
//!
//! Must never be part of anything but the bench: nothing else here needs this C compiler. Must never
//! take a library of this system into the guest.

use std::collections::BTreeSet;
use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::apt::Apt;
use super::cache::Cache;
use super::cpio::{Entry, Tree};
use super::elf;
use super::packages::{self, Package};
use super::process;
use super::report::{Doing, Problem, say};
use crate::bench::{C_PINGPONG, LDCONFIG};

/// Where the packages come from.
const SUITE: &str = "trixie";

/// The ping-pong, the library with every provider, and all that they need; the headers; and what makes
/// the dynamic linker's cache.
const PACKAGES: [&str; 9] = [
    "ibverbs-utils",
    "ibverbs-providers",
    "libibverbs1",
    "libibverbs-dev",
    "libnl-3-200",
    "libnl-route-3-200",
    "libgcc-s1",
    "libc6",
    "libc-bin",
];

/// The file that lists what was unpacked; written last.
const VERSIONS: &str = "versions";

/// Where the shared objects are.
const LIBRARIES: &str = "usr/lib/x86_64-linux-gnu";

/// The sources of the C twin, in this package.
const SOURCES: &str = "peers";

/// Unpacks the packages where they are missing.
pub fn ensure(cache: &Cache) -> Result<(), Problem> {
    let _lock = cache.lock()?;
    if PACKAGES.iter().all(|name| version(cache, name).is_some()) {
        return Ok(());
    }
    let apt = Apt::for_suites(cache, &[SUITE])?;
    let index = apt.index()?;
    let mut wanted: Vec<&Package> = Vec::new();
    for name in PACKAGES {
        wanted.push(
            packages::named(&index, name)
                .ok_or_else(|| Problem::new(format!("{SUITE} has no package {name}")))?,
        );
    }
    let into = folder(cache);
    apt.unpack(&wanted, &into)?;
    let list: String = wanted
        .iter()
        .map(|p| format!("{} {}\n", p.name, p.version))
        .collect();
    let file = into.join(VERSIONS);
    fs::write(&file, list).doing(|| format!("writing {}", file.display()))?;
    say(format_args!(
        "rdma-core for the bench: {}",
        rdma_core(cache)
    ));
    Ok(())
}

/// The version of rdma-core that was unpacked.
pub fn rdma_core(cache: &Cache) -> String {
    version(cache, "libibverbs1").unwrap_or_else(|| "of no known version".to_owned())
}

fn version(cache: &Cache, name: &str) -> Option<String> {
    let text = fs::read_to_string(folder(cache).join(VERSIONS)).ok()?;
    text.lines()
        .filter_map(|line| line.split_once(' '))
        .find(|(package, _)| *package == name)
        .map(|(_, version)| version.to_owned())
}

fn folder(cache: &Cache) -> PathBuf {
    cache.at("bench")
}

/// Builds the C twin and gives back its path.
pub fn c_twin(cache: &Cache) -> Result<PathBuf, Problem> {
    let compiler = env::var("CC").unwrap_or_else(|_| "cc".to_owned());
    if !process::has(&compiler) {
        return Err(Problem::new(format!(
            "there is no C compiler {compiler}, and the C half of the bench is built here; run: \
             apt-get install gcc libc6-dev (or name another one: CC=PROGRAM)"
        )));
    }
    let packages = folder(cache);
    let into = cache.make("twins")?.join("c-twin");
    let mut command = Command::new(&compiler);
    command
        .args(["-std=gnu11", "-O2", "-Wall", "-Wextra"])
        .arg("-I")
        .arg(packages.join("usr/include"))
        .args(sources()?)
        .arg("-o")
        .arg(&into)
        .arg("-L")
        .arg(packages.join(LIBRARIES))
        // What the library needs itself is there in the guest.
        .args(["-libverbs", "-Wl,--allow-shlib-undefined"]);
    process::quietly(&mut command, "building the C half of the bench")?;
    Ok(into)
}

fn sources() -> Result<Vec<PathBuf>, Problem> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join(SOURCES);
    let mut all: Vec<PathBuf> = list(&folder)?
        .into_iter()
        .map(|name| folder.join(name))
        .filter(|path| path.extension().is_some_and(|e| e == "c"))
        .collect();
    all.sort();
    Ok(all)
}

/// Puts the C half where it belongs in the guest: the ping-pong, the libraries, every provider that
/// Debian configures, and what the dynamic linker's cache is made of.
pub fn gather(cache: &Cache, tree: &mut Tree) -> Result<(), Problem> {
    let folder = folder(cache);
    let mut todo = vec![
        C_PINGPONG.trim_start_matches('/').to_owned(),
        format!("{LIBRARIES}/libibverbs.so.1"),
    ];
    for name in list(&folder.join(LIBRARIES).join("libibverbs"))? {
        todo.push(format!("{LIBRARIES}/libibverbs/{name}"));
    }
    for name in list(&folder.join("etc/libibverbs.d"))? {
        let place = format!("etc/libibverbs.d/{name}");
        let content = read(&folder.join(&place))?;
        tree.put(&format!("/{place}"), Entry::File(content, false));
    }
    let mut seen = BTreeSet::new();
    while let Some(place) = todo.pop() {
        if !seen.insert(place.clone()) {
            continue;
        }
        let content = read(&folder.join(&place))?;
        let wants = elf::dynamic(&content)
            .ok_or_else(|| Problem::new(format!("{place} of the packages is no program")))?;
        tree.put(&format!("/{place}"), Entry::File(content, true));
        todo.extend(
            wants
                .needed
                .iter()
                .map(|name| format!("{LIBRARIES}/{name}")),
        );
        if let Some(interpreter) = wants.interpreter {
            let inside = interpreter.trim_start_matches('/');
            let content = read(&folder.join("usr").join(inside))?;
            tree.put(&interpreter, Entry::File(content, true));
        }
    }
    let ldconfig = ["usr/sbin/ldconfig", "sbin/ldconfig"]
        .map(|place| folder.join(place))
        .into_iter()
        .find(|path| path.is_file())
        .ok_or_else(|| Problem::new("the packages hold no ldconfig"))?;
    tree.put(LDCONFIG, Entry::File(read(&ldconfig)?, true));
    tree.put(
        "/etc/ld.so.conf",
        Entry::File(format!("/{LIBRARIES}\n").into_bytes(), false),
    );
    // As on an installed system.
    tree.put("/lib", Entry::Link("usr/lib".to_owned()));
    Ok(())
}

fn list(folder: &Path) -> Result<Vec<String>, Problem> {
    let what = || format!("reading {}", folder.display());
    let mut names = Vec::new();
    for entry in fs::read_dir(folder).doing(what)? {
        names.push(
            entry
                .doing(what)?
                .file_name()
                .to_string_lossy()
                .into_owned(),
        );
    }
    names.sort();
    Ok(names)
}

fn read(path: &Path) -> Result<Vec<u8>, Problem> {
    fs::read(path).doing(|| format!("reading {}", path.display()))
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_sources_are_here() {
        let all = super::sources().unwrap_or_default();
        assert!(all.len() > 4, "{all:?}");
    }
}
