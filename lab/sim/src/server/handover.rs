//! Work that a core leaves behind when it parks, and work that a searching core takes.

use super::Server;
use crate::server_queues::Queues;

impl Server {
    /// A server in which cores don't steal by themselves, with so many queues besides one per core.
    pub(crate) fn managed(mut self, extra_queues: usize) -> Self {
        self.queues = Queues::new(self.cores.len() + extra_queues);
        self.steals = false;
        self
    }

    /// Entries queued on `core`, in execution included.
    pub(crate) fn load(&self, core: usize) -> usize {
        self.queues.length(core) + usize::from(!matches!(self.cores[core].activity, super::Activity::Idle))
    }

    /// Everything that waits on `from` goes to `to`.
    pub(crate) fn hand_over(&mut self, from: usize, to: usize) {
        let outgoing = std::mem::take(&mut self.cores[from].outgoing);
        self.cores[to].outgoing.extend(outgoing);
        let debt = std::mem::take(&mut self.cores[from].debt);
        self.cores[to].debt += debt;
        self.cores[from].batch_left = 0;
        self.queues.hand_over(from, to);
    }
}
