//! The programs of others that cases speak with: rdma-core's and perftest, as Debian has them, and a
//! tracer of system calls; and the examples of this workspace that they speak to.
//!
//! Everything that they need is unpacked into the cache, the C library included, so that what runs in
//! the guest does not depend on this system. Must never take anything from this system itself.

use std::fs;

use super::arch::Arch;
use super::build;
use super::cache::Cache;
use super::cpio::{Entry, Tree};
use super::debs::Debs;
use super::report::{Doing, Problem, say};
use crate::guest::program::EXAMPLES;

/// What is unpacked: the programs and the shared objects that they need.
const PACKAGES: &[&str] = &[
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

fn debs(cache: &Cache, arch: Arch) -> Debs {
    Debs::new(cache, "peers", arch, PACKAGES)
}

/// Whether nothing is to be done.
pub fn there(cache: &Cache, arch: Arch) -> bool {
    debs(cache, arch).are_there()
}

/// Unpacks the packages where they are missing.
pub fn ensure(cache: &Cache, arch: Arch, refresh: bool) -> Result<(), Problem> {
    let debs = debs(cache, arch);
    if debs.are_there() && !refresh {
        return Ok(());
    }
    debs.unpack(cache)?;
    let version = |name| debs.version(name).unwrap_or_default();
    say(format_args!(
        "peers: rdma-core {}, perftest {}",
        version("ibverbs-utils"),
        version("perftest")
    ));
    Ok(())
}

/// Why they cannot be taken into a guest; `None` if they can.
pub fn missing(cache: &Cache, arch: Arch) -> Option<String> {
    (!there(cache, arch))
        .then(|| "rdma-core and perftest are not there; run: cargo vm setup".to_owned())
}

/// Puts them, and the examples, where they belong in the guest.
pub fn gather(cache: &Cache, arch: Arch, tree: &mut Tree) -> Result<(), Problem> {
    let debs = debs(cache, arch);
    let mut programs: Vec<String> = PROGRAMS.map(|name| format!("usr/bin/{name}")).into();
    // libibverbs looks for these by itself.
    let providers = format!("{}/libibverbs", debs.libraries()?);
    for name in debs.list(&providers)? {
        if name.starts_with("librxe-") {
            programs.push(format!("{providers}/{name}"));
        }
    }
    debs.put(tree, "etc/libibverbs.d/rxe.driver", false)?;
    debs.put_programs(tree, programs)?;
    for (name, path) in build::guest_examples(arch, true)? {
        let content = fs::read(&path).doing(|| format!("reading {}", path.display()))?;
        tree.put(&format!("{EXAMPLES}/{name}"), Entry::File(content, true));
    }
    Ok(())
}
