//! What making and destroying share, whatever the object.
//!
//! The order of a destroy is the same for all: alone at the gate; the ledger is told (a late reader
//! then acks for the object); the kernel destroys; the gate opens for those who are to learn that
//! it is gone; and only then, with nothing held, the wait for acks.

use std::time::Duration;

use uverbs_abi::layout::driver::DriverId;
use uverbs_abi::{Cause, CommandError, Errno, Session};
use uverbs_providers::contract::Provider;
use uverbs_providers::error::{CloseError, CreateError as ProviderError};
use uverbs_providers::types::QueueId;

use crate::attr::DeviceAttr;
use crate::context::Context;
use crate::error::{
    CreateErrorCause, DestroyError, DestroyErrorCause, Held, Limit, NoProviderReason,
    ObjectErrorCause,
};
use crate::event::{
    AsyncEvents, ClosePolicy, EventSource, Refused, Registration, Reported, Settling, Sort,
    WeakObject,
};
use crate::gate::{Gate, Pass};

/// An object that the kernel counts events for.
pub(crate) trait Teardown: Sized {
    /// Who can still be using it when the kernel says `EBUSY`: a clause.
    const USERS: &'static str = "something else still uses it";
    /// What errors call it.
    fn id(&self) -> QueueId;
    fn gate(&self) -> &Gate;
    fn registration(&self) -> &Registration;
    fn session(&self) -> &Session;
    /// Who does use it, as far as is known here. Asked for after the kernel has said `EBUSY`.
    fn holders(&self) -> Vec<QueueId> {
        Vec::new()
    }
    /// Destroys the kernel object and gives the events that the kernel had handed out.
    fn close(&self) -> Result<Reported, CloseError>;
    /// The kernel object is gone, and whoever passes the gate learns so: tells those who wait for it.
    fn tell_waiters(&self) {}
}

/// Enters an object's gate for the command `name`.
pub(crate) fn enter<'g>(
    gate: &'g Gate,
    session: &Session,
    name: &'static str,
) -> Result<Pass<'g>, ObjectErrorCause> {
    // Before any lock: in a forked child its holder may not exist.
    session.check(name)?;
    gate.enter().ok_or(ObjectErrorCause::Destroyed)
}

/// Whether an object that is being dropped, by its last handle, has a kernel object left to destroy. It
/// never waits for acks; and nothing can be done about a refusal: the object then goes with the open file.
pub(crate) fn is_left(gate: &mut Gate, session: &Session) -> bool {
    // A forked child unmaps and closes, and touches no lock.
    session.is_ours() && gate.is_left()
}

/// `destroy` and `destroy_timeout`.
pub(crate) fn destroy<T: Teardown>(
    object: T,
    limit: Option<Duration>,
) -> Result<(), DestroyError<T>> {
    run(object, ClosePolicy::Always, limit)
}

/// `try_destroy`.
pub(crate) fn try_destroy<T: Teardown>(object: T) -> Result<(), DestroyError<T>> {
    // What is left to wait for is a reader between its read and its look-up: it acks by itself.
    run(object, ClosePolicy::IfNoneOutstanding, None)
}

fn run<T: Teardown>(
    object: T,
    policy: ClosePolicy,
    limit: Option<Duration>,
) -> Result<(), DestroyError<T>> {
    let outcome = close(&object, policy).map(|settling| match limit {
        None => {
            settling.wait();
            Ok(())
        }
        Some(limit) => settling.wait_timeout(limit),
    });
    match outcome {
        Ok(Ok(())) => Ok(()),
        Ok(Err(outstanding)) => Err(still_held(&object, outstanding)),
        Err(cause) => Err(refused(object, cause)),
    }
}

#[cold]
fn still_held<T: Teardown>(object: &T, outstanding: u32) -> DestroyError<T> {
    let cause = DestroyErrorCause::StillHeld { outstanding };
    DestroyError::gone(object.id(), cause, held(object))
}

/// Which of an object's events are out, by what was read here.
fn held<T: Teardown>(object: &T) -> Held {
    let of = |sort| object.registration().counts_of(sort).outstanding;
    Held {
        asynchronous: of(Sort::Asynchronous),
        completion: of(Sort::Completion),
    }
}

#[cold]
fn refused<T: Teardown>(object: T, cause: DestroyErrorCause) -> DestroyError<T> {
    let id = object.id();
    if cause.is_of_one_gone() {
        return DestroyError::gone(id, cause, Held::default());
    }
    let is_busy = matches!(cause, DestroyErrorCause::Busy { .. });
    let holders = if is_busy {
        object.holders()
    } else {
        Vec::new()
    };
    let held = match cause {
        DestroyErrorCause::Outstanding { .. } => held(&object),
        _ => Held::default(),
    };
    DestroyError::kept(object, id, cause, holders, held)
}

/// Everything up to the wait. If it fails, the object is as it was, unless the cause says that it is
/// gone.
fn close<T: Teardown>(
    object: &T,
    policy: ClosePolicy,
) -> Result<Settling<'_, WeakObject>, DestroyErrorCause> {
    if !object.session().is_ours() {
        return Err(CommandError {
            command: "DESTROY",
            cause: Cause::ForeignProcess,
        }
        .into());
    }
    let alone = object
        .gate()
        .enter_alone()
        .ok_or(DestroyErrorCause::Destroyed)?;
    let closing = object
        .registration()
        .begin_close(policy)
        .map_err(|refused| match refused {
            Refused::Destroyed => DestroyErrorCause::Destroyed,
            Refused::Outstanding(outstanding) => DestroyErrorCause::Outstanding { outstanding },
        })?;
    let settling = match object.close() {
        Ok(reported) => closing.closed(reported),
        // The device went, and the kernel cannot say how many: our own count it is.
        Err(CloseError::Command(error)) if error.cause == Cause::DeviceGone => {
            closing.closed_unknown()
        }
        // It is destroyed, and its handle may be another's by now.
        Err(CloseError::Command(error)) if error.is_done() => {
            drop(closing.closed_unknown());
            alone.destroyed();
            object.tell_waiters();
            return Err(error.into());
        }
        Err(refusal) => {
            closing.reopen();
            return Err(DestroyErrorCause::of(refusal, T::USERS));
        }
    };
    alone.destroyed();
    object.tell_waiters();
    Ok(settling)
}

/// The device's provider, or why there is none.
pub(crate) fn provider(context: &Context) -> Result<&'static dyn Provider, CreateErrorCause> {
    context.provider().ok_or_else(|| {
        let driver = DriverId::from_raw(context.session().driver());
        let abi = context.driver_abi();
        let reason = match uverbs_providers::for_driver(driver) {
            Some(provider) if provider.driver_abis().contains(&abi) => {
                NoProviderReason::LeftOut { driver }
            }
            Some(provider) => NoProviderReason::Abi {
                driver,
                found: abi,
                oldest: *provider.driver_abis().start(),
                newest: *provider.driver_abis().end(),
            },
            None => match uverbs_providers::feature(driver) {
                Some(feature) => NoProviderReason::NotBuiltIn { driver, feature },
                None => NoProviderReason::Unknown { driver },
            },
        };
        CreateErrorCause::NoProvider {
            driver,
            abi,
            reason,
        }
    })
}

/// Where the events of an object are to go: to the queue that was chosen, or to the context's own.
pub(crate) fn event_source<'a>(
    context: &'a Context,
    chosen: Option<&'a AsyncEvents>,
) -> Result<&'a EventSource, CreateErrorCause> {
    match chosen.map(AsyncEvents::source) {
        None => Ok(context.event_source()),
        Some(source) if source.file().is_of(context.session().status()) => Ok(source),
        Some(_) => Err(CreateErrorCause::OtherContext {
            what: "event queue",
        }),
    }
}

/// After a refusal: which of the sizes asked for are above the device's limits. Never fails, since
/// it only explains a failure.
pub(crate) fn exceeded(
    context: &Context,
    pairs: impl FnOnce(&DeviceAttr) -> Vec<(&'static str, u32, u32)>,
) -> Vec<Limit> {
    let Ok(device) = context.query_device() else {
        return Vec::new();
    };
    let above = |(name, asked, has): (&'static str, u32, u32)| {
        (asked > has).then_some(Limit::Exceeded {
            name,
            asked: u64::from(asked),
            has: u64::from(has),
        })
    };
    pairs(&device).into_iter().filter_map(above).collect()
}

/// As [`exceeded`]; where no size is, and the kernel has no room, how many of these objects the
/// device has room for.
pub(crate) fn limits(
    context: &Context,
    refusal: &ProviderError,
    pairs: impl FnOnce(&DeviceAttr) -> Vec<(&'static str, u32, u32)>,
    in_all: (&'static str, fn(&DeviceAttr) -> u32),
) -> Vec<Limit> {
    let mut limits = exceeded(context, pairs);
    let no_room = matches!(refusal, ProviderError::Command(error) if is_no_room(error));
    if limits.is_empty()
        && no_room
        && let Ok(device) = context.query_device()
    {
        limits.push(Limit::InAll {
            name: in_all.0,
            has: u64::from(in_all.1(&device)),
        });
    }
    limits
}

/// Whether the kernel refused for want of room: memory, or places in the device's tables.
pub(crate) fn is_no_room(error: &CommandError) -> bool {
    matches!(
        error.errno(),
        Some(Errno::ENOMEM | Errno::ENOSPC | Errno::EAGAIN)
    )
}
