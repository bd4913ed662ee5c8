//! The programs of others that cases speak with: rdma-core's and perftest, as Debian has them, and a
//! tracer of system calls; and the examples of this workspace that they speak to.
//!
//! Everything that they need is unpacked into the cache, the C library included, so that what runs in
//! the guest does not depend on this system. Must never take anything from this system itself.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};

use super::apt::Apt;
use super::arch::Arch;
use super::build;
use super::cache::Cache;
use super::cpio::{Entry, Tree};
use super::elf;
use super::packages::{self, Package};
use super::report::{Doing, Problem, say};
use crate::guest::program::EXAMPLES;

/// Where Debian's programs come from.
const SUITE: &str = "trixie";

/// What is unpacked: the programs and the shared objects that they need.
const PACKAGES: [&str; 17] = [
    "ibverbs-utils",
    "ibverbs-providers",
    "perftest",
    "strace",
    "libibverbs1",
    "librdmacm1t64",
    "libibumad3",
    "libnl-3-200",
    "libnl-route-3-200",
    "libpci3",
    "libudev1",
    "libcap2",
    "zlib1g",
    "libunwind8",
    "liblzma5",
    "libgcc-s1",
    "libc6",
];

/// What is taken into the guest, with all shared objects that it names.
const PROGRAMS: [&str; 8] = [
    "ibv_rc_pingpong",
    "ibv_srq_pingpong",
    "ibv_devinfo",
    "ibv_asyncwatch",
    "ib_send_bw",
    "ib_write_lat",
    "ib_read_lat",
    "strace",
];

/// The file that lists what was unpacked; written last.
const VERSIONS: &str = "versions";

/// Whether nothing is to be done.
pub fn there(cache: &Cache, arch: Arch) -> bool {
    let text = fs::read_to_string(folder(cache, arch).join(VERSIONS)).unwrap_or_default();
    let there: BTreeSet<&str> = text.lines().filter_map(|l| l.split(' ').next()).collect();
    PACKAGES.iter().all(|name| there.contains(name))
}

/// Unpacks the packages where they are missing.
pub fn ensure(cache: &Cache, arch: Arch, refresh: bool) -> Result<(), Problem> {
    if there(cache, arch) && !refresh {
        return Ok(());
    }
    let apt = Apt::for_arch(cache, arch, &[SUITE])?;
    let index = apt.index()?;
    let mut wanted: Vec<&Package> = Vec::new();
    for name in PACKAGES {
        wanted.push(
            packages::named(&index, name)
                .ok_or_else(|| Problem::new(format!("{SUITE} has no package {name}")))?,
        );
    }
    let into = folder(cache, arch);
    apt.unpack(&wanted, &into)?;
    let list: String = wanted
        .iter()
        .map(|p| format!("{} {}\n", p.name, p.version))
        .collect();
    let file = into.join(VERSIONS);
    fs::write(&file, list).doing(|| format!("writing {}", file.display()))?;
    let version = |name| packages::named(&index, name).map_or("?", |p| p.version.as_str());
    say(format_args!(
        "peers: rdma-core {}, perftest {}",
        version("ibverbs-utils"),
        version("perftest")
    ));
    Ok(())
}

fn folder(cache: &Cache, arch: Arch) -> PathBuf {
    cache.at(&arch.place("peers"))
}

/// Why they cannot be taken into a guest; `None` if they can.
pub fn missing(cache: &Cache, arch: Arch) -> Option<String> {
    (!there(cache, arch))
        .then(|| "rdma-core and perftest are not there; run: cargo vm setup".to_owned())
}

/// Puts them, and the examples, where they belong in the guest.
pub fn gather(cache: &Cache, arch: Arch, tree: &mut Tree) -> Result<(), Problem> {
    let folder = folder(cache, arch);
    let libraries = libraries(&folder)?;
    let mut todo = Vec::new();
    for name in PROGRAMS {
        todo.push(format!("usr/bin/{name}"));
    }
    // libibverbs looks for these by itself.
    for entry in list(&folder.join(&libraries).join("libibverbs"))? {
        let name = entry.to_string_lossy();
        if name.starts_with("librxe-") {
            todo.push(format!("{libraries}/libibverbs/{name}"));
        }
    }
    put(tree, &folder, "etc/libibverbs.d/rxe.driver")?;
    let mut seen = BTreeSet::new();
    while let Some(place) = todo.pop() {
        if !seen.insert(place.clone()) {
            continue;
        }
        let content = put(tree, &folder, &place)?;
        let wants = elf::dynamic(&content)
            .ok_or_else(|| Problem::new(format!("{place} of the packages is no program")))?;
        if let Some(interpreter) = wants.interpreter {
            let inside = interpreter.trim_start_matches('/');
            let content = read(&folder.join("usr").join(inside))?;
            tree.put(&interpreter, Entry::File(content, true));
        }
        for name in wants.needed {
            todo.push(format!("{libraries}/{name}"));
        }
    }
    for (name, path) in build::guest_examples(arch, true)? {
        tree.put(
            &format!("{EXAMPLES}/{name}"),
            Entry::File(read(&path)?, true),
        );
    }
    Ok(())
}

/// The folder of shared objects, `usr/lib/x86_64-linux-gnu` on one architecture.
fn libraries(folder: &Path) -> Result<String, Problem> {
    list(&folder.join("usr/lib"))?
        .into_iter()
        .map(|name| name.to_string_lossy().into_owned())
        .find(|name| name.ends_with("-linux-gnu"))
        .map(|name| format!("usr/lib/{name}"))
        .ok_or_else(|| Problem::new("the packages hold no shared objects"))
}

fn list(folder: &Path) -> Result<Vec<std::ffi::OsString>, Problem> {
    let what = || format!("reading {}", folder.display());
    let mut names = Vec::new();
    for entry in fs::read_dir(folder).doing(what)? {
        names.push(entry.doing(what)?.file_name());
    }
    names.sort();
    Ok(names)
}

fn read(path: &Path) -> Result<Vec<u8>, Problem> {
    fs::read(path).doing(|| {
        format!(
            "reading {} (cargo vm setup --refresh unpacks it again)",
            path.display()
        )
    })
}

fn put(tree: &mut Tree, folder: &Path, place: &str) -> Result<Vec<u8>, Problem> {
    let content = read(&folder.join(place))?;
    let runs = Path::new(place).extension() != Some(OsStr::new("driver"));
    tree.put(&format!("/{place}"), Entry::File(content.clone(), runs));
    Ok(content)
}
