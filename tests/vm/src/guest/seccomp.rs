//! Sandboxes for this process: one that kills it as soon as it writes to one of some descriptors, and
//! one that closes netlink.
//!
//! Ground truth: `linux/seccomp.h`, `linux/filter.h`, seccomp(2). Must never let a way to write
//! through that it knows of: what cannot be judged by a descriptor's number is forbidden whole.
#![allow(unsafe_code, reason = "installs a filter of system calls")]

use std::io;
use std::os::fd::RawFd;

use nix::libc::{self, c_long, sock_filter, sock_fprog};

/// `AUDIT_ARCH_X86_64`, `AUDIT_ARCH_AARCH64`.
#[cfg(target_arch = "x86_64")]
const ARCH: u32 = 0xC000_003E;
#[cfg(target_arch = "aarch64")]
const ARCH: u32 = 0xC000_00B7;

/// Places in `struct seccomp_data`.
const NUMBER: u32 = 0;
const ARCHITECTURE: u32 = 4;
const FIRST_ARGUMENT: u32 = 16;

const LOAD: u16 = 0x20;
const IF_EQUAL: u16 = 0x15;
const RETURN: u16 = 0x06;
const KILL: u32 = libc::SECCOMP_RET_KILL_PROCESS;
const ALLOW: u32 = libc::SECCOMP_RET_ALLOW;

/// System calls that write to the descriptor that is their first argument.
const WRITES: [c_long; 6] = [
    libc::SYS_write,
    libc::SYS_writev,
    libc::SYS_pwrite64,
    libc::SYS_pwritev,
    libc::SYS_pwritev2,
    libc::SYS_sendfile,
];

/// Other ways to write.
const FORBIDDEN: [c_long; 4] = [
    libc::SYS_splice,
    libc::SYS_vmsplice,
    libc::SYS_tee,
    libc::SYS_io_uring_setup,
];

const fn step(code: u16, k: u32) -> sock_filter {
    sock_filter {
        code,
        jt: 0,
        jf: 0,
        k,
    }
}

fn number(n: impl TryInto<u32>) -> io::Result<u32> {
    n.try_into()
        .map_err(|_| io::Error::from(io::ErrorKind::InvalidInput))
}

/// A comparison: what follows it is done if it holds, else that many steps are left out.
const fn if_equal(k: u32, jf: u8) -> sock_filter {
    sock_filter {
        jf,
        ..step(IF_EQUAL, k)
    }
}

/// The filter against writers.
fn no_writers(files: &[RawFd]) -> io::Result<Vec<sock_filter>> {
    let kill_unless = |k| {
        [
            sock_filter {
                jt: 1,
                ..step(IF_EQUAL, k)
            },
            step(RETURN, KILL),
        ]
    };
    let kill_if = |k| [if_equal(k, 1), step(RETURN, KILL)];
    let mut all = vec![step(LOAD, ARCHITECTURE)];
    all.extend(kill_unless(ARCH));
    all.push(step(LOAD, NUMBER));
    for call in FORBIDDEN {
        all.extend(kill_if(number(call)?));
    }
    // A write jumps over the rest of the list and over "allow" to where descriptors are looked at.
    for (index, call) in WRITES.into_iter().enumerate() {
        let over = u8::try_from(WRITES.len() - index).unwrap_or(u8::MAX);
        all.push(sock_filter {
            jt: over,
            ..step(IF_EQUAL, number(call)?)
        });
    }
    all.push(step(RETURN, ALLOW));
    all.push(step(LOAD, FIRST_ARGUMENT));
    for file in files {
        all.extend(kill_if(number(*file)?));
    }
    all.push(step(RETURN, ALLOW));
    Ok(all)
}

/// From here on, whoever in this process writes to one of these descriptors ends it with SIGSYS.
pub fn kill_writers_to(files: &[RawFd]) -> io::Result<()> {
    install(&mut no_writers(files)?)
}

/// From here on this process, and what it starts, is refused netlink sockets with this number.
pub fn refuse_netlink(errno: i32) -> io::Result<()> {
    install(&mut [
        step(LOAD, NUMBER),
        if_equal(number(libc::SYS_socket)?, 3),
        step(LOAD, FIRST_ARGUMENT),
        if_equal(number(libc::AF_NETLINK)?, 1),
        step(RETURN, libc::SECCOMP_RET_ERRNO | number(errno)?),
        step(RETURN, ALLOW),
    ])
}

/// Puts all threads of this process under a filter, for good.
fn install(filter: &mut [sock_filter]) -> io::Result<()> {
    let program = sock_fprog {
        len: u16::try_from(filter.len()).map_err(io::Error::other)?,
        filter: filter.as_mut_ptr(),
    };
    // SAFETY: the option takes a number and no address.
    let told = unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) };
    if told != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: `program` and the filter behind its pointer, whose length it states, live until the call
    // is over; the kernel copies both and writes nothing.
    let installed = unsafe {
        libc::syscall(
            libc::SYS_seccomp,
            c_long::from(libc::SECCOMP_SET_MODE_FILTER),
            libc::SECCOMP_FILTER_FLAG_TSYNC,
            &raw const program,
        )
    };
    match installed {
        0 => Ok(()),
        -1 => Err(io::Error::last_os_error()),
        thread => Err(io::Error::other(format!(
            "thread {thread} cannot be put under the filter"
        ))),
    }
}
