//! The first things that must hold in a guest, before anything of uverbs is asked.
//!
//! Must never open a device: these say that the machine is right, not that the library is.

use std::fs;
use std::path::Path;

use super::{Case, CaseResult, Verdict};
use crate::guest::{net, rdma};

pub(super) const CASES: &[Case] = &[
    Case::new("device::uverbs_abi_is_6", uverbs_abi_is_6).every_kernel(),
    Case::new("wire::two_rxe_devices_present", two_rxe_devices_present).every_kernel(),
];

fn uverbs_abi_is_6() -> CaseResult {
    let text = fs::read_to_string("/sys/class/infiniband_verbs/abi_version")?;
    match text.trim() {
        "6" => Ok(Verdict::Passed),
        other => Err(format!("the kernel's uverbs ABI is {other}, not 6").into()),
    }
}

fn two_rxe_devices_present() -> CaseResult {
    for (name, end) in rdma::DEVICES.iter().zip(net::ENDS) {
        let state = rdma::port_state(name)?;
        if state != "4: ACTIVE" {
            return Err(format!("the port of {name} is {state}").into());
        }
        let node = rdma::uverbs_node(name)?.ok_or_else(|| format!("{name} has no uverbs node"))?;
        if !Path::new("/dev/infiniband").join(&node).exists() {
            return Err(format!("/dev/infiniband/{node} is missing").into());
        }
        let gids = rdma::gids(name)?;
        for ip in [end.v4, end.v6] {
            if !gids.iter().any(|(_, gid)| *gid == rdma::gid_of(ip)) {
                return Err(format!("{name} has no GID for {ip}: {gids:?}").into());
            }
        }
        // Both ways, so that the names are right and the counters can be read.
        net::veth_counters(end.netdev)?;
    }
    Ok(Verdict::Passed)
}
