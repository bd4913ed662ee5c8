//! A netlink socket to the kernel.
//!
//! Ground truth: `netlink(7)`. Must never wait without bound, and never read what another process
//! sent: the socket is connected to the kernel, which keeps everyone else out.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::sys::socket::{
    AddressFamily, MsgFlags, NetlinkAddr, SockFlag, SockProtocol, SockType, connect, recv, send,
    setsockopt, socket, sockopt,
};
use nix::sys::time::{TimeVal, TimeValLike};

use super::client::{Client, Transport};

/// How long an answer may take. The kernel has it ready when the request has been sent.
const LIMIT: Duration = Duration::from_secs(5);
/// The kernel fills datagrams up to the size of the buffer it has seen, and up to this.
const USUAL: usize = 32 << 10;
/// No datagram is longer.
const LONGEST: usize = 1 << 20;

/// Which part of the kernel is spoken to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Protocol {
    /// Network devices, addresses, routes.
    Route,
    /// RDMA devices. Loads `ib_core` if the process may.
    Rdma,
}

/// A socket that is connected to the kernel.
#[derive(Debug)]
pub struct Socket {
    fd: OwnedFd,
}

impl Socket {
    /// Opens a socket, close-on-exec.
    ///
    /// # Errors
    /// What the system said: `EPROTONOSUPPORT` if the kernel has no such protocol.
    pub fn open(protocol: Protocol) -> io::Result<Self> {
        let protocol = match protocol {
            Protocol::Route => SockProtocol::NetlinkRoute,
            Protocol::Rdma => SockProtocol::NetlinkRDMA,
        };
        let fd = socket(
            AddressFamily::Netlink,
            SockType::Raw,
            SockFlag::SOCK_CLOEXEC,
            protocol,
        )?;
        let limit = TimeVal::milliseconds(500);
        setsockopt(&fd, sockopt::ReceiveTimeout, &limit)?;
        setsockopt(&fd, sockopt::SendTimeout, &limit)?;
        // Also gives the socket its address.
        retried(|| connect(fd.as_raw_fd(), &NetlinkAddr::new(0, 0)))?;
        Ok(Self { fd })
    }

    fn read(&self, room: &mut [u8], flags: MsgFlags) -> io::Result<usize> {
        // With MSG_TRUNC it tells the whole length, whatever the room.
        retried(|| recv(self.fd.as_raw_fd(), room, flags | MsgFlags::MSG_TRUNC))
    }
}

impl Client<Socket> {
    /// A client on a socket of this protocol.
    ///
    /// # Errors
    /// As [`Socket::open`].
    pub fn open(protocol: Protocol) -> io::Result<Self> {
        Socket::open(protocol).map(Self::new)
    }
}

impl Transport for Socket {
    fn send(&mut self, message: &[u8]) -> io::Result<()> {
        let sent = retried(|| send(self.fd.as_raw_fd(), message, MsgFlags::empty()))?;
        if sent == message.len() {
            Ok(())
        } else {
            Err(io::ErrorKind::WriteZero.into())
        }
    }

    fn receive(&mut self, datagram: &mut Vec<u8>) -> io::Result<()> {
        // What does not fit is lost: so the length first.
        let len = self.read(&mut [], MsgFlags::MSG_PEEK)?;
        if len > LONGEST {
            self.read(&mut [], MsgFlags::empty())?;
            return Err(too_long());
        }
        datagram.resize(len.max(USUAL), 0);
        let len = self.read(datagram, MsgFlags::empty())?;
        if len > datagram.len() {
            return Err(too_long());
        }
        datagram.truncate(len);
        Ok(())
    }
}

fn too_long() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "a datagram is too long")
}

/// Signals do not end a call; the time limit does.
fn retried<R>(mut call: impl FnMut() -> nix::Result<R>) -> io::Result<R> {
    let start = Instant::now();
    loop {
        match call() {
            Err(Errno::EINTR | Errno::EAGAIN) if start.elapsed() < LIMIT => {}
            Err(Errno::EINTR | Errno::EAGAIN) => return Err(io::ErrorKind::TimedOut.into()),
            other => return Ok(other?),
        }
    }
}
