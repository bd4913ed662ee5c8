//! Why a device, a port or an object could not be asked or told something.

use std::{fmt, io};

use thiserror::Error;
use uverbs_abi::{CommandError, Errno, Explain, Report};
use uverbs_providers::types::QueueId;

use super::into_io;

/// A query failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("{}{source}{}", Asked(target), Has(target))]
#[non_exhaustive]
pub struct QueryError {
    /// The refusal.
    pub source: CommandError,
    /// What was asked for, if it is less than the whole device.
    pub target: Option<QueryTarget>,
}

/// What a query that failed was about, and what the device has of it. The latter was looked up after
/// the kernel had refused with `EINVAL`; `None` if that could not be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum QueryTarget {
    /// A port.
    Port {
        /// Its number, counted from 1.
        port: u8,
        /// How many ports the device has.
        ports: Option<u8>,
    },
    /// An entry of a port's GID table.
    Gid {
        /// The port, counted from 1.
        port: u8,
        /// The entry, counted from 0.
        index: u32,
        /// How many ports the device has, if the port is not among them.
        ports: Option<u8>,
        /// How many entries the table has.
        entries: Option<u32>,
    },
}

impl QueryTarget {
    /// The number of ports, if the port is not among them.
    fn too_few_ports(self) -> Option<u8> {
        let (Self::Port { port, ports } | Self::Gid { port, ports, .. }) = self;
        ports.filter(|ports| port == 0 || port > *ports)
    }

    fn explain(self, report: &mut Report) {
        match (self.too_few_ports(), self) {
            (Some(1), _) => {
                report.next("ports count from 1: name port 1");
            }
            (Some(ports), _) => {
                report.next(format!("ports count from 1: name one of 1 to {ports}"));
            }
            (None, Self::Port { .. }) => {
                report
                    .next("ports count from 1; `DeviceAttr::phys_port_cnt` is how many there are");
            }
            (None, Self::Gid { .. }) => {
                report.next("GID indices count from 0; `Context::gids` lists what is there");
            }
        }
    }
}

struct Asked<'e>(&'e Option<QueryTarget>);

impl fmt::Display for Asked<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            None => Ok(()),
            Some(QueryTarget::Port { port, .. }) => write!(f, "cannot ask for port {port}: "),
            Some(QueryTarget::Gid { port, index, .. }) => {
                write!(f, "cannot ask for GID {index} of port {port}: ")
            }
        }
    }
}

struct Has<'e>(&'e Option<QueryTarget>);

impl fmt::Display for Has<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.and_then(QueryTarget::too_few_ports) {
            Some(1) => return f.write_str("; the device has port 1 only"),
            Some(ports) => return write!(f, "; the device has ports 1 to {ports}"),
            None => {}
        }
        match *self.0 {
            Some(QueryTarget::Gid {
                index,
                entries: Some(entries),
                ..
            }) if index >= entries => match entries.checked_sub(1) {
                Some(last) => write!(f, "; the port's table has indices 0 to {last}"),
                None => f.write_str("; the port has no GID table"),
            },
            _ => Ok(()),
        }
    }
}

impl QueryError {
    /// The kernel's error number, where it was the kernel that refused.
    #[must_use]
    pub const fn errno(&self) -> Option<Errno> {
        self.source.errno()
    }

    pub(crate) const fn about(source: CommandError, target: QueryTarget) -> Self {
        Self {
            source,
            target: Some(target),
        }
    }
}

impl From<CommandError> for QueryError {
    fn from(source: CommandError) -> Self {
        Self {
            source,
            target: None,
        }
    }
}

impl Explain for QueryError {
    fn errno(&self) -> Option<Errno> {
        self.source.errno()
    }

    fn explain(&self, report: &mut Report) {
        self.source.explain(report);
        if self.source.errno() == Some(Errno::EINVAL) && self.target.is_none() {
            report.cause("a defect of this crate, or a kernel that it does not know");
        }
        match self.target {
            Some(target) if self.source.errno() == Some(Errno::EINVAL) => target.explain(report),
            _ => {}
        }
    }

    fn kind(&self) -> io::ErrorKind {
        self.source.kind()
    }
}

/// A protection domain could not be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("cannot make a protection domain: {source}{}", in_all(*max_pd))]
#[non_exhaustive]
pub struct AllocPdError {
    /// The refusal.
    pub source: CommandError,
    /// How many the device has room for in all, looked up if the kernel had no room.
    pub max_pd: Option<u32>,
}

fn in_all(max_pd: Option<u32>) -> String {
    max_pd.map_or_else(String::new, |has| {
        format!("; no room: the device has max_pd {has} in all")
    })
}

impl Explain for AllocPdError {
    fn errno(&self) -> Option<Errno> {
        self.source.errno()
    }

    fn explain(&self, report: &mut Report) {
        self.source.explain(report);
        if self.max_pd.is_some() {
            report.next("drop protection domains; `rdma resource` counts those of every process");
        }
    }

    fn kind(&self) -> io::ErrorKind {
        self.source.kind()
    }
}

/// A command on an object failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("{id}: {cause}")]
pub struct ObjectError {
    /// Which object.
    pub id: QueueId,
    /// What stood in the way.
    #[source]
    pub cause: ObjectErrorCause,
}

/// The cause of an [`ObjectError`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum ObjectErrorCause {
    /// The object has been destroyed through another handle.
    #[error("it has been destroyed")]
    Destroyed,
    /// More was asked for than the object has.
    #[error("{source}; {name} {asked} was asked for, the {object} has {has}")]
    Exceeded {
        /// Which kind of object.
        object: &'static str,
        /// What, as the call has it.
        name: &'static str,
        /// What was asked for.
        asked: u32,
        /// What the object has.
        has: u32,
        /// The refusal.
        source: CommandError,
    },
    /// The kernel refused.
    #[error("{0}")]
    Command(#[from] CommandError),
}

impl ObjectError {
    pub(crate) fn about(id: QueueId, cause: impl Into<ObjectErrorCause>) -> Self {
        Self {
            id,
            cause: cause.into(),
        }
    }

    /// The kernel's error number, where it was the kernel that refused.
    #[must_use]
    pub const fn errno(&self) -> Option<Errno> {
        self.cause.errno()
    }
}

impl Explain for ObjectError {
    fn errno(&self) -> Option<Errno> {
        self.cause.errno()
    }

    fn explain(&self, report: &mut Report) {
        self.cause.explain(report);
    }

    fn kind(&self) -> io::ErrorKind {
        self.cause.kind()
    }
}

impl ObjectErrorCause {
    /// The kernel's error number, where it was the kernel that refused.
    #[must_use]
    pub const fn errno(&self) -> Option<Errno> {
        match self {
            Self::Destroyed => None,
            Self::Command(error) | Self::Exceeded { source: error, .. } => error.errno(),
        }
    }
}

impl Explain for ObjectErrorCause {
    fn errno(&self) -> Option<Errno> {
        Self::errno(self)
    }

    fn explain(&self, report: &mut Report) {
        match self {
            Self::Destroyed => {
                report.cause("`destroy` was called through another clone of the handle");
                report.next("let whoever still uses it end first");
            }
            Self::Exceeded { name, has, .. } => {
                report.next(format!("ask for {name} of at most {has}"));
            }
            Self::Command(error) => error.explain(report),
        }
    }

    fn kind(&self) -> io::ErrorKind {
        match self {
            Self::Destroyed => io::ErrorKind::InvalidInput,
            Self::Command(error) | Self::Exceeded { source: error, .. } => error.kind(),
        }
    }
}

into_io!(QueryError, AllocPdError, ObjectError);
