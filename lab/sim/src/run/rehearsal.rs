//! Rehearsals: the controller decides on the queue that would be, and its refusals happen to a share of the clients, or to none. As a gate
//! does it (decision 66), but for what the server knows of a request. Never here: that queue, and decisions.

use super::Run;
use crate::SimError;
use crate::config::SimConfig;
use crate::requests::{Request, RequestId};
use leeward_controllers::edge::cost::Estimate;
use leeward_core::rehearsal::{Leaving, Twin, enforces};
use leeward_core::server::{Arrival, Departure, Outcome, ServerHalves, Signals, Ticket, Verdict};
use leeward_core::units::{CreditId, Nanos, Tenant, Time};

/// State of a rehearsal.
pub(super) struct Rehearsal {
    percent: u8,
    twin: Twin<Rehearsed>,
    /// Time of a request on a core besides its service.
    costs: Nanos,
    /// Time of the service, by kind.
    estimates: Vec<Estimate>,
    /// When the control loop has its next turn, by the clock of arrival.
    next_tick: Time,
    since_tick: Signals,
}

/// A request in the queue that would be.
struct Rehearsed {
    session: u32,
    ticket: Ticket,
}

impl Rehearsal {
    /// The rehearsal that a configuration asks for, if it does.
    ///
    /// # Errors
    /// A controller whose clients send by credits: a credit is a refusal at the client, and none of it could be rehearsed at the server.
    pub(super) fn of(config: &SimConfig, halves: &ServerHalves, name: &str) -> Result<Option<Box<Self>>, SimError> {
        if !config.rehearses() {
            return Ok(None);
        }
        if halves.control.gauges().credit_pool.is_some() {
            let words = format!(
                "`{name}` gives credits, which bind its clients: a rehearsal is of controllers that refuse at the server"
            );
            return Err(SimError::Config(words));
        }
        Ok(Some(Box::new(Rehearsal {
            percent: config.enforced,
            twin: Twin::default(),
            costs: config.server.costs.per_request(),
            estimates: (0..config.kinds.0.len().max(1)).map(|_| Estimate::default()).collect(),
            next_tick: Time::ZERO,
            since_tick: Signals::idle(Time::ZERO),
        })))
    }

    /// A request was executed.
    pub(super) fn executed(&self, request: &Request) {
        if let Some(estimate) = self.estimates.get(usize::from(request.kind)) {
            estimate.note(request.service);
        }
    }
}

impl Run<'_> {
    /// Asks the controller about a request that a core has read, and says whether the request goes on.
    pub(super) fn rehearses(&mut self, id: RequestId) -> bool {
        let Some(mut rehearsal) = self.rehearsal.take() else { return true };
        let goes_on = self.decides(id, &mut rehearsal);
        self.rehearsal = Some(rehearsal);
        goes_on
    }

    fn decides(&mut self, id: RequestId, rehearsal: &mut Rehearsal) -> bool {
        self.stats.received(true);
        let request = self.requests[id];
        let (now, delay, ended) = rehearsal.twin.look(self.now, request.arrived);
        for Leaving { at, sojourn, ticket, .. } in ended {
            rehearsal.since_tick.completions += 1;
            self.tells(ticket.session, ticket.ticket, at, Outcome::Completed, sojourn);
        }
        rehearsal.since_tick.arrivals += 1;
        if now >= rehearsal.next_tick {
            let packet_delay = rehearsal.twin.oldest();
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
        let arrival = self.kinds.describe(arrival, &Request { arrived: now, ..request }, delay);
        let home = self.home(request.session);
        let session = &mut self.sessions[request.session as usize];
        let (mut verdict, ticket) = session.request(self.halves.cores[home].as_mut(), &arrival);
        if verdict == Verdict::Admit {
            verdict = self.halves.cores[home].execute(delay);
        }
        if verdict == Verdict::Admit {
            let estimate = rehearsal.estimates.get(usize::from(request.kind)).and_then(Estimate::time);
            let time = estimate.unwrap_or(Nanos::ZERO) + rehearsal.costs;
            rehearsal.twin.admit(time, self.halves.cores.len(), Rehearsed { session: request.session, ticket });
            return true;
        }
        rehearsal.since_tick.drops += 1;
        self.tells(request.session, ticket, now, Outcome::Dropped, delay);
        self.stats.foreseen();
        // The tenant's number where the requests have tenants; the client's where they have none.
        let tenant = self.config.kinds.0.get(usize::from(request.kind)).map_or(Tenant::DEFAULT, |kind| kind.tenant);
        let account = if tenant == Tenant::DEFAULT { request.session } else { tenant.0 };
        !enforces(rehearsal.percent, account.into())
    }

    /// Tells the controller how a request of the queue that would be has ended.
    fn tells(&mut self, session: u32, ticket: Ticket, now: Time, outcome: Outcome, sojourn: Nanos) {
        let home = self.home(session);
        let departure = Departure { now, outcome, sojourn, credit: CreditId::NONE };
        let _ = self.sessions[session as usize].reply(self.halves.cores[home].as_mut(), ticket, &departure);
    }
}
