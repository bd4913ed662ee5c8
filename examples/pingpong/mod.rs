//! What the ping-pongs share: options, and the 52 bytes in which two ends tell each other who they are.
//!
//! Options and bytes are those of rdma-core's `ibv_rc_pingpong` and `ibv_srq_pingpong`, so that each
//! end can be the one or the other.

use std::error::Error;
use std::fmt;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::{Duration, Instant};

use uverbs::{
    CompletionQueue, ConnectOptions, Context, Endpoint, Gid, Mtu, PathOptions, QpNum, Wc,
};

/// Any failure: an example says it and ends.
pub(crate) type Result<T> = std::result::Result<T, Box<dyn Error>>;

/// How long the other end may take for anything.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// Of both programs; `-q` is of the one on a shared receive queue.
const USAGE: &str = "\
usage: PROGRAM [OPTIONS] [HOST]      with HOST the client, without it the server

  -d, --ib-dev NAME    device; the first there is, if not said
  -i, --ib-port N      its port (1)
  -g, --gid-idx N      GID of the port; the one that is best reached, if not said
  -s, --size BYTES     bytes of a message (4096)
  -m, --mtu BYTES      MTU of the path, the same at both ends (1024)
  -r, --rx-depth N     receives that are posted ahead (500)
  -n, --iters N        messages each way (1000)
  -l, --sl N           service level (0)
  -e, --events         sleep until there are completions
  -c, --chk            the server looks at the messages too
  -q, --num-qp N       srq_pingpong: queue pairs, as many at both ends (16)
  -p, --port N         TCP port of the server (18515)
  --help";

/// What was asked for.
pub(crate) struct Options {
    /// `-d`: the device; the first one by default.
    pub(crate) device: Option<String>,
    /// `-i`: its port.
    pub(crate) port: u8,
    /// `-g`: which of the port's GIDs; by default the one that is best reached.
    pub(crate) gid_index: Option<u32>,
    /// `-s`: bytes of a message.
    pub(crate) size: usize,
    /// `-m`: the path's MTU. Both ends must say the same.
    pub(crate) mtu: Mtu,
    /// `-r`: receives that are posted ahead.
    pub(crate) rx_depth: u32,
    /// `-n`: messages each way.
    pub(crate) iters: u32,
    /// `-l`: service level.
    pub(crate) sl: u8,
    /// `-e`: sleeps until there are completions, instead of polling for them.
    pub(crate) use_events: bool,
    /// `-c`: the server looks at the messages too.
    pub(crate) check: bool,
    /// `-q`: queue pairs (of the one on a shared receive queue).
    pub(crate) num_qp: usize,
    /// `-p`: the server's TCP port.
    pub(crate) tcp_port: u16,
    /// The server; without it, this is the server.
    pub(crate) host: Option<String>,
}

impl Options {
    /// Reads the command line; `None` if it asks for help, which has been given then.
    pub(crate) fn parse() -> Result<Option<Self>> {
        let mut options = Self {
            device: None,
            port: 1,
            gid_index: None,
            size: 4096,
            mtu: Mtu::Mtu1024,
            rx_depth: 500,
            iters: 1000,
            sl: 0,
            use_events: false,
            check: false,
            num_qp: 16,
            tcp_port: 18515,
            host: None,
        };
        let mut args = std::env::args().skip(1);
        while let Some(arg) = args.next() {
            // `--size=64` is `-s 64`.
            let (name, mut joined) = match arg.split_once('=') {
                Some((name, value)) if name.starts_with("--") => (name, Some(value.to_owned())),
                _ => (arg.as_str(), None),
            };
            let mut value = || {
                let value = joined.take().or_else(|| args.next());
                value.ok_or_else(|| format!("{name} needs a value"))
            };
            match name {
                "-d" | "--ib-dev" => options.device = Some(value()?),
                "-i" | "--ib-port" => options.port = value()?.parse()?,
                "-g" | "--gid-idx" => options.gid_index = Some(value()?.parse()?),
                "-s" | "--size" => options.size = value()?.parse()?,
                "-m" | "--mtu" => options.mtu = mtu(&value()?)?,
                "-r" | "--rx-depth" => options.rx_depth = value()?.parse()?,
                "-n" | "--iters" => options.iters = value()?.parse()?,
                "-l" | "--sl" => options.sl = value()?.parse()?,
                "-e" | "--events" => options.use_events = true,
                "-c" | "--chk" => options.check = true,
                "-q" | "--num-qp" => options.num_qp = value()?.parse()?,
                "-p" | "--port" => options.tcp_port = value()?.parse()?,
                "-h" | "--help" => {
                    println!("{USAGE}");
                    return Ok(None);
                }
                _ if name.starts_with('-') => {
                    return Err(format!("unknown option {name}\n{USAGE}").into());
                }
                _ => options.host = Some(arg),
            }
        }
        if options.size == 0 || options.rx_depth == 0 || options.num_qp == 0 {
            return Err("-s, -r and -q must be at least 1".into());
        }
        Ok(Some(options))
    }

    /// Opens the device.
    pub(crate) fn open(&self) -> Result<Context> {
        let name = match &self.device {
            Some(name) => name.clone(),
            None => match uverbs::devices()?.first() {
                Some(device) => device.name().to_owned(),
                None => {
                    return Err(
                        "no RDMA device; `rdma link add rxe0 type rxe netdev eth0` makes one"
                            .into(),
                    );
                }
            },
        };
        Ok(Context::open(&name)?)
    }

    /// A completion queue, with `-e` on a channel of its own.
    pub(crate) fn create_cq(&self, context: &Context, depth: u32) -> Result<CompletionQueue> {
        if !self.use_events {
            return Ok(context.create_cq(depth).build()?);
        }
        let channel = context.create_completion_channel()?;
        Ok(context.create_cq(depth).channel(&channel, 0).build()?)
    }

    /// Where this end is to be reached.
    pub(crate) fn path(&self, context: &Context) -> Result<PathOptions> {
        let mut path = PathOptions {
            port: self.port,
            max_dest_rd_atomic: 1,
            ..PathOptions::default()
        };
        if let Some(index) = self.gid_index {
            let entry = context.query_gid(self.port, index)?;
            path.gid = Some(entry.ok_or("that GID entry is empty")?.gid);
        }
        Ok(path)
    }

    /// How the connection is to behave.
    pub(crate) fn connection(&self) -> ConnectOptions {
        ConnectOptions {
            path_mtu: self.mtu,
            sl: self.sl,
            max_rd_atomic: 1,
            ..ConnectOptions::default()
        }
    }
}

/// Waits for completions: asleep if the queue has a channel, and else by polling.
pub(crate) fn completions<'b>(cq: &CompletionQueue, room: &'b mut [Wc]) -> Result<&'b mut [Wc]> {
    let deadline = Instant::now() + PATIENCE;
    let found = if cq.channel().is_some() {
        cq.wait_timeout(room, PATIENCE)?.len()
    } else {
        loop {
            let found = cq.poll(room)?.len();
            if found != 0 || Instant::now() > deadline {
                break found;
            }
            std::thread::yield_now();
        }
    };
    if found == 0 {
        return Err(format!("no completion within {} s", PATIENCE.as_secs()).into());
    }
    Ok(&mut room[..found])
}

fn mtu(text: &str) -> Result<Mtu> {
    let bytes: u32 = text.parse()?;
    let all = [
        Mtu::Mtu256,
        Mtu::Mtu512,
        Mtu::Mtu1024,
        Mtu::Mtu2048,
        Mtu::Mtu4096,
    ];
    all.into_iter()
        .find(|mtu| mtu.bytes() == bytes)
        .ok_or_else(|| format!("-m {bytes}: an MTU is 256, 512, 1024, 2048 or 4096").into())
}

/// Bytes of one end's own description: `LID:QPN:PSN:GID` in hexadecimal, and a zero.
const LINE: usize = 4 + 1 + 6 + 1 + 6 + 1 + 32 + 1;

fn to_line(end: &Endpoint) -> [u8; LINE] {
    let mut text = format!("{:04x}:{:06x}:{:06x}:", end.lid, end.qp_num.0, end.psn);
    for byte in end.gid.0 {
        text.push_str(&format!("{byte:02x}"));
    }
    let mut line = [0; LINE];
    line[..text.len()].copy_from_slice(text.as_bytes());
    line
}

/// What the line does not say is taken from `local`.
fn from_line(line: &[u8; LINE], local: &Endpoint) -> Result<Endpoint> {
    let text = line.split(|byte| *byte == 0).next().unwrap_or_default();
    let text = std::str::from_utf8(text)?;
    let mut fields = text.split(':');
    let mut next = |digits: usize| {
        fields
            .next()
            .filter(|field| field.len() == digits)
            .ok_or_else(|| format!("the other end says {text:?}, which is no address"))
    };
    let lid = u16::from_str_radix(next(4)?, 16)?;
    let qp_num = u32::from_str_radix(next(6)?, 16)?;
    let psn = u32::from_str_radix(next(6)?, 16)?;
    let gid = u128::from_str_radix(next(32)?, 16)?;
    Ok(Endpoint {
        qp_num: QpNum(qp_num),
        psn,
        gid: Gid(gid.to_be_bytes()),
        lid,
        ..*local
    })
}

/// Prints an end as the C programs do.
#[allow(clippy::print_stdout, reason = "an example is there to be looked at")]
pub(crate) fn show(which: &str, end: &Endpoint) {
    println!(
        "  {which} address:  LID {:#06x}, QPN {:#08x}, PSN {:#08x}, GID {}",
        end.lid, end.qp_num.0, end.psn, end.gid
    );
}

fn tell(peer: &mut TcpStream, local: &[Endpoint], lines: usize) -> Result<()> {
    for end in local {
        peer.write_all(&to_line(end))?;
    }
    let mut nobody = [b'0'; LINE];
    (nobody[4], nobody[11], nobody[18], nobody[LINE - 1]) = (b':', b':', b':', 0);
    for _ in local.len()..lines {
        peer.write_all(&nobody)?;
    }
    Ok(())
}

/// The two ends tell each other who they are, in so many lines, of which the last may name nobody. The
/// server is connected, by `connect`, before the
/// client hears of it, so the client may send at once.
pub(crate) fn meet(
    options: &Options,
    local: &[Endpoint],
    lines: usize,
    mut connect: impl FnMut(&[Endpoint]) -> Result<()>,
) -> Result<()> {
    let mut peer = call(options)?;
    peer.set_read_timeout(Some(PATIENCE))?;
    let is_client = options.host.is_some();
    if is_client {
        tell(&mut peer, local, lines)?;
    }
    let mut remote = Vec::new();
    for at in 0..lines.max(local.len()) {
        let mut line = [0; LINE];
        peer.read_exact(&mut line)?;
        if let Some(end) = local.get(at) {
            remote.push(from_line(&line, end)?);
        }
    }
    if is_client {
        peer.write_all(b"done\0")?;
        connect(&remote)
    } else {
        connect(&remote)?;
        tell(&mut peer, local, lines)?;
        let mut word = [0; 5];
        Ok(peer.read_exact(&mut word)?)
    }
}

/// The server waits for the client to call; the client tries until the server is there.
fn call(options: &Options) -> Result<TcpStream> {
    let Some(host) = &options.host else {
        // Any address of either family, where there are both.
        let listener = TcpListener::bind(("::", options.tcp_port))
            .or_else(|_| TcpListener::bind(("0.0.0.0", options.tcp_port)))?;
        return Ok(listener.accept()?.0);
    };
    let deadline = Instant::now() + PATIENCE;
    loop {
        match TcpStream::connect((host.as_str(), options.tcp_port)) {
            Ok(stream) => return Ok(stream),
            Err(error) if Instant::now() > deadline => return Err(error.into()),
            Err(_) => std::thread::sleep(Duration::from_millis(50)),
        }
    }
}

/// A message that differs from round to round and from byte to byte. With `check`, the first byte of
/// each page is 0: that is what the C programs' servers look for.
pub(crate) fn message(size: usize, round: u32, check: bool) -> Vec<u8> {
    let mut state = u64::from(round) << 1 | 1;
    let mut bytes = Vec::with_capacity(size);
    while bytes.len() < size {
        state = state
            .wrapping_mul(0x5851_F42D_4C95_7F2D)
            .wrapping_add(0x1405_7B7E_F767_814F);
        let word = state.to_be_bytes();
        bytes.extend_from_slice(&word[..word.len().min(size - bytes.len())]);
    }
    if check {
        bytes.iter_mut().step_by(PAGE).for_each(|byte| *byte = 0);
    }
    bytes
}

/// What a buffer holds before anything has come, as in the C programs.
pub(crate) const FILL: u8 = 0x7b;

/// What the C programs take for a page.
const PAGE: usize = 4096;

/// What a server with `-c` looks for.
pub(crate) fn check_pages(bytes: &[u8]) -> Result<()> {
    match bytes.iter().step_by(PAGE).position(|byte| *byte != 0) {
        Some(page) => Err(format!("invalid data in page {page}").into()),
        None => Ok(()),
    }
}

/// The closing lines.
#[allow(clippy::print_stdout, reason = "an example is there to be looked at")]
pub(crate) fn report(options: &Options, took: Duration) {
    // In whole numbers of 64 bits: what prints others would be a fiftieth of a small program.
    let bytes = 2 * options.size as u64 * u64::from(options.iters);
    let nanoseconds = took.as_nanos().max(1);
    let seconds = Hundredths::of(nanoseconds / 10_000_000);
    // A bit for each nanosecond is 1000 Mbit/s.
    let rate = Hundredths::of(u128::from(bytes) * 8 * 100_000 / nanoseconds);
    println!("{bytes} bytes in {seconds} seconds = {rate} Mbit/sec");
    let each = Hundredths::of(nanoseconds / 10 / u128::from(options.iters.max(1)));
    let iters = options.iters;
    println!("{iters} iters in {seconds} seconds = {each} usec/iter");
}

/// A number with two places after the point.
struct Hundredths(u64);

impl Hundredths {
    fn of(count: u128) -> Self {
        Self(u64::try_from(count).unwrap_or(u64::MAX))
    }
}

impl fmt::Display for Hundredths {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{:02}", self.0 / 100, self.0 % 100)
    }
}
