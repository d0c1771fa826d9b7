//! Validates a configuration: rejects what can't be simulated, before a run begins.

use crate::config::{Application, Arrivals, ClientModel, LockPolicy, ServerModel, Shares, SimConfig};
use leeward_core::units::Nanos;
use leeward_workload::service_time::ServiceTime;

/// Checks `config`.
///
/// # Errors
/// The first rule that `config` violates, as text.
pub(crate) fn check(config: &SimConfig) -> Result<(), String> {
    let workload = &config.workload;
    let rates_are_possible = workload.demand.iter().all(|segment| (0.0..=1e12).contains(&segment.rate.0));
    let in_order = workload.demand.windows(2).all(|pair| pair[0].from < pair[1].from);
    let exponent_is_possible = match workload.shares {
        Shares::Equal => true,
        Shares::Zipf(exponent) => (0.0..=10.0).contains(&exponent),
    };
    let hour = Nanos::from_secs(3_600);
    let waits_are_possible = match config.locks.acquire {
        LockPolicy::Plain | LockPolicy::Try => true,
        LockPolicy::UnlessCongested { budget: span, .. } | LockPolicy::Timed { timeout: span } => span <= hour,
    };
    let rules = [
        (workload.clients >= 1 && workload.clients <= 1_000_000, "clients must be 1 to 1,000,000"),
        (config.server.cores >= 1 && config.server.cores <= 128, "cores must be 1 to 128"),
        (config.server.batch >= 1 && config.server.batch <= 65_536, "a core must take 1 to 65,536 packets at a time"),
        (
            config.server.sockets.is_none() || config.server.scheduling.is_none(),
            "sockets and allocated cores are not simulated together",
        ),
        (
            config.server.wake.is_none() || config.server.scheduling.is_none(),
            "cores that sleep and allocated cores are not simulated together",
        ),
        (stalls_are_possible(config), "stalls last up to an hour, and begin 1 us apart or more"),
        (
            freezes_are_possible(config),
            "a pause is shorter than the interval from one to the next, and a quota's period an hour at most",
        ),
        (slow_is_possible(config), "waits are up to 1,000 times as long as usual, from one time to a later one"),
        (scheduling_is_possible(config), "an allocation lasts up to a second, and so does a look into a queue"),
        (!workload.demand.is_empty(), "there is no demand"),
        (workload.demand.first().is_none_or(|first| first.from == Nanos::ZERO), "the demand must begin at 0"),
        (in_order, "the demand's segments must be in order of time"),
        (rates_are_possible, "a demand must be 0 to 10^12 requests per second"),
        (service_is_possible(&workload.service), "a service needs at least one sample, and a sigma within 0 to 5"),
        (exponent_is_possible, "a Zipf exponent must be 0 to 10"),
        (config.warmup < config.duration, "the run must last longer than its warm-up"),
        (config.duration <= hour, "a run lasts an hour at most"),
        (config.network.rtt <= hour && config.network.jitter <= hour, "a round trip lasts an hour at most"),
        (
            config.server.scheduling.is_none() || config.application == Application::default(),
            "locks and allocated cores are not simulated together",
        ),
        (
            !config.is_shadow() || is_plain(config),
            "shadow mode needs one server of cores, without replicas, an allocator, a tier, a graph or locks",
        ),
        (config.clients.pacing <= hour, "a client sends once per hour at least"),
        (
            config.clients.timeout.is_none_or(|timeout| timeout > Nanos::ZERO && timeout <= hour),
            "an application waits for 1 ns to an hour",
        ),
        (
            replicas_are_possible(config),
            "replicas are 2 to 16, with 1,000,000 sessions in all, and give up within an hour",
        ),
        (
            config.replicas.is_none() || config.server.scheduling.is_none(),
            "replicas and allocated cores are not simulated together",
        ),
        (
            config.replicas.is_none() || config.clients == ClientModel::default(),
            "replicas and clients that space their requests or time out are not simulated together",
        ),
        (
            config.kinds.is_empty() || (config.tier.is_none() && config.graph.is_none()),
            "kinds of requests and tiers or graphs are not simulated together",
        ),
        (
            workload.arrivals != Arrivals::Closed
                || (config.replicas.is_none() && config.tier.is_none() && config.graph.is_none()),
            "a closed loop of clients and replicas, tiers or graphs are not simulated together",
        ),
        (waits_are_possible, "a lock is waited for an hour at most"),
        (windows_are_possible(config.window, config), "a time series has 1,000,000 windows at most"),
        (windows_are_possible(config.fine_window, config), "a fine time series has 1,000,000 windows at most"),
    ];
    config.application.check()?;
    config.kinds.check().map_err(|(_, problem)| problem)?;
    if let Some(service) =
        config.kinds.0.iter().filter_map(|kind| kind.service.as_ref()).find(|service| !service_is_possible(service))
    {
        return Err(format!("a kind's service needs at least one sample, and a sigma within 0 to 5: {service:?}"));
    }
    match rules.iter().find(|(holds, _)| !holds) {
        Some((_, rule)) => Err((*rule).into()),
        None => Ok(()),
    }
}

fn service_is_possible(service: &ServiceTime) -> bool {
    match service {
        ServiceTime::Empirical(samples) => !samples.is_empty(),
        ServiceTime::Lognormal { sigma, .. } => (0.0..=5.0).contains(sigma),
        ServiceTime::Exponential(_) | ServiceTime::Constant(_) | ServiceTime::Bimodal(_) => true,
    }
}

fn stalls_are_possible(config: &SimConfig) -> bool {
    let hour = Nanos::from_secs(3_600);
    config
        .server
        .stalls
        .is_none_or(|stalls| stalls.mean_interval >= Nanos::from_micros(1) && stalls.mean_length <= hour)
}

fn freezes_are_possible(config: &SimConfig) -> bool {
    let span = Nanos::from_micros(1)..=Nanos::from_secs(3_600);
    let ServerModel { pauses, quota, .. } = config.server;
    pauses.is_none_or(|pauses| span.contains(&pauses.interval) && pauses.length < pauses.interval)
        && quota.is_none_or(|quota| span.contains(&quota.period) && quota.cpu > Nanos::ZERO)
}

fn slow_is_possible(config: &SimConfig) -> bool {
    config.server.slow.is_none_or(|slow| slow.start < slow.end && (0.0..=1_000.0).contains(&slow.factor))
}

fn scheduling_is_possible(config: &SimConfig) -> bool {
    let second = Nanos::from_secs(1);
    config.server.scheduling.as_ref().is_none_or(|model| model.allocation_delay <= second && model.check_cost <= second)
}

/// Whether there is one server with permanent cores whose requests only compute.
fn is_plain(config: &SimConfig) -> bool {
    config.replicas.is_none()
        && config.server.scheduling.is_none()
        && config.tier.is_none()
        && config.graph.is_none()
        && config.application == Application::default()
}

fn replicas_are_possible(config: &SimConfig) -> bool {
    config.replicas.is_none_or(|replicas| {
        (2..=16).contains(&replicas.servers)
            && u64::from(config.workload.clients) * u64::from(replicas.servers) <= 1_000_000
            && replicas.credit_timeout.is_none_or(|span| span > Nanos::ZERO && span <= Nanos::from_secs(3_600))
    })
}

fn windows_are_possible(window: Option<Nanos>, config: &SimConfig) -> bool {
    window.is_none_or(|window| window > Nanos::ZERO && config.duration.0 / window.0 < 1_000_000)
}
