//! File descriptors of this process: who has one, from when, and until when. A test binary of its own,
//! with one test, since they are the whole process's.

#![cfg(all(feature = "fake", feature = "tokio"))]
#![allow(clippy::unwrap_used, reason = "a test may fail")]

mod support;

use std::time::Duration;

use support::channel::{A_WHILE, Loop, on_thread};
use uverbs::stream::CompletionStream;
use uverbs::{WaitError, Wc};

fn count() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}

#[test]
#[cfg_attr(miri, ignore = "Miri knows no poll(2)")]
fn a_queue_has_a_descriptor_once_it_was_waited_for_and_none_is_left_behind() {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let before = count();
    let it = Loop::new();
    let made = count();

    // Polling, arming and reading events take none; nor does a wait that finds something.
    let cq = it.queue();
    cq.arm(uverbs::Arm::Next).unwrap();
    assert!(it.event().is_none());
    it.send(support::channel::plain());
    it.sends.wait(&mut [Wc::default()]).unwrap();
    assert_eq!(count(), made);

    // The first wait that finds nothing makes one, however many come then, and it goes with the queue.
    for _ in 0..3 {
        let mut room = [Wc::default()];
        let none = cq.wait_timeout(&mut room, Duration::ZERO);
        assert!(none.unwrap().is_empty());
        assert_eq!(count(), made + 1);
    }
    let waiters = [cq.clone(), cq.clone()]
        .map(|cq| on_thread(move || cq.wait(&mut [Wc::default()]).map(drop)));
    waiters.iter().for_each(|waiter| waiter.goes_on());
    assert_eq!(count(), made + 1);
    cq.destroy().unwrap();
    for waiter in waiters {
        assert!(matches!(waiter.ends(), Err(WaitError::Destroyed)));
    }
    // The threads have dropped their handles before they said so, or are about to.
    let began = std::time::Instant::now();
    while count() != made {
        assert!(began.elapsed() < support::channel::SOON, "one is left");
        std::thread::yield_now();
    }

    // A stream lets go of one queue's when it waits for another's, or for the channel's events.
    runtime.block_on(async {
        let mut stream = CompletionStream::new(&it.channel).unwrap();
        let with_stream = count();
        let mut room = [Wc::default()];
        for _ in 0..3 {
            let cq = it.queue();
            let wait = stream.wait(&cq, &mut room);
            assert!(tokio::time::timeout(A_WHILE, wait).await.is_err());
            assert_eq!(count(), with_stream + 1);
        }
        assert!(tokio::time::timeout(A_WHILE, stream.next()).await.is_err());
        assert_eq!(count(), with_stream);
    });
    drop(it);
    assert_eq!(count(), before);
}
