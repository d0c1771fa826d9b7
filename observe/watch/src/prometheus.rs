//! Reports as Prometheus text.

use std::fmt::Write;

use crate::diagnosis::Cause;
use crate::report::{ListenerReport, WatchReport};

/// A gauge: name, help, value.
type Gauge = (&'static str, &'static str, fn(&ListenerReport) -> Option<f64>);

/// Gauges per listener.
const GAUGES: [Gauge; 12] = [
    ("leeward_watch_oldest_unread_seconds", "Age of the oldest unread byte", |listener| {
        Some(listener.oldest_unread_ms.map_or(0.0, |age| age.estimate / 1e3))
    }),
    ("leeward_watch_oldest_inside_seconds", "Time for which the oldest request has been inside", |listener| {
        Some(listener.oldest_inside_ms / 1e3)
    }),
    ("leeward_watch_connections", "Open connections", |listener| Some(listener.connections)),
    ("leeward_watch_unread_connections", "Connections with unread bytes", |listener| Some(listener.unread)),
    ("leeward_watch_inside_connections", "Connections with a request inside", |listener| Some(listener.inside)),
    ("leeward_watch_accept_queue", "Connections that nobody has accepted", |listener| {
        Some(listener.accept_queue.length)
    }),
    ("leeward_watch_accept_queue_limit", "Longest accept queue", |listener| Some(listener.accept_queue.limit.into())),
    ("leeward_watch_requests_per_second", "Requests per second, by segments with data", |listener| {
        Some(listener.arrivals_per_s)
    }),
    ("leeward_watch_responses_per_second", "Responses per second", |listener| Some(listener.responses_per_s)),
    ("leeward_watch_cpus", "CPUs that the listening processes use", |listener| listener.cpus),
    ("leeward_watch_waiting_for_cpus", "CPUs' worth of time for which threads wait for a CPU", |listener| {
        listener.waiting_for_cpus
    }),
    ("leeward_watch_throttled_ratio", "Share of the CPU quota's periods with throttling", |listener| {
        Some(listener.throttled_share)
    }),
];

/// The reports as Prometheus text, version 0.0.4.
pub fn prometheus_text(report: &WatchReport) -> String {
    let mut text = String::new();
    for (name, help, value) in GAUGES {
        let _ = write!(text, "# HELP {name} {help}\n# TYPE {name} gauge\n");
        for listener in &report.listeners {
            if let Some(value) = value(listener) {
                let _ = writeln!(text, "{name}{{listener=\"{}\"}} {value}", escape(&listener.address));
            }
        }
    }
    let name = "leeward_watch_cause";
    let _ = write!(text, "# HELP {name} Why requests wait: 1 for the cause that holds\n# TYPE {name} gauge\n");
    for listener in &report.listeners {
        for cause in Cause::ALL {
            let holds = u8::from(listener.cause == cause);
            let _ = writeln!(
                text,
                "{name}{{listener=\"{}\",cause=\"{}\"}} {holds}",
                escape(&listener.address),
                cause.name()
            );
        }
    }
    text
}

/// Escapes the value of a label.
fn escape(value: &str) -> String {
    value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}
