//! From the list of devices to a queue pair in RTS, as the bench times it and follows its system calls.

use std::error::Error;
use std::io::{self, Write};
use std::time::Duration;

use nix::time::{ClockId, clock_gettime};
use uverbs::{
    AccessFlags, ConnectOptions, Context, MemoryRegion, PageBuf, PathOptions, QueuePair, Rc,
};

type Result<T> = std::result::Result<T, Box<dyn Error>>;

/// To RTS, then the landmark, and once more. Then the times in a line: the clock when it was reached, how long
/// it took since the devices were listed, and how long the second time.
///
/// # Errors
/// What went wrong on the way.
pub fn bring_up(device: &str) -> Result<()> {
    let start = now()?;
    let first = to_rts(device)?;
    landmark();
    let end = now()?;
    let second = to_rts(device)?;
    let again = now()? - end;
    writeln!(io::stdout(), "rts {end} {} {again}", end - start)?;
    drop((first, second));
    Ok(())
}

/// A queue pair that is its own peer.
fn to_rts(device: &str) -> Result<(MemoryRegion<PageBuf>, QueuePair<Rc>)> {
    let context = Context::open(device)?;
    let pd = context.alloc_pd()?;
    let region = pd.allocate(4096, AccessFlags::LOCAL_WRITE)?;
    let cq = context.create_cq(16).build()?;
    let qp = pd
        .create_qp::<Rc>(&cq, &cq)
        .max_send_wr(16)
        .max_recv_wr(16)
        .build()?;
    let local = qp.prepare(&PathOptions::default())?;
    qp.connect(&local, &local, &ConnectOptions::default())?;
    Ok((region, qp))
}

/// Ends the bring-up, for a controller that follows the system calls.
fn landmark() {
    let _ = nix::unistd::getppid();
}

/// Nanoseconds of the monotonic clock.
///
/// # Errors
/// What the system said.
pub fn now() -> Result<u64> {
    let time = clock_gettime(ClockId::CLOCK_MONOTONIC)?;
    Ok(u64::try_from(Duration::from(time).as_nanos())?)
}
