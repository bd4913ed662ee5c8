//! What `cargo vm demo` shows, run inside the guest by the same static binary that is its init.
//!
//! Must never reach outside the guest, and must fail loudly when it cannot show what it promises.

use std::io::Write;
use std::process::ExitCode;

/// Runs the demonstration in the guest.
pub fn run() -> ExitCode {
    // A guest without its output has nobody to complain to.
    let _ = writeln!(std::io::stdout(), "demo: not built yet");
    ExitCode::FAILURE
}
