//! Closes netlink for this process, as a sandbox does.
//!
//! Ground truth: `linux/seccomp.h`, `linux/filter.h`, seccomp(2).
#![allow(unsafe_code, reason = "installs a filter of system calls")]

use std::io;

use nix::libc::{self, c_long, sock_filter, sock_fprog};

/// Places in `struct seccomp_data`: the call's number, its first argument.
const NUMBER: u32 = 0;
const FIRST_ARGUMENT: u32 = 16;

const LOAD: u16 = 0x20;
const IF_EQUAL: u16 = 0x15;
const RETURN: u16 = 0x06;

const fn step(code: u16, k: u32, jf: u8) -> sock_filter {
    sock_filter { code, jt: 0, jf, k }
}

/// From here on this process, and what it starts, is refused netlink sockets with this number.
pub fn refuse_netlink(errno: i32) -> io::Result<()> {
    let invalid = |_| io::Error::from(io::ErrorKind::InvalidInput);
    let refuse = libc::SECCOMP_RET_ERRNO | u32::try_from(errno).map_err(invalid)?;
    let number = u32::try_from(libc::SYS_socket).map_err(invalid)?;
    let family = u32::try_from(libc::AF_NETLINK).map_err(invalid)?;
    // What is not equal jumps to the last step.
    let mut filter = [
        step(LOAD, NUMBER, 0),
        step(IF_EQUAL, number, 3),
        step(LOAD, FIRST_ARGUMENT, 0),
        step(IF_EQUAL, family, 1),
        step(RETURN, refuse, 0),
        step(RETURN, libc::SECCOMP_RET_ALLOW, 0),
    ];
    let program = sock_fprog {
        len: 6,
        filter: filter.as_mut_ptr(),
    };
    // SAFETY: the option takes a number and no address.
    if unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) } != 0 {
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
