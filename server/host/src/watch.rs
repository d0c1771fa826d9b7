//! A controller that a watch looks at: halves around halves, which note every refusal, one admission in 64, and the state. The
//! engine's own path knows nothing of it, and without a watch there is nothing. Never here: what a controller decides.

use leeward_core::params::Params;
use leeward_core::registry::{Algorithm, CoreProvisioning, Environment};
use leeward_core::server::{
    Admission, Arrival, ControlLoop, CoreGrant, Departure, Downstream, Feedback, Gauges, Registration, RejectReason,
    ServerHalves, Session, SessionSlot, Signals, Verdict,
};
use leeward_core::units::{Nanos, Time};
use leeward_observe::{Decision, DecisionReason, LifecycleStage, Watch};
use std::sync::Arc;

/// The watch is told the controller's state this often, and the delay that stood is the least of as long.
const REPORT_PERIOD: Nanos = Nanos::from_millis(2);

/// Bounds of a controller, as far as its parameters tell.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ControllerBounds {
    /// The queueing delay that it aims at.
    pub target: Option<Nanos>,
    /// The queueing delay from which it refuses on arrival.
    pub arrival_limit: Option<Nanos>,
    /// The age from which it executes nothing any more, where it goes by one.
    pub lateness: Option<Nanos>,
    /// The wait from which it refuses a request when it is dequeued.
    pub stale: Option<Nanos>,
}

impl ControllerBounds {
    /// Bounds of a controller with these parameters. The defaults are the algorithms' own.
    pub fn of(algorithm: &Algorithm, params: &Params, environment: &Environment) -> Self {
        let share = environment.slo.scale(0.4);
        let target = match algorithm.name {
            "auto" | "breakwater" | "codel" | "edge" => Some(params.duration("target", share)),
            _ => None,
        };
        // Where cores come and go the threshold depends on those that may yet come.
        let is_fixed = environment.provisioning == CoreProvisioning::Fixed && params.choice("aqm", "on") == "on";
        let refusing = match algorithm.name {
            // Breakwater §5.1: twice the target.
            "auto" | "breakwater" if is_fixed => target.map(|target| params.duration("aqm_threshold", target * 2)),
            "throttle" => Some(params.duration("threshold", share)),
            _ => None,
        };
        let latest = environment.slo.scale(0.9).saturating_sub(environment.rtt);
        let lateness = (algorithm.name == "edge").then(|| params.duration("lateness", latest));
        let stale = match algorithm.name {
            "auto" | "breakwater" => refusing.map(|refusing| params.duration("stale", refusing)),
            _ => lateness,
        };
        ControllerBounds { target, arrival_limit: refusing, lateness, stale }
    }
}

/// The same controller, looked at.
pub fn with_watch(halves: ServerHalves, watch: &Arc<Watch>, bounds: ControllerBounds) -> ServerHalves {
    let looked_at = |(core, half)| -> Box<dyn Admission> {
        Box::new(WatchedHalf { half, core, watch: Arc::clone(watch), bounds, now: Time::ZERO })
    };
    let control = halves.control;
    let loop_of = WatchedLoop { control, watch: Arc::clone(watch), least: Nanos::MAX, next: Time::ZERO };
    ServerHalves { cores: halves.cores.into_iter().enumerate().map(looked_at).collect(), control: Box::new(loop_of) }
}

struct WatchedHalf {
    half: Box<dyn Admission>,
    core: usize,
    watch: Arc<Watch>,
    bounds: ControllerBounds,
    /// The last time that the half was told of: [`Admission::execute`] is told none.
    now: Time,
}

impl WatchedHalf {
    /// The bound that a refusal met, as far as it is known.
    fn bound(&self, reason: RejectReason, moment: LifecycleStage) -> u64 {
        let gauges = || self.watch.controller_state().gauges;
        match reason {
            RejectReason::Delay if moment == LifecycleStage::Dequeue => self.bounds.stale.map_or(0, |bound| bound.0),
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

/// Description of a request that has come.
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
    /// The least delay since the watch was told last.
    least: Nanos,
    next: Time,
}

impl ControlLoop for WatchedLoop {
    fn period(&self) -> Nanos {
        self.control.period()
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
