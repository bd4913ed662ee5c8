//! A ping-pong over many queue pairs that draw their receives from one shared receive queue: the
//! server sends back what it got, and the client looks at every byte of it.
//!
//! ```text
//! cargo run --example srq_pingpong -- [OPTIONS]          # the server
//! cargo run --example srq_pingpong -- [OPTIONS] HOST     # the client
//! ```
//!
//! Options and what goes over TCP are those of rdma-core's `ibv_srq_pingpong`, and either end may be
//! that program. `-q QUEUE-PAIRS` must be the same at both ends; the others are told in `rc_pingpong`.
//! That program has one buffer for everything, so all messages of a run are alike.

#![allow(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "an example is there to be looked at"
)]

mod pingpong;

use std::process::ExitCode;
use std::time::Instant;

use pingpong::{FILL, Options, Result, check_pages, completions, meet, message, report, show};
use uverbs::{
    AccessFlags, CompletionQueue, Endpoint, MemoryRegion, QueuePair, Rc, RecvWr, SendWr,
    SharedReceiveQueue, Wc,
};

/// Set in the id of a send, beside the queue pair's number; a receive's id is its slot.
const SEND: u64 = 1 << 32;

/// As many ends as that program always tells of.
const LINES: usize = 256;

/// A queue pair, and what it waits for.
struct Lane {
    qp: QueuePair<Rc>,
    awaits_message: bool,
    /// The slot of the message that is to be answered.
    arrived: Option<usize>,
    awaits_sent: bool,
    /// The slot from which the answer under way is sent.
    answering: Option<usize>,
}

struct End<'o> {
    options: &'o Options,
    cq: CompletionQueue,
    srq: SharedReceiveQueue,
    lanes: Vec<Lane>,
    message: Vec<u8>,
    /// The client's message.
    out: MemoryRegion,
    /// One slot for each receive.
    room: MemoryRegion,
    received: u32,
    sent: u32,
}

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<()> {
    let Some(options) = Options::parse()? else {
        return Ok(());
    };
    let slots = usize::try_from(options.rx_depth)?;
    if slots <= options.num_qp {
        return Err("-r must be more than -q".into());
    }
    if options.num_qp > LINES {
        return Err(format!("-q: no more than {LINES}").into());
    }
    let context = options.open()?;
    let pd = context.alloc_pd()?;
    let depth = options.rx_depth + u32::try_from(options.num_qp)?;
    let cq = options.create_cq(&context, depth)?;
    let srq = pd.create_srq(options.rx_depth).build()?;
    let mut lanes = Vec::new();
    let mut local = Vec::new();
    for _ in 0..options.num_qp {
        let builder = pd.create_qp::<Rc>(&cq, &cq).srq(&srq).max_send_wr(1);
        let qp = builder.build()?;
        let end = qp.prepare(&options.path(&context)?)?;
        show("local", &end);
        local.push(end);
        lanes.push(Lane {
            qp,
            awaits_message: true,
            arrived: None,
            awaits_sent: false,
            answering: None,
        });
    }
    let message = message(options.size, 0, options.check);
    let out = pd.allocate(options.size, AccessFlags::empty())?;
    out.write_at(0, &message)?;
    let bytes = slots
        .checked_mul(options.size)
        .ok_or("-r times -s is too much memory")?;
    let mut end = End {
        options: &options,
        out,
        room: pd.allocate(bytes, AccessFlags::LOCAL_WRITE)?,
        cq,
        srq,
        lanes,
        message,
        received: 0,
        sent: 0,
    };
    for slot in 0..slots {
        end.post_receive(slot)?;
    }
    meet(&options, &local, LINES, |remote| {
        end.connect(&local, remote)
    })?;

    let start = Instant::now();
    end.run()?;
    report(&options, start.elapsed());
    if options.host.is_some() {
        println!("every byte came back as it was sent");
    }
    Ok(())
}

impl End<'_> {
    fn connect(&self, local: &[Endpoint], remote: &[Endpoint]) -> Result<()> {
        for ((lane, local), remote) in self.lanes.iter().zip(local).zip(remote) {
            show("remote", remote);
            lane.qp.connect(local, remote, &self.options.connection())?;
        }
        Ok(())
    }

    fn slot(&self, slot: usize) -> std::ops::Range<usize> {
        slot * self.options.size..(slot + 1) * self.options.size
    }

    fn post_receive(&self, slot: usize) -> Result<()> {
        let range = self.slot(slot);
        self.room
            .write_at(range.start, &vec![FILL; self.options.size])?;
        let room = [self.room.slice(range)?];
        Ok(self.srq.post_recv(&[RecvWr::new(slot as u64, &room)])?)
    }

    fn run(&mut self) -> Result<()> {
        let is_client = self.options.host.is_some();
        if is_client {
            for lane in 0..self.lanes.len() {
                self.send(lane)?;
            }
        }
        // As many as were asked for in all, whichever queue pair they went over.
        while self.received < self.options.iters || self.sent < self.options.iters {
            let mut room = [Wc::default(); 16];
            for wc in completions(&self.cq, &mut room)?.iter() {
                let wc = wc.ok()?;
                let lane = self
                    .lanes
                    .iter()
                    .position(|lane| lane.qp.qp_num() == wc.qp_num)
                    .ok_or("a completion of an unknown queue pair")?;
                if wc.wr_id & SEND != 0 {
                    self.was_sent(lane)?;
                } else {
                    self.has_come(lane, wc)?;
                }
                let Lane {
                    awaits_message,
                    awaits_sent,
                    ..
                } = self.lanes[lane];
                if !awaits_message && !awaits_sent && self.sent < self.options.iters {
                    self.send(lane)?;
                }
            }
        }
        Ok(())
    }

    /// The client sends its message, the server the one that it answers.
    fn send(&mut self, lane: usize) -> Result<()> {
        let arrived = self.lanes[lane].arrived.take();
        let message = match arrived {
            Some(slot) => self.room.slice(self.slot(slot))?,
            None => self.out.slice(..)?,
        };
        let state = &mut self.lanes[lane];
        state
            .qp
            .post_send(&[SendWr::send(SEND | lane as u64, &[message]).signaled()])?;
        state.answering = arrived;
        state.awaits_sent = true;
        state.awaits_message = true;
        Ok(())
    }

    fn was_sent(&mut self, lane: usize) -> Result<()> {
        self.sent += 1;
        self.lanes[lane].awaits_sent = false;
        match self.lanes[lane].answering.take() {
            Some(slot) => self.post_receive(slot),
            None => Ok(()),
        }
    }

    fn has_come(&mut self, lane: usize, wc: &Wc) -> Result<()> {
        if usize::try_from(wc.byte_len)? != self.options.size {
            return Err(format!("a message of {} bytes came", wc.byte_len).into());
        }
        self.received += 1;
        self.lanes[lane].awaits_message = false;
        let slot = usize::try_from(wc.wr_id)?;
        let came = self.room.to_vec(self.slot(slot))?;
        if self.options.host.is_some() {
            if came != self.message {
                return Err("a message did not come back as it was sent".into());
            }
            return self.post_receive(slot);
        }
        if self.options.check {
            check_pages(&came)?;
        }
        self.lanes[lane].arrived = Some(slot);
        Ok(())
    }
}
