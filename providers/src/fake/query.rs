//! What a device and its port say of themselves.
//!
//! Ground truth: rxe's `rxe_param.h` for the numbers, the kernel's `uverbs_std_types_device.c`.

use uverbs_abi::Errno;
use uverbs_abi::layout::cmd::{
    ib_uverbs_ex_query_device, ib_uverbs_ex_query_device_resp, ib_uverbs_query_device_resp,
    ib_uverbs_query_port_resp,
};
use uverbs_abi::layout::ids::attr;
use uverbs_abi::layout::verbs as raw;
use zerocopy::IntoBytes;

use super::call::Call;
use super::control::{MAX_CQE, MAX_RD_ATOMIC, MAX_SGE, MAX_SRQ_SGE, MAX_WR};
use super::world::World;

/// Entries of a port's GID table.
const GID_TABLE: usize = 1024;
pub(super) const ENODATA: Errno = Errno::from_raw(61);

impl World {
    pub(super) fn query_device(
        &mut self,
        device: usize,
        call: &mut Call<'_, '_>,
    ) -> Result<(), Errno> {
        let request: ib_uverbs_ex_query_device = call.request()?;
        if request.comp_mask != 0 || request.reserved != 0 || call.driver_in() != 0 {
            return Err(Errno::EINVAL);
        }
        let room = call.room(attr::invoke_write::CORE_OUT.id());
        if room < size_of::<ib_uverbs_query_device_resp>() + 8 {
            return Err(Errno::ENOSPC);
        }
        let number = u8::try_from(device + 1).unwrap_or(u8::MAX);
        let flags = raw::IB_UVERBS_DEVICE_PORT_ACTIVE_EVENT
            | raw::IB_UVERBS_DEVICE_SYS_IMAGE_GUID
            | raw::IB_UVERBS_DEVICE_RC_RNR_NAK_GEN;
        let len = size_of::<ib_uverbs_ex_query_device_resp>().min(room);
        let response = ib_uverbs_ex_query_device_resp {
            base: ib_uverbs_query_device_resp {
                node_guid: [2, 0, 0, 0xff, 0xfe, 0, 0, number],
                sys_image_guid: [2, 0, 0, 0xff, 0xfe, 0, 0, number],
                max_mr_size: u64::MAX,
                page_size_cap: 0xffff_f000,
                vendor_id: 0x00ff_ffff,
                max_qp: MAX_WR,
                max_qp_wr: MAX_WR,
                device_cap_flags: u32::try_from(flags).unwrap_or_default(),
                max_sge: MAX_SGE,
                max_sge_rd: MAX_SGE,
                max_cq: MAX_WR,
                max_cqe: MAX_CQE,
                max_mr: 1 << 19,
                max_pd: MAX_WR,
                max_qp_rd_atom: u32::from(MAX_RD_ATOMIC),
                max_res_rd_atom: 258_048,
                max_qp_init_rd_atom: u32::from(MAX_RD_ATOMIC),
                atomic_cap: raw::IB_ATOMIC_HCA,
                max_srq: MAX_WR,
                max_srq_wr: MAX_WR,
                max_srq_sge: MAX_SRQ_SGE,
                max_pkeys: 64,
                local_ca_ack_delay: 15,
                phys_port_cnt: 1,
                ..Default::default()
            },
            response_length: u32::try_from(len).unwrap_or_default(),
            device_cap_flags_ex: flags,
            max_wq_type_rq: MAX_WR,
            ..Default::default()
        };
        call.respond(&response);
        Ok(())
    }

    pub(super) fn query_port(
        &mut self,
        device: usize,
        call: &mut Call<'_, '_>,
    ) -> Result<(), Errno> {
        let port: u64 = call.input(attr::query_port::PORT_NUM.id())?;
        if port != 1 {
            return Err(Errno::EINVAL);
        }
        let device = self.device(device)?;
        let (state, phys_state) = if device.is_up {
            (raw::IB_PORT_ACTIVE, raw::IB_PORT_PHYS_STATE_LINK_UP)
        } else {
            (raw::IB_PORT_DOWN, raw::IB_PORT_PHYS_STATE_DISABLED)
        };
        let response = raw::ib_uverbs_query_port_resp_ex {
            legacy_resp: ib_uverbs_query_port_resp {
                port_cap_flags: raw::IB_UVERBS_PCF_CM_SUP | raw::IB_UVERBS_PCF_IP_BASED_GIDS,
                max_msg_sz: 0x80_0000,
                gid_tbl_len: u32::try_from(GID_TABLE).unwrap_or_default(),
                pkey_tbl_len: 1,
                state,
                max_mtu: raw::IB_MTU_4096,
                active_mtu: device.mtu,
                max_vl_num: 1,
                active_width: raw::IB_WIDTH_1X,
                active_speed: 1,
                phys_state,
                link_layer: raw::IB_LINK_LAYER_ETHERNET,
                flags: raw::IB_UVERBS_QPF_GRH_REQUIRED,
                ..Default::default()
            },
            active_speed_ex: raw::IB_SPEED_SDR,
            ..Default::default()
        };
        call.answer(attr::query_port::RESP.id(), &response);
        Ok(())
    }

    pub(super) fn query_gid_table(
        &mut self,
        device: usize,
        call: &mut Call<'_, '_>,
    ) -> Result<(), Errno> {
        const ENTRY: usize = size_of::<raw::ib_uverbs_gid_entry>();
        let entry_size: u64 = call.input(attr::query_gid_table::ENTRY_SIZE.id())?;
        if usize::try_from(entry_size) != Ok(ENTRY) {
            return Err(Errno::EINVAL);
        }
        let gids = &self.device(device)?.gids;
        let entries: Vec<_> = (0..)
            .zip(gids)
            .filter_map(|(at, gid)| Some((at, (*gid)?)))
            .collect();
        if entries.len() * ENTRY > call.room(attr::query_gid_table::RESP_ENTRIES.id()) {
            return Err(Errno::EINVAL);
        }
        let entries: Vec<_> = entries
            .iter()
            .map(|(at, gid)| gid_entry(device, *at, *gid))
            .collect();
        call.answer(attr::query_gid_table::RESP_ENTRIES.id(), entries.as_bytes());
        let count = entries.len() as u64;
        call.answer(attr::query_gid_table::RESP_NUM_ENTRIES.id(), &count);
        Ok(())
    }

    pub(super) fn query_gid_entry(
        &mut self,
        device: usize,
        call: &mut Call<'_, '_>,
    ) -> Result<(), Errno> {
        let port: u64 = call.input(attr::query_gid_entry::PORT.id())?;
        let index: u64 = call.input(attr::query_gid_entry::GID_INDEX.id())?;
        let at = usize::try_from(index).unwrap_or(usize::MAX);
        if port != 1 || at >= GID_TABLE {
            return Err(Errno::EINVAL);
        }
        let gid = self
            .device(device)?
            .gids
            .get(at)
            .copied()
            .flatten()
            .ok_or(ENODATA)?;
        let index = u32::try_from(index).map_err(|_| Errno::EINVAL)?;
        call.answer(
            attr::query_gid_entry::RESP_ENTRY.id(),
            &gid_entry(device, index, gid),
        );
        Ok(())
    }
}

fn gid_entry(device: usize, gid_index: u32, gid: [u8; 16]) -> raw::ib_uverbs_gid_entry {
    raw::ib_uverbs_gid_entry {
        gid,
        gid_index,
        port_num: 1,
        gid_type: raw::IB_UVERBS_GID_TYPE_ROCE_V2,
        netdev_ifindex: u32::try_from(device + 2).unwrap_or_default(),
    }
}
