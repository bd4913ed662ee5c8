//! What the ledger promises of tokens: to whom they lead, and to whom never.

use std::num::NonZeroU32;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use super::super::ledger::{ClosePolicy, Found, Ledger};
use super::super::token::Token;
use super::support::{A_WHILE, TOO_LONG, counts, is_gone, live, until};

fn is_unknown<O: Clone>(ledger: &Ledger<O>, element: u64) -> bool {
    matches!(ledger.unclaimed(element).look_up(), Found::Unknown)
}

#[test]
fn a_token_leads_to_its_object_until_that_is_dropped() {
    let ledger = Ledger::new();
    let registration = ledger.reserve().commit("cq");
    let element = registration.token().as_raw();
    assert_eq!(live(&ledger, element).0, "cq");
    drop(registration);
    assert!(is_gone(&ledger, element));
}

#[test]
fn a_stale_token_does_not_reach_the_successor_in_its_place() {
    let ledger = Ledger::new();
    let mut stale = Vec::new();
    for _ in 0..100 {
        let registration = ledger.reserve().commit("earlier");
        stale.push(registration.token().as_raw());
    }
    let successor = ledger.reserve().commit("successor");
    assert_eq!(ledger.indices(), 1, "one index serves them all");
    for element in stale {
        assert!(is_gone(&ledger, element));
    }
    assert_eq!(successor.counts(), counts(0, 0));
}

#[test]
fn a_forged_or_foreign_token_reaches_nothing() {
    let ledger = Ledger::new();
    let registration = ledger.reserve().commit("mine");
    let mine = registration.token().as_raw();
    // Ports, zero, an index never used, a generation to come, addresses as C uses them.
    for element in [
        0,
        1,
        mine + 1,
        mine + (1 << 32),
        u64::MAX,
        0x7fff_dead_beef_0000,
    ] {
        assert!(is_unknown(&ledger, element), "{element:#x}");
    }
    let freed = { ledger.reserve().commit("freed").token().as_raw() };
    assert!(
        is_unknown(&ledger, freed + (1 << 32)),
        "the next of its index is not out yet"
    );
    assert_eq!(registration.counts(), counts(0, 0));
}

#[test]
fn an_index_whose_generations_are_used_up_is_never_used_again() {
    let ledger = Ledger::used_up_to(NonZeroU32::new(u32::MAX - 2).unwrap());
    let next = || ledger.reserve().commit(()).token();
    assert_eq!(
        (next().as_raw(), next().as_raw()),
        (0xffff_fffe_0000_0000, 0xffff_ffff_0000_0000)
    );
    let after = next();
    assert_eq!(after, Token::new(1, Token::FIRST));
    assert!(is_gone(&ledger, 0xffff_ffff_0000_0000));
}

#[test]
fn events_of_an_object_under_creation_wait_for_it() {
    let ledger = Ledger::new();
    let reservation = ledger.reserve();
    let element = reservation.token().as_raw();
    let found = Arc::new(AtomicBool::new(false));
    let reader = {
        let (ledger, found) = (ledger.clone(), Arc::clone(&found));
        thread::spawn(move || {
            let object = live(&ledger, element).0;
            found.store(true, Ordering::SeqCst);
            object
        })
    };
    thread::sleep(A_WHILE);
    assert!(!found.load(Ordering::SeqCst));
    let registration = reservation.commit("new");
    assert_eq!(reader.join().unwrap(), "new");
    assert_eq!(registration.counts(), counts(1, 1));
}

#[test]
fn events_of_an_object_that_could_not_be_created_are_told_so() {
    let ledger = Ledger::<()>::new();
    let reservation = ledger.reserve();
    let element = reservation.token().as_raw();
    let reader = {
        let ledger = ledger.clone();
        thread::spawn(move || is_gone(&ledger, element))
    };
    thread::sleep(A_WHILE);
    drop(reservation);
    assert!(reader.join().unwrap());
    assert!(is_gone(&ledger, element));
}

#[test]
fn an_object_with_its_registration_inside_is_reached_only_when_whole() {
    struct Object(super::super::ledger::Registration<Weak<Self>>);
    let ledger = Ledger::<Weak<Object>>::new();
    let reservation = ledger.reserve();
    let element = reservation.token().as_raw();
    let reader = {
        let ledger = ledger.clone();
        thread::spawn(move || live(&ledger, element).0.upgrade().is_some())
    };
    let object = reservation.commit_with(|registration| {
        thread::sleep(A_WHILE);
        let object = Arc::new(Object(registration));
        let weak = Arc::downgrade(&object);
        (object, weak)
    });
    assert!(reader.join().unwrap());
    assert_eq!(object.0.token().as_raw(), element);
    // A panic while the object is put together is a failed create.
    let reservation = ledger.reserve();
    let element = reservation.token().as_raw();
    let build = || reservation.commit_with(|_registration| -> ((), Weak<Object>) { panic!() });
    assert!(catch_unwind(AssertUnwindSafe(build)).is_err());
    assert!(is_gone(&ledger, element));
}

#[test]
fn no_object_is_dropped_under_the_lock() {
    /// Takes the ledger's lock when it is dropped, as the last handle of an object does.
    #[derive(Clone)]
    struct Locks(Ledger<Self>);
    impl Drop for Locks {
        fn drop(&mut self) {
            until("the lock is free", || !self.0.is_locked());
            drop(self.0.reserve());
        }
    }
    let (done, finished) = mpsc::channel();
    thread::spawn(move || {
        let ledger = Ledger::new();
        let commit = || ledger.reserve().commit(Locks(ledger.clone()));
        drop(commit());
        commit()
            .begin_close(ClosePolicy::Always)
            .unwrap()
            .closed(0)
            .wait();
        drop(commit().begin_close(ClosePolicy::Always).unwrap());
        let registration = commit();
        registration
            .begin_close(ClosePolicy::Always)
            .unwrap()
            .reopen();
        drop(live(&ledger, registration.token().as_raw()));
        done.send(()).unwrap();
    });
    finished.recv_timeout(TOO_LONG).unwrap();
}

#[test]
#[cfg_attr(miri, ignore = "times a hundred thousand objects")]
fn a_hundred_thousand_objects_cost_no_more_each_than_ten() {
    let ledger = Ledger::new();
    let rounds = |count: u32| {
        let registrations: Vec<_> = (0..count).map(|n| ledger.reserve().commit(n)).collect();
        let began = Instant::now();
        for (n, registration) in (0..count).zip(&registrations) {
            assert_eq!(live(&ledger, registration.token().as_raw()).0, n);
        }
        drop(registrations);
        began.elapsed() / count
    };
    rounds(100_000);
    let (few, many) = (rounds(1_000), rounds(100_000));
    assert_eq!(ledger.indices(), 100_000);
    assert!(
        many < 50 * few + Duration::from_micros(50),
        "{few:?} each of few, {many:?} of many"
    );
}
