//! A device opened for ioctls alone is never written to.

#![allow(clippy::unwrap_used, reason = "a test may fail")]

mod support;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use support::End;
use uverbs::abi::{Command, Errno, IoctlOnly, Kernel, Mapping};
use uverbs::fake::{Fabric, FakeDevice};
use uverbs::{ConnectOptions, Context, RecvWr, SendWr};

/// The fake kernel, with what came by `write()` counted.
#[derive(Debug)]
struct Counting {
    kernel: Arc<dyn Kernel>,
    writes: Arc<AtomicU32>,
}

impl Kernel for Counting {
    fn ioctl(&self, driver: u32, command: &mut Command<'_>) -> Result<(), Errno> {
        self.kernel.ioctl(driver, command)
    }

    fn write(&self, frame: &mut [u8], response: &mut [u8]) -> Result<(), Errno> {
        self.writes.fetch_add(1, Ordering::SeqCst);
        self.kernel.write(frame, response)
    }

    fn map(&self, offset: u64, len: usize) -> Result<Mapping, Errno> {
        self.kernel.map(offset, len)
    }
}

/// Sends one message from a device opened so; gives how often the device was written to.
fn writes(opened: impl FnOnce(Counting) -> Arc<dyn Kernel>) -> u32 {
    let fabric = Fabric::new();
    let (near, far): (FakeDevice, FakeDevice) =
        (fabric.add_device("rxe0"), fabric.add_device("rxe1"));
    let writes = Arc::new(AtomicU32::new(0));
    let kernel = opened(Counting {
        kernel: near.kernel(),
        writes: Arc::clone(&writes),
    });
    let node = Path::new("/dev/infiniband/uverbs0");
    let context = Context::on_kernel(kernel, "rxe0", node, 2).unwrap();
    let (a, b) = (End::on(&near, &context, None), End::new(&far));
    a.connect(&b, &ConnectOptions::default());
    b.connect(&a, &ConnectOptions::default());
    for _ in 0..3 {
        b.qp.post_recv(&[RecvWr::new(1, &[])]).unwrap();
        a.qp.post_send(&[SendWr::send_inline(2, b"").signaled()])
            .unwrap();
        a.completion().ok().unwrap();
        b.completion().ok().unwrap();
    }
    writes.load(Ordering::SeqCst)
}

#[test]
fn nothing_is_written_when_only_ioctls_are_allowed() {
    assert_eq!(writes(|kernel| Arc::new(IoctlOnly(kernel))), 0);
    // The other way round shows that the count counts.
    assert_eq!(writes(|kernel| Arc::new(kernel)), 3);
}
