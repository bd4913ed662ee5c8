//! The controller in the guest: tells the twins in turn what to do, and tells the host the records.
//!
//! Records go to standard output, a line each; what is being done goes to standard error. Each group is a
//! process of its own, so that one that hangs or dies takes no other with it. Must never measure one twin
//! while the other one is at work.

mod alone;
mod bring_up;
mod events;
mod groups;
mod instructions;
mod rust_peers;
mod size;
mod trace;
mod traffic;
mod turns;
mod twin;

use std::ffi::OsString;
use std::io::{self, Write};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use super::record::Record;

/// What a measurement fails with.
pub(super) type Failure = Box<dyn std::error::Error + Send + Sync>;

/// Runs the groups that are named, or all; the exit status says whether every one of them worked.
pub fn main(args: &[OsString]) -> ExitCode {
    let args: Vec<String> = args
        .iter()
        .map(|arg| arg.to_string_lossy().into_owned())
        .collect();
    let done = match args.split_first() {
        Some((first, rest)) if first == groups::ONE => groups::one(rest),
        _ => groups::all(&args),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            progress(e);
            ExitCode::FAILURE
        }
    }
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

/// Until when a group should be done: it takes fewer samples where it would not be.
#[derive(Clone, Copy, Debug)]
pub(super) struct Budget(Instant);

impl Budget {
    pub(super) fn of(time: Duration) -> Self {
        Self(Instant::now() + time)
    }

    /// What is left of it.
    pub(super) fn left(self) -> Duration {
        self.0.saturating_duration_since(Instant::now())
    }

    /// Whether all of it is spent.
    pub(super) fn is_spent(self) -> bool {
        self.left().is_zero()
    }
}
