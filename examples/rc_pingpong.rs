//! An RC ping-pong between two processes, every byte checked.
//!
//! ```text
//! cargo run --example rc_pingpong -- [-d DEVICE] [-g GID-INDEX] [-s SIZE] [-n COUNT] [-p TCP-PORT]
//! cargo run --example rc_pingpong -- … HOST       # the other end, which connects to the first
//! ```
//!
//! The two tell each other their endpoints, 40 bytes each, over TCP.

#![allow(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "an example is there to be looked at"
)]

use std::cell::RefCell;
use std::error::Error;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use uverbs::{
    AccessFlags, CompletionQueue, ConnectOptions, Context, Endpoint, MemoryRegion, PathOptions,
    QueuePair, Rc, RecvWr, SendWr, Wc,
};

type Result<T> = std::result::Result<T, Box<dyn Error>>;

struct Options {
    device: Option<String>,
    gid_index: Option<u32>,
    size: usize,
    count: u32,
    tcp_port: u16,
    host: Option<String>,
}

impl Options {
    fn parse() -> Result<Self> {
        let mut options = Self {
            device: None,
            gid_index: None,
            size: 4096,
            count: 1000,
            tcp_port: 18515,
            host: None,
        };
        let mut args = std::env::args().skip(1);
        while let Some(arg) = args.next() {
            let mut value = || args.next().ok_or_else(|| format!("{arg} needs a value"));
            match arg.as_str() {
                "-d" => options.device = Some(value()?),
                "-g" => options.gid_index = Some(value()?.parse()?),
                "-s" => options.size = value()?.parse()?,
                "-n" => options.count = value()?.parse()?,
                "-p" => options.tcp_port = value()?.parse()?,
                _ if arg.starts_with('-') => return Err(format!("unknown option {arg}").into()),
                _ => options.host = Some(arg),
            }
        }
        Ok(options)
    }
}

struct End {
    cq: CompletionQueue,
    qp: QueuePair<Rc>,
    out: MemoryRegion,
    room: MemoryRegion,
    early: RefCell<Vec<u64>>,
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
    let options = Options::parse()?;
    let name = match &options.device {
        Some(name) => name.clone(),
        None => match uverbs::devices()?.first() {
            Some(device) => device.name().to_owned(),
            None => {
                return Err(
                    "no RDMA device; `rdma link add rxe0 type rxe netdev eth0` makes one".into(),
                );
            }
        },
    };
    let context = Context::open(&name)?;
    let pd = context.alloc_pd()?;
    let cq = context.create_cq(16).build()?;
    let qp = pd.create_qp::<Rc>(&cq, &cq).build()?;
    let end = End {
        out: pd.allocate(options.size, AccessFlags::empty())?,
        room: pd.allocate(options.size, AccessFlags::LOCAL_WRITE)?,
        early: RefCell::default(),
        cq,
        qp,
    };

    let mut path = PathOptions::default();
    if let Some(index) = options.gid_index {
        let entry = context.query_gid(path.port, index)?;
        path.gid = Some(entry.ok_or("that GID entry is empty")?.gid);
    }
    let local = end.qp.prepare(&path)?;
    println!("local  {local:?}");
    // A receive must be there before the peer can send.
    end.post_receive(0)?;
    let mut peer = meet(&options)?;
    peer.write_all(&local.to_bytes())?;
    let mut bytes = [0; Endpoint::LEN];
    peer.read_exact(&mut bytes)?;
    let remote = Endpoint::from_bytes(&bytes)?;
    println!("remote {remote:?}");
    end.qp
        .connect(&local, &remote, &ConnectOptions::default())?;
    // Both are ready before the first message goes.
    peer.write_all(b"r")?;
    peer.read_exact(&mut [0])?;

    let start = Instant::now();
    let is_first = options.host.is_some();
    for round in 0..options.count {
        if is_first {
            end.send(round, &message(options.size, round))?;
            end.receive(round, &message(options.size, !round))?;
        } else {
            end.receive(round, &message(options.size, round))?;
            end.send(round, &message(options.size, !round))?;
        }
    }
    // Neither leaves while the other may still need an acknowledgement.
    peer.write_all(b"d")?;
    peer.read_exact(&mut [0])?;
    let took = start.elapsed();
    println!(
        "{} messages of {} bytes each way in {:.3} s, {:.1} µs a round, every byte as sent",
        options.count,
        options.size,
        took.as_secs_f64(),
        took.as_secs_f64() * 1e6 / f64::from(options.count.max(1))
    );
    Ok(())
}

impl End {
    fn post_receive(&self, round: u32) -> Result<()> {
        Ok(self
            .qp
            .post_recv(&[RecvWr::new(u64::from(round) << 1, &[self.room.slice(..)?])])?)
    }

    fn send(&self, round: u32, message: &[u8]) -> Result<()> {
        self.out.write_at(0, message)?;
        let wr_id = u64::from(round) << 1 | 1;
        self.qp
            .post_send(&[SendWr::send(wr_id, &[self.out.slice(..)?]).signaled()])?;
        self.completion(wr_id)
    }

    fn receive(&self, round: u32, expected: &[u8]) -> Result<()> {
        self.completion(u64::from(round) << 1)?;
        if self.room.to_vec(..)? != expected {
            return Err(format!("message {round} did not arrive as it was sent").into());
        }
        self.post_receive(round + 1)
    }

    /// Waits for the completion of one request. One at a time is under way in each direction, but a
    /// receive may complete before the send whose answer it is.
    fn completion(&self, wr_id: u64) -> Result<()> {
        let deadline = Instant::now() + Duration::from_secs(30);
        let mut early = self.early.borrow_mut();
        loop {
            if let Some(at) = early.iter().position(|id| *id == wr_id) {
                early.swap_remove(at);
                return Ok(());
            }
            let mut room = [Wc::default(); 4];
            let found = self.cq.poll(&mut room)?;
            for wc in found.iter() {
                early.push(wc.ok()?.wr_id);
            }
            if found.is_empty() {
                if Instant::now() > deadline {
                    return Err("no completion within 30 s".into());
                }
                std::thread::yield_now();
            }
        }
    }
}

/// The first end waits for the second one to call; the second tries until the first is there.
fn meet(options: &Options) -> Result<TcpStream> {
    let Some(host) = &options.host else {
        return Ok(TcpListener::bind(("0.0.0.0", options.tcp_port))?
            .accept()?
            .0);
    };
    let deadline = Instant::now() + Duration::from_secs(10);
    loop {
        match TcpStream::connect((host.as_str(), options.tcp_port)) {
            Ok(stream) => return Ok(stream),
            Err(error) if Instant::now() > deadline => return Err(error.into()),
            Err(_) => std::thread::sleep(Duration::from_millis(50)),
        }
    }
}

/// A message that differs from round to round and from byte to byte.
fn message(size: usize, round: u32) -> Vec<u8> {
    let mut state = u64::from(round) << 1 | 1;
    let mut bytes = Vec::with_capacity(size);
    while bytes.len() < size {
        state = state
            .wrapping_mul(0x5851_F42D_4C95_7F2D)
            .wrapping_add(0x1405_7B7E_F767_814F);
        let word = state.to_be_bytes();
        bytes.extend_from_slice(&word[..word.len().min(size - bytes.len())]);
    }
    bytes
}
