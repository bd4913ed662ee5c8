//! The kernel's log: reads it in the guest, and knows a complaint when it sees one.
//!
//! Must never mistake what a program printed for the kernel's own words: in the guest only records
//! of the kernel's facility are looked at.

use std::fs::OpenOptions;
use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt;

use nix::errno::Errno;
use nix::fcntl::OFlag;

/// One record of the kernel's log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    /// Its number; grows by one with each record.
    pub seq: u64,
    /// 0 (emergency) to 7 (debug).
    pub level: u8,
    /// What it says.
    pub text: String,
}

/// Reads all of the kernel's records that are still there.
pub fn read_all() -> io::Result<Vec<Record>> {
    let mut file = OpenOptions::new()
        .read(true)
        .custom_flags(OFlag::O_NONBLOCK.bits())
        .open("/dev/kmsg")?;
    let mut records = Vec::new();
    let mut buf = vec![0; 16 << 10];
    loop {
        match file.read(&mut buf) {
            Ok(0) => return Ok(records),
            Ok(n) => records.extend(parse(&String::from_utf8_lossy(
                buf.get(..n).unwrap_or_default(),
            ))),
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => return Ok(records),
            // Records were overwritten while we read; the next read goes on behind the gap.
            Err(e) if e.raw_os_error() == Some(Errno::EPIPE as i32) => {}
            Err(e) => return Err(e),
        }
    }
}

/// Number of the newest record: remember it, and give it to [`complaints_since`] later.
pub fn mark() -> io::Result<u64> {
    Ok(read_all()?.last().map_or(0, |r| r.seq))
}

/// What the kernel complained about after the mark (BUG, WARNING, Oops, KASAN, lock-ups …).
pub fn complaints_since(mark: u64) -> io::Result<Vec<String>> {
    let all = read_all()?;
    Ok(all
        .into_iter()
        .filter(|r| r.seq > mark && is_complaint(&r.text))
        .map(|r| r.text)
        .collect())
}

// `prio,seq,time,flags;text`, then lines that start with a space.
fn parse(record: &str) -> Option<Record> {
    let (head, text) = record.split_once(';')?;
    let mut fields = head.split(',');
    let priority: u32 = fields.next()?.parse().ok()?;
    let seq = fields.next()?.parse().ok()?;
    // The facility is above the three bits of the level; 0 is the kernel.
    let level = u8::try_from(priority).ok().filter(|p| *p < 8)?;
    Some(Record {
        seq,
        level,
        text: text.lines().next().unwrap_or_default().to_owned(),
    })
}

/// Whether a line of the kernel's log says that the kernel itself went wrong.
pub fn is_complaint(line: &str) -> bool {
    const SIGNS: [&str; 13] = [
        "BUG:",
        "WARNING:",
        "Oops:",
        "KASAN:",
        "UBSAN:",
        "KCSAN:",
        "Kernel panic",
        "sysrq: Trigger a crash",
        "general protection fault",
        "refcount_t:",
        "blocked for more than",
        "self-detected stall",
        "possible circular locking",
    ];
    SIGNS.iter().any(|s| line.contains(s))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records() {
        let got = parse("4,123,99,-;WARNING: here\n SUBSYSTEM=x\n");
        assert_eq!(
            got,
            Some(Record {
                seq: 123,
                level: 4,
                text: "WARNING: here".into()
            })
        );
        // Facility 1 is a program that wrote into the log.
        assert_eq!(parse("12,124,99,-;BUG: not the kernel"), None);
        assert_eq!(parse("nonsense"), None);
        assert_eq!(parse(""), None);
    }

    #[test]
    fn complaints() {
        assert!(is_complaint("[ 1.0] BUG: kernel NULL pointer dereference"));
        assert!(is_complaint("Oops: 0002 [#1]"));
        assert!(!is_complaint("rdma_rxe: loaded"));
        assert!(!is_complaint("debug: nothing"));
    }
}
