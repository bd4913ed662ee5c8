//! Which object a token leads to: the one table between the kernel's numbers and our handles.
//!
//! Ground truth: `ib_uverbs_event_read` and the destroy commands of the kernel's uverbs, which
//! count an event for its object when it is *read* and report the sum at destroy. It must never
//! lead to an object through a token that was not issued for that very object, never hold its lock
//! while an object is dropped, over a system call, or while anybody waits, and never count an
//! event that was read as anything but acked, now or later.

use std::fmt;
use std::num::NonZeroU32;

use uverbs_abi::sys::process::Mark;

use super::closing::Closing;
use super::counter::{Counts, Sort};
use super::slot::{Ack, Slot};
use super::sync::{Arc, Fault, Lock, planted};
use super::token::Token;

/// The table of one context, shared by its objects and its readers.
///
/// `O` is what a token of a live object leads to: something cheap to clone that does not keep the
/// object alive.
pub(crate) struct Ledger<O> {
    table: Arc<Table<O>>,
}

struct Table<O> {
    home: Mark,
    slab: Lock<Slab<O>>,
}

/// Every index ever used, and those that may be used again.
struct Slab<O> {
    entries: Vec<Entry<O>>,
    free: Vec<u32>,
}

struct Entry<O> {
    /// The last generation given out.
    generation: NonZeroU32,
    slot: Option<Arc<Slot<O>>>,
}

/// Where a token leads, as far as the table can say.
enum Place<O> {
    Slot(Arc<Slot<O>>),
    /// Given out once, for an object that is gone.
    Gone,
    /// Never given out.
    Unknown,
}

/// What the record of an event leads to.
#[derive(Debug)]
pub(crate) enum Found<T, O> {
    /// What was made of an object, and the ack owed for the event.
    Live(T, Ack<O>),
    /// An object that is gone or going. If an ack was owed, it has been paid on its behalf.
    Gone(Token),
    /// Nothing of this ledger's.
    Unknown,
}

/// Whether a destroy goes on with events outstanding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ClosePolicy {
    /// It does, and waits for their acks afterwards.
    Always,
    /// It does not.
    IfNoneOutstanding,
}

/// Why a destroy may not begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refused {
    /// Somebody else has destroyed the object, or is about to.
    Destroyed,
    /// So many events are handed over and not acked.
    Outstanding(u32),
}

impl<O> Ledger<O> {
    pub(crate) fn new() -> Self {
        Self::starting_at(Slab {
            entries: Vec::new(),
            free: Vec::new(),
        })
    }

    fn starting_at(slab: Slab<O>) -> Self {
        Self {
            table: Arc::new(Table {
                home: Mark::here(),
                slab: Lock::new(slab),
            }),
        }
    }

    /// A token for an object that is about to be created. In O(1).
    ///
    /// # Panics
    /// With 2³² objects alive, which no kernel has handles for.
    pub(crate) fn reserve(&self) -> Reservation<O> {
        let slot = Arc::new(Slot::new(self.table.home));
        let place = |slab: &mut Slab<O>| slab.place(Arc::clone(&slot));
        let token = self.table.slab.with(place);
        Reservation {
            registration: Registration {
                ledger: self.clone(),
                slot,
                token,
            },
        }
    }

    /// Takes charge of an asynchronous event that was read, and with it of the ack it owes.
    pub(crate) const fn unclaimed(&self, element: u64) -> Unclaimed<'_, O> {
        self.unclaimed_of(Sort::Asynchronous, element)
    }

    /// The same of an event of either sort.
    pub(crate) const fn unclaimed_of(&self, sort: Sort, element: u64) -> Unclaimed<'_, O> {
        Unclaimed {
            ledger: self,
            sort,
            element,
            owed: true,
        }
    }

    #[inline]
    fn find(&self, element: u64) -> (Option<Token>, Place<O>) {
        let token = Token::from_raw(element);
        let place = match token {
            Some(token) => self.table.slab.with(|slab| slab.find(token)),
            None => Place::Unknown,
        };
        (token, place)
    }

    /// Ends a token's life; its index may be used again.
    pub(super) fn retire(&self, token: Token) {
        if self.table.home.is_ours() {
            let slot = self.table.slab.with(|slab| slab.vacate(token));
            drop(slot);
        }
    }
}

impl<O> Slab<O> {
    fn place(&mut self, slot: Arc<Slot<O>>) -> Token {
        if let Some(index) = self.free.pop()
            && let Some(entry) = self.entries.get_mut(index as usize)
            && let Some(generation) = entry
                .generation
                .checked_add(u32::from(!planted(Fault::SameGeneration)))
        {
            *entry = Entry {
                generation,
                slot: Some(slot),
            };
            return Token::new(index, generation);
        }
        let Ok(index) = u32::try_from(self.entries.len()) else {
            panic!("2³² verbs objects are alive at once");
        };
        self.entries.push(Entry {
            generation: Token::FIRST,
            slot: Some(slot),
        });
        Token::new(index, Token::FIRST)
    }

    #[inline]
    fn find(&self, token: Token) -> Place<O> {
        match self.entries.get(token.index() as usize) {
            Some(entry) if token.generation() == entry.generation => entry
                .slot
                .as_ref()
                .map_or(Place::Gone, |slot| Place::Slot(Arc::clone(slot))),
            Some(entry) if token.generation() < entry.generation => Place::Gone,
            _ => Place::Unknown,
        }
    }

    /// An index whose generations are used up is not free again: a token is never issued twice.
    fn vacate(&mut self, token: Token) -> Option<Arc<Slot<O>>> {
        let entry = self.entries.get_mut(token.index() as usize)?;
        if entry.generation != token.generation() {
            return None;
        }
        let slot = entry.slot.take()?;
        if entry.generation != NonZeroU32::MAX {
            self.free.push(token.index());
        }
        Some(slot)
    }
}

impl<O> Clone for Ledger<O> {
    fn clone(&self) -> Self {
        Self {
            table: Arc::clone(&self.table),
        }
    }
}

impl<O> fmt::Debug for Ledger<O> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ledger").finish_non_exhaustive()
    }
}

/// A record that was read and not yet looked up. If it is dropped like that, by a panic or because
/// its type is not known, it is acked on its object's behalf.
pub(crate) struct Unclaimed<'a, O> {
    ledger: &'a Ledger<O>,
    sort: Sort,
    element: u64,
    owed: bool,
}

impl<O> Unclaimed<'_, O> {
    /// What the record leads to. Waits for a create that is under way, for nothing else.
    #[cfg(test)]
    pub(crate) fn look_up(self) -> Found<(Token, O), O>
    where
        O: Clone,
    {
        self.reach(|token, object| (token, object.clone()))
    }

    /// As `look_up`, with what `make` makes of the object: a live handle. It must not drop one, nor
    /// wait.
    #[inline(always)]
    pub(crate) fn reach<T>(mut self, make: impl FnOnce(Token, &O) -> T) -> Found<T, O> {
        let found = match self.ledger.find(self.element) {
            (Some(token), Place::Slot(slot)) => {
                match Slot::look_up(slot, self.sort, |object| make(token, object)) {
                    Some((made, ack)) => Found::Live(made, ack),
                    None => Found::Gone(token),
                }
            }
            (Some(token), Place::Gone) => Found::Gone(token),
            (_, _) => Found::Unknown,
        };
        self.owed = false;
        found
    }
}

impl<O> Unclaimed<'_, O> {
    #[cold]
    fn pay(&self) {
        if !planted(Fault::NoAckOnPanic)
            && let (_, Place::Slot(slot)) = self.ledger.find(self.element)
        {
            slot.ack_on_behalf(self.sort);
        }
    }
}

impl<O> Drop for Unclaimed<'_, O> {
    #[inline]
    fn drop(&mut self) {
        if self.owed {
            self.pay();
        }
    }
}

impl<O> fmt::Debug for Unclaimed<'_, O> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Unclaimed")
            .field("element", &self.element)
            .finish_non_exhaustive()
    }
}

/// A token for an object whose create is under way. Dropped, the create has failed: readers that
/// wait for the outcome are told that the object is gone.
#[derive(Debug)]
#[must_use = "dropped, it says that the create failed"]
pub(crate) struct Reservation<O> {
    registration: Registration<O>,
}

impl<O> Reservation<O> {
    /// What to give the kernel as `user_handle`.
    pub(crate) const fn token(&self) -> Token {
        self.registration.token
    }

    /// The create has succeeded: from now on the token leads to `object`, which must be ready to
    /// be reached. Readers may do so before this returns.
    ///
    /// Not inside of `Arc::new_cyclic`: a reader would try a `Weak` that cannot be upgraded yet,
    /// and take the object for gone. [`commit_with`](Self::commit_with) is for that.
    #[cfg(test)]
    pub(crate) fn commit(self, object: O) -> Registration<O> {
        self.commit_with(|registration| (registration, object))
    }

    /// The create has succeeded: `build` puts the registration into the object and says what leads
    /// there. Readers that have met an event of the object wait until `build` has returned.
    pub(crate) fn commit_with<T>(self, build: impl FnOnce(Registration<O>) -> (T, O)) -> T {
        let slot = Arc::clone(&self.registration.slot);
        let (built, object) = build(self.registration);
        slot.commit(object);
        built
    }
}

/// What an object holds to be found by its events. Dropping it ends that, and waits for nothing.
#[must_use = "dropped, the object's events lead nowhere"]
pub(crate) struct Registration<O> {
    ledger: Ledger<O>,
    slot: Arc<Slot<O>>,
    token: Token,
}

impl<O> Registration<O> {
    /// What the kernel was given as `user_handle`.
    pub(crate) const fn token(&self) -> Token {
        self.token
    }

    /// The object's asynchronous events so far.
    pub(crate) fn counts(&self) -> Counts {
        self.counts_of(Sort::Asynchronous)
    }

    /// The object's events of one sort so far.
    pub(crate) fn counts_of(&self, sort: Sort) -> Counts {
        self.slot.counts(sort)
    }

    pub(super) const fn slot(&self) -> &Arc<Slot<O>> {
        &self.slot
    }

    pub(super) const fn ledger(&self) -> &Ledger<O> {
        &self.ledger
    }
}

impl<O: Clone> Registration<O> {
    /// Before the kernel's destroy: hides the object from readers, who from now on ack what they
    /// read of it on its behalf.
    ///
    /// # Errors
    /// [`Refused::Destroyed`] to all but the first; [`Refused::Outstanding`] if the policy says
    /// so. Nothing has changed then.
    pub(crate) fn begin_close(&self, policy: ClosePolicy) -> Result<Closing<'_, O>, Refused> {
        let object = self.slot.begin_close(policy)?;
        Ok(Closing::new(self, object))
    }
}

impl<O> Drop for Registration<O> {
    fn drop(&mut self) {
        if self.slot.abandon() {
            self.ledger.retire(self.token);
        }
    }
}

impl<O> fmt::Debug for Registration<O> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.token.fmt(f)
    }
}

#[cfg(all(test, not(uverbs_loom)))]
impl<O> Ledger<O> {
    /// A ledger whose index 0 has been used up to this generation.
    pub(super) fn used_up_to(generation: NonZeroU32) -> Self {
        let entries = vec![Entry {
            generation,
            slot: None,
        }];
        Self::starting_at(Slab {
            entries,
            free: vec![0],
        })
    }

    pub(super) fn indices(&self) -> usize {
        self.table.slab.with(|slab| slab.entries.len())
    }

    /// Does something while the table's lock is held.
    pub(super) fn while_locked<R>(&self, work: impl FnOnce() -> R) -> R {
        self.table.slab.with(|_| work())
    }

    /// Whether somebody holds the table's lock.
    pub(super) fn is_locked(&self) -> bool {
        self.table.slab.try_with(|_| ()).is_none()
    }
}
