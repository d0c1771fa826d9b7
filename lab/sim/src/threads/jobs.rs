//! Requests inside a tier and their calls: one record each, in reused slots.
//!
//! All random values of a request are drawn when it is issued, so that every setup meets the same
//! requests.

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
    /// Its times; `base.service` is the CPU time before its calls.
    pub(super) base: Request,
    /// First leaf that it may call.
    pub(super) leaf: u16,
    /// Number of calls.
    pub(super) calls: u16,
    /// Number of unfinished calls; in an async setup one more until all calls have left.
    pub(super) pending: u16,
    /// How it waits for its calls.
    pub(super) fanout: Fanout,
    /// Thread that sleeps until its replies arrive.
    pub(super) blocked_thread: Option<ThreadId>,
    /// Links for its calls, in an async setup.
    pub(super) link: u16,
    /// Number of earlier requests in this slot.
    generation: u32,
    /// Whether one of its calls ended without a result.
    pub(super) is_partial: bool,
}

/// Drawn timing of a call at a leaf.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct CallTiming {
    /// Service time at the leaf.
    pub(super) time: Nanos,
    /// Whether the reply is late if the leaf is the slow one.
    pub(super) is_late: bool,
}

/// A call of a request.
#[derive(Clone, Copy, Debug, Default)]
struct Call {
    /// Timing of the first and the second attempt.
    timings: [CallTiming; 2],
    /// Two copies to which it may be sent.
    copies: [u16; 2],
    /// Leaf for a second attempt.
    other_leaf: Option<u16>,
    /// Number of unfinished attempts.
    outstanding: u16,
    is_resent: bool,
    has_ended: bool,
}

/// All requests in flight.
pub(super) struct Jobs {
    slots: Vec<Job>,
    free: Vec<JobId>,
    /// Calls, `width` per slot.
    calls: Vec<Call>,
    /// Replies that the request's thread has not received yet, in sync setups.
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

    /// Issues a request of a client.
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
        for index in first..first + usize::from(calls) {
            self.calls[index] = self.draw_call();
        }
        id
    }

    /// Draws a call that has not left. Draws only values that can matter.
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

    /// The leaf of `call`, and another leaf with the same part of the data. `outstanding` returns a
    /// leaf's unfinished calls.
    fn leaves_of(&mut self, id: JobId, call: u16, outstanding: impl Fn(u16) -> u32) -> (u16, Option<u16>) {
        let (job, count, parts) = (self.slots[id as usize], self.leaves.count, self.leaves.parts());
        let nth = |n: u16| (job.leaf + n) % count;
        let better = |one: u16, two: u16| if outstanding(two) < outstanding(one) { (two, one) } else { (one, two) };
        match self.leaves.selection {
            // A read goes to the first or second replica, whichever has fewer unfinished calls.
            LeafSelection::Hash { replicas, .. } if job.calls == 1 && replicas > 1 => (better(nth(0), nth(1)).0, None),
            LeafSelection::All if self.leaves.tails.copies > 1 => {
                let [first, second] = self.call(id, call).copies.map(|copy| call + copy * parts);
                let (one, two) = better(first, second);
                (one, Some(two))
            }
            _ => (nth(call), None),
        }
    }

    /// Begins the first attempt of `call`, and returns the attempt with its timing.
    pub(super) fn first_attempt(
        &mut self,
        id: JobId,
        call: u16,
        outstanding: impl Fn(u16) -> u32,
    ) -> (CallAttempt, CallTiming) {
        let (leaf, other) = self.leaves_of(id, call, outstanding);
        let slot_generation = self.slots[id as usize].generation;
        let own = self.call(id, call);
        (own.other_leaf, own.outstanding) = (other, 1);
        (CallAttempt { job: id, generation: slot_generation, call, leaf, number: AttemptNumber::First }, own.timings[0])
    }

    /// Begins the second attempt of a call, at another copy. `None`: no other leaf has the same
    /// data.
    pub(super) fn second_attempt(&mut self, attempt: &CallAttempt) -> Option<(CallAttempt, CallTiming)> {
        let own = self.call(attempt.job, attempt.call);
        let leaf = own.other_leaf?;
        own.outstanding += 1;
        own.is_resent = true;
        Some((CallAttempt { leaf, number: AttemptNumber::Second, ..*attempt }, own.timings[1]))
    }

    /// Leaf for a second attempt of the call.
    pub(super) fn other_leaf(&mut self, attempt: &CallAttempt) -> Option<u16> {
        self.call(attempt.job, attempt.call).other_leaf
    }

    /// Whether the call has a second attempt.
    pub(super) fn is_resent(&mut self, attempt: &CallAttempt) -> bool {
        self.call(attempt.job, attempt.call).is_resent
    }

    /// Whether the request still exists and waits for the call.
    pub(super) fn waits_for(&mut self, attempt: &CallAttempt) -> bool {
        self.slots[attempt.job as usize].generation == attempt.generation
            && !self.call(attempt.job, attempt.call).has_ended
    }

    /// Ends an attempt. Returns the number of the call's unfinished attempts.
    pub(super) fn end_attempt(&mut self, attempt: &CallAttempt) -> u16 {
        let own = self.call(attempt.job, attempt.call);
        own.outstanding -= 1;
        own.outstanding
    }

    /// Ends a call, even if an attempt is unfinished.
    pub(super) fn end_call(&mut self, attempt: &CallAttempt) {
        self.call(attempt.job, attempt.call).has_ended = true;
    }

    /// Queues a reply for the request's thread. Returns `false` if the request no longer waits for
    /// replies.
    pub(super) fn deliver(&mut self, reply: Reply) -> bool {
        let CallAttempt { job, generation: slot_generation, .. } = reply.attempt;
        let own = &self.slots[job as usize];
        let waits = own.generation == slot_generation && own.pending > 0;
        if waits {
            self.unread[job as usize].push_back(reply);
        }
        waits
    }

    /// Takes the oldest reply that the request's thread has not received.
    pub(super) fn receive(&mut self, id: JobId) -> Option<Reply> {
        self.unread[id as usize].pop_front()
    }

    /// Ends a request and frees its slot.
    pub(super) fn end(&mut self, id: JobId) -> Request {
        self.free.push(id);
        self.slots[id as usize].base
    }

    /// Number of requests in flight.
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
