//! What C is in the bench: Debian's rdma-core, unpacked into the cache, and the C twin, built here by
//! the system's compiler against Debian's headers.
//!
//! Must never be part of anything but the bench: nothing else here needs this C compiler. Must never
//! take a library of this system into the guest.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::arch::Arch;
use super::cache::Cache;
use super::cpio::{Entry, Tree};
use super::debs::{self, Debs};
use super::elf;
use super::process;
use super::report::{Problem, say};
use crate::bench::{C_PINGPONG, LDCONFIG};

/// The ping-pong, the library with every provider, and all that they need; the headers; and what makes
/// the dynamic linker's cache.
const PACKAGES: &[&str] = &[
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

/// The sources of the C twin, in this package.
const SOURCES: &str = "peers";

fn debs(cache: &Cache) -> Debs {
    Debs::new(cache, "bench", Arch::Amd64, PACKAGES)
}

/// Unpacks the packages where they are missing.
pub fn ensure(cache: &Cache) -> Result<(), Problem> {
    let _lock = cache.lock()?;
    let debs = debs(cache);
    if debs.are_there() {
        return Ok(());
    }
    debs.unpack(cache)?;
    say(format_args!(
        "rdma-core for the bench: {}",
        rdma_core(cache)
    ));
    Ok(())
}

/// The version of rdma-core that was unpacked.
pub fn rdma_core(cache: &Cache) -> String {
    debs(cache)
        .version("libibverbs1")
        .unwrap_or_else(|| "of no known version".to_owned())
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
    let debs = debs(cache);
    let into = cache.make("twins")?.join("c-twin");
    let mut command = Command::new(&compiler);
    command
        .args(["-std=gnu11", "-O2", "-Wall", "-Wextra"])
        .arg("-I")
        .arg(debs.at("usr/include"))
        .args(sources()?)
        .arg("-o")
        .arg(&into)
        .arg("-L")
        .arg(debs.at(&debs.libraries()?))
        // What the library needs itself is there in the guest.
        .args(["-libverbs", "-Wl,--allow-shlib-undefined"]);
    process::quietly(&mut command, "building the C half of the bench")?;
    Ok(into)
}

/// Builds the program that does what the kernel asks of a bring-up and nothing else, and gives back its
/// path.
pub fn c_limit(cache: &Cache) -> Result<PathBuf, Problem> {
    let into = cache.make("twins")?.join("c-limit");
    let source = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join(SOURCES)
        .join("limit/bring_up.c");
    let mut command = Command::new(env::var("CC").unwrap_or_else(|_| "cc".to_owned()));
    command
        .args(["-std=gnu11", "-O2", "-Wall", "-Wextra"])
        // No C library, and nothing that would take one.
        .args([
            "-static",
            "-nostdlib",
            "-ffreestanding",
            "-fno-stack-protector",
        ])
        .args(["-fno-pie", "-no-pie"])
        .arg(source)
        .arg("-o")
        .arg(&into);
    process::quietly(&mut command, "building the limit of the bench's bring-up")?;
    Ok(into)
}

fn sources() -> Result<Vec<PathBuf>, Problem> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join(SOURCES);
    let mut all: Vec<PathBuf> = debs::list(&folder)?
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
    let debs = debs(cache);
    let libraries = debs.libraries()?;
    let mut programs = vec![
        C_PINGPONG.trim_start_matches('/').to_owned(),
        format!("{libraries}/libibverbs.so.1"),
    ];
    let providers = format!("{libraries}/libibverbs");
    for name in debs.list(&providers)? {
        programs.push(format!("{providers}/{name}"));
    }
    for name in debs.list("etc/libibverbs.d")? {
        debs.put(tree, &format!("etc/libibverbs.d/{name}"), false)?;
    }
    debs.put_programs(tree, programs)?;
    let ldconfig = ["usr/sbin/ldconfig", "sbin/ldconfig"]
        .into_iter()
        .find(|place| debs.at(place).is_file())
        .ok_or_else(|| Problem::new("the packages hold no ldconfig"))?;
    tree.put(LDCONFIG, Entry::File(debs.read(ldconfig)?, true));
    tree.put(
        "/etc/ld.so.conf",
        Entry::File(format!("/{libraries}\n").into_bytes(), false),
    );
    // As on an installed system.
    tree.put("/lib", Entry::Link("usr/lib".to_owned()));
    Ok(())
}

/// Puts the shared objects that a program of this system's compiler names where it finds them in the
/// guest: Debian's.
pub fn put_wanted(cache: &Cache, tree: &mut Tree, program: &[u8]) -> Result<(), Problem> {
    let debs = debs(cache);
    let libraries = debs.libraries()?;
    let wants = elf::dynamic(program).ok_or_else(|| Problem::new("this is no dynamic program"))?;
    let places = wants
        .needed
        .iter()
        .map(|name| format!("{libraries}/{name}"));
    debs.put_programs(tree, places.collect())
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_sources_are_here() {
        let all = super::sources().unwrap_or_default();
        assert!(all.len() > 4, "{all:?}");
    }
}
