//! What the ledger promises of acks, and of the destroys that wait for them.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Weak};
use std::thread;
use std::time::{Duration, Instant};

use super::super::Counts;
use super::super::Sort;
use super::super::held::{Debt, Held, Owing};
use super::super::ledger::Registration;
use super::super::ledger::{ClosePolicy, Found, Ledger, Refused};
use super::support::{A_WHILE, counts, is_gone, live};

#[test]
fn a_destroy_waits_until_as_many_are_acked_as_the_kernel_reports() {
    let ledger = Ledger::new();
    let registration = ledger.reserve().commit(());
    let element = registration.token().as_raw();
    let held = [live(&ledger, element).1, live(&ledger, element).1];
    drop(live(&ledger, element).1);
    assert_eq!(registration.counts(), counts(3, 1));

    let settling = registration
        .begin_close(ClosePolicy::Always)
        .unwrap()
        .closed(3);
    assert_eq!(settling.wait_timeout(Duration::ZERO), Err(2));
    let [one, other] = held;
    drop(one);
    let began = Instant::now();
    assert_eq!(
        settling.wait_timeout(A_WHILE),
        Err(1),
        "it says how many are held"
    );
    assert!(began.elapsed() >= A_WHILE);
    let acker = thread::spawn(move || {
        thread::sleep(A_WHILE);
        drop(other);
    });
    settling.wait();
    assert_eq!(registration.counts(), counts(3, 3));
    acker.join().unwrap();
}

#[test]
fn a_destroy_with_nothing_out_does_not_wait() {
    let ledger = Ledger::new();
    let registration = ledger.reserve().commit(());
    let settling = registration
        .begin_close(ClosePolicy::IfNoneOutstanding)
        .unwrap()
        .closed(0);
    assert_eq!(settling.wait_timeout(Duration::ZERO), Ok(()));
    assert_eq!(settling.wait_timeout(Duration::MAX), Ok(()));
    settling.wait();
}

#[test]
fn a_reader_that_comes_late_acks_for_the_object() {
    let ledger = Ledger::new();
    let registration = ledger.reserve().commit(());
    let element = registration.token().as_raw();
    let (late, later) = (ledger.unclaimed(element), ledger.unclaimed(element));
    let closing = registration
        .begin_close(ClosePolicy::IfNoneOutstanding)
        .unwrap();
    assert!(
        matches!(late.look_up(), Found::Gone(_)),
        "while the kernel destroys"
    );
    let settling = closing.closed(2);
    assert_eq!(settling.wait_timeout(Duration::ZERO), Err(1));
    assert!(
        matches!(later.look_up(), Found::Gone(_)),
        "and after it has"
    );
    settling.wait();
    assert_eq!(registration.counts(), counts(2, 2));
}

#[test]
fn a_record_lost_to_a_panic_is_acked_for_the_object() {
    let ledger = Ledger::new();
    let registration = ledger.reserve().commit(());
    let element = registration.token().as_raw();
    let lose = || {
        let _unclaimed = ledger.unclaimed(element);
        panic!("between read and look-up");
    };
    assert!(catch_unwind(AssertUnwindSafe(lose)).is_err());
    assert_eq!(registration.counts(), counts(1, 1));
    registration
        .begin_close(ClosePolicy::Always)
        .unwrap()
        .closed(1)
        .wait();
}

/// Leads to the object as a handle does.
struct Handle<'a>(&'a Registration<()>);

impl Owing for Handle<'_> {
    fn debt(&self) -> Option<Debt<'_>> {
        Some(self.0.debt(Sort::Asynchronous))
    }
}

#[test]
fn a_panic_while_an_event_is_handled_acks_it() {
    let ledger = Ledger::new();
    let registration = ledger.reserve().commit(());
    let element = registration.token().as_raw();
    let handle = || {
        let event = |(): &_, _: &_| Ok::<_, ()>(Held::new(Handle(&registration)));
        let _event = ledger.unclaimed(element).reach(event);
        panic!("in the handler");
    };
    assert!(catch_unwind(AssertUnwindSafe(handle)).is_err());
    assert_eq!(registration.counts(), counts(1, 1));
}

#[test]
fn try_destroy_is_refused_with_the_number_and_nothing_has_changed() {
    let ledger = Ledger::new();
    let registration = ledger.reserve().commit("as before");
    let element = registration.token().as_raw();
    let held = live(&ledger, element).1;
    let again = live(&ledger, element).1;
    let refused = registration
        .begin_close(ClosePolicy::IfNoneOutstanding)
        .unwrap_err();
    assert_eq!(refused, Refused::Outstanding(2));
    assert_eq!(live(&ledger, element).0, "as before");
    drop((held, again));
    let closing = registration
        .begin_close(ClosePolicy::IfNoneOutstanding)
        .unwrap();
    closing.closed(3).wait();
}

#[test]
fn the_second_destroyer_is_told() {
    let ledger = Ledger::new();
    let registration = ledger.reserve().commit(());
    let destroyed = |policy| registration.begin_close(policy).unwrap_err() == Refused::Destroyed;
    let closing = registration.begin_close(ClosePolicy::Always).unwrap();
    assert!(destroyed(ClosePolicy::Always), "while the first is at it");
    let settling = closing.closed(0);
    assert!(destroyed(ClosePolicy::Always) && destroyed(ClosePolicy::IfNoneOutstanding));
    drop(settling);
    assert!(destroyed(ClosePolicy::Always), "and for ever");
}

#[test]
fn an_object_that_the_kernel_would_not_destroy_is_back() {
    let ledger = Ledger::new();
    let registration = ledger.reserve().commit("busy");
    let element = registration.token().as_raw();
    let closing = registration.begin_close(ClosePolicy::Always).unwrap();
    assert!(is_gone(&ledger, element));
    closing.reopen();
    assert_eq!(live(&ledger, element).0, "busy");
    assert_eq!(registration.counts(), counts(2, 2));
    registration
        .begin_close(ClosePolicy::Always)
        .unwrap()
        .closed(2)
        .wait();
}

#[test]
fn a_destroy_that_panicked_leaves_the_object_hidden() {
    let ledger = Ledger::new();
    let registration = ledger.reserve().commit(());
    let element = registration.token().as_raw();
    drop(registration.begin_close(ClosePolicy::Always).unwrap());
    assert!(is_gone(&ledger, element));
    assert_eq!(
        registration.begin_close(ClosePolicy::Always).unwrap_err(),
        Refused::Destroyed
    );
    drop(registration);
    assert_eq!(
        ledger.reserve().token().as_raw(),
        element + (1 << 32),
        "the index is free, once"
    );
    assert_eq!(ledger.indices(), 1);
}

#[test]
fn where_the_kernel_cannot_say_the_own_count_is_waited_for() {
    let ledger = Ledger::new();
    let registration = ledger.reserve().commit(());
    let element = registration.token().as_raw();
    let held = live(&ledger, element).1;
    let settling = registration
        .begin_close(ClosePolicy::Always)
        .unwrap()
        .closed_unknown();
    assert_eq!(settling.wait_timeout(Duration::ZERO), Err(1));
    drop(held);
    settling.wait();
}

#[test]
fn the_index_is_used_again_only_when_the_wait_is_over_or_given_up() {
    let ledger = Ledger::new();
    let registration = ledger.reserve().commit(());
    let held = live(&ledger, registration.token().as_raw()).1;
    let settling = registration
        .begin_close(ClosePolicy::Always)
        .unwrap()
        .closed(1);
    assert_eq!(
        ledger.reserve().token().index(),
        1,
        "it is still waited for"
    );
    assert_eq!(settling.wait_timeout(Duration::ZERO), Err(1));
    drop(settling);
    let successor = ledger.reserve().commit(());
    assert_eq!(successor.token().index(), 0);
    drop(registration);
    drop(held);
    assert_eq!(
        successor.counts(),
        counts(0, 0),
        "a late ack goes to its own slot"
    );
    assert!(
        !is_gone(&ledger, successor.token().as_raw()),
        "the first one's handle has ended its own token alone"
    );
}

#[test]
fn dropping_the_last_handle_waits_for_nothing_and_a_late_ack_is_harmless() {
    let ledger = Ledger::new();
    let registration = ledger.reserve().commit(());
    let held = live(&ledger, registration.token().as_raw()).1;
    drop(registration);
    drop(held);
}

#[test]
#[cfg_attr(miri, ignore = "leaks the event, as it must")]
fn a_forgotten_event_costs_a_destroy_and_nothing_else() {
    let ledger = Ledger::new();
    let registration = ledger.reserve().commit(());
    std::mem::forget(live(&ledger, registration.token().as_raw()).1);
    let refused = registration
        .begin_close(ClosePolicy::IfNoneOutstanding)
        .unwrap_err();
    assert_eq!(refused, Refused::Outstanding(1));
    let settling = registration
        .begin_close(ClosePolicy::Always)
        .unwrap()
        .closed(1);
    assert_eq!(settling.wait_timeout(Duration::from_millis(5)), Err(1));
}

#[test]
fn the_counts_may_wrap_as_the_kernels_do() {
    let ledger = Ledger::new();
    let registration = ledger.reserve().commit(());
    let element = registration.token().as_raw();
    registration.slot().wrap_counts_soon();
    let held = [live(&ledger, element).1, live(&ledger, element).1];
    assert_eq!(
        registration.counts(),
        Counts {
            delivered: 1,
            acked: u32::MAX,
            outstanding: 2
        }
    );
    let settling = registration
        .begin_close(ClosePolicy::Always)
        .unwrap()
        .closed(1);
    assert_eq!(settling.wait_timeout(Duration::ZERO), Err(2));
    drop(held);
    settling.wait();
}

#[test]
fn of_a_kernel_that_counts_too_few_nothing_is_waited_for() {
    let ledger = Ledger::new();
    let registration = ledger.reserve().commit(());
    let element = registration.token().as_raw();
    drop(live(&ledger, element).1);
    let settling = registration
        .begin_close(ClosePolicy::Always)
        .unwrap()
        .closed(0);
    assert_eq!(settling.wait_timeout(Duration::ZERO), Ok(()));
    settling.wait();
}

#[test]
fn events_and_destroys_from_all_sides_add_up() {
    const ROUNDS: u32 = if cfg!(miri) { 20 } else { 2_000 };
    let ledger = Ledger::<Weak<()>>::new();
    for round in 0..ROUNDS {
        let object = Arc::new(());
        let registration = ledger.reserve().commit(Arc::downgrade(&object));
        let element = registration.token().as_raw();
        let read = round % 4;
        thread::scope(|scope| {
            for _ in 0..read {
                scope.spawn(|| match ledger.unclaimed(element).look_up() {
                    Found::Live((object, ack)) => {
                        let live = object.upgrade();
                        drop(ack);
                        drop(live);
                    }
                    Found::Missed(()) => panic!("it was not missed"),
                    Found::Gone(token) => assert_eq!(token.as_raw(), element),
                    Found::Unknown => panic!("known"),
                });
            }
            registration
                .begin_close(ClosePolicy::Always)
                .unwrap()
                .closed(read)
                .wait();
            assert_eq!(registration.counts(), counts(read, read));
        });
    }
    assert_eq!(ledger.indices(), 1);
}
