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
use super::arch::Arch;
use super::build::{self, GLIBC, has_target};
use super::cache::Cache;
use super::headers;
use super::kernel::Kernel;
use super::modules;
use super::packages::{self, Package};
use super::peers;
use super::process::{self, quietly};
use super::qemu;
use super::report::{Doing, Problem, Step, say};

/// Makes sure that everything is there for these lines of kernels.
/// `for_tests`: also what only tests need, the kernels' headers, the test modules, and the programs
/// of others.
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
    // A kernel of one's own may be all that is wanted.
    let mut archs: Vec<Arch> = lines.iter().map(|line| Arch::of_line(line).0).collect();
    if archs.is_empty() {
        archs.push(Arch::Amd64);
    }
    archs.dedup();
    if archs
        .iter()
        .all(|arch| has_target(arch.target()) && qemu::find(*arch).is_ok())
        && has_busybox(cache)
        && !lines.iter().any(|l| missing(&l))
        && (!for_tests
            || (!refresh
                && headers::settled(cache)
                && modules::settled(cache, lines)
                && archs.iter().all(|arch| peers::there(cache, *arch))))
    {
        return Ok(());
    }
    let _lock = cache.lock()?;
    for arch in &archs {
        target(*arch)?;
        emulator(*arch)?;
    }
    if !has_busybox(cache) {
        busybox(cache)?;
    }
    // Another set-up may have done it while this one waited for the lock.
    for line in lines.iter().filter(missing) {
        fetch(cache, line)?;
    }
    if for_tests {
        headers::ensure(cache, refresh);
        modules::ensure(cache, lines, refresh);
        for arch in archs {
            peers::ensure(cache, arch, refresh)?;
        }
    }
    Ok(())
}

fn check_line(line: &str) -> Result<(), Problem> {
    let number = |n: &str| !n.is_empty() && n.bytes().all(|b| b.is_ascii_digit());
    let base = Arch::of_line(line).1;
    match base.split_once('.') {
        _ if base == "newest" => Ok(()),
        Some((major, minor)) if number(major) && number(minor) => Ok(()),
        _ => Err(Problem::new(format!(
            "{line} is no line of kernels; say MAJOR.MINOR, such as 6.1 or 6.12, or newest; for \
             ARM with -arm64 behind it"
        ))),
    }
}

fn target(arch: Arch) -> Result<(), Problem> {
    let wanted = arch.target();
    if has_target(wanted) {
        return Ok(());
    }
    if process::has("rustup") {
        let step = Step::start(format!("adding the compiler's target {wanted}"));
        let added = quietly(
            Command::new("rustup").args(["target", "add", wanted]),
            "rustup",
        );
        step.done();
        if let Err(e) = added {
            say(e);
        }
    }
    if build::target_for(arch)? == GLIBC {
        say(format_args!(
            "the compiler has no {wanted}, and it cannot be added here; using {GLIBC} linked \
             statically"
        ));
    }
    Ok(())
}

fn emulator(arch: Arch) -> Result<(), Problem> {
    if qemu::find(arch).is_ok() {
        return Ok(());
    }
    let (package, program) = (arch.qemu_package(), arch.qemu());
    let command = format!("apt-get install --no-install-recommends {package}");
    if !Path::new("/etc/debian_version").exists() || !process::has("apt-get") {
        return Err(Problem::new(format!(
            "QEMU is missing, and this is no Debian-like system; install the package that holds \
             {program}"
        )));
    }
    if !geteuid().is_root() {
        return Err(Problem::new(format!(
            "QEMU is missing; run: sudo {command}"
        )));
    }
    let step = Step::start(format!("installing {package}"));
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
    let install = ["install", "--no-install-recommends", package];
    if apt(&install).is_err() {
        // The system's package lists may be old or missing.
        let again = apt(&["update"]).and_then(|_| apt(&install));
        again.map_err(|e| Problem::new(format!("{e}\nQEMU is missing; run: {command}")))?;
    }
    step.done();
    qemu::find(arch).map(drop)
}

fn has_busybox(cache: &Cache) -> bool {
    cache.at("tools").exists()
}

/// Suites that are looked through for a line, in turn, until one has it.
pub(super) fn suites(line: &str) -> &'static [&'static [&'static str]] {
    match Arch::of_line(line).1 {
        "newest" => &[&["trixie-backports"]],
        _ => &[
            &["bookworm", "bookworm-security"],
            &["trixie", "trixie-security"],
        ],
    }
}

fn busybox(cache: &Cache) -> Result<(), Problem> {
    let apt = Apt::for_suites(cache, &["bookworm"])?;
    let index = apt.index()?;
    let package = packages::named(&index, "busybox-static")
        .ok_or_else(|| Problem::new("the package lists have no busybox-static"))?;
    apt.unpack(&[package], &cache.at("tools"))
}

fn fetch(cache: &Cache, line: &str) -> Result<(), Problem> {
    cache.make("kernels")?;
    let arch = Arch::of_line(line).0;
    for suites in suites(line) {
        let apt = Apt::for_arch(cache, arch, suites)?;
        let index = apt.index()?;
        let wanted = packages::kernel(&index, line);
        if !wanted.is_empty() {
            return kernel(cache, &apt, &wanted, line);
        }
    }
    let all: Vec<&str> = suites(line).iter().copied().flatten().copied().collect();
    Err(Problem::new(format!(
        "no suite that was looked through has a kernel {line} ({})",
        all.join(", ")
    )))
}

fn kernel(cache: &Cache, apt: &Apt, wanted: &[&Package], line: &str) -> Result<(), Problem> {
    let Some(first) = wanted.first() else {
        return Ok(());
    };
    let name = Arch::of_line(line).0.place(&first.version);
    let folder = cache.at("kernels").join(&name);
    if Kernel::in_folder(&folder).is_err() {
        apt.unpack(wanted, &folder)?;
    }
    let kernel = Kernel::in_folder(&folder)?;
    let link = cache.at("kernels").join(format!("line-{line}"));
    let _ = fs::remove_file(&link);
    symlink(&name, &link).doing(|| format!("making {}", link.display()))?;
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
        assert!(check_line("6.12-arm64").is_ok());
        for bad in ["", "6", "6.", ".1", "6.12.1", "latest", "../x", "6.1/.."] {
            assert!(check_line(bad).is_err(), "{bad}");
        }
    }
}
