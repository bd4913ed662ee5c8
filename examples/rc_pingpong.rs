//! An RC ping-pong between two processes: the server sends back what it got, and the client looks at
//! every byte of it.
//!
//! ```text
//! cargo run --example rc_pingpong -- [OPTIONS]          # the server
//! cargo run --example rc_pingpong -- [OPTIONS] HOST     # the client
//! ```
//!
//! Options and what goes over TCP are those of rdma-core's `ibv_rc_pingpong`, and either end may be
//! that program: `-d DEVICE -i PORT -g GID-INDEX -s SIZE -m MTU -r RX-DEPTH -n ITERS -l SL -e -c -p
//! TCP-PORT`. With `-e` it sleeps until there are completions, instead of polling for them. Without `-g` it takes the GID that is best reached; that program then takes none.

#![allow(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "an example is there to be looked at"
)]

mod pingpong;

use std::process::ExitCode;
use std::time::Instant;

use pingpong::{FILL, Options, Result, check_pages, completions, meet, message, report, show};
use uverbs::{AccessFlags, CompletionQueue, MemoryRegion, QueuePair, Rc, RecvWr, SendWr, Wc};

const RECV: u64 = 1;
const SEND: u64 = 2;

struct End<'o> {
    options: &'o Options,
    cq: CompletionQueue,
    qp: QueuePair<Rc>,
    /// The client's messages.
    out: MemoryRegion,
    /// What comes in; the server sends it back from here.
    room: MemoryRegion,
    posted: u32,
    received: bool,
    sent: bool,
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
    let context = options.open()?;
    let pd = context.alloc_pd()?;
    let cq = options.create_cq(&context, options.rx_depth + 1)?;
    let qp = pd
        .create_qp::<Rc>(&cq, &cq)
        .max_send_wr(1)
        .max_recv_wr(options.rx_depth)
        .build()?;
    let local = qp.prepare(&options.path(&context)?)?;
    show("local", &local);
    let mut end = End {
        options: &options,
        out: pd.allocate(options.size, AccessFlags::empty())?,
        room: pd.allocate(options.size, AccessFlags::LOCAL_WRITE)?,
        cq,
        qp,
        posted: 0,
        received: false,
        sent: false,
    };
    end.room.write_at(0, &vec![FILL; options.size])?;
    // Receives must be there before the other end can send.
    end.post_receives()?;
    meet(&options, &[local], 1, |remote| {
        for remote in remote {
            show("remote", remote);
            end.qp.connect(&local, remote, &options.connection())?;
        }
        Ok(())
    })?;

    let start = Instant::now();
    for round in 0..options.iters {
        if options.host.is_some() {
            end.ask(round)?;
        } else {
            end.answer()?;
        }
    }
    report(&options, start.elapsed());
    if options.host.is_some() {
        println!("every byte came back as it was sent");
    }
    Ok(())
}

impl End<'_> {
    fn post_receives(&mut self) -> Result<()> {
        let room = [self.room.slice(..)?];
        while self.posted < self.options.rx_depth {
            self.qp.post_recv(&[RecvWr::new(RECV, &room)])?;
            self.posted += 1;
        }
        Ok(())
    }

    /// The client's part of a round.
    fn ask(&mut self, round: u32) -> Result<()> {
        let message = message(self.options.size, round, self.options.check);
        self.out.write_at(0, &message)?;
        self.qp
            .post_send(&[SendWr::send(SEND, &[self.out.slice(..)?]).signaled()])?;
        // The answer may be there before the message that it answers counts as sent.
        while !self.sent || !self.received {
            self.completions()?;
        }
        (self.sent, self.received) = (false, false);
        if self.room.to_vec(..)? != message {
            return Err(format!("message {round} did not come back as it was sent").into());
        }
        Ok(())
    }

    /// The server's part of a round.
    fn answer(&mut self) -> Result<()> {
        while !self.received {
            self.completions()?;
        }
        self.received = false;
        if self.options.check {
            check_pages(&self.room.to_vec(..)?)?;
        }
        self.qp
            .post_send(&[SendWr::send(SEND, &[self.room.slice(..)?]).signaled()])?;
        while !self.sent {
            self.completions()?;
        }
        self.sent = false;
        Ok(())
    }

    /// Waits for a completion, or two.
    fn completions(&mut self) -> Result<()> {
        let mut room = [Wc::default(); 2];
        for wc in completions(&self.cq, &mut room)?.iter() {
            let wc = wc.ok()?;
            if wc.wr_id == SEND {
                self.sent = true;
                continue;
            }
            if usize::try_from(wc.byte_len)? != self.options.size {
                return Err(format!("a message of {} bytes came", wc.byte_len).into());
            }
            self.received = true;
            self.posted -= 1;
        }
        if self.posted <= 1 {
            self.post_receives()?;
        }
        Ok(())
    }
}
