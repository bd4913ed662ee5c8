//! What can stand in the way of an opening, through the public call, with its message.

use std::io;

use uverbs::{Explain, OpenError};

use crate::kernel::Netlink;
use crate::machine::{Dev, Machine, NULL, error_of, only, was_opened};

fn machine() -> Machine {
    let machine = Machine::new(&[Dev::new(1, "rxe0", "uverbs0", NULL)]);
    machine.link("dev/infiniband/uverbs0", "/dev/null");
    machine
}

#[test]
fn no_device_at_all() {
    let machine = Machine::new(&[]);
    for discovery in machine.both() {
        assert_eq!(
            error_of(discovery.open("rxe0")).to_string(),
            "no RDMA device is called \"rxe0\"; there is none at all (is a driver such as rdma_rxe \
             loaded, and ib_uverbs?)"
        );
    }
}

/// The modules make their classes, and so it is told which is missing.
#[test]
fn which_module_is_not_loaded() {
    let machine = Machine::bare();
    let last = || {
        machine.both().map(|discovery| {
            let text = error_of(discovery.open("rxe0")).to_string();
            text.rsplit("; ").next().unwrap_or_default().to_owned()
        })
    };
    machine.write("sys/class/net/lo/ifindex", "1\n");
    let neither = "neither ib_core nor ib_uverbs is loaded: `modprobe ib_uverbs`";
    assert_eq!(last(), [neither; 2]);
    machine.write("sys/class/infiniband/.keep", "");
    assert_eq!(last(), ["ib_uverbs is not loaded: `modprobe ib_uverbs`"; 2]);
    assert_eq!(
        error_of(machine.by_sysfs().open("rxe0")).to_string(),
        "no RDMA device is called \"rxe0\"; there is none at all (is a driver such as rdma_rxe loaded?); \
         ib_uverbs is not loaded: `modprobe ib_uverbs`"
    );
    machine.write("sys/class/infiniband_verbs/abi_version", "6\n");
    let loaded = "there is none at all (is a driver such as rdma_rxe loaded, and ib_uverbs?)";
    assert_eq!(last(), [loaded; 2]);
    let error = error_of(machine.by_sysfs().open("rxe0"));
    let report = error.report().to_string();
    for part in [
        "  cause: no driver has made a device",
        "  next: `modprobe ib_uverbs` and the driver",
        "rdma link add NAME type rxe netdev INTERFACE",
    ] {
        assert!(report.contains(part), "{part} in {report}");
    }
    assert_eq!(io::Error::from(error).kind(), io::ErrorKind::NotFound);
}

#[test]
fn no_device_of_that_name() {
    for discovery in machine().both() {
        assert_eq!(
            error_of(discovery.open("mlx5_0")).to_string(),
            "no RDMA device is called \"mlx5_0\"; there are: rxe0"
        );
    }
}

#[test]
fn what_was_meant_is_told_where_the_name_is_something_elses() {
    let machine = Machine::new(&[
        Dev::new(1, "rxe0", "uverbs0", NULL),
        Dev::new(2, "mlx5_0", "uverbs1", NULL),
    ]);
    machine.write("sys/class/net/eth0/ifindex", "2\n");
    machine.write("sys/class/net/eth1/ifindex", "3\n");
    let ndevs = "sys/class/infiniband/mlx5_0/ports/1/gid_attrs/ndevs";
    machine.write(&format!("{ndevs}/0"), "eth1\n");
    machine.write(&format!("{ndevs}/1"), "eth1\n");
    let by_name = "a device is opened by its name and not by a node's: `devices` lists both";
    for (name, hint) in [
        (
            "/dev/infiniband/uverbs1",
            "uverbs1 is the node of \"mlx5_0\": open \"mlx5_0\"",
        ),
        ("uverbs0", "uverbs0 is the node of \"rxe0\": open \"rxe0\""),
        ("uverbs7", by_name),
        ("/dev/infiniband", by_name),
        ("eth0", "eth0 is a network interface"),
        ("eth1", "eth1 is a network interface; on it is mlx5_0"),
        ("rxe_0", "did you mean \"rxe0\"?"),
        ("MLX5_0", "did you mean \"mlx5_0\"?"),
        ("mlx4_1", "did you mean \"mlx5_0\"?"),
    ] {
        for discovery in machine.both() {
            let error = error_of(discovery.open(name));
            assert_eq!(
                error.to_string(),
                format!("no RDMA device is called {name:?}; there are: rxe0, mlx5_0; {hint}")
            );
            let report = error.report().to_string();
            assert!(
                report.contains("  next: take one of the names there are"),
                "{report}"
            );
        }
    }
    // Folders as well, and no names.
    for name in ["", ".", ".."] {
        let text = error_of(machine.by_sysfs().open(name)).to_string();
        assert!(text.ends_with("; there are: rxe0, mlx5_0"), "{text}");
    }
}

#[test]
fn an_unknown_version_of_the_uverbs_abi() {
    let machine = machine();
    let file = "sys/class/infiniband_verbs/abi_version";
    let told = |text: &str| {
        machine.write(file, text);
        let [netlink, sysfs] = machine.both().map(|d| error_of(d.open("rxe0")).to_string());
        assert_eq!(netlink, sysfs);
        netlink
    };
    assert_eq!(
        told("5\n"),
        "the kernel speaks uverbs ABI 5, this crate speaks 6; a newer kernel is needed"
    );
    assert_eq!(
        told("7\n"),
        "the kernel speaks uverbs ABI 7, this crate speaks 6; a newer version of this crate is needed"
    );
    let path = machine.path(file);
    assert_eq!(
        told("six\n"),
        format!(
            "{} says \"six\", which is no version of the uverbs ABI",
            path.display()
        )
    );
    assert!(told("-1\n").contains("says \"-1\""));
    // It is the same list all the while.
    for discovery in machine.both() {
        assert_eq!(only(&discovery).name(), "rxe0");
    }
}

/// Without sysfs nobody says so; whether the kernel is too old the first command tells.
#[test]
#[cfg_attr(miri, ignore = "Miri knows no openat(2)")]
fn no_version_of_the_uverbs_abi_is_no_obstacle() {
    let machine = machine();
    std::fs::remove_file(machine.path("sys/class/infiniband_verbs/abi_version")).unwrap();
    for discovery in machine.both() {
        let error = error_of(discovery.open("rxe0"));
        assert!(was_opened(&error, "rxe0"), "{error}");
        let text = error.to_string();
        assert!(
            text.ends_with("; the oldest kernel that this crate was tried on is Linux 6.1"),
            "{text}"
        );
    }
}

#[test]
fn odd_text_in_sysfs_leaves_a_device_out_and_is_told() {
    for (file, text) in [
        ("dev", "nonsense\n"),
        ("dev", "231\n"),
        ("dev", "231:99999999999\n"),
        ("abi_version", "two\n"),
        ("ibdev", "../../etc\n"),
    ] {
        let machine = machine();
        let odd = format!("sys/class/infiniband_verbs/uverbs0/{file}");
        machine.write(&odd, text);
        let discovery = machine.by_sysfs();
        assert_eq!(discovery.devices().unwrap(), []);
        let error = error_of(discovery.open("rxe0")).to_string();
        let hint = format!("; {} says {:?}", machine.path(&odd).display(), text.trim());
        assert!(error.ends_with(&hint), "{error}");
    }
    // What is only told leaves nothing out.
    let machine = machine();
    machine.write("sys/class/infiniband/rxe0/node_type", "a switch, I think\n");
    machine.write("sys/class/infiniband/rxe0/node_guid", "1:2:3:4\n");
    let device = only(&machine.by_sysfs());
    assert_eq!((device.node_type(), device.node_guid()), (None, None));
}

#[test]
fn a_device_of_another_network_namespace() {
    let machine = machine();
    let exclusive = Netlink {
        is_exclusive: true,
        ..Netlink::default()
    };
    // Netlink shows what belongs to this namespace; the class of the nodes is the same in all.
    machine.devices.lock().unwrap().clear();
    let discovery = machine.by(exclusive);
    let told = error_of(discovery.open("rxe0")).to_string();
    let wanted = "; it belongs to another network namespace (`rdma system show`: netns exclusive)";
    assert!(told.ends_with(wanted), "{told}");
    let told = error_of(discovery.open("rxe5")).to_string();
    let wanted = "; each RDMA device belongs to one network namespace here (`rdma system show`: netns \
                  exclusive): is this the right one?";
    assert!(told.ends_with(wanted), "{told}");
    let refused = OpenError::OtherNamespace {
        device: "rxe0".to_owned(),
        path: "/dev/infiniband/uverbs0".into(),
        source: io::Error::from_raw_os_error(libc::EPERM),
    };
    assert_eq!(
        refused.to_string(),
        "cannot open /dev/infiniband/uverbs0: Operation not permitted (os error 1); RDMA devices \
         belong to one network namespace each here (`rdma system show`: netns exclusive), and rxe0 \
         not to this one: `rdma dev set rxe0 netns …` moves it"
    );
}
