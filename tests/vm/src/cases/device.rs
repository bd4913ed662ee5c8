//! What a device says of itself, against what sysfs says of it.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;

use uverbs::{
    AtomicCap, Context, DriverId, Errno, Explain, GidType, LinkLayer, OpenError, PortState, SendWr,
    WcStatus,
};

use super::pair::{Failure, Shape, as_nobody, connect, ensure, open, pair, same};
use super::{Case, CaseResult, Verdict};
use crate::guest::rdma;

pub(super) const CASES: &[Case] = &[
    Case::new("device::queries_agree_with_sysfs", queries).every_kernel(),
    Case::new("device::gid_table_agrees_with_sysfs", gids),
    Case::new("device::a_missing_name_lists_the_names", missing_name),
    Case::new("device::opened_twice", opened_twice),
    Case::new("device::a_node_that_may_not_be_opened", closed_node).fresh_boot(),
    Case::new("device::goes_on_after_a_change_of_user", change_of_user),
];

fn sysfs(device: &str, file: &str) -> Result<String, Failure> {
    let path = format!("/sys/class/infiniband/{device}/{file}");
    Ok(fs::read_to_string(path)?.trim().to_owned())
}

fn guid(bytes: [u8; 8]) -> String {
    let words: Vec<_> = bytes
        .chunks(2)
        .map(|w| format!("{:02x}{:02x}", w[0], w[1]))
        .collect();
    words.join(":")
}

fn queries() -> CaseResult {
    for name in rdma::DEVICES {
        let context = Context::open(name)?;
        same("name", context.name(), name)?;
        same("driver", context.driver(), DriverId::Rxe)?;
        ensure(
            context.has_provider() && !context.is_gone(),
            "no provider, or gone",
        )?;
        let node = rdma::uverbs_node(name)?.ok_or("no node")?;
        ensure(
            context.node().ends_with(&node),
            &format!("{:?}", context.node()),
        )?;
        let device = context.query_device()?;
        same(
            "node GUID",
            guid(device.node_guid),
            sysfs(name, "node_guid")?,
        )?;
        same(
            "image GUID",
            guid(device.sys_image_guid),
            sysfs(name, "sys_image_guid")?,
        )?;
        same("ports", device.phys_port_cnt, 1)?;
        same("atomics", device.atomic_cap, AtomicCap::Hca)?;
        same("elements", (device.max_sge, device.max_srq_sge), (32, 27))?;
        same("completions", device.max_cqe, 32767)?;
        for (what, count) in [
            ("queue pairs", device.max_qp),
            ("queues", device.max_cq),
            ("regions", device.max_mr),
            ("requests", device.max_qp_wr),
            ("shared", device.max_srq_wr),
            ("READs", device.max_qp_rd_atom),
        ] {
            ensure(count > 0, what)?;
        }
        let port = context.query_port(1)?;
        same("state", port.state, PortState::Active)?;
        let state = format!("4: {}", port.state);
        same("state", state, sysfs(name, "ports/1/state")?)?;
        let phys = format!("{}: LinkUp", port.phys_state);
        same("physical state", phys, sysfs(name, "ports/1/phys_state")?)?;
        same(
            "LID",
            format!("{:#x}", port.lid),
            sysfs(name, "ports/1/lid")?,
        )?;
        let flags = format!("{:#010x}", port.port_cap_flags);
        same("capabilities", flags, sysfs(name, "ports/1/cap_mask")?)?;
        same("link", port.link_layer, LinkLayer::Ethernet)?;
        ensure(
            port.active_mtu.is_some() && port.active_mtu <= port.max_mtu,
            "MTUs",
        )?;
        ensure(port.gid_tbl_len > 0 && port.max_msg_sz >= 1 << 20, "sizes")?;
        for wrong in [0, 2, 255] {
            let errno = context.query_port(wrong).err().and_then(|e| e.errno());
            same("a port that is not there", errno, Some(Errno::EINVAL))?;
        }
        let pkeys = context.pkeys(1)?;
        same("P_Keys", pkeys.len(), usize::from(port.pkey_tbl_len))?;
        same("first P_Key", pkeys.first().copied(), Some(0xFFFF))?;
        ensure(
            context.pkeys(2).is_err(),
            "P_Keys of a port that is not there",
        )?;
    }
    Ok(Verdict::Passed)
}

fn gids() -> CaseResult {
    for name in rdma::DEVICES {
        let context = Context::open(name)?;
        let table = context.gids(1)?;
        let ours: Vec<_> = table
            .iter()
            .map(|entry| (entry.index, entry.gid.0))
            .collect();
        same("table", &ours, &rdma::gids(name)?)?;
        for entry in &table {
            let kind = sysfs(name, &format!("ports/1/gid_attrs/types/{}", entry.index))?;
            same("kind", entry.gid_type, GidType::RoceV2)?;
            same("kind", kind.as_str(), "RoCE v2")?;
            let netdev = sysfs(name, &format!("ports/1/gid_attrs/ndevs/{}", entry.index))?;
            let index = fs::read_to_string(format!("/sys/class/net/{netdev}/ifindex"))?;
            same("interface", entry.netdev_ifindex, index.trim().parse()?)?;
            same("by index", context.query_gid(1, entry.index)?, Some(*entry))?;
            same("by value", context.find_gid(1, entry.gid)?, Some(*entry))?;
        }
        let len = context.query_port(1)?.gid_tbl_len;
        same("an empty entry", context.query_gid(1, len - 1)?, None)?;
        let errno = context.query_gid(1, len).err().and_then(|e| e.errno());
        same("past the end", errno, Some(Errno::EINVAL))?;
        let best = context.routable_gid(1)?.ok_or("no address")?;
        ensure(!best.gid.is_link_local(), &format!("{best:?}"))?;
    }
    Ok(Verdict::Passed)
}

fn missing_name() -> CaseResult {
    let error = Context::open("rxe7")
        .err()
        .ok_or("opened what is not there")?;
    let OpenError::NoSuchDevice { name, present, .. } = &error else {
        return Err(error.into());
    };
    let mut present = present.clone();
    present.sort();
    same(
        "names",
        (name.as_str(), present),
        ("rxe7", rdma::DEVICES.map(str::to_owned).to_vec()),
    )?;
    let text = error.to_string();
    ensure(
        text.contains("rxe7") && text.contains("rxe0") && text.contains("rxe1"),
        &text,
    )?;
    let devices = uverbs::devices()?;
    let mine = devices.iter().find(|device| device.name() == "rxe1");
    let mine = mine.ok_or("no rxe1")?;
    // What the name is in truth, or which is nearest.
    let (node, path) = (mine.uverbs_name(), mine.node().display().to_string());
    let of_rxe1 = format!("; {node} is the node of \"rxe1\": open \"rxe1\"");
    for (name, hint) in [
        (node, of_rxe1.as_str()),
        (path.as_str(), of_rxe1.as_str()),
        (
            "/dev/null",
            "; a device is opened by its name and not by a node's",
        ),
        ("veth1", "; veth1 is a network interface; on it is rxe1"),
        ("lo", "; lo is a network interface"),
        ("rxe_1", "; did you mean \"rxe1\"?"),
    ] {
        let error = Context::open(name).err().ok_or("it was opened")?;
        let text = error.to_string();
        ensure(
            text.contains("; there are: rxe") && text.contains(hint),
            &text,
        )?;
    }
    let listed: Vec<_> = devices.iter().map(|d| d.name().to_owned()).collect();
    for device in rdma::DEVICES {
        ensure(listed.iter().any(|name| name == device), device)?;
    }
    Ok(Verdict::Passed)
}

/// Two contexts of one device know nothing of each other, and can talk.
fn opened_twice() -> CaseResult {
    let (first, pd) = open("rxe0")?;
    let (second, other) = open("rxe0")?;
    let a = Shape::default().prepare(&pd)?;
    let b = Shape::default().prepare(&other)?;
    let error = pd.create_qp::<uverbs::Rc>(&a.cq, &b.cq).build().err();
    let error = error.ok_or("a queue of the other context was taken")?;
    ensure(
        error.to_string().contains("another open device"),
        &error.to_string(),
    )?;
    connect(&a, &b, &uverbs::ConnectOptions::default())?;
    let target = b.region(64, 0)?;
    let write = || -> Result<(), Failure> {
        let wr = SendWr::write_inline(1, b"hello", target.remote(0)?).signaled();
        a.qp.post_send(&[wr])?;
        a.completion()?.ok()?;
        same("written", target.to_vec(..5)?, b"hello".to_vec())
    };
    write()?;
    drop((first, second, pd, other));
    // Everything made on a context keeps it.
    write()?;
    let a = Arc::new(a);
    std::thread::scope(|scope| {
        let near = Arc::clone(&a);
        scope.spawn(move || near.qp.query().map(drop)).join()
    })
    .map_err(|_| "a thread that asks dies")??;
    Ok(Verdict::Passed)
}

/// The kernel refuses `write()` to whoever is not the user that opened the file; doorbells find
/// another way.
fn change_of_user() -> CaseResult {
    let (a, b) = pair()?;
    let target = b.region(64, 0)?;
    let write = |id: u8| -> Result<(), Failure> {
        let bytes = [id];
        let wr = SendWr::write_inline(id.into(), &bytes, target.remote(id.into())?);
        a.qp.post_send(&[wr.signaled()])?;
        a.expect("a write", id.into(), WcStatus::Success)?;
        Ok(())
    };
    write(1)?;
    as_nobody(|| {
        write(2)?;
        write(3)?;
        // What is opened as the new user works as well, and is opened at all.
        let (a, b) = pair()?;
        let target = b.region(64, 0)?;
        a.qp.post_send(&[SendWr::write_inline(1, b"new", target.remote(0)?).signaled()])?;
        a.expect("another connection", 1, WcStatus::Success)?;
        same("written", target.to_vec(..3)?, b"new".to_vec())
    })?;
    write(4)?;
    same("written", target.to_vec(1..5)?, vec![1, 2, 3, 4])?;
    Ok(Verdict::Passed)
}

/// A node without rights, then without a node, then with another device's: each is told apart from
/// "no device", with what to do. Under another name the node is found.
fn closed_node() -> CaseResult {
    let devices = uverbs::devices()?;
    let device = devices.iter().find(|device| device.name() == "rxe0");
    let node = device.ok_or("no rxe0")?.node().to_owned();
    let told = |what: &str, part: &str| -> Result<(), Failure> {
        let error = Context::open("rxe0").err();
        let error = error.ok_or_else(|| format!("{what}: it was opened"))?;
        let text = error.to_string();
        let named = text.starts_with(&format!("cannot open {}: ", node.display()));
        ensure(named && text.contains(part), &format!("{what}: {text}"))
    };
    fs::set_permissions(&node, fs::Permissions::from_mode(0o000))?;
    as_nobody(|| {
        told("mode 000", "look at the node's mode and group")?;
        let error = Context::open("rxe0")
            .err()
            .ok_or("mode 000: it was opened")?;
        same("errno", error.errno(), Some(Errno::EACCES))?;
        let report = error.report().to_string();
        for part in [
            "found: the node has mode 0000, owner 0 and group 0",
            "; this process is user 65534 in groups 0",
            "next: let a udev rule give the node a group, and join it",
        ] {
            ensure(report.contains(part), &format!("{part:?} in {report}"))?;
        }
        Ok(())
    })?;
    fs::set_permissions(&node, fs::Permissions::from_mode(0o666))?;
    let aside = Path::new("/dev/aside");
    fs::rename(&node, aside)?;
    told("no node", "/dev has no node for it")?;
    let errno = Context::open("rxe0").err().and_then(|error| error.errno());
    same("no node", errno, Some(Errno::ENOENT))?;
    // A stale node: the number behind the name is another device's.
    let other = devices.iter().find(|device| device.name() == "rxe1");
    std::os::unix::fs::symlink(other.ok_or("no rxe1")?.node(), &node)?;
    told("another's node", "it is stale: it is the node of 231:193")?;
    // Its own is found beside it, whatever it is called.
    let moved = Path::new("/dev/infiniband/by-hand");
    fs::create_dir(moved)?;
    fs::rename(aside, moved.join("rxe0"))?;
    same("node", Context::open("rxe0")?.node(), &moved.join("rxe0"))?;
    fs::remove_file(&node)?;
    fs::rename(moved.join("rxe0"), &node)?;
    fs::remove_dir(moved)?;
    same("node", Context::open("rxe0")?.node(), &node)?;
    Ok(Verdict::Passed)
}
