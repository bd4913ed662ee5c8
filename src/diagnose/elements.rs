//! The memory that a failed request had named, held against the regions that there are.
//!
//! Ground truth: what the provider finds in its queue, and what this context has registered. Keys that
//! came from elsewhere (a raw element) are not known here, and nothing is claimed of them but that.

use uverbs_abi::Report;
use uverbs_providers::contract::{Element, Posted};
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
    )
}

/// Tells what is wrong with the elements; and of a receive that may have been too short, its room.
pub(super) fn tell(
    living: &Living,
    pd: PdHandle,
    error: &WcError,
    posted: &[Posted],
    report: &mut Report,
) {
    // A slot that was never filled looks like a request of number 0 without memory.
    let named = |request: &&Posted| error.wr_id != 0 || !request.elements.is_empty();
    let posted: Vec<_> = posted.iter().filter(named).collect();
    // The number is the program's, which may give it to many: then nobody can say which of them failed.
    let among = match posted.len() {
        0 | 1 => String::new(),
        several => format!(", one of {several} of this number that the queues still hold,"),
    };
    let mut told = 0;
    for request in &posted {
        for element in &request.elements {
            if told < MOST
                && let Some(text) = trouble(living, pd, request, element)
            {
                report.found(format!(
                    "{} {}{among} names {text}",
                    name(request),
                    error.wr_id
                ));
                told += 1;
            }
        }
    }
    let is_of_length = matches!(
        error.status,
        WcStatus::LocalLengthError | WcStatus::LocalQpOperationError
    );
    if told == 0
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
}

const fn name(request: &Posted) -> &'static str {
    if request.is_receive {
        "receive"
    } else {
        "send request"
    }
}

/// What is wrong with one element: the rest of a sentence.
fn trouble(living: &Living, pd: PdHandle, request: &Posted, element: &Element) -> Option<String> {
    let Element { addr, length, lkey } = *element;
    // Of which the device looks at nothing.
    if length == 0 {
        return None;
    }
    let Some(region) = living.region(lkey) else {
        return Some(format!(
            "lkey {lkey:#x}, which no region of this context has: dropped since, or another's"
        ));
    };
    let what = format!("the region with lkey {lkey:#x}, which");
    if region.pd != pd {
        return Some(format!(
            "{what} is of another protection domain than the queue pair"
        ));
    }
    if request.writes && !region.access.contains(AccessFlags::LOCAL_WRITE) {
        return Some(format!(
            "{what} lacks LOCAL_WRITE (its access flags: {})",
            region.access
        ));
    }
    let end = u128::from(addr) + u128::from(length);
    let last = u128::from(region.start) + u128::from(region.length);
    if addr < region.start || end > last {
        return Some(format!(
            "{what} has {} bytes at {:#x}, for {length} bytes at {addr:#x}",
            region.length, region.start
        ));
    }
    None
}
