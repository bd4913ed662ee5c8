//! `cargo vm run` and `cargo vm demo`: one job in one guest.
//!
//! Must never end with a status that the program did not have, unless it says so.

use std::env;
use std::ffi::OsString;
use std::fs;
use std::io::{self, Read, Write};
use std::os::unix::ffi::OsStringExt;
use std::path::Path;
use std::sync::mpsc::{self, Sender};
use std::thread;
use std::time::Instant;

use super::build;
use super::cache::Cache;
use super::cli::{MACHINE, prepare};
use super::cpio::Tree;
use super::initrd;
use super::options::{Run, Vm};
use super::payload;
use super::qemu::Machine;
use super::report::{Doing, Problem, say};
use super::session::{Guest, Input, Next};
use crate::bench::Clock;
use crate::guest::DEMO_ARG;
use crate::protocol::{Job, STDIN_WINDOW, ToGuest, ToHost};

/// Exit status after the time-out.
const TIMED_OUT: u8 = 124;

/// Runs a program of the host's in a guest; gives back the exit status.
pub fn run(cache: &Cache, options: &Run) -> Result<u8, Problem> {
    let share = options.share.as_deref().map(folder_to_share).transpose()?;
    let kernel = prepare(cache, options.vm.kernel.as_deref())?;
    let program = options.argv.first().cloned().unwrap_or_default();
    let payload = match payload::gather(cache, &program, &options.with) {
        Ok(payload) => payload,
        // As a shell says it; anything else that cannot be gathered is no fault of the program's.
        Err(e) if program != "busybox" && payload::find_program(&program).is_none() => {
            say(e);
            return Ok(if Path::new(&program).exists() {
                126
            } else {
                127
            });
        }
        Err(e) => return Err(e),
    };
    let guest = build::guest_program(kernel.arch, false)?;
    let folder = cache.run_folder()?;
    let initrd = folder.at("initrd");
    initrd::write(&initrd, &guest, &kernel, share.is_some(), payload.tree)?;
    let machine = Machine {
        kernel,
        initrd,
        smp: options.vm.smp,
        clock: Clock::Host,
        mem: options.vm.mem,
        share,
    };
    let mut argv = vec![payload.program.into_bytes()];
    argv.extend(options.argv.iter().skip(1).map(|a| a.clone().into_vec()));
    let job = Job {
        argv,
        env: environment(&options.env, &payload.library_path),
    };
    let mut guest = Guest::boot(cache, &machine, &folder)?;
    announce(&guest);
    let end = carry(&mut guest, job, &options.vm, true)?;
    Ok(end.status())
}

/// Shows the demonstration; gives back the exit status.
pub fn demo(cache: &Cache, vm: &Vm) -> Result<u8, Problem> {
    let kernel = prepare(cache, vm.kernel.as_deref())?;
    let program = build::guest_program(kernel.arch, false)?;
    say(build::check_static(&program)?);
    let folder = cache.run_folder()?;
    let initrd = folder.at("initrd");
    let size = initrd::write(&initrd, &program, &kernel, false, Tree::default())?;
    say(format_args!(
        "booting Linux {} with that program as /init ({} KiB in all) …",
        kernel.release,
        size / 1024
    ));
    let machine = Machine {
        kernel,
        initrd,
        smp: vm.smp,
        clock: Clock::Host,
        mem: vm.mem,
        share: None,
    };
    let job = Job {
        argv: vec![b"/init".to_vec(), DEMO_ARG.as_bytes().to_vec()],
        env: environment(&[], ""),
    };
    let mut guest = Guest::boot(cache, &machine, &folder)?;
    announce(&guest);
    let end = carry(&mut guest, job, vm, false)?;
    let (line, status) = match &end {
        End::Exited(0) => ("demo: passed".to_owned(), 0),
        End::Exited(status) => (format!("demo: failed (it ended with status {status})"), 1),
        End::TimedOut => ("demo: failed (it took too long)".to_owned(), 1),
        End::Died => ("demo: failed (the guest died)".to_owned(), 1),
    };
    writeln!(io::stdout(), "{line}").doing(|| "writing to standard output".to_owned())?;
    Ok(status)
}

fn announce(guest: &Guest) {
    say(format_args!(
        "Linux {} is up after {:.1} s, by {}",
        guest.release,
        guest.boot_time.as_secs_f32(),
        guest.accel
    ));
}

fn folder_to_share(folder: &Path) -> Result<std::path::PathBuf, Problem> {
    let folder = fs::canonicalize(folder).doing(|| format!("--share {}", folder.display()))?;
    if folder.is_dir() {
        Ok(folder)
    } else {
        Err(Problem::new(format!(
            "--share {}: that is no folder",
            folder.display()
        )))
    }
}

/// The job's whole environment.
fn environment(asked: &[OsString], library_path: &str) -> Vec<Vec<u8>> {
    let mut all: Vec<Vec<u8>> = [
        "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
        "HOME=/root",
        "USER=root",
    ]
    .map(|v| v.as_bytes().to_vec())
    .to_vec();
    if !library_path.is_empty() {
        all.push(format!("LD_LIBRARY_PATH={library_path}").into_bytes());
    }
    for name in ["TERM", "RUST_BACKTRACE", "RUST_LOG"] {
        all.extend(from_here(&name.into()));
    }
    for pair in asked {
        if pair.as_encoded_bytes().contains(&b'=') {
            all.push(pair.clone().into_vec());
        } else {
            all.extend(from_here(pair));
        }
    }
    all
}

fn from_here(name: &OsString) -> Option<Vec<u8>> {
    let value = env::var_os(name)?;
    let mut pair = name.clone().into_vec();
    pair.push(b'=');
    pair.extend(value.into_vec());
    Some(pair)
}

/// How a job came to its end.
#[derive(Debug)]
enum End {
    Exited(u8),
    TimedOut,
    Died,
}

impl End {
    fn status(&self) -> u8 {
        match self {
            Self::Exited(status) => *status,
            Self::TimedOut => TIMED_OUT,
            Self::Died => MACHINE,
        }
    }
}

/// Runs the job and passes everything through.
fn carry(guest: &mut Guest, job: Job, vm: &Vm, with_stdin: bool) -> Result<End, Problem> {
    let deadline = vm.timeout.map(|t| Instant::now() + t);
    guest.tell(&ToGuest::Run(job))?;
    let (taken, credit) = mpsc::channel();
    if with_stdin {
        let input = guest.input();
        // Not joined: it may sit in a read from a terminal for ever.
        thread::spawn(move || feed(&input, &credit));
    } else {
        guest.tell(&ToGuest::StdinEnd)?;
    }
    let end = listen(guest, deadline, &taken)?;
    match end {
        End::TimedOut => say(format_args!(
            "time-out after {} s: the guest was killed\n{}",
            vm.timeout.unwrap_or_default().as_secs(),
            guest.last_words()
        )),
        End::Died => say(format_args!("the guest died\n{}", guest.last_words())),
        End::Exited(_) => {}
    }
    if let Some(file) = &vm.console {
        guest.save_console(file)?;
    }
    Ok(end)
}

fn listen(guest: &Guest, deadline: Option<Instant>, taken: &Sender<usize>) -> Result<End, Problem> {
    let what = || "passing the program's output on".to_owned();
    loop {
        match guest.next(deadline) {
            Next::Message(ToHost::Stdout(bytes)) => {
                pass(&mut io::stdout().lock(), &bytes).doing(what)?
            }
            Next::Message(ToHost::Stderr(bytes)) => {
                pass(&mut io::stderr().lock(), &bytes).doing(what)?
            }
            Next::Message(ToHost::StdinTaken(n)) => {
                let _ = taken.send(usize::try_from(n).unwrap_or(0));
            }
            Next::Message(ToHost::Done(done)) => return Ok(End::Exited(done.status)),
            Next::Message(_) => {}
            Next::TimedOut => return Ok(End::TimedOut),
            Next::Died => return Ok(End::Died),
        }
    }
}

fn pass(to: &mut impl Write, bytes: &[u8]) -> io::Result<()> {
    to.write_all(bytes)?;
    to.flush()
}

/// Sends standard input to the guest, never more than a window ahead of what the program took.
fn feed(input: &Input, credit: &mpsc::Receiver<usize>) {
    let mut buf = vec![0; 32 << 10];
    let mut under_way: usize = 0;
    let mut stdin = io::stdin().lock();
    loop {
        while under_way + buf.len() > STDIN_WINDOW {
            let Ok(n) = credit.recv() else { return };
            under_way = under_way.saturating_sub(n);
        }
        match stdin.read(&mut buf) {
            Ok(n @ 1..) => {
                under_way += n;
                let bytes = buf.get(..n).unwrap_or_default().to_vec();
                if input.tell(&ToGuest::Stdin(bytes)).is_err() {
                    return;
                }
            }
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Ok(_) | Err(_) => break,
        }
        while let Ok(n) = credit.try_recv() {
            under_way = under_way.saturating_sub(n);
        }
    }
    let _ = input.tell(&ToGuest::StdinEnd);
}
