//! The set-up: the compiler's target, QEMU, kernels, headers. Instant when all is there.
//!
//! Must never change the system, but for the package of QEMU, and that only as root on a
//! Debian-like system; elsewhere it says the one command and stops.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;

use nix::unistd::geteuid;

use super::apt::Apt;
use super::build::{GLIBC, MUSL, has_target};
use super::cache::Cache;
use super::headers;
use super::kernel::Kernel;
use super::modules;
use super::packages::{self, Package};
use super::process::{self, quietly};
use super::qemu;
use super::report::{Doing, Problem, Step, say};

/// The package that holds QEMU.
const QEMU_PACKAGE: &str = "qemu-system-x86";

/// Makes sure that everything is there for these lines of kernels.
/// `for_tests`: also what only tests need, the kernels' headers and the test modules.
pub fn ensure(
    cache: &Cache,
    lines: &[String],
    refresh: bool,
    for_tests: bool,
) -> Result<(), Problem> {
    if std::env::consts::ARCH != "x86_64" {
        return Err(Problem::new(format!(
            "this is {}, and the virtual machine is x86-64 only",
            std::env::consts::ARCH
        )));
    }
    for line in lines {
        check_line(line)?;
    }
    let missing = |line: &&String| refresh || Kernel::of_line(cache, line).is_err();
    if has_target(MUSL)
        && qemu::find().is_ok()
        && has_busybox(cache)
        && !lines.iter().any(|l| missing(&l))
        && (!for_tests || (headers::settled(cache) && modules::settled(cache, lines)))
    {
        return Ok(());
    }
    let _lock = cache.lock()?;
    target()?;
    emulator()?;
    // Another set-up may have done it while this one waited for the lock.
    let wanted: Vec<&String> = lines.iter().filter(missing).collect();
    if !wanted.is_empty() || !has_busybox(cache) {
        fetch(cache, &wanted)?;
    }
    if for_tests {
        headers::ensure(cache, refresh);
        modules::ensure(cache, lines, refresh);
    }
    Ok(())
}

fn check_line(line: &str) -> Result<(), Problem> {
    let number = |n: &str| !n.is_empty() && n.bytes().all(|b| b.is_ascii_digit());
    match line.split_once('.') {
        _ if line == "newest" => Ok(()),
        Some((major, minor)) if number(major) && number(minor) => Ok(()),
        _ => Err(Problem::new(format!(
            "{line} is no line of kernels; say MAJOR.MINOR, such as 6.1 or 6.12, or newest"
        ))),
    }
}

fn target() -> Result<(), Problem> {
    if has_target(MUSL) {
        return Ok(());
    }
    if process::has("rustup") {
        let step = Step::start(format!("adding the compiler's target {MUSL}"));
        let added = quietly(
            Command::new("rustup").args(["target", "add", MUSL]),
            "rustup",
        );
        step.done();
        if let Err(e) = added {
            say(e);
        }
    }
    if has_target(MUSL) {
        return Ok(());
    }
    if !has_target(GLIBC) {
        return Err(Problem::new(format!(
            "the compiler has neither {MUSL} nor {GLIBC}; run: rustup target add {MUSL}"
        )));
    }
    say(format_args!(
        "the compiler has no {MUSL}, and it cannot be added here; using {GLIBC} linked statically"
    ));
    Ok(())
}

fn emulator() -> Result<(), Problem> {
    if qemu::find().is_ok() {
        return Ok(());
    }
    let command = format!("apt-get install --no-install-recommends {QEMU_PACKAGE}");
    if !Path::new("/etc/debian_version").exists() || !process::has("apt-get") {
        return Err(Problem::new(
            "QEMU is missing, and this is no Debian-like system; install the package that holds \
             qemu-system-x86_64",
        ));
    }
    if !geteuid().is_root() {
        return Err(Problem::new(format!(
            "QEMU is missing; run: sudo {command}"
        )));
    }
    let step = Step::start(format!("installing {QEMU_PACKAGE}"));
    let apt = |args: &[&str]| {
        let mut apt = Command::new("apt-get");
        apt.args([
            "-q",
            "-y",
            "-o",
            "Dpkg::Use-Pty=0",
            "-o",
            "DPkg::Lock::Timeout=120",
        ])
        .args(args);
        apt.env("DEBIAN_FRONTEND", "noninteractive")
            .env("LC_ALL", "C");
        quietly(&mut apt, "apt-get")
    };
    let install = ["install", "--no-install-recommends", QEMU_PACKAGE];
    if apt(&install).is_err() {
        // The system's package lists may be old or missing.
        let again = apt(&["update"]).and_then(|_| apt(&install));
        again.map_err(|e| Problem::new(format!("{e}\nQEMU is missing; run: {command}")))?;
    }
    step.done();
    qemu::find().map(drop)
}

fn has_busybox(cache: &Cache) -> bool {
    cache.at("tools").exists()
}

/// Suites that are looked through for a line, in turn, until one has it.
pub(super) fn suites(line: &str) -> &'static [&'static [&'static str]] {
    match line {
        "newest" => &[&["trixie-backports"]],
        _ => &[
            &["bookworm", "bookworm-security"],
            &["trixie", "trixie-security"],
        ],
    }
}

fn fetch(cache: &Cache, lines: &[&String]) -> Result<(), Problem> {
    // busybox comes from the first of these.
    let mut wanted: Vec<&str> = vec!["bookworm"];
    for line in lines {
        wanted.extend(suites(line).first().copied().unwrap_or_default());
    }
    let (mut apt, mut index) = open(cache, &mut wanted)?;
    if !has_busybox(cache) {
        let package = packages::named(&index, "busybox-static")
            .ok_or_else(|| Problem::new("the package lists have no busybox-static"))?;
        apt.unpack(&[package], &cache.at("tools"))?;
    }
    cache.make("kernels")?;
    for line in lines {
        let mut more = suites(line).iter().skip(1);
        while packages::kernel(&index, line).is_empty() {
            let Some(next) = more.next() else {
                return Err(Problem::new(format!(
                    "no suite that was looked through has a kernel {line} ({})",
                    wanted.join(", ")
                )));
            };
            wanted.extend(*next);
            (apt, index) = open(cache, &mut wanted)?;
        }
        kernel(cache, &apt, &packages::kernel(&index, line), line)?;
    }
    Ok(())
}

fn open(cache: &Cache, suites: &mut Vec<&str>) -> Result<(Apt, Vec<Package>), Problem> {
    suites.sort_unstable();
    suites.dedup();
    let apt = Apt::for_suites(cache, suites)?;
    let index = apt.index()?;
    Ok((apt, index))
}

fn kernel(cache: &Cache, apt: &Apt, wanted: &[&Package], line: &str) -> Result<(), Problem> {
    let Some(first) = wanted.first() else {
        return Ok(());
    };
    let folder = cache.at("kernels").join(&first.version);
    if Kernel::in_folder(&folder).is_err() {
        apt.unpack(wanted, &folder)?;
    }
    let kernel = Kernel::in_folder(&folder)?;
    let link = cache.at("kernels").join(format!("line-{line}"));
    let _ = fs::remove_file(&link);
    symlink(&first.version, &link).doing(|| format!("making {}", link.display()))?;
    say(format_args!(
        "kernel {line}: {} in {}",
        kernel.release,
        folder.display()
    ));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines() {
        assert!(check_line("6.12").is_ok());
        assert!(check_line("newest").is_ok());
        for bad in ["", "6", "6.", ".1", "6.12.1", "latest", "../x", "6.1/.."] {
            assert!(check_line(bad).is_err(), "{bad}");
        }
    }
}
