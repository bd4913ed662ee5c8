//! A peer in a process of its own, which does as messages tell it, and can be stopped or killed.

use std::collections::BTreeMap;
use std::env;
use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use uverbs::event::EventError;
use uverbs::{
    AckTimeout, AsyncEvent, AsyncEventKind, ConnectOptions, Endpoint, MemoryRegion, PathOptions,
    QpAttr, QpState, RecvWr, RemoteAddr, Rkey, SendWr, Wc,
};

use super::pair::{End, Failure, SOON, Shape, ensure, open, wait_for};
use super::parts;
use crate::guest::program::Program;
use crate::guest::resources::kernel_objects;

/// What [`kernel_objects`] counts.
pub(super) type Objects = BTreeMap<String, u64>;

/// Messages, each in a stretch of its own of both ends' memory.
pub(super) const SLOTS: usize = 32;
pub(super) const LEN: usize = 64;
/// Requests of this number and above are not receives.
pub(super) const SENT: u64 = 1000;

/// What a message asks of the peer, by its first byte.
pub(super) const TAKE: u8 = 1;
pub(super) const ANSWER: u8 = 2;
/// To end, after so many events as the second byte says.
const QUIT: u8 = 3;

/// Short timers: a peer that is gone is told within a second or so.
fn options() -> ConnectOptions {
    ConnectOptions {
        timeout: AckTimeout::at_least(Duration::from_millis(16)),
        retry_count: 5,
        ..ConnectOptions::default()
    }
}

/// An end with receives posted, and the memory that they are for.
pub(super) struct Side {
    pub(super) end: End,
    pub(super) room: MemoryRegion,
}

/// What one side is told of the other.
#[derive(Clone, Copy)]
pub(super) struct Card {
    endpoint: Endpoint,
    pub(super) room: RemoteAddr,
}

impl Card {
    fn to_text(self) -> String {
        let hex = self.endpoint.to_bytes().map(|byte| format!("{byte:02x}"));
        let RemoteAddr { addr, rkey } = self.room;
        format!("{} {addr:x} {:x}", hex.concat(), rkey.0)
    }

    fn from_text(text: &str) -> Result<Self, Failure> {
        let mut words = text.split_whitespace();
        let mut word = || words.next().ok_or("a card has three words");
        let hex = word()?;
        let bytes = (0..hex.len() / 2)
            .map(|at| u8::from_str_radix(&hex[2 * at..2 * at + 2], 16))
            .collect::<Result<Vec<_>, _>>()?;
        Ok(Self {
            endpoint: Endpoint::from_bytes(&bytes)?,
            room: RemoteAddr {
                addr: u64::from_str_radix(word()?, 16)?,
                rkey: Rkey(u32::from_str_radix(word()?, 16)?),
            },
        })
    }
}

impl Side {
    pub(super) fn on(device: &str) -> Result<Self, Failure> {
        let (context, pd) = open(device)?;
        let shape = Shape {
            channel: Some(context.create_completion_channel()?),
            ..Shape::default()
        };
        let end = shape.prepare(&pd)?;
        let room = end.region(SLOTS * LEN, 0)?;
        Ok(Self { end, room })
    }

    fn card(&self) -> Result<Card, Failure> {
        Ok(Card {
            endpoint: self.end.endpoint,
            room: self.room.remote(0)?,
        })
    }

    fn connect(&self, there: &Card) -> Result<(), Failure> {
        let End { qp, endpoint, .. } = &self.end;
        qp.connect(endpoint, &there.endpoint, &options())?;
        (0..SLOTS).try_for_each(|slot| self.receive(slot))
    }

    /// From the error state to one that can be connected anew.
    pub(super) fn again(&mut self) -> Result<(), Failure> {
        let qp = &self.end.qp;
        qp.modify(&QpAttr::to_state(QpState::Reset))?;
        self.end.endpoint = qp.prepare(&PathOptions::default())?;
        // Flushed receives that are left in the queue.
        let mut room = [Wc::default(); 16];
        while !self.end.cq.poll(&mut room)?.is_empty() {}
        Ok(())
    }

    pub(super) fn receive(&self, slot: usize) -> Result<(), Failure> {
        let place = self.room.slice(slot * LEN..(slot + 1) * LEN)?;
        let wr_id = slot.try_into()?;
        Ok(self.end.qp.post_recv(&[RecvWr::new(wr_id, &[place])])?)
    }

    pub(super) fn say(&self, message: [u8; 2]) -> Result<(), Failure> {
        let wr = SendWr::send_inline(SENT, &message).signaled();
        Ok(self.end.qp.post_send(&[wr])?)
    }
}

/// The peer: takes, answers, and if it is told to writes all the while, until it is told to end.
#[allow(clippy::print_stdout, reason = "the case looks for it")]
pub(super) fn main() -> Result<(), Failure> {
    let there = Card::from_text(&env::var("UVERBS_PEER")?)?;
    let side = Side::on("rxe1")?;
    side.connect(&there)?;
    let events = side.end.context.events();
    let queue = side.end.context.event_queue()?;
    // One without a limit, one with limits that pass while the process is stopped.
    let counted = [
        counting(move || events.next().map(Some)),
        counting(move || queue.next_timeout(Duration::from_millis(20))),
    ];
    println!("here {}", side.card()?.to_text());
    std::io::stdout().flush()?;
    let write = || -> Result<(), Failure> {
        let from = [side.room.slice(..LEN)?];
        let wr = SendWr::write(SENT + 1, &from, there.room).signaled();
        Ok(side.end.qp.post_send(&[wr])?)
    };
    let mut writes = env::var_os("UVERBS_PEER_WRITES").is_some();
    loop {
        let mut room = [Wc::default(); 16];
        for wc in side.end.cq.wait(&mut room)? {
            let wc = wc.ok()?;
            if wc.wr_id > SENT {
                write()?;
            }
            let Some(slot) = usize::try_from(wc.wr_id).ok().filter(|slot| *slot < SLOTS) else {
                continue;
            };
            let message = side.room.to_vec(slot * LEN..slot * LEN + 2)?;
            side.receive(slot)?;
            // Not before the other end is there to be written to.
            if std::mem::take(&mut writes) {
                (0..8).try_for_each(|_| write())?;
            }
            match message[..] {
                [TAKE, _] => {}
                [ANSWER, number] => side.say([ANSWER, number])?,
                [QUIT, expected] => {
                    return wait_for("all events", || {
                        let seen = counted.each_ref().map(|count| count.load(Ordering::SeqCst));
                        ensure(
                            seen.iter().all(|seen| *seen <= expected.into()),
                            "one too many",
                        )?;
                        Ok(seen
                            .iter()
                            .all(|seen| *seen == expected.into())
                            .then_some(()))
                    });
                }
                _ => return Err(format!("a message says {message:?}").into()),
            }
        }
    }
}

/// Counts events of one kind on a thread of its own.
fn counting(
    mut next: impl FnMut() -> Result<Option<AsyncEvent>, EventError> + Send + 'static,
) -> Arc<AtomicU32> {
    let count = Arc::new(AtomicU32::new(0));
    let seen = Arc::clone(&count);
    thread::spawn(move || {
        while let Ok(event) = next() {
            let counts = event.is_some_and(|event| event.kind() == AsyncEventKind::SmChange);
            seen.fetch_add(u32::from(counts), Ordering::SeqCst);
        }
    });
    count
}

/// A peer that runs.
pub(super) struct Peer {
    pub(super) program: Program,
    pub(super) card: Card,
}

impl Peer {
    /// Starts one, and connects both ways.
    pub(super) fn of(side: &Side, environment: &[(&str, &str)]) -> Result<Self, Failure> {
        let card = side.card()?.to_text();
        let mut all = vec![("UVERBS_PEER", &*card)];
        all.extend_from_slice(environment);
        let mut program = parts::start("peer", &all)?;
        let said = program.wait_until(SOON, |output| {
            output.starts_with("here ") && output.ends_with('\n')
        })?;
        let card = Card::from_text(said.trim_start_matches("here "))?;
        side.connect(&card)?;
        Ok(Self { program, card })
    }

    pub(super) fn send(&self, signal: Signal) -> Result<(), Failure> {
        Ok(kill(Pid::from_raw(self.program.id().try_into()?), signal)?)
    }

    /// Kills it, and sees that the kernel got everything back.
    pub(super) fn kill(self, left: &Objects) -> Result<(), Failure> {
        self.send(Signal::SIGKILL)?;
        let ended = self.program.end(SOON)?;
        ensure(!ended.status.success(), &format!("it has ended: {ended}"))?;
        wait_for("the kernel freeing what it had", || {
            Ok((kernel_objects("rxe1")? == *left).then_some(()))
        })
    }

    /// Tells it to end, after so many events.
    pub(super) fn quit(self, side: &Side, events: u8) -> Result<(), Failure> {
        side.say([QUIT, events])?;
        self.program.end(2 * SOON)?.well()?;
        Ok(())
    }
}
