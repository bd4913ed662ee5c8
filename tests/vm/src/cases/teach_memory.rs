//! Memory that a request may not use, and whether the long form of the failed completion names it.

use uverbs::{AccessFlags, RecvWr, SendWr};

use super::pair::pair;
use super::teach::says;
use super::{Case, CaseResult, Verdict};

pub(super) const CASES: &[Case] = &[
    Case::new(
        "teach::memory_that_a_receive_may_not_be_written_to",
        receives,
    )
    .every_kernel(),
    Case::new("teach::memory_of_a_send_that_is_gone_or_anothers", sends).every_kernel(),
];

/// A receive's own memory: which status tells of it depends on the kernel, the long form names it on
/// each.
fn receives() -> CaseResult {
    for what in ["right", "domain", "length"] {
        let (a, b) = pair()?;
        let other = b.context.alloc_pd()?;
        let region = match what {
            "right" => b.pd.allocate(64, AccessFlags::REMOTE_READ)?,
            "domain" => other.allocate(64, AccessFlags::LOCAL_WRITE)?,
            _ => b.pd.allocate(4, AccessFlags::LOCAL_WRITE)?,
        };
        let lkey = region.lkey();
        b.qp.post_recv(&[RecvWr::new(7, &[region.slice(..)?])])?;
        a.qp.post_send(&[SendWr::send_inline(1, b"eight by").signaled()])?;
        let wc = b.completion()?;
        let error = wc.ok().err().ok_or("the receive was done")?;
        let report = b.qp.diagnose(&error).to_string();
        let wanted = match what {
            "right" => format!(
                "found: receive 7 names the region with lkey {lkey:#x}, which lacks LOCAL_WRITE (its \
                 access flags: REMOTE_READ)\n"
            ),
            "domain" => format!(
                "found: receive 7 names the region with lkey {lkey:#x}, which is of another protection \
                 domain than the queue pair\n"
            ),
            _ => "found: receive 7 has room for 4 bytes\n".to_owned(),
        };
        says(&report, &[&wanted]).map_err(|e| format!("{what}, {}: {e}", error.status))?;
    }
    Ok(Verdict::Passed)
}

/// A send's own memory. From 6.12 on rxe flushes such a request, and says no more.
fn sends() -> CaseResult {
    for what in ["gone", "domain", "read"] {
        let (a, b) = pair()?;
        let other = a.context.alloc_pd()?;
        let target = b.region(64, 1)?;
        let region = match what {
            "domain" => other.allocate(64, AccessFlags::LOCAL_WRITE)?,
            _ => a.pd.allocate(64, AccessFlags::empty())?,
        };
        let (lkey, sges) = (region.lkey(), [region.slice(..)?]);
        let wr = match what {
            "read" => SendWr::read(9, &sges, target.remote(0)?),
            _ => SendWr::write(9, &sges, target.remote(0)?),
        };
        if what == "gone" {
            region.into_inner()?;
        }
        a.qp.post_send(&[wr.signaled()])?;
        let error = a.completion()?.ok().err().ok_or("the request was done")?;
        let report = a.qp.diagnose(&error).to_string();
        let wanted = match what {
            "gone" => format!("lkey {lkey:#x}, which no region of this context has"),
            "domain" => format!(
                "the region with lkey {lkey:#x}, which is of another protection domain than the queue pair"
            ),
            _ => format!(
                "the region with lkey {lkey:#x}, which lacks LOCAL_WRITE (its access flags: none)"
            ),
        };
        says(&report, &[&format!("found: send request 9 names {wanted}")])
            .map_err(|e| format!("{what}, {}: {e}", error.status))?;
    }
    Ok(Verdict::Passed)
}
