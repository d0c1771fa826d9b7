//! A service of the catalogue as a bench for training: its mid-tier on the server's CPUs of this machine, its leaves and the clients on another. What
//! is measured is what `leeward serve` runs.

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

/// Time that the mid-tier waits for leaves: longer than any backlog that is measured, for a partial answer is a failed one.
const LEAF_TIMEOUT: &str = "30s";
/// Setup under which the clients make the service ready.
const INITIAL_SETUP: &str = "SDB1-4";
/// Clients that share the load.
const CLIENTS: u32 = 4;
/// Round trip over loopback, as the clients are told.
const ROUND_TRIP: Nanos = Nanos::from_micros(20);

/// A service with its leaves under way.
pub struct ServiceTier {
    definition: &'static dyn ServiceDefinition,
    data: Option<String>,
    mid_tier: Arc<dyn Backend>,
    service: InProcessService,
    /// Leaves that serve for as long as this is there.
    _leaves: LocalLeaves,
    placement: Placement,
    workload: Workload,
    slo: Nanos,
    seed: u64,
    registry: Registry,
}

/// Wish for a service that is to be served.
#[derive(Clone, Debug)]
pub struct ServiceTierSpec {
    /// Text of `--data`; `None`: the service's own.
    pub data: Option<String>,
    /// How many leaves.
    pub leaves: u32,
    /// CPUs of the mid-tier.
    pub cpus: u32,
    /// Gaps between requests.
    pub arrivals: Arrivals,
    /// Objective of a policy.
    pub slo: Nanos,
    /// Draws the requests.
    pub seed: u64,
}

impl ServiceTier {
    /// Whether a service of this name has leaves.
    pub fn is_known(name: &str) -> bool {
        let catalogue = Catalogue::builtin();
        catalogue.find(name).is_some_and(|case| catalogue.find(&leaf_service(case.name())).is_some())
    }

    /// Starts the leaves of the service called `name`, and makes its clients ready.
    ///
    /// # Errors
    /// There is no such service, or its data can't be used.
    pub fn start(name: &str, wanted: &ServiceTierSpec, step: &dyn Fn(&str)) -> Result<Self, RunError> {
        let catalogue = Catalogue::builtin();
        let pair = catalogue.find(name).and_then(|case| Some((case, catalogue.find(&leaf_service(case.name()))?)));
        let (case, leaf) = pair.ok_or(RunError::NotATier)?;
        let failed = |source| RunError::Real { run: format!("starting {}", case.name()), source };
        let open = |case: &dyn ServiceDefinition, own: &[(&'static str, String)]| {
            let mut values = Values::defaults(case.arguments());
            let data = wanted.data.iter().map(|data| (DATA.name, data.clone()));
            for (name, text) in own.iter().cloned().chain(data) {
                if case.arguments().iter().any(|argument| argument.name == name) {
                    values.set(name, Value::Text(text));
                }
            }
            let tell = |notice: Notice<'_>| match notice {
                Notice::Step(words) | Notice::Note(words) => step(words),
            };
            case.open(&values, 1, &tell).map_err(|error| failed(error.into()))
        };
        let placement = Placement::choose(wanted.cpus).map_err(failed)?;
        let shards = (1..=wanted.leaves).map(|at| open(leaf, &[(SHARD.name, format!("{at}/{}", wanted.leaves))]));
        let leaves = LocalLeaves::start(&shards.collect::<Result<Vec<_>, _>>()?, &placement).map_err(failed)?;
        let own = [
            (LEAVES.name, leaves.addresses()),
            (TIMEOUT.name, LEAF_TIMEOUT.into()),
            (THREADING.name, INITIAL_SETUP.into()),
        ];
        let middle: Arc<dyn Backend> = open(case, &own)?.into();
        let registry = leeward_controllers::builtin();
        let asked = prepare_service(case, wanted, &middle, &placement, &registry).map_err(failed)?;
        let workload = Workload {
            clients: CLIENTS,
            arrivals: wanted.arrivals,
            shares: Shares::Equal,
            demand: vec![Segment { from: Nanos::ZERO, rate: Rate(1.0) }],
            // Not known, and not asked for.
            service: ServiceTime::Constant(Nanos(1)),
        };
        let (data, slo, seed) = (wanted.data.clone(), wanted.slo, wanted.seed);
        Ok(ServiceTier {
            definition: case,
            data,
            mid_tier: middle,
            service: asked,
            _leaves: leaves,
            placement,
            workload,
            slo,
            seed,
            registry,
        })
    }

    /// The service's name.
    pub fn name(&self) -> &'static str {
        self.definition.name()
    }

    /// Text of `--data` that its curves are of: nothing where it is the service's own.
    pub fn data(&self) -> &str {
        self.data.as_deref().unwrap_or_default()
    }
}

/// Questions of the clients; some services are filled for them.
fn prepare_service(
    case: &dyn ServiceDefinition,
    wanted: &ServiceTierSpec,
    middle: &Arc<dyn Backend>,
    placement: &Placement,
    registry: &Registry,
) -> Result<InProcessService, RealError> {
    let about = wanted.data.as_ref().map(|data| format!("{}:{data}", case.name()));
    // Some ask the same of all data.
    let about = about.filter(|about| case.requests(about).is_ok()).unwrap_or_else(|| case.name().into());
    let requests = case.requests(&about).map_err(|error| RealError::Tier(error.to_string()))?;
    let algorithm = registry.find("none").map_err(|error| RealError::Tier(error.to_string()))?;
    let ask = with_server(middle.as_ref(), placement, |address| {
        let (params, slo) = (&Params::default(), wanted.slo);
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
        let failed = |words: String| RunError::Real { run: trial.to_string(), source: RealError::Tier(words) };
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
