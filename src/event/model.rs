//! The ledger under loom: every order of steps that readers, holders and destroyers can take.
//!
//! Each model is run as it is, and must pass; and again with a fault put into the ledger, and must
//! fail: with a deadlock, or with an assertion. `RUSTFLAGS="--cfg uverbs_loom" cargo test -p uverbs
//! --lib --release event::model`.
//!
//! The objects here are stricter than the crate's: their last drop destroys *and waits for acks*.
//! So an event that lets go of its object before it acks shows as a thread that waits for itself.

use std::any::type_name;
use std::cell::Cell;
use std::env;
use std::process::Command;
use std::sync::{Arc, Weak};

use loom::sync::{Mutex, mpsc};
use loom::thread;

use super::counter::{Counts, Reported, Sort};
use super::held::{Debt, Held, Owing};
use super::ledger::{ClosePolicy, Found, Ledger, Refused, Registration, Reservation};
use super::sync::{AtomicU32, Fault, Ordering, lock};

thread_local! {
    static PLANTED: Cell<Option<Fault>> = const { Cell::new(None) };
}

/// The environment variable that names a fault to put in.
const FAULT: &str = "UVERBS_LOOM_FAULT";

/// Whether the model that runs has put in this fault.
pub(crate) fn planted(fault: Fault) -> bool {
    PLANTED.get() == Some(fault)
}

/// Checks that `model` passes, and that it fails with each of the faults.
///
/// A model that fails takes its process down (what it leaves behind cannot be dropped outside of
/// loom), so each fault has a process of its own: this test once more, told what to put in.
pub(crate) fn check_and_break<M: Fn() + Send + Sync + Copy + 'static>(model: M, faults: &[Fault]) {
    check_and_break_within(None, model, faults);
}

/// The same through those orders only that force a thread to give way at most so often: all orders
/// of four or five threads are too many.
pub(crate) fn check_and_break_within<M: Fn() + Send + Sync + Copy + 'static>(
    switches: Option<usize>,
    model: M,
    faults: &[Fault],
) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = switches;
    if let Ok(wanted) = env::var(FAULT) {
        PLANTED.set(
            faults
                .iter()
                .copied()
                .find(|fault| format!("{fault:?}") == wanted),
        );
        assert!(PLANTED.get().is_some(), "no such fault here: {wanted}");
        return builder.check(model);
    }
    builder.check(model);
    let name = type_name::<M>().trim_end_matches("::model");
    let (_, test) = name.split_once("::").unwrap();
    for fault in faults {
        let run = Command::new(env::current_exe().unwrap())
            .args(["--exact", test, "--nocapture"])
            .env(FAULT, format!("{fault:?}"))
            .env("RUST_BACKTRACE", "0")
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&run.stderr);
        let noticed = said.contains("deadlock") || said.contains(file!());
        assert!(
            !run.status.success() && noticed,
            "{fault:?} goes unnoticed:\n{said}"
        );
    }
}

/// The kernel's half of one object: what is queued of its events, and how many were read.
#[derive(Default)]
struct Kernel {
    state: Mutex<KernelState>,
}

#[derive(Default)]
struct KernelState {
    element: u64,
    queued: u32,
    reported: u32,
    destroyed: bool,
}

impl Kernel {
    /// Creates the object and raises this many events on it at once.
    fn create(&self, element: u64, events: u32) {
        let mut state = lock(&self.state);
        (state.element, state.queued) = (element, events);
    }

    fn read(&self) -> Option<u64> {
        let mut state = lock(&self.state);
        if state.queued == 0 {
            return None;
        }
        state.queued -= 1;
        state.reported += 1;
        Some(state.element)
    }

    /// What is queued is dropped and not counted.
    fn destroy(&self) -> u32 {
        let mut state = lock(&self.state);
        assert!(!state.destroyed, "destroyed twice");
        state.destroyed = true;
        state.queued = 0;
        state.reported
    }
}

struct Object {
    kernel: Arc<Kernel>,
    registration: Registration<Weak<Self>>,
}

type Link = Weak<Object>;
type Event = Held<Arc<Object>>;

impl Owing for Arc<Object> {
    fn debt(&self) -> Option<Debt<'_>> {
        Some(self.registration.debt(Sort::Asynchronous))
    }
}

impl Object {
    fn commit(reservation: Reservation<Link>, kernel: &Arc<Kernel>) -> Arc<Self> {
        reservation.commit_with(|registration| {
            let kernel = Arc::clone(kernel);
            let object = Arc::new(Self {
                kernel,
                registration,
            });
            let link = Arc::downgrade(&object);
            (object, link)
        })
    }

    /// An object with this many events queued.
    fn with_events(ledger: &Ledger<Link>, events: u32) -> (Arc<Self>, Arc<Kernel>) {
        let kernel = Arc::new(Kernel::default());
        let reservation = ledger.reserve();
        kernel.create(reservation.token().as_raw(), events);
        (Self::commit(reservation, &kernel), kernel)
    }

    fn destroy(&self, policy: ClosePolicy) -> Result<(), Refused> {
        let closing = self.registration.begin_close(policy)?;
        let reported = self.kernel.destroy();
        closing.closed(reported).wait();
        assert_eq!(self.registration.counts().acked, reported);
        Ok(())
    }
}

impl Drop for Object {
    fn drop(&mut self) {
        let _: Result<(), Refused> = self.destroy(ClosePolicy::Always);
    }
}

/// Reads and looks up. `None` if nothing was queued, or what was read leads nowhere any more.
fn next(ledger: &Ledger<Link>, kernel: &Kernel) -> Option<Event> {
    let element = kernel.read()?;
    look_up(ledger, element)
}

fn look_up(ledger: &Ledger<Link>, element: u64) -> Option<Event> {
    let found = ledger
        .unclaimed(element)
        .reach(|link, _| link.upgrade().map(Held::new).ok_or(()));
    match found {
        Found::Live(event) => Some(event),
        Found::Missed(()) | Found::Gone(_) => None,
        Found::Unknown => panic!("the token is known"),
    }
}

#[test]
fn a_destroy_waits_for_an_event_that_was_read_on_one_thread_and_is_acked_on_another() {
    fn model() {
        let ledger = Ledger::new();
        let (object, kernel) = Object::with_events(&ledger, 1);
        let (to_acker, events) = mpsc::channel();
        let reader = thread::spawn(move || {
            assert!(to_acker.send(next(&ledger, &kernel)).is_ok());
        });
        let acker = thread::spawn(move || drop(events.recv()));
        assert_eq!(object.destroy(ClosePolicy::Always), Ok(()));
        reader.join().unwrap();
        acker.join().unwrap();
    }
    let faults = [
        Fault::SilentAck,
        Fault::NoAckOnBehalf,
        Fault::CountAfterLook,
    ];
    check_and_break(model, &faults);
}

#[test]
fn what_was_done_before_the_ack_is_seen_after_the_destroy() {
    fn model() {
        let ledger = Ledger::new();
        let (object, kernel) = Object::with_events(&ledger, 1);
        let event = next(&ledger, &kernel);
        // What the program keeps for the object, and takes back when that is destroyed.
        let kept = Arc::new(AtomicU32::new(0));
        let holder = {
            let kept = Arc::clone(&kept);
            thread::spawn(move || {
                kept.store(1, Ordering::Relaxed);
                drop(event);
            })
        };
        assert_eq!(object.destroy(ClosePolicy::Always), Ok(()));
        assert_eq!(kept.load(Ordering::Relaxed), 1, "the holder is at it still");
        holder.join().unwrap();
    }
    check_and_break(model, &[Fault::RelaxedAck]);
}

#[test]
fn a_destroy_waits_for_two_readers() {
    fn model() {
        let ledger = Ledger::new();
        let (object, kernel) = Object::with_events(&ledger, 2);
        let readers = [(); 2].map(|()| {
            let (ledger, kernel) = (ledger.clone(), Arc::clone(&kernel));
            thread::spawn(move || drop(next(&ledger, &kernel)))
        });
        assert_eq!(object.destroy(ClosePolicy::Always), Ok(()));
        readers
            .into_iter()
            .for_each(|reader| reader.join().unwrap());
    }
    check_and_break_within(Some(2), model, &[Fault::SilentAck, Fault::NoAckOnBehalf]);
}

#[test]
fn everybody_at_once() {
    /// One thread reads and another acks; a third has read and not yet looked up; two destroy.
    fn model() {
        let ledger = Ledger::new();
        let (object, kernel) = Object::with_events(&ledger, 2);
        let other = Arc::clone(&object);
        let element = kernel.read().unwrap();
        let late = {
            let ledger = ledger.clone();
            thread::spawn(move || drop(look_up(&ledger, element)))
        };
        let (to_acker, events) = mpsc::channel();
        let reader = thread::spawn(move || {
            assert!(to_acker.send(next(&ledger, &kernel)).is_ok());
        });
        let acker = thread::spawn(move || drop(events.recv()));
        let second = thread::spawn(move || other.destroy(ClosePolicy::Always));
        let outcomes = [object.destroy(ClosePolicy::Always), second.join().unwrap()];
        assert!(outcomes.contains(&Ok(())));
        assert!(outcomes.contains(&Err(Refused::Destroyed)));
        for thread in [late, reader, acker] {
            thread.join().unwrap();
        }
    }
    let faults = [Fault::SilentAck, Fault::NoAckOnBehalf, Fault::NoClosingMark];
    check_and_break_within(Some(1), model, &faults);
}

#[test]
fn two_queues_of_one_ledger_do_not_disturb_each_other() {
    /// Each object has its events on a queue of its own, read by a thread of its own. While one is
    /// being destroyed, the other is, and a third takes its place in the ledger.
    fn model() {
        let ledger = Ledger::new();
        let (one, first) = Object::with_events(&ledger, 1);
        let (two, second) = Object::with_events(&ledger, 1);
        let reader = |kernel: Arc<Kernel>| {
            let ledger = ledger.clone();
            thread::spawn(move || drop(next(&ledger, &kernel)))
        };
        let readers = [reader(first), reader(second)];
        let destroyer = thread::spawn(move || two.destroy(ClosePolicy::Always));
        assert_eq!(one.destroy(ClosePolicy::Always), Ok(()));
        let (three, third) = Object::with_events(&ledger, 1);
        assert!(next(&ledger, &third).is_some(), "its own event reaches it");
        assert_eq!(three.destroy(ClosePolicy::Always), Ok(()));
        assert_eq!(destroyer.join().unwrap(), Ok(()));
        for reader in readers {
            reader.join().unwrap();
        }
    }
    check_and_break_within(Some(2), model, &[Fault::SilentAck, Fault::NoAckOnBehalf]);
}

#[test]
fn of_two_destroyers_one_is_told_that_it_is_destroyed() {
    fn model() {
        let ledger = Ledger::new();
        let (object, kernel) = Object::with_events(&ledger, 1);
        let other = Arc::clone(&object);
        let reader = thread::spawn(move || drop(next(&ledger, &kernel)));
        let second = thread::spawn(move || other.destroy(ClosePolicy::Always));
        let outcomes = [object.destroy(ClosePolicy::Always), second.join().unwrap()];
        assert!(outcomes.contains(&Ok(())));
        assert!(outcomes.contains(&Err(Refused::Destroyed)));
        reader.join().unwrap();
    }
    check_and_break(model, &[Fault::NoClosingMark]);
}

#[test]
fn an_event_raised_before_create_returned_reaches_the_object() {
    fn model() {
        let ledger = Ledger::new();
        let kernel = Arc::new(Kernel::default());
        let reader = {
            let (ledger, kernel) = (ledger.clone(), Arc::clone(&kernel));
            thread::spawn(move || {
                if let Some(element) = kernel.read() {
                    assert!(
                        look_up(&ledger, element).is_some(),
                        "the event has lost its object"
                    );
                }
            })
        };
        let reservation = ledger.reserve();
        kernel.create(reservation.token().as_raw(), 1);
        let object = Object::commit(reservation, &kernel);
        reader.join().unwrap();
        assert_eq!(object.destroy(ClosePolicy::Always), Ok(()));
    }
    check_and_break(model, &[Fault::NoWaitForCreate]);
}

#[test]
fn a_failed_create_lets_go_of_a_reader_that_waits_for_it() {
    fn model() {
        let ledger = Ledger::<Link>::new();
        let kernel = Arc::new(Kernel::default());
        let reservation = ledger.reserve();
        kernel.create(reservation.token().as_raw(), 1);
        let reader = thread::spawn(move || assert!(next(&ledger, &kernel).is_none()));
        drop(reservation);
        reader.join().unwrap();
    }
    check_and_break(model, &[Fault::SilentAbort]);
}

#[test]
fn a_reader_between_read_and_look_up_does_not_hold_up_a_destroy() {
    fn model() {
        let ledger = Ledger::new();
        let (object, kernel) = Object::with_events(&ledger, 1);
        let element = kernel.read().unwrap();
        let reader = thread::spawn(move || drop(look_up(&ledger, element)));
        assert_eq!(object.destroy(ClosePolicy::Always), Ok(()));
        reader.join().unwrap();
    }
    check_and_break(model, &[Fault::NoAckOnBehalf, Fault::SilentAck]);
}

#[test]
fn a_late_record_of_either_sort_wakes_a_destroy() {
    fn model() {
        let ledger = Ledger::new();
        let (object, _kernel) = Object::with_events(&ledger, 0);
        let element = object.registration.token().as_raw();
        let closing = object.registration.begin_close(ClosePolicy::Always);
        let reader = thread::spawn(move || {
            let unclaimed = ledger.unclaimed_of(Sort::Completion, element);
            let found = unclaimed.reach(|_, _| Err::<(), ()>(()));
            assert!(matches!(found, Found::Gone(_)));
        });
        let reported = Reported {
            asynchronous: Some(0),
            completion: Some(1),
        };
        closing.unwrap().closed(reported).wait();
        reader.join().unwrap();
    }
    check_and_break(model, &[Fault::NoAckOnBehalf, Fault::AsksOfOneSort]);
}

#[test]
fn a_panic_between_read_and_look_up_does_not_hold_up_a_destroy() {
    fn model() {
        let ledger = Ledger::new();
        let (object, kernel) = Object::with_events(&ledger, 1);
        let element = kernel.read().unwrap();
        let reader = thread::spawn(move || drop(ledger.unclaimed(element)));
        assert_eq!(object.destroy(ClosePolicy::Always), Ok(()));
        reader.join().unwrap();
    }
    check_and_break(model, &[Fault::NoAckOnPanic]);
}

#[test]
fn what_try_destroy_has_begun_is_never_held_up_by_a_holder() {
    fn model() {
        let ledger = Ledger::new();
        let (object, kernel) = Object::with_events(&ledger, 1);
        let holder = thread::spawn(move || next(&ledger, &kernel));
        let outcome = object.destroy(ClosePolicy::IfNoneOutstanding);
        // Until here whoever got the event has kept it.
        let event = holder.join().unwrap();
        match outcome {
            Ok(()) => assert!(
                event.is_none(),
                "the event leads to an object that is destroyed"
            ),
            Err(refused) => assert_eq!(refused, Refused::Outstanding(1)),
        }
    }
    check_and_break(model, &[Fault::RefusalApartFromMark, Fault::NoClosingMark]);
}

#[test]
fn the_last_handle_may_go_with_an_event() {
    fn model() {
        let ledger = Ledger::new();
        let (object, kernel) = Object::with_events(&ledger, 1);
        let reader = thread::spawn(move || {
            if let Some(event) = next(&ledger, &kernel) {
                // What loom takes for the handling of the event, in which others may run.
                assert_eq!(event.live().registration.counts().outstanding, 1);
            }
        });
        let _: Counts = object.registration.counts();
        drop(object);
        reader.join().unwrap();
    }
    check_and_break(model, &[Fault::ReleaseBeforeAck]);
}

#[test]
fn a_refused_destroy_leaves_the_counts_right() {
    fn model() {
        let ledger = Ledger::new();
        let (object, kernel) = Object::with_events(&ledger, 2);
        let reader = {
            let (ledger, kernel) = (ledger.clone(), Arc::clone(&kernel));
            thread::spawn(move || drop(next(&ledger, &kernel)))
        };
        // The kernel says EBUSY.
        object
            .registration
            .begin_close(ClosePolicy::Always)
            .unwrap()
            .reopen();
        let event = next(&ledger, &kernel);
        assert!(event.is_some(), "the object is back");
        drop(event);
        reader.join().unwrap();
        assert_eq!(object.destroy(ClosePolicy::Always), Ok(()));
    }
    check_and_break(model, &[Fault::NoAckOnBehalf]);
}

#[test]
fn a_record_of_one_object_never_leads_to_its_successor() {
    fn model() {
        // As the crate's objects do when their last handle is dropped: no wait, late records or not.
        let ledger = Ledger::new();
        let first = ledger.reserve().commit("first");
        let element = first.token().as_raw();
        let reader = {
            let ledger = ledger.clone();
            thread::spawn(move || {
                let reached = |object: &&'static str, _: &_| Ok::<_, ()>(*object);
                match ledger.unclaimed(element).reach(reached) {
                    Found::Live(object) => assert_eq!(object, "first"),
                    Found::Gone(token) => assert_eq!(token.as_raw(), element),
                    Found::Missed(()) | Found::Unknown => panic!("the token was known once"),
                }
            })
        };
        drop(first);
        let second = ledger.reserve().commit("second");
        reader.join().unwrap();
        assert_eq!(second.counts(), Counts::default());
    }
    check_and_break(model, &[Fault::SameGeneration]);
}
