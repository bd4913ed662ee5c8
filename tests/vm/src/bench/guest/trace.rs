//! Counts the system calls of a program from its exec to its landmark, a call of `getppid`.
//!
//! Ground truth: `ptrace(2)`. Must never leave a traced program behind.

use std::io::{Read, Write};
use std::process::{Child, Command, Stdio};

use nix::errno::Errno;
use nix::libc;
use nix::sys::ptrace::{self, Options};
use nix::sys::signal::Signal;
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;

use super::Failure;
use crate::guest::BENCH_START_ARG;

/// Runs a program up to its landmark and gives the number of its system calls, the exec and the
/// landmark apart; then lets it run to its end.
pub(super) fn system_calls(program: &str, args: &[&str]) -> Result<u64, Failure> {
    // The program waits in this very executable until it is attached to, and is only then exec'ed.
    let mut child = Command::new("/proc/self/exe")
        .arg(BENCH_START_ARG)
        .arg(program)
        .args(args)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()?;
    let counted = follow(&mut child);
    if counted.is_err() {
        let _ = child.kill();
    }
    let mut said = String::new();
    if let Some(mut out) = child.stdout.take() {
        out.read_to_string(&mut said)?;
    }
    let status = child.wait()?;
    match counted {
        Ok(calls) if status.success() => Ok(calls),
        Ok(_) => Err(format!("{program}: {status}: {said}").into()),
        Err(e) => Err(format!("{program}: {e}").into()),
    }
}

fn follow(child: &mut Child) -> Result<u64, Failure> {
    let pid = Pid::from_raw(i32::try_from(child.id())?);
    ptrace::attach(pid)?;
    wait(pid)?;
    ptrace::setoptions(
        pid,
        Options::PTRACE_O_TRACESYSGOOD | Options::PTRACE_O_TRACEEXEC,
    )?;
    let mut input = child.stdin.take().ok_or("the program has no input")?;
    input.write_all(b"go\n")?;
    drop(input);
    let mut calls = 0;
    let mut executed = false;
    let mut signal: Option<Signal> = None;
    loop {
        ptrace::syscall(pid, signal.take())?;
        match wait(pid)? {
            WaitStatus::PtraceEvent(_, _, libc::PTRACE_EVENT_EXEC) => executed = true,
            WaitStatus::PtraceSyscall(_) if executed => {
                let Some(call) = entered(pid)? else {
                    continue;
                };
                if call == libc::SYS_getppid {
                    ptrace::detach(pid, None)?;
                    return Ok(calls);
                }
                calls += 1;
            }
            // The stop that attaching makes is not the program's.
            WaitStatus::Stopped(_, Signal::SIGSTOP | Signal::SIGTRAP) => {}
            WaitStatus::Stopped(_, other) => signal = Some(other),
            WaitStatus::Exited(_, status) => {
                return Err(format!("it ended with {status} before its landmark").into());
            }
            WaitStatus::Signaled(_, signal, _) => {
                return Err(format!("{signal} ended it before its landmark").into());
            }
            _ => {}
        }
    }
}

fn wait(pid: Pid) -> Result<WaitStatus, Errno> {
    loop {
        match waitpid(pid, Some(WaitPidFlag::__WALL)) {
            Err(Errno::EINTR) => {}
            other => return other,
        }
    }
}

/// The number of the call that it stopped at the entry of; `None` if it stopped at a call's end.
#[cfg(target_arch = "x86_64")]
fn entered(pid: Pid) -> Result<Option<i64>, Failure> {
    let regs = ptrace::getregs(pid)?;
    // At the entry of a call, and only there, the kernel has put this into rax.
    let at_entry = regs.rax.cast_signed() == -i64::from(libc::ENOSYS);
    Ok(at_entry.then(|| regs.orig_rax.cast_signed()))
}

/// The number of the call that it stopped at the entry of; `None` if it stopped at a call's end.
#[cfg(target_arch = "aarch64")]
fn entered(pid: Pid) -> Result<Option<i64>, Failure> {
    let regs = ptrace::getregs(pid)?;
    // For as long as it is stopped the kernel has put 0 into x7 at a call's entry, and 1 at its end.
    let at_entry = regs.regs[7] == 0;
    Ok(at_entry.then(|| regs.regs[8].cast_signed()))
}
