//! A validated scenario file as plain data. The modules below read and check it:
//!
//! - `document`: the TOML text as a tree with the origin of each value.
//! - `overrides`: `--set` and `[quick]`, applied to that tree.
//! - `reader`: takes keys out of the tree, one by one, and rejects unknown ones.
//! - `read`, `workload`, `service`, `application`, `kinds`, `scheduling`, `disturbances`,
//!   `replicas`, `tier`, `graph`, `controllers`, `threading`, `output`: the sections of the format.
//! - [`machine`]: a measured machine's file, which replaces the server's and the network's
//!   sections.
//! - [`curves`]: the file of a service's threading curves.
//! - [`builtin`]: the built-in scenarios.

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

/// An experiment: its runs, plots and claims.
#[derive(Clone, Debug, PartialEq)]
pub struct Scenario {
    /// Short name, such as `bw-overall`.
    pub id: String,
    /// Title, one line.
    pub title: String,
    /// Paper and figure.
    pub source: String,
    /// Purpose of the scenario, with notes for the reader.
    pub description: String,
    /// The simulated machine.
    pub server: ServerModel,
    /// Several such servers that serve together, if any.
    pub replicas: Option<Replicas>,
    /// Tiers of threads that replace the server, each named as a service; empty: the server has
    /// cores.
    pub tiers: Vec<TierSpec>,
    /// A graph of services that replaces the server, if any.
    pub graph: Option<Arc<Graph>>,
    /// Training of threading policies, if any.
    pub training: Option<TrainingSpec>,
    /// The simulated network; its round trip is the first of `rtts`.
    pub network: NetworkModel,
    /// Transport of the real plant. The simulated plant uses the configured costs for every
    /// transport.
    pub transport: Transport,
    /// Round trips; one point per entry.
    pub rtts: Vec<Nanos>,
    /// Demand of the clients.
    pub workload: Workload,
    /// Kinds of requests; empty: all requests are alike.
    pub kinds: RequestKinds,
    /// Duration, repetitions and resolution of the runs.
    pub run: RunSettings,
    /// Whether the `[quick]` section was applied.
    pub quick: bool,
    /// Controller variants; `vary` grids are expanded.
    pub controllers: Vec<Variant>,
    /// Plots of the report.
    pub plots: Vec<Plot>,
    /// Claims of the paper.
    pub claims: Vec<ClaimSpec>,
    /// The `--set` overrides that were applied, as given.
    pub overrides: Vec<String>,
    /// Overrides of `[published]`, under which `leeward verdicts` judges the papers' claims.
    pub published: Vec<String>,
}

/// Demand of the clients; each combination of the lists' values is a point.
#[derive(Clone, Debug, PartialEq)]
pub struct Workload {
    /// Service times.
    pub services: Vec<ServiceSpec>,
    /// Numbers of clients.
    pub clients: Vec<u32>,
    /// Spacing of requests; one point per entry.
    pub arrivals: Vec<Arrivals>,
    /// Shares of the clients in the demand.
    pub shares: Shares,
    /// Pacing and timeout of the simulated clients.
    pub client: ClientModel,
    /// Total demand.
    pub demand: DemandPlan,
    /// The application, if requests take locks.
    pub application: Option<ApplicationSpec>,
    /// Latency objective; `None` for 10 × (mean service + round trip).
    pub slo: Option<Nanos>,
}

impl Workload {
    /// All applications of the scenario: one without locks, or one per value of `p` and `r`.
    pub fn instances(&self) -> Vec<ApplicationInstance> {
        self.application.as_ref().map_or_else(|| vec![ApplicationInstance::default()], ApplicationSpec::instances)
    }
}

/// A service of a scenario, with its text.
#[derive(Clone, Debug)]
pub struct ServiceSpec {
    /// Text, such as `exp:10us`.
    pub text: String,
    /// Distribution of service times; a placeholder for a measured service until it is measured.
    pub service: ServiceTime,
    /// Requests to a measured service (real plant only); `None` if requests carry service times.
    pub requests: Option<Arc<dyn Requests>>,
}

impl PartialEq for ServiceSpec {
    /// Two services with the same text and distribution are equal.
    fn eq(&self, other: &Self) -> bool {
        (&self.text, &self.service) == (&other.text, &other.service)
    }
}

impl ServiceSpec {
    /// Whether the simulator supports the service.
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

    /// All demands of the plan.
    pub fn levels(&self) -> Vec<Demand> {
        match self {
            DemandPlan::Steady(points) => points.clone(),
            DemandPlan::Shifting(shifts) => shifts.iter().map(|(_, demand)| *demand).collect(),
        }
    }
}

/// Request rate of all clients together.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Demand {
    /// Requests per second.
    Absolute(f64),
    /// Multiple of the plant's capacity without control.
    CapacityMultiple(f64),
}

impl Demand {
    /// Requests per second on a plant with this capacity.
    pub fn rate(self, capacity: Rate) -> Rate {
        match self {
            Demand::Absolute(rate) => Rate(rate),
            Demand::CapacityMultiple(ratio) => Rate(ratio * capacity.0),
        }
    }
}

/// Duration, repetitions and resolution of the runs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RunSettings {
    /// Start of the measurement.
    pub warmup: Nanos,
    /// Total simulated time.
    pub duration: Nanos,
    /// Width of the time series' windows, if any.
    pub window: Option<Nanos>,
    /// Runs per point, each with its own seed.
    pub seeds: u32,
    /// Minimum number of measured requests; a run of a steady demand is prolonged to reach it.
    pub min_requests: u32,
    /// Bound of the warm-up of simulated runs, which measure when they have settled and end when
    /// they know enough. `None`: a run is measured from `warmup` to `duration`.
    pub settle: Option<Nanos>,
    /// Relative half-width of the confidence interval of goodput at which a run that settles ends.
    pub precision: f64,
}

impl RunSettings {
    /// Longest duration of a run at a steady `rate`.
    pub fn longest_at(&self, rate: Rate) -> Nanos {
        self.settle.map_or(self.duration_at(rate), |settle| settle + settle.max(self.min_span(rate)))
    }

    /// Time in which `min_requests` come at `rate`.
    pub fn min_span(&self, rate: Rate) -> Nanos {
        Nanos::from_secs_f64(f64::from(self.min_requests) / rate.0.max(1e-9)).min(Nanos::from_secs(3_600))
    }

    /// Duration of a run at a steady `rate`.
    pub fn duration_at(&self, rate: Rate) -> Nanos {
        self.duration.max((self.warmup + self.min_span(rate)).min(Nanos::from_secs(3_600)))
    }
}

/// A controller with parameters and a label.
#[derive(Clone, Debug, PartialEq)]
pub struct Variant {
    /// Name of the algorithm in the registry.
    pub controller: String,
    /// Label, unique in the scenario.
    pub label: String,
    /// Label of the `[[controller]]` entry; differs from `label` for variants of a `vary` grid.
    pub base_label: String,
    /// How the application's locks are implemented and acquired, if any.
    pub locks: LockModel,
    /// Percentage of clients, or tenants, for which rejections are enforced; below 100 the
    /// controller runs in shadow mode.
    pub enforced_percent: u8,
    /// Whether a request's budget is derived from the objective and the measured service (real
    /// plant only).
    pub derived_budget: bool,
    /// Parameters before any retuning per workload.
    pub params: Vec<(String, RawParam)>,
    /// Retuning per workload; of several matches the later ones win.
    pub tuned: Vec<TunedParams>,
    /// Parameters that override retuning, from a `vary` grid or an override.
    pub pinned: Vec<(String, RawParam)>,
    /// Scheduling policies of this variant, if it sets any.
    pub scheduling: VariantScheduling,
    /// Threading of a tier.
    pub threading: Option<ThreadingSpec>,
    /// Call policy of a graph.
    pub call_policy: Option<CallPolicy>,
}

/// Scheduling policies of a variant; all other scheduling settings are the server's.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct VariantScheduling {
    /// Policy of core allocation.
    pub allocator: Option<String>,
    /// Policy of load balancing, as written.
    pub balancing: Option<String>,
}

/// Parameters for some workloads only, as the papers retuned their systems.
#[derive(Clone, Debug, PartialEq)]
pub struct TunedParams {
    /// Service to which they apply, as written in the workload; `None`: all.
    pub service: Option<String>,
    /// Number of clients to which they apply; `None`: all.
    pub clients: Option<u32>,
    /// The parameters.
    pub params: Vec<(String, RawParam)>,
    /// Origin of the parameters.
    pub provenance: String,
}

impl Variant {
    /// Parameters for one workload: the entry's own, then the matching retuned ones, then the
    /// pinned ones.
    pub fn params_for(&self, service: &str, clients: u32) -> Vec<(String, RawParam)> {
        let mut all = self.params.clone();
        let matching = self.tuned.iter().filter(|tuned| {
            tuned.service.as_deref().is_none_or(|expected| expected == service)
                && tuned.clients.is_none_or(|expected| expected == clients)
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

/// A claim of a paper, with its measurement.
#[derive(Clone, Debug, PartialEq)]
pub struct ClaimSpec {
    /// Id, unique in the scenario.
    pub id: String,
    /// The claim as text.
    pub text: String,
    /// The paper's number or words.
    pub paper: String,
    /// Expression computed from the results of each seed.
    pub measure: Expression,
    /// Unit of the measured number; empty for none.
    pub unit: String,
    /// Whether the claim is ours: about our additions, or about a point that no paper has.
    pub ours: bool,
    /// The paper's number, which determines the tolerance.
    pub number: Option<f64>,
    /// Minimum accepted value.
    pub min: Option<f64>,
    /// Maximum accepted value.
    pub max: Option<f64>,
    /// Note on differences and their reasons.
    pub note: String,
}

impl Scenario {
    /// Reads and checks a scenario file, with the built-in controllers.
    ///
    /// # Errors
    /// A file that can't be read, or the first error in it or in `overrides`: one line with file,
    /// line, key and accepted values.
    pub fn load(path: &Path, overrides: &[String], quick: bool) -> Result<Scenario, ScenarioError> {
        let name = path.display().to_string();
        let text = document::read(path).map_err(|source| ScenarioError::Read { file: name.clone(), source })?;
        let folder = path.parent().unwrap_or(Path::new(""));
        Scenario::parse(&name, &text, folder, overrides, quick, &leeward_sim::oracle::registry())
    }

    /// A built-in scenario, by its id.
    ///
    /// # Errors
    /// An unknown id, or an override that is not accepted.
    pub fn builtin(id: &str, overrides: &[String], quick: bool) -> Result<Scenario, ScenarioError> {
        let scenario = builtin::find(id)?;
        let name = format!("{id}.toml");
        Scenario::parse(&name, scenario.text, Path::new(""), overrides, quick, &leeward_sim::oracle::registry())
    }

    /// A random benchmark case by its name, such as `random-91`, with all controllers; `None` if
    /// the name is not one.
    ///
    /// # Errors
    /// An override that is not accepted.
    pub fn random(name: &str, overrides: &[String], quick: bool) -> Option<Result<Scenario, ScenarioError>> {
        let registry = leeward_sim::oracle::registry();
        let text = crate::benchmark::random_scenario_text(name, &registry)?;
        Some(Scenario::parse(name, &text, Path::new(""), overrides, quick, &registry))
    }

    /// Checks the text of a scenario. `name` is the file's name in messages; files that it names
    /// are relative to `folder`; its controllers must be in `registry`.
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

    /// Limits the number of points to `most`, spread over all of them: it halves the longest list
    /// of values until the number fits.
    pub(crate) fn limit_points(&mut self, max_points: usize) {
        fn halve<T>(list: &mut Vec<T>) {
            let mut index = 0;
            // The last value stays: it is the highest demand, or the most clients.
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
            if steady * services * clients * rtts * arrivals * self.workload.instances().len() <= max_points
                || longest == 1
            {
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

    /// Latency objective for one service: the scenario's, or 10 × (mean service + round trip) as in
    /// Breakwater §5.1.
    pub fn slo(&self, service: &ServiceTime) -> Nanos {
        self.slo_at(service, self.network.rtt)
    }

    /// Latency objective for one service at one round trip.
    pub fn slo_at(&self, service: &ServiceTime, rtt: Nanos) -> Nanos {
        self.workload.slo.unwrap_or_else(|| (self.kinds.mean(service) + rtt) * 10)
    }

    /// Requests per second that all servers together could serve if they did nothing else.
    pub fn capacity(&self, service_mean: Nanos) -> Rate {
        let servers = self.replicas.map_or(1, |replicas| replicas.servers);
        Rate(self.server.capacity(service_mean).0 * f64::from(servers))
    }

    /// Objective for a server's controller; with several servers, its part of the objective.
    pub fn server_slo(&self, slo: Nanos) -> Nanos {
        self.replicas.map_or(slo, |replicas| replicas.objective(slo))
    }

    /// The server with the scheduling policies of `variant`.
    pub fn server_for(&self, variant: &Variant) -> ServerModel {
        let VariantScheduling { allocator, balancing } = &variant.scheduling;
        let mut server = self.server.clone();
        if let Some(allocator) = allocator {
            let model = server.scheduling.get_or_insert_with(|| Scheduling::new(allocator));
            if model.allocator != *allocator {
                // The parameters belong to another policy, so they are dropped.
                (model.allocator, model.params) = (allocator.clone(), Params::default());
            }
        }
        if let (Some(model), Some(read)) = (&mut server.scheduling, balancing.as_deref().and_then(Balancing::parse)) {
            model.balancing = read;
        }
        server
    }
}
