//! What it costs to be told: the limit event of one shared receive queue among many.

use std::os::fd::AsFd;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use uverbs::{AsyncEventKind, RecvWr, SendWr, Subject};
use uverbs_tools::bring_up::now;
use uverbs_tools::count::mark;

use crate::ends::{BATCH, connect, create_qp};
use crate::{Bench, Result, Words, answer};

/// events LIVE COUNT: the time of reading, looking up and acking it; with `marks`, for the counter.
pub(crate) fn run(bench: &mut Bench, words: &Words<'_>, marks: bool) -> Result<()> {
    let ends = bench.ends()?;
    let (a, b) = (&ends.a, &ends.b);
    let want = words.count(1, 1)?;
    let count = words.count(2, 100)?;
    while bench.live.len() < want {
        bench.live.push(b.pd.create_srq(4).build()?);
    }
    let srq = bench
        .live
        .get(want / 2)
        .ok_or("no shared receive queue is alive")?;
    let cq = b.context.create_cq(64).build()?;
    let qp = create_qp(&b.pd, &cq, Some(srq), (1, 1), 0)?;
    let sender = create_qp(&a.pd, &a.cq, None, (4, 1), 64)?;
    connect(&sender, &qp)?;
    let events = b.context.events();
    let into = [b.region.slice(..64)?];
    let out = [a.region.slice(..64)?];
    let mut times = Vec::with_capacity(count);
    for _ in 0..count {
        srq.post_recv(&[RecvWr::new(0, &into)])?;
        srq.set_limit(1)?;
        sender.post_send(&[SendWr::send(1, &out).signaled()])?;
        wait(&a.cq)?;
        wait(&cq)?;
        let mut readable = [PollFd::new(events.as_fd(), PollFlags::POLLIN)];
        if poll(&mut readable, PollTimeout::from(10_000u16))? != 1 {
            return Err("no event within 10 s".into());
        }
        let mut start = 0;
        if marks {
            mark();
        } else {
            start = now()?;
        }
        let read = events.try_next();
        let told = match &read {
            Ok(Some(event)) => {
                event.kind() == AsyncEventKind::SrqLimitReached
                    && matches!(event.subject(), Subject::Srq(told) if told == srq)
            }
            _ => false,
        };
        drop(read);
        if marks {
            mark();
        } else {
            start = now()? - start;
        }
        if !told {
            return Err("another event".into());
        }
        times.push(start);
    }
    qp.destroy()?;
    sender.destroy()?;
    cq.destroy()?;
    answer("ns", times)
}

fn wait(cq: &uverbs::CompletionQueue) -> Result<()> {
    let mut room = [uverbs::Wc::default(); BATCH];
    loop {
        if let Some(wc) = cq.poll(&mut room)?.first() {
            wc.ok()?;
            return Ok(());
        }
    }
}
