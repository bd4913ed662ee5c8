//! Reliable connected traffic between the two devices.

use uverbs::{RecvWr, SendWr, WcOpcode};

use super::pair::{Failure, ensure, pair, same, same_bytes};
use super::{Case, CaseResult, Verdict};
use crate::guest::net::veth_counters;

pub(super) const CASES: &[Case] = &[Case::new(
    "rc::send_recv_over_the_wire",
    send_recv_over_the_wire,
)];

fn send_recv_over_the_wire() -> CaseResult {
    let (a, b) = pair()?;
    let out = a.region(4096, 1)?;
    let back = b.region(4096, 2)?;
    let before = veth_counters("veth0")?;
    for round in 0..20u64 {
        b.qp.post_recv(&[RecvWr::new(round, &[back.slice(..)?])])?;
        a.qp.post_send(&[SendWr::send(100 + round, &[out.slice(..)?]).signaled()])?;
        let sent = a.completion()?;
        sent.ok()?;
        same("send wr_id", sent.wr_id, 100 + round)?;
        same("send opcode", sent.opcode(), Some(WcOpcode::Send))?;
        let received = b.completion()?;
        received.ok()?;
        same("receive wr_id", received.wr_id, round)?;
        same("receive opcode", received.opcode(), Some(WcOpcode::Recv))?;
        same("bytes received", received.byte_len, 4096)?;
    }
    same_bytes("message", &back.to_vec(..)?, &out.to_vec(..)?)?;
    let after = veth_counters("veth0")?;
    moved(before, after)?;
    Ok(Verdict::Passed)
}

fn moved(before: (u64, u64), after: (u64, u64)) -> Result<(), Failure> {
    ensure(
        after.0 - before.0 >= 20 && after.1 - before.1 >= 80,
        &format!("the wire carried too little: {before:?} to {after:?}"),
    )
}
