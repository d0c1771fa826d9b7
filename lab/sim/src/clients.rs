//! The clients: `leeward-core`'s client shells, and a timer for each.

use crate::config::SimConfig;
use crate::pacing::PacedHalf;
use crate::timer::Timer;
use leeward_core::client::{Client, ClientSink};
use leeward_core::params::{ParamError, Params};
use leeward_core::registry::{Algorithm, Environment};
use leeward_core::server::{Feedback, Outcome};
use leeward_core::units::{Nanos, Priority, Time};

/// All clients of a run. `T` names a request.
pub(crate) struct Clients<T> {
    clients: Vec<Client<T>>,
    timers: Vec<Timer>,
}

impl<T> Clients<T> {
    pub(crate) fn new(
        config: &SimConfig,
        algorithm: &Algorithm,
        params: &Params,
        environment: &Environment,
    ) -> Result<Self, ParamError> {
        let (count, model) = (config.workload.clients, config.clients);
        let give_up = config.replicas.and_then(|replicas| replicas.credit_timeout);
        let client = || {
            let mut parts = (algorithm.build_client)(params, environment)?;
            if model.pacing > Nanos::ZERO {
                parts.half = Box::new(PacedHalf::new(parts.half, model.pacing));
            }
            for timeout in [model.timeout, give_up].into_iter().flatten() {
                parts.config.max_delay = parts.config.max_delay.min(timeout);
            }
            Ok(Client::new(parts))
        };
        let clients = (0..count).map(|_| client()).collect::<Result<_, _>>()?;
        Ok(Clients { clients, timers: vec![Timer::UNSET; count as usize] })
    }

    pub(crate) fn submit(
        &mut self,
        client: u32,
        now: Time,
        request: T,
        priority: Priority,
        random: u64,
        outlet: &mut impl ClientSink<T>,
    ) {
        self.clients[client as usize].submit(now, request, priority, random, outlet);
    }

    pub(crate) fn on_reply(
        &mut self,
        client: u32,
        now: Time,
        outcome: Outcome,
        round_trip: Nanos,
        feedback: &Feedback,
        outlet: &mut impl ClientSink<T>,
    ) {
        self.clients[client as usize].on_reply(now, outcome, round_trip, feedback, outlet);
    }

    pub(crate) fn on_credit(&mut self, client: u32, now: Time, feedback: &Feedback, outlet: &mut impl ClientSink<T>) {
        self.clients[client as usize].on_credit(now, feedback, outlet);
    }

    pub(crate) fn on_timer(&mut self, client: u32, now: Time, outlet: &mut impl ClientSink<T>) {
        self.clients[client as usize].on_timer(now, outlet);
    }

    /// Requests that wait at clients, and requests that have left and are unanswered.
    pub(crate) fn waiting_and_outstanding(&self) -> (u64, u64) {
        self.clients.iter().fold((0, 0), |(waiting, outstanding), client| {
            (waiting + u64::from(client.demand()), outstanding + u64::from(client.outstanding()))
        })
    }

    /// Whether the timer that has just gone off is the one that is set.
    pub(crate) fn timer_is_due(&mut self, client: u32, now: Time) -> bool {
        self.timers[client as usize].is_due(now)
    }

    /// When this client's timer must be set anew; `None` if it need not be.
    pub(crate) fn rearm(&mut self, client: u32, now: Time) -> Option<Time> {
        let wanted = self.clients[client as usize].next_timeout(now);
        self.timers[client as usize].set(now, wanted)
    }
}
