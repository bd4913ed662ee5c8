//! Waiting for one queue under loom: the bell, the gate and the waiters, as a wait and a destroy use them.

#![allow(clippy::unwrap_used, reason = "a test may fail")]

use std::sync::Arc;

use loom::thread;
use uverbs_providers::wc::Wc;

use super::bell::Rope;
use super::waiter::{Awaited, Crowd, Step, Waiter};
use crate::event::EventError;
use crate::event::model::{check_and_break, check_and_break_within};
use crate::event::sync::{AtomicBool, Condvar, Fault, Mutex, Ordering, lock, planted, wait};
use crate::gate::Gate;

/// What `poll()` and descriptors do together: whoever has looked, and seen nothing, sleeps until
/// something has begun since.
#[derive(Debug, Default)]
pub(super) struct Readiness {
    begun: Mutex<u32>,
    changed: Condvar,
}

impl Readiness {
    pub(super) fn begin(&self) {
        *lock(&self.begun) += 1;
        self.changed.notify_all();
    }

    fn now(&self) -> u32 {
        *lock(&self.begun)
    }

    fn wait_past(&self, seen: u32) {
        let mut begun = lock(&self.begun);
        while *begun == seen {
            begun = wait(&self.changed, begun);
        }
    }
}

/// A queue that gets no completions, and may be destroyed.
#[derive(Default)]
struct Doomed {
    gate: Gate,
    crowd: Crowd,
}

impl Doomed {
    /// Waits as `CompletionQueue::wait` does; nothing but a destroy ends it.
    fn wait(&self) {
        let bell = &self.crowd.bell;
        let late = planted(Fault::HangAfterArming);
        let hung = (!late).then(|| bell.hang().unwrap());
        // The arming.
        if self.gate.enter().is_none() {
            return;
        }
        let rope = hung.unwrap_or_else(|| bell.hang().unwrap());
        rope.model().wait_past(0);
        assert!(rope.is_rung(), "woken, and no reason");
    }

    /// As `teardown::close`.
    fn destroy(&self) {
        if planted(Fault::RingBeforeClosing) {
            self.crowd.bell.ring();
        }
        self.gate.enter_alone().unwrap().destroyed();
        if !planted(Fault::RingBeforeClosing) {
            self.crowd.bell.ring();
        }
    }
}

#[test]
fn a_destroy_ends_a_wait_whenever_it_comes() {
    fn model() {
        let queue = Arc::new(Doomed::default());
        let waiters = [(); 2].map(|()| {
            let queue = Arc::clone(&queue);
            thread::spawn(move || queue.wait())
        });
        queue.destroy();
        for waiter in waiters {
            waiter.join().unwrap();
        }
    }
    check_and_break(model, &[Fault::HangAfterArming, Fault::RingBeforeClosing]);
}

#[test]
fn a_destroy_that_is_refused_ends_no_wait_and_the_next_one_does() {
    fn model() {
        let queue = Arc::new(Doomed::default());
        let waiter = {
            let queue = Arc::clone(&queue);
            thread::spawn(move || queue.wait())
        };
        // EBUSY: the gate opens again, and nobody is told.
        drop(queue.gate.enter_alone().unwrap());
        queue.destroy();
        waiter.join().unwrap();
    }
    check_and_break(model, &[Fault::HangAfterArming]);
}

/// A queue with its channel: completions that nobody has polled, whether it is armed, events that nobody
/// has read.
#[derive(Default)]
struct Queue {
    kernel: Mutex<(usize, bool, u32)>,
    /// Whether an exclusive handle has it, so that nobody else can poll; changes under the kernel's lock.
    is_lent: AtomicBool,
    crowd: Crowd,
}

impl Awaited for Queue {
    type Error = EventError;

    fn check(&self) -> Result<(), EventError> {
        Ok(())
    }

    fn poll(&self, out: &mut [Wc]) -> Result<usize, EventError> {
        let mut kernel = lock(&self.kernel);
        if self.is_lent.load(Ordering::Relaxed) {
            return Err(EventError::Stopped);
        }
        let count = out.len().min(kernel.0);
        kernel.0 -= count;
        Ok(count)
    }

    fn arm(&self) -> Result<(), EventError> {
        lock(&self.kernel).1 = true;
        Ok(())
    }

    fn crowd(&self) -> &Crowd {
        &self.crowd
    }
}

impl Queue {
    /// A completion comes: it is told if the queue was armed, which it is no more.
    fn complete(&self) {
        let told = {
            let mut kernel = lock(&self.kernel);
            kernel.0 += 1;
            let told = std::mem::take(&mut kernel.1);
            kernel.2 += u32::from(told);
            told
        };
        if told {
            self.crowd.bell.event_came();
        }
    }

    /// An exclusive handle takes it.
    fn lend(&self) {
        let _kernel = lock(&self.kernel);
        self.is_lent.store(true, Ordering::Relaxed);
    }

    fn read_event(&self) -> bool {
        let mut kernel = lock(&self.kernel);
        let some = kernel.2 != 0;
        kernel.2 -= u32::from(some);
        some
    }

    /// Sleeps until an event could be read or a nudge be taken.
    fn sleep(&self, rope: &Rope) {
        loop {
            let seen = rope.model().now();
            if self.read_event() || rope.take_nudge() {
                return;
            }
            rope.model().wait_past(seen);
        }
    }

    /// Waits as `CompletionQueue::wait` does, with room for so many.
    fn wait(&self, room: usize) -> Result<usize, EventError> {
        let mut out = vec![Wc::default(); room];
        let mut out = out.as_mut_slice();
        let mut waiter = Waiter::new(self);
        loop {
            match waiter.step(out)? {
                Step::Ready(done) => return Ok(done.len()),
                Step::Wait { room, rope } => {
                    out = room;
                    self.sleep(&rope);
                    waiter.nudged();
                }
            }
        }
    }
}

#[test]
fn each_of_two_who_wait_gets_one_of_two_completions() {
    fn model() {
        let queue = Arc::new(Queue::default());
        let waiters = [(); 2].map(|()| {
            let queue = Arc::clone(&queue);
            thread::spawn(move || assert_eq!(queue.wait(1), Ok(1)))
        });
        queue.complete();
        queue.complete();
        for waiter in waiters {
            waiter.join().unwrap();
        }
    }
    check_and_break_within(Some(3), model, &[Fault::NoNudge]);
}

#[test]
fn whoever_is_left_is_told_of_what_comes_after_the_other_has_gone() {
    fn model() {
        let queue = Arc::new(Queue::default());
        let waiters = [(); 2].map(|()| {
            let queue = Arc::clone(&queue);
            thread::spawn(move || {
                assert_eq!(queue.wait(2), Ok(1));
                // The answer to it makes the next one.
                queue.complete();
            })
        });
        queue.complete();
        for waiter in waiters {
            waiter.join().unwrap();
        }
    }
    let faults = [Fault::NoArmingForOthers, Fault::CountAfterArming];
    check_and_break_within(Some(3), model, &faults);
}

#[test]
fn whoever_cannot_have_what_was_told_is_not_the_only_one_to_be_told() {
    fn model() {
        let queue = Arc::new(Queue::default());
        let waiters = [(); 2].map(|()| {
            let queue = Arc::clone(&queue);
            thread::spawn(move || assert_eq!(queue.wait(2), Err(EventError::Stopped)))
        });
        queue.lend();
        queue.complete();
        queue.complete();
        for waiter in waiters {
            waiter.join().unwrap();
        }
    }
    check_and_break_within(Some(3), model, &[Fault::NoNudge]);
}
