//! `cargo vm test`: every test there is, each layer once, and one line at the end.
//!
//! Must never call a run passed that left a layer out: the counts come from what the test runners
//! print, a layer that prints none has failed, and a guest is required.

use std::env;
use std::io::{self, BufRead, BufReader, Write};
use std::process::{Command as Process, Stdio};

use super::arch::Arch;
use super::build;
use super::qemu;
use super::report::{Doing, Problem, Step, say};
use super::suite;

/// What to run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    /// Lines of kernels.
    pub kernels: Vec<String>,
    /// Lines of kernels on which only the cases run that are to run on every kernel.
    pub sampled: Vec<String>,
    /// Whether the long cases run in full.
    pub full: bool,
}

/// What the runners counted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Counts {
    passed: u64,
    failed: u64,
    ignored: u64,
}

impl Counts {
    fn add(&mut self, other: Self) {
        self.passed += other.passed;
        self.failed += other.failed;
        self.ignored += other.ignored;
    }
}

/// Runs everything; the exit status says whether all of it passed.
pub fn run(options: &Options) -> Result<u8, Problem> {
    let mut total = Counts::default();
    let mut bad = Vec::new();
    let mut layer = |name: &str, process: Process| -> Result<(), Problem> {
        let (counts, right) = one(name, process)?;
        total.add(counts);
        if !right || counts == Counts::default() {
            bad.push(name.to_owned());
        }
        Ok(())
    };

    // The guest's program is built first: what does not build for it need not be tested at all.
    for kernel in options.kernels.iter().chain(&options.sampled) {
        build::guest_program(Arch::of_line(kernel).0, false)?;
    }
    layer(
        "crates: unit, golden, layout, fake kernel, property, doc, compile-fail",
        {
            let mut cargo = cargo();
            cargo.args([
                "test",
                "-p",
                "uverbs",
                "-p",
                "uverbs-abi",
                "-p",
                "uverbs-providers",
            ]);
            cargo
        },
    )?;
    layer("harness: unit", {
        let mut cargo = cargo();
        cargo.args(["test", "-p", "uverbs-vm", "--lib"]);
        cargo
    })?;
    layer("instructions, and a small program's size", {
        let mut cargo = cargo();
        cargo
            .args(["test", "-p", "uverbs-tools"])
            .env("UVERBS_COUNT", "require");
        cargo
    })?;
    layer("model: rings", {
        let mut cargo = loom();
        cargo.args(["-p", "uverbs-providers", "--test", "ring_loom"]);
        cargo
    })?;
    layer("model: lock", {
        let mut cargo = loom();
        cargo.args(["-p", "uverbs-providers", "--lib", "lock::model"]);
        cargo
    })?;
    layer("model: event ledger, and waiting", {
        let mut cargo = loom();
        cargo.args(["-p", "uverbs", "--lib", "::model::"]);
        cargo
    })?;
    let whole = options.kernels.iter().map(|kernel| (kernel, false));
    let sampled = options.sampled.iter().map(|kernel| (kernel, true));
    for (kernel, part) in whole.chain(sampled) {
        let what = if part { ", in part" } else { "" };
        layer(&format!("VM: Linux {kernel}{what}"), {
            let mut cargo = cargo();
            cargo
                .args(["test", "-p", "uverbs-vm", "--test", "vm"])
                .env("UVERBS_VM_KERNEL", kernel)
                .env_remove("UVERBS_KERNEL");
            if part {
                cargo.env(suite::PART, "1");
            }
            if options.full {
                cargo.env(qemu::FULL, "1");
            }
            cargo
        })?;
    }
    if !bad.is_empty() {
        say(format_args!("not passed: {}", bad.join("; ")));
    }
    let right = bad.is_empty() && total.failed == 0;
    // A layer that failed without a count must show in the line as well.
    let failed = total.failed.max(u64::from(!right));
    let mut out = io::stdout().lock();
    let _ = writeln!(
        out,
        "{} passed, {failed} failed, {} ignored",
        total.passed, total.ignored
    );
    Ok(u8::from(!right))
}

fn cargo() -> Process {
    let mut cargo = Process::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo
        .current_dir(build::workspace())
        .env("UVERBS_VM", "require");
    cargo
}

/// In a target folder of its own, since the flag would have everything else built anew.
fn loom() -> Process {
    let mut cargo = cargo();
    let flags = env::var("RUSTFLAGS").unwrap_or_default();
    cargo
        .args(["test", "--release", "--target-dir", "target/loom"])
        .env("RUSTFLAGS", format!("{flags} --cfg uverbs_loom"));
    cargo
}

/// Runs one layer, passing on what it prints; gives its counts, and whether it ended well.
fn one(name: &str, mut process: Process) -> Result<(Counts, bool), Problem> {
    let step = Step::start(name);
    let mut child = process
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .doing(|| format!("starting {name}"))?;
    let mut counts = Counts::default();
    if let Some(output) = child.stdout.take() {
        for line in BufReader::new(output).lines() {
            let line = line.doing(|| format!("reading from {name}"))?;
            if let Some(found) = result(&line) {
                counts.add(found);
            }
            // With standard output closed there is nobody to show it to.
            let _ = writeln!(io::stdout().lock(), "{line}");
        }
    }
    let status = child.wait().doing(|| format!("waiting for {name}"))?;
    step.done();
    Ok((counts, status.success()))
}

/// The counts in a closing line of a test runner.
fn result(line: &str) -> Option<Counts> {
    let rest = line.strip_prefix("test result: ")?;
    let (_, rest) = rest.split_once(". ")?;
    let mut counts = Counts::default();
    for part in rest.split(';') {
        let Some((number, what)) = part.trim().split_once(' ') else {
            continue;
        };
        let Ok(number) = number.parse() else { continue };
        match what {
            "passed" => counts.passed = number,
            "failed" => counts.failed = number,
            "ignored" => counts.ignored = number,
            _ => {}
        }
    }
    Some(counts)
}

#[cfg(test)]
mod tests {
    use super::{Counts, result};

    #[test]
    fn closing_lines_are_counted_and_nothing_else() {
        let line = "test result: FAILED. 15 passed; 1 failed; 2 ignored; 0 measured; 0 filtered \
                    out; finished in 100.70s";
        let counts = Counts {
            passed: 15,
            failed: 1,
            ignored: 2,
        };
        assert_eq!(result(line), Some(counts));
        assert_eq!(result("test result: ok."), None);
        assert_eq!(result("test rc::atomics ... ok"), None);
        assert_eq!(result("15 passed; 1 failed"), None);
    }
}
