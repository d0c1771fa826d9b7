//! The metrics, their names, units and labels (docs/admin.md has the table). Never here: how lines look.

use super::process::Process;
use super::sink::{Kind, Label, Sink};
use crate::snapshot::{Snapshot, Tls};
use crate::waits::bound;

/// Locks' buckets from 2^10 ns, about a microsecond, to 2^34 ns, about 17 s; the others are empty or all.
const LOCK_BUCKETS: std::ops::Range<usize> = 10..35;

/// All metrics of these servers and of their process: each family once, with a sample per server.
pub(super) fn all(of: &[Snapshot], process: &Process, text: &mut dyn Sink) {
    build_info(text);
    decisions(of, text);
    requests(of, text);
    controller(of, text);
    delays(of, text);
    locks(of, text);
    tls(of, process, text);
    exports(process, text);
}

fn seconds(ns: u64) -> f64 {
    ns as f64 / 1e9
}

fn build_info(text: &mut dyn Sink) {
    text.head("leeward_build_info", Kind::Gauge, "Version of Leeward.");
    text.gauge("leeward_build_info", &[("version", env!("CARGO_PKG_VERSION"))], 1.0);
}

fn decisions(of: &[Snapshot], text: &mut dyn Sink) {
    const NAME: &str = "leeward_admission_decisions";
    text.head(
        NAME,
        Kind::Counter,
        "Requests admitted on arrival, and requests refused on arrival or later, by reason.",
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
            text.counter(NAME, &labels, refused.count as f64);
        }
    }
}

/// A family with a counter for each server.
fn counter(of: &[Snapshot], text: &mut dyn Sink, name: &'static str, help: &str, value: impl Fn(&Snapshot) -> u64) {
    text.head(name, Kind::Counter, help);
    for snapshot in of {
        text.counter(name, &[("port", &snapshot.port)], value(snapshot) as f64);
    }
}

/// A family with a gauge for each server that has such a thing.
fn gauge(
    of: &[Snapshot],
    text: &mut dyn Sink,
    name: &'static str,
    help: &str,
    value: impl Fn(&Snapshot) -> Option<f64>,
) {
    if of.iter().any(|snapshot| value(snapshot).is_some()) {
        text.head(name, Kind::Gauge, help);
    }
    for snapshot in of {
        if let Some(value) = value(snapshot) {
            text.gauge(name, &[("port", &snapshot.port)], value);
        }
    }
}

fn requests(of: &[Snapshot], text: &mut dyn Sink) {
    counter(of, text, "leeward_requests_arrived", "Requests that have come.", |of| of.arrived);
    counter(
        of,
        text,
        "leeward_requests_in_time",
        "Answers within the objective, as far as the server sees it.",
        |of| of.in_time,
    );
    counter(of, text, "leeward_requests_late", "Answers after the objective, as far as the server sees it.", |of| {
        of.completed.saturating_sub(of.in_time)
    });
    let help = "Requests without an answer, for their connection ended first.";
    counter(of, text, "leeward_requests_abandoned", help, |of| of.abandoned);
    let help = "Requests admitted and not ended.";
    gauge(of, text, "leeward_requests_in_flight", help, |of| Some(of.in_flight as f64));
    let help = "Connections that are open.";
    gauge(of, text, "leeward_connections", help, |of| of.connections.map(|count| count as f64));
    let help = "Threads that execute requests.";
    gauge(of, text, "leeward_cores", help, |of| Some(of.cores as f64));
    const IDLE: &str = "leeward_core_idle_seconds";
    text.head(IDLE, Kind::Counter, "Time in which those threads had nothing to do, all together.");
    for snapshot in of {
        text.counter(IDLE, &[("port", &snapshot.port)], seconds(snapshot.idle_ns));
    }
}

fn controller(of: &[Snapshot], text: &mut dyn Sink) {
    gauge(of, text, "leeward_slo_seconds", "The objective.", |of| Some(seconds(of.slo_ns)));
    let help = "The queueing delay that the controller aims at.";
    gauge(of, text, "leeward_queue_target_seconds", help, |of| of.target_ns.map(seconds));
    gauge(of, text, "leeward_admission_level", "Less important requests than this are refused; 128: none.", |of| {
        of.level
    });
    let help = "Requests that the controller lets be under way at once.";
    gauge(of, text, "leeward_admission_concurrency_limit", help, |of| of.concurrency_limit);
    let whole = |count: Option<i64>| count.map(|count| count as f64);
    gauge(of, text, "leeward_credit_pool", "Credits that there are.", |of| whole(of.credit_pool));
    gauge(of, text, "leeward_credit_issued", "Credits that clients hold.", |of| whole(of.credits_issued));
    gauge(of, text, "leeward_sessions", "Registered sessions.", |of| whole(of.sessions));
}

fn delays(of: &[Snapshot], text: &mut dyn Sink) {
    let help = "The queueing delay that stands: the least of a short while.";
    gauge(of, text, "leeward_queue_standing_delay_seconds", help, |of| Some(seconds(of.standing_ns)));
    const NAME: &str = "leeward_queue_delay_seconds";
    if of.iter().any(|snapshot| !snapshot.waits.is_empty()) {
        text.head(NAME, Kind::Histogram, "Waits of requests, by where they waited.");
    }
    for snapshot in of {
        for stage in &snapshot.waits {
            let waits = &stage.waits;
            let (over, within) = waits.buckets.split_last().unwrap_or((&0, &[]));
            let mut buckets = within.iter().enumerate().map(|(place, count)| (seconds(bound(place)), *count));
            let labels = [("port", snapshot.port.as_str()), ("stage", stage.stage)];
            text.histogram(NAME, &labels, &mut buckets, *over, seconds(waits.sum_ns));
        }
    }
}

/// Locks are the process's: each is told of once, whichever server saw it.
fn locks(of: &[Snapshot], text: &mut dyn Sink) {
    let mut told: Vec<&crate::snapshot::Lock> = Vec::new();
    for lock in of.iter().flat_map(|snapshot| &snapshot.locks) {
        if !told.iter().any(|known| known.name == lock.name && known.kind == lock.kind) {
            told.push(lock);
        }
    }
    if told.is_empty() {
        return;
    }
    const WAIT: &str = "leeward_lock_wait_seconds";
    text.head(WAIT, Kind::Histogram, "Waits for locks, of those that waited.");
    for lock in &told {
        let shown = |place: &usize| LOCK_BUCKETS.contains(place);
        let below: u64 = lock.waits.iter().take(LOCK_BUCKETS.start).sum();
        let over: u64 = lock.waits.iter().skip(LOCK_BUCKETS.end).sum();
        let inside = lock.waits.iter().enumerate().filter(|(place, _)| shown(place));
        let mut buckets = inside.map(|(place, count)| {
            let before = if place == LOCK_BUCKETS.start { below } else { 0 };
            (seconds(1 << place), count + before)
        });
        text.histogram(WAIT, &[("lock", &lock.name), ("kind", lock.kind)], &mut buckets, over, seconds(lock.waited_ns));
    }
    const REFUSALS: &str = "leeward_lock_refusals";
    text.head(REFUSALS, Kind::Counter, "Requests that a lock refused, for their budget would not have lasted.");
    for lock in &told {
        text.counter(REFUSALS, &[("lock", &lock.name), ("kind", lock.kind)], lock.refused as f64);
    }
}

/// Handshakes of the ports that speak TLS.
fn tls(of: &[Snapshot], process: &Process, text: &mut dyn Sink) {
    let servers = of.iter().filter_map(|snapshot| Some((snapshot.port.as_str(), snapshot.tls.as_ref()?)));
    let told: Vec<(&str, &Tls)> = servers.chain(process.admin_tls.as_ref().map(|tls| ("admin", tls))).collect();
    if told.is_empty() {
        return;
    }
    const DONE: &str = "leeward_tls_handshakes";
    text.head(DONE, Kind::Counter, "Handshakes that were done, in full or by taking up an earlier session.");
    for (port, tls) in &told {
        text.counter(DONE, &[("port", port), ("kind", "full")], tls.done.saturating_sub(tls.resumed) as f64);
        text.counter(DONE, &[("port", port), ("kind", "resumed")], tls.resumed as f64);
    }
    const IDENTIFIED: &str = "leeward_tls_identified";
    text.head(IDENTIFIED, Kind::Counter, "Handshakes with a client that has proven an identity.");
    for (port, tls) in &told {
        text.counter(IDENTIFIED, &[("port", port)], tls.identified as f64);
    }
    const WAITING: &str = "leeward_tls_handshakes_waiting";
    text.head(WAITING, Kind::Gauge, "Handshakes that are under way or wait for their turn.");
    for (port, tls) in &told {
        text.gauge(WAITING, &[("port", port)], tls.waiting as f64);
    }
    const REFUSED: &str = "leeward_tls_refusals";
    if told.iter().any(|(_, tls)| !tls.refused.is_empty()) {
        text.head(REFUSED, Kind::Counter, "Handshakes that were refused or given up, by reason.");
    }
    for (port, tls) in &told {
        for (reason, count) in &tls.refused {
            text.counter(REFUSED, &[("port", port), ("reason", reason)], *count as f64);
        }
    }
    const RENEWED: &str = "leeward_tls_renewals";
    text.head(RENEWED, Kind::Counter, "New certificates that were taken since the start.");
    for (port, tls) in &told {
        text.counter(RENEWED, &[("port", port)], tls.renewed as f64);
    }
}

fn exports(process: &Process, text: &mut dyn Sink) {
    let Some(exports) = process.exports else { return };
    const NAME: &str = "leeward_otlp_exports";
    text.head(NAME, Kind::Counter, "Exports by OTLP, by what became of them.");
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
    text.head(REJECTED, Kind::Counter, "Points of accepted exports that the receiver did not take.");
    text.counter(REJECTED, &[], exports.rejected_points as f64);
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::super::{Exports, Format, Process, render};
    use crate::snapshot::{Lock, Refused, Snapshot, StageWaits, Tls};
    use crate::waits::WaitCounts;

    fn server() -> Snapshot {
        let mut waits = WaitCounts::default();
        (waits.buckets[0], waits.buckets[21], waits.sum_ns) = (5, 1, 11_000_000_000);
        Snapshot {
            port: "rpc".into(),
            mode: "enforce",
            arrived: 12,
            admitted: 10,
            completed: 9,
            in_time: 7,
            refused: vec![Refused { reason: "delay", class: None, count: 2 }],
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

    fn process() -> Process {
        let tls = Tls { done: 5, resumed: 2, refused: vec![("stalled".into(), 4)], waiting: 1, ..Tls::default() };
        let exports = Exports { accepted: 6, unreachable: 3, ..Exports::default() };
        Process { exports: Some(exports), admin_tls: Some(tls) }
    }

    #[test]
    fn a_server_and_a_gate_share_their_families() {
        let gate = Snapshot {
            port: "gate".into(),
            mode: "shadow",
            admitted_by_class: vec![4, 1],
            refused: vec![Refused { reason: "level", class: Some(1), count: 8 }],
            ..Snapshot::default()
        };
        let text = render(&[server(), gate], &process(), Format::Prometheus);
        for line in [
            "leeward_admission_decisions_total{port=\"rpc\",decision=\"admitted\",mode=\"enforce\"} 10",
            "leeward_admission_decisions_total{port=\"rpc\",decision=\"refused\",reason=\"delay\",mode=\"enforce\"} 2",
            "leeward_admission_decisions_total{port=\"gate\",decision=\"admitted\",class=\"1\",mode=\"shadow\"} 1",
            "leeward_admission_decisions_total{port=\"gate\",decision=\"refused\",reason=\"level\",class=\"1\",mode=\"shadow\"} 8",
            "leeward_requests_in_time_total{port=\"rpc\"} 7",
            "leeward_requests_late_total{port=\"rpc\"} 2",
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
    fn every_family_has_one_head_and_every_sample_a_family() {
        let twice = [server(), Snapshot { port: "memcached".into(), ..server() }];
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
