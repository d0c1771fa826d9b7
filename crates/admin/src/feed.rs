//! The state once a second, as server-sent events, and the last minutes for whoever has just come. Never here: sockets.

use crate::routes::{State, described};
use leeward_observe::Snapshot;
use serde_json::{Value, json};
use std::collections::VecDeque;
use std::sync::atomic::Ordering;

/// First words of a stream: a browser that loses the server asks again after a second.
pub(crate) const BEGINNING: &str = "retry: 1000\n\n";
/// Seconds that are kept for listeners who come later.
const KEPT: usize = 300;
/// Refusals in words with each state.
const REFUSALS: usize = 8;

/// The stream of states.
#[derive(Debug, Default)]
pub(crate) struct Feed {
    past: VecDeque<String>,
}

impl Feed {
    /// The state of this second, as an event; kept for later listeners without what only matters now.
    pub(crate) fn tick(&mut self, state: &State) -> String {
        let mut servers = Vec::new();
        let mut kept = Vec::new();
        for (name, source) in state.sources.all() {
            let snapshot = Snapshot { port: name.clone(), ..source.snapshot() };
            kept.push(numbers(&snapshot));
            let context = source.context();
            let refusals: Vec<Value> =
                source.refusals(REFUSALS, None).iter().map(|decision| described(&name, decision, &context)).collect();
            let mut told = serde_json::to_value(&snapshot).unwrap_or_default();
            told["refusals"] = refusals.into();
            servers.push(told);
        }
        let is_stopping = state.is_stopping.load(Ordering::Relaxed);
        if self.past.len() == KEPT {
            self.past.pop_front();
        }
        self.past.push_back(json!({ "servers": kept }).to_string());
        format!("data: {}\n\n", json!({ "stopping": is_stopping, "servers": servers }))
    }

    /// The seconds so far, as one event.
    pub(crate) fn past(&self) -> String {
        let seconds: Vec<&str> = self.past.iter().map(String::as_str).collect();
        format!("event: past\ndata: [{}]\n\n", seconds.join(","))
    }
}

/// The numbers that are drawn over time.
fn numbers(snapshot: &Snapshot) -> Value {
    json!({
        "port": snapshot.port,
        "unix_ns": snapshot.unix_ns,
        "uptime_ns": snapshot.uptime_ns,
        "slo_ns": snapshot.slo_ns,
        "target_ns": snapshot.target_ns,
        "cores": snapshot.cores,
        "idle_ns": snapshot.idle_ns,
        "arrived": snapshot.arrived,
        "completed": snapshot.completed,
        "failed": snapshot.failed,
        "in_time": snapshot.in_time,
        "in_flight": snapshot.in_flight,
        "standing_ns": snapshot.standing_ns,
        "credit_pool": snapshot.credit_pool,
        "credits_issued": snapshot.credits_issued,
        "level": snapshot.level,
        "refused": snapshot.refused,
    })
}
