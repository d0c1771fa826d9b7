//! The metrics, their names, units and labels (docs/admin.md has the table). Never here: how lines look.

use super::text::{Kind, Label, Text};
use crate::snapshot::Snapshot;
use crate::waits::bound;

/// Locks' buckets from 2^10 ns, about a microsecond, to 2^34 ns, about 17 s; the others are empty or all.
const LOCK_BUCKETS: std::ops::Range<usize> = 10..35;

/// All metrics of these servers: each family once, with a sample per server.
pub(super) fn all(of: &[Snapshot], text: &mut Text) {
    build_info(text);
    decisions(of, text);
    requests(of, text);
    controller(of, text);
    delays(of, text);
    locks(of, text);
}

fn seconds(ns: u64) -> f64 {
    ns as f64 / 1e9
}

fn build_info(text: &mut Text) {
    text.head("leeward_build_info", Kind::Gauge, "Version of Leeward.");
    text.gauge("leeward_build_info", &[("version", env!("CARGO_PKG_VERSION"))], 1.0);
}

fn decisions(of: &[Snapshot], text: &mut Text) {
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
fn counter(of: &[Snapshot], text: &mut Text, name: &str, help: &str, value: impl Fn(&Snapshot) -> u64) {
    text.head(name, Kind::Counter, help);
    for snapshot in of {
        text.counter(name, &[("port", &snapshot.port)], value(snapshot) as f64);
    }
}

/// A family with a gauge for each server that has such a thing.
fn gauge(of: &[Snapshot], text: &mut Text, name: &str, help: &str, value: impl Fn(&Snapshot) -> Option<f64>) {
    if of.iter().any(|snapshot| value(snapshot).is_some()) {
        text.head(name, Kind::Gauge, help);
    }
    for snapshot in of {
        if let Some(value) = value(snapshot) {
            text.gauge(name, &[("port", &snapshot.port)], value);
        }
    }
}

fn requests(of: &[Snapshot], text: &mut Text) {
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

fn controller(of: &[Snapshot], text: &mut Text) {
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

fn delays(of: &[Snapshot], text: &mut Text) {
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
            let buckets = within.iter().enumerate().map(|(place, count)| (seconds(bound(place)), *count));
            let labels = [("port", snapshot.port.as_str()), ("stage", stage.stage)];
            text.histogram(NAME, &labels, buckets, *over, seconds(waits.sum_ns));
        }
    }
}

/// Locks are the process's: each is told of once, whichever server saw it.
fn locks(of: &[Snapshot], text: &mut Text) {
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
        let buckets = inside.map(|(place, count)| {
            let before = if place == LOCK_BUCKETS.start { below } else { 0 };
            (seconds(1 << place), count + before)
        });
        text.histogram(WAIT, &[("lock", &lock.name), ("kind", lock.kind)], buckets, over, seconds(lock.waited_ns));
    }
    const REFUSALS: &str = "leeward_lock_refusals";
    text.head(REFUSALS, Kind::Counter, "Requests that a lock refused, for their budget would not have lasted.");
    for lock in &told {
        text.counter(REFUSALS, &[("lock", &lock.name), ("kind", lock.kind)], lock.refused as f64);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::super::{Format, render};
    use crate::snapshot::{Lock, Refused, Snapshot, StageWaits};
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

    #[test]
    fn a_server_and_a_gate_share_their_families() {
        let gate = Snapshot {
            port: "gate".into(),
            mode: "shadow",
            admitted_by_class: vec![4, 1],
            refused: vec![Refused { reason: "level", class: Some(1), count: 8 }],
            ..Snapshot::default()
        };
        let text = render(&[server(), gate], Format::Prometheus);
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
        ] {
            assert!(text.lines().any(|found| found == line), "no `{line}` in:\n{text}");
        }
        assert!(!text.contains("leeward_credit_pool{port=\"gate\"}"));
    }

    #[test]
    fn every_family_has_one_head_and_every_sample_a_family() {
        let twice = [server(), Snapshot { port: "memcached".into(), ..server() }];
        for format in [Format::Prometheus, Format::OpenMetrics] {
            let text = render(&twice, format);
            let heads: Vec<&str> = text.lines().filter_map(|line| line.strip_prefix("# TYPE ")).collect();
            let names: Vec<&str> = heads.iter().map(|head| head.split(' ').next().unwrap()).collect();
            let distinct: std::collections::BTreeSet<&&str> = names.iter().collect();
            assert_eq!(distinct.len(), names.len(), "{names:?}");
            for sample in text.lines().filter(|line| !line.starts_with('#')) {
                assert!(names.iter().any(|name| sample.starts_with(name)), "{sample}");
            }
            assert_eq!(text.matches("leeward_lock_refusals_total{").count(), 1, "locks are the process's");
        }
    }
}
