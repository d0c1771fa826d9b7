//! State of a tier's controller: its halves at the server and at the clients. Does not contain
//! admission decisions.
//!
//! The controller sees the server as one core: all threads share one fast half.

use super::event::JobId;
use crate::clients::Clients;
use crate::config::SimConfig;
use leeward_core::params::{ParamError, Params};
use leeward_core::registry::{Algorithm, Environment};
use leeward_core::server::{CoreId, Gauges, PendingRequest, Registration, ServerHalves, Session, SessionSlot, Signals};
use leeward_core::units::{Nanos, Rate, Time};
use leeward_workload::rng::{Purpose, Rng};

/// Time in which the server should work off the requests held back at clients, which turns their
/// number into a rate.
///
/// The growth of that number alone would be zero once the clients' queues are full, and a small
/// setup would stay.
const CATCH_UP: Nanos = Nanos::from_millis(100);

/// The controller of a tier.
pub(super) struct Admission {
    pub(super) clients: Clients<JobId>,
    pub(super) halves: ServerHalves,
    pub(super) sessions: Vec<Session>,
    pub(super) permits: Vec<Option<PendingRequest>>,
    pub(super) since_tick: Signals,
    pub(super) period: Nanos,
    /// CPU time of messages that no thread has paid for yet.
    pub(super) debt: Nanos,
    /// Number of requests that wait at clients, as far as reported.
    held_back: u64,
    pub(super) rejected: u64,
    /// Value of `rejected` at the threading policy's last decision.
    rejected_at_decision: u64,
    pub(super) client_rng: Rng,
    pub(super) server_rng: Rng,
}

impl Admission {
    /// Creates the controller; `None` for the algorithm `none`.
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

    pub(super) fn reaction(&self) -> Nanos {
        self.halves.control.reaction()
    }

    pub(super) fn gauges(&self) -> Gauges {
        self.halves.control.gauges()
    }

    /// Number of rejections since the last call, for the threading policy.
    pub(super) fn take_rejected(&mut self) -> u64 {
        self.rejected - std::mem::replace(&mut self.rejected_at_decision, self.rejected)
    }

    /// Requests held back at clients, as a rate per second.
    pub(super) fn held_back(&self) -> Rate {
        Rate(self.held_back as f64 / CATCH_UP.as_secs_f64())
    }

    pub(super) fn update_demand(&mut self, client: u32, demand: u32) {
        let session = &mut self.sessions[client as usize];
        self.held_back = (self.held_back + u64::from(demand)).saturating_sub(u64::from(session.demand));
        session.demand = demand;
    }

    pub(super) fn keep(&mut self, job: JobId, permit: PendingRequest) {
        let index = job as usize;
        if self.permits.len() <= index {
            self.permits.resize_with(index + 1, || None);
        }
        self.permits[index] = Some(permit);
    }
}
