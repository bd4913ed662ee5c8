//! Two threads, or two processes, at one object: what went wrong once, and must not again.

#![allow(unsafe_code, reason = "fork")]
#![allow(clippy::unwrap_used, reason = "a test may fail")]

mod support;

use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Condvar, Mutex, mpsc};
use std::time::{Duration, Instant};

use support::{Pair, pair};
use uverbs::abi::{Command, Kernel, Mapping};
use uverbs::fake::Fabric;
use uverbs::{
    AccessFlags, ConnectOptions, Context, Errno, PathOptions, PollError, PostCause, QpAttr,
    QpState, Rc, RecvWr, RemoteAddr, Rkey, SendWr, Wc,
};

/// How long anything may take that must not wait.
const SOON: Duration = Duration::from_secs(5);

/// A kernel that takes its time over the next MODIFY_QP.
#[derive(Debug)]
struct Slow {
    inner: Arc<dyn Kernel>,
    is_slow: AtomicBool,
    asked: Flag,
    go: Flag,
}

#[derive(Debug, Default)]
struct Flag(Mutex<bool>, Condvar);

impl Flag {
    fn raise(&self) {
        *self.0.lock().unwrap() = true;
        self.1.notify_all();
    }

    fn wait(&self) {
        drop(
            self.1
                .wait_while(self.0.lock().unwrap(), |raised| !*raised)
                .unwrap(),
        );
    }
}

impl Slow {
    fn context(fabric: &Fabric) -> (Arc<Self>, Context) {
        let slow = Arc::new(Self {
            inner: fabric.add_device("rxe0").kernel(),
            is_slow: AtomicBool::new(false),
            asked: Flag::default(),
            go: Flag::default(),
        });
        let kernel: Arc<dyn Kernel> = Arc::clone(&slow) as _;
        let context = Context::on_kernel(kernel, "rxe0", Path::new("/dev/null"), 2).unwrap();
        (slow, context)
    }
}

impl Kernel for Slow {
    fn ioctl(&self, driver: u32, command: &mut Command<'_>) -> Result<(), Errno> {
        let result = self.inner.ioctl(driver, command);
        if command.name() == "MODIFY_QP" && self.is_slow.swap(false, Ordering::SeqCst) {
            self.asked.raise();
            self.go.wait();
        }
        result
    }

    fn write(&self, frame: &mut [u8], response: &mut [u8]) -> Result<(), Errno> {
        self.inner.write(frame, response)
    }

    fn map(&self, offset: u64, len: usize) -> Result<Mapping, Errno> {
        self.inner.map(offset, len)
    }
}

#[test]
#[cfg_attr(miri, ignore = "Miri cannot fork")]
fn a_forked_child_is_refused_whatever_lock_its_parent_held() {
    let context = Fabric::new().add_device("rxe0").open().unwrap();
    let pd = context.alloc_pd().unwrap();
    let stop = Arc::new(AtomicBool::new(false));
    let worker = std::thread::spawn({
        let (context, pd, stop) = (context.clone(), pd.clone(), Arc::clone(&stop));
        move || {
            while !stop.load(Ordering::SeqCst) {
                drop(context.create_cq(1).build().unwrap());
                drop(pd.create_srq(1).build().unwrap());
            }
        }
    });
    for round in 0..300 {
        // SAFETY: the child makes two calls that must not wait for a lock, and ends with `_exit`.
        let child = unsafe { libc::fork() };
        assert!(child >= 0);
        if child == 0 {
            let refused =
                context.create_cq(1).build().is_err() && pd.create_srq(1).build().is_err();
            // SAFETY: ends the child, running nothing of the parent's.
            unsafe { libc::_exit(i32::from(!refused)) };
        }
        let (start, mut status) = (Instant::now(), 0);
        // SAFETY: `status` is a place for one number.
        while unsafe { libc::waitpid(child, &raw mut status, libc::WNOHANG) } != child {
            if start.elapsed() > SOON {
                // SAFETY: a signal to our own child.
                unsafe { libc::kill(child, libc::SIGKILL) };
                panic!("a child hung in round {round}");
            }
            std::thread::yield_now();
        }
        assert_eq!(status, 0, "round {round}");
    }
    stop.store(true, Ordering::SeqCst);
    worker.join().unwrap();
}

#[test]
fn a_poll_does_not_wait_for_a_connect() {
    let fabric = Fabric::new();
    let (kernel, context) = Slow::context(&fabric);
    let pd = context.alloc_pd().unwrap();
    let cq = context.create_cq(8).build().unwrap();
    let [qp, other] = [(); 2].map(|()| pd.create_qp::<Rc>(&cq, &cq).build().unwrap());
    let near = qp.prepare(&PathOptions::default()).unwrap();
    let far = other.prepare(&PathOptions::default()).unwrap();
    qp.connect(&near, &far, &ConnectOptions::default()).unwrap();
    other
        .connect(&far, &near, &ConnectOptions::default())
        .unwrap();
    let region = pd.allocate(64, AccessFlags::LOCAL_WRITE).unwrap();
    let sges = [region.slice(..).unwrap()];
    qp.post_recv(&[RecvWr::new(1, &sges)]).unwrap();
    let nowhere = RemoteAddr {
        addr: 1,
        rkey: Rkey(77),
    };
    qp.post_send(&[SendWr::read(2, &sges, nowhere)]).unwrap();
    // It has failed, and nobody has polled it. It is brought back, which takes long.
    qp.modify(&QpAttr::to_state(QpState::Reset)).unwrap();
    let near = qp.prepare(&PathOptions::default()).unwrap();
    kernel.is_slow.store(true, Ordering::SeqCst);
    let connector = std::thread::spawn(move || qp.connect(&near, &far, &ConnectOptions::default()));
    kernel.asked.wait();
    let (tell, told) = mpsc::channel();
    std::thread::spawn(move || {
        let mut room = [Wc::default(); 4];
        tell.send(cq.poll(&mut room).unwrap().len()).unwrap();
    });
    let polled = told.recv_timeout(SOON);
    kernel.go.raise();
    assert!(
        polled.is_ok_and(|count| count > 0),
        "the poll waited for another's MODIFY_QP"
    );
    connector.join().unwrap().unwrap();
}

#[test]
fn a_receive_posted_while_the_move_to_err_is_under_way_comes_back() {
    let fabric = Fabric::new();
    let (kernel, context) = Slow::context(&fabric);
    let pd = context.alloc_pd().unwrap();
    let cq = context.create_cq(8).build().unwrap();
    let qp = pd.create_qp::<Rc>(&cq, &cq).build().unwrap();
    qp.prepare(&PathOptions::default()).unwrap();
    let region = pd.allocate(64, AccessFlags::LOCAL_WRITE).unwrap();
    kernel.is_slow.store(true, Ordering::SeqCst);
    let mover = std::thread::spawn({
        let qp = qp.clone();
        move || qp.modify(&QpAttr::to_state(QpState::Err))
    });
    kernel.asked.wait();
    qp.post_recv(&[RecvWr::new(1, &[region.slice(..).unwrap()])])
        .unwrap();
    kernel.go.raise();
    mover.join().unwrap().unwrap();
    assert_eq!(cq.poll(&mut [Wc::default(); 4]).unwrap().len(), 1);
}

#[test]
fn a_receive_queue_given_back_after_a_failure_is_flushed() {
    let Pair {
        fabric: _fabric,
        a,
        b,
    } = pair();
    let long = a.pd.allocate(64, AccessFlags::LOCAL_WRITE).unwrap();
    let short = b.pd.allocate(4, AccessFlags::LOCAL_WRITE).unwrap();
    let mut exclusive = a.qp.exclusive_recv().unwrap();
    b.qp.post_recv(&[RecvWr::new(5, &[short.slice(..).unwrap()])])
        .unwrap();
    // Too long for the receive: the queue pair fails by itself, and nobody knows yet.
    let sges = [long.slice(..).unwrap()];
    a.qp.post_send(&[SendWr::send(1, &sges).signaled()])
        .unwrap();
    exclusive.post_recv(&[RecvWr::new(7, &sges)]).unwrap();
    let mut found = a.completions();
    drop(exclusive);
    found.extend(a.completions());
    assert!(found.iter().any(|(wr_id, _)| *wr_id == 7), "{found:?}");
}

#[test]
fn queue_pairs_made_crosswise_do_not_wait_for_each_other() {
    let context = Fabric::new().add_device("rxe0").open().unwrap();
    let pd = context.alloc_pd().unwrap();
    let [a, b] = [(); 2].map(|()| context.create_cq(8).build().unwrap());
    // Keeps the kernel from granting the destroys below.
    let _user = pd.create_qp::<Rc>(&a, &b).build().unwrap();
    let rounds = if cfg!(miri) { 3 } else { 2000 };
    let done = Arc::new(AtomicU32::new(0));
    let mut threads = Vec::new();
    for (send, recv) in [(a.clone(), b.clone()), (b.clone(), a.clone())] {
        let (pd, done) = (pd.clone(), Arc::clone(&done));
        threads.push(std::thread::spawn(move || {
            for _ in 0..rounds {
                drop(pd.create_qp::<Rc>(&send, &recv).build().unwrap());
            }
            done.fetch_add(1, Ordering::SeqCst);
        }));
    }
    for mut cq in [a, b] {
        let done = Arc::clone(&done);
        threads.push(std::thread::spawn(move || {
            while done.load(Ordering::SeqCst) < 2 {
                cq = cq.destroy().unwrap_err().into_object().unwrap();
            }
        }));
    }
    let start = Instant::now();
    while threads.iter().any(|thread| !thread.is_finished()) {
        assert!(
            start.elapsed() < Duration::from_secs(60),
            "they wait for each other"
        );
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
#[cfg_attr(miri, ignore = "Miri ends where an allocator refuses")]
fn a_length_that_somebody_else_chose_is_refused() {
    let context = Fabric::new().add_device("rxe0").open().unwrap();
    let pd = context.alloc_pd().unwrap();
    let refused = pd.allocate(1 << 62, AccessFlags::LOCAL_WRITE).unwrap_err();
    assert_eq!(refused.cause, uverbs::RegisterErrorCause::NoMemory);
    assert!(refused.buffer.is_none());
}

#[test]
#[cfg_attr(miri, ignore = "leaks a buffer, as it must")]
fn what_was_registered_without_a_word_is_leaked() {
    let device = Fabric::new().add_device("rxe0");
    let context = device.open().unwrap();
    let pd = context.alloc_pd().unwrap();
    device.leave_unanswered("REG_MR");
    let refused = pd
        .register(vec![1u8; 64], AccessFlags::LOCAL_WRITE)
        .unwrap_err();
    assert!(refused.buffer.is_none(), "{refused}");
    assert_eq!(context.leaked_bytes(), 64);
}

#[test]
#[cfg_attr(miri, ignore = "a great many devices")]
fn with_more_open_devices_than_can_be_told_apart_at_once_all_goes_on() {
    let fabric = Fabric::new();
    let open = |n| fabric.add_device(&format!("more{n}")).open().unwrap();
    let open: Vec<Context> = (0..600).map(open).collect();
    let Pair { a, b, .. } = pair();
    let mut room = [Wc::default(); 4];
    let wr = || SendWr::send_inline(1, &[]).signaled();
    for _ in 0..3 {
        b.qp.post_recv(&[RecvWr::new(2, &[])]).unwrap();
        a.qp.post_send(&[wr()]).unwrap();
        assert_eq!(a.cq.poll(&mut room).unwrap().len(), 1);
        assert!(a.cq.poll(&mut room).unwrap().is_empty());
    }
    a.device.remove();
    let refused = a.qp.post_send(&[wr()]).unwrap_err();
    assert_eq!(refused.cause, PostCause::DeviceGone);
    assert_eq!(a.cq.poll(&mut room), Err(PollError::DeviceGone));
    drop(open);
}
