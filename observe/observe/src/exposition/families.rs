//! The metrics: names, units and labels (docs/admin.md has the table). Does not contain the text
//! formats.

use super::process::ProcessMetrics;
use super::sink::{Label, MetricKind, Sink};
use crate::exemplar::{rejection_exemplar, wait_exemplar};
use crate::snapshot::{RouteAnswers, Snapshot, TenantUsage, TlsCounts};
use crate::waits::{BOUNDS, WaitCounts, bound};

/// Lock buckets that are exported: 2^10 ns (about 1 us) to 2^34 ns (about 17 s).
const LOCK_BUCKETS: std::ops::Range<usize> = 10..35;

/// Writes all metrics of these servers and their process: each family once, with one sample per
/// server.
pub(super) fn write_all(of: &[Snapshot], process: &ProcessMetrics, text: &mut dyn Sink) {
    build_info(text);
    decisions(of, text);
    requests(of, text);
    controller(of, text);
    delays(of, text);
    costs(of, text);
    tiers(of, text);
    locks(of, text);
    tls(of, process, text);
    exports(process, text);
}

fn seconds(ns: u64) -> f64 {
    ns as f64 / 1e9
}

fn build_info(text: &mut dyn Sink) {
    text.begin_family("leeward_build_info", MetricKind::Gauge, "Version of Leeward.");
    text.gauge("leeward_build_info", &[("version", env!("CARGO_PKG_VERSION"))], 1.0);
}

fn decisions(of: &[Snapshot], text: &mut dyn Sink) {
    const NAME: &str = "leeward_admission_decisions";
    text.begin_family(
        NAME,
        MetricKind::Counter,
        "Requests admitted on arrival, and requests rejected on arrival or later, by reason.",
    );
    for snapshot in of {
        let (port, mode) = (("port", snapshot.port.as_str()), ("mode", snapshot.mode));
        if snapshot.admitted_by_class.is_empty() {
            text.counter(NAME, &[port, ("decision", "admitted"), mode], snapshot.admitted as f64);
        }
        for (class, count) in snapshot.admitted_by_class.iter().enumerate() {
            let class = class.to_string();
            text.counter(NAME, &[port, ("decision", "admitted"), ("class", &class), mode], *count as f64);
        }
        for refused in &snapshot.refused {
            let class = refused.class.map(|class| class.to_string());
            let mut labels: Vec<Label<'_>> = vec![port, ("decision", "refused"), ("reason", refused.reason)];
            labels.extend(class.as_deref().map(|class| ("class", class)));
            labels.push(mode);
            let example = rejection_exemplar(&snapshot.exemplars, refused.reason, refused.class);
            text.counter_with_exemplar(NAME, &labels, refused.count as f64, example);
        }
    }
}

/// Writes a family with one counter per server.
fn counter(of: &[Snapshot], text: &mut dyn Sink, name: &'static str, help: &str, value: impl Fn(&Snapshot) -> u64) {
    text.begin_family(name, MetricKind::Counter, help);
    for snapshot in of {
        text.counter(name, &[("port", &snapshot.port)], value(snapshot) as f64);
    }
}

/// Writes a family with one gauge for each server that has the value.
fn gauge(
    of: &[Snapshot],
    text: &mut dyn Sink,
    name: &'static str,
    help: &str,
    value: impl Fn(&Snapshot) -> Option<f64>,
) {
    if of.iter().any(|snapshot| value(snapshot).is_some()) {
        text.begin_family(name, MetricKind::Gauge, help);
    }
    for snapshot in of {
        if let Some(value) = value(snapshot) {
            text.gauge(name, &[("port", &snapshot.port)], value);
        }
    }
}

fn requests(of: &[Snapshot], text: &mut dyn Sink) {
    counter(of, text, "leeward_requests_arrived", "Requests that have arrived.", |of| of.arrived);
    let help = "Results within the objective, as far as the server sees it.";
    answers(of, text, "leeward_requests_in_time", help, |of| of.in_time, |of| of.in_time);
    let help = "Results later than the objective, as far as the server sees it.";
    answers(of, text, "leeward_requests_late", help, Snapshot::late, |of| of.late);
    let help = "Requests that were answered with a failure, however fast.";
    answers(of, text, "leeward_requests_failed", help, |of| of.failed, |of| of.failed);
    let help = "Requests without a response, because their connection ended first.";
    counter(of, text, "leeward_requests_abandoned", help, |of| of.abandoned);
    latencies(of, text);
    in_flight(of, text);
    let help = "Connections that are open.";
    gauge(of, text, "leeward_connections", help, |of| of.connections.map(|count| count as f64));
    let help = "Threads that execute requests.";
    gauge(of, text, "leeward_cores", help, |of| (of.cores > 0).then_some(of.cores as f64));
    const IDLE: &str = "leeward_core_idle_seconds";
    text.begin_family(IDLE, MetricKind::Counter, "Idle time of the threads that execute requests, in total.");
    // A proxy doesn't know the threads that execute its requests.
    for snapshot in of.iter().filter(|snapshot| snapshot.cores > 0) {
        text.counter(IDLE, &[("port", &snapshot.port)], seconds(snapshot.idle_ns));
    }
}

/// Writes the latencies of results, in the buckets of the waits.
fn latencies(of: &[Snapshot], text: &mut dyn Sink) {
    const NAME: &str = "leeward_request_latency_seconds";
    text.begin_family(NAME, MetricKind::Histogram, "Latencies of results, as far as the server sees them.");
    for snapshot in of {
        let latencies = snapshot.latencies.to_wait_counts();
        let (mut within, over) = buckets(&latencies);
        text.histogram(NAME, &[("port", &snapshot.port)], &mut within, over, seconds(latencies.sum_ns));
    }
}

/// Writes a family of answers: by class and route where a server separates them, else as one
/// sample.
fn answers(
    of: &[Snapshot],
    text: &mut dyn Sink,
    name: &'static str,
    help: &str,
    whole: impl Fn(&Snapshot) -> u64,
    part: impl Fn(&RouteAnswers) -> u64,
) {
    text.begin_family(name, MetricKind::Counter, help);
    for snapshot in of {
        let port = ("port", snapshot.port.as_str());
        if snapshot.answers.is_empty() {
            text.counter(name, &[port], whole(snapshot) as f64);
        }
        for answers in &snapshot.answers {
            let class = answers.class.map(|class| class.to_string());
            let mut labels: Vec<Label<'_>> = vec![port];
            labels.extend(class.as_deref().map(|class| ("class", class)));
            labels.push(("route", &answers.route));
            text.counter(name, &labels, part(answers) as f64);
        }
    }
}

fn in_flight(of: &[Snapshot], text: &mut dyn Sink) {
    const NAME: &str = "leeward_requests_in_flight";
    text.begin_family(NAME, MetricKind::Gauge, "Requests admitted and not finished.");
    for snapshot in of {
        let port = ("port", snapshot.port.as_str());
        if snapshot.in_flight_by_class.is_empty() {
            text.gauge(NAME, &[port], snapshot.in_flight as f64);
        }
        for (class, count) in snapshot.in_flight_by_class.iter().enumerate() {
            text.gauge(NAME, &[port, ("class", &class.to_string())], *count as f64);
        }
    }
}

/// Buckets of waits with their upper bounds in seconds, and the count above all bounds.
fn buckets(waits: &WaitCounts) -> (impl Iterator<Item = (f64, u64)> + '_, u64) {
    let (over, within) = waits.buckets.split_last().unwrap_or((&0, &[]));
    (within.iter().enumerate().map(|(index, count)| (seconds(bound(index)), *count)), *over)
}

/// Writes the work by route and by tenant.
fn costs(of: &[Snapshot], text: &mut dyn Sink) {
    const COST: &str = "leeward_request_cost_seconds";
    if of.iter().any(|snapshot| !snapshot.costs.is_empty()) {
        text.begin_family(COST, MetricKind::Histogram, "Time that requests have occupied a worker, by route.");
    }
    for snapshot in of {
        for cost in &snapshot.costs {
            let (mut within, over) = buckets(&cost.costs);
            let labels = [("port", snapshot.port.as_str()), ("route", cost.route.as_str())];
            text.histogram(COST, &labels, &mut within, over, seconds(cost.costs.sum_ns));
        }
    }
    let help = "Estimated time of requests that were admitted, by tenant: the 20 largest and the others.";
    tenants(of, text, "leeward_tenant_admitted_seconds", help, |of| of.usage.admitted_ns);
    let help = "Estimated time of requests that were rejected, by tenant: the 20 largest and the others.";
    tenants(of, text, "leeward_tenant_refused_seconds", help, |of| of.usage.refused_ns);
}

fn tenants(of: &[Snapshot], text: &mut dyn Sink, name: &'static str, help: &str, value: impl Fn(&TenantUsage) -> u64) {
    if of.iter().any(|snapshot| !snapshot.tenants.is_empty()) {
        text.begin_family(name, MetricKind::Counter, help);
    }
    for snapshot in of {
        for tenant in &snapshot.tenants {
            text.counter(name, &[("port", &snapshot.port), ("tenant", &tenant.tenant)], seconds(value(tenant)));
        }
    }
}

fn controller(of: &[Snapshot], text: &mut dyn Sink) {
    gauge(of, text, "leeward_slo_seconds", "The objective.", |of| Some(seconds(of.slo_ns)));
    let help = "The queueing delay that the controller aims at.";
    gauge(of, text, "leeward_queue_target_seconds", help, |of| of.target_ns.map(seconds));
    let help = "Requests with less important priorities than this are rejected; 128: none.";
    gauge(of, text, "leeward_admission_level", help, |of| of.level);
    let help = "Concurrent requests that the controller allows.";
    gauge(of, text, "leeward_admission_concurrency_limit", help, |of| of.concurrency_limit);
    let whole = |count: Option<i64>| count.map(|count| count as f64);
    gauge(of, text, "leeward_credit_pool", "Credits in the pool.", |of| whole(of.credit_pool));
    gauge(of, text, "leeward_credit_issued", "Credits that clients hold.", |of| whole(of.credits_issued));
    gauge(of, text, "leeward_sessions", "Registered sessions.", |of| whole(of.sessions));
}

fn delays(of: &[Snapshot], text: &mut dyn Sink) {
    let help = "The standing queueing delay: the minimum of a short interval.";
    gauge(of, text, "leeward_queue_standing_delay_seconds", help, |of| Some(seconds(of.standing_ns)));
    const NAME: &str = "leeward_queue_delay_seconds";
    if of.iter().any(|snapshot| !snapshot.waits.is_empty()) {
        text.begin_family(NAME, MetricKind::Histogram, "Waiting times of requests, by the place of the wait.");
    }
    for snapshot in of {
        for stage in &snapshot.waits {
            let waits = &stage.waits;
            let (mut within, over) = buckets(waits);
            let labels = [("port", snapshot.port.as_str()), ("stage", stage.stage)];
            let example = |index: usize| {
                let above = index.checked_sub(1).map_or(0, bound);
                let most = if index < BOUNDS { bound(index) } else { u64::MAX };
                wait_exemplar(&snapshot.exemplars, stage.stage, above, most)
            };
            let examples: Vec<_> = (0..=BOUNDS).map(example).collect();
            text.histogram_with_exemplars(NAME, &labels, &mut within, over, seconds(waits.sum_ns), &examples);
        }
    }
}

/// Writes the leaves of the servers that have any.
fn tiers(of: &[Snapshot], text: &mut dyn Sink) {
    let tiers = || of.iter().filter_map(|snapshot| Some((snapshot.port.as_str(), snapshot.tier.as_ref()?)));
    if tiers().next().is_none() {
        return;
    }
    const PARTIAL: &str = "leeward_requests_partial";
    let help = "Requests that continued with fewer results of leaves than they asked for.";
    text.begin_family(PARTIAL, MetricKind::Counter, help);
    for (port, tier) in tiers() {
        text.counter(PARTIAL, &[("port", port)], tier.partial as f64);
    }
    const CONNECTIONS: &str = "leeward_leaf_connections";
    text.begin_family(CONNECTIONS, MetricKind::Gauge, "Open connections to a leaf; 0: it is away.");
    for (port, tier) in tiers() {
        for leaf in &tier.leaves {
            text.gauge(CONNECTIONS, &[("port", port), ("leaf", &leaf.address)], leaf.connections as f64);
        }
    }
}

/// Writes the locks. Locks belong to the process, so each is written once, even if several servers
/// report it.
fn locks(of: &[Snapshot], text: &mut dyn Sink) {
    let mut locks: Vec<&crate::snapshot::Lock> = Vec::new();
    for lock in of.iter().flat_map(|snapshot| &snapshot.locks) {
        if !locks.iter().any(|known| known.name == lock.name && known.kind == lock.kind) {
            locks.push(lock);
        }
    }
    if locks.is_empty() {
        return;
    }
    const WAIT: &str = "leeward_lock_wait_seconds";
    text.begin_family(WAIT, MetricKind::Histogram, "Waiting times for locks, of requests that waited.");
    for lock in &locks {
        let shown = |index: &usize| LOCK_BUCKETS.contains(index);
        let below: u64 = lock.waits.iter().take(LOCK_BUCKETS.start).sum();
        let over: u64 = lock.waits.iter().skip(LOCK_BUCKETS.end).sum();
        let inside = lock.waits.iter().enumerate().filter(|(index, _)| shown(index));
        let mut buckets = inside.map(|(index, count)| {
            let before = if index == LOCK_BUCKETS.start { below } else { 0 };
            (seconds(1 << index), count + before)
        });
        text.histogram(WAIT, &[("lock", &lock.name), ("kind", lock.kind)], &mut buckets, over, seconds(lock.waited_ns));
    }
    const REFUSALS: &str = "leeward_lock_refusals";
    text.begin_family(
        REFUSALS,
        MetricKind::Counter,
        "Requests rejected at a lock, because the wait would have exceeded their budget.",
    );
    for lock in &locks {
        text.counter(REFUSALS, &[("lock", &lock.name), ("kind", lock.kind)], lock.refused as f64);
    }
}

/// Writes the TLS handshakes of the ports that use TLS.
fn tls(of: &[Snapshot], process: &ProcessMetrics, text: &mut dyn Sink) {
    let servers = of.iter().filter_map(|snapshot| Some((snapshot.port.as_str(), snapshot.tls.as_ref()?)));
    let counts: Vec<(&str, &TlsCounts)> = servers.chain(process.admin_tls.as_ref().map(|tls| ("admin", tls))).collect();
    if counts.is_empty() {
        return;
    }
    const DONE: &str = "leeward_tls_handshakes";
    text.begin_family(
        DONE,
        MetricKind::Counter,
        "Completed handshakes, in full or as a resumption of an earlier session.",
    );
    for (port, tls) in &counts {
        text.counter(DONE, &[("port", port), ("kind", "full")], tls.done.saturating_sub(tls.resumed) as f64);
        text.counter(DONE, &[("port", port), ("kind", "resumed")], tls.resumed as f64);
    }
    const IDENTIFIED: &str = "leeward_tls_identified";
    text.begin_family(IDENTIFIED, MetricKind::Counter, "Handshakes with a client that has proven an identity.");
    for (port, tls) in &counts {
        text.counter(IDENTIFIED, &[("port", port)], tls.identified as f64);
    }
    const WAITING: &str = "leeward_tls_handshakes_waiting";
    text.begin_family(WAITING, MetricKind::Gauge, "Handshakes in progress or waiting.");
    for (port, tls) in &counts {
        text.gauge(WAITING, &[("port", port)], tls.waiting as f64);
    }
    const REFUSED: &str = "leeward_tls_refusals";
    if counts.iter().any(|(_, tls)| !tls.refused.is_empty()) {
        text.begin_family(REFUSED, MetricKind::Counter, "Handshakes that were rejected or abandoned, by reason.");
    }
    for (port, tls) in &counts {
        for (reason, count) in &tls.refused {
            text.counter(REFUSED, &[("port", port), ("reason", reason)], *count as f64);
        }
    }
    const RENEWED: &str = "leeward_tls_renewals";
    text.begin_family(RENEWED, MetricKind::Counter, "New certificates that were loaded since the start.");
    for (port, tls) in &counts {
        text.counter(RENEWED, &[("port", port)], tls.renewed as f64);
    }
}

fn exports(process: &ProcessMetrics, text: &mut dyn Sink) {
    let Some(exports) = process.exports else { return };
    const NAME: &str = "leeward_otlp_exports";
    text.begin_family(NAME, MetricKind::Counter, "Exports by OTLP, by their result.");
    let results = [
        ("accepted", exports.accepted),
        ("refused", exports.refused),
        ("unreachable", exports.unreachable),
        ("unanswered", exports.unanswered),
    ];
    for (result, count) in results {
        text.counter(NAME, &[("result", result)], count as f64);
    }
    const REJECTED: &str = "leeward_otlp_rejected_points";
    text.begin_family(REJECTED, MetricKind::Counter, "Points of accepted exports that the receiver rejected.");
    text.counter(REJECTED, &[], exports.rejected_points as f64);
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::super::{ExportCounts, Format, ProcessMetrics, render};
    use crate::decision::{Decision, DecisionId};
    use crate::exemplar::Exemplar;
    use crate::explain::DecisionContext;
    use crate::reason::DecisionReason;
    use crate::snapshot::{
        Lock, RejectionCount, RouteAnswers, RouteCost, Snapshot, StageWaits, TenantUsage, TlsCounts,
    };
    use crate::tenants::Usage;
    use crate::waits::WaitCounts;
    use leeward_core::units::{Nanos, Time};

    fn server() -> Snapshot {
        let mut waits = WaitCounts::default();
        (waits.buckets[0], waits.buckets[21], waits.sum_ns) = (5, 1, 11_000_000_000);
        Snapshot {
            port: "rpc".into(),
            mode: "enforce",
            arrived: 12,
            admitted: 10,
            completed: 9,
            in_time: 6,
            failed: 1,
            refused: vec![RejectionCount { reason: "delay", class: None, count: 2 }],
            credit_pool: Some(64),
            waits: vec![StageWaits { stage: "worker", waits }],
            locks: vec![Lock {
                name: "table".into(),
                kind: "mutex",
                refused: 3,
                waits: vec![1; 40],
                ..Lock::default()
            }],
            ..Snapshot::default()
        }
    }

    /// A gate with classes, routes and tenants.
    fn gate() -> Snapshot {
        let mut costs = WaitCounts::default();
        (costs.buckets[6], costs.sum_ns) = (3, 1_500_000);
        let mut waits = WaitCounts::default();
        (waits.buckets[1], waits.sum_ns) = (2, 30_000);
        let answers = |class, route: &str, in_time, late| RouteAnswers {
            class: Some(class),
            route: route.into(),
            in_time,
            late,
            failed: 3,
        };
        let usage = Usage { admitted_ns: 2_500_000_000, refused_ns: 500_000_000 };
        let mut refused = Decision::rejected(Time(1_000), DecisionReason::Level);
        (refused.id, refused.wait) = (DecisionId(0x8f3a), Nanos(15_000));
        let context =
            DecisionContext { now: Time(1_000), unix_ns: 1_700_000_000_250_000_000, ..DecisionContext::default() };
        Snapshot {
            port: "gate".into(),
            mode: "enforce",
            admitted_by_class: vec![4, 1],
            in_flight_by_class: vec![2, 0],
            refused: vec![RejectionCount { reason: "level", class: Some(0), count: 8 }],
            waits: vec![StageWaits { stage: "socket", waits }],
            answers: vec![answers(0, "/search", 5, 1), answers(3, "other", 2, 0)],
            costs: vec![RouteCost { route: "/search".into(), costs }],
            tenants: vec![
                TenantUsage { tenant: "77".into(), usage },
                TenantUsage { tenant: "other".into(), usage: Usage::default() },
            ],
            exemplars: vec![Exemplar { class: Some(0), ..Exemplar::new(&refused, &context) }],
            ..Snapshot::default()
        }
    }

    #[test]
    fn classes_routes_and_tenants_have_samples_of_their_own() {
        let text = render(&[server(), gate()], &process(), Format::Prometheus);
        for line in [
            "leeward_requests_in_time_total{port=\"rpc\"} 6",
            "leeward_requests_failed_total{port=\"gate\",class=\"0\",route=\"/search\"} 3",
            "leeward_requests_in_time_total{port=\"gate\",class=\"0\",route=\"/search\"} 5",
            "leeward_requests_late_total{port=\"gate\",class=\"3\",route=\"other\"} 0",
            "leeward_requests_in_flight{port=\"gate\",class=\"0\"} 2",
            "leeward_request_cost_seconds_bucket{port=\"gate\",route=\"/search\",le=\"0.00064\"} 3",
            "leeward_request_cost_seconds_sum{port=\"gate\",route=\"/search\"} 0.0015",
            "leeward_tenant_admitted_seconds_total{port=\"gate\",tenant=\"77\"} 2.5",
            "leeward_tenant_refused_seconds_total{port=\"gate\",tenant=\"77\"} 0.5",
        ] {
            assert!(text.lines().any(|found| found == line), "no `{line}` in:\n{text}");
        }
        assert!(!text.contains(" # "), "the older format has no exemplars:\n{text}");
    }

    #[test]
    fn openmetrics_samples_carry_exemplars() {
        let text = render(&[server(), gate()], &process(), Format::OpenMetrics);
        let example = " # {decision=\"8f3a\"} 0.000015 1700000000.250";
        for sample in [
            "leeward_admission_decisions_total{port=\"gate\",decision=\"refused\",reason=\"level\",class=\"0\",mode=\"enforce\"} 8",
            "leeward_queue_delay_seconds_bucket{port=\"gate\",stage=\"socket\",le=\"0.00002\"} 2",
        ] {
            let line = format!("{sample}{example}");
            assert!(text.lines().any(|found| found == line), "no `{line}` in:\n{text}");
        }
        assert_eq!(text.matches(" # ").count(), 2, "{text}");
    }

    fn process() -> ProcessMetrics {
        let tls =
            TlsCounts { done: 5, resumed: 2, refused: vec![("stalled".into(), 4)], waiting: 1, ..TlsCounts::default() };
        let exports = ExportCounts { accepted: 6, unreachable: 3, ..ExportCounts::default() };
        ProcessMetrics { exports: Some(exports), admin_tls: Some(tls) }
    }

    #[test]
    fn a_server_and_a_gate_share_their_families() {
        let gate = Snapshot {
            port: "gate".into(),
            mode: "shadow",
            admitted_by_class: vec![4, 1],
            refused: vec![RejectionCount { reason: "level", class: Some(1), count: 8 }],
            ..Snapshot::default()
        };
        let text = render(&[server(), gate], &process(), Format::Prometheus);
        for line in [
            "leeward_admission_decisions_total{port=\"rpc\",decision=\"admitted\",mode=\"enforce\"} 10",
            "leeward_admission_decisions_total{port=\"rpc\",decision=\"refused\",reason=\"delay\",mode=\"enforce\"} 2",
            "leeward_admission_decisions_total{port=\"gate\",decision=\"admitted\",class=\"1\",mode=\"shadow\"} 1",
            "leeward_admission_decisions_total{port=\"gate\",decision=\"refused\",reason=\"level\",class=\"1\",mode=\"shadow\"} 8",
            "leeward_requests_in_time_total{port=\"rpc\"} 6",
            "leeward_requests_late_total{port=\"rpc\"} 2",
            "leeward_requests_failed_total{port=\"rpc\"} 1",
            "leeward_credit_pool{port=\"rpc\"} 64",
            "leeward_queue_delay_seconds_bucket{port=\"rpc\",stage=\"worker\",le=\"10.48576\"} 5",
            "leeward_queue_delay_seconds_bucket{port=\"rpc\",stage=\"worker\",le=\"+Inf\"} 6",
            "leeward_queue_delay_seconds_sum{port=\"rpc\",stage=\"worker\"} 11",
            "leeward_lock_wait_seconds_bucket{lock=\"table\",kind=\"mutex\",le=\"0.000001024\"} 11",
            "leeward_lock_wait_seconds_count{lock=\"table\",kind=\"mutex\"} 40",
            "leeward_lock_refusals_total{lock=\"table\",kind=\"mutex\"} 3",
            "leeward_tls_handshakes_total{port=\"admin\",kind=\"full\"} 3",
            "leeward_tls_handshakes_total{port=\"admin\",kind=\"resumed\"} 2",
            "leeward_tls_handshakes_waiting{port=\"admin\"} 1",
            "leeward_tls_refusals_total{port=\"admin\",reason=\"stalled\"} 4",
            "leeward_otlp_exports_total{result=\"unreachable\"} 3",
        ] {
            assert!(text.lines().any(|found| found == line), "no `{line}` in:\n{text}");
        }
        assert!(!text.contains("leeward_credit_pool{port=\"gate\"}"));
    }

    #[test]
    fn every_family_has_one_type_line_and_every_sample_a_family() {
        let twice = [server(), Snapshot { port: "memcached".into(), ..server() }, gate()];
        for format in [Format::Prometheus, Format::OpenMetrics] {
            let text = render(&twice, &process(), format);
            let heads: Vec<&str> = text.lines().filter_map(|line| line.strip_prefix("# TYPE ")).collect();
            let names: Vec<&str> = heads.iter().map(|head| head.split(' ').next().unwrap()).collect();
            let distinct: std::collections::BTreeSet<&&str> = names.iter().collect();
            assert_eq!(distinct.len(), names.len(), "{names:?}");
            for name in &names {
                let family = name.strip_suffix("_total").unwrap_or(name);
                let known = super::super::names::NAMES.iter().any(|(known, _, _)| *known == family);
                assert!(known, "{family} has no name in OpenTelemetry");
            }
            for sample in text.lines().filter(|line| !line.starts_with('#')) {
                assert!(names.iter().any(|name| sample.starts_with(name)), "{sample}");
            }
            assert_eq!(text.matches("leeward_lock_refusals_total{").count(), 1, "locks are the process's");
        }
    }
}
