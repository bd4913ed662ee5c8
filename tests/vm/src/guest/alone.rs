//! A root with one file in it: the running executable. `/dev`, `/sys` and `/proc` are there beside it.
//!
//! Must never be called by init itself: whoever enters does not come back out.

use std::fs;
use std::io;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

use nix::mount::{MsFlags, mount};
use nix::unistd::chroot;

const ROOT: &str = "/alone";
const KERNEL: [&str; 3] = ["/dev", "/sys", "/proc"];
const PROGRAM: &str = "/init";

/// Makes such a root and starts the executable in it; comes back only with an error.
pub fn enter(args: &[&str]) -> io::Error {
    match prepare() {
        Ok(()) => Command::new(PROGRAM).args(args).exec(),
        Err(e) => e,
    }
}

fn prepare() -> io::Result<()> {
    let failed = |what: &str, e| io::Error::other(format!("{what}: {e}"));
    fs::create_dir_all(ROOT)?;
    let none = None::<&str>;
    mount(Some("tmpfs"), ROOT, Some("tmpfs"), MsFlags::empty(), none)
        .map_err(|e| failed("mounting a root", e))?;
    // The modes are copied too.
    fs::copy(PROGRAM, format!("{ROOT}{PROGRAM}"))?;
    for folder in KERNEL {
        let place = format!("{ROOT}{folder}");
        fs::create_dir(&place)?;
        let flags = MsFlags::MS_BIND | MsFlags::MS_REC;
        mount(Some(folder), place.as_str(), none, flags, none).map_err(|e| failed(folder, e))?;
    }
    chroot(ROOT).map_err(|e| failed("entering the root", e))?;
    std::env::set_current_dir("/")
}

/// The size of the one file, if it is the only thing there.
pub fn check() -> io::Result<u64> {
    let mut others = Vec::new();
    let mut size = None;
    for entry in fs::read_dir("/")? {
        let entry = entry?;
        let path = entry.path();
        if path == Path::new(PROGRAM) {
            size = Some(entry.metadata()?.len());
        } else if !KERNEL.iter().any(|folder| path == Path::new(folder)) {
            others.push(path.display().to_string());
        }
    }
    match size {
        Some(size) if others.is_empty() => Ok(size),
        Some(_) => Err(io::Error::other(format!(
            "the root also holds {}",
            others.join(", ")
        ))),
        None => Err(io::Error::other(format!("the root has no {PROGRAM}"))),
    }
}
