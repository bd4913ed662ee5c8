//! Latency and rate of each operation.

use uverbs::{Arm, RecvWr, RemoteAddr, SendWr, Sge};
use uverbs_tools::bring_up::now;

use crate::ends::{BATCH, Ends, Queues};
use crate::{Bench, Result, Words, answer};

const SAMPLES: usize = 4096;

/// What a request does.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Send,
    Write,
    Read,
    Atomic,
}

impl Kind {
    fn of(word: &str) -> Result<Self> {
        Ok(match word {
            "send" => Self::Send,
            "write" => Self::Write,
            "read" => Self::Read,
            "atomic" => Self::Atomic,
            other => return Err(format!("there is no operation {other}").into()),
        })
    }

    fn request(self, sges: &[Sge; 1], remote: RemoteAddr) -> SendWr<'_> {
        let wr = match self {
            Self::Send => SendWr::send(1, sges),
            Self::Write => SendWr::write(1, sges, remote),
            Self::Read => SendWr::read(1, sges, remote),
            Self::Atomic => SendWr::fetch_add(1, sges[0], remote, 1),
        };
        wr.signaled()
    }
}

/// latency KIND SIZE COUNT MILLISECONDS poll|event FORM
pub(crate) fn latency(bench: &mut Bench, words: &Words<'_>) -> Result<()> {
    let kind = Kind::of(words.at(1))?;
    let size = words.count(2, 64)?;
    let limit = Limit::of(words)?;
    if words.at(5) == "event" {
        return answer("ns", by_event(&bench.told()?, kind, size, limit)?);
    }
    let ends = bench.ends()?;
    let samples = match words.at(6) {
        "exclusive" => polled(&mut ends.exclusive()?, &ends, kind, size, limit)?,
        _ => polled(&mut ends.shared(), &ends, kind, size, limit)?,
    };
    answer("ns", samples)
}

/// How many samples are taken: so many, or what this time allows, but one at least.
#[derive(Clone, Copy)]
struct Limit {
    count: usize,
    nanoseconds: u64,
}

impl Limit {
    fn of(words: &Words<'_>) -> Result<Self> {
        Ok(Self {
            count: words.count(3, 100)?.min(SAMPLES),
            nanoseconds: words.number(4, 100)? * 1_000_000,
        })
    }

    fn allows(self, taken: usize, start: u64) -> Result<bool> {
        Ok(taken < self.count && (taken < 1 || now()? - start < self.nanoseconds))
    }
}

fn polled(
    queues: &mut impl Queues,
    ends: &Ends,
    kind: Kind,
    size: usize,
    limit: Limit,
) -> Result<Vec<u64>> {
    let (sges, remote) = ends.places(size)?;
    let into = [ends.b.region.slice(..size)?];
    let wrs = [kind.request(&sges, remote)];
    let mut samples = Vec::with_capacity(limit.count);
    let begin = now()?;
    while limit.allows(samples.len(), begin)? {
        if kind == Kind::Send {
            queues.post_recv(&[RecvWr::new(0, &into)])?;
        }
        let start = now()?;
        queues.post_send(&wrs)?;
        if kind == Kind::Send {
            queues.drain_peer(1)?;
        } else {
            queues.drain(1)?;
        }
        samples.push(now()? - start);
        if kind == Kind::Send {
            queues.drain(1)?;
        }
    }
    Ok(samples)
}

/// Armed before the request is posted, so that exactly one event comes.
fn by_event(ends: &Ends, kind: Kind, size: usize, limit: Limit) -> Result<Vec<u64>> {
    let mut queues = ends.shared();
    let (sges, remote) = ends.places(size)?;
    let into = [ends.b.region.slice(..size)?];
    let wrs = [kind.request(&sges, remote)];
    let told = if kind == Kind::Send { &ends.b } else { &ends.a };
    let channel = told.channel.as_ref().ok_or("the ends have no channel")?;
    let mut samples = Vec::with_capacity(limit.count);
    let begin = now()?;
    while limit.allows(samples.len(), begin)? {
        if kind == Kind::Send {
            queues.post_recv(&[RecvWr::new(0, &into)])?;
        }
        told.cq.arm(Arm::Next)?;
        let start = now()?;
        queues.post_send(&wrs)?;
        channel.next()?.ack();
        if kind == Kind::Send {
            queues.drain_peer(1)?;
        } else {
            queues.drain(1)?;
        }
        samples.push(now()? - start);
        if kind == Kind::Send {
            queues.drain(1)?;
        }
    }
    Ok(samples)
}

/// How a batch is posted.
#[derive(Clone, Copy)]
enum Way {
    /// By one call.
    Chained,
    /// Each by a call, which tells the device.
    Singly,
    /// Each by a call, and the device is told once.
    Held,
}

/// rate|singly|held KIND SIZE BATCH MILLISECONDS FORM: nanoseconds a request, of each batch
pub(crate) fn rate(bench: &mut Bench, words: &Words<'_>) -> Result<()> {
    let kind = Kind::of(words.at(1))?;
    let size = words.count(2, 64)?;
    let batch = words.count(3, 16)?.min(BATCH);
    let limit = Limit {
        count: SAMPLES,
        nanoseconds: words.number(4, 100)? * 1_000_000,
    };
    let way = match words.at(0) {
        "singly" => Way::Singly,
        "held" => Way::Held,
        _ => Way::Chained,
    };
    let what = (kind, way, size, batch);
    let ends = bench.ends()?;
    let samples = match words.at(5) {
        "exclusive" => batches(&mut ends.exclusive()?, &ends, what, limit)?,
        _ => batches(&mut ends.shared(), &ends, what, limit)?,
    };
    answer("ns", samples)
}

fn batches(
    queues: &mut impl Queues,
    ends: &Ends,
    (kind, way, size, batch): (Kind, Way, usize, usize),
    limit: Limit,
) -> Result<Vec<u64>> {
    let (sges, remote) = ends.places(size)?;
    let into = [ends.b.region.slice(..size)?];
    let wrs = vec![kind.request(&sges, remote); batch];
    let receives: Vec<RecvWr<'_>> = (0u64..)
        .take(batch)
        .map(|i| RecvWr::new(i, &into))
        .collect();
    let each = u64::try_from(batch)?;
    let mut samples = Vec::with_capacity(limit.count);
    let begin = now()?;
    while limit.allows(samples.len(), begin)? {
        let start = now()?;
        if kind == Kind::Send {
            queues.post_recv(&receives)?;
        }
        match way {
            Way::Chained => queues.post_send(&wrs)?,
            Way::Singly => {
                for wr in &wrs {
                    queues.post_send(std::slice::from_ref(wr))?;
                }
            }
            Way::Held => queues.post_held(&wrs)?,
        }
        if kind == Kind::Send {
            queues.drain_peer(batch)?;
        }
        queues.drain(batch)?;
        samples.push((now()? - start) / each);
    }
    Ok(samples)
}
