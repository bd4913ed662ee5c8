//! The ledger and the reader with threads and clocks as they are.

mod destroy;
mod fork;
mod ledger;
mod reader;
mod signals;
mod subject;
mod support;
