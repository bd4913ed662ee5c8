//! The commands, and what their ends mean for the exit status.

use std::ffi::OsString;
use std::io::{self, Write};
use std::process::ExitCode;

use super::bench;
use super::cache::Cache;
use super::help;
use super::kernel::{self, Kernel};
use super::layers;
use super::options::{self, Command};
use super::report::{Problem, say};
use super::run;
use super::setup;

/// Exit status when the machine could not be made, or died.
pub const MACHINE: u8 = 125;
/// Exit status when the command line is wrong.
const USAGE: u8 = 2;
/// The line of kernels of which the tests always run a part.
const NEWEST: &str = "newest";

/// Runs the tool.
pub fn main(args: Vec<OsString>) -> ExitCode {
    let command = match options::parse(args) {
        Ok(command) => command,
        Err(e) => {
            say(e);
            return ExitCode::from(USAGE);
        }
    };
    let demo = matches!(command, Command::Demo(_));
    match carry_out(command) {
        Ok(status) => ExitCode::from(status),
        Err(e) if demo => {
            say(e);
            let _ = writeln!(io::stdout(), "demo: failed (it could not be started)");
            ExitCode::FAILURE
        }
        Err(e) => {
            say(e);
            ExitCode::from(MACHINE)
        }
    }
}

fn carry_out(command: Command) -> Result<u8, Problem> {
    let cache = Cache::locate()?;
    match command {
        Command::Help(topic) => {
            let _ = io::stdout().write_all(help::text(topic).as_bytes());
            Ok(0)
        }
        Command::Setup {
            mut kernels,
            refresh,
        } => {
            if kernels.is_empty() {
                kernels.push(kernel::line(None));
            }
            setup::ensure(&cache, &kernels, refresh, true)?;
            say(format_args!(
                "set-up is complete: kernel {}",
                kernels.join(", ")
            ));
            Ok(0)
        }
        Command::Run(options) => run::run(&cache, &options),
        Command::Demo(vm) => run::demo(&cache, &vm),
        Command::Bench(options) => bench::run(&cache, &options),
        Command::Test(options) => test(&cache, options),
    }
}

/// Does the set-up for the kernel that will be used.
pub fn prepare(cache: &Cache, asked: Option<&str>) -> Result<Kernel, Problem> {
    let own = asked.is_none() && Kernel::from_environment().is_some();
    let lines = if own {
        Vec::new()
    } else {
        vec![kernel::line(asked)]
    };
    setup::ensure(cache, &lines, false, false)?;
    kernel::choose(cache, asked)
}

fn test(cache: &Cache, mut options: layers::Options) -> Result<u8, Problem> {
    if options.kernels.is_empty() {
        options.kernels.push(kernel::line(None));
        // Named in the environment, it is the only one that is meant.
        if kernel::line(None) == kernel::DEFAULT_LINE {
            options.sampled.push(NEWEST.to_owned());
        }
    }
    let all: Vec<String> = options
        .kernels
        .iter()
        .chain(&options.sampled)
        .cloned()
        .collect();
    setup::ensure(cache, &all, false, true)?;
    layers::run(&options)
}
