//! Parts of cases that want a process of their own: one that a filter may kill, one that is traced.

use std::ffi::OsString;
use std::process::{Command, ExitCode};

use super::pair::Failure;
use super::{peer, sandbox, trace};
use crate::guest::PART_ARG;
use crate::guest::program::Program;

type Part = fn() -> Result<(), Failure>;

const PARTS: [(&str, Part); 5] = [
    ("peer", peer::main),
    ("sandbox-asked", sandbox::asked),
    ("sandbox-environment", sandbox::by_environment),
    ("sandbox-not-asked", sandbox::by_environment),
    ("traced", trace::subject),
];

/// Runs the part of this name.
#[allow(clippy::print_stderr, reason = "the case shows it")]
pub fn main(name: Option<&OsString>) -> ExitCode {
    let name = name.and_then(|name| name.to_str()).unwrap_or_default();
    let Some((_, part)) = PARTS.iter().find(|(known, _)| *known == name) else {
        eprintln!("there is no part {name:?}");
        return ExitCode::FAILURE;
    };
    match part() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

/// The command that runs a part.
pub(super) fn command(part: &str) -> Command {
    let mut command = Command::new("/init");
    command.args([PART_ARG, part]);
    command
}

/// Starts a part.
pub(super) fn start(part: &str, environment: &[(&str, &str)]) -> Result<Program, Failure> {
    let mut command = command(part);
    command.envs(environment.iter().copied());
    Ok(Program::spawn(part, command)?)
}
