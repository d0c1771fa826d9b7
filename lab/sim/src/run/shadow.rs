//! Shadow mode: the controller decides on the shadow queue, and its rejections are enforced for a
//! share of the clients.
//!
//! It works like a gate's shadow mode (decision 66), except for the server's knowledge of a
//! request. Does not contain the shadow queue, or decisions.

use super::Run;
use crate::SimError;
use crate::config::SimConfig;
use crate::requests::{Request, RequestId};
use leeward_controllers::edge::cost::CostEstimate;
use leeward_core::server::{Arrival, Departure, Outcome, PendingRequest, ServerHalves, Signals, Verdict};
use leeward_core::shadow::{ShadowQueue, ShadowRequest, is_enforced};
use leeward_core::units::{CreditId, Nanos, Tenant, Time};

/// State of shadow mode.
pub(super) struct ShadowMode {
    enforced_percent: u8,
    queue: ShadowQueue<ShadowToken>,
    /// CPU time of a request besides its service time.
    costs: Nanos,
    /// Estimated service time, by kind.
    estimates: Vec<CostEstimate>,
    /// Time of the next tick, by the clock of arrivals.
    next_tick: Time,
    since_tick: Signals,
}

/// A request in the shadow queue.
struct ShadowToken {
    session: u32,
    permit: PendingRequest,
}

impl ShadowMode {
    /// Creates the shadow mode that a configuration asks for, if any.
    ///
    /// # Errors
    /// A controller whose clients need credits: without a credit the client rejects, and the server
    /// can't shadow that.
    pub(super) fn from_config(
        config: &SimConfig,
        halves: &ServerHalves,
        name: &str,
    ) -> Result<Option<Box<Self>>, SimError> {
        if !config.is_shadow() {
            return Ok(None);
        }
        if halves.control.gauges().credit_pool.is_some() {
            let message = format!(
                "`{name}` gives credits, which limit its clients: shadow mode needs a controller that rejects at the server"
            );
            return Err(SimError::Config(message));
        }
        Ok(Some(Box::new(ShadowMode {
            enforced_percent: config.enforced,
            queue: ShadowQueue::default(),
            costs: config.server.costs.per_request(),
            estimates: (0..config.kinds.0.len().max(1)).map(|_| CostEstimate::default()).collect(),
            next_tick: Time::ZERO,
            since_tick: Signals::idle(Time::ZERO),
        })))
    }

    /// Records the service time of an executed request.
    pub(super) fn record_execution(&self, request: &Request) {
        if let Some(estimate) = self.estimates.get(usize::from(request.kind)) {
            estimate.record(request.service);
        }
    }
}

impl Run<'_> {
    /// Asks the controller about a request that a core has read. Returns whether the request
    /// continues.
    pub(super) fn admit_shadow(&mut self, id: RequestId) -> bool {
        let Some(mut shadow) = self.shadow.take() else { return true };
        let continues = self.decide_shadow(id, &mut shadow);
        self.shadow = Some(shadow);
        continues
    }

    fn decide_shadow(&mut self, id: RequestId, shadow: &mut ShadowMode) -> bool {
        self.stats.record_receive(true);
        let request = self.requests[id];
        let (now, delay, ended) = shadow.queue.poll(self.now, request.arrived);
        for ShadowRequest { end: at, sojourn, token: entry, .. } in ended {
            shadow.since_tick.completions += 1;
            self.report_shadow_outcome(entry.session, entry.permit, at, Outcome::Completed, sojourn);
        }
        shadow.since_tick.arrivals += 1;
        if now >= shadow.next_tick {
            let packet_delay = shadow.queue.oldest();
            let signals = Signals { now, packet_delay, run_delay: Nanos::ZERO, ..shadow.since_tick };
            self.halves.control.tick(&signals);
            (shadow.since_tick, shadow.next_tick) = (Signals::idle(now), now + self.period);
        }
        let arrival = Arrival::new(now)
            .with_demand(request.demand)
            .with_priority(request.priority)
            .with_delay(delay)
            .with_random(self.server_rng.bits());
        // Cores read their packets in turn, so this packet's extra wait belongs to the real queue
        // and not to the shadow queue.
        let arrival = self.kind_estimates.describe(arrival, &Request { arrived: now, ..request }, delay);
        let home = self.home(request.session);
        let session = &mut self.sessions[request.session as usize];
        let (mut verdict, pending) = session.request(self.halves.cores[home].as_mut(), &arrival);
        if verdict == Verdict::Admit {
            verdict = self.halves.cores[home].on_dequeue(delay);
        }
        if verdict == Verdict::Admit {
            let estimate = shadow.estimates.get(usize::from(request.kind)).and_then(CostEstimate::time);
            let time = estimate.unwrap_or(Nanos::ZERO) + shadow.costs;
            shadow.queue.admit(
                time,
                self.halves.cores.len(),
                ShadowToken { session: request.session, permit: pending },
            );
            return true;
        }
        shadow.since_tick.rejections += 1;
        self.report_shadow_outcome(request.session, pending, now, Outcome::Rejected, delay);
        self.stats.record_shadow_reject();
        // The tenant's number if the requests have tenants, else the client's.
        let tenant = self.config.kinds.0.get(usize::from(request.kind)).map_or(Tenant::DEFAULT, |kind| kind.tenant);
        let subject = if tenant == Tenant::DEFAULT { request.session } else { tenant.0 };
        !is_enforced(shadow.enforced_percent, subject.into())
    }

    /// Reports the end of a request in the shadow queue to the controller.
    fn report_shadow_outcome(
        &mut self,
        session: u32,
        permit: PendingRequest,
        now: Time,
        outcome: Outcome,
        sojourn: Nanos,
    ) {
        let home = self.home(session);
        let departure = Departure { now, outcome, sojourn, credit: CreditId::NONE };
        let _ = self.sessions[session as usize].reply(self.halves.cores[home].as_mut(), permit, &departure);
    }
}
