//! Counts instructions by executing them one at a time (`ptrace(2)`, `PTRACE_SINGLESTEP`).
//!
//! The protocol is two lines, so that a program in any language can be counted:
//!
//! 1. it asks to be traced (`PTRACE_TRACEME`; [`trace_me`] here) before its first mark;
//! 2. it raises `SIGUSR1` ([`mark`] here) where a region begins, and again where it ends.
//!
//! Between marks of two regions it runs at full speed. A region holds what the marks themselves
//! cost, the same number each time; a program begins with a region in which nothing happens
//! (`mark(); mark();`), and [`calls`] takes that one's count off the others'.
//!
//! What is counted is what user space executes in the one thread that asked to be traced: a system
//! call is one instruction, and what the kernel does in it is none. On x86 each turn of a string
//! instruction (`rep movsb`) is one.
//!
//! The first region should not come before what is counted has run once: the dynamic linker resolves
//! a function when it is first called.

use std::fmt;
use std::io;
use std::process::{Child, Command};

use nix::errno::Errno;
use nix::sys::ptrace;
use nix::sys::signal::{Signal, raise};
use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::Pid;

/// What begins and ends a region.
const MARK: Signal = Signal::SIGUSR1;

/// Asks that the program that started this one trace it.
///
/// # Errors
/// `EPERM` where tracing is not allowed (a container's filter, a tracer that is there already).
pub fn trace_me() -> io::Result<()> {
    ptrace::traceme().map_err(Into::into)
}

/// Begins a region, or ends it. Without a tracer the signal ends the program.
#[inline(never)]
pub fn mark() {
    // The signal exists, and raising it in this very thread needs no permission.
    let _ = raise(MARK);
}

/// Why there are no counts.
#[derive(Debug)]
#[non_exhaustive]
pub enum CountError {
    /// The program could not be started.
    Start(io::Error),
    /// This machine, or the container, does not let a program be traced.
    NotPermitted(Errno),
    /// The program ended badly, or in the middle of a region.
    Ended(WaitStatus),
    /// The program made no region.
    NoRegions,
}

impl fmt::Display for CountError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Start(error) => write!(f, "the program could not be started: {error}"),
            Self::NotPermitted(errno) => write!(f, "ptrace is not permitted here: {errno}"),
            Self::Ended(status) => write!(f, "the program ended early: {status:?}"),
            Self::NoRegions => f.write_str("the program marked no region"),
        }
    }
}

impl std::error::Error for CountError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Start(error) => Some(error),
            Self::NotPermitted(errno) => Some(errno),
            _ => None,
        }
    }
}

/// Whether a program may trace another one here, found out by doing it.
///
/// # Errors
/// [`CountError::NotPermitted`].
pub fn permitted() -> Result<(), CountError> {
    let mut child = Command::new("sleep")
        .arg("60")
        .spawn()
        .map_err(CountError::Start)?;
    let pid = pid_of(&child);
    let tried = ptrace::attach(pid).map_err(CountError::NotPermitted);
    // Its end is waited for whatever came of it, so that none is left behind.
    let _ = child.kill();
    let _ = child.wait();
    tried
}

fn pid_of(child: &Child) -> Pid {
    // Process ids are positive numbers of type `pid_t`, which is what they were made of.
    Pid::from_raw(child.id().cast_signed())
}

/// Runs a program to its end and gives the instructions of each of its regions, in order.
///
/// # Errors
/// [`CountError`].
pub fn regions(command: &mut Command) -> Result<Vec<u64>, CountError> {
    let child = command.spawn().map_err(CountError::Start)?;
    let pid = pid_of(&child);
    let mut regions = Vec::new();
    // Instructions of the region that is being counted.
    let mut open: Option<u64> = None;
    loop {
        let status = wait(pid)?;
        let deliver = match status {
            WaitStatus::Stopped(_, MARK) => {
                open = match open.take() {
                    None => Some(0),
                    Some(count) => {
                        regions.push(count);
                        None
                    }
                };
                None
            }
            WaitStatus::Stopped(_, Signal::SIGTRAP) => {
                open = open.map(|count| count.saturating_add(1));
                None
            }
            WaitStatus::Stopped(_, signal) => Some(signal),
            WaitStatus::Exited(_, 0) if open.is_none() && !regions.is_empty() => {
                return Ok(regions);
            }
            WaitStatus::Exited(_, 0) if open.is_none() => return Err(CountError::NoRegions),
            WaitStatus::Exited(..) | WaitStatus::Signaled(..) => {
                return Err(CountError::Ended(status));
            }
            _ => None,
        };
        let go_on = if open.is_some() {
            ptrace::step(pid, deliver)
        } else {
            ptrace::cont(pid, deliver)
        };
        match go_on {
            // ESRCH: it was killed meanwhile; the next wait tells.
            Ok(()) | Err(Errno::ESRCH) => {}
            Err(errno) => return Err(CountError::NotPermitted(errno)),
        }
    }
}

/// The regions of a program whose first region is empty, without what the marks cost.
///
/// # Errors
/// [`CountError`].
pub fn calls(command: &mut Command) -> Result<Vec<u64>, CountError> {
    let regions = regions(command)?;
    let (empty, rest) = regions.split_first().ok_or(CountError::NoRegions)?;
    Ok(rest
        .iter()
        .map(|count| count.saturating_sub(*empty))
        .collect())
}

fn wait(pid: Pid) -> Result<WaitStatus, CountError> {
    loop {
        match waitpid(pid, None) {
            Ok(status) => return Ok(status),
            Err(Errno::EINTR) => {}
            Err(errno) => return Err(CountError::Start(errno.into())),
        }
    }
}
