//! A kernel that is played: it makes queues of ordinary memory and answers as `rdma_rxe` does.
//!
//! Sizes and rules are those of `rxe_queue.c` and `rxe_qp.c`; what goes over the wire is up to the
//! test, which takes requests out of the queues and puts completions in.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use uverbs_providers::abi::command::Value;
use uverbs_providers::abi::layout::ids::{method, object};
use uverbs_providers::abi::{Command, Errno, Kernel, Mapping, Session};

use super::Queue;

/// rxe's number in `enum rdma_driver_id`.
pub const RXE: u32 = 14;

const MODIFY_QP: u64 = 26;
const QUERY_QP: u64 = 25;
const POST_SEND: u64 = 28;
const REQ_NOTIFY_CQ: u64 = 23;
const MODIFY_SRQ: u64 = 33;

/// How a doorbell came in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Via {
    Write,
    Ioctl,
}

/// The queues of a queue pair, as the kernel sees them.
#[derive(Clone, Debug)]
pub struct QpQueues {
    pub send: Queue,
    pub recv: Option<Queue>,
}

/// What the played kernel has in mind.
#[derive(Debug, Default)]
pub struct State {
    next: u32,
    offered: HashMap<u64, Queue>,
    /// What the next ioctls or writes answer, oldest first; `None` for as usual.
    pub script: VecDeque<Option<Errno>>,
    /// What every write() answers.
    pub write_fails: Option<Errno>,
    /// Whether the device has been removed.
    pub removed: bool,
    /// As 6.1 does: reports the sizes asked for instead of those granted.
    pub reports_as_asked: bool,
    /// Changes a queue before it is offered for mapping.
    pub spoil: Option<fn(&Queue)>,
    /// Offers queues under an offset that cannot be mapped.
    pub map_fails: bool,
    /// The state that a query gives.
    pub qp_state: u8,
    pub doorbells: Vec<(u32, Via)>,
    pub moved_to_error: Vec<u32>,
    pub queries: u32,
    pub armed: Vec<u32>,
    /// (limit, bytes of the driver's part) of each MODIFY_SRQ.
    pub limits: Vec<(u32, usize)>,
    pub cqs: HashMap<u32, Queue>,
    pub qps: HashMap<u32, QpQueues>,
    pub srqs: HashMap<u32, Queue>,
}

/// The played kernel.
#[derive(Debug, Default)]
pub struct Fake {
    state: Mutex<State>,
}

impl Fake {
    /// A kernel and an open device on it.
    pub fn open() -> (Arc<Self>, Arc<Session>) {
        let fake = Arc::new(Self::default());
        let session = Session::new(Arc::clone(&fake) as Arc<dyn Kernel>, RXE);
        (fake, Arc::new(session))
    }

    pub fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn cq(&self, handle: u32) -> Queue {
        self.state().cqs[&handle].clone()
    }

    pub fn qp(&self, handle: u32) -> QpQueues {
        self.state().qps[&handle].clone()
    }

    pub fn objects(&self) -> usize {
        let state = self.state();
        state.cqs.len() + state.qps.len() + state.srqs.len()
    }
}

fn input(command: &Command<'_>, id: u16) -> Vec<u8> {
    match command.entry(id).map(|entry| entry.value) {
        Some(Value::Inline { len, data }) => data[..usize::from(len)].to_vec(),
        Some(Value::In(bytes)) => bytes.to_vec(),
        other => panic!("attribute {id} is no input: {other:?}"),
    }
}

fn u32_in(command: &Command<'_>, id: u16) -> u32 {
    u32::from_ne_bytes(input(command, id)[..4].try_into().unwrap())
}

fn output(command: &mut Command<'_>, id: u16, bytes: &[u8]) {
    assert!(command.answer(id, bytes), "attribute {id} is no output");
}

fn object(command: &Command<'_>, id: u16) -> u32 {
    match command.entry(id).map(|entry| entry.value) {
        Some(Value::Object(handle)) => handle,
        other => panic!("attribute {id} names no object: {other:?}"),
    }
}

fn words(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_ne_bytes()).collect()
}

/// The logarithm of the bytes of an element, as the kernel rounds it.
fn log2_of(bytes: u32) -> u32 {
    bytes.next_power_of_two().max(64).trailing_zeros()
}

impl State {
    /// A queue for `asked` entries, and the bytes of its `struct mminfo`.
    fn offer(&mut self, asked: u32, log2: u32) -> (Queue, Vec<u8>) {
        let queue = Queue::new((asked + 1).next_power_of_two(), log2, 0);
        if let Some(spoil) = self.spoil {
            spoil(&queue);
        }
        self.next += 1;
        let offset = u64::from(self.next) << 12;
        if !self.map_fails {
            self.offered.insert(offset, queue.clone());
        }
        let mut info = offset.to_ne_bytes().to_vec();
        info.extend(words(&[u32::try_from(queue.len()).unwrap(), 0]));
        (queue, info)
    }

    fn new_handle(&mut self, command: &mut Command<'_>) -> u32 {
        self.next += 1;
        assert!(command.create_object(self.next), "it creates no object");
        self.next
    }

    fn create_cq(&mut self, command: &mut Command<'_>) {
        let asked = u32_in(command, 1);
        let (queue, info) = self.offer(asked, 6);
        output(command, 6, &queue.mask.to_ne_bytes());
        output(command, 0x1001, &info);
        let handle = self.new_handle(command);
        self.cqs.insert(handle, queue);
    }

    fn create_srq(&mut self, command: &mut Command<'_>) {
        let (wr, sge) = (u32_in(command, 5), u32_in(command, 6));
        let (queue, mut info) = self.offer(wr, log2_of(40 + sge * 16));
        info.extend(words(&[1, 0]));
        output(command, 11, &queue.mask.to_ne_bytes());
        output(command, 12, &sge.to_ne_bytes());
        output(command, 0x1001, &info);
        let handle = self.new_handle(command);
        self.srqs.insert(handle, queue);
    }

    fn create_qp(&mut self, command: &mut Command<'_>) {
        let caps: Vec<u32> = input(command, 8)
            .chunks_exact(4)
            .map(|bytes| u32::from_ne_bytes(bytes.try_into().unwrap()))
            .collect();
        let [send_wr, recv_wr, send_sge, recv_sge, inline] = caps[..] else {
            panic!()
        };
        let tail = (send_sge * 16).max(inline);
        let (send, sq_info) = self.offer(send_wr, log2_of(208 + tail));
        let has_srq = command.entry(3).is_some();
        let (recv, rq_info) = if has_srq {
            (None, vec![0; 16])
        } else {
            let (queue, info) = self.offer(recv_wr, log2_of(40 + recv_sge * 16));
            (Some(queue), info)
        };
        let granted = if self.reports_as_asked {
            [send_wr, recv_wr, tail / 16, recv_sge, inline]
        } else {
            let recv_wr = recv.as_ref().map_or(0, |queue| queue.mask);
            [send.mask, recv_wr, tail / 16, recv_sge, inline]
        };
        output(command, 13, &words(&granted));
        output(command, 0x1001, &[rq_info, sq_info].concat());
        let handle = self.new_handle(command);
        output(command, 14, &(handle + 1000).to_ne_bytes());
        self.qps.insert(handle, QpQueues { send, recv });
    }

    fn invoke_write(&mut self, command: &mut Command<'_>) -> Result<(), Errno> {
        let number = u64::from_ne_bytes(input(command, 2).try_into().unwrap());
        let request = input(command, 0);
        let word = |at: usize| u32::from_ne_bytes(request[at..at + 4].try_into().unwrap());
        match number {
            POST_SEND => {
                assert_eq!((word(12), word(16)), (0, 0), "an empty POST_SEND");
                self.doorbells.push((word(8), Via::Ioctl));
                output(command, 1, &[0; 4]);
            }
            MODIFY_QP => {
                // dest 32, alt_dest 32, then qp_handle, attr_mask (1 = state); qp_state at 96.
                assert_eq!((word(68), request[96]), (1, 6), "a move to ERR");
                self.moved_to_error.push(word(64));
            }
            QUERY_QP => {
                self.queries += 1;
                let mut response = [0; 128];
                // Only the state is looked at; the layout has golden bytes of its own.
                let at = std::mem::offset_of!(
                    uverbs_providers::abi::layout::cmd::ib_uverbs_query_qp_resp,
                    qp_state
                );
                response[at] = self.qp_state;
                output(command, 1, &response);
            }
            REQ_NOTIFY_CQ => self.armed.push(word(4)),
            MODIFY_SRQ => {
                let driver = input(command, 0x1000).len();
                if driver < 8 {
                    return Err(Errno::EINVAL);
                }
                self.limits.push((word(12), driver));
            }
            other => panic!("write command {other} is not played"),
        }
        Ok(())
    }
}

impl Kernel for Fake {
    fn ioctl(&self, driver: u32, command: &mut Command<'_>) -> Result<(), Errno> {
        assert_eq!(driver, RXE);
        let mut state = self.state();
        let which = (command.object_id(), command.method_id());
        let destroys = [
            (object::CQ, method::cq::DESTROY),
            (object::QP, method::qp::DESTROY),
            (object::SRQ, method::srq::DESTROY),
        ]
        .contains(&which);
        if let Some(Some(errno)) = state.script.pop_front() {
            return Err(errno);
        }
        if state.removed && !destroys {
            return Err(Errno::EIO);
        }
        match which {
            (object::DEVICE, method::device::INVOKE_WRITE) => return state.invoke_write(command),
            (object::DEVICE, method::device::QUERY_CONTEXT) => output(command, 0, &[1, 0, 0, 0]),
            (object::CQ, method::cq::CREATE) => state.create_cq(command),
            (object::QP, method::qp::CREATE) => state.create_qp(command),
            (object::SRQ, method::srq::CREATE) => state.create_srq(command),
            (object::CQ, method::cq::DESTROY) => {
                state.cqs.remove(&object(command, 0)).ok_or(Errno::ENOENT)?;
                output(command, 1, &words(&[2, 1]));
            }
            (object::QP, method::qp::DESTROY) => {
                state.qps.remove(&object(command, 0)).ok_or(Errno::ENOENT)?;
                output(command, 1, &words(&[3]));
            }
            (object::SRQ, method::srq::DESTROY) => {
                state
                    .srqs
                    .remove(&object(command, 0))
                    .ok_or(Errno::ENOENT)?;
                output(command, 1, &words(&[4]));
            }
            other => panic!("method {other:?} is not played"),
        }
        Ok(())
    }

    fn write(&self, frame: &mut [u8], response: &mut [u8]) -> Result<(), Errno> {
        let mut state = self.state();
        if let Some(errno) = state.write_fails {
            return Err(errno);
        }
        if state.removed {
            return Err(Errno::EIO);
        }
        assert_eq!((frame.len(), response.len()), (32, 4));
        assert_eq!(frame[..4], words(&[28])[..], "POST_SEND");
        state.doorbells.push((
            u32::from_ne_bytes(frame[16..20].try_into().unwrap()),
            Via::Write,
        ));
        Ok(())
    }

    fn map(&self, offset: u64, len: usize) -> Result<Mapping, Errno> {
        // Once, under the exact offset, and not more than there is.
        let queue = self.state().offered.remove(&offset).ok_or(Errno::EINVAL)?;
        if len > queue.len() {
            Err(Errno::EINVAL)
        } else {
            Ok(queue.mapping())
        }
    }
}
