//! The decision about a request that has arrived. Does not contain the end of a request.

use super::{DequeueCheck, Gate, Rejection, ShadowEntry, number_of_thread};
use crate::builder::Mode;
use crate::delay_weight::DelayWeight;
use crate::open_request::OpenRequest;
use crate::permit::Permit;
use crate::request::RequestInfo;
use crate::shard::Shard;
use leeward_controllers::edge::deadline;
use leeward_core::server::{self, Arrival};
use leeward_core::units::{Nanos, Time};
use leeward_host::sync::lock;
use leeward_observe::{Decision, DecisionReason, SAMPLING_INTERVAL};

/// Share of the target delay below which a request starts without queueing. The controller rejects
/// nothing there, either.
const IDLE_SHARE: f64 = 0.125;

/// Share of the objective after which a request is late. The rest is for its answer.
const PUNCTUAL: f64 = 0.9;

/// One of this many requests is judged by its delay alone: without the time that requests of its
/// route spend inside. If its client waits less than the objective, its work may be in vain: where
/// others wait, only one of this many such requests is judged so.
const TRIED_EVERY: u64 = 16;

impl Gate {
    /// Decides about a request that has arrived.
    ///
    /// # Errors
    ///
    /// The request is rejected; the caller should answer at once.
    pub fn admit(&self, arriving: &RequestInfo) -> Result<Permit, Rejection> {
        self.admit_at(self.now(), arriving)
    }

    /// Decides at a time given by the caller, counted since the gate was made. Times must not
    /// decrease.
    ///
    /// # Errors
    ///
    /// As for [`Gate::admit`].
    pub fn admit_at(&self, now: Time, arriving: &RequestInfo) -> Result<Permit, Rejection> {
        let mut request = OpenRequest::none();
        self.decide(now, arriving, &mut request)?;
        Ok(Permit::new(self.clone(), request))
    }

    /// Decides about a request that has arrived, which begins in `request` if it is admitted.
    pub(crate) fn decide(&self, now: Time, arriving: &RequestInfo, request: &mut OpenRequest) -> Result<(), Rejection> {
        let inner = &*self.0;
        let arrived = (now, arriving.age.unwrap_or(Nanos::ZERO));
        let service = inner.estimates.service(arriving.route);
        // In shadow mode, the times are those of the shadow queue. `behind` is the wait that is
        // still to come, in a queue of the caller's own.
        let (now, waited, delay, behind) = match inner.mode {
            Mode::Enforce => {
                let (waited, delay) = inner.wait_and_delay(now, arriving);
                let behind = inner.delay_behind(now);
                (now, waited, delay.max(behind), behind)
            }
            Mode::Shadow | Mode::Share(_) => {
                let (now, waited, delay) = inner.shadow_delays(now, arriving);
                (now, waited, delay, Nanos::ZERO)
            }
        };
        let weight = inner.delay_weight(arriving.route, service);
        inner.tick(now, weight.weighted(delay));
        let time_left = arriving.timeout.unwrap_or(Nanos::MAX);
        // Without an age, only the delay shows what the request waits.
        inner.note_wait(now, if arriving.age.is_some() { waited + behind } else { delay }, service);
        // A late response is better than none where a rejection makes nobody else earlier. What is
        // late already is rejected in any case, without the locks of `is_alone`.
        let is_expected_late = waited < inner.slo && waited + service >= inner.slo;
        let is_alone = is_expected_late
            && time_left >= inner.slo
            && !inner.delays_others(now, arriving.route, service)
            && inner.is_alone(now);
        // Each thread has its own shard while shards are not fewer than threads.
        let index = number_of_thread() % inner.shards.len();
        let mut shard = lock(&inner.shards[index]);
        let random = shard.rng.next_u64();
        // If a route were always rejected, the gate would never learn that it has become fast, such
        // as when a lock behind which its requests waited is free again.
        let is_tried = (random >> 32).is_multiple_of(TRIED_EVERY);
        let applied_weight = if is_tried { DelayWeight::NONE } else { weight };
        let is_idle = || weight.weighted(waited.max(delay)) < inner.target().scale(IDLE_SHARE);
        let is_worth_it = || time_left >= inner.slo || is_idle() || (random >> 36).is_multiple_of(TRIED_EVERY);
        let expected = if is_alone || (is_tried && is_worth_it()) { Nanos::ZERO } else { service };
        let arrival = Arrival::new(now)
            .with_delay(applied_weight.weighted(delay))
            .with_priority(arriving.priority(now.0 / 3_600_000_000_000, random.rotate_left(32)))
            .with_tenant(arriving.tenant)
            .with_cost(inner.estimates.cost(arriving.route))
            .with_budget(deadline::budget(time_left.min(inner.slo), waited + behind, expected))
            .with_random(random);
        let class = (arrival.priority.level() - 1) / 16;
        let group = arriving.downstream.unwrap_or(arriving.route);
        let has_entered = inner.enter(shard.pending());
        let verdict = if !has_entered {
            Err(DecisionReason::Concurrency)
        } else if time_left < inner.slo && time_left <= waited + behind + expected {
            // The controller is not asked: it would count the request as demand, and reject others
            // in its place.
            Err(DecisionReason::Deadline)
        } else if inner.rejects_late && (arrival.budget.is_spent() || waited + behind > inner.slo.scale(PUNCTUAL)) {
            // Most controllers know delays only. Those that are published stay as they are.
            Err(DecisionReason::Late)
        } else if inner.mode == Mode::Enforce && !inner.downstream.admits(now, (group, class), random) {
            // The controller is not asked: a request that is not executed here is no demand on this
            // service.
            Err(DecisionReason::Downstream)
        } else {
            shard.admit(&arrival, applied_weight.weighted(waited))
        };
        if has_entered && verdict.is_err() {
            inner.leave();
        }
        let verdict = verdict.map_err(|reason| inner.refine_reason(reason, time_left, waited, service));
        if verdict.is_ok() {
            inner.note_admitted(now, behind, arriving.route, service);
        }
        shard.counts.arrived += 1;
        shard.by_class.count(class, verdict.as_ref().err().copied());
        inner.tenants.charge(index, arriving.tenant, inner.estimates.expected_cost(arriving.route), verdict.is_ok());
        if arriving.age.is_some() {
            shard.waits.record(waited);
        }
        let is_enforced = || inner.mode.enforces(arriving.caller(random));
        if inner.mode != Mode::Enforce && (verdict.is_ok() || !is_enforced()) {
            self.note_shadowed(&mut shard, (index, arriving.route, class), verdict);
            request.begin(index, (arriving.route, class), arrived, None);
            return Ok(());
        }
        let record = |rejected: Option<DecisionReason>| {
            let mut decision = Decision::admitted(now);
            (decision.reject_reason, decision.wait, decision.delay) = (rejected, waited, delay);
            (decision.time_left, decision.service_time) = (time_left, inner.response_time(arriving.route, service));
            (decision.priority, decision.tenant) = (arrival.priority, arrival.tenant);
            decision.route = arriving.route;
            decision.bound = match rejected {
                // The controller's own limit, and not that of the gate.
                Some(DecisionReason::Concurrency) if has_entered => {
                    inner.ticker.gauges().concurrency_limit.unwrap_or(0.0) as u64
                }
                _ => inner.bound(rejected, decision.stage, weight),
            };
            decision
        };
        match verdict {
            Ok(pending) => {
                shard.counts.admitted += 1;
                let sampled = shard.counts.admitted.is_multiple_of(SAMPLING_INTERVAL);
                let presence = shard.presence();
                drop(shard);
                if sampled {
                    inner.ring.write(&record(None));
                }
                request.begin(index, (arriving.route, class), (now, waited), Some(pending));
                request.presence = presence;
                request.is_trial = expected < service && waited + behind + service >= time_left.min(inner.slo);
                request.budget = inner.queue_budget(time_left, arriving.route, waited);
                request.downstream = group;
                if inner.queues(arriving) {
                    let lateness = weight.unweighted(inner.bounds.lateness.unwrap_or(inner.slo));
                    let last = time_left.min(inner.slo).saturating_sub(expected).min(lateness).saturating_sub(waited);
                    request.dequeue_check = Some(DequeueCheck {
                        start_deadline: now + last,
                        was_idle: is_idle(),
                        timeout: time_left,
                        priority: arrival.priority,
                        tenant: arrival.tenant,
                    });
                }
                Ok(())
            }
            Err(reason) => {
                shard.counts.rejected[reason as usize] += 1;
                drop(shard);
                let decision = inner.ring.write(&record(Some(reason)));
                Err(inner.rejection(reason, decision, random))
            }
        }
    }

    /// Counts a request that is let in for any verdict, and updates the shadow queue.
    fn note_shadowed(
        &self,
        shard: &mut Shard,
        (index, route, class): (usize, u8, u8),
        verdict: Result<server::PendingRequest, DecisionReason>,
    ) {
        match verdict {
            Ok(request) => {
                let inner = &self.0;
                let entry = ShadowEntry { shard: index, pending: request };
                lock(&inner.shadow_queue).admit(inner.estimates.expected_cost(route), inner.shards.len(), entry);
                shard.counts.admitted += 1;
            }
            Err(_) => {
                shard.counts.shadowed += 1;
                shard.counts.let_in += 1;
                shard.by_class.let_in[usize::from(class)] += 1;
            }
        }
    }
}
