//! Prints every RDMA device with its ports: `cargo run --example devinfo -- [-d NAME] [-i PORT] [-v]`.
//!
//! Options, fields and their form are those of rdma-core's `ibv_devinfo`; `-v` prints all of them.
//! What it lacks are the fields that some drivers say of themselves to libibverbs alone.

#![allow(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "an example is there to be looked at"
)]

use std::error::Error;
use std::fmt::Display;
use std::fs;
use std::process::ExitCode;

use uverbs::abi::layout::verbs as raw;
use uverbs::{AtomicCap, Context, Device, DeviceAttr, LinkLayer, Mtu, PortAttr, PortState};

const USAGE: &str = "\
usage: devinfo [-d NAME] [-i PORT] [-v]

  -d NAME   this device only
  -i PORT   this port only
  -v        every field
  --help";

#[derive(Default)]
struct Options {
    device: Option<String>,
    port: Option<u8>,
    verbose: bool,
}

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

/// What the command line says; `None` if it asks for help.
fn parse() -> Result<Option<Options>, Box<dyn Error>> {
    let mut options = Options::default();
    let mut args = std::env::args().skip(1);
    while let Some(arg) = args.next() {
        let mut value = || args.next().ok_or_else(|| format!("{arg} needs a value"));
        match arg.as_str() {
            "-d" => options.device = Some(value()?),
            "-i" => options.port = Some(value()?.parse()?),
            "-v" => options.verbose = true,
            "-h" | "--help" => return Ok(None),
            _ => return Err(format!("unknown option {arg}\n{USAGE}").into()),
        }
    }
    Ok(Some(options))
}

fn run() -> Result<(), Box<dyn Error>> {
    let Some(options) = parse()? else {
        println!("{USAGE}");
        return Ok(());
    };
    let mut devices = uverbs::devices()?;
    if let Some(name) = &options.device {
        devices.retain(|device| device.name() == name);
    }
    if devices.is_empty() {
        return Err("no such device; `rdma link add rxe0 type rxe netdev eth0` makes one".into());
    }
    for device in devices {
        match device.open() {
            Ok(context) => print_device(&device, &context, &options)?,
            Err(error) => println!("{}: {error}", device.name()),
        }
    }
    Ok(())
}

fn field(name: &str, value: impl Display) {
    println!("\t{:<31}\t{value}", format!("{name}:"));
}

fn port_field(name: &str, value: impl Display) {
    println!("\t\t\t{:<23}\t{value}", format!("{name}:"));
}

/// A file of the device's in sysfs: what the uverbs interface does not tell.
fn sysfs(device: &Device, file: &str) -> Option<String> {
    let path = format!("/sys/class/infiniband/{}/{file}", device.name());
    Some(fs::read_to_string(path).ok()?.trim().to_owned())
}

fn print_device(
    device: &Device,
    context: &Context,
    options: &Options,
) -> Result<(), Box<dyn Error>> {
    let attr = context.query_device()?;
    println!("hca_id:\t{}", device.name());
    let node_type = sysfs(device, "node_type").unwrap_or_default();
    field(
        "transport",
        match node_type.split(':').next().unwrap_or_default() {
            "1" | "2" | "3" => "InfiniBand (0)",
            "4" => "iWARP (1)",
            _ => "invalid transport (-1)",
        },
    );
    let [major, minor, sub] = [32, 16, 0].map(|shift| attr.fw_ver >> shift & 0xFFFF);
    field("fw_ver", format!("{major}.{minor}.{sub}"));
    field("node_guid", in_words(&attr.node_guid));
    field("sys_image_guid", in_words(&attr.sys_image_guid));
    field("vendor_id", format!("{:#06x}", attr.vendor_id));
    field("vendor_part_id", attr.vendor_part_id);
    field("hw_ver", format!("0x{:X}", attr.hw_ver));
    if let Some(board) = sysfs(device, "board_id") {
        field("board_id", board);
    }
    field("phys_port_cnt", attr.phys_port_cnt);
    if options.verbose {
        print_limits(&attr);
        print_capabilities(&attr);
        let queues = if context.has_provider() {
            context.driver().name().to_owned()
        } else {
            format!("{} (control only: no provider)", context.driver().name())
        };
        println!(
            "\tfor this crate: node {}, driver {queues}",
            device.node().display()
        );
        field("num_comp_vectors", context.num_comp_vectors());
    }
    for port in 1..=attr.phys_port_cnt {
        if options.port.is_none_or(|wanted| wanted == port) {
            print_port(device, context, port, options.verbose)?;
        }
    }
    Ok(())
}

fn print_limits(attr: &DeviceAttr) {
    let old = &attr.obsolete;
    field("max_mr_size", format!("{:#x}", attr.max_mr_size));
    field("page_size_cap", format!("{:#x}", attr.page_size_cap));
    field("max_qp", attr.max_qp);
    field("max_qp_wr", attr.max_qp_wr);
    let flags = attr.device_cap_flags;
    field("device_cap_flags", format!("{:#010x}", flags & 0xFFFF_FFFF));
    print_flags(flags & 0xFFFF_FFFF, &DEVICE_FLAGS);
    field("max_sge", attr.max_sge);
    field("max_sge_rd", attr.max_sge_rd);
    field("max_cq", attr.max_cq);
    field("max_cqe", attr.max_cqe);
    field("max_mr", attr.max_mr);
    field("max_pd", attr.max_pd);
    field("max_qp_rd_atom", attr.max_qp_rd_atom);
    field("max_ee_rd_atom", old.max_ee_rd_atom);
    field("max_res_rd_atom", attr.max_res_rd_atom);
    field("max_qp_init_rd_atom", attr.max_qp_init_rd_atom);
    field("max_ee_init_rd_atom", old.max_ee_init_rd_atom);
    field(
        "atomic_cap",
        match attr.atomic_cap {
            AtomicCap::None => "ATOMIC_NONE (0)".to_owned(),
            AtomicCap::Hca => "ATOMIC_HCA (1)".to_owned(),
            AtomicCap::Global => "ATOMIC_GLOB (2)".to_owned(),
            other => format!("invalid atomic capability ({other:?})"),
        },
    );
    field("max_ee", old.max_ee);
    field("max_rdd", old.max_rdd);
    field("max_mw", attr.max_mw);
    field("max_raw_ipv6_qp", old.max_raw_ipv6_qp);
    field("max_raw_ethy_qp", old.max_raw_ethy_qp);
    field("max_mcast_grp", attr.max_mcast_grp);
    field("max_mcast_qp_attach", attr.max_mcast_qp_attach);
    field("max_total_mcast_qp_attach", attr.max_total_mcast_qp_attach);
    field("max_ah", attr.max_ah);
    field("max_fmr", old.max_fmr);
    if old.max_fmr != 0 {
        field("max_map_per_fmr", old.max_map_per_fmr);
    }
    field("max_srq", attr.max_srq);
    if attr.max_srq != 0 {
        field("max_srq_wr", attr.max_srq_wr);
        field("max_srq_sge", attr.max_srq_sge);
    }
    field("max_pkeys", attr.max_pkeys);
    field("local_ca_ack_delay", attr.local_ca_ack_delay);
}

fn print_capabilities(attr: &DeviceAttr) {
    println!("\tgeneral_odp_caps:");
    print_flags(attr.odp.general, &ODP_GENERAL);
    for (name, caps) in [
        ("rc_odp_caps", attr.odp.rc),
        ("uc_odp_caps", attr.odp.uc),
        ("ud_odp_caps", attr.odp.ud),
        ("xrc_odp_caps", attr.odp.xrc),
    ] {
        println!("\t{name}:");
        if caps == 0 {
            println!("{FLAG}NO SUPPORT");
        }
        print_flags(u64::from(caps), &ODP_TRANSPORT);
    }
    if attr.completion_timestamp_mask != 0 {
        let mask = format!("{:#018x}", attr.completion_timestamp_mask);
        field("completion timestamp_mask", mask);
    } else {
        println!("\tcompletion_timestamp_mask not supported");
    }
    if attr.hca_core_clock_khz != 0 {
        field("hca_core_clock", format!("{}kHZ", attr.hca_core_clock_khz));
    } else {
        println!("\tcore clock not supported");
    }
    if attr.raw_packet_caps != 0 {
        println!("\traw packet caps:");
        print_flags(u64::from(attr.raw_packet_caps), &RAW_PACKET);
    }
    field(
        "device_cap_flags_ex",
        format!("0x{:X}", attr.device_cap_flags),
    );
    print_flags(attr.device_cap_flags & !0xFFFF_FFFF, &DEVICE_FLAGS_EX);
    println!("\trss_caps:");
    let rss = &attr.rss;
    field(
        "\tmax_rwq_indirection_tables",
        rss.max_rwq_indirection_tables,
    );
    field(
        "\tmax_rwq_indirection_table_size",
        rss.max_rwq_indirection_table_size,
    );
    field("max_wq_type_rq", attr.max_wq_type_rq);
    let tags = &attr.tag_matching;
    if tags.max_num_tags != 0 {
        field("max_rndv_hdr_size", tags.max_rndv_hdr_size);
        field("max_num_tags", tags.max_num_tags);
        field("max_ops", tags.max_ops);
        field("max_sge", tags.max_sge);
        println!("\tflags:");
        print_flags(u64::from(tags.flags), &[(1, "IBV_TM_CAP_RC")]);
    } else {
        println!("\ttag matching not supported");
    }
    let moderation = &attr.cq_moderation;
    if moderation.max_count != 0 && moderation.max_period_us != 0 {
        println!("\n\tcq moderation caps:");
        field("\tmax_cq_count", moderation.max_count);
        field(
            "\tmax_cq_period",
            format!("{} us", moderation.max_period_us),
        );
    }
    if attr.max_dm_size != 0 {
        field(
            "maximum available device memory",
            format!("{}Bytes", attr.max_dm_size),
        );
    }
}

fn print_port(
    device: &Device,
    context: &Context,
    port: u8,
    verbose: bool,
) -> Result<(), Box<dyn Error>> {
    let attr = context.query_port(port)?;
    println!("\t\tport:\t{port}");
    port_field(
        "state",
        match attr.state {
            PortState::Down => "PORT_DOWN (1)".to_owned(),
            PortState::Init => "PORT_INIT (2)".to_owned(),
            PortState::Armed => "PORT_ARMED (3)".to_owned(),
            PortState::Active => "PORT_ACTIVE (4)".to_owned(),
            other => format!("invalid state ({other})"),
        },
    );
    port_field("max_mtu", mtu(attr.max_mtu));
    port_field("active_mtu", mtu(attr.active_mtu));
    port_field("sm_lid", attr.sm_lid);
    port_field("port_lid", attr.lid);
    port_field("port_lmc", format!("{:#04x}", attr.lmc));
    port_field(
        "link_layer",
        match attr.link_layer {
            LinkLayer::Unspecified | LinkLayer::InfiniBand => "InfiniBand",
            LinkLayer::Ethernet => "Ethernet",
            _ => "Unknown",
        },
    );
    if verbose {
        print_port_details(&attr, sysfs(device, "node_type").unwrap_or_default());
        for entry in context.gids(port)? {
            println!(
                "\t\t\tGID[{:3}]:\t\t{}, {}",
                entry.index, entry.gid, entry.gid_type
            );
        }
    }
    println!();
    Ok(())
}

fn print_port_details(attr: &PortAttr, node_type: String) {
    port_field("max_msg_sz", format!("{:#x}", attr.max_msg_sz));
    port_field("port_cap_flags", format!("{:#010x}", attr.port_cap_flags));
    port_field("port_cap_flags2", format!("{:#06x}", attr.port_cap_flags2));
    let code = |code: u32, words: &[(u32, &str)], none: &str| {
        let word = words.iter().find(|(known, _)| *known == code);
        format!("{} ({code})", word.map_or(none, |(_, word)| word))
    };
    let lanes = [(1, "1"), (2, "2"), (3, "4"), (4, "8"), (5, "15")];
    port_field(
        "max_vl_num",
        code(attr.max_vl_num.into(), &lanes, "invalid value"),
    );
    port_field("bad_pkey_cntr", format!("{:#x}", attr.bad_pkey_cntr));
    port_field("qkey_viol_cntr", format!("{:#x}", attr.qkey_viol_cntr));
    port_field("sm_sl", attr.sm_sl);
    port_field("pkey_tbl_len", attr.pkey_tbl_len);
    port_field("gid_tbl_len", attr.gid_tbl_len);
    port_field("subnet_timeout", attr.subnet_timeout);
    port_field("init_type_reply", attr.init_type_reply);
    let widths = [(1, "1X"), (2, "4X"), (4, "8X"), (8, "12X"), (16, "2X")];
    port_field(
        "active_width",
        code(attr.active_width.into(), &widths, "invalid widthX"),
    );
    let speeds = [
        (1, "2.5 Gbps"),
        (2, "5.0 Gbps"),
        (4, "10.0 Gbps"),
        (8, "10.0 Gbps"),
        (16, "14.0 Gbps"),
        (32, "25.0 Gbps"),
        (64, "50.0 Gbps"),
        (128, "100.0 Gbps"),
    ];
    port_field(
        "active_speed",
        code(attr.active_speed, &speeds, "invalid speed"),
    );
    let states = [
        (1, "SLEEP"),
        (2, "POLLING"),
        (3, "DISABLED"),
        (5, "LINK_UP"),
        (6, "LINK_ERROR_RECOVERY"),
    ];
    if node_type.starts_with(['1', '2', '3']) {
        port_field(
            "phys_state",
            code(attr.phys_state.into(), &states, "invalid physical state"),
        );
    }
}

fn mtu(mtu: Option<Mtu>) -> String {
    mtu.map_or_else(
        || "invalid MTU".to_owned(),
        |mtu| format!("{mtu} ({})", mtu.raw()),
    )
}

fn in_words(bytes: &[u8]) -> String {
    let words: Vec<String> = bytes
        .chunks(2)
        .map(|pair| pair.iter().map(|byte| format!("{byte:02x}")).collect())
        .collect();
    words.join(":")
}

const FLAG: &str = "\t\t\t\t\t";

fn print_flags(flags: u64, names: &[(u64, &str)]) {
    let mut rest = flags;
    for (bit, name) in names {
        if flags & bit != 0 {
            println!("{FLAG}{name}");
            rest &= !bit;
        }
    }
    if rest != 0 {
        println!("{FLAG}Unknown flags: 0x{rest:X}");
    }
}

const DEVICE_FLAGS: [(u64, &str); 23] = [
    (raw::IB_UVERBS_DEVICE_RESIZE_MAX_WR, "RESIZE_MAX_WR"),
    (raw::IB_UVERBS_DEVICE_BAD_PKEY_CNTR, "BAD_PKEY_CNTR"),
    (raw::IB_UVERBS_DEVICE_BAD_QKEY_CNTR, "BAD_QKEY_CNTR"),
    (raw::IB_UVERBS_DEVICE_RAW_MULTI, "RAW_MULTI"),
    (raw::IB_UVERBS_DEVICE_AUTO_PATH_MIG, "AUTO_PATH_MIG"),
    (raw::IB_UVERBS_DEVICE_CHANGE_PHY_PORT, "CHANGE_PHY_PORT"),
    (
        raw::IB_UVERBS_DEVICE_UD_AV_PORT_ENFORCE,
        "UD_AV_PORT_ENFORCE",
    ),
    (raw::IB_UVERBS_DEVICE_CURR_QP_STATE_MOD, "CURR_QP_STATE_MOD"),
    (raw::IB_UVERBS_DEVICE_SHUTDOWN_PORT, "SHUTDOWN_PORT"),
    (raw::IB_UVERBS_DEVICE_PORT_ACTIVE_EVENT, "PORT_ACTIVE_EVENT"),
    (raw::IB_UVERBS_DEVICE_SYS_IMAGE_GUID, "SYS_IMAGE_GUID"),
    (raw::IB_UVERBS_DEVICE_RC_RNR_NAK_GEN, "RC_RNR_NAK_GEN"),
    (raw::IB_UVERBS_DEVICE_SRQ_RESIZE, "SRQ_RESIZE"),
    (raw::IB_UVERBS_DEVICE_N_NOTIFY_CQ, "N_NOTIFY_CQ"),
    (raw::IB_UVERBS_DEVICE_MEM_WINDOW, "MEM_WINDOW"),
    (raw::IB_UVERBS_DEVICE_UD_IP_CSUM, "UD_IP_CSUM"),
    (raw::IB_UVERBS_DEVICE_XRC, "XRC"),
    (
        raw::IB_UVERBS_DEVICE_MEM_MGT_EXTENSIONS,
        "MEM_MGT_EXTENSIONS",
    ),
    (
        raw::IB_UVERBS_DEVICE_MEM_WINDOW_TYPE_2A,
        "MEM_WINDOW_TYPE_2A",
    ),
    (
        raw::IB_UVERBS_DEVICE_MEM_WINDOW_TYPE_2B,
        "MEM_WINDOW_TYPE_2B",
    ),
    (raw::IB_UVERBS_DEVICE_RC_IP_CSUM, "RC_IP_CSUM"),
    (raw::IB_UVERBS_DEVICE_RAW_IP_CSUM, "RAW_IP_CSUM"),
    (
        raw::IB_UVERBS_DEVICE_MANAGED_FLOW_STEERING,
        "MANAGED_FLOW_STEERING",
    ),
];

const DEVICE_FLAGS_EX: [(u64, &str); 6] = [
    (raw::IB_UVERBS_DEVICE_RAW_SCATTER_FCS, "RAW_SCATTER_FCS"),
    (
        raw::IB_UVERBS_DEVICE_PCI_WRITE_END_PADDING,
        "PCI_WRITE_END_PADDING",
    ),
    (raw::IB_UVERBS_DEVICE_FLUSH_GLOBAL, "FLUSH_GLOBAL"),
    (raw::IB_UVERBS_DEVICE_FLUSH_PERSISTENT, "FLUSH_PERSISTENT"),
    (raw::IB_UVERBS_DEVICE_ATOMIC_WRITE, "ATOMIC_WRITE"),
    (raw::IB_UVERBS_DEVICE_CC_DMA_BOUNCE, "CC_DMA_BOUNCE"),
];

const ODP_GENERAL: [(u64, &str); 2] = [
    (raw::IB_UVERBS_ODP_SUPPORT, "ODP_SUPPORT"),
    (raw::IB_UVERBS_ODP_SUPPORT_IMPLICIT, "ODP_SUPPORT_IMPLICIT"),
];

const ODP_TRANSPORT: [(u64, &str); 8] = [
    (raw::IB_UVERBS_ODP_SUPPORT_SEND as u64, "SUPPORT_SEND"),
    (raw::IB_UVERBS_ODP_SUPPORT_RECV as u64, "SUPPORT_RECV"),
    (raw::IB_UVERBS_ODP_SUPPORT_WRITE as u64, "SUPPORT_WRITE"),
    (raw::IB_UVERBS_ODP_SUPPORT_READ as u64, "SUPPORT_READ"),
    (raw::IB_UVERBS_ODP_SUPPORT_ATOMIC as u64, "SUPPORT_ATOMIC"),
    (raw::IB_UVERBS_ODP_SUPPORT_SRQ_RECV as u64, "SUPPORT_SRQ"),
    (raw::IB_UVERBS_ODP_SUPPORT_FLUSH as u64, "SUPPORT_FLUSH"),
    (
        raw::IB_UVERBS_ODP_SUPPORT_ATOMIC_WRITE as u64,
        "SUPPORT_ATOMIC_WRITE",
    ),
];

const RAW_PACKET: [(u64, &str); 4] = [
    (
        raw::IB_UVERBS_RAW_PACKET_CAP_CVLAN_STRIPPING as u64,
        "C-VLAN stripping offload",
    ),
    (
        raw::IB_UVERBS_RAW_PACKET_CAP_SCATTER_FCS as u64,
        "Scatter FCS offload",
    ),
    (
        raw::IB_UVERBS_RAW_PACKET_CAP_IP_CSUM as u64,
        "IP csum offload",
    ),
    (
        raw::IB_UVERBS_RAW_PACKET_CAP_DELAY_DROP as u64,
        "Delay drop",
    ),
];
