//! Memory and files of a ping-pong that waits for its peer, and calls of the heap.

use std::collections::BTreeSet;
use std::fs;
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use super::twin::{Side, Twin, numbers};
use super::{Failure, progress, tell};
use crate::bench::stats::precise;
use crate::bench::{C_PINGPONG, Form, Group, RUST_PINGPONG, Record, Summary};

/// Requests whose calls of the heap are counted.
const OPERATIONS: u64 = 100_000;
/// Where both ping-pongs wait for their peers.
const TCP_PORT: &str = "18515";

pub(super) fn run() -> Result<(), Failure> {
    progress("ping-pongs that wait");
    let c = waiting(C_PINGPONG, &["-d", "rxe0", "-g", "1", "-p", TCP_PORT])?;
    let rust = waiting(RUST_PINGPONG, &["-d", "rxe0", "-g", "1", "-p", TCP_PORT])?;
    let mut row = record("pingpong_resident", Form::Shared, "KiB");
    row.c = Some(Summary::exact(precise(c.resident_kib)));
    row.rust = Some(Summary::exact(precise(rust.resident_kib)));
    tell(&row)?;
    let mut row = record("pingpong_file", Form::Shared, "bytes");
    row.c = Some(Summary::exact(precise(c.bytes)));
    row.rust = Some(Summary::exact(precise(rust.bytes)));
    tell(&row)?;
    let mut row = record("pingpong_files_mapped", Form::Shared, "files");
    row.c = Some(Summary::exact(precise(c.files)));
    row.rust = Some(Summary::exact(precise(rust.files)));
    tell(&row)?;

    let mut c = Twin::start(Side::C)?;
    let mut rust = Twin::start(Side::Rust)?;
    let of_c = heap(&mut c, Form::Shared)?;
    for form in [Form::Exclusive, Form::Shared] {
        progress(format_args!("calls of the heap, {}", form.name()));
        let mut row = record("heap_calls", form, "calls per million requests");
        row.c = Some(of_c);
        row.rust = Some(heap(&mut rust, form)?);
        tell(&row)?;
    }
    Ok(())
}

fn record(row: &str, form: Form, unit: &str) -> Record {
    Record::new(Group::Size, row, form, unit)
}

fn heap(twin: &mut Twin, form: Form) -> Result<Summary, Failure> {
    let answer = twin.ask(&format!("heap {OPERATIONS} {}", form.name()))?;
    match numbers(&answer, "heap")?.as_slice() {
        [calls, done] if *done > 0 => Ok(Summary::exact(precise(*calls) * 1e6 / precise(*done))),
        other => Err(format!("{other:?} is no count of calls").into()),
    }
}

/// A program that waits.
pub(super) struct Waiting {
    pub(super) resident_kib: u64,
    /// Of the program and of all shared objects that it has mapped.
    pub(super) bytes: u64,
    pub(super) files: u64,
}

/// Starts a program and looks at it once it listens.
fn waiting(program: &str, args: &[&str]) -> Result<Waiting, Failure> {
    let mut child = Command::new(program)
        .args(args)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .spawn()
        .map_err(|e| format!("{program}: {e}"))?;
    let seen = look(&mut child).map_err(|e| format!("{program}: {e}"));
    let _ = child.kill();
    let _ = child.wait();
    Ok(seen?)
}

fn look(child: &mut Child) -> Result<Waiting, Failure> {
    let deadline = Instant::now() + Duration::from_secs(20);
    while !listens()? {
        if let Some(status) = child.try_wait()? {
            return Err(format!("it ended: {status}").into());
        }
        if Instant::now() > deadline {
            return Err("it does not listen after 20 s".into());
        }
        sleep(Duration::from_millis(20));
    }
    held(child.id())
}

/// What a process has of memory and files.
pub(super) fn held(id: u32) -> Result<Waiting, Failure> {
    let folder = format!("/proc/{id}");
    let status = fs::read_to_string(format!("{folder}/status"))?;
    let resident_kib = resident(&status).ok_or("its status has no VmRSS")?;
    let maps = fs::read_to_string(format!("{folder}/maps"))?;
    let files = mapped(&maps);
    let mut bytes = 0;
    for file in &files {
        bytes += fs::metadata(file)?.len();
    }
    Ok(Waiting {
        resident_kib,
        bytes,
        files: u64::try_from(files.len())?,
    })
}

/// Whether anybody listens at the port.
fn listens() -> Result<bool, Failure> {
    let port: u16 = TCP_PORT.parse()?;
    let end = format!(":{port:04X}");
    for table in ["/proc/net/tcp", "/proc/net/tcp6"] {
        let text = fs::read_to_string(table).unwrap_or_default();
        if is_listening(&text, &end) {
            return Ok(true);
        }
    }
    Ok(false)
}

fn is_listening(table: &str, end: &str) -> bool {
    table.lines().any(|line| {
        let words: Vec<&str> = line.split_whitespace().collect();
        // The own address, and the state: 0A is LISTEN.
        words.get(1).is_some_and(|a| a.ends_with(end)) && words.get(3) == Some(&"0A")
    })
}

fn resident(status: &str) -> Option<u64> {
    let line = status.lines().find_map(|l| l.strip_prefix("VmRSS:"))?;
    line.trim().strip_suffix("kB")?.trim().parse().ok()
}

/// The files that are mapped, each once: the program itself and its shared objects.
fn mapped(maps: &str) -> BTreeSet<&str> {
    maps.lines()
        .filter_map(|line| line.split_whitespace().nth(5))
        .filter(|path| path.starts_with('/') && !path.starts_with("/dev/"))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_proc_says() {
        assert_eq!(resident("Name:\tx\nVmRSS:\t    3384 kB\n"), Some(3384));
        assert_eq!(resident("Name:\tx\n"), None);
        let maps = "\
00400000-00452000 r-xp 00000000 08:02 173521 /usr/bin/x
00651000-00652000 r--p 00051000 08:02 173521 /usr/bin/x
7f0000000000-7f0000001000 rw-s 00000000 00:05 7 /dev/infiniband/uverbs0
7f0000002000-7f0000003000 r-xp 00000000 08:02 9 /lib/libibverbs.so.1
7ffc00000000-7ffc00001000 rw-p 00000000 00:00 0 [stack]
7ffc00002000-7ffc00003000 rw-p 00000000 00:00 0
";
        let found: Vec<&str> = mapped(maps).into_iter().collect();
        assert_eq!(found, ["/lib/libibverbs.so.1", "/usr/bin/x"]);
        let tcp = "\
  sl  local_address rem_address   st tx_queue
   0: 00000000:4853 00000000:0000 0A 00000000:00000000
   1: 0100007F:4854 0100007F:4853 01 00000000:00000000
";
        assert!(is_listening(tcp, ":4853"));
        assert!(!is_listening(tcp, ":4854"));
    }
}
