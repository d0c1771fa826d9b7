//! The engine as an observed source: snapshots from counters, the controller's state and the watch.
//! Does not contain the recording of requests.

use crate::encryption::HandshakeStatistics;
use crate::handle::Handle;
use crate::job::Job;
use crate::protocol::Protocol;
use crate::statistics::{LOCKS, LONGEST_NAME};
use leeward_core::server::Gauges;
use leeward_core::units::{Nanos, Time};
use leeward_host::{Counters, ShadowMode};
use leeward_observe::explain::DecisionContext;
use leeward_observe::snapshot::{
    Lock, OTHER, RejectionCount, RouteAnswers, RouteCost, StageWaits, TenantUsage, TlsCounts,
};
use leeward_observe::{Decision, DecisionId, DecisionReason, RouteCounts, Snapshot, Source, WaitStage, Watch, unix_ns};
use leeward_runtime::cores::Shared;
use leeward_runtime::locks::LockStats;
use std::sync::Arc;

/// Maximum age of the controller's published state; a sleeping server publishes none.
const FRESH: Nanos = Nanos::from_millis(100);

/// A watched server.
struct WatchedServer<P: Protocol> {
    handle: Handle<P>,
    watch: Arc<Watch>,
}

impl<P: Protocol> Handle<P> {
    /// The server as an observed source; `None` if it is not watched.
    pub fn source(&self) -> Option<Arc<dyn Source>> {
        let watch = Arc::clone(self.engine.watch.as_ref()?);
        Some(Arc::new(WatchedServer { handle: self.clone(), watch }))
    }
}

/// Reasons for which a server rejects. The gate's own are not among them.
const REASONS: [DecisionReason; 9] = [
    DecisionReason::Delay,
    DecisionReason::Level,
    DecisionReason::Share,
    DecisionReason::Concurrency,
    DecisionReason::Lock,
    DecisionReason::Credit,
    DecisionReason::Stopping,
    DecisionReason::Cancelled,
    DecisionReason::Other,
];

impl<P: Protocol> WatchedServer<P> {
    fn shared(&self) -> &Shared<Job<P::Call>> {
        &self.handle.shared
    }

    fn now(&self) -> Time {
        self.shared().clock.now()
    }

    /// The controller's standing delay if it is fresh, or else the current delay.
    fn standing_delay(&self, now: Time) -> Nanos {
        let state = self.watch.controller_state();
        if now.since(state.at) <= FRESH { state.standing_delay } else { self.shared().delay(now) }
    }
}

impl<P: Protocol> Source for WatchedServer<P> {
    fn snapshot(&self) -> Snapshot {
        let (now, engine) = (self.now(), &self.handle.engine);
        let (counts, gauges) = (engine.counts(), self.handle.gauges());
        let Gauges { credit_pool, credits_issued, sessions, priority_threshold, concurrency_limit, in_flight: _ } =
            gauges;
        let about = engine.about.clone();
        let cores = engine.mailboxes.cores() as u64;
        let ended = counts.completed + counts.rejected + counts.abandoned;
        let shadow_count =
            |of: DecisionReason| engine.shadow.as_ref().map_or(0, |shadow| shadow.shadow_rejections_for(of));
        // Each count adds the enforced rejections and those of shadow mode.
        let refused = |of: DecisionReason| RejectionCount {
            reason: of.name(),
            class: None,
            count: Counters::rejected_for(&engine.counters, of) + shadow_count(of),
        };
        let by_route = self.watch.route_counts();
        let route = |route: Option<u32>| route.map_or_else(|| OTHER.into(), |route| route.to_string());
        let answers = |(of, counts): &(Option<u32>, RouteCounts)| RouteAnswers {
            class: None,
            route: route(*of),
            in_time: counts.in_time,
            late: counts.late,
            failed: counts.failed,
        };
        let costs = |(of, counts): &(Option<u32>, RouteCounts)| RouteCost { route: route(*of), costs: counts.costs };
        let waits = |stage: WaitStage| StageWaits { stage: stage.name(), waits: self.watch.waits(stage) };
        Snapshot {
            port: String::new(),
            service: about.service.unwrap_or_default(),
            controller: about.admission.unwrap_or_default(),
            mode: engine.shadow.as_ref().map_or("enforce", ShadowMode::name),
            setup: format!("{cores} core{}", if cores == 1 { "" } else { "s" }),
            is_stopping: self.shared().is_stopping(),
            uptime_ns: now.0,
            unix_ns: unix_ns(),
            slo_ns: engine.slo.0,
            target_ns: engine.target.map(|target| target.0),
            cores,
            idle_ns: self.shared().unused().0,
            arrived: counts.received,
            admitted: self.watch.admitted(),
            completed: counts.completed,
            failed: counts.failed,
            in_time: Counters::in_time(&engine.counters),
            abandoned: counts.abandoned,
            refused: REASONS.map(refused).into(),
            admitted_by_class: Vec::new(),
            in_flight: counts.received.saturating_sub(ended),
            answers: by_route.iter().map(answers).collect(),
            costs: by_route.iter().map(costs).collect(),
            tenants: TenantUsage::from_tenants(self.watch.tenants()),
            connections: Some(counts.connections),
            delay_ns: self.shared().delay(now).0,
            standing_ns: self.standing_delay(now).0,
            credit_pool,
            credits_issued,
            sessions,
            level: priority_threshold,
            concurrency_limit,
            latencies: Counters::latencies(&engine.counters),
            waits: WaitStage::ALL.map(waits).into(),
            locks: leeward_runtime::locks::stats().iter().take(LOCKS).map(lock).collect(),
            tls: engine.encryption.as_deref().map(|encryption| tls(engine.handshakes.statistics(encryption))),
            ..Snapshot::default()
        }
    }

    fn decision(&self, id: DecisionId) -> Option<Decision> {
        self.watch.ring().read(id)
    }

    fn decisions(&self, count: usize) -> Vec<Decision> {
        self.watch.ring().newest(count)
    }

    fn context(&self) -> DecisionContext {
        let engine = &self.handle.engine;
        DecisionContext {
            controller: engine.about.admission.clone().unwrap_or_default(),
            slo: engine.slo,
            target: engine.target,
            now: self.now(),
            unix_ns: unix_ns(),
            // Clients that send no priority get a random one.
            has_classes: false,
            has_expected_waits: false,
            in_flight_limit: None,
            // A controller in shadow mode gives no credits to clients.
            has_credits: self
                .watch
                .controller_state()
                .gauges
                .credit_pool
                .or(self.handle.gauges().credit_pool)
                .is_some(),
            is_shadow: engine.shadow.is_some(),
        }
    }
}

fn tls(handshakes: HandshakeStatistics) -> TlsCounts {
    let HandshakeStatistics { done, resumed, identified, waiting, refused, renewed, trouble: _ } = handshakes;
    TlsCounts { done, resumed, identified, waiting, refused: refused.into_iter().collect(), renewed }
}

fn lock(lock: &LockStats) -> Lock {
    Lock {
        name: lock.name.chars().take(LONGEST_NAME).collect(),
        kind: lock.kind.name(),
        acquired: lock.acquired,
        contended: lock.contended,
        refused: lock.refused,
        waited_ns: lock.waited.0,
        p99_ns: lock.quantile(0.99).0,
        longest_ns: lock.longest.0,
        waits: lock.waits.to_vec(),
    }
}
