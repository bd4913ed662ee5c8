//! Queues of events beside the context's own, and what a program attaches to its objects.

#![allow(clippy::unwrap_used, reason = "a test may fail")]

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

use uverbs::event::{EventError, EventQueueError};
use uverbs::fake::{Fabric, FakeDevice};
use uverbs::{
    AsyncEvent, AsyncEventKind, AsyncEvents, CompletionQueue, Context, CreateErrorCause,
    DestroyErrorCause, Errno, ProtectionDomain, Rc, Subject,
};

const SOON: Duration = Duration::from_millis(100);
const TOO_LONG: Duration = Duration::from_secs(20);

fn open() -> (FakeDevice, Context, ProtectionDomain) {
    let device = Fabric::new().add_bare_device("fake0");
    let context = device.open().unwrap();
    let pd = context.alloc_pd().unwrap();
    (device, context, pd)
}

fn next(events: &AsyncEvents) -> AsyncEvent {
    events.try_next().unwrap().expect("an event is there")
}

fn is_quiet(events: &AsyncEvents) -> bool {
    events.try_next().unwrap().is_none()
}

fn cq_on(context: &Context, queue: &AsyncEvents) -> CompletionQueue {
    context.create_cq(4).events(queue).build().unwrap()
}

#[test]
fn an_event_comes_to_the_queue_of_its_object_and_to_no_other() {
    let (device, context, pd) = open();
    let (own, one, two) = (
        context.events(),
        context.event_queue().unwrap(),
        context.event_queue().unwrap(),
    );
    let cq = context.create_cq(4).build().unwrap();
    let first = cq_on(&context, &one);
    let srq = pd.create_srq(4).events(&two).build().unwrap();
    let wq = pd.create_wq(&cq, 4).events(&two).build().unwrap();
    let qp = pd.create_qp::<Rc>(&cq, &cq).events(&one).build().unwrap();

    assert!(device.raise_cq(&cq, AsyncEventKind::CqErr));
    assert!(matches!(next(&own).subject(), Subject::Cq(found) if *found == cq));
    assert!(device.raise_cq(&first, AsyncEventKind::CqErr));
    assert!(matches!(next(&one).subject(), Subject::Cq(found) if *found == first));
    assert!(device.raise_srq(&srq, AsyncEventKind::SrqErr));
    assert!(matches!(next(&two).subject(), Subject::Srq(found) if *found == srq));
    assert!(device.raise_wq(&wq, AsyncEventKind::WqFatal));
    assert!(matches!(next(&two.clone()).subject(), Subject::Wq(found) if *found == wq));
    assert!(device.raise_qp(&qp, AsyncEventKind::CommEst));
    assert!(matches!(next(&one).subject(), Subject::Qp(found) if *found == qp.to_any()));
    assert!(is_quiet(&own) && is_quiet(&one) && is_quiet(&two));
}

#[test]
fn port_and_device_events_come_to_every_queue() {
    let (device, context, _pd) = open();
    let queues = [
        context.events(),
        context.event_queue().unwrap(),
        context.event_queue().unwrap(),
    ];
    device.raise_port(AsyncEventKind::PortErr, 1);
    for queue in &queues {
        assert!(matches!(next(queue).subject(), Subject::Port(1)));
        assert!(is_quiet(queue));
    }
    // Each queue has the device's end told, and its readers end, once for each.
    device.remove();
    for queue in &queues {
        assert_eq!(next(queue).kind(), AsyncEventKind::DeviceFatal);
        assert_eq!(queue.try_next().unwrap_err(), EventError::DeviceGone);
    }
    assert!(context.is_gone());
    assert!(matches!(
        context.event_queue().unwrap_err(),
        EventQueueError::Command(error) if error.is_device_gone()
    ));
}

#[test]
fn a_destroy_counts_events_of_whichever_queue() {
    let (device, context, _pd) = open();
    let queue = context.event_queue().unwrap();
    let cq = cq_on(&context, &queue);
    for _ in 0..3 {
        assert!(device.raise_cq(&cq, AsyncEventKind::CqErr));
    }
    // Two are read and one acked; the third is thrown away unread.
    next(&queue).ack();
    let held = next(&queue);
    let counts = cq.event_counts();
    assert_eq!(
        (counts.delivered, counts.acked, counts.outstanding),
        (2, 1, 1)
    );
    let error = cq.try_destroy().unwrap_err();
    assert_eq!(
        error.cause,
        DestroyErrorCause::Outstanding { outstanding: 1 }
    );
    let cq = error.into_object().unwrap();
    let (sender, destroyed) = mpsc::channel();
    let destroyer = thread::spawn(move || sender.send(cq.destroy().is_ok()));
    assert!(destroyed.recv_timeout(SOON).is_err(), "an ack is missing");
    drop(held);
    assert_eq!(destroyed.recv_timeout(TOO_LONG), Ok(true));
    destroyer.join().unwrap().unwrap();
    assert!(is_quiet(&queue), "what was unread went with the object");
}

#[test]
fn a_queue_may_be_dropped_before_its_objects_or_after() {
    let (device, context, pd) = open();
    let queue = context.event_queue().unwrap();
    let cq = cq_on(&context, &queue);
    let srq = pd.create_srq(4).events(&queue).build().unwrap();
    assert!(device.raise_cq(&cq, AsyncEventKind::CqErr));
    assert!(device.raise_cq(&cq, AsyncEventKind::CqErr));
    let held = next(&queue);
    drop(queue);
    // One unread event, and those to come, are lost; the one that is held is still owed.
    assert!(device.raise_cq(&cq, AsyncEventKind::CqErr));
    assert!(device.raise_srq(&srq, AsyncEventKind::SrqErr));
    assert!(is_quiet(&context.events()), "not to be found elsewhere");
    srq.destroy().unwrap();
    let error = cq.try_destroy().unwrap_err();
    let cq = error.into_object().unwrap();
    held.ack();
    cq.try_destroy().unwrap();

    let queue = context.event_queue().unwrap();
    let cq = cq_on(&context, &queue);
    assert!(device.raise_cq(&cq, AsyncEventKind::CqErr));
    drop(cq);
    assert!(is_quiet(&queue));
    // The number of a file that was closed may come again.
    let again = cq_on(&context, &queue);
    assert!(device.raise_cq(&again, AsyncEventKind::CqErr));
    assert!(matches!(next(&queue).subject(), Subject::Cq(found) if *found == again));
    drop((queue, again, pd, context));
    assert!(device.live().is_nothing());
}

#[test]
#[cfg_attr(miri, ignore = "Miri has no poll(2)")]
fn each_queue_is_stopped_by_itself_and_all_end_with_the_context() {
    let (_device, context, pd) = open();
    let (one, two) = (
        context.event_queue().unwrap(),
        context.event_queue().unwrap(),
    );
    let blocked = |events: &AsyncEvents| {
        let events = events.clone();
        thread::spawn(move || events.next().unwrap_err())
    };
    let (first, second, third) = (blocked(&one), blocked(&two), blocked(&context.events()));
    thread::sleep(SOON / 4);
    one.stop();
    assert_eq!(first.join().unwrap(), EventError::Stopped);
    assert!(is_quiet(&two) && is_quiet(&context.events()));
    drop((context, pd));
    assert_eq!(second.join().unwrap(), EventError::ContextClosed);
    assert_eq!(third.join().unwrap(), EventError::ContextClosed);
    assert_eq!(one.try_next().unwrap_err(), EventError::Stopped);
}

#[test]
fn a_queue_of_another_context_is_refused() {
    let (device, context, pd) = open();
    let stranger = device.open().unwrap().event_queue().unwrap();
    let is_refused =
        |cause| matches!(cause, CreateErrorCause::OtherContext { what } if what == "event queue");
    let cq = context.create_cq(4).build().unwrap();
    let refused = [
        context.create_cq(4).events(&stranger).build().unwrap_err(),
        pd.create_srq(4).events(&stranger).build().unwrap_err(),
        pd.create_wq(&cq, 4).events(&stranger).build().unwrap_err(),
        pd.create_qp::<Rc>(&cq, &cq)
            .events(&stranger)
            .build()
            .unwrap_err(),
    ];
    for error in refused {
        assert!(is_refused(error.cause), "{error}");
    }
}

#[test]
fn a_kernel_that_cannot_make_a_queue_says_so() {
    let (device, context, _pd) = open();
    device.fail_next("ASYNC_EVENT_ALLOC", Errno::EPROTONOSUPPORT);
    let error = context.event_queue().unwrap_err();
    assert!(
        matches!(error, EventQueueError::Command(command) if command.is_unsupported()),
        "{error}"
    );
    assert!(error.to_string().contains("not supported"), "{error}");
    // A kernel that makes queues and cannot be told whose they are.
    let queue = context.event_queue().unwrap();
    device.fail_next("CQ_CREATE", Errno::EPROTONOSUPPORT);
    let error = context.create_cq(4).events(&queue).build().unwrap_err();
    assert!(error.to_string().contains("not supported"), "{error}");
    assert!(is_quiet(&queue));
}

#[derive(Debug, PartialEq)]
struct Connection {
    name: &'static str,
}

#[test]
fn an_event_leads_to_what_was_attached_to_its_object() {
    let (device, context, pd) = open();
    let events = context.events();
    let shared = Arc::new(AtomicUsize::new(0));
    let cq = context.create_cq(4).user_data("a queue").build().unwrap();
    let srq = pd.create_srq(4).user_data(7u64).build().unwrap();
    let wq = pd
        .create_wq(&cq, 4)
        .user_data(Arc::clone(&shared))
        .build()
        .unwrap();
    let name = "client 3";
    let qp = pd
        .create_qp::<Rc>(&cq, &cq)
        .user_data(Connection { name })
        .build()
        .unwrap();
    assert!(device.raise_qp(&qp, AsyncEventKind::QpFatal));
    assert!(device.raise_wq(&wq, AsyncEventKind::WqFatal));
    assert!(device.raise_srq(&srq, AsyncEventKind::SrqErr));
    assert!(device.raise_cq(&cq, AsyncEventKind::CqErr));
    device.raise_port(AsyncEventKind::PortErr, 1);

    let event = next(&events);
    assert_eq!(event.user_data(), Some(&Connection { name }));
    assert_eq!(event.user_data::<&str>(), None, "of another type");
    assert_eq!(qp.user_data(), Some(&Connection { name }));
    let event = next(&events);
    let count = event.user_data::<Arc<AtomicUsize>>().unwrap();
    count.fetch_add(1, Ordering::Relaxed);
    assert_eq!(shared.load(Ordering::Relaxed), 1);
    assert!(wq.user_data::<Arc<AtomicUsize>>().is_some());
    assert_eq!(next(&events).user_data(), Some(&7u64));
    assert_eq!(srq.user_data(), Some(&7u64));
    assert_eq!(next(&events).user_data(), Some(&"a queue"));
    assert_eq!(cq.user_data(), Some(&"a queue"));
    assert_eq!(next(&events).user_data::<&str>(), None, "a port has none");
    let plain = context.create_cq(4).build().unwrap();
    assert_eq!(plain.user_data::<&str>(), None);
}

#[test]
fn what_is_attached_goes_with_the_last_handle() {
    let (device, context, _pd) = open();
    let data = Arc::new(());
    let cq = context
        .create_cq(4)
        .user_data(Arc::clone(&data))
        .build()
        .unwrap();
    let other = cq.clone();
    assert!(device.raise_cq(&cq, AsyncEventKind::CqErr));
    let event = next(&context.events());
    drop(cq);
    assert!(other.destroy_timeout(SOON).is_err(), "an event is out");
    assert_eq!(Arc::strong_count(&data), 2, "the event still leads there");
    assert_eq!(event.user_data::<Arc<()>>(), Some(&data));
    drop(event);
    assert_eq!(Arc::strong_count(&data), 1);
}
