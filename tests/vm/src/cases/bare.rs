//! `fake0`, the test module's device: work queues, a driver that no provider is for, and events of a
//! context that can do no more than open.

use uverbs::abi::layout::event as raw;
use uverbs::event::EventError;
use uverbs::{AsyncEventKind, Context, CreateErrorCause, DriverId, Subject};

use super::injected::gate;
use super::pair::{ensure, same};
use super::provoke::next;
use super::tally::{Queues, Tally};
use super::{Case, CaseResult, Verdict};
use crate::guest::injector::{FAKE, FakeDevice, Target, inject};

pub(super) const CASES: &[Case] = &[
    Case::new("bare::wq_fatal", wq_fatal).with_modules(),
    Case::new(
        "bare::no_provider_and_yet_events",
        no_provider_and_yet_events,
    )
    .with_modules(),
];

fn wq_fatal() -> CaseResult {
    let _device = FakeDevice::load()?;
    let (tally, context) = Tally::open(FAKE, Queues::Bare)?;
    let pd = context.alloc_pd()?;
    let cq = context.create_cq(16).build()?;
    let wq = pd.create_wq(&cq, 16).build()?;
    let other = pd.create_wq(&cq, 16).build()?;
    let target = Target::Wq(wq.wq_num().0);
    inject(FAKE, target, raw::IB_EVENT_WQ_FATAL, 2)?;
    gate(
        wq,
        &context.events(),
        AsyncEventKind::WqFatal,
        |wq, subject| matches!(subject, Subject::Wq(found) if found == wq),
        uverbs::WorkQueue::event_counts,
        uverbs::WorkQueue::try_destroy,
    )?;
    same("events the kernel says were read", tally.reported(), 2)?;
    ensure(
        inject(FAKE, target, raw::IB_EVENT_WQ_FATAL, 1).is_err(),
        "the work queue is still there",
    )?;
    other.destroy()?;
    same("and of the other one", tally.reported(), 2)?;
    Ok(Verdict::Passed)
}

fn no_provider_and_yet_events() -> CaseResult {
    let device = FakeDevice::load()?;
    for _ in 0..2 {
        let context = Context::open(FAKE)?;
        ensure(!context.has_provider(), "there is a provider")?;
        same("driver", context.driver(), DriverId::Unknown)?;
        same("LID", context.query_port(1)?.lid, 1)?;
        let pd = context.alloc_pd()?;
        let refused = context.create_cq(8).build().err().map(|error| error.cause);
        ensure(
            matches!(refused, Some(CreateErrorCause::NoProvider { .. })),
            &format!("a completion queue: {refused:?}"),
        )?;

        let events = context.events();
        for kind in [AsyncEventKind::PortErr, AsyncEventKind::SmChange] {
            inject(FAKE, Target::Port(1), kind.raw(), 1)?;
            let event = next(&events, kind)?;
            ensure(
                matches!(event.subject(), Subject::Port(1)),
                &format!("{kind} on {}", event.subject()),
            )?;
        }
        device.unplug()?;
        let event = next(&events, AsyncEventKind::DeviceFatal)?;
        ensure(
            matches!(event.subject(), Subject::Device),
            &format!("it is about {}", event.subject()),
        )?;
        for _ in 0..2 {
            same(
                "after it",
                events.next().err(),
                Some(EventError::DeviceGone),
            )?;
        }
        ensure(context.is_gone(), "the context does not know")?;
        ensure(context.query_port(1).is_err(), "the port still answers")?;
        drop((pd, context, events));
        // It comes back, and is opened like any other.
        device.plug()?;
    }
    Ok(Verdict::Passed)
}
