//! The cores' packet and run queues, and the age of their oldest entry, which is the queueing
//! delay.

use crate::event::Packet;
use crate::requests::RequestId;
use leeward_core::units::{Nanos, Time};
use std::collections::VecDeque;

/// An admitted request that waits to be executed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Task {
    pub(crate) request: RequestId,
}

/// One queue of a kind per core, with the time of each head in a separate array.
///
/// Each decision reads all heads, and should not touch ten queues to do so.
struct PerCore<T> {
    queues: Vec<VecDeque<(Time, T)>>,
    heads: Vec<u64>,
    /// Time since which each core is awake; entries waited for a core's wake-up before that. Empty
    /// if cores never sleep.
    awake: Vec<u64>,
    waiting: usize,
}

const EMPTY: u64 = u64::MAX;

impl<T> PerCore<T> {
    fn new(cores: usize) -> Self {
        PerCore {
            queues: (0..cores).map(|_| VecDeque::new()).collect(),
            heads: vec![EMPTY; cores],
            awake: Vec::new(),
            waiting: 0,
        }
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
        if !self.awake.is_empty() {
            let waits = self.heads.iter().zip(&self.awake).map(|(head, awake)| now.0.saturating_sub(*head.max(awake)));
            return Nanos(waits.max().unwrap_or(0));
        }
        let head = self.heads.iter().fold(EMPTY, |oldest, head| oldest.min(*head));
        Nanos(now.0.saturating_sub(head))
    }

    /// The next core after `thief` with an entry.
    fn victim(&self, thief: usize) -> Option<usize> {
        if self.waiting == 0 {
            return None;
        }
        let cores = self.heads.len();
        (1..cores).map(|step| (thief + step) % cores).find(|core| self.heads[*core] != EMPTY)
    }
}

impl<T> PerCore<T> {
    /// Moves the head of `from` to `to`, with its age.
    fn transfer(&mut self, from: usize, to: usize) -> bool {
        let Some((since, item)) = self.queues[from].pop_front() else { return false };
        self.heads[from] = self.queues[from].front().map_or(EMPTY, |(since, _)| since.0);
        self.insert(to, since, item);
        true
    }

    /// Inserts an entry that has waited since `since`, in order of age.
    fn insert(&mut self, to: usize, since: Time, item: T) {
        let index = self.queues[to].partition_point(|(other, _)| *other <= since);
        self.queues[to].insert(index, (since, item));
        self.heads[to] = self.heads[to].min(since.0);
    }

    fn hand_over(&mut self, from: usize, to: usize) {
        for (since, item) in std::mem::take(&mut self.queues[from]) {
            self.insert(to, since, item);
        }
        self.heads[from] = EMPTY;
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

    /// Begins the wake-up of a core. The signal ignores the age of its entries until it is awake.
    pub(crate) fn begin_wake(&mut self, core: usize) {
        let cores = self.packets.heads.len();
        for awake in [&mut self.packets.awake, &mut self.tasks.awake] {
            awake.resize(cores, 0);
            awake[core] = EMPTY;
        }
    }

    /// Ends the wake-up of a core.
    pub(crate) fn end_wake(&mut self, core: usize, now: Time) {
        self.packets.awake[core] = now.0;
        self.tasks.awake[core] = now.0;
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

    /// Inserts a packet that has waited since `since`, in order of age.
    pub(crate) fn put_back_packet(&mut self, core: usize, since: Time, packet: Packet) {
        self.packets.insert(core, since, packet);
        self.packets.waiting += 1;
    }

    /// Whether an admitted request waits for a core.
    pub(crate) fn has_tasks(&self) -> bool {
        self.tasks.waiting > 0
    }

    /// Number of entries of both kinds on all cores.
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

    /// Time from which the oldest entry of either kind has waited on `core`.
    pub(crate) fn head(&self, core: usize) -> Option<Time> {
        let head = self.packets.heads[core].min(self.tasks.heads[core]);
        (head != EMPTY).then_some(Time(head))
    }

    /// Number of entries of both kinds on `core`.
    pub(crate) fn length(&self, core: usize) -> usize {
        self.packets.queues[core].len() + self.tasks.queues[core].len()
    }

    /// Moves one entry: the oldest task, or else the oldest packet.
    pub(crate) fn transfer(&mut self, from: usize, to: usize) -> bool {
        self.tasks.transfer(from, to) || self.packets.transfer(from, to)
    }

    /// Moves all entries.
    pub(crate) fn hand_over(&mut self, from: usize, to: usize) {
        self.tasks.hand_over(from, to);
        self.packets.hand_over(from, to);
    }

    /// The age of the oldest entry, and the sum of the ages of all queues' oldest entries.
    pub(crate) fn ages(&self, now: Time) -> (Nanos, Nanos) {
        let heads = self.packets.heads.iter().zip(&self.tasks.heads);
        let ages = heads.map(|(packet, task)| now.0.saturating_sub(*packet.min(task)));
        let (oldest, sum) = ages.fold((0, 0), |(oldest, sum), age| (age.max(oldest), sum + age));
        (Nanos(oldest), Nanos(sum))
    }
}
