//! Every order of steps of three threads, with the memory model of the language. Loom's cell fails a
//! model in which two are inside, or one comes in without seeing what the last one did.
#![allow(clippy::unwrap_used, reason = "a test may fail")]

use std::env;
use std::process::Command;

use loom::sync::Arc;
use loom::sync::atomic::{AtomicU64, Ordering, fence};
use loom::thread;

use super::{Left, Lock, RELAXED, SILENT, SOUND};

/// The environment variable that puts the fault in.
const BROKEN: &str = "UVERBS_LOOM_BROKEN";

/// Adds one to a value that is the cell and the number together, as polls do that go on by a number.
fn add_by_number<const FAULT: u8>(lock: &Lock<usize, FAULT>) {
    let word = lock.word();
    match lock.enter_from(word) {
        Some(held) if word <= u64::from(u32::MAX) => {
            if held.leave(Some(u32::try_from(word).unwrap() + 1)) {
                lock.wake();
            }
        }
        Some(held) => held.with(take_in),
        None => lock.with_left(take_in),
    }
}

fn take_in(value: &mut usize, left: &mut Left) {
    *value += left.take().map_or(0, |number| number as usize) + 1;
    *left = Some(0).into();
}

fn by_number<const FAULT: u8>(others: usize) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(move || {
        let lock: Arc<Lock<usize, FAULT>> = Arc::new(Lock::new(0));
        lock.with_left(|_, left| *left = Some(0).into());
        let threads: Vec<_> = (0..others)
            .map(|_| {
                let lock = Arc::clone(&lock);
                thread::spawn(move || add_by_number(&lock))
            })
            .collect();
        // Through the cell at any rate; with one thread more, that is enough.
        lock.with_left(take_in);
        if others == 1 {
            add_by_number(&lock);
        }
        for thread in threads {
            thread.join().unwrap();
        }
        lock.with_left(|value, left| {
            let number = left.take().map_or(0, |number| number as usize);
            assert_eq!(*value + number, 2.max(others) + 1);
        });
    });
}

#[test]
fn a_number_is_part_of_the_value() {
    by_number::<SOUND>(1);
    by_number::<SOUND>(2);
}

/// A completion queue of two slots that three completions go through, so that the kernel's index comes to
/// where it was, and a poll that looks without the lock. If that says "empty" (`WORD_FIRST`: having read
/// the two in the wrong order), then all that was published before has been taken.
///
/// The kernel's word says besides how many that is; the poll looks at its last bit only.
fn empty_without_the_lock<const WORD_FIRST: bool>() {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(|| {
        let lock: Arc<Lock<()>> = Arc::new(Lock::new(()));
        lock.with_left(|(), left| *left = Some(0).into());
        let published = Arc::new(AtomicU64::new(0));
        let given_back = Arc::new(AtomicU64::new(0));
        let taken = Arc::new(AtomicU64::new(0));
        let kernel = {
            let (published, given_back) = (Arc::clone(&published), Arc::clone(&given_back));
            thread::spawn(move || {
                for count in 1..=3 {
                    if given_back.load(Ordering::Acquire) + 1 < count {
                        return;
                    }
                    published.store(count, Ordering::Release);
                }
            })
        };
        let poller = {
            let (published, lock) = (Arc::clone(&published), Arc::clone(&lock));
            let (given_back, taken) = (Arc::clone(&given_back), Arc::clone(&taken));
            thread::spawn(move || {
                for count in 1..=2 {
                    let word = lock.word();
                    let held = lock.enter_from(word).unwrap();
                    if published.load(Ordering::Acquire) < count {
                        return;
                    }
                    taken.store(count, Ordering::Relaxed);
                    given_back.store(count, Ordering::Release);
                    assert!(!held.leave(Some(u32::try_from(count & 1).unwrap())));
                }
            })
        };
        let (seen, word) = if WORD_FIRST {
            let word = lock.word();
            (published.load(Ordering::Acquire), word)
        } else {
            (published.load(Ordering::Acquire), lock.word())
        };
        if seen & 1 == word {
            // Pairs with the Release of whoever left that number.
            fence(Ordering::Acquire);
            assert!(taken.load(Ordering::Relaxed) >= seen, "there was something");
        }
        kernel.join().unwrap();
        poller.join().unwrap();
    });
}

#[test]
fn empty_is_true_without_the_lock() {
    empty_without_the_lock::<false>();
}

#[test]
#[should_panic(expected = "there was something")]
fn looking_in_the_wrong_order_is_noticed() {
    empty_without_the_lock::<true>();
}

fn model<const FAULT: u8>(others: usize) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(move || {
        let lock: Arc<Lock<usize, FAULT>> = Arc::new(Lock::new(0));
        let threads: Vec<_> = (0..others)
            .map(|_| {
                let lock = Arc::clone(&lock);
                thread::spawn(move || lock.with(|value| *value += 1))
            })
            .collect();
        // With and without a call under the lock.
        match lock.try_quick(|value| *value += 1) {
            Some(((), true)) => lock.wake(),
            Some(((), false)) => {}
            None => lock.with(|value| *value += 1),
        }
        for thread in threads {
            thread.join().unwrap();
        }
        lock.with(|value| assert_eq!(*value, others + 1));
    });
}

#[test]
fn one_at_a_time_and_nobody_sleeps_for_ever() {
    model::<SOUND>(1);
    model::<SOUND>(2);
}

/// Runs the test `name` once more, in a process of its own, with the fault put in: a model that
/// fails takes its process down.
fn breaks<const FAULT: u8>(name: &str, says: &str) {
    if env::var_os(BROKEN).is_some() {
        return if name.contains("number") {
            by_number::<FAULT>(1);
        } else {
            model::<FAULT>(1);
        };
    }
    let ran = Command::new(env::current_exe().unwrap())
        .args(["--exact", name, "--nocapture"])
        .env(BROKEN, "1")
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&ran.stderr);
    assert!(!ran.status.success(), "the fault was not noticed");
    assert!(text.contains(says), "{text}");
}

#[test]
fn letting_go_without_order_is_noticed() {
    breaks::<RELAXED>(
        "lock::model::letting_go_without_order_is_noticed",
        "Causality violation",
    );
}

#[test]
fn waking_nobody_is_noticed() {
    breaks::<SILENT>("lock::model::waking_nobody_is_noticed", "deadlock");
}

#[test]
fn letting_go_of_a_number_without_order_is_noticed() {
    breaks::<RELAXED>(
        "lock::model::letting_go_of_a_number_without_order_is_noticed",
        "Causality violation",
    );
}
