//! A queue pair that is its own peer, with its queues on a completion channel.

#![allow(dead_code, unreachable_pub, reason = "each test binary uses a part")]
#![allow(clippy::unwrap_used, reason = "a test may fail")]

use std::os::fd::BorrowedFd;

use uverbs::fake::{Fabric, FakeDevice};
use uverbs::{
    CompletionChannel, CompletionEvent, CompletionQueue, ConnectOptions, Context, PathOptions,
    ProtectionDomain, QueuePair, Rc, RecvWr, SendWr,
};

/// A queue pair that is its own peer. Sends complete in one queue, receives in the other; both are on
/// one channel.
pub struct Loop {
    pub device: FakeDevice,
    pub context: Context,
    pub channel: CompletionChannel,
    pub sends: CompletionQueue,
    pub receives: CompletionQueue,
    pub pd: ProtectionDomain,
    pub qp: QueuePair<Rc>,
}

impl Loop {
    pub fn new() -> Self {
        let device = Fabric::new().add_device("rxe0");
        let context = device.open().unwrap();
        let channel = context.create_completion_channel().unwrap();
        let queue = || context.create_cq(64).channel(&channel, 0).build().unwrap();
        let (sends, receives) = (queue(), queue());
        let pd = context.alloc_pd().unwrap();
        let qp = connected(&pd, &sends, &receives);
        Self {
            device,
            context,
            channel,
            sends,
            receives,
            pd,
            qp,
        }
    }

    /// One send and its receive.
    pub fn send(&self, wr: SendWr<'_>) {
        self.qp.post_recv(&[RecvWr::new(2, &[])]).unwrap();
        self.qp.post_send(&[wr.signaled()]).unwrap();
    }

    pub fn event(&self) -> Option<CompletionEvent> {
        self.channel.try_next().unwrap()
    }

    /// The queue that the next event is of.
    pub fn told(&self) -> Option<CompletionQueue> {
        self.event().map(|event| event.cq().clone())
    }
}

pub fn connected(
    pd: &ProtectionDomain,
    sends: &CompletionQueue,
    receives: &CompletionQueue,
) -> QueuePair<Rc> {
    let qp = pd.create_qp::<Rc>(sends, receives).build().unwrap();
    let here = qp.prepare(&PathOptions::default()).unwrap();
    qp.connect(&here, &here, &ConnectOptions::default())
        .unwrap();
    qp
}

pub fn plain() -> SendWr<'static> {
    SendWr::send_inline(1, &[])
}

/// Whether `poll(2)` finds something to read.
pub fn is_readable(fd: BorrowedFd<'_>) -> bool {
    use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
    if cfg!(miri) {
        return true;
    }
    let mut fds = [PollFd::new(fd, PollFlags::POLLIN)];
    poll(&mut fds, PollTimeout::ZERO).unwrap() == 1
}
