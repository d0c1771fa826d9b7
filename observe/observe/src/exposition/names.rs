//! OpenTelemetry names and units of the metrics, by their Prometheus names. Does not contain
//! values.

/// OpenTelemetry name and unit of a metric. A metric that is not in the table keeps its own name; a
/// test checks that the table is complete.
pub(super) fn name_of(prometheus: &'static str) -> (&'static str, &'static str) {
    let found = NAMES.iter().find(|(name, _, _)| *name == prometheus);
    found.map_or((prometheus, "1"), |(_, name, unit)| (*name, *unit))
}

pub(super) const NAMES: [(&str, &str, &str); 35] = [
    ("leeward_admission_concurrency_limit", "leeward.admission.concurrency_limit", "{request}"),
    ("leeward_admission_decisions", "leeward.admission.decisions", "{request}"),
    ("leeward_admission_level", "leeward.admission.level", "1"),
    ("leeward_build_info", "leeward.build_info", "1"),
    ("leeward_connections", "leeward.connection.count", "{connection}"),
    ("leeward_core_idle_seconds", "leeward.core.idle_time", "s"),
    ("leeward_cores", "leeward.core.count", "{thread}"),
    ("leeward_credit_issued", "leeward.credit.issued", "{credit}"),
    ("leeward_credit_pool", "leeward.credit.pool", "{credit}"),
    ("leeward_leaf_connections", "leeward.leaf.connections", "{connection}"),
    ("leeward_lock_refusals", "leeward.lock.refusals", "{request}"),
    ("leeward_lock_wait_seconds", "leeward.lock.wait.duration", "s"),
    ("leeward_otlp_exports", "leeward.otlp.exports", "{export}"),
    ("leeward_otlp_rejected_points", "leeward.otlp.rejected_points", "{point}"),
    ("leeward_queue_delay_seconds", "leeward.queue.delay", "s"),
    ("leeward_queue_standing_delay_seconds", "leeward.queue.standing_delay", "s"),
    ("leeward_queue_target_seconds", "leeward.queue.target", "s"),
    ("leeward_requests_abandoned", "leeward.requests.abandoned", "{request}"),
    ("leeward_requests_arrived", "leeward.requests.arrived", "{request}"),
    ("leeward_requests_failed", "leeward.requests.failed", "{request}"),
    ("leeward_requests_in_flight", "leeward.requests.in_flight", "{request}"),
    ("leeward_requests_in_time", "leeward.requests.in_time", "{request}"),
    ("leeward_requests_late", "leeward.requests.late", "{request}"),
    ("leeward_requests_partial", "leeward.requests.partial", "{request}"),
    ("leeward_request_cost_seconds", "leeward.request.cost", "s"),
    ("leeward_request_latency_seconds", "leeward.request.latency", "s"),
    ("leeward_sessions", "leeward.session.count", "{session}"),
    ("leeward_slo_seconds", "leeward.slo.duration", "s"),
    ("leeward_tenant_admitted_seconds", "leeward.tenant.admitted", "s"),
    ("leeward_tenant_refused_seconds", "leeward.tenant.refused", "s"),
    ("leeward_tls_handshakes", "leeward.tls.handshakes", "{handshake}"),
    ("leeward_tls_handshakes_waiting", "leeward.tls.handshakes_waiting", "{handshake}"),
    ("leeward_tls_identified", "leeward.tls.identified", "{handshake}"),
    ("leeward_tls_refusals", "leeward.tls.refusals", "{handshake}"),
    ("leeward_tls_renewals", "leeward.tls.renewals", "{renewal}"),
];
