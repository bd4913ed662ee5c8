//! The system calls of a run and the files that it opens, against the table in `docs/uverbs.md`.
//!
//! Must never be made to pass by leaving out more: what is left out is what the page says.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::time::Duration;

use uverbs::{AccessFlags, ConnectOptions, Context, OpenOptions, QpAttr, QpState, RecvWr, SendWr};

use super::pair::{End, Failure, Shape, ensure, same, wait_for};
use super::{Case, CaseResult, Verdict};
use crate::guest::PART_ARG;
use crate::guest::program::{DEBIAN, Program};

pub(super) const CASES: &[Case] = &[Case::new("trace::the_page_lists_it_all", traced)
    .every_kernel()
    .with_peers()
    .limit_secs(180)];

const PAGE: &str = include_str!("../../../../docs/uverbs.md");
const SECTION: &str = "## Every system call and file";
const TRACE: &str = "/tmp/trace";
const MARK: &str = "== ";
/// Names a phase that is not looked at.
const ASIDE: &str = "aside";

/// What a program does by itself, as the page says: memory, threads, signals, clocks.
const LEFT_OUT: [&str; 20] = [
    "brk",
    "mremap",
    "munmap",
    "mprotect",
    "sched_yield",
    "clock_gettime",
    "nanosleep",
    "clock_nanosleep",
    "clone",
    "clone3",
    "exit",
    "exit_group",
    "execve",
    "arch_prctl",
    "set_tid_address",
    "rt_sigaction",
    "rt_sigprocmask",
    "rt_sigreturn",
    "sigaltstack",
    "restart_syscall",
];

/// What one phase did: system calls, and files opened.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
struct Did {
    calls: BTreeSet<String>,
    files: BTreeSet<String>,
}

impl Did {
    fn row(&self, phase: &str) -> String {
        let list = |set: &BTreeSet<String>| {
            let all: Vec<String> = set.iter().map(|item| format!("`{item}`")).collect();
            all.join(", ")
        };
        format!(
            "| {phase} | {} | {} |",
            or_none(&list(&self.calls)),
            or_none(&list(&self.files))
        )
    }
}

fn or_none(text: &str) -> &str {
    if text.is_empty() { "none" } else { text }
}

fn traced() -> CaseResult {
    let line = format!("{DEBIAN}/strace -f -y -s 256 -o {TRACE} /init {PART_ARG} traced");
    Program::start(&line)?
        .end(Duration::from_secs(150))?
        .well()?;
    let did = read(&fs::read_to_string(TRACE)?);
    let listed = listed()?;
    let phases: BTreeSet<&String> = did.keys().chain(listed.keys()).collect();
    let mut wrong = Vec::new();
    for phase in phases {
        let (did, listed) = (did.get(phase), listed.get(phase));
        if did != listed {
            let row =
                |did: Option<&Did>| did.map_or_else(|| "nothing".to_owned(), |did| did.row(phase));
            wrong.push(format!("did:  {}\npage: {}", row(did), row(listed)));
        }
    }
    ensure(
        wrong.is_empty(),
        &format!(
            "docs/uverbs.md is not what was traced:\n{}",
            wrong.join("\n")
        ),
    )?;
    Ok(Verdict::Passed)
}

/// The table of the page.
fn listed() -> Result<BTreeMap<String, Did>, Failure> {
    let section = PAGE.split(SECTION).nth(1).ok_or("no such section")?;
    let section = section.split("\n## ").next().unwrap_or_default();
    let mut phases = BTreeMap::new();
    for row in section.lines().filter(|line| line.starts_with("| ")) {
        let cells: Vec<&str> = row.split('|').map(str::trim).collect();
        let [_, phase, calls, files, _] = cells.as_slice() else {
            continue;
        };
        let items = |cell: &str| {
            let parts = cell.split('`').skip(1).step_by(2);
            parts.map(str::to_owned).collect()
        };
        let did = Did {
            calls: items(calls),
            files: items(files),
        };
        phases.insert((*phase).to_owned(), did);
    }
    phases.remove("when");
    same("phases on the page", phases.len() > 10, true)?;
    Ok(phases)
}

/// Reads a trace, phase by phase.
fn read(trace: &str) -> BTreeMap<String, Did> {
    let mut phases = BTreeMap::new();
    let mut phase = ASIDE.to_owned();
    for line in trace.lines() {
        // The number of the thread comes first.
        let line = line.trim_start_matches(|c: char| c.is_ascii_digit()).trim();
        let Some((name, rest)) = line.split_once('(') else {
            continue;
        };
        if !name
            .bytes()
            .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_')
        {
            continue;
        }
        let text = rest.split('"').nth(1);
        if let Some(mark) = text
            .filter(|_| name == "write")
            .and_then(|t| t.strip_prefix(MARK))
        {
            phase = mark.trim_end_matches("\\n").to_owned();
            if phase != ASIDE {
                phases.entry(phase.clone()).or_default();
            }
            continue;
        }
        let memory = match name {
            "mmap" => rest.contains("MAP_ANONYMOUS"),
            "madvise" => !rest.contains("MADV_WIPEONFORK"),
            _ => LEFT_OUT.contains(&name),
        };
        if phase == ASIDE || memory {
            continue;
        }
        let did: &mut Did = phases.entry(phase.clone()).or_default();
        did.calls.insert(plain(name).to_owned());
        if let Some(path) = text.filter(|_| plain(name) == "openat") {
            did.files.insert(pattern(path));
        }
    }
    phases
}

/// One name for what architectures and libraries call differently.
fn plain(name: &str) -> &str {
    match name {
        "open" => "openat",
        "ppoll" => "poll",
        "stat" | "lstat" | "newfstatat" | "fstatat64" => "fstat",
        "readlinkat" => "readlink",
        "prlimit64" | "getrlimit" => "prlimit",
        other => other,
    }
}

/// A path with what differs from device to device replaced.
fn pattern(path: &str) -> String {
    let mut parts = Vec::new();
    let mut before = "";
    for part in path.split('/') {
        let number = part.strip_prefix("uverbs").unwrap_or(part);
        let counts = !number.is_empty() && number.bytes().all(|b| b.is_ascii_digit());
        parts.push(match before {
            _ if counts && number.len() < part.len() => "uverbsN",
            "infiniband" if part.starts_with("rxe") => "NAME",
            _ if counts => "N",
            _ => part,
        });
        before = part;
    }
    parts.join("/")
}

fn mark(phase: &str) -> Result<(), Failure> {
    nix::unistd::write(std::io::stderr(), format!("{MARK}{phase}\n").as_bytes())?;
    Ok(())
}

/// The run that is traced.
pub(super) fn subject() -> Result<(), Failure> {
    mark("listing devices")?;
    let devices = uverbs::devices()?;
    mark(ASIDE)?;
    let device = devices.iter().find(|device| device.name() == "rxe0");
    let device = device.ok_or("no rxe0")?;
    mark("opening one of them, the first in a process")?;
    let context = device.open()?;
    mark("opening another")?;
    let other = devices
        .iter()
        .find(|device| device.name() == "rxe1")
        .ok_or("no rxe1")?
        .open()?;
    mark("`Context::open`, by name")?;
    let named = Context::open("rxe0")?;
    mark(ASIDE)?;
    drop(named);
    mark("asking for device, ports, GIDs")?;
    context.query_device()?;
    context.query_port(1)?;
    context.gids(1)?;
    context.query_gid(1, 0)?;
    mark("`Context::pkeys`")?;
    context.pkeys(1)?;
    traffic(&context, &other)?;
    mark("dropping the last handle of a device")?;
    drop(other);
    mark(ASIDE)?;
    drop(context);
    ioctls_only()?;
    mark(ASIDE)
}

fn traffic(context: &Context, other: &Context) -> Result<(), Failure> {
    mark("allocating a domain")?;
    let pd = context.alloc_pd()?;
    mark("creating queues and queue pairs")?;
    let cq = context.create_cq(16).build()?;
    let srq = pd.create_srq(4).build()?;
    let qp = pd.create_qp::<uverbs::Rc>(&cq, &cq).build()?;
    mark("registering memory")?;
    let region = pd.allocate(4096, AccessFlags::LOCAL_WRITE)?;
    mark("`prepare`")?;
    let endpoint = qp.prepare(&Shape::default().path)?;
    mark(ASIDE)?;
    let b = Shape::default().prepare(&other.alloc_pd()?)?;
    let room = b.region(64, 1)?;
    let a = End {
        context: context.clone(),
        pd,
        cq,
        qp,
        endpoint,
    };
    mark("`connect`")?;
    a.qp.connect(&a.endpoint, &b.endpoint, &ConnectOptions::default())?;
    mark(ASIDE)?;
    b.qp.connect(&b.endpoint, &a.endpoint, &ConnectOptions::default())?;
    mark("`post_recv`")?;
    b.qp.post_recv(&[RecvWr::new(1, &[room.slice(..)?])])?;
    mark("arming a completion queue")?;
    a.cq.arm(uverbs::Arm::Next)?;
    mark("`post_send`")?;
    a.qp.post_send(&[SendWr::send(2, &[region.slice(..64)?]).signaled()])?;
    mark("`poll`")?;
    a.completion()?.ok()?;
    b.completion()?.ok()?;
    mark("changing and asking for a queue pair or a shared receive queue")?;
    a.qp.query()?;
    srq.set_limit(1)?;
    srq.query()?;
    a.qp.modify(&QpAttr::to_state(QpState::Sqd))?;
    mark("reading an event")?;
    let events = a.context.events();
    let event = wait_for("an event", || Ok(events.try_next()?))?;
    drop(event);
    mark("deregistering memory, destroying queues and queue pairs")?;
    drop(region);
    srq.destroy()?;
    let End { cq, qp, .. } = a;
    qp.destroy()?;
    cq.destroy()?;
    mark(ASIDE)?;
    drop((b, room));
    Ok(())
}

fn ioctls_only() -> Result<(), Failure> {
    let open = |name: &str| -> Result<End, Failure> {
        let context = OpenOptions::new().ioctl_only(true).open(name)?;
        Shape::default().prepare(&context.alloc_pd()?)
    };
    let (a, b) = (open("rxe0")?, open("rxe1")?);
    super::pair::connect(&a, &b, &ConnectOptions::default())?;
    b.qp.post_recv(&[RecvWr::new(1, &[])])?;
    mark("`post_send`, ioctls only")?;
    a.qp.post_send(&[SendWr::send_inline(2, b"").signaled()])?;
    mark(ASIDE)?;
    a.completion()?.ok()?;
    b.completion()?.ok()?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trace_is_read_phase_by_phase() {
        let did = read(concat!(
            "7 open(\"/aside\", O_RDONLY) = 3</aside>\n",
            "7 write(2<pipe:[1]>, \"== a phase\\n\", 11) = 11\n",
            "7 mmap(NULL, 4096, PROT_READ, MAP_PRIVATE|MAP_ANONYMOUS, -1, 0) = 0x7\n",
            "8 open(\"/sys/class/infiniband_verbs/uverbs10/dev\", O_RDONLY) = 3</x>\n",
            "8 ppoll([{fd=3, events=POLLIN}], 1, NULL, NULL, 0 <unfinished ...>\n",
            "8 <... ppoll resumed>) = 1\n",
            "8 +++ exited with 0 +++\n",
            "7 write(2<pipe:[1]>, \"== an idle one\\n\", 15) = 15\n",
            "7 write(2<pipe:[1]>, \"== aside\\n\", 9) = 9\n",
        ));
        assert_eq!(did.get("an idle one"), Some(&Did::default()));
        let did = did.get("a phase").cloned().unwrap_or_default();
        assert_eq!(
            did.row("x"),
            "| x | `openat`, `poll` | `/sys/class/infiniband_verbs/uverbsN/dev` |"
        );
    }

    #[test]
    fn the_page_has_its_table() {
        assert!(listed().is_ok());
    }

    #[test]
    fn paths_lose_what_differs() {
        assert_eq!(
            pattern("/sys/class/infiniband/rxe0/ports/1/pkeys/0"),
            "/sys/class/infiniband/NAME/ports/N/pkeys/N"
        );
        assert_eq!(
            pattern("/dev/infiniband/uverbs3"),
            "/dev/infiniband/uverbsN"
        );
    }
}
