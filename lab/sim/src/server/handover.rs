//! Handover of work from a core that parks, and the load of each core.

use super::Server;
use crate::server_queues::Queues;

impl Server {
    /// Turns off stealing, which the scheduler then does, and adds `extra_queues` to one queue per
    /// core.
    pub(crate) fn managed(mut self, extra_queues: usize) -> Self {
        self.queues = Queues::new(self.cores.len() + extra_queues);
        self.steals = false;
        self
    }

    /// Number of requests queued on `core` or being executed there.
    pub(crate) fn load(&self, core: usize) -> usize {
        self.queues.length(core) + usize::from(!matches!(self.cores[core].activity, super::Activity::Idle))
    }

    /// Moves all queued work and outgoing messages from `from` to `to`.
    pub(crate) fn hand_over(&mut self, from: usize, to: usize) {
        let outgoing = std::mem::take(&mut self.cores[from].outgoing);
        self.cores[to].outgoing.extend(outgoing);
        let debt = std::mem::take(&mut self.cores[from].debt);
        self.cores[to].debt += debt;
        self.cores[from].batch_left = 0;
        self.queues.hand_over(from, to);
    }
}
