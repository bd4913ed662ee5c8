//! A peer that is stopped and continued, or killed, in the middle of traffic: what the survivor is told,
//! and what the kernel gets back.

use std::fs;
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use uverbs::abi::layout::event as raw;
use uverbs::{QpState, SendWr, Wc, WcStatus};

use super::pair::{Failure, SOON, ensure, same, wait_for};
use super::peer::{ANSWER, Card, LEN, Peer, SENT, SLOTS, Side, TAKE};
use super::{Case, CaseResult, Verdict};
use crate::guest::injector::{Target, inject};
use crate::guest::resources::kernel_objects;

pub(super) const CASES: &[Case] = &[
    Case::new("peer::killed_in_the_middle_of_sends", || {
        killed(Traffic::Sends)
    })
    .limit_secs(180),
    Case::new("peer::killed_in_the_middle_of_writes", || {
        killed(Traffic::Writes)
    })
    .limit_secs(180),
    Case::new("peer::killed_in_the_middle_of_reads", || {
        killed(Traffic::Reads)
    })
    .limit_secs(180),
    Case::new("peer::killed_in_the_middle_of_answers", || {
        killed(Traffic::Answers)
    })
    .limit_secs(180),
    Case::new("peer::killed_while_it_was_the_one_that_sent", while_it_sent).limit_secs(180),
    Case::new("peer::stopped_and_continued", stopped_and_continued)
        .with_modules()
        .limit_secs(300),
];

#[derive(Clone, Copy, PartialEq, Eq)]
enum Traffic {
    Sends,
    Writes,
    Reads,
    Answers,
}

impl Traffic {
    fn post(self, side: &Side, peer: &Card) -> Result<(), Failure> {
        let place = [side.room.slice(..LEN)?];
        let wr = match self {
            Self::Sends => return side.say([TAKE, 0]),
            Self::Answers => return side.say([ANSWER, 0]),
            Self::Writes => SendWr::write(SENT, &place, peer.room),
            Self::Reads => SendWr::read(SENT, &place, peer.room),
        };
        Ok(side.end.qp.post_send(&[wr.signaled()])?)
    }
}

/// Keeps requests under way; gives the failures, when there are any, or stops after enough of them.
fn run(
    side: &Side,
    peer: &Card,
    traffic: Traffic,
    enough: usize,
    mut each: impl FnMut(usize) -> Result<(), Failure>,
) -> Result<Vec<WcStatus>, Failure> {
    let deadline = Instant::now() + 3 * SOON;
    let (mut under_way, mut done, mut failed) = (0, 0, Vec::new());
    while under_way > 0 || (done < enough && failed.is_empty()) {
        while failed.is_empty() && done < enough && under_way < 8 {
            traffic.post(side, peer)?;
            under_way += 1;
        }
        let mut room = [Wc::default(); 16];
        for wc in side
            .end
            .cq
            .wait_timeout(&mut room, Duration::from_secs(1))?
        {
            let slot = usize::try_from(wc.wr_id).ok().filter(|slot| *slot < SLOTS);
            match (slot, wc.status) {
                (Some(slot), WcStatus::Success) => side.receive(slot)?,
                // A receive that was flushed is none of the requests.
                (Some(_), status) => same("a receive", status, WcStatus::WrFlushed)?,
                (None, WcStatus::Success) => {
                    (under_way, done) = (under_way - 1, done + 1);
                    each(done)?;
                }
                (None, status) => {
                    under_way -= 1;
                    failed.push(status);
                }
            }
        }
        let late = Instant::now() > deadline;
        ensure(!late, &format!("{under_way} of {done} are not told"))?;
    }
    Ok(failed)
}

/// The peer is killed; each request under way is told once, the first with what it is and the others as
/// flushed; the kernel has everything of the peer back; and the same queue pair serves the next peer.
fn killed(traffic: Traffic) -> CaseResult {
    let before = [kernel_objects("rxe0")?, kernel_objects("rxe1")?];
    let mut side = Side::on("rxe0")?;
    for round in 0..3_usize {
        let peer = Peer::of(&side, &[])?;
        let (card, mut victim) = (peer.card, Some(peer));
        let failed = run(&side, &card, traffic, usize::MAX, |done| {
            match (done == 40 + 7 * round).then(|| victim.take()).flatten() {
                Some(victim) => victim.kill(&before[1]),
                None => Ok(()),
            }
        })?;
        let [first, rest @ ..] = &failed[..] else {
            return Err("nothing failed".into());
        };
        let peer_is_gone = [
            WcStatus::RetryExceeded,
            // Its memory was gone before its queue pair.
            WcStatus::RemoteAccessError,
            WcStatus::RemoteOperationError,
        ];
        ensure(peer_is_gone.contains(first), &format!("told as {first}"))?;
        let flushed = rest.iter().all(|status| *status == WcStatus::WrFlushed);
        ensure(flushed, &format!("after the first: {rest:?}"))?;
        same("state", side.end.qp.state()?, QpState::Err)?;
        side.again()?;
    }
    let peer = Peer::of(&side, &[])?;
    let failed = run(&side, &peer.card, traffic, 50, |_| Ok(()))?;
    same("failures with the next peer", failed, Vec::new())?;
    peer.quit(&side, 0)?;
    let began = Instant::now();
    let Side { end, room } = side;
    end.qp.destroy()?;
    end.cq.destroy()?;
    drop((room, end.pd, end.context));
    ensure(began.elapsed() < SOON, "the teardown takes long")?;
    for (device, before) in ["rxe0", "rxe1"].into_iter().zip(before) {
        same(device, kernel_objects(device)?, before)?;
    }
    Ok(Verdict::Passed)
}

/// The peer was writing, and is killed: the one it wrote to is told nothing by its queue pair until it
/// sends something itself.
fn while_it_sent() -> CaseResult {
    let before = kernel_objects("rxe1")?;
    let side = Side::on("rxe0")?;
    side.room.write_at(0, &[0xEE; LEN])?;
    let peer = Peer::of(&side, &[("UVERBS_PEER_WRITES", "1")])?;
    side.say([TAKE, 0])?;
    side.end.expect("the first send", SENT, WcStatus::Success)?;
    wait_for("a write", || {
        Ok((side.room.to_vec(..LEN)? != [0xEE; LEN]).then_some(()))
    })?;
    peer.kill(&before)?;
    let mut room = [Wc::default()];
    let told = side
        .end
        .cq
        .wait_timeout(&mut room, Duration::from_millis(500))?;
    ensure(told.is_empty(), &format!("told of {told:?}"))?;
    same("state", side.end.qp.state()?, QpState::Rts)?;
    side.say([TAKE, 0])?;
    let told = side.end.cq.wait_timeout(&mut room, SOON)?;
    let told: Vec<_> = told.iter().map(|wc| (wc.wr_id, wc.status)).collect();
    same("the send", told, vec![(SENT, WcStatus::RetryExceeded)])?;
    side.end.qp.destroy()?;
    Ok(Verdict::Passed)
}

/// Whether all threads of a process are stopped.
fn is_stopped(process: u32) -> Result<bool, Failure> {
    for thread in fs::read_dir(format!("/proc/{process}/task"))? {
        let stat = fs::read_to_string(thread?.path().join("stat"))?;
        let state = stat
            .rsplit(')')
            .next()
            .and_then(|rest| rest.split_whitespace().next());
        if state != Some("T") {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Stopped while all its threads wait, with completions and events coming meanwhile: it goes on as if
/// nothing had been, and has each of them once.
fn stopped_and_continued() -> CaseResult {
    const EVENTS: u8 = 3;
    const ROUNDS: u8 = 15;
    let side = Side::on("rxe0")?;
    let peer = Peer::of(&side, &[])?;
    let process = peer.program.id();
    // How many answers there have been.
    let answers = |limit: Duration| -> Result<usize, Failure> {
        let deadline = Instant::now() + limit;
        let mut count = 0;
        while count == 0 && Instant::now() < deadline {
            let mut room = [Wc::default(); 16];
            let left = deadline.saturating_duration_since(Instant::now());
            for wc in side.end.cq.wait_timeout(&mut room, left)? {
                let wc = wc.ok()?;
                if wc.wr_id < SENT {
                    side.receive(wc.wr_id.try_into()?)?;
                    count += 1;
                }
            }
        }
        Ok(count)
    };
    for round in 0..ROUNDS {
        side.say([ANSWER, round])?;
        same("answers before", answers(SOON)?, 1)?;
        // Every second time while it waits for sure.
        if round % 2 == 0 {
            thread::sleep(Duration::from_millis(50));
        }
        peer.send(Signal::SIGSTOP)?;
        wait_for("the stop", || Ok(is_stopped(process)?.then_some(())))?;
        side.say([ANSWER, round])?;
        inject(
            "rxe1",
            Target::Port(1),
            raw::IB_EVENT_SM_CHANGE,
            EVENTS.into(),
        )?;
        same(
            "answers of one who is stopped",
            answers(Duration::from_millis(150))?,
            0,
        )?;
        peer.send(Signal::SIGCONT)?;
        same("answers after", answers(SOON)?, 1)?;
    }
    // It counts each event of both its queues, and no one more.
    peer.quit(&side, EVENTS * ROUNDS)?;
    side.end.qp.destroy()?;
    Ok(Verdict::Passed)
}
