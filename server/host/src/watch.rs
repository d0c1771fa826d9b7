//! A controller with an observer: halves around halves that record every rejection, one admission
//! in 64, and the state. The engine's request path does not know of it, and without a watch it
//! costs nothing. Does not contain decisions.

use leeward_core::params::Params;
use leeward_core::registry::{Algorithm, CoreProvisioning, Environment};
use leeward_core::server::{
    Admission, Arrival, ControlLoop, CoreGrant, Departure, Downstream, Feedback, Gauges, Registration, RejectReason,
    ServerHalves, Session, SessionSlot, Signals, Verdict,
};
use leeward_core::units::{Nanos, Time};
use leeward_observe::{Decision, DecisionReason, LifecycleStage, Watch};
use std::sync::Arc;

/// Period of reports of the controller's state. The standing delay is the minimum over it.
const REPORT_PERIOD: Nanos = Nanos::from_millis(2);

/// Bounds of a controller, as far as its parameters tell.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ControllerBounds {
    /// The queueing delay that it aims at.
    pub target: Option<Nanos>,
    /// The queueing delay above which it rejects on arrival.
    pub arrival_limit: Option<Nanos>,
    /// The request age above which it runs nothing, if it has such a limit.
    pub lateness: Option<Nanos>,
    /// The wait above which it rejects a request when it is dequeued.
    pub stale: Option<Nanos>,
}

impl ControllerBounds {
    /// Derives the bounds of a controller with these parameters. Defaults are the algorithms' own.
    pub fn of(algorithm: &Algorithm, params: &Params, environment: &Environment) -> Self {
        let share = environment.slo.scale(0.4);
        let target = match algorithm.name {
            "auto" | "breakwater" | "codel" | "edge" => Some(params.duration("target", share)),
            _ => None,
        };
        // With an allocator the threshold depends on cores that may still be granted.
        let is_fixed = environment.provisioning == CoreProvisioning::Fixed && params.choice("aqm", "on") == "on";
        let arrival_bound = match algorithm.name {
            // Breakwater §5.1: twice the target.
            "auto" | "breakwater" if is_fixed => target.map(|target| params.duration("aqm_threshold", target * 2)),
            "throttle" => Some(params.duration("threshold", share)),
            _ => None,
        };
        let latest = environment.slo.scale(0.9).saturating_sub(environment.rtt);
        let lateness = (algorithm.name == "edge").then(|| params.duration("lateness", latest));
        let stale = match algorithm.name {
            "auto" | "breakwater" => arrival_bound.map(|arrival_bound| params.duration("stale", arrival_bound)),
            _ => lateness,
        };
        ControllerBounds { target, arrival_limit: arrival_bound, lateness, stale }
    }
}

/// Wraps a controller's halves with the watch.
pub fn with_watch(halves: ServerHalves, watch: &Arc<Watch>, bounds: ControllerBounds) -> ServerHalves {
    let wrap = |(core, half)| -> Box<dyn Admission> {
        Box::new(WatchedHalf { half, core, watch: Arc::clone(watch), bounds, now: Time::ZERO })
    };
    let control = halves.control;
    let watched_loop = WatchedLoop { control, watch: Arc::clone(watch), least: Nanos::MAX, next: Time::ZERO };
    ServerHalves { cores: halves.cores.into_iter().enumerate().map(wrap).collect(), control: Box::new(watched_loop) }
}

struct WatchedHalf {
    half: Box<dyn Admission>,
    core: usize,
    watch: Arc<Watch>,
    bounds: ControllerBounds,
    /// Latest time that the half was given: [`Admission::on_dequeue`] gets none.
    now: Time,
}

impl WatchedHalf {
    /// The bound that a rejection met, as far as it is known.
    fn bound(&self, reason: RejectReason, stage: LifecycleStage) -> u64 {
        let gauges = || self.watch.controller_state().gauges;
        match reason {
            RejectReason::Delay if stage == LifecycleStage::Dequeue => self.bounds.stale.map_or(0, |bound| bound.0),
            RejectReason::Delay => self.bounds.arrival_limit.map_or(0, |bound| bound.0),
            RejectReason::Priority => gauges().priority_threshold.map_or(0, |level| level.max(0.0) as u64),
            RejectReason::Concurrency => gauges().concurrency_limit.map_or(0, |limit| limit.max(0.0) as u64),
            _ => 0,
        }
    }

    #[cold]
    fn record_refusal(&self, reason: RejectReason, decision: Decision) {
        let mut decision = decision;
        (decision.reject_reason, decision.bound) =
            (Some(DecisionReason::from(reason)), self.bound(reason, decision.stage));
        decision.is_shadow = self.watch.is_shadow(self.core);
        self.watch.record_rejection(self.core, &decision);
    }
}

/// Describes an arrived request.
fn decision_for(event: &Arrival) -> Decision {
    let mut decision = Decision::admitted(event.now);
    decision.delay = event.delay;
    decision.time_left = event.budget.remaining().unwrap_or(Nanos::MAX);
    decision.priority = event.priority;
    decision.tenant = event.tenant;
    decision
}

impl Admission for WatchedHalf {
    fn open(&mut self, session: &mut Session, event: &Registration) {
        self.half.open(session, event);
    }

    fn request(&mut self, session: &mut Session, event: &Arrival) -> Verdict {
        self.now = event.now;
        let verdict = self.half.request(session, event);
        self.watch.charge(self.core, event.tenant, event.method, verdict == Verdict::Admit);
        match verdict {
            Verdict::Admit => self.watch.record_admission(self.core, || decision_for(event)),
            Verdict::Reject(reason) => self.record_refusal(reason, decision_for(event)),
        }
        verdict
    }

    fn on_dequeue(&mut self, waited: Nanos) -> Verdict {
        let verdict = self.half.on_dequeue(waited);
        if let Verdict::Reject(reason) = verdict {
            let mut decision = Decision::admitted(self.now);
            (decision.stage, decision.wait) = (LifecycleStage::Dequeue, waited);
            self.record_refusal(reason, decision);
        }
        verdict
    }

    fn reply(&mut self, session: &mut Session, event: &Departure) -> Feedback {
        self.now = event.now;
        self.half.reply(session, event)
    }

    fn demand(&mut self, session: &mut Session, now: Time) -> Option<Feedback> {
        self.half.demand(session, now)
    }

    fn next_to_wake(&mut self, random: u64) -> Option<SessionSlot> {
        self.half.next_to_wake(random)
    }

    fn wake(&mut self, session: &mut Session, now: Time) -> Feedback {
        self.half.wake(session, now)
    }

    fn close(&mut self, session: &mut Session, now: Time) {
        self.half.close(session, now);
    }
}

struct WatchedLoop {
    control: Box<dyn ControlLoop>,
    watch: Arc<Watch>,
    /// The least delay since the last report.
    least: Nanos,
    next: Time,
}

impl ControlLoop for WatchedLoop {
    fn period(&self) -> Nanos {
        self.control.period()
    }

    fn reaction(&self) -> Nanos {
        self.control.reaction()
    }

    fn tick(&mut self, signals: &Signals) {
        self.control.tick(signals);
        self.least = self.least.min(signals.delay());
        if signals.now >= self.next {
            self.watch.publish(signals.now, self.least, &self.control.gauges());
            (self.least, self.next) = (Nanos::MAX, signals.now + REPORT_PERIOD);
        }
    }

    fn on_core_grant(&mut self, event: &CoreGrant) {
        self.control.on_core_grant(event);
    }

    fn set_downstream(&mut self, event: &Downstream) {
        self.control.set_downstream(event);
    }

    fn gauges(&self) -> Gauges {
        self.control.gauges()
    }
}
