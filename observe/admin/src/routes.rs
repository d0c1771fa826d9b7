//! Paths and their answers. Never here: sockets.

use crate::guard;
use crate::page;
use crate::request::Request;
use crate::response::Response;
use crate::sources::Sources;
use leeward_observe::exposition::{Format, render};
use leeward_observe::why::Context;
use leeward_observe::{Decision, DecisionId, Moment, Reason};
use serde_json::{Value, json};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Decisions that are listed if no number is said, and at most.
const LISTED: usize = 100;
const LISTED_MOST: usize = 1_000;
/// First words of a stream: a browser that loses the server asks again after a second.
const BEGINNING: &str = "retry: 1000\n\n";

/// Sources of the answers.
pub(crate) struct State {
    pub(crate) address: SocketAddr,
    pub(crate) sources: Sources,
    /// The settings as text.
    pub(crate) config: String,
    pub(crate) is_stopping: Arc<AtomicBool>,
}

/// An answer.
pub(crate) enum Answer {
    Whole(Response),
    /// The state once a second, for as long as the client stays.
    Events(Response),
}

/// Answers a request.
pub(crate) fn answer(request: &Request, state: &State) -> Answer {
    if !guard::names_this_port(request, state.address) {
        return Answer::Whole(Response::status(421));
    }
    let allow = |response: Response| match guard::allowed_origin(request) {
        Some(origin) => response.with("access-control-allow-origin", origin).with("vary", "origin"),
        None => response,
    };
    if request.path == "/events" {
        return Answer::Events(allow(Response::new(200, "text/event-stream", BEGINNING)));
    }
    let response = match request.path.as_str() {
        "/" => page::response(request),
        "/metrics" => {
            let format = Format::accepted(&request.accept);
            let snapshots = match format {
                Format::Prometheus => state.sources.snapshots(),
                Format::OpenMetrics => state.sources.exemplified(),
            };
            let text = render(&snapshots, &state.sources.process(), format);
            Response::new(200, format.content_type(), text).with("vary", "accept")
        }
        "/healthz" => Response::line(200, "alive"),
        "/readyz" => readiness(request, state),
        "/debug/decisions" => decisions(request, state),
        "/debug/why" => why(request, state),
        "/debug/locks" => {
            let locks = state.sources.snapshots().into_iter().next().map(|snapshot| snapshot.locks);
            Response::json(200, &json!({ "locks": locks.unwrap_or_default() }))
        }
        "/debug/config" => Response::new(200, "text/plain; charset=utf-8", state.config.as_str()),
        _ => Response::status(404),
    };
    Answer::Whole(allow(response))
}

/// Ready, unless it stops. Overload is no reason: whoever is taken out of a balancer gives his load to the others.
fn readiness(request: &Request, state: &State) -> Response {
    let minds_overload = request.parameter("overload") == Some("1");
    if state.is_stopping.load(Ordering::Relaxed) {
        Response::line(503, "stopping")
    } else if minds_overload && state.sources.snapshots().iter().any(|snapshot| snapshot.is_overloaded()) {
        Response::line(503, "overloaded")
    } else {
        Response::line(200, "ready")
    }
}

fn decisions(request: &Request, state: &State) -> Response {
    let count = match request.parameter("n").map(str::parse::<usize>) {
        None => LISTED,
        Some(Ok(count)) => count.min(LISTED_MOST),
        Some(Err(_)) => return Response::line(400, "n: a number"),
    };
    let reason = match request.parameter("reason").map(|word| (word, Reason::from_word(word))) {
        None => None,
        Some((_, Some(reason))) => Some(reason),
        Some((_, None)) => {
            let words: Vec<&str> = Reason::ALL.iter().map(|reason| reason.word()).collect();
            return Response::line(400, &format!("reason: {}", words.join(", ")));
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
        // Filters look further back than what they leave.
        let looked_at = if reason.is_some() || tenant.is_some() { usize::MAX } else { count };
        let is_meant = |decision: &Decision| {
            (reason.is_none() || decision.refused == reason) && tenant.is_none_or(|tenant| decision.tenant.0 == tenant)
        };
        let found = source.decisions(looked_at).into_iter().filter(is_meant).take(count);
        listed.extend(found.map(|decision| (context.unix_ns_of(&decision), described(&name, &decision, &context))));
    }
    listed.sort_by_key(|(unix_ns, _)| std::cmp::Reverse(*unix_ns));
    let listed: Vec<Value> = listed.into_iter().take(count).map(|(_, decision)| decision).collect();
    Response::json(200, &json!({ "decisions": listed }))
}

fn why(request: &Request, state: &State) -> Response {
    let id = match request.parameter("id").unwrap_or_default().parse::<DecisionId>() {
        Ok(id) => id,
        Err(error) => return Response::line(400, &format!("id: {error}")),
    };
    let Some(((name, source), decision)) = state.sources.decision(id, request.parameter("port")) else {
        return Response::line(404, &format!("no decision {id}: only the newest are kept"));
    };
    let context = source.context();
    let mut told = described(&name, &decision, &context);
    told["text"] = context.explain(&decision, Some(&source.second(&decision))).into();
    Response::json(200, &told)
}

/// A decision for programs, and in words.
pub(crate) fn described(port: &str, decision: &Decision, context: &Context) -> Value {
    json!({
        "id": decision.id.to_string(),
        "port": port,
        "unix_ms": context.unix_ns_of(decision) / 1_000_000,
        "reason": decision.refused.map(Reason::word),
        "moment": match decision.moment {
            Moment::Arrival => "arrival",
            Moment::Turn => "turn",
            Moment::Work => "work",
        },
        "rehearsed": decision.rehearsed,
        "waited_ns": decision.waited.0,
        "delay_ns": decision.delay.0,
        "left_ns": (decision.left.0 != u64::MAX).then_some(decision.left.0),
        "priority": decision.priority.level(),
        "class": context.has_classes.then(|| decision.class()),
        "tenant": decision.tenant.0,
        "route": decision.route,
        "bound": (decision.bound > 0).then_some(decision.bound),
        "sentence": context.sentence(decision),
        "text": context.explain(decision, None),
    })
}
