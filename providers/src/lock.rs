//! UNSAFE ROOM: a lock around what is done in some tens of instructions, where a lock that also keeps
//! account of panics would cost as much again.
//!
//! ```text
//!   FREE, or a number ──cas──► HELD ──swap──► FREE, or a number      two atomic instructions
//!                               │ swap, by who waits
//!                               ▼
//!                             AWAITED ──swap──► the same, and one of those who wait is woken
//! ```
//!
//! While it is free its word may hold a number instead of FREE. Whoever leaves says which, whoever
//! enters is given it, and anybody may look at it meanwhile: so a number that the value hangs on can
//! be read without the lock, and whoever enters from a number knows that it is still that one.
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
    sync::{Condvar, Mutex, atomic::AtomicU64},
};
#[cfg(not(all(test, uverbs_loom)))]
use std::sync::{Condvar, Mutex, atomic::AtomicU64};

#[cfg(not(all(test, uverbs_loom)))]
use std::marker::PhantomData;
use std::sync::PoisonError;
use std::sync::atomic::Ordering;

#[cfg(not(all(test, uverbs_loom)))]
use self::cell::UnsafeCell;

// Any `u32` is a number; these are none. Near the top, where an instruction has them as a short operand.
/// Nobody holds it, and there is no number.
const FREE: u64 = u64::MAX - 2;
const HELD: u64 = u64::MAX - 1;
/// Held, and somebody may sleep.
const AWAITED: u64 = u64::MAX;

/// What the word holds while the lock is free: a number, or none.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Left(u64);

impl Left {
    /// No number.
    pub(crate) const NONE: Self = Self(FREE);

    /// Takes the number out, if there is one.
    #[inline]
    #[expect(clippy::cast_possible_truncation, reason = "just compared")]
    pub(crate) const fn take(&mut self) -> Option<u32> {
        let Self(word) = std::mem::replace(self, Self::NONE);
        if word <= u32::MAX as u64 {
            Some(word as u32)
        } else {
            None
        }
    }
}

impl From<Option<u32>> for Left {
    #[inline]
    fn from(number: Option<u32>) -> Self {
        number.map_or(Self::NONE, |number| Self(number.into()))
    }
}

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
                state: AtomicU64::new(FREE),
                gate: Mutex::new(()),
                freed: Condvar::new(),
            },
            value: UnsafeCell::new(value),
        }
    }

    /// Uses the value, after whoever uses it now. Within `work` it must not be called again. A number
    /// that was left is lost.
    #[inline]
    pub fn with<R>(&self, work: impl FnOnce(&mut T) -> R) -> R {
        self.with_left(|value, left| {
            *left = Left::NONE;
            work(value)
        })
    }

    /// As [`with`](Self::with), where what is done shall be compiled into the caller, which a compiler
    /// may refuse to do with a closure.
    #[cfg(not(all(test, uverbs_loom)))]
    #[inline(always)]
    pub fn lock(&self) -> Guard<'_, T, FAULT> {
        if !self.door.enter(FREE) {
            // What is found there is not left again.
            self.door.wait();
        }
        Guard {
            held: self.held(FREE),
            value: PhantomData,
        }
    }

    /// As [`with`](Self::with); `work` is given what was left, and puts there what is to be left then,
    /// also if it panics.
    #[inline]
    pub(crate) fn with_left<R>(&self, work: impl FnOnce(&mut T, &mut Left) -> R) -> R {
        let found = if self.door.enter(FREE) {
            FREE
        } else {
            self.door.wait()
        };
        self.held(found).with(work)
    }

    /// Uses the value, unless somebody uses it now; a number stays.
    pub fn try_with<R>(&self, work: impl FnOnce(&mut T) -> R) -> Option<R> {
        let held = self.enter_from(self.word())?;
        Some(held.with(|value, _| work(value)))
    }

    /// As [`try_with`](Self::try_with) where no number is left, but wakes nobody itself, so that there
    /// is no call in it that something would have to be put aside for: the second answer is whether
    /// [`wake`](Self::wake) is to be called.
    #[inline]
    pub(crate) fn try_quick<R>(&self, work: impl FnOnce(&mut T) -> R) -> Option<(R, bool)> {
        if !self.door.enter(FREE) {
            return None;
        }
        let held = self.held(FREE);
        let answer = self.value.with_mut(|value| {
            // SAFETY: as in `Held::with`, with `held`.
            work(unsafe { &mut *value })
        });
        Some((answer, held.leave(None)))
    }

    /// The word, to be compared with a number, widened: equal only if that is the one that was left, and
    /// nobody holds the lock.
    #[inline]
    pub(crate) fn word(&self) -> u64 {
        // Relaxed: what else is to be known of the number is for whoever left it to see to.
        self.door.state.load(Ordering::Relaxed)
    }

    /// Enters without waiting, if a [`word`](Self::word) is of a lock that nobody holds, and still stands.
    #[inline]
    pub(crate) fn enter_from(&self, word: u64) -> Option<Held<'_, T, FAULT>> {
        // As the machine gives it back, so that it need not be kept.
        let found = if word < HELD {
            self.door.enter_found(word)
        } else {
            None
        };
        found.map(|found| self.held(found))
    }

    /// Wakes one of those who sleep. Never wrong, but for the time it takes.
    pub(crate) fn wake(&self) {
        self.door.wake();
    }

    /// Right after the door was entered, with what was found there.
    #[inline]
    const fn held(&self, found: u64) -> Held<'_, T, FAULT> {
        Held {
            lock: self,
            left: Left(found),
        }
    }
}

/// The lock, entered. Dropped, also by a panic, it leaves what was found there.
pub(crate) struct Held<'l, T, const FAULT: u8 = SOUND> {
    lock: &'l Lock<T, FAULT>,
    left: Left,
}

impl<T, const FAULT: u8> Held<'_, T, FAULT> {
    /// What was found: a number, or more than any.
    #[inline]
    pub(crate) const fn word(&self) -> u64 {
        self.left.0
    }

    /// Uses the value; see [`Lock::with_left`].
    #[inline]
    pub(crate) fn with<R>(mut self, work: impl FnOnce(&mut T, &mut Left) -> R) -> R {
        self.lock.value.with_mut(|value| {
            // SAFETY: `self` is made where this thread has entered the door, and leaves it when it is
            // dropped, also if `work` panics; until then nobody else gets here, and the value is reached
            // nowhere else. It lives as long as the lock, which `self` borrows.
            work(unsafe { &mut *value }, &mut self.left)
        })
    }

    /// Leaves with a number, or with none, and wakes nobody: the answer is whether
    /// [`wake`](Lock::wake) is to be called.
    #[inline]
    pub(crate) fn leave(self, number: Option<u32>) -> bool {
        let door = &self.lock.door;
        // Left here instead, and by `drop` only after a panic.
        std::mem::forget(self);
        door.let_go(number.into())
    }
}

impl<T, const FAULT: u8> Drop for Held<'_, T, FAULT> {
    #[inline]
    fn drop(&mut self) {
        if self.lock.door.let_go(self.left) {
            self.lock.door.wake();
        }
    }
}

/// The value of a lock that is held as long as this exists.
#[cfg(not(all(test, uverbs_loom)))]
pub struct Guard<'l, T, const FAULT: u8 = SOUND> {
    held: Held<'l, T, FAULT>,
    // To be sent and shared as what it leads to.
    value: PhantomData<&'l mut T>,
}

#[cfg(not(all(test, uverbs_loom)))]
impl<T, const FAULT: u8> Guard<'_, T, FAULT> {
    /// The value.
    #[inline(always)]
    pub fn value(&mut self) -> &mut T {
        let value = self.held.lock.value.get();
        // SAFETY: as in `Held::with`, with `held`, which lives as long as this does; and this is borrowed
        // as long as the value is used.
        unsafe { &mut *value }
    }
}

#[cfg(not(all(test, uverbs_loom)))]
impl<T, const FAULT: u8> std::fmt::Debug for Guard<'_, T, FAULT> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Guard").finish_non_exhaustive()
    }
}

struct Door<const FAULT: u8> {
    state: AtomicU64,
    gate: Mutex<()>,
    freed: Condvar,
}

impl<const FAULT: u8> Door<FAULT> {
    /// From what the word is when nobody holds the lock: FREE, or a number.
    #[inline]
    fn enter(&self, from: u64) -> bool {
        self.enter_found(from).is_some()
    }

    /// As [`enter`](Self::enter); gives what it was entered from.
    #[inline]
    fn enter_found(&self, from: u64) -> Option<u64> {
        // Acquire: pairs with the Release in `let_go`; what the last holder did is seen.
        self.state
            .compare_exchange(from, HELD, Ordering::Acquire, Ordering::Relaxed)
            .ok()
    }

    /// Enters after whoever is there, and gives what was found then.
    #[cold]
    #[inline(never)]
    fn wait(&self) -> u64 {
        for _ in 0..LOOKS {
            match self.state.load(Ordering::Relaxed) {
                HELD => std::hint::spin_loop(),
                // Others sleep already.
                AWAITED => break,
                free if self.enter(free) => return free,
                _ => {}
            }
        }
        let mut gate = self.gate.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            // Acquire: as in `enter`.
            match self.state.swap(AWAITED, Ordering::Acquire) {
                HELD | AWAITED => {}
                free => return free,
            }
            gate = self
                .freed
                .wait(gate)
                .unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Leaves with what is to be found, and says whether somebody may sleep.
    #[inline]
    fn let_go(&self, Left(word): Left) -> bool {
        #[cfg(all(test, uverbs_loom))]
        if FAULT == RELAXED {
            self.state.swap(word, Ordering::Relaxed);
            return false;
        }
        // Release: pairs with the Acquire of whoever enters next.
        self.state.swap(word, Ordering::Release) == AWAITED
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

/// The standard library's cell with the call that loom's has.
#[cfg(not(all(test, uverbs_loom)))]
mod cell {
    pub(super) struct UnsafeCell<T>(std::cell::UnsafeCell<T>);

    impl<T> UnsafeCell<T> {
        pub(super) const fn new(value: T) -> Self {
            Self(std::cell::UnsafeCell::new(value))
        }

        #[inline]
        pub(super) const fn get(&self) -> *mut T {
            self.0.get()
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

    use super::{FREE, Left, Lock};

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
    fn a_guard_holds_it_until_it_is_dropped_by_a_panic_too() {
        let lock: Lock<u8> = Lock::new(1);
        let mut guard = lock.lock();
        *guard.value() += 1;
        assert!(lock.try_with(|_| ()).is_none());
        drop(guard);
        let hit = catch_unwind(AssertUnwindSafe(|| {
            *lock.lock().value() += 1;
            let _guard = lock.lock();
            panic!("under the lock");
        }));
        assert!(hit.is_err());
        assert_eq!(lock.try_with(|value| *value), Some(3));
        lock.with_left(|_, left| *left = Some(7).into());
        assert_eq!(*lock.lock().value(), 3);
        assert_eq!(lock.word(), FREE, "what was left is lost");
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
    fn a_number_is_seen_from_outside_and_taken_over_by_who_enters() {
        let lock: Lock<u32> = Lock::new(0);
        assert!(lock.word() > u64::from(u32::MAX), "there is none yet");
        lock.with_left(|_, left| *left = Some(7).into());
        assert_eq!(lock.word(), 7);
        assert_eq!(lock.try_with(|value| *value), Some(0));
        assert_eq!(lock.word(), 7, "a try leaves it");
        assert!(lock.enter_from(8).is_none(), "it is another by now");
        let held = lock.enter_from(7).unwrap();
        assert_eq!(held.word(), 7);
        assert!(lock.word() > u64::from(u32::MAX), "somebody is in");
        assert!(lock.enter_from(lock.word()).is_none());
        assert!(!held.leave(Some(u32::MAX)));
        assert_eq!(lock.word(), u32::MAX.into());
        drop(lock.enter_from(lock.word()));
        assert_eq!(lock.word(), u32::MAX.into(), "left as it was found");
        lock.with_left(|_, left| assert_eq!(left.take(), Some(u32::MAX)));
        assert_eq!(lock.word(), FREE);
        lock.with_left(|_, left| *left = Some(3).into());
        assert!(lock.try_quick(|_| ()).is_none(), "not from a number");
        lock.with(|_| ());
        assert_eq!(lock.word(), FREE, "lost, by who does not ask for it");
    }

    #[test]
    fn a_number_adds_up_whoever_comes() {
        let (threads, rounds) = if cfg!(miri) { (3, 20) } else { (8, 10_000) };
        let lock: Lock<u64> = Lock::new(0);
        thread::scope(|scope| {
            for _ in 0..threads {
                scope.spawn(|| {
                    for _ in 0..rounds {
                        let word = lock.word();
                        let take_in = |value: &mut u64, left: &mut Left| {
                            *value += u64::from(left.take().unwrap_or(0)) + 1;
                            *left = Some(0).into();
                        };
                        match lock.enter_from(word) {
                            Some(held) if word < 1000 => {
                                let next = u32::try_from(word).unwrap() + 1;
                                if held.leave(Some(next)) {
                                    lock.wake();
                                }
                            }
                            Some(held) => held.with(take_in),
                            None => lock.with_left(take_in),
                        }
                    }
                });
            }
        });
        let sum = lock.with_left(|value, left| *value + u64::from(left.take().unwrap_or(0)));
        assert_eq!(sum, threads * rounds);
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

#[cfg(all(test, uverbs_loom))]
mod model;
