//! What the tests share: look-ups, and a socket in place of the kernel's event file, of which one
//! datagram is one record. Miri has no such sockets and gets a pipe, which a record must fill whole.

use std::os::fd::OwnedFd;
use std::sync::{Arc, Weak};
use std::thread;
use std::time::{Duration, Instant};

use uverbs_abi::session::Status;

use super::super::held::Ack;
use super::super::ledger::{Found, Ledger};
use super::super::source::EventSource;
use super::super::{
    AsyncEvent, AsyncEventKind, AsyncEvents, Class, Counts, Registration, WeakObject,
};

/// Long enough for a thread to have got to where it waits.
pub(super) const A_WHILE: Duration = Duration::from_millis(30);
/// Longer than anything here takes.
pub(super) const TOO_LONG: Duration = Duration::from_secs(20);

pub(super) struct Rig {
    pub(super) kernel: OwnedFd,
    pub(super) source: Arc<EventSource>,
    pub(super) status: Arc<Status>,
    pub(super) events: AsyncEvents,
}

impl Rig {
    /// The event that is there. Without `poll(2)`, which Miri lacks.
    pub(super) fn next(&self) -> AsyncEvent {
        self.events.try_next().unwrap().expect("an event is queued")
    }

    pub(super) fn new() -> Self {
        let (kernel, file) = pair();
        let status = Arc::new(Status::new());
        let source = EventSource::new(file, Arc::clone(&status)).unwrap();
        let source = Arc::new(source);
        let events = AsyncEvents::new(Arc::clone(&source));
        Self {
            kernel,
            source,
            status,
            events,
        }
    }

    /// Queues an event; waits while the socket's queue is full.
    pub(super) fn raise(&self, element: u64, kind: AsyncEventKind) {
        assert_eq!(self.send(&record(element, kind.raw())), 16);
    }

    /// Queues bytes that need not be a record.
    pub(super) fn send(&self, bytes: &[u8]) -> usize {
        nix::unistd::write(&self.kernel, bytes).unwrap()
    }

    /// An object of this class, as its owner holds it.
    pub(super) fn object(&self, class: Class) -> (Arc<()>, Registration) {
        let object = Arc::new(());
        let weak: Weak<()> = Arc::downgrade(&object);
        (
            object,
            self.source
                .ledger()
                .reserve()
                .commit(WeakObject::Probe(class, weak)),
        )
    }
}

#[cfg(not(miri))]
pub(super) fn pair() -> (OwnedFd, OwnedFd) {
    let (kernel, file) = std::os::unix::net::UnixDatagram::pair().unwrap();
    (kernel.into(), file.into())
}

#[cfg(miri)]
pub(super) fn pair() -> (OwnedFd, OwnedFd) {
    let (file, kernel) = nix::unistd::pipe().unwrap();
    (kernel, file)
}

pub(super) fn record(element: u64, kind: u32) -> Vec<u8> {
    let mut bytes = element.to_ne_bytes().to_vec();
    bytes.extend(kind.to_ne_bytes());
    bytes.extend([0; 4]);
    bytes
}

/// Waits until something is so.
pub(super) fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let began = Instant::now();
    while !is_so() {
        assert!(began.elapsed() < TOO_LONG, "still waiting for: {what}");
        thread::sleep(Duration::from_millis(1));
    }
}

/// Looks up a record that must lead to an object.
pub(super) fn live<O: Clone>(ledger: &Ledger<O>, element: u64) -> (O, Ack) {
    match ledger.unclaimed(element).look_up() {
        Found::Live(live) => live,
        Found::Missed(()) => panic!("{element:#x} is missed"),
        Found::Gone(token) => panic!("{token:?} is gone"),
        Found::Unknown => panic!("{element:#x} is unknown"),
    }
}

/// Looks up a record; whether its object is gone.
pub(super) fn is_gone<O: Clone>(ledger: &Ledger<O>, element: u64) -> bool {
    matches!(ledger.unclaimed(element).look_up(), Found::Gone(token) if token.as_raw() == element)
}

pub(super) fn counts(delivered: u32, acked: u32) -> Counts {
    Counts {
        delivered,
        acked,
        outstanding: delivered - acked,
    }
}
