//! The command line, taken apart.
//!
//! Must never start anything: it only says what was asked for.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use lexopt::{Arg, Parser, ValueExt};

use super::layers;
use super::report::{Doing, Problem};
use crate::bench::{Clock, Group};

/// What was asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Command {
    /// Show the help of a command, or the whole.
    Help(&'static str),
    /// Prepare.
    Setup {
        /// Lines of kernels.
        kernels: Vec<String>,
        /// Look for newer kernels although there are some.
        refresh: bool,
    },
    /// Run a program in the guest.
    Run(Run),
    /// Show the demonstration.
    Demo(Vm),
    /// Compare with C.
    Bench(Bench),
    /// Run all tests.
    Test(layers::Options),
}

/// What is to be compared, and where the table goes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Bench {
    /// The machine.
    pub vm: Vm,
    /// The groups; all if there are none.
    pub only: Vec<Group>,
    /// What the guest's clock is to go by, if that was said.
    pub clock: Option<Clock>,
    /// Where to put the records, as JSON.
    pub json: Option<PathBuf>,
    /// Where to put the table, as Markdown.
    pub markdown: Option<PathBuf>,
}

/// The machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Vm {
    /// Line of kernels.
    pub kernel: Option<String>,
    /// Processors.
    pub smp: u32,
    /// Memory, in MiB.
    pub mem: u32,
    /// How long the program may take; `None`: as long as it likes.
    pub timeout: Option<Duration>,
    /// Where to leave a copy of the guest's console.
    pub console: Option<PathBuf>,
}

impl Default for Vm {
    fn default() -> Self {
        Self {
            kernel: None,
            smp: 2,
            mem: 1024,
            timeout: Some(Duration::from_secs(600)),
            console: None,
        }
    }
}

/// A program to run.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Run {
    /// The machine.
    pub vm: Vm,
    /// A folder to show at `/share`.
    pub share: Option<PathBuf>,
    /// What to take along.
    pub with: Vec<OsString>,
    /// Additions to the environment, `NAME=VALUE`.
    pub env: Vec<OsString>,
    /// The program and its arguments.
    pub argv: Vec<OsString>,
}

/// Takes the arguments apart (without the executable's own name).
pub fn parse(args: Vec<OsString>) -> Result<Command, Problem> {
    let mut p = Parser::from_args(args);
    let Some(first) = next(&mut p)? else {
        return Ok(Command::Help(""));
    };
    let name = match first {
        Arg::Value(v) => v.to_string_lossy().into_owned(),
        Arg::Long("help") | Arg::Short('h') => "help".to_owned(),
        other => return Err(unexpected(&other, "")),
    };
    match name.as_str() {
        "help" => help(&mut p),
        "setup" => setup(&mut p),
        "run" => run(&mut p),
        "demo" => demo(&mut p),
        "bench" => bench(&mut p),
        "test" => test(&mut p),
        _ => Err(Problem::new(format!(
            "there is no command {name}; there are setup, run, demo, bench and test \
             (see: cargo vm --help)"
        ))),
    }
}

fn next(p: &mut Parser) -> Result<Option<Arg<'_>>, Problem> {
    p.next().map_err(|e| Problem::new(e.to_string()))
}

fn unexpected(arg: &Arg<'_>, command: &str) -> Problem {
    let what = match arg {
        Arg::Long(name) => format!("--{name}"),
        Arg::Short(name) => format!("-{name}"),
        Arg::Value(v) => v.to_string_lossy().into_owned(),
    };
    let space = if command.is_empty() { "" } else { " " };
    Problem::new(format!(
        "{what} is not understood here (see: cargo vm{space}{command} --help)"
    ))
}

fn help(p: &mut Parser) -> Result<Command, Problem> {
    let topic = match next(p)? {
        Some(Arg::Value(v)) => v.to_string_lossy().into_owned(),
        _ => String::new(),
    };
    Ok(Command::Help(match topic.as_str() {
        "setup" => "setup",
        "run" => "run",
        "demo" => "demo",
        "bench" => "bench",
        "test" => "test",
        _ => "",
    }))
}

fn lines(list: &str) -> Vec<String> {
    list.split(',')
        .filter(|line| !line.is_empty())
        .map(str::to_owned)
        .collect()
}

fn setup(p: &mut Parser) -> Result<Command, Problem> {
    let mut kernels = Vec::new();
    let mut refresh = false;
    while let Some(arg) = next(p)? {
        match arg {
            Arg::Long("help") | Arg::Short('h') => return Ok(Command::Help("setup")),
            Arg::Long("kernel") => {
                kernels.extend(lines(&text(p, "--kernel")?));
            }
            Arg::Long("refresh") => refresh = true,
            other => return Err(unexpected(&other, "setup")),
        }
    }
    Ok(Command::Setup { kernels, refresh })
}

fn run(p: &mut Parser) -> Result<Command, Problem> {
    let mut run = Run::default();
    while let Some(arg) = next(p)? {
        match arg {
            Arg::Long("help") | Arg::Short('h') => return Ok(Command::Help("run")),
            Arg::Long("share") => run.share = Some(value(p, "--share")?.into()),
            Arg::Long("with") => run.with.push(value(p, "--with")?),
            Arg::Long("env") => run.env.push(value(p, "--env")?),
            Arg::Value(program) => {
                // From here on everything is the program's own.
                run.argv.push(program);
                run.argv.extend(
                    p.raw_args()
                        .doing(|| "the program's arguments".to_owned())?,
                );
            }
            Arg::Long(name) => {
                let name = name.to_owned();
                if !machine(p, &name, &mut run.vm)? {
                    return Err(unexpected(&Arg::Long(&name), "run"));
                }
            }
            other => return Err(unexpected(&other, "run")),
        }
    }
    if run.argv.is_empty() {
        return Err(Problem::new(
            "which program? say: cargo vm run -- PROGRAM [ARGUMENTS] (see: cargo vm run --help)",
        ));
    }
    Ok(Command::Run(run))
}

fn demo(p: &mut Parser) -> Result<Command, Problem> {
    let mut vm = Vm {
        timeout: Some(Duration::from_secs(120)),
        ..Vm::default()
    };
    while let Some(arg) = next(p)? {
        match arg {
            Arg::Long("help") | Arg::Short('h') => return Ok(Command::Help("demo")),
            Arg::Long(name) => {
                let name = name.to_owned();
                if !machine(p, &name, &mut vm)? {
                    return Err(unexpected(&Arg::Long(&name), "demo"));
                }
            }
            other => return Err(unexpected(&other, "demo")),
        }
    }
    Ok(Command::Demo(vm))
}

fn bench(p: &mut Parser) -> Result<Command, Problem> {
    let mut bench = Bench {
        vm: Vm {
            // 100,000 live objects want room.
            mem: 4096,
            timeout: Some(Duration::from_secs(900)),
            ..Vm::default()
        },
        ..Bench::default()
    };
    while let Some(arg) = next(p)? {
        match arg {
            Arg::Long("help") | Arg::Short('h') => return Ok(Command::Help("bench")),
            Arg::Long("only") => {
                for name in text(p, "--only")?.split(',').filter(|n| !n.is_empty()) {
                    bench.only.push(name.parse().map_err(Problem::new)?);
                }
            }
            Arg::Long("clock") => {
                let name = text(p, "--clock")?;
                bench.clock = Some(name.parse().map_err(Problem::new)?);
            }
            Arg::Long("json") => bench.json = Some(value(p, "--json")?.into()),
            Arg::Long("markdown") => bench.markdown = Some(value(p, "--markdown")?.into()),
            Arg::Long(name) => {
                let name = name.to_owned();
                if !machine(p, &name, &mut bench.vm)? {
                    return Err(unexpected(&Arg::Long(&name), "bench"));
                }
            }
            other => return Err(unexpected(&other, "bench")),
        }
    }
    if bench.clock == Some(Clock::Instructions) && bench.vm.smp != Vm::default().smp {
        return Err(Problem::new(
            "by the clock of instructions there is one processor; --smp goes with --clock host",
        ));
    }
    Ok(Command::Bench(bench))
}

fn test(p: &mut Parser) -> Result<Command, Problem> {
    let mut options = layers::Options {
        kernels: Vec::new(),
        sampled: Vec::new(),
        full: false,
    };
    while let Some(arg) = next(p)? {
        match arg {
            Arg::Long("help") | Arg::Short('h') => return Ok(Command::Help("test")),
            Arg::Long("kernel") => {
                options.kernels.extend(lines(&text(p, "--kernel")?));
            }
            Arg::Long("full") => options.full = true,
            other => return Err(unexpected(&other, "test")),
        }
    }
    Ok(Command::Test(options))
}

/// The options that all machines have; false if it is none of them.
fn machine(p: &mut Parser, name: &str, vm: &mut Vm) -> Result<bool, Problem> {
    match name {
        "kernel" => vm.kernel = Some(text(p, "--kernel")?),
        "smp" => vm.smp = number(p, "--smp", 1, 64)?,
        "mem" => vm.mem = number(p, "--mem", 256, 1 << 20)?,
        "timeout" => {
            let seconds = number(p, "--timeout", 0, 7 * 24 * 3600)?;
            vm.timeout = (seconds > 0).then(|| Duration::from_secs(seconds.into()));
        }
        "console" => vm.console = Some(value(p, "--console")?.into()),
        _ => return Ok(false),
    }
    Ok(true)
}

fn value(p: &mut Parser, name: &str) -> Result<OsString, Problem> {
    p.value()
        .map_err(|_| Problem::new(format!("{name} wants a value")))
}

fn text(p: &mut Parser, name: &str) -> Result<String, Problem> {
    value(p, name)?
        .string()
        .map_err(|_| Problem::new(format!("{name}: the value is not UTF-8")))
}

fn number(p: &mut Parser, name: &str, least: u32, most: u32) -> Result<u32, Problem> {
    let given = text(p, name)?;
    given
        .parse()
        .ok()
        .filter(|n| (least..=most).contains(n))
        .ok_or_else(|| {
            Problem::new(format!(
                "{name} wants a number from {least} to {most}, not {given}"
            ))
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(line: &str) -> Result<Command, Problem> {
        parse(line.split_whitespace().map(OsString::from).collect())
    }

    fn run_of(line: &str) -> Run {
        match of(line) {
            Ok(Command::Run(run)) => run,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn setup_lines() {
        assert_eq!(
            of("setup --kernel 6.1,6.12 --kernel=newest --refresh"),
            Ok(Command::Setup {
                kernels: vec!["6.1".into(), "6.12".into(), "newest".into()],
                refresh: true
            })
        );
        assert!(of("setup 6.1").is_err());
    }

    #[test]
    fn what_follows_the_program_is_its_own() {
        let run = run_of("run --smp 4 --timeout 0 --with a=/b -- busybox sh -c --with --help");
        assert_eq!(run.vm.smp, 4);
        assert_eq!(run.vm.timeout, None);
        assert_eq!(run.with, ["a=/b"]);
        assert_eq!(run.argv, ["busybox", "sh", "-c", "--with", "--help"]);
        let run = run_of("run prog -- --x");
        assert_eq!(run.argv, ["prog", "--", "--x"]);
    }

    #[test]
    fn what_is_wrong_is_said() {
        for (line, word) in [
            ("run", "which program"),
            ("run --smp many -- x", "--smp"),
            ("run --smp 0 -- x", "--smp"),
            ("run --mem -- x", "--mem"),
            ("run --colour -- x", "--colour"),
            ("demo x", "x"),
            ("dance", "dance"),
            ("--version", "--version"),
        ] {
            let e = of(line).map_err(|e| e.to_string());
            assert!(e.as_ref().is_err_and(|e| e.contains(word)), "{line}: {e:?}");
        }
    }

    #[test]
    fn help_everywhere() {
        assert_eq!(of(""), Ok(Command::Help("")));
        assert_eq!(of("--help"), Ok(Command::Help("")));
        assert_eq!(of("help run"), Ok(Command::Help("run")));
        assert_eq!(of("run --help"), Ok(Command::Help("run")));
        assert_eq!(of("demo -h"), Ok(Command::Help("demo")));
        assert_eq!(of("bench --help"), Ok(Command::Help("bench")));
        assert_eq!(of("help bench"), Ok(Command::Help("bench")));
    }

    #[test]
    fn bench_arguments() {
        let Ok(Command::Bench(bench)) =
            of("bench --only events,size --only instructions --json a.json --mem 2048")
        else {
            panic!("not understood");
        };
        assert_eq!(
            bench.only,
            [Group::Events, Group::Size, Group::Instructions]
        );
        assert_eq!(bench.json, Some("a.json".into()));
        assert_eq!(bench.clock, None);
        assert_eq!(bench.markdown, None);
        assert_eq!(bench.vm.mem, 2048);
        let clock = of("bench --clock host");
        assert!(matches!(clock, Ok(Command::Bench(b)) if b.clock == Some(Clock::Host)));
        let processors = of("bench --smp 4 --clock instructions");
        assert!(processors.is_err_and(|e| e.to_string().contains("--clock host")));
        assert!(of("bench --clock sun").is_err());
        assert!(of("bench --only speed").is_err_and(|e| e.to_string().contains("bring-up")));
        assert!(of("bench instructions").is_err());
    }

    #[test]
    fn test_arguments() {
        let options = |kernels: &[&str], full| {
            let kernels = kernels.iter().map(|k| (*k).to_owned()).collect();
            Ok(Command::Test(layers::Options {
                kernels,
                sampled: Vec::new(),
                full,
            }))
        };
        assert_eq!(of("test"), options(&[], false));
        assert_eq!(
            of("test --kernel 6.1,newest --full"),
            options(&["6.1", "newest"], true)
        );
        assert!(of("test rc::").is_err());
    }
}
