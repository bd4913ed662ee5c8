//! The responder's half of a request: what a peer lets be done to its memory and its receives.
//!
//! Ground truth: rxe's `rxe_resp.c`, the order of its checks and what each failure is called at
//! either end. A request that is refused takes the responder's queue pair to the error state too.

use uverbs_abi::layout::cmd::ib_uverbs_wc;
use uverbs_abi::layout::event::IB_EVENT_SRQ_LIMIT_REACHED;
use uverbs_abi::layout::verbs::*;

use super::request::{Receive, Request};
use super::wire::{Answer, scatter};
use super::world::{Id, Kind, World};

impl World {
    /// The responder's half.
    pub(super) fn serve(&mut self, peer: Id, request: &Request, payload: &[u8]) -> Answer {
        let Some(qp) = self.qps.get(&peer) else {
            return Answer::Silence;
        };
        let at = (qp.owner.device, qp.pd);
        let needs = match request.opcode() {
            IB_UVERBS_WR_SEND | IB_UVERBS_WR_SEND_WITH_IMM => 0,
            IB_UVERBS_WR_RDMA_WRITE | IB_UVERBS_WR_RDMA_WRITE_WITH_IMM => {
                IB_UVERBS_ACCESS_REMOTE_WRITE
            }
            IB_UVERBS_WR_RDMA_READ => IB_UVERBS_ACCESS_REMOTE_READ,
            IB_UVERBS_WR_ATOMIC_CMP_AND_SWP | IB_UVERBS_WR_ATOMIC_FETCH_AND_ADD => {
                IB_UVERBS_ACCESS_REMOTE_ATOMIC
            }
            _ => return Answer::Refused(IB_WC_LOC_QP_OP_ERR),
        };
        let serves = qp.attr.max_dest_rd_atomic;
        if qp.attr.qp_access_flags & needs != needs {
            self.fail(peer);
            return Answer::Refused(IB_WC_REM_INV_REQ_ERR);
        }
        match request.opcode() {
            IB_UVERBS_WR_SEND | IB_UVERBS_WR_SEND_WITH_IMM => {
                self.serve_send(peer, at, request, payload)
            }
            IB_UVERBS_WR_RDMA_WRITE | IB_UVERBS_WR_RDMA_WRITE_WITH_IMM => {
                self.serve_write(peer, at, request, payload)
            }
            _ if serves == 0 => {
                self.fail(peer);
                Answer::Refused(IB_WC_REM_INV_REQ_ERR)
            }
            IB_UVERBS_WR_RDMA_READ => self.serve_read(peer, at, request),
            _ => self.serve_atomic(peer, at, request),
        }
    }

    fn serve_send(
        &mut self,
        peer: Id,
        at: (usize, Id),
        request: &Request,
        payload: &[u8],
    ) -> Answer {
        let Some(receive) = self.take_receive(peer) else {
            return Answer::NoReceive;
        };
        let fits = payload.len() as u64 <= u64::from(receive.length());
        let pieces = receive
            .elements()
            .and_then(|elements| self.pieces(at, &elements, IB_UVERBS_ACCESS_LOCAL_WRITE));
        if let Some(pieces) = pieces.filter(|_| fits) {
            scatter(&pieces, payload);
            return self.complete_receive(peer, &receive, request, IB_WC_RECV);
        }
        // rxe does not tell a message that is too long from one that it may not store.
        self.refuse_receive(peer, &receive, request, IB_WC_LOC_QP_OP_ERR);
        Answer::Refused(IB_WC_REM_OP_ERR)
    }

    fn serve_write(
        &mut self,
        peer: Id,
        at: (usize, Id),
        request: &Request,
        payload: &[u8],
    ) -> Answer {
        let receive = if request.opcode() == IB_UVERBS_WR_RDMA_WRITE_WITH_IMM {
            match self.take_receive(peer) {
                None => return Answer::NoReceive,
                receive => receive,
            }
        } else {
            None
        };
        // Nothing written needs no key.
        if !payload.is_empty() {
            let target = request.rdma();
            let range = (target.remote_addr, request.length());
            let access = IB_UVERBS_ACCESS_REMOTE_WRITE;
            match self.piece(at, (target.rkey, true), access, range) {
                Some(piece) => scatter(&[piece], payload),
                None => {
                    match &receive {
                        Some(receive) => {
                            self.refuse_receive(peer, receive, request, IB_WC_REM_ACCESS_ERR);
                        }
                        None => self.fail(peer),
                    }
                    return Answer::Refused(IB_WC_REM_ACCESS_ERR);
                }
            }
        }
        match receive {
            Some(receive) => {
                self.complete_receive(peer, &receive, request, IB_WC_RECV_RDMA_WITH_IMM)
            }
            None => Answer::Done(Vec::new()),
        }
    }

    fn serve_read(&mut self, peer: Id, at: (usize, Id), request: &Request) -> Answer {
        if request.length() == 0 {
            return Answer::Done(Vec::new());
        }
        let source = request.rdma();
        let range = (source.remote_addr, request.length());
        let access = IB_UVERBS_ACCESS_REMOTE_READ;
        let Some(piece) = self.piece(at, (source.rkey, true), access, range) else {
            self.fail(peer);
            return Answer::Refused(IB_WC_REM_ACCESS_ERR);
        };
        let mut bytes = vec![0; piece.len];
        piece.region.read(piece.offset, &mut bytes);
        Answer::Done(bytes)
    }

    fn serve_atomic(&mut self, peer: Id, at: (usize, Id), request: &Request) -> Answer {
        let atomic = request.atomic();
        let range = (atomic.remote_addr, 8);
        let access = IB_UVERBS_ACCESS_REMOTE_ATOMIC;
        let piece = self.piece(at, (atomic.rkey, true), access, range);
        let status = match piece {
            Some(_) if !atomic.remote_addr.is_multiple_of(8) => IB_WC_REM_INV_REQ_ERR,
            Some(piece) => {
                let is_add = request.opcode() == IB_UVERBS_WR_ATOMIC_FETCH_AND_ADD;
                let before = piece.region.update(piece.offset, |old| match is_add {
                    true => old.wrapping_add(atomic.compare_add),
                    false if old == atomic.compare_add => atomic.swap,
                    false => old,
                });
                return Answer::Done(before.to_ne_bytes().to_vec());
            }
            None => IB_WC_REM_ACCESS_ERR,
        };
        self.fail(peer);
        Answer::Refused(status)
    }

    /// Takes the oldest receive of a queue pair.
    fn take_receive(&mut self, peer: Id) -> Option<Receive> {
        let qp = self.qps.get_mut(&peer)?;
        if let Some(id) = qp.srq {
            let srq = self.srqs.get_mut(&id)?;
            let receive = Receive::parse(&srq.ring.head()?);
            srq.ring.advance();
            if srq.limit != 0 && srq.ring.waiting() < srq.limit {
                srq.limit = 0;
                self.raise(Kind::Srq, id, IB_EVENT_SRQ_LIMIT_REACHED);
            }
            return Some(receive);
        }
        let recv = qp.recv.as_mut()?;
        let receive = Receive::parse(&recv.head()?);
        recv.advance();
        Some(receive)
    }

    fn complete_receive(
        &mut self,
        peer: Id,
        receive: &Receive,
        request: &Request,
        opcode: u32,
    ) -> Answer {
        let Some(qp) = self.qps.get(&peer) else {
            return Answer::Silence;
        };
        let has_immediate = request.completion_flags();
        let completion = ib_uverbs_wc {
            wr_id: receive.wr_id(),
            status: IB_WC_SUCCESS,
            opcode,
            byte_len: request.length(),
            ex: if has_immediate != 0 {
                request.immediate()
            } else {
                [0; 4]
            },
            qp_num: qp.number,
            wc_flags: IB_WC_GRH | has_immediate,
            port_num: qp.attr.port_num,
            ..Default::default()
        };
        if self.post(qp.recv_cq, completion, request.is_solicited()) {
            Answer::Done(Vec::new())
        } else {
            // No room for the completion: the queue pair fails, and its peer hears nothing.
            self.fail(peer);
            Answer::Silence
        }
    }

    /// A receive that could not take its message completes with an error; the queue pair fails.
    fn refuse_receive(&mut self, peer: Id, receive: &Receive, request: &Request, status: u32) {
        if let Some(qp) = self.qps.get(&peer) {
            let completion = ib_uverbs_wc {
                wr_id: receive.wr_id(),
                status,
                qp_num: qp.number,
                ..Default::default()
            };
            self.post(qp.recv_cq, completion, request.is_solicited());
        }
        self.fail(peer);
    }
}
