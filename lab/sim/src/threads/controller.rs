//! A controller's halves at the server of a tier and at its clients. What is admitted is the controller's business.
//!
//! The server is one core to its controller: its threads share the half that decides about requests.

use super::event::JobId;
use crate::clients::Clients;
use crate::config::SimConfig;
use leeward_core::params::{ParamError, Params};
use leeward_core::registry::{Algorithm, Environment};
use leeward_core::server::{CoreId, Gauges, PendingRequest, Registration, ServerHalves, Session, SessionSlot, Signals};
use leeward_core::units::{Nanos, Rate, Time};
use leeward_workload::rng::{Purpose, Rng};

/// Time in which a server is to catch up with what clients hold back: so it is told as a rate. The growth alone would say nothing any more
/// once the clients' queues are full, and a small setup would stay.
const CATCH_UP: Nanos = Nanos::from_millis(100);

/// A controller around a tier.
pub(super) struct Admission {
    pub(super) clients: Clients<JobId>,
    pub(super) halves: ServerHalves,
    pub(super) sessions: Vec<Session>,
    pub(super) permits: Vec<Option<PendingRequest>>,
    pub(super) since_tick: Signals,
    pub(super) period: Nanos,
    /// CPU time of messages that no request has paid for.
    pub(super) debt: Nanos,
    /// Requests that wait at clients, as far as these have told.
    held_back: u64,
    pub(super) rejected: u64,
    /// Drops when the policy of threading was last asked.
    rejected_at_decision: u64,
    pub(super) client_rng: Rng,
    pub(super) server_rng: Rng,
}

impl Admission {
    /// The controller, unless it decides nothing.
    pub(super) fn new(config: &SimConfig, algorithm: &Algorithm, params: &Params) -> Result<Option<Self>, ParamError> {
        if algorithm.name == "none" {
            return Ok(None);
        }
        let environment = Environment::new(1, config.network.rtt, config.slo);
        let mut halves = algorithm.server(params, &environment)?;
        let open = |client| {
            let mut session = Session::new(SessionSlot(client), CoreId(0));
            halves.cores[0].open(&mut session, &Registration { now: Time::ZERO, demand: 0 });
            session
        };
        let sessions = (0..config.workload.clients).map(open).collect();
        Ok(Some(Admission {
            clients: Clients::new(config, algorithm, params, &environment)?,
            sessions,
            permits: Vec::new(),
            since_tick: Signals::idle(Time::ZERO),
            period: halves.control.period().max(Nanos(1)),
            halves,
            debt: Nanos::ZERO,
            held_back: 0,
            rejected: 0,
            rejected_at_decision: 0,
            client_rng: Rng::new(config.seed, Purpose::Clients),
            server_rng: Rng::new(config.seed, Purpose::Server),
        }))
    }

    pub(super) fn gauges(&self) -> Gauges {
        self.halves.control.gauges()
    }

    /// Drops since this was last asked, for the policy of threading.
    pub(super) fn take_rejected(&mut self) -> u64 {
        self.rejected - std::mem::replace(&mut self.rejected_at_decision, self.rejected)
    }

    /// Requests that clients hold back, as a rate per second.
    pub(super) fn held_back(&self) -> Rate {
        Rate(self.held_back as f64 / CATCH_UP.as_secs_f64())
    }

    pub(super) fn update_demand(&mut self, client: u32, demand: u32) {
        let session = &mut self.sessions[client as usize];
        self.held_back = (self.held_back + u64::from(demand)).saturating_sub(u64::from(session.demand));
        session.demand = demand;
    }

    pub(super) fn keep(&mut self, job: JobId, ticket: PendingRequest) {
        let place = job as usize;
        if self.permits.len() <= place {
            self.permits.resize_with(place + 1, || None);
        }
        self.permits[place] = Some(ticket);
    }
}
