//! Runs one test case in a process of its own, so that a crash or a leak is that case's alone.
//!
//! Must never speak to the host itself: it leaves its verdict in a file, and init sends it on.

use std::any::Any;
use std::ffi::OsString;
use std::fs;
use std::io::Write;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;

use super::VERDICT_PATH;
use crate::cases::{self, Report};

/// Runs the case of this name; the process ends with 0 if a verdict was left.
pub fn main(name: Option<&OsString>) -> ExitCode {
    let name = name.and_then(|n| n.to_str()).unwrap_or_default();
    let report = match cases::all().into_iter().find(|c| c.name == name) {
        None => Report::Failed(format!("the guest knows no case {name:?}")),
        Some(case) => match catch_unwind(AssertUnwindSafe(case.run)) {
            Ok(result) => Report::from(result),
            Err(payload) => Report::Failed(format!("panicked: {}", panic_text(&*payload))),
        },
    };
    let _ = std::io::stdout().flush();
    match fs::write(VERDICT_PATH, report.to_text()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}

fn panic_text(payload: &(dyn Any + Send)) -> String {
    payload
        .downcast_ref::<&str>()
        .map(|s| (*s).to_owned())
        .or_else(|| payload.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "with no message".to_owned())
}
