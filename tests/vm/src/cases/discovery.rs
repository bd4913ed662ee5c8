//! Which devices there are, over netlink and from sysfs, while they come, go and change their names.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use nix::libc;
use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::sched::{CloneFlags, unshare};
use uverbs::abi::netlink::{Client, Protocol};
use uverbs::{Context, Device, Discovery, DriverId, NetnsMode, NodeType, OpenError};

use super::pair::{Failure, ensure, same, wait_for};
use super::{Case, CaseResult, Verdict};
use crate::guest::seccomp::refuse_netlink;
use crate::guest::{init, modules, net, rdma};

pub(super) const CASES: &[Case] = &[
    Case::new("discovery::netlink_and_sysfs_agree", agree),
    Case::new("discovery::netlink_closed", netlink_closed),
    Case::new("discovery::without_sysfs", without_sysfs).fresh_boot(),
    Case::new("discovery::forty_devices", forty_devices)
        .fresh_boot()
        .limit_secs(300),
    Case::new("discovery::renamed", renamed).fresh_boot(),
    Case::new("discovery::removed_and_added_again", added_again)
        .fresh_boot()
        .limit_secs(120),
    Case::new("discovery::while_devices_come_and_go", come_and_go)
        .fresh_boot()
        .limit_secs(300),
    Case::new("discovery::in_a_storm_of_renames", storm_of_renames)
        .fresh_boot()
        .limit_secs(120),
    Case::new("discovery::a_shared_network_namespace", shared_namespace).fresh_boot(),
    Case::new(
        "discovery::an_exclusive_network_namespace",
        exclusive_namespace,
    )
    .fresh_boot(),
    Case::new("discovery::before_the_modules_are_loaded", no_modules)
        .fresh_boot()
        .limit_secs(120),
];

/// Netlink, and sysfs alone.
fn both() -> [Discovery; 2] {
    [Discovery::system(), Discovery::at("/")]
}

fn names(devices: &[Device]) -> Vec<&str> {
    devices.iter().map(Device::name).collect()
}

fn find(devices: &[Device], name: &str) -> Result<Device, Failure> {
    let found = devices.iter().find(|device| device.name() == name);
    Ok(found
        .ok_or_else(|| format!("no {name} in {devices:?}"))?
        .clone())
}

/// Lists both ways, and compares all that both say.
fn agreed() -> Result<Vec<Device>, Failure> {
    let [netlink, sysfs] = both().map(|discovery| discovery.devices());
    let (netlink, sysfs) = (netlink?, sysfs?);
    same("names", names(&netlink), names(&sysfs))?;
    for (one, other) in netlink.iter().zip(&sysfs) {
        same("uverbs", one.uverbs_name(), other.uverbs_name())?;
        same("number", one.device_number(), other.device_number())?;
        same("node", one.node(), other.node())?;
        same("driver ABI", one.driver_abi(), other.driver_abi())?;
        same("node type", one.node_type(), other.node_type())?;
        same("node GUID", one.node_guid(), other.node_guid())?;
        same("firmware", one.fw_version(), other.fw_version())?;
        same("driver", one.driver(), Some(DriverId::Rxe))?;
        same("driver in sysfs", other.driver(), None)?;
        same("index in sysfs", other.index(), None)?;
        let file = format!("/sys/class/infiniband/{}/index", one.name());
        let index = fs::read_to_string(&file).ok();
        if let Some(index) = index.and_then(|text| text.trim().parse().ok()) {
            same(&file, one.index(), Some(index))?;
        }
    }
    let indices: BTreeSet<_> = netlink.iter().map(Device::index).collect();
    ensure(!indices.contains(&None), "netlink was not asked")?;
    same("indices", indices.len(), netlink.len())?;
    Ok(netlink)
}

fn agree() -> CaseResult {
    let devices = agreed()?;
    same("names", names(&devices), rdma::DEVICES.to_vec())?;
    for device in devices {
        same("node type", device.node_type(), Some(NodeType::Ca))?;
        same("driver ABI", device.driver_abi(), 2)?;
        same("firmware", device.fw_version(), None)?;
        let context = device.open()?;
        same("driver", Some(context.driver()), device.driver())?;
        same("node", context.node(), device.node())?;
        let guid = context.query_device()?.node_guid;
        same("node GUID", Some(guid), device.node_guid())?;
    }
    for discovery in both() {
        same("mode", discovery.netns_mode(), Some(NetnsMode::Shared))?;
    }
    Ok(Verdict::Passed)
}

/// A sandbox that lets nobody have a netlink socket.
fn netlink_closed() -> CaseResult {
    let before = uverbs::devices()?;
    refuse_netlink(libc::EPERM)?;
    let errno = Client::open(Protocol::Rdma)
        .err()
        .and_then(|e| e.raw_os_error());
    same("a socket", errno, Some(libc::EPERM))?;
    let devices = uverbs::devices()?;
    same("names", names(&devices), rdma::DEVICES.to_vec())?;
    same("from sysfs", devices, Discovery::at("/").devices()?)?;
    same("mode", uverbs::netns_mode(), Some(NetnsMode::Shared))?;
    let context = Context::open("rxe0")?;
    same("driver", context.driver(), DriverId::Rxe)?;
    same(
        "first P_Key",
        context.pkeys(1)?.first().copied(),
        Some(0xFFFF),
    )?;
    // What was listed while netlink was open is found as well.
    same("node", before[0].open()?.node(), before[0].node())?;
    Ok(Verdict::Passed)
}

/// A container without `/sys`: netlink is enough; without both there is an error that says so.
fn without_sysfs() -> CaseResult {
    unshare(CloneFlags::CLONE_NEWNS)?;
    mount(
        None::<&str>,
        "/",
        None::<&str>,
        MsFlags::MS_REC | MsFlags::MS_PRIVATE,
        None::<&str>,
    )?;
    umount2("/sys", MntFlags::MNT_DETACH)?;
    ensure(!fs::exists("/sys/class")?, "/sys is still there")?;
    let devices = uverbs::devices()?;
    same("names", names(&devices), rdma::DEVICES.to_vec())?;
    Context::open("rxe0")?.query_device()?;
    same("mode", uverbs::netns_mode(), Some(NetnsMode::Shared))?;
    let error = Discovery::at("/").devices().err().ok_or("an empty list")?;
    let text = error.to_string();
    let named = text.starts_with("cannot list RDMA devices: /sys/class: No such file");
    ensure(named && text.contains("over netlink"), &text)?;
    Ok(Verdict::Passed)
}

/// More than the kernel has fixed device numbers for, and than one datagram holds.
fn forty_devices() -> CaseResult {
    for pair in 0..19 {
        let (a, b) = (
            format!("spare{}", 2 * pair),
            format!("spare{}", 2 * pair + 1),
        );
        net::add_pair(&a, [2, 0, 0, 1, pair, 0], &b, [2, 0, 0, 1, pair, 1])?;
        rdma::link_add_on(&format!("many{}", 2 * pair), &a)?;
        rdma::link_add_on(&format!("many{}", 2 * pair + 1), &b)?;
    }
    let devices = agreed()?;
    same("devices", devices.len(), 40)?;
    let fixed = devices
        .iter()
        .filter(|device| device.device_number().0 == 231);
    same("fixed numbers", fixed.count(), 32)?;
    for name in ["rxe1", "many0", "many29", "many37"] {
        let listed = find(&devices, name)?;
        for context in [Context::open(name)?, Discovery::at("/").open(name)?] {
            let guid = context.query_device()?.node_guid;
            same(name, Some(guid), listed.node_guid())?;
        }
    }
    // Gaps, and what comes after them takes the freed numbers.
    for gone in ["many3", "many36", "rxe0"] {
        rdma::link_delete(gone)?;
    }
    same("devices", agreed()?.len(), 37)?;
    rdma::link_add_on("late", "spare3")?;
    let devices = agreed()?;
    same("devices", devices.len(), 38)?;
    let late = find(&devices, "late")?;
    let index = devices.iter().filter_map(Device::index).max();
    same("the newest index", late.index(), index)?;
    late.open()?.query_device()?;
    Ok(Verdict::Passed)
}

fn renamed() -> CaseResult {
    let listed = [agreed()?, Discovery::at("/").devices()?];
    let before = Context::open("rxe0")?;
    let keys = before.pkeys(1)?;
    rdma::rename("rxe0", "rocep0s3")?;
    for devices in listed {
        let device = find(&devices, "rxe0")?;
        same(
            "present name",
            device.present_name().as_deref(),
            Some("rocep0s3"),
        )?;
        let context = device.open()?;
        same("name", context.name(), "rocep0s3")?;
        same("P_Keys", context.pkeys(1)?, keys.clone())?;
    }
    // What was open stays so, and is found in sysfs under the new name.
    same("name when opened", before.name(), "rxe0")?;
    same("P_Keys", before.pkeys(1)?, keys)?;
    before.query_device()?;
    for discovery in both() {
        let error = discovery.open("rxe0").err().ok_or("the old name opens")?;
        let text = error.to_string();
        ensure(text.contains("there are: rocep0s3, rxe1"), &text)?;
        same("name", discovery.open("rocep0s3")?.name(), "rocep0s3")?;
    }
    // The other one takes the name: by its name it is opened, and by what was listed it is not.
    let device = find(&agreed()?, "rxe1")?;
    rdma::rename("rocep0s3", "elsewhere")?;
    rdma::rename("rxe1", "rxe0")?;
    same("name", device.open()?.name(), "rxe0")?;
    let guid = Context::open("rxe0")?.query_device()?.node_guid;
    same("node GUID", Some(guid), device.node_guid())?;
    agreed()?;
    Ok(Verdict::Passed)
}

fn added_again() -> CaseResult {
    let listed = [agreed()?, Discovery::at("/").devices()?];
    let replaced = |now: &str| -> Result<(), Failure> {
        for devices in &listed {
            let device = find(devices, "rxe0")?;
            let error = device.open().err().ok_or("another device was opened")?;
            let OpenError::Replaced { now: whose, .. } = &error else {
                return Err(error.into());
            };
            same("whose", whose.as_deref(), Some(now))?;
            same("present name", device.present_name(), None)?;
        }
        Ok(())
    };
    rdma::link_delete("rxe0")?;
    for devices in &listed {
        let error = find(devices, "rxe0")?.open().err().ok_or("it was opened")?;
        let text = error.to_string();
        ensure(text.contains("there is no uverbs0 any more"), &text)?;
    }
    // Another driver's name proves nothing.
    rdma::link_add_on("mlx5_0", "veth0")?;
    let device = find(&agreed()?, "mlx5_0")?;
    let old = find(&listed[0], "rxe0")?;
    same("number", device.device_number(), old.device_number())?;
    same("node", device.node(), old.node())?;
    replaced("mlx5_0")?;
    for discovery in both() {
        let context = discovery.open("mlx5_0")?;
        same("driver", context.driver(), DriverId::Rxe)?;
        ensure(context.has_provider(), "no provider")?;
    }
    rdma::link_delete("mlx5_0")?;
    rdma::link_add("rxe0")?;
    same(
        "number",
        find(&agreed()?, "rxe0")?.device_number(),
        old.device_number(),
    )?;
    replaced("rxe0")?;
    for discovery in both() {
        discovery.open("rxe0")?.query_device()?;
    }
    Ok(Verdict::Passed)
}

/// One thread adds and removes devices; the lists hold what was there, whole, and what is opened is
/// what was listed.
/// Two devices exchange their names a hundred times a second: whatever is listed is of one device, and
/// what was listed is what is opened.
fn storm_of_renames() -> CaseResult {
    let guids: BTreeMap<_, _> = agreed()?
        .iter()
        .map(|device| (device.uverbs_name().to_owned(), device.node_guid()))
        .collect();
    same("devices", guids.len(), rdma::DEVICES.len())?;
    let is_over = AtomicBool::new(false);
    let mut opened = [0u32; 2];
    let (mut by_name, mut not_there) = (0u32, 0u32);
    let renames = thread::scope(|scope| -> Result<u32, Failure> {
        let renamer = scope.spawn(|| -> Result<u32, std::io::Error> {
            let [one, other] = rdma::DEVICES;
            let mut renames = 0;
            // Relaxed: nothing but the flag is passed on.
            while !is_over.load(Ordering::Relaxed) {
                for (from, to) in [(one, "aside"), (other, one), ("aside", other)] {
                    rdma::rename(from, to)?;
                    renames += 1;
                    thread::sleep(Duration::from_millis(10));
                }
            }
            Ok(renames)
        });
        let mut look = || -> Result<(), Failure> {
            let start = Instant::now();
            while start.elapsed() < Duration::from_secs(20) {
                for (way, discovery) in both().iter().enumerate() {
                    for device in discovery.devices()? {
                        let guid = guids.get(device.uverbs_name()).ok_or("an unknown node")?;
                        // From sysfs it may be missing where the name has just gone.
                        let listed = device.node_guid();
                        ensure(listed.is_none() || listed == *guid, "two devices in one")?;
                        let context = device.open()?;
                        same("GUID", Some(context.query_device()?.node_guid), *guid)?;
                        opened[way] += 1;
                    }
                    match discovery.open(rdma::DEVICES[0]) {
                        Ok(context) => {
                            context.query_device()?;
                            by_name += 1;
                        }
                        Err(OpenError::NoSuchDevice { .. }) => not_there += 1,
                        Err(error) => return Err(error.into()),
                    }
                }
            }
            Ok(())
        };
        let looked = look();
        is_over.store(true, Ordering::Relaxed);
        let renames = renamer.join().map_err(|_| "the renamer panicked")??;
        looked?;
        Ok(renames)
    })?;
    let told = format!("{renames} renames, {opened:?} opened, {by_name} by name, {not_there} not");
    ensure(
        renames > 100 && opened.iter().all(|n| *n > 10) && by_name > 0,
        &told,
    )?;
    Ok(Verdict::Passed)
}

fn come_and_go() -> CaseResult {
    net::add_pair("spare0", [2, 0, 0, 1, 0, 0], "spare1", [2, 0, 0, 1, 0, 1])?;
    // Of two kinds, so that one freed number goes to another device.
    let kinds = [("comes0", "spare0"), ("comes1", "spare1")];
    let mut guids = Vec::new();
    for (name, netdev) in kinds {
        rdma::link_add_on(name, netdev)?;
        guids.push(find(&agreed()?, name)?.node_guid());
        rdma::link_delete(name)?;
    }
    let is_over = AtomicBool::new(false);
    let (mut listed, mut opened, mut refused) = (0, 0, 0);
    let rounds = thread::scope(|scope| -> Result<u32, Failure> {
        let adder = scope.spawn(|| -> Result<u32, std::io::Error> {
            let mut rounds = 0;
            // Relaxed: nothing but the flag is passed on.
            while !is_over.load(Ordering::Relaxed) {
                for (name, netdev) in kinds {
                    rdma::link_add_on(name, netdev)?;
                    thread::sleep(Duration::from_millis(5));
                    rdma::link_delete(name)?;
                }
                rounds += 1;
            }
            Ok(rounds)
        });
        let start = Instant::now();
        let mut look = || -> Result<(), Failure> {
            while start.elapsed() < Duration::from_secs(20) || opened < 5 {
                ensure(
                    start.elapsed() < Duration::from_secs(200),
                    "nothing was opened",
                )?;
                for discovery in both() {
                    let devices = discovery.devices()?;
                    for stable in rdma::DEVICES {
                        find(&devices, stable)?;
                    }
                    for device in &devices {
                        let kind = kinds.iter().position(|(name, _)| *name == device.name());
                        let Some(kind) = kind else { continue };
                        listed += 1;
                        // From sysfs the GUID may be missing of a device that was just going.
                        let guid = device.node_guid();
                        ensure(guid.is_none() || guid == guids[kind], "two devices in one")?;
                        match device.open() {
                            Ok(context) => {
                                opened += 1;
                                same("name", context.name(), device.name())?;
                                // Gone by now, it says so.
                                if let Ok(attr) = context.query_device() {
                                    same("GUID", Some(attr.node_guid), guids[kind])?;
                                }
                            }
                            Err(OpenError::Replaced { .. } | OpenError::Command { .. }) => {
                                refused += 1;
                            }
                            Err(error) => return Err(error.into()),
                        }
                    }
                    let by_name = discovery.open(kinds[0].0);
                    if let Ok(context) = by_name {
                        same("name", context.name(), kinds[0].0)?;
                    }
                }
            }
            Ok(())
        };
        let looked = look();
        is_over.store(true, Ordering::Relaxed);
        let rounds = adder.join().map_err(|_| "the adding thread died")??;
        looked.map(|()| rounds)
    })?;
    let seen = format!("{rounds} rounds; {listed} listed, {opened} opened, {refused} refused");
    ensure(rounds >= 3 && opened >= 5, &seen)?;
    // A failure is not remembered.
    rdma::link_add_on("comes0", "spare0")?;
    for discovery in both() {
        discovery.open("comes0")?.query_device()?;
    }
    agreed()?;
    Ok(Verdict::Passed)
}

/// Runs `inside` in a network namespace of its own.
fn in_another_namespace(
    inside: impl FnOnce() -> Result<(), Failure> + Send,
) -> Result<(), Failure> {
    thread::scope(|scope| {
        let there = scope.spawn(|| {
            unshare(CloneFlags::CLONE_NEWNET)?;
            inside()
        });
        there
            .join()
            .map_err(|_| "the thread in the namespace died")?
    })
}

fn shared_namespace() -> CaseResult {
    in_another_namespace(|| {
        same("mode", uverbs::netns_mode(), Some(NetnsMode::Shared))?;
        let devices = agreed()?;
        same("names", names(&devices), rdma::DEVICES.to_vec())?;
        devices[0].open()?.query_device()?;
        Ok(())
    })?;
    Ok(Verdict::Passed)
}

fn exclusive_namespace() -> CaseResult {
    rdma::set_exclusive()?;
    for discovery in both() {
        same("mode", discovery.netns_mode(), Some(NetnsMode::Exclusive))?;
    }
    same("here", agreed()?.len(), 2)?;
    Context::open("rxe0")?;
    in_another_namespace(|| {
        let [netlink, sysfs] = both();
        same("mode", netlink.netns_mode(), Some(NetnsMode::Exclusive))?;
        same("there", names(&netlink.devices()?), vec![])?;
        let error = netlink.open("rxe0").err().ok_or("it was opened")?;
        let text = error.to_string();
        let part = "; it belongs to another network namespace";
        ensure(text.contains(part), &text)?;
        // Sysfs lists it all the same; the kernel does not let it be opened.
        let error = sysfs.open("rxe0").err().ok_or("it was opened from sysfs")?;
        let text = error.to_string();
        let is_told = matches!(error, OpenError::OtherNamespace { .. });
        ensure(is_told && text.contains("not permitted"), &text)
    })?;
    Context::open("rxe0")?;
    Ok(Verdict::Passed)
}

/// A program that looks before the modules are there is not stuck with what it saw.
fn no_modules() -> CaseResult {
    for name in rdma::DEVICES {
        rdma::link_delete(name)?;
    }
    modules::unload_with_users("ib_uverbs")?;
    let open = || Context::open("rxe0").err().ok_or("it was opened");
    same("devices", uverbs::devices()?, vec![])?;
    let text = open()?.to_string();
    let told = text.contains("there is none at all");
    ensure(
        told && text.ends_with("loaded?); ib_uverbs is not loaded: `modprobe ib_uverbs`"),
        &text,
    )?;
    modules::unload_with_users("ib_core")?;
    ensure(
        !fs::exists("/sys/class/infiniband")?,
        "ib_core is still there",
    )?;
    same("devices", uverbs::devices()?, vec![])?;
    same("mode", uverbs::netns_mode(), None)?;
    let text = open()?.to_string();
    let neither = "; neither ib_core nor ib_uverbs is loaded: `modprobe ib_uverbs`";
    ensure(
        text.contains("there is none at all") && text.ends_with(neither),
        &text,
    )?;
    modules::load(init::LATE_MODULES)?;
    rdma::ensure_devices()?;
    wait_for("the devices are listed", || {
        Ok((agreed()?.len() == 2).then_some(()))
    })?;
    Context::open("rxe0")?;
    Ok(Verdict::Passed)
}
