//! The decision on a request that has come. Never here: its end.

use super::{DequeueCheck, Gate, Rejection, ShadowEntry};
use crate::builder::Mode;
use crate::delay_weight::DelayWeight;
use crate::permit::Permit;
use crate::request::RequestInfo;
use crate::shard::Shard;
use leeward_controllers::edge::deadline;
use leeward_core::server::{self, Arrival};
use leeward_core::units::{Nanos, Time};
use leeward_host::sync::lock;
use leeward_observe::{Decision, DecisionReason, SAMPLING_INTERVAL};
use std::sync::atomic::{AtomicUsize, Ordering};

/// Below this share of the target nobody waits: such a request needs no room. The controller refuses nothing there, either.
const IDLE_SHARE: f64 = 0.125;

/// Of so many requests one is judged without what is known of time inside.
const UNWEIGHTED_EVERY: u64 = 16;

impl Gate {
    /// Decides on a request that has come.
    ///
    /// # Errors
    /// The request is refused: answer so, at once.
    pub fn admit(&self, arriving: &RequestInfo) -> Result<Permit, Rejection> {
        self.admit_at(self.now(), arriving)
    }

    /// The same at a time of the caller's, since the gate was made. Times never go back.
    ///
    /// # Errors
    /// As [`Gate::arrive`].
    pub fn admit_at(&self, now: Time, arriving: &RequestInfo) -> Result<Permit, Rejection> {
        let inner = &*self.0;
        let service = inner.routes[usize::from(arriving.route)].time().unwrap_or(Nanos::ZERO);
        // In a rehearsal it is the time of another queue.
        let (now, waited, delay) = match inner.mode {
            Mode::Enforce => {
                let (waited, delay) = inner.wait_and_delay(now, arriving);
                (now, waited, delay)
            }
            Mode::Shadow | Mode::Share(_) => inner.shadow_delays(now, arriving),
        };
        let stretch = inner.delay_weight(arriving.route, service);
        inner.tick(now, stretch.weighted(delay));
        let index = shard_of_thread() % inner.shards.len();
        let mut shard = lock(&inner.shards[index]);
        let random = shard.rng.next_u64();
        let left = arriving.timeout.unwrap_or(Nanos::MAX);
        // One in some is judged by its wait alone: of a route that is refused nobody would learn that it is quick again.
        let felt = if (random >> 32).is_multiple_of(UNWEIGHTED_EVERY) { DelayWeight::NONE } else { stretch };
        let arrival = Arrival::new(now)
            .with_delay(felt.weighted(delay))
            .with_priority(arriving.priority(now.0 / 3_600_000_000_000, random.rotate_left(32)))
            .with_tenant(arriving.tenant)
            .with_cost(inner.cost(arriving.route))
            .with_budget(deadline::budget(left.min(inner.slo), waited, service))
            .with_random(random);
        let class = (arrival.priority.level() - 1) / 16;
        let asks = arriving.downstream.unwrap_or(arriving.route);
        let verdict = if shard.pending() >= inner.shard_limit {
            Err(DecisionReason::Concurrency)
        } else if inner.mode == Mode::Enforce && !inner.downstream.admits(now, (asks, class), random) {
            // The controller is not asked: what is not executed here is no demand on this service.
            Err(DecisionReason::Downstream)
        } else {
            shard.admit(&arrival, felt.weighted(waited))
        };
        let verdict = verdict.map_err(|reason| inner.refine_reason(reason, left, waited, service));
        shard.counts.arrived += 1;
        shard.by_class.count(class, verdict.as_ref().err().copied());
        inner.tenants.charge(index, arriving.tenant, inner.expected_cost(arriving.route), verdict.is_ok());
        if arriving.age.is_some() {
            shard.waits.record(waited);
        }
        let is_meant = || inner.mode.enforces(arriving.caller(random));
        if inner.mode != Mode::Enforce && (verdict.is_ok() || !is_meant()) {
            return Ok(self.admit_shadowed(&mut shard, index, (arriving.route, class), verdict));
        }
        let record = |refused: Option<DecisionReason>| {
            let mut decision = Decision::admitted(now);
            (decision.reject_reason, decision.wait, decision.delay) = (refused, waited, delay);
            (decision.time_left, decision.service_time) = (left, inner.response_time(arriving.route, service));
            (decision.priority, decision.tenant) = (arrival.priority, arrival.tenant);
            decision.route = arriving.route;
            decision.bound = inner.bound(refused, decision.stage, stretch);
            decision
        };
        match verdict {
            Ok(ticket) => {
                shard.counts.admitted += 1;
                let sampled = shard.counts.admitted.is_multiple_of(SAMPLING_INTERVAL);
                drop(shard);
                if sampled {
                    inner.ring.write(&record(None));
                }
                let ticket = Permit::new(self.clone(), index, (arriving.route, class), (now, waited), Some(ticket));
                let ticket = ticket.with_budget(inner.queue_budget(left, arriving.route, waited)).with_downstream(asks);
                if inner.wait_queue.is_none() {
                    return Ok(ticket);
                }
                let lateness = stretch.unweighted(inner.bounds.lateness.unwrap_or(inner.slo));
                let last = left.min(inner.slo).saturating_sub(service).min(lateness).saturating_sub(waited);
                Ok(ticket.with_dequeue_check(DequeueCheck {
                    start_deadline: now + last,
                    was_idle: stretch.weighted(waited.max(delay)) < inner.target().scale(IDLE_SHARE),
                    timeout: left,
                    priority: arrival.priority,
                    tenant: arrival.tenant,
                }))
            }
            Err(reason) => {
                shard.counts.rejected[reason as usize] += 1;
                drop(shard);
                let decision = inner.ring.write(&record(Some(reason)));
                Err(inner.rejection(reason, decision, random))
            }
        }
    }

    /// Admits whatever the verdict, and keeps the queue that would be.
    fn admit_shadowed(
        &self,
        shard: &mut Shard,
        index: usize,
        (route, class): (u8, u8),
        verdict: Result<server::PendingRequest, DecisionReason>,
    ) -> Permit {
        match verdict {
            Ok(ticket) => {
                let inner = &self.0;
                let rehearsed = ShadowEntry { shard: index, route, class, pending: ticket };
                lock(&inner.shadow_queue).admit(inner.expected_cost(route), inner.shards.len(), rehearsed);
                shard.counts.admitted += 1;
            }
            Err(_) => shard.counts.shadowed += 1,
        }
        Permit::shadow(self.clone(), index, route)
    }
}

/// Each thread has a shard of its own as long as there are as many shards as threads.
fn shard_of_thread() -> usize {
    static THREADS: AtomicUsize = AtomicUsize::new(0);
    thread_local!(static SHARD: usize = THREADS.fetch_add(1, Ordering::Relaxed));
    SHARD.try_with(|shard| *shard).unwrap_or(0)
}
