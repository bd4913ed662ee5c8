//! Objects dropped in every order: nothing panics, waits, or is left in the kernel or the process.

use std::any::Any;
use std::time::{Duration, Instant};

use uverbs::{AccessFlags, ConnectOptions, PathOptions, QpAttr, QpState, Rc};

use super::pair::{Failure, ensure, open, same};
use super::{Case, CaseResult, Verdict};
use crate::guest::resources::{kernel_objects, snapshot};

pub(super) const CASES: &[Case] = &[
    Case::new("drops::every_order_of_handles", every_order_of_handles).limit_secs(1800),
    Case::new(
        "drops::every_order_with_an_event_held",
        every_order_with_an_event_held,
    )
    .limit_secs(1800),
    Case::new(
        "drops::a_create_that_fails_leaves_nothing",
        a_create_that_fails_leaves_nothing,
    ),
    Case::new("drops::the_count_counts", the_count_counts),
];

/// Permutations of `n` things, in lexical order: each `stride`-th, or all where all are wanted.
fn orders(n: usize, stride: usize) -> Vec<Vec<usize>> {
    fn extend(left: &[usize], head: &mut Vec<usize>, all: &mut Vec<Vec<usize>>) {
        if left.is_empty() {
            all.push(head.clone());
        }
        for (at, item) in left.iter().enumerate() {
            let mut rest = left.to_vec();
            rest.remove(at);
            head.push(*item);
            extend(&rest, head, all);
            head.pop();
        }
    }
    let mut all = Vec::new();
    extend(&(0..n).collect::<Vec<_>>(), &mut Vec::new(), &mut all);
    let stride = if crate::guest::full() { 1 } else { stride };
    all.into_iter().step_by(stride).collect()
}

type Things = Vec<Option<Box<dyn Any>>>;

/// Drops in the given order; fails if any single drop takes long.
fn drop_in(order: &[usize], mut things: Things) -> Result<(), Failure> {
    for index in order {
        let start = Instant::now();
        drop(things.get_mut(*index).and_then(Option::take));
        ensure(
            start.elapsed() < Duration::from_secs(10),
            &format!(
                "dropping thing {index} of {order:?} took {:?}",
                start.elapsed()
            ),
        )?;
    }
    ensure(
        things.iter().all(Option::is_none),
        "something was not dropped",
    )
}

fn family() -> Result<Things, Failure> {
    let (context, pd) = open("rxe0")?;
    let events = context.events();
    let region = pd.allocate(8192, AccessFlags::LOCAL_WRITE)?;
    let cq = context.create_cq(8).build()?;
    let srq = pd.create_srq(8).build()?;
    let qp = pd.create_qp::<Rc>(&cq, &cq).srq(&srq).build()?;
    Ok(vec![
        Some(Box::new(context)),
        Some(Box::new(pd)),
        Some(Box::new(region)),
        Some(Box::new(cq)),
        Some(Box::new(srq)),
        Some(Box::new(qp)),
        Some(Box::new(events)),
    ])
}

fn every_order_of_handles() -> CaseResult {
    // Once before counting: what the process sets up for good is set up then.
    drop_in(&[0, 1, 2, 3, 4, 5, 6], family()?)?;
    let before = snapshot()?;
    for order in orders(7, 41) {
        drop_in(&order, family()?)?;
        same(&format!("after {order:?}"), snapshot()?, before.clone())?;
    }
    Ok(Verdict::Passed)
}

/// A queue pair that is connected to itself, an event about it that is held, and the rest.
fn family_with_event() -> Result<Things, Failure> {
    let (context, pd) = open("rxe0")?;
    let events = context.events();
    let cq = context.create_cq(8).build()?;
    let qp = pd.create_qp::<Rc>(&cq, &cq).build()?;
    let own = qp.prepare(&PathOptions::default())?;
    qp.connect(&own, &own, &ConnectOptions::default())?;
    qp.modify(&QpAttr::to_state(QpState::Sqd))?;
    let event = events
        .next_timeout(Duration::from_secs(20))?
        .ok_or("SQ_DRAINED did not come")?;
    same("events held", qp.event_counts().outstanding, 1)?;
    Ok(vec![
        Some(Box::new(context)),
        Some(Box::new(pd)),
        Some(Box::new(cq)),
        Some(Box::new(qp)),
        Some(Box::new(event)),
        Some(Box::new(events)),
    ])
}

fn every_order_with_an_event_held() -> CaseResult {
    drop_in(&[0, 1, 2, 3, 4, 5], family_with_event()?)?;
    let before = snapshot()?;
    for order in orders(6, 11) {
        drop_in(&order, family_with_event()?)?;
        same(&format!("after {order:?}"), snapshot()?, before.clone())?;
    }
    Ok(Verdict::Passed)
}

fn a_create_that_fails_leaves_nothing() -> CaseResult {
    let (context, pd) = open("rxe0")?;
    let cq = context.create_cq(8).build()?;
    let limits = context.query_device()?;
    let before = snapshot()?;
    for _ in 0..20 {
        ensure(
            context.create_cq(limits.max_cqe + 1).build().is_err(),
            "a queue too deep",
        )?;
        ensure(
            pd.create_srq(limits.max_srq_wr + 1).build().is_err(),
            "a shared queue too long",
        )?;
        let sge = limits.max_sge + 1;
        let wide = pd.create_qp::<Rc>(&cq, &cq).max_send_sge(sge).build();
        ensure(wide.is_err(), "a queue pair too wide")?;
        let vector = context
            .create_cq(8)
            .comp_vector(context.num_comp_vectors())
            .build();
        ensure(vector.is_err(), "a vector that is not there")?;
    }
    same("after", snapshot()?, before)?;
    Ok(Verdict::Passed)
}

/// The other cases rest on the kernel's count: here it is seen to move.
fn the_count_counts() -> CaseResult {
    let before = kernel_objects("rxe0")?;
    let things = family()?;
    let during = kernel_objects("rxe0")?;
    for kind in ["pd", "cq", "qp", "mr", "srq", "ctx"] {
        let (less, more) = (before.get(kind), during.get(kind));
        ensure(
            less < more,
            &format!("{kind}: {less:?} before, {more:?} with objects"),
        )?;
    }
    drop(things);
    same("after", kernel_objects("rxe0")?, before)?;
    Ok(Verdict::Passed)
}
