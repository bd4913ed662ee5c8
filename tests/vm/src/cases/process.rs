//! Other processes, and other credentials: what a forked child may do, and what `setgid` changes.

#![allow(unsafe_code, reason = "fork is what is under test")]

use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::{ForkResult, Gid, fork, setgid};
use uverbs::event::EventError;
use uverbs::{
    Cause, DestroyErrorCause, ObjectError, ObjectErrorCause, PollError, PostCause, QpAttr, QpState,
    RecvWr, SendWr, Wc,
};

use super::pair::{End, Failure, ensure, pair, same};
use super::{Case, CaseResult, Verdict};

pub(super) const CASES: &[Case] = &[
    Case::new("process::a_forked_child_is_told", a_forked_child_is_told),
    Case::new(
        "process::a_forked_child_opens_its_own",
        a_forked_child_opens_its_own,
    ),
    Case::new(
        "process::setgid_moves_the_doorbell",
        setgid_moves_the_doorbell,
    ),
];

/// Runs `child` in a forked child and fails with what it failed with.
pub(super) fn in_child(child: impl FnOnce() -> Result<(), Failure>) -> Result<(), Failure> {
    // SAFETY: this process has one thread (each case has a process of its own, and this one starts
    // none before), so no lock is held by a thread that the child lacks.
    match unsafe { fork() }? {
        ForkResult::Child => {
            let code = match child() {
                Ok(()) => 0,
                Err(error) => {
                    let line = format!("in the child: {error}\n");
                    let _ = nix::unistd::write(std::io::stderr(), line.as_bytes());
                    1
                }
            };
            // SAFETY: ends the child here; nothing of the parent's runs in it.
            unsafe { nix::libc::_exit(code) }
        }
        ForkResult::Parent { child } => match waitpid(child, None)? {
            WaitStatus::Exited(_, 0) => Ok(()),
            status => Err(format!("the child ended with {status:?}").into()),
        },
    }
}

fn a_forked_child_is_told() -> CaseResult {
    let (a, b) = pair()?;
    let (out, room) = (a.region(64, 1)?, b.region(64, 2)?);
    let events = a.context.events();
    let elements = [out.slice(..)?];
    in_child(|| {
        let send = [SendWr::send(1, &elements)];
        let refused = a.qp.post_send(&send).err().map(|error| error.cause);
        same("post_send", refused, Some(PostCause::ForeignProcess))?;
        let recv = [RecvWr::new(1, &elements)];
        let refused = a.qp.post_recv(&recv).err().map(|error| error.cause);
        same("post_recv", refused, Some(PostCause::ForeignProcess))?;
        let refused = a.cq.poll(&mut [Wc::default()]).err();
        same("poll", refused, Some(PollError::ForeignProcess))?;
        same(
            "try_next",
            events.try_next().err(),
            Some(EventError::ForeignProcess),
        )?;
        let refused = a.qp.modify(&QpAttr::to_state(QpState::Err)).err();
        ensure(
            refused.is_some_and(|error| error.to_string().contains("fork()")),
            "modify does not speak of fork()",
        )?;
        let foreign = |error: ObjectError| match error.cause {
            ObjectErrorCause::Command(error) => Some(error.cause),
            _ => None,
        };
        let refused = a.qp.query().err().and_then(foreign);
        same("query", refused, Some(Cause::ForeignProcess))?;
        ensure(
            a.pd.allocate(64, uverbs::AccessFlags::empty()).is_err(),
            "a region was made",
        )?;
        let cq = match a.cq.clone().destroy() {
            Ok(()) => return Err("destroy went through".into()),
            Err(error) => {
                let foreign = matches!(
                    error.cause,
                    DestroyErrorCause::Command(error) if error.cause == Cause::ForeignProcess
                );
                ensure(foreign, "destroy does not speak of another process")?;
                error
                    .into_object()
                    .ok_or("destroy did not give the object back")?
            }
        };
        drop(cq);
        Ok(())
    })?;
    // A child in which the last handle of everything goes.
    // SAFETY: as in `in_child`.
    match unsafe { fork() }? {
        ForkResult::Child => {
            drop((events, elements, out, room, a, b));
            // SAFETY: ends the child here.
            unsafe { nix::libc::_exit(0) }
        }
        ForkResult::Parent { child } => match waitpid(child, None)? {
            WaitStatus::Exited(_, 0) => {}
            status => return Err(format!("the dropping child ended with {status:?}").into()),
        },
    }
    unharmed(&a, &b)?;
    Ok(Verdict::Passed)
}

/// Everything of the parent's still works.
fn unharmed(a: &End, b: &End) -> Result<(), Failure> {
    let (out, room) = (a.region(64, 3)?, b.region(64, 4)?);
    b.qp.post_recv(&[RecvWr::new(7, &[room.slice(..)?])])?;
    a.qp.post_send(&[SendWr::send(8, &[out.slice(..)?]).signaled()])?;
    a.completion()?.ok()?;
    b.completion()?.ok()?;
    same("message", room.to_vec(..)?, out.to_vec(..)?)?;
    a.cq.arm(uverbs::Arm::Next)?;
    Ok(())
}

fn a_forked_child_opens_its_own() -> CaseResult {
    let (a, b) = pair()?;
    in_child(|| {
        let (c, d) = pair()?;
        unharmed(&c, &d)
    })?;
    unharmed(&a, &b)?;
    Ok(Verdict::Passed)
}

fn setgid_moves_the_doorbell() -> CaseResult {
    let (a, b) = pair()?;
    unharmed(&a, &b)?;
    // Even to the same group: the kernel compares the credentials by identity, and from here on
    // refuses every write() to the device; the doorbell goes on by ioctl.
    setgid(Gid::current())?;
    for _ in 0..3 {
        unharmed(&a, &b)?;
    }
    Ok(Verdict::Passed)
}
