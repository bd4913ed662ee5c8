//! MODIFY_QP and QUERY_QP: which transition takes which attributes, and what a transition does.
//!
//! Ground truth: `qp_state_table` in the kernel's `drivers/infiniband/core/verbs.c`, its rows for
//! RC; rxe's `rxe_qp.c`. Written apart from the crate's own table, so that each can show a mistake
//! of the other.

use uverbs_abi::Errno;
use uverbs_abi::layout::cmd::{ib_uverbs_modify_qp, ib_uverbs_query_qp, ib_uverbs_query_qp_resp};
use uverbs_abi::layout::event::IB_EVENT_SQ_DRAINED;
use uverbs_abi::layout::verbs::*;

use super::call::Call;
use super::control::MAX_RD_ATOMIC;
use super::query::ENODATA;
use super::world::{Id, Kind, World};

const PSN: u32 = 0xFF_FFFF;

/// From, to, what it needs, what it takes beside that.
type Row = (u8, u8, u32, u32);

const MIGRATION: u32 = IB_QP_ALT_PATH | IB_QP_PATH_MIG_STATE;

const ROWS: &[Row] = &[
    (IB_QPS_RESET, IB_QPS_RESET, 0, 0),
    (
        IB_QPS_RESET,
        IB_QPS_INIT,
        IB_QP_PKEY_INDEX | IB_QP_PORT | IB_QP_ACCESS_FLAGS,
        0,
    ),
    (IB_QPS_INIT, IB_QPS_RESET, 0, 0),
    (IB_QPS_INIT, IB_QPS_ERR, 0, 0),
    (
        IB_QPS_INIT,
        IB_QPS_INIT,
        0,
        IB_QP_PKEY_INDEX | IB_QP_PORT | IB_QP_ACCESS_FLAGS,
    ),
    (
        IB_QPS_INIT,
        IB_QPS_RTR,
        IB_QP_AV
            | IB_QP_PATH_MTU
            | IB_QP_DEST_QPN
            | IB_QP_RQ_PSN
            | IB_QP_MAX_DEST_RD_ATOMIC
            | IB_QP_MIN_RNR_TIMER,
        IB_QP_ALT_PATH | IB_QP_ACCESS_FLAGS | IB_QP_PKEY_INDEX,
    ),
    (IB_QPS_RTR, IB_QPS_RESET, 0, 0),
    (IB_QPS_RTR, IB_QPS_ERR, 0, 0),
    (
        IB_QPS_RTR,
        IB_QPS_RTS,
        IB_QP_TIMEOUT | IB_QP_RETRY_CNT | IB_QP_RNR_RETRY | IB_QP_SQ_PSN | IB_QP_MAX_QP_RD_ATOMIC,
        IB_QP_CUR_STATE | IB_QP_ACCESS_FLAGS | IB_QP_MIN_RNR_TIMER | MIGRATION,
    ),
    (IB_QPS_RTS, IB_QPS_RESET, 0, 0),
    (IB_QPS_RTS, IB_QPS_ERR, 0, 0),
    (
        IB_QPS_RTS,
        IB_QPS_RTS,
        0,
        IB_QP_CUR_STATE | IB_QP_ACCESS_FLAGS | IB_QP_MIN_RNR_TIMER | MIGRATION,
    ),
    (IB_QPS_RTS, IB_QPS_SQD, 0, IB_QP_EN_SQD_ASYNC_NOTIFY),
    (IB_QPS_SQD, IB_QPS_RESET, 0, 0),
    (IB_QPS_SQD, IB_QPS_ERR, 0, 0),
    (
        IB_QPS_SQD,
        IB_QPS_RTS,
        0,
        IB_QP_CUR_STATE | IB_QP_ACCESS_FLAGS | IB_QP_MIN_RNR_TIMER | MIGRATION,
    ),
    (
        IB_QPS_SQD,
        IB_QPS_SQD,
        0,
        IB_QP_PORT
            | IB_QP_AV
            | IB_QP_TIMEOUT
            | IB_QP_RETRY_CNT
            | IB_QP_RNR_RETRY
            | IB_QP_MAX_QP_RD_ATOMIC
            | IB_QP_MAX_DEST_RD_ATOMIC
            | IB_QP_ACCESS_FLAGS
            | IB_QP_PKEY_INDEX
            | IB_QP_MIN_RNR_TIMER
            | MIGRATION,
    ),
    (IB_QPS_SQE, IB_QPS_RESET, 0, 0),
    (IB_QPS_SQE, IB_QPS_ERR, 0, 0),
    (IB_QPS_SQE, IB_QPS_RTS, 0, 0),
    (IB_QPS_ERR, IB_QPS_RESET, 0, 0),
    (IB_QPS_ERR, IB_QPS_ERR, 0, 0),
];

/// Whether the core lets a change through.
fn is_allowed(from: u8, to: u8, mask: u32) -> bool {
    let moving = [IB_QPS_RTR, IB_QPS_RTS, IB_QPS_SQD, IB_QPS_SQE];
    if mask & IB_QP_CUR_STATE != 0 && !moving.contains(&from) {
        return false;
    }
    ROWS.iter().any(|(start, end, needs, takes)| {
        (*start, *end) == (from, to)
            && mask & needs == *needs
            && mask & !(needs | takes | IB_QP_STATE) == 0
    })
}

impl World {
    pub(super) fn modify_qp(
        &mut self,
        at: (usize, Id),
        call: &mut Call<'_, '_>,
    ) -> Result<(), Errno> {
        let request: ib_uverbs_modify_qp = call.request()?;
        let mask = request.attr_mask;
        let has = |bit| mask & bit != 0;
        let id = self.lookup_write(at.1, Kind::Qp, request.qp_handle)?;
        if has(!IB_QP_ATTR_STANDARD_BITS) {
            return Err(Errno::EOPNOTSUPP);
        }
        if has(IB_QP_PORT) && request.port_num != 1
            || has(IB_QP_AV) && request.dest.port_num != 1
            || has(IB_QP_CUR_STATE) && request.cur_qp_state > IB_QPS_ERR
            || has(IB_QP_STATE) && request.qp_state > IB_QPS_ERR
        {
            return Err(Errno::EINVAL);
        }
        let state = self.qps.get(&id).ok_or(Errno::EINVAL)?.state;
        let from = if has(IB_QP_CUR_STATE) {
            request.cur_qp_state
        } else {
            state
        };
        let to = if has(IB_QP_STATE) {
            request.qp_state
        } else {
            from
        };
        let device = self.device(at.0)?;
        let (mtu, gids) = (device.mtu, device.gids.clone());
        let is_wrong = !is_allowed(from, to, mask)
            || has(IB_QP_PKEY_INDEX) && request.pkey_index != 0
            || has(IB_QP_MAX_QP_RD_ATOMIC) && request.max_rd_atomic > MAX_RD_ATOMIC
            || has(IB_QP_PATH_MTU) && !(IB_MTU_256..=mtu).contains(&request.path_mtu)
            || has(IB_QP_TIMEOUT) && request.timeout > 31;
        if is_wrong {
            return Err(Errno::EINVAL);
        }
        if has(IB_QP_AV) {
            let own = gids.get(usize::from(request.dest.sgid_index));
            if request.dest.is_global == 0 {
                return Err(Errno::EINVAL);
            }
            own.ok_or(Errno::EINVAL)?.ok_or(ENODATA)?;
            // The core looks the peer's network address up; nobody of that name answers.
            if self.device_with(&request.dest.dgid).is_none() {
                return Err(Errno::ETIMEDOUT);
            }
        }
        self.apply(id, &request, to);
        Ok(())
    }

    /// Makes a change that has been found right.
    fn apply(&mut self, id: Id, request: &ib_uverbs_modify_qp, to: u8) {
        let Some(qp) = self.qps.get_mut(&id) else {
            return;
        };
        let mask = request.attr_mask;
        let attr = &mut qp.attr;
        macro_rules! take {
            ($($bit:ident: $field:ident),+ $(,)?) => {$(
                if mask & $bit != 0 {
                    attr.$field = request.$field;
                }
            )+};
        }
        take! {
            IB_QP_ACCESS_FLAGS: qp_access_flags,
            IB_QP_PKEY_INDEX: pkey_index,
            IB_QP_PORT: port_num,
            IB_QP_QKEY: qkey,
            IB_QP_AV: dest,
            IB_QP_PATH_MTU: path_mtu,
            IB_QP_TIMEOUT: timeout,
            IB_QP_RETRY_CNT: retry_cnt,
            IB_QP_RNR_RETRY: rnr_retry,
            IB_QP_RQ_PSN: rq_psn,
            IB_QP_MAX_QP_RD_ATOMIC: max_rd_atomic,
            IB_QP_MIN_RNR_TIMER: min_rnr_timer,
            IB_QP_SQ_PSN: sq_psn,
            IB_QP_MAX_DEST_RD_ATOMIC: max_dest_rd_atomic,
            IB_QP_PATH_MIG_STATE: path_mig_state,
            IB_QP_DEST_QPN: dest_qp_num,
        }
        attr.rq_psn &= PSN;
        attr.sq_psn &= PSN;
        if mask & IB_QP_STATE == 0 {
            return;
        }
        let before = std::mem::replace(&mut qp.state, to);
        match to {
            IB_QPS_RESET => {
                qp.send.wipe();
                if let Some(recv) = &mut qp.recv {
                    recv.wipe();
                }
                (qp.started, qp.tries) = (false, 0);
                self.waiting.remove(&id);
            }
            IB_QPS_SQD if before == IB_QPS_RTS => {
                qp.drained = !qp.started;
                if qp.drained {
                    self.raise(Kind::Qp, id, IB_EVENT_SQ_DRAINED);
                }
            }
            IB_QPS_RTS => self.run(id),
            IB_QPS_ERR => self.fail(id),
            _ => {}
        }
    }

    pub(super) fn query_qp(&mut self, file: Id, call: &mut Call<'_, '_>) -> Result<(), Errno> {
        call.needs_room::<ib_uverbs_query_qp_resp>()?;
        let request: ib_uverbs_query_qp = call.request()?;
        let id = self.lookup_write(file, Kind::Qp, request.qp_handle)?;
        let qp = self.qps.get(&id).ok_or(Errno::EINVAL)?;
        let attr = &qp.attr;
        call.respond(&ib_uverbs_query_qp_resp {
            dest: attr.dest,
            max_send_wr: qp.caps.max_send_wr,
            max_recv_wr: qp.caps.max_recv_wr,
            max_send_sge: qp.caps.max_send_sge,
            max_recv_sge: qp.caps.max_recv_sge,
            max_inline_data: qp.caps.max_inline_data,
            qkey: attr.qkey,
            rq_psn: attr.rq_psn,
            sq_psn: attr.sq_psn,
            dest_qp_num: attr.dest_qp_num,
            qp_access_flags: attr.qp_access_flags,
            pkey_index: attr.pkey_index,
            qp_state: qp.state,
            cur_qp_state: qp.state,
            path_mtu: attr.path_mtu,
            path_mig_state: attr.path_mig_state,
            sq_draining: u8::from(qp.state == IB_QPS_SQD && !qp.drained),
            max_rd_atomic: attr.max_rd_atomic,
            max_dest_rd_atomic: attr.max_dest_rd_atomic,
            min_rnr_timer: attr.min_rnr_timer,
            port_num: attr.port_num,
            timeout: attr.timeout,
            retry_cnt: attr.retry_cnt,
            rnr_retry: attr.rnr_retry,
            sq_sig_all: u8::from(qp.signal_all),
            ..Default::default()
        });
        Ok(())
    }
}
