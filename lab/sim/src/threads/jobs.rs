//! Requests inside a tier and their calls: one record each, in slots that are used again. What is drawn for a request is drawn when it is
//! issued, so that every setup meets the same requests.

use super::event::{AttemptNumber, CallAttempt, JobId, Reply, ThreadId};
use super::model::{LeafSelection, Leaves};
use crate::requests::{Request, RequestId};
use leeward_core::units::{CreditId, Nanos, Priority, Time};
use leeward_threading::Fanout;
use leeward_workload::rng::{Purpose, Rng};
use leeward_workload::service_time::ServiceTime;
use std::collections::VecDeque;

/// A request.
#[derive(Clone, Copy, Debug)]
pub(super) struct Job {
    /// Its times; `service` is the CPU time before its calls.
    pub(super) base: Request,
    /// The first leaf that it may ask.
    pub(super) leaf: u16,
    /// Calls that it makes.
    pub(super) calls: u16,
    /// Calls whose end it waits for; in an async setup one more until all calls have left.
    pub(super) pending: u16,
    /// How it waits.
    pub(super) fanout: Fanout,
    /// Thread that sleeps until its replies come.
    pub(super) blocked_thread: Option<ThreadId>,
    /// Links over which it asks, in an async setup.
    pub(super) link: u16,
    /// Requests that had its slot before.
    generation: u32,
    /// Whether a call of it has ended without a result.
    pub(super) is_partial: bool,
}

/// Fate of a call at a leaf.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct CallTiming {
    /// How long it takes there.
    pub(super) time: Nanos,
    /// Whether the answer is late, if the leaf is the slow one.
    pub(super) is_late: bool,
}

/// A call of a request.
#[derive(Clone, Copy, Debug, Default)]
struct Call {
    /// Its fate the first time, and if it is made again.
    timings: [CallTiming; 2],
    /// Two copies that it may go to.
    copies: [u16; 2],
    /// The leaf that it goes to if it is made again.
    other_leaf: Option<u16>,
    /// Legs of it that have not ended.
    outstanding: u16,
    is_resent: bool,
    has_ended: bool,
}

/// All requests under way.
pub(super) struct Jobs {
    slots: Vec<Job>,
    free: Vec<JobId>,
    /// Calls, `width` per slot.
    calls: Vec<Call>,
    /// Replies that have come and that the thread which has the request has not received, of sync setups.
    unread: Vec<VecDeque<Reply>>,
    width: usize,
    leaves: Leaves,
    request_service: ServiceTime,
    begin_rng: Rng,
    leaf_rng: Rng,
}

impl Jobs {
    pub(super) fn new(leaves: &Leaves, begin: &ServiceTime, seed: u64) -> Self {
        Jobs {
            slots: Vec::new(),
            free: Vec::new(),
            calls: Vec::new(),
            unread: Vec::new(),
            width: usize::from(leaves.max_calls()),
            leaves: leaves.clone(),
            request_service: begin.clone(),
            begin_rng: Rng::new(seed, Purpose::Service),
            leaf_rng: Rng::new(seed, Purpose::Leaves),
        }
    }

    /// A client issues a request.
    pub(super) fn issue(&mut self, client: u32, now: Time) -> JobId {
        let (leaf, calls) = match self.leaves.selection {
            LeafSelection::All => (0, self.leaves.parts()),
            LeafSelection::Hash { replicas, writes } => {
                let leaf = self.leaf_rng.below(u64::from(self.leaves.count)) as u16;
                (leaf, if self.leaf_rng.unit() < writes { replicas } else { 1 })
            }
        };
        let base = Request {
            issued: now,
            sent: now,
            arrived: now,
            service: self.request_service.draw(&mut self.begin_rng),
            session: client,
            demand: 0,
            priority: Priority::HIGHEST,
            kind: 0,
            credit: CreditId::NONE,
            attempt_of: RequestId::default(),
        };
        let (fanout, sleeper) = (Fanout::Sync, None);
        let job = Job {
            base,
            leaf,
            calls,
            pending: calls,
            fanout,
            blocked_thread: sleeper,
            link: 0,
            generation: 0,
            is_partial: false,
        };
        let id = match self.free.pop() {
            Some(id) => {
                let slot = &mut self.slots[id as usize];
                *slot = Job { generation: slot.generation.wrapping_add(1), ..job };
                id
            }
            None => {
                self.slots.push(job);
                self.calls.resize(self.calls.len() + self.width, Call::default());
                self.unread.push(VecDeque::new());
                self.slots.len() as JobId - 1
            }
        };
        let first = id as usize * self.width;
        for place in first..first + usize::from(calls) {
            self.calls[place] = self.draw_call();
        }
        id
    }

    /// A call that has not left. Only what can matter is drawn.
    fn draw_call(&mut self) -> Call {
        let mut call = Call { timings: [self.draw_timing(), CallTiming::default()], ..Call::default() };
        let copies = u64::from(self.leaves.tails.copies);
        if copies > 1 {
            call.timings[1] = self.draw_timing();
            let first = self.leaf_rng.below(copies);
            let second = (first + 1 + self.leaf_rng.below(copies - 1)) % copies;
            call.copies = [first as u16, second as u16];
        }
        call
    }

    fn draw_timing(&mut self) -> CallTiming {
        let time = self.leaves.service.draw(&mut self.leaf_rng);
        let is_late = self.leaves.tails.slow.is_some_and(|slow| self.leaf_rng.unit() < slow.share);
        CallTiming { time, is_late }
    }

    fn call(&mut self, id: JobId, call: u16) -> &mut Call {
        &mut self.calls[id as usize * self.width + usize::from(call)]
    }

    /// The leaf of `call`, and another that has the same part of the data; `out` tells how many calls a leaf has out.
    fn leaves_of(&mut self, id: JobId, call: u16, out: impl Fn(u16) -> u32) -> (u16, Option<u16>) {
        let (job, count, parts) = (self.slots[id as usize], self.leaves.count, self.leaves.parts());
        let nth = |n: u16| (job.leaf + n) % count;
        let better = |one: u16, two: u16| if out(two) < out(one) { (two, one) } else { (one, two) };
        match self.leaves.selection {
            // A read goes to the better of its first two replicas.
            LeafSelection::Hash { replicas, .. } if job.calls == 1 && replicas > 1 => (better(nth(0), nth(1)).0, None),
            LeafSelection::All if self.leaves.tails.copies > 1 => {
                let [first, second] = self.call(id, call).copies.map(|copy| call + copy * parts);
                let (one, two) = better(first, second);
                (one, Some(two))
            }
            _ => (nth(call), None),
        }
    }

    /// `call` leaves for the first time: its leg and its fate.
    pub(super) fn first_attempt(
        &mut self,
        id: JobId,
        call: u16,
        out: impl Fn(u16) -> u32,
    ) -> (CallAttempt, CallTiming) {
        let (leaf, other) = self.leaves_of(id, call, out);
        let life = self.slots[id as usize].generation;
        let own = self.call(id, call);
        (own.other_leaf, own.outstanding) = (other, 1);
        (CallAttempt { job: id, generation: life, call, leaf, number: AttemptNumber::First }, own.timings[0])
    }

    /// The call of `leg` leaves again, for another copy: its leg and its fate. `None`: no other leaf has the same.
    pub(super) fn second_attempt(&mut self, leg: &CallAttempt) -> Option<(CallAttempt, CallTiming)> {
        let own = self.call(leg.job, leg.call);
        let leaf = own.other_leaf?;
        own.outstanding += 1;
        own.is_resent = true;
        Some((CallAttempt { leaf, number: AttemptNumber::Second, ..*leg }, own.timings[1]))
    }

    /// The leaf that the call of `leg` may be made at again.
    pub(super) fn other_leaf(&mut self, leg: &CallAttempt) -> Option<u16> {
        self.call(leg.job, leg.call).other_leaf
    }

    /// Whether the call of `leg` was made twice.
    pub(super) fn is_resent(&mut self, leg: &CallAttempt) -> bool {
        self.call(leg.job, leg.call).is_resent
    }

    /// Whether the request of `leg` is still there and waits for its call.
    pub(super) fn waits_for(&mut self, leg: &CallAttempt) -> bool {
        self.slots[leg.job as usize].generation == leg.generation && !self.call(leg.job, leg.call).has_ended
    }

    /// A leg has ended. How many of its call are still out.
    pub(super) fn end_attempt(&mut self, leg: &CallAttempt) -> u16 {
        let own = self.call(leg.job, leg.call);
        own.outstanding -= 1;
        own.outstanding
    }

    /// The call of `leg` has ended, whatever its other leg brings.
    pub(super) fn end_call(&mut self, leg: &CallAttempt) {
        self.call(leg.job, leg.call).has_ended = true;
    }

    /// News have come that the thread which has the request is to receive. False if the request waits for nothing any more.
    pub(super) fn deliver(&mut self, reply: Reply) -> bool {
        let CallAttempt { job, generation: life, .. } = reply.attempt;
        let own = &self.slots[job as usize];
        let waits = own.generation == life && own.pending > 0;
        if waits {
            self.unread[job as usize].push_back(reply);
        }
        waits
    }

    /// Takes the oldest news that have come and were not received.
    pub(super) fn receive(&mut self, id: JobId) -> Option<Reply> {
        self.unread[id as usize].pop_front()
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
