//! Snapshots as a request of OTLP's metrics service in its JSON mapping: camelCase, 64-bit integers
//! as strings, enumerations as numbers. Does not contain sockets.

use super::names::name_of;
use super::sink::{Label, MetricKind, Sink};
use crate::exemplar::Exemplar;
use crate::snapshot::Snapshot;
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// `AGGREGATION_TEMPORALITY_CUMULATIVE`: counts since the start, so a lost request loses no counts.
const CUMULATIVE: u8 = 2;

/// Start time of each server, on the wall clock.
///
/// It is computed once per server: a start time that moves with the clock would be a new server to
/// a receiver.
#[derive(Clone, Debug, Default)]
pub struct StartTimes(BTreeMap<String, StartTime>);

#[derive(Clone, Copy, Debug)]
struct StartTime {
    unix_ns: u64,
    uptime_ns: u64,
}

impl StartTimes {
    /// Updates the start times from the current servers. A server whose uptime went back has
    /// restarted.
    fn update(&mut self, snapshots: &[Snapshot]) {
        self.0.retain(|port, _| snapshots.iter().any(|snapshot| snapshot.port == *port));
        for Snapshot { port, unix_ns, uptime_ns, .. } in snapshots {
            let new = StartTime { unix_ns: unix_ns.saturating_sub(*uptime_ns), uptime_ns: *uptime_ns };
            let kept = self.0.entry(port.clone()).or_insert(new);
            if *uptime_ns < kept.uptime_ns {
                *kept = new;
            }
            kept.uptime_ns = *uptime_ns;
        }
    }

    fn start_unix_ns(&self, port: Option<&str>) -> u64 {
        let own = port.and_then(|port| self.0.get(port));
        own.or_else(|| self.0.values().min_by_key(|known| known.unix_ns)).map_or(0, |known| known.unix_ns)
    }
}

/// Metrics under construction.
pub(super) struct OtlpSink<'a> {
    start_times: &'a StartTimes,
    unix_ns: u64,
    metrics: Vec<Metric>,
}

struct Metric {
    name: &'static str,
    unit: &'static str,
    help: String,
    kind: MetricKind,
    points: Vec<Value>,
}

impl<'a> OtlpSink<'a> {
    /// Starts a request with the state of `snapshots`.
    pub(super) fn new(snapshots: &[Snapshot], unix_ns: u64, beginnings: &'a mut StartTimes) -> Self {
        beginnings.update(snapshots);
        OtlpSink { start_times: beginnings, unix_ns, metrics: Vec::new() }
    }

    /// Returns the request's body, for a resource with these attributes.
    pub(super) fn finish(self, resource: &[(&str, String)]) -> String {
        let metric = |metric: Metric| {
            let Metric { name, unit, help, kind, points } = metric;
            let mut value = json!({ "name": name, "unit": unit, "description": help });
            match kind {
                MetricKind::Gauge => value["gauge"] = json!({ "dataPoints": points }),
                MetricKind::Counter => {
                    value["sum"] =
                        json!({ "aggregationTemporality": CUMULATIVE, "isMonotonic": true, "dataPoints": points });
                }
                MetricKind::Histogram => {
                    value["histogram"] = json!({ "aggregationTemporality": CUMULATIVE, "dataPoints": points });
                }
            }
            value
        };
        // Receivers reject a metric without points.
        let metrics: Vec<Value> = self.metrics.into_iter().filter(|of| !of.points.is_empty()).map(metric).collect();
        let resource: Vec<Value> = resource.iter().map(|(key, value)| attribute(key, value)).collect();
        let scope = json!({ "name": "leeward", "version": env!("CARGO_PKG_VERSION") });
        let scope = json!({ "scope": scope, "metrics": metrics });
        json!({ "resourceMetrics": [{ "resource": { "attributes": resource }, "scopeMetrics": [scope] }] }).to_string()
    }

    fn point(&mut self, labels: &[Label<'_>], fill: impl FnOnce(&mut Value, &Metric)) {
        let port = labels.iter().find(|(name, _)| *name == "port").map(|(_, value)| *value);
        let attributes: Vec<Value> = labels.iter().map(|(key, value)| attribute(key, value)).collect();
        let mut point = json!({ "attributes": attributes, "timeUnixNano": self.unix_ns.to_string() });
        let began = self.start_times.start_unix_ns(port).min(self.unix_ns);
        let Some(metric) = self.metrics.last_mut() else { return };
        if metric.kind != MetricKind::Gauge {
            point["startTimeUnixNano"] = began.to_string().into();
        }
        fill(&mut point, metric);
        metric.points.push(point);
    }
}

fn attribute(key: &str, value: &str) -> Value {
    json!({ "key": key, "value": { "stringValue": value } })
}

impl Sink for OtlpSink<'_> {
    fn begin_family(&mut self, name: &'static str, kind: MetricKind, help: &str) {
        let (name, unit) = name_of(name);
        self.metrics.push(Metric { name, unit, help: help.into(), kind, points: Vec::new() });
    }

    fn counter_with_exemplar(&mut self, _: &'static str, labels: &[Label<'_>], value: f64, _: Option<&Exemplar>) {
        self.point(labels, |point, metric| match metric.unit {
            "s" => point["asDouble"] = value.into(),
            _ => point["asInt"] = (value as i64).to_string().into(),
        });
    }

    fn gauge(&mut self, _: &'static str, labels: &[Label<'_>], value: f64) {
        self.point(labels, |point, _| point["asDouble"] = number(value));
    }

    fn histogram_with_exemplars(
        &mut self,
        _: &'static str,
        labels: &[Label<'_>],
        buckets: &mut dyn Iterator<Item = (f64, u64)>,
        over: u64,
        sum: f64,
        _: &[Option<&Exemplar>],
    ) {
        let (bounds, mut counts): (Vec<f64>, Vec<u64>) = buckets.unzip();
        counts.push(over);
        let count = counts.iter().fold(0_u64, |sum, count| sum.wrapping_add(*count));
        let counts: Vec<String> = counts.iter().map(u64::to_string).collect();
        self.point(labels, |point, _| {
            point["count"] = count.to_string().into();
            point["sum"] = sum.into();
            point["bucketCounts"] = counts.into();
            point["explicitBounds"] = bounds.into();
        });
    }
}

/// Converts a number; NaN and infinities are strings in protobuf's JSON mapping.
fn number(value: f64) -> Value {
    match value {
        f64::INFINITY => "Infinity".into(),
        f64::NEG_INFINITY => "-Infinity".into(),
        _ if value.is_nan() => "NaN".into(),
        _ => value.into(),
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::super::{ProcessMetrics, render_otlp};
    use super::*;
    use crate::snapshot::{RejectionCount, StageWaits};
    use crate::waits::WaitCounts;

    fn server(unix_ns: u64, uptime_ns: u64) -> Snapshot {
        let mut waits = WaitCounts::default();
        (waits.buckets[0], waits.buckets[21], waits.sum_ns) = (5, 1, 11_000_000_000);
        Snapshot {
            port: "rpc".into(),
            mode: "enforce",
            arrived: 12,
            cores: 1,
            idle_ns: 1_500_000_000,
            refused: vec![RejectionCount { reason: "delay", class: None, count: 2 }],
            waits: vec![StageWaits { stage: "worker", waits }],
            level: Some(f64::INFINITY),
            unix_ns,
            uptime_ns,
            ..Snapshot::default()
        }
    }

    fn render_json(snapshots: &[Snapshot], beginnings: &mut StartTimes) -> Value {
        let resource = [("service.name", "kv \"x\"".to_string())];
        serde_json::from_str(&render_otlp(snapshots, &ProcessMetrics::default(), &resource, 9_000, beginnings)).unwrap()
    }

    fn metric<'a>(body: &'a Value, name: &str) -> &'a Value {
        let metrics = body["resourceMetrics"][0]["scopeMetrics"][0]["metrics"].as_array().unwrap();
        metrics.iter().find(|metric| metric["name"] == name).unwrap_or_else(|| panic!("no {name} in {body}"))
    }

    #[test]
    fn counters_gauges_and_histograms_follow_the_otlp_mapping() {
        let body = render_json(&[server(5_000, 1_000)], &mut StartTimes::default());
        let resource = &body["resourceMetrics"][0]["resource"]["attributes"][0];
        assert_eq!(*resource, json!({ "key": "service.name", "value": { "stringValue": "kv \"x\"" } }));
        let arrived = metric(&body, "leeward.requests.arrived");
        let port = json!([{ "key": "port", "value": { "stringValue": "rpc" } }]);
        let times = ("4000", "9000");
        let point = json!({ "attributes": port, "startTimeUnixNano": times.0, "timeUnixNano": times.1, "asInt": "12" });
        let sum = json!({ "aggregationTemporality": 2, "isMonotonic": true, "dataPoints": [point] });
        assert_eq!((&arrived["unit"], &arrived["sum"]), (&json!("{request}"), &sum));
        let idle = metric(&body, "leeward.core.idle_time");
        assert_eq!((&idle["unit"], &idle["sum"]["dataPoints"][0]["asDouble"]), (&json!("s"), &json!(1.5)));
        let delay = &metric(&body, "leeward.queue.delay")["histogram"]["dataPoints"][0];
        assert_eq!((&delay["count"], &delay["sum"]), (&json!("6"), &json!(11.0)));
        let (counts, bounds) = (delay["bucketCounts"].as_array().unwrap(), delay["explicitBounds"].as_array().unwrap());
        assert_eq!((counts.len(), bounds.len(), &counts[21]), (22, 21, &json!("1")));
        let level = &metric(&body, "leeward.admission.level")["gauge"]["dataPoints"][0];
        assert_eq!((&level["asDouble"], level.get("startTimeUnixNano")), (&json!("Infinity"), None));
    }

    #[test]
    fn the_start_time_is_kept_until_the_server_restarts() {
        let mut beginnings = StartTimes::default();
        let began = |snapshot: Snapshot, beginnings: &mut StartTimes| {
            let body = render_json(&[snapshot], beginnings);
            metric(&body, "leeward.requests.arrived")["sum"]["dataPoints"][0]["startTimeUnixNano"].clone()
        };
        assert_eq!(began(server(5_000, 1_000), &mut beginnings), "4000");
        // The wall clock was set in between.
        assert_eq!(began(server(7_000, 2_000), &mut beginnings), "4000");
        assert_eq!(began(server(8_000, 500), &mut beginnings), "7500");
        assert!(beginnings.0.len() == 1);
        render_json(&[], &mut beginnings);
        assert!(beginnings.0.is_empty(), "a server that is gone is forgotten");
    }
}
