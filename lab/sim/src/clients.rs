//! The clients of a run: `leeward-core`'s client shells, each with a timer.

use crate::config::SimConfig;
use crate::pacing::PacedHalf;
use crate::timer::Timer;
use leeward_core::client::{Client, ClientSink};
use leeward_core::params::{ParamError, Params};
use leeward_core::registry::{Algorithm, Environment};
use leeward_core::server::{Feedback, Outcome};
use leeward_core::units::{Nanos, Priority, Time};

/// All clients of a run. `T` identifies a request.
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
        sink: &mut impl ClientSink<T>,
    ) {
        self.clients[client as usize].submit(now, request, priority, random, sink);
    }

    pub(crate) fn on_reply(
        &mut self,
        client: u32,
        now: Time,
        outcome: Outcome,
        round_trip: Nanos,
        feedback: &Feedback,
        sink: &mut impl ClientSink<T>,
    ) {
        self.clients[client as usize].on_reply(now, outcome, round_trip, feedback, sink);
    }

    pub(crate) fn on_credit(&mut self, client: u32, now: Time, feedback: &Feedback, sink: &mut impl ClientSink<T>) {
        self.clients[client as usize].on_credit(now, feedback, sink);
    }

    pub(crate) fn on_timer(&mut self, client: u32, now: Time, sink: &mut impl ClientSink<T>) {
        self.clients[client as usize].on_timer(now, sink);
    }

    /// Numbers of requests that wait at clients, and of requests sent and unanswered.
    pub(crate) fn waiting_and_outstanding(&self) -> (u64, u64) {
        self.clients.iter().fold((0, 0), |(waiting, outstanding), client| {
            (waiting + u64::from(client.demand()), outstanding + u64::from(client.outstanding()))
        })
    }

    /// Whether the timer that has just fired is the one that is set.
    pub(crate) fn timer_is_due(&mut self, client: u32, now: Time) -> bool {
        self.timers[client as usize].is_due(now)
    }

    /// Time at which this client's timer must be set again; `None` if it stays as it is.
    pub(crate) fn rearm(&mut self, client: u32, now: Time) -> Option<Time> {
        let timeout = self.clients[client as usize].next_timeout(now);
        self.timers[client as usize].set(now, timeout)
    }
}
