//! Server-sent events: the state once a second, and the last minutes for new subscribers. Does not
//! contain sockets.

use crate::routes::{AdminState, decision_json};
use leeward_observe::exemplar::SCAN_MAX;
use leeward_observe::explain::{self, DecisionContext, RejectionGroup};
use leeward_observe::{LatencyCounts, Percentiles, Snapshot};
use serde_json::{Value, json};
use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::Ordering;

/// Seconds of history that are kept for later subscribers.
const HISTORY_MAX: usize = 300;
/// Maximum of rejections, and of groups of them, that each state explains.
const REJECTIONS_MAX: usize = 8;
/// Seconds over which the recent percentiles are computed.
const RECENT_SECONDS: usize = 10;

/// Stream of states.
#[derive(Debug, Default)]
pub(crate) struct Feed {
    history: VecDeque<String>,
    latencies: BTreeMap<String, LatencyWindow>,
}

/// Latency counts of a source, one entry per second, oldest first.
#[derive(Debug, Default)]
struct LatencyWindow(VecDeque<LatencyCounts>);

impl LatencyWindow {
    /// Adds a second. Returns the percentiles of this second alone and of the last seconds; `None`
    /// at the first second.
    fn tick(&mut self, now: LatencyCounts) -> (Option<Percentiles>, Option<Percentiles>) {
        // Counts that went back belong to another source of the same name.
        if self.0.back().is_some_and(|last| last.count() > now.count()) {
            self.0.clear();
        }
        let since = |then: Option<&LatencyCounts>| then.and_then(|then| now.since(then).percentiles());
        let percentiles = (since(self.0.back()), since(self.0.front()));
        if self.0.len() == RECENT_SECONDS {
            self.0.pop_front();
        }
        self.0.push_back(now);
        percentiles
    }
}

impl Feed {
    /// Returns the state of this second as an event, and adds its numbers to the history.
    pub(crate) fn tick(&mut self, state: &AdminState) -> String {
        let mut servers = Vec::new();
        let mut kept = Vec::new();
        let sources = state.sources.all();
        self.latencies.retain(|known, _| sources.iter().any(|(name, _)| name == known));
        let mut is_stopping = state.is_stopping.load(Ordering::Relaxed);
        for (name, source) in sources {
            let mut snapshot = Snapshot { port: name.clone(), ..source.snapshot() };
            is_stopping |= snapshot.is_stopping;
            let latencies = std::mem::take(&mut snapshot.latencies);
            let (second, recent) = self.latencies.entry(name.clone()).or_default().tick(latencies);
            let mut numbers = numbers(&snapshot);
            numbers["latency"] = json!(second);
            kept.push(numbers);
            let context = source.context();
            let decisions = source.decisions(SCAN_MAX);
            let refusals = decisions.iter().filter(|decision| decision.reject_reason.is_some()).take(REJECTIONS_MAX);
            let kinds = explain::group_rejections(&decisions, REJECTIONS_MAX);
            let mut entry = serde_json::to_value(&snapshot).unwrap_or_default();
            entry["latency"] = json!(second);
            entry["latency_recent"] = json!(recent);
            entry["refusals"] = refusals.map(|decision| decision_json(&name, decision, &context)).collect();
            entry["refusal_kinds"] = kinds.iter().map(|alike| group_json(&name, alike, &context)).collect();
            servers.push(entry);
        }
        if self.history.len() == HISTORY_MAX {
            self.history.pop_front();
        }
        self.history.push_back(json!({ "servers": kept }).to_string());
        let down = state.sources.backends_down();
        format!("data: {}\n\n", json!({ "stopping": is_stopping, "backends_down": down, "servers": servers }))
    }

    /// Returns the history as one event.
    pub(crate) fn history(&self) -> String {
        let seconds: Vec<&str> = self.history.iter().map(String::as_str).collect();
        format!("event: past\ndata: [{}]\n\n", seconds.join(","))
    }
}

/// JSON of a group of rejections: the newest one, with the group's count and the time of the first.
fn group_json(port: &str, alike: &RejectionGroup, context: &DecisionContext) -> Value {
    let mut entry = decision_json(port, &alike.newest, context);
    entry["count"] = alike.count.into();
    let mut first = alike.newest;
    first.at = alike.first_time;
    entry["first_unix_ms"] = (context.unix_ns_of(&first) / 1_000_000).into();
    entry
}

/// Numbers that the dashboard draws over time.
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

#[cfg(test)]
mod tests {
    use super::*;
    use leeward_core::units::Nanos;

    #[test]
    fn percentiles_cover_the_last_second_and_the_last_ten_seconds() {
        let counter = leeward_observe::LatencyHistogram::default();
        let mut latencies = LatencyWindow::default();
        let mut tick = |results: u64, latency: u64| {
            (0..results).for_each(|_| counter.record(Nanos(latency)));
            let mut sum = LatencyCounts::default();
            counter.add_to(&mut sum);
            let (second, recent) = latencies.tick(sum);
            (second.map(|of| of.count), recent.map(|of| of.count))
        };
        assert_eq!(tick(5, 1_000), (None, None), "of what was before nothing is known");
        assert_eq!(tick(0, 0), (None, None));
        assert_eq!(tick(100, 1_000), (Some(100), Some(100)));
        (0..8).for_each(|_| _ = tick(1, 9_000));
        assert_eq!(tick(0, 0), (None, Some(108)));
        assert_eq!(tick(0, 0), (None, Some(8)), "the hundred are more than ten seconds ago");
        assert_eq!(tick(2, 9_000), (Some(2), Some(9)));
        assert_eq!(latencies.tick(LatencyCounts::default()), (None, None), "another source of that name");
    }
}
