//! Which object a token leads to: the one table between the kernel's numbers and our handles.
//!
//! Ground truth: `ib_uverbs_event_read` and the destroy commands of the kernel's uverbs, which
//! count an event for its object when it is *read* and report the sum at destroy. It must never
//! lead to an object through a token that was not issued for that very object, never hold its lock
//! while an object is dropped, over a system call, or while anybody waits, and never count an
//! event that was read as anything but acked, now or later.

use std::fmt;

use uverbs_abi::sys::process::Mark;

use super::closing::Closing;
use super::counter::{Counts, Sort};
use super::held::Debt;
use super::slot::Slot;
use super::sync::{Arc, AtomicBool, Fault, Lock, Ordering, planted};
use super::table::{Phase, Place, Slab};
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

/// What the record of an event leads to.
#[derive(Debug)]
pub(crate) enum Found<L, M> {
    /// An object that is there, and what will pay the ack owed for the event.
    Live(L),
    /// An object that is there, and that its event cannot have. The ack has been paid on its behalf.
    Missed(M),
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
        Self::starting_at(Slab::new())
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
                is_over: AtomicBool::new(false),
            },
        }
    }

    /// Takes charge of an asynchronous event that was read, and with it of the ack it owes.
    #[inline(always)]
    pub(crate) const fn unclaimed(&self, element: u64) -> Unclaimed<'_, O> {
        self.unclaimed_of(Sort::Asynchronous, element)
    }

    /// The same of an event of either sort.
    #[inline(always)]
    pub(crate) const fn unclaimed_of(&self, sort: Sort, element: u64) -> Unclaimed<'_, O> {
        Unclaimed {
            ledger: self,
            sort,
            element,
            owed: true,
        }
    }

    /// The usual case of [`look_up`](Self::look_up): the object is there, and its event can have it.
    #[inline(always)]
    fn look_up_live<L, M>(
        &self,
        token: Token,
        sort: Sort,
        make: impl FnOnce(&O, &Arc<Slot>) -> Result<L, M>,
    ) -> Option<L> {
        let mut slab = self.table.slab.lock();
        let tenant = slab.value().tenant(token)?;
        let Phase::Live(object) = &tenant.phase else {
            return None;
        };
        let live = make(object, &tenant.slot).ok()?;
        tenant.slot.deliver(sort);
        Some(live)
    }

    /// What a token leads to. Without an object that the event can have, it has been acked.
    #[cold]
    #[inline(never)]
    fn look_up<L, M>(
        &self,
        token: Token,
        sort: Sort,
        make: impl Fn(&O, &Arc<Slot>) -> Result<L, M>,
    ) -> Found<L, M> {
        /// What is to be done without the lock.
        enum Then<L, M> {
            Nothing(Found<L, M>),
            Ring(Found<L, M>, Arc<Slot>),
            Wait(Arc<Slot>),
        }
        loop {
            let then = self.table.slab.with(|slab| {
                let tenant = match slab.find(token) {
                    Place::Tenant(tenant) => tenant,
                    Place::Gone => return Then::Nothing(Found::Gone(token)),
                    Place::Unknown => return Then::Nothing(Found::Unknown),
                };
                let found = match &tenant.phase {
                    Phase::Reserved if !planted(Fault::NoWaitForCreate) => {
                        return Then::Wait(Arc::clone(&tenant.slot));
                    }
                    Phase::Live(object) => match make(object, &tenant.slot) {
                        Ok(live) => {
                            tenant.slot.deliver(sort);
                            return Then::Nothing(Found::Live(live));
                        }
                        Err(missed) => Found::Missed(missed),
                    },
                    Phase::Reserved | Phase::Closing => Found::Gone(token),
                };
                if tenant.slot.ack_on_behalf(sort) {
                    Then::Ring(found, Arc::clone(&tenant.slot))
                } else {
                    Then::Nothing(found)
                }
            });
            match then {
                Then::Nothing(found) => return found,
                Then::Ring(found, slot) => {
                    slot.ring();
                    return found;
                }
                Then::Wait(slot) => {
                    slot.sleep_while(None, || self.is_reserved(token));
                }
            }
        }
    }

    fn is_reserved(&self, token: Token) -> bool {
        let is_reserved = |slab: &mut Slab<O>| match slab.find(token) {
            Place::Tenant(tenant) => matches!(tenant.phase, Phase::Reserved),
            Place::Gone | Place::Unknown => false,
        };
        self.table.slab.with(is_reserved)
    }

    /// Acks a record that nobody will look up. Waits for nothing.
    #[cold]
    #[inline(never)]
    fn ack_on_behalf(&self, element: u64, sort: Sort) {
        let Some(token) = Token::from_raw(element) else {
            return;
        };
        let awaited = self.table.slab.with(|slab| {
            let slot = &slab.tenant(token)?.slot;
            slot.ack_on_behalf(sort).then(|| Arc::clone(slot))
        });
        if let Some(slot) = awaited {
            slot.ring();
        }
    }

    /// Ends a token's life; its index may be used again.
    fn retire(&self, token: Token) {
        if self.table.home.is_ours() {
            let tenant = self.table.slab.with(|slab| slab.vacate(token));
            drop(tenant);
        }
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
    /// What the record says that it is about.
    #[inline(always)]
    pub(crate) const fn element(&self) -> u64 {
        self.element
    }

    /// What the record leads to. Waits for a create that is under way, for nothing else.
    ///
    /// `make` makes of the object what will pay the ack when it is dropped, or says why that cannot be
    /// had. It must not drop a handle of the object, nor wait: the table is locked.
    #[inline(always)]
    pub(crate) fn reach<L, M>(
        mut self,
        make: impl Fn(&O, &Arc<Slot>) -> Result<L, M> + Copy,
    ) -> Found<L, M> {
        let found = match Token::from_raw(self.element) {
            None => Found::Unknown,
            Some(token) => match self.ledger.look_up_live(token, self.sort, make) {
                Some(live) => Found::Live(live),
                None => self.ledger.look_up(token, self.sort, make),
            },
        };
        self.owed = false;
        found
    }
}

impl<O> Drop for Unclaimed<'_, O> {
    #[inline(always)]
    fn drop(&mut self) {
        if self.owed && !planted(Fault::NoAckOnPanic) {
            self.ledger.ack_on_behalf(self.element, self.sort);
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
        let Registration {
            ref ledger,
            ref slot,
            token,
            ..
        } = self.registration;
        let (ledger, slot) = (ledger.clone(), Arc::clone(slot));
        let (built, object) = build(self.registration);
        let refused = ledger.table.slab.with(|slab| slab.commit(token, object));
        slot.wake();
        drop(refused);
        built
    }
}

/// What an object holds to be found by its events. Dropping it ends that, and waits for nothing.
#[must_use = "dropped, the object's events lead nowhere"]
pub(crate) struct Registration<O> {
    ledger: Ledger<O>,
    slot: Arc<Slot>,
    token: Token,
    /// Whether a destroy has gone through, and with it the token's life.
    is_over: AtomicBool,
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

    #[inline(always)]
    pub(super) const fn slot(&self) -> &Arc<Slot> {
        &self.slot
    }

    /// What is owed for an event of the object that was handed over.
    #[inline(always)]
    pub(crate) const fn debt(&self, sort: Sort) -> Debt<'_> {
        Debt::new(&self.slot, sort)
    }

    /// Ends the token's life, when all is done that a destroy of the object has to do.
    pub(super) fn end(&self) {
        // Relaxed: of use to whoever drops this, which comes after all that is done with it.
        self.is_over.store(true, Ordering::Relaxed);
        self.ledger.retire(self.token);
    }

    /// The kernel has refused to destroy the object: events lead to it again.
    pub(super) fn reopen(&self, object: O) {
        let before = self
            .ledger
            .table
            .slab
            .with(|slab| match slab.tenant(self.token) {
                Some(tenant) => Ok(tenant.reopen(object)),
                None => Err(object),
            });
        drop(before);
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
        let slab = &self.ledger.table.slab;
        if planted(Fault::RefusalApartFromMark) {
            slab.with(|slab| match slab.tenant(self.token) {
                Some(tenant) => tenant.judge(policy),
                None => Err(Refused::Destroyed),
            })?;
        }
        let object = slab.with(|slab| {
            let tenant = slab.tenant(self.token).ok_or(Refused::Destroyed)?;
            if !planted(Fault::RefusalApartFromMark) {
                tenant.judge(policy)?;
            }
            tenant.close()
        })?;
        Ok(Closing::new(self, object))
    }
}

impl<O> Drop for Registration<O> {
    fn drop(&mut self) {
        let table = &self.ledger.table;
        // Relaxed: as in `end`.
        if !self.is_over.load(Ordering::Relaxed) && table.home.is_ours() {
            let tenant = table.slab.with(|slab| slab.abandon(self.token));
            if tenant.is_some() && !planted(Fault::SilentAbort) {
                self.slot.wake();
            }
        }
    }
}

impl<O> fmt::Debug for Registration<O> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.token.fmt(f)
    }
}

#[cfg(all(test, not(uverbs_loom)))]
use {super::held::Ack, std::num::NonZeroU32};

#[cfg(all(test, not(uverbs_loom)))]
impl<O: Clone> Unclaimed<'_, O> {
    /// What the record leads to, with the ack alone.
    pub(super) fn look_up(self) -> Found<(O, Ack), ()> {
        let sort = self.sort;
        self.reach(|object, slot| Ok((object.clone(), Ack::new(Arc::clone(slot), sort))))
    }
}

#[cfg(all(test, not(uverbs_loom)))]
impl<O> Ledger<O> {
    /// A ledger whose index 0 has been used up to this generation.
    pub(super) fn used_up_to(generation: NonZeroU32) -> Self {
        Self::starting_at(Slab::used_up_to(generation))
    }

    pub(super) fn indices(&self) -> usize {
        self.table.slab.with(|slab| slab.indices())
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
