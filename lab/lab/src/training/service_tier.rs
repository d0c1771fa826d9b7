//! A service of the catalogue as a bench for training: its mid-tier runs on the server's CPUs of
//! this machine, its leaves and the clients on another. It measures the same server that `leeward
//! serve` runs.

use super::measured::OfferedLoad;
use super::{Bench, Candidate, LEEWARD_POLICY, Measurement, Trial};
use crate::error::RunError;
use leeward_catalogue::Catalogue;
use leeward_core::params::Params;
use leeward_core::registry::Registry;
use leeward_core::units::{Nanos, Rate};
use leeward_plant::leaves::with_server;
use leeward_plant::{InProcessService, LocalLeaves, LocalMidTier, Placement, RealError};
use leeward_services::arguments::{Value, Values};
use leeward_services::backend::{Backend, Bottleneck};
use leeward_services::definition::{Notice, ServiceDefinition, Target};
use leeward_services::tiers::{DATA, LEAVES, SHARD, THREADING, TIMEOUT, leaf_service};
use leeward_sim::config::{Arrivals, Segment, Shares, Workload};
use leeward_sim::service_time::ServiceTime;
use leeward_threading::{ThreadEnvironment, registry};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// Timeout of the mid-tier for leaves: longer than any measured backlog, because a partial response
/// counts as failed.
const LEAF_TIMEOUT: &str = "30s";
/// Setup while the clients prepare the service.
const INITIAL_SETUP: &str = "SDB1-4";
/// Number of clients that share the load.
const CLIENTS: u32 = 4;
/// Configured round trip over loopback.
const ROUND_TRIP: Nanos = Nanos::from_micros(20);

/// A service with running leaves.
pub struct ServiceTier {
    definition: &'static dyn ServiceDefinition,
    data: Option<String>,
    mid_tier: Arc<dyn Backend>,
    service: InProcessService,
    /// Leaves that serve until this is dropped.
    _leaves: LocalLeaves,
    placement: Placement,
    workload: Workload,
    slo: Nanos,
    seed: u64,
    registry: Registry,
}

/// Specification of a service to train.
#[derive(Clone, Debug)]
pub struct ServiceTierSpec {
    /// Text of `--data`; `None`: the service's default.
    pub data: Option<String>,
    /// Number of leaves.
    pub leaves: u32,
    /// CPUs of the mid-tier.
    pub cpus: u32,
    /// Arrival process of the requests.
    pub arrivals: Arrivals,
    /// Objective of a policy.
    pub slo: Nanos,
    /// Seed of the requests.
    pub seed: u64,
}

impl ServiceTier {
    /// Whether the service `name` exists and has leaves.
    pub fn is_known(name: &str) -> bool {
        let catalogue = Catalogue::builtin();
        catalogue.find(name).is_some_and(|case| catalogue.find(&leaf_service(case.name())).is_some())
    }

    /// Starts the leaves of the service `name`, and prepares its clients.
    ///
    /// # Errors
    /// Unknown service, or unusable data.
    pub fn start(name: &str, spec: &ServiceTierSpec, step: &dyn Fn(&str)) -> Result<Self, RunError> {
        let catalogue = Catalogue::builtin();
        let pair = catalogue.find(name).and_then(|case| Some((case, catalogue.find(&leaf_service(case.name()))?)));
        let (case, leaf) = pair.ok_or(RunError::NotATier)?;
        let failed = |source| RunError::Real { run: format!("starting {}", case.name()), source };
        let open = |case: &dyn ServiceDefinition, own: &[(&'static str, String)]| {
            let mut values = Values::defaults(case.arguments());
            let data = spec.data.iter().map(|data| (DATA.name, data.clone()));
            for (name, text) in own.iter().cloned().chain(data) {
                if case.arguments().iter().any(|argument| argument.name == name) {
                    values.set(name, Value::Text(text));
                }
            }
            let report = |notice: Notice<'_>| match notice {
                Notice::Step(text) | Notice::Note(text) => step(text),
            };
            case.open(&values, 1, &report).map_err(|error| failed(error.into()))
        };
        let placement = Placement::choose(spec.cpus).map_err(failed)?;
        let shards = (1..=spec.leaves).map(|at| open(leaf, &[(SHARD.name, format!("{at}/{}", spec.leaves))]));
        let leaves = LocalLeaves::start(&shards.collect::<Result<Vec<_>, _>>()?, &placement).map_err(failed)?;
        let own = [
            (LEAVES.name, leaves.addresses()),
            (TIMEOUT.name, LEAF_TIMEOUT.into()),
            (THREADING.name, INITIAL_SETUP.into()),
        ];
        let middle: Arc<dyn Backend> = open(case, &own)?.into();
        let registry = leeward_controllers::builtin();
        let prepared = prepare_service(case, spec, &middle, &placement, &registry).map_err(failed)?;
        let workload = Workload {
            clients: CLIENTS,
            arrivals: spec.arrivals,
            shares: Shares::Equal,
            demand: vec![Segment { from: Nanos::ZERO, rate: Rate(1.0) }],
            // Unknown and unused.
            service: ServiceTime::Constant(Nanos(1)),
        };
        let (data, slo, seed) = (spec.data.clone(), spec.slo, spec.seed);
        Ok(ServiceTier {
            definition: case,
            data,
            mid_tier: middle,
            service: prepared,
            _leaves: leaves,
            placement,
            workload,
            slo,
            seed,
            registry,
        })
    }

    /// Name of the service.
    pub fn name(&self) -> &'static str {
        self.definition.name()
    }

    /// Text of `--data` for its curves; empty for the service's default.
    pub fn data(&self) -> &str {
        self.data.as_deref().unwrap_or_default()
    }
}

/// Prepares the clients' requests; some services are filled with data for them.
fn prepare_service(
    case: &dyn ServiceDefinition,
    spec: &ServiceTierSpec,
    middle: &Arc<dyn Backend>,
    placement: &Placement,
    registry: &Registry,
) -> Result<InProcessService, RealError> {
    let about = spec.data.as_ref().map(|data| format!("{}:{data}", case.name()));
    // Some services have the same requests for all data.
    let about = about.filter(|about| case.requests(about).is_ok()).unwrap_or_else(|| case.name().into());
    let requests = case.requests(&about).map_err(|error| RealError::Tier(error.to_string()))?;
    let algorithm = registry.find("none").map_err(|error| RealError::Tier(error.to_string()))?;
    let ask = with_server(middle.as_ref(), placement, |address| {
        let (params, slo) = (&Params::default(), spec.slo);
        requests.prepare(&Target { address, algorithm, params, rtt: ROUND_TRIP, slo, encryption: None })
    })?;
    Ok(InProcessService {
        backend: Arc::clone(middle),
        generator: ask?,
        description: None,
        bottleneck: Bottleneck::Threads,
    })
}

impl Bench for ServiceTier {
    fn is_real_time(&self) -> bool {
        true
    }

    fn measure(&self, trial: &Trial<'_>, stop: &AtomicBool) -> Result<Measurement, RunError> {
        let (policy, curves) = match trial.candidate {
            Candidate::Setup(_) => ("static", None),
            Candidate::Policy(curves) => (LEEWARD_POLICY, Some(Arc::clone(curves))),
        };
        let (first, cpus) = (trial.candidate.initial_setup(), self.placement.server.len() as u16);
        if first.setup().is_none() {
            return Err(RunError::FixedThreading(first.to_string()));
        }
        let environment = ThreadEnvironment::new(curves, first, cpus).with_slo(self.slo);
        let failed = |message: String| RunError::Real { run: trial.to_string(), source: RealError::Tier(message) };
        let spec = registry::find(policy).map_err(|error| failed(error.to_string()))?;
        let build = move || spec.build(&Params::default(), &environment);
        build().map_err(|error| failed(error.to_string()))?;
        let make = move || build().unwrap_or_else(|_| unreachable!("it was built above"));
        let served = LocalMidTier::new(Arc::clone(&self.mid_tier), &self.placement, make).into_service(&self.service);
        let offered = OfferedLoad {
            placement: &self.placement,
            service: &served,
            workload: &self.workload,
            rtt: ROUND_TRIP,
            slo: self.slo,
            seed: self.seed.wrapping_add(u64::from(trial.round)),
        };
        offered.measure(trial, &self.registry, stop)
    }
}
