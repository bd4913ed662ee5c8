//! Builds netlink messages and reads the answers: enough for rtnetlink and RDMA netlink.
//!
//! Ground truth: `linux/netlink.h`. Must never trust a length that was received.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

use nix::errno::Errno;
use nix::sys::socket::{
    AddressFamily, MsgFlags, NetlinkAddr, SockFlag, SockProtocol, SockType, bind, recv, send,
    socket,
};

const HEADER: usize = 16;
const NLMSG_ERROR: u16 = 2;
const NLMSG_DONE: u16 = 3;
const NLM_F_MULTI: u16 = 2;

/// This is a request.
pub const REQUEST: u16 = 0x1;
/// The kernel shall say how it went.
pub const ACK: u16 = 0x4;
/// Put in the place of what is there.
pub const REPLACE: u16 = 0x100;
/// Fail if it is there.
pub const EXCL: u16 = 0x200;
/// Make it if it is not there.
pub const CREATE: u16 = 0x400;
/// List all.
pub const DUMP: u16 = 0x300;

/// A message under construction.
#[derive(Debug, Clone)]
pub struct Message {
    buf: Vec<u8>,
}

impl Message {
    /// Starts a message of this kind; [`REQUEST`] is added to the flags.
    pub fn new(kind: u16, flags: u16) -> Self {
        let mut buf = vec![0; 4];
        buf.extend_from_slice(&kind.to_ne_bytes());
        buf.extend_from_slice(&(flags | REQUEST).to_ne_bytes());
        buf.resize(HEADER, 0);
        Self { buf }
    }

    /// Adds bytes of a fixed header.
    pub fn body(mut self, bytes: &[u8]) -> Self {
        self.buf.extend_from_slice(bytes);
        self.pad();
        self
    }

    /// Adds an attribute.
    pub fn attr(mut self, kind: u16, value: &[u8]) -> Self {
        // The length leaves the padding out; the kernel checks strings by it.
        let len = u16::try_from(4 + value.len()).unwrap_or(u16::MAX);
        self.buf.extend_from_slice(&len.to_ne_bytes());
        self.buf.extend_from_slice(&kind.to_ne_bytes());
        self.body(value)
    }

    /// Adds an attribute that is a string with its terminating zero.
    pub fn text(self, kind: u16, value: &str) -> Self {
        let mut bytes = value.as_bytes().to_vec();
        bytes.push(0);
        self.attr(kind, &bytes)
    }

    /// Adds an attribute that is a number of 32 bits.
    pub fn number(self, kind: u16, value: u32) -> Self {
        self.attr(kind, &value.to_ne_bytes())
    }

    /// Adds an attribute that holds what `fill` adds.
    pub fn nest(self, kind: u16, fill: impl FnOnce(Self) -> Self) -> Self {
        let inner = fill(Self { buf: Vec::new() });
        self.attr(kind, &inner.buf)
    }

    fn pad(&mut self) {
        while !self.buf.len().is_multiple_of(4) {
            self.buf.push(0);
        }
    }

    fn finish(mut self, seq: u32) -> Vec<u8> {
        let len = u32::try_from(self.buf.len()).unwrap_or(u32::MAX);
        for (at, value) in [(0, len), (8, seq)] {
            if let Some(slot) = self.buf.get_mut(at..at + 4) {
                slot.copy_from_slice(&value.to_ne_bytes());
            }
        }
        self.buf
    }
}

/// A netlink socket that asks and waits for the answer.
#[derive(Debug)]
pub struct Socket {
    fd: OwnedFd,
    seq: u32,
}

impl Socket {
    /// Opens a socket of this protocol.
    pub fn open(protocol: SockProtocol) -> io::Result<Self> {
        let fd = socket(
            AddressFamily::Netlink,
            SockType::Raw,
            SockFlag::SOCK_CLOEXEC,
            protocol,
        )?;
        bind(fd.as_raw_fd(), &NetlinkAddr::new(0, 0))?;
        Ok(Self { fd, seq: 0 })
    }

    /// Sends a request and gives back the payloads of all answers to it.
    pub fn ask(&mut self, message: Message) -> io::Result<Vec<Vec<u8>>> {
        self.seq += 1;
        let bytes = message.finish(self.seq);
        send(self.fd.as_raw_fd(), &bytes, MsgFlags::empty())?;
        let mut answers = Vec::new();
        let mut buf = vec![0; 64 << 10];
        loop {
            let n = recv(self.fd.as_raw_fd(), &mut buf, MsgFlags::empty())?;
            if n == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            let mut rest = buf.get(..n).unwrap_or_default();
            while let Some(part) = Part::take(&mut rest) {
                if part.seq != self.seq {
                    continue;
                }
                match part.kind {
                    NLMSG_ERROR => {
                        let code = first_i32(part.payload).ok_or(io::ErrorKind::InvalidData)?;
                        return match code {
                            0 => Ok(answers),
                            _ => Err(Errno::from_raw(code.wrapping_neg()).into()),
                        };
                    }
                    NLMSG_DONE => return Ok(answers),
                    _ => answers.push(part.payload.to_vec()),
                }
                if part.flags & NLM_F_MULTI == 0 && !wants_ack(&bytes) {
                    return Ok(answers);
                }
            }
        }
    }
}

fn wants_ack(request: &[u8]) -> bool {
    request.get(6).is_some_and(|low| u16::from(*low) & ACK != 0)
}

fn first_i32(bytes: &[u8]) -> Option<i32> {
    Some(i32::from_ne_bytes(bytes.get(..4)?.try_into().ok()?))
}

struct Part<'a> {
    kind: u16,
    flags: u16,
    seq: u32,
    payload: &'a [u8],
}

impl<'a> Part<'a> {
    fn take(rest: &mut &'a [u8]) -> Option<Self> {
        let whole = *rest;
        let len = usize::try_from(u32::from_ne_bytes(whole.get(..4)?.try_into().ok()?)).ok()?;
        let part = Self {
            kind: u16::from_ne_bytes(whole.get(4..6)?.try_into().ok()?),
            flags: u16::from_ne_bytes(whole.get(6..8)?.try_into().ok()?),
            seq: u32::from_ne_bytes(whole.get(8..12)?.try_into().ok()?),
            payload: whole.get(HEADER..len)?,
        };
        *rest = whole.get(len.next_multiple_of(4)..).unwrap_or_default();
        Some(part)
    }
}

/// Goes through the attributes of a payload; stops at the first malformed one.
pub fn attributes(mut payload: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    std::iter::from_fn(move || {
        let len = usize::from(u16::from_ne_bytes(payload.get(..2)?.try_into().ok()?));
        // The two top bits say "nested" and "network order".
        let kind = u16::from_ne_bytes(payload.get(2..4)?.try_into().ok()?) & 0x3fff;
        let value = payload.get(4..len)?;
        payload = payload.get(len.next_multiple_of(4)..).unwrap_or_default();
        Some((kind, value))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attributes_come_back() {
        let m = Message::new(16, ACK)
            .text(3, "veth0")
            .number(6, 7)
            .finish(9);
        assert_eq!(m.len(), 16 + 12 + 8);
        assert_eq!(m.get(..4), Some(&36_u32.to_ne_bytes()[..]));
        let got: Vec<_> = attributes(m.get(16..).unwrap_or_default()).collect();
        assert_eq!(got, [(3, &b"veth0\0"[..]), (6, &7_u32.to_ne_bytes()[..])]);
    }

    #[test]
    fn nested_lengths_cover_their_content() {
        let m = Message::new(16, 0)
            .nest(18, |m| m.text(1, "veth"))
            .finish(1);
        let got: Vec<_> = attributes(m.get(16..).unwrap_or_default()).collect();
        let [(18, inner)] = got.as_slice() else {
            panic!("one attribute expected: {got:?}")
        };
        assert_eq!(attributes(inner).collect::<Vec<_>>(), [(1, &b"veth\0"[..])]);
    }

    #[test]
    fn hostile_lengths_end_the_walk() {
        assert_eq!(attributes(&[255, 255, 1, 0, 1]).count(), 0);
        assert_eq!(attributes(&[0, 0, 1, 0, 1]).count(), 0);
        assert_eq!(attributes(&[1]).count(), 0);
        let mut rest: &[u8] = &[255, 255, 255, 255, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
        assert!(Part::take(&mut rest).is_none());
        let mut rest: &[u8] = &[0; 16];
        assert!(Part::take(&mut rest).is_none());
    }
}
