//! Admitted requests. Does not contain the work of a request.

use crate::caller_queue::CallerQueue;
use crate::gate::{Gate, Rejection};
use crate::open_request::{OpenRequest, QueuePlace};
use crate::outcome::Outcome;
use crate::queue::{WaitError, Waiter};
use crate::request::RequestInfo;
use leeward_core::budget::Budget;
use leeward_core::units::{Nanos, Time};
use leeward_host::sync::{Mutex, lock};
use leeward_observe::DecisionReason;

/// An admitted request, until it ends. Dropping the permit ends it as [`Outcome::Abandoned`], or as
/// [`Outcome::Failed`] after a panic in [`Permit::run`].
#[must_use = "a permit that is dropped is an abandoned request"]
pub struct Permit {
    gate: Gate,
    request: OpenRequest,
}

impl Permit {
    pub(crate) fn new(gate: Gate, request: OpenRequest) -> Self {
        Permit { gate, request }
    }

    /// Decides about another request, of which this becomes the permit: its memory is used again
    /// where it lies. A request that has not ended ends as [`Outcome::Abandoned`] before.
    ///
    /// # Errors
    ///
    /// As for [`Gate::admit`]; the permit then has no request.
    #[inline]
    pub fn readmit_at(&mut self, now: Time, arriving: &RequestInfo) -> Result<(), Rejection> {
        if self.request.is_open() {
            self.end(Some(now), Outcome::Abandoned);
        }
        self.gate.decide(now, arriving, &mut self.request)
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
        let (Some(queue), Some(check)) = (&self.gate.0.wait_queue, &self.request.dequeue_check) else {
            return Ok(None);
        };
        if check.was_idle
            && let Some(waiter) = queue.try_start(self.request.class, check.start_deadline)
        {
            return Ok(Some(waiter));
        }
        queue
            .enqueue(now, self.request.class, check.start_deadline, self.gate.0.call_ahead())
            .ok_or(WaitError::Full)
            .map(Some)
    }

    /// Begins the request at `now` after its wait, if it was `called`.
    ///
    /// The time in the queue is added to the wait before the gate.
    ///
    /// # Errors
    ///
    /// The request would miss its deadline, or the queue was full. It is rejected before any work
    /// and has ended as [`Outcome::Rejected`]: it counts as admitted and as
    /// [`crate::GateCounts::rejected_inside`].
    pub fn begin_at(mut self, now: Time, called: Result<(), WaitError>) -> Result<Permit, Rejection> {
        let Some(check) = self.request.dequeue_check.take() else { return Ok(self) };
        self.request.prior_wait += now.since(self.request.arrival);
        self.request.arrival = self.request.arrival.max(now);
        if let Err(rejection) = self.gate.check_dequeued(
            (self.request.shard, self.request.route),
            (self.request.prior_wait, now),
            &check,
            called,
        ) {
            self.record_rejection(rejection.reason);
            self.end(Some(now), Outcome::Rejected);
            return Err(rejection);
        }
        self.request.budget = self.gate.0.queue_budget(check.timeout, self.request.route, self.request.prior_wait);
        Ok(self)
    }

    /// Records that the request waits from now on in a queue of the caller's own behind the gate,
    /// such as that of a pool of threads, until [`Permit::record_start`]. The gate rejects arrivals
    /// by the delay of this queue.
    pub fn record_wait(&mut self, now: Time) {
        if self.request.pending.is_some() && self.request.place == QueuePlace::None {
            let arrival = Time(now.0.saturating_sub(self.request.prior_wait.0));
            let inner = &self.gate.0;
            let new = || Mutex::new(CallerQueue::new(inner.slo, inner.shards.len()));
            self.request.place = QueuePlace::Waiting(lock(inner.caller_queue.get_or_init(new)).enter(arrival));
        }
    }

    /// Records that the request begins at `now`, after [`Permit::record_wait`]. Returns how long it
    /// has waited since its arrival; zero if it did not wait.
    pub fn record_start(&mut self, now: Time) -> Nanos {
        let QueuePlace::Waiting(arrival) = self.request.place else { return Nanos::ZERO };
        self.request.place = QueuePlace::Begun;
        self.in_caller_queue(|queue| queue.start(arrival));
        now.since(self.request.arrival)
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
        if self.request.pending.is_some() && self.request.presence.is_suspended() != suspended {
            lock(&self.gate.0.shards[self.request.shard]).suspend(&mut self.request.presence, suspended);
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
        self.request.budget
    }

    /// Records how long the request has occupied a worker: CPU time, not elapsed time.
    pub fn record_cpu_time(&mut self, span: impl Into<Nanos>) {
        self.request.cpu_time = Some(span.into());
    }

    /// Records how long the request has waited in internal queues: the time that locks charged to
    /// its budget.
    pub fn record_queue_time(&mut self, span: impl Into<Nanos>) {
        self.request.queue_time = span.into();
    }

    /// Records when the answer began, as a time since the gate was made.
    ///
    /// A client may read the rest slowly, which is no delay of this service. Without this report,
    /// the request's end counts.
    pub fn record_answer_start(&mut self, now: Time) {
        self.request.answered_at = Some(now);
    }

    /// Records that the request asked another service, and whether it failed because that service
    /// rejected it.
    ///
    /// If many requests of a group are rejected, the gate admits as many as are accepted
    /// ([`crate::RequestInfo::downstream`]).
    pub fn record_downstream(&mut self, rejected: bool) {
        self.request.downstream_rejected = Some(rejected);
    }

    /// Records why the request was rejected inside, if it ends as [`Outcome::Rejected`]. Without
    /// this report, a lock rejected it, or a pool's queue like one.
    pub fn record_rejection(&mut self, reason: DecisionReason) {
        self.request.rejection = reason;
    }

    /// Names the request's route ([`Gate::name_route`]).
    pub fn name_route(&self, name: &str) {
        self.gate.name_route(self.request.route, name);
    }

    /// Counts the request as one without a route, because the service has no route of that name.
    ///
    /// A client that invents names thus takes no slots and changes no estimate of other routes.
    pub fn clear_route(&mut self) {
        self.request.route = 0;
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
        self.request.drop_outcome = Outcome::Failed;
        let result = part();
        self.request.drop_outcome = Outcome::Abandoned;
        result
    }

    /// Whether the request has ended.
    pub fn has_ended(&self) -> bool {
        !self.request.is_open()
    }

    /// The gate that admitted the request.
    pub fn gate(&self) -> &Gate {
        &self.gate
    }

    fn end(&mut self, now: Option<Time>, outcome: Outcome) {
        let cpu = self.request.cpu_time.take();
        if let Some(span) = cpu {
            self.gate.0.estimates.record_cost(self.request.route, span, outcome, self.request.is_trial);
        }
        if let Some(pending) = self.request.pending.take() {
            let now = now.unwrap_or_else(|| self.gate.now());
            match std::mem::replace(&mut self.request.place, QueuePlace::None) {
                QueuePlace::None => {}
                QueuePlace::Waiting(arrival) => self.in_caller_queue(|queue| queue.remove(arrival)),
                QueuePlace::Begun => self.in_caller_queue(CallerQueue::finish),
            }
            if let Some(rejected) = self.request.downstream_rejected {
                self.gate.0.downstream.note(now, self.request.downstream, rejected);
            }
            let end = self.request.describe_end(cpu, outcome);
            self.gate.end(
                self.request.shard,
                pending,
                (self.request.arrival, self.request.prior_wait),
                now,
                &end,
                self.request.presence,
            );
        } else if std::mem::take(&mut self.request.is_shadow) {
            let now = now.unwrap_or_else(|| self.gate.now());
            let end = self.request.describe_end(cpu, outcome);
            self.gate.end_shadow(self.request.shard, &end, now.since(self.request.arrival) + self.request.prior_wait);
        }
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.end(None, self.request.drop_outcome);
    }
}

impl std::fmt::Debug for Permit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Permit")
            .field("route", &self.request.route)
            .field("arrival", &self.request.arrival)
            .finish_non_exhaustive()
    }
}
