//! Types of asynchronous events that rxe does not raise by itself, injected into the kernel's own
//! path; and what a driver could raise that it never should.
//!
//! Ground truth: `enum ib_event_type`. Which kernel raises which of them by itself, and which test
//! shows it, is told in `docs/events-proof.md`.

use uverbs::abi::layout::event as raw;
use uverbs::event::Counts;
use uverbs::{AsyncEvent, AsyncEventKind, AsyncEvents, DestroyError, DestroyErrorCause, Subject};

use super::pair::{Failure, Shape, ensure, open, same};
use super::provoke::next;
use super::{Case, CaseResult, Verdict};
use crate::guest::injector::{Target, inject};
use crate::guest::resources::{Tracked, tracked};

pub(super) const CASES: &[Case] = &[
    Case::new("injected::qp_fatal", on_qp::<{ raw::IB_EVENT_QP_FATAL }>)
        .every_kernel()
        .with_modules(),
    Case::new(
        "injected::qp_req_err",
        on_qp::<{ raw::IB_EVENT_QP_REQ_ERR }>,
    )
    .with_modules(),
    Case::new(
        "injected::qp_access_err",
        on_qp::<{ raw::IB_EVENT_QP_ACCESS_ERR }>,
    )
    .with_modules(),
    Case::new("injected::comm_est", on_qp::<{ raw::IB_EVENT_COMM_EST }>).with_modules(),
    Case::new("injected::path_mig", on_qp::<{ raw::IB_EVENT_PATH_MIG }>).with_modules(),
    Case::new(
        "injected::path_mig_err",
        on_qp::<{ raw::IB_EVENT_PATH_MIG_ERR }>,
    )
    .with_modules(),
    Case::new(
        "injected::qp_last_wqe_reached",
        on_qp::<{ raw::IB_EVENT_QP_LAST_WQE_REACHED }>,
    )
    .with_modules(),
    Case::new("injected::cq_err", cq_err).with_modules(),
    Case::new("injected::srq_err", srq_err).with_modules(),
    Case::new(
        "injected::lid_change",
        on_port::<{ raw::IB_EVENT_LID_CHANGE }>,
    )
    .with_modules(),
    Case::new(
        "injected::pkey_change",
        on_port::<{ raw::IB_EVENT_PKEY_CHANGE }>,
    )
    .with_modules(),
    Case::new(
        "injected::sm_change",
        on_port::<{ raw::IB_EVENT_SM_CHANGE }>,
    )
    .with_modules(),
    Case::new(
        "injected::client_reregister",
        on_port::<{ raw::IB_EVENT_CLIENT_REREGISTER }>,
    )
    .with_modules(),
    Case::new("injected::device_speed_change", device_speed_change).with_modules(),
    Case::new("injected::types_to_come", types_to_come)
        .every_kernel()
        .with_modules(),
    Case::new("injected::misfits_reach_nothing", misfits_reach_nothing).with_modules(),
    Case::new("injected::nonsense_is_refused", nonsense_is_refused).with_modules(),
];

/// Two events of an object, from the count to the destroy: `about` says whether a subject is the
/// object.
pub(super) fn gate<T: Clone>(
    object: T,
    events: &AsyncEvents,
    kind: AsyncEventKind,
    about: impl Fn(&T, &Subject) -> bool,
    counts: impl Fn(&T) -> Counts,
    try_destroy: impl Fn(T) -> Result<(), DestroyError<T>>,
) -> Result<(), Failure> {
    let numbers = |delivered, acked| Counts {
        delivered,
        acked,
        outstanding: delivered - acked,
    };
    let read = || {
        let event = next(events, kind)?;
        ensure(
            about(&object, event.subject()),
            &format!("{kind} on {}", event.subject()),
        )?;
        Ok::<AsyncEvent, Failure>(event)
    };
    same("counts before", counts(&object), numbers(0, 0))?;
    let first = read()?;
    let second = read()?;
    same("counts with two held", counts(&object), numbers(2, 0))?;
    let mut object = object.clone();
    for (held, left) in [(first, 2), (second, 1)] {
        let refused = try_destroy(object)
            .err()
            .ok_or("the destroy went through with an event held")?;
        let outstanding = DestroyErrorCause::Outstanding { outstanding: left };
        same("refusal", refused.cause, outstanding)?;
        object = refused
            .into_object()
            .ok_or("the object did not come back")?;
        held.ack();
    }
    same("counts with none held", counts(&object), numbers(2, 2))?;
    // The kernel counts two as well, or this would not end.
    try_destroy(object).map_err(|refused| refused.cause)?;
    while let Some(event) = events.try_next()? {
        ensure(event.kind() != kind, "an event too many")?;
    }
    Ok(())
}

fn on_qp<const KIND: u32>() -> CaseResult {
    let end = Shape::default().prepare(&open("rxe0")?.1)?;
    let events = end.context.events();
    inject("rxe0", Target::Qp(end.qp.qp_num().0), KIND, 2)?;
    gate(
        end.qp,
        &events,
        AsyncEventKind::from_raw(KIND),
        |qp, subject| matches!(subject, Subject::Qp(found) if *found == qp.to_any()),
        uverbs::QueuePair::event_counts,
        uverbs::QueuePair::try_destroy,
    )?;
    Ok(Verdict::Passed)
}

/// Makes an object and finds out under which number the kernel tracks it.
pub(super) fn with_number<T>(
    device: &str,
    kind: Tracked,
    make: impl FnOnce() -> Result<T, Failure>,
) -> Result<(T, u32), Failure> {
    let before = tracked(device, kind)?;
    let made = make()?;
    let after = tracked(device, kind)?;
    let new: Vec<u32> = after.difference(&before).copied().collect();
    match new.as_slice() {
        [number] => Ok((made, *number)),
        others => Err(format!("one new {kind:?} expected, the kernel has {others:?}").into()),
    }
}

fn cq_err() -> CaseResult {
    let (context, _pd) = open("rxe0")?;
    let events = context.events();
    let (cq, number) = with_number("rxe0", Tracked::Cq, || Ok(context.create_cq(16).build()?))?;
    inject("rxe0", Target::Cq(number), raw::IB_EVENT_CQ_ERR, 2)?;
    gate(
        cq,
        &events,
        AsyncEventKind::CqErr,
        |cq, subject| matches!(subject, Subject::Cq(found) if found == cq),
        uverbs::CompletionQueue::event_counts,
        uverbs::CompletionQueue::try_destroy,
    )?;
    Ok(Verdict::Passed)
}

fn srq_err() -> CaseResult {
    let (context, pd) = open("rxe0")?;
    let events = context.events();
    let (srq, number) = with_number("rxe0", Tracked::Srq, || Ok(pd.create_srq(16).build()?))?;
    inject("rxe0", Target::Srq(number), raw::IB_EVENT_SRQ_ERR, 2)?;
    gate(
        srq,
        &events,
        AsyncEventKind::SrqErr,
        |srq, subject| matches!(subject, Subject::Srq(found) if found == srq),
        uverbs::SharedReceiveQueue::event_counts,
        uverbs::SharedReceiveQueue::try_destroy,
    )?;
    Ok(Verdict::Passed)
}

/// Each context has its own copy of a port's event.
fn on_port<const KIND: u32>() -> CaseResult {
    let kind = AsyncEventKind::from_raw(KIND);
    let contexts = [open("rxe0")?.0, open("rxe0")?.0];
    let elsewhere = open("rxe1")?.0;
    inject("rxe0", Target::Port(1), KIND, 1)?;
    for context in &contexts {
        let event = next(&context.events(), kind)?;
        ensure(
            matches!(event.subject(), Subject::Port(1)),
            &format!("{kind} on {}", event.subject()),
        )?;
    }
    while let Some(event) = elsewhere.events().try_next()? {
        ensure(event.kind() != kind, "it came on the other device too")?;
    }
    Ok(Verdict::Passed)
}

fn device_speed_change() -> CaseResult {
    let (context, _pd) = open("rxe0")?;
    let events = context.events();
    inject("rxe0", Target::Device, raw::IB_EVENT_DEVICE_SPEED_CHANGE, 1)?;
    let event = next(&events, AsyncEventKind::DeviceSpeedChange)?;
    ensure(
        matches!(event.subject(), Subject::Device),
        &format!("it is about {}", event.subject()),
    )?;
    drop(event);
    // Nothing is over: the context works.
    context.alloc_pd()?;
    Ok(Verdict::Passed)
}

/// Numbers that no kernel has given a meaning yet come as they are, and are acked all the same.
fn types_to_come() -> CaseResult {
    let end = Shape::default().prepare(&open("rxe0")?.1)?;
    let events = end.context.events();
    let number = end.qp.qp_num().0;
    for kind in [21, 22, 0x1234, 0x7fff_ffff] {
        inject("rxe0", Target::Port(1), kind, 1)?;
        let event = next(&events, AsyncEventKind::Unknown(kind))?;
        ensure(
            matches!(event.subject(), Subject::Unknown(1)),
            &format!("{} is about {}", event.kind(), event.subject()),
        )?;
        inject("rxe0", Target::Qp(number), kind, 1)?;
        let event = next(&events, AsyncEventKind::Unknown(kind))?;
        ensure(
            matches!(event.subject(), Subject::Unknown(element) if *element > u64::from(u32::MAX)),
            &format!("{} is about {}", event.kind(), event.subject()),
        )?;
    }
    // The kernel counted the four of the queue pair; so did the ledger.
    end.qp.try_destroy().map_err(|refused| refused.cause)?;
    Ok(Verdict::Passed)
}

/// A type that does not fit the object it is raised on.
fn misfits_reach_nothing() -> CaseResult {
    let end = Shape::default().prepare(&open("rxe0")?.1)?;
    let events = end.context.events();
    let number = end.qp.qp_num().0;
    for kind in [
        AsyncEventKind::CqErr,
        AsyncEventKind::SrqErr,
        AsyncEventKind::WqFatal,
        AsyncEventKind::SmChange,
    ] {
        inject("rxe0", Target::Qp(number), kind.raw(), 1)?;
        let event = next(&events, kind)?;
        ensure(
            matches!(event.subject(), Subject::Unknown(_)),
            &format!("{kind} of a queue pair is about {}", event.subject()),
        )?;
    }
    end.qp.try_destroy().map_err(|refused| refused.cause)?;
    Ok(Verdict::Passed)
}

/// The injector itself: what it cannot do it refuses, and nothing comes of it.
fn nonsense_is_refused() -> CaseResult {
    let (context, _pd) = open("rxe0")?;
    let events = context.events();
    for (device, target, kind, count) in [
        ("rxe7", Target::Port(1), raw::IB_EVENT_SM_CHANGE, 1),
        ("rxe0", Target::Port(2), raw::IB_EVENT_SM_CHANGE, 1),
        ("rxe0", Target::Port(0), raw::IB_EVENT_SM_CHANGE, 1),
        ("rxe0", Target::Port(1), raw::IB_EVENT_SM_CHANGE, 0),
        ("rxe0", Target::Port(1), raw::IB_EVENT_SM_CHANGE, 1_000_001),
        ("rxe0", Target::Port(1), u32::MAX, 1),
        ("rxe0", Target::Device, raw::IB_EVENT_SM_CHANGE, 1),
        ("rxe0", Target::Qp(0x00ff_fffe), raw::IB_EVENT_QP_FATAL, 1),
        ("rxe0", Target::Cq(0x00ff_fffe), raw::IB_EVENT_CQ_ERR, 1),
        ("rxe0", Target::Srq(0x00ff_fffe), raw::IB_EVENT_SRQ_ERR, 1),
    ] {
        ensure(
            inject(device, target, kind, count).is_err(),
            &format!("{device} {target:?} {kind} {count} went through"),
        )?;
    }
    // Queue pair 1 is the kernel's own.
    ensure(
        inject("rxe0", Target::Qp(1), raw::IB_EVENT_QP_FATAL, 1).is_err(),
        "an event of a queue pair of the kernel's went through",
    )?;
    while let Some(event) = events.try_next()? {
        ensure(
            event.kind() == AsyncEventKind::GidChange,
            &format!("{} came", event.kind()),
        )?;
    }
    Ok(Verdict::Passed)
}
