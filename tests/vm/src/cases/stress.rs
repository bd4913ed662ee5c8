//! Asynchronous events in great numbers: readers, ackers, and objects that come and go meanwhile;
//! and a queue that nobody reads.
//!
//! The equalities are exact. What the kernel drops unread at a destroy is neither read nor counted.

#![allow(
    clippy::print_stdout,
    reason = "the numbers are shown with a failure, and nowhere else"
)]

use std::fs;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use uverbs::abi::layout::event as raw;
use uverbs::event::{Class, EventError};
use uverbs::{
    AsyncEvent, AsyncEventKind, AsyncEvents, CompletionQueue, Context, ProtectionDomain, QueuePair,
    Rc, SharedReceiveQueue,
};

use super::injected::with_number;
use super::pair::{Failure, ensure, same};
use super::provoke::next;
use super::tally::{Queues, Tally};
use super::{Case, CaseResult, Verdict};
use crate::guest::injector::{Target, inject};
use crate::guest::resources::Tracked;
use crate::guest::{full, kmsg};

pub(super) const CASES: &[Case] = &[
    Case::new(
        "stress::events_while_objects_come_and_go",
        events_while_objects_come_and_go,
    )
    .with_modules()
    .limit_secs(1200)
    .limit_in_full_secs(7200),
    Case::new(
        "stress::a_queue_that_nobody_reads",
        a_queue_that_nobody_reads,
    )
    .with_modules()
    .limit_secs(600),
];

const OBJECTS: usize = 64;
const READERS: usize = 4;
const ACKERS: usize = 4;

/// One of the objects, and where events are injected for it.
enum Object {
    Qp(QueuePair<Rc>),
    Cq(CompletionQueue, u32),
    Srq(SharedReceiveQueue, u32),
}

impl Object {
    /// Makes the object for a place: two queue pairs for each queue of the other kinds.
    fn make(pd: &ProtectionDomain, base: &CompletionQueue, place: usize) -> Result<Self, Failure> {
        let context = pd.context();
        Ok(match place % 4 {
            0 => {
                let (cq, number) =
                    with_number("rxe0", Tracked::Cq, || Ok(context.create_cq(4).build()?))?;
                Self::Cq(cq, number)
            }
            1 => {
                let (srq, number) =
                    with_number("rxe0", Tracked::Srq, || Ok(pd.create_srq(4).build()?))?;
                Self::Srq(srq, number)
            }
            _ => Self::Qp(pd.create_qp::<Rc>(base, base).build()?),
        })
    }

    fn aim(&self) -> (Target, u32) {
        match self {
            Self::Qp(qp) => (Target::Qp(qp.qp_num().0), raw::IB_EVENT_PATH_MIG),
            Self::Cq(_, number) => (Target::Cq(*number), raw::IB_EVENT_CQ_ERR),
            Self::Srq(_, number) => (Target::Srq(*number), raw::IB_EVENT_SRQ_ERR),
        }
    }

    /// Waits for the acks of all that was read.
    fn destroy(self) -> Result<(), Failure> {
        match self {
            Self::Qp(qp) => qp.destroy().map_err(|e| e.cause)?,
            Self::Cq(cq, _) => cq.destroy().map_err(|e| e.cause)?,
            Self::Srq(srq, _) => srq.destroy().map_err(|e| e.cause)?,
        }
        Ok(())
    }
}

type Places = Vec<Mutex<Option<Object>>>;

/// Numbers that look random enough, and are the same each time.
fn scatter(state: &mut u64) -> usize {
    *state = state
        .wrapping_mul(6_364_136_223_846_793_005)
        .wrapping_add(1_442_695_040_888_963_407);
    usize::try_from(*state >> 40).unwrap_or(0)
}

/// Replaces one object after the other until told to stop; gives back how many.
fn come_and_go(
    pd: ProtectionDomain,
    base: CompletionQueue,
    places: Arc<Places>,
    stop: Arc<AtomicBool>,
) -> JoinHandle<Result<u64, Failure>> {
    thread::spawn(move || {
        let mut seed = 7;
        let mut replaced = 0;
        while !stop.load(Ordering::Relaxed) {
            let place = scatter(&mut seed) % OBJECTS;
            let Some(cell) = places.get(place) else {
                continue;
            };
            let old = cell.lock().unwrap_or_else(PoisonError::into_inner).take();
            if let Some(old) = old {
                old.destroy()?;
                replaced += 1;
            }
            let new = Object::make(&pd, &base, place)?;
            *cell.lock().unwrap_or_else(PoisonError::into_inner) = Some(new);
        }
        Ok(replaced)
    })
}

/// Reads until stopped, and hands each event on; gives back how many were about objects.
fn reader(
    events: AsyncEvents,
    hand_over: mpsc::Sender<AsyncEvent>,
) -> JoinHandle<Result<u64, Failure>> {
    thread::spawn(move || {
        let mut read = 0;
        loop {
            match events.next() {
                Ok(event) => {
                    if event.kind().class() == Class::Port {
                        continue;
                    }
                    read += 1;
                    hand_over.send(event)?;
                }
                Err(EventError::Stopped) => return Ok(read),
                Err(error) => return Err(error.into()),
            }
        }
    })
}

/// Acks what it is handed; gives back how many.
fn acker(handed: Arc<Mutex<mpsc::Receiver<AsyncEvent>>>, acked: Arc<AtomicU64>) -> JoinHandle<u64> {
    thread::spawn(move || {
        let mut count = 0;
        loop {
            let event = handed.lock().unwrap_or_else(PoisonError::into_inner).recv();
            let Ok(event) = event else { return count };
            event.ack();
            count += 1;
            acked.fetch_add(1, Ordering::Relaxed);
        }
    })
}

fn is_readable(events: &AsyncEvents) -> Result<bool, Failure> {
    let mut fds = [PollFd::new(events.as_fd(), PollFlags::POLLIN)];
    Ok(poll(&mut fds, PollTimeout::ZERO)? > 0)
}

fn events_while_objects_come_and_go() -> CaseResult {
    let total: u32 = if full() { 100_000 } else { 1_000 };
    let mark = kmsg::mark()?;
    let (tally, context) = Tally::open("rxe0", Queues::BuiltIn)?;
    let pd = context.alloc_pd()?;
    let base = context.create_cq(16).build()?;
    let places: Places = (0..OBJECTS)
        .map(|place| Ok(Mutex::new(Some(Object::make(&pd, &base, place)?))))
        .collect::<Result<_, Failure>>()?;
    let places = Arc::new(places);

    let events = context.events();
    let (hand_over, handed) = mpsc::channel();
    let handed = Arc::new(Mutex::new(handed));
    let acked = Arc::new(AtomicU64::new(0));
    let ackers: Vec<_> = (0..ACKERS)
        .map(|_| acker(Arc::clone(&handed), Arc::clone(&acked)))
        .collect();
    let readers: Vec<_> = (0..READERS)
        .map(|_| reader(events.clone(), hand_over.clone()))
        .collect();
    drop(hand_over);
    let stop = Arc::new(AtomicBool::new(false));
    let churn = come_and_go(
        pd.clone(),
        base.clone(),
        Arc::clone(&places),
        Arc::clone(&stop),
    );

    let mut seed = 11;
    let mut raised = 0;
    while raised < total {
        let place = scatter(&mut seed) % OBJECTS;
        let burst = u32::try_from(1 + scatter(&mut seed) % 16)?.min(total - raised);
        let aim = places.get(place).and_then(|cell| {
            let cell = cell.lock().unwrap_or_else(PoisonError::into_inner);
            cell.as_ref().map(Object::aim)
        });
        // An object that has gone meanwhile takes no events.
        let Some((target, kind)) = aim else {
            thread::yield_now();
            continue;
        };
        match inject("rxe0", target, kind, burst) {
            Ok(()) => raised += burst,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
            Err(error) => return Err(error.into()),
        }
    }
    stop.store(true, Ordering::Relaxed);
    let replaced = churn.join().map_err(|_| "the churning thread panicked")??;
    // The readers get what is left.
    let deadline = Instant::now() + Duration::from_secs(300);
    while is_readable(&events)? {
        ensure(Instant::now() < deadline, "the readers do not get on")?;
        thread::sleep(Duration::from_millis(5));
    }
    // Each of these waits for its acks, whichever thread owes them.
    for cell in places.iter() {
        let object = cell.lock().unwrap_or_else(PoisonError::into_inner).take();
        object.ok_or("an object is missing")?.destroy()?;
    }
    events.stop();
    let mut read = 0;
    for reader in readers {
        read += reader.join().map_err(|_| "a reader panicked")??;
    }
    let mut counted = 0;
    for acker in ackers {
        counted += acker.join().map_err(|_| "an acker panicked")?;
    }
    println!("raised {raised}, read {read}, {replaced} objects replaced");
    same("handed over", counted, read)?;
    same("acked", acked.load(Ordering::Relaxed), read)?;
    same("the kernel's sum", tally.reported(), read)?;
    same(
        "objects destroyed",
        tally.destroyed(),
        replaced + u64::try_from(OBJECTS)?,
    )?;
    ensure(read > 0 && replaced > 0, "nothing happened")?;
    ensure(read <= raised.into(), "more were read than raised")?;
    drop((pd, context));
    base.destroy().map_err(|error| error.cause)?;
    let complaints = kmsg::complaints_since(mark)?;
    ensure(complaints.is_empty(), &complaints.join("; "))?;
    Ok(Verdict::Passed)
}

/// A field of a file such as `/proc/meminfo`, in KiB.
fn kib(file: &str, field: &str) -> Result<u64, Failure> {
    let text = fs::read_to_string(file)?;
    let line = text.lines().find_map(|line| line.strip_prefix(field));
    let number = line.and_then(|rest| rest.split_whitespace().nth(1)?.parse().ok());
    number.ok_or_else(|| format!("{file} has no {field}").into())
}

fn own() -> Result<u64, Failure> {
    kib("/proc/self/status", "VmRSS")
}

fn kernels() -> Result<u64, Failure> {
    kib("/proc/meminfo", "Slab")
}

fn a_queue_that_nobody_reads() -> CaseResult {
    const EVENTS: u32 = 100_000;
    let (tally, context) = Tally::open("rxe0", Queues::BuiltIn)?;
    let (events, qp) = a_queue_pair(&context)?;
    let target = Target::Qp(qp.qp_num().0);
    // What is taken once and kept, is taken now.
    inject("rxe0", target, raw::IB_EVENT_COMM_EST, 100)?;
    for _ in 0..100 {
        next(&events, AsyncEventKind::CommEst)?.ack();
    }
    let (own_before, kernels_before) = (own()?, kernels()?);
    inject("rxe0", target, raw::IB_EVENT_COMM_EST, EVENTS)?;
    let (own_queued, kernels_queued) = (own()?, kernels()?);
    let mut most = own_queued;
    for n in 0..EVENTS {
        next(&events, AsyncEventKind::CommEst)?.ack();
        if n % 10_000 == 0 {
            most = most.max(own()?);
        }
    }
    ensure(!is_readable(&events)?, "there are more than were raised")?;
    let kernels_after = kernels()?;
    println!(
        "own memory {own_before}, {own_queued} queued, {most} at most; the kernel's \
         {kernels_before}, {kernels_queued} queued, {kernels_after} after, in KiB"
    );
    let counts = qp.event_counts();
    let all = EVENTS + 100;
    same(
        "counts",
        (counts.delivered, counts.acked, counts.outstanding),
        (all, all, 0),
    )?;
    ensure(most < own_before + 1024, "our memory grew with the queue")?;
    let grown = kernels_queued.saturating_sub(kernels_before);
    // 56 bytes each, in objects of 64.
    ensure(
        grown > 5_000,
        "the kernel's memory did not grow: is this it?",
    )?;
    ensure(
        kernels_after < kernels_before + grown / 4,
        "the kernel did not get its memory back",
    )?;
    qp.destroy().map_err(|error| error.cause)?;
    same(
        "events the kernel says were read",
        tally.reported(),
        all.into(),
    )?;
    Ok(Verdict::Passed)
}

fn a_queue_pair(context: &Context) -> Result<(AsyncEvents, QueuePair<Rc>), Failure> {
    let pd = context.alloc_pd()?;
    let cq = context.create_cq(16).build()?;
    Ok((context.events(), pd.create_qp::<Rc>(&cq, &cq).build()?))
}
