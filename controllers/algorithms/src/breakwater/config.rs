//! Breakwater's configuration, read and checked. Each part that the paper removes in an ablation
//! can be switched off. Does not contain the parameters' names and ranges ([`super::params`]).

use super::super::published::Version;
use leeward_core::client::ClientConfig;
use leeward_core::client::params::client_config;
use leeward_core::params::{ParamError, Params};
use leeward_core::registry::{CoreProvisioning, Environment};
use leeward_core::units::Nanos;

/// Signal that adapts the credit pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PoolSignal {
    /// Queueing delay of requests, for CPUs as the bottleneck (Breakwater §3.2.1).
    Delay,
    /// Throughput gained by more load, for any bottleneck (thesis §2.3.2).
    Efficiency,
    /// The signal of these two that has evidence of overload.
    Auto,
}

/// How the efficiency signal takes credits away.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decrease {
    /// Takes a fixed part of the pool (thesis Algorithm 1).
    Multiplicative,
    /// Takes as much as an increase adds (Hoover Algorithm 1).
    Additive,
}

/// How the additive increase α·n_c turns into whole credits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IncreaseRounding {
    /// Carries the fraction to the next period (the published code).
    Carried,
    /// Adds at least one credit per period (Breakwater §3.2.2, eq. 3).
    AtLeastOne,
}

/// Order in which sessions without credit are woken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WakeOrder {
    /// Longest wait first (the published code).
    Fifo,
    /// Random order (Breakwater §3.2.2).
    Random,
}

/// How the server learns the demand at its clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DemandTracking {
    /// From requests only: the server estimates demand in between and overcommits (Breakwater
    /// §3.2.2).
    Speculation,
    /// From a message at each change, without overcommitment (the ablation of Breakwater Fig. 8).
    Synchronization,
}

/// How far the pool follows an allocator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AllocatorAwareness {
    /// The pool ignores the allocator: the cores are fixed, or an experiment shows the effect.
    Off,
    /// The pool grows with each granted core (the poster's rule).
    Grants,
    /// The pool grows as with `Grants`. It also lets a backlog wait for cores that the allocator
    /// can still grant (`backlog`), and grows while clients leave most of it unused.
    ///
    /// Neither addition is in the poster. Credits at clients without demand limit nothing: by α
    /// alone, a pool below the number of clients would need hundreds of round trips to learn that.
    On,
}

/// All settings of Breakwater.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// Whether Leeward's additions are on.
    pub version: Version,
    /// Whether clients send by window. If off, clients send at will.
    pub credits: bool,
    /// Whether arriving requests are rejected when the queueing delay is at `aqm_threshold` or
    /// above.
    pub aqm: bool,
    /// See [`IncreaseRounding`]; `None` is each signal's own default.
    pub additive: Option<IncreaseRounding>,
    /// See [`WakeOrder`].
    pub waking: WakeOrder,
    /// See [`DemandTracking`].
    pub demand: DemandTracking,
    /// α: credits added per session and period while the delay is under its target.
    pub alpha: f64,
    /// β: how strongly the pool shrinks per relative excess of delay. For efficiency it is d, the
    /// part of the pool that an iteration without gain takes.
    pub beta: f64,
    /// d_t: target of the queueing delay.
    pub target: Nanos,
    /// Queueing delay from which requests are rejected.
    pub aqm_threshold: Nanos,
    /// Waiting time from which a request is rejected when it is dequeued: its response could not be
    /// in time any more. Not in the paper.
    ///
    /// On many cores requests rarely wait that long. On one core the age of the oldest request says
    /// little about the wait of the newest, and this threshold saves executions whose responses
    /// would be late.
    pub stale: Nanos,
    /// Control period: the network round trip.
    pub period: Nanos,
    /// A session's window stays below this.
    pub max_window: u32,
    /// A few sessions may have larger windows, of so many credits together. A client that stands
    /// for many, such as a proxy, would otherwise be limited by its round trips.
    pub shared_windows: u32,
    /// The pool never shrinks below this (`c_min`).
    pub min_pool: u32,
    /// The pool never grows beyond this (`c_max`); `None` is the sum of all sessions' largest
    /// windows.
    pub max_pool: Option<u32>,
    /// See [`PoolSignal`].
    pub signal: PoolSignal,
    /// t_e: responses that one more request must bring for the pool to grow.
    pub efficiency_threshold: f64,
    /// t_d: share of rejections from which the pool shrinks in any case.
    pub drop_threshold: f64,
    /// See [`Decrease`]; `None` is each signal's own default.
    pub decrease: Option<Decrease>,
    /// End-to-end round trips in an iteration of the efficiency signal; the first is not counted.
    pub iteration: u32,
    /// Time in the server after which a response is late, regardless of the network.
    pub deadline: Nanos,
    /// The network's round trip: the shortest possible end-to-end round trip.
    pub network_rtt: Nanos,
    /// The pool at the start.
    pub initial_pool: u32,
    /// See [`AllocatorAwareness`]. Unless it is off, [`Config::min_pool`] also follows from the
    /// round trip.
    pub allocator_aware: AllocatorAwareness,
    /// Share by which the pool may exceed the requests that the downstream servers admit. A request
    /// without downstream credit waits for it, and ends before any work was done for it.
    pub downstream_overcommit: f64,
    /// The client's queue.
    pub client: ClientConfig,
}

/// Credits that few sessions may hold, with the signal that is the default.
const SHARED_WINDOWS: u32 = 4096;

/// Bound on a session's window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct WindowLimit {
    each: i64,
    shared: i64,
}

impl WindowLimit {
    pub(super) fn new(config: &Config) -> WindowLimit {
        WindowLimit { each: config.max_window.into(), shared: config.shared_windows.into() }
    }

    /// Returns what the window of one of so many sessions stays below.
    pub(super) fn of(self, sessions: i64) -> i64 {
        self.each.max(self.shared / sessions.max(1))
    }

    /// Bounds a window. The number of sessions is asked for only if it matters.
    pub(super) fn apply(self, window: i64, sessions: impl FnOnce() -> i64) -> i64 {
        if window < self.each { window } else { window.min(self.of(sessions()) - 1) }
    }
}

/// Expiry at the testbed's clients, for every service time (Breakwater §5.1).
const PUBLISHED_CLIENT_DELAY: Nanos = Nanos::from_micros(10);
/// Round trip for which the poster's code adds [`POSTER_CREDITS`] to the minimum pool.
const POSTER_ROUND_TRIP: Nanos = Nanos::from_micros(5);
const POSTER_CREDITS: u64 = 25;

impl Config {
    /// Reads the configuration from `params`.
    ///
    /// # Errors
    /// - A delay target at or above the objective: requests would be late before the pool shrinks,
    ///   and no time would remain for their wait at the client.
    /// - An AQM threshold below the delay target: the pool could never settle at its target.
    /// - A maximum pool below the minimum pool.
    pub fn read(signal: PoolSignal, params: &Params, environment: &Environment) -> Result<Config, ParamError> {
        let version = Version::read(params);
        let on = |name| params.choice(name, "on") == "on";
        // What the round trip leaves of the objective. Where that is little, the paper's shares of
        // the objective would be longer. Where it is hardly anything, nothing can be in time.
        let left = match signal {
            PoolSignal::Auto => environment.slo.saturating_sub(environment.rtt).max(environment.slo / 8),
            PoolSignal::Delay | PoolSignal::Efficiency => Nanos::MAX,
        };
        // Breakwater §5.1: d_t = 40 % of SLO. Never zero: the pool's law divides by it.
        let default_target = environment.slo.scale(0.4).min(left.scale(0.5)).max(Nanos(1));
        let target = params.duration("target", default_target);
        if params.is_set("target") && target >= environment.slo {
            return Err(ParamError::Conflict(format!(
                "`target` ({target}) must be below the objective ({})",
                environment.slo
            )));
        }
        // Breakwater §5.1: 2·d_t
        let aqm_threshold = params.duration("aqm_threshold", (target * 2).min(left.scale(0.9).max(target)));
        if aqm_threshold < target {
            return Err(ParamError::Conflict(format!(
                "`aqm_threshold` ({aqm_threshold}) must not be below `target` ({target})"
            )));
        }
        let allocator_aware = awareness(version, params, environment)?;
        let default_min = default_min_pool(version, allocator_aware, params, environment);
        let min_pool = params.count("min_pool", default_min) as u32;
        let max_pool = match params.count("max_pool", 0) as u32 {
            0 => None,
            max_pool if max_pool < min_pool => {
                return Err(ParamError::Conflict(format!(
                    "`max_pool` ({max_pool}) must not be below `min_pool` ({min_pool})"
                )));
            }
            max_pool => Some(max_pool),
        };
        // The testbed expired requests after 10 µs at the client. A user's default is the part of
        // the objective that the delay target leaves.
        let client_delay =
            if version.is_published() { PUBLISHED_CLIENT_DELAY } else { environment.slo.saturating_sub(target) };
        Ok(Config {
            version,
            credits: on("credits"),
            aqm: on("aqm"),
            additive: match params.choice("additive", "") {
                "at_least_one" => Some(IncreaseRounding::AtLeastOne),
                "carried" => Some(IncreaseRounding::Carried),
                _ => None,
            },
            waking: if params.choice("waking", "fifo") == "random" { WakeOrder::Random } else { WakeOrder::Fifo },
            demand: match params.choice("demand", "speculation") {
                "synchronization" => DemandTracking::Synchronization,
                _ => DemandTracking::Speculation,
            },
            alpha: params.number("alpha", 0.001), // Breakwater §5.1
            beta: params.number("beta", 0.02),    // Breakwater §5.1
            target,
            aqm_threshold,
            stale: if version.is_published() { Nanos::MAX } else { params.duration("stale", aqm_threshold) },
            period: params.duration("period", environment.rtt.max(Nanos::from_micros(1))),
            max_window: params.count("max_window", 64) as u32, // the published code's bound
            shared_windows: if signal == PoolSignal::Auto && !params.is_set("max_window") { SHARED_WINDOWS } else { 0 },
            min_pool,
            max_pool,
            signal,
            efficiency_threshold: params.number("efficiency_threshold", 0.1), // thesis §2.5.1
            drop_threshold: params.number("drop_threshold", 1.0),             // thesis §2.5.1
            decrease: match params.choice("decrease", "") {
                "additive" => Some(Decrease::Additive),
                "multiplicative" => Some(Decrease::Multiplicative),
                _ => None,
            },
            iteration: params.count("iteration", 4) as u32, // thesis §2.3.2, footnote 1
            deadline: environment.slo.saturating_sub(environment.rtt),
            network_rtt: environment.rtt,
            initial_pool: params.count("initial_pool", min_pool.into()).max(min_pool.into()) as u32,
            allocator_aware,
            downstream_overcommit: params.number("downstream_overcommit", 0.25),
            client: client_config(params, client_delay.min(left)),
        })
    }
}

/// Reads the parameter. The default depends on whether there is an allocator.
fn awareness(version: Version, params: &Params, environment: &Environment) -> Result<AllocatorAwareness, ParamError> {
    let default = match (environment.provisioning, version) {
        (CoreProvisioning::Fixed, _) => "off",
        (CoreProvisioning::Allocated, Version::Published) => "grants",
        (CoreProvisioning::Allocated, Version::Extended) => "on",
    };
    match params.choice("allocator_aware", default) {
        "on" if version.is_published() => Err(ParamError::Conflict(
            "`allocator_aware = on` is an addition of ours, which `as_published` turns off; accepted: `grants`, `off`"
                .into(),
        )),
        "on" => Ok(AllocatorAwareness::On),
        "grants" => Ok(AllocatorAwareness::Grants),
        _ => Ok(AllocatorAwareness::Off),
    }
}

/// Default minimum pool: the number of cores, as in the published code.
///
/// For an allocator-aware pool it is the number of requests that all cores serve while a credit
/// makes its round trip. So a server with parked cores still asks for enough requests to need them.
fn default_min_pool(
    version: Version,
    awareness: AllocatorAwareness,
    params: &Params,
    environment: &Environment,
) -> u64 {
    let cores = u64::from(environment.cores);
    if awareness == AllocatorAwareness::Off {
        return cores;
    }
    if version.is_published() {
        return cores.max(environment.rtt.0 / POSTER_ROUND_TRIP.0 * POSTER_CREDITS);
    }
    // The default objective is ten times service time plus round trip (Breakwater §5.1). A set
    // objective may be shorter than the round trip needs. A service time equal to the round trip is
    // then a careful guess, since it gives the smaller pool.
    let implied = (environment.slo / 10).saturating_sub(environment.rtt);
    let implied = if implied == Nanos::ZERO { environment.rtt } else { implied };
    let service = params.duration("service", implied).max(Nanos(1));
    let per_core = 1.0 + environment.rtt.0 as f64 / service.0 as f64;
    (cores as f64 * per_core).ceil().min(1e6) as u64
}
