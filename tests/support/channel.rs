//! A queue pair that is its own peer, with its queues on a completion channel.

#![allow(dead_code, unreachable_pub, reason = "each test binary uses a part")]
#![allow(clippy::unwrap_used, reason = "a test may fail")]

use std::os::fd::BorrowedFd;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use uverbs::fake::{Fabric, FakeDevice};
use uverbs::{
    CompletionChannel, CompletionEvent, CompletionQueue, ConnectOptions, Context, PathOptions,
    ProtectionDomain, QueuePair, Rc, RecvWr, SendWr,
};

pub const SHORT: Duration = Duration::from_millis(1);
/// Long enough for a thread to have got to where it waits.
pub const A_WHILE: Duration = Duration::from_millis(30);
/// How long anything may take that must end by itself.
pub const SOON: Duration = Duration::from_secs(20);

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

    /// One more queue on the channel.
    pub fn queue(&self) -> CompletionQueue {
        let builder = self.context.create_cq(4).channel(&self.channel, 0);
        builder.build().unwrap()
    }

    /// One send and its receive.
    pub fn send(&self, wr: SendWr<'_>) {
        send(&self.qp, wr);
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

/// One send and its receive, on a queue pair that is its own peer.
pub fn send(qp: &QueuePair<Rc>, wr: SendWr<'_>) {
    qp.post_recv(&[RecvWr::new(2, &[])]).unwrap();
    qp.post_send(&[wr.signaled()]).unwrap();
}

pub fn plain() -> SendWr<'static> {
    SendWr::send_inline(1, &[])
}

/// Something that is done on a thread of its own, and is not waited for without end.
pub struct OnThread<T>(mpsc::Receiver<T>);

pub fn on_thread<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> OnThread<T> {
    let (done, is_done) = mpsc::channel();
    thread::spawn(move || done.send(work()));
    OnThread(is_done)
}

impl<T> OnThread<T> {
    /// It is still at it after a while.
    pub fn goes_on(&self) {
        let ended = self.0.recv_timeout(A_WHILE).err();
        assert_eq!(ended, Some(mpsc::RecvTimeoutError::Timeout));
    }

    /// What came of it.
    pub fn ends(self) -> T {
        let end = self.0.recv_timeout(SOON);
        end.expect("it hangs, or has failed")
    }
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
