//! What is listed, over netlink and from sysfs, also while devices come and go.

use std::collections::BTreeSet;
use std::fs;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use uverbs::{Device, DriverId, NetnsMode, NodeType};

use crate::kernel::Netlink;
use crate::machine::{Dev, Machine, only};

/// Everything that both ways of looking say.
fn fields(device: &Device) -> impl PartialEq + std::fmt::Debug + use<> {
    (
        (device.name().to_owned(), device.uverbs_name().to_owned()),
        (device.node().to_owned(), device.device_number()),
        (device.driver_abi(), device.node_type(), device.node_guid()),
        device.fw_version().map(str::to_owned),
    )
}

fn names(devices: &[Device]) -> Vec<&str> {
    devices.iter().map(Device::name).collect()
}

#[test]
fn a_machine_without_devices_has_an_empty_list() {
    let machine = Machine::new(&[]);
    for discovery in machine.both() {
        assert_eq!(discovery.devices().unwrap(), []);
    }
    // Without ib_uverbs there is no class of nodes; there are others.
    let machine = Machine::bare();
    machine.write("sys/class/net/lo/ifindex", "1\n");
    assert_eq!(machine.by_sysfs().devices().unwrap(), []);
}

#[test]
fn names_and_nodes_have_nothing_to_do_with_each_other() {
    // Renamed, in any order, and with gaps where devices went.
    let machine = Machine::new(&[
        Dev::new(3, "a", "uverbs10", (231, 202)),
        Dev::new(9, "mlx5_0", "uverbs2", (231, 194)),
        Dev::new(4, "rocep0s3", "uverbs0", (231, 192)),
    ]);
    for discovery in machine.both() {
        let devices = discovery.devices().unwrap();
        assert_eq!(names(&devices), ["rocep0s3", "mlx5_0", "a"]);
        assert_eq!(devices[1].device_number(), (231, 194));
        assert!(devices[1].node().ends_with("dev/infiniband/uverbs2"));
        assert_eq!(devices[1].driver_abi(), 2);
        assert_eq!(devices[1].node_type(), Some(NodeType::Ca));
        assert_eq!(devices[1].node_guid(), Some([2, 0, 0, 0xFF, 0xFE, 0, 0, 9]));
        assert_eq!(devices[1].fw_version(), None);
        assert_eq!(devices[1].present_name().as_deref(), Some("mlx5_0"));
    }
    let [netlink, sysfs] = machine.both().map(|discovery| discovery.devices().unwrap());
    let what_netlink_adds = |device: &Device| (device.driver(), device.index());
    assert_eq!(
        what_netlink_adds(&netlink[1]),
        (Some(DriverId::Rxe), Some(9))
    );
    assert_eq!(what_netlink_adds(&sysfs[1]), (None, None));
    // A listing is equal to the next one.
    assert_eq!(machine.by_netlink().devices().unwrap(), netlink);
    assert_eq!(machine.by_sysfs().devices().unwrap(), sysfs);
}

/// The first 32 nodes have major 231; those after them one that was free, and any minor number.
#[test]
#[cfg_attr(miri, ignore = "a great many devices")]
fn more_devices_than_the_kernel_has_fixed_numbers_for() {
    let devices: Vec<_> = (0..150)
        .map(|n| {
            let number = if n < 32 {
                (231, 192 + n)
            } else {
                (511, 1000 + n)
            };
            Dev::new(n + 1, &format!("rxe{n}"), &format!("uverbs{n}"), number)
        })
        .collect();
    let machine = Machine::new(&devices);
    let [netlink, sysfs] = machine.both().map(|discovery| discovery.devices().unwrap());
    assert_eq!(netlink.len(), 150);
    for (found, device) in netlink.iter().zip(&devices) {
        assert_eq!(found.name(), device.name);
        assert_eq!(found.device_number(), device.number);
        assert_eq!(found.index(), Some(device.index));
    }
    let all = |devices: &[Device]| devices.iter().map(fields).collect::<Vec<_>>();
    assert_eq!(all(&netlink), all(&sysfs));
}

#[test]
fn closed_netlink_leaves_sysfs() {
    let machine = Machine::new(&[Dev::new(1, "rxe0", "uverbs0", (231, 192))]);
    let closed = |errno| Netlink {
        closed: Some(errno),
        ..Netlink::default()
    };
    let refuses = |errno| Netlink {
        refuses: Some(errno),
        ..Netlink::default()
    };
    let habits = [
        // No such family, no such protocol, a sandbox, a policy, an old kernel.
        closed(libc::EAFNOSUPPORT),
        closed(libc::EPROTONOSUPPORT),
        closed(libc::EPERM),
        closed(libc::EACCES),
        closed(libc::ENOSYS),
        closed(libc::EMFILE),
        refuses(libc::EPERM),
        refuses(libc::EOPNOTSUPP),
        refuses(libc::EINVAL),
        Netlink {
            is_silent: true,
            ..Netlink::default()
        },
        Netlink {
            cut: 5,
            ..Netlink::default()
        },
    ];
    for habit in habits {
        let device = only(&machine.by(habit));
        assert_eq!((device.name(), device.index()), ("rxe0", None), "{habit:?}");
        assert_eq!(fields(&device), fields(&only(&machine.by_netlink())));
    }
}

#[test]
fn netlink_needs_no_sysfs() {
    let machine = Machine::bare();
    machine
        .devices
        .lock()
        .unwrap()
        .push(Dev::new(1, "rxe0", "uverbs0", (231, 192)));
    let device = only(&machine.by_netlink());
    assert_eq!(
        (device.name(), device.driver()),
        ("rxe0", Some(DriverId::Rxe))
    );
}

#[test]
fn neither_netlink_nor_sysfs_is_an_error_and_not_an_empty_list() {
    let machine = Machine::bare();
    let text = machine.by_sysfs().devices().unwrap_err().to_string();
    let wanted = format!(
        "cannot list RDMA devices: {}: No such file or directory (os error 2); and over netlink: \
         netlink failed: Protocol not supported (os error 93) (in a container: is /sys there, or may \
         it use netlink?)",
        machine.path("sys/class").display()
    );
    assert_eq!(text, wanted);
}

#[test]
fn a_device_that_goes_while_it_is_listed_is_left_out_whole() {
    let machine = Machine::new(&[
        Dev::new(1, "rxe0", "uverbs0", (231, 192)),
        Dev::new(2, "rxe1", "uverbs1", (231, 193)),
        Dev::new(3, "rxe2", "uverbs2", (231, 194)),
    ]);
    let losing = Netlink {
        loses_first: true,
        ..Netlink::default()
    };
    let devices = machine.by(losing).devices().unwrap();
    assert_eq!(names(&devices), ["rxe1", "rxe2"]);
    // In sysfs the files go one after the other, or are empty.
    fs::remove_file(machine.path("sys/class/infiniband_verbs/uverbs0/dev")).unwrap();
    machine.write("sys/class/infiniband_verbs/uverbs2/ibdev", "");
    let devices = machine.by_sysfs().devices().unwrap();
    assert_eq!(names(&devices), ["rxe1"]);
}

#[test]
fn a_device_without_a_node_is_not_listed_and_what_it_lacks_is_told() {
    let device = Dev {
        has_uverbs: false,
        ..Dev::new(1, "rxe0", "", (0, 0))
    };
    let machine = Machine::new(&[device]);
    let discovery = machine.by_netlink();
    assert_eq!(discovery.devices().unwrap(), []);
    assert_eq!(
        discovery.open("rxe0").unwrap_err().to_string(),
        "no RDMA device is called \"rxe0\"; there is none at all; the kernel has it, and no uverbs node for it: load ib_uverbs"
    );
}

#[test]
fn the_mode_of_network_namespaces_is_read_from_either() {
    let machine = Machine::new(&[]);
    assert_eq!(machine.by_sysfs().netns_mode(), None);
    assert_eq!(machine.by_netlink().netns_mode(), Some(NetnsMode::Shared));
    let exclusive = Netlink {
        is_exclusive: true,
        ..Netlink::default()
    };
    assert_eq!(
        machine.by(exclusive).netns_mode(),
        Some(NetnsMode::Exclusive)
    );
    for (text, mode) in [
        ("Y\n", Some(NetnsMode::Shared)),
        ("N\n", Some(NetnsMode::Exclusive)),
        ("perhaps\n", None),
        ("", None),
    ] {
        machine.write("sys/module/ib_core/parameters/netns_mode", text);
        assert_eq!(machine.by_sysfs().netns_mode(), mode, "{text:?}");
    }
}

/// One thread takes the device away, file by file, and puts another in its place; what is listed
/// meanwhile is one of them, never some of each.
#[test]
fn no_listing_makes_one_device_of_two() {
    let machine = Machine::new(&[]);
    let class = machine.path("sys/class/infiniband_verbs");
    let is_over = AtomicBool::new(false);
    let (seen, added) = thread::scope(|scope| {
        // Relaxed: nothing but the flag is passed on.
        let adder = scope.spawn(|| {
            let mut count = 0u32;
            while !is_over.load(Ordering::Relaxed) {
                count += 1;
                let staged = machine.path(&format!("staged/{count}"));
                fs::create_dir_all(&staged).unwrap();
                fs::write(staged.join("ibdev"), format!("rxe{count}\n")).unwrap();
                fs::write(staged.join("dev"), format!("231:{count}\n")).unwrap();
                fs::write(staged.join("abi_version"), format!("{count}\n")).unwrap();
                let place = class.join("uverbs0");
                fs::rename(&staged, &place).unwrap();
                thread::yield_now();
                for file in ["dev", "abi_version", "ibdev"] {
                    fs::remove_file(place.join(file)).unwrap();
                }
                // Kept, so that no later folder has its inode.
                fs::rename(&place, machine.path(&format!("staged/gone{count}"))).unwrap();
            }
            count
        });
        let discovery = machine.by_sysfs();
        let mut seen = BTreeSet::new();
        let start = Instant::now();
        while seen.len() < 20 && start.elapsed() < Duration::from_secs(60) {
            for device in discovery.devices().unwrap() {
                let count = device.driver_abi();
                assert_eq!(device.name(), format!("rxe{count}"));
                assert_eq!(device.device_number(), (231, count));
                seen.insert(count);
            }
            thread::yield_now();
        }
        is_over.store(true, Ordering::Relaxed);
        (seen.len(), adder.join().unwrap())
    });
    assert!(seen >= 20, "{seen} of {added} were seen");
}
