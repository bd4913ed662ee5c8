//! A netlink socket to the kernel.
//!
//! Ground truth: `netlink(7)`, `recvmmsg(2)`, `net/netlink/af_netlink.c`: the kernel answers a request
//! before the call that sends it returns, and makes the next datagram of a list when one is received.
//! Must never wait without bound, and never take for an answer what another process sent.

use std::array;
use std::io::{self, IoSliceMut};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{
    AddressFamily, MsgFlags, MultiHeaders, NetlinkAddr, SockFlag, SockProtocol, SockType, recvmmsg,
    recvmsg, send, socket,
};
use zerocopy::FromBytes;

use super::client::{Client, Transport};
use crate::layout::netlink::{NLM_F_DUMP, nlmsghdr};

/// How long an answer may take. The kernel has it ready when the request has been sent.
const LIMIT: Duration = Duration::from_secs(5);
/// Datagrams that one call receives: each is one device of a list, or an answer.
const SLOTS: usize = 4;
/// Room for each of them at first: several times what is told of a device.
const USUAL: usize = 1024;
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

/// A socket to the kernel.
#[derive(Debug)]
pub struct Socket {
    fd: OwnedFd,
    /// Room for the first datagrams; once one was longer, that is `grown`.
    small: [u8; SLOTS * USUAL],
    grown: Vec<u8>,
    /// Bytes of room for each datagram.
    slot: usize,
    /// How long the datagrams are that were received last.
    lens: [usize; SLOTS],
    count: usize,
    /// How many of them have been handed on.
    taken: usize,
    /// Whether what was asked for last is a list, which comes in several datagrams.
    is_list: bool,
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
        Ok(Self {
            fd,
            small: [0; SLOTS * USUAL],
            grown: Vec::new(),
            slot: USUAL,
            lens: [0; SLOTS],
            count: 0,
            taken: 0,
            is_list: false,
        })
    }

    fn room(&mut self) -> &mut [u8] {
        if self.grown.is_empty() {
            &mut self.small
        } else {
            &mut self.grown
        }
    }

    /// Receives the next datagram, if there is one; otherwise as [`receive_all`](Self::receive_all).
    ///
    /// That takes memory from the heap, and most answers are one datagram.
    fn receive_one(&mut self) -> io::Result<Option<usize>> {
        (self.count, self.taken) = (0, 0);
        let (fd, slot) = (self.fd.as_raw_fd(), self.slot);
        let room = self.room().get_mut(..slot).unwrap_or_default();
        let mut slices = [IoSliceMut::new(room)];
        let len = match recvmsg::<NetlinkAddr>(fd, &mut slices, None, flags()) {
            Ok(datagram) => len_of(datagram.address, datagram.bytes),
            Err(Errno::EAGAIN) => return Ok(None),
            Err(errno) => return Err(errno.into()),
        };
        if let Some(first) = self.lens.first_mut() {
            *first = len;
        }
        self.count = 1;
        Ok(Some(len))
    }

    /// Receives what there is, and gives the length of the longest datagram; `None` if there is
    /// nothing.
    fn receive_all(&mut self) -> io::Result<Option<usize>> {
        (self.count, self.taken) = (0, 0);
        let (fd, slot) = (self.fd.as_raw_fd(), self.slot);
        let mut lens = [0; SLOTS];
        let mut longest = 0;
        let mut rooms = self.room().chunks_exact_mut(slot);
        let mut slices: [_; SLOTS] =
            array::from_fn(|_| [IoSliceMut::new(rooms.next().unwrap_or_default())]);
        let mut headers = MultiHeaders::<NetlinkAddr>::preallocate(SLOTS, None);
        let mut count = 0;
        match recvmmsg(fd, &mut headers, slices.iter_mut(), flags(), None) {
            Ok(received) => {
                for (datagram, len) in received.zip(&mut lens) {
                    count += 1;
                    *len = len_of(datagram.address, datagram.bytes);
                    longest = longest.max(*len);
                }
            }
            Err(Errno::EAGAIN) => return Ok(None),
            Err(errno) => return Err(errno.into()),
        }
        (self.lens, self.count) = (lens, count);
        Ok(Some(longest))
    }

    /// Receives at least one datagram.
    fn refill(&mut self) -> io::Result<()> {
        let start = Instant::now();
        loop {
            let received = if self.is_list {
                self.receive_all()
            } else {
                self.receive_one()
            };
            match received {
                Ok(Some(longest)) if longest <= self.slot => return Ok(()),
                Ok(Some(longest)) => return Err(self.grow(longest)),
                Ok(None) => {}
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
            // Signals do not end it; the time limit does.
            let left = LIMIT.saturating_sub(start.elapsed());
            if left.is_zero() {
                return Err(io::ErrorKind::TimedOut.into());
            }
            let timeout = PollTimeout::try_from(left).unwrap_or(PollTimeout::MAX);
            let mut readable = [PollFd::new(self.fd.as_fd(), PollFlags::POLLIN)];
            match poll(&mut readable, timeout) {
                Ok(_) | Err(Errno::EINTR) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
    }

    /// Makes room for datagrams of this length; the one that had none is lost, and so is the rest of
    /// its answer. Gives the error that says so.
    fn grow(&mut self, len: usize) -> io::Error {
        // What was received beside it is of an answer that has ended here.
        (self.count, self.taken) = (0, 0);
        if len > LONGEST {
            return io::Error::new(io::ErrorKind::InvalidData, "a datagram is too long");
        }
        self.slot = len.next_power_of_two();
        self.grown = vec![0; SLOTS * self.slot];
        // A list goes on for as long as it is read, and no other can be asked for meanwhile.
        let end = loop {
            match self.receive_all() {
                Ok(Some(_)) => {}
                Ok(None) => break io::ErrorKind::Interrupted.into(),
                Err(error) => break error,
            }
        };
        self.count = 0;
        end
    }
}

fn flags() -> MsgFlags {
    // With MSG_TRUNC it tells the whole length, whatever the room.
    MsgFlags::MSG_DONTWAIT | MsgFlags::MSG_TRUNC
}

/// How long a datagram is; one of another process has no bytes, as if it were not there.
fn len_of(from: Option<NetlinkAddr>, len: usize) -> usize {
    match from {
        Some(from) if from.pid() == 0 => len,
        _ => 0,
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
        let header = nlmsghdr::read_from_prefix(message).ok();
        self.is_list =
            header.is_some_and(|(header, _)| header.nlmsg_flags & NLM_F_DUMP == NLM_F_DUMP);
        let start = Instant::now();
        let sent = loop {
            match send(self.fd.as_raw_fd(), message, MsgFlags::empty()) {
                Err(Errno::EINTR) if start.elapsed() < LIMIT => {}
                other => break other?,
            }
        };
        if sent == message.len() {
            Ok(())
        } else {
            Err(io::ErrorKind::WriteZero.into())
        }
    }

    fn receive(&mut self, datagram: &mut Vec<u8>) -> io::Result<()> {
        loop {
            while self.taken < self.count {
                let (place, slot) = (self.taken, self.slot);
                let len = self.lens.get(place).copied().unwrap_or_default();
                self.taken += 1;
                let start = place * slot;
                let bytes = self.room().get(start..start + len).unwrap_or_default();
                if !bytes.is_empty() {
                    datagram.clear();
                    datagram.extend_from_slice(bytes);
                    return Ok(());
                }
            }
            self.refill()?;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg_attr(miri, ignore = "Miri has no sockets of this family")]
    fn a_datagram_that_is_too_long_leaves_nothing_behind() {
        let mut socket = Socket::open(Protocol::Route).expect("a socket");
        (socket.lens, socket.count) = ([16; SLOTS], SLOTS);
        let error = socket.grow(LONGEST + 1);
        assert_eq!(error.kind(), io::ErrorKind::InvalidData);
        assert_eq!((socket.count, socket.slot), (0, USUAL));
    }
}
