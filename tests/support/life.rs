//! A whole life, from opening to closing, that uses every command of the crate, and what a call in
//! it can be refused with.

#![allow(dead_code, unreachable_pub, reason = "each test binary uses a part")]

use std::error::Error;

use super::End;
use uverbs::fake::FakeDevice;
use uverbs::{
    AccessFlags, Arm, ConnectOptions, Errno, PathOptions, QpAttr, QpState, Rc, RecvWr, SendWr, Wc,
};

/// Everything that uverbs and rxe answer a refusal with.
pub const ERRNOS: [Errno; 20] = [
    Errno::EPERM,
    Errno::ENOENT,
    Errno::EINTR,
    Errno::EIO,
    Errno::EBADF,
    Errno::EAGAIN,
    Errno::ENOMEM,
    Errno::EACCES,
    Errno::EFAULT,
    Errno::EBUSY,
    Errno::ENODEV,
    Errno::EINVAL,
    Errno::ENOTTY,
    Errno::ENOSPC,
    Errno::ENOSYS,
    Errno::EPROTONOSUPPORT,
    Errno::EOPNOTSUPP,
    Errno::ENETUNREACH,
    Errno::ETIMEDOUT,
    Errno::EHOSTUNREACH,
];

/// Uses every command that the crate has.
pub fn life(device: &FakeDevice, other: &FakeDevice) -> Result<(), Box<dyn Error>> {
    let peer = End::new(other);
    let room = peer.pd.allocate(64, AccessFlags::LOCAL_WRITE)?;
    peer.qp.post_recv(&[RecvWr::new(1, &[room.slice(..)?])])?;

    let context = device.open()?;
    context.query_device()?;
    context.query_gid(1, 0)?;
    let pd = context.alloc_pd()?;
    let region = pd.allocate(64, AccessFlags::LOCAL_WRITE)?;
    let channel = context.create_completion_channel()?;
    let cq = context.create_cq(4).channel(&channel, 0).build()?;
    let srq = pd.create_srq(4).build()?;
    srq.post_recv(&[RecvWr::new(2, &[region.slice(..)?])])?;
    srq.set_limit(1)?;
    srq.query()?;
    let plain = pd.create_qp::<Rc>(&cq, &cq).build()?;
    plain.modify(&QpAttr {
        port: Some(1),
        pkey_index: Some(0),
        access: Some(AccessFlags::empty()),
        ..QpAttr::to_state(QpState::Init)
    })?;
    let qp = pd.create_qp::<Rc>(&cq, &cq).srq(&srq).build()?;
    let here = qp.prepare(&PathOptions::default())?;
    qp.connect(&here, &peer.endpoint, &ConnectOptions::default())?;
    peer.qp
        .connect(&peer.endpoint, &here, &ConnectOptions::default())?;
    cq.arm(Arm::Next)?;
    qp.post_send(&[SendWr::send(3, &[region.slice(..5)?]).signaled()])?;
    assert!(channel.try_next()?.is_some_and(|event| *event.cq() == cq));
    let mut completions = [Wc::default(); 2];
    assert_eq!(cq.poll(&mut completions)?.len(), 1);
    assert_eq!(peer.status().0, 1);
    qp.modify(&QpAttr::to_state(QpState::Err))?;
    assert_eq!(qp.state()?, QpState::Err);
    while context.events().try_next()?.is_some() {}

    qp.destroy()?;
    plain.destroy()?;
    srq.destroy()?;
    cq.destroy()?;
    region.into_inner()?;
    assert_eq!(context.leaked_bytes(), 0);
    Ok(())
}
