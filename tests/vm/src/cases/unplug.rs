//! A device that is pulled while it is in use: who is told, who waits, and what is left.
//!
//! rxe lets go of its users on the newest kernel only; the test module's device on every one.

use std::io;
use std::sync::mpsc;
use std::time::Duration;
use std::{fs, thread};

use uverbs::abi::layout::event as raw;
use uverbs::event::EventError;
use uverbs::{
    AsyncEventKind, AsyncEvents, CompletionQueue, Context, DestroyErrorCause, QueuePair, Rc,
    Subject,
};

use super::events::on_thread;
use super::injected::with_number;
use super::pair::{Failure, SOON, ensure, same};
use super::provoke::next;
use super::tally::{Queues, Tally};
use super::{Case, CaseResult, Verdict};
use crate::guest::injector::{FAKE, FakeDevice, Target, inject};
use crate::guest::kernel_version;
use crate::guest::rdma::link_delete;
use crate::guest::resources::Tracked;

pub(super) const CASES: &[Case] = &[
    Case::new("unplug::fake_under_load", fake_under_load).with_modules(),
    Case::new("unplug::rxe_under_load", rxe_under_load).with_modules(),
    Case::new("unplug::fake_while_calls_go_on", fake_while_calls_go_on).with_modules(),
    Case::new("unplug::rxe_while_calls_go_on", rxe_while_calls_go_on),
];

/// The first line of kernels tried on which rxe lets go of its users.
const RXE_LETS_GO: (u32, u32) = (7, 3);

/// Why rxe cannot be pulled here, if it cannot.
fn rxe_holds_on() -> Result<Option<Verdict>, Failure> {
    let old = kernel_version()? < RXE_LETS_GO;
    Ok(old.then(|| {
        Verdict::Ignored("rxe cannot be removed under a user before 7.3: the removal waits".into())
    }))
}

fn fake_under_load() -> CaseResult {
    let device = FakeDevice::load()?;
    under_load(FAKE, Queues::Bare, move || {
        device.unplug()?;
        Ok(device)
    })
}

fn rxe_under_load() -> CaseResult {
    if let Some(ignored) = rxe_holds_on()? {
        return Ok(ignored);
    }
    under_load("rxe0", Queues::BuiltIn, || link_delete("rxe0"))
}

/// How a reader came to its end: how many fatal events it was given, and the error.
type Ended = Result<(u32, EventError), String>;

/// Reads until there is an error.
fn read_to_the_end(events: &AsyncEvents) -> Ended {
    let mut fatal = 0;
    loop {
        match events.next() {
            Ok(event) if event.kind() == AsyncEventKind::DeviceFatal => {
                if !matches!(event.subject(), Subject::Device) {
                    return Err(format!("DEVICE_FATAL on {}", event.subject()));
                }
                fatal += 1;
            }
            Ok(_) => {}
            Err(error) => return Ok((fatal, error)),
        }
    }
}

/// Ends of readers, of which one was given the fatal event.
fn ended(readers: Vec<mpsc::Receiver<Ended>>) -> Result<(), Failure> {
    let mut fatal = 0;
    for reader in readers {
        let (seen, error) = reader
            .recv_timeout(SOON)
            .map_err(|_| "a reader is still blocked after the removal")??;
        same("a reader's end", error, EventError::DeviceGone)?;
        fatal += seen;
    }
    same("readers that were given DEVICE_FATAL", fatal, 1)
}

/// Descriptors of this process that lead to a device or to its events.
fn descriptors() -> io::Result<usize> {
    let mut count = 0;
    for entry in fs::read_dir("/proc/self/fd")? {
        // The one of the folder itself is gone by now.
        let Ok(target) = fs::read_link(entry?.path()) else {
            continue;
        };
        let target = target.to_string_lossy();
        count += usize::from(target.contains("infiniband") || target.contains("uverbs"));
    }
    Ok(count)
}

/// A hundred queue pairs; events held, events unread, readers blocked, a destroy waiting.
fn under_load<T: Send + 'static>(
    name: &'static str,
    queues: Queues,
    pull: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> CaseResult {
    let (tally, context) = Tally::open(name, queues)?;
    let pd = context.alloc_pd()?;
    let events = context.events();
    let cq = context.create_cq(256).build()?;
    let (alone, number) = with_number(name, Tracked::Cq, || Ok(context.create_cq(16).build()?))?;
    let srq = pd.create_srq(16).build()?;
    let qp = pd.create_qp::<Rc>(&cq, &cq).build()?;
    let more: Vec<QueuePair<Rc>> = (0..99)
        .map(|_| pd.create_qp::<Rc>(&cq, &cq).srq(&srq).build())
        .collect::<Result<_, _>>()?;

    // A second context, nobody reads there: five events of its queue pair are queued.
    let (unread_tally, unread) = Tally::open(name, queues)?;
    let unread_pd = unread.alloc_pd()?;
    let unread_cq = unread.create_cq(16).build()?;
    let unread_qp = unread_pd.create_qp::<Rc>(&unread_cq, &unread_cq).build()?;
    let target = Target::Qp(unread_qp.qp_num().0);
    inject(name, target, raw::IB_EVENT_QP_FATAL, 5)?;

    // Three events are held, and a destroy waits for one of them.
    inject(name, Target::Cq(number), raw::IB_EVENT_CQ_ERR, 1)?;
    let of_cq = next(&events, AsyncEventKind::CqErr)?;
    inject(name, Target::Qp(qp.qp_num().0), raw::IB_EVENT_QP_FATAL, 2)?;
    let of_qp = [
        next(&events, AsyncEventKind::QpFatal)?,
        next(&events, AsyncEventKind::QpFatal)?,
    ];
    let destroy = on_thread(move || alone.destroy().map_err(|error| error.to_string()));
    let readers = (0..3)
        .map(|_| {
            let events = events.clone();
            on_thread(move || read_to_the_end(&events))
        })
        .collect();
    ensure(
        destroy.recv_timeout(Duration::from_millis(300)).is_err(),
        "the destroy did not wait",
    )?;

    let pulled = on_thread(pull)
        .recv_timeout(SOON)
        .map_err(|_| "the removal waits for us")??;
    ended(readers)?;
    // Sticky, for every reader and every kind of wait.
    let gone = Some(EventError::DeviceGone);
    same("next", context.events().next().err(), gone)?;
    same("try_next", events.try_next().err(), gone)?;
    same("next_timeout", events.next_timeout(SOON).err(), gone)?;
    ensure(context.is_gone(), "the context does not know")?;
    all_say_gone(&context, &cq)?;

    // The destroy still waits for its event, and for nothing else.
    ensure(
        destroy.recv_timeout(Duration::from_millis(300)).is_err(),
        "the destroy gave its wait up",
    )?;
    of_cq.ack();
    destroy
        .recv_timeout(SOON)
        .map_err(|_| "the destroy did not return after the ack")??;
    let refused = qp
        .destroy_timeout(Duration::from_millis(50))
        .err()
        .map(|error| error.cause);
    let held = Some(DestroyErrorCause::StillHeld { outstanding: 2 });
    same("the queue pair's destroy", refused, held)?;
    // Late, and harmless.
    drop(of_qp);
    for qp in more {
        qp.destroy()?;
    }
    srq.destroy()?;
    cq.destroy()?;
    // The kernel answered each of them still, and with the true count.
    same("objects destroyed", tally.destroyed(), 103)?;
    same("events the kernel says were read", tally.reported(), 3)?;

    // The other context: what was not read is gone, the fatal event is not.
    let unread_events = unread.events();
    drop(next(&unread_events, AsyncEventKind::DeviceFatal)?);
    same("the other context", unread_events.next().err(), gone)?;
    unread_qp.destroy()?;
    unread_cq.destroy()?;
    same("events read there", unread_tally.reported(), 0)?;

    drop((pd, context, events, unread_pd, unread, unread_events));
    drop((tally, unread_tally));
    same("descriptors that are left", descriptors()?, 0)?;
    drop(pulled);
    Ok(Verdict::Passed)
}

/// What can be called on a device that is gone says that it is gone.
fn all_say_gone(context: &Context, cq: &CompletionQueue) -> Result<(), Failure> {
    let says = [
        context.alloc_pd().err().map(|e| chain(&e)),
        context.query_port(1).err().map(|e| chain(&e)),
        context.query_device().err().map(|e| chain(&e)),
        context.create_cq(4).build().err().map(|e| chain(&e)),
    ];
    for said in says {
        let said = said.ok_or("a call went through")?;
        ensure(is_gone(&said), &format!("a call says: {said}"))?;
    }
    let mut room = [uverbs::Wc::default()];
    let found = cq.poll(&mut room).map_or(0, |found| found.len());
    same("completions out of nothing", found, 0)
}

/// An error's words and those of its causes.
fn chain(error: &(dyn std::error::Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text.push_str(": ");
        text.push_str(&error.to_string());
        cause = error.source();
    }
    text
}

fn is_gone(said: &str) -> bool {
    said.contains("device is gone")
}

fn fake_while_calls_go_on() -> CaseResult {
    let device = FakeDevice::load()?;
    let (_, context) = Tally::open(FAKE, Queues::Bare)?;
    while_calls_go_on(context, move || {
        device.unplug()?;
        Ok(device)
    })
}

fn rxe_while_calls_go_on() -> CaseResult {
    if let Some(ignored) = rxe_holds_on()? {
        return Ok(ignored);
    }
    while_calls_go_on(Context::open("rxe0")?, || link_delete("rxe0"))
}

/// One thread makes and destroys, another takes the device away: the first failure, whichever call
/// it meets, says what it is.
fn while_calls_go_on<T: Send + 'static>(
    context: Context,
    pull: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> CaseResult {
    let pd = context.alloc_pd()?;
    let (say, rounds) = mpsc::channel();
    let first_failure = on_thread(move || -> String {
        loop {
            let made = context.create_cq(16).build().map_err(|e| chain(&e));
            let cq = match made {
                Ok(cq) => cq,
                Err(said) => return said,
            };
            let qp = match pd.create_qp::<Rc>(&cq, &cq).build() {
                Ok(qp) => qp,
                Err(said) => return chain(&said),
            };
            let said = match context.query_port(1) {
                Ok(_) => None,
                Err(said) => Some(chain(&said)),
            };
            // A destroy goes through, before and after.
            if let Err(error) = qp.destroy() {
                return format!("destroying a queue pair: {error}");
            }
            if let Err(error) = cq.destroy() {
                return format!("destroying a completion queue: {error}");
            }
            if let Some(said) = said {
                return said;
            }
            let _ = say.send(());
        }
    });
    for _ in 0..20 {
        rounds
            .recv_timeout(SOON)
            .map_err(|_| "the calls do not get on")?;
    }
    let pulled = on_thread(pull)
        .recv_timeout(SOON)
        .map_err(|_| "the removal waits for us")??;
    let said = first_failure
        .recv_timeout(SOON)
        .map_err(|_| "the calls go on without a device")?;
    ensure(is_gone(&said), &format!("the first failure says: {said}"))?;
    // Everything of the thread's was dropped with it.
    thread::sleep(Duration::from_millis(50));
    drop(pulled);
    Ok(Verdict::Passed)
}
