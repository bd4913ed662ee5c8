//! How a device is opened.
//!
//! Must never change what a device can do: only the way to it.

use std::env;
use std::ffi::OsStr;

use crate::context::Context;
use crate::device::{Device, Discovery};
use crate::error::OpenError;

/// Environment variable: set to anything but nothing or `0`, every device is opened as with
/// [`OpenOptions::ioctl_only`].
const IOCTL_ONLY: &str = "UVERBS_IOCTL_ONLY";

/// How a device is opened, where the defaults will not do.
///
/// # Examples
/// ```no_run
/// let context = uverbs::OpenOptions::new().ioctl_only(true).open("rxe0")?;
/// # Ok::<(), uverbs::OpenError>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OpenOptions {
    ioctl_only: bool,
}

impl OpenOptions {
    /// The defaults.
    #[must_use]
    pub const fn new() -> Self {
        Self { ioctl_only: false }
    }

    /// Never sends a `write()` to the device: doorbells, all that goes that way, go by ioctl. For
    /// sandboxes that let only ioctls through. Default: false, since the write is the shorter way.
    ///
    /// The environment variable `UVERBS_IOCTL_ONLY`, set to anything but nothing or `0`, asks the
    /// same of every device that the process opens.
    #[must_use]
    pub const fn ioctl_only(mut self, only: bool) -> Self {
        self.ioctl_only = only;
        self
    }

    /// Opens the device with this name.
    ///
    /// # Errors
    /// [`OpenError`], with what to do about it.
    #[doc(alias = "ibv_open_device")]
    pub fn open(&self, name: &str) -> Result<Context, OpenError> {
        Discovery::system().open_with(name, self)
    }

    /// Opens this device.
    ///
    /// # Errors
    /// [`OpenError`], with what to do about it.
    pub fn open_device(&self, device: &Device) -> Result<Context, OpenError> {
        Context::open_device(device, None, self)
    }

    /// What was asked for here or in the environment.
    pub(crate) fn wants_ioctl_only(&self) -> bool {
        self.ioctl_only || asks(env::var_os(IOCTL_ONLY).as_deref())
    }
}

fn asks(value: Option<&OsStr>) -> bool {
    value.is_some_and(|value| !value.is_empty() && value != "0")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_variable_asks_unless_it_is_empty_or_zero() {
        assert!(!asks(None));
        for (value, wanted) in [("", false), ("0", false), ("1", true), ("yes", true)] {
            assert_eq!(asks(Some(OsStr::new(value))), wanted, "{value:?}");
        }
    }
}
