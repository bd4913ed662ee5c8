//! This project's crate, as its documentation shows it: by exclusive handles, and by shared ones.

use std::process::ExitCode;

use peer_common::{BUFFER, CQ_DEPTH, INLINE, Peer, RECV_DEPTH, Result, SEND_DEPTH};
use uverbs::{
    AccessFlags, CompletionQueue, ConnectOptions, Context, ExclusiveCompletionQueue,
    ExclusiveReceiveQueue, ExclusiveSendQueue, MemoryRegion, PathOptions, QueuePair, Rc, RecvWr,
    SendWr, Wc,
};

/// One end; what it is made of lives as long as it does.
struct End {
    cq: CompletionQueue,
    qp: QueuePair<Rc>,
    region: MemoryRegion,
}

struct Shared {
    a: End,
    b: End,
}

struct Exclusive {
    send: ExclusiveSendQueue,
    recv: ExclusiveReceiveQueue<Rc>,
    cq_a: ExclusiveCompletionQueue,
    cq_b: ExclusiveCompletionQueue,
    ends: Shared,
}

fn end(device: &str) -> Result<End> {
    let context = Context::open(device)?;
    let pd = context.alloc_pd()?;
    let cq = context.create_cq(CQ_DEPTH).build()?;
    let qp = pd
        .create_qp::<Rc>(&cq, &cq)
        .max_send_wr(SEND_DEPTH)
        .max_recv_wr(RECV_DEPTH)
        .max_inline_data(INLINE)
        .build()?;
    let access = AccessFlags::LOCAL_WRITE | AccessFlags::REMOTE_WRITE;
    let region = pd.allocate(BUFFER, access)?;
    Ok(End { cq, qp, region })
}

impl Shared {
    fn connect() -> Result<Self> {
        let (a, b) = (end("rxe0")?, end("rxe1")?);
        let (path, options) = (PathOptions::default(), ConnectOptions::default());
        let (here, there) = (a.qp.prepare(&path)?, b.qp.prepare(&path)?);
        a.qp.connect(&here, &there, &options)?;
        b.qp.connect(&there, &here, &options)?;
        Ok(Self { a, b })
    }
}

impl Exclusive {
    fn connect() -> Result<Self> {
        let ends = Shared::connect()?;
        Ok(Self {
            send: ends.a.qp.exclusive_send()?,
            recv: ends.b.qp.exclusive_recv()?,
            cq_a: ends.a.cq.exclusive()?,
            cq_b: ends.b.cq.exclusive()?,
            ends,
        })
    }
}

/// The two forms have the same calls.
macro_rules! peer {
    ($form:ty, $self:ident, $ends:expr, $send:expr, $recv:expr, $cq_a:expr, $cq_b:expr) => {
        impl Peer for $form {
            const BATCHES: bool = true;
            const WRITES: bool = true;

            #[inline(always)]
            fn post_send(&mut $self) -> Result<()> {
                let sges = [$ends.a.region.slice(..64)?];
                Ok($send.post_send(&[SendWr::send(1, &sges).signaled()])?)
            }

            #[inline(always)]
            fn post_write<const N: usize>(&mut $self) -> Result<()> {
                let sges = [$ends.a.region.slice(..64)?];
                let remote = $ends.b.region.remote(0)?;
                Ok($send.post_send(&[SendWr::write(1, &sges, remote).signaled(); N])?)
            }

            #[inline(always)]
            fn post_inline(&mut $self) -> Result<()> {
                let remote = $ends.b.region.remote(0)?;
                let wr = SendWr::write_inline(1, &[7; 32], remote);
                Ok($send.post_send(&[wr.signaled()])?)
            }

            #[inline(always)]
            fn post_recv<const N: usize>(&mut $self) -> Result<()> {
                let into = [$ends.b.region.slice(..64)?];
                Ok($recv.post_recv(&[RecvWr::new(1, &into); N])?)
            }

            #[inline(always)]
            fn poll<const N: usize>(&mut $self) -> Result<usize> {
                ok($cq_a.poll(&mut [Wc::default(); N])?)
            }

            #[inline(always)]
            fn poll_peer(&mut $self) -> Result<usize> {
                ok($cq_b.poll(&mut [Wc::default(); 1])?)
            }
        }
    };
}

peer!(
    Shared, self, self, self.a.qp, self.b.qp, self.a.cq, self.b.cq
);
peer!(
    Exclusive, self, self.ends, self.send, self.recv, self.cq_a, self.cq_b
);

#[inline(always)]
fn ok(found: &[Wc]) -> Result<usize> {
    for wc in found {
        wc.ok()?;
    }
    Ok(found.len())
}

fn main() -> ExitCode {
    match peer_common::form().as_str() {
        "shared" => peer_common::run(Shared::connect),
        _ => peer_common::run(Exclusive::connect),
    }
}
