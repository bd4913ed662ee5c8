//! The table of a ledger: every index ever used, and what is known of its object.
//!
//! ```text
//!            commit              begin_close             waited for, or given up
//!  Reserved ────────► Live ───────────────────► Closing ────────────────────────► no tenant
//!     │                │ ▲                         │                                  ▲
//!     │                │ └───────── reopen ────────┘ (the kernel refused)             │
//!     │                └──────────── the last handle was dropped ─────────────────────┤
//!     └───────────────────────────── the create failed ───────────────────────────────┘
//! ```
//!
//! All of it is under one lock. What is taken out of it is given back to be dropped without that.

use std::mem;
use std::num::NonZeroU32;

use super::ledger::{ClosePolicy, Refused};
use super::slot::Slot;
use super::sync::{Arc, Fault, planted};
use super::token::Token;

/// Every index ever used, and those that may be used again.
pub(super) struct Slab<O> {
    entries: Vec<Entry<O>>,
    free: Vec<u32>,
}

struct Entry<O> {
    /// The last generation given out.
    generation: NonZeroU32,
    tenant: Option<Tenant<O>>,
}

/// An object's place in the table, from the reservation until nobody waits for its acks any more.
pub(super) struct Tenant<O> {
    pub(super) phase: Phase<O>,
    pub(super) slot: Arc<Slot>,
}

pub(super) enum Phase<O> {
    /// The create is under way; its events have to wait for the outcome.
    Reserved,
    /// Events lead to the object.
    Live(O),
    /// The destroy is under way, or has been and is waiting; events are acked for the object by
    /// whoever reads them.
    Closing,
}

/// Where a token leads.
pub(super) enum Place<'a, O> {
    Tenant(&'a Tenant<O>),
    /// Given out once, for an object that is gone.
    Gone,
    /// Never given out.
    Unknown,
}

impl<O> Slab<O> {
    pub(super) const fn new() -> Self {
        Self {
            entries: Vec::new(),
            free: Vec::new(),
        }
    }

    /// # Panics
    /// With 2³² objects alive, which no kernel has handles for.
    pub(super) fn place(&mut self, slot: Arc<Slot>) -> Token {
        let tenant = Some(Tenant {
            phase: Phase::Reserved,
            slot,
        });
        if let Some(index) = self.free.pop()
            && let Some(entry) = self.entries.get_mut(index as usize)
            && let Some(generation) = entry
                .generation
                .checked_add(u32::from(!planted(Fault::SameGeneration)))
        {
            *entry = Entry { generation, tenant };
            return Token::new(index, generation);
        }
        let Ok(index) = u32::try_from(self.entries.len()) else {
            panic!("2³² verbs objects are alive at once");
        };
        self.entries.push(Entry {
            generation: Token::FIRST,
            tenant,
        });
        Token::new(index, Token::FIRST)
    }

    /// Of a token whose object is there, whatever its phase.
    #[inline(always)]
    pub(super) fn tenant(&mut self, token: Token) -> Option<&mut Tenant<O>> {
        let entry = self.entries.get_mut(token.index() as usize)?;
        if entry.generation == token.generation() {
            entry.tenant.as_mut()
        } else {
            None
        }
    }

    pub(super) fn find(&self, token: Token) -> Place<'_, O> {
        match self.entries.get(token.index() as usize) {
            Some(entry) if token.generation() == entry.generation => {
                entry.tenant.as_ref().map_or(Place::Gone, Place::Tenant)
            }
            Some(entry) if token.generation() < entry.generation => Place::Gone,
            _ => Place::Unknown,
        }
    }

    /// An index whose generations are used up is not free again: a token is never issued twice.
    pub(super) fn vacate(&mut self, token: Token) -> Option<Tenant<O>> {
        let entry = self.entries.get_mut(token.index() as usize)?;
        if entry.generation != token.generation() {
            return None;
        }
        let tenant = entry.tenant.take()?;
        if entry.generation != NonZeroU32::MAX {
            self.free.push(token.index());
        }
        Some(tenant)
    }

    /// Reserved to live. Of a token that is retired already, the object is given back.
    pub(super) fn commit(&mut self, token: Token, object: O) -> Option<O> {
        match self.tenant(token) {
            Some(Tenant { phase, .. }) if matches!(phase, Phase::Reserved) => {
                *phase = Phase::Live(object);
                None
            }
            _ => Some(object),
        }
    }

    /// The owner of the object is going away. Nothing, if a destroy has taken over.
    pub(super) fn abandon(&mut self, token: Token) -> Option<Tenant<O>> {
        match self.tenant(token)?.phase {
            Phase::Reserved | Phase::Live(_) => self.vacate(token),
            Phase::Closing => None,
        }
    }

    #[cfg(all(test, not(uverbs_loom)))]
    pub(super) fn indices(&self) -> usize {
        self.entries.len()
    }

    /// A table whose index 0 has been used up to this generation.
    #[cfg(all(test, not(uverbs_loom)))]
    pub(super) fn used_up_to(generation: NonZeroU32) -> Self {
        let entries = vec![Entry {
            generation,
            tenant: None,
        }];
        Self {
            entries,
            free: vec![0],
        }
    }
}

impl<O> Tenant<O> {
    /// Whether a destroy may begin.
    pub(super) fn judge(&self, policy: ClosePolicy) -> Result<(), Refused> {
        if !matches!(self.phase, Phase::Live(_)) {
            return Err(Refused::Destroyed);
        }
        match self.slot.outstanding() {
            0 => Ok(()),
            _ if policy == ClosePolicy::Always => Ok(()),
            outstanding => Err(Refused::Outstanding(outstanding)),
        }
    }

    /// Live to closing. Gives out the object.
    pub(super) fn close(&mut self) -> Result<O, Refused>
    where
        O: Clone,
    {
        match mem::replace(&mut self.phase, Phase::Closing) {
            Phase::Live(object) => {
                if planted(Fault::NoClosingMark) {
                    self.phase = Phase::Live(object.clone());
                }
                Ok(object)
            }
            other => {
                self.phase = other;
                Err(Refused::Destroyed)
            }
        }
    }

    /// Closing to live again. What was there is given back, to be dropped.
    pub(super) const fn reopen(&mut self, object: O) -> Phase<O> {
        mem::replace(&mut self.phase, Phase::Live(object))
    }
}
