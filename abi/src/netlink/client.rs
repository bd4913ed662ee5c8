//! One request and all of its answers, over any transport.
//!
//! Ground truth: `linux/netlink.h`, `net/netlink/af_netlink.c`. Must never take the answer to
//! another request for its own, read for ever, or hand out a list that the kernel called
//! inconsistent.

use std::fmt;
use std::io;

use zerocopy::FromBytes;

use super::message::{Message, Part, Parts, attributes, parts, text};
use crate::layout::netlink::{
    NLM_F_ACK, NLM_F_ACK_TLVS, NLM_F_CAPPED, NLM_F_DUMP, NLM_F_DUMP_INTR, NLM_F_MULTI, NLMSG_DONE,
    NLMSG_ERROR, NLMSG_NOOP, NLMSG_OVERRUN, NLMSGERR_ATTR_MSG, nlmsgerr, nlmsghdr,
};
use crate::{Errno, Explain};

/// How often a list is asked for that changes while it is read.
const TRIES: u32 = 16;
/// Most bytes that belong to one answer: far above what thousands of devices need.
const MAX_ANSWER: usize = 16 << 20;

/// What carries messages to the kernel and back: a socket, or a test.
pub trait Transport: Send {
    /// Sends one message.
    ///
    /// # Errors
    /// What the system said.
    fn send(&mut self, message: &[u8]) -> io::Result<()>;

    /// Puts the next datagram, whole, into `datagram`.
    ///
    /// # Errors
    /// What the system said; [`io::ErrorKind::TimedOut`] if nothing comes;
    /// [`io::ErrorKind::Interrupted`] if the answer was lost for want of room, which there is now:
    /// nothing of it will come, and the request can be sent again.
    fn receive(&mut self, datagram: &mut Vec<u8>) -> io::Result<()>;
}

impl<T: Transport + ?Sized> Transport for Box<T> {
    fn send(&mut self, message: &[u8]) -> io::Result<()> {
        (**self).send(message)
    }

    fn receive(&mut self, datagram: &mut Vec<u8>) -> io::Result<()> {
        (**self).receive(datagram)
    }
}

/// Asks, and collects the answers.
#[derive(Debug)]
pub struct Client<T> {
    transport: T,
    seq: u32,
    // Kept from one request to the next: what is freed after each answer is made anew for the next
    // one, by some allocators with system calls.
    request: Vec<u8>,
    datagram: Vec<u8>,
    answer: Vec<u8>,
}

/// The answer to one request. The client keeps it until it is asked for another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Answer<'c> {
    /// Its messages, one after the other.
    messages: &'c [u8],
    /// Datagrams that it came in. The kernel makes each in one go; what came in several may have
    /// changed in between.
    pub datagrams: usize,
}

impl<'c> Answer<'c> {
    /// The payloads of its messages.
    #[must_use]
    pub const fn payloads(&self) -> Payloads<'c> {
        Payloads(parts(self.messages))
    }
}

/// The payloads of an answer's messages.
#[derive(Debug, Clone)]
pub struct Payloads<'c>(Parts<'c>);

impl<'c> Iterator for Payloads<'c> {
    type Item = &'c [u8];

    fn next(&mut self) -> Option<Self::Item> {
        self.0.next().map(|part| part.payload)
    }
}

/// How one reading of an answer ended.
enum End {
    /// The answer is whole, and came in so many datagrams.
    Whole(usize),
    /// It was inconsistent, or lost.
    Interrupted,
}

impl<T: Transport> Client<T> {
    /// A client on a transport of its own.
    pub const fn new(transport: T) -> Self {
        Self {
            transport,
            seq: 0,
            request: Vec::new(),
            datagram: Vec::new(),
            answer: Vec::new(),
        }
    }

    /// Sends a request and waits for all of its answer. A list that the kernel calls inconsistent
    /// is asked for again.
    ///
    /// # Errors
    /// [`NetlinkError`].
    pub fn ask(&mut self, message: &Message) -> Result<Answer<'_>, NetlinkError> {
        for _ in 0..TRIES {
            match self.ask_once(message)? {
                End::Whole(datagrams) => {
                    return Ok(Answer {
                        messages: &self.answer,
                        datagrams,
                    });
                }
                End::Interrupted => {}
            }
        }
        Err(NetlinkError::Interrupted)
    }

    fn ask_once(&mut self, message: &Message) -> Result<End, NetlinkError> {
        self.seq = self.seq.wrapping_add(1);
        message.write_to(&mut self.request, self.seq);
        self.transport.send(&self.request)?;
        let is_dump = message.flags() & NLM_F_DUMP == NLM_F_DUMP;
        let wants_ack = message.flags() & NLM_F_ACK != 0 && !is_dump;
        self.answer.clear();
        let mut datagrams = 0;
        let mut is_interrupted = false;
        let mut received = 0;
        loop {
            match self.transport.receive(&mut self.datagram) {
                // What may have changed something is not done again.
                Err(error) if error.kind() == io::ErrorKind::Interrupted && !wants_ack => {
                    return Ok(End::Interrupted);
                }
                other => other?,
            }
            received += self.datagram.len();
            if self.datagram.is_empty() || received > MAX_ANSWER {
                return Err(NetlinkError::Malformed("an answer without an end"));
            }
            let mut is_counted = false;
            let mut all = parts(&self.datagram);
            for part in &mut all {
                if part.header.nlmsg_seq != self.seq {
                    continue;
                }
                datagrams += usize::from(!is_counted);
                is_counted = true;
                is_interrupted |= part.header.nlmsg_flags & NLM_F_DUMP_INTR != 0;
                let is_end = match part.header.nlmsg_type {
                    NLMSG_ERROR => refusal(&part)?,
                    NLMSG_DONE => done(&part)?,
                    NLMSG_OVERRUN => return Err(NetlinkError::Malformed("an overrun")),
                    NLMSG_NOOP => false,
                    _ => {
                        part.append_to(&mut self.answer);
                        part.header.nlmsg_flags & NLM_F_MULTI == 0 && !wants_ack
                    }
                };
                if is_end && is_interrupted {
                    return Ok(End::Interrupted);
                }
                if is_end {
                    return Ok(End::Whole(datagrams));
                }
            }
            if !all.rest().is_empty() {
                return Err(NetlinkError::Malformed(
                    "a message longer than its datagram",
                ));
            }
        }
    }
}

/// The kernel's "no", or its ack.
fn refusal(part: &Part<'_>) -> Result<bool, NetlinkError> {
    let (error, rest) = nlmsgerr::read_from_prefix(part.payload)
        .map_err(|_| NetlinkError::Malformed("a refusal cut short"))?;
    if error.error == 0 {
        return Ok(true);
    }
    let flags = part.header.nlmsg_flags;
    let request = usize::try_from(error.msg.nlmsg_len).unwrap_or(usize::MAX);
    // Unless it is capped, the request's own payload stands before the attributes.
    let skipped = match flags & NLM_F_CAPPED {
        0 => request.saturating_sub(size_of::<nlmsghdr>()),
        _ => 0,
    };
    let reason = (flags & NLM_F_ACK_TLVS != 0)
        .then(|| rest.get(skipped.checked_next_multiple_of(4)?..))
        .flatten()
        .and_then(|tlvs| attributes(tlvs).find(|(kind, _)| *kind == NLMSGERR_ATTR_MSG))
        .map(|(_, value)| text(value));
    Err(NetlinkError::Refused {
        errno: Errno::from_raw(error.error),
        reason,
    })
}

/// The end of a list, which may say that the list failed half-way.
fn done(part: &Part<'_>) -> Result<bool, NetlinkError> {
    match i32::read_from_prefix(part.payload) {
        Ok((code, _)) if code < 0 => Err(NetlinkError::Refused {
            errno: Errno::from_raw(code),
            reason: None,
        }),
        _ => Ok(true),
    }
}

/// Why the kernel could not be asked over netlink.
#[derive(Debug)]
#[non_exhaustive]
pub enum NetlinkError {
    /// The socket failed: `EPROTONOSUPPORT` if the kernel has no such netlink (the module that has
    /// it is not loaded), `EPERM` or `EACCES` in a sandbox.
    Io(io::Error),
    /// The kernel refused the request.
    Refused {
        /// With this number.
        errno: Errno,
        /// And in words, if it had any.
        reason: Option<String>,
    },
    /// The list changed each time it was read.
    Interrupted,
    /// The answer cannot be understood.
    Malformed(&'static str),
}

impl Explain for NetlinkError {
    fn errno(&self) -> Option<Errno> {
        Self::errno(self)
    }
}

impl NetlinkError {
    /// The error number, where there is one.
    #[must_use]
    pub fn errno(&self) -> Option<Errno> {
        match self {
            Self::Io(error) => error.raw_os_error().map(Errno::from_raw),
            Self::Refused { errno, .. } => Some(*errno),
            Self::Interrupted | Self::Malformed(_) => None,
        }
    }
}

impl fmt::Display for NetlinkError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io(error) => write!(f, "netlink failed: {error}"),
            Self::Refused { errno, reason } => {
                write!(f, "netlink refused: {errno}")?;
                match reason {
                    Some(reason) => write!(f, " ({reason})"),
                    None => Ok(()),
                }
            }
            Self::Interrupted => write!(f, "netlink: the list changed each of {TRIES} times"),
            Self::Malformed(what) => write!(f, "netlink answered with {what}"),
        }
    }
}

impl std::error::Error for NetlinkError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Io(error) => Some(error),
            _ => None,
        }
    }
}

impl From<io::Error> for NetlinkError {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

/// The number is kept where there is one, and nothing else then.
impl From<NetlinkError> for io::Error {
    fn from(error: NetlinkError) -> Self {
        match error {
            NetlinkError::Io(error) => error,
            NetlinkError::Refused { errno, .. } => errno.into(),
            other => Self::new(io::ErrorKind::InvalidData, other),
        }
    }
}
