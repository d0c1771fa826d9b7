//! Construction of a graph's run: servers with their controllers, and a link from each caller to
//! each of its callees.

use super::analysis::stages;
use super::jobs::{CpuTime, Jobs};
use super::links::{Effects, Link};
use super::model::{ControlPlacement, Graph};
use super::retry_budget::RetryBudget;
use super::run::{Run, ServiceStats};
use super::server::{CalleeGroup, Server};
use crate::SimError;
use crate::audit::Audit;
use crate::config::SimConfig;
use crate::event_queue::EventQueue;
use crate::run_guard::RunGuard;
use crate::stats::Stats;
use crate::timer::Timer;
use leeward_core::client::Client;
use leeward_core::params::Params;
use leeward_core::registry::{Algorithm, Environment};
use leeward_core::server::{CoreId, Registration, Session, SessionSlot, Signals};
use leeward_core::units::{Credits, Nanos, Priority, Time};
use leeward_outcome::Distribution;
use leeward_workload::ArrivalStream;
use leeward_workload::rng::{Purpose, Rng};
use std::collections::VecDeque;
use std::sync::atomic::AtomicBool;

impl<'a> Run<'a> {
    pub(super) fn new(
        config: &'a SimConfig,
        graph: &'a Graph,
        algorithm: &Algorithm,
        params: &Params,
        stop: &'a AtomicBool,
    ) -> Result<Self, SimError> {
        let registry = leeward_controllers::builtin();
        let none = registry.find("none").map_err(|error| SimError::Config(error.to_string()))?;
        let no_params = Params::default();
        let uncontrolled = |service: usize| service > 0 && graph.policy.control == ControlPlacement::Entry;
        let of = |service: usize| if uncontrolled(service) { (none, &no_params) } else { (algorithm, params) };
        let objectives = graph.objectives(config.slo);
        let entry = graph.policy.control == ControlPlacement::Entry;
        let objective = |index: usize| if entry { config.slo } else { objectives[index] };
        let environments: Vec<Environment> = graph
            .services
            .iter()
            .enumerate()
            .map(|(index, service)| Environment::new(service.cores, service.rtt, objective(index)))
            .collect();
        let mut first = vec![0];
        for service in &graph.services {
            first.push(first[first.len() - 1] + service.servers);
        }
        let mut run = Run {
            config,
            graph,
            now: Time::ZERO,
            event_queue: EventQueue::new(),
            arrivals: ArrivalStream::new(&config.workload, config.seed),
            jobs: Jobs::default(),
            links: Vec::new(),
            servers: Vec::new(),
            first_server: first,
            periods: Vec::new(),
            objectives,
            spans: graph.spans(),
            client_retries: RetryBudget::default(),
            stats: Stats::new(config),
            audit: Audit::default(),
            service_stats: Vec::new(),
            used_cpu: CpuTime::default(),
            wasted_cpu: CpuTime::default(),
            effects: Effects::default(),
            events: 0,
            guard: RunGuard::new(config, algorithm.name, stop),
            service_rng: Rng::new(config.seed, Purpose::Service),
            client_rng: Rng::new(config.seed, Purpose::Clients),
            server_rng: Rng::new(config.seed, Purpose::Server),
            path_rng: Rng::new(config.seed, Purpose::Paths),
        };
        for (index, service) in graph.services.iter().enumerate() {
            for _ in 0..service.servers {
                run.servers.push(server(index, of(index), &environments[index])?);
            }
            let period = run.servers.last().map_or(Nanos(1), |server| server.halves.control.period());
            let reaction = run.servers.last().map_or(Nanos::ZERO, |server| server.halves.control.reaction());
            run.stats.expect_reaction(reaction);
            run.periods.push(period.max(Nanos(1)));
            run.service_stats.push(ServiceStats { latency: Distribution::new(), received: 0, rejected: 0 });
        }
        for client in 0..config.workload.clients {
            let to = client % graph.services[0].servers;
            run.link(None, to, of(0), &environments[0])?;
        }
        for from in 0..run.servers.len() {
            for (call, stage) in stages(graph, run.servers[from].service as usize) {
                let model = &graph.calls[call];
                let begin = run.links.len() as u32;
                for to in run.first_server[model.to]..run.first_server[model.to + 1] {
                    run.link(Some(from as u32), to, of(model.to), &environments[model.to])?;
                }
                let per_request = f64::from(model.times) * model.probability;
                let links = begin..run.links.len() as u32;
                run.servers[from].groups.push(CalleeGroup {
                    call,
                    stage,
                    links,
                    credits: 0,
                    reserved: 0,
                    waiting: 0,
                    reported: 0,
                    threshold: Priority::LOWEST,
                    per_request,
                    retries: RetryBudget::default(),
                });
            }
        }
        Ok(run)
    }

    /// Opens a session of a caller at server `to`.
    fn link(
        &mut self,
        from: Option<u32>,
        to: u32,
        (algorithm, params): (&Algorithm, &Params),
        environment: &Environment,
    ) -> Result<(), SimError> {
        let mut parts = (algorithm.build_client)(params, environment)?;
        if let (None, Some(timeout)) = (from, self.config.clients.timeout) {
            parts.config.max_delay = parts.config.max_delay.min(timeout);
        }
        let group = from.map_or(0, |from| self.servers[from as usize].groups.len() as u16);
        let server = &mut self.servers[to as usize];
        let (number, cores) = (server.sessions.len() as u32, server.cores);
        let mut session = Session::new(SessionSlot(number / cores), CoreId(number % cores));
        server.halves.cores[(number % cores) as usize].open(&mut session, &Registration { now: Time::ZERO, demand: 0 });
        server.sessions.push(session);
        server.links.push(self.links.len() as u32);
        self.links.push(Link {
            client: Client::new(parts),
            from,
            group,
            to,
            session: number,
            window: Credits(0),
            threshold: Priority::LOWEST,
            timer: Timer::UNSET,
            one_way_delay: self.graph.services[server.service as usize].rtt / 2,
        });
        Ok(())
    }
}

fn server(
    service: usize,
    (algorithm, params): (&Algorithm, &Params),
    environment: &Environment,
) -> Result<Server, SimError> {
    Ok(Server {
        service: service as u32,
        cores: environment.cores,
        busy: 0,
        in_flight: 0,
        requests: VecDeque::new(),
        ready: VecDeque::new(),
        waiting: VecDeque::new(),
        halves: algorithm.server(params, environment)?,
        sessions: Vec::new(),
        links: Vec::new(),
        groups: Vec::new(),
        since_tick: Signals::idle(Time::ZERO),
        first_woken: 0,
        debt: Nanos::ZERO,
        cpu_time: 0,
    })
}
