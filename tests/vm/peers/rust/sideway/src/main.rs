//! `sideway` 0.4.3, used as its documentation shows it: by the extended interface, which it recommends,
//! and by the basic one.

use std::process::ExitCode;
use std::sync::Arc;

use peer_common::{BUFFER, CQ_DEPTH, INLINE, Peer, RECV_DEPTH, Result, SEND_DEPTH};
use sideway::ibverbs::AccessFlags;
use sideway::ibverbs::address::AddressHandleAttribute;
use sideway::ibverbs::completion::{
    BasicCompletionQueue, ExtendedCompletionQueue, GenericCompletionQueue,
    PollCompletionQueueError, WorkCompletionStatus,
};
use sideway::ibverbs::device::DeviceList;
use sideway::ibverbs::device_context::DeviceContext;
use sideway::ibverbs::memory_region::MemoryRegion;
use sideway::ibverbs::queue_pair::{
    BasicQueuePair, ExtendedQueuePair, PostSendGuard, QueuePair, QueuePairAttribute,
    QueuePairBuilder, QueuePairState, SetInlineData, SetScatterGatherEntry, WorkRequestFlags,
};

const SUCCESS: u32 = WorkCompletionStatus::Success as u32;

/// One of the crate's two interfaces.
trait Form {
    type Cq;
    type Qp: QueuePair;

    fn create_cq(context: &Arc<DeviceContext>) -> Result<Arc<Self::Cq>>;
    fn generic(cq: &Arc<Self::Cq>) -> GenericCompletionQueue;
    fn create_qp(builder: &QueuePairBuilder) -> Result<Self::Qp>;
    /// Takes all completions that one poller gives; how many there were.
    fn poll(cq: &Self::Cq) -> Result<usize>;
}

struct Extended;
struct Basic;

/// One poll by the crate's iterator, to its end as everywhere in its documentation: the basic one takes
/// many completions at once, and what is left in it is lost. The two have no trait in common.
macro_rules! poll {
    ($cq:expr) => {{
        let poller = match $cq.start_poll() {
            Ok(poller) => poller,
            Err(PollCompletionQueueError::CompletionQueueEmpty) => return Ok(0),
            Err(e) => return Err(e.into()),
        };
        let mut found = 0;
        for wc in poller {
            if wc.status() != SUCCESS {
                return Err(format!("request {} failed: {}", wc.wr_id(), wc.status()).into());
            }
            found += 1;
        }
        Ok(found)
    }};
}

impl Form for Extended {
    type Cq = ExtendedCompletionQueue;
    type Qp = ExtendedQueuePair;

    fn create_cq(context: &Arc<DeviceContext>) -> Result<Arc<Self::Cq>> {
        let mut builder = context.create_cq_builder();
        Ok(builder.setup_cqe(CQ_DEPTH).build_ex()?)
    }

    fn generic(cq: &Arc<Self::Cq>) -> GenericCompletionQueue {
        GenericCompletionQueue::from(Arc::clone(cq))
    }

    fn create_qp(builder: &QueuePairBuilder) -> Result<Self::Qp> {
        Ok(builder.build_ex()?)
    }

    #[inline(always)]
    fn poll(cq: &Self::Cq) -> Result<usize> {
        poll!(cq)
    }
}

impl Form for Basic {
    type Cq = BasicCompletionQueue;
    type Qp = BasicQueuePair;

    fn create_cq(context: &Arc<DeviceContext>) -> Result<Arc<Self::Cq>> {
        let mut builder = context.create_cq_builder();
        Ok(builder.setup_cqe(CQ_DEPTH).build()?)
    }

    fn generic(cq: &Arc<Self::Cq>) -> GenericCompletionQueue {
        GenericCompletionQueue::from(Arc::clone(cq))
    }

    fn create_qp(builder: &QueuePairBuilder) -> Result<Self::Qp> {
        Ok(builder.build()?)
    }

    #[inline(always)]
    fn poll(cq: &Self::Cq) -> Result<usize> {
        poll!(cq)
    }
}

struct End<F: Form> {
    context: Arc<DeviceContext>,
    cq: Arc<F::Cq>,
    qp: F::Qp,
    // Before the buffer, so that it is dropped first.
    region: Arc<MemoryRegion>,
    buffer: Box<[u8; BUFFER]>,
}

struct Ends<F: Form> {
    a: End<F>,
    b: End<F>,
}

fn all_access() -> AccessFlags {
    AccessFlags::LocalWrite | AccessFlags::RemoteWrite
}

impl<F: Form> End<F> {
    fn open(name: &str) -> Result<Self> {
        let devices = DeviceList::new()?;
        let device = devices
            .iter()
            .find(|d| sideway::ibverbs::device::DeviceInfo::name(d) == name)
            .ok_or("there is no such device")?;
        let context = device.open()?;
        let pd = context.alloc_pd()?;
        let cq = F::create_cq(&context)?;
        let mut builder = pd.create_qp_builder();
        builder
            .setup_send_cq(F::generic(&cq))
            .setup_recv_cq(F::generic(&cq))
            .setup_max_send_wr(SEND_DEPTH)
            .setup_max_recv_wr(RECV_DEPTH)
            .setup_max_inline_data(INLINE);
        let qp = F::create_qp(&builder)?;
        let mut buffer = Box::new([0; BUFFER]);
        let place = buffer.as_mut_ptr() as usize;
        // SAFETY: the buffer lives longer than the region, and nobody looks at it.
        let region = unsafe { pd.reg_mr(place, BUFFER, all_access()) }?;
        Ok(Self {
            context,
            cq,
            qp,
            region,
            buffer,
        })
    }

    fn place(&self) -> u64 {
        self.buffer.as_ptr() as u64
    }

    fn connect(&mut self, other: &Self) -> Result<()> {
        // Index 1 is the GID of the IPv4 address.
        let gid = other.context.query_gid(1, 1)?;
        let port = self.context.query_port(1)?;
        let mut attr = QueuePairAttribute::new();
        attr.setup_state(QueuePairState::Init)
            .setup_pkey_index(0)
            .setup_port(1)
            .setup_access_flags(all_access());
        self.qp.modify(&attr)?;
        let mut address = AddressHandleAttribute::new();
        address
            .setup_port(1)
            .setup_grh_src_gid_index(1)
            .setup_grh_dest_gid(&gid)
            .setup_grh_hop_limit(64);
        let mut attr = QueuePairAttribute::new();
        attr.setup_state(QueuePairState::ReadyToReceive)
            .setup_path_mtu(port.active_mtu())
            .setup_dest_qp_num(other.qp.qp_number())
            .setup_rq_psn(0)
            .setup_max_dest_read_atomic(16)
            .setup_min_rnr_timer(12)
            .setup_address_vector(&address);
        self.qp.modify(&attr)?;
        let mut attr = QueuePairAttribute::new();
        attr.setup_state(QueuePairState::ReadyToSend)
            .setup_sq_psn(0)
            .setup_timeout(18)
            .setup_retry_cnt(6)
            .setup_rnr_retry(7)
            .setup_max_read_atomic(16);
        Ok(self.qp.modify(&attr)?)
    }
}

fn connect<F: Form>() -> Result<Ends<F>> {
    let (mut a, mut b) = (End::<F>::open("rxe0")?, End::<F>::open("rxe1")?);
    a.connect(&b)?;
    b.connect(&a)?;
    Ok(Ends { a, b })
}

impl<F: Form> Peer for Ends<F> {
    const BATCHES: bool = true;
    const WRITES: bool = true;

    #[inline(always)]
    fn post_send(&mut self) -> Result<()> {
        let (lkey, place) = (self.a.region.lkey(), self.a.place());
        let mut guard = self.a.qp.start_post_send();
        let wr = guard
            .construct_wr(1, WorkRequestFlags::Signaled)
            .setup_send();
        // SAFETY: the region and its buffer live as long as the queue pair.
        unsafe { wr.setup_sge(lkey, place, 64) };
        Ok(guard.post()?)
    }

    #[inline(always)]
    fn post_write<const N: usize>(&mut self) -> Result<()> {
        let (lkey, place) = (self.a.region.lkey(), self.a.place());
        let (rkey, remote) = (self.b.region.rkey(), self.b.place());
        let mut guard = self.a.qp.start_post_send();
        for _ in 0..N {
            let wr = guard
                .construct_wr(1, WorkRequestFlags::Signaled)
                .setup_write(rkey, remote);
            // SAFETY: as above.
            unsafe { wr.setup_sge(lkey, place, 64) };
        }
        Ok(guard.post()?)
    }

    #[inline(always)]
    fn post_inline(&mut self) -> Result<()> {
        let (rkey, remote) = (self.b.region.rkey(), self.b.place());
        let mut guard = self.a.qp.start_post_send();
        guard
            .construct_wr(1, WorkRequestFlags::Signaled | WorkRequestFlags::Inline)
            .setup_write(rkey, remote)
            .setup_inline_data(&[7; 32]);
        Ok(guard.post()?)
    }

    #[inline(always)]
    fn post_recv<const N: usize>(&mut self) -> Result<()> {
        let (lkey, place) = (self.b.region.lkey(), self.b.place());
        let mut guard = self.b.qp.start_post_recv();
        for _ in 0..N {
            let wr = guard.construct_wr(1);
            // SAFETY: as above.
            unsafe { wr.setup_sge(lkey, place, 64) };
        }
        Ok(guard.post()?)
    }

    #[inline(always)]
    fn poll<const N: usize>(&mut self) -> Result<usize> {
        F::poll(&self.a.cq)
    }

    #[inline(always)]
    fn poll_peer(&mut self) -> Result<usize> {
        F::poll(&self.b.cq)
    }
}

fn main() -> ExitCode {
    match peer_common::form().as_str() {
        "basic" => peer_common::run(connect::<Basic>),
        _ => peer_common::run(connect::<Extended>),
    }
}
