//! One group after the other, each in a process of its own and within its time.
//!
//! Must never let a group that hangs, dies or is slow keep the next one from running.

use std::fs;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command};
use std::thread::sleep;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;

use super::{Budget, Failure, bring_up, events, instructions, progress, rust_peers, size, traffic};
use crate::bench::{Group, LDCONFIG};
use crate::guest::BENCH_ARG;

/// The first word of the arguments of the process that runs one group.
pub(super) const ONE: &str = "one-group";

/// How much longer than its time a group may take before it is killed.
const GRACE: Duration = Duration::from_secs(30);

/// The time of each group; together, with the boot, less than a quarter of an hour. What one leaves is
/// for those behind it.
const fn share(group: Group) -> Duration {
    Duration::from_secs(match group {
        Group::Instructions => 150,
        Group::Size => 40,
        Group::BringUp => 200,
        Group::Events => 150,
        Group::Traffic => 240,
        // Never among the others.
        Group::RustBuilds => 0,
        Group::RustPeers => 400,
    })
}

/// Runs the groups of these names in turn, or all.
pub(super) fn all(names: &[String]) -> Result<(), Failure> {
    let mut groups = Vec::new();
    for name in names {
        groups.push(name.parse::<Group>()?);
    }
    if groups.is_empty() {
        groups.extend(Group::ALL);
    }
    // Without its cache the dynamic linker looks in more places than on an installed system.
    let cached = Command::new(LDCONFIG).status();
    if !cached.is_ok_and(|status| status.success()) {
        return Err(
            "the dynamic linker's cache could not be made; C's bring-up is dearer than it is"
                .into(),
        );
    }
    let start = Instant::now();
    let mut end = Duration::ZERO;
    let mut failed = Vec::new();
    for group in groups {
        end += share(group);
        let time = end.saturating_sub(start.elapsed());
        progress(format_args!(
            "{} … (at {} s, of {} s at most)",
            group.name(),
            start.elapsed().as_secs(),
            end.as_secs()
        ));
        if let Err(e) = apart(group, time) {
            progress(format_args!("{}: {e}", group.name()));
            failed.push(group.name());
        }
        // It may have been killed while they were aside.
        bring_up::all_providers_again()?;
    }
    progress(format_args!("done at {} s", start.elapsed().as_secs()));
    if failed.is_empty() {
        Ok(())
    } else {
        Err(format!("not all of it was measured: {}", failed.join(", ")).into())
    }
}

/// Runs a group in a process of its own, and ends that, with all that it started, when it takes too long.
fn apart(group: Group, time: Duration) -> Result<(), Failure> {
    let mut child = Command::new("/proc/self/exe")
        .args([BENCH_ARG, ONE, group.name(), &time.as_secs().to_string()])
        .process_group(0)
        .spawn()?;
    let deadline = Instant::now() + time + GRACE;
    let status = loop {
        if let Some(status) = child.try_wait()? {
            break status;
        }
        if Instant::now() > deadline {
            end(&mut child)?;
            return Err("it took too long and was ended; what it told until then counts".into());
        }
        sleep(Duration::from_millis(50));
    };
    if status.success() {
        Ok(())
    } else {
        // What it left behind is not to disturb the next group.
        end(&mut child)?;
        Err(format!("its process ended with {status}").into())
    }
}

fn end(child: &mut Child) -> Result<(), Failure> {
    // ESRCH: nobody is left of the group.
    let _ = killpg(Pid::from_raw(i32::try_from(child.id())?), Signal::SIGKILL);
    child.wait()?;
    Ok(())
}

/// Runs the group that is named, in this process.
pub(super) fn one(words: &[String]) -> Result<(), Failure> {
    let [name, seconds] = words else {
        return Err("which group, and for how long?".into());
    };
    let budget = Budget::of(Duration::from_secs(seconds.parse()?));
    match name.parse()? {
        Group::Instructions => instructions::run(),
        Group::Traffic => traffic::run(budget),
        Group::BringUp => bring_up::run(budget),
        Group::Events => events::run(budget),
        Group::Size => size::run(),
        Group::RustBuilds => Ok(()),
        Group::RustPeers => rust_peers::run(),
    }
}

/// Moves a folder, if it is there.
pub(super) fn put_back(aside: &str, place: &str) -> Result<(), Failure> {
    if Path::new(aside).is_dir() {
        let _ = fs::remove_dir_all(place);
        fs::rename(aside, place)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_groups_fit_into_the_time_that_is_promised() {
        let whole: Duration = Group::ALL.into_iter().map(share).sum();
        // The host gives it 900 s; a boot takes most of a minute where it is slow.
        assert!(whole + GRACE + Duration::from_secs(60) <= Duration::from_secs(900));
    }
}
