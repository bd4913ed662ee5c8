//! Calls between two marks, for the counter.

use std::hint::black_box;
use std::thread::sleep;
use std::time::Duration;

use uverbs::{RecvWr, SendWr, Wc};
use uverbs_tools::count::mark;

use crate::ends::{BATCH, Ends, Queues};
use crate::{Bench, Result, Words, answer};

/// count ROW REPEATS FORM
pub(crate) fn run(bench: &mut Bench, words: &Words<'_>) -> Result<()> {
    let repeats = words.count(2, 5)?;
    let ends = bench.ends()?;
    match words.at(3) {
        "exclusive" => row(&mut ends.exclusive()?, &ends, words.at(1), repeats),
        _ => row(&mut ends.shared(), &ends, words.at(1), repeats),
    }
}

fn row(queues: &mut impl Queues, ends: &Ends, name: &str, repeats: usize) -> Result<()> {
    match name {
        "post_send_write_64" => send::<1>(queues, ends, repeats, false),
        "post_send_inline_32" => send::<1>(queues, ends, repeats, true),
        "post_send_batch16" => send::<BATCH>(queues, ends, repeats, false),
        "post_recv_1" => recv::<1>(queues, ends, repeats),
        "post_recv_batch16" => recv::<BATCH>(queues, ends, repeats),
        "poll_1" => poll::<1>(queues, ends, repeats, 1),
        "poll_16" => poll::<BATCH>(queues, ends, repeats, BATCH),
        "poll_empty" => poll::<1>(queues, ends, repeats, 0),
        other => Err(format!("there is no row {other}").into()),
    }
}

fn send<const N: usize>(
    queues: &mut impl Queues,
    ends: &Ends,
    repeats: usize,
    inline: bool,
) -> Result<()> {
    let (sges, remote) = ends.places(64)?;
    let bytes = [7; 32];
    let wr = if inline {
        SendWr::write_inline(1, &bytes, remote)
    } else {
        SendWr::write(1, &sges, remote)
    };
    let wrs = [wr.signaled(); N];
    for _ in 0..repeats {
        // What is posted is not known to the compiler, as in a program.
        let wrs = black_box(&wrs);
        mark();
        let posted = queues.post_send(wrs);
        mark();
        posted?;
        queues.drain(N)?;
    }
    Ok(())
}

fn recv<const N: usize>(queues: &mut impl Queues, ends: &Ends, repeats: usize) -> Result<()> {
    let into = [ends.b.region.slice(..64)?];
    let wrs = [RecvWr::new(1, &into); N];
    for _ in 0..repeats {
        let wrs = black_box(&wrs);
        mark();
        let posted = queues.post_recv(wrs);
        mark();
        posted?;
    }
    // Taken by messages, so that the queue does not fill up.
    let (sges, _) = ends.places(64)?;
    for _ in 0..repeats * N {
        queues.post_send(&[SendWr::send(1, &sges).signaled()])?;
        queues.drain(1)?;
        queues.drain_peer(1)?;
    }
    Ok(())
}

/// Says of each repetition how many completions the call gave; the controller drops the odd ones.
fn poll<const ROOM: usize>(
    queues: &mut impl Queues,
    ends: &Ends,
    repeats: usize,
    posted: usize,
) -> Result<()> {
    let (sges, remote) = ends.places(64)?;
    let wrs = vec![SendWr::write(1, &sges, remote).signaled(); posted];
    let mut got = Vec::with_capacity(repeats);
    for _ in 0..repeats {
        if posted > 0 {
            queues.post_send(&wrs)?;
            // Long enough for completions to be there before the queue is looked at.
            sleep(Duration::from_millis(30));
        }
        let mut room = [Wc::default(); ROOM];
        let out = black_box(&mut room[..]);
        mark();
        let found = queues.poll(out);
        mark();
        let found = found?;
        for wc in &*found {
            wc.ok()?;
        }
        got.push(found.len());
        let left = posted - found.len();
        queues.drain(left)?;
    }
    answer("got", got)
}
