//! A queue that can be used in place by many, lent out to one, put back, and closed.
//!
//! ```text
//!            take              close
//!   Lent ◄───────── Here ─────────────► Closed
//!     └────────────►  ▲ ◄─────────────────┘
//!        put_back     with        reopen
//! ```
//!
//! It must never be touched in a process that inherited it by `fork()`: the lock may have been held
//! by a thread that does not exist there. Callers ask the session first.

use std::fmt;

use crate::lock::Lock;

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

/// Holds one thing for many users.
pub struct Shelf<R> {
    slot: Lock<Slot<R>>,
}

impl<R> Shelf<R> {
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
    fn slot<T>(&self, work: impl FnOnce(&mut Slot<R>) -> T) -> T {
        self.slot.with(work)
    }

    /// Uses the thing in place, one user at a time.
    ///
    /// # Errors
    /// [`Absent`].
    #[inline]
    pub fn with<T>(&self, work: impl FnOnce(&mut R) -> T) -> Result<T, Absent> {
        self.slot.with(|slot| match slot {
            Slot::Here(thing) => Ok(work(thing)),
            Slot::Lent => Err(Absent::InExclusiveUse),
            Slot::Closed => Err(Absent::Destroyed),
        })
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
        self.slot.with(|slot| match slot {
            Slot::Here(thing) => work(thing),
            Slot::Lent => Err(Absent::InExclusiveUse.into()),
            Slot::Closed => Err(Absent::Destroyed.into()),
        })
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
        self.slot.with(|slot| match slot {
            Slot::Here(thing) => work(thing),
            Slot::Lent => Err(told(Absent::InExclusiveUse)),
            Slot::Closed => Err(told(Absent::Destroyed)),
        })
    }

    /// Uses the thing in place, if it is there and nobody uses it at this moment; it may say itself
    /// that it has no answer. The second answer is whether [`wake`](Self::wake) is to be called, which
    /// is not done here.
    #[inline]
    #[must_use]
    pub fn try_quick<T>(&self, work: impl FnOnce(&mut R) -> Option<T>) -> (Option<T>, bool) {
        let answer = self.slot.try_quick(|slot| match slot {
            Slot::Here(thing) => work(thing),
            Slot::Lent | Slot::Closed => None,
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
        self.slot(|slot| match slot {
            Slot::Here(_) => match std::mem::replace(slot, leave) {
                Slot::Here(thing) => Ok(thing),
                Slot::Lent | Slot::Closed => Err(Absent::Destroyed),
            },
            Slot::Lent => Err(Absent::InExclusiveUse),
            Slot::Closed => Err(Absent::Destroyed),
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

    use super::{Absent, Shelf};

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
