//! A run: a controller at both ends, a workload between them, and the reports of both ends.

use crate::error::RealError;
use crate::locks::LockSampler;
use crate::placement::Placement;
use leeward_core::budget::Budget;
use leeward_core::params::Params;
use leeward_core::registry::{Algorithm, Environment};
use leeward_core::server::Gauges;
use leeward_core::units::Nanos;
use leeward_engine::Source;
use leeward_load::report::{ClientWindow, LoadReport, RunEndReason};
use leeward_load::{LoadConfig, Plan, Polling, RunResults, Schedule};
use leeward_outcome::LockOutcome;
use leeward_rpc::client::Transport;
use leeward_rpc::server::{RequestCounts, Server};
use leeward_services::backend::{Bottleneck, InProcessService};
use leeward_workload::Workload;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

/// Specification of a run.
#[derive(Clone, Debug)]
pub struct RunSpec<'a> {
    /// CPUs of the two ends.
    pub placement: &'a Placement,
    /// Service of the server.
    pub service: &'a InProcessService,
    /// Queueing budget of a request; if unlimited, no lock rejects it.
    pub budget: Budget,
    /// The controller.
    pub algorithm: &'a Algorithm,
    /// Parameters of the controller.
    pub params: &'a Params,
    /// Round trip of the network, for the controller.
    pub rtt: Nanos,
    /// The objective.
    pub slo: Nanos,
    /// Demand of the clients.
    pub workload: &'a Workload,
    /// Seed of the workload.
    pub seed: u64,
    /// Time before the measured part.
    pub warmup: Nanos,
    /// Time in which requests are issued, including the warm-up.
    pub duration: Nanos,
    /// Length of the time series' windows.
    pub window: Nanos,
    /// Length of the fine time series' windows, if there is one.
    pub fine_window: Option<Nanos>,
    /// Observers of the server while it runs.
    pub observers: Option<&'a ServerObservers>,
}

/// Observers of the server of a run. Clones share the function.
#[derive(Clone)]
pub struct ServerObservers(Arc<ObserverFn>);

/// Function that gets the server of a run.
type ObserverFn = dyn Fn(Option<Arc<dyn Source>>) + Send + Sync;

impl ServerObservers {
    /// Calls `show` with each server that has started, and with `None` when it stops.
    pub fn new(show: impl Fn(Option<Arc<dyn Source>>) + Send + Sync + 'static) -> Self {
        ServerObservers(Arc::new(show))
    }
}

/// Equal if both share one function.
impl PartialEq for ServerObservers {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for ServerObservers {}

impl std::fmt::Debug for ServerObservers {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("ServerObservers")
    }
}

/// State of the server at one moment.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ServerSample {
    /// Time since the start of the run.
    pub at: Nanos,
    /// The controller's state.
    pub gauges: Gauges,
    /// The queueing delay.
    pub delay: Nanos,
    /// Counts of the server so far.
    pub counts: RequestCounts,
    /// Total idle time of its cores so far.
    pub idle: Nanos,
}

/// State of a run in progress, for a view.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Snapshot {
    /// The server now, and the elapsed time.
    pub server: ServerSample,
    /// Length of the run.
    pub duration: Nanos,
    /// The last window of the time series.
    pub latest: Option<ClientWindow>,
}

/// Report of a run.
#[derive(Clone, Debug)]
pub struct RunReport {
    /// Report of the clients.
    pub load: LoadReport,
    /// Counts of the server over the whole run.
    pub server: RequestCounts,
    /// Samples of the server, at least one per window.
    pub samples: Vec<ServerSample>,
    /// The server's locks in the measured part, longest waits first.
    pub locks: Vec<LockOutcome>,
    /// Number of the server's cores.
    pub cores: usize,
    /// The controller's state after the last client has disconnected.
    pub final_gauges: Gauges,
    /// Failed conservation checks, as text; empty unless something is broken.
    pub violations: Vec<String>,
}

/// Fewest samples of the server in the measured part.
const MIN_SAMPLES: u64 = 4;
/// Time in which a server must notice that its clients have disconnected.
const DISCONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// Runs `spec` on its own server. `watch` is called once per sample on the clients' CPU; it must be
/// quick.
///
/// # Errors
///
/// See [`RealError`].
pub fn run(spec: &RunSpec<'_>, stop: &AtomicBool, mut watch: impl FnMut(&Snapshot)) -> Result<RunReport, RealError> {
    let schedule = Schedule::draw(spec.workload, spec.seed, spec.duration)?;
    raise_socket_limit(schedule.clients())?;
    let admission = (spec.algorithm, spec.params);
    let is_watched = spec.observers.is_some();
    let server = start(spec.placement, spec.service, admission, (spec.rtt, spec.slo), spec.budget, is_watched)?;
    let show = |source| _ = spec.observers.map(|observers| (observers.0)(source));
    show(server.source());
    // Short runs are sampled more than once per window: a run's activity is the difference of two
    // samples.
    let interval = spec.window.min(spec.duration.saturating_sub(spec.warmup) / MIN_SAMPLES).max(Nanos(1));
    let config = LoadConfig {
        ask: spec.service.generator.clone(),
        budget: spec.budget,
        warmup: spec.warmup,
        window: Some(spec.window),
        fine_window: spec.fine_window,
        progress_every: interval,
        // Clients that never sleep would keep the leaves from their CPU for whole scheduler slices.
        polling: if spec.service.bottleneck == Bottleneck::Threads { Polling::Sleep } else { spec.placement.polling() },
        cpu: Some(spec.placement.load),
        transport: spec.placement.transport,
        ..LoadConfig::new(address(spec.placement, &server), spec.slo)
    };
    let environment = Environment::new(spec.placement.server.len() as u32, spec.rtt, spec.slo);
    let client = || (spec.algorithm.build_client)(spec.params, &environment);
    let mut locks = LockSampler::new(spec.warmup, spec.duration, interval);
    let mut samples = Vec::with_capacity((spec.duration.0 / interval.0) as usize + 1);
    let outcome = leeward_load::run(&config, &Plan::Open(schedule), client, stop, |progress| {
        let at = progress.elapsed;
        let (gauges, delay, counts, idle) = (server.gauges(), server.delay(), server.counts(), server.idle());
        let sample = ServerSample { at, gauges, delay, counts, idle };
        if progress.elapsed <= spec.duration {
            samples.push(sample);
        }
        locks.sample(at);
        watch(&Snapshot { server: sample, duration: progress.duration, latest: progress.latest });
    });
    show(None);
    finish(server, outcome, (samples, locks.outcomes()), spec)
}

/// Raises the limit of open files for both ends of the clients' connections.
pub(crate) fn raise_socket_limit(clients: u32) -> Result<(), RealError> {
    let needed = 2 * u64::from(clients);
    let allowed = leeward_load::allow_sockets(needed);
    if allowed < needed { Err(RealError::Sockets { clients, needed, allowed }) } else { Ok(()) }
}

/// Starts a server on its part of the placement, with the round trip and the objective.
pub(crate) fn start(
    placement: &Placement,
    service: &InProcessService,
    (algorithm, params): (&Algorithm, &Params),
    (rtt, slo): (Nanos, Nanos),
    budget: Budget,
    is_watched: bool,
) -> Result<Server, RealError> {
    let builder = Server::builder()
        .admission(algorithm, params.clone())
        .objective(rtt, slo)
        .budget(budget)
        .cores(placement.server.len())
        .cpus(placement.server.clone())
        .idle(placement.idle())
        .watched(is_watched)
        .connection_limit(1 << 20);
    let builder = if placement.transport == Transport::Udp { builder.udp("127.0.0.1:0") } else { builder };
    Ok(service.start(builder, "127.0.0.1:0")?)
}

/// Address at which clients reach the server.
pub(crate) fn address(placement: &Placement, server: &Server) -> SocketAddr {
    let datagram_address = server.datagram_address().filter(|_| placement.transport == Transport::Udp);
    datagram_address.unwrap_or_else(|| server.address())
}

/// Stops the server, for any outcome of the load, and checks the reports of both ends.
fn finish(
    server: Server,
    outcome: Result<RunResults, leeward_load::LoadError>,
    (samples, locks): (Vec<ServerSample>, Vec<LockOutcome>),
    spec: &RunSpec<'_>,
) -> Result<RunReport, RealError> {
    let began = Instant::now();
    while server.counts().connections > 0 && began.elapsed() < DISCONNECT_TIMEOUT {
        std::thread::sleep(Duration::from_millis(1));
    }
    let (final_state, counts) = (server.gauges(), server.counts());
    server.stop().map_err(RealError::Core)?;
    let load = outcome?.report;
    match load.ending {
        RunEndReason::Stopped => return Err(RealError::Cancelled),
        RunEndReason::Disconnected => return Err(RealError::Disconnected(load.connections.opened)),
        _ => {}
    }
    if load.connections.lost > 0 {
        let reasons = load.connections.reasons.keys().map(String::as_str).collect::<Vec<_>>().join("; ");
        return Err(RealError::ConnectionsLost {
            lost: load.connections.lost,
            opened: load.connections.opened,
            reasons,
        });
    }
    // A server without leaves that gets service times only fails times that exceed its limit. Other
    // services may fail requests as a regular outcome.
    if load.totals.failed > 0 && spec.service.generator.is_none() && spec.service.bottleneck == Bottleneck::Cores {
        return Err(RealError::RequestsFailed(load.totals.failed));
    }
    let mut violations = load.violations.clone();
    let mut check = |holds: bool, message: String| {
        if !holds {
            violations.push(message);
        }
    };
    check(counts.connections == 0, format!("{} connections are left when all clients have gone", counts.connections));
    let issued = final_state.credits_issued.unwrap_or(0);
    check(issued == 0, format!("{issued} credits are issued when all clients have gone"));
    let ended = counts.completed + counts.rejected + counts.abandoned;
    check(counts.received == ended, format!("{} requests received, {ended} ended: {counts:?}", counts.received));
    let answered = load.totals.completed + load.totals.timed_out + load.totals.failed;
    check(answered <= counts.completed, format!("{answered} answers came of {} sent", counts.completed));
    let cores = spec.placement.server.len();
    Ok(RunReport { load, server: counts, samples, locks, cores, final_gauges: final_state, violations })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn too_many_clients_for_the_file_limit_are_rejected() {
        assert!(raise_socket_limit(1).is_ok());
        let error = raise_socket_limit(u32::MAX).unwrap_err();
        assert!(error.is_input() && error.to_string().contains("ulimit -n"), "{error}");
    }
}
