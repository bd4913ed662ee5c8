//! The streams of feature `tokio` on the fake kernel, on a runtime of one thread and on one of several.

#![cfg(all(feature = "tokio", feature = "fake"))]
#![allow(clippy::unwrap_used, reason = "a test may fail")]

use std::future::Future;
use std::time::{Duration, Instant};

use tokio::runtime::Builder;
use tokio::time::timeout;
use uverbs::event::EventError;
use uverbs::fake::{Fabric, FakeDevice};
use uverbs::stream::{AsyncEventStream, CompletionStream};
use uverbs::{
    Arm, AsyncEventKind, CompletionChannel, CompletionQueue, ConnectOptions, Context, Errno,
    PathOptions, PollError, QueuePair, Rc, RecvWr, SendWr, Subject, WaitError, Wc,
};

const TOO_LONG: Duration = Duration::from_secs(20);
const A_WHILE: Duration = Duration::from_millis(30);

/// Runs it on both kinds of runtime.
fn on_both<F: Future<Output = ()>>(test: impl Fn() -> F) {
    for mut builder in [Builder::new_current_thread(), Builder::new_multi_thread()] {
        let runtime = builder.worker_threads(2).enable_all().build().unwrap();
        runtime.block_on(async { timeout(TOO_LONG, test()).await.expect("it hangs") });
    }
}

/// A queue pair that is its own peer, on a queue with a channel.
#[derive(Clone)]
struct Loop {
    device: FakeDevice,
    context: Context,
    channel: CompletionChannel,
    cq: CompletionQueue,
    qp: QueuePair<Rc>,
}

impl Loop {
    fn new() -> Self {
        let device = Fabric::new().add_device("rxe0");
        let context = device.open().unwrap();
        let channel = context.create_completion_channel().unwrap();
        let cq = context.create_cq(256).channel(&channel, 0).build().unwrap();
        let pd = context.alloc_pd().unwrap();
        let qp = pd
            .create_qp::<Rc>(&cq, &cq)
            .max_send_wr(100)
            .max_recv_wr(100)
            .build()
            .unwrap();
        let here = qp.prepare(&PathOptions::default()).unwrap();
        qp.connect(&here, &here, &ConnectOptions::default())
            .unwrap();
        Self {
            device,
            context,
            channel,
            cq,
            qp,
        }
    }

    /// Two completions for each message.
    fn send(&self, count: u64) {
        for id in 0..count {
            self.qp.post_recv(&[RecvWr::new(id, &[])]).unwrap();
            let wr = SendWr::send_inline(id, &[]).signaled();
            self.qp.post_send(&[wr]).unwrap();
        }
    }

    fn raise(&self) {
        self.device.raise_port(AsyncEventKind::SmChange, 1);
    }
}

#[test]
fn outside_of_a_runtime_there_is_an_error_and_no_panic() {
    let it = Loop::new();
    assert!(CompletionStream::new(&it.channel).is_err());
    assert!(AsyncEventStream::new(&it.context.events()).is_err());
}

#[test]
fn what_was_queued_before_the_first_look_is_drained_after_one_edge() {
    on_both(|| async {
        let it = Loop::new();
        for _ in 0..5 {
            it.raise();
        }
        let mut stream = AsyncEventStream::new(&it.context.events()).unwrap();
        for _ in 0..5 {
            let event = stream.next().await.unwrap().unwrap();
            assert!(matches!(event.subject(), Subject::Port(1)));
        }
        for _ in 0..5 {
            it.raise();
        }
        tokio::task::yield_now().await;
        for _ in 0..5 {
            drop(stream.next().await.unwrap().unwrap());
        }
        assert!(timeout(A_WHILE, stream.next()).await.is_err());
    });
}

#[test]
fn an_event_that_comes_while_the_stream_waits_wakes_it_every_time() {
    on_both(|| async {
        let it = Loop::new();
        let mut events = AsyncEventStream::new(&it.context.events()).unwrap();
        let mut completions = CompletionStream::new(&it.channel).unwrap();
        for round in 0..300 {
            it.cq.arm(Arm::Next).unwrap();
            let other = it.clone();
            let raising = std::thread::spawn(move || {
                if round % 3 == 0 {
                    std::thread::sleep(Duration::from_micros(200));
                }
                other.send(1);
                other.raise();
            });
            let event = completions.next().await.unwrap().unwrap();
            assert_eq!(*event.cq(), it.cq);
            drop(events.next().await.unwrap().unwrap());
            raising.join().unwrap();
            assert_eq!(it.cq.poll(&mut [Wc::default(); 4]).unwrap().len(), 2);
        }
    });
}

#[test]
fn a_future_that_is_dropped_loses_no_event() {
    on_both(|| async {
        const COUNT: u32 = 400;
        let it = Loop::new();
        let mut stream = AsyncEventStream::new(&it.context.events()).unwrap();
        let other = it.clone();
        let raising = std::thread::spawn(move || {
            for at in 0..COUNT {
                other.raise();
                if at % 8 == 0 {
                    std::thread::sleep(Duration::from_micros(300));
                }
            }
        });
        let (mut seen, mut dropped) = (0, 0);
        let began = Instant::now();
        while seen < COUNT {
            // Given up at once if there is nothing.
            tokio::select! {
                biased;
                event = stream.next() => {
                    drop(event.unwrap().unwrap());
                    seen += 1;
                }
                () = tokio::task::yield_now() => dropped += 1,
            }
            assert!(began.elapsed() < TOO_LONG, "{seen} of {COUNT}");
        }
        raising.join().unwrap();
        assert!(dropped > 0);
        assert!(timeout(A_WHILE, stream.next()).await.is_err());
    });
}

#[test]
fn a_wait_that_is_dropped_loses_no_completion_and_no_ack() {
    on_both(|| async {
        const COUNT: usize = 200;
        let it = Loop::new();
        let mut stream = CompletionStream::new(&it.channel).unwrap();
        let other = it.clone();
        let sending = std::thread::spawn(move || {
            for at in 0..COUNT {
                other.send(1);
                if at % 8 == 0 {
                    std::thread::sleep(Duration::from_micros(300));
                }
            }
        });
        let mut seen = 0;
        while seen < 2 * COUNT {
            let mut room = [Wc::default(); 16];
            tokio::select! {
                biased;
                found = stream.wait(&it.cq, &mut room) => seen += found.unwrap().len(),
                () = tokio::task::yield_now() => {}
            }
        }
        sending.join().unwrap();
        assert_eq!(it.cq.completion_event_counts().outstanding, 0);
        it.qp.destroy().unwrap();
        it.cq.destroy().unwrap();
    });
}

#[test]
fn a_burst_larger_than_the_room_is_had_whole_by_waiting() {
    on_both(|| async {
        let it = Loop::new();
        let other = it.clone();
        let sender = tokio::spawn(async move {
            tokio::time::sleep(A_WHILE).await;
            other.send(48);
        });
        let mut stream = CompletionStream::new(&it.channel).unwrap();
        let mut seen = 0;
        while seen < 96 {
            let mut room = [Wc::default(); 16];
            seen += stream.wait(&it.cq, &mut room).await.unwrap().len();
        }
        sender.await.unwrap();
    });
}

#[test]
fn sixty_four_queues_on_one_channel_are_each_told_of() {
    on_both(|| async {
        let it = Loop::new();
        let pd = it.context.alloc_pd().unwrap();
        let mut queues = Vec::new();
        for _ in 0..64 {
            let cq = it.context.create_cq(8).channel(&it.channel, 0);
            let cq = cq.build().unwrap();
            let qp = pd.create_qp::<Rc>(&cq, &cq).build().unwrap();
            let here = qp.prepare(&PathOptions::default()).unwrap();
            qp.connect(&here, &here, &ConnectOptions::default())
                .unwrap();
            cq.arm(Arm::Next).unwrap();
            queues.push((cq, qp));
        }
        let mut stream = CompletionStream::new(&it.channel).unwrap();
        for round in 0..5 {
            for (_, qp) in &queues {
                qp.post_recv(&[RecvWr::new(round, &[])]).unwrap();
                qp.post_send(&[SendWr::send_inline(round, &[]).signaled()])
                    .unwrap();
            }
            let mut of = std::collections::HashMap::new();
            for _ in &queues {
                let event = stream.next().await.unwrap().unwrap();
                event.cq().arm(Arm::Next).unwrap();
                let mut room = [Wc::default(); 4];
                let count = event.cq().poll(&mut room).unwrap().len();
                *of.entry(event.cq().id()).or_insert(0) += count;
            }
            assert_eq!(of.len(), 64);
            assert!(of.values().all(|count| *count == 2));
        }
        for (cq, qp) in queues {
            qp.destroy().unwrap();
            cq.destroy().unwrap();
        }
    });
}

#[test]
fn streams_of_one_channel_share_its_events() {
    on_both(|| async {
        let it = Loop::new();
        let mut one = CompletionStream::new(&it.channel).unwrap();
        let mut two = CompletionStream::new(&it.channel).unwrap();
        for _ in 0..50 {
            it.cq.arm(Arm::Next).unwrap();
            it.send(1);
            tokio::select! {
                event = one.next() => drop(event.unwrap().unwrap()),
                event = two.next() => drop(event.unwrap().unwrap()),
            }
        }
        let counts = it.cq.completion_event_counts();
        assert_eq!((counts.delivered, counts.outstanding), (50, 0));
    });
}

/// What a stream that waits says when it is ended.
async fn ended<K>(end: impl FnOnce(Loop) -> K) -> [Option<EventError>; 2] {
    let it = Loop::new();
    let mut completions = CompletionStream::new(&it.channel).unwrap();
    let mut events = AsyncEventStream::new(&it.context.events()).unwrap();
    let waiting = tokio::spawn(async move {
        let first = completions.next().await;
        // Once, and then nothing for good.
        assert!(completions.next().await.is_none());
        first.map(|event| event.unwrap_err())
    });
    let reading = tokio::spawn(async move {
        loop {
            match events.next().await {
                Some(Ok(event)) => assert_eq!(event.kind(), AsyncEventKind::DeviceFatal),
                Some(Err(error)) => {
                    assert!(events.next().await.is_none());
                    return Some(error);
                }
                None => return None,
            }
        }
    });
    tokio::time::sleep(A_WHILE).await;
    assert!(!waiting.is_finished() && !reading.is_finished());
    let _kept = end(it);
    [waiting.await.unwrap(), reading.await.unwrap()]
}

#[test]
fn streams_end_with_a_stop_a_close_and_a_removal() {
    on_both(|| async {
        let stopped = ended(|it| {
            it.channel.stop();
            it.context.events().stop();
        });
        assert_eq!(stopped.await, [None, None]);
        assert_eq!(ended(drop).await, [None, None]);
        let gone = Some(EventError::DeviceGone);
        let removed = ended(|it| {
            it.device.remove();
            it
        });
        assert_eq!(removed.await, [gone, gone]);
    });
}

#[test]
fn the_end_of_a_channel_alone_wakes_its_stream() {
    on_both(|| async {
        let it = Loop::new();
        let mut stream = CompletionStream::new(&it.channel).unwrap();
        let waiting = tokio::spawn(async move { stream.next().await.unwrap().unwrap_err() });
        tokio::time::sleep(A_WHILE).await;
        // Nobody reads asynchronous events, and no call is made.
        it.device.remove();
        assert_eq!(waiting.await.unwrap(), EventError::DeviceGone);
        let mut stream = CompletionStream::new(&it.channel).unwrap();
        let gone = stream.wait(&it.cq, &mut [Wc::default()]).await.unwrap_err();
        assert!(matches!(gone, WaitError::Poll(PollError::DeviceGone)));
    });
}

#[test]
fn streams_that_wait_are_ended_by_a_removal_that_a_call_finds() {
    on_both(|| async {
        let gone = Some(EventError::DeviceGone);
        let found = ended(|it| {
            // Nobody raises anything.
            it.device.fail_always("QUERY_PORT", Errno::EIO);
            it.device.fail_always("QUERY_CONTEXT", Errno::EIO);
            assert!(it.context.query_port(1).is_err());
            it
        });
        assert_eq!(found.await, [gone, gone]);
    });
}

#[test]
fn a_destroy_of_the_queue_ends_the_task_that_waits_for_it() {
    on_both(|| async {
        let it = Loop::new();
        let queue = || {
            let builder = it.context.create_cq(4).channel(&it.channel, 0);
            builder.build().unwrap()
        };
        let (first, second) = (queue(), queue());
        let [one, two] = [
            (first.clone(), second.clone()),
            (first.clone(), second.clone()),
        ]
        .map(|(first, second)| {
            let mut stream = CompletionStream::new(&it.channel).unwrap();
            tokio::spawn(async move {
                // One stream for one queue after the other, and for the channel's events.
                let mut room = [Wc::default()];
                for cq in [first, second] {
                    let ended = stream.wait(&cq, &mut room).await.map(|done| done.len());
                    assert!(matches!(ended, Err(WaitError::Destroyed)));
                    let ended = stream.wait(&cq, &mut room).await.map(|done| done.len());
                    assert!(matches!(ended, Err(WaitError::Destroyed)));
                }
                stream.next().await.map(|event| event.map(drop))
            })
        });
        for cq in [first, second] {
            tokio::time::sleep(A_WHILE).await;
            cq.destroy().unwrap();
        }
        tokio::time::sleep(A_WHILE).await;
        assert!(!one.is_finished() && !two.is_finished());
        it.channel.stop();
        assert_eq!((one.await.unwrap(), two.await.unwrap()), (None, None));
    });
}

#[test]
fn a_destroy_after_a_wait_was_dropped_disturbs_no_other_wait() {
    on_both(|| async {
        let it = Loop::new();
        let mut stream = CompletionStream::new(&it.channel).unwrap();
        let mut room = [Wc::default(); 4];
        for _ in 0..3 {
            let builder = it.context.create_cq(4).channel(&it.channel, 0);
            let cq = builder.build().unwrap();
            let dropped = timeout(A_WHILE, stream.wait(&cq, &mut room)).await;
            assert!(dropped.is_err());
            cq.destroy().unwrap();
            assert!(timeout(A_WHILE, stream.next()).await.is_err());
            it.send(1);
            assert_eq!(stream.wait(&it.cq, &mut room).await.unwrap().len(), 2);
        }
    });
}

#[test]
fn a_wait_for_a_queue_of_another_channel_is_refused() {
    on_both(|| async {
        let it = Loop::new();
        let other = it.context.create_completion_channel().unwrap();
        let mut stream = CompletionStream::new(&other).unwrap();
        let error = stream.wait(&it.cq, &mut [Wc::default()]).await.unwrap_err();
        assert!(matches!(error, WaitError::OtherChannel), "{error}");
        let plain = it.context.create_cq(1).build().unwrap();
        let error = stream.wait(&plain, &mut [Wc::default()]).await.unwrap_err();
        assert!(matches!(error, WaitError::NoChannel));
    });
}

#[test]
fn a_stream_that_waits_uses_no_processor() {
    use nix::sys::resource::{UsageWho, getrusage};
    let runtime = Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let it = Loop::new();
        let mut completions = CompletionStream::new(&it.channel).unwrap();
        let mut events = AsyncEventStream::new(&it.context.events()).unwrap();
        // After events that were drained, when readiness has been seen once.
        it.raise();
        drop(events.next().await.unwrap().unwrap());
        let used = || {
            let usage = getrusage(UsageWho::RUSAGE_THREAD).unwrap();
            let (user, system) = (usage.user_time(), usage.system_time());
            (user.tv_sec() + system.tv_sec()) * 1_000_000 + user.tv_usec() + system.tv_usec()
        };
        let before = used();
        let nothing = timeout(Duration::from_millis(500), async {
            tokio::select! {
                _ = completions.next() => {}
                _ = events.next() => {}
            }
        });
        assert!(nothing.await.is_err());
        let micros = used() - before;
        assert!(micros < 100_000, "{micros} µs of 500,000");
    });
}

/// Everything of this crate by its bare name, beside the runtime's crate by its own.
mod beside_the_runtime {
    #![allow(clippy::wildcard_imports, reason = "they are what is tried")]

    use uverbs::*;

    #[tokio::test]
    async fn a_glob_import_leaves_the_crate_tokio_where_it_is() {
        let context: Context = fake::Fabric::new().add_device("rxe0").open().unwrap();
        let mut waiting = stream::AsyncEventStream::new(&context.events()).unwrap();
        let none = tokio::time::timeout(super::A_WHILE, waiting.next());
        assert!(none.await.is_err());
    }
}
