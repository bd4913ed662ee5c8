//! The memory that a failed request had named, held against the regions that there are.
//!
//! Ground truth: what the provider finds in its queue, and what this context has registered. Keys that
//! came from elsewhere (a raw element) are not known here, and nothing is claimed of them but that.

use uverbs_abi::Report;
use uverbs_providers::contract::{Element, Posted, Remote};
use uverbs_providers::types::{AccessFlags, PdHandle};
use uverbs_providers::wc::{WcError, WcStatus};

use crate::living::Living;

/// No more than these are told of one failure.
const MOST: usize = 4;

/// Whether a request's own memory can be why it ended like this.
pub(super) const fn can_be(status: WcStatus) -> bool {
    matches!(
        status,
        WcStatus::LocalLengthError
            | WcStatus::LocalQpOperationError
            | WcStatus::LocalProtectionError
            | WcStatus::WrFlushed
            | WcStatus::LocalAccessError
            | WcStatus::RemoteAccessError
            | WcStatus::RemoteInvalidRequest
    )
}

/// What is wrong with the peer's memory that a request names, as far as it shows here: what was found,
/// and what to do.
fn remote_trouble(status: WcStatus, request: &Posted) -> Option<(String, &'static str)> {
    let Remote {
        addr,
        rkey,
        is_atomic,
    } = request.remote?;
    if is_atomic && addr % 8 != 0 && status == WcStatus::RemoteInvalidRequest {
        return Some((
            format!("the peer's address {addr:#x}, for an atomic, which is not a multiple of 8"),
            "let the 8 bytes of an atomic begin at an address that is a multiple of 8",
        ));
    }
    (rkey.0 == 0 && status == WcStatus::RemoteAccessError).then(|| {
        let found = "rkey 0: the peer's region was registered without any REMOTE right";
        (
            found.to_owned(),
            "let the peer register the region with REMOTE_WRITE, REMOTE_READ or REMOTE_ATOMIC, and tell \
             its rkey anew",
        )
    })
}

/// Tells what is wrong with the elements and with the place at the peer; and of a receive that may have
/// been too short, its room. Gives what to do about it, and whether that is surely why it failed.
pub(super) fn tell(
    living: &Living,
    pd: PdHandle,
    error: &WcError,
    posted: &[Posted],
    report: &mut Report,
) -> (Vec<&'static str>, bool) {
    let is_remote = matches!(
        error.status,
        WcStatus::RemoteAccessError | WcStatus::RemoteInvalidRequest
    );
    // A slot that was never filled looks like a request of number 0 without memory.
    let named = |request: &&Posted| error.wr_id != 0 || !request.elements.is_empty();
    let posted: Vec<_> = posted.iter().filter(named).collect();
    // The number is the program's, which may give it to many: then nobody can say which of them failed.
    let among = match posted.len() {
        0 | 1 => String::new(),
        several => format!(", one of {several} of this number that the queues still hold,"),
    };
    let mut steps = Vec::new();
    for request in &posted {
        let local = request
            .elements
            .iter()
            .filter(|_| !is_remote)
            .filter_map(|element| trouble(living, pd, request, element));
        for (text, step) in local.chain(remote_trouble(error.status, request)) {
            if steps.len() < MOST {
                report.found(format!(
                    "{} {}{among} names {text}",
                    name(request),
                    error.wr_id
                ));
                steps.push(step);
            }
        }
    }
    let is_of_length = matches!(
        error.status,
        WcStatus::LocalLengthError | WcStatus::LocalQpOperationError
    );
    if steps.is_empty()
        && is_of_length
        && let Some(receive) = posted.iter().find(|request| request.is_receive)
    {
        let lengths = receive.elements.iter().map(|element| element.length);
        let room: u64 = lengths.map(u64::from).sum();
        report.found(format!(
            "receive {}{among} has room for {room} bytes",
            error.wr_id
        ));
    }
    // What was flushed may have been without fault when the queue pair failed.
    let is_sure = posted.len() == 1 && !steps.is_empty() && error.status != WcStatus::WrFlushed;
    (steps, is_sure)
}

const fn name(request: &Posted) -> &'static str {
    if request.is_receive {
        "receive"
    } else {
        "send request"
    }
}

/// What is wrong with one element, the rest of a sentence; and what to do.
fn trouble(
    living: &Living,
    pd: PdHandle,
    request: &Posted,
    element: &Element,
) -> Option<(String, &'static str)> {
    let Element { addr, length, lkey } = *element;
    // Of which the device looks at nothing.
    if length == 0 {
        return None;
    }
    let Some(region) = living.region(lkey) else {
        return Some((
            format!(
                "lkey {lkey:#x}, which no region of this context has: dropped since, or another's"
            ),
            "keep the region until the completion of the request",
        ));
    };
    let what = format!("the region with lkey {lkey:#x}, which");
    if region.pd != pd {
        return Some((
            format!("{what} is of another protection domain than the queue pair"),
            "register the memory in the queue pair's own protection domain: `qp.pd()`",
        ));
    }
    if request.writes && !region.access.contains(AccessFlags::LOCAL_WRITE) {
        return Some((
            format!(
                "{what} lacks LOCAL_WRITE (its access flags: {})",
                region.access
            ),
            "register the region with LOCAL_WRITE",
        ));
    }
    let end = u128::from(addr) + u128::from(length);
    let last = u128::from(region.start) + u128::from(region.length);
    if addr < region.start || end > last {
        return Some((
            format!(
                "{what} has {} bytes at {:#x}, for {length} bytes at {addr:#x}",
                region.length, region.start
            ),
            "take the element with `MemoryRegion::slice`, which checks its range",
        ));
    }
    None
}
