//! Requests inside a tier: one record each, in slots that are used again. What is drawn for a request is drawn when it is issued, so that
//! every setup meets the same requests.

use super::event::{JobId, ThreadId};
use super::model::{Ask, Leaves};
use crate::requests::{Request, RequestId};
use leeward_control::threading::Fanout;
use leeward_control::units::{CreditId, Nanos, Priority, Time};
use leeward_workload::rng::{Purpose, Rng};
use leeward_workload::service::Service;

/// A request.
#[derive(Clone, Copy, Debug)]
pub(super) struct Job {
    /// Its times; `service` is the CPU time before its calls.
    pub(super) base: Request,
    /// The first leaf that it may ask.
    pub(super) leaf: u16,
    /// Calls that it makes.
    pub(super) calls: u16,
    /// Replies that it waits for; in an async setup one more until all calls have left.
    pub(super) left: u16,
    /// Replies that have come and that the thread which has the request has not received.
    pub(super) came: u16,
    /// How it waits.
    pub(super) fanout: Fanout,
    /// Thread that sleeps until its replies come.
    pub(super) sleeper: Option<ThreadId>,
    /// Links over which it asks, in an async setup.
    pub(super) link: u16,
}

/// All requests under way.
pub(super) struct Jobs {
    slots: Vec<Job>,
    free: Vec<JobId>,
    /// The time of each call at its leaf, `width` per slot.
    times: Vec<Nanos>,
    width: usize,
    leaves: Leaves,
    begin: Service,
    begin_rng: Rng,
    leaf_rng: Rng,
}

impl Jobs {
    pub(super) fn new(leaves: &Leaves, begin: &Service, seed: u64) -> Self {
        Jobs {
            slots: Vec::new(),
            free: Vec::new(),
            times: Vec::new(),
            width: usize::from(leaves.most_calls()),
            leaves: leaves.clone(),
            begin: begin.clone(),
            begin_rng: Rng::new(seed, Purpose::Service),
            leaf_rng: Rng::new(seed, Purpose::Leaves),
        }
    }

    /// A client issues a request.
    pub(super) fn issue(&mut self, client: u32, now: Time) -> JobId {
        let (leaf, calls) = match self.leaves.ask {
            Ask::All => (0, self.leaves.count),
            Ask::Hash { replicas, writes } => {
                let leaf = self.leaf_rng.below(u64::from(self.leaves.count)) as u16;
                (leaf, if self.leaf_rng.unit() < writes { replicas } else { 1 })
            }
        };
        let base = Request {
            issued: now,
            sent: now,
            arrived: now,
            service: self.begin.draw(&mut self.begin_rng),
            session: client,
            demand: 0,
            priority: Priority::HIGHEST,
            kind: 0,
            credit: CreditId::NONE,
            attempt_of: RequestId::default(),
        };
        let job = Job { base, leaf, calls, left: calls, came: 0, fanout: Fanout::Sync, sleeper: None, link: 0 };
        let id = match self.free.pop() {
            Some(id) => {
                self.slots[id as usize] = job;
                id
            }
            None => {
                self.slots.push(job);
                self.times.resize(self.times.len() + self.width, Nanos::ZERO);
                self.slots.len() as JobId - 1
            }
        };
        let first = id as usize * self.width;
        for time in &mut self.times[first..first + usize::from(calls)] {
            *time = self.leaves.service.draw(&mut self.leaf_rng);
        }
        id
    }

    /// How long `call` takes at its leaf.
    pub(super) fn time(&self, id: JobId, call: u16) -> Nanos {
        self.times[id as usize * self.width + usize::from(call)]
    }

    /// The leaf of `call`; `out` tells how many calls a leaf has out.
    pub(super) fn leaf(&self, id: JobId, call: u16, out: impl Fn(usize) -> u32) -> u16 {
        let job = &self.slots[id as usize];
        let nth = |n: u16| (job.leaf + n) % self.leaves.count;
        match self.leaves.ask {
            // A read goes to the better of its first two replicas.
            Ask::Hash { replicas, .. } if job.calls == 1 && replicas > 1 => {
                let (first, second) = (nth(0), nth(1));
                if out(usize::from(second)) < out(usize::from(first)) { second } else { first }
            }
            _ => nth(call),
        }
    }

    /// A request has ended.
    pub(super) fn end(&mut self, id: JobId) -> Request {
        self.free.push(id);
        self.slots[id as usize].base
    }

    /// Requests under way.
    pub(super) fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }
}

impl std::ops::Index<JobId> for Jobs {
    type Output = Job;
    fn index(&self, id: JobId) -> &Job {
        &self.slots[id as usize]
    }
}

impl std::ops::IndexMut<JobId> for Jobs {
    fn index_mut(&mut self, id: JobId) -> &mut Job {
        &mut self.slots[id as usize]
    }
}
