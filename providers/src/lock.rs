//! UNSAFE ROOM: a lock around what is done in some tens of instructions, where a lock that also keeps
//! account of panics would cost as much again.
//!
//! ```text
//!   FREE ──cas──► HELD ──swap──► FREE             nobody else came: two atomic instructions
//!                  │ swap, by who waits
//!                  ▼
//!                AWAITED ──swap──► FREE, and one of those who wait is woken
//! ```
//!
//! Those who wait sleep on a condition variable of the standard library, behind a gate: whoever
//! wakes passes the gate first, so that nobody can be between "it is held" and falling asleep.
//! Whoever has slept leaves the lock AWAITED, since others may sleep still.
//!
//! A panic under the lock lets it go; what is then to be thought of the value is for the owner of the
//! lock to say. It must never be taken in a process that inherited it by `fork()`.
#![allow(
    unsafe_code,
    reason = "a cell that only the holder of the lock reaches"
)]

#[cfg(all(test, uverbs_loom))]
use loom::{
    cell::UnsafeCell,
    sync::{Condvar, Mutex, atomic::AtomicU32},
};
#[cfg(not(all(test, uverbs_loom)))]
use std::sync::{Condvar, Mutex, atomic::AtomicU32};

use std::sync::PoisonError;
use std::sync::atomic::Ordering;

#[cfg(not(all(test, uverbs_loom)))]
use self::cell::UnsafeCell;

const FREE: u32 = 0;
const HELD: u32 = 1;
/// Held, and somebody may sleep.
const AWAITED: u32 = 2;

/// How often to look again before going to sleep: about as long as a holder takes for a batch.
const LOOKS: u32 = if cfg!(all(test, uverbs_loom)) { 0 } else { 100 };

/// Nothing is wrong: see [`Lock`].
const SOUND: u8 = 0;
/// What a model puts in to see that it would be noticed: letting go without the order that it needs.
#[cfg(all(test, uverbs_loom))]
const RELAXED: u8 = 1;
/// Likewise: nobody is woken.
#[cfg(all(test, uverbs_loom))]
const SILENT: u8 = 2;

/// A value that one thread at a time uses. `FAULT` is `SOUND` outside of models.
pub struct Lock<T, const FAULT: u8 = SOUND> {
    door: Door<FAULT>,
    value: UnsafeCell<T>,
}

// SAFETY: the value is reached through the lock only, by one thread at a time, which the door's
// Acquire and Release put one after the other; so sharing the lock is sending the value about.
unsafe impl<T: Send, const FAULT: u8> Sync for Lock<T, FAULT> {}

impl<T, const FAULT: u8> std::fmt::Debug for Lock<T, FAULT> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Lock").finish_non_exhaustive()
    }
}

impl<T, const FAULT: u8> Lock<T, FAULT> {
    /// A lock that nobody holds.
    pub fn new(value: T) -> Self {
        Self {
            door: Door {
                state: AtomicU32::new(FREE),
                gate: Mutex::new(()),
                freed: Condvar::new(),
            },
            value: UnsafeCell::new(value),
        }
    }

    /// Uses the value, after whoever uses it now. Within `work` it must not be called again.
    #[inline]
    pub fn with<R>(&self, work: impl FnOnce(&mut T) -> R) -> R {
        if !self.door.enter() {
            self.door.wait();
        }
        self.inside(work)
    }

    /// Uses the value, unless somebody uses it now.
    pub fn try_with<R>(&self, work: impl FnOnce(&mut T) -> R) -> Option<R> {
        self.door.enter().then(|| self.inside(work))
    }

    /// As [`try_with`](Self::try_with), but wakes nobody itself, so that there is no call in it that
    /// something would have to be put aside for: the second answer is whether [`wake`](Self::wake) is
    /// to be called.
    #[inline]
    pub(crate) fn try_quick<R>(&self, work: impl FnOnce(&mut T) -> R) -> Option<(R, bool)> {
        if !self.door.enter() {
            return None;
        }
        let leaves = Leaves(&self.door);
        let answer = self.value.with_mut(|value| {
            // SAFETY: as in `inside`.
            work(unsafe { &mut *value })
        });
        // Left here instead, and by `leaves` only after a panic.
        std::mem::forget(leaves);
        Some((answer, self.door.let_go()))
    }

    /// Wakes one of those who sleep. Never wrong, but for the time it takes.
    pub(crate) fn wake(&self) {
        self.door.wake();
    }

    /// Right after the door was entered.
    #[inline]
    fn inside<R>(&self, work: impl FnOnce(&mut T) -> R) -> R {
        let _leaves = Leaves(&self.door);
        self.value.with_mut(|value| {
            // SAFETY: this thread has entered the door and leaves it after this (`_leaves`), also if
            // `work` panics; until then nobody else gets here, and the value is reached nowhere
            // else. It lives as long as `self`.
            work(unsafe { &mut *value })
        })
    }
}

struct Door<const FAULT: u8> {
    state: AtomicU32,
    gate: Mutex<()>,
    freed: Condvar,
}

impl<const FAULT: u8> Door<FAULT> {
    #[inline]
    fn enter(&self) -> bool {
        // Acquire: pairs with the Release in `leave`; what the last holder did is seen.
        self.state
            .compare_exchange(FREE, HELD, Ordering::Acquire, Ordering::Relaxed)
            .is_ok()
    }

    #[cold]
    #[inline(never)]
    fn wait(&self) {
        for _ in 0..LOOKS {
            match self.state.load(Ordering::Relaxed) {
                FREE if self.enter() => return,
                // Others sleep already.
                AWAITED => break,
                _ => std::hint::spin_loop(),
            }
        }
        let mut gate = self.gate.lock().unwrap_or_else(PoisonError::into_inner);
        // Acquire: as in `enter`.
        while self.state.swap(AWAITED, Ordering::Acquire) != FREE {
            gate = self
                .freed
                .wait(gate)
                .unwrap_or_else(PoisonError::into_inner);
        }
    }

    #[inline]
    fn leave(&self) {
        if self.let_go() {
            self.wake();
        }
    }

    /// Leaves, and says whether somebody may sleep.
    #[inline]
    fn let_go(&self) -> bool {
        #[cfg(all(test, uverbs_loom))]
        if FAULT == RELAXED {
            self.state.swap(FREE, Ordering::Relaxed);
            return false;
        }
        // Release: pairs with the Acquire of whoever enters next.
        self.state.swap(FREE, Ordering::Release) == AWAITED
    }

    #[cold]
    #[inline(never)]
    fn wake(&self) {
        #[cfg(all(test, uverbs_loom))]
        if FAULT == SILENT {
            return;
        }
        drop(self.gate.lock().unwrap_or_else(PoisonError::into_inner));
        self.freed.notify_one();
    }
}

/// Leaves the door when dropped.
struct Leaves<'l, const FAULT: u8>(&'l Door<FAULT>);

impl<const FAULT: u8> Drop for Leaves<'_, FAULT> {
    #[inline]
    fn drop(&mut self) {
        self.0.leave();
    }
}

/// The standard library's cell with the call that loom's has.
#[cfg(not(all(test, uverbs_loom)))]
mod cell {
    pub(super) struct UnsafeCell<T>(std::cell::UnsafeCell<T>);

    impl<T> UnsafeCell<T> {
        pub(super) const fn new(value: T) -> Self {
            Self(std::cell::UnsafeCell::new(value))
        }

        #[inline]
        pub(super) fn with_mut<R>(&self, work: impl FnOnce(*mut T) -> R) -> R {
            work(self.0.get())
        }
    }
}

#[cfg(all(test, not(uverbs_loom)))]
#[allow(clippy::unwrap_used, reason = "a test may fail")]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::thread;
    use std::time::Duration;

    use super::{FREE, Lock};

    #[test]
    fn adds_up_what_many_threads_add() {
        let (threads, rounds) = if cfg!(miri) { (3, 20) } else { (8, 10_000) };
        let lock: Lock<(u64, u64)> = Lock::new((0, 0));
        thread::scope(|scope| {
            for _ in 0..threads {
                scope.spawn(|| {
                    for round in 0..rounds {
                        lock.with(|value| {
                            value.0 += 1;
                            if round % 64 == 0 {
                                thread::yield_now();
                            }
                            value.1 += 1;
                        });
                    }
                });
            }
        });
        lock.with(|value| assert_eq!(*value, (threads * rounds, threads * rounds)));
    }

    #[test]
    fn all_who_sleep_are_woken() {
        let lock: Lock<()> = Lock::new(());
        let through = AtomicUsize::new(0);
        thread::scope(|scope| {
            lock.with(|()| {
                for _ in 0..4 {
                    scope.spawn(|| {
                        lock.with(|()| through.fetch_add(1, Ordering::Relaxed));
                    });
                }
                // Long enough for all of them to fall asleep, on most days.
                thread::sleep(Duration::from_millis(30));
                assert_eq!(through.load(Ordering::Relaxed), 0);
            });
        });
        assert_eq!(through.load(Ordering::Relaxed), 4);
    }

    #[test]
    fn a_panic_lets_it_go_and_a_try_does_not_wait() {
        let lock: Lock<u8> = Lock::new(1);
        let hit = catch_unwind(AssertUnwindSafe(|| lock.with(|_| panic!("under the lock"))));
        assert!(hit.is_err());
        assert_eq!(lock.door.state.load(Ordering::Relaxed), FREE);
        lock.with(|_| assert!(lock.try_with(|value| *value).is_none()));
        assert_eq!(lock.try_with(|value| *value), Some(1));
        let hit = catch_unwind(AssertUnwindSafe(|| {
            lock.try_quick(|_| panic!("under the lock"))
        }));
        assert!(hit.is_err());
        lock.with(|_| assert!(lock.try_quick(|value| *value).is_none()));
        assert_eq!(lock.try_quick(|value| *value), Some((1, false)));
    }
}

/// Every order of steps of three threads, with the memory model of the language. Loom's cell fails a
/// model in which two are inside, or one comes in without seeing what the last one did.
#[cfg(all(test, uverbs_loom))]
#[allow(clippy::unwrap_used, reason = "a test may fail")]
mod model {
    use std::env;
    use std::process::Command;

    use loom::sync::Arc;
    use loom::thread;

    use super::{Lock, RELAXED, SILENT, SOUND};

    /// The environment variable that puts the fault in.
    const BROKEN: &str = "UVERBS_LOOM_BROKEN";

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
            return model::<FAULT>(1);
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
}
