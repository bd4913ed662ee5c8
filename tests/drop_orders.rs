//! Every order in which handles can be dropped, of everything at once and of what there is after a
//! step has failed: nothing panics, nothing waits, nothing is left.

mod support;

use std::any::Any;
use std::error::Error;

use uverbs::fake::{Fabric, FakeDevice};
use uverbs::{
    AccessFlags, Arm, AsyncEventKind, CompletionAcks, ConnectOptions, Errno, PathOptions, Rc,
    RecvWr, SendWr,
};

/// Handles to be dropped, each apart from the others.
type Things = Vec<Option<Box<dyn Any>>>;

/// Makes one of each, as far as it gets.
fn make(device: &FakeDevice, things: &mut Things) -> Result<(), Box<dyn Error>> {
    let context = device.open()?;
    things.push(Some(Box::new(context.clone())));
    let pd = context.alloc_pd()?;
    things.push(Some(Box::new(pd.clone())));
    things.push(Some(Box::new(pd.allocate(16, AccessFlags::LOCAL_WRITE)?)));
    let cq = context.create_cq(1).build()?;
    things.push(Some(Box::new(cq.clone())));
    let srq = pd.create_srq(1).build()?;
    things.push(Some(Box::new(srq.clone())));
    let qp = pd
        .create_qp::<Rc>(&cq, &cq)
        .srq(&srq)
        .max_send_wr(1)
        .build()?;
    things.push(Some(Box::new(qp.clone())));
    device.raise_qp(&qp, AsyncEventKind::CommEst);
    // One that is held, one that stays unread.
    things.push(Some(Box::new(context.events().try_next()?)));
    device.raise_qp(&qp, AsyncEventKind::CommEst);
    device.raise_cq(&cq, AsyncEventKind::CqErr);
    device.raise_srq(&srq, AsyncEventKind::SrqErr);
    Ok(())
}

/// Makes a queue pair with two completion queues on one channel, an event of each in hand and another
/// of each gathered, as far as it gets.
fn make_channel(device: &FakeDevice, things: &mut Things) -> Result<(), Box<dyn Error>> {
    let context = device.open()?;
    things.push(Some(Box::new(context.clone())));
    let channel = context.create_completion_channel()?;
    things.push(Some(Box::new(channel.clone())));
    let sends = context.create_cq(4).channel(&channel, 0).build()?;
    let receives = context.create_cq(4).channel(&channel, 0).build()?;
    things.push(Some(Box::new((sends.clone(), receives.clone()))));
    let pd = context.alloc_pd()?;
    let qp = pd.create_qp::<Rc>(&sends, &receives).build()?;
    things.push(Some(Box::new(qp.clone())));
    let here = qp.prepare(&PathOptions::default())?;
    qp.connect(&here, &here, &ConnectOptions::default())?;
    let mut events = Vec::new();
    let mut acks = CompletionAcks::new();
    for _ in 0..2 {
        acks.extend(events.drain(..));
        sends.arm(Arm::Next)?;
        receives.arm(Arm::Next)?;
        qp.post_recv(&[RecvWr::new(1, &[])])?;
        qp.post_send(&[SendWr::send_inline(2, &[]).signaled()])?;
        while let Some(event) = channel.try_next()? {
            events.push(event);
        }
    }
    things.push(Some(Box::new(acks)));
    things.push(Some(Box::new(events)));
    // One that stays unread.
    receives.arm(Arm::Next)?;
    qp.post_recv(&[RecvWr::new(1, &[])])?;
    qp.post_send(&[SendWr::send_inline(2, &[])])?;
    Ok(())
}

/// Calls `each` with every order of `0..count`.
fn orders(count: usize, each: &mut impl FnMut(&[usize])) {
    fn go(order: &mut Vec<usize>, from: usize, each: &mut impl FnMut(&[usize])) {
        if from == order.len() {
            each(order);
            return;
        }
        for at in from..order.len() {
            order.swap(from, at);
            go(order, from + 1, each);
            order.swap(from, at);
        }
    }
    go(&mut (0..count).collect(), 0, each);
}

fn drop_in(order: &[usize], things: &mut Things) {
    for at in order {
        things[*at] = None;
    }
}

#[test]
fn everything_can_be_dropped_in_every_order() {
    let fabric = Fabric::new();
    let device = fabric.add_device("rxe0");
    let mut runs = 0u32;
    orders(7, &mut |order| {
        runs += 1;
        if cfg!(miri) && runs % 1700 != 1 {
            return;
        }
        device.forget_calls();
        let mut things = Things::new();
        make(&device, &mut things).unwrap();
        drop_in(order, &mut things);
        let live = device.live();
        assert!(live.is_nothing(), "{order:?} left {live:?}");
    });
    assert_eq!(runs, 5040);
}

#[test]
fn channels_queues_events_and_gathered_acks_can_be_dropped_in_every_order() {
    let fabric = Fabric::new();
    let device = fabric.add_device("rxe0");
    let mut runs = 0u32;
    orders(6, &mut |order| {
        runs += 1;
        if cfg!(miri) && runs % 240 != 1 {
            return;
        }
        let mut things = Things::new();
        make_channel(&device, &mut things).unwrap();
        drop_in(order, &mut things);
        let live = device.live();
        assert!(live.is_nothing(), "{order:?} left {live:?}");
    });
    assert_eq!(runs, 720);
}

#[test]
fn what_there_is_of_a_channel_after_a_step_has_failed_can_be_dropped_forwards_and_backwards() {
    let fabric = Fabric::new();
    let device = fabric.add_device("rxe0");
    make_channel(&device, &mut Things::new()).unwrap();
    let mut steps = device.calls();
    steps.retain(|command| !command.ends_with("DESTROY"));
    for (position, command) in steps.iter().enumerate().skip(1) {
        if cfg!(miri) && position % 5 != 1 {
            continue;
        }
        for backwards in [false, true] {
            device.forget_calls();
            device.fail_at(position, Errno::EFAULT);
            let mut things = Things::new();
            let error = make_channel(&device, &mut things).unwrap_err().to_string();
            assert!(error.contains(command), "{command}: {error}");
            if backwards {
                things.reverse();
            }
            things.into_iter().for_each(drop);
            let live = device.live();
            assert!(live.is_nothing(), "{command} left {live:?}");
        }
    }
}

#[test]
fn what_there_is_after_a_step_has_failed_can_be_dropped_in_every_order() {
    let fabric = Fabric::new();
    let device = fabric.add_device("rxe0");
    make(&device, &mut Things::new()).unwrap();
    let mut steps = device.calls();
    // The destroys at the end are no steps of making.
    steps.retain(|command| !command.ends_with("DESTROY"));
    let mut seen = Vec::new();
    for (position, command) in steps.iter().enumerate() {
        let errno = if *command == "DRIVER_PROBE" {
            Errno::ENOTTY
        } else {
            Errno::EFAULT
        };
        let try_it = |order: Option<&[usize]>| {
            device.forget_calls();
            device.fail_at(position, errno);
            let mut things = Things::new();
            let error = make(&device, &mut things).unwrap_err().to_string();
            assert!(error.contains(command), "{command}: {error}");
            let count = things.len();
            if let Some(order) = order {
                drop_in(order, &mut things);
            }
            drop(things);
            let live = device.live();
            assert!(live.is_nothing(), "{command}, {order:?} left {live:?}");
            count
        };
        let count = try_it(None);
        seen.push(count);
        let mut runs = 0;
        orders(count, &mut |order| {
            runs += 1;
            if !cfg!(miri) || runs == count {
                try_it(Some(order));
            }
        });
    }
    assert_eq!((seen.first(), seen.last()), (Some(&0), Some(&5)));
    make(&device, &mut Things::new()).unwrap();
    assert!(device.live().is_nothing());
}

#[test]
fn handles_of_one_object_can_go_in_any_order_and_the_last_one_destroys() {
    let fabric = Fabric::new();
    let device = fabric.add_device("rxe0");
    let context = device.open().unwrap();
    let cq = context.create_cq(1).build().unwrap();
    let others = [cq.clone(), cq.clone(), cq];
    let exclusive = others[1].exclusive().unwrap();
    drop(others);
    assert_eq!((device.live().cqs, device.live().maps), (1, 1));
    drop(exclusive);
    assert_eq!((device.live().cqs, device.live().maps), (0, 0));
    assert!(!device.live().is_nothing());
    drop(context);
    assert!(device.live().is_nothing());
}

#[test]
#[cfg_attr(miri, ignore = "leaks a buffer, as it must")]
fn a_destroy_that_fails_gives_the_object_back_and_a_drop_that_fails_leaves_it_to_the_file() {
    let fabric = Fabric::new();
    let device = fabric.add_device("rxe0");
    let mut things = Things::new();
    make(&device, &mut things).unwrap();
    for command in [
        "QP_DESTROY",
        "CQ_DESTROY",
        "SRQ_DESTROY",
        "MR_DESTROY",
        "PD_DESTROY",
    ] {
        device.fail_always(command, Errno::EBUSY);
    }
    let keep = things[0].take();
    drop(things);
    assert_eq!(device.live().objects(), 5);
    let context = keep.unwrap().downcast::<uverbs::Context>().unwrap();
    // The device could go on writing into the region's memory, so it is not freed.
    assert_eq!(context.leaked_bytes(), 16);
    drop(context);
    assert!(device.live().is_nothing());
}
