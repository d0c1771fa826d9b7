//! Rehearsals: the controller decides on the queue that would be, and its refusals happen to a share of the clients, or to none. As a gate
//! does it (decision 66), but for what the server knows of a request. Never here: that queue, and decisions.

use super::Run;
use crate::SimError;
use crate::config::SimConfig;
use crate::requests::{Request, RequestId};
use leeward_controllers::edge::cost::CostEstimate;
use leeward_core::server::{Arrival, Departure, Outcome, PendingRequest, ServerHalves, Signals, Verdict};
use leeward_core::shadow::{ShadowQueue, ShadowRequest, is_enforced};
use leeward_core::units::{CreditId, Nanos, Tenant, Time};

/// State of a rehearsal.
pub(super) struct ShadowMode {
    enforced_percent: u8,
    queue: ShadowQueue<ShadowToken>,
    /// Time of a request on a core besides its service.
    costs: Nanos,
    /// Time of the service, by kind.
    estimates: Vec<CostEstimate>,
    /// When the control loop has its next turn, by the clock of arrival.
    next_tick: Time,
    since_tick: Signals,
}

/// A request in the queue that would be.
struct ShadowToken {
    session: u32,
    permit: PendingRequest,
}

impl ShadowMode {
    /// The rehearsal that a configuration asks for, if it does.
    ///
    /// # Errors
    /// A controller whose clients send by credits: a credit is a refusal at the client, and none of it could be rehearsed at the server.
    pub(super) fn from_config(
        config: &SimConfig,
        halves: &ServerHalves,
        name: &str,
    ) -> Result<Option<Box<Self>>, SimError> {
        if !config.is_shadow() {
            return Ok(None);
        }
        if halves.control.gauges().credit_pool.is_some() {
            let words = format!(
                "`{name}` gives credits, which bind its clients: a rehearsal is of controllers that refuse at the server"
            );
            return Err(SimError::Config(words));
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

    /// A request was executed.
    pub(super) fn record_execution(&self, request: &Request) {
        if let Some(estimate) = self.estimates.get(usize::from(request.kind)) {
            estimate.record(request.service);
        }
    }
}

impl Run<'_> {
    /// Asks the controller about a request that a core has read, and says whether the request goes on.
    pub(super) fn admit_shadow(&mut self, id: RequestId) -> bool {
        let Some(mut rehearsal) = self.shadow.take() else { return true };
        let goes_on = self.decide_shadow(id, &mut rehearsal);
        self.shadow = Some(rehearsal);
        goes_on
    }

    fn decide_shadow(&mut self, id: RequestId, rehearsal: &mut ShadowMode) -> bool {
        self.stats.record_receive(true);
        let request = self.requests[id];
        let (now, delay, ended) = rehearsal.queue.poll(self.now, request.arrived);
        for ShadowRequest { end: at, sojourn, token: ticket, .. } in ended {
            rehearsal.since_tick.completions += 1;
            self.report_shadow_outcome(ticket.session, ticket.permit, at, Outcome::Completed, sojourn);
        }
        rehearsal.since_tick.arrivals += 1;
        if now >= rehearsal.next_tick {
            let packet_delay = rehearsal.queue.oldest();
            let signals = Signals { now, packet_delay, run_delay: Nanos::ZERO, ..rehearsal.since_tick };
            self.halves.control.tick(&signals);
            (rehearsal.since_tick, rehearsal.next_tick) = (Signals::idle(now), now + self.period);
        }
        let arrival = Arrival::new(now)
            .with_demand(request.demand)
            .with_priority(request.priority)
            .with_delay(delay)
            .with_random(self.server_rng.bits());
        // Cores read their own packets in turn: how long this one has waited beyond others is the real queue's, and not that of the twin.
        let arrival = self.kind_estimates.describe(arrival, &Request { arrived: now, ..request }, delay);
        let home = self.home(request.session);
        let session = &mut self.sessions[request.session as usize];
        let (mut verdict, ticket) = session.request(self.halves.cores[home].as_mut(), &arrival);
        if verdict == Verdict::Admit {
            verdict = self.halves.cores[home].on_dequeue(delay);
        }
        if verdict == Verdict::Admit {
            let estimate = rehearsal.estimates.get(usize::from(request.kind)).and_then(CostEstimate::time);
            let time = estimate.unwrap_or(Nanos::ZERO) + rehearsal.costs;
            rehearsal.queue.admit(
                time,
                self.halves.cores.len(),
                ShadowToken { session: request.session, permit: ticket },
            );
            return true;
        }
        rehearsal.since_tick.rejections += 1;
        self.report_shadow_outcome(request.session, ticket, now, Outcome::Rejected, delay);
        self.stats.record_shadow_reject();
        // The tenant's number where the requests have tenants; the client's where they have none.
        let tenant = self.config.kinds.0.get(usize::from(request.kind)).map_or(Tenant::DEFAULT, |kind| kind.tenant);
        let account = if tenant == Tenant::DEFAULT { request.session } else { tenant.0 };
        !is_enforced(rehearsal.enforced_percent, account.into())
    }

    /// Tells the controller how a request of the queue that would be has ended.
    fn report_shadow_outcome(
        &mut self,
        session: u32,
        ticket: PendingRequest,
        now: Time,
        outcome: Outcome,
        sojourn: Nanos,
    ) {
        let home = self.home(session);
        let departure = Departure { now, outcome, sojourn, credit: CreditId::NONE };
        let _ = self.sessions[session as usize].reply(self.halves.cores[home].as_mut(), ticket, &departure);
    }
}
