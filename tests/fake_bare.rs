//! Devices that no provider is for: control only, or with a provider that has no data path; and
//! work queues, which nothing else here has.

#![allow(clippy::unwrap_used, reason = "a test may fail")]

use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use uverbs::event::EventError;
use uverbs::fake::{Fabric, FakeDevice};
use uverbs::{
    AccessFlags, Arm, AsyncEventKind, Cause, CompletionQueue, Context, CreateErrorCause,
    DestroyErrorCause, DriverId, Errno, Explain, PathOptions, PollError, PostCause,
    ProtectionDomain, ProviderCreateError, Rc, Subject, TakeCause, Wc, WorkQueue,
};

const SOON: Duration = Duration::from_millis(100);
const TOO_LONG: Duration = Duration::from_secs(20);

fn bare() -> (FakeDevice, Context, ProtectionDomain, CompletionQueue) {
    let device = Fabric::new().add_bare_device("fake0");
    let context = device.open().unwrap();
    let pd = context.alloc_pd().unwrap();
    let cq = context.create_cq(8).build().unwrap();
    (device, context, pd, cq)
}

fn work_queue(pd: &ProtectionDomain, cq: &CompletionQueue) -> WorkQueue {
    pd.create_wq(cq, 16).max_sge(2).build().unwrap()
}

#[test]
fn a_device_without_a_provider_opens_and_delivers_events() {
    let device = Fabric::new().add_bare_device("fake0");
    let context = device.open_control_only().unwrap();
    assert!(!context.has_provider());
    assert_eq!(context.driver(), DriverId::Unknown);
    assert_eq!(context.query_port(1).unwrap().lid, 0);
    let pd = context.alloc_pd().unwrap();
    let error = context.create_cq(8).build().unwrap_err();
    assert!(matches!(error.cause, CreateErrorCause::NoProvider { .. }));
    assert_eq!(
        error.to_string(),
        "cannot make a completion queue: this crate has no provider for the device's driver, unknown (0): \
         queries, protection domains and events work, queues do not"
    );
    let text = error.report().to_string();
    assert!(
        text.contains("\n  next: `devinfo` lists the other devices"),
        "{text}"
    );
    let error = pd.create_srq(8).build().unwrap_err();
    assert!(matches!(error.cause, CreateErrorCause::NoProvider { .. }));

    let events = context.events();
    device.raise_port(AsyncEventKind::PortErr, 1);
    let event = events.try_next().unwrap().unwrap();
    assert_eq!(event.kind(), AsyncEventKind::PortErr);
    assert!(matches!(event.subject(), Subject::Port(1)));
    drop(event);
    device.remove();
    let event = events.try_next().unwrap().unwrap();
    assert_eq!(event.kind(), AsyncEventKind::DeviceFatal);
    assert_eq!(events.try_next().unwrap_err(), EventError::DeviceGone);
    drop((context, pd, events));
    assert!(device.live().is_nothing());
}

#[test]
fn a_bare_provider_makes_every_object_and_claims_no_data_path() {
    let (device, context, pd, cq) = bare();
    assert!(context.has_provider());
    let srq = pd.create_srq(4).build().unwrap();
    let qp = pd.create_qp::<Rc>(&cq, &cq).srq(&srq).build().unwrap();
    let wq = work_queue(&pd, &cq);
    assert_eq!((wq.max_wr(), wq.max_sge()), (16, 2));
    assert_eq!((wq.cq(), wq.pd().context().name()), (&cq, "fake0"));
    let live = device.live();
    assert_eq!(
        (live.cqs, live.srqs, live.qps, live.wqs, live.maps),
        (1, 1, 1, 1, 0)
    );

    assert!(cq.poll(&mut [Wc::default(); 2]).unwrap().is_empty());
    cq.arm(Arm::Next).unwrap();
    assert_eq!(cq.exclusive().unwrap_err().cause, TakeCause::NoDataPath);
    assert_eq!(qp.post_send(&[]).unwrap_err().cause, PostCause::NoDataPath);
    assert_eq!(qp.post_recv(&[]).unwrap_err().cause, PostCause::NoDataPath);
    assert_eq!(srq.post_recv(&[]).unwrap_err().cause, PostCause::NoDataPath);
    srq.set_limit(2).unwrap();
    assert!(pd.allocate(64, AccessFlags::empty()).is_err());
    qp.prepare(&PathOptions::default()).unwrap();

    // What rests on the queue keeps the kernel from destroying it.
    let error = cq.try_destroy().unwrap_err();
    assert!(matches!(error.cause, DestroyErrorCause::Busy { .. }));
    let cq = error.into_object().unwrap();
    qp.destroy().unwrap();
    srq.destroy().unwrap();
    wq.destroy().unwrap();
    let other = cq.clone();
    cq.destroy().unwrap();
    assert_eq!(other.poll(&mut []).unwrap_err(), PollError::Destroyed);
    drop((other, pd, context));
    assert!(device.live().is_nothing());
}

#[test]
fn a_work_queue_that_breaks_is_named_by_its_event_and_gated_by_its_ack() {
    let (device, context, pd, cq) = bare();
    let events = context.events();
    let (wq, other) = (work_queue(&pd, &cq), work_queue(&pd, &cq));
    assert_ne!((wq.id(), wq.wq_num()), (other.id(), other.wq_num()));
    assert!(device.raise_wq(&wq, AsyncEventKind::WqFatal));
    let event = events.try_next().unwrap().unwrap();
    assert_eq!(event.kind(), AsyncEventKind::WqFatal);
    assert!(matches!(event.subject(), Subject::Wq(found) if *found == wq));
    assert_eq!(
        event.subject().to_string(),
        format!("work queue {}", wq.wq_num())
    );
    let counts = wq.event_counts();
    assert_eq!((counts.delivered, counts.outstanding), (1, 1));
    assert_eq!(other.event_counts().delivered, 0);

    // Refused before the kernel is asked, with the number; nothing has changed.
    let error = wq.try_destroy().unwrap_err();
    assert_eq!(
        error.cause,
        DestroyErrorCause::Outstanding { outstanding: 1 }
    );
    let wq = error.into_object().unwrap();
    assert_eq!(device.live().wqs, 2);

    // `destroy` waits for the ack.
    let (sender, destroyed) = mpsc::channel();
    let destroyer = thread::spawn(move || sender.send(wq.destroy().is_ok()));
    assert!(destroyed.recv_timeout(SOON).is_err(), "an ack is missing");
    event.ack();
    assert_eq!(destroyed.recv_timeout(TOO_LONG), Ok(true));
    destroyer.join().unwrap().unwrap();

    // `destroy_timeout` gives the wait up.
    assert!(device.raise_wq(&other, AsyncEventKind::WqFatal));
    let event = events.try_next().unwrap().unwrap();
    let error = other.destroy_timeout(SOON).unwrap_err();
    assert_eq!(error.cause, DestroyErrorCause::StillHeld { outstanding: 1 });
    drop((event, context, pd, cq, events));
    assert!(device.live().is_nothing());
}

#[test]
fn the_last_handle_of_a_work_queue_may_go_with_its_event() {
    let (device, context, pd, cq) = bare();
    let wq = work_queue(&pd, &cq);
    assert!(device.raise_wq(&wq, AsyncEventKind::WqFatal));
    let event = context.events().try_next().unwrap().unwrap();
    drop(wq);
    assert_eq!(device.live().wqs, 1, "held by its event");
    drop(event);
    assert_eq!(device.live().wqs, 0);
}

#[test]
fn where_there_are_no_work_queues_it_is_said() {
    // rxe's provider has none.
    let fabric = Fabric::new();
    let context = fabric.add_device("rxe0").open().unwrap();
    let pd = context.alloc_pd().unwrap();
    let cq = context.create_cq(4).build().unwrap();
    let error = pd.create_wq(&cq, 4).build().unwrap_err();
    let CreateErrorCause::Refused(ProviderCreateError::Command(command)) = error.cause else {
        panic!("{error}");
    };
    assert!(matches!(command.cause, Cause::Unsupported(_)), "{error}");
    assert!(error.to_string().contains("not supported"), "{error}");

    let (device, context, pd, cq) = bare();
    let error = pd.create_wq(&cq, 0).build().unwrap_err();
    assert_eq!(error.cause, CreateErrorCause::Zero { what: "max_wr" });
    let stranger = device.open().unwrap().create_cq(4).build().unwrap();
    let error = pd.create_wq(&stranger, 4).build().unwrap_err();
    assert!(matches!(error.cause, CreateErrorCause::OtherContext { .. }));
    let gone = context.create_cq(4).build().unwrap();
    gone.clone().destroy().unwrap();
    let error = pd.create_wq(&gone, 4).build().unwrap_err();
    assert!(matches!(error.cause, CreateErrorCause::Destroyed { .. }));
    drop((gone, stranger, context));
    assert_eq!(device.live().wqs, 0);
}

#[test]
fn a_work_queue_goes_with_its_device_and_its_destroy_is_told_the_count() {
    let (device, context, pd, cq) = bare();
    let wq = work_queue(&pd, &cq);
    assert!(device.raise_wq(&wq, AsyncEventKind::WqFatal));
    let events = context.events();
    let event = events.try_next().unwrap().unwrap();
    device.remove();
    let error = wq.destroy_timeout(SOON).unwrap_err();
    assert_eq!(error.cause, DestroyErrorCause::StillHeld { outstanding: 1 });
    drop(event);
    let error = pd.create_wq(&cq, 4).build().unwrap_err();
    assert!(error.to_string().contains("gone"), "{error}");
    drop((cq, pd, context, events));
    assert!(device.live().is_nothing());
}

#[test]
fn a_work_queue_that_finds_no_room_tells_how_many_there_may_be() {
    let (device, context, pd, cq) = bare();
    device.fail_next("WQ_CREATE", Errno::ENOMEM);
    let error = pd.create_wq(&cq, 16).build().unwrap_err();
    assert_eq!(error.errno(), Some(Errno::ENOMEM));
    let most = context.query_device().unwrap().max_wq_type_rq;
    assert!(most > 0);
    let told = format!("; no room: the device has max_wq_type_rq {most} in all");
    assert!(error.to_string().ends_with(&told), "{error}");
    // A size that is above the device's is named instead.
    device.fail_next("WQ_CREATE", Errno::EINVAL);
    let error = pd.create_wq(&cq, 1 << 30).build().unwrap_err();
    let told = format!("; max_wr {} was asked for, the device has ", 1 << 30);
    assert!(error.to_string().contains(&told), "{error}");
    assert!(!error.to_string().contains("in all"), "{error}");
}
