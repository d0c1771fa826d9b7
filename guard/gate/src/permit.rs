//! Admitted requests. Does not contain the work of a request.

use crate::caller_queue::CallerQueue;
use crate::gate::{DequeueCheck, Gate, Rejection};
use crate::outcome::{Outcome, RequestEnd};
use crate::queue::{WaitError, Waiter};
use crate::shard::Presence;
use leeward_core::budget::Budget;
use leeward_core::server;
use leeward_core::units::{Nanos, Time};
use leeward_host::sync::{Mutex, lock};
use leeward_observe::DecisionReason;
use std::time::Duration;

/// An admitted request, until it ends. Dropping the permit ends it as [`Outcome::Abandoned`], or as
/// [`Outcome::Failed`] after a panic in [`Permit::run`].
#[must_use = "a permit that is dropped is an abandoned request"]
pub struct Permit {
    gate: Gate,
    shard: usize,
    route: u8,
    class: u8,
    arrival: Time,
    /// Time that the request had waited before it arrived at the gate.
    prior_wait: Nanos,
    cpu_time: Option<Duration>,
    budget: Budget,
    /// Part of the handler time that went to internal queues.
    queue_time: Duration,
    /// When the answer began, if it was reported.
    answered_at: Option<Time>,
    /// Whether a downstream service rejected the request; `None`: it asked no service.
    downstream_rejected: Option<bool>,
    /// Group of requests that ask the same downstream services.
    downstream: u8,
    /// Check at the end of the wait; present until the request begins, if the gate has a queue.
    dequeue_check: Option<DequeueCheck>,
    /// Its place in a queue of the caller's own.
    place: QueuePlace,
    drop_outcome: Outcome,
    /// It was admitted although requests of its route take too long.
    is_trial: bool,
    presence: Presence,
    /// It was admitted for any verdict, and has not ended.
    is_shadow: bool,
    /// `None` after the end, and in shadow mode.
    pending: Option<server::PendingRequest>,
}

/// Where a request is in a queue of the caller's own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum QueuePlace {
    /// It was never in one.
    None,
    /// In it, since its arrival at this machine.
    Waiting(Time),
    /// It has begun.
    Begun,
}

impl Permit {
    pub(crate) fn new(
        gate: Gate,
        shard: usize,
        (route, class): (u8, u8),
        (arrived_at, waited): (Time, Nanos),
        request: Option<server::PendingRequest>,
    ) -> Self {
        let (budget, queued) = (Budget::UNLIMITED, Duration::ZERO);
        Permit {
            gate,
            shard,
            route,
            class,
            arrival: arrived_at,
            prior_wait: waited,
            cpu_time: None,
            budget,
            queue_time: queued,
            answered_at: None,
            downstream_rejected: None,
            downstream: route,
            dequeue_check: None,
            place: QueuePlace::None,
            drop_outcome: Outcome::Abandoned,
            is_trial: false,
            presence: Presence::default(),
            is_shadow: false,
            pending: request,
        }
    }

    /// Permit of a request that was admitted for any verdict; the controller has it in the shadow
    /// queue instead.
    pub(crate) fn shadow(gate: Gate, shard: usize, kind: (u8, u8), arrived: (Time, Nanos)) -> Self {
        let mut permit = Permit::new(gate, shard, kind, arrived, None);
        permit.is_shadow = true;
        permit
    }

    // In place, as all changes here: moving a permit costs as much as a lock.
    #[inline]
    pub(crate) fn set_budget(&mut self, budget: Budget, downstream: u8) {
        self.budget = budget;
        self.downstream = downstream;
    }

    #[inline]
    pub(crate) fn set_trial(&mut self, is_trial: bool) {
        self.is_trial = is_trial;
    }

    #[inline]
    pub(crate) fn set_presence(&mut self, presence: Presence) {
        self.presence = presence;
    }

    #[inline]
    pub(crate) fn set_dequeue_check(&mut self, check: DequeueCheck) {
        self.dequeue_check = Some(check);
    }

    /// Puts the request into the gate's wait queue. When the queue calls it, [`Permit::begin_at`]
    /// follows.
    ///
    /// Returns `None` if the gate has no queue or the request has begun.
    ///
    /// # Errors
    ///
    /// The queue is full of more important requests.
    pub fn enqueue(&self, now: Time) -> Result<Option<Waiter>, WaitError> {
        let (Some(queue), Some(check)) = (&self.gate.0.wait_queue, &self.dequeue_check) else { return Ok(None) };
        if check.was_idle
            && let Some(waiter) = queue.try_start(self.class, check.start_deadline)
        {
            return Ok(Some(waiter));
        }
        queue.enqueue(now, self.class, check.start_deadline, self.gate.0.call_ahead()).ok_or(WaitError::Full).map(Some)
    }

    /// Begins the request at `now` after its wait, if it was `called`.
    ///
    /// The time in the queue is added to the wait before the gate.
    ///
    /// # Errors
    ///
    /// The request would miss its deadline, or the queue was full. It is rejected before any work
    /// and has ended as [`Outcome::Rejected`].
    pub fn begin_at(mut self, now: Time, called: Result<(), WaitError>) -> Result<Permit, Rejection> {
        let Some(check) = self.dequeue_check.take() else { return Ok(self) };
        self.prior_wait += now.since(self.arrival);
        self.arrival = self.arrival.max(now);
        if let Err(rejection) =
            self.gate.check_dequeued((self.shard, self.route), (self.prior_wait, now), &check, called)
        {
            self.end_for(Some(now), Outcome::Rejected, rejection.reason);
            return Err(rejection);
        }
        self.budget = self.gate.0.queue_budget(check.timeout, self.route, self.prior_wait);
        Ok(self)
    }

    /// Records that the request waits from now on in a queue of the caller's own behind the gate,
    /// such as that of a pool of threads, until [`Permit::record_start`]. The gate rejects arrivals
    /// by the delay of this queue.
    pub fn record_wait(&mut self, now: Time) {
        if self.pending.is_some() && self.place == QueuePlace::None {
            let arrival = Time(now.0.saturating_sub(self.prior_wait.0));
            let inner = &self.gate.0;
            let new = || Mutex::new(CallerQueue::new(inner.slo, inner.shards.len()));
            self.place = QueuePlace::Waiting(lock(inner.caller_queue.get_or_init(new)).enter(arrival));
        }
    }

    /// Records that the request begins at `now`, after [`Permit::record_wait`]. Returns how long it
    /// has waited since its arrival; zero if it did not wait.
    pub fn record_start(&mut self, now: Time) -> Nanos {
        let QueuePlace::Waiting(arrival) = self.place else { return Nanos::ZERO };
        self.place = QueuePlace::Begun;
        self.in_caller_queue(|queue| queue.start(arrival));
        now.since(self.arrival)
    }

    /// Records that the request occupies no worker from now on, such as while it waits for a
    /// backend, or sends its answer. Others are then alone beside it.
    pub fn suspend(&mut self) {
        self.set_suspended(true);
    }

    /// Ends [`Permit::suspend`].
    pub fn resume(&mut self) {
        self.set_suspended(false);
    }

    fn set_suspended(&mut self, suspended: bool) {
        if self.pending.is_some() && self.presence.is_suspended() != suspended {
            lock(&self.gate.0.shards[self.shard]).suspend(&mut self.presence, suspended);
        }
    }

    fn in_caller_queue(&self, change: impl FnOnce(&mut CallerQueue)) {
        if let Some(queue) = self.gate.0.caller_queue.get() {
            change(&mut lock(queue));
        }
    }

    /// Time that the request may spend in internal queues; locks check it. Unlimited in shadow
    /// mode.
    pub fn budget(&self) -> Budget {
        self.budget
    }

    /// Records how long the request has occupied a worker: CPU time, not elapsed time.
    pub fn record_cpu_time(&mut self, span: Duration) {
        self.cpu_time = Some(span);
    }

    /// Records how long the request has waited in internal queues: the time that locks charged to
    /// its budget.
    pub fn record_queue_time(&mut self, span: Duration) {
        self.queue_time = span;
    }

    /// Records when the answer began, as a time since the gate was made.
    ///
    /// A client may read the rest slowly, which is no delay of this service. Without this report,
    /// the request's end counts.
    pub fn record_answer_start(&mut self, now: Time) {
        self.answered_at = Some(now);
    }

    /// Records that the request asked another service, and whether it failed because that service
    /// rejected it.
    ///
    /// If many requests of a group are rejected, the gate admits as many as are accepted
    /// ([`crate::RequestInfo::downstream`]).
    pub fn record_downstream(&mut self, rejected: bool) {
        self.downstream_rejected = Some(rejected);
    }

    /// Names the request's route ([`Gate::name_route`]).
    pub fn name_route(&self, name: &str) {
        self.gate.name_route(self.route, name);
    }

    /// Counts the request as one without a route, because the service has no route of that name.
    ///
    /// A client that invents names thus takes no slots and changes no estimate of other routes.
    pub fn clear_route(&mut self) {
        self.route = 0;
    }

    /// Ends the request.
    pub fn finish(mut self, outcome: Outcome) {
        self.end(None, outcome);
    }

    /// Ends the request at a time of the caller's, since the gate was made ([`Gate::time_at`]).
    /// Times must not decrease.
    pub fn finish_at(mut self, now: Time, outcome: Outcome) {
        self.end(Some(now), outcome);
    }

    /// Ends the request as [`Permit::finish_at`] does, where the permit lies. It has then ended:
    /// further calls and the drop have no effect.
    pub fn end_at(&mut self, now: Time, outcome: Outcome) {
        self.end(Some(now), outcome);
    }

    /// Runs a part of the request's handler. If it panics, the drop of the permit that follows ends
    /// the request as [`Outcome::Failed`].
    #[inline]
    pub fn run<T>(&mut self, part: impl FnOnce() -> T) -> T {
        self.drop_outcome = Outcome::Failed;
        let result = part();
        self.drop_outcome = Outcome::Abandoned;
        result
    }

    /// The gate that admitted the request.
    pub fn gate(&self) -> &Gate {
        &self.gate
    }

    /// What rejects an admitted request is a lock, or a pool's queue like one.
    fn end(&mut self, now: Option<Time>, outcome: Outcome) {
        self.end_for(now, outcome, DecisionReason::Lock);
    }

    fn end_for(&mut self, now: Option<Time>, outcome: Outcome, reason: DecisionReason) {
        let cpu = self.cpu_time.take();
        if let Some(span) = cpu {
            self.gate.record_cost(self.route, span, outcome, self.is_trial);
        }
        if let Some(pending) = self.pending.take() {
            let now = now.unwrap_or_else(|| self.gate.now());
            match std::mem::replace(&mut self.place, QueuePlace::None) {
                QueuePlace::None => {}
                QueuePlace::Waiting(arrival) => self.in_caller_queue(|queue| queue.remove(arrival)),
                QueuePlace::Begun => self.in_caller_queue(CallerQueue::finish),
            }
            if let Some(rejected) = self.downstream_rejected {
                self.gate.0.downstream.note(now, self.downstream, rejected);
            }
            let end = self.describe_end(cpu, outcome, reason);
            self.gate.end(self.shard, pending, (self.arrival, self.prior_wait), now, &end, self.presence);
        } else if std::mem::take(&mut self.is_shadow) {
            let now = now.unwrap_or_else(|| self.gate.now());
            let end = self.describe_end(cpu, outcome, reason);
            self.gate.end_shadow(self.shard, &end, now.since(self.arrival) + self.prior_wait);
        }
    }

    #[inline]
    fn describe_end(&self, cpu_time: Option<Duration>, outcome: Outcome, reason: DecisionReason) -> RequestEnd {
        RequestEnd {
            class: self.class,
            route: self.route,
            cpu_time,
            queue_time: self.queue_time,
            answered_at: self.answered_at,
            outcome,
            reason,
        }
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.end(None, self.drop_outcome);
    }
}

impl std::fmt::Debug for Permit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Permit").field("route", &self.route).field("arrival", &self.arrival).finish_non_exhaustive()
    }
}
