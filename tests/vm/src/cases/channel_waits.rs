//! Waiting for completions while something else happens to the queue: it is destroyed, or another one
//! of the same channel has the completion.

use std::thread;
use std::time::Duration;

use uverbs::event::EventError;
use uverbs::{Arm, ConnectOptions, RecvWr, SendWr, WaitError, Wc};

use super::events::on_thread;
use super::pair::{SOON, Shape, ensure, open, same};
use super::{Case, CaseResult, Verdict};

pub(super) const CASES: &[Case] = &[
    Case::new("channel::destroy_ends_the_wait", destroy_ends_the_wait),
    Case::new(
        "channel::each_of_two_armed_queues_is_polled_again",
        each_is_polled_again,
    ),
];

/// Two wait for a queue, one for the channel: the destroy is told to the first two, by whatever moment
/// of the wait it comes in.
fn destroy_ends_the_wait() -> CaseResult {
    let (context, _pd) = open("rxe0")?;
    let channel = context.create_completion_channel()?;
    let events = channel.clone();
    let next = on_thread(move || events.next().map(drop));
    for round in 0..100 {
        let cq = context.create_cq(4).channel(&channel, 0).build()?;
        let waiters = [None, Some(SOON)].map(|limit| {
            let cq = cq.clone();
            on_thread(move || match limit {
                None => cq.wait(&mut [Wc::default()]).map(|done| done.len()),
                Some(limit) => cq
                    .wait_timeout(&mut [Wc::default()], limit)
                    .map(|done| done.len()),
            })
        });
        thread::sleep(Duration::from_micros(round * 50));
        cq.destroy()?;
        for waiter in waiters {
            let ended = waiter.recv_timeout(SOON)?;
            let told = matches!(ended, Err(WaitError::Destroyed));
            ensure(told, &format!("round {round}: {ended:?}"))?;
        }
    }
    ensure(next.try_recv().is_err(), "the channel's own wait has ended")?;
    channel.stop();
    let ended = next.recv_timeout(SOON)?;
    same("the channel's own wait", ended, Err(EventError::Stopped))?;
    Ok(Verdict::Passed)
}

/// Sends complete in one queue, receives in another, both on one channel and both armed: the message
/// comes between the arming and the sleep, and whoever polls only the queue that it sent on would sleep
/// with it. One wake-up for each, and each has its completion.
fn each_is_polled_again() -> CaseResult {
    let (context, pd) = open("rxe0")?;
    let channel = context.create_completion_channel()?;
    let queue = || context.create_cq(16).channel(&channel, 0).build();
    let (sends, receives) = (queue()?, queue()?);
    let qp = pd.create_qp::<uverbs::Rc>(&sends, &receives).build()?;
    let here = qp.prepare(&uverbs::PathOptions::default())?;
    let far = Shape::default().prepare(&open("rxe1")?.1)?;
    qp.connect(&here, &far.endpoint, &ConnectOptions::default())?;
    far.qp
        .connect(&far.endpoint, &here, &ConnectOptions::default())?;
    for round in 0..50 {
        receives.arm(Arm::Solicited)?;
        sends.arm(Arm::Next)?;
        let mut room = [Wc::default(); 4];
        same("completions yet", sends.poll(&mut room)?.len(), 0)?;
        // In the window: theirs arrives, ours is done.
        qp.post_recv(&[RecvWr::new(1, &[])])?;
        far.qp.post_recv(&[RecvWr::new(2, &[])])?;
        let message = SendWr::send_inline(3, &[]).signaled();
        far.qp.post_send(&[message.solicited()])?;
        qp.post_send(&[message])?;
        far.completions(2)?;
        let mut told = Vec::new();
        while told.len() < 2 {
            let event = channel.next_timeout(SOON)?;
            let event = event.ok_or_else(|| format!("round {round}: asleep after {told:?}"))?;
            let found = event.cq().poll(&mut room)?;
            let ids: Vec<_> = found.iter().map(|wc| wc.wr_id).collect();
            let wanted = if *event.cq() == sends { 3 } else { 1 };
            same("completions of the queue that was told", ids, vec![wanted])?;
            told.push(wanted);
        }
        told.sort_unstable();
        same("queues that were told", told, vec![1, 3])?;
        ensure(channel.try_next()?.is_none(), "told once more")?;
    }
    Ok(Verdict::Passed)
}
