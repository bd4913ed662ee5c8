//! What stands between a queue pair and its peer, made so on purpose, and whether the error names
//! it.

use std::fs;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::thread;

use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};
use uverbs::{
    AddressVector, ConnectError, ConnectOptions, Errno, Explain, Gid, GlobalRoute, ModifyError,
    PathFinding, PathOptions, PortState, QpAttr, QpState,
};

use super::pair::{End, Failure, Shape, ensure, open, same, wait_for};
use super::qp::{to_rtr, to_rts};
use super::{Case, CaseResult, Verdict};
use crate::guest::net::{self, Refusal};
use crate::guest::rdma;

pub(super) const CASES: &[Case] = &[
    Case::new("teach::an_address_that_was_removed", address_removed),
    Case::new("teach::a_link_that_is_down", link_down),
    Case::new("teach::a_peer_of_the_other_family", other_family),
    Case::new("teach::a_peer_that_does_not_answer", no_answer),
    Case::new("teach::routes_that_do_not_lead_there", no_route),
    Case::new("teach::a_route_that_ends_in_this_machine", ends_here),
    Case::new("teach::values_above_the_devices", values),
    Case::new("teach::from_another_network_namespace", from_elsewhere).fresh_boot(),
    Case::new("teach::an_interface_that_is_gone", interface_gone).fresh_boot(),
];

fn end(device: &str) -> Result<End, Failure> {
    Shape::default().prepare(&open(device)?.1)
}

/// INIT→RTR as connecting does it, towards `peer`, with the global part changed.
fn rtr(a: &End, peer: Gid, change: impl FnOnce(&mut GlobalRoute)) -> Result<QpAttr, Failure> {
    let mut attr = to_rtr(&a.context, &a.endpoint, &a.endpoint)?;
    let path = attr.path.as_mut().ok_or("no path")?;
    let global = path.global.as_mut().ok_or("no global part")?;
    global.dgid = peer;
    change(global);
    Ok(attr)
}

fn refused(a: &End, attr: &QpAttr) -> Result<ModifyError, Failure> {
    let error = a.qp.modify(attr).err().ok_or("the kernel took it")?;
    let text = error.to_string();
    let errno = error.errno().ok_or_else(|| format!("no errno: {text}"))?;
    ensure(text.contains(&errno.to_string()), &text)?;
    // The long form begins with the short one, and shows every value that was given.
    let report = error.report();
    same("head", report.head(), text.as_str())?;
    says(
        &report.to_string(),
        &["found: attributes given: state RTR, "],
    )?;
    Ok(error)
}

fn has(error: &ModifyError, wanted: impl Fn(&PathFinding) -> bool) -> Result<(), Failure> {
    ensure(
        error.findings.iter().any(wanted),
        &format!("not found: {}", error.report()),
    )
}

fn says(text: &str, parts: &[&str]) -> Result<(), Failure> {
    for part in parts {
        ensure(text.contains(part), &format!("{part:?} is not in: {text}"))?;
    }
    Ok(())
}

fn ipv4(last: u8) -> IpAddr {
    IpAddr::V4(Ipv4Addr::new(10, 0, 0, last))
}

/// A GID index that was right a moment ago: named as empty, with those that are filled.
fn address_removed() -> CaseResult {
    let extra = ipv4(33);
    net::add_addr("veth0", extra, 24)?;
    let (context, pd) = open("rxe0")?;
    let gid = Gid::from(extra);
    let entry = wait_for("the GID of a new address", || Ok(context.find_gid(1, gid)?))?;
    let shape = Shape {
        path: PathOptions {
            gid: Some(gid),
            ..PathOptions::default()
        },
        ..Shape::default()
    };
    let a = shape.prepare(&pd)?;
    let b = end("rxe1")?;
    let mut stale = rtr(&a, b.endpoint.gid, |_| {})?;
    net::del_addr("veth0", extra, 24)?;
    wait_for("the GID to go", || {
        Ok(context.find_gid(1, gid)?.is_none().then_some(()))
    })?;
    let error =
        a.qp.connect(&a.endpoint, &b.endpoint, &ConnectOptions::default());
    let error = error.err().ok_or("connected from nowhere")?;
    let named = matches!(&error, ConnectError::NoGid { gid: Some(lost), .. } if *lost == gid);
    ensure(named, &error.to_string())?;
    says(
        &error.report().to_string(),
        &[
            "port 1 has no GID ::ffff:10.0.0.33",
            "cause: the address was removed",
        ],
    )?;

    // Whoever kept the index.
    if let Some(global) = stale.path.as_mut().and_then(|path| path.global.as_mut()) {
        global.sgid_index = u8::try_from(entry.index)?;
    }
    let error = refused(&a, &stale)?;
    has(&error, |finding| {
        matches!(finding, PathFinding::EmptyGid { index, filled, .. }
            if u32::from(*index) == entry.index && filled.len() >= 3)
    })?;
    says(
        &error.to_string(),
        &[
            "is empty; filled are 0: fe80::",
            "::ffff:10.0.0.1 (RoCE v2)",
        ],
    )?;
    same("state", a.qp.state()?, QpState::Init)?;
    Ok(Verdict::Passed)
}

fn link_down() -> CaseResult {
    let (a, b) = (end("rxe0")?, end("rxe1")?);
    let attr = rtr(&a, b.endpoint.gid, |_| {})?;
    net::link_down("veth0")?;
    wait_for("the port to go down", || {
        let state = a.context.query_port(1)?.state;
        Ok((state == PortState::Down).then_some(()))
    })?;
    let error = refused(&a, &attr)?;
    has(&error, |finding| {
        matches!(
            finding,
            PathFinding::PortState {
                port: 1,
                state: PortState::Down
            }
        )
    })?;
    has(
        &error,
        |finding| matches!(finding, PathFinding::InterfaceDown { name, is_up: false } if name == "veth0"),
    )?;
    says(
        &error.to_string(),
        &[
            "port 1 is DOWN, not ACTIVE",
            "the network interface veth0 is down",
        ],
    )?;
    // With the link back it goes on from there.
    net::link_up("veth0")?;
    wait_for("the port to come back", || {
        let state = a.context.query_port(1)?.state;
        Ok((state == PortState::Active).then_some(()))
    })?;
    a.qp.modify(&attr)?;
    Ok(Verdict::Passed)
}

fn other_family() -> CaseResult {
    let a = end("rxe0")?;
    let peer = Gid::from(Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 2));
    let error = refused(&a, &rtr(&a, peer, |_| {})?)?;
    has(&error, |finding| {
        matches!(finding, PathFinding::Family { own, peer: other }
            if own.gid == a.endpoint.gid && *other == peer)
    })?;
    says(
        &error.to_string(),
        &["is ::ffff:10.0.0.1 (IPv4)", "the peer's is fd00::2 (IPv6)"],
    )?;
    Ok(Verdict::Passed)
}

fn no_answer() -> CaseResult {
    let a = end("rxe0")?;
    let error = refused(&a, &rtr(&a, Gid::from(ipv4(77)), |_| {})?)?;
    same("errno", error.errno(), Some(Errno::ETIMEDOUT))?;
    has(&error, |finding| {
        matches!(finding, PathFinding::Between { own, peer }
            if own.gid == a.endpoint.gid && *peer == Gid::from(ipv4(77)))
    })?;
    has(&error, |finding| {
        matches!(finding, PathFinding::NoNeighbour { peer, interface }
            if *peer == ipv4(77) && interface == "veth0")
    })?;
    says(
        &error.to_string(),
        &[
            "the peer's address did not answer",
            "(RoCE v2), to ::ffff:10.0.0.77",
            "nobody on veth0 answers for 10.0.0.77",
        ],
    )?;
    says(
        &error.report().to_string(),
        &["next: ping the peer's address"],
    )?;
    Ok(Verdict::Passed)
}

/// No route at all, and routes that say no, each with the kernel's own number and both addresses.
fn no_route() -> CaseResult {
    let far = IpAddr::V4(Ipv4Addr::new(203, 0, 113, 9));
    let a = end("rxe0")?;
    let attr = rtr(&a, Gid::from(far), |_| {})?;
    let check = |what: &str| -> Result<(), Failure> {
        let error = refused(&a, &attr).map_err(|e| format!("{what}: {e}"))?;
        has(&error, |finding| {
            matches!(finding, PathFinding::NoRoute { own, peer, .. }
                if *own == ipv4(1) && *peer == far)
        })
        .map_err(|e| format!("{what}: {e}"))?;
        says(
            &error.to_string(),
            &["no route leads from 10.0.0.1 to 203.0.113.9"],
        )
    };
    check("no route")?;
    for how in [Refusal::Unreachable, Refusal::Prohibit, Refusal::Blackhole] {
        net::refuse(far, how)?;
        let checked = check(&format!("{how:?}"));
        net::unrefuse(far, how)?;
        checked?;
    }
    Ok(Verdict::Passed)
}

/// The kernel takes what goes to the peer for its own, and no interface has that address: `ENODEV`, since
/// there is nothing that the device could be on.
fn ends_here() -> CaseResult {
    let peer = Ipv6Addr::new(0xfd55, 0, 0, 0, 0, 0, 0, 5);
    let shape = Shape {
        path: PathOptions {
            gid: Some(Gid::from(net::ENDS[0].v6)),
            ..PathOptions::default()
        },
        ..Shape::default()
    };
    let a = shape.prepare(&open("rxe0")?.1)?;
    let attr = rtr(&a, Gid::from(IpAddr::V6(peer)), |_| {})?;
    net::end_here(peer, true)?;
    let error = refused(&a, &attr);
    net::end_here(peer, false)?;
    let error = error?;
    same("errno", error.errno(), Some(Errno::ENODEV))?;
    has(
        &error,
        |finding| matches!(finding, PathFinding::EndsHere { peer: of } if *of == IpAddr::V6(peer)),
    )?;
    says(
        &error.to_string(),
        &[
            "no network interface has one of the two addresses of the path",
            "the route to fd55::5 ends in this machine, and no interface here has that address",
        ],
    )?;
    says(
        &error.report().to_string(),
        &[
            "cause: the route to the peer ends in this machine",
            "next: `ip route get PEER from OWN` shows where the route ends",
        ],
    )?;
    // Without that route there is none.
    let error = refused(&a, &attr)?;
    same("without it", error.errno(), Some(Errno::ENETUNREACH))?;
    same("state", a.qp.state()?, QpState::Init)?;
    Ok(Verdict::Passed)
}

/// Devices are shared, network namespaces are not: interface and address of the GID are not where the
/// program runs, as in a container that was given a device and a network of its own.
fn from_elsewhere() -> CaseResult {
    let inside = || -> Result<(), Failure> {
        unshare(CloneFlags::CLONE_NEWNET | CloneFlags::CLONE_NEWNS)?;
        let none = None::<&str>;
        mount(none, "/", none, MsFlags::MS_REC | MsFlags::MS_PRIVATE, none)?;
        // A mount of sysfs shows the interfaces of the namespace that it was made in.
        mount(Some("sysfs"), "/sys", Some("sysfs"), MsFlags::empty(), none)?;
        ensure(!fs::exists("/sys/class/net/veth0")?, "veth0 is here")?;
        // Without a table of local addresses, which comes with the first, any address can be bound.
        net::link_up("lo")?;
        let a = end("rxe0")?;
        let error = refused(&a, &rtr(&a, Gid::from(ipv4(77)), |_| {})?)?;
        has(
            &error,
            |finding| matches!(finding, PathFinding::NoInterface { own } if own.gid == a.endpoint.gid),
        )?;
        has(
            &error,
            |finding| matches!(finding, PathFinding::OwnAddressGone { own } if *own == ipv4(1)),
        )?;
        says(
            &error.to_string(),
            &[
                "which is not in this network namespace",
                "the own address 10.0.0.1 is on no interface here",
            ],
        )
    };
    let ended = thread::scope(|scope| scope.spawn(inside).join());
    ended.map_err(|_| "the thread in the namespace died")??;
    Ok(Verdict::Passed)
}

/// The network interface under an open device is removed while a queue pair of it is on its way.
fn interface_gone() -> CaseResult {
    net::add_pair("spare0", [2, 0, 0, 1, 0, 0], "spare1", [2, 0, 0, 1, 0, 1])?;
    net::link_up("spare0")?;
    net::link_up("spare1")?;
    let own = IpAddr::V4(Ipv4Addr::new(10, 9, 0, 1));
    net::add_addr("spare0", own, 24)?;
    rdma::link_add_on("going", "spare0")?;
    let (context, pd) = open("going")?;
    wait_for("the GID of the address", || {
        Ok(context.find_gid(1, Gid::from(own))?)
    })?;
    let a = Shape::default().prepare(&pd)?;
    let attr = rtr(
        &a,
        Gid::from(IpAddr::V4(Ipv4Addr::new(10, 9, 0, 2))),
        |_| {},
    )?;
    // Older kernels wait in it for those who have the device open.
    let remover = thread::spawn(|| net::delete("spare0"));
    wait_for("the interface to go", || {
        Ok((!fs::exists("/sys/class/net/spare0")?).then_some(()))
    })?;
    wait_for("the GID to go", || {
        let found = context.find_gid(1, Gid::from(own));
        Ok(found.map_or(true, |gid| gid.is_none()).then_some(()))
    })?;
    let error = a.qp.modify(&attr).err().ok_or("the kernel took it")?;
    let text = format!("{}\n{}", error, error.report());
    if context.is_gone() {
        says(&text, &["the device is gone"])?;
    } else {
        says(&text, &["the own GID"])?;
    }
    drop((a, pd, context));
    remover.join().map_err(|_| "the remover died")??;
    Ok(Verdict::Passed)
}

/// Each value that the kernel refuses with its one `EINVAL` is the one that is named.
fn values() -> CaseResult {
    let (context, pd) = open("rxe0")?;
    let cq = context.create_cq(4).build()?;
    let qp = pd.create_qp::<uverbs::Rc>(&cq, &cq).build()?;
    let init = QpAttr {
        port: Some(1),
        pkey_index: Some(0),
        access: Some(uverbs::AccessFlags::empty()),
        ..QpAttr::to_state(QpState::Init)
    };
    let no = |attr: QpAttr, text: &str| -> Result<(), Failure> {
        let error = qp.modify(&attr).err();
        let error = error.ok_or_else(|| format!("{text}: the kernel took it"))?;
        same(text, error.errno(), Some(Errno::EINVAL))?;
        says(&error.to_string(), &[text])?;
        // Nothing else is named.
        let trouble = error.findings.iter().filter(|finding| finding.is_trouble());
        same(&error.report().to_string(), trouble.count(), 1)
    };
    let port = Some(2);
    no(
        QpAttr { port, ..init },
        "there is no port 2: the device has port 1 only",
    )?;
    qp.modify(&init)?;
    let endpoint = qp.prepare(&PathOptions::default())?;
    let rtr = to_rtr(&context, &endpoint, &endpoint)?;
    let other = AddressVector {
        port: 3,
        ..rtr.path.ok_or("no path")?
    };
    no(
        QpAttr {
            path: Some(other),
            ..rtr
        },
        "there is no port 3",
    )?;
    let local = AddressVector {
        global: None,
        ..rtr.path.ok_or("no path")?
    };
    no(
        QpAttr {
            path: Some(local),
            ..rtr
        },
        "port 1 needs a global part in the path: GID and index",
    )?;
    qp.modify(&rtr)?;
    no(
        QpAttr {
            max_rd_atomic: Some(200),
            ..to_rts(&endpoint)
        },
        "max_rd_atomic 200 is above 128, the most there is",
    )?;
    qp.modify(&to_rts(&endpoint))?;
    Ok(Verdict::Passed)
}
