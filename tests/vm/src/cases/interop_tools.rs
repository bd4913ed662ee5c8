//! What the tools of others say of the same devices, and that they work beside ours.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use uverbs::{RecvWr, SendWr};

use super::pair::{End, Failure, SOON, ensure, pair, pattern, same, same_bytes};
use super::{Case, CaseResult, Verdict};
use crate::guest::net::{add_addr, del_addr, link_down, link_up};
use crate::guest::program::{DEBIAN, EXAMPLES, Program};

pub(super) const CASES: &[Case] = &[
    Case::new("interop::devinfo_agrees", devinfo)
        .every_kernel()
        .with_peers()
        .limit_secs(120),
    Case::new("interop::async_watch_sees_the_same", async_watch)
        .every_kernel()
        .with_peers()
        .limit_secs(120),
    Case::new("interop::perftest_beside_our_traffic", perftest)
        .with_peers()
        .limit_secs(240),
];

/// Fields that libibverbs fills from what a driver says to it alone. rxe says nothing.
const PRIVATE: [&str; 7] = [
    "max_tso",
    "tso_caps",
    "rx_hash_function",
    "rx_hash_fields_mask",
    "packet_pacing_caps",
    "qp_rate_limit_min",
    "qp_rate_limit_max",
];

/// A field: name and value.
type Field = (String, String);

/// Fields in their order, and the words between them that name flags.
fn fields(text: &str) -> (Vec<Field>, BTreeSet<String>) {
    let (mut fields, mut flags) = (Vec::new(), BTreeSet::new());
    for line in text.lines() {
        let line = line.split_whitespace().collect::<Vec<_>>().join(" ");
        match line.split_once(':') {
            // A GID is told with its number.
            Some((name, value)) => fields.push((name.to_owned(), value.trim().to_owned())),
            None if !line.is_empty() => drop(flags.insert(line)),
            None => {}
        }
    }
    (fields, flags)
}

fn devinfo() -> CaseResult {
    for device in ["rxe0", "rxe1"] {
        let says = |program: &str| -> Result<String, Failure> {
            let line = format!("{program} -v -d {device}");
            Ok(Program::start(&line)?.end(SOON)?.well()?)
        };
        let theirs_text = says(&format!("{DEBIAN}/ibv_devinfo"))?;
        let ours_text = says(&format!("{EXAMPLES}/devinfo"))?;
        let both = format!("theirs:\n{theirs_text}\nours:\n{ours_text}");
        let (theirs, their_flags) = fields(&theirs_text);
        let (ours, our_flags) = fields(&ours_text);
        let (private, theirs): (Vec<Field>, Vec<Field>) = theirs
            .into_iter()
            .partition(|(name, _)| PRIVATE.contains(&name.as_str()));
        for (name, value) in private {
            let nothing = ["", "0", "0x0", "0kbps"].contains(&value.as_str());
            ensure(nothing, &format!("{name} is {value}\n{both}"))?;
        }
        // What they do not know the name of they tell as a number.
        let named = |list: Vec<Field>| -> Vec<Field> {
            list.into_iter()
                .filter(|(name, _)| name != "Unknown flags" && name != "for this crate")
                .collect()
        };
        let (theirs, ours) = (named(theirs), named(ours));
        ensure(theirs.len() > 60, &both)?;
        for (their, our) in theirs.iter().zip(&ours) {
            same(&format!("{device}: field\n{both}"), our, their)?;
        }
        same(
            &format!("number of fields\n{both}"),
            ours.len(),
            theirs.len(),
        )?;
        let missing: Vec<_> = their_flags.difference(&our_flags).collect();
        ensure(missing.is_empty(), &format!("{missing:?}\n{both}"))?;
        let newer = ["FLUSH_GLOBAL", "FLUSH_PERSISTENT", "ATOMIC_WRITE"];
        let newer = newer
            .iter()
            .chain(&["SUPPORT_FLUSH", "SUPPORT_ATOMIC_WRITE"]);
        let newer: BTreeSet<String> = newer.map(|name| (*name).to_owned()).collect();
        let invented: Vec<_> = our_flags
            .difference(&their_flags)
            .filter(|flag| !newer.contains(*flag))
            .collect();
        ensure(invented.is_empty(), &format!("{invented:?}\n{both}"))?;
    }
    Ok(Verdict::Passed)
}

/// The events that a watcher has printed: name and port.
fn events(text: &str) -> Vec<(String, u32)> {
    const NAMES: [&str; 5] = [
        "PORT_ACTIVE",
        "PORT_ERR",
        "GID_CHANGE",
        "LID_CHANGE",
        "DEVICE_FATAL",
    ];
    let mut found = Vec::new();
    for line in text.lines() {
        let mut words = line.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
        let name = words.find_map(|word| {
            let word = word.strip_prefix("IBV_EVENT_").unwrap_or(word);
            NAMES.contains(&word).then(|| word.to_owned())
        });
        let port = words.skip_while(|word| *word != "port").nth(1);
        if let (Some(name), Some(Ok(port))) = (name, port.map(str::parse)) {
            found.push((name, port));
        }
    }
    found
}

fn async_watch() -> CaseResult {
    let mut theirs = Program::start(&format!("{DEBIAN}/ibv_asyncwatch -d rxe0"))?;
    theirs.wait_until(SOON, |text| text.contains("async event FD"))?;
    let mut ours = Program::start(&format!("{EXAMPLES}/async_watch rxe0"))?;
    ours.wait_until(SOON, |text| text.contains("waiting for events"))?;
    let address: IpAddr = [10, 0, 0, 78].into();
    let mut wanted = 0;
    // Each step waits for both, so that what each of them raised is told apart.
    let mut step = |what: &str, name: &str, run: &dyn Fn() -> std::io::Result<()>| {
        run()?;
        wanted += 1;
        for watcher in [&mut theirs, &mut ours] {
            let seen = |text: &str| {
                let all = events(text);
                let last = all.get(wanted - 1..).unwrap_or_default();
                let found = last.iter().position(|(found, _)| found == name);
                found.is_some()
            };
            watcher
                .wait_until(SOON, seen)
                .map_err(|e| std::io::Error::other(format!("{what}: {e}")))?;
        }
        Ok::<(), std::io::Error>(())
    };
    step("an address comes", "GID_CHANGE", &|| {
        add_addr("veth0", address, 24)
    })?;
    step("an address goes", "GID_CHANGE", &|| {
        del_addr("veth0", address, 24)
    })?;
    step("the link goes down", "PORT_ERR", &|| link_down("veth0"))?;
    step("the link comes up", "PORT_ACTIVE", &|| link_up("veth0"))?;
    let both = format!("{}\n{}", theirs.output(), ours.output());
    let (theirs, ours) = (events(&theirs.output()), events(&ours.output()));
    // The link raises more than one event, and the last may still be under way to one of the two.
    let common = theirs.len().min(ours.len());
    ensure(common >= 4, &both)?;
    same(&both, &ours[..common], &theirs[..common])?;
    same(&both, theirs.iter().all(|(_, port)| *port == 1), true)?;
    Ok(Verdict::Passed)
}

/// Sends messages to and fro, every byte checked, until told to stop; gives their number.
fn talk(a: &End, b: &End, stop: &AtomicBool) -> Result<u32, Failure> {
    let (out, room) = (a.region(5000, 1)?, b.region(5000, 2)?);
    let mut count = 0;
    while !stop.load(Ordering::Relaxed) {
        let [seed, ..] = u32::to_le_bytes(count);
        let message = pattern(5000, seed);
        out.write_at(0, &message)?;
        b.qp.post_recv(&[RecvWr::new(1, &[room.slice(..)?])])?;
        a.qp.post_send(&[SendWr::send(2, &[out.slice(..)?]).signaled()])?;
        b.completion()?.ok()?;
        a.completion()?.ok()?;
        same_bytes("message", &room.to_vec(..)?, &message)?;
        count += 1;
    }
    Ok(count)
}

fn perftest() -> CaseResult {
    let (a, b) = pair()?;
    let stop = Arc::new(AtomicBool::new(false));
    let talker = thread::spawn({
        let stop = Arc::clone(&stop);
        move || talk(&a, &b, &stop).map_err(|error| error.to_string())
    });
    let result = measure();
    stop.store(true, Ordering::Relaxed);
    let count = talker.join().map_err(|_| "the talker panicked")??;
    result?;
    ensure(count > 0, "no message of ours went through meanwhile")?;
    Ok(Verdict::Passed)
}

fn measure() -> Result<(), Failure> {
    let limit = Duration::from_secs(90);
    for line in [
        "ib_send_bw -x 1 -F -n 100 -s 4096",
        "ib_write_lat -x 1 -F -n 100 -s 64",
    ] {
        let (name, options) = line.split_once(' ').unwrap_or((line, ""));
        let mut server = Program::start(&format!("{DEBIAN}/{name} -d rxe0 {options}"))?;
        server.wait_to_listen(SOON, 18515)?;
        let client = format!("{DEBIAN}/{name} -d rxe1 {options} 127.0.0.1");
        let client = Program::start(&client)?.end(limit)?;
        let server = server.end(limit)?;
        for ended in [&server, &client] {
            let well = ended.status.success() && ended.output.contains("#bytes");
            ensure(well, &format!("{server}\n{client}"))?;
        }
    }
    Ok(())
}
