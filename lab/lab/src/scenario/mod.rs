//! A checked scenario file as plain data. Reading and checking one is the business of the modules below:
//!
//! - `document`: the TOML text as a tree that knows where each value was written.
//! - `overrides`: `--set` and `[quick]`, applied to that tree.
//! - `reader`: takes keys out of the tree, one by one, and refuses what is left over.
//! - `read`, `workload`, `service`, `application`, `kinds`, `scheduling`, `hidden`, `replicas`,
//!   `tier`, `graph`, `controllers`, `threading`, `output`: the sections of the format.
//! - [`machine`]: a measured machine's file, which takes the place of the server's and the network's sections.
//! - [`curves`]: the file of a service's threading curves.
//! - [`builtin`]: the scenarios that come with this crate.

mod application;
pub mod builtin;
mod controllers;
pub mod curves;
mod disturbances;
mod document;
mod error;
mod graph;
mod kinds;
pub mod machine;
pub mod machine_threads;
mod output;
mod overrides;
mod read;
mod reader;
mod replicas;
mod scheduling;
mod service;
pub mod settings;
mod threading;
mod tier;
mod workload;

pub use application::{ApplicationInstance, ApplicationSpec, PathSpec, ShareSpec, StepSpec};
pub use error::ScenarioError;
pub use threading::{ThreadingSpec, TierSpec, TrainingSpec};

use crate::claims::Expression;
use leeward_core::params::{Params, RawParam};
use leeward_core::registry::Registry;
use leeward_core::units::{Nanos, Rate};
use leeward_outcome::results::Plot;
use leeward_plant::Transport;
use leeward_services::definition::Requests;
use leeward_sim::config::{
    Arrivals, Balancing, ClientModel, LockModel, NetworkModel, Replicas, RequestKinds, Scheduling, ServerModel, Shares,
};
use leeward_sim::graph::model::{CallPolicy, Graph};
use leeward_sim::service_time::ServiceTime;
use std::path::Path;
use std::sync::Arc;

/// An experiment: what is run, what is drawn, what is claimed.
#[derive(Clone, Debug, PartialEq)]
pub struct Scenario {
    /// Short name, such as `bw-overall`.
    pub id: String,
    /// Title, a line for people.
    pub title: String,
    /// The paper and figure.
    pub source: String,
    /// Purpose of the scenario and how to read it.
    pub description: String,
    /// The simulated machine.
    pub server: ServerModel,
    /// Several such servers behind one service, if the scenario has them.
    pub replicas: Option<Replicas>,
    /// Tiers of threads in the server's place, each under its name as a service; none: the server has cores.
    pub tiers: Vec<TierSpec>,
    /// A graph of services in the server's place.
    pub graph: Option<Arc<Graph>>,
    /// Training of policies of threading.
    pub training: Option<TrainingSpec>,
    /// The simulated network; its round trip is the first of `rtts`.
    pub network: NetworkModel,
    /// Transport of the measured plant. The simulated one has the costs that it is told, whatever carries the messages.
    pub transport: Transport,
    /// Round trips; one point per entry.
    pub rtts: Vec<Nanos>,
    /// Demand of the clients.
    pub workload: Workload,
    /// Kinds of their requests; none: all are alike.
    pub kinds: RequestKinds,
    /// How long, how often, how finely.
    pub run: RunSettings,
    /// Whether the `[quick]` section was applied.
    pub quick: bool,
    /// The controllers, one per variant (a `vary` grid is expanded already).
    pub controllers: Vec<Variant>,
    /// Plots of the report.
    pub plots: Vec<Plot>,
    /// Claims of the paper.
    pub claims: Vec<ClaimSpec>,
    /// The `--set` overrides that were applied, as given.
    pub overrides: Vec<String>,
    /// Overrides under which `leeward verdicts` judges the papers' claims, of `[published]`.
    pub published: Vec<String>,
}

/// Demand of the clients; the lists make one point per combination.
#[derive(Clone, Debug, PartialEq)]
pub struct Workload {
    /// Service times.
    pub services: Vec<ServiceSpec>,
    /// Numbers of clients.
    pub clients: Vec<u32>,
    /// Spacing of requests; one point per entry.
    pub arrivals: Vec<Arrivals>,
    /// How the demand divides among clients.
    pub shares: Shares,
    /// Their pacing, and when they give up; the simulated ones'.
    pub client: ClientModel,
    /// Total demand.
    pub demand: DemandPlan,
    /// The application, if its requests take locks.
    pub application: Option<ApplicationSpec>,
    /// The objective; `None` for 10 × (mean service + round trip).
    pub slo: Option<Nanos>,
}

impl Workload {
    /// Every application that the scenario runs: one without locks, or one per value of `p` and `r`.
    pub fn instances(&self) -> Vec<ApplicationInstance> {
        self.application.as_ref().map_or_else(|| vec![ApplicationInstance::default()], ApplicationSpec::instances)
    }
}

/// Requests of a scenario, and how they were written.
#[derive(Clone, Debug)]
pub struct ServiceSpec {
    /// As written, such as `exp:10us`.
    pub text: String,
    /// Distribution of service times; for a service whose times are not drawn, a stand-in until it is measured.
    pub service: ServiceTime,
    /// Requests to such a service: on the real plant only. `None` if requests carry service times.
    pub requests: Option<Arc<dyn Requests>>,
}

impl PartialEq for ServiceSpec {
    /// Two that were written alike are the same.
    fn eq(&self, other: &Self) -> bool {
        (&self.text, &self.service) == (&other.text, &other.service)
    }
}

impl ServiceSpec {
    /// Whether the simulator knows how long it takes.
    pub fn is_simulated(&self) -> bool {
        self.requests.is_none()
    }
}

/// Demand, over time or as a list of steady points.
#[derive(Clone, Debug, PartialEq)]
pub enum DemandPlan {
    /// Steady demands, one point per entry.
    Steady(Vec<Demand>),
    /// Shifting demands: a single run through all of these, the first at 0.
    Shifting(Vec<(Nanos, Demand)>),
}

impl DemandPlan {
    /// Whether one run goes through all demands.
    pub fn is_shifting(&self) -> bool {
        matches!(self, DemandPlan::Shifting(_))
    }

    /// Every demand there is.
    pub fn levels(&self) -> Vec<Demand> {
        match self {
            DemandPlan::Steady(points) => points.clone(),
            DemandPlan::Shifting(shifts) => shifts.iter().map(|(_, demand)| *demand).collect(),
        }
    }
}

/// How many requests all clients issue together.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Demand {
    /// Per second.
    Absolute(f64),
    /// Multiples of the plant's capacity without control.
    CapacityMultiple(f64),
}

impl Demand {
    /// Requests per second on a plant of this capacity.
    pub fn rate(self, capacity: Rate) -> Rate {
        match self {
            Demand::Absolute(rate) => Rate(rate),
            Demand::CapacityMultiple(ratio) => Rate(ratio * capacity.0),
        }
    }
}

/// How long, how often, how finely.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RunSettings {
    /// Nothing is measured before this.
    pub warmup: Nanos,
    /// Simulated time in all.
    pub duration: Nanos,
    /// Width of the time series' windows, if there is one.
    pub window: Option<Nanos>,
    /// Runs per point, each with a seed of its own.
    pub seeds: u32,
    /// A run of a steady demand lasts longer if it would measure fewer requests than this.
    pub min_requests: u32,
}

impl RunSettings {
    /// How long a run lasts at a steady `rate`.
    pub fn duration_at(&self, rate: Rate) -> Nanos {
        let needed = Nanos::from_secs_f64(f64::from(self.min_requests) / rate.0.max(1e-9));
        self.duration.max((self.warmup + needed.min(Nanos::from_secs(3_600))).min(Nanos::from_secs(3_600)))
    }
}

/// A controller with parameters, under one label.
#[derive(Clone, Debug, PartialEq)]
pub struct Variant {
    /// The algorithm's name in the registry.
    pub controller: String,
    /// Unique in the scenario.
    pub label: String,
    /// The label of the `[[controller]]` entry this came from: differs from `label` for the variants of a `vary` grid.
    pub base_label: String,
    /// How the application's locks are made and taken, if it has any.
    pub locks: LockModel,
    /// Share of the clients, or tenants, whose refusals happen, in percent; below 100 the controller rehearses.
    pub enforced_percent: u8,
    /// Whether a request's budget is what the objective leaves of a service that is measured: on the real plant only.
    pub derived_budget: bool,
    /// Parameters, before any retuning per workload.
    pub params: Vec<(String, RawParam)>,
    /// Retuning per workload; of those that match, later ones win.
    pub tuned: Vec<TunedParams>,
    /// Parameters that win over retuning: from a `vary` grid or an override.
    pub pinned: Vec<(String, RawParam)>,
    /// How the server's cores come and go, where this variant has its own say in that.
    pub scheduling: VariantScheduling,
    /// Threading of a tier.
    pub threading: Option<ThreadingSpec>,
    /// How the tiers of a graph pass requests on.
    pub call_policy: Option<CallPolicy>,
}

/// Policies of a variant for the server's cores; the rest is the server's.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct VariantScheduling {
    /// The policy of core allocation.
    pub allocator: Option<String>,
    /// The policy of balancing, as written.
    pub balancing: Option<String>,
}

/// Parameters that apply to some workloads only, as the papers retuned their systems.
#[derive(Clone, Debug, PartialEq)]
pub struct TunedParams {
    /// Applies to this service only, as written in the workload.
    pub service: Option<String>,
    /// Applies to this number of clients only.
    pub clients: Option<u32>,
    /// The parameters.
    pub params: Vec<(String, RawParam)>,
    /// How they were found.
    pub provenance: String,
}

impl Variant {
    /// The parameters for one workload: the entry's own, then what was retuned for it, then what is pinned.
    pub fn params_for(&self, service: &str, clients: u32) -> Vec<(String, RawParam)> {
        let mut all = self.params.clone();
        let matching = self.tuned.iter().filter(|tuned| {
            tuned.service.as_deref().is_none_or(|wanted| wanted == service)
                && tuned.clients.is_none_or(|wanted| wanted == clients)
        });
        for (name, value) in matching.flat_map(|tuned| &tuned.params).chain(&self.pinned) {
            match all.iter_mut().find(|(known, _)| known == name) {
                Some(entry) => entry.1 = value.clone(),
                None => all.push((name.clone(), value.clone())),
            }
        }
        all
    }
}

/// A claim of a paper and how it is measured here.
#[derive(Clone, Debug, PartialEq)]
pub struct ClaimSpec {
    /// Unique in the scenario.
    pub id: String,
    /// In words.
    pub text: String,
    /// The paper's own number or words.
    pub paper: String,
    /// Expression that is computed from the results of each seed.
    pub measure: Expression,
    /// Unit of the measured number; empty for none.
    pub unit: String,
    /// Whether no paper claims it: a claim about additions of ours, or about a point that no paper has.
    pub ours: bool,
    /// The paper's number, from which the tolerance follows.
    pub number: Option<f64>,
    /// Smallest accepted.
    pub min: Option<f64>,
    /// Largest accepted.
    pub max: Option<f64>,
    /// Note on differences and their reasons.
    pub note: String,
}

impl Scenario {
    /// Reads and checks a scenario file against the built-in controllers.
    ///
    /// # Errors
    /// A file that can't be read, or the first thing in it or in `overrides` that is not accepted: one line that names
    /// the file, the line, the key and what is accepted.
    pub fn load(path: &Path, overrides: &[String], quick: bool) -> Result<Scenario, ScenarioError> {
        let name = path.display().to_string();
        let text = document::read(path).map_err(|source| ScenarioError::Read { file: name.clone(), source })?;
        let folder = path.parent().unwrap_or(Path::new(""));
        Scenario::parse(&name, &text, folder, overrides, quick, &leeward_sim::oracle::registry())
    }

    /// A scenario that comes with this crate, by its id.
    ///
    /// # Errors
    /// An id that there is not, or an override that is not accepted.
    pub fn builtin(id: &str, overrides: &[String], quick: bool) -> Result<Scenario, ScenarioError> {
        let found = builtin::find(id)?;
        let name = format!("{id}.toml");
        Scenario::parse(&name, found.text, Path::new(""), overrides, quick, &leeward_sim::oracle::registry())
    }

    /// A scene of the league by its name, such as `random-91`, with all controllers; `None` if it is not the name of one.
    ///
    /// # Errors
    /// An override that is not accepted.
    pub fn random(name: &str, overrides: &[String], quick: bool) -> Option<Result<Scenario, ScenarioError>> {
        let registry = leeward_sim::oracle::registry();
        let text = crate::benchmark::random_scenario_text(name, &registry)?;
        Some(Scenario::parse(name, &text, Path::new(""), overrides, quick, &registry))
    }

    /// Checks the text of a scenario. `name` stands for the file in messages; files that it names are looked up in
    /// `folder`; its controllers must be in `registry`.
    ///
    /// # Errors
    /// As for [`Scenario::load`].
    pub fn parse(
        name: &str,
        text: &str,
        folder: &Path,
        overrides: &[String],
        quick: bool,
        registry: &Registry,
    ) -> Result<Scenario, ScenarioError> {
        read::scenario(name, text, folder, overrides, quick, registry)
    }

    /// Leaves at most so many points, spread over all of them: of the longest list of values every second one goes until they are few
    /// enough.
    pub(crate) fn limit_points(&mut self, most: usize) {
        fn halve<T>(list: &mut Vec<T>) {
            let mut index = 0;
            // The last one stays: it is the highest demand, or the most clients.
            let odd = list.len() % 2;
            list.retain(|_| {
                index += 1;
                index % 2 == odd
            });
        }
        loop {
            let steady = match &self.workload.demand {
                DemandPlan::Steady(points) => points.len(),
                DemandPlan::Shifting(_) => 1,
            };
            let (services, clients) = (self.workload.services.len(), self.workload.clients.len());
            let (rtts, arrivals) = (self.rtts.len(), self.workload.arrivals.len());
            let longest = [steady, services, clients, rtts, arrivals].into_iter().max().unwrap_or(1);
            if steady * services * clients * rtts * arrivals * self.workload.instances().len() <= most || longest == 1 {
                return;
            }
            match &mut self.workload.demand {
                DemandPlan::Steady(points) if points.len() == longest => halve(points),
                _ if services == longest => halve(&mut self.workload.services),
                _ if clients == longest => halve(&mut self.workload.clients),
                _ if rtts == longest => halve(&mut self.rtts),
                _ => halve(&mut self.workload.arrivals),
            }
        }
    }

    /// The objective for one service: the scenario's, or 10 × (mean service + round trip) as in Breakwater §5.1.
    pub fn slo(&self, service: &ServiceTime) -> Nanos {
        self.slo_at(service, self.network.rtt)
    }

    /// The same at one of several round trips.
    pub fn slo_at(&self, service: &ServiceTime, rtt: Nanos) -> Nanos {
        self.workload.slo.unwrap_or_else(|| (self.kinds.mean(service) + rtt) * 10)
    }

    /// Requests per second that all servers together can serve when they do nothing else.
    pub fn capacity(&self, service_mean: Nanos) -> Rate {
        let servers = self.replicas.map_or(1, |replicas| replicas.servers);
        Rate(self.server.capacity(service_mean).0 * f64::from(servers))
    }

    /// Objective for a server's controller: its own part where there are several servers.
    pub fn server_slo(&self, slo: Nanos) -> Nanos {
        self.replicas.map_or(slo, |replicas| replicas.objective(slo))
    }

    /// The server as `variant` has it.
    pub fn server_for(&self, variant: &Variant) -> ServerModel {
        let VariantScheduling { allocator, balancing } = &variant.scheduling;
        let mut server = self.server.clone();
        if let Some(allocator) = allocator {
            let model = server.scheduling.get_or_insert_with(|| Scheduling::new(allocator));
            if model.allocator != *allocator {
                // The parameters of another policy mean nothing to this one.
                (model.allocator, model.params) = (allocator.clone(), Params::default());
            }
        }
        if let (Some(model), Some(read)) = (&mut server.scheduling, balancing.as_deref().and_then(Balancing::parse)) {
            model.balancing = read;
        }
        server
    }
}
