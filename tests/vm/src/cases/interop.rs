//! This workspace's examples against programs that no one here wrote: rdma-core's and perftest's, as
//! Debian has them, beside each other on the same two devices.

use std::time::Duration;

use super::pair::{Failure, SOON, ensure};
use super::{Case, CaseResult, Verdict};
use crate::guest::net::{set_mtu, veth_counters};
use crate::guest::program::{DEBIAN, EXAMPLES, Program};

pub(super) const CASES: &[Case] = &[
    Case::new("interop::rc_our_client_asks_theirs", our_client)
        .with_peers()
        .limit_secs(300),
    Case::new("interop::rc_our_server_answers_theirs", our_server)
        .with_peers()
        .limit_secs(300),
    Case::new("interop::rc_large_mtu", large_mtu)
        .with_peers()
        .limit_secs(120),
    Case::new("interop::srq_both_ways", srq)
        .with_peers()
        .limit_secs(300),
];

/// How long one run of two programs may take.
const LIMIT: Duration = Duration::from_secs(60);

/// Options of a run. GID 0 is the link-local one, 1 that of IPv4, 2 that of IPv6.
const RUNS: [&str; 8] = [
    "-g 1 -n 200",
    "-g 2 -n 200",
    "-g 0 -n 50 -s 1",
    "-g 1 -n 50 -s 1024 -m 1024 -i 1 -l 3",
    "-g 2 -n 50 -s 1025 -m 512 -r 3",
    "-g 1 -n 20 -s 65537 -m 256 -c",
    "-g 2 -n 5 -s 1048576 -m 1024 -r 2 -c",
    "-g 2 -n 100 -s 64 -p 18600 -c",
];

/// Which end is ours.
#[derive(Clone, Copy)]
enum Ours {
    Client,
    Server,
}

/// Runs two programs of one name against each other, `rxe0` serving and `rxe1` asking; both must end
/// well, and have sent what they say over the wire.
fn run(name: &str, ours: Ours, server_too: &str, client_too: &str) -> Result<(), Failure> {
    let (ours_name, theirs) = (format!("{EXAMPLES}/{name}"), format!("{DEBIAN}/ibv_{name}"));
    let (server, client) = match ours {
        Ours::Client => (theirs, ours_name),
        Ours::Server => (ours_name, theirs),
    };
    let before = veth_counters("veth0")?;
    let mut server = Program::start(&format!("{server} -d rxe0 {server_too}"))?;
    server.wait_to_listen(SOON, port(server_too)?)?;
    let client = Program::start(&format!("{client} -d rxe1 {client_too} 127.0.0.1"))?.end(LIMIT)?;
    let server = server.end(LIMIT)?;
    ensure(
        server.status.success() && client.status.success(),
        &format!("{server}\n{client}"),
    )?;
    let iters = value(client_too, "-n")?;
    let size = value(client_too, "-s").unwrap_or(4096);
    for ended in [&server, &client] {
        ensure(
            ended.output.contains(&format!("{iters} iters in "))
                && !ended.output.contains("invalid data"),
            &ended.to_string(),
        )?;
    }
    // Our client looks at every byte that came back, our server can only do as theirs does.
    if matches!(ours, Ours::Client) {
        ensure(
            client.output.contains("every byte came back"),
            &client.to_string(),
        )?;
    }
    let after = veth_counters("veth0")?;
    let packets = iters * size.div_ceil(value(client_too, "-m").unwrap_or(1024));
    ensure(
        after.0 - before.0 >= packets && after.1 - before.1 >= packets,
        &format!("{client_too}: fewer than {packets} packets each way"),
    )
}

/// The TCP port at which a server with these options listens.
fn port(options: &str) -> Result<u16, Failure> {
    let given = value(options, "-p").unwrap_or(18515);
    Ok(u16::try_from(given)?)
}

/// The value of an option in a line.
fn value(line: &str, option: &str) -> Result<u64, Failure> {
    let mut words = line.split_whitespace();
    words.find(|word| *word == option);
    Ok(words.next().ok_or("no such option")?.parse()?)
}

fn our_client() -> CaseResult {
    for options in RUNS {
        run("rc_pingpong", Ours::Client, options, options)
            .map_err(|e| format!("{options}: {e}"))?;
    }
    Ok(Verdict::Passed)
}

fn our_server() -> CaseResult {
    for options in RUNS {
        run("rc_pingpong", Ours::Server, options, options)
            .map_err(|e| format!("{options}: {e}"))?;
    }
    Ok(Verdict::Passed)
}

/// What the veth pair carries by default lets a path have no more than 1,024 bytes.
fn large_mtu() -> CaseResult {
    let set = |mtu| -> Result<(), Failure> {
        for netdev in ["veth0", "veth1"] {
            set_mtu(netdev, mtu)?;
        }
        Ok(())
    };
    set(4500)?;
    let result = [
        (Ours::Client, "-g 1 -n 20 -s 40000 -m 4096 -c"),
        (Ours::Server, "-g 2 -n 20 -s 40000 -m 4096 -c"),
        (Ours::Server, "-g 1 -n 20 -s 40000 -m 2048 -c"),
    ]
    .into_iter()
    .try_for_each(|(ours, options)| run("rc_pingpong", ours, options, options));
    set(1500)?;
    result?;
    Ok(Verdict::Passed)
}

fn srq() -> CaseResult {
    for options in [
        "-g 1 -n 200",
        "-g 2 -n 100 -q 3 -s 5000 -m 512 -r 20",
        "-g 1 -n 50 -q 1 -s 1 -r 4 -c",
        "-g 2 -n 100 -q 4 -e",
    ] {
        for ours in [Ours::Client, Ours::Server] {
            run("srq_pingpong", ours, options, options).map_err(|e| format!("{options}: {e}"))?;
        }
    }
    Ok(Verdict::Passed)
}
