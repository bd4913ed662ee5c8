//! A doorbell that is held back over several posts: rung once, whatever happens in between.

#![allow(clippy::unwrap_used, reason = "a test may fail")]

mod support;

use support::{Pair, pair};
use uverbs::fake::FakeDevice;
use uverbs::{
    AccessFlags, ConnectOptions, Errno, Explain, MemoryRegion, PageBuf, PathOptions, PostCause,
    QpAttr, QpState, Rc, RemoteAddr, SendWr, WcStatus,
};

/// A pair, and a place at the second end that the first one may write to.
fn stage() -> (Pair, MemoryRegion<PageBuf>, RemoteAddr) {
    let pair = pair();
    let rights = AccessFlags::LOCAL_WRITE | AccessFlags::REMOTE_WRITE;
    let region = pair.b.pd.allocate(64, rights).unwrap();
    let remote = region.remote(0).unwrap();
    pair.a.device.forget_calls();
    (pair, region, remote)
}

/// How often a doorbell has been rung since the last time that this was asked.
fn rung(device: &FakeDevice) -> usize {
    let calls = device.calls();
    device.forget_calls();
    calls.iter().filter(|call| **call == "POST_SEND").count()
}

/// A request that writes its number at the peer.
fn write(id: u64, remote: RemoteAddr) -> SendWr<'static> {
    let bytes: &[u8] = match id {
        1 => &[1],
        2 => &[2],
        3 => &[3],
        _ => &[0],
    };
    SendWr::write_inline(id, bytes, remote).signaled()
}

fn good(ids: impl IntoIterator<Item = u64>) -> Vec<(u64, WcStatus)> {
    ids.into_iter().map(|id| (id, WcStatus::Success)).collect()
}

#[test]
fn several_posts_are_told_of_once() {
    let (pair, region, remote) = stage();
    let a = &pair.a;
    let mut sends = a.qp.exclusive_send().unwrap();
    let mut held = sends.hold_doorbell();
    held.post_send(&[write(1, remote)]).unwrap();
    held.post_send(&[write(2, remote), write(3, remote)])
        .unwrap();
    held.post_send(&[]).unwrap();
    assert_eq!((rung(&a.device), a.completions()), (0, vec![]));
    held.ring().unwrap();
    assert_eq!((rung(&a.device), a.completions()), (1, good(1..=3)));
    assert_eq!(region.to_vec(..1).unwrap(), [3]);
    // A post of the ordinary kind tells at once, as ever.
    sends.post_send(&[write(0, remote)]).unwrap();
    assert_eq!((rung(&a.device), a.completions()), (1, good([0])));
}

#[test]
fn letting_go_rings_and_nothing_posted_rings_nothing() {
    let (pair, _region, remote) = stage();
    let a = &pair.a;
    let mut sends = a.qp.exclusive_send().unwrap();
    let mut held = sends.hold_doorbell();
    held.post_send(&[write(1, remote)]).unwrap();
    drop(held);
    assert_eq!((rung(&a.device), a.completions()), (1, good([1])));
    sends.hold_doorbell().ring().unwrap();
    drop(sends.hold_doorbell());
    drop(sends);
    assert_eq!(rung(&a.device), 0);
}

#[test]
fn what_was_forgotten_is_told_when_the_queue_comes_back() {
    let (pair, _region, remote) = stage();
    let a = &pair.a;
    let mut sends = a.qp.exclusive_send().unwrap();
    let mut held = sends.hold_doorbell();
    held.post_send(&[write(1, remote)]).unwrap();
    std::mem::forget(held);
    assert_eq!((rung(&a.device), a.completions()), (0, vec![]));
    drop(sends);
    assert_eq!((rung(&a.device), a.completions()), (1, good([1])));
}

#[test]
fn a_bad_request_lets_those_before_it_be_told_of() {
    let (pair, _region, remote) = stage();
    let a = &pair.a;
    let mut sends = a.qp.exclusive_send().unwrap();
    let mut held = sends.hold_doorbell();
    let too_long = [0; 1000];
    let error = held
        .post_send(&[write(1, remote), SendWr::send_inline(2, &too_long)])
        .unwrap_err();
    assert!(matches!(error.cause, PostCause::InlineTooLong { .. }) && error.accepted == 1);
    assert_eq!(rung(&a.device), 0);
    held.ring().unwrap();
    assert_eq!((rung(&a.device), a.completions()), (1, good([1])));
}

#[test]
fn a_doorbell_that_is_refused_says_how_much_it_was_for_and_is_made_up_for() {
    let (pair, _region, remote) = stage();
    let a = &pair.a;
    let mut sends = a.qp.exclusive_send().unwrap();
    let mut held = sends.hold_doorbell();
    held.post_send(&[write(1, remote)]).unwrap();
    held.post_send(&[write(2, remote)]).unwrap();
    a.device.fail_always("POST_SEND", Errno::ENOMEM);
    let error = held.ring().unwrap_err();
    assert!(matches!(error.cause, PostCause::Doorbell(_)) && error.accepted == 2);
    a.device.clear_faults();
    assert_eq!(a.completions(), []);
    sends.post_send(&[write(3, remote)]).unwrap();
    assert_eq!(a.completions(), good(1..=3));

    // One that would have got through at the second try is not tried a second time unheard.
    let mut held = sends.hold_doorbell();
    held.post_send(&[write(4, remote)]).unwrap();
    a.device.forget_calls();
    a.device.fail_next("POST_SEND", Errno::EAGAIN);
    assert_eq!(held.ring().unwrap_err().accepted, 1);
    assert_eq!((rung(&a.device), a.completions()), (1, vec![]));
    sends.post_send(&[write(5, remote)]).unwrap();
    assert_eq!(a.completions(), good(4..=5));
}

#[test]
fn without_a_device_it_says_so() {
    let (pair, _region, remote) = stage();
    let a = &pair.a;
    let mut sends = a.qp.exclusive_send().unwrap();
    let mut held = sends.hold_doorbell();
    held.post_send(&[write(1, remote)]).unwrap();
    a.device.remove();
    let error = held.ring().unwrap_err();
    assert_eq!((error.accepted, error.cause), (1, PostCause::DeviceGone));
    let error = sends
        .hold_doorbell()
        .post_send(&[write(2, remote)])
        .unwrap_err();
    assert_eq!((error.accepted, error.cause), (0, PostCause::DeviceGone));
}

#[test]
fn it_needs_a_queue_pair_that_sends() {
    let (pair, _region, remote) = stage();
    let a = &pair.a;
    let idle = a.pd.create_qp::<Rc>(&a.cq, &a.cq).build().unwrap();
    let mut sends = idle.exclusive_send().unwrap();
    let mut held = sends.hold_doorbell();
    let error = held.post_send(&[write(1, remote)]).unwrap_err();
    assert!(matches!(error.cause, PostCause::WrongState { .. }) && error.accepted == 0);
    held.ring().unwrap();
}

#[test]
fn what_a_reset_has_dropped_is_told_to_nobody() {
    let (pair, _region, remote) = stage();
    let a = &pair.a;
    let mut sends = a.qp.exclusive_send().unwrap();
    let mut held = sends.hold_doorbell();
    held.post_send(&[write(1, remote), write(2, remote)])
        .unwrap();
    a.qp.modify(&QpAttr::to_state(QpState::Reset)).unwrap();
    let error = held.ring().unwrap_err();
    assert!(matches!(error.cause, PostCause::WrongState { .. }) && error.accepted == 0);
    let here = a.qp.prepare(&PathOptions::default()).unwrap();
    a.qp.connect(&here, &here, &ConnectOptions::default())
        .unwrap();
    sends.hold_doorbell().ring().unwrap();
    assert_eq!((rung(&a.device), a.completions()), (0, vec![]));
}

#[test]
fn a_queue_full_of_what_is_held_is_emptied_by_ringing() {
    let (pair, _region, remote) = stage();
    let a = &pair.a;
    let mut sends = a.qp.exclusive_send().unwrap();
    let mut held = sends.hold_doorbell();
    let unsignaled = SendWr::write_inline(0, &[], remote);
    let error = loop {
        if let Err(error) = held.post_send(&[unsignaled]) {
            break error;
        }
    };
    assert_eq!((error.accepted, error.cause), (0, PostCause::QueueFull));
    let text = error.report().to_string();
    assert!(
        text.contains("\n  cause: the doorbell is held back"),
        "{text}"
    );
    assert_eq!(rung(&a.device), 0);
    held.ring().unwrap();
    sends.post_send(&[write(1, remote)]).unwrap();
    assert_eq!((rung(&a.device), a.completions()), (2, good([1])));
}
