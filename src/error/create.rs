//! Why an object with queues was not made.

use std::error::Error as StdError;
use std::{fmt, io};

use thiserror::Error;
use uverbs_abi::error::too_many_files;
use uverbs_abi::layout::driver::DriverId;
use uverbs_abi::{CommandError, Errno, Explain, Report};
use uverbs_providers::error::CreateError as ProviderError;

use super::into_io;

/// An object with queues could not be made. Nothing is left behind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CreateError {
    /// What was to be made.
    pub object: &'static str,
    /// What stood in the way.
    pub cause: CreateErrorCause,
    /// The device's limits that are in the way, or may be. Looked up after the kernel had refused.
    pub limits: Vec<Limit>,
}

impl fmt::Display for CreateError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            object,
            cause,
            limits,
        } = self;
        write!(f, "cannot make a {object}: {cause}")?;
        let mut lead = "; ";
        for limit in limits {
            write!(f, "{lead}{limit}")?;
            lead = ", ";
        }
        Ok(())
    }
}

impl StdError for CreateError {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.cause.source()
    }
}

/// A limit of the device, as it was looked up after a refusal. Prints as a clause.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Limit {
    /// More was asked for than there is.
    Exceeded {
        /// What, as the setting is called.
        name: &'static str,
        /// What was asked for.
        asked: u64,
        /// What the device has.
        has: u64,
    },
    /// A place was named that there is not.
    NoSuch {
        /// What, as the setting is called.
        name: &'static str,
        /// What was asked for.
        asked: u64,
        /// How many there are; they count from 0.
        count: u64,
    },
    /// How many of these objects the device has room for in all. Told when the kernel had no room;
    /// how many there are was not looked up.
    InAll {
        /// As the device's attribute is called.
        name: &'static str,
        /// How many.
        has: u64,
    },
}

/// The cause of a [`CreateError`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum CreateErrorCause {
    /// The device's driver has no provider in this build.
    #[error("{reason}: queries, protection domains and events work, queues do not")]
    NoProvider {
        /// The driver.
        driver: DriverId,
        /// The version of its own part of the ABI.
        abi: u32,
        /// Why there is none.
        reason: NoProviderReason,
    },
    /// A size of 0 that must be at least 1.
    #[error("{what} must be at least 1")]
    Zero {
        /// Which size.
        what: &'static str,
    },
    /// Two objects that do not belong to the same open device.
    #[error("the {what} belongs to another open device")]
    OtherContext {
        /// Which object.
        what: &'static str,
    },
    /// An object that it needs has been destroyed.
    #[error("the {what} has been destroyed")]
    Destroyed {
        /// Which object.
        what: &'static str,
    },
    /// There is no file descriptor left for waking those who wait on it.
    #[error("no descriptor for waking those who wait ({0})")]
    NoWakeFd(#[source] Errno),
    /// The kernel refused, or described a queue that cannot be.
    #[error(transparent)]
    Refused(#[from] ProviderError),
}

impl fmt::Display for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Exceeded { name, asked, has } => {
                write!(f, "{name} {asked} was asked for, the device has {has}")
            }
            Self::NoSuch {
                name,
                asked,
                count: 0 | 1,
            } => write!(f, "{name} {asked} was asked for, the device has 0 only"),
            Self::NoSuch { name, asked, count } => write!(
                f,
                "{name} {asked} was asked for, the device has 0 to {}",
                count - 1
            ),
            Self::InAll { name, has } => {
                write!(f, "no room: the device has {name} {has} in all")
            }
        }
    }
}

/// Why a device has no provider.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum NoProviderReason {
    /// This crate has none for the driver.
    #[error("this crate has no provider for the device's driver, {} ({})", .driver.name(), .driver.to_raw())]
    Unknown {
        /// The driver.
        driver: DriverId,
    },
    /// This crate has one, and it was left out of this build.
    #[error(
        "the provider for the device's driver, {}, is not built in: build uverbs with its feature \
         `{feature}`", .driver.name()
    )]
    NotBuiltIn {
        /// The driver.
        driver: DriverId,
        /// The Cargo feature that builds it in.
        feature: &'static str,
    },
    /// The context was opened without it: [`Context::on_kernel_with`](crate::Context::on_kernel_with).
    #[error("the context was made without a provider for the device's driver, {}", .driver.name())]
    LeftOut {
        /// The driver.
        driver: DriverId,
    },
    /// The driver speaks another version of its own part of the ABI.
    #[error(
        "the driver {} speaks version {found} of its own ABI, this crate {}: {}", .driver.name(),
        Versions(*oldest, *newest), other_end(*found, *newest)
    )]
    Abi {
        /// The driver.
        driver: DriverId,
        /// Its version.
        found: u32,
        /// The oldest version that this crate speaks.
        oldest: u32,
        /// The newest.
        newest: u32,
    },
}

struct Versions(u32, u32);

impl fmt::Display for Versions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(oldest, newest) = *self;
        if oldest == newest {
            write!(f, "version {oldest}")
        } else {
            write!(f, "versions {oldest} to {newest}")
        }
    }
}

const fn other_end(found: u32, newest: u32) -> &'static str {
    if found > newest {
        "the kernel's driver is too new for it"
    } else {
        "the kernel's driver is too old for it"
    }
}

impl CreateErrorCause {
    /// The kernel's refusal, where it was the kernel that refused.
    #[must_use]
    pub const fn command(&self) -> Option<&CommandError> {
        match self {
            Self::Refused(ProviderError::Command(refusal)) => Some(refusal),
            _ => None,
        }
    }
}

impl Explain for CreateError {
    fn errno(&self) -> Option<Errno> {
        match &self.cause {
            CreateErrorCause::NoWakeFd(errno) => Some(*errno),
            cause => cause.command().and_then(CommandError::errno),
        }
    }

    fn kind(&self) -> io::ErrorKind {
        match &self.cause {
            CreateErrorCause::NoProvider { .. } => io::ErrorKind::Unsupported,
            CreateErrorCause::NoWakeFd(errno) => errno.kind(),
            CreateErrorCause::Refused(error) => error.kind(),
            CreateErrorCause::Zero { .. }
            | CreateErrorCause::OtherContext { .. }
            | CreateErrorCause::Destroyed { .. } => io::ErrorKind::InvalidInput,
        }
    }

    fn explain(&self, report: &mut Report) {
        if let Some(refusal) = self.cause.command() {
            refusal.explain(report);
            if refusal.errno() == Some(Errno::EINVAL) && self.limits.is_empty() {
                report.found("nothing that was asked for is above a limit that the device tells");
            }
        }
        match self.cause {
            CreateErrorCause::Zero { .. } => {
                report.next("ask for at least 1; the kernel may grant more");
            }
            CreateErrorCause::OtherContext { .. } => {
                report.next("make both on one context: devices opened twice share nothing");
            }
            CreateErrorCause::Destroyed { .. } => {
                report.cause("`destroy` was called through another clone of the handle");
                report.next("make it anew, or destroy it later");
            }
            CreateErrorCause::NoWakeFd(errno) => {
                report.meaning("each queue that is waited on takes two file descriptors");
                too_many_files(errno, report);
            }
            CreateErrorCause::NoProvider { reason, .. } => reason.tell(report),
            CreateErrorCause::Refused(error) => {
                if error.errno().is_none() {
                    error.explain(report);
                }
            }
        }
        for limit in &self.limits {
            match limit {
                Limit::Exceeded { name, has, .. } => {
                    report.next(format!("ask for {name} of at most {has}"));
                }
                Limit::NoSuch { .. } => {
                    report.next(
                        "0 is always there; `Context::num_comp_vectors` tells how many there are",
                    );
                }
                Limit::InAll { .. } => {
                    report.cause("the machine is short of memory for the queues");
                    report.cause("the device's objects are used up; `rdma resource` counts them");
                }
            }
        }
    }
}

impl NoProviderReason {
    fn tell(&self, report: &mut Report) {
        match self {
            Self::Unknown { .. } => {
                report.next(
                    "`devinfo` lists the other devices; the README names the drivers that work",
                );
            }
            Self::NotBuiltIn { feature, .. } => {
                report.cause("uverbs is a dependency with `default-features = false`");
                report.next(format!(
                    "in Cargo.toml: `uverbs = {{ …, features = [\"{feature}\"] }}`"
                ));
            }
            Self::LeftOut { .. } => {
                report.next(
                    "hand a provider to `Context::on_kernel_with`, or open the device by name",
                );
            }
            Self::Abi { found, newest, .. } => {
                report.next(if found > newest {
                    "a newer version of this crate"
                } else {
                    "a newer kernel"
                });
            }
        }
    }
}

into_io!(CreateError);
