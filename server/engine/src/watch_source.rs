//! The engine as those who watch it see it: snapshots out of counters, the controller's state and the watch. Never here: what is
//! written on the path of requests.

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
use leeward_wire::RejectCode;
use std::sync::Arc;

/// A state that is older than this is over: a server that sleeps tells nothing.
const FRESH: Nanos = Nanos::from_millis(100);

/// A server that is watched.
struct WatchedServer<P: Protocol> {
    handle: Handle<P>,
    watch: Arc<Watch>,
}

impl<P: Protocol> Handle<P> {
    /// The server for those who watch it; `None` where no watch is kept.
    pub fn source(&self) -> Option<Arc<dyn Source>> {
        let watch = Arc::clone(self.engine.watch.as_ref()?);
        Some(Arc::new(WatchedServer { handle: self.clone(), watch }))
    }
}

/// The reason that the engine's counters have under another name.
fn reason(reason: RejectCode) -> DecisionReason {
    match reason {
        RejectCode::Delay => DecisionReason::Delay,
        RejectCode::Priority => DecisionReason::Level,
        RejectCode::Concurrency => DecisionReason::Concurrency,
        RejectCode::Lock => DecisionReason::Lock,
        RejectCode::NoCredit => DecisionReason::Credit,
        RejectCode::ShuttingDown => DecisionReason::Stopping,
        RejectCode::Cancelled => DecisionReason::Cancelled,
        RejectCode::Other => DecisionReason::Other,
    }
}

impl<P: Protocol> WatchedServer<P> {
    fn shared(&self) -> &Shared<Job<P::Call>> {
        &self.handle.shared
    }

    fn now(&self) -> Time {
        self.shared().clock.now()
    }

    /// The delay that stands, if it is fresh, or else the delay of this moment.
    fn standing_delay(&self, now: Time) -> Nanos {
        let told = self.watch.controller_state();
        if now.since(told.at) <= FRESH { told.standing_delay } else { self.shared().delay(now) }
    }
}

impl<P: Protocol> Source for WatchedServer<P> {
    fn snapshot(&self) -> Snapshot {
        let (now, common) = (self.now(), &self.handle.engine);
        let (counts, gauges) = (common.counts(), self.handle.gauges());
        let Gauges { credit_pool, credits_issued, sessions, priority_threshold, concurrency_limit, in_flight: _ } =
            gauges;
        let about = common.about.clone();
        let cores = common.mailboxes.cores() as u64;
        let ended = counts.completed + counts.rejected + counts.abandoned;
        // Its own first, then what would have been refused besides.
        // Counters know no drops for a tenant's share.
        let parts = |of: DecisionReason| {
            if of == DecisionReason::Other { [of, DecisionReason::Share].to_vec() } else { [of].to_vec() }
        };
        let foreseen = |of: DecisionReason| match &common.shadow {
            Some(rehearsal) => parts(of).into_iter().map(|part| rehearsal.shadow_rejections_for(part)).sum(),
            None => 0,
        };
        let refused = |(place, of): (usize, &RejectCode)| RejectionCount {
            reason: reason(*of).name(),
            class: None,
            count: Counters::rejected_for(&common.counters, place) + foreseen(reason(*of)),
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
            mode: common.shadow.as_ref().map_or("enforce", ShadowMode::name),
            setup: format!("{cores} core{}", if cores == 1 { "" } else { "s" }),
            uptime_ns: now.0,
            unix_ns: unix_ns(),
            slo_ns: common.slo.0,
            target_ns: common.target.map(|target| target.0),
            cores,
            idle_ns: self.shared().unused().0,
            arrived: counts.received,
            admitted: self.watch.admitted(),
            completed: counts.completed,
            failed: counts.failed,
            in_time: Counters::in_time(&common.counters),
            abandoned: counts.abandoned,
            refused: RejectCode::ALL.iter().enumerate().map(refused).collect(),
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
            latencies: Counters::latencies(&common.counters),
            waits: WaitStage::ALL.map(waits).into(),
            locks: leeward_runtime::locks::stats().iter().take(LOCKS).map(lock).collect(),
            tls: common.encryption.as_deref().map(|encryption| tls(common.handshakes.statistics(encryption))),
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
        let common = &self.handle.engine;
        DecisionContext {
            controller: common.about.admission.clone().unwrap_or_default(),
            slo: common.slo,
            target: common.target,
            now: self.now(),
            unix_ns: unix_ns(),
            // A priority that a client does not say is drawn by chance.
            has_classes: false,
            // A controller that rehearses gives none that a client would hear of.
            has_credits: self
                .watch
                .controller_state()
                .gauges
                .credit_pool
                .or(self.handle.gauges().credit_pool)
                .is_some(),
            is_shadow: common.shadow.is_some(),
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
