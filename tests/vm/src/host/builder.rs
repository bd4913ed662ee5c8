//! A root of its own, unpacked from packages into the cache, in which kernel modules are built.
//!
//! So one compiler, at least as new as that of every test kernel, builds them all, and the kernels'
//! own tools find the C library they were linked with. Each architecture of kernels has a root with
//! its own compiler; all else in it is for the host. Must never install anything into the system,
//! nor run a package's scripts; what it mounts is gone when the build ends.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::PathBuf;
use std::process::Command;

use nix::unistd::geteuid;

use super::apt::Apt;
use super::arch::Arch;
use super::cache::Cache;
use super::packages::{self, Package};
use super::process;
use super::report::{Doing, Problem, Step, say};
use super::setup::suites;

/// Where the compiler comes from.
const SUITE: &str = "trixie";

/// What a module's build calls beside the compiler; apt adds what these need. The links `/bin`, `/lib`
/// … are in `base-files`, and the kernel's own tools want `libelf`.
const PACKAGES: [&str; 10] = [
    "base-files",
    "bash",
    "coreutils",
    "dash",
    "findutils",
    "grep",
    "libelf1t64",
    "make",
    "mawk",
    "sed",
];

/// Says that the root is whole, and what it was made of.
const MARK: &str = "builder";

/// Shows the host's `/proc` and `/dev` in the root, to this build alone, and goes in. What the
/// architecture and the other tools are called, the kernel's headers say.
const ENTER: &str = r#"
set -e
mount --rbind /proc "$1/proc"
mount --rbind /dev "$1/dev"
exec chroot "$1" /usr/bin/env -i PATH=/usr/bin LC_ALL=C \
    make -s -C "/usr/src/linux-headers-$2" "M=/build/$2" \
    "CC=$3" KCFLAGS=-g0 CONFIG_DEBUG_INFO_BTF_MODULES= modules
"#;

/// The root.
#[derive(Debug)]
pub struct Builder {
    root: PathBuf,
    arch: Arch,
}

impl Builder {
    /// Finds the one for kernels of this architecture, or unpacks it.
    pub fn ensure(cache: &Cache, arch: Arch) -> Result<Self, Problem> {
        let root = cache.at(&arch.place("builder"));
        let builder = Self { root, arch };
        let mut packages = vec![arch.compiler().0];
        packages.extend(PACKAGES);
        packages.sort_unstable();
        let made_of = packages.join(" ");
        if fs::read_to_string(builder.root.join(MARK)).is_ok_and(|m| m == made_of) {
            return Ok(builder);
        }
        say(format_args!(
            "unpacking a compiler for the {} kernel's test modules",
            arch.debian()
        ));
        let apt = Apt::for_suites(cache, &[SUITE])?;
        let index = apt.index()?;
        let wanted = apt.closure(&index, &packages)?;
        apt.unpack(&wanted.iter().collect::<Vec<_>>(), &builder.root)?;
        let what = || format!("preparing {}", builder.root.display());
        // What the package's script would have done.
        symlink("mawk", builder.root.join("usr/bin/awk")).doing(what)?;
        fs::write(builder.root.join(MARK), made_of).doing(what)?;
        Ok(builder)
    }

    fn headers(&self, release: &str) -> PathBuf {
        self.root.join(format!("usr/src/linux-headers-{release}"))
    }

    /// Makes sure that the headers of this kernel are in the root, at the absolute paths that they
    /// speak of.
    fn ensure_headers(&self, cache: &Cache, line: &str, release: &str) -> Result<(), Problem> {
        if self.headers(release).join("scripts/mod/modpost").exists() {
            return Ok(());
        }
        let mut wanted: Vec<&str> = Vec::new();
        for more in suites(line) {
            wanted.extend(*more);
            let apt = Apt::for_arch(cache, self.arch, &wanted)?;
            let index = apt.index()?;
            let Some([own, common, tools]) = packages::kernel_headers(&index, release) else {
                continue;
            };
            if self.arch == Arch::Amd64 {
                return self.unpack_headers(cache, &apt, &[own, common, tools]);
            }
            // The tools must run here.
            let here = Apt::for_suites(cache, &wanted)?;
            let index = here.index()?;
            let Some(tools) = packages::named(&index, &tools.name) else {
                continue;
            };
            self.unpack_headers(cache, &here, &[tools])?;
            return self.unpack_headers(cache, &apt, &[own, common]);
        }
        Err(Problem::new(format!(
            "the archive has no headers for the kernel {release} (any more); for a newer kernel \
             run: cargo vm setup --kernel {line} --refresh"
        )))
    }

    fn unpack_headers(
        &self,
        cache: &Cache,
        apt: &Apt,
        packages: &[&Package],
    ) -> Result<(), Problem> {
        let folder = cache.make("modules")?.join("unpacked");
        apt.unpack(packages, &folder)?;
        for place in ["usr/lib", "usr/src"] {
            let from = folder.join(place);
            if !from.exists() {
                continue;
            }
            for entry in fs::read_dir(&from)
                .doing(|| format!("reading {}", from.display()))?
                .flatten()
            {
                let name = entry.file_name();
                if !name.as_encoded_bytes().starts_with(b"linux-") {
                    continue;
                }
                let to = self.root.join(place).join(&name);
                // Left by a set-up that was broken off, or older tools of the same line.
                let _ = fs::remove_file(&to).or_else(|_| fs::remove_dir_all(&to));
                fs::rename(entry.path(), &to).doing(|| format!("moving to {}", to.display()))?;
            }
        }
        let _ = fs::remove_dir_all(folder);
        Ok(())
    }

    /// Builds the sources for a kernel; gives back the folder with what was built.
    pub fn build(
        &self,
        cache: &Cache,
        line: &str,
        release: &str,
        sources: &[(&str, &str)],
    ) -> Result<PathBuf, Problem> {
        can_enter()?;
        self.ensure_headers(cache, line, release)?;
        let folder = self.root.join("build").join(release);
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(&folder).doing(|| format!("making {}", folder.display()))?;
        for (name, text) in sources {
            let path = folder.join(name);
            fs::write(&path, text).doing(|| format!("writing {}", path.display()))?;
        }
        let step = Step::start(format!("building the test modules for {release}"));
        process::quietly(
            unshare()
                .args(["sh", "-c", ENTER, "sh"])
                .arg(&self.root)
                .args([release, self.arch.compiler().1]),
            "building the test modules",
        )?;
        step.done();
        Ok(folder)
    }
}

/// A program to come, with mounts of its own; who is not root becomes it in a namespace.
fn unshare() -> Command {
    let mut command = Command::new("unshare");
    if !geteuid().is_root() {
        command.args(["--user", "--map-root-user"]);
    }
    command.arg("--mount");
    // `chroot` and `mount` may be where the path of an ordinary user does not lead.
    let path = std::env::var("PATH").unwrap_or_default();
    command.env("PATH", format!("{path}:/usr/sbin:/sbin:/usr/bin:/bin"));
    command
}

/// Whether a root can be entered at all; best known before anything is downloaded.
pub fn can_enter() -> Result<(), Problem> {
    let what = "making a namespace with mounts of its own";
    process::quietly(unshare().args(["mount", "--bind", "/proc", "/proc"]), what)
        .map(drop)
        .map_err(|e| {
            let hint = if geteuid().is_root() {
                "this machine does not let root mount; run the set-up where it does"
            } else {
                "run the set-up as root, or allow user namespaces \
                 (sysctl kernel.unprivileged_userns_clone=1)"
            };
            Problem::new(format!("{hint}: {e}"))
        })
}
