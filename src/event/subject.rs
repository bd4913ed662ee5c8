//! An event as the program gets it: what happened, to what, and the ack that is owed for it.
//!
//! It must never let go of an object before the event is acked, and never owe an ack twice.

use std::any::Any;
use std::fmt;

use super::counter::Sort;
use super::held::{Debt, Held, Owing};
use super::ledger::{Found, Unclaimed};
use super::record::RawEvent;
use super::slot::Slot;
use super::sync::Arc;
use super::{AsyncEventKind, Class, Token};
use crate::cq::{CompletionQueue, WeakCompletionQueue};
use crate::qp::{AnyQueuePair, WeakQueuePair};
use crate::srq::{SharedReceiveQueue, WeakSharedReceiveQueue};
use crate::teardown::Teardown as _;
use crate::wq::{WeakWorkQueue, WorkQueue};

/// One asynchronous event.
///
/// It is acked when it is dropped, on whatever thread that happens, or by [`ack`](Self::ack),
/// which is the same with a name. Until then a `destroy` of the object it is about waits: handle
/// the event first, drop it second. Do not destroy that object while holding the event, or the
/// thread waits for itself; `try_destroy` and `destroy_timeout` say so instead.
///
/// A forgotten event (`std::mem::forget`) is never acked: a `destroy` of its object then waits for
/// ever. Nothing worse happens.
#[doc(alias = "ibv_async_event")]
#[must_use = "dropping an event acks it"]
pub struct AsyncEvent {
    kind: AsyncEventKind,
    held: Held<Subject>,
}

/// What an event is about.
///
/// The handles are live: as long as the event is held, no drop of another handle destroys the
/// object.
#[derive(Debug)]
#[non_exhaustive]
pub enum Subject {
    /// A completion queue.
    Cq(CompletionQueue),
    /// A queue pair.
    Qp(AnyQueuePair),
    /// A shared receive queue.
    Srq(SharedReceiveQueue),
    /// A work queue.
    Wq(WorkQueue),
    /// A port, counted from 1.
    Port(u32),
    /// The device.
    Device,
    /// An object of this context that is gone, or being destroyed. Acked already; there is nothing
    /// left to do.
    Gone(Token),
    /// Something this crate cannot name: an event of a type it does not know, or of a type that
    /// does not fit the object. The number is the kernel's element. If it was an object's event,
    /// it has been acked on the object's behalf.
    Unknown(u64),
    /// In the tests of this module: any object.
    #[cfg(all(test, not(uverbs_loom)))]
    Probe(Probe),
}

/// In the tests of this module: a handle of any object.
#[cfg(all(test, not(uverbs_loom)))]
#[derive(Clone)]
pub struct Probe {
    pub(super) object: Arc<()>,
    slot: Arc<Slot>,
}

#[cfg(all(test, not(uverbs_loom)))]
impl fmt::Debug for Probe {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Probe")
    }
}

/// What a token leads to, without keeping it alive.
#[derive(Clone)]
pub(crate) enum WeakObject {
    Cq(WeakCompletionQueue),
    Qp(WeakQueuePair),
    Srq(WeakSharedReceiveQueue),
    Wq(WeakWorkQueue),
    #[cfg(all(test, not(uverbs_loom)))]
    Probe(Class, std::sync::Weak<()>),
}

impl WeakObject {
    const fn class(&self) -> Class {
        match self {
            Self::Cq(_) => Class::Cq,
            Self::Qp(_) => Class::Qp,
            Self::Srq(_) => Class::Srq,
            Self::Wq(_) => Class::Wq,
            #[cfg(all(test, not(uverbs_loom)))]
            Self::Probe(class, _) => *class,
        }
    }

    /// `None` if the last handle is being dropped.
    #[inline(always)]
    fn upgrade(&self, _slot: &Arc<Slot>) -> Option<Subject> {
        match self {
            Self::Cq(weak) => weak.upgrade().map(Subject::Cq),
            Self::Qp(weak) => weak.upgrade().map(Subject::Qp),
            Self::Srq(weak) => weak.upgrade().map(Subject::Srq),
            Self::Wq(weak) => weak.upgrade().map(Subject::Wq),
            #[cfg(all(test, not(uverbs_loom)))]
            Self::Probe(_, weak) => weak.upgrade().map(|object| {
                let slot = Arc::clone(_slot);
                Subject::Probe(Probe { object, slot })
            }),
        }
    }
}

/// Why an event cannot have its object.
#[derive(Debug)]
enum Missed {
    /// Its type is of another kind of object.
    Unfit,
    /// The last handle is being dropped.
    Going,
}

impl Owing for Subject {
    #[inline(always)]
    fn debt(&self) -> Option<Debt<'_>> {
        let registration = match self {
            Self::Cq(cq) => cq.registration(),
            Self::Qp(qp) => qp.registration(),
            Self::Srq(srq) => srq.registration(),
            Self::Wq(wq) => wq.registration(),
            Self::Port(_) | Self::Device | Self::Gone(_) | Self::Unknown(_) => return None,
            #[cfg(all(test, not(uverbs_loom)))]
            Self::Probe(probe) => return Some(Debt::new(&probe.slot, Sort::Asynchronous)),
        };
        Some(registration.debt(Sort::Asynchronous))
    }
}

impl fmt::Debug for WeakObject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("WeakObject").field(&self.class()).finish()
    }
}

impl AsyncEvent {
    /// Finds out what a record is about whose type says that it is an object.
    ///
    /// Only an object's own handler puts a token into a record, whatever the type says, and the
    /// kernel counts the record for that object. So a token is looked up, and acked on the object's
    /// behalf where the type does not fit it.
    #[inline(always)]
    pub(super) fn of_object(kind: AsyncEventKind, unclaimed: Unclaimed<'_, WeakObject>) -> Self {
        let element = unclaimed.element();
        let class = kind.class();
        let reach = move |object: &WeakObject, slot: &Arc<Slot>| {
            if object.class() != class {
                return Err(Missed::Unfit);
            }
            let live = object.upgrade(slot).ok_or(Missed::Going)?;
            Ok(Held::new(live))
        };
        let held = match unclaimed.reach(reach) {
            Found::Live(held) => held,
            other => Self::of_nobody(element, other),
        };
        Self { kind, held }
    }

    #[cold]
    fn of_nobody(element: u64, found: Found<Held<Subject>, Missed>) -> Held<Subject> {
        Held::new(match (found, Token::from_raw(element)) {
            (Found::Live(held), _) => return held,
            (Found::Gone(token), _) | (Found::Missed(Missed::Going), Some(token)) => {
                Subject::Gone(token)
            }
            (Found::Missed(_) | Found::Unknown, _) => Subject::Unknown(element),
        })
    }

    /// The same where the type says that it is no object. The record is acked if a token is in it
    /// nevertheless.
    pub(super) fn of_no_object(record: RawEvent, _acked: Unclaimed<'_, WeakObject>) -> Self {
        let subject = match (record.kind.class(), record.port()) {
            (Class::Device, Some(_)) => Subject::Device,
            (Class::Port, Some(port)) => Subject::Port(port),
            _ => Subject::Unknown(record.element),
        };
        Self {
            kind: record.kind,
            held: Held::new(subject),
        }
    }

    /// What happened.
    #[must_use]
    pub const fn kind(&self) -> AsyncEventKind {
        self.kind
    }

    /// What it happened to.
    #[must_use]
    pub const fn subject(&self) -> &Subject {
        self.held.live()
    }

    /// What the program attached to the object when it was made, if there is something and it is of
    /// type `D`; see [`Subject::user_data`].
    #[must_use]
    pub fn user_data<D: Any>(&self) -> Option<&D> {
        self.subject().user_data()
    }

    /// Says that the event has been dealt with: what dropping it does, too.
    #[doc(alias = "ibv_ack_async_event")]
    pub fn ack(self) {}
}

impl fmt::Debug for AsyncEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AsyncEvent")
            .field("kind", &self.kind)
            .field("subject", &self.held)
            .finish()
    }
}

impl Subject {
    /// The object's user data, if there is some and it is of type `D`. Ports and the device have
    /// none.
    #[must_use]
    pub fn user_data<D: Any>(&self) -> Option<&D> {
        match self {
            Self::Cq(cq) => cq.user_data(),
            Self::Qp(qp) => qp.user_data(),
            Self::Srq(srq) => srq.user_data(),
            Self::Wq(wq) => wq.user_data(),
            _ => None,
        }
    }
}

/// `port 1`, `queue pair 17`, …: for people.
impl fmt::Display for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cq(cq) => write!(f, "completion queue {}", cq.id()),
            Self::Qp(qp) => write!(f, "queue pair {}", qp.qp_num()),
            Self::Srq(srq) => write!(f, "shared receive queue {}", srq.id()),
            Self::Wq(wq) => write!(f, "work queue {}", wq.wq_num()),
            Self::Port(port) => write!(f, "port {port}"),
            Self::Device => f.write_str("device"),
            Self::Gone(_) => f.write_str("an object that is gone"),
            Self::Unknown(element) => write!(f, "element {element:#x}"),
            #[cfg(all(test, not(uverbs_loom)))]
            Self::Probe(_) => f.write_str("probe"),
        }
    }
}
