//! A run of a graph before its first event: servers with their controllers, and a link for every pair that talks.

use super::jobs::{Jobs, Spent};
use super::links::{Effects, Link};
use super::model::{Control, Graph};
use super::purse::Purse;
use super::run::{Book, Run};
use super::server::{Group, Server};
use super::shape::stages;
use crate::SimError;
use crate::agenda::Agenda;
use crate::audit::Audit;
use crate::config::SimConfig;
use crate::instant::Instant;
use crate::stats::Stats;
use crate::timer::Timer;
use leeward_core::client::Client;
use leeward_core::params::Params;
use leeward_core::registry::{Algorithm, Environment};
use leeward_core::server::{CoreId, Opened, Session, SessionSlot, Signals};
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
        let uncontrolled = |service: usize| service > 0 && graph.passing.control == Control::Entry;
        let of = |service: usize| if uncontrolled(service) { (none, &no_params) } else { (algorithm, params) };
        let objectives = graph.objectives(config.slo);
        let entry = graph.passing.control == Control::Entry;
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
            agenda: Agenda::new(),
            arrivals: ArrivalStream::new(&config.workload, config.seed),
            jobs: Jobs::default(),
            links: Vec::new(),
            servers: Vec::new(),
            first,
            periods: Vec::new(),
            objectives,
            spans: graph.spans(),
            client_retries: Purse::default(),
            stats: Stats::new(config),
            audit: Audit::default(),
            books: Vec::new(),
            used: Spent::default(),
            wasted: Spent::default(),
            effects: Effects::default(),
            events: 0,
            instant: Instant::new(config, algorithm.name, stop),
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
            run.periods.push(period.max(Nanos(1)));
            run.books.push(Book { latency: Distribution::new(), received: 0, dropped: 0 });
        }
        for client in 0..config.workload.clients {
            let to = client % graph.services[0].servers;
            run.link(None, to, of(0), &environments[0])?;
        }
        for from in 0..run.servers.len() {
            for (call, stage) in stages(graph, run.servers[from].service as usize) {
                let model = &graph.calls[call];
                let begin = run.links.len() as u32;
                for to in run.first[model.to]..run.first[model.to + 1] {
                    run.link(Some(from as u32), to, of(model.to), &environments[model.to])?;
                }
                let per_request = f64::from(model.times) * model.probability;
                let links = begin..run.links.len() as u32;
                run.servers[from].groups.push(Group {
                    call,
                    stage,
                    links,
                    credits: 0,
                    threshold: Priority::LOWEST,
                    per_request,
                    retries: Purse::default(),
                });
            }
        }
        Ok(run)
    }

    /// Opens a session of a caller at a server.
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
        server.halves.cores[(number % cores) as usize].open(&mut session, &Opened { now: Time::ZERO, demand: 0 });
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
            way: self.graph.services[server.service as usize].rtt / 2,
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
        inside: 0,
        requests: VecDeque::new(),
        ready: VecDeque::new(),
        waiting: VecDeque::new(),
        halves: algorithm.server(params, environment)?,
        sessions: Vec::new(),
        links: Vec::new(),
        groups: Vec::new(),
        since_tick: Signals::idle(Time::ZERO),
        first_woken: 0,
        owed: Nanos::ZERO,
        spent: 0,
    })
}
