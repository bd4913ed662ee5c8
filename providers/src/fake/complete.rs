//! Completions, and what becomes of a queue pair that fails.
//!
//! Ground truth: rxe's `rxe_cq.c` (`rxe_cq_post`), `rxe_comp.c`, `rxe_resp.c`.

use uverbs_abi::layout::cmd::ib_uverbs_wc;
use uverbs_abi::layout::event::{IB_EVENT_CQ_ERR, IB_EVENT_QP_LAST_WQE_REACHED};
use uverbs_abi::layout::verbs::{IB_QPS_ERR, IB_WC_SUCCESS, IB_WC_WR_FLUSH_ERR};

use super::request::{Receive, Request};
use super::world::{Id, Kind, World};

impl World {
    /// Puts a completion into a queue. False if there was no room: it is lost then, and the queue
    /// says so with an event. Solicited are receives alone, as their sender marked them: for rxe
    /// neither a send nor a failure is.
    pub(super) fn post(&mut self, cq: Id, completion: ib_uverbs_wc, is_solicited: bool) -> bool {
        let Some(queue) = self.cqs.get_mut(&cq) else {
            return true;
        };
        if let Some(device) = self.devices.get_mut(queue.owner.device) {
            let faults = &mut device.faults;
            if faults.lose > 0 {
                faults.lose -= 1;
                return true;
            }
            if faults.hold {
                queue.held.push((completion, is_solicited));
                return true;
            }
        }
        let words: [u64; size_of::<ib_uverbs_wc>() / 8] = zerocopy::transmute!(completion);
        let fits = queue.ring.push(&words);
        if fits {
            self.tell(cq, is_solicited);
        } else {
            self.raise(Kind::Cq, cq, IB_EVENT_CQ_ERR);
        }
        fits
    }

    /// Lets the completions of a device go that were held back.
    pub(super) fn release_completions(&mut self, device: usize) {
        let of_device = |(_, queue): &(&Id, &mut super::world::Cq)| queue.owner.device == device;
        let held: Vec<_> = self
            .cqs
            .iter_mut()
            .filter(of_device)
            .map(|(id, queue)| (*id, std::mem::take(&mut queue.held)))
            .collect();
        for (id, completions) in held {
            for (completion, is_solicited) in completions {
                self.post(id, completion, is_solicited);
            }
        }
    }

    /// The oldest send is done, one way or the other.
    pub(super) fn complete_send(&mut self, id: Id, request: &Request, status: u32) {
        let Some(qp) = self.qps.get_mut(&id) else {
            return;
        };
        (qp.started, qp.tries) = (false, 0);
        qp.send.advance();
        let (cq, qp_num) = (qp.send_cq, qp.number);
        if qp.signal_all || request.is_signaled() || status != IB_WC_SUCCESS {
            let failed = ib_uverbs_wc {
                wr_id: request.wr_id(),
                status,
                qp_num,
                ..Default::default()
            };
            let completion = match status {
                IB_WC_SUCCESS => ib_uverbs_wc {
                    opcode: request.completion_opcode(),
                    byte_len: request.length(),
                    wc_flags: request.completion_flags(),
                    ..failed
                },
                _ => failed,
            };
            // A send whose completion finds no room goes on all the same.
            self.post(cq, completion, false);
        }
    }

    /// The queue pair goes to the error state, if it is not there already: what is queued is
    /// flushed.
    pub(super) fn fail(&mut self, id: Id) {
        let Some(qp) = self.qps.get_mut(&id) else {
            return;
        };
        qp.state = IB_QPS_ERR;
        self.waiting.remove(&id);
        if qp.is_underway {
            // It is its own peer, and has refused the request: that one ends first, with what came of
            // it, and then `attempt` comes here again.
            return;
        }
        while let Some(request) = self.qps.get(&id).and_then(|qp| qp.send.head()) {
            self.complete_send(id, &Request::parse(&request), IB_WC_WR_FLUSH_ERR);
        }
        let Some(qp) = self.qps.get_mut(&id) else {
            return;
        };
        if qp.srq.is_some() {
            self.raise(Kind::Qp, id, IB_EVENT_QP_LAST_WQE_REACHED);
            return;
        }
        let (cq, qp_num) = (qp.recv_cq, qp.number);
        let mut flushed = Vec::new();
        while let Some(recv) = &mut qp.recv {
            let Some(slot) = recv.head() else { break };
            flushed.push(Receive::parse(&slot).wr_id());
            recv.advance();
        }
        for wr_id in flushed {
            let completion = ib_uverbs_wc {
                wr_id,
                status: IB_WC_WR_FLUSH_ERR,
                qp_num,
                ..Default::default()
            };
            self.post(cq, completion, false);
        }
    }
}
