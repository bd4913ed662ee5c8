//! What is counted: the calls of the data path, one region each.

use std::alloc::System;
use std::error::Error;
use std::hint::black_box;
use std::path::Path;
use std::sync::Arc;

use stats_alloc::{INSTRUMENTED_SYSTEM, StatsAlloc};
use uverbs::abi::Kernel;
use uverbs::fake::Fabric;
use uverbs::{
    AccessFlags, Arm, AsyncEventKind, ConnectOptions, Context, PathOptions, Rc, RecvWr, SendWr,
    Subject, Wc,
};
use uverbs_tools::count::{mark, trace_me};
use uverbs_tools::quiet::Quiet;

/// Shows that the data path allocates nothing.
#[global_allocator]
static HEAP: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

/// Calls so far that gave or moved memory.
fn allocations() -> usize {
    let stats = HEAP.stats();
    stats.allocations.saturating_add(stats.reallocations)
}

/// The forms, in the order in which they come.
pub(crate) const FORMS: [&str; 2] = ["exclusive", "shared"];

/// The rows, in the order in which they come, with the work requests of one call.
pub(crate) const ROWS: [(&str, u64); 11] = [
    ("post_send_write_64", 1),
    ("post_send_inline_32", 1),
    ("post_send_batch16", 16),
    ("post_recv_1", 1),
    ("post_recv_batch16", 16),
    ("poll_1", 1),
    ("poll_16", 16),
    ("poll_empty", 1),
    ("post_send_read_64", 1),
    ("post_send_fetch_add", 1),
    ("post_send_reads16", 16),
];

/// Rows that have no form of one owner: an event is read, looked up, and acked.
pub(crate) const EVENTS: [&str; 2] = ["async_event", "completion_event"];

/// Regions for each row.
pub(crate) const ROUNDS: usize = 9;

/// Runs `call` in a region of its own, again and again, with `after` between the regions.
fn rounds(mut call: impl FnMut() -> bool, mut after: impl FnMut()) {
    // What happens once (a linker's look-up, a page's first touch) happens here.
    for _ in 0..4 {
        assert!(call(), "the call failed");
        after();
    }
    for _ in 0..ROUNDS {
        let before = allocations();
        mark();
        let is_right = call();
        mark();
        assert!(is_right, "the call failed");
        assert_eq!(allocations(), before, "the call allocated");
        after();
    }
}

/// The counted program: an empty region, then each row of each form.
pub(crate) fn run() -> Result<(), Box<dyn Error>> {
    let fabric = Fabric::new();
    let kernel = Arc::new(Quiet::new(&fabric, "rxe0")?);
    let seam: Arc<dyn Kernel> = Arc::clone(&kernel) as _;
    let context = Context::on_kernel(seam, "rxe0", Path::new("/dev/null"), 2)?;
    let pd = context.alloc_pd()?;
    let cq = context.create_cq(256).build()?;
    let queue = kernel.last(0).ok_or("no completion queue was mapped")?;
    let qp = pd
        .create_qp::<Rc>(&cq, &cq)
        .max_send_wr(100)
        .max_recv_wr(100)
        .max_inline_data(64)
        .build()?;
    let recv = kernel.last(0).ok_or("no receive queue was mapped")?;
    let send = kernel.last(1).ok_or("no send queue was mapped")?;
    let local = qp.prepare(&PathOptions::default())?;
    qp.connect(&local, &local, &ConnectOptions::default())?;
    let rights = AccessFlags::LOCAL_WRITE | AccessFlags::REMOTE_WRITE;
    let memory = pd.allocate(4096, rights)?;

    let sges = [memory.slice(..64)?];
    let bytes = [0x5a; 32];
    let remote = memory.remote(1024)?;
    let write = [SendWr::write(1, &sges, remote).signaled()];
    let inline = [SendWr::send_inline(2, &bytes).signaled()];
    let writes: Vec<SendWr<'_>> = (0..16)
        .map(|id| SendWr::write(id, &sges, remote).signaled())
        .collect();
    let eight = memory.slice(..8)?;
    let read = [SendWr::read(3, &sges, remote).signaled()];
    let add = [SendWr::fetch_add(4, eight, remote, 1).signaled()];
    let reads: Vec<SendWr<'_>> = (0..16)
        .map(|id| SendWr::read(id, &sges, remote).signaled())
        .collect();
    let receives: Vec<RecvWr<'_>> = (0..16).map(|id| RecvWr::new(id, &sges)).collect();
    // What is counted must not be compiled for these very requests.
    let (write, inline) = (black_box(&write[..]), black_box(&inline[..]));
    let (writes, receives) = (black_box(&writes[..]), black_box(&receives[..]));
    let (read, add, reads) = (
        black_box(&read[..]),
        black_box(&add[..]),
        black_box(&reads[..]),
    );
    let receive = black_box(receives.get(..1).unwrap_or_default());
    let mut one = [Wc::default(); 1];
    let mut room = [Wc::default(); 16];
    let (mut one, mut room) = (black_box(&mut one[..]), black_box(&mut room[..]));

    trace_me()?;
    mark();
    mark();

    macro_rules! form {
        ($sends:expr, $recvs:expr, $polls:expr) => {
            rounds(|| $sends.post_send(write).is_ok(), || send.drain());
            rounds(|| $sends.post_send(inline).is_ok(), || send.drain());
            rounds(|| $sends.post_send(writes).is_ok(), || send.drain());
            rounds(|| $recvs.post_recv(receive).is_ok(), || recv.drain());
            rounds(|| $recvs.post_recv(receives).is_ok(), || recv.drain());
            queue.complete(1);
            rounds(
                || $polls.poll(&mut one).is_ok_and(|found| found.len() == 1),
                || queue.complete(1),
            );
            queue.complete(15);
            rounds(
                || $polls.poll(&mut room).is_ok_and(|found| found.len() == 16),
                || queue.complete(16),
            );
            while !$polls.poll(&mut room)?.is_empty() {}
            rounds(
                || $polls.poll(&mut one).is_ok_and(|found| found.is_empty()),
                || (),
            );
            rounds(|| $sends.post_send(read).is_ok(), || send.drain());
            rounds(|| $sends.post_send(add).is_ok(), || send.drain());
            rounds(|| $sends.post_send(reads).is_ok(), || send.drain());
        };
    }

    {
        let mut sends = qp.exclusive_send()?;
        let mut recvs = qp.exclusive_recv()?;
        let mut polls = cq.exclusive()?;
        form!(sends, recvs, polls);
    }
    form!(qp, qp, cq);
    events(&fabric)?;
    crate::objects::run(&fabric)
}

/// Events of a device of their own, which come through pipes here and are read as the kernel's are.
fn events(fabric: &Fabric) -> Result<(), Box<dyn Error>> {
    let device = fabric.add_device("rxe1");
    let context = device.open()?;
    let pd = context.alloc_pd()?;
    let srqs: Vec<_> = (0..9)
        .map(|_| pd.create_srq(4).build())
        .collect::<Result<_, _>>()?;
    let srq = srqs.get(4).ok_or("there is no shared receive queue")?;
    let events = context.events();
    let raise = || assert!(device.raise_srq(srq, AsyncEventKind::SrqLimitReached));
    raise();
    rounds(
        || match black_box(&events).try_next() {
            Ok(Some(event)) => matches!(event.subject(), Subject::Srq(told) if told == srq),
            _ => false,
        },
        raise,
    );
    let channel = context.create_completion_channel()?;
    let cq = context.create_cq(64).channel(&channel, 0).build()?;
    let qp = pd.create_qp::<Rc>(&cq, &cq).max_send_wr(60).build()?;
    let local = qp.prepare(&PathOptions::default())?;
    qp.connect(&local, &local, &ConnectOptions::default())?;
    let memory = pd.allocate(64, AccessFlags::LOCAL_WRITE | AccessFlags::REMOTE_WRITE)?;
    let (sges, remote) = ([memory.slice(..8)?], memory.remote(8)?);
    let complete = || {
        let write = [SendWr::write(1, &sges, remote).signaled()];
        let mut room = [Wc::default(); 1];
        assert!(cq.arm(Arm::Next).is_ok() && qp.post_send(&write).is_ok());
        assert!(cq.poll(&mut room).is_ok_and(|found| found.len() == 1));
    };
    complete();
    rounds(
        || {
            let event = black_box(&channel).try_next();
            event.is_ok_and(|event| event.is_some_and(|event| *event.cq() == cq))
        },
        complete,
    );
    Ok(())
}
