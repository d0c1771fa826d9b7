//! The queue as a source for metrics, dashboards and explanations. Does not contain the admin port.

use super::Admission;
use super::policy::Policy;
use leeward_gate::{Decision, DecisionId, DecisionReason, Mode};
use leeward_host::sync::lock;
use leeward_observe::explain::DecisionContext;
use leeward_observe::snapshot::{OTHER, RejectionCount, RouteAnswers, StageWaits, TenantUsage};
use leeward_observe::{LatencyCounts, Snapshot, Source, WaitCounts, unix_ns};
use std::fmt::Write;

/// Reasons that the proxy can have.
const REASONS: [DecisionReason; 5] = [
    DecisionReason::Late,
    DecisionReason::Deadline,
    DecisionReason::Concurrency,
    DecisionReason::Delay,
    DecisionReason::Cancelled,
];

/// Limit from which a backend has none in practice.
const NO_LIMIT: u32 = leeward_concurrency::UNLIMITED;

impl Admission {
    /// Metrics of each backend, as Prometheus text.
    pub fn backend_metrics(&self) -> String {
        let state = lock(&self.0.state);
        let of = &state.dispatcher;
        let mut text = String::new();
        let mut family = |name: &str, help: &str, value: &dyn Fn(usize) -> String| {
            let _ = writeln!(text, "# HELP {name} {help}\n# TYPE {name} gauge");
            for (index, slot) in state.backends.iter().enumerate() {
                // A removed one is shown until its last request has ended.
                if !slot.is_removed || of.in_flight(index) > 0 {
                    let _ = writeln!(text, "{name}{{backend=\"{}\"}} {}", slot.address, value(index));
                }
            }
        };
        family("leeward_proxy_backend_limit", "Requests that may be at the backend; absent limit: +Inf.", &|index| {
            match of.limit(index) {
                NO_LIMIT.. => "+Inf".into(),
                limit => limit.to_string(),
            }
        });
        family("leeward_proxy_backend_in_flight", "Requests at the backend.", &|index| of.in_flight(index).to_string());
        family("leeward_proxy_backend_up", "1 if the backend is not set aside.", &|index| {
            u8::from(of.is_up(index)).to_string()
        });
        family("leeward_proxy_backend_sojourn_seconds", "Mean time of a request at the backend.", &|index| {
            of.mean_sojourn(index).as_secs_f64().to_string()
        });
        let gauges = [
            ("queued", "Requests that wait.", of.queued()),
            ("connection_limit", "Most open connections of clients.", self.0.connections.most()),
        ];
        for (name, help, value) in gauges {
            let name = format!("leeward_proxy_{name}");
            let _ = writeln!(text, "# HELP {name} {help}\n# TYPE {name} gauge\n{name} {value}");
        }
        let counters = [
            ("retries", "Times that a request was sent again which a backend may have seen.", state.counts.retries),
            ("shadowed", "Requests that would have been rejected, had it been enforced.", state.counts.totals.shadowed),
            ("malformed_headers", "Headers of trusted peers that could not be parsed.", state.counts.totals.malformed),
            ("bad_requests", "Malformed requests, answered before the queue.", state.counts.bad_requests),
        ];
        for (name, help, value) in counters {
            let name = format!("leeward_proxy_{name}_total");
            let _ = writeln!(text, "# HELP {name} {help}\n# TYPE {name} counter\n{name} {value}");
        }
        text
    }
}

fn route(policy: &Policy, number: usize) -> String {
    policy.route(number).unwrap_or(OTHER).into()
}

impl Source for Admission {
    fn snapshot(&self) -> Snapshot {
        let inner = &*self.0;
        let now = self.now();
        let state = lock(&inner.state);
        let (counts, dispatcher, policy) = (&state.counts, &state.dispatcher, &state.policy);
        let (mut latencies, mut waits) = (LatencyCounts::default(), WaitCounts::default());
        counts.latencies.add_to(&mut latencies);
        counts.waits.add_to(&mut waits);
        let rejections = |class: usize| {
            REASONS.into_iter().map(move |reason| RejectionCount {
                reason: reason.name(),
                class: Some(class as u8),
                count: counts.by_class.rejected[class][reason as usize],
            })
        };
        let answers = counts.by_route.iter().map(|(class, slot, of)| RouteAnswers {
            class: Some(class),
            route: route(policy, slot),
            in_time: of.in_time,
            late: of.late,
            failed: of.failed,
        });
        let (delay, target) = match policy.mode {
            Mode::Enforce => (dispatcher.oldest_wait(now), dispatcher.wait_limit(policy.slo)),
            Mode::Shadow | Mode::Share(_) => {
                let shadow = state.shadow.dispatcher();
                (shadow.oldest_wait(now), shadow.wait_limit(policy.slo))
            }
        };
        let current: Vec<usize> = (0..dispatcher.backends()).filter(|index| !dispatcher.is_removed(*index)).collect();
        let limit = current.iter().map(|index| f64::from(dispatcher.limit(*index))).sum::<f64>();
        let addresses: Vec<String> = current.iter().map(|index| state.backends[*index].address.to_string()).collect();
        Snapshot {
            port: "proxy".into(),
            service: addresses.join(","),
            controller: policy.limit.name().into(),
            mode: match policy.mode {
                Mode::Enforce => "enforce",
                Mode::Shadow => "shadow",
                Mode::Share(_) => "share",
            },
            setup: format!("{}, {}", plural(inner.threads, "thread"), plural(current.len(), "backend")),
            uptime_ns: now.0,
            unix_ns: unix_ns(),
            slo_ns: policy.slo.0,
            target_ns: Some(target.0),
            // Its threads execute no requests, so nothing is known of their idleness.
            cores: 0,
            arrived: counts.totals.arrived,
            admitted: counts.totals.admitted,
            completed: counts.totals.completed,
            failed: counts.totals.failed,
            in_time: counts.totals.in_time,
            abandoned: counts.totals.abandoned,
            refused: (0..counts.by_class.rejected.len()).flat_map(rejections).collect(),
            admitted_by_class: counts.by_class.admitted.into(),
            in_flight: counts.totals.in_flight(),
            in_flight_by_class: counts.by_class.in_flight(),
            answers: merge(answers.collect()),
            tenants: TenantUsage::from_tenants(&inner.tenants),
            connections: Some(inner.connections.total() as u64),
            delay_ns: delay.0,
            standing_ns: delay.0,
            concurrency_limit: (limit < f64::from(NO_LIMIT)).then_some(limit),
            latencies,
            waits: vec![StageWaits { stage: "queue", waits }],
            ..Snapshot::default()
        }
    }

    fn decision(&self, id: DecisionId) -> Option<Decision> {
        self.0.ring.read(id)
    }

    fn decisions(&self, count: usize) -> Vec<Decision> {
        self.0.ring.newest(count)
    }

    fn context(&self) -> DecisionContext {
        let state = lock(&self.0.state);
        DecisionContext {
            controller: state.policy.limit.name().into(),
            slo: state.policy.slo,
            target: None,
            now: self.now(),
            unix_ns: unix_ns(),
            has_classes: true,
            has_credits: false,
            has_expected_waits: true,
            in_flight_limit: None,
            is_shadow: state.policy.mode != Mode::Enforce,
        }
    }
}

fn plural(count: usize, noun: &str) -> String {
    format!("{count} {noun}{}", if count == 1 { "" } else { "s" })
}

/// Adds up rows of one class whose routes share a label: Prometheus rejects a page with duplicates.
fn merge(rows: Vec<RouteAnswers>) -> Vec<RouteAnswers> {
    let mut merged: Vec<RouteAnswers> = Vec::new();
    for row in rows {
        match merged.iter_mut().find(|known| known.class == row.class && known.route == row.route) {
            Some(known) => {
                known.in_time += row.in_time;
                known.late += row.late;
                known.failed += row.failed;
            }
            None => merged.push(row),
        }
    }
    merged
}
