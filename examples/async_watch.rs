//! Prints asynchronous events as they come: `cargo run --example async_watch [NAME] [COUNT]`.
//!
//! Without COUNT it runs until it is interrupted or the device goes away.

#![allow(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "an example is there to be looked at"
)]

use std::error::Error;
use std::process::ExitCode;

use uverbs::event::EventError;
use uverbs::{Context, Subject};

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<(), Box<dyn Error>> {
    let mut args = std::env::args().skip(1);
    let name = match args.next() {
        Some(name) => name,
        None => match uverbs::devices()?.first() {
            Some(device) => device.name().to_owned(),
            None => {
                return Err(
                    "no RDMA device; `rdma link add rxe0 type rxe netdev eth0` makes one".into(),
                );
            }
        },
    };
    let count = args.next().map(|text| text.parse::<usize>()).transpose()?;
    let context = Context::open(&name)?;
    println!("{name}: waiting for events");
    for event in context.events().iter().take(count.unwrap_or(usize::MAX)) {
        match event {
            Ok(event) => {
                println!("{}: {} on {}", name, event.kind(), event.subject());
                if let Subject::Port(port) = event.subject() {
                    // Port events can overtake each other: what counts is the state now.
                    let port_number = u8::try_from(*port)?;
                    println!(
                        "  port {port} is {}",
                        context.query_port(port_number)?.state
                    );
                }
                // Dropping the event acks it.
            }
            Err(EventError::DeviceGone) => {
                println!("{name}: the device is gone");
                return Ok(());
            }
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}
