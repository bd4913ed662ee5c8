//! Completion channels: which completion is told, and to whom.
//!
//! Ground truth: `rxe_cq_post` and `rxe_req_notify_cq` of rxe, `ib_uverbs_comp_handler` and
//! `ib_uverbs_free_event_queue` of uverbs. To be armed twice is to be armed once, for either kind;
//! arming says nothing of what is in the queue already; telling disarms it.

use uverbs_abi::Errno;
use uverbs_abi::layout::cmd::{ib_uverbs_create_comp_channel_resp, ib_uverbs_req_notify_cq};

use super::call::Call;
use super::events::ChannelFile;
use super::world::{Id, Kind, World};

impl World {
    pub(super) fn create_comp_channel(
        &mut self,
        file: Id,
        call: &mut Call<'_, '_>,
    ) -> Result<(), Errno> {
        call.needs_room::<ib_uverbs_create_comp_channel_resp>()?;
        self.forget_closed_channels(file);
        let id = self.new_id();
        let (channel, user) = ChannelFile::new()?;
        self.file(file)?.channels.insert(id, channel);
        call.created_fd(user);
        Ok(())
    }

    /// The channel that the user knows under this number.
    pub(super) fn channel(&self, file: Id, number: i32) -> Result<Id, Errno> {
        let channels = &self.files.get(&file).ok_or(Errno::EBADF)?.channels;
        let found = channels
            .iter()
            .find(|(_, channel)| channel.number() == number && channel.is_open());
        found.map(|(id, _)| *id).ok_or(Errno::EBADF)
    }

    pub(super) fn req_notify_cq(&mut self, file: Id, call: &mut Call<'_, '_>) -> Result<(), Errno> {
        let request: ib_uverbs_req_notify_cq = call.request()?;
        let id = self.lookup_write(file, Kind::Cq, request.cq_handle)?;
        let (next, solicited) = &mut self.cqs.get_mut(&id).ok_or(Errno::EINVAL)?.armed;
        match request.solicited_only {
            0 => *next = true,
            _ => *solicited = true,
        }
        Ok(())
    }

    /// A queue has got a completion.
    pub(super) fn tell(&mut self, cq: Id, is_solicited: bool) {
        let Some(queue) = self.cqs.get_mut(&cq) else {
            return;
        };
        let (next, solicited) = queue.armed;
        if !(next || solicited && is_solicited) {
            return;
        }
        queue.armed = (false, false);
        let file = self.files.get_mut(&queue.owner.file);
        let channels = file.map(|file| &mut file.channels);
        if let (Some(id), Some(channels)) = (queue.channel, channels)
            && let Some(channel) = channels.get_mut(&id)
        {
            queue.told = queue.told.wrapping_add(1);
            channel.raise(queue.owner.token);
        }
    }

    /// A queue is going: drops what is unread of it, and gives how many of its events were read.
    pub(super) fn forget_completions(&mut self, kind: Kind, id: Id) -> u32 {
        let queue = self.cqs.get(&id).filter(|_| kind == Kind::Cq);
        let Some((queue, channel)) = queue.and_then(|queue| Some((queue, queue.channel?))) else {
            return 0;
        };
        let (told, token) = (queue.told, queue.owner.token);
        let file = self.files.get_mut(&queue.owner.file);
        let channel = file.and_then(|file| file.channels.get_mut(&channel));
        told.saturating_sub(channel.map_or(0, |channel| channel.forget(token)))
    }

    /// The device went: the channels of an open file are there no more.
    pub(super) fn close_channels(&mut self, file: Id) {
        if let Some(open) = self.files.get_mut(&file) {
            for channel in std::mem::take(&mut open.channels).into_values() {
                channel.close();
            }
        }
    }

    /// How many channels these open files have.
    pub(super) fn live_channels(&mut self, files: &[Id]) -> usize {
        for file in files {
            self.forget_closed_channels(*file);
        }
        let files = files.iter().filter_map(|file| self.files.get(file));
        files.map(|file| file.channels.len()).sum()
    }

    /// Drops the channels that the user has closed and no queue has.
    pub(super) fn forget_closed_channels(&mut self, file: Id) {
        let used: Vec<Id> = self
            .cqs
            .values()
            .filter_map(|queue| queue.channel)
            .collect();
        if let Some(open) = self.files.get_mut(&file) {
            open.channels
                .retain(|id, channel| used.contains(id) || channel.is_open());
        }
    }
}
