//! The controller in the guest: tells the twins in turn what to do, and tells the host the records.
//!
//! Records go to standard output, a line each; what is being done goes to standard error. Must never
//! measure one twin while the other one is at work.

mod bring_up;
mod events;
mod instructions;
mod size;
mod trace;
mod traffic;
mod twin;

use std::ffi::OsString;
use std::io::{self, Write};
use std::process::ExitCode;

use super::LDCONFIG;
use super::record::{Group, Record};

/// What a measurement fails with.
pub(super) type Failure = Box<dyn std::error::Error + Send + Sync>;

/// Runs the groups that are named, or all; the exit status says whether every one of them worked.
pub fn main(args: &[OsString]) -> ExitCode {
    let mut groups = Vec::new();
    for arg in args {
        match arg.to_string_lossy().parse::<Group>() {
            Ok(group) => groups.push(group),
            Err(e) => {
                progress(e);
                return ExitCode::FAILURE;
            }
        }
    }
    if groups.is_empty() {
        groups.extend(Group::ALL);
    }
    // Without its cache the dynamic linker looks in more places than on an installed system.
    let cached = std::process::Command::new(LDCONFIG).status();
    if !cached.is_ok_and(|status| status.success()) {
        progress("the dynamic linker's cache could not be made; C's bring-up is dearer than it is");
        return ExitCode::FAILURE;
    }
    let mut status = ExitCode::SUCCESS;
    for group in groups {
        progress(format_args!("{} …", group.name()));
        let done = match group {
            Group::Instructions => instructions::run(),
            Group::Traffic => traffic::run(),
            Group::BringUp => bring_up::run(),
            Group::Events => events::run(),
            Group::Size => size::run(),
        };
        if let Err(e) = done {
            progress(format_args!("{}: {e}", group.name()));
            status = ExitCode::FAILURE;
        }
    }
    status
}

/// Replaces this process with a program once a line has come: until then it can be attached to.
pub fn start_when_told(args: &[OsString]) -> ExitCode {
    use std::os::unix::process::CommandExt;
    let mut line = String::new();
    let told = io::stdin().read_line(&mut line);
    let Some((program, rest)) = args.split_first() else {
        return ExitCode::FAILURE;
    };
    if told.is_ok_and(|n| n > 0) {
        let e = std::process::Command::new(program).args(rest).exec();
        progress(format_args!("{}: {e}", program.display()));
    }
    ExitCode::FAILURE
}

/// Says what is being done, and what went wrong.
fn progress(line: impl std::fmt::Display) {
    // With nobody there to be told, the records still count.
    let _ = writeln!(io::stderr().lock(), "bench: {line}");
}

/// Tells the host a record.
fn tell(record: &Record) -> Result<(), Failure> {
    let mut out = io::stdout().lock();
    writeln!(out, "{record}")?;
    Ok(out.flush()?)
}
