//! Completion events and asynchronous events in one `poll(2)`:
//! `cargo run --features fake --example events_poll [DEVICE]`.

#![allow(clippy::print_stdout, reason = "an example is there to be looked at")]

mod events;

use std::os::fd::AsFd;

use events::{Result, Talk};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

fn main() -> Result<()> {
    run(std::env::args().nth(1))
}

fn run(device: Option<String>) -> Result<()> {
    let talk = Talk::start(device)?;
    loop {
        // First whatever is there, until there is nothing; an error says that nothing more will come.
        while let Some(event) = talk.channel.try_next()? {
            talk.on_completion(event)?;
        }
        while let Some(event) = talk.events.try_next()? {
            if talk.on_event(&event) {
                return Ok(());
            }
        }
        // Of each reader its file, and what tells of the end.
        let fds = [
            talk.channel.as_fd(),
            talk.channel.wake_fd(),
            talk.events.as_fd(),
            talk.events.wake_fd(),
        ];
        poll(
            &mut fds.map(|fd| PollFd::new(fd, PollFlags::POLLIN)),
            PollTimeout::NONE,
        )?;
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_talk_comes_to_its_end() {
        super::run(None).unwrap();
    }
}
