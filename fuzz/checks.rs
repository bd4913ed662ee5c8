//! What must hold of any bytes that the kernel's side could write: for the fuzzer, and for the test
//! that replays its corpus (`tests/fuzz_corpus.rs`).

#![allow(
    dead_code,
    unreachable_pub,
    clippy::unwrap_used,
    clippy::missing_panics_doc,
    reason = "a check may fail, and each of its users uses a part"
)]

use uverbs::event::{Class, EventError};
use uverbs::fake::Fabric;
use uverbs::{AsyncEventKind, Rc, Subject, Wc, WcStatus};
use uverbs_providers::rxe::wc::{WC_LEN, decode};

/// Bytes of a record of an event file.
const RECORD: usize = 16;
/// So much fits into the fake's event file at once.
const MOST: usize = 32 * 1024;

/// Bytes as they come out of an event file, of a context with one object of each kind: each record
/// is handed over once, with its type and its element as they were, to an object that fits or to
/// none, and owes nothing once it is dropped.
pub fn async_records(bytes: &[u8]) {
    let bytes = bytes.get(..MOST).unwrap_or(bytes);
    let device = Fabric::new().add_bare_device("fake0");
    let context = device.open().unwrap();
    let pd = context.alloc_pd().unwrap();
    // Their tokens are 0x1_0000_0000 and the three after it.
    let cq = context.create_cq(1).build().unwrap();
    let srq = pd.create_srq(1).build().unwrap();
    let qp = pd.create_qp::<Rc>(&cq, &cq).srq(&srq).build().unwrap();
    let wq = pd.create_wq(&cq, 1).build().unwrap();
    let counts = || {
        [
            cq.event_counts(),
            srq.event_counts(),
            qp.event_counts(),
            wq.event_counts(),
        ]
    };
    let events = context.events();
    device.raise_bytes(bytes);
    let (mut delivered, mut is_gone) = (0, false);
    let mut records = bytes.chunks_exact(RECORD);
    for record in &mut records {
        let (element, rest) = record.split_first_chunk().unwrap();
        let element = u64::from_ne_bytes(*element);
        let raw = u32::from_ne_bytes(*rest.first_chunk().unwrap());
        let event = events.try_next().unwrap().expect("a record is an event");
        let kind = event.kind();
        assert_eq!((kind.raw(), AsyncEventKind::from_raw(raw)), (raw, kind));
        assert!(!format!("{event:?} {} {kind}", event.subject()).is_empty());
        let port = u32::try_from(element).ok();
        let fits = match (kind.class(), event.subject()) {
            (Class::Cq, Subject::Cq(found)) => *found == cq,
            (Class::Srq, Subject::Srq(found)) => *found == srq,
            (Class::Qp, Subject::Qp(found)) => *found == qp.to_any(),
            (Class::Wq, Subject::Wq(found)) => *found == wq,
            (Class::Port, Subject::Port(found)) => Some(*found) == port,
            (Class::Device, Subject::Device) => port.is_some(),
            // Never a port or a device that there is, nor an object that is gone: none is.
            (Class::Port | Class::Device, Subject::Unknown(found)) => {
                *found == element && port.is_none()
            }
            (_, Subject::Unknown(found)) => *found == element,
            _ => false,
        };
        assert!(fits, "{kind} with {element:#x}: {event:?}");
        let is_object = !matches!(
            event.subject(),
            Subject::Port(_) | Subject::Device | Subject::Unknown(_)
        );
        let outstanding: u32 = counts().iter().map(|counts| counts.outstanding).sum();
        assert_eq!(outstanding, u32::from(is_object));
        delivered += u32::from(is_object);
        is_gone |= matches!(
            (kind, event.subject()),
            (AsyncEventKind::DeviceFatal, Subject::Device)
        );
        event.ack();
    }
    match (records.remainder().len(), events.try_next()) {
        (0, Ok(None)) => assert!(!is_gone),
        (0, Err(EventError::DeviceGone)) => assert!(is_gone),
        (len, Err(EventError::BadRecord { len: read })) => assert_eq!(read, len),
        (_, other) => panic!("{other:?}"),
    }
    let counts = counts();
    assert!(counts.iter().all(|counts| counts.acked == counts.delivered));
    // What did not fit its object's type was acked on its behalf, and counted as well.
    assert!(counts.iter().map(|counts| counts.delivered).sum::<u32>() >= delivered);
}

/// Bytes of a slot of rxe's completion queue: every field is what it was, and all that can be asked
/// of a completion has an answer.
pub fn completions(bytes: &[u8]) {
    for slot in bytes.chunks_exact(WC_LEN) {
        let word = |at: usize| slot.get(at..).and_then(|rest| rest.first_chunk()).copied();
        let u64_at = |at| u64::from_ne_bytes(word(at).unwrap());
        let u32_at = |at: usize| {
            let four = slot.get(at..).and_then(|rest| rest.first_chunk::<4>());
            u32::from_ne_bytes(*four.unwrap())
        };
        let words = std::array::from_fn(|index| u64_at(index * 8));
        let wc: Wc = decode(words);
        assert_eq!(wc.wr_id, u64_at(0));
        assert_eq!((wc.status.raw(), wc.raw_opcode), (u32_at(8), u32_at(12)));
        assert_eq!(wc.status, WcStatus::from_raw(u32_at(8)));
        assert_eq!((wc.vendor_err, wc.byte_len), (u32_at(16), u32_at(20)));
        assert_eq!((wc.qp_num.0, wc.src_qp.0), (u32_at(28), u32_at(32)));
        assert_eq!(wc.flags.bits(), u32_at(36));
        assert_eq!(wc.ok().is_ok(), wc.status == WcStatus::Success);
        assert_eq!(wc.opcode().is_some(), wc.status == WcStatus::Success);
        assert!(wc.imm().is_none() || wc.opcode().is_some_and(|opcode| opcode.is_recv()));
        let told = wc
            .ok()
            .map_or_else(|error| error.to_string(), |wc| format!("{wc:?}"));
        assert!(!told.is_empty());
    }
}
