//! The gate as a source for metrics and dashboards. Does not contain writes on the request path.

use crate::builder::Mode;
use crate::counts::{ClassCounts, RouteCounts};
use crate::gate::{Gate, Inner};
use leeward_core::units::{Nanos, Time};
use leeward_host::sync::lock;
use leeward_observe::explain::{DecisionContext, InFlightLimit};
use leeward_observe::snapshot::{OTHER, RejectionCount, RouteAnswers, RouteCost, StageWaits, TenantUsage};
use leeward_observe::{
    Decision, DecisionId, DecisionReason, LatencyCounts, ROUTE_SLOTS, Snapshot, Source, WaitCounts, WaitStage, unix_ns,
};

/// Reasons that a gate can have: all except those of a protocol with credits.
const REASONS: [DecisionReason; 9] = [
    DecisionReason::Late,
    DecisionReason::Deadline,
    DecisionReason::Level,
    DecisionReason::Share,
    DecisionReason::Concurrency,
    DecisionReason::Lock,
    DecisionReason::Delay,
    DecisionReason::Downstream,
    DecisionReason::Other,
];

impl Gate {
    /// Labels of the routes with slots: their names or numbers.
    ///
    /// Each label is unique; Prometheus would reject a whole page with a duplicate.
    fn labels(&self) -> Vec<String> {
        let mut labels: Vec<String> = Vec::new();
        for route in self.0.places.to_vec() {
            let name = self.0.names.get(route as usize).and_then(|name| name.get());
            let label = name.map_or_else(|| route.to_string(), |name| name.to_string());
            let is_taken = label == OTHER || labels.contains(&label);
            labels.push(if is_taken { format!("{label} ({route})") } else { label });
        }
        labels
    }
}

impl Source for Gate {
    fn snapshot(&self) -> Snapshot {
        let inner = &*self.0;
        let (counts, gauges) = (self.counts(), inner.ticker.gauges());
        let (mut by_class, mut waits) = (ClassCounts::default(), WaitCounts::default());
        let (mut by_route, mut costs) = (RouteCounts::default(), [WaitCounts::default(); ROUTE_SLOTS]);
        let mut latencies = LatencyCounts::default();
        for shard in &inner.shards {
            let shard = lock(shard);
            by_class.add(&shard.by_class);
            shard.waits.add_to(&mut waits);
            by_route.add(&shard.by_route);
            shard.latencies.add_to(&mut latencies);
            shard.costs.iter().zip(&mut costs).for_each(|(of, sum)| of.add_to(sum));
        }
        let delay = Nanos::from(self.delay()).0;
        let rejected = |class: usize| {
            let counts = by_class.rejected[class];
            let of = move |reason: DecisionReason| RejectionCount {
                reason: reason.name(),
                class: Some(class as u8),
                count: counts[reason as usize],
            };
            REASONS.into_iter().map(of)
        };
        let routes = self.labels();
        let route = |slot: usize| routes.get(slot).map_or_else(|| OTHER.into(), String::clone);
        let answers = by_route.iter().map(|(class, slot, of)| RouteAnswers {
            class: Some(class),
            route: route(slot),
            in_time: of.in_time,
            late: of.late,
            failed: of.failed,
        });
        let costs = costs.iter().enumerate().filter(|(_, costs)| costs.count() > 0);
        let costs = costs.map(|(slot, costs)| RouteCost { route: route(slot), costs: *costs });
        let workers = inner.shards.len();
        Snapshot {
            port: "gate".into(),
            service: "gate".into(),
            controller: inner.controller.into(),
            mode: inner.mode.name(),
            setup: format!("{workers} worker{}", if workers == 1 { "" } else { "s" }),
            uptime_ns: self.now().0,
            unix_ns: unix_ns(),
            slo_ns: inner.slo.0,
            target_ns: inner.bounds.target.map(|target| target.0),
            cores: workers as u64,
            arrived: counts.arrived,
            admitted: counts.admitted,
            completed: counts.completed,
            failed: counts.failed,
            in_time: counts.in_time,
            abandoned: counts.abandoned,
            refused: (0..by_class.rejected.len()).flat_map(rejected).collect(),
            admitted_by_class: by_class.admitted.into(),
            in_flight: counts.in_flight(),
            in_flight_by_class: by_class.in_flight(),
            answers: answers.collect(),
            costs: costs.collect(),
            tenants: TenantUsage::from_tenants(&inner.tenants),
            delay_ns: delay,
            standing_ns: delay,
            credit_pool: gauges.credit_pool,
            credits_issued: gauges.credits_issued,
            sessions: gauges.sessions,
            level: gauges.priority_threshold,
            concurrency_limit: gauges.concurrency_limit,
            latencies,
            waits: vec![StageWaits { stage: WaitStage::Socket.name(), waits }],
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
        let (inner, now) = (&*self.0, self.now());
        DecisionContext {
            controller: inner.controller.into(),
            slo: inner.slo,
            target: inner.bounds.target,
            now,
            unix_ns: unix_ns(),
            has_classes: true,
            has_credits: false,
            has_expected_waits: false,
            is_shadow: inner.mode != Mode::Enforce,
            in_flight_limit: Some(InFlightLimit { most: inner.max_in_flight.into(), last_end: last_end(inner, now) }),
        }
    }
}

/// When a request last ended where the limit of requests in progress was reached: in all shards,
/// or, with the default limit, in the full one that has waited longest. Now, if the requests in
/// progress are those of a shadow queue.
fn last_end(inner: &Inner, now: Time) -> Time {
    if inner.mode != Mode::Enforce {
        return now;
    }
    let shards = inner.shards.iter().map(|shard| lock(shard));
    let last = if inner.in_flight.is_some() {
        shards.map(|shard| shard.last_end).max()
    } else {
        shards.filter(|shard| shard.pending() >= inner.max_in_flight).map(|shard| shard.last_end).min()
    };
    last.unwrap_or(now)
}
