//! What the examples of event loops share: a queue pair that sends to itself, with its completions on
//! a channel; on the device that is named, or else on the fake kernel.

use std::error::Error;

use uverbs::fake::Fabric;
use uverbs::{
    AccessFlags, Arm, AsyncEvent, AsyncEventKind, AsyncEvents, CompletionChannel, CompletionEvent,
    CompletionQueue, ConnectOptions, Context, MemoryRegion, PathOptions, QpAttr, QpState,
    QueuePair, Rc, RecvWr, SendWr, Wc,
};

/// Any failure: an example says it and ends.
pub(crate) type Result<T> = std::result::Result<T, Box<dyn Error>>;

const MESSAGES: u64 = 5;

/// Sends itself a few messages, and then stops its send queue, which makes an asynchronous event.
pub(crate) struct Talk {
    pub(crate) channel: CompletionChannel,
    pub(crate) events: AsyncEvents,
    cq: CompletionQueue,
    qp: QueuePair<Rc>,
    region: MemoryRegion,
}

impl Talk {
    pub(crate) fn start(device: Option<String>) -> Result<Self> {
        let context = match device {
            Some(name) => Context::open(&name)?,
            None => Fabric::new().add_device("fake0").open()?,
        };
        let pd = context.alloc_pd()?;
        let channel = context.create_completion_channel()?;
        let cq = context.create_cq(16).channel(&channel, 0).build()?;
        let qp = pd.create_qp::<Rc>(&cq, &cq).build()?;
        let here = qp.prepare(&PathOptions::default())?;
        qp.connect(&here, &here, &ConnectOptions::default())?;
        let talk = Self {
            region: pd.allocate(64, AccessFlags::LOCAL_WRITE)?,
            events: context.events(),
            channel,
            cq,
            qp,
        };
        // Armed before the first message goes, so that its completion is told.
        talk.cq.arm(Arm::Next)?;
        talk.send(1)?;
        Ok(talk)
    }

    fn send(&self, number: u64) -> Result<()> {
        self.qp
            .post_recv(&[RecvWr::new(number, &[self.region.slice(32..)?])])?;
        self.qp
            .post_send(&[SendWr::send(number, &[self.region.slice(..32)?]).signaled()])?;
        Ok(())
    }

    /// Deals with a completion event: arms the queue again, then empties it, so that nothing that
    /// comes in between is slept through.
    pub(crate) fn on_completion(&self, event: CompletionEvent) -> Result<()> {
        event.cq().arm(Arm::Next)?;
        let mut room = [Wc::default(); 4];
        loop {
            let found = event.cq().poll(&mut room)?;
            if found.is_empty() {
                return Ok(());
            }
            for completion in found.iter() {
                let number = completion.ok()?.wr_id;
                if completion.opcode().is_some_and(uverbs::WcOpcode::is_recv) {
                    println!("message {number} has come");
                    continue;
                }
                println!("message {number} is sent");
                if number < MESSAGES {
                    self.send(number + 1)?;
                } else {
                    self.qp.modify(&QpAttr::to_state(QpState::Sqd))?;
                }
            }
        }
        // Dropping the event acks it.
    }

    /// Deals with an asynchronous event; true at the end of the talk.
    pub(crate) fn on_event(&self, event: &AsyncEvent) -> bool {
        println!("{} on {}", event.kind(), event.subject());
        event.kind() == AsyncEventKind::SqDrained
    }
}
