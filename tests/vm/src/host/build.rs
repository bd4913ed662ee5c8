//! Builds the guest's program: this same package, for musl, with nothing dynamic about it.
//!
//! Always asks cargo, so that it is never stale. Must never use the target folder of the build that
//! this process came from: cargo would wait for itself.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use super::arch::Arch;
use super::elf;
use super::process;
use super::report::{Doing, Problem, say};

/// What is used on x86-64 where the musl target cannot be had.
pub const GLIBC: &str = "x86_64-unknown-linux-gnu";

/// Tells cargo what to link programs for ARM with.
const ARM_LINKER: &str = "CARGO_TARGET_AARCH64_UNKNOWN_LINUX_MUSL_LINKER";

/// The workspace's folder.
pub fn workspace() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.ancestors().nth(2).unwrap_or(here).to_owned()
}

/// Whether the compiler has a standard library for this target.
pub fn has_target(target: &str) -> bool {
    Command::new(env::var_os("RUSTC").unwrap_or_else(|| "rustc".into()))
        .args(["--print", "target-libdir", "--target", target])
        .output()
        .is_ok_and(|o| {
            o.status.success() && Path::new(String::from_utf8_lossy(&o.stdout).trim()).is_dir()
        })
}

/// The target to build for: no loader, no shared objects.
pub fn target_for(arch: Arch) -> Result<&'static str, Problem> {
    let wanted = arch.target();
    if has_target(wanted) {
        return Ok(wanted);
    }
    if arch == Arch::Amd64 && has_target(GLIBC) {
        return Ok(GLIBC);
    }
    Err(Problem::new(format!(
        "the compiler has no target {wanted}; run: rustup target add {wanted}"
    )))
}

/// Builds it and gives back its path. `offline`: cargo must not ask the network.
pub fn guest_program(arch: Arch, offline: bool) -> Result<PathBuf, Problem> {
    let what = ["--package", "uverbs-vm", "--bin", "uverbs-vm"];
    Ok(for_guest(arch, &what, "the guest's program", offline)?.join("uverbs-vm"))
}

/// The examples that cases run in the guest.
const EXAMPLES: [&str; 4] = ["rc_pingpong", "srq_pingpong", "devinfo", "async_watch"];

/// Builds the examples for the guest; gives back each one's name and path.
pub fn guest_examples(arch: Arch, offline: bool) -> Result<Vec<(&'static str, PathBuf)>, Problem> {
    let names = EXAMPLES.map(|name| format!("guest_{name}"));
    let mut what = vec!["--package", "uverbs-vm"];
    for name in &names {
        what.extend(["--example", name]);
    }
    let folder = for_guest(arch, &what, "the examples for the guest", offline)?.join("examples");
    Ok(EXAMPLES
        .into_iter()
        .zip(names)
        .map(|(example, name)| (example, folder.join(name)))
        .collect())
}

/// Builds for the guest; gives back the folder in which the results are.
fn for_guest(arch: Arch, what: &[&str], name: &str, offline: bool) -> Result<PathBuf, Problem> {
    let target = target_for(arch)?;
    let workspace = workspace();
    let folder = env::var_os("CARGO_TARGET_DIR")
        .map_or_else(|| workspace.join("target"), |d| workspace.join(d))
        .join("guest");
    let mut cargo = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo
        .current_dir(&workspace)
        .args(["build", "--quiet", "--profile", "guest"])
        .args(what)
        .args(["--target", target, "--target-dir"])
        .arg(&folder);
    if offline {
        cargo.arg("--offline");
    }
    // A change to one case is then seconds, not half a minute.
    cargo.env("CARGO_PROFILE_GUEST_INCREMENTAL", "true");
    // Flags meant for the host's build (a model checker's cfg, a sanitizer) are not for the guest.
    for name in ["RUSTFLAGS", "CARGO_ENCODED_RUSTFLAGS", "CARGO_BUILD_TARGET"] {
        cargo.env_remove(name);
    }
    if arch == Arch::Arm64 {
        // The compiler's own linker, and the C library's parts that come with the target, are enough.
        cargo.env(ARM_LINKER, "rust-lld");
    }
    if target == GLIBC {
        cargo.env("RUSTFLAGS", "-C target-feature=+crt-static");
    }
    // Nothing is said of a build that was fresh.
    let (done, waiting) = mpsc::channel::<()>();
    let building = name.to_owned();
    let ticker = thread::spawn(move || {
        let start = Instant::now();
        let mut limit = Duration::from_secs(1);
        while waiting.recv_timeout(limit) == Err(mpsc::RecvTimeoutError::Timeout) {
            let so_far = start.elapsed().as_secs();
            say(format_args!("building {building} … ({so_far} s)"));
            limit = Duration::from_secs(15);
        }
    });
    let status = cargo.status().doing(|| "starting cargo".to_owned());
    drop(done);
    let _ = ticker.join();
    if !status?.success() {
        return Err(Problem::new(format!(
            "{name} cannot be built; what cargo says is above"
        )));
    }
    Ok(folder.join(target).join("guest"))
}

/// Builds what the bench looks at: the Rust twin and the bring-up without the standard library's start as a
/// user builds a release, and the ping-pong as one
/// builds what is to be small (`docs/performance.md`, "A small program").
pub fn bench_programs() -> Result<[PathBuf; 3], Problem> {
    let small = [
        "-C",
        "relocation-model=static",
        "-C",
        "link-arg=-Wl,-z,noseparate-code",
        "-C",
        "link-arg=-Wl,--no-eh-frame-hdr",
    ];
    Ok([
        bench_program("uverbs-twin", "release", &[])?,
        bench_program("uverbs-no-main", "release", &[])?,
        bench_program("uverbs-pingpong", "small", &small)?,
    ])
}

/// Builds one program of `uverbs-tools` with this profile, stripped, and with these flags for it alone.
fn bench_program(name: &str, profile: &str, flags: &[&str]) -> Result<PathBuf, Problem> {
    let target = target_for(Arch::Amd64)?;
    let workspace = workspace();
    let folder = env::var_os("CARGO_TARGET_DIR")
        .map_or_else(|| workspace.join("target"), |d| workspace.join(d))
        .join("guest");
    let mut cargo = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo
        .current_dir(&workspace)
        .args(["rustc", "--quiet", "--profile", profile])
        .args(["--package", "uverbs-tools", "--bin", name])
        .args(["--target", target, "--target-dir"])
        .arg(&folder)
        .arg("--")
        .args(flags)
        .env("CARGO_PROFILE_RELEASE_STRIP", "symbols");
    for name in ["RUSTFLAGS", "CARGO_ENCODED_RUSTFLAGS", "CARGO_BUILD_TARGET"] {
        cargo.env_remove(name);
    }
    if target == GLIBC {
        cargo.env("RUSTFLAGS", "-C target-feature=+crt-static");
    }
    process::quietly(&mut cargo, &format!("building the bench's {name}"))?;
    Ok(folder.join(target).join(profile).join(name))
}

/// Makes sure that the guest's program needs nothing but the kernel; says so in one line.
pub fn check_static(program: &Path) -> Result<String, Problem> {
    let bytes = std::fs::read(program).doing(|| format!("reading {}", program.display()))?;
    let found = elf::dynamic(&bytes)
        .ok_or_else(|| Problem::new(format!("{} is no ELF program", program.display())))?;
    if let Some(interpreter) = found.interpreter {
        return Err(Problem::new(format!(
            "the program has an interpreter: {interpreter}"
        )));
    }
    if !found.needed.is_empty() {
        return Err(Problem::new(format!(
            "the program needs {}",
            found.needed.join(", ")
        )));
    }
    Ok(format!(
        "the program is static: no PT_INTERP, no DT_NEEDED, {} KiB",
        bytes.len() / 1024
    ))
}
