//! A network of devices played in memory, for testing programs that use RDMA: no device, no root, no
//! kernel module; it also runs under Miri.
//!
//! ```
//! use uverbs::fake::Fabric;
//! use uverbs::{AccessFlags, ConnectOptions, PathOptions, Rc, RecvWr, SendWr, Wc};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let fabric = Fabric::new();
//! let (one, two) = (fabric.add_device("rxe0").open()?, fabric.add_device("rxe1").open()?);
//!
//! let (pd, other_pd) = (one.alloc_pd()?, two.alloc_pd()?);
//! let (cq, other_cq) = (one.create_cq(16).build()?, two.create_cq(16).build()?);
//! let qp = pd.create_qp::<Rc>(&cq, &cq).build()?;
//! let other = other_pd.create_qp::<Rc>(&other_cq, &other_cq).build()?;
//! let (here, there) = (
//!     qp.prepare(&PathOptions::default())?,
//!     other.prepare(&PathOptions::default())?,
//! );
//! qp.connect(&here, &there, &ConnectOptions::default())?;
//! other.connect(&there, &here, &ConnectOptions::default())?;
//!
//! let room = other_pd.allocate(64, AccessFlags::LOCAL_WRITE)?;
//! other.post_recv(&[RecvWr::new(7, &[room.slice(..)?])])?;
//! let message = pd.register(b"hello".to_vec(), AccessFlags::empty())?;
//! qp.post_send(&[SendWr::send(1, &[message.slice(..)?]).signaled()])?;
//!
//! let mut completions = [Wc::default(); 4];
//! assert_eq!(cq.poll(&mut completions)?[0].ok()?.wr_id, 1);
//! assert_eq!(other_cq.poll(&mut completions)?[0].ok()?.wr_id, 7);
//! assert_eq!(room.to_vec(..5)?, b"hello");
//! # Ok(())
//! # }
//! ```
//!
//! What it does as the kernel does, what it leaves out, and how to make it misbehave:
//! `docs/fake.md`.

use std::fmt;
use std::ops::Deref;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use uverbs_abi::layout::rxe::RXE_UVERBS_ABI_VERSION;
use uverbs_providers::fake as played;

pub use uverbs_providers::fake::{Bare, Live, Spoil, Ticker};

use crate::qp::{QueuePair, Transport};
use crate::{AsyncEventKind, CompletionQueue, Context, OpenError, SharedReceiveQueue, WorkQueue};

/// The version that a bare device's driver gives its own part of the ABI.
const BARE_ABI: u32 = 1;

/// A port's table of P_Keys: the default one, with full membership.
const PKEYS: [u16; 1] = [0xFFFF];

/// A network of fake devices, which reach each other by their GIDs.
#[derive(Clone, Default)]
pub struct Fabric {
    fabric: played::Fabric,
}

impl Fabric {
    /// A network without devices.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Plugs a device in. The n-th has the addresses `fe80::ff:fe00:n`, `10.0.0.n` and `fd00::n` and
    /// one port, which is up.
    #[must_use]
    pub fn add_device(&self, name: &str) -> FakeDevice {
        FakeDevice {
            device: self.fabric.add_device(name),
        }
    }

    /// Plugs in a device whose queues have no part in user space, and whose driver has no provider
    /// built in: for what events alone can show. [`FakeDevice::open`] lends it [`Bare`];
    /// [`FakeDevice::open_control_only`] opens it as a program would that knows nothing of it. It has
    /// work queues, which rxe lacks, and registers no memory.
    #[must_use]
    pub fn add_bare_device(&self, name: &str) -> FakeDevice {
        FakeDevice {
            device: self.fabric.add_bare_device(name),
        }
    }

    /// Steps again and again in a thread of its own, until the value is dropped: for programs whose
    /// threads wait for each other. See [`step`](played::Fabric::step).
    pub fn ticker(&self, interval: Duration) -> Ticker {
        self.fabric.ticker(interval)
    }
}

/// `step`, `waiting`, `set_rnr_fails_at_once`.
impl Deref for Fabric {
    type Target = played::Fabric;

    fn deref(&self) -> &played::Fabric {
        &self.fabric
    }
}

impl fmt::Debug for Fabric {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.fabric.fmt(f)
    }
}

/// One device of a [`Fabric`]. A cheap handle.
#[derive(Clone, Debug)]
pub struct FakeDevice {
    device: played::FakeDevice,
}

impl FakeDevice {
    /// Opens it.
    ///
    /// # Errors
    /// [`OpenError`] if a refusal was asked for, or the device was removed.
    pub fn open(&self) -> Result<Context, OpenError> {
        let (name, kernel) = (self.device.name(), self.device.kernel());
        let node = Path::new("/dev/infiniband").join(&name);
        let context = if self.device.is_bare() {
            Context::on_kernel_with(kernel, &name, &node, BARE_ABI, Some(&Bare))
        } else {
            Context::on_kernel(kernel, &name, &node, RXE_UVERBS_ABI_VERSION)
        };
        Ok(context?.with_pkeys(&PKEYS))
    }

    /// Opens it as a device that no provider is for: queries, protection domains and events.
    ///
    /// # Errors
    /// [`OpenError`], as from [`open`](Self::open).
    pub fn open_control_only(&self) -> Result<Context, OpenError> {
        let (name, kernel) = (self.device.name(), self.device.kernel());
        let node = Path::new("/dev/infiniband").join(&name);
        let context = Context::on_kernel_with(kernel, &name, &node, BARE_ABI, None)?;
        Ok(context.with_pkeys(&PKEYS))
    }

    /// Raises an event about a port.
    pub fn raise_port(&self, kind: AsyncEventKind, port: u32) {
        self.device.raise_raw(u64::from(port), kind.raw());
    }

    /// Raises an event about the device.
    pub fn raise_device(&self, kind: AsyncEventKind) {
        self.device.raise_raw(0, kind.raw());
    }

    /// Raises an event about a queue pair; of any type, even one that does not fit. False if the
    /// device does not have it.
    pub fn raise_qp<T: Transport>(&self, qp: &QueuePair<T>, kind: AsyncEventKind) -> bool {
        self.device.raise_qp_raw(qp.qp_num().0, kind.raw())
    }

    /// Raises an event about a completion queue. False if the device does not have it.
    pub fn raise_cq(&self, cq: &CompletionQueue, kind: AsyncEventKind) -> bool {
        self.device.raise_cq_raw(cq.id(), kind.raw())
    }

    /// Raises an event about a shared receive queue. False if the device does not have it.
    pub fn raise_srq(&self, srq: &SharedReceiveQueue, kind: AsyncEventKind) -> bool {
        self.device.raise_srq_raw(srq.id(), kind.raw())
    }

    /// Raises an event about a work queue. False if the device does not have it.
    pub fn raise_wq(&self, wq: &WorkQueue, kind: AsyncEventKind) -> bool {
        self.device.raise_wq_raw(wq.id(), kind.raw())
    }

    /// Opens it without a context on top: for [`Context::on_kernel`], with other numbers.
    #[must_use]
    pub fn kernel(&self) -> Arc<dyn uverbs_abi::Kernel> {
        self.device.kernel()
    }
}

/// Faults, counters, ports, addresses, removal.
impl Deref for FakeDevice {
    type Target = played::FakeDevice;

    fn deref(&self) -> &played::FakeDevice {
        &self.device
    }
}
