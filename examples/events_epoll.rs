//! Completion events and asynchronous events by `epoll(7)`, edge-triggered:
//! `cargo run --features fake --example events_epoll [DEVICE]`.

#![allow(clippy::print_stdout, reason = "an example is there to be looked at")]

mod events;

use std::os::fd::AsFd;

use events::{Result, Talk};
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};

const COMPLETION: u64 = 0;
const EVENT: u64 = 1;

fn main() -> Result<()> {
    run(std::env::args().nth(1))
}

fn run(device: Option<String>) -> Result<()> {
    let talk = Talk::start(device)?;
    let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?;
    // Of each reader its file, and what tells of the end.
    for (fd, what) in [
        (talk.channel.as_fd(), COMPLETION),
        (talk.channel.wake_fd(), COMPLETION),
        (talk.events.as_fd(), EVENT),
        (talk.events.wake_fd(), EVENT),
    ] {
        let flags = EpollFlags::EPOLLIN | EpollFlags::EPOLLET;
        epoll.add(fd, EpollEvent::new(flags, what))?;
    }
    loop {
        let mut ready = [EpollEvent::empty(); 4];
        let count = epoll.wait(&mut ready, EpollTimeout::NONE)?;
        for event in ready.iter().take(count) {
            // An edge comes once for many events: read until there are none.
            if event.data() == COMPLETION {
                while let Some(event) = talk.channel.try_next()? {
                    talk.on_completion(event)?;
                }
                continue;
            }
            while let Some(event) = talk.events.try_next()? {
                if talk.on_event(&event) {
                    return Ok(());
                }
            }
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
