//! A queue pair on a device whose kernel does nothing by itself: what the benches post to and poll from.

use std::error::Error;
use std::path::Path;
use std::sync::Arc;

use uverbs::abi::Kernel;
use uverbs::fake::Fabric;
use uverbs::{
    AccessFlags, CompletionQueue, ConnectOptions, Context, MemoryRegion, PageBuf, PathOptions,
    QueuePair, Rc,
};
use uverbs_tools::quiet::{Queue, Quiet};

/// Requests that each queue takes before it has to be [emptied](Queue::drain).
pub const ROOM: usize = 1024;

/// The objects, and the kernel's side of the queues.
#[derive(Debug)]
pub struct Stage {
    /// The completion queue.
    pub cq: CompletionQueue,
    /// In RTS, connected with itself.
    pub qp: QueuePair<Rc>,
    /// What requests name.
    pub memory: MemoryRegion<PageBuf>,
    /// The kernel's side of the completion queue.
    pub completions: Queue,
    /// The kernel's side of the send queue.
    pub sends: Queue,
    /// The kernel's side of the receive queue.
    pub receives: Queue,
}

impl Stage {
    /// Sets it up.
    ///
    /// # Errors
    /// Whatever went wrong.
    pub fn new() -> Result<Self, Box<dyn Error>> {
        let fabric = Fabric::new();
        let kernel = Arc::new(Quiet::new(&fabric, "rxe0")?);
        let seam: Arc<dyn Kernel> = Arc::clone(&kernel) as _;
        let context = Context::on_kernel(seam, "rxe0", Path::new("/dev/null"), 2)?;
        let pd = context.alloc_pd()?;
        let room = u32::try_from(ROOM)?;
        let cq = context.create_cq(room).build()?;
        let completions = kernel.last(0).ok_or("no completion queue was mapped")?;
        let qp = pd
            .create_qp::<Rc>(&cq, &cq)
            .max_send_wr(room)
            .max_recv_wr(room)
            .max_inline_data(64)
            .build()?;
        let receives = kernel.last(0).ok_or("no receive queue was mapped")?;
        let sends = kernel.last(1).ok_or("no send queue was mapped")?;
        let local = qp.prepare(&PathOptions::default())?;
        qp.connect(&local, &local, &ConnectOptions::default())?;
        let memory = pd.allocate(4096, AccessFlags::LOCAL_WRITE | AccessFlags::REMOTE_WRITE)?;
        Ok(Self {
            cq,
            qp,
            memory,
            completions,
            sends,
            receives,
        })
    }
}
