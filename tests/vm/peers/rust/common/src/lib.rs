//! What the three programs share and none of the crates has a part in: the command line, the marks
//! between which instructions are counted, and the rows.
//!
//! ```text
//! PROGRAM hold                              one message, then `ready`; ends with its input
//! PROGRAM counted count ROW REPEATS FORM    as the twins of `cargo vm bench` do it
//! ```
//!
//! It must never do anything between two marks but the call that is counted.

use std::error::Error;
use std::io::{self, Write};
use std::process::ExitCode;
use std::thread::sleep;
use std::time::Duration;

/// What everything fails with.
pub type Result<T> = std::result::Result<T, Box<dyn Error>>;

/// Bytes of each end's region.
pub const BUFFER: usize = 4096;
/// As the twins of the bench have them.
pub const SEND_DEPTH: u32 = 128;
/// Receives of a queue pair.
pub const RECV_DEPTH: u32 = 512;
/// Completions of a queue.
pub const CQ_DEPTH: u32 = 1024;
/// Bytes that may be inline.
pub const INLINE: u32 = 64;
/// The longest batch.
pub const BATCH: usize = 16;

/// The two connected ends, `rxe0` and `rxe1`, of one crate. Each function does one thing as the crate's
/// documentation does it, with as few calls as it takes, and is inlined, so that nothing is counted but
/// the crate. A request is made in the call, since not every crate lets it be made before.
pub trait Peer {
    /// Whether one call posts several requests.
    const BATCHES: bool;
    /// Whether there are WRITEs, from memory and inline.
    const WRITES: bool;

    /// Posts a SEND of 64 bytes from `a` to `b`, signalled.
    fn post_send(&mut self) -> Result<()>;
    /// Posts `N` WRITEs of 64 bytes, signalled.
    fn post_write<const N: usize>(&mut self) -> Result<()>;
    /// Posts a WRITE of 32 bytes that are taken at once, signalled.
    fn post_inline(&mut self) -> Result<()>;
    /// Posts `N` receives of 64 bytes at `b`.
    fn post_recv<const N: usize>(&mut self) -> Result<()>;
    /// Asks for up to `N` completions of `a`, or for all where the API gives all, and looks at the status
    /// of each; how many there were.
    fn poll<const N: usize>(&mut self) -> Result<usize>;
    /// As `poll`, of `b`.
    fn poll_peer(&mut self) -> Result<usize>;
}

/// The form that the command line names, of those that a crate may have.
pub fn form() -> String {
    std::env::args().nth(5).unwrap_or_default()
}

/// Runs what the command line asks for.
pub fn run<P: Peer>(connect: impl FnOnce() -> Result<P>) -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = args.iter().map(String::as_str).collect();
    let done = match words.as_slice() {
        ["hold"] => connect().and_then(hold),
        ["counted", "count", row, repeats, _form] => count(connect, row, repeats),
        _ => Err("PROGRAM hold | PROGRAM counted count ROW REPEATS FORM".into()),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            let _ = writeln!(io::stdout(), "! {e}");
            ExitCode::FAILURE
        }
    }
}

fn hold(mut peer: impl Peer) -> Result<()> {
    peer.post_recv::<1>()?;
    peer.post_send()?;
    drain(&mut peer, 1)?;
    drain_peer(&mut peer, 1)?;
    writeln!(io::stdout(), "ready")?;
    io::stdin().read_line(&mut String::new())?;
    Ok(())
}

fn count<P: Peer>(connect: impl FnOnce() -> Result<P>, row: &str, repeats: &str) -> Result<()> {
    let repeats: usize = repeats.parse()?;
    let mut peer = connect()?;
    trace_me()?;
    mark();
    mark();
    let lacking = match row {
        "post_send_batch16" => !P::WRITES || !P::BATCHES,
        "post_send_write_64" | "post_send_inline_32" => !P::WRITES,
        "post_recv_batch16" => !P::BATCHES,
        _ => false,
    };
    if lacking {
        // One region, in which nothing is done: the controller knows by that.
        mark();
        mark();
        return Ok(());
    }
    let peer = &mut peer;
    match row {
        "post_send_send_64" => {
            for _ in 0..repeats {
                peer.post_recv::<1>()?;
                mark();
                let posted = peer.post_send();
                mark();
                posted?;
                drain(peer, 1)?;
                drain_peer(peer, 1)?;
            }
            Ok(())
        }
        "post_send_write_64" => write(peer, repeats, 1, P::post_write::<1>),
        "post_send_inline_32" => write(peer, repeats, 1, P::post_inline),
        "post_send_batch16" => write(peer, repeats, BATCH, P::post_write::<BATCH>),
        "post_recv_1" => recv::<1>(peer, repeats),
        "post_recv_batch16" => recv::<BATCH>(peer, repeats),
        "poll_1" => poll::<1>(peer, 1, repeats),
        "poll_16" => poll::<BATCH>(peer, BATCH, repeats),
        "poll_empty" => poll::<1>(peer, 0, repeats),
        other => Err(format!("there is no row {other}").into()),
    }
}

#[inline(always)]
fn write<P: Peer>(
    peer: &mut P,
    repeats: usize,
    posted: usize,
    post: impl Fn(&mut P) -> Result<()>,
) -> Result<()> {
    for _ in 0..repeats {
        mark();
        let done = post(peer);
        mark();
        done?;
        drain(peer, posted)?;
    }
    Ok(())
}

fn recv<const N: usize>(peer: &mut impl Peer, repeats: usize) -> Result<()> {
    for _ in 0..repeats {
        mark();
        let posted = peer.post_recv::<N>();
        mark();
        posted?;
    }
    // Taken by messages, so that all that was posted is known to be good.
    for _ in 0..repeats * N {
        peer.post_send()?;
        drain(peer, 1)?;
        drain_peer(peer, 1)?;
    }
    Ok(())
}

/// Says of each repetition how many completions the call gave; the controller drops the odd ones.
fn poll<const N: usize>(peer: &mut impl Peer, posted: usize, repeats: usize) -> Result<()> {
    let mut line = "got".to_owned();
    for _ in 0..repeats {
        for _ in 0..posted {
            peer.post_recv::<1>()?;
            peer.post_send()?;
        }
        if posted > 0 {
            // Long enough for completions to be there before the queue is looked at.
            sleep(Duration::from_millis(40));
        }
        mark();
        let found = peer.poll::<N>();
        mark();
        let found = found?;
        line.push_str(&format!(" {found}"));
        drain(peer, posted.saturating_sub(found))?;
        drain_peer(peer, posted)?;
    }
    writeln!(io::stdout(), "{line}")?;
    Ok(())
}

fn drain(peer: &mut impl Peer, mut count: usize) -> Result<()> {
    while count > 0 {
        count = count.saturating_sub(peer.poll::<1>()?);
    }
    Ok(())
}

fn drain_peer(peer: &mut impl Peer, mut count: usize) -> Result<()> {
    while count > 0 {
        count = count.saturating_sub(peer.poll_peer()?);
    }
    Ok(())
}

fn trace_me() -> Result<()> {
    // SAFETY: PTRACE_TRACEME looks at no other argument (ptrace(2)).
    let done = unsafe { libc::ptrace(libc::PTRACE_TRACEME, 0, 0, 0) };
    if done == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error().into())
    }
}

/// Begins a counted region, or ends it.
#[inline(never)]
fn mark() {
    // SAFETY: raise(3) has no preconditions.
    unsafe { libc::raise(libc::SIGUSR1) };
}
