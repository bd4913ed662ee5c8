//! Objects come and go: rates of making and unmaking, and many of them.

use std::fs;

use uverbs::{AccessFlags, PageBuf, QueuePair, Rc};
use uverbs_tools::bring_up::now;
use uverbs_tools::count::mark;

use crate::ends::{End, create_qp};
use crate::{Bench, Result, Words, answer};

const SAMPLES: usize = 2048;

/// The clock, or under the counter two regions for each object: making it, and unmaking it.
struct Clock {
    marks: bool,
}

impl Clock {
    fn start(&self) -> Result<u64> {
        if self.marks {
            mark();
            return Ok(0);
        }
        now()
    }

    /// Made, and not unmade.
    fn between(&self) -> Result<u64> {
        if self.marks {
            mark();
        }
        self.start()
    }
}

/// make pd|mr|cq|qp COUNT and perhaps BYTES; with `marks`, for the counter.
pub(crate) fn make(bench: &mut Bench, words: &Words<'_>, marks: bool) -> Result<()> {
    let clock = Clock { marks };
    let a = bench.ends()?.a;
    let count = words.count(2, 100)?.min(SAMPLES);
    let mut making = Vec::with_capacity(count);
    let mut unmaking = Vec::with_capacity(count);
    let mut buffer = None;
    if words.at(1) == "mr" {
        buffer = Some(touched(&a, words.count(3, 4096)?)?);
    }
    for _ in 0..count {
        let (start, between);
        match words.at(1) {
            "pd" => {
                start = clock.start()?;
                let pd = a.context.alloc_pd()?;
                between = clock.between()?;
                drop(pd);
            }
            "mr" => {
                let memory = buffer.take().ok_or("the buffer did not come back")?;
                start = clock.start()?;
                let region = a.pd.register(memory, AccessFlags::LOCAL_WRITE)?;
                between = clock.between()?;
                buffer = Some(region.into_inner()?);
            }
            "cq" => {
                start = clock.start()?;
                let cq = a.context.create_cq(64).build()?;
                between = clock.between()?;
                cq.destroy()?;
            }
            "qp" => {
                start = clock.start()?;
                let qp = create_qp(&a.pd, &a.cq, None, (16, 16), 0)?;
                between = clock.between()?;
                qp.destroy()?;
            }
            other => return Err(format!("there is nothing called {other}").into()),
        }
        unmaking.push(clock.start()? - between);
        making.push(between - start);
    }
    answer("create", making)?;
    answer("destroy", unmaking)
}

/// Memory whose pages are there, as they are once it has been registered.
fn touched(a: &End, size: usize) -> Result<PageBuf> {
    Ok(a.pd
        .allocate(size, AccessFlags::LOCAL_WRITE)?
        .into_inner()?)
}

/// many COUNT: queue pairs that live at the same time. The time of each of the first and of the last
/// tenth, of all, and the memory they take.
pub(crate) fn many(bench: &mut Bench, words: &Words<'_>) -> Result<()> {
    let a = bench.ends()?.a;
    let count = words.count(1, 1000)?;
    let part = (count / 10).min(SAMPLES);
    let mut each = vec![u64::MAX; count];
    let mut all: Vec<Option<QueuePair<Rc>>> = Vec::new();
    all.resize_with(count, || None);
    let before = resident_kib()?;
    let start = now()?;
    for (place, time) in all.iter_mut().zip(&mut each) {
        let from = now()?;
        *place = Some(create_qp(&a.pd, &a.cq, None, (1, 1), 0)?);
        *time = now()? - from;
    }
    answer("all", [now()? - start])?;
    answer("resident", [before, resident_kib()?])?;
    answer("first", each.iter().take(part))?;
    answer("last", each.iter().skip(count - part))?;
    for qp in all.into_iter().rev().flatten() {
        qp.destroy()?;
    }
    Ok(())
}

fn resident_kib() -> Result<u64> {
    let status = fs::read_to_string("/proc/self/status")?;
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmRSS:"))
        .ok_or("/proc/self/status has no VmRSS")?;
    Ok(line.trim().trim_end_matches("kB").trim().parse()?)
}
