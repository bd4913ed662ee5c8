//! Why an object with queues was not made.

use std::fmt;

use thiserror::Error;
use uverbs_abi::layout::driver::DriverId;
use uverbs_abi::{CommandError, Errno, Explain, Report};
use uverbs_providers::error::CreateError as ProviderError;

use super::into_io;

/// An object with queues could not be made. Nothing is left behind.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("cannot make a {object}: {cause}{}", Limits(limits))]
pub struct CreateError {
    /// What was to be made.
    pub object: &'static str,
    /// What stood in the way.
    pub cause: CreateErrorCause,
    /// The device's limits that are in the way, or may be. Looked up after the kernel had refused.
    pub limits: Vec<Limit>,
}

/// A limit of the device, as it was looked up after a refusal.
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
    NoWakeFd(Errno),
    /// The kernel refused, or described a queue that cannot be.
    #[error(transparent)]
    Refused(#[from] ProviderError),
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
        self.cause.command().and_then(CommandError::errno)
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
            _ => {}
        }
        for limit in &self.limits {
            match limit {
                Limit::Exceeded { name, has, .. } => {
                    report.next(format!("ask for {name} of at most {has}"));
                }
                Limit::InAll { .. } => {
                    report.cause("the machine is short of memory for the queues");
                    report.cause("the device's objects are used up; `rdma resource` counts them");
                }
            }
        }
    }
}

into_io!(CreateError);

struct Limits<'e>(&'e [Limit]);

impl fmt::Display for Limits<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut lead = "; ";
        for limit in self.0 {
            match limit {
                Limit::Exceeded { name, asked, has } => {
                    write!(
                        f,
                        "{lead}{name} {asked} was asked for, the device has {has}"
                    )?;
                }
                Limit::InAll { name, has } => {
                    write!(f, "{lead}no room: the device has {name} {has} in all")?;
                }
            }
            lead = ", ";
        }
        Ok(())
    }
}
