//! Times that can be compared: one processor, on which the kernel always comes first.
//!
//! Who polls keeps a processor busy. If the kernel's own threads, which carry every packet, are to run
//! there too, the scheduler lets them wait until the poller's slice is over, or wakes the other processor:
//! a sample is then either one or a hundred times as long, by chance. So everything is put on the first
//! processor, and the twins have the policy of idle tasks: whatever the kernel wakes runs at once.
//!
//! It must be the same for both twins.

use std::fs;
use std::io::{self, ErrorKind};

use nix::mount::{MsFlags, mount};

use super::instructions::on_processors;
use super::progress;
use super::twin::Twin;

/// Processors that the kernel's unbound workers, rxe's among them, may run on: a mask.
const WORKERS: &str = "/sys/devices/virtual/workqueue/cpumask";
const GROUPS: &str = "/sys/fs/cgroup";
const IDLE_GROUP: &str = "/sys/fs/cgroup/bench-idle";

/// Puts this thread, what it starts, and the kernel's workers on the first processor, and makes `twins`
/// give way to all else. Where this cannot be done, the noise is what it is; that is said.
pub(super) fn settle(twins: &[Twin]) {
    let steps: [(&str, io::Result<()>); 2] = [
        (
            "the kernel's workers on one processor",
            fs::write(WORKERS, "1"),
        ),
        ("twins that give way", give_way(twins)),
    ];
    for (what, done) in steps {
        if let Err(e) = done {
            progress(format_args!("no {what}: {e}; there will be more noise"));
        }
    }
}

/// Puts the calling thread, and what it starts from now on, on the first processor.
pub(super) fn stay_on_one_processor() {
    if let Err(e) = on_processors(1) {
        progress(format_args!(
            "not on one processor: {e}; there will be more noise"
        ));
    }
}

/// A group of tasks that count as idle (`cpu.idle`, cgroup v2, since Linux 5.15).
fn give_way(twins: &[Twin]) -> io::Result<()> {
    let mounted = mount(
        Some("cgroup2"),
        GROUPS,
        Some("cgroup2"),
        MsFlags::empty(),
        None::<&str>,
    );
    match mounted.map_err(io::Error::from) {
        Err(e) if e.kind() != ErrorKind::ResourceBusy => return Err(e),
        _ => {}
    }
    fs::write(format!("{GROUPS}/cgroup.subtree_control"), "+cpu")?;
    match fs::create_dir(IDLE_GROUP) {
        Err(e) if e.kind() != ErrorKind::AlreadyExists => return Err(e),
        _ => {}
    }
    fs::write(format!("{IDLE_GROUP}/cpu.idle"), "1")?;
    for twin in twins {
        fs::write(format!("{IDLE_GROUP}/cgroup.procs"), twin.id().to_string())?;
    }
    Ok(())
}
