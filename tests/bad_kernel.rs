//! What the kernel can get wrong, each with the message that tells it: records that are none, queues
//! that cannot be, indices that go bad, completions that do not come.

#![allow(clippy::unwrap_used, reason = "a test may fail")]

mod support;

use std::error::Error;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use support::{Pair, pair};
use uverbs::abi::layout::ids::attr;
use uverbs::abi::{Command, Kernel, Mapping};
use uverbs::event::EventError;
use uverbs::fake::{Fabric, FakeDevice, Spoil};
use uverbs::{
    AccessFlags, AsyncEventKind, Context, DestroyError, DestroyErrorCause, Errno, PollError,
    PostCause, Rc, RecvWr, SendWr, Wc,
};

fn device() -> FakeDevice {
    Fabric::new().add_device("rxe0")
}

/// The message of an error.
fn told<T: std::fmt::Debug, E: Error>(result: Result<T, E>) -> String {
    result.expect_err("is refused").to_string()
}

#[test]
fn an_event_record_that_is_none() {
    for len in [1, 8, 15] {
        let device = device();
        let context = device.open().unwrap();
        let reader = context.events();
        device.raise_port(AsyncEventKind::PortActive, 1);
        device.raise_bytes(&vec![7; len]);
        assert_eq!(
            reader.try_next().unwrap().unwrap().kind(),
            AsyncEventKind::PortActive
        );
        let error = reader.try_next().unwrap_err();
        assert_eq!(error, EventError::BadRecord { len });
        let text = format!("read {len} bytes where an event record has 16");
        assert!(error.to_string().starts_with(&text), "{error}");
        // It says so once, and goes on.
        assert!(reader.try_next().unwrap().is_none());
    }
}

#[test]
fn queues_that_the_kernel_describes_wrongly_are_refused_and_given_back() {
    let spoils = [
        Spoil::SlotSize(5),
        Spoil::SlotSize(17),
        Spoil::SlotSize(u32::MAX),
        Spoil::IndexMask(2),
        Spoil::IndexMask(u32::MAX),
        Spoil::IndexMask(0x7fff_ffff),
        Spoil::IndexMask(0),
        Spoil::Producer(0x1_0000),
        Spoil::Consumer(u32::MAX),
        Spoil::NoQueue,
        Spoil::Unmappable,
    ];
    let device = device();
    let context = device.open().unwrap();
    let pd = context.alloc_pd().unwrap();
    let cq = context.create_cq(4).build().unwrap();
    let before = device.live();
    for spoil in spoils {
        let check = |text: String, name: &str| {
            let is_told = match spoil {
                Spoil::Unmappable => text.contains("MMAP failed (EINVAL"),
                _ => text.contains(&format!("{name}: the queue that the kernel made is not as")),
            };
            assert!(is_told, "{spoil:?}: {text}");
            assert_eq!(device.live(), before, "{spoil:?}");
        };
        device.spoil_next_queue(spoil);
        check(told(context.create_cq(4).build()), "CQ_CREATE");
        device.spoil_next_queue(spoil);
        check(told(pd.create_srq(4).build()), "SRQ_CREATE");
        for skip in [0, 1] {
            device.spoil_queue_after(skip, spoil);
            check(told(pd.create_qp::<Rc>(&cq, &cq).build()), "QP_CREATE");
        }
    }
    context.create_cq(4).build().unwrap();
}

#[test]
fn indices_that_go_bad_in_use_are_told_and_nothing_is_read_or_written() {
    let Pair { a, .. } = pair();
    let region = a.pd.allocate(8, AccessFlags::LOCAL_WRITE).unwrap();
    let srq = a.pd.create_srq(4).build().unwrap();
    let sge = [region.slice(..).unwrap()];
    for bad in [64, 0x8000_0000, u32::MAX] {
        assert!(
            a.device
                .spoil_cq(a.cq.id(), Spoil::Producer(bad << 8 | bad))
        );
        assert_eq!(a.cq.poll(&mut [Wc::default()]), Err(PollError::CorruptRing));
        let consumer = Spoil::Consumer(bad << 8 | bad);
        assert!(a.device.spoil_srq(srq.id(), consumer));
        let wrs = [RecvWr::new(1, &sge); 9];
        let error = srq.post_recv(&wrs).unwrap_err();
        assert_eq!((error.accepted, error.cause), (0, PostCause::CorruptRing));
        let number = a.qp.qp_num().0;
        assert!(a.device.spoil_recv(number, consumer) && a.device.spoil_send(number, consumer));
        let wrs = [RecvWr::new(1, &sge); 200];
        let error = a.qp.post_recv(&wrs).unwrap_err();
        assert_eq!((error.accepted, error.cause), (0, PostCause::CorruptRing));
        let wrs = [SendWr::send_inline(1, b""); 200];
        let error = a.qp.post_send(&wrs).unwrap_err();
        assert_eq!((error.accepted, error.cause), (0, PostCause::CorruptRing));
    }
    assert_eq!(
        told(a.cq.poll(&mut [Wc::default()])),
        "the completion queue's indices are out of range; destroy it"
    );
    a.qp.destroy().unwrap();
    a.cq.destroy().unwrap();
    srq.destroy().unwrap();
}

#[test]
fn completions_that_are_lost_or_late() {
    let Pair { a, b, .. } = pair();
    let theirs = AccessFlags::LOCAL_WRITE | AccessFlags::REMOTE_WRITE;
    let theirs = b.pd.allocate(8, theirs).unwrap();
    let remote = theirs.remote(0).unwrap();
    let write = |id| {
        a.qp.post_send(&[SendWr::write_inline(id, b"x", remote).signaled()])
    };
    a.device.lose_completions(1);
    write(1).unwrap();
    write(2).unwrap();
    assert_eq!(a.status().0, 2);
    a.nothing();
    a.device.hold_completions(true);
    write(3).unwrap();
    write(4).unwrap();
    a.nothing();
    a.device.hold_completions(false);
    assert_eq!((a.status().0, a.status().0), (3, 4));
    a.nothing();
}

#[test]
#[cfg_attr(miri, ignore = "leaks a buffer, as it must")]
fn a_registration_that_may_have_been_made_keeps_its_memory() {
    let device = device();
    let context = device.open().unwrap();
    let pd = context.alloc_pd().unwrap();
    device.leave_unanswered("REG_MR");
    let error = pd.allocate(64, AccessFlags::LOCAL_WRITE).unwrap_err();
    assert!(error.buffer.is_none());
    let text = error.to_string();
    assert!(
        text.contains("REG_MR: the kernel's reply is incomplete"),
        "{text}"
    );
    assert_eq!(context.leaked_bytes(), 64);
    // It goes with the open file.
    assert_eq!(device.live().mrs, 1);
    drop((pd, context));
    assert!(device.live().is_nothing());
}

#[test]
fn a_destroy_whose_reply_is_cut_short_has_destroyed_and_takes_no_successor_along() {
    fn is_cut_short<T: std::fmt::Debug>(result: Result<(), DestroyError<T>>) {
        let error = result.unwrap_err();
        let text = error.to_string();
        assert!(text.contains("the kernel's reply is incomplete"), "{text}");
        assert!(error.into_object().is_none());
    }

    let device = device();
    let context = device.open().unwrap();
    let pd = context.alloc_pd().unwrap();
    let cq = || context.create_cq(4).build().unwrap();
    let srq = || pd.create_srq(4).build().unwrap();

    let (first, held) = (cq(), cq());
    device.leave_unanswered("CQ_DESTROY");
    let other = first.clone();
    is_cut_short(first.destroy());
    // It has the handle of the one that is gone.
    let successor = cq();
    assert_eq!(successor.id(), other.id());
    let refused = other.poll(&mut [Wc::default()]).unwrap_err();
    assert_eq!(refused, PollError::Destroyed);
    drop(other);
    successor.destroy().unwrap();

    device.leave_unanswered("SRQ_DESTROY");
    let first = srq();
    let other = first.clone();
    is_cut_short(first.destroy());
    let successor = srq();
    assert_eq!(successor.id(), other.id());
    drop(other);
    successor.destroy().unwrap();

    let qp = || pd.create_qp::<Rc>(&held, &held).build().unwrap();
    device.leave_unanswered("QP_DESTROY");
    let first = qp();
    let other = first.clone();
    is_cut_short(first.destroy());
    let successor = qp();
    let posted = other.post_send(&[SendWr::send_inline(1, &[])]);
    assert_eq!(posted.unwrap_err().cause, PostCause::Destroyed);
    drop(other);
    successor.destroy().unwrap();
    assert_eq!((device.live().cqs, device.live().qps), (1, 0));
}

/// A kernel that says of every completion queue that so many of its events were read, of either sort.
#[derive(Debug)]
struct Miscounts {
    inner: Arc<dyn Kernel>,
    says: AtomicU32,
}

impl Kernel for Miscounts {
    fn ioctl(&self, driver: u32, command: &mut Command<'_>) -> Result<(), Errno> {
        let result = self.inner.ioctl(driver, command);
        if command.name() == "CQ_DESTROY" {
            let says = self.says.load(Ordering::Relaxed).to_ne_bytes();
            command.answer(attr::cq_destroy::RESP.id(), &[says, says].concat());
        }
        result
    }

    fn write(&self, frame: &mut [u8], response: &mut [u8]) -> Result<(), Errno> {
        self.inner.write(frame, response)
    }

    fn map(&self, offset: u64, len: usize) -> Result<Mapping, Errno> {
        self.inner.map(offset, len)
    }
}

#[test]
fn a_destroy_with_a_wrong_count_waits_for_no_more_than_is_missing() {
    let device = device();
    let kernel = Arc::new(Miscounts {
        inner: device.kernel(),
        says: AtomicU32::new(0),
    });
    let as_kernel: Arc<dyn Kernel> = Arc::clone(&kernel) as _;
    let context = Context::on_kernel(as_kernel, "rxe0", Path::new("/dev/null"), 2).unwrap();
    let reader = context.events();
    let event = || reader.try_next().unwrap().unwrap();
    let queue = || {
        let cq = context.create_cq(4).build().unwrap();
        assert!(device.raise_cq(&cq, AsyncEventKind::CqErr));
        cq
    };

    // Fewer than were acked, by one and by very many; and fewer than are held.
    for says in [0, u32::MAX, (1 << 31) + 1] {
        kernel.says.store(says, Ordering::Relaxed);
        let cq = queue();
        drop(event());
        cq.destroy().unwrap();
    }
    kernel.says.store(0, Ordering::Relaxed);
    let cq = queue();
    let held = event();
    cq.clone().destroy().unwrap();
    assert_eq!(cq.event_counts().outstanding, 1);
    drop(held);
    assert_eq!(cq.event_counts().outstanding, 0);

    kernel.says.store(3, Ordering::Relaxed);
    let cq = queue();
    drop(event());
    // More than were read: said when the time is up, and then it is over.
    let error = cq.destroy_timeout(Duration::from_millis(1)).unwrap_err();
    let DestroyErrorCause::StillHeld { outstanding } = error.cause else {
        panic!("{error}")
    };
    assert_eq!(outstanding, 2 + 3, "of both sorts");
    assert!(error.into_object().is_none());
    assert_eq!(device.live().cqs, 0);
}
