//! Memory registration. UNSAFE ROOM: it declares the promise that a registration rests on, and has no
//! `unsafe` block of its own.
#![allow(
    unsafe_code,
    reason = "declares the promise that a registration rests on"
)]

use uverbs_abi::layout::cmd::{IB_USER_VERBS_CMD_REG_MR, ib_uverbs_reg_mr, ib_uverbs_reg_mr_resp};
use uverbs_abi::layout::ids::{attr, method, object};
use uverbs_abi::{Command, CommandError, Session};

use crate::types::{AccessFlags, Lkey, MrHandle, PdHandle, Rkey};

/// A new registration.
#[derive(Clone, Copy, Debug)]
pub struct Registered {
    /// The kernel's handle.
    pub handle: MrHandle,
    /// For local work requests.
    pub lkey: Lkey,
    /// For peers.
    pub rkey: Rkey,
}

/// REG_MR: pins `length` bytes at address `start` and gives the device a translation under which
/// they begin at `iova`.
///
/// # Safety
/// The kernel is told an address, and dereferences nothing of this program's now. From now until
/// [`deregister`] has succeeded, the device, and any peer with the key, may read the bytes, and write
/// them if `access` allows; the caller vouches for that: the bytes stay valid, and nothing in the
/// program rests on their being otherwise.
///
/// # Errors
/// The kernel's refusal; `ENOMEM` most often means the locked-memory limit.
pub unsafe fn register(
    session: &Session,
    pd: PdHandle,
    start: u64,
    length: u64,
    iova: u64,
    access: AccessFlags,
) -> Result<Registered, CommandError> {
    let request = ib_uverbs_reg_mr {
        start,
        length,
        hca_va: iova,
        pd_handle: pd.0,
        access_flags: access.bits(),
        ..Default::default()
    };
    let mut response = ib_uverbs_reg_mr_resp::default();
    let mut command = Command::invoke_write("REG_MR", IB_USER_VERBS_CMD_REG_MR);
    command.core(&request, &mut response);
    session.run(&mut command)?;
    Ok(Registered {
        handle: MrHandle(response.mr_handle),
        lkey: Lkey(response.lkey),
        rkey: Rkey(response.rkey),
    })
}

/// MR_DESTROY: takes the translation away and unpins.
///
/// # Errors
/// The kernel's refusal; `EBUSY` or `EINVAL` while a memory window is bound to it.
pub fn deregister(session: &Session, mr: MrHandle) -> Result<(), CommandError> {
    let mut command = Command::new("MR_DESTROY", object::MR, method::mr::DESTROY);
    command.object(attr::mr_destroy::HANDLE, mr.0);
    session.run_destroy(&mut command).map(drop)
}
