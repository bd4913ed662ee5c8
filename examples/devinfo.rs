//! Prints every RDMA device with its limits, ports and GIDs: `cargo run --example devinfo [NAME]`.

#![allow(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "an example is there to be looked at"
)]

use std::error::Error;
use std::process::ExitCode;

use uverbs::{Context, Device};

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<(), Box<dyn Error>> {
    let wanted = std::env::args().nth(1);
    let devices = uverbs::devices()?;
    if devices.is_empty() {
        println!("no RDMA device; `rdma link add rxe0 type rxe netdev eth0` makes one");
    }
    for device in devices {
        if wanted.as_deref().is_none_or(|name| name == device.name()) {
            match device.open() {
                Ok(context) => print_device(&device, &context)?,
                Err(error) => println!("{}: {error}", device.name()),
            }
        }
    }
    Ok(())
}

fn print_device(device: &Device, context: &Context) -> Result<(), Box<dyn Error>> {
    let attr = context.query_device()?;
    let queues = if context.has_provider() {
        ""
    } else {
        " (control only: no provider)"
    };
    println!("{} at {}", device.name(), device.node().display());
    println!("  driver             {}{queues}", context.driver().name());
    println!("  node_guid          {}", guid(attr.node_guid));
    println!("  sys_image_guid     {}", guid(attr.sys_image_guid));
    println!("  vendor_id          {:#06x}", attr.vendor_id);
    println!("  max_qp             {}", attr.max_qp);
    println!("  max_qp_wr          {}", attr.max_qp_wr);
    println!("  max_sge            {}", attr.max_sge);
    println!("  max_cq             {}", attr.max_cq);
    println!("  max_cqe            {}", attr.max_cqe);
    println!("  max_mr             {}", attr.max_mr);
    println!("  max_mr_size        {:#x}", attr.max_mr_size);
    println!("  max_srq            {}", attr.max_srq);
    println!("  max_srq_wr         {}", attr.max_srq_wr);
    println!("  max_srq_sge        {}", attr.max_srq_sge);
    println!("  max_qp_rd_atom     {}", attr.max_qp_rd_atom);
    println!("  atomic_cap         {:?}", attr.atomic_cap);
    println!("  device_cap_flags   {:#x}", attr.device_cap_flags);
    println!("  comp_vectors       {}", context.num_comp_vectors());
    for port in 1..=attr.phys_port_cnt {
        print_port(context, port)?;
    }
    Ok(())
}

fn print_port(context: &Context, port: u8) -> Result<(), Box<dyn Error>> {
    let attr = context.query_port(port)?;
    let mtu = |mtu: Option<uverbs::Mtu>| mtu.map_or_else(|| "?".to_owned(), |mtu| mtu.to_string());
    println!("  port {port}");
    println!(
        "    state            {} ({:?})",
        attr.state, attr.link_layer
    );
    println!("    max_mtu          {}", mtu(attr.max_mtu));
    println!("    active_mtu       {}", mtu(attr.active_mtu));
    println!("    lid              {}", attr.lid);
    println!("    max_msg_sz       {:#x}", attr.max_msg_sz);
    println!("    gid_tbl_len      {}", attr.gid_tbl_len);
    for entry in context.gids(port)? {
        println!(
            "    GID[{:3}]         {} {}",
            entry.index, entry.gid, entry.gid_type
        );
    }
    if let Ok(keys) = context.pkeys(port) {
        let filled = keys.iter().enumerate().filter(|(_, key)| **key != 0);
        for (index, key) in filled {
            println!("    P_Key[{index}]         {key:#06x}");
        }
    }
    Ok(())
}

fn guid(bytes: [u8; 8]) -> String {
    let words: Vec<String> = bytes
        .chunks(2)
        .map(|pair| format!("{:02x}{:02x}", pair[0], pair[1]))
        .collect();
    words.join(":")
}
