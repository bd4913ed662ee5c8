//! A queue that can be used in place by many, lent out to one, put back, and closed.
//!
//! ```text
//!            take              close
//!   Lent ◄───────── Here ─────────────► Closed
//!     └────────────►  ▲ ◄─────────────────┘
//!        put_back     with        reopen
//! ```
//!
//! Where a number is all that others have to know of the thing to go on with it, the thing says so
//! ([`Numbered`]). The number then lies in the lock's word while the thing is here and nobody uses it;
//! whoever enters from the number may leave with a later one, and need not touch the thing.
//!
//! It must never be touched in a process that inherited it by `fork()`: the lock may have been held
//! by a thread that does not exist there. Callers ask the session first.

use std::fmt;

use crate::lock::{Held, Left, Lock};

/// What stands on the shelf.
enum Slot<R> {
    Here(R),
    Lent,
    Closed,
}

/// Why the thing is not there to be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Absent {
    /// An exclusive handle has it.
    InExclusiveUse,
    /// Its object has been destroyed, or is being destroyed.
    Destroyed,
}

/// What can be gone on with by a number alone.
pub trait Numbered {
    /// The number, if at this moment it says all; not for things that never have one.
    #[inline]
    fn number(&self) -> Option<u32> {
        None
    }

    /// Takes over what others have done, who have come from [`number`](Self::number) to this one.
    #[inline]
    fn resume(&mut self, number: u32) {
        let _ = number;
    }
}

impl<T: Numbered + ?Sized> Numbered for Box<T> {
    #[inline]
    fn number(&self) -> Option<u32> {
        (**self).number()
    }

    #[inline]
    fn resume(&mut self, number: u32) {
        (**self).resume(number);
    }
}

/// A slot in use. When it is no more, the number that the thing is at then is left.
struct InUse<'u, R: Numbered> {
    slot: &'u mut Slot<R>,
    left: &'u mut Left,
}

impl<'u, R: Numbered> InUse<'u, R> {
    /// Brings the thing up to the number that was found.
    #[inline]
    fn new(slot: &'u mut Slot<R>, left: &'u mut Left) -> Self {
        if let Some(number) = left.take()
            && let Slot::Here(thing) = &mut *slot
        {
            thing.resume(number);
        }
        Self { slot, left }
    }
}

impl<R: Numbered> Drop for InUse<'_, R> {
    #[inline]
    fn drop(&mut self) {
        *self.left = match &*self.slot {
            Slot::Here(thing) => thing.number().into(),
            Slot::Lent | Slot::Closed => Left::NONE,
        };
    }
}

/// Holds one thing for many users.
pub struct Shelf<R> {
    slot: Lock<Slot<R>>,
}

/// The shelf in the hands of one user. Dropped, it is left as it was found.
pub struct Turn<'s, R>(Held<'s, Slot<R>>);

impl<R: Numbered> Turn<'_, R> {
    /// The number that the thing is at, or more than any if only the thing knows.
    #[inline]
    #[must_use]
    pub const fn word(&self) -> u64 {
        self.0.word()
    }

    /// Leaves, with the thing come from one number to another, which is `number`. The answer is whether [`wake`](Shelf::wake) is to be
    /// called, which is not done here.
    #[inline]
    #[must_use]
    pub fn leave(self, number: u32) -> bool {
        self.0.leave(Some(number))
    }

    /// Uses the thing itself after all, and leaves.
    ///
    /// # Errors
    /// Those of the work, and [`Absent`] as one of them.
    #[inline]
    pub fn with_or<T, E: From<Absent>>(
        self,
        work: impl FnOnce(&mut R) -> Result<T, E>,
    ) -> Result<T, E> {
        self.0
            .with(|slot, left| InUse::new(slot, left).slot.thing_or(work))
    }
}

impl<R> fmt::Debug for Turn<'_, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Turn")
    }
}

impl<R> Slot<R> {
    /// The thing, if it is here: asked in one comparison.
    #[inline]
    fn thing(&mut self) -> Result<&mut R, Absent> {
        match self {
            Self::Here(thing) => Ok(thing),
            absent => Err(absent.why()),
        }
    }

    /// Why it is not.
    #[cold]
    #[inline(never)]
    const fn why(&self) -> Absent {
        match self {
            Self::Lent => Absent::InExclusiveUse,
            Self::Here(_) | Self::Closed => Absent::Destroyed,
        }
    }

    #[inline]
    fn thing_or<T, E: From<Absent>>(
        &mut self,
        work: impl FnOnce(&mut R) -> Result<T, E>,
    ) -> Result<T, E> {
        work(self.thing()?)
    }
}

impl<R: Numbered> Shelf<R> {
    /// A shelf with `thing` on it.
    #[must_use]
    pub fn new(thing: R) -> Self {
        Self {
            slot: Lock::new(Slot::Here(thing)),
        }
    }

    /// Changes the slot, or looks at it.
    ///
    /// A panic needs no account. The slot itself changes by single assignments that cannot panic. The
    /// thing on it can be left half-way by a panic in [`with`](Self::with): a ring then has filled
    /// slots that it did not publish, or has read slots that it did not release, and both are simply
    /// filled or read again, since its indices move only at the end of a batch.
    #[inline]
    fn slot<T>(&self, work: impl FnOnce(&mut Slot<R>) -> T) -> T {
        self.slot
            .with_left(|slot, left| work(InUse::new(slot, left).slot))
    }

    /// Uses the thing in place, one user at a time.
    ///
    /// # Errors
    /// [`Absent`].
    #[inline]
    pub fn with<T>(&self, work: impl FnOnce(&mut R) -> T) -> Result<T, Absent> {
        self.slot(|slot| slot.thing().map(work))
    }

    /// As [`with`](Self::with), for work that can fail itself: one answer, made under the lock.
    ///
    /// # Errors
    /// Those of the work, and [`Absent`] as one of them.
    #[inline]
    pub fn with_or<T, E: From<Absent>>(
        &self,
        work: impl FnOnce(&mut R) -> Result<T, E>,
    ) -> Result<T, E> {
        self.slot(|slot| slot.thing_or(work))
    }

    /// As [`with_or`](Self::with_or), with `told` to make an error of [`Absent`].
    ///
    /// # Errors
    /// Those of the work, and that one.
    #[inline]
    pub fn with_or_else<T, E>(
        &self,
        work: impl FnOnce(&mut R) -> Result<T, E>,
        told: impl FnOnce(Absent) -> E,
    ) -> Result<T, E> {
        self.slot(|slot| match slot {
            Slot::Here(thing) => work(thing),
            Slot::Lent => Err(told(Absent::InExclusiveUse)),
            Slot::Closed => Err(told(Absent::Destroyed)),
        })
    }

    /// What a number is compared with, widened: equal only if the thing is here, nobody uses it, and it
    /// is at that number.
    #[inline]
    #[must_use]
    pub fn word(&self) -> u64 {
        self.slot.word()
    }

    /// Enters without waiting, if a [`word`](Self::word) was read while nobody used the thing, and still
    /// stands. The thing may be absent, unless the word is a number.
    #[inline]
    #[must_use]
    pub fn turn(&self, word: u64) -> Option<Turn<'_, R>> {
        self.slot.enter_from(word).map(Turn)
    }

    /// Uses a thing that never has a number in place, if it is there and nobody uses it at this moment; it
    /// may say itself that it has no answer. The second answer is whether [`wake`](Self::wake) is to be
    /// called, which is not done here.
    #[inline]
    #[must_use]
    pub fn try_quick<T>(&self, work: impl FnOnce(&mut R) -> Option<T>) -> (Option<T>, bool) {
        let answer = self.slot.try_quick(|slot| match slot {
            Slot::Here(thing) => work(thing),
            _ => None,
        });
        answer.unwrap_or((None, false))
    }

    /// Wakes somebody who waits for the thing.
    #[cold]
    pub fn wake(&self) {
        self.slot.wake();
    }

    /// Takes the thing out for one user.
    ///
    /// # Errors
    /// [`Absent`].
    pub fn take(&self) -> Result<R, Absent> {
        self.remove(Slot::Lent)
    }

    /// Brings back what [`take`](Self::take) gave. Once closed, or with something there already, it
    /// is dropped.
    pub fn put_back(&self, thing: R) {
        let unwanted = self.slot(|slot| {
            if matches!(*slot, Slot::Lent) {
                *slot = Slot::Here(thing);
                None
            } else {
                Some(thing)
            }
        });
        // Not under the lock.
        drop(unwanted);
    }

    /// Takes the thing away for good, after whoever is using it at this moment.
    ///
    /// # Errors
    /// [`Absent`]; what is lent out stays lent out.
    pub fn close(&self) -> Result<R, Absent> {
        self.remove(Slot::Closed)
    }

    /// Undoes a [`close`](Self::close).
    pub fn reopen(&self, thing: R) {
        let before = self.slot(|slot| std::mem::replace(slot, Slot::Here(thing)));
        // Not under the lock.
        drop(before);
    }

    fn remove(&self, leave: Slot<R>) -> Result<R, Absent> {
        self.slot(|slot| {
            slot.thing()?;
            match std::mem::replace(slot, leave) {
                Slot::Here(thing) => Ok(thing),
                absent => Err(absent.why()),
            }
        })
    }
}

impl<R> fmt::Debug for Shelf<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Without the lock where somebody holds it: printing must not wait.
        let name = self.slot.try_with(|slot| match slot {
            Slot::Here(_) => "Shelf(here)",
            Slot::Lent => "Shelf(lent)",
            Slot::Closed => "Shelf(closed)",
        });
        f.write_str(name.unwrap_or("Shelf(in use)"))
    }
}

#[cfg(all(test, not(uverbs_loom)))]
#[allow(clippy::unwrap_used, reason = "a test may fail")]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::time::Duration;

    use super::{Absent, Numbered, Shelf};

    impl Numbered for i32 {}

    #[test]
    fn lent_means_absent_until_it_is_back() {
        let shelf = Shelf::new(1);
        let lent = shelf.take().unwrap();
        assert_eq!(shelf.with(|_| ()), Err(Absent::InExclusiveUse));
        assert_eq!(shelf.take(), Err(Absent::InExclusiveUse));
        assert_eq!(shelf.close(), Err(Absent::InExclusiveUse));
        shelf.put_back(lent + 1);
        assert_eq!(shelf.with(|n| *n), Ok(2));
        shelf.put_back(9);
        assert_eq!(
            shelf.with(|n| *n),
            Ok(2),
            "what was not taken is not put back"
        );
    }

    #[test]
    fn closed_is_for_good_unless_reopened() {
        let shelf = Shelf::new(1);
        let kept = shelf.close().unwrap();
        assert_eq!(shelf.with(|_| ()), Err(Absent::Destroyed));
        assert_eq!(shelf.take(), Err(Absent::Destroyed));
        assert_eq!(shelf.close(), Err(Absent::Destroyed));
        shelf.put_back(5);
        assert_eq!(shelf.with(|_| ()), Err(Absent::Destroyed));
        shelf.reopen(kept);
        assert_eq!(shelf.with(|n| *n), Ok(1));
    }

    #[test]
    fn a_panic_in_a_user_leaves_it_usable() {
        let shelf = Shelf::new(1);
        let hit = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            shelf.with(|_| panic!("in the middle of a batch")).unwrap()
        }));
        assert!(hit.is_err());
        assert_eq!(shelf.with(|n| *n), Ok(1));
        assert_eq!(format!("{shelf:?}"), "Shelf(here)");
    }

    #[test]
    fn close_waits_for_a_user() {
        let shelf = Shelf::new(1);
        let (inside, done) = (AtomicBool::new(false), AtomicBool::new(false));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                shelf.with(|_| {
                    inside.store(true, Ordering::SeqCst);
                    std::thread::sleep(Duration::from_millis(20));
                    done.store(true, Ordering::SeqCst);
                })
            });
            while !inside.load(Ordering::SeqCst) {
                std::thread::yield_now();
            }
            assert_eq!(shelf.close(), Ok(1));
            assert!(done.load(Ordering::SeqCst));
        });
    }
}
