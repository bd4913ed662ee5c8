//! Requests that the peer must refuse: nothing is read or written, and both ends go to ERR.

use uverbs::{
    AccessFlags, ConnectOptions, PathOptions, QpState, RecvWr, RemoteAddr, Rkey, SendWr, WcStatus,
};

use super::pair::{
    Failure, POISON, Shape, all_access, ensure, open, pair, pattern, same, same_bytes, shaped_pair,
    wait_for,
};
use super::rc_errors::failed;
use super::{Case, CaseResult, Verdict};

pub(super) const CASES: &[Case] = &[
    Case::new("errors::remote_access", remote_access).limit_secs(120),
    Case::new("errors::remote_invalid_request", remote_invalid_request),
];

/// One request that the peer must refuse, on a connection of its own.
fn refused(
    what: &str,
    access: AccessFlags,
    path: PathOptions,
    offset: usize,
    key: fn(Rkey) -> Rkey,
    status: WcStatus,
) -> Result<(), Failure> {
    for op in ["write", "write_imm", "read", "add"] {
        let concerned = match op {
            "read" => what.contains("READ") || what.contains("any"),
            "add" => what.contains("ATOMIC") || what.contains("any"),
            _ => what.contains("WRITE") || what.contains("any"),
        };
        if !concerned {
            continue;
        }
        let what = format!("{op}: {what}");
        let shape = Shape {
            path,
            ..Shape::default()
        };
        let (a, b) = shaped_pair(&shape, &ConnectOptions::default())?;
        let local = a.region(64, 1)?;
        let target = b.pd.allocate(4096, access)?;
        target.write_at(0, &[POISON; 4096])?;
        let base = target.remote(0)?;
        let remote = RemoteAddr {
            addr: base.addr + offset as u64,
            rkey: key(base.rkey),
        };
        let sges = [local.slice(..)?];
        b.qp.post_recv(&[RecvWr::new(70, &[])])?;
        let wr = match op {
            "write" => SendWr::write(1, &sges, remote),
            "write_imm" => SendWr::write(1, &sges, remote).with_imm(5),
            "read" => SendWr::read(1, &sges, remote),
            _ => SendWr::fetch_add(1, local.slice(..8)?, remote, 1),
        };
        a.qp.post_send(&[wr.signaled()])?;
        failed(&what, &a, 1, status)?;
        same_bytes(&what, &target.to_vec(..)?, &[POISON; 4096])?;
        same_bytes(&what, &local.to_vec(..)?, &pattern(64, 1))?;
        // The kernel takes the responder along.
        let state = wait_for(&format!("{what}: peer in ERR"), || {
            let state = b.qp.state()?;
            Ok((state == QpState::Err).then_some(state))
        })?;
        same(&what, state, QpState::Err)?;
        let flushed = b.completion()?;
        same(&what, flushed.wr_id, 70)?;
        ensure(
            flushed.ok().is_err(),
            &format!("{what}: the receive succeeded"),
        )?;
    }
    Ok(())
}

fn remote_access() -> CaseResult {
    const DENIED: WcStatus = WcStatus::RemoteAccessError;
    let path = PathOptions::default();
    let all = all_access();
    let same_key = |key| key;
    refused(
        "any, wrong index",
        all,
        path,
        0,
        |k| Rkey(k.0 ^ 0x0800),
        DENIED,
    )?;
    refused(
        "any, wrong key byte",
        all,
        path,
        0,
        |k| Rkey(k.0 ^ 1),
        DENIED,
    )?;
    refused("any, key 0", all, path, 0, |_| Rkey(0), DENIED)?;
    refused(
        "WRITE, READ over the end",
        all,
        path,
        4096 - 63,
        same_key,
        DENIED,
    )?;
    refused("any, after the end", all, path, 4096, same_key, DENIED)?;
    refused("any, far away", all, path, 1 << 46, same_key, DENIED)?;
    let no = |flag| all_access() - flag;
    refused(
        "WRITE, region",
        no(AccessFlags::REMOTE_WRITE),
        path,
        0,
        same_key,
        DENIED,
    )?;
    refused(
        "READ, region",
        no(AccessFlags::REMOTE_READ),
        path,
        0,
        same_key,
        DENIED,
    )?;
    refused(
        "ATOMIC, region",
        no(AccessFlags::REMOTE_ATOMIC),
        path,
        0,
        same_key,
        DENIED,
    )?;
    let none = AccessFlags::empty();
    refused(
        "any, region without any right",
        none,
        path,
        0,
        same_key,
        DENIED,
    )?;
    // A region of another domain than the queue pair's.
    let (a, b) = pair()?;
    let target = b.context.alloc_pd()?.allocate(64, all)?;
    let local = a.region(64, 1)?;
    a.qp.post_send(&[SendWr::write(9, &[local.slice(..)?], target.remote(0)?)])?;
    failed("another domain", &a, 9, DENIED)?;
    same_bytes("another domain", &target.to_vec(..)?, &[0; 64])?;
    Ok(Verdict::Passed)
}

fn remote_invalid_request() -> CaseResult {
    const INVALID: WcStatus = WcStatus::RemoteInvalidRequest;
    let all = all_access();
    for (what, flag) in [
        ("WRITE, queue pair", AccessFlags::REMOTE_WRITE),
        ("READ, queue pair", AccessFlags::REMOTE_READ),
        ("ATOMIC, queue pair", AccessFlags::REMOTE_ATOMIC),
    ] {
        let path = PathOptions {
            access: PathOptions::default().access - flag,
            ..PathOptions::default()
        };
        refused(what, all, path, 0, |key| key, INVALID)?;
    }
    let path = PathOptions::default();
    for offset in [1, 4] {
        refused("ATOMIC, unaligned", all, path, offset, |key| key, INVALID)?;
    }
    // The peer serves no READs at all, and this end was told that it does.
    let none = Shape {
        path: PathOptions {
            max_dest_rd_atomic: 0,
            ..path
        },
        ..Shape::default()
    };
    let a = Shape::default().prepare(&open("rxe0")?.1)?;
    let mut b = none.prepare(&open("rxe1")?.1)?;
    let told = b.endpoint;
    b.endpoint.max_dest_rd_atomic = 1;
    a.qp.connect(&a.endpoint, &b.endpoint, &ConnectOptions::default())?;
    b.qp.connect(&told, &a.endpoint, &ConnectOptions::default())?;
    let (local, target) = (a.region(64, 1)?, b.region(64, 2)?);
    a.qp.post_send(&[SendWr::read(1, &[local.slice(..)?], target.remote(0)?)])?;
    failed("no READs served", &a, 1, INVALID)?;
    Ok(Verdict::Passed)
}
