//! What raises an event, and the waiting for it: shared by the cases and the demo.

use std::time::Instant;

use uverbs::{AsyncEvent, AsyncEventKind, AsyncEvents, ConnectOptions, SendWr, SharedReceiveQueue};

use super::pair::{End, Failure, SOON, Shape, connect, open};

/// Waits for an event of this kind, letting others pass: nothing orders events of different
/// objects, and one cause can have several.
pub fn next(events: &AsyncEvents, kind: AsyncEventKind) -> Result<AsyncEvent, Failure> {
    next_seeing(events, kind, |_| {})
}

/// As [`next`], showing each event that comes, the awaited one included.
pub fn next_seeing(
    events: &AsyncEvents,
    kind: AsyncEventKind,
    mut seen: impl FnMut(&AsyncEvent),
) -> Result<AsyncEvent, Failure> {
    let deadline = Instant::now() + SOON;
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        let event = events
            .next_timeout(left)?
            .ok_or_else(|| format!("{kind} did not come"))?;
        seen(&event);
        if event.kind() == kind {
            return Ok(event);
        }
    }
}

/// `rxe0` sends to a queue pair of `rxe1` that draws from a shared receive queue.
pub fn with_shared_receive_queue() -> Result<(End, End, SharedReceiveQueue), Failure> {
    let (_, pd) = open("rxe1")?;
    let srq = pd.create_srq(16).build()?;
    let a = Shape::default().prepare(&open("rxe0")?.1)?;
    let shape = Shape {
        srq: Some(srq.clone()),
        ..Shape::default()
    };
    let b = shape.prepare(&pd)?;
    connect(&a, &b, &ConnectOptions::default())?;
    Ok((a, b, srq))
}

/// An end of `rxe0` whose completion queue has been given `lost` completions more than it holds.
pub fn overrun(lost: u64) -> Result<(End, End), Failure> {
    let shape = Shape {
        depth: 1,
        ..Shape::default()
    };
    let a = shape.prepare(&open("rxe0")?.1)?;
    let b = Shape::default().prepare(&open("rxe1")?.1)?;
    connect(&a, &b, &ConnectOptions::default())?;
    let remote = b.region(64, 0)?.remote(0)?;
    for wr_id in 0..u64::from(a.cq.depth()) + lost {
        a.qp.post_send(&[SendWr::write(wr_id, &[], remote).signaled()])?;
    }
    Ok((a, b))
}
