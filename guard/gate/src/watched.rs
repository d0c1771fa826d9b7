//! The gate as those who watch it see it. Never here: what is written on the path of requests.

use crate::build::Mode;
use crate::counts::{ByClass, ByRoute};
use crate::gate::Gate;
use leeward_host::sync::lock;
use leeward_observe::snapshot::{Answers, OTHER, Refused, RouteCost, StageWaits, TenantAccount};
use leeward_observe::why::Context;
use leeward_observe::{
    Decision, DecisionId, LatencyCounts, PLACES, Reason, Snapshot, Source, Stage, WaitCounts, unix_ns,
};

/// Reasons that a gate can have: all but those of a protocol with credits.
const REASONS: [Reason; 9] = [
    Reason::Late,
    Reason::Deadline,
    Reason::Level,
    Reason::Share,
    Reason::Concurrency,
    Reason::Lock,
    Reason::Delay,
    Reason::Behind,
    Reason::Other,
];

impl Gate {
    /// Labels of the routes that have places: their names, or their numbers. No two are the same: Prometheus would read none of it.
    fn labels(&self) -> Vec<String> {
        let mut labels: Vec<String> = Vec::new();
        for route in self.0.places.known() {
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
        let (counts, gauges) = (self.counts(), inner.pulse.gauges());
        let (mut by_class, mut waits) = (ByClass::default(), WaitCounts::default());
        let (mut by_route, mut costs) = (ByRoute::default(), [WaitCounts::default(); PLACES]);
        let mut latencies = LatencyCounts::default();
        for shard in &inner.shards {
            let shard = lock(shard);
            by_class.add(&shard.by_class);
            shard.waits.add_to(&mut waits);
            by_route.add(&shard.by_route);
            shard.latencies.add_to(&mut latencies);
            shard.costs.iter().zip(&mut costs).for_each(|(of, sum)| of.add_to(sum));
        }
        let delay = u64::try_from(self.delay().as_nanos()).unwrap_or(u64::MAX);
        let refused = |class: usize| {
            let counts = by_class.refused[class];
            let of = move |reason: Reason| Refused {
                reason: reason.word(),
                class: Some(class as u8),
                count: counts[reason as usize],
            };
            REASONS.into_iter().map(of)
        };
        let routes = self.labels();
        let route = |place: usize| routes.get(place).map_or_else(|| OTHER.into(), String::clone);
        let answers = by_route.told().map(|(class, place, of)| Answers {
            class: Some(class),
            route: route(place),
            in_time: of.in_time,
            late: of.late,
            failed: of.failed,
        });
        let costs = costs.iter().enumerate().filter(|(_, costs)| costs.count() > 0);
        let costs = costs.map(|(place, costs)| RouteCost { route: route(place), costs: *costs });
        let workers = inner.shards.len();
        Snapshot {
            port: "gate".into(),
            service: "gate".into(),
            controller: inner.controller.into(),
            mode: inner.mode.word(),
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
            refused: (0..by_class.refused.len()).flat_map(refused).collect(),
            admitted_by_class: by_class.admitted.into(),
            in_flight: counts.in_flight(),
            in_flight_by_class: by_class.in_flight(),
            answers: answers.collect(),
            costs: costs.collect(),
            tenants: TenantAccount::all(&inner.tenants),
            delay_ns: delay,
            standing_ns: delay,
            credit_pool: gauges.credit_pool,
            credits_issued: gauges.credits_issued,
            sessions: gauges.sessions,
            level: gauges.priority_threshold,
            concurrency_limit: gauges.concurrency_limit,
            latencies,
            waits: vec![StageWaits { stage: Stage::Socket.word(), waits }],
            ..Snapshot::default()
        }
    }

    fn decision(&self, id: DecisionId) -> Option<Decision> {
        self.0.ring.read(id)
    }

    fn decisions(&self, count: usize) -> Vec<Decision> {
        self.0.ring.newest(count)
    }

    fn context(&self) -> Context {
        let inner = &*self.0;
        Context {
            controller: inner.controller.into(),
            slo: inner.slo,
            target: inner.bounds.target,
            now: self.now(),
            unix_ns: unix_ns(),
            has_classes: true,
            has_credits: false,
            rehearses: inner.mode != Mode::Enforce,
        }
    }
}
