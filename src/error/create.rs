//! Why an object with queues was not made.

use std::fmt;

use thiserror::Error;
use uverbs_abi::Errno;
use uverbs_abi::layout::driver::DriverId;
use uverbs_providers::error::CreateError as ProviderError;

/// An object with queues could not be made. Nothing is left behind.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("cannot make a {object}: {cause}{}", Limits(limits))]
pub struct CreateError {
    /// What was to be made.
    pub object: &'static str,
    /// What stood in the way.
    pub cause: CreateErrorCause,
    /// What was asked for beyond what the device has: name, asked, limit. Looked up after the
    /// kernel had refused.
    pub limits: Vec<(&'static str, u64, u64)>,
}

/// The cause of a [`CreateError`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum CreateErrorCause {
    /// The device's driver has no provider in this build.
    #[error(
        "no provider for the device's driver {driver:?} (driver ABI {abi}) is built in: queries, \
         protection domains and events work, queues do not"
    )]
    NoProvider {
        /// The driver.
        driver: DriverId,
        /// The version of its own part of the ABI.
        abi: u32,
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

struct Limits<'e>(&'e [(&'static str, u64, u64)]);

impl fmt::Display for Limits<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, (name, asked, limit)) in self.0.iter().enumerate() {
            let lead = if index == 0 { "; " } else { ", " };
            write!(
                f,
                "{lead}{name} {asked} was asked for, the device has {limit}"
            )?;
        }
        Ok(())
    }
}
