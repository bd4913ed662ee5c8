//! The index protocol under loom: every order in which the two sides can run, with the memory model
//! of the language.
//!
//! The kernel's side is written here by hand, as `rxe_queue.h` has it: a private index of its own,
//! an acquire load of the other's, a release store of its own. Slots are cells that loom watches: a
//! read that does not come after the write, or a write that does not come after the last read,
//! fails the model. And the models must fail when one store is weakened, or they prove nothing.
//!
//! `RUSTFLAGS="--cfg uverbs_loom" cargo test -p uverbs-providers --test ring_loom --target-dir
//! target/loom --release`

#![cfg(uverbs_loom)]
#![allow(clippy::unwrap_used, reason = "a test may fail")]
#![allow(
    unsafe_code,
    reason = "the slots are loom's cells, which hand out pointers"
)]

use std::panic::{AssertUnwindSafe, catch_unwind};

use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::sync::atomic::{AtomicU32, Ordering};
use loom::thread;
use uverbs_providers::ring::{Consumer, Index, Masked, Producer};

/// An index that publishes with `Release`, or, to see the model fail, with `Relaxed`.
struct Word<const RELEASE: bool>(AtomicU32);

impl<const RELEASE: bool> Index for Word<RELEASE> {
    fn load_acquire(&self) -> u32 {
        self.0.load(Ordering::Acquire)
    }

    fn load_relaxed(&self) -> u32 {
        self.0.load(Ordering::Relaxed)
    }

    fn store_release(&self, value: u32) {
        self.0.store(
            value,
            if RELEASE {
                Ordering::Release
            } else {
                Ordering::Relaxed
            },
        );
    }
}

/// Two indices and the slots. `USER` is whether our side publishes as it should, `KERNEL` whether
/// the kernel's does.
struct Shared<const USER: bool, const KERNEL: bool> {
    ours: Word<USER>,
    theirs: Word<KERNEL>,
    slots: Vec<UnsafeCell<u32>>,
    mask: u32,
}

impl<const USER: bool, const KERNEL: bool> Shared<USER, KERNEL> {
    /// Both indices at `start`, so that a short run goes over the wrap.
    fn new(mask: u32, start: u32) -> Arc<Self> {
        Arc::new(Self {
            ours: Word(AtomicU32::new(start)),
            theirs: Word(AtomicU32::new(start)),
            slots: (0..=mask).map(|_| UnsafeCell::new(0)).collect(),
            mask,
        })
    }

    fn fill(&self, slot: u32, value: u32) {
        // SAFETY: loom checks that no other access is concurrent with this one.
        self.slots[slot as usize].with_mut(|cell| unsafe { *cell = value });
    }

    fn read(&self, slot: u32) -> u32 {
        // SAFETY: loom checks that no write is concurrent with this one.
        self.slots[slot as usize].with(|cell| unsafe { *cell })
    }
}

/// We fill (a work queue), the kernel empties.
fn user_produces<const USER: bool, const KERNEL: bool>(mask: u32, start: u32, messages: u32) {
    let shared = Shared::<USER, KERNEL>::new(mask, start);
    let kernel = {
        let shared = Arc::clone(&shared);
        thread::spawn(move || {
            let (mut next, mut seen) = (start, 0);
            while seen < messages {
                if shared.ours.load_acquire() == next {
                    thread::yield_now();
                    continue;
                }
                seen += 1;
                assert_eq!(shared.read(next), seen, "each message once, in order");
                next = (next + 1) & mask;
                shared.theirs.store_release(next);
            }
        })
    };
    let rule = Masked::new(shared.mask).unwrap();
    let mut producer = Producer::new(rule, &shared.ours, &shared.theirs).unwrap();
    let mut sent = 0;
    while sent < messages {
        let free = producer.free(&shared.theirs, messages - sent).unwrap();
        let batch = free.min(messages - sent);
        for ahead in 0..batch {
            shared.fill(producer.slot(ahead), sent + ahead + 1);
        }
        producer.publish(&shared.ours, batch);
        sent += batch;
        if batch == 0 {
            thread::yield_now();
        }
    }
    kernel.join().unwrap();
}

/// The kernel fills (a completion queue), we empty.
fn kernel_produces<const USER: bool, const KERNEL: bool>(mask: u32, start: u32, messages: u32) {
    let shared = Shared::<USER, KERNEL>::new(mask, start);
    let kernel = {
        let shared = Arc::clone(&shared);
        thread::spawn(move || {
            let (mut next, mut sent) = (start, 0);
            while sent < messages {
                if (next + 1) & mask == shared.ours.load_acquire() {
                    thread::yield_now();
                    continue;
                }
                sent += 1;
                shared.fill(next, sent);
                next = (next + 1) & mask;
                shared.theirs.store_release(next);
            }
        })
    };
    let rule = Masked::new(shared.mask).unwrap();
    let mut consumer = Consumer::new(rule, &shared.theirs, &shared.ours).unwrap();
    let mut seen = 0;
    while seen < messages {
        let ready = consumer.available(&shared.theirs, messages - seen).unwrap();
        let batch = ready.min(messages - seen);
        for ahead in 0..batch {
            assert_eq!(shared.read(consumer.slot(ahead)), seen + ahead + 1);
        }
        consumer.release(&shared.ours, batch);
        seen += batch;
        if batch == 0 {
            thread::yield_now();
        }
    }
    kernel.join().unwrap();
}

/// All orders with at most three forced switches between the sides, beside those where one of them
/// waits. Every fault known here shows with one; without a bound a run takes minutes.
fn check(model: fn()) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(model);
}

#[test]
fn user_produces_kernel_consumes() {
    check(|| user_produces::<true, true>(1, 0, 3));
    check(|| user_produces::<true, true>(3, 2, 4));
}

#[test]
fn kernel_produces_user_consumes() {
    check(|| kernel_produces::<true, true>(1, 0, 3));
    check(|| kernel_produces::<true, true>(3, 2, 4));
}

#[track_caller]
fn assert_fails(model: fn()) {
    let caught = catch_unwind(AssertUnwindSafe(|| check(model)));
    assert!(
        caught.is_err(),
        "the model passes with a store that is too weak"
    );
}

#[test]
fn the_models_fail_if_our_store_is_relaxed() {
    assert_fails(|| user_produces::<false, true>(1, 0, 3));
    assert_fails(|| kernel_produces::<false, true>(1, 0, 3));
}

#[test]
fn the_models_fail_if_the_kernels_store_is_relaxed() {
    assert_fails(|| user_produces::<true, false>(1, 0, 3));
    assert_fails(|| kernel_produces::<true, false>(1, 0, 3));
}
