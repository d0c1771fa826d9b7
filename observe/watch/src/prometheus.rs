//! Reports as Prometheus text.

use std::fmt::Write;

use crate::cause::Cause;
use crate::report::{ListenerReport, WatchReport};

/// A gauge: name, help, value.
type Gauge = (&'static str, &'static str, fn(&ListenerReport) -> Option<f64>);

/// Gauges per listener.
const GAUGES: [Gauge; 12] = [
    ("leeward_watch_oldest_unread_seconds", "Age of the oldest unread byte", |listener| {
        // Nothing unread is an age of zero, where ages are known.
        listener.oldest_unread_max_ms.map(|_| listener.oldest_unread_ms.map_or(0.0, |age| age.estimate / 1e3))
    }),
    ("leeward_watch_oldest_inside_seconds", "Time for which the oldest request has been inside", |listener| {
        listener.oldest_inside_ms.map(|age| age / 1e3)
    }),
    ("leeward_watch_connections", "Open connections", |listener| Some(listener.connections)),
    ("leeward_watch_unread_connections", "Connections with unread bytes", |listener| Some(listener.unread)),
    ("leeward_watch_inside_connections", "Connections with a request inside", |listener| listener.inside),
    ("leeward_watch_accept_queue", "Connections that nobody has accepted", |listener| {
        Some(listener.accept_queue.length)
    }),
    ("leeward_watch_accept_queue_limit", "Longest accept queue", |listener| Some(listener.accept_queue.limit.into())),
    ("leeward_watch_requests_per_second", "Requests per second, by segments with data", |listener| {
        listener.arrivals_per_s
    }),
    ("leeward_watch_responses_per_second", "Responses per second", |listener| listener.responses_per_s),
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::Facts;
    use crate::target::ListenAddress;

    #[test]
    fn what_a_unix_socket_does_not_tell_has_no_sample() {
        let listener =
            |address, is_unix| ListenerReport::new(&address, Vec::new(), &Facts { is_unix, ..Facts::default() });
        let tcp = listener(ListenAddress::Tcp("127.0.0.1:80".parse().unwrap()), false);
        let unix = listener(ListenAddress::Unix("/x".into()), true);
        let report = WatchReport { observed_s: 3.0, polls: 60, own_cpu: 0.01, listeners: vec![tcp, unix] };
        let text = prometheus_text(&report);
        for (name, unix) in [
            ("oldest_unread_seconds", 0),
            ("oldest_inside_seconds", 0),
            ("inside_connections", 0),
            ("requests_per_second", 0),
            ("responses_per_second", 0),
            ("unread_connections", 1),
            ("accept_queue", 1),
        ] {
            let samples =
                |listener: &str| text.matches(&format!("leeward_watch_{name}{{listener=\"{listener}\"}} 0\n")).count();
            assert_eq!((samples("127.0.0.1:80"), samples("unix:/x")), (1, unix), "{name}: {text}");
        }
        assert!(serde_json::to_string(&report.listeners[1]).unwrap().contains("\"responses_per_s\":null"));
        assert!(report.listeners[1].to_string().contains("per second: a Unix socket does not tell"));
    }
}
