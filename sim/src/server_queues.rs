//! The cores' packet and run queues, and the age of the oldest entry in them: the queueing-delay signal.

use crate::requests::RequestId;
use crate::server::Packet;
use leeward_control::units::{Nanos, Time};
use std::collections::VecDeque;

/// An admitted request that waits to be executed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Task {
    pub(crate) request: RequestId,
}

/// One kind of queue, one per core, with the time of each head in an array of its own: the signal reads all heads at
/// every decision, and must not touch ten queues for it.
struct PerCore<T> {
    queues: Vec<VecDeque<(Time, T)>>,
    heads: Vec<u64>,
    waiting: usize,
}

const EMPTY: u64 = u64::MAX;

impl<T> PerCore<T> {
    fn new(cores: usize) -> Self {
        PerCore { queues: (0..cores).map(|_| VecDeque::new()).collect(), heads: vec![EMPTY; cores], waiting: 0 }
    }

    fn push(&mut self, core: usize, now: Time, item: T) {
        if self.queues[core].is_empty() {
            self.heads[core] = now.0;
        }
        self.queues[core].push_back((now, item));
        self.waiting += 1;
    }

    fn pop(&mut self, core: usize) -> Option<T> {
        let (_, item) = self.queues[core].pop_front()?;
        self.heads[core] = self.queues[core].front().map_or(EMPTY, |(since, _)| since.0);
        self.waiting -= 1;
        Some(item)
    }

    /// Age of the oldest entry of any core; zero if there is none.
    fn oldest(&self, now: Time) -> Nanos {
        let head = self.heads.iter().fold(EMPTY, |oldest, head| oldest.min(*head));
        Nanos(now.0.saturating_sub(head))
    }

    /// The next core after `thief` that has an entry.
    fn victim(&self, thief: usize) -> Option<usize> {
        if self.waiting == 0 {
            return None;
        }
        let cores = self.heads.len();
        (1..cores).map(|step| (thief + step) % cores).find(|core| self.heads[*core] != EMPTY)
    }
}

/// All queues of the server.
pub(crate) struct Queues {
    packets: PerCore<Packet>,
    tasks: PerCore<Task>,
}

impl Queues {
    pub(crate) fn new(cores: usize) -> Self {
        Queues { packets: PerCore::new(cores), tasks: PerCore::new(cores) }
    }

    pub(crate) fn push_packet(&mut self, core: usize, now: Time, packet: Packet) {
        self.packets.push(core, now, packet);
    }

    pub(crate) fn push_task(&mut self, core: usize, now: Time, task: Task) {
        self.tasks.push(core, now, task);
    }

    pub(crate) fn pop_packet(&mut self, core: usize) -> Option<Packet> {
        self.packets.pop(core)
    }

    pub(crate) fn pop_task(&mut self, core: usize) -> Option<Task> {
        self.tasks.pop(core)
    }

    pub(crate) fn steal_task(&mut self, thief: usize) -> Option<Task> {
        self.tasks.victim(thief).and_then(|core| self.tasks.pop(core))
    }

    pub(crate) fn steal_packet(&mut self, thief: usize) -> Option<Packet> {
        self.packets.victim(thief).and_then(|core| self.packets.pop(core))
    }

    /// Entries of both kinds on all cores.
    pub(crate) fn waiting(&self) -> usize {
        self.packets.waiting + self.tasks.waiting
    }

    /// Age of the oldest packet on any core.
    pub(crate) fn packet_delay(&self, now: Time) -> Nanos {
        self.packets.oldest(now)
    }

    /// Age of the oldest task on any core.
    pub(crate) fn run_delay(&self, now: Time) -> Nanos {
        self.tasks.oldest(now)
    }
}
