//! Send queues carried out: the requester's half, and the way to the peer.
//!
//! Ground truth: rxe's `rxe_req.c`, `rxe_resp.c`, `rxe_comp.c`. A request is carried out whole, in
//! the thread that rings the doorbell. One that finds its peer not ready, or no receive there,
//! waits; it is tried again whenever anything happens in the fabric, and
//! [`step`](super::Fabric::step) is one retry timer running out.

use uverbs_abi::Errno;
use uverbs_abi::layout::cmd::ib_uverbs_modify_qp;
use uverbs_abi::layout::event::IB_EVENT_SQ_DRAINED;
use uverbs_abi::layout::rxe::rxe_sge;
use uverbs_abi::layout::verbs::*;

use super::memory::Region;
use super::request::Request;
use super::world::{Id, Kind, World};

/// A stretch of registered memory.
#[derive(Clone, Copy, Debug)]
pub(super) struct Piece {
    pub(super) region: Region,
    pub(super) offset: usize,
    pub(super) len: usize,
}

/// What came of a request.
pub(super) enum Answer {
    /// Done; with the bytes that come back.
    Done(Vec<u8>),
    /// The peer refuses, or something is wrong here: the completion's status.
    Refused(u32),
    /// The peer has no receive.
    NoReceive,
    /// The peer is there and not ready yet.
    NotReady,
    /// Nobody answers.
    Silence,
    /// More RDMA READs or atomics than may be under way.
    Stalled,
}

/// Whether a queue pair can go on.
enum Step {
    Moved,
    Idle,
    Stuck(Answer),
}

impl World {
    /// The device that a GID leads to.
    pub(super) fn device_with(&self, gid: &[u8; 16]) -> Option<usize> {
        self.devices
            .iter()
            .position(|device| device.gids.iter().flatten().any(|own| own == gid))
    }

    /// POST_SEND without requests.
    pub(super) fn doorbell(&mut self, id: Id) -> Result<(), Errno> {
        let state = self.qps.get(&id).ok_or(Errno::EINVAL)?.state;
        match state {
            IB_QPS_RESET | IB_QPS_INIT | IB_QPS_RTR => return Err(Errno::EINVAL),
            IB_QPS_ERR => self.fail(id),
            _ => self.run(id),
        }
        Ok(())
    }

    /// Carries out what a queue pair can carry out now.
    pub(super) fn run(&mut self, id: Id) {
        loop {
            match self.attempt(id) {
                Step::Moved => {}
                Step::Idle => {
                    self.waiting.remove(&id);
                    return;
                }
                Step::Stuck(_) => {
                    self.waiting.insert(id);
                    return;
                }
            }
        }
    }

    /// Tries again whatever waits, until nothing moves any more.
    pub(super) fn settle(&mut self) {
        loop {
            let mut moved = false;
            for id in self.waiting.iter().copied().collect::<Vec<_>>() {
                let before = self.qps.get(&id).map(|qp| qp.send.waiting());
                self.run(id);
                moved |= before != self.qps.get(&id).map(|qp| qp.send.waiting());
            }
            if !moved {
                break;
            }
        }
        for file in self.files.values_mut() {
            for events in &mut file.asyncs {
                events.pump();
            }
            for channel in file.channels.values_mut() {
                channel.pump();
            }
        }
    }

    /// One retry timer of everything that waits runs out.
    pub(super) fn tick(&mut self) {
        for id in self.waiting.iter().copied().collect::<Vec<_>>() {
            let answer = match self.attempt(id) {
                Step::Stuck(answer) => answer,
                Step::Moved | Step::Idle => {
                    self.run(id);
                    continue;
                }
            };
            let Some(qp) = self.qps.get_mut(&id) else {
                continue;
            };
            let (limit, status) = match answer {
                Answer::NoReceive => (qp.attr.rnr_retry, IB_WC_RNR_RETRY_EXC_ERR),
                Answer::NotReady => (qp.attr.retry_cnt, IB_WC_RETRY_EXC_ERR),
                _ => continue,
            };
            // 7 is without end for receives that are not there, and a number for the rest.
            if status == IB_WC_RNR_RETRY_EXC_ERR && limit == 7 {
                continue;
            }
            qp.tries += 1;
            if qp.tries > u32::from(limit) {
                self.fail_send(id, status);
            }
        }
        self.settle();
    }

    /// The oldest send fails, and the queue pair with it.
    fn fail_send(&mut self, id: Id, status: u32) {
        if let Some(slot) = self.qps.get(&id).and_then(|qp| qp.send.head()) {
            self.complete_send(id, &Request::parse(&slot), status);
        }
        self.fail(id);
    }

    /// Tries the oldest send.
    fn attempt(&mut self, id: Id) -> Step {
        let Some(qp) = self.qps.get_mut(&id) else {
            return Step::Idle;
        };
        // In SQD what has begun is brought to its end, and nothing new begins.
        if !(qp.state == IB_QPS_RTS || qp.state == IB_QPS_SQD && qp.started) {
            return Step::Idle;
        }
        let Some(slot) = qp.send.head() else {
            return Step::Idle;
        };
        (qp.started, qp.is_underway) = (true, true);
        let rnr_retry = qp.attr.rnr_retry;
        let request = Request::parse(&slot);
        let answer = self.carry_out(id, &request);
        if let Some(qp) = self.qps.get_mut(&id) {
            qp.is_underway = false;
        }
        match answer {
            Answer::Done(back) => {
                let status = self.take_back(id, &request, &back);
                self.complete_send(id, &request, status);
                if status != IB_WC_SUCCESS {
                    self.fail(id);
                }
                self.note_drained(id);
            }
            Answer::Refused(status) => {
                self.complete_send(id, &request, status);
                self.fail(id);
            }
            Answer::Silence => {
                self.complete_send(id, &request, IB_WC_RETRY_EXC_ERR);
                self.fail(id);
            }
            Answer::NoReceive if rnr_retry == 0 || self.rnr_fails_at_once => {
                self.fail_send(id, IB_WC_RNR_RETRY_EXC_ERR);
            }
            stuck => return Step::Stuck(stuck),
        }
        Step::Moved
    }

    fn note_drained(&mut self, id: Id) {
        if let Some(qp) = self.qps.get_mut(&id)
            && qp.state == IB_QPS_SQD
            && !qp.drained
        {
            qp.drained = true;
            self.raise(Kind::Qp, id, IB_EVENT_SQ_DRAINED);
        }
    }

    /// The registration behind a key, if it allows the access to the range.
    pub(super) fn piece(
        &self,
        (device, pd): (usize, Id),
        (key, is_remote): (u32, bool),
        access: u32,
        (addr, len): (u64, u32),
    ) -> Option<Piece> {
        let mr = self.mrs.values().find(|mr| {
            let its = if is_remote { mr.rkey } else { mr.key };
            its == key && key != 0 && mr.device == device
        })?;
        let offset = usize::try_from(addr.checked_sub(mr.iova)?).ok()?;
        let len = usize::try_from(len).ok()?;
        let is_allowed = mr.pd == pd && mr.access & access == access;
        (is_allowed && mr.region.holds(offset, len)).then_some(Piece {
            region: mr.region,
            offset,
            len,
        })
    }

    /// The memory of a list of elements, or `None` if one of them may not be reached.
    pub(super) fn pieces(
        &self,
        at: (usize, Id),
        elements: &[rxe_sge],
        access: u32,
    ) -> Option<Vec<Piece>> {
        elements
            .iter()
            .filter(|element| element.length != 0)
            .map(|element| {
                let range = (element.addr, element.length);
                self.piece(at, (element.lkey, false), access, range)
            })
            .collect()
    }

    /// Reads what a request sends; `None` if its elements do not allow it.
    fn gather(&self, at: (usize, Id), request: &Request) -> Option<Vec<u8>> {
        if let Some(bytes) = request.inline() {
            return Some(bytes.to_vec());
        }
        let pieces = self.pieces(at, &request.elements()?, 0)?;
        let mut bytes = vec![0; pieces.iter().map(|piece| piece.len).sum()];
        let mut rest = bytes.as_mut_slice();
        for piece in pieces {
            let (now, later) = rest.split_at_mut(piece.len);
            piece.region.read(piece.offset, now);
            rest = later;
        }
        Some(bytes)
    }

    /// What came back goes to the elements of the request; gives the completion's status.
    fn take_back(&mut self, id: Id, request: &Request, bytes: &[u8]) -> u32 {
        if bytes.is_empty() {
            return IB_WC_SUCCESS;
        }
        let at = self.qps.get(&id).map(|qp| (qp.owner.device, qp.pd));
        let pieces = at
            .zip(request.elements())
            .and_then(|(at, elements)| self.pieces(at, &elements, IB_UVERBS_ACCESS_LOCAL_WRITE));
        match pieces {
            Some(pieces) => {
                scatter(&pieces, bytes);
                IB_WC_SUCCESS
            }
            None => IB_WC_LOC_PROT_ERR,
        }
    }

    /// Sends a request to the peer and lets the peer do it.
    fn carry_out(&mut self, id: Id, request: &Request) -> Answer {
        let Some(qp) = self.qps.get(&id) else {
            return Answer::Silence;
        };
        let (here, attr, number) = ((qp.owner.device, qp.pd), qp.attr, qp.number);
        let is_fetch = matches!(
            request.opcode(),
            IB_UVERBS_WR_RDMA_READ
                | IB_UVERBS_WR_ATOMIC_CMP_AND_SWP
                | IB_UVERBS_WR_ATOMIC_FETCH_AND_ADD
        );
        if is_fetch && attr.max_rd_atomic == 0 {
            return Answer::Stalled;
        }
        let payload = match is_fetch {
            true => Vec::new(),
            false => match self.gather(here, request) {
                Some(payload) => payload,
                None => return Answer::Refused(IB_WC_LOC_PROT_ERR),
            },
        };
        let peer = match self.find_peer(here.0, number, &attr) {
            Ok(peer) => peer,
            Err(answer) => return answer,
        };
        let answer = self.serve(peer, request, &payload);
        if let Answer::Done(_) = answer {
            // Both ends count packets; a READ's answer takes as many numbers as it has packets.
            let mtu = 128u32 << attr.path_mtu.min(IB_MTU_4096);
            let packets = request.length().div_ceil(mtu).max(1);
            let step = |psn: &mut u32| *psn = psn.wrapping_add(packets) & 0xFF_FFFF;
            if let Some(qp) = self.qps.get_mut(&id) {
                step(&mut qp.attr.sq_psn);
            }
            if let Some(qp) = self.qps.get_mut(&peer) {
                step(&mut qp.attr.rq_psn);
            }
        }
        answer
    }

    /// The queue pair at the other end, if it takes packets from this one.
    fn find_peer(
        &self,
        device: usize,
        number: u32,
        attr: &ib_uverbs_modify_qp,
    ) -> Result<Id, Answer> {
        let there = self.device_with(&attr.dest.dgid).ok_or(Answer::Silence)?;
        let is_up = |at: usize| {
            let device = self.devices.get(at);
            device.is_some_and(|device| device.is_up && !device.is_removed)
        };
        if !is_up(device) || !is_up(there) {
            return Err(Answer::Silence);
        }
        let mut qps = self.qps.iter();
        let found = qps.find(|(_, qp)| qp.owner.device == there && qp.number == attr.dest_qp_num);
        let (id, peer) = found.ok_or(Answer::Silence)?;
        match peer.state {
            IB_QPS_RESET | IB_QPS_INIT => return Err(Answer::NotReady),
            IB_QPS_ERR => return Err(Answer::Silence),
            _ => {}
        }
        // Packets of a stranger are dropped, and so are those that come out of order.
        let knows_us = peer.attr.dest_qp_num == number
            && self.device_with(&peer.attr.dest.dgid) == Some(device)
            && peer.attr.rq_psn == attr.sq_psn;
        if knows_us {
            Ok(*id)
        } else {
            Err(Answer::Silence)
        }
    }
}

/// Spreads bytes over memory, in order.
pub(super) fn scatter(pieces: &[Piece], bytes: &[u8]) {
    let mut rest = bytes;
    for piece in pieces {
        let (now, later) = rest.split_at(piece.len.min(rest.len()));
        piece.region.write(piece.offset, now);
        rest = later;
    }
}
