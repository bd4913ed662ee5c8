//! The ioctl: which method, may it now, and the methods about the device, its ports and memory.
//!
//! Ground truth: the kernel's `uverbs_ioctl.c` for the order of the checks, `uverbs_cmd.c` for the
//! write commands, rxe's `rxe_verbs.c` and `rxe_param.h` for the limits.

use uverbs_abi::command::Command;
use uverbs_abi::layout::cmd::*;
use uverbs_abi::layout::driver::DriverId;
use uverbs_abi::layout::ids::attr;
use uverbs_abi::layout::verbs as raw;
use uverbs_abi::{Errno, legacy};
use zerocopy::FromBytes;

use super::call::Call;
use super::events::AsyncFile;
use super::memory::Region;
use super::spec::{self, Method};
use super::world::{Entry, Id, Kind, Mr, World};

/// Most completions of one queue.
pub(super) const MAX_CQE: u32 = 32_767;
/// Most requests of one queue.
pub(super) const MAX_WR: u32 = 1 << 20;
/// Most elements of one request.
pub(super) const MAX_SGE: u32 = 32;
/// Most elements of a request of a shared receive queue.
pub(super) const MAX_SRQ_SGE: u32 = 27;
/// Most bytes of inline data.
pub(super) const MAX_INLINE: u32 = 512;
/// Most RDMA READs and atomics under way.
pub(super) const MAX_RD_ATOMIC: u8 = 128;
const VECTORS: u32 = 1;
const EXTENDED: u32 = IB_USER_VERBS_CMD_FLAG_EXTENDED;

/// Rights that a peer can have.
const REMOTE: u32 = raw::IB_UVERBS_ACCESS_REMOTE_WRITE
    | raw::IB_UVERBS_ACCESS_REMOTE_READ
    | raw::IB_UVERBS_ACCESS_REMOTE_ATOMIC;

impl World {
    /// One ioctl of an open file.
    pub(super) fn ioctl(
        &mut self,
        at: (usize, Id),
        driver: u32,
        command: &mut Command<'_>,
    ) -> Result<(), Errno> {
        let is_bare = self.device(at.0)?.is_bare;
        let number = match is_bare {
            true => DriverId::Unknown,
            false => DriverId::Rxe,
        };
        if driver != number.to_raw() {
            return Err(Errno::EINVAL);
        }
        let found = spec::find(command.object_id(), command.method_id())
            .filter(|(method, _)| is_bare || !method.is_about_work_queues());
        let (method, specs) = found.ok_or(Errno::EPROTONOSUPPORT)?;
        let mut call = Call::new(command, specs)?;
        if self.device(at.0)?.is_removed && !method.is_destroy() {
            return Err(Errno::EIO);
        }
        if !self.file(at.1)?.has_context && method != Method::GetContext {
            return Err(Errno::EINVAL);
        }
        match method {
            Method::InvokeWrite => self.invoke_write(at, &mut call),
            Method::QueryPort => self.query_port(at.0, &mut call),
            Method::GetContext => self.get_context(at.1, &mut call),
            Method::QueryContext => {
                answer_context(&mut call);
                Ok(())
            }
            Method::QueryGidTable => self.query_gid_table(at.0, &mut call),
            Method::QueryGidEntry => self.query_gid_entry(at.0, &mut call),
            Method::AllocAsyncEvents => {
                let (file, user) = AsyncFile::new()?;
                self.file(at.1)?.asyncs.push(file);
                call.created_fd(user);
                Ok(())
            }
            Method::CreateCq => self.create_cq(at, &mut call),
            Method::CreateQp => self.create_qp(at, &mut call),
            Method::CreateSrq => self.create_srq(at, &mut call),
            Method::CreateWq => self.create_wq(at, &mut call),
            Method::DestroyPd => self.destroy(at.1, Kind::Pd, &mut call),
            Method::DestroyMr => self.destroy(at.1, Kind::Mr, &mut call),
            Method::DestroyCq => self.destroy(at.1, Kind::Cq, &mut call),
            Method::DestroyQp => self.destroy(at.1, Kind::Qp, &mut call),
            Method::DestroySrq => self.destroy(at.1, Kind::Srq, &mut call),
            Method::DestroyWq => self.destroy(at.1, Kind::Wq, &mut call),
        }
    }

    fn invoke_write(&mut self, at: (usize, Id), call: &mut Call<'_, '_>) -> Result<(), Errno> {
        let number: u64 = call.input(attr::invoke_write::WRITE_CMD.id())?;
        let number = u32::try_from(number).map_err(|_| Errno::EPROTONOSUPPORT)?;
        const QUERY_DEVICE: u32 = EXTENDED | IB_USER_VERBS_EX_CMD_QUERY_DEVICE;
        match number {
            QUERY_DEVICE => self.query_device(at.0, call),
            IB_USER_VERBS_CMD_CREATE_COMP_CHANNEL => self.create_comp_channel(at.1, call),
            IB_USER_VERBS_CMD_ALLOC_PD => self.alloc_pd(at.1, call),
            IB_USER_VERBS_CMD_REG_MR | IB_USER_VERBS_CMD_POST_SEND
                if self.device(at.0)?.is_bare =>
            {
                Err(Errno::EOPNOTSUPP)
            }
            IB_USER_VERBS_CMD_REG_MR => self.reg_mr(at, call),
            IB_USER_VERBS_CMD_MODIFY_QP => self.modify_qp(at, call),
            IB_USER_VERBS_CMD_QUERY_QP => self.query_qp(at.1, call),
            IB_USER_VERBS_CMD_QUERY_SRQ => self.query_srq(at.1, call),
            IB_USER_VERBS_CMD_MODIFY_SRQ => self.modify_srq(at.1, call),
            IB_USER_VERBS_CMD_REQ_NOTIFY_CQ => self.req_notify_cq(at.1, call),
            IB_USER_VERBS_CMD_POST_SEND => {
                call.needs_room::<ib_uverbs_post_send_resp>()?;
                self.post_send(at.1, &call.request()?)?;
                call.respond(&ib_uverbs_post_send_resp::default());
                Ok(())
            }
            _ => Err(Errno::EOPNOTSUPP),
        }
    }

    /// One `write()`: of the many commands only the doorbell is sent this way.
    pub(super) fn write(
        &mut self,
        at: (usize, Id),
        frame: &[u8],
        response: &mut [u8],
    ) -> Result<(), Errno> {
        if self.device(at.0)?.write_refused {
            return Err(Errno::EACCES);
        }
        let (header, body) =
            ib_uverbs_cmd_hdr::read_from_prefix(frame).map_err(|_| Errno::EINVAL)?;
        if usize::from(header.in_words) * 4 != frame.len() {
            return Err(Errno::EINVAL);
        }
        if self.device(at.0)?.is_removed {
            return Err(Errno::EIO);
        }
        if !self.file(at.1)?.has_context {
            return Err(Errno::EINVAL);
        }
        if header.command != IB_USER_VERBS_CMD_POST_SEND || self.device(at.0)?.is_bare {
            return Err(Errno::EOPNOTSUPP);
        }
        let room = usize::from(header.out_words) * 4;
        if room < legacy::DOORBELL_RESPONSE_LEN || response.len() < room {
            return Err(Errno::ENOSPC);
        }
        let (request, _) =
            ib_uverbs_post_send::read_from_prefix(body).map_err(|_| Errno::ENOSPC)?;
        self.post_send(at.1, &request)?;
        response.fill(0);
        Ok(())
    }

    fn post_send(&mut self, file: Id, request: &ib_uverbs_post_send) -> Result<(), Errno> {
        if request.wqe_size < IB_UVERBS_SEND_WR_SIZE {
            return Err(Errno::EINVAL);
        }
        let qp = self.lookup_write(file, Kind::Qp, request.qp_handle)?;
        if request.wr_count != 0 || request.sge_count != 0 {
            return Err(Errno::EINVAL);
        }
        self.doorbell(qp)
    }

    fn get_context(&mut self, file: Id, call: &mut Call<'_, '_>) -> Result<(), Errno> {
        let open = self.file(file)?;
        if open.has_context {
            return Err(Errno::EINVAL);
        }
        open.has_context = true;
        answer_context(call);
        Ok(())
    }

    fn alloc_pd(&mut self, file: Id, call: &mut Call<'_, '_>) -> Result<(), Errno> {
        call.needs_room::<ib_uverbs_alloc_pd_resp>()?;
        let id = self.new_id();
        let pd_handle = self.new_handle(file, Kind::Pd, id)?;
        self.pds.insert(id, file);
        call.respond(&ib_uverbs_alloc_pd_resp { pd_handle });
        Ok(())
    }

    fn reg_mr(&mut self, at: (usize, Id), call: &mut Call<'_, '_>) -> Result<(), Errno> {
        const PAGE: u64 = 4096;
        call.needs_room::<ib_uverbs_reg_mr_resp>()?;
        let request: ib_uverbs_reg_mr = call.request()?;
        let access = request.access_flags;
        let writes = raw::IB_UVERBS_ACCESS_REMOTE_WRITE | raw::IB_UVERBS_ACCESS_REMOTE_ATOMIC;
        let known = REMOTE | raw::IB_UVERBS_ACCESS_LOCAL_WRITE | raw::IB_UVERBS_ACCESS_MW_BIND;
        if request.start % PAGE != request.hca_va % PAGE
            || access & writes != 0 && access & raw::IB_UVERBS_ACCESS_LOCAL_WRITE == 0
        {
            return Err(Errno::EINVAL);
        }
        if access & !(known | raw::IB_UVERBS_ACCESS_OPTIONAL_RANGE) != 0 {
            return Err(Errno::EOPNOTSUPP);
        }
        let pd = self.lookup_write(at.1, Kind::Pd, request.pd_handle)?;
        let region = Region::new(request.start, request.length);
        let region = region
            .filter(|_| request.length != 0)
            .ok_or(Errno::EINVAL)?;
        let pinned: u64 = self
            .mrs
            .values()
            .filter(|mr| mr.device == at.0)
            .map(|mr| mr.length)
            .sum();
        let device = self.device(at.0)?;
        let limit = device.memlock.unwrap_or(u64::MAX);
        if pinned.saturating_add(request.length) > limit {
            return Err(Errno::ENOMEM);
        }
        device.next_key = device.next_key.wrapping_add(1);
        let key = device.next_key << 8 | u32::from(device.next_key.to_ne_bytes()[0]);
        let rkey = if access & REMOTE != 0 { key } else { 0 };
        let id = self.new_id();
        let mr_handle = self.new_handle(at.1, Kind::Mr, id)?;
        let mr = Mr {
            device: at.0,
            pd,
            region,
            iova: request.hca_va,
            length: request.length,
            access,
            key,
            rkey,
        };
        self.mrs.insert(id, mr);
        call.respond(&ib_uverbs_reg_mr_resp {
            mr_handle,
            lkey: key,
            rkey,
        });
        Ok(())
    }

    fn destroy(&mut self, file: Id, kind: Kind, call: &mut Call<'_, '_>) -> Result<(), Errno> {
        let handle = call
            .handle(attr::pd_destroy::HANDLE.id())
            .ok_or(Errno::EINVAL)?;
        let entry = self.file(file)?.handles.get(&handle).copied();
        let reported = match entry {
            Some(Entry::Ghost(found, reported)) if found == kind => reported,
            _ => {
                let id = self.lookup(file, kind, handle)?;
                if self.is_busy(kind, id) {
                    return Err(Errno::EBUSY);
                }
                self.take_away(kind, id)
            }
        };
        self.file(file)?.handles.remove(&handle);
        match kind {
            Kind::Pd | Kind::Mr => {}
            Kind::Cq => {
                let response = ib_uverbs_destroy_cq_resp {
                    comp_events_reported: reported.completion,
                    async_events_reported: reported.asynchronous,
                };
                call.answer(attr::cq_destroy::RESP.id(), &response);
            }
            Kind::Qp | Kind::Srq | Kind::Wq => {
                call.answer(attr::qp_destroy::RESP.id(), &reported.asynchronous);
            }
        }
        Ok(())
    }
}

fn answer_context(call: &mut Call<'_, '_>) {
    call.answer(attr::get_context::NUM_COMP_VECTORS.id(), &VECTORS);
    let support = raw::IB_UVERBS_CORE_SUPPORT_OPTIONAL_MR_ACCESS;
    call.answer(attr::get_context::CORE_SUPPORT.id(), &support);
}

/// Whether the device has a completion vector of this number.
pub(super) const fn has_vector(vector: u32) -> bool {
    vector < VECTORS
}
