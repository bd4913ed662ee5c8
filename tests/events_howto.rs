//! The code of `docs/events-howto.md`, run on the fake kernel. Each piece on the page stands here to
//! the letter.

#![cfg(all(feature = "fake", feature = "tokio"))]
#![allow(clippy::unwrap_used, reason = "a test may fail")]

mod support;

use std::os::fd::AsFd;
use std::sync::mpsc::{Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use support::channel::{Loop, connected, on_thread, plain, send};
use uverbs::event::EventError;
use uverbs::stream::{AsyncEventStream, CompletionStream};
use uverbs::{
    Arm, AsyncEvent, AsyncEventKind, AsyncEvents, CompletionAcks, CompletionChannel,
    CompletionQueue, Context, CreateError, DestroyErrorCause, PollError, Subject, WaitError, Wc,
    WcStatus,
};

type Failure = Box<dyn std::error::Error + Send + Sync>;

fn start_reader(
    events: AsyncEvents,
    mut handle: impl FnMut(&AsyncEvent) + Send + 'static,
) -> JoinHandle<Result<(), EventError>> {
    thread::spawn(move || {
        for event in &events {
            handle(&event?);
            // Dropped here, which acks it.
        }
        Ok(())
    })
}

fn describe(event: &AsyncEvent) -> String {
    match event.subject() {
        Subject::Qp(qp) if event.kind() == AsyncEventKind::QpFatal => {
            format!("queue pair {} is broken: connect anew", qp.qp_num())
        }
        Subject::Cq(cq) => format!("{} on completion queue {}", event.kind(), cq.id()),
        Subject::Port(port) => format!("{}: look at port {port}", event.kind()),
        Subject::Device => format!("{}: drop everything", event.kind()),
        // Destroyed before the event was looked up: nothing is left to do.
        Subject::Gone(_) => String::new(),
        other => format!("{} on {other}", event.kind()),
    }
}

/// A value of the program's own that every event of the connection's objects leads back to.
struct Connection {
    peer: String,
}

fn watched_queue(
    context: &Context,
    events: &AsyncEvents,
    peer: &str,
) -> Result<CompletionQueue, CreateError> {
    let peer = peer.to_owned();
    let builder = context.create_cq(64).events(events);
    builder.user_data(Connection { peer }).build()
}

fn whose(event: &AsyncEvent) -> Option<&str> {
    let connection = event.user_data::<Connection>()?;
    Some(&connection.peer)
}

fn give_up(cq: CompletionQueue) -> String {
    // Refuses before anything happens, if events about it are held.
    let Err(refused) = cq.try_destroy() else {
        return "destroyed".to_owned();
    };
    let DestroyErrorCause::Outstanding { outstanding } = refused.cause else {
        return refused.to_string();
    };
    // Here is the object again. This destroys it in any case, and waits so long for the acks.
    match refused
        .into_object()
        .map(|cq| cq.destroy_timeout(Duration::from_millis(10)))
    {
        Some(Err(late)) => format!("{outstanding} held; then: {late}"),
        _ => "destroyed, since somebody acked meanwhile".to_owned(),
    }
}

fn poll_loop(
    channel: &CompletionChannel,
    events: &AsyncEvents,
    mut on_completions: impl FnMut(&CompletionQueue) -> Result<(), Failure>,
    mut on_event: impl FnMut(&AsyncEvent),
) -> Result<(), Failure> {
    loop {
        // First whatever is there; an error says that nothing more will come.
        while let Some(event) = channel.try_next()? {
            on_completions(event.cq())?;
        }
        while let Some(event) = events.try_next()? {
            on_event(&event);
        }
        // Of each its file, and what tells of the end.
        let fds = [
            channel.as_fd(),
            channel.wake_fd(),
            events.as_fd(),
            events.wake_fd(),
        ];
        let mut fds = fds.map(|fd| PollFd::new(fd, PollFlags::POLLIN));
        poll(&mut fds, PollTimeout::NONE)?;
    }
}

fn epoll_loop(events: &AsyncEvents, mut on_event: impl FnMut(&AsyncEvent)) -> Result<(), Failure> {
    let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?;
    for fd in [events.as_fd(), events.wake_fd()] {
        // With edges, too, since it is read until there is nothing.
        epoll.add(
            fd,
            EpollEvent::new(EpollFlags::EPOLLIN | EpollFlags::EPOLLET, 0),
        )?;
    }
    loop {
        while let Some(event) = events.try_next()? {
            on_event(&event);
        }
        epoll.wait(&mut [EpollEvent::empty(); 2], EpollTimeout::NONE)?;
    }
}

async fn on_tokio(
    channel: CompletionChannel,
    cq: CompletionQueue,
    events: AsyncEvents,
    mut on_event: impl FnMut(&AsyncEvent),
) -> Result<usize, Failure> {
    let mut completions = CompletionStream::new(&channel)?;
    let mut events = AsyncEventStream::new(&events)?;
    let mut room = [Wc::default(); 16];
    loop {
        // What is not taken is dropped, and loses nothing.
        tokio::select! {
            done = completions.wait(&cq, &mut room) => return Ok(done?.len()),
            event = events.next() => match event {
                Some(event) => on_event(&event?),
                None => return Ok(0), // stopped, or the context is closed
            },
        }
    }
}

fn drain(cq: &CompletionQueue, mut done: impl FnMut(&Wc)) -> Result<(), WaitError> {
    let mut room = [Wc::default(); 16];
    loop {
        // Polls; if there is nothing arms, polls once more, and only then sleeps.
        match cq.wait_timeout(&mut room, Duration::from_millis(50)) {
            Ok([]) => return Ok(()), // the time is up
            Ok(completions) => completions.iter().for_each(&mut done),
            // Through another handle, while this one slept.
            Err(WaitError::Destroyed) => return Ok(()),
            Err(error) => return Err(error),
        }
    }
}

fn serve(
    channel: &CompletionChannel,
    queues: &[CompletionQueue],
    mut done: impl FnMut(&CompletionQueue, &Wc),
) -> Result<(), Failure> {
    let mut empty = |cq: &CompletionQueue| -> Result<(), PollError> {
        let mut room = [Wc::default(); 16];
        loop {
            match cq.poll(&mut room)? {
                [] => return Ok(()),
                found => found.iter().for_each(|wc| done(cq, wc)),
            }
        }
    };
    for cq in queues {
        cq.arm(Arm::Next)?;
        // What was there before the arming raises nothing.
        empty(cq)?;
    }
    let mut acks = CompletionAcks::new();
    loop {
        let event = match channel.next() {
            Ok(event) => event,
            Err(EventError::Stopped | EventError::ContextClosed) => return Ok(()),
            Err(error) => return Err(error.into()),
        };
        // First armed, then emptied: what comes in between raises another event.
        event.cq().arm(Arm::Next)?;
        empty(event.cq())?;
        // One step for a hundred acks. Dropping the event would be the plain way.
        acks.add(event);
        if acks.len() == 100 {
            acks.flush();
        }
    }
}

/// Says what it is told to somebody.
fn to(told: Sender<String>) -> impl FnMut(&AsyncEvent) + Send + 'static {
    move |event| told.send(describe(event)).unwrap()
}

#[test]
#[cfg_attr(miri, ignore = "Miri knows no poll(2)")]
fn a_thread_reads_until_it_is_stopped() {
    let it = Loop::new();
    let events = it.context.events();
    let (told, hear) = channel();
    let reader = start_reader(events.clone(), to(told));
    it.device.raise_port(AsyncEventKind::PortErr, 1);
    it.device.raise_qp(&it.qp, AsyncEventKind::QpFatal);
    it.device.raise_cq(&it.sends, AsyncEventKind::CqErr);
    assert_eq!(hear.recv().unwrap(), "PORT_ERR: look at port 1");
    assert!(hear.recv().unwrap().ends_with("is broken: connect anew"));
    assert!(
        hear.recv()
            .unwrap()
            .starts_with("CQ_ERR on completion queue ")
    );
    events.stop();
    let reader = on_thread(move || reader.join().unwrap());
    assert_eq!(reader.ends(), Ok(()));
    assert!(hear.recv().is_err());
}

#[test]
fn a_queue_of_its_own_leads_to_what_was_attached() {
    let it = Loop::new();
    let events = it.context.event_queue().unwrap();
    let cq = watched_queue(&it.context, &events, "10.0.0.7").unwrap();
    it.device.raise_cq(&cq, AsyncEventKind::CqErr);
    assert!(it.context.events().try_next().unwrap().is_none());
    let event = events.try_next().unwrap().unwrap();
    assert_eq!(whose(&event), Some("10.0.0.7"));
    let refused = "not all of its events are acked (1 still held)";
    let said = give_up(cq);
    assert!(
        said.starts_with("1 held; then: ") && said.ends_with(refused),
        "{said}"
    );
    drop(event);
    assert_eq!(give_up(it.queue()), "destroyed");
}

#[test]
#[cfg_attr(miri, ignore = "Miri knows no poll(2)")]
fn loops_with_poll_and_epoll_hand_everything_over_and_end() {
    let it = Loop::new();
    it.receives.arm(Arm::Next).unwrap();
    let (told, hear) = channel();
    let (arrived, arrivals) = channel();
    let (completions, events) = (it.channel.clone(), it.context.events());
    let handle = to(told);
    let by_poll = on_thread(move || {
        let on_completions = |cq: &CompletionQueue| Ok(arrived.send(cq.clone())?);
        let end = poll_loop(&completions, &events, on_completions, handle);
        end.unwrap_err().to_string()
    });
    let (told, heard) = channel();
    let queue = it.context.event_queue().unwrap();
    let (watched, handle) = (queue.clone(), to(told));
    let by_epoll = on_thread(move || epoll_loop(&watched, handle).unwrap_err().to_string());
    it.send(plain());
    assert_eq!(arrivals.recv().unwrap(), it.receives);
    // To both, a copy to each.
    for _ in 0..3 {
        it.device.raise_port(AsyncEventKind::SmChange, 1);
        assert_eq!(hear.recv().unwrap(), "SM_CHANGE: look at port 1");
        assert_eq!(heard.recv().unwrap(), "SM_CHANGE: look at port 1");
    }
    by_poll.goes_on();
    by_epoll.goes_on();
    queue.stop();
    it.channel.stop();
    let stopped = "the event reader or completion channel was stopped";
    assert_eq!(by_poll.ends(), stopped);
    assert_eq!(by_epoll.ends(), stopped);
}

#[test]
#[cfg_attr(miri, ignore = "Miri knows no epoll")]
fn a_task_takes_what_comes_first() {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        let it = Loop::new();
        it.device.raise_port(AsyncEventKind::GidChange, 1);
        let (told, hear) = channel();
        let (channel, cq, events) = (&it.channel, &it.sends, it.context.events());
        let task = on_tokio(
            channel.clone(),
            cq.clone(),
            events.clone(),
            to(told.clone()),
        );
        let sending = async {
            tokio::time::sleep(support::channel::A_WHILE).await;
            it.send(plain());
        };
        let (done, ()) = tokio::join!(task, sending);
        assert_eq!(done.unwrap(), 1);
        assert_eq!(hear.recv().unwrap(), "GID_CHANGE: look at port 1");
        events.stop();
        let task = on_tokio(channel.clone(), cq.clone(), events, to(told));
        assert_eq!(task.await.unwrap(), 0);
    });
}

#[test]
#[cfg_attr(miri, ignore = "Miri knows no poll(2)")]
fn a_queue_is_waited_for_and_a_channel_served() {
    let it = Loop::new();
    (0..40).for_each(|_| it.send(plain()));
    let mut done = 0;
    drain(&it.sends, |_| done += 1).unwrap();
    assert_eq!(done, 40);

    let queues = [it.queue(), it.queue()];
    let pairs = [0, 1].map(|at| connected(&it.pd, &queues[at], &it.receives));
    send(&pairs[0], plain());
    let (told, hear) = channel();
    let (channel, served) = (it.channel.clone(), queues.clone());
    let serving = on_thread(move || {
        let done = |cq: &CompletionQueue, wc: &Wc| told.send((cq.id(), wc.status)).unwrap();
        serve(&channel, &served, done)
    });
    // The first was there before anybody looked; then by turns.
    for at in [0, 1, 1, 0, 1] {
        let (id, status) = hear.recv_timeout(support::channel::SOON).unwrap();
        assert_eq!(status, WcStatus::Success);
        it.receives.poll(&mut [Wc::default(); 4]).unwrap();
        assert!(queues.iter().any(|cq| cq.id() == id));
        send(&pairs[at], plain());
    }
    hear.recv_timeout(support::channel::SOON).unwrap();
    serving.goes_on();
    it.channel.stop();
    serving.ends().unwrap();
}

#[test]
#[cfg_attr(miri, ignore = "Miri has no files here")]
fn every_piece_of_code_on_the_page_stands_here() {
    let page = include_str!("../docs/events-howto.md");
    let here = include_str!("events_howto.rs");
    let pieces: Vec<_> = page
        .split("```rust\n")
        .skip(1)
        .map(|rest| rest.split("```").next().unwrap())
        .collect();
    assert!(pieces.len() >= 8, "{}", pieces.len());
    for piece in pieces {
        assert!(here.contains(piece), "not here:\n{piece}");
    }
}
