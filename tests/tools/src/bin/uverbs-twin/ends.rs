//! Two ends that are connected over the wire, and the two ways to use their queues.

use std::time::Duration;

use uverbs::{
    AccessFlags, AckTimeout, CompletionChannel, CompletionQueue, ConnectOptions, Context,
    ExclusiveCompletionQueue, ExclusiveReceiveQueue, ExclusiveSendQueue, MemoryRegion, PathOptions,
    PollError, PostError, ProtectionDomain, QueuePair, Rc, RecvWr, RemoteAddr, SendWr, Sge,
    SharedReceiveQueue, Wc,
};

use crate::Result;

// As the C twin has them.
/// Bytes of each end's region.
const BUFFER: usize = 1 << 20;
const SEND_DEPTH: u32 = 128;
const RECV_DEPTH: u32 = 512;
const CQ_DEPTH: u32 = 1024;
const INLINE: u32 = 64;
/// The longest batch.
pub(crate) const BATCH: usize = 16;

/// All rights that the traffic needs.
pub(crate) fn all_access() -> AccessFlags {
    AccessFlags::LOCAL_WRITE
        | AccessFlags::REMOTE_WRITE
        | AccessFlags::REMOTE_READ
        | AccessFlags::REMOTE_ATOMIC
}

/// One end.
#[derive(Clone)]
pub(crate) struct End {
    pub(crate) context: Context,
    pub(crate) pd: ProtectionDomain,
    pub(crate) channel: Option<CompletionChannel>,
    pub(crate) cq: CompletionQueue,
    pub(crate) qp: QueuePair<Rc>,
    pub(crate) region: MemoryRegion,
}

/// `rxe0` and `rxe1`.
#[derive(Clone)]
pub(crate) struct Ends {
    pub(crate) a: End,
    pub(crate) b: End,
}

/// As the C twin connects.
pub(crate) fn connect(a: &QueuePair<Rc>, b: &QueuePair<Rc>) -> Result<()> {
    let path = PathOptions::default();
    let options = ConnectOptions {
        timeout: AckTimeout::at_least(Duration::from_secs(1)),
        ..ConnectOptions::default()
    };
    let (here, there) = (a.prepare(&path)?, b.prepare(&path)?);
    a.connect(&here, &there, &options)?;
    b.connect(&there, &here, &options)?;
    Ok(())
}

/// A queue pair of the given depths.
pub(crate) fn create_qp(
    pd: &ProtectionDomain,
    cq: &CompletionQueue,
    srq: Option<&SharedReceiveQueue>,
    (send, recv): (u32, u32),
    inline: u32,
) -> Result<QueuePair<Rc>> {
    let builder = pd
        .create_qp::<Rc>(cq, cq)
        .max_send_wr(send)
        .max_recv_wr(recv)
        .max_inline_data(inline);
    let builder = match srq {
        Some(srq) => builder.srq(srq),
        None => builder,
    };
    Ok(builder.build()?)
}

impl End {
    fn open(device: &str, events: bool) -> Result<Self> {
        let context = Context::open(device)?;
        let pd = context.alloc_pd()?;
        let channel = match events {
            true => Some(context.create_completion_channel()?),
            false => None,
        };
        let builder = context.create_cq(CQ_DEPTH);
        let builder = match &channel {
            Some(channel) => builder.channel(channel, 0),
            None => builder,
        };
        let cq = builder.build()?;
        let qp = create_qp(&pd, &cq, None, (SEND_DEPTH, RECV_DEPTH), INLINE)?;
        let region = pd.allocate(BUFFER, all_access())?;
        Ok(Self {
            context,
            pd,
            channel,
            cq,
            qp,
            region,
        })
    }
}

impl Ends {
    /// With `events`, both completion queues have a channel.
    pub(crate) fn connected(events: bool) -> Result<Self> {
        let ends = Self {
            a: End::open("rxe0", events)?,
            b: End::open("rxe1", events)?,
        };
        connect(&ends.a.qp, &ends.b.qp)?;
        Ok(ends)
    }

    /// The element and the peer's address that requests of this size use.
    pub(crate) fn places(&self, size: usize) -> Result<([Sge; 1], RemoteAddr)> {
        Ok(([self.a.region.slice(..size)?], self.b.region.remote(0)?))
    }

    pub(crate) const fn shared(&self) -> Shared<'_> {
        Shared(self)
    }

    pub(crate) fn exclusive(&self) -> Result<Exclusive> {
        Ok(Exclusive {
            send: self.a.qp.exclusive_send()?,
            recv: self.b.qp.exclusive_recv()?,
            a: self.a.cq.exclusive()?,
            b: self.b.cq.exclusive()?,
        })
    }
}

/// The queues in one of their forms: requests go from `a` to `b`.
pub(crate) trait Queues {
    fn post_send(&mut self, wrs: &[SendWr<'_>]) -> std::result::Result<(), PostError>;
    fn post_recv(&mut self, wrs: &[RecvWr<'_>]) -> std::result::Result<(), PostError>;
    fn poll<'b>(&mut self, out: &'b mut [Wc]) -> std::result::Result<&'b mut [Wc], PollError>;
    fn poll_peer<'b>(&mut self, out: &'b mut [Wc]) -> std::result::Result<&'b mut [Wc], PollError>;

    /// Posts each by a call of its own, and tells the device once, after the last.
    fn post_held(&mut self, wrs: &[SendWr<'_>]) -> Result<()>;

    /// Waits for completions of the sender; any that failed is an error.
    #[inline(always)]
    fn drain(&mut self, count: usize) -> Result<()> {
        drain(count, |room| self.poll(room).map(|found| &*found))
    }

    /// Waits for completions of the receiver.
    #[inline(always)]
    fn drain_peer(&mut self, count: usize) -> Result<()> {
        drain(count, |room| self.poll_peer(room).map(|found| &*found))
    }
}

#[inline(always)]
fn drain<E: std::error::Error + 'static>(
    mut count: usize,
    mut poll: impl for<'b> FnMut(&'b mut [Wc]) -> std::result::Result<&'b [Wc], E>,
) -> Result<()> {
    let mut room = [Wc::default(); BATCH];
    while count > 0 {
        let (room, _) = room.split_at_mut(count.min(BATCH));
        let found = poll(room)?;
        for wc in found {
            wc.ok()?;
        }
        count -= found.len();
    }
    Ok(())
}

/// By shared handles.
pub(crate) struct Shared<'e>(&'e Ends);

impl Queues for Shared<'_> {
    #[inline(always)]
    fn post_send(&mut self, wrs: &[SendWr<'_>]) -> std::result::Result<(), PostError> {
        self.0.a.qp.post_send(wrs)
    }

    #[inline(always)]
    fn post_recv(&mut self, wrs: &[RecvWr<'_>]) -> std::result::Result<(), PostError> {
        self.0.b.qp.post_recv(wrs)
    }

    #[inline(always)]
    fn poll<'b>(&mut self, out: &'b mut [Wc]) -> std::result::Result<&'b mut [Wc], PollError> {
        self.0.a.cq.poll(out)
    }

    #[inline(always)]
    fn poll_peer<'b>(&mut self, out: &'b mut [Wc]) -> std::result::Result<&'b mut [Wc], PollError> {
        self.0.b.cq.poll(out)
    }

    fn post_held(&mut self, _wrs: &[SendWr<'_>]) -> Result<()> {
        Err("a doorbell can be held by one owner only".into())
    }
}

/// By handles of one owner.
pub(crate) struct Exclusive {
    send: ExclusiveSendQueue,
    recv: ExclusiveReceiveQueue<Rc>,
    a: ExclusiveCompletionQueue,
    b: ExclusiveCompletionQueue,
}

impl Queues for Exclusive {
    #[inline(always)]
    fn post_send(&mut self, wrs: &[SendWr<'_>]) -> std::result::Result<(), PostError> {
        self.send.post_send(wrs)
    }

    #[inline(always)]
    fn post_recv(&mut self, wrs: &[RecvWr<'_>]) -> std::result::Result<(), PostError> {
        self.recv.post_recv(wrs)
    }

    #[inline(always)]
    fn poll<'b>(&mut self, out: &'b mut [Wc]) -> std::result::Result<&'b mut [Wc], PollError> {
        self.a.poll(out)
    }

    #[inline(always)]
    fn poll_peer<'b>(&mut self, out: &'b mut [Wc]) -> std::result::Result<&'b mut [Wc], PollError> {
        self.b.poll(out)
    }

    #[inline(always)]
    fn post_held(&mut self, wrs: &[SendWr<'_>]) -> Result<()> {
        let mut held = self.send.hold_doorbell();
        for wr in wrs {
            held.post_send(std::slice::from_ref(wr))?;
        }
        Ok(held.ring()?)
    }
}
