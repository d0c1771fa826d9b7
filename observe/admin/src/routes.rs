//! Paths and their responses. Does not contain sockets.

use crate::access;
use crate::page;
use crate::request::Request;
use crate::response::Response;
use crate::sources::Sources;
use leeward_observe::explain::DecisionContext;
use leeward_observe::exposition::{Format, render};
use leeward_observe::{Decision, DecisionId, DecisionReason, LifecycleStage, Snapshot};
use serde_json::{Value, json};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// Number of decisions that are listed by default, and the maximum.
const COUNT_DEFAULT: usize = 100;
const COUNT_MAX: usize = 1_000;
/// Start of an event stream: a browser that loses the connection reconnects after a second.
const STREAM_PREAMBLE: &str = "retry: 1000\n\n";

/// Data for the responses.
pub(crate) struct AdminState {
    pub(crate) address: SocketAddr,
    pub(crate) sources: Sources,
    /// Settings as text.
    pub(crate) config: Arc<Mutex<String>>,
    pub(crate) is_stopping: Arc<AtomicBool>,
}

/// Response to a request.
pub(crate) enum RouteResponse {
    Full(Response),
    /// Sends the state once a second, until the client disconnects.
    EventStream(Response),
}

/// Responds to a request.
pub(crate) fn route(request: &Request, state: &AdminState) -> RouteResponse {
    if !access::is_host_allowed(request, state.address) {
        return RouteResponse::Full(Response::status(421));
    }
    let allow = |response: Response| match access::allowed_origin(request) {
        Some(origin) => response.with("access-control-allow-origin", origin).with("vary", "origin"),
        None => response,
    };
    if request.path == "/events" {
        return RouteResponse::EventStream(allow(Response::new(200, "text/event-stream", STREAM_PREAMBLE)));
    }
    let response = match request.path.as_str() {
        "/" => page::response(request),
        "/metrics" => {
            let format = Format::from_accept(&request.accept);
            let snapshots = match format {
                Format::Prometheus => state.sources.snapshots(),
                Format::OpenMetrics => state.sources.snapshots_with_exemplars(),
            };
            let text = render(&snapshots, &state.sources.process(), format);
            let text = state.sources.with_further_metrics(text);
            Response::new(200, format.content_type(), text).with("vary", "accept")
        }
        "/healthz" => Response::line(200, "alive"),
        "/readyz" => readiness(request, state),
        "/debug/decisions" => decisions(request, state),
        "/debug/why" => explain(request, state),
        "/debug/locks" => {
            let locks = state.sources.snapshots().into_iter().next().map(|snapshot| snapshot.locks);
            Response::json(200, &json!({ "locks": locks.unwrap_or_default() }))
        }
        "/debug/config" => {
            let config = state.config.lock().unwrap_or_else(PoisonError::into_inner);
            Response::new(200, "text/plain; charset=utf-8", config.as_str())
        }
        _ => Response::status(404),
    };
    RouteResponse::Full(allow(response))
}

/// Readiness: 503 while a server stops, and while a tier has no leaf.
///
/// Overload does not fail readiness: removing this replica would move its load to the others. With
/// `?overload=1` overload returns 503, too.
fn readiness(request: &Request, state: &AdminState) -> Response {
    let minds_overload = request.parameter("overload") == Some("1");
    let snapshots = state.sources.snapshots();
    if state.is_stopping.load(Ordering::Relaxed) || snapshots.iter().any(|snapshot| snapshot.is_stopping) {
        Response::line(503, "stopping")
    } else if snapshots.iter().any(Snapshot::has_lost_leaves) {
        Response::line(503, "no leaf")
    } else if minds_overload && snapshots.iter().any(Snapshot::is_overloaded) {
        Response::line(503, "overloaded")
    } else {
        Response::line(200, "ready")
    }
}

fn decisions(request: &Request, state: &AdminState) -> Response {
    let count = match request.parameter("n").map(str::parse::<usize>) {
        None => COUNT_DEFAULT,
        Some(Ok(count)) => count.min(COUNT_MAX),
        Some(Err(_)) => return Response::line(400, "n: a number"),
    };
    let reason = match request.parameter("reason").map(|name| (name, DecisionReason::from_name(name))) {
        None => None,
        Some((_, Some(reason))) => Some(reason),
        Some((_, None)) => {
            let names: Vec<&str> = DecisionReason::ALL.iter().map(|reason| reason.name()).collect();
            return Response::line(400, &format!("reason: {}", names.join(", ")));
        }
    };
    let tenant = match request.parameter("tenant").map(str::parse::<u32>) {
        None => None,
        Some(Ok(tenant)) => Some(tenant),
        Some(Err(_)) => return Response::line(400, "tenant: a number"),
    };
    let port = request.parameter("port");
    let mut listed = Vec::new();
    for (name, source) in state.sources.all().into_iter().filter(|(name, _)| port.is_none_or(|port| port == name)) {
        let context = source.context();
        // A filter must search more decisions than it returns.
        let looked_at = if reason.is_some() || tenant.is_some() { usize::MAX } else { count };
        let is_meant = |decision: &Decision| {
            (reason.is_none() || decision.reject_reason == reason)
                && tenant.is_none_or(|tenant| decision.tenant.0 == tenant)
        };
        let found = source.decisions(looked_at).into_iter().filter(is_meant).take(count);
        listed.extend(found.map(|decision| (context.unix_ns_of(&decision), decision_json(&name, &decision, &context))));
    }
    listed.sort_by_key(|(unix_ns, _)| std::cmp::Reverse(*unix_ns));
    let listed: Vec<Value> = listed.into_iter().take(count).map(|(_, decision)| decision).collect();
    Response::json(200, &json!({ "decisions": listed }))
}

fn explain(request: &Request, state: &AdminState) -> Response {
    let id = match request.parameter("id").unwrap_or_default().parse::<DecisionId>() {
        Ok(id) => id,
        Err(error) => return Response::line(400, &format!("id: {error}")),
    };
    let Some(((name, source), decision)) = state.sources.decision(id, request.parameter("port")) else {
        return Response::line(404, &format!("no decision {id}: only the newest are kept"));
    };
    let context = source.context();
    let mut body = decision_json(&name, &decision, &context);
    body["text"] = context.explain(&decision, Some(&source.nearby_counts(&decision))).into();
    Response::json(200, &body)
}

/// JSON of a decision, with its explanation.
pub(crate) fn decision_json(port: &str, decision: &Decision, context: &DecisionContext) -> Value {
    json!({
        "id": decision.id.to_string(),
        "port": port,
        "unix_ms": context.unix_ns_of(decision) / 1_000_000,
        "reason": decision.reject_reason.map(DecisionReason::name),
        "moment": match decision.stage {
            LifecycleStage::Arrival => "arrival",
            LifecycleStage::Dequeue => "turn",
            LifecycleStage::Execution => "work",
        },
        "rehearsed": decision.is_shadow,
        "waited_ns": decision.wait.0,
        "delay_ns": decision.delay.0,
        "left_ns": (decision.time_left.0 != u64::MAX).then_some(decision.time_left.0),
        "priority": decision.priority.level(),
        "class": context.has_classes.then(|| decision.class()),
        "tenant": decision.tenant.0,
        "route": decision.route,
        "bound": (decision.bound > 0).then_some(decision.bound),
        "sentence": context.sentence(decision),
        "text": context.explain(decision, None),
    })
}
