//! The device's side of RDMA verbs: what each driver's queues look like and how it is told of new
//! work.
//!
//! ```text
//!   contract   what a driver must be able to do, as traits over numbers and plain data
//!   types wr sge wc error explain   the vocabulary, re-exported by `uverbs`
//!   verbs      the kernel's half of every create, modify, query and destroy, written once
//!   ring       who may move which index, and when
//!   shared     memory that another party writes (UNSAFE ROOM 2)
//!   lock       a lock with no account of panics (UNSAFE ROOM)
//!   shelf      a queue that can be lent out, put back, and closed
//!   rxe        one folder for each driver
//!   fake       the kernel's side played in memory, for tests (UNSAFE ROOM; feature `fake`)
//! ```
//!
//! No driver imports another; none can keep a protection domain alive, since none can name one:
//! lifetimes are the business of the crate above.

pub mod contract;
pub mod error;
mod exclusive;
pub mod explain;
#[cfg(feature = "fake")]
pub mod fake;
#[doc(hidden)]
pub mod lock;
pub mod ring;
pub mod sge;
pub mod shared;
pub mod shelf;
#[doc(hidden)]
pub mod table;
pub mod types;
pub mod verbs;
pub mod wc;
pub mod wr;

#[cfg(feature = "rxe")]
pub mod rxe;

pub use uverbs_abi as abi;

use uverbs_abi::layout::driver::DriverId;

/// The provider for a kernel driver, or `None` where none is built in.
///
/// The driver's number decides, never a device's name: names can be changed by anyone.
#[must_use]
pub fn for_driver(driver: DriverId) -> Option<&'static dyn contract::Provider> {
    match driver {
        #[cfg(feature = "rxe")]
        DriverId::Rxe => Some(&rxe::Rxe),
        _ => None,
    }
}

/// The drivers for which a provider is built in, likeliest first.
#[must_use]
pub const fn built_in() -> &'static [DriverId] {
    &[
        #[cfg(feature = "rxe")]
        DriverId::Rxe,
    ]
}

/// The Cargo feature that builds a driver's provider in, whether or not it is built in here; `None`
/// for a driver that this crate has no provider for.
#[must_use]
pub const fn feature(driver: DriverId) -> Option<&'static str> {
    match driver {
        DriverId::Rxe => Some("rxe"),
        _ => None,
    }
}
