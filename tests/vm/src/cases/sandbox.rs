//! A process that may do nothing but ioctls on the device: a filter kills it at the first write.

use std::fs;
use std::os::fd::RawFd;
use std::os::unix::process::ExitStatusExt;
use std::time::Duration;

use nix::sys::signal::Signal;
use uverbs::{ConnectOptions, OpenOptions, QpAttr, QpState, RecvWr, SendWr};

use super::pair::{End, Failure, SOON, Shape, connect, ensure, pattern, same, same_bytes};
use super::parts;
use super::{Case, CaseResult, Verdict};
use crate::guest::seccomp::kill_writers_to;

pub(super) const CASES: &[Case] = &[
    Case::new("sandbox::ioctls_are_enough", ioctls_are_enough)
        .every_kernel()
        .limit_secs(120),
    Case::new("sandbox::the_filter_bites", the_filter_bites),
];

const LIMIT: Duration = Duration::from_secs(50);

fn ioctls_are_enough() -> CaseResult {
    parts::start("sandbox-asked", &[])?.end(LIMIT)?.well()?;
    parts::start("sandbox-environment", &[("UVERBS_IOCTL_ONLY", "1")])?
        .end(LIMIT)?
        .well()?;
    Ok(Verdict::Passed)
}

/// Without being asked for ioctls alone, the same dies of its first doorbell.
fn the_filter_bites() -> CaseResult {
    for environment in [&[][..], &[("UVERBS_IOCTL_ONLY", "0")]] {
        let ended = parts::start("sandbox-not-asked", environment)?.end(LIMIT)?;
        same(
            &ended.to_string(),
            ended.status.signal(),
            Some(Signal::SIGSYS as i32),
        )?;
        ensure(ended.output.contains("connected"), &ended.output)?;
    }
    Ok(Verdict::Passed)
}

pub(super) fn asked() -> Result<(), Failure> {
    under_the_filter(&OpenOptions::new().ioctl_only(true))
}

pub(super) fn by_environment() -> Result<(), Failure> {
    under_the_filter(&OpenOptions::new())
}

/// The numbers of this process's open device files.
fn device_files() -> Result<Vec<RawFd>, Failure> {
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc/self/fd")? {
        let entry = entry?;
        let target = fs::read_link(entry.path()).unwrap_or_default();
        if target.starts_with("/dev/infiniband") {
            found.push(entry.file_name().to_string_lossy().parse()?);
        }
    }
    found.sort_unstable();
    Ok(found)
}

fn ends(options: &OpenOptions) -> Result<(End, End), Failure> {
    let end = |name: &str| -> Result<End, Failure> {
        let context = options.open(name)?;
        Shape::default().prepare(&context.alloc_pd()?)
    };
    Ok((end("rxe0")?, end("rxe1")?))
}

/// The filter must know the numbers before the files are opened, so that the opening is under it too:
/// the second time the files get the numbers of the first.
#[allow(clippy::print_stdout, reason = "the case looks for it")]
fn under_the_filter(options: &OpenOptions) -> Result<(), Failure> {
    let first = ends(options)?;
    let files = device_files()?;
    same("device files", files.len(), 2)?;
    drop(first);
    same("device files after", device_files()?, Vec::new())?;
    kill_writers_to(&files)?;

    let (a, b) = ends(options)?;
    same("numbers", device_files()?, files)?;
    connect(&a, &b, &ConnectOptions::default())?;
    println!("connected");
    let (out, room) = (a.region(3000, 1)?, b.region(3000, 2)?);
    for round in 0..20 {
        let message = pattern(3000, round);
        out.write_at(0, &message)?;
        b.qp.post_recv(&[RecvWr::new(1, &[room.slice(..)?])])?;
        a.qp.post_send(&[SendWr::send(2, &[out.slice(..)?]).signaled()])?;
        b.completion()?.ok()?;
        a.completion()?.ok()?;
        same_bytes("message", &room.to_vec(..)?, &message)?;
    }
    a.qp.post_send(&[SendWr::read(3, &[out.slice(..8)?], room.remote(0)?).signaled()])?;
    a.completion()?.ok()?;
    let (before, number) = (out.slice(..8)?, room.remote(0)?);
    a.qp.post_send(&[SendWr::fetch_add(4, before, number, 1).signaled()])?;
    a.completion()?.ok()?;
    a.cq.arm(uverbs::Arm::Next)?;
    a.context.query_device()?;
    a.context.query_port(1)?;
    a.context.gids(1)?;
    a.qp.query()?;
    let srq = b.pd.create_srq(4).build()?;
    srq.set_limit(2)?;
    srq.post_recv(&[RecvWr::new(5, &[room.slice(..)?])])?;
    a.qp.modify(&QpAttr::to_state(QpState::Sqd))?;
    let events = a.context.events();
    events.next_timeout(SOON)?;
    // Receives of a queue pair in the error state are flushed by another doorbell.
    b.qp.post_recv(&[RecvWr::new(6, &[room.slice(..)?])])?;
    b.qp.modify(&QpAttr::to_state(QpState::Err))?;
    b.completion()?;
    srq.destroy()?;
    drop((out, room, events, a, b));
    same("device files at the end", device_files()?, Vec::new())
}
