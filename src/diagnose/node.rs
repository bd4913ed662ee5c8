//! Who may open a device node, and who this process is.
//!
//! Ground truth: `stat(2)`, `group(5)`, `proc_pid_status(5)`.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// The node's mode, owner and group, and the process's user and groups; `None` if one cannot be
/// looked up.
pub(crate) fn rights(node: &Path) -> Option<String> {
    let meta = fs::metadata(node).ok()?;
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let groups = fs::read_to_string("/etc/group").unwrap_or_default();
    let (user, own) = identity(&status)?;
    let of = match group(&groups, meta.gid()) {
        Some(name) => format!("{} ({name})", meta.gid()),
        None => meta.gid().to_string(),
    };
    Some(format!(
        "the node has mode {:04o}, owner {} and group {of}; this process is user {user} in groups {own}",
        meta.mode() & 0o7777,
        meta.uid(),
    ))
}

/// The effective user, and the groups, as the process's status has them.
fn identity(status: &str) -> Option<(&str, String)> {
    let line = |name| {
        status
            .lines()
            .find_map(|line: &str| line.strip_prefix(name))
    };
    let user = line("Uid:")?.split_whitespace().nth(1)?;
    let gid = line("Gid:")?.split_whitespace().nth(1)?;
    let mut groups = vec![gid];
    for group in line("Groups:")?.split_whitespace() {
        if !groups.contains(&group) {
            groups.push(group);
        }
    }
    Some((user, groups.join(", ")))
}

/// The name of a group: lines are `name:password:number:members`.
fn group(file: &str, gid: u32) -> Option<&str> {
    file.lines().find_map(|line| {
        let mut fields = line.split(':');
        let name = fields.next()?;
        (fields.nth(1)?.parse() == Ok(gid)).then_some(name)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_the_process_is_and_what_the_group_is_called() {
        let status = "Name:\tx\nUid:\t1000\t1001\t0\t0\nGid:\t7\t8\t0\t0\nGroups:\t8 101 \n";
        assert_eq!(identity(status), Some(("1001", "8, 101".to_owned())));
        assert_eq!(identity("Name:\tx\n"), None);
        let file = "root:x:0:\nrdma:x:101:me\nodd\n";
        assert_eq!((group(file, 101), group(file, 5)), (Some("rdma"), None));
    }
}
