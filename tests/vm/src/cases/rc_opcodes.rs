//! Every opcode of a reliable connection, with every byte checked, and the bytes around it.

use uverbs::{
    CompletionQueue, ConnectOptions, Gid, MemoryRegion, Mtu, PathOptions, RecvWr, SendWr, WcFlags,
    WcOpcode,
};

use super::pair::{
    End, Failure, Shape, connect, elements, ensure, layout, open, pattern, same, same_bytes,
    scattered, shaped_pair, wait_for,
};
use super::{Case, CaseResult, Verdict};
use crate::guest::net::ENDS;

pub(super) const CASES: &[Case] = &[
    Case::new("rc::all_opcodes_at_all_sizes", || all_sizes(1))
        .every_kernel()
        .limit_secs(120),
    Case::new("rc::all_opcodes_with_32_elements", || all_sizes(32)).limit_secs(120),
    Case::new("rc::addresses_and_path_mtus", addresses_and_path_mtus).limit_secs(120),
    Case::new("rc::both_directions_at_once", both_directions),
    Case::new("rc::two_queue_pairs_of_one_device", same_device),
    Case::new("rc::queue_pair_connected_to_itself", itself),
];

/// The opcodes that carry a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Op {
    Send,
    SendImm,
    Write,
    WriteImm,
    Read,
}

pub(super) const OPS: [Op; 5] = [Op::Send, Op::SendImm, Op::Write, Op::WriteImm, Op::Read];

impl Op {
    const fn uses_receive(self) -> bool {
        matches!(self, Self::Send | Self::SendImm | Self::WriteImm)
    }

    const fn imm(self) -> Option<u32> {
        match self {
            Self::SendImm => Some(0x0102_0304),
            Self::WriteImm => Some(0xFFFE_FD80),
            _ => None,
        }
    }

    const fn sent_as(self) -> WcOpcode {
        match self {
            Self::Send | Self::SendImm => WcOpcode::Send,
            Self::Write | Self::WriteImm => WcOpcode::RdmaWrite,
            Self::Read => WcOpcode::RdmaRead,
        }
    }
}

/// Two connected ends with memory for messages.
#[derive(Debug)]
pub(super) struct Bench {
    pub(super) a: End,
    pub(super) b: End,
    here: MemoryRegion,
    there: MemoryRegion,
    next: u64,
}

impl Bench {
    pub(super) fn new(a: End, b: End, largest: usize) -> Result<Self, Failure> {
        let here = a.region(largest + 1024, 0)?;
        let there = b.region(largest + 1024, 0)?;
        Ok(Self {
            a,
            b,
            here,
            there,
            next: 1 << 40,
        })
    }

    /// One request from `a` to `b`, of so many bytes in so many elements.
    pub(super) fn round(&mut self, op: Op, size: usize, count: usize) -> Result<(), Failure> {
        self.next += 1;
        let id = self.next;
        let what = format!("{op:?} of {size} bytes in {count} elements");
        let message = pattern(size, id.to_le_bytes()[0]);
        let near = layout(size, count);
        let far = match op {
            // Other elements than the sender's, so that each packet crosses some.
            Op::Send | Op::SendImm => layout(size, count - count / 3),
            _ => vec![(13, size)],
        };
        let (from, to) = match op {
            Op::Read => (&self.there, &self.here),
            _ => (&self.here, &self.there),
        };
        let (sources, targets) = match op {
            Op::Read => (&far, &near),
            _ => (&near, &far),
        };
        from.write_at(0, &scattered(sources, &message))?;
        to.write_at(0, &scattered(targets, &[]))?;
        if op.uses_receive() {
            let sges = match op {
                Op::WriteImm => Vec::new(),
                _ => elements(&self.there, &far)?,
            };
            self.b.qp.post_recv(&[RecvWr::new(id + 7, &sges)])?;
        }
        let sges = elements(&self.here, &near)?;
        let remote = self.there.remote(13)?;
        let wr = match op {
            Op::Send | Op::SendImm => SendWr::send(id, &sges),
            Op::Write | Op::WriteImm => SendWr::write(id, &sges, remote),
            Op::Read => SendWr::read(id, &sges, remote),
        };
        let wr = op.imm().map_or(wr, |imm| wr.with_imm(imm));
        self.a.qp.post_send(&[wr.signaled()])?;
        let bytes = u32::try_from(size)?;
        let sent = self.a.completion().map_err(|e| format!("{what}: {e}"))?;
        sent.ok().map_err(|e| format!("{what}: {e}"))?;
        same(&what, (sent.wr_id, sent.opcode()), (id, Some(op.sent_as())))?;
        same(
            &what,
            (sent.qp_num, sent.vendor_err),
            (self.a.qp.qp_num(), 0),
        )?;
        same(&format!("{what}: sender's immediate"), sent.imm(), None)?;
        if op == Op::Read {
            same(&format!("{what}: bytes read"), sent.byte_len, bytes)?;
        }
        if op.uses_receive() {
            self.received(&what, op, id + 7, bytes)?;
        }
        same_bytes(
            &format!("{what}: target"),
            &to.to_vec(..scattered(targets, &[]).len())?,
            &scattered(targets, &message),
        )?;
        same_bytes(
            &format!("{what}: source"),
            &from.to_vec(..scattered(sources, &[]).len())?,
            &scattered(sources, &message),
        )
    }

    fn received(&self, what: &str, op: Op, id: u64, bytes: u32) -> Result<(), Failure> {
        let received = self.b.completion().map_err(|e| format!("{what}: {e}"))?;
        received
            .ok()
            .map_err(|e| format!("{what}, received: {e}"))?;
        let opcode = match op {
            Op::WriteImm => WcOpcode::RecvRdmaWithImm,
            _ => WcOpcode::Recv,
        };
        same(
            what,
            (received.wr_id, received.opcode()),
            (id, Some(opcode)),
        )?;
        same(what, received.qp_num, self.b.qp.qp_num())?;
        same(&format!("{what}: bytes received"), received.byte_len, bytes)?;
        same(&format!("{what}: immediate"), received.imm(), op.imm())?;
        let flags = op.imm().map_or(WcFlags::empty(), |_| WcFlags::WITH_IMM);
        // rxe sets GRH on every receive; it says nothing about a reliable connection.
        let said = received.flags - WcFlags::GRH;
        same(&format!("{what}: flags"), said, flags)
    }

    /// Fails if either end has a completion left.
    pub(super) fn quiet(&self) -> Result<(), Failure> {
        self.a.expect_none("sender")?;
        self.b.expect_none("receiver")
    }
}

fn path_mtu(end: &End) -> Result<usize, Failure> {
    let mtu = end.qp.query()?.path_mtu.ok_or("no path MTU")?;
    Ok(usize::try_from(mtu.bytes())?)
}

fn all_sizes(count: usize) -> CaseResult {
    const MIB: usize = 1 << 20;
    let shape = Shape {
        sge: 32,
        ..Shape::default()
    };
    let (a, b) = shaped_pair(&shape, &ConnectOptions::default())?;
    let mtu = path_mtu(&a)?;
    let mut bench = Bench::new(a, b, MIB)?;
    for op in OPS {
        for size in [0, 1, 7, mtu - 1, mtu, mtu + 1, MIB] {
            bench.round(op, size, count)?;
        }
        // No element at all is a message of no bytes, too.
        bench.round(op, 0, 0)?;
    }
    bench.quiet()?;
    Ok(Verdict::Passed)
}

fn addresses_and_path_mtus() -> CaseResult {
    for v6 in [false, true] {
        for asked in [Mtu::Mtu256, Mtu::Mtu512, Mtu::Mtu1024, Mtu::Mtu4096] {
            let end = |index: usize, name| -> Result<End, Failure> {
                let ip = if v6 { ENDS[index].v6 } else { ENDS[index].v4 };
                let shape = Shape {
                    path: PathOptions {
                        gid: Some(Gid::from(ip)),
                        ..PathOptions::default()
                    },
                    ..Shape::default()
                };
                let end = shape.prepare(&open(name)?.1)?;
                same("GID", end.endpoint.gid.to_ip(), ip)?;
                Ok(end)
            };
            let (a, b) = (end(0, "rxe0")?, end(1, "rxe1")?);
            let options = ConnectOptions {
                path_mtu: asked,
                ..ConnectOptions::default()
            };
            connect(&a, &b, &options)?;
            let active = a.context.query_port(1)?.active_mtu.ok_or("no MTU")?;
            let mtu = path_mtu(&a)?;
            same("path MTU", a.qp.query()?.path_mtu, Some(asked.min(active)))?;
            let mut bench = Bench::new(a, b, 8192)?;
            for op in OPS {
                for size in [0, mtu - 1, mtu, mtu + 1, 5 * mtu + 3] {
                    bench.round(op, size, 3)?;
                }
            }
            bench.quiet()?;
        }
    }
    Ok(Verdict::Passed)
}

/// Messages both ways at once, several under way on each side.
fn both_directions() -> CaseResult {
    const MESSAGES: u64 = 400;
    const SIZE: usize = 3000;
    let (a, b) = shaped_pair(&Shape::default(), &ConnectOptions::default())?;
    let ends = [&a, &b];
    let mut out = Vec::new();
    let mut back = Vec::new();
    for (end, seed) in ends.iter().zip([1, 2]) {
        out.push(end.region(SIZE, seed)?);
        back.push(end.region(16 * SIZE, 0)?);
    }
    let slot = |id: u64| usize::try_from(id % 16).map(|s| s * SIZE);
    for (end, back) in ends.iter().zip(&back) {
        for id in 0..16 {
            let sge = back.slice(slot(id)?..slot(id)? + SIZE)?;
            end.qp.post_recv(&[RecvWr::new(id, &[sge])])?;
        }
    }
    let mut sent = [0u64; 2];
    let mut done = [0u64; 2];
    let mut received = [0u64; 2];
    wait_for("all messages", || {
        for (i, end) in ends.iter().enumerate() {
            while sent[i] < MESSAGES && sent[i] < done[i] + 8 {
                let sge = out[i].slice(..)?;
                end.qp
                    .post_send(&[SendWr::send(1000 + sent[i], &[sge]).signaled()])?;
                sent[i] += 1;
            }
            let mut room = [uverbs::Wc::default(); 8];
            for wc in end.cq.poll(&mut room)? {
                wc.ok()?;
                if wc.opcode().is_some_and(WcOpcode::is_recv) {
                    same("order of receives", wc.wr_id, received[i])?;
                    let at = slot(wc.wr_id)?;
                    let got = back[i].to_vec(at..at + SIZE)?;
                    same_bytes("message", &got, &out[1 - i].to_vec(..)?)?;
                    let next = wc.wr_id + 16;
                    let sge = back[i].slice(at..at + SIZE)?;
                    end.qp.post_recv(&[RecvWr::new(next, &[sge])])?;
                    received[i] += 1;
                } else {
                    same("order of sends", wc.wr_id, 1000 + done[i])?;
                    done[i] += 1;
                }
            }
        }
        Ok((done == [MESSAGES; 2] && received == [MESSAGES; 2]).then_some(()))
    })?;
    Ok(Verdict::Passed)
}

fn same_device() -> CaseResult {
    let (_, pd) = open("rxe0")?;
    let a = Shape::default().prepare(&pd)?;
    let b = Shape::default().prepare(&pd)?;
    ensure(a.qp.qp_num() != b.qp.qp_num(), "one number for two")?;
    connect(&a, &b, &ConnectOptions::default())?;
    let mut bench = Bench::new(a, b, 70_000)?;
    for op in OPS {
        for size in [0, 1, 4097, 65_537] {
            bench.round(op, size, 4)?;
        }
    }
    bench.quiet()?;
    Ok(Verdict::Passed)
}

/// A queue pair whose peer is itself. Two completion queues keep the two sides apart.
fn itself() -> CaseResult {
    let (context, pd) = open("rxe0")?;
    let send_cq = context.create_cq(64).build()?;
    let recv_cq = context.create_cq(64).build()?;
    let qp = pd
        .create_qp(&send_cq, &recv_cq)
        .max_send_sge(4)
        .max_recv_sge(4)
        .build()?;
    let endpoint = qp.prepare(&PathOptions::default())?;
    qp.connect(&endpoint, &endpoint, &ConnectOptions::default())?;
    let end = |cq: &CompletionQueue| End {
        context: context.clone(),
        pd: pd.clone(),
        cq: cq.clone(),
        qp: qp.clone(),
        endpoint,
    };
    let mut bench = Bench::new(end(&send_cq), end(&recv_cq), 10_000)?;
    for op in OPS {
        for size in [0, 5, 9000] {
            bench.round(op, size, 4)?;
        }
    }
    bench.quiet()?;
    Ok(Verdict::Passed)
}
