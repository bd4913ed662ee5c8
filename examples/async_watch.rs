//! Prints asynchronous events as they come, what each is about, and that object's counters:
//! `cargo run --example async_watch -- [OPTIONS] [NAME]`.
//!
//! The events of a program's own objects come to that program; what another program can watch are
//! those of ports and the device. So that there is something with counters to look at, `--overrun`
//! makes a completion queue that is too small and overruns it. With `--delay-ack` each event is held
//! for a while before it is acked, as by a program that takes its time, and at the end the queue is
//! destroyed with what is still held: the destroy waits for it.

#![allow(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "an example is there to be looked at"
)]

use std::error::Error;
use std::process::ExitCode;
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use uverbs::event::{Counts, EventError};
use uverbs::{
    AccessFlags, AsyncEvent, CompletionQueue, ConnectOptions, Context, MemoryRegion, PageBuf,
    PathOptions, QueuePair, Rc, SendWr, Subject,
};

const USAGE: &str = "\
usage: async_watch [OPTIONS] [NAME]

  NAME              device; the first there is, if not said
  --count N         exit after N events
  --delay-ack MS    hold each event so many milliseconds before it is acked
  --overrun N       make a completion queue that holds one completion and lose N, for N events
  --help";

#[derive(Default)]
struct Options {
    name: Option<String>,
    count: Option<usize>,
    delay_ack: Duration,
    overrun: u64,
}

fn main() -> ExitCode {
    let options = match options() {
        Ok(Some(options)) => options,
        Ok(None) => {
            println!("{USAGE}");
            return ExitCode::SUCCESS;
        }
        Err(error) => {
            eprintln!("{error}\n{USAGE}");
            return ExitCode::from(2);
        }
    };
    match run(&options) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

/// What the command line says; `None` if it asks for help.
fn options() -> Result<Option<Options>, Box<dyn Error>> {
    let mut options = Options::default();
    let mut args = std::env::args().skip(1);
    while let Some(arg) = args.next() {
        let mut number = || -> Result<u64, Box<dyn Error>> {
            let value = args.next().ok_or_else(|| format!("{arg} wants a number"))?;
            Ok(value.parse().map_err(|e| format!("{arg} {value}: {e}"))?)
        };
        match arg.as_str() {
            "--help" => return Ok(None),
            "--count" => options.count = Some(usize::try_from(number()?)?),
            "--delay-ack" => options.delay_ack = Duration::from_millis(number()?),
            "--overrun" => options.overrun = number()?,
            name if !name.starts_with('-') && options.name.is_none() => {
                options.name = Some(name.to_owned());
            }
            other => return Err(format!("what is {other}?").into()),
        }
    }
    Ok(Some(options))
}

fn run(options: &Options) -> Result<(), Box<dyn Error>> {
    let name = match &options.name {
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
    let events = context.events();
    // Acks come from a thread of their own, so that a delay holds up nobody who reads.
    let (to_acker, held) = mpsc::channel::<(Instant, AsyncEvent)>();
    let acker = thread::spawn(move || {
        for (due, event) in held {
            thread::sleep(due.saturating_duration_since(Instant::now()));
            event.ack();
        }
    });
    println!("{name}: waiting for events");
    let overrun = match options.overrun {
        0 => None,
        lost => Some(Overrun::new(&context, lost)?),
    };
    for event in events.iter().take(options.count.unwrap_or(usize::MAX)) {
        match event {
            Ok(event) => {
                show(&context, &event)?;
                to_acker.send((Instant::now() + options.delay_ack, event))?;
            }
            Err(EventError::DeviceGone) => {
                println!("{name}: the device is gone");
                break;
            }
            Err(error) => return Err(error.into()),
        }
    }
    if let Some(Overrun { qp, queue, .. }) = overrun {
        qp.destroy()?;
        let before = queue.event_counts();
        let began = Instant::now();
        queue.destroy()?;
        let waited = began.elapsed().as_millis();
        println!("destroyed the queue: {}; waited {waited} ms", told(before));
    }
    drop(to_acker);
    acker.join().map_err(|_| "the acking thread panicked")?;
    Ok(())
}

fn show(context: &Context, event: &AsyncEvent) -> Result<(), Box<dyn Error>> {
    let (name, kind, subject) = (context.name(), event.kind(), event.subject());
    let words = kind.description();
    print!("{name}: {kind} ({}) on {subject}: {words}", kind.raw());
    match subject {
        Subject::Port(port) => {
            // Port events can overtake each other: what counts is the state now.
            let state = context.query_port(u8::try_from(*port)?)?.state;
            println!("; the port is {state} now");
        }
        Subject::Cq(cq) => println!("; {}", told(cq.event_counts())),
        Subject::Qp(qp) => println!("; {}", told(qp.event_counts())),
        Subject::Srq(srq) => println!("; {}", told(srq.event_counts())),
        Subject::Wq(wq) => println!("; {}", told(wq.event_counts())),
        _ => println!(),
    }
    Ok(())
}

fn told(counts: Counts) -> String {
    let Counts {
        delivered,
        acked,
        outstanding,
    } = counts;
    format!("{delivered} delivered, {acked} acked, {outstanding} outstanding")
}

/// A completion queue that is given more completions than it holds.
struct Overrun {
    qp: QueuePair<Rc>,
    queue: CompletionQueue,
    // What a peer writes to, though nothing is written.
    _region: MemoryRegion<PageBuf>,
}

impl Overrun {
    fn new(context: &Context, lost: u64) -> Result<Self, Box<dyn Error>> {
        let pd = context.alloc_pd()?;
        let queue = context.create_cq(1).build()?;
        let requests = u64::from(queue.depth()) + lost;
        let qp = pd
            .create_qp::<Rc>(&queue, &queue)
            .max_send_wr(u32::try_from(requests)?)
            .build()?;
        // It is its own peer.
        let local = qp.prepare(&PathOptions::default())?;
        qp.connect(&local, &local, &ConnectOptions::default())?;
        let rights = AccessFlags::LOCAL_WRITE | AccessFlags::REMOTE_WRITE;
        let region = pd.allocate(8, rights)?;
        let remote = region.remote(0)?;
        for wr_id in 0..requests {
            qp.post_send(&[SendWr::write(wr_id, &[], remote).signaled()])?;
        }
        Ok(Self {
            qp,
            queue,
            _region: region,
        })
    }
}
