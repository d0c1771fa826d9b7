//! What a permit knows of its request. Does not contain the gate, or what a request's end changes
//! there.

use crate::gate::DequeueCheck;
use crate::outcome::{Outcome, RequestEnd};
use crate::shard::Presence;
use leeward_core::budget::Budget;
use leeward_core::server;
use leeward_core::units::{Nanos, Time};
use leeward_observe::DecisionReason;

/// A request that a gate has admitted. The gate writes it where it stays: to move it costs as much
/// as a lock.
pub(crate) struct OpenRequest {
    pub(crate) shard: usize,
    pub(crate) route: u8,
    pub(crate) class: u8,
    pub(crate) arrival: Time,
    /// Time that the request had waited before it arrived at the gate.
    pub(crate) prior_wait: Nanos,
    pub(crate) cpu_time: Option<Nanos>,
    pub(crate) budget: Budget,
    /// Part of the handler time that went to internal queues.
    pub(crate) queue_time: Nanos,
    /// When the answer began, if it was reported.
    pub(crate) answered_at: Option<Time>,
    /// Whether a downstream service rejected the request; `None`: it asked no service.
    pub(crate) downstream_rejected: Option<bool>,
    /// Group of requests that ask the same downstream services.
    pub(crate) downstream: u8,
    /// Check at the end of the wait; present until the request begins, if the gate has a queue.
    pub(crate) dequeue_check: Option<DequeueCheck>,
    /// Its place in a queue of the caller's own.
    pub(crate) place: QueuePlace,
    pub(crate) drop_outcome: Outcome,
    /// Why it is rejected, if it is.
    pub(crate) rejection: DecisionReason,
    /// It was admitted although requests of its route take too long.
    pub(crate) is_trial: bool,
    pub(crate) presence: Presence,
    /// It was admitted for any verdict, and has not ended.
    pub(crate) is_shadow: bool,
    /// `None` after the end, and in shadow mode.
    pub(crate) pending: Option<server::PendingRequest>,
}

/// Where a request is in a queue of the caller's own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum QueuePlace {
    /// It was never in one.
    None,
    /// In it, since its arrival at this machine.
    Waiting(Time),
    /// It has begun.
    Begun,
}

impl OpenRequest {
    /// No request: it has ended.
    pub(crate) const fn none() -> Self {
        OpenRequest {
            shard: 0,
            route: 0,
            class: 0,
            arrival: Time::ZERO,
            prior_wait: Nanos::ZERO,
            cpu_time: None,
            budget: Budget::UNLIMITED,
            queue_time: Nanos::ZERO,
            answered_at: None,
            downstream_rejected: None,
            downstream: 0,
            dequeue_check: None,
            place: QueuePlace::None,
            drop_outcome: Outcome::Abandoned,
            rejection: DecisionReason::Lock,
            is_trial: false,
            presence: Presence::none(),
            is_shadow: false,
            pending: None,
        }
    }

    /// Begins a request that was admitted for any verdict, if it is not `pending` for the
    /// controller: that has it in the shadow queue instead.
    #[inline]
    pub(crate) fn begin(
        &mut self,
        shard: usize,
        (route, class): (u8, u8),
        (arrival, prior_wait): (Time, Nanos),
        pending: Option<server::PendingRequest>,
    ) {
        let is_shadow = pending.is_none();
        *self = OpenRequest {
            shard,
            route,
            class,
            arrival,
            prior_wait,
            downstream: route,
            is_shadow,
            pending,
            ..OpenRequest::none()
        };
    }

    /// Whether it has not ended.
    pub(crate) fn is_open(&self) -> bool {
        self.is_shadow || self.pending.is_some()
    }

    #[inline]
    pub(crate) fn describe_end(&self, cpu_time: Option<Nanos>, outcome: Outcome) -> RequestEnd {
        RequestEnd {
            class: self.class,
            route: self.route,
            cpu_time,
            queue_time: self.queue_time,
            answered_at: self.answered_at,
            outcome,
            reason: self.rejection,
        }
    }
}
