//! The real kernel, with a sum of what it says at each destroy: how many of the object's events were
//! read.
//!
//! So a case can compare the library's own counts with the kernel's. Must never change a command.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use uverbs::abi::command::Value;
use uverbs::abi::sys::UverbsFd;
use uverbs::abi::{Command, Errno, Kernel, Mapping};
use uverbs::fake::Bare;
use uverbs::{Context, devices};

use super::pair::{Failure, raw_file};

/// The sum. Relaxed throughout: what is compared is read after the threads were joined.
#[derive(Debug)]
pub(super) struct Tally {
    kernel: UverbsFd,
    reported: AtomicU64,
    destroyed: AtomicU64,
}

/// Whose queues a context makes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Queues {
    /// Those of the library's provider for the driver.
    BuiltIn,
    /// None in user space: objects and their events are all there is.
    Bare,
}

impl Tally {
    /// Opens a device.
    pub(super) fn open(name: &str, queues: Queues) -> Result<(Arc<Self>, Context), Failure> {
        let devices = devices()?;
        let device = devices.iter().find(|device| device.name() == name);
        let device = device.ok_or_else(|| format!("no device {name}"))?;
        let tally = Arc::new(Self {
            kernel: raw_file(device.node())?,
            reported: AtomicU64::new(0),
            destroyed: AtomicU64::new(0),
        });
        let kernel: Arc<dyn Kernel> = Arc::clone(&tally) as _;
        let (node, abi) = (device.node(), device.driver_abi());
        let context = match queues {
            Queues::BuiltIn => Context::on_kernel(kernel, name, node, abi)?,
            Queues::Bare => Context::on_kernel_with(kernel, name, node, abi, Some(&Bare))?,
        };
        Ok((tally, context))
    }

    /// How many asynchronous events the kernel says were read, of all objects destroyed so far.
    pub(super) fn reported(&self) -> u64 {
        self.reported.load(Ordering::Relaxed)
    }

    /// How many objects that have events were destroyed.
    pub(super) fn destroyed(&self) -> u64 {
        self.destroyed.load(Ordering::Relaxed)
    }
}

impl Kernel for Tally {
    fn ioctl(&self, driver: u32, command: &mut Command<'_>) -> Result<(), Errno> {
        self.kernel.ioctl(driver, command)?;
        let with_events = ["CQ_DESTROY", "QP_DESTROY", "SRQ_DESTROY", "WQ_DESTROY"];
        if with_events.contains(&command.name()) {
            // A count of 32 bits, of a completion queue the second of two.
            let count = command.entries().find_map(|entry| match entry.value {
                Value::Out(bytes) => bytes.last_chunk().copied().map(u32::from_ne_bytes),
                _ => None,
            });
            let count = count.ok_or(Errno::EINVAL)?;
            self.reported.fetch_add(count.into(), Ordering::Relaxed);
            self.destroyed.fetch_add(1, Ordering::Relaxed);
        }
        Ok(())
    }

    fn write(&self, frame: &mut [u8], response: &mut [u8]) -> Result<(), Errno> {
        self.kernel.write(frame, response)
    }

    fn map(&self, offset: u64, len: usize) -> Result<Mapping, Errno> {
        self.kernel.map(offset, len)
    }
}
