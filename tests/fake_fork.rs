//! A forked child that has inherited everything: each of its calls says so, and whatever it drops,
//! the parent does not notice.

#![allow(clippy::unwrap_used, reason = "a test may fail")]
#![allow(unsafe_code, reason = "forks")]

mod support;

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use support::{End, Pair, pair};
use uverbs::event::EventError;
use uverbs::{
    AccessFlags, Arm, AsyncEventKind, Cause, CompletionChannel, CompletionEvent, ConnectOptions,
    PathOptions, PollError, PostCause, Rc, RecvWr, SendWr, TakeCause, Wc, WcStatus,
};

/// What a child finds; true if all is as it should be.
fn child(pair: Pair) -> bool {
    let Pair { a, b, .. } = pair;
    let mut right = true;
    let mut check = |is_right: bool| right &= is_right;
    let send = a.qp.post_send(&[SendWr::send_inline(1, b"no")]);
    check(send.unwrap_err().cause == PostCause::ForeignProcess);
    let recv = b.qp.post_recv(&[RecvWr::new(1, &[])]);
    check(recv.unwrap_err().cause == PostCause::ForeignProcess);
    check(a.cq.poll(&mut [Wc::default()]) == Err(PollError::ForeignProcess));
    check(matches!(
        a.context.events().try_next(),
        Err(EventError::ForeignProcess)
    ));
    let query = a.context.query_port(1).unwrap_err();
    check(query.source.cause == Cause::ForeignProcess);
    let queue = a.context.event_queue().unwrap_err();
    check(queue.to_string().contains("inherited through fork()"));
    let destroyed = a.qp.clone().destroy().unwrap_err().to_string();
    check(destroyed.contains("inherited through fork()"));
    drop((a, b));
    right
}

/// Gives a copy of everything to a forked child; `child` must find what it should there. Gives the
/// parent's back.
fn in_child<T>(things: T, child: impl FnOnce(T) -> bool) -> T {
    // SAFETY: the child runs code of this test's own, takes no lock that a thread of the parent
    // could have held (the test harness and the readers only wait), and ends by `_exit`.
    let id = unsafe { libc::fork() };
    assert!(id >= 0);
    if id == 0 {
        let right = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| child(things)));
        // SAFETY: ends the child at once, running nothing of the parent's.
        unsafe { libc::_exit(i32::from(!matches!(right, Ok(true)))) };
    }
    let mut status = 0;
    // SAFETY: `status` is writable; the child is ours and waited for once.
    assert_eq!(unsafe { libc::waitpid(id, &raw mut status, 0) }, id);
    assert_eq!(status, 0, "the child found something else");
    things
}

#[test]
#[cfg_attr(miri, ignore = "Miri cannot fork")]
fn a_child_that_drops_everything_does_not_disturb_readers_that_wait_nor_acks() {
    let pair = pair();
    let device = pair.a.device.clone();
    let queue = pair.a.context.event_queue().unwrap();
    let cq = pair.a.context.create_cq(4).events(&queue).build().unwrap();
    let events = pair.a.context.events();
    assert!(device.raise_cq(&cq, AsyncEventKind::CqErr));
    let held = queue.try_next().unwrap().unwrap();
    // Both queues have a reader that waits.
    let limit = Duration::from_secs(20);
    let waiters = [queue.clone(), events.clone()].map(|events| {
        thread::spawn(move || {
            let event = events.next_timeout(limit);
            event.map(|event| event.map(|event| event.kind()))
        })
    });
    thread::sleep(Duration::from_millis(30));
    let (pair, queue, cq, held, events) = in_child((pair, queue, cq, held, events), |things| {
        let (pair, queue, cq, held, events) = things;
        queue.stop();
        drop((held, cq, queue, events, pair));
        true
    });
    assert_eq!(cq.event_counts().outstanding, 1, "the child has not acked");
    for waiter in &waiters {
        assert!(!waiter.is_finished(), "nor woken anyone");
    }
    device.raise_port(AsyncEventKind::PortErr, 1);
    for waiter in waiters {
        assert_eq!(waiter.join().unwrap(), Ok(Some(AsyncEventKind::PortErr)));
    }
    drop(held);
    cq.destroy().unwrap();
    drop((pair, queue, events));
    assert!(device.live().is_nothing());
}

#[test]
#[cfg_attr(miri, ignore = "Miri cannot fork")]
fn a_child_is_told_and_does_no_harm() {
    let pair = pair();
    let region = pair.b.pd.allocate(8, AccessFlags::LOCAL_WRITE).unwrap();
    let sge = [region.slice(..).unwrap()];
    pair.b.qp.post_recv(&[RecvWr::new(2, &sge)]).unwrap();
    pair.a.device.raise_qp(&pair.a.qp, AsyncEventKind::CommEst);
    let Pair { a, b, .. } = in_child(pair, child);
    let event = a.context.events().try_next().unwrap().unwrap();
    assert_eq!(event.kind(), AsyncEventKind::CommEst);
    a.qp.post_send(&[SendWr::send_inline(1, b"parent").signaled()])
        .unwrap();
    assert_eq!(
        (a.status(), b.status()),
        ((1, WcStatus::Success), (2, WcStatus::Success))
    );
    assert_eq!(region.to_vec(..6).unwrap(), b"parent");
    assert_eq!(a.device.live().qps, 1);
}

/// A channel with an event that is held and one that is unread.
fn told(end: &End) -> (CompletionChannel, CompletionEvent) {
    let channel = end.context.create_completion_channel().unwrap();
    let cq = end
        .context
        .create_cq(8)
        .channel(&channel, 0)
        .build()
        .unwrap();
    let qp = end.pd.create_qp::<Rc>(&cq, &cq).build().unwrap();
    let here = qp.prepare(&PathOptions::default()).unwrap();
    qp.connect(&here, &here, &ConnectOptions::default())
        .unwrap();
    let message = || {
        cq.arm(Arm::Next).unwrap();
        qp.post_recv(&[RecvWr::new(1, &[])]).unwrap();
        qp.post_send(&[SendWr::send_inline(2, &[]).signaled()])
            .unwrap();
    };
    message();
    let held = channel.try_next().unwrap().unwrap();
    message();
    qp.destroy().unwrap();
    (channel, held)
}

#[test]
#[cfg_attr(miri, ignore = "Miri cannot fork")]
fn a_child_takes_no_completion_event_acks_none_and_stops_nobody() {
    let Pair { a, .. } = pair();
    let things = told(&a);
    let (channel, held) = in_child(things, |(channel, held)| {
        let mut right = matches!(channel.try_next(), Err(EventError::ForeignProcess));
        right &= a.context.create_completion_channel().is_err();
        right &= held.cq().wait(&mut [Wc::default()]).is_err();
        channel.stop();
        drop((channel, held));
        right
    });
    let cq = held.cq().clone();
    assert!(channel.try_next().unwrap().is_some());
    assert_eq!(cq.completion_event_counts().outstanding, 1);
    drop(held);
    assert_eq!(cq.completion_event_counts().outstanding, 0);
    cq.destroy().unwrap();
}

#[test]
#[cfg(feature = "tokio")]
#[cfg_attr(miri, ignore = "Miri cannot fork")]
fn a_child_that_drops_streams_does_not_make_its_parent_deaf() {
    use uverbs::stream::{AsyncEventStream, CompletionStream};

    let Pair { a, b, .. } = pair();
    let channel = a.context.create_completion_channel().unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let streams = runtime.block_on(async {
        let completions = CompletionStream::new(&channel).unwrap();
        (
            AsyncEventStream::new(&a.context.events()).unwrap(),
            completions,
        )
    });
    let (mut events, completions) = in_child(streams, |streams| {
        drop(streams);
        true
    });
    let device = a.device.clone();
    let raiser = thread::spawn(move || {
        thread::sleep(Duration::from_millis(30));
        device.raise_port(AsyncEventKind::SmChange, 1);
    });
    let began = std::time::Instant::now();
    // When the time is up it is looked for an event once more, whether anybody was woken or not.
    let limit = Duration::from_secs(20);
    let event = runtime.block_on(async { tokio::time::timeout(limit, events.next()).await });
    assert!(event.is_ok() && began.elapsed() < limit, "it is deaf");
    raiser.join().unwrap();
    drop((completions, b));
}

#[test]
#[cfg_attr(miri, ignore = "Miri cannot fork")]
fn a_child_of_a_busy_process_waits_for_no_lock_that_a_thread_held() {
    struct Ends<'o>(&'o AtomicBool);
    impl Drop for Ends<'_> {
        fn drop(&mut self) {
            self.0.store(true, Ordering::Relaxed);
        }
    }
    let mut pair = pair();
    let over = AtomicBool::new(false);
    let (cq, pd, context) = (pair.a.cq.clone(), pair.a.pd.clone(), pair.a.context.clone());
    let pair = thread::scope(|scope| {
        let _ends = Ends(&over);
        let until_over = |busy: &dyn Fn()| {
            while !over.load(Ordering::Relaxed) {
                busy();
            }
        };
        let (cq, pd, context) = (&cq, &pd, &context);
        scope.spawn(move || until_over(&|| drop(cq.poll(&mut [Wc::default()]))));
        scope.spawn(move || until_over(&|| drop(cq.exclusive())));
        scope.spawn(move || {
            until_over(&|| {
                let own = context.create_cq(4).build().unwrap();
                drop(pd.create_qp::<Rc>(&own, &own).build().unwrap());
                own.destroy().unwrap();
            });
        });
        for _ in 0..60 {
            pair = in_child(pair, |pair| {
                // SAFETY: sets a timer of this process, whose signal ends it.
                unsafe { libc::alarm(20) };
                let taken = pair.a.cq.exclusive().map(drop);
                let of_child = taken.unwrap_err().cause == TakeCause::ForeignProcess;
                format!("{:?}", pair.a.cq).contains("depth") && of_child && child(pair)
            });
        }
        pair
    });
    assert!(pair.a.cq.poll(&mut [Wc::default()]).unwrap().is_empty());
}
