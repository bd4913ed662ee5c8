//! Several at one channel, one queue or one stream, and everything that can be pulled away under those
//! who wait: what went wrong once, and what was tried and held.

#![cfg(all(feature = "tokio", feature = "fake"))]
#![allow(clippy::unwrap_used, reason = "a test may fail")]

use std::future::Future;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use tokio::runtime::{Builder, Runtime};
use tokio::time::timeout;
use uverbs::event::EventError;
use uverbs::fake::{Fabric, FakeDevice};
use uverbs::stream::{AsyncEventStream, CompletionStream};
use uverbs::{
    Arm, AsyncEventKind, CompletionChannel, CompletionEvent, CompletionQueue, ConnectOptions,
    Context, PathOptions, PollError, PostCause, QueuePair, Rc, RecvWr, SendWr, Subject, WaitError,
    Wc,
};

/// How long anything may take that must end by itself.
const SOON: Duration = Duration::from_secs(20);
const A_WHILE: Duration = Duration::from_millis(30);

/// A queue pair that is its own peer. Sends complete in a queue with a channel.
#[derive(Clone)]
struct Loop {
    device: FakeDevice,
    context: Context,
    channel: CompletionChannel,
    cq: CompletionQueue,
    receives: CompletionQueue,
    qp: QueuePair<Rc>,
}

impl Loop {
    fn new() -> Self {
        Self::on(&Fabric::new().add_device("rxe0"))
    }

    fn on(device: &FakeDevice) -> Self {
        let context = device.open().unwrap();
        let channel = context.create_completion_channel().unwrap();
        let cq = context.create_cq(64).channel(&channel, 0).build().unwrap();
        let receives = context.create_cq(64).build().unwrap();
        let pd = context.alloc_pd().unwrap();
        let qp = pd.create_qp::<Rc>(&cq, &receives).build().unwrap();
        let here = qp.prepare(&PathOptions::default()).unwrap();
        qp.connect(&here, &here, &ConnectOptions::default())
            .unwrap();
        Self {
            device: device.clone(),
            context,
            channel,
            cq,
            receives,
            qp,
        }
    }

    /// One completion of a send.
    fn send(&self) {
        self.try_send().unwrap();
    }

    /// So many completions of sends, before the queue can be armed again.
    fn send_at_once(&self, count: usize) {
        self.qp
            .post_recv(&vec![RecvWr::new(2, &[]); count])
            .unwrap();
        let wr = SendWr::send_inline(1, &[]).signaled();
        self.qp.post_send(&vec![wr; count]).unwrap();
        let _ = self.receives.poll(&mut [Wc::default(); 8]);
    }

    fn try_send(&self) -> Result<(), PostCause> {
        let send = || {
            self.qp.post_recv(&[RecvWr::new(2, &[])])?;
            let wr = SendWr::send_inline(1, &[]).signaled();
            self.qp.post_send(&[wr])
        };
        let sent = send().map_err(|error| error.cause);
        // In the way of nothing.
        let _ = self.receives.poll(&mut [Wc::default(); 8]);
        sent
    }
}

/// Does it on a thread of its own, and does not wait for ever.
fn within<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    let (done, is_done) = mpsc::channel();
    thread::spawn(move || done.send(work()));
    is_done.recv_timeout(SOON).expect("it hangs, or has failed")
}

fn runtime() -> Runtime {
    Builder::new_current_thread().enable_all().build().unwrap()
}

fn run<F: Future<Output = ()>>(test: F) {
    runtime().block_on(async { timeout(SOON, test).await.expect("it hangs") });
}

#[test]
#[cfg_attr(miri, ignore = "Miri knows no poll(2)")]
fn several_threads_may_wait_for_one_queue() {
    let it = Loop::new();
    let seen = Arc::new(AtomicU32::new(0));
    let waiter = |limit: Option<Duration>| {
        let (it, seen) = (it.clone(), Arc::clone(&seen));
        thread::spawn(move || {
            let mut room = [Wc::default(); 64];
            loop {
                let done = match limit {
                    Some(limit) => it.cq.wait_timeout(&mut room, limit),
                    None => it.cq.wait(&mut room),
                };
                match done {
                    Ok(done) => {
                        let count = u32::try_from(done.len()).unwrap();
                        seen.fetch_add(count, Ordering::SeqCst);
                    }
                    Err(error) => return error,
                }
            }
        })
    };
    let limits = [None, None, Some(SOON), Some(A_WHILE / 30)];
    let waiters = limits.map(waiter);
    for round in 1..=1500 {
        it.send();
        let began = Instant::now();
        // Now and then some at once.
        while round % 3 == 0 && seen.load(Ordering::SeqCst) != round {
            assert!(began.elapsed() < SOON, "round {round}: nobody was told");
            thread::yield_now();
        }
    }
    it.channel.stop();
    for waiter in waiters {
        let error = within(move || waiter.join().unwrap());
        assert!(matches!(error, WaitError::Event(EventError::Stopped)));
    }
    assert_eq!(it.cq.completion_event_counts().outstanding, 0);
}

#[test]
#[cfg_attr(miri, ignore = "Miri knows no epoll")]
fn two_tasks_may_wait_for_one_queue() {
    run(async {
        let it = Loop::new();
        let task = |it: Loop| {
            tokio::spawn(async move {
                let mut stream = CompletionStream::new(&it.channel).unwrap();
                let mut room = [Wc::default(); 1];
                stream.wait(&it.cq, &mut room).await.unwrap().len()
            })
        };
        let tasks = [task(it.clone()), task(it.clone())];
        tokio::time::sleep(A_WHILE).await;
        for _ in 0..2 {
            it.send();
            tokio::time::sleep(A_WHILE).await;
        }
        for task in tasks {
            assert_eq!(task.await.unwrap(), 1);
        }
    });
}

/// The kernel tells of the first of several completions only; who takes that event need not have room
/// for all of them.
#[test]
#[cfg_attr(miri, ignore = "Miri knows no epoll")]
fn completions_that_come_at_once_end_as_many_waits() {
    let it = Loop::new();
    for _ in 0..20 {
        let waiters = [(); 3].map(|()| {
            let it = it.clone();
            thread::spawn(move || {
                let mut room = [Wc::default()];
                it.cq.wait(&mut room).map(|done| done.len())
            })
        });
        thread::sleep(A_WHILE / 3);
        it.send_at_once(3);
        for waiter in waiters {
            assert_eq!(within(|| waiter.join().unwrap()).unwrap(), 1);
        }
    }
    run(async {
        let task = |it: Loop| {
            tokio::spawn(async move {
                let mut stream = CompletionStream::new(&it.channel).unwrap();
                let mut room = [Wc::default(); 1];
                stream.wait(&it.cq, &mut room).await.unwrap().len()
            })
        };
        let tasks = [(); 3].map(|()| task(it.clone()));
        tokio::time::sleep(A_WHILE).await;
        it.send_at_once(3);
        for task in tasks {
            assert_eq!(task.await.unwrap(), 1);
        }
    });
    // And nobody was woken for good.
    let mut room = [Wc::default()];
    assert!(it.cq.wait_timeout(&mut room, A_WHILE).unwrap().is_empty());
    assert_eq!(it.cq.completion_event_counts().outstanding, 0);
}

#[test]
#[cfg_attr(miri, ignore = "Miri knows no epoll")]
fn a_stream_that_always_has_something_lets_other_tasks_run() {
    /// Sets a flag when it is its turn.
    fn other_task() -> Arc<AtomicBool> {
        let flag = Arc::new(AtomicBool::new(false));
        let set = Arc::clone(&flag);
        tokio::spawn(async move { set.store(true, Ordering::SeqCst) });
        flag
    }

    run(async {
        let it = Loop::new();
        let mut stream = CompletionStream::new(&it.channel).unwrap();
        let mut room = [Wc::default(); 4];
        for is_event in [false, true] {
            let had_its_turn = other_task();
            let mut rounds = 0;
            while !had_its_turn.load(Ordering::SeqCst) {
                if is_event {
                    it.cq.poll(&mut room).unwrap();
                    it.cq.arm(Arm::Next).unwrap();
                }
                it.send();
                if is_event {
                    stream.next().await.unwrap().unwrap().ack();
                } else {
                    stream.wait(&it.cq, &mut room).await.unwrap();
                }
                rounds += 1;
                assert!(rounds < 2000, "the other task starves");
            }
        }
    });
}

#[test]
#[cfg_attr(miri, ignore = "Miri knows no epoll")]
fn a_stream_is_good_in_another_runtime_until_its_own_is_gone() {
    let it = Loop::new();
    let (own, other) = (Builder::new_multi_thread(), runtime());
    let own = { own }.worker_threads(1).enable_all().build().unwrap();
    let (mut stream, mut events) = own.block_on(async {
        let stream = CompletionStream::new(&it.channel).unwrap();
        let events = AsyncEventStream::new(&it.context.events()).unwrap();
        (stream, events)
    });
    let sender = it.clone();
    let sender = thread::spawn(move || {
        thread::sleep(A_WHILE);
        sender.send();
    });
    let mut room = [Wc::default(); 4];
    let done = other.block_on(async { timeout(SOON, stream.wait(&it.cq, &mut room)).await });
    assert_eq!(done.expect("it hangs").unwrap().len(), 1);
    sender.join().unwrap();
    drop(own);
    other.block_on(async {
        let waited = timeout(SOON, stream.wait(&it.cq, &mut room)).await;
        let error = waited.expect("it hangs").unwrap_err();
        assert!(matches!(error, WaitError::Event(EventError::RuntimeGone)));
        let next = timeout(SOON, events.next()).await.expect("it hangs");
        assert_eq!(next.unwrap().unwrap_err(), EventError::RuntimeGone);
        assert!(events.next().await.is_none());
    });
    // What they were made of goes on.
    it.send();
    assert_eq!(it.cq.wait(&mut room).unwrap().len(), 1);
}

#[test]
fn a_destroy_does_not_wait_for_what_the_kernel_never_counted() {
    let it = Loop::new();
    let builder = it.context.create_cq(4).channel(&it.channel, 0);
    let cq = builder.build().unwrap();
    // A token of a queue that is alive, from nowhere.
    let first_generation = 1 << 32;
    for index in 0..8 {
        it.device.forge_completion_event(first_generation | index);
        it.device.raise_raw(first_generation | index, 0);
    }
    while it.channel.try_next().unwrap().is_some() {}
    while let Some(event) = it.context.events().try_next().unwrap() {
        assert!(!matches!(event.subject(), Subject::Gone(_)));
    }
    assert_eq!(cq.completion_event_counts().acked, 1);
    assert_eq!(cq.event_counts().acked, 1);
    within(move || cq.destroy().unwrap());
}

/// Calls until there is an error.
fn until<T, E: ToString>(mut call: impl FnMut() -> Result<T, E>) -> String {
    loop {
        if let Err(error) = call() {
            return error.to_string();
        }
    }
}

/// Goes on until it is told why not.
type Work = fn(Loop) -> String;

/// All that a program may be at when its device is pulled.
const WORK: [(&str, Work); 7] = [
    ("wait", |it| {
        until(|| it.cq.wait(&mut [Wc::default(); 4]).map(drop))
    }),
    ("next", |it| {
        until(|| it.channel.next().map(CompletionEvent::ack))
    }),
    ("events", |it| until(|| it.context.events().next())),
    ("event queue", |it| match it.context.event_queue() {
        Ok(events) => until(|| events.next_timeout(SOON)),
        Err(error) => error.to_string(),
    }),
    ("channels and queues", |it| {
        until(|| {
            let channel = it.context.create_completion_channel()?;
            let cq = it.context.create_cq(4).channel(&channel, 0).build()?;
            let armed = cq.arm(Arm::Next);
            cq.destroy().unwrap();
            armed.map_err(Box::<dyn std::error::Error>::from)
        })
    }),
    ("traffic", |it| {
        while it.try_send() != Err(PostCause::DeviceGone) {
            thread::yield_now();
        }
        PostCause::DeviceGone.to_string()
    }),
    ("streams", |it| {
        runtime().block_on(async {
            let mut events = AsyncEventStream::new(&it.context.events()).unwrap();
            let mut stream = CompletionStream::new(&it.channel).unwrap();
            let why = loop {
                if let Err(why) = stream.wait(&it.cq, &mut [Wc::default(); 4]).await {
                    break why.to_string();
                }
            };
            while events.next().await.is_some() {}
            while stream.next().await.is_some() {}
            why
        })
    }),
];

#[test]
#[cfg_attr(miri, ignore = "Miri knows no poll(2)")]
fn a_removal_in_the_midst_of_everything_ends_everybody_and_leaves_nothing() {
    for round in 0..20 {
        let it = Loop::new();
        let (told, who) = mpsc::channel();
        for (name, work) in WORK {
            let (it, told) = (it.clone(), told.clone());
            thread::spawn(move || told.send((name, work(it))));
        }
        thread::sleep(Duration::from_millis(round % 7 * 3));
        it.device.remove();
        for _ in WORK {
            let (name, why) = who
                .recv_timeout(SOON)
                .unwrap_or_else(|_| panic!("round {round}: somebody hangs or has failed"));
            assert!(why.contains("the device is gone"), "{name}: {why}");
        }
        let device = it.device.clone();
        drop(it);
        let began = Instant::now();
        while !device.live().is_nothing() {
            assert!(began.elapsed() < SOON, "{:?}", device.live());
            thread::yield_now();
        }
    }
}

#[test]
#[cfg_attr(miri, ignore = "Miri knows no poll(2)")]
fn a_queue_that_is_lent_out_meanwhile_ends_its_wait_and_loses_nothing() {
    let it = Loop::new();
    let waiter = it.cq.clone();
    let waiter = thread::spawn(move || waiter.wait(&mut [Wc::default(); 4]).map(drop));
    thread::sleep(A_WHILE);
    let mut mine = it.cq.exclusive().unwrap();
    it.send();
    let ended = within(move || waiter.join().unwrap());
    assert!(matches!(
        ended,
        Err(WaitError::Poll(PollError::InExclusiveUse))
    ));
    assert_eq!(mine.poll(&mut [Wc::default(); 4]).unwrap().len(), 1);
    assert_eq!(it.cq.completion_event_counts().outstanding, 0);
}

/// Who takes the one event of several completions and cannot have them is not the only one to be told.
#[test]
#[cfg_attr(miri, ignore = "Miri knows no poll(2)")]
fn a_queue_that_is_lent_out_meanwhile_leaves_nobody_asleep_beside_completions() {
    let it = Loop::new();
    for is_back_before in [false, true] {
        let waiters = [(); 3].map(|()| {
            let cq = it.cq.clone();
            thread::spawn(move || cq.wait(&mut [Wc::default()]).map(|done| done.len()))
        });
        thread::sleep(A_WHILE);
        let mine = it.cq.exclusive().unwrap();
        it.send_at_once(3);
        let mine = if is_back_before {
            drop(mine);
            None
        } else {
            Some(mine)
        };
        for waiter in waiters {
            match within(move || waiter.join().unwrap()) {
                Ok(count) => assert_eq!(count, 1),
                Err(WaitError::Poll(PollError::InExclusiveUse)) => {}
                Err(other) => panic!("{other}"),
            }
        }
        drop(mine);
        while !it.cq.poll(&mut [Wc::default(); 4]).unwrap().is_empty() {}
    }
    assert_eq!(it.cq.completion_event_counts().outstanding, 0);
}

/// What it has it destroys, when it is dropped itself.
struct Tangle {
    it: Option<Loop>,
    event: Option<CompletionEvent>,
    drops: Arc<AtomicU32>,
}

impl Drop for Tangle {
    fn drop(&mut self) {
        self.drops.fetch_add(1, Ordering::SeqCst);
        let Some(it) = self.it.take() else { return };
        it.channel.try_next().unwrap();
        it.context.events().try_next().unwrap();
        it.qp.destroy().unwrap();
        drop(self.event.take());
        it.cq.destroy().unwrap();
    }
}

#[test]
fn what_is_attached_may_destroy_all_that_it_knows() {
    let drops = Arc::new(AtomicU32::new(0));
    let it = Loop::new();
    it.cq.arm(Arm::Next).unwrap();
    it.send();
    let tangle = Tangle {
        event: it.channel.try_next().unwrap(),
        it: Some(it.clone()),
        drops: Arc::clone(&drops),
    };
    let cq = it.context.create_cq(4).user_data(tangle).build().unwrap();
    assert!(it.device.raise_cq(&cq, AsyncEventKind::CqErr));
    let last = it.context.events().try_next().unwrap().unwrap();
    let device = it.device.clone();
    drop((it, cq));
    assert_eq!(drops.load(Ordering::SeqCst), 0);
    within(move || drop(last));
    assert_eq!(drops.load(Ordering::SeqCst), 1);
    assert!(device.live().is_nothing(), "{:?}", device.live());
}
