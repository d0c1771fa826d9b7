//! Invariants of any run, for all controllers and scenarios.

use super::scenario::Scenario;
use leeward_outcome::RequestCounts;
use leeward_sim::{RunOutcome, simulate};

/// Sum over the kinds of requests.
fn sum(report: &RunOutcome, of: fn(&RequestCounts) -> u64) -> u64 {
    report.kinds.iter().map(|kind| of(&kind.counts)).sum()
}

/// Runs `scenario` and checks the invariants.
pub(crate) fn check(scenario: &Scenario) -> Result<RunOutcome, String> {
    let report =
        simulate(&scenario.config, &scenario.algorithm, &scenario.params).map_err(|error| error.to_string())?;
    let (counts, server) = (&report.counts, &report.server);
    let locks = || report.locks.iter().chain(report.replicas.iter().flat_map(|server| &server.locks));
    let config = &scenario.config;
    // Requests in flight at the end of the warm-up may end in the measured interval, so responses
    // can exceed issued requests.
    let carried = report.totals.offered - counts.offered;
    let rules = [
        (report.violations.is_empty(), format!("{:?}", report.violations)),
        (report.cpu_utilization <= 1.0 + 1e-9, format!("CPU used {}", report.cpu_utilization)),
        (counts.good <= counts.completed, format!("more good responses than responses: {counts:?}")),
        // A request received before the measured interval may be rejected in it, when it is
        // dequeued.
        (server.rejected <= server.received + carried, format!("more rejected than received: {server:?}")),
        (counts.completed + counts.dropped <= counts.offered + carried, format!("more ends than requests: {counts:?}")),
        (
            report.latency.count == counts.completed
                && (report.reject_delay.count == counts.dropped
                    || config.replicas.is_some() && report.reject_delay.count > counts.dropped),
            format!("latencies of {} and delays of {}: {counts:?}", report.latency.count, report.reject_delay.count),
        ),
        (server.refused_at_locks <= server.rejected, format!("more refused at locks than rejected: {server:?}")),
        (
            // A request that stopped waiting before the measured interval may be rejected in it.
            locks().map(|lock| lock.rejected).sum::<u64>() + carried * if config.replicas.is_some() { 2 } else { 1 }
                >= server.refused_at_locks,
            format!("locks refused less than the server: {:?} {server:?}", report.locks),
        ),
        (
            locks().all(|lock| lock.contended <= lock.acquisitions && lock.utilization.unwrap() <= 1.0 + 1e-9),
            format!("more than there can be: {:?}", report.locks),
        ),
        (
            report.kinds.len() == config.kinds.0.len()
                && (report.kinds.is_empty() || sum(&report, |counts| counts.offered) == counts.offered)
                && (report.kinds.is_empty() || sum(&report, |counts| counts.good) == counts.good)
                && report.kinds.iter().all(|kind| kind.latency.count == kind.counts.completed),
            format!("kinds don't add up: {:?}", report.kinds),
        ),
        (server.rx_messages >= server.received, format!("more requests than messages: {server:?}")),
        (
            report.latency.count == 0 || report.latency.mean_ns >= config.network.rtt.0 as f64,
            format!("faster than the network: {:?}", report.latency),
        ),
        (
            report.windows.iter().map(|window| window.clients.counts.offered).sum::<u64>() <= report.totals.offered,
            "the windows hold more than the run".into(),
        ),
        (
            report.fine_windows.iter().map(|window| window.completed).sum::<u64>() == report.totals.completed,
            "the fine windows don't add up".into(),
        ),
    ];
    match rules.into_iter().find(|(holds, _)| !holds) {
        Some((_, violation)) => Err(violation),
        None => Ok(report),
    }
}
