//! `cargo vm bench`: builds the twins, boots one guest, and puts what it tells into a table.
//!
//! Must never take a row for measured that the guest did not tell.

use std::fs;
use std::io::{self, Write};
use std::path::Path;
use std::process::Command;
use std::time::Instant;

use super::accel::Accel;
use super::arch::Arch;
use super::build;
use super::cache::Cache;
use super::cli::{MACHINE, prepare};
use super::cpio::{Entry, Tree};
use super::initrd;
use super::options::Bench;
use super::qemu;
use super::report::{Doing, Problem, say};
use super::rust_peers;
use super::session::{Guest, Next};
use super::twins;
use crate::bench::clock::{Clock, VARIABLE};
use crate::bench::table::{Machine, json, markdown};
use crate::bench::{C_LIMIT, C_TWIN, Group, RUST_NO_MAIN, RUST_PINGPONG, RUST_TWIN, Record};
use crate::guest::BENCH_ARG;
use crate::protocol::{Job, ToGuest, ToHost};

/// Runs it; gives back the exit status.
pub fn run(cache: &Cache, options: &Bench) -> Result<u8, Problem> {
    let mut records = Vec::new();
    if options.only.contains(&Group::RustBuilds) {
        records = rust_peers::timed(cache)?;
    }
    // What is left takes a guest.
    let only: Vec<Group> = options
        .only
        .iter()
        .copied()
        .filter(|g| *g != Group::RustBuilds)
        .collect();
    let (machine, status) = if only.is_empty() && !options.only.is_empty() {
        let machine = Machine {
            kernel: "of no guest".to_owned(),
            cpu: cpu(),
            commit: commit(),
            c: "none".to_owned(),
        };
        (machine, 0)
    } else {
        let (machine, measured, status) = in_guest(cache, options, &only)?;
        records.extend(measured);
        (machine, status)
    };
    let page = markdown(&machine, &records);
    io::stdout()
        .write_all(page.as_bytes())
        .doing(|| "writing to standard output".to_owned())?;
    if let Some(file) = &options.markdown {
        leave(file, &page)?;
    }
    if let Some(file) = &options.json {
        leave(file, &json(&machine, &records))?;
    }
    Ok(status)
}

/// Boots a guest for these groups, or all.
fn in_guest(
    cache: &Cache,
    options: &Bench,
    only: &[Group],
) -> Result<(Machine, Vec<Record>, u8), Problem> {
    let kernel = prepare(cache, options.vm.kernel.as_deref())?;
    let arch = kernel.arch;
    if arch != Arch::Amd64 {
        return Err(Problem::new(
            "the programs that are compared are built for x86-64 only; choose a kernel line without -arm64",
        ));
    }
    twins::ensure(cache)?;
    // What may be missing comes before what takes long.
    let c = twins::c_twin(cache)?;
    let limit = twins::c_limit(cache)?;
    let [rust, no_main, pingpong] = build::bench_programs()?;
    let guest_program = build::guest_program(arch, false)?;
    let mut tree = Tree::default();
    twins::gather(cache, &mut tree)?;
    for (place, file) in [
        (C_TWIN, c),
        (C_LIMIT, limit),
        (RUST_TWIN, rust),
        (RUST_NO_MAIN, no_main),
        (RUST_PINGPONG, pingpong),
    ] {
        let content = fs::read(&file).doing(|| format!("reading {}", file.display()))?;
        tree.put(place, Entry::File(content, true));
    }
    if only.contains(&Group::RustPeers) {
        rust_peers::gather(cache, &mut tree)?;
    }
    let folder = cache.run_folder()?;
    let initrd = folder.at("initrd");
    initrd::write(&initrd, &guest_program, &kernel, false, tree)?;
    let emulated = options.clock.unwrap_or(Clock::Instructions);
    let mut guest = Guest::boot(
        cache,
        &qemu::Machine {
            kernel,
            initrd,
            smp: options.vm.smp,
            clock: emulated,
            mem: options.vm.mem,
            share: None,
        },
        &folder,
    )?;
    let clock = match (guest.accel, options.clock) {
        (Accel::Kvm, Some(Clock::Instructions)) => {
            return Err(Problem::new(
                "with KVM no clock goes by instructions; say: UVERBS_VM_ACCEL=tcg cargo vm bench",
            ));
        }
        (Accel::Kvm, _) => Clock::Host,
        (Accel::Tcg, _) => emulated,
    };
    let machine = Machine {
        kernel: guest.release.clone(),
        cpu: match clock {
            Clock::Host => format!(
                "{}, {}, {} in the guest",
                cpu(),
                guest.accel,
                options.vm.smp
            ),
            Clock::Instructions => {
                let qemu = qemu::version(arch)?;
                format!("emulated by {qemu}, one processor; {clock}")
            }
        },
        commit: commit(),
        c: format!("rdma-core {}", twins::rdma_core(cache)),
    };
    let groups = only.iter().map(|g| g.name().as_bytes().to_vec());
    let job = Job {
        argv: [b"/init".to_vec(), BENCH_ARG.as_bytes().to_vec()]
            .into_iter()
            .chain(groups)
            .collect(),
        env: vec![
            b"PATH=/usr/sbin:/usr/bin:/sbin:/bin".to_vec(),
            format!("{VARIABLE}={}", clock.name()).into_bytes(),
        ],
    };
    let (records, status) = measure(&mut guest, job, options)?;
    Ok((machine, records, status))
}

fn leave(file: &Path, text: &str) -> Result<(), Problem> {
    fs::write(file, text).doing(|| format!("writing {}", file.display()))
}

/// Runs the controller and collects what it tells; its progress is passed on.
fn measure(guest: &mut Guest, job: Job, options: &Bench) -> Result<(Vec<Record>, u8), Problem> {
    let deadline = options.vm.timeout.map(|t| Instant::now() + t);
    guest.tell(&ToGuest::Run(job))?;
    guest.tell(&ToGuest::StdinEnd)?;
    let mut lines = Lines::default();
    let status = loop {
        match guest.next(deadline) {
            Next::Message(ToHost::Stdout(bytes)) => {
                if let Err(e) = lines.push(&bytes) {
                    // What was measured so far counts.
                    say(e);
                    break MACHINE;
                }
            }
            Next::Message(ToHost::Stderr(bytes)) => {
                // With standard error closed there is nobody to tell.
                let _ = io::stderr().lock().write_all(&bytes);
            }
            Next::Message(ToHost::Done(done)) => break u8::from(done.status != 0),
            Next::Message(_) => {}
            Next::TimedOut => {
                say("time is up; what was measured so far follows");
                break 1;
            }
            Next::Died => {
                say(format_args!("the guest died\n{}", guest.last_words()));
                break MACHINE;
            }
        }
    };
    if let Some(file) = &options.vm.console {
        guest.save_console(file)?;
    }
    Ok((lines.records, status))
}

/// Takes records out of a stream of bytes.
#[derive(Debug, Default)]
struct Lines {
    begun: Vec<u8>,
    records: Vec<Record>,
}

impl Lines {
    fn push(&mut self, bytes: &[u8]) -> Result<(), Problem> {
        for byte in bytes {
            if *byte != b'\n' {
                self.begun.push(*byte);
                continue;
            }
            let line = String::from_utf8_lossy(&self.begun).into_owned();
            self.begun.clear();
            self.records.push(line.parse().map_err(Problem::new)?);
        }
        Ok(())
    }
}

fn cpu() -> String {
    let text = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    text.lines()
        .find_map(|line| line.strip_prefix("model name"))
        .and_then(|rest| rest.split_once(':'))
        .map_or_else(
            || "an unknown processor".to_owned(),
            |(_, name)| name.trim().to_owned(),
        )
}

/// The commit that is measured; with a mark if what is measured is not quite it.
fn commit() -> String {
    let git = |args: &[&str]| {
        let output = Command::new("git")
            .args(args)
            .current_dir(build::workspace())
            .output()
            .ok()
            .filter(|o| o.status.success())?;
        Some(String::from_utf8_lossy(&output.stdout).trim().to_owned())
    };
    match git(&["rev-parse", "--short=12", "HEAD"]) {
        None => "unknown".to_owned(),
        Some(head) if git(&["status", "--porcelain"]).is_some_and(|s| s.is_empty()) => head,
        Some(head) => format!("{head}, changed"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::Form;

    #[test]
    fn records_come_in_pieces() -> Result<(), Problem> {
        let records = ["one", "two"].map(|n| Record::new(Group::Size, n, Form::Shared, "bytes"));
        let text: String = records.iter().map(|r| format!("{r}\n")).collect();
        let mut lines = Lines::default();
        for piece in text.as_bytes().chunks(7) {
            lines.push(piece)?;
        }
        assert_eq!(lines.records, records);
        assert!(lines.push(b"noise\n").is_err());
        Ok(())
    }
}
