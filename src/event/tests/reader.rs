//! What the reader promises: waiting, being woken, ending.

use std::collections::HashSet;
use std::os::fd::{AsFd, AsRawFd};
use std::sync::Arc;
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use super::super::{AsyncEventKind, AsyncEvents, EventError, Subject};
use super::support::{A_WHILE, Rig, TOO_LONG, pair, record};

/// Ends this many blocked readers with `end` and gives what each of them says.
fn end_blocked(rig: &Rig, readers: usize, end: impl FnOnce()) -> Vec<EventError> {
    let (said, heard) = mpsc::channel();
    for _ in 0..readers {
        let (events, said) = (rig.events.clone(), said.clone());
        thread::spawn(move || {
            // Events on the way to the end are let go.
            let error = loop {
                if let Err(error) = events.next() {
                    break error;
                }
            };
            said.send(error).unwrap();
        });
    }
    thread::sleep(A_WHILE);
    assert!(heard.try_recv().is_err(), "they wait");
    end();
    (0..readers)
        .map(|_| heard.recv_timeout(TOO_LONG).unwrap())
        .collect()
}

fn is_readable(fd: impl AsFd) -> bool {
    let mut fds = [PollFd::new(fd.as_fd(), PollFlags::POLLIN)];
    poll(&mut fds, PollTimeout::ZERO).unwrap() == 1
}

#[test]
#[cfg_attr(miri, ignore = "Miri has no poll(2)")]
fn a_blocked_reader_gets_the_event() {
    let rig = Rig::new();
    let reader = {
        let events = rig.events.clone();
        thread::spawn(move || events.next().unwrap())
    };
    thread::sleep(A_WHILE);
    rig.raise(1, AsyncEventKind::PortActive);
    let event = reader.join().unwrap();
    assert_eq!(event.kind(), AsyncEventKind::PortActive);
    assert!(matches!(event.subject(), Subject::Port(1)));
}

#[test]
#[cfg_attr(miri, ignore = "Miri has no poll(2)")]
fn with_nothing_there_it_says_none_at_once_or_when_the_time_is_up() {
    let rig = Rig::new();
    assert!(rig.events.try_next().unwrap().is_none());
    for timeout in [Duration::ZERO, Duration::from_micros(1), A_WHILE] {
        let began = Instant::now();
        assert!(rig.events.next_timeout(timeout).unwrap().is_none());
        assert!(began.elapsed() >= timeout, "never early");
        assert!(began.elapsed() < TOO_LONG);
    }
    rig.raise(1, AsyncEventKind::PortErr);
    assert!(
        rig.events.next_timeout(Duration::ZERO).unwrap().is_some(),
        "what is there is given"
    );
    rig.raise(1, AsyncEventKind::PortErr);
    assert!(rig.events.next_timeout(Duration::MAX).unwrap().is_some());
}

#[test]
#[cfg_attr(miri, ignore = "Miri has no poll(2)")]
fn readiness_can_be_polled_and_drained_until_none() {
    let rig = Rig::new();
    assert!(!is_readable(&rig.events));
    for port in 1..=5 {
        rig.raise(port, AsyncEventKind::GidChange);
    }
    assert!(is_readable(&rig.events));
    let mut ports = Vec::new();
    while let Some(event) = rig.events.try_next().unwrap() {
        let Subject::Port(port) = *event.subject() else {
            panic!("{event:?}")
        };
        ports.push(port);
    }
    assert_eq!(ports, [1, 2, 3, 4, 5]);
    assert!(!is_readable(&rig.events) && !is_readable(rig.events.wake_fd()));
}

#[test]
fn the_file_is_non_blocking_and_stays_as_it_is() {
    let rig = Rig::new();
    let flags = || OFlag::from_bits_retain(fcntl(&rig.events, FcntlArg::F_GETFL).unwrap());
    let before = flags();
    assert!(before.contains(OFlag::O_NONBLOCK));
    rig.raise(1, AsyncEventKind::PortErr);
    drop(rig.next());
    assert!(rig.events.try_next().unwrap().is_none());
    assert_eq!(flags(), before);
    assert_eq!(
        rig.events.as_fd().as_raw_fd(),
        rig.source.event_fd().as_raw_fd()
    );
}

#[test]
#[cfg_attr(miri, ignore = "Miri has no poll(2)")]
fn stop_ends_everyone_at_once_and_for_good() {
    let rig = Rig::new();
    let said = end_blocked(&rig, 4, || rig.events.clone().stop());
    assert_eq!(said, [EventError::Stopped; 4]);
    rig.raise(1, AsyncEventKind::PortErr);
    assert_eq!(
        rig.events.next().unwrap_err(),
        EventError::Stopped,
        "and does not read on"
    );
    assert_eq!(rig.events.try_next().unwrap_err(), EventError::Stopped);
    assert_eq!(
        rig.events.next_timeout(TOO_LONG).unwrap_err(),
        EventError::Stopped
    );
    assert!(is_readable(rig.events.wake_fd()));
    rig.events.stop();
}

#[test]
#[cfg_attr(miri, ignore = "Miri has no poll(2)")]
fn stop_and_join_a_thousand_times() {
    for _ in 0..1000 {
        let rig = Rig::new();
        let reader = {
            let events = rig.events.clone();
            thread::spawn(move || events.next().unwrap_err())
        };
        rig.events.stop();
        assert_eq!(reader.join().unwrap(), EventError::Stopped);
    }
}

#[test]
#[cfg_attr(miri, ignore = "Miri has no poll(2)")]
fn closing_the_context_ends_readers_after_what_is_queued() {
    let rig = Rig::new();
    let said = end_blocked(&rig, 3, || {
        for _ in 0..5 {
            rig.raise(1, AsyncEventKind::PortErr);
        }
        rig.source.close();
    });
    assert_eq!(said, [EventError::ContextClosed; 3]);
    assert!(!is_readable(&rig.events), "all five have been read");
    rig.raise(1, AsyncEventKind::PortActive);
    assert!(
        rig.events.next().is_ok(),
        "the kernel keeps port events readable"
    );
    assert_eq!(
        rig.events.try_next().unwrap_err(),
        EventError::ContextClosed
    );
}

#[test]
#[cfg_attr(miri, ignore = "Miri has no poll(2)")]
fn after_device_fatal_each_waiter_ends_once() {
    let rig = Rig::new();
    let (said, heard) = mpsc::channel();
    let readers: Vec<_> = (0..4)
        .map(|_| {
            let (events, said) = (rig.events.clone(), said.clone());
            thread::spawn(move || {
                for next in &events {
                    said.send(next.map(|event| event.kind())).unwrap();
                }
            })
        })
        .collect();
    drop(said);
    thread::sleep(A_WHILE);
    rig.raise(1, AsyncEventKind::PortErr);
    rig.raise(0, AsyncEventKind::DeviceFatal);
    readers
        .into_iter()
        .for_each(|reader| reader.join().unwrap());
    let said: Vec<_> = heard.into_iter().collect();
    let count = |wanted| said.iter().filter(|next| **next == wanted).count();
    assert_eq!(count(Ok(AsyncEventKind::PortErr)), 1);
    assert_eq!(count(Ok(AsyncEventKind::DeviceFatal)), 1);
    assert_eq!(count(Err(EventError::DeviceGone)), 4);
    assert_eq!(said.len(), 6);
    assert!(rig.status.is_gone(), "and every call on the context knows");
    assert_eq!(rig.events.next().unwrap_err(), EventError::DeviceGone);
    assert_eq!(rig.events.try_next().unwrap_err(), EventError::DeviceGone);
    assert_eq!(
        rig.events.next_timeout(TOO_LONG).unwrap_err(),
        EventError::DeviceGone
    );
}

#[test]
fn what_was_queued_before_the_end_was_announced_is_still_read() {
    let rig = Rig::new();
    rig.raise(1, AsyncEventKind::PortErr);
    rig.raise(0, AsyncEventKind::DeviceFatal);
    rig.source.close();
    let kinds: Vec<_> = rig
        .events
        .iter()
        .map(|next| next.map(|event| event.kind()))
        .collect();
    let expected = [
        Ok(AsyncEventKind::PortErr),
        Ok(AsyncEventKind::DeviceFatal),
        Err(EventError::DeviceGone),
    ];
    assert_eq!(kinds, expected);
}

#[test]
#[cfg_attr(miri, ignore = "Miri has no poll(2)")]
fn a_call_that_finds_the_device_gone_ends_readers_after_what_is_queued() {
    let rig = Rig::new();
    let said = end_blocked(&rig, 3, || {
        for _ in 0..5 {
            rig.raise(1, AsyncEventKind::PortErr);
        }
        rig.status.mark_gone();
        rig.status.mark_gone();
    });
    assert_eq!(said, [EventError::DeviceGone; 3]);
    assert!(!is_readable(&rig.events), "all five have been read");
    assert!(is_readable(rig.events.wake_fd()));
    assert_eq!(rig.events.next().unwrap_err(), EventError::DeviceGone);
}

#[test]
fn a_file_that_comes_after_the_removal_was_found_ends_as_well() {
    let rig = Rig::new();
    rig.status.mark_gone();
    let (_kernel, file) = pair();
    let late = AsyncEvents::new(Arc::new(rig.source.another(file).unwrap()));
    assert_eq!(late.try_next().unwrap_err(), EventError::DeviceGone);
}

#[test]
#[cfg_attr(miri, ignore = "Miri has no poll(2)")]
fn each_event_reaches_exactly_one_of_four_readers() {
    const EVENTS: u32 = 20_000;
    let rig = Rig::new();
    let (said, heard) = mpsc::channel();
    let readers: Vec<_> = (0..4)
        .map(|_| {
            let (events, said) = (rig.events.clone(), said.clone());
            thread::spawn(move || {
                for next in events {
                    let event = next.unwrap();
                    let Subject::Port(port) = *event.subject() else {
                        panic!("{event:?}")
                    };
                    said.send(port).unwrap();
                }
            })
        })
        .collect();
    drop(said);
    for port in 0..EVENTS {
        rig.raise(u64::from(port), AsyncEventKind::PortActive);
    }
    rig.source.close();
    readers
        .into_iter()
        .for_each(|reader| reader.join().unwrap());
    let ports: Vec<_> = heard.into_iter().collect();
    assert_eq!(ports.len(), EVENTS as usize);
    assert_eq!(
        ports.into_iter().collect::<HashSet<_>>().len(),
        EVENTS as usize
    );
}

#[test]
#[cfg_attr(miri, ignore = "Miri has no poll(2)")]
fn a_reader_that_was_too_slow_is_not_stuck_in_read() {
    let rig = Rig::new();
    rig.raise(1, AsyncEventKind::PortErr);
    assert!(is_readable(&rig.events));
    // Another reader is faster.
    drop(rig.events.clone().next().unwrap());
    assert!(rig.events.try_next().unwrap().is_none());
    assert!(
        rig.events
            .next_timeout(Duration::from_millis(1))
            .unwrap()
            .is_none()
    );
}

#[test]
#[cfg_attr(miri, ignore = "Miri has no poll(2)")]
fn a_record_that_is_none_is_an_error_and_the_next_one_is_read() {
    let rig = Rig::new();
    for len in [1, 8, 15] {
        let bytes = record(1, AsyncEventKind::PortErr.raw());
        rig.send(&bytes[..len]);
        assert_eq!(
            rig.events.next().unwrap_err(),
            EventError::BadRecord { len }
        );
    }
    rig.raise(1, AsyncEventKind::PortErr);
    assert!(rig.events.next().is_ok());
}

#[test]
#[cfg_attr(miri, ignore = "Miri has no poll(2)")]
fn an_error_of_the_kernel_is_handed_on() {
    use std::os::fd::OwnedFd;
    use uverbs_abi::{Errno, session::Status};
    // A directory can be polled, and refuses to be read.
    let file = OwnedFd::from(std::fs::File::open("/").unwrap());
    let source = super::super::source::EventSource::new(file, Arc::new(Status::new())).unwrap();
    let events = AsyncEvents::new(Arc::new(source));
    let eisdir = Errno::from_raw(nix::errno::Errno::EISDIR as i32);
    assert_eq!(events.next().unwrap_err(), EventError::Os(eisdir));
    assert_eq!(events.iter().count(), 1, "an iterator ends with the error");
}

#[test]
#[cfg_attr(miri, ignore = "Miri has no poll(2)")]
fn a_reader_does_not_keep_the_context_and_lets_go_of_its_files() {
    let rig = Rig::new();
    let events = rig.events.clone();
    let source = Arc::downgrade(&rig.source);
    let Rig {
        kernel,
        source: owner,
        events: own,
        ..
    } = rig;
    owner.close();
    drop((owner, own));
    assert_eq!(events.next().unwrap_err(), EventError::ContextClosed);
    drop(events);
    assert!(source.upgrade().is_none());
    let refused = nix::unistd::write(&kernel, &[0; 16]);
    assert!(refused.is_err(), "the event file is closed");
}

#[test]
fn errors_say_what_to_do() {
    let texts = [
        (EventError::Stopped, "stopped"),
        (EventError::ContextClosed, "closed"),
        (EventError::DeviceGone, "open it again"),
        (EventError::ForeignProcess, "open the device anew"),
        (EventError::BadRecord { len: 3 }, "read 3 bytes"),
        (EventError::Os(uverbs_abi::Errno::EBADF), "EBADF"),
    ];
    for (error, part) in texts {
        assert!(error.to_string().contains(part), "{error}");
    }
}
