//! The simulator without message costs, and closed forms of queueing theory.

use leeward_core::units::{Nanos, Rate};
use leeward_sim::config::{
    Application, Costs, LockKind, LockModel, LockPolicy, NetworkModel, Segment, ServerModel, SimConfig, Workload,
};
use leeward_sim::service_time::ServiceTime;
use leeward_sim::{RunOutcome, simulate};

/// A theoretical queue: Poisson arrivals, and no cost besides the service time.
pub(crate) struct Queue {
    /// Servers.
    pub(crate) cores: u32,
    /// Service times.
    pub(crate) service: ServiceTime,
    /// Utilisation, below 1.
    pub(crate) load: f64,
    /// Number of measured requests.
    pub(crate) requests: f64,
    /// Seed.
    pub(crate) seed: u64,
    /// Application with locks; `load` is then the utilisation of one core.
    pub(crate) application: Application,
    /// How a request waits for a lock.
    pub(crate) kind: LockKind,
}

impl Queue {
    /// Runs the queue without control and checks the invariants.
    pub(crate) fn run(&self) -> RunOutcome {
        self.run_on(ServerModel::default())
    }

    /// Runs the queue on a server with the interruptions of `server`.
    pub(crate) fn run_on(&self, server: ServerModel) -> RunOutcome {
        let busy = if self.application.is_plain() { f64::from(self.cores) } else { 1.0 };
        let rate = self.load * busy / self.service.mean().as_secs_f64();
        let length = Nanos::from_secs_f64(self.requests / rate);
        let warmup = length.scale(0.02);
        let testbed = SimConfig::testbed(self.service.clone(), 1.0);
        let config = SimConfig {
            server: ServerModel { cores: self.cores, costs: Costs::FREE, ..server },
            network: NetworkModel { rtt: Nanos::ZERO, jitter: Nanos::ZERO },
            workload: Workload {
                demand: vec![Segment { from: Nanos::ZERO, rate: Rate(rate) }],
                ..testbed.workload.clone()
            },
            warmup,
            duration: warmup + length,
            seed: self.seed,
            application: self.application.clone(),
            locks: LockModel { kind: self.kind, acquire: LockPolicy::Plain },
            ..testbed
        };
        let none = leeward_controllers::builtin().find("none").unwrap().clone();
        let report = simulate(&config, &none, &none.params(&[]).unwrap()).unwrap();
        assert!(report.violations.is_empty(), "{:?}", report.violations);
        report
    }
}

/// Mean wait of M/G/1: `mean` and the result in the same unit, `scv` the squared coefficient of
/// variation.
pub(crate) fn pollaczek_khinchine(load: f64, mean: f64, scv: f64) -> f64 {
    load * mean * (1.0 + scv) / (2.0 * (1.0 - load))
}

/// Probability of waiting in M/M/c with `offered` = arrival rate × mean service (Erlang's C
/// formula).
pub(crate) fn erlang_c(cores: u32, offered: f64) -> f64 {
    let cores_f = f64::from(cores);
    // Terms offered^k / k!, built up one by one.
    let mut term = 1.0;
    let mut sum = 1.0;
    for k in 1..cores {
        term *= offered / f64::from(k);
        sum += term;
    }
    let last = term * offered / cores_f * cores_f / (cores_f - offered);
    last / (sum + last)
}

/// Share of calls that find all servers busy and are lost, with `offered` = arrival rate × mean
/// service (Erlang's B formula).
pub(crate) fn erlang_b(servers: u32, offered: f64) -> f64 {
    (1..=servers).fold(1.0, |blocked, server| offered * blocked / (f64::from(server) + offered * blocked))
}
