//! Asynchronous events: what happened, to which object, and who still owes an ack for it.
//!
//! The whole life of an event, with drawings, is told in `docs/events.md`.
//!
//! This module must never wait for an ack in a `Drop`, and never lose one.

// | file | what it is |
// |---|---|
// | `kind` | the types of events, and what to do about each |
// | `record` | the 16 bytes of one event |
// | `token`, `table`, `ledger` | which object an event is about |
// | `counter`, `slot`, `held`, `closing` | how many of its events are out, the ack that each owes, and the destroy that waits for them |
// | `subject` | the event as the program holds it |
// | `file`, `source`, `reader` | a file of records and what ends its readers; the event file; reading it |
// | `model` | the ledger under loom, with faults put in to see them found |

mod closing;
mod counter;
mod error;
mod file;
mod held;
mod kind;
mod ledger;
mod reader;
mod record;
mod slot;
mod source;
mod subject;
pub(crate) mod sync;
mod table;
mod token;

#[cfg(all(test, uverbs_loom))]
#[allow(clippy::unwrap_used, reason = "a test may fail")]
pub(crate) mod model;
#[cfg(all(test, not(uverbs_loom)))]
#[allow(clippy::unwrap_used, reason = "a test may fail")]
mod tests;

pub use self::counter::Counts;
pub use self::error::{EventError, EventQueueError};
pub use self::kind::{AsyncEventKind, Class};
pub use self::reader::{AsyncEvents, Incoming};
pub use self::subject::{AsyncEvent, Subject};
pub use self::token::Token;

pub(crate) use self::closing::Settling;
pub(crate) use self::counter::{Reported, Sort};
pub(crate) use self::file::{EventFile, Until};
pub(crate) use self::held::{Ack, Debt, Held, Owing};
pub(crate) use self::ledger::{ClosePolicy, Found, Ledger, Refused};
pub(crate) use self::source::EventSource;
pub(crate) use self::subject::WeakObject;

/// What an object holds to be found by its events.
pub(crate) type Registration = ledger::Registration<WeakObject>;
