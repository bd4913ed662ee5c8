//! Each event that rxe can raise on 6.12, provoked for real, and a destroy that waits.

use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use uverbs::{AsyncEvent, AsyncEventKind, AsyncEvents, QpAttr, QpState, RecvWr, SendWr, Subject};

use crate::cases::pair::{Failure, SOON, ensure, open, same};
use crate::cases::provoke::{next_seeing, overrun, with_shared_receive_queue};
use crate::guest::net::{add_addr, del_addr, link_down, link_up};

pub(super) fn show() -> Result<(), Failure> {
    port()?;
    send_queue()?;
    shared_receive_queue()?;
    completion_queue()
}

/// Waits for an event of this kind, and shows all that come meanwhile.
fn next(events: &AsyncEvents, kind: AsyncEventKind) -> Result<AsyncEvent, Failure> {
    next_seeing(events, kind, |event| {
        let passing = if event.kind() == kind {
            ""
        } else {
            " (passing)"
        };
        let name = event.kind().to_string();
        println!("   {name:<20} {}{passing}", event.subject());
    })
}

fn port() -> Result<(), Failure> {
    let (context, _pd) = open("rxe0")?;
    let events = context.events();
    let address = [10, 0, 0, 77].into();
    println!("   … an address comes and goes");
    add_addr("veth0", address, 24)?;
    same(
        "subject",
        port_of(&next(&events, AsyncEventKind::GidChange)?),
        Some(1),
    )?;
    del_addr("veth0", address, 24)?;
    same(
        "subject",
        port_of(&next(&events, AsyncEventKind::GidChange)?),
        Some(1),
    )?;
    println!("   … the link goes down and up");
    link_down("veth0")?;
    same(
        "subject",
        port_of(&next(&events, AsyncEventKind::PortErr)?),
        Some(1),
    )?;
    link_up("veth0")?;
    same(
        "subject",
        port_of(&next(&events, AsyncEventKind::PortActive)?),
        Some(1),
    )?;
    Ok(())
}

fn port_of(event: &AsyncEvent) -> Option<u32> {
    match event.subject() {
        Subject::Port(port) => Some(*port),
        _ => None,
    }
}

fn send_queue() -> Result<(), Failure> {
    let (a, _b) = crate::cases::pair::pair()?;
    let events = a.context.events();
    println!("   … a queue pair's send queue is drained");
    a.qp.modify(&QpAttr::to_state(QpState::Sqd))?;
    let event = next(&events, AsyncEventKind::SqDrained)?;
    ensure(
        matches!(event.subject(), Subject::Qp(qp) if *qp == a.qp.to_any()),
        "the event names another queue pair",
    )?;
    same("events held", a.qp.event_counts().outstanding, 1)?;
    event.ack();
    same(
        "events held after the ack",
        a.qp.event_counts().outstanding,
        0,
    )
}

fn shared_receive_queue() -> Result<(), Failure> {
    let (a, b, srq) = with_shared_receive_queue()?;
    let events = b.context.events();
    let (out, room) = (a.region(64, 1)?, b.region(64, 2)?);
    println!("   … a shared receive queue runs low");
    for wr_id in 0..4 {
        srq.post_recv(&[RecvWr::new(wr_id, &[room.slice(..)?])])?;
    }
    srq.set_limit(3)?;
    for wr_id in 0..2 {
        a.qp.post_send(&[SendWr::send(wr_id, &[out.slice(..)?]).signaled()])?;
        a.completion()?.ok()?;
        b.completion()?.ok()?;
    }
    let event = next(&events, AsyncEventKind::SrqLimitReached)?;
    ensure(
        matches!(event.subject(), Subject::Srq(found) if *found == srq),
        "the event names another shared receive queue",
    )?;
    drop(event);
    println!("   … a queue pair that draws from it goes to ERR");
    b.qp.modify(&QpAttr::to_state(QpState::Err))?;
    let event = next(&events, AsyncEventKind::QpLastWqeReached)?;
    ensure(
        matches!(event.subject(), Subject::Qp(qp) if *qp == b.qp.to_any()),
        "the event names another queue pair",
    )
}

fn completion_queue() -> Result<(), Failure> {
    println!("   … a completion queue is given more than it holds");
    let (a, _b) = overrun(3)?;
    let events = a.context.events();
    let event = next(&events, AsyncEventKind::CqErr)?;
    ensure(
        matches!(event.subject(), Subject::Cq(cq) if *cq == a.cq),
        "the event names another completion queue",
    )?;
    destroy_waits(a, event)
}

/// The event is held while another thread destroys the completion queue that it is about.
fn destroy_waits(a: crate::cases::pair::End, event: AsyncEvent) -> Result<(), Failure> {
    let cq = a.cq.clone();
    // The queue pair goes first: as long as it reports there the kernel would say EBUSY.
    a.qp.try_destroy().map_err(|error| error.to_string())?;
    println!("   … a destroy waits for its ack");
    let cq = match cq.try_destroy() {
        Ok(()) => return Err("try_destroy went through with an event held".into()),
        Err(refused) => {
            println!("     try_destroy says: {refused}");
            refused
                .into_object()
                .ok_or("try_destroy refused and did not give the object back")?
        }
    };
    let (say, hear) = mpsc::channel();
    // Taken before the wait below begins, so that of the two times it cannot be the shorter.
    let start = Instant::now();
    let destroyer = thread::spawn(move || {
        let result = cq.destroy().map_err(|error| error.to_string());
        let _ = say.send(start.elapsed());
        result
    });
    let held = Duration::from_millis(500);
    match hear.recv_timeout(held) {
        Ok(after) => return Err(format!("destroy returned after {after:?}, event held").into()),
        Err(_) => println!("     destroy is still waiting after {held:?}, the event is held"),
    }
    event.ack();
    let took = hear
        .recv_timeout(SOON)
        .map_err(|_| "destroy did not return after the ack")?;
    destroyer
        .join()
        .map_err(|_| "the destroying thread panicked")??;
    println!("     acked: destroy returned, {took:.1?} after it was called");
    ensure(took >= held, "destroy did not wait")
}
