//! Completion events and asynchronous events as streams, on tokio:
//! `cargo run --features fake,tokio --example events_tokio [DEVICE]`.

#![allow(clippy::print_stdout, reason = "an example is there to be looked at")]

mod events;

use events::{Result, Talk};
use uverbs::stream::{AsyncEventStream, CompletionStream};

fn main() -> Result<()> {
    run(std::env::args().nth(1))
}

#[tokio::main(flavor = "current_thread")]
async fn run(device: Option<String>) -> Result<()> {
    let talk = Talk::start(device)?;
    let mut completions = CompletionStream::new(&talk.channel)?;
    let mut events = AsyncEventStream::new(&talk.events)?;
    loop {
        // Whichever is not taken is dropped, and loses nothing.
        tokio::select! {
            Some(event) = completions.next() => talk.on_completion(event?)?,
            Some(event) = events.next() => {
                if talk.on_event(&event?) {
                    return Ok(());
                }
            }
            else => return Err("the events have ended".into()),
        }
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_talk_comes_to_its_end() {
        super::run(None).unwrap();
    }
}
