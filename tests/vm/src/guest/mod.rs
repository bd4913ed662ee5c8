//! What runs inside the virtual machine, and what a test case may use there.
//!
//! Must never be called on the host: it loads modules and changes addresses of the machine it is
//! on.

pub mod alone;
pub mod case;
pub mod init;
pub mod injector;
pub mod kmsg;
pub mod modules;
pub mod net;
pub mod netlink;
pub mod program;
pub mod rdma;
pub mod resources;
pub mod run;
pub mod seccomp;

/// First argument that makes the executable run one test case.
pub const CASE_ARG: &str = "guest-case";

/// First argument that makes the executable run a part of a case.
pub const PART_ARG: &str = "guest-part";

/// First argument that makes the executable run the demonstration.
pub const DEMO_ARG: &str = "guest-demo";

/// Second argument to the former: the root holds this executable alone.
pub const ALONE_ARG: &str = "alone";

/// First argument that makes the executable the bench's controller.
pub const BENCH_ARG: &str = "guest-bench";

/// First argument that makes the executable wait for a line and then become another program.
pub const BENCH_START_ARG: &str = "guest-bench-start";

/// Where a case's own process leaves its verdict for init.
pub const VERDICT_PATH: &str = "/run/uverbs-verdict";

/// Word on the kernel's command line that says: this is the guest.
pub const GUEST_WORD: &str = "uverbs.guest";

/// Word on the kernel's command line that says: the long cases run in full.
pub const FULL_WORD: &str = "uverbs.full";

/// Whether this is the guest. Nothing of this module may run anywhere else.
pub fn inside() -> bool {
    told(GUEST_WORD)
}

/// Whether the long cases are to run in full.
pub fn full() -> bool {
    told(FULL_WORD)
}

fn told(word: &str) -> bool {
    std::fs::read_to_string("/proc/cmdline")
        .is_ok_and(|line| line.split_whitespace().any(|w| w == word))
}

/// Major and minor number of the running kernel.
pub fn kernel_version() -> std::io::Result<(u32, u32)> {
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease")?;
    parse_release(&release).ok_or_else(|| {
        std::io::Error::other(format!(
            "the kernel's release {release:?} starts with no number"
        ))
    })
}

/// Takes major and minor number out of a release such as `6.12.117+deb12-amd64`.
pub fn parse_release(release: &str) -> Option<(u32, u32)> {
    let mut numbers = release.trim().split(|c: char| !c.is_ascii_digit());
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::parse_release;

    #[test]
    fn releases() {
        assert_eq!(parse_release("6.12.117+deb12-amd64\n"), Some((6, 12)));
        assert_eq!(parse_release("7.3-rc1"), Some((7, 3)));
        assert_eq!(parse_release("six"), None);
        assert_eq!(parse_release("6"), None);
        assert_eq!(parse_release(""), None);
    }
}
