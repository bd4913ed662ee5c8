//! What kind of memory a refused registration was about, and how much the process may lock.
//!
//! Ground truth: `proc_pid_smaps(5)`, `proc_pid_status(5)` (`VmPin` is what devices have pinned),
//! `getrlimit(2)`.

use std::fmt;
use std::fs;
use std::path::PathBuf;

/// Something about the memory that was to be registered: looked up after a refusal. Prints as a
/// clause.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum MemoryFinding {
    /// What devices have pinned of this process already.
    Pinned {
        /// In bytes.
        bytes: u64,
    },
    /// A part of the range is not mapped.
    NotMapped {
        /// The first byte that is not.
        at: u64,
    },
    /// A part of the range is mapped without the right to write.
    ReadOnly {
        /// The first byte of it.
        at: u64,
    },
    /// A part of the range is a mapping of a file.
    File {
        /// The file.
        path: PathBuf,
    },
    /// A part of the range is on huge pages.
    HugePages {
        /// The size of a page in bytes.
        size: u64,
    },
}

impl fmt::Display for MemoryFinding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Pinned { bytes } => {
                write!(
                    f,
                    "devices have pinned {bytes} bytes of this process already"
                )
            }
            Self::NotMapped { at } => write!(f, "nothing is mapped at {at:#x}"),
            Self::ReadOnly { at } => write!(f, "the memory at {at:#x} is mapped read-only"),
            Self::File { path } => write!(f, "the memory is a mapping of {}", path.display()),
            Self::HugePages { size } => write!(
                f,
                "the memory is on huge pages of {size} bytes; what is counted against the limit \
                 are ordinary pages"
            ),
        }
    }
}

/// What can be said of `length` bytes at `start`.
pub(crate) fn look(start: u64, length: u64) -> Vec<MemoryFinding> {
    let mut found = Vec::new();
    if let Ok(text) = fs::read_to_string("/proc/self/status")
        && let Some(bytes) = kilobytes(&text, "VmPin")
        && bytes > 0
    {
        found.push(MemoryFinding::Pinned { bytes });
    }
    if let Ok(text) = fs::read_to_string("/proc/self/smaps") {
        mappings(&text, start, start.saturating_add(length), &mut found);
    }
    found
}

/// What of the limit of locked memory is used, and whether there is one for this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Locked {
    /// Bytes that devices have pinned; what the kernel counts.
    pub(crate) pinned: u64,
    /// `CAP_IPC_LOCK` lifts the limit.
    pub(crate) is_exempt: bool,
}

/// `None` if /proc does not say. Capabilities are the thread's own.
pub(crate) fn locked() -> Option<Locked> {
    let status = fs::read_to_string("/proc/thread-self/status").ok()?;
    let users = fs::read_to_string("/proc/self/uid_map").ok()?;
    locked_by(&status, &users)
}

fn locked_by(status: &str, users: &str) -> Option<Locked> {
    const CAP_IPC_LOCK: u32 = 14;
    let capabilities = status
        .lines()
        .find_map(|line| line.strip_prefix("CapEff:"))?;
    let capabilities = u64::from_str_radix(capabilities.trim(), 16).ok()?;
    // A capability over another user namespace's resources counts for nothing here; all users are
    // mapped to themselves in the first one alone.
    let is_first = users.split_whitespace().eq(["0", "0", "4294967295"]);
    Some(Locked {
        pinned: kilobytes(status, "VmPin")?,
        is_exempt: is_first && capabilities & 1 << CAP_IPC_LOCK != 0,
    })
}

/// The value of a line `name:  123 kB`, in bytes.
fn kilobytes(text: &str, name: &str) -> Option<u64> {
    let rest = text
        .lines()
        .find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
    let number: u64 = rest.trim().strip_suffix("kB")?.trim().parse().ok()?;
    number.checked_mul(1024)
}

/// Walks the mappings of `start..end`, which the kernel lists in order.
fn mappings(smaps: &str, start: u64, end: u64, found: &mut Vec<MemoryFinding>) {
    let mut at = start;
    let (mut any, mut inside) = (false, false);
    let (mut read_only, mut file, mut huge) = (None, None, None);
    for line in smaps.lines() {
        if let Some(mapping) = Mapping::parse(line) {
            any = true;
            inside = mapping.end > at && mapping.start < end;
            if !inside {
                continue;
            }
            if mapping.start > at {
                break;
            }
            if !mapping.writable && read_only.is_none() {
                read_only = Some(at);
            }
            if mapping.path.starts_with('/') && file.is_none() {
                file = Some(PathBuf::from(mapping.path));
            }
            at = mapping.end;
        } else if inside
            && let Some(size) = kilobytes(line, "KernelPageSize")
            && size > ORDINARY
            && huge.is_none()
        {
            huge = Some(size);
        }
    }
    if at < end && any {
        found.push(MemoryFinding::NotMapped { at });
    }
    found.extend(read_only.map(|at| MemoryFinding::ReadOnly { at }));
    found.extend(file.map(|path| MemoryFinding::File { path }));
    found.extend(huge.map(|size| MemoryFinding::HugePages { size }));
}

/// The largest ordinary page of any machine.
const ORDINARY: u64 = 64 << 10;

struct Mapping<'t> {
    start: u64,
    end: u64,
    writable: bool,
    path: &'t str,
}

impl<'t> Mapping<'t> {
    /// A line such as `7f00-7f10 rw-p 00000000 08:01 17    /a/file`.
    fn parse(line: &'t str) -> Option<Self> {
        let (range, rest) = line.split_once(' ')?;
        let (start, end) = range.split_once('-')?;
        let (rights, rest) = rest.split_once(' ')?;
        let path = rest.splitn(4, ' ').nth(3).unwrap_or_default();
        Some(Self {
            start: u64::from_str_radix(start, 16).ok()?,
            end: u64::from_str_radix(end, 16).ok()?,
            writable: rights.as_bytes().get(1) == Some(&b'w'),
            path: path.trim(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SMAPS: &str = "\
1000-3000 rw-p 00000000 00:00 0 
Size:                  8 kB
KernelPageSize:        4 kB
3000-4000 r--p 00002000 08:01 17                         /a/file of bytes
KernelPageSize:        4 kB
200000-400000 rw-s 00000000 00:0f 5                      /dev/hugepages/x
KernelPageSize:     2048 kB
ffff-zzzz nonsense
";

    fn found(start: u64, end: u64) -> Vec<MemoryFinding> {
        let mut found = Vec::new();
        mappings(SMAPS, start, end, &mut found);
        found
    }

    #[test]
    fn what_a_range_lies_on_is_told() {
        assert_eq!(found(0x1000, 0x3000), []);
        assert_eq!(
            found(0x2000, 0x4000),
            [
                MemoryFinding::ReadOnly { at: 0x3000 },
                MemoryFinding::File {
                    path: "/a/file of bytes".into()
                }
            ]
        );
        assert_eq!(
            found(0x2000, 0x3001).first(),
            Some(&MemoryFinding::ReadOnly { at: 0x3000 })
        );
        assert_eq!(
            found(0x3800, 0x5000).first(),
            Some(&MemoryFinding::NotMapped { at: 0x4000 })
        );
        assert_eq!(found(0, 0x1000), [MemoryFinding::NotMapped { at: 0 }]);
        assert_eq!(
            found(0x20_0000, 0x20_1000).last(),
            Some(&MemoryFinding::HugePages { size: 2 << 20 })
        );
        let mut nothing = Vec::new();
        mappings("", 1, 2, &mut nothing);
        assert_eq!(nothing, [], "of an empty list nothing is claimed");
    }

    #[test]
    fn what_is_pinned_is_read_in_bytes() {
        assert_eq!(
            kilobytes("VmLck:\t 0 kB\nVmPin:\t  68 kB\n", "VmPin"),
            Some(68 << 10)
        );
        assert_eq!(kilobytes("VmPin: x kB", "VmPin"), None);
    }

    #[test]
    fn whether_the_limit_is_one_for_this_process_is_read() {
        let status = |capabilities: &str| format!("VmPin:\t  68 kB\nCapEff:\t{capabilities}\n");
        let all = "         0          0 4294967295\n";
        let read = |capabilities, users| locked_by(&status(capabilities), users);
        let locked = |is_exempt| {
            Some(Locked {
                pinned: 68 << 10,
                is_exempt,
            })
        };
        assert_eq!(read("000001ffffffffff", all), locked(true));
        assert_eq!(read("0000000000004000", all), locked(true));
        assert_eq!(read("000001ffffffbfff", all), locked(false));
        assert_eq!(read("0000000000000000", all), locked(false));
        // Root of a container with users of its own.
        assert_eq!(read("000001ffffffffff", "0 1000 1\n"), locked(false));
        assert_eq!(read("nonsense", all), None);
        assert_eq!(locked_by("CapEff: 0", all), None);
    }

    proptest::proptest! {
        #[test]
        fn no_text_is_too_odd(text in ".*\n.*\n.*", start: u64, length: u64) {
            let mut found = Vec::new();
            mappings(&text, start, start.saturating_add(length), &mut found);
            let _ = kilobytes(&text, "VmPin");
            let _ = locked_by(&text, &text);
        }
    }
}
