//! How often the heap is asked for memory.

use std::alloc::System;

use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};
use uverbs::{RecvWr, SendWr};

use crate::ends::{BATCH, Queues};
use crate::{Bench, Result, Words, answer};

#[global_allocator]
static HEAP: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

/// heap OPERATIONS FORM: posts and polls so many requests, by batches, and their receives
pub(crate) fn run(bench: &mut Bench, words: &Words<'_>) -> Result<()> {
    let operations = words.count(1, 16_000)?;
    let ends = bench.ends()?;
    let (sges, _) = ends.places(2)?;
    let into = [ends.b.region.slice(..64)?];
    let wrs = [SendWr::send(1, &sges).signaled(); BATCH];
    let receives = [RecvWr::new(0, &into); BATCH];
    let mut done = 0;
    let counted = match words.at(2) {
        "exclusive" => go(
            &mut ends.exclusive()?,
            operations,
            &mut done,
            &wrs,
            &receives,
        )?,
        _ => go(&mut ends.shared(), operations, &mut done, &wrs, &receives)?,
    };
    answer("heap", [counted, u64::try_from(done)?])
}

fn go(
    queues: &mut impl Queues,
    operations: usize,
    done: &mut usize,
    wrs: &[SendWr<'_>],
    receives: &[RecvWr<'_>],
) -> Result<u64> {
    let region = Region::new(HEAP);
    while *done < operations {
        queues.post_recv(receives)?;
        queues.post_send(wrs)?;
        queues.drain_peer(BATCH)?;
        queues.drain(BATCH)?;
        *done += BATCH;
    }
    let asked = region.change();
    Ok(u64::try_from(asked.allocations + asked.reallocations)?)
}
