//! Runs a helper program of the system quietly: its output is shown only when it fails.
//!
//! Must never let a long step pass in silence.

use std::ffi::OsStr;
use std::process::{Command, Output, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use super::payload::find_program;
use super::report::{Doing, Problem, say};

/// Whether a program is in `PATH`.
pub fn has(name: &str) -> bool {
    find_program(OsStr::new(name)).is_some()
}

/// Runs it to its end, saying `what` every 15 s; gives back its standard output.
pub fn quietly(command: &mut Command, what: &str) -> Result<Vec<u8>, Problem> {
    let (done, waiting) = mpsc::channel::<()>();
    let line = format!("{what}: still at it …");
    let ticker = thread::spawn(move || {
        let limit = Duration::from_secs(15);
        while waiting.recv_timeout(limit) == Err(mpsc::RecvTimeoutError::Timeout) {
            say(&line);
        }
    });
    let output = command.stdin(Stdio::null()).output();
    drop(done);
    let _ = ticker.join();
    let Output {
        status,
        stdout,
        stderr,
    } = output.doing(|| format!("{what}: starting {}", command.get_program().display()))?;
    if status.success() {
        return Ok(stdout);
    }
    let mut text = String::from_utf8_lossy(&stdout).into_owned();
    text.push_str(&String::from_utf8_lossy(&stderr));
    let lines: Vec<&str> = text.lines().filter(|l| !l.trim().is_empty()).collect();
    let end = lines
        .get(lines.len().saturating_sub(8)..)
        .unwrap_or_default();
    Err(Problem::new(format!(
        "{what} failed ({} ended with {status}):\n  {}",
        command.get_program().display(),
        end.join("\n  ")
    )))
}
