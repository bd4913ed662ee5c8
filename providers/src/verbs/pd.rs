//! Protection domains.

use uverbs_abi::layout::cmd::{
    IB_USER_VERBS_CMD_ALLOC_PD, ib_uverbs_alloc_pd, ib_uverbs_alloc_pd_resp,
};
use uverbs_abi::layout::ids::{attr, method, object};
use uverbs_abi::{Command, CommandError, Session};

use crate::types::PdHandle;

/// ALLOC_PD.
///
/// # Errors
/// The kernel's refusal.
pub fn alloc(session: &Session) -> Result<PdHandle, CommandError> {
    let request = ib_uverbs_alloc_pd::default();
    let mut response = ib_uverbs_alloc_pd_resp::default();
    let mut command = Command::invoke_write("ALLOC_PD", IB_USER_VERBS_CMD_ALLOC_PD);
    command.core(&request, &mut response);
    session.run(&mut command)?;
    Ok(PdHandle(response.pd_handle))
}

/// PD_DESTROY.
///
/// # Errors
/// The kernel's refusal; `EBUSY` while something rests on it.
pub fn dealloc(session: &Session, pd: PdHandle) -> Result<(), CommandError> {
    let mut command = Command::new("PD_DESTROY", object::PD, method::pd::DESTROY);
    command.object(attr::pd_destroy::HANDLE, pd.0);
    session.run_destroy(&mut command).map(drop)
}
