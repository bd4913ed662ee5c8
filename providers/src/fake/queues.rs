//! Objects with queues: made as rxe makes them, mapped once, asked and changed.
//!
//! Ground truth: rxe's `rxe_cq.c`, `rxe_qp.c`, `rxe_srq.c`, `rxe_queue.c` and `rxe_mmap.c`.

use std::sync::Arc;

use uverbs_abi::layout::cmd::ib_uverbs_wc;
use uverbs_abi::layout::cmd::{
    ib_uverbs_modify_qp, ib_uverbs_modify_srq, ib_uverbs_query_srq, ib_uverbs_query_srq_resp,
};
use uverbs_abi::layout::ids::attr;
use uverbs_abi::layout::rxe::{
    mminfo, rxe_create_cq_resp, rxe_create_qp_resp, rxe_create_srq_resp, rxe_modify_srq_cmd,
    rxe_recv_wqe, rxe_send_wqe, rxe_sge,
};
use uverbs_abi::layout::verbs as raw;
use uverbs_abi::{Errno, Mapping};

use super::call::Call;
use super::control::{MAX_CQE, MAX_INLINE, MAX_SGE, MAX_SRQ_SGE, MAX_WR, has_vector};
use super::faults::Spoil;
use super::ring::Ring;
use super::world::{Cq, Id, Kind, Offer, Qp, Srq, World, Wq};

const SGE: usize = size_of::<rxe_sge>();
const PAGE: u64 = 4096;

fn bytes(count: u32) -> Result<usize, Errno> {
    usize::try_from(count).map_err(|_| Errno::EINVAL)
}

impl World {
    /// Offers a queue for mapping, under an offset that no queue has had before.
    fn offer(&mut self, at: (usize, Id), ring: &Ring) -> Result<mminfo, Errno> {
        let device = self.device(at.0)?;
        if device.is_bare {
            return Ok(mminfo::default());
        }
        let offset = device.next_offset;
        let pages = (ring.len() as u64).div_ceil(PAGE);
        device.next_offset += pages * PAGE;
        let mut size = u32::try_from(ring.len()).map_err(|_| Errno::EINVAL)?;
        let spoil = device.faults.spoil();
        match spoil {
            Some(Spoil::NoQueue) => size = 0,
            Some(spoil) => ring.spoil(spoil),
            None => {}
        }
        if spoil != Some(Spoil::Unmappable) {
            let words = Arc::clone(ring.words());
            device.offers.insert(offset, Offer { file: at.1, words });
        }
        Ok(mminfo {
            offset,
            size,
            pad: 0,
        })
    }

    /// rxe's own answers want room; a bare device has nothing to say.
    fn needs_driver_room<T>(&mut self, device: usize, call: &Call<'_, '_>) -> Result<(), Errno> {
        match self.device(device)?.is_bare {
            true => Ok(()),
            false => call.needs_driver_room::<T>(),
        }
    }

    /// `mmap()`: the exact offset, not more than there is, and once.
    pub(super) fn map(
        &mut self,
        at: (usize, Id),
        offset: u64,
        len: usize,
    ) -> Result<Mapping, Errno> {
        let device = self.device(at.0)?;
        if device.is_removed {
            return Err(Errno::EIO);
        }
        let fits = |offer: &&Offer| offer.file == at.1 && len <= size_of_val::<[_]>(&offer.words);
        device
            .offers
            .get(&offset)
            .filter(fits)
            .ok_or(Errno::EINVAL)?;
        let offer = device.offers.remove(&offset).ok_or(Errno::EINVAL)?;
        self.note_mapped(at.0, &offer.words);
        Ok(Mapping::Heap(offer.words))
    }

    pub(super) fn create_cq(
        &mut self,
        at: (usize, Id),
        call: &mut Call<'_, '_>,
    ) -> Result<(), Errno> {
        let depth: u32 = call.input(attr::cq_create::CQE.id())?;
        let token = call.input(attr::cq_create::USER_HANDLE.id())?;
        let vector = call.input(attr::cq_create::COMP_VECTOR.id())?;
        if depth == 0 || depth > MAX_CQE || !has_vector(vector) {
            return Err(Errno::EINVAL);
        }
        let channel = match call.fd(attr::cq_create::COMP_CHANNEL.id()) {
            Some(number) => Some(self.channel(at.1, number)?),
            None => None,
        };
        let owner = self.new_owner(at.0, at.1, call.fd(attr::cq_create::EVENT_FD.id()), token)?;
        self.needs_driver_room::<rxe_create_cq_resp>(at.0, call)?;
        let ring = Ring::new(depth, size_of::<ib_uverbs_wc>())?;
        let mi = self.offer(at, &ring)?;
        let id = self.new_id();
        let handle = self.new_handle(at.1, Kind::Cq, id)?;
        call.created(handle);
        call.answer(attr::cq_create::RESP_CQE.id(), &ring.capacity());
        call.answer(attr::uhw::OUT.id(), &rxe_create_cq_resp { mi });
        let cq = Cq {
            owner,
            ring,
            channel,
            armed: (false, false),
            told: 0,
            held: Vec::new(),
        };
        self.cqs.insert(id, cq);
        Ok(())
    }

    pub(super) fn create_srq(
        &mut self,
        at: (usize, Id),
        call: &mut Call<'_, '_>,
    ) -> Result<(), Errno> {
        let pd = call
            .handle(attr::srq_create::PD_HANDLE.id())
            .ok_or(Errno::EINVAL)?;
        let pd = self.lookup(at.1, Kind::Pd, pd)?;
        let token = call.input(attr::srq_create::USER_HANDLE.id())?;
        let max_wr: u32 = call.input(attr::srq_create::MAX_WR.id())?;
        let max_sge: u32 = call.input(attr::srq_create::MAX_SGE.id())?;
        let limit: u32 = call.input(attr::srq_create::LIMIT.id())?;
        let kind: u64 = call.input(attr::srq_create::TYPE.id())?;
        if kind != u64::from(raw::IB_UVERBS_SRQT_BASIC) {
            return Err(Errno::EOPNOTSUPP);
        }
        if max_wr == 0 || max_wr > MAX_WR || max_sge > MAX_SRQ_SGE || limit > max_wr {
            return Err(Errno::EINVAL);
        }
        let owner = self.new_owner(at.0, at.1, call.fd(attr::srq_create::EVENT_FD.id()), token)?;
        self.needs_driver_room::<rxe_create_srq_resp>(at.0, call)?;
        let max_sge = max_sge.max(1);
        let ring = Ring::new(max_wr, size_of::<rxe_recv_wqe>() + bytes(max_sge)? * SGE)?;
        let mi = self.offer(at, &ring)?;
        let id = self.new_id();
        let handle = self.new_handle(at.1, Kind::Srq, id)?;
        let srq_num = 0x2_0001 + handle;
        call.created(handle);
        call.answer(attr::srq_create::RESP_MAX_WR.id(), &ring.capacity());
        call.answer(attr::srq_create::RESP_MAX_SGE.id(), &max_sge);
        call.answer(attr::srq_create::RESP_SRQ_NUM.id(), &srq_num);
        let response = rxe_create_srq_resp {
            mi,
            srq_num,
            reserved: 0,
        };
        call.answer(attr::uhw::OUT.id(), &response);
        let srq = Srq {
            owner,
            pd,
            ring,
            max_sge,
            limit,
        };
        self.srqs.insert(id, srq);
        Ok(())
    }

    pub(super) fn create_qp(
        &mut self,
        at: (usize, Id),
        call: &mut Call<'_, '_>,
    ) -> Result<(), Errno> {
        let object = |world: &Self, kind, id| match call.handle(id) {
            Some(handle) => world.lookup(at.1, kind, handle).map(Some),
            None => Ok(None),
        };
        let pd = object(self, Kind::Pd, attr::qp_create::PD_HANDLE.id())?.ok_or(Errno::EINVAL)?;
        let send_cq = object(self, Kind::Cq, attr::qp_create::SEND_CQ_HANDLE.id())?;
        let recv_cq = object(self, Kind::Cq, attr::qp_create::RECV_CQ_HANDLE.id())?;
        let srq = object(self, Kind::Srq, attr::qp_create::SRQ_HANDLE.id())?;
        let (send_cq, recv_cq) = send_cq.zip(recv_cq).ok_or(Errno::EINVAL)?;
        let asked: raw::ib_uverbs_qp_cap = call.input(attr::qp_create::CAP.id())?;
        let kind: u64 = call.input(attr::qp_create::TYPE.id())?;
        let token = call.input(attr::qp_create::USER_HANDLE.id())?;
        let flags: u32 = match call.has(attr::qp_create::FLAGS.id()) {
            true => call.input(attr::qp_create::FLAGS.id())?,
            false => 0,
        };
        if kind != u64::from(raw::IB_UVERBS_QPT_RC) {
            return Err(Errno::EOPNOTSUPP);
        }
        let too_much = asked.max_send_wr > MAX_WR
            || asked.max_send_sge > MAX_SGE
            || asked.max_inline_data > MAX_INLINE
            || srq.is_none() && (asked.max_recv_wr > MAX_WR || asked.max_recv_sge > MAX_SGE);
        if too_much {
            return Err(Errno::EINVAL);
        }
        let owner = self.new_owner(at.0, at.1, call.fd(attr::qp_create::EVENT_FD.id()), token)?;
        self.needs_driver_room::<rxe_create_qp_resp>(at.0, call)?;
        // Elements and inline data share their place, so more of one gives more of the other.
        let tail = (bytes(asked.max_send_sge)? * SGE).max(bytes(asked.max_inline_data)?);
        let send = Ring::new(asked.max_send_wr, size_of::<rxe_send_wqe>() + tail)?;
        let sq_mi = self.offer(at, &send)?;
        let mut caps = raw::ib_uverbs_qp_cap {
            max_send_wr: send.capacity(),
            max_send_sge: u32::try_from(tail / SGE).unwrap_or_default(),
            max_inline_data: u32::try_from(tail).unwrap_or_default(),
            ..asked
        };
        let (recv, rq_mi) = if srq.is_some() {
            (None, mminfo::default())
        } else {
            let slot = size_of::<rxe_recv_wqe>() + bytes(asked.max_recv_sge)? * SGE;
            let ring = Ring::new(asked.max_recv_wr, slot)?;
            caps.max_recv_wr = ring.capacity();
            let mi = self.offer(at, &ring)?;
            (Some(ring), mi)
        };
        let device = self.device(at.0)?;
        let number = device.next_qpn;
        device.next_qpn = if number >= 0x2_0000 { 17 } else { number + 1 };
        let id = self.new_id();
        let handle = self.new_handle(at.1, Kind::Qp, id)?;
        call.created(handle);
        call.answer(attr::qp_create::RESP_CAP.id(), &caps);
        call.answer(attr::qp_create::RESP_QP_NUM.id(), &number);
        call.answer(attr::uhw::OUT.id(), &rxe_create_qp_resp { rq_mi, sq_mi });
        let qp = Qp {
            owner,
            number,
            pd,
            send_cq,
            recv_cq,
            srq,
            caps,
            signal_all: flags & raw::IB_UVERBS_QP_CREATE_SQ_SIG_ALL != 0,
            state: raw::IB_QPS_RESET,
            attr: ib_uverbs_modify_qp::default(),
            send,
            recv,
            started: false,
            is_underway: false,
            tries: 0,
            drained: false,
        };
        self.qps.insert(id, qp);
        Ok(())
    }

    pub(super) fn create_wq(
        &mut self,
        at: (usize, Id),
        call: &mut Call<'_, '_>,
    ) -> Result<(), Errno> {
        let pd = call
            .handle(attr::wq_create::PD_HANDLE.id())
            .ok_or(Errno::EINVAL)?;
        let pd = self.lookup(at.1, Kind::Pd, pd)?;
        let cq = call
            .handle(attr::wq_create::CQ_HANDLE.id())
            .ok_or(Errno::EINVAL)?;
        let cq = self.lookup(at.1, Kind::Cq, cq)?;
        let token = call.input(attr::wq_create::USER_HANDLE.id())?;
        let max_wr: u32 = call.input(attr::wq_create::MAX_WR.id())?;
        let max_sge: u32 = call.input(attr::wq_create::MAX_SGE.id())?;
        let kind: u64 = call.input(attr::wq_create::TYPE.id())?;
        if kind != u64::from(raw::IB_UVERBS_WQT_RQ) || max_wr == 0 || max_wr > MAX_WR {
            return Err(Errno::EINVAL);
        }
        let owner = self.new_owner(at.0, at.1, call.fd(attr::wq_create::EVENT_FD.id()), token)?;
        let id = self.new_id();
        let handle = self.new_handle(at.1, Kind::Wq, id)?;
        let wq_num = 0x3_0001 + handle;
        call.created(handle);
        call.answer(attr::wq_create::RESP_MAX_WR.id(), &max_wr);
        call.answer(attr::wq_create::RESP_MAX_SGE.id(), &max_sge);
        call.answer(attr::wq_create::RESP_WQ_NUM.id(), &wq_num);
        self.wqs.insert(id, Wq { owner, pd, cq });
        Ok(())
    }

    pub(super) fn query_srq(&mut self, file: Id, call: &mut Call<'_, '_>) -> Result<(), Errno> {
        call.needs_room::<ib_uverbs_query_srq_resp>()?;
        let request: ib_uverbs_query_srq = call.request()?;
        let id = self.lookup_write(file, Kind::Srq, request.srq_handle)?;
        let srq = self.srqs.get(&id).ok_or(Errno::EINVAL)?;
        call.respond(&ib_uverbs_query_srq_resp {
            max_wr: srq.ring.capacity(),
            max_sge: srq.max_sge,
            srq_limit: srq.limit,
            reserved: 0,
        });
        Ok(())
    }

    pub(super) fn modify_srq(&mut self, file: Id, call: &mut Call<'_, '_>) -> Result<(), Errno> {
        let request: ib_uverbs_modify_srq = call.request()?;
        let id = self.lookup_write(file, Kind::Srq, request.srq_handle)?;
        let srq = self.srqs.get_mut(&id).ok_or(Errno::EINVAL)?;
        let is_bare = self
            .devices
            .get(srq.owner.device)
            .is_some_and(|device| device.is_bare);
        // rxe wants its part even where only the limit changes.
        if !is_bare && call.driver_in() < size_of::<rxe_modify_srq_cmd>() {
            return Err(Errno::EINVAL);
        }
        if request.attr_mask & raw::IB_SRQ_MAX_WR != 0 {
            return Err(Errno::EOPNOTSUPP);
        }
        if request.attr_mask & raw::IB_SRQ_LIMIT != 0 {
            if request.srq_limit > srq.ring.capacity() {
                return Err(Errno::EINVAL);
            }
            srq.limit = request.srq_limit;
        }
        Ok(())
    }
}
