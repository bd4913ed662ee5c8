//! What `cargo vm demo` shows, run inside the guest by the same static binary that is its init: the
//! devices, a ping-pong whose every byte is checked, live events provoked for real, and a destroy
//! that waits for an ack.
//!
//! Must never reach outside the guest, and must fail loudly when it cannot show what it promises.

#![allow(clippy::print_stdout, reason = "it is there to be looked at")]

mod events;

use std::ffi::OsString;
use std::process::ExitCode;
use std::time::Instant;

use uverbs::{RecvWr, SendWr};

use crate::cases::pair::{Failure, pair, pattern, same, same_bytes};
use crate::guest::net::veth_counters;
use crate::guest::{ALONE_ARG, DEMO_ARG, alone};

const MESSAGES: u32 = 1000;
const MESSAGE: usize = 4096;

/// Runs the demonstration in the guest, in a root where its own executable is the only file.
pub fn run(stage: Option<&OsString>) -> ExitCode {
    let result = if stage.is_some_and(|stage| stage == ALONE_ARG) {
        show()
    } else {
        Err(alone::enter(&[DEMO_ARG, ALONE_ARG]).into())
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            println!("   failed: {error}");
            ExitCode::FAILURE
        }
    }
}

fn show() -> Result<(), Failure> {
    let size = alone::check()?;
    println!(
        "\nthe root holds /init ({} KiB), and /dev, /sys and /proc: no other file",
        size / 1024
    );
    println!("\n1. the devices");
    devices()?;
    println!("\n2. RC ping-pong, every byte checked");
    ping_pong()?;
    println!("\n3. live asynchronous events");
    events::show()
}

fn devices() -> Result<(), Failure> {
    let devices = uverbs::devices()?;
    same("devices listed", devices.len(), 2)?;
    for device in devices {
        let context = device.open()?;
        let attr = context.query_device()?;
        println!(
            "   {} at {}: driver {}, up to {} queue pairs, {} completions in a queue",
            device.name(),
            device.node().display(),
            context.driver().name(),
            attr.max_qp,
            attr.max_cqe
        );
        let port = context.query_port(1)?;
        let mtu = port
            .active_mtu
            .map_or_else(|| "unknown".to_owned(), |mtu| mtu.to_string());
        println!(
            "     port 1: {}, {:?}, MTU {mtu}",
            port.state, port.link_layer
        );
        for entry in context.gids(1)? {
            println!(
                "     GID {}: {} ({})",
                entry.index, entry.gid, entry.gid_type
            );
        }
    }
    Ok(())
}

fn ping_pong() -> Result<(), Failure> {
    let (a, b) = pair()?;
    println!("   {:?}\n   {:?}", a.endpoint, b.endpoint);
    let (out, back) = (a.region(MESSAGE, 0)?, a.region(MESSAGE, 0)?);
    let there = b.region(MESSAGE, 0)?;
    let before = veth_counters("veth0")?;
    let start = Instant::now();
    for round in 0..MESSAGES {
        let [seed, ..] = round.to_le_bytes();
        let message = pattern(MESSAGE, seed.wrapping_mul(37));
        let wr_id = u64::from(round);
        out.write_at(0, &message)?;
        // Ping.
        b.qp.post_recv(&[RecvWr::new(wr_id, &[there.slice(..)?])])?;
        a.qp.post_recv(&[RecvWr::new(wr_id, &[back.slice(..)?])])?;
        a.qp.post_send(&[SendWr::send(wr_id, &[out.slice(..)?]).signaled()])?;
        same("bytes of the ping", b.completion()?.ok()?.byte_len, 4096)?;
        same_bytes("ping", &there.to_vec(..)?, &message)?;
        // Pong, with every bit turned over, so that nothing can be taken for it that was not sent.
        let turned: Vec<u8> = message.iter().map(|byte| !byte).collect();
        there.write_at(0, &turned)?;
        b.qp.post_send(&[SendWr::send(wr_id, &[there.slice(..)?]).signaled()])?;
        b.completion()?.ok()?;
        for wc in a.completions(2)? {
            wc.ok()?;
        }
        same_bytes("pong", &back.to_vec(..)?, &turned)?;
    }
    let (received, sent) = {
        let after = veth_counters("veth0")?;
        (after.0 - before.0, after.1 - before.1)
    };
    println!(
        "   {MESSAGES} messages of {MESSAGE} bytes there and back in {:.1} s, every byte as sent",
        start.elapsed().as_secs_f64()
    );
    println!("   over the wire: {sent} packets out of veth0, {received} packets in");
    if sent < u64::from(MESSAGES) || received < u64::from(MESSAGES) {
        return Err("the messages did not go over the wire".into());
    }
    Ok(())
}
