//! `ibverbs` 0.9.2, used as its documentation shows it: SEND and receive, one request for each call.

use std::process::ExitCode;

use ibverbs::{
    CompletionQueue, Context, MemoryRegion, ProtectionDomain, QueuePair, ibv_qp_type, ibv_wc,
};
use peer_common::{BUFFER, CQ_DEPTH, Peer, RECV_DEPTH, Result, SEND_DEPTH};

/// One end, whose objects live as long as the program: the crate ties them together by lifetimes.
struct End {
    cq: &'static CompletionQueue<'static>,
    qp: QueuePair<'static>,
    region: MemoryRegion<u8>,
}

struct Ends {
    a: End,
    b: End,
}

fn open(name: &str) -> Result<Context> {
    let devices = ibverbs::devices()?;
    let device = devices
        .iter()
        .find(|d| d.name().is_some_and(|n| n.to_bytes() == name.as_bytes()))
        .ok_or("there is no such device")?;
    Ok(device.open()?)
}

fn objects(
    name: &str,
) -> Result<(
    &'static CompletionQueue<'static>,
    &'static ProtectionDomain<'static>,
)> {
    let context: &'static Context = Box::leak(Box::new(open(name)?));
    let cq = context.create_cq(i32::try_from(CQ_DEPTH)?, 0)?;
    let pd = context.alloc_pd()?;
    Ok((Box::leak(Box::new(cq)), Box::leak(Box::new(pd))))
}

fn connect() -> Result<Ends> {
    let (cq_a, pd_a) = objects("rxe0")?;
    let (cq_b, pd_b) = objects("rxe1")?;
    let prepare = |cq: &'static CompletionQueue<'static>,
                   pd: &'static ProtectionDomain<'static>| {
        pd.create_qp(cq, cq, ibv_qp_type::IBV_QPT_RC)
            // Index 1 is the GID of the IPv4 address.
            .set_gid_index(1)
            .set_max_send_wr(SEND_DEPTH)
            .set_max_recv_wr(RECV_DEPTH)
            .allow_remote_rw()
            .build()
    };
    let (a, b) = (prepare(cq_a, pd_a)?, prepare(cq_b, pd_b)?);
    let (here, there) = (a.endpoint(), b.endpoint());
    Ok(Ends {
        a: End {
            cq: cq_a,
            qp: a.handshake(there)?,
            region: pd_a.allocate::<u8>(BUFFER)?,
        },
        b: End {
            cq: cq_b,
            qp: b.handshake(here)?,
            region: pd_b.allocate::<u8>(BUFFER)?,
        },
    })
}

#[inline(always)]
fn poll<const N: usize>(cq: &CompletionQueue<'_>) -> Result<usize> {
    let mut room = [ibv_wc::default(); N];
    let found = cq.poll(&mut room)?;
    for wc in &*found {
        if !wc.is_valid() {
            return Err(format!("a completion failed: {:?}", wc.error()).into());
        }
    }
    Ok(found.len())
}

impl Peer for Ends {
    // `post_send` and `post_receive` take one request each, and the first makes SENDs only.
    const BATCHES: bool = false;
    const WRITES: bool = false;

    #[inline(always)]
    fn post_send(&mut self) -> Result<()> {
        // SAFETY: the region lives as long as the queue pair, and nobody looks at it.
        Ok(unsafe { self.a.qp.post_send(&mut self.a.region, ..64, 1) }?)
    }

    fn post_write<const N: usize>(&mut self) -> Result<()> {
        Err("ibverbs has no WRITE".into())
    }

    fn post_inline(&mut self) -> Result<()> {
        Err("ibverbs has no WRITE".into())
    }

    #[inline(always)]
    fn post_recv<const N: usize>(&mut self) -> Result<()> {
        for _ in 0..N {
            // SAFETY: as above.
            unsafe { self.b.qp.post_receive(&mut self.b.region, ..64, 1) }?;
        }
        Ok(())
    }

    #[inline(always)]
    fn poll<const N: usize>(&mut self) -> Result<usize> {
        poll::<N>(self.a.cq)
    }

    #[inline(always)]
    fn poll_peer(&mut self) -> Result<usize> {
        poll::<1>(self.b.cq)
    }
}

fn main() -> ExitCode {
    peer_common::run(connect)
}
