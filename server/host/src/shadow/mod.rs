//! Rehearsals of a server's controller: it decides on the queue that would be if its refusals happened, and they happen to a share of the
//! clients, or to none. As a gate rehearses (decision 66). All cores decide under one mutex meanwhile.
//!
//! - `state`: that queue, and the controller with sessions of its own. `work`: how long requests occupy a core.
//!
//! Clients hear neither of credits nor of thresholds: each sends as it likes. Never here: decisions.

mod cost;
mod state;

use crate::sync::{AtomicU64, Mutex, Ordering, lock};
use leeward_core::server::{
    Admission, Arrival, ControlLoop, CoreGrant, CoreId, Departure, Downstream, Feedback, Gauges, Registration,
    RejectReason, ServerHalves, Session, Signals, Verdict,
};
use leeward_core::units::{Nanos, Time};
use leeward_observe::{DecisionReason, Watch};
use state::ShadowState;
use std::sync::{Arc, OnceLock};

/// Time in which a server's cores have had nothing to do so far, all together.
type Idle = Box<dyn Fn() -> Nanos + Send + Sync>;

/// A rehearsal under way, for those who tell of it. Clones are the same one.
#[derive(Clone)]
pub struct ShadowMode(Arc<Inner>);

struct Inner {
    /// Clients of a hundred to whom refusals happen.
    percent: u8,
    /// Requests that would have been refused and were not, by the number of the reason.
    shadow_rejections: [AtomicU64; DecisionReason::ALL.len()],
    idle: OnceLock<Idle>,
    watch: Option<Arc<Watch>>,
    state: Mutex<ShadowState>,
}

impl ShadowMode {
    /// Has a controller rehearse. Its refusals happen to `percent` of a hundred tenants (connections, where there are no tenants). A watch
    /// is one that looks at these halves already.
    pub fn of(halves: ServerHalves, percent: u8, watch: Option<Arc<Watch>>) -> (ServerHalves, ShadowMode) {
        let (cores, period) = (halves.cores.len(), halves.control.period());
        let rehearsal = ShadowMode(Arc::new(Inner {
            percent,
            shadow_rejections: std::array::from_fn(|_| AtomicU64::new(0)),
            idle: OnceLock::new(),
            watch,
            state: Mutex::new(ShadowState::new(halves)),
        }));
        let half = |core| -> Box<dyn Admission> { Box::new(ShadowAdmission { core, shadow: rehearsal.clone() }) };
        let control = Box::new(ShadowLoop { period, shadow: rehearsal.clone() });
        (ServerHalves { cores: (0..cores).map(half).collect(), control }, rehearsal)
    }

    /// How the time is learnt in which the cores have had nothing to do. Until that is known requests take the time of their handlers alone.
    pub fn set_idle_source(&self, idle: impl Fn() -> Nanos + Send + Sync + 'static) {
        let _ = self.0.idle.set(Box::new(idle));
    }

    /// Requests that would have been refused for this reason, and were not.
    pub fn shadow_rejections_for(&self, reason: DecisionReason) -> u64 {
        self.0.shadow_rejections[reason as usize].load(Ordering::Relaxed)
    }

    /// Requests that would have been refused, and were not.
    pub fn shadow_rejections(&self) -> u64 {
        DecisionReason::ALL.iter().map(|reason| self.shadow_rejections_for(*reason)).sum()
    }

    /// As metrics name it.
    pub fn name(&self) -> &'static str {
        if self.0.percent == 0 { "shadow" } else { "share" }
    }

    fn count_rejection(&self, reason: RejectReason) {
        self.0.shadow_rejections[DecisionReason::from(reason) as usize].fetch_add(1, Ordering::Relaxed);
    }
}

impl std::fmt::Debug for ShadowMode {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Rehearsal")
            .field("percent", &self.0.percent)
            .field("foreseen", &self.shadow_rejections())
            .finish()
    }
}

/// The plant's end of a fast half.
struct ShadowAdmission {
    core: usize,
    shadow: ShadowMode,
}

impl Admission for ShadowAdmission {
    fn open(&mut self, session: &mut Session, event: &Registration) {
        lock(&self.shadow.0.state).open((CoreId(self.core as u32), session.slot), event);
    }

    fn request(&mut self, session: &mut Session, event: &Arrival) -> Verdict {
        let inner = &*self.shadow.0;
        let mut state = lock(&inner.state);
        let is_meant = state.enforces(inner.percent, self.core, session.slot, event.tenant);
        if let Some(watch) = &inner.watch {
            watch.set_shadow(self.core, !is_meant);
        }
        let time = state.cost.time(self.core, event.method, inner.watch.as_deref());
        let verdict = state.decide(self.core, session.slot, event, time);
        drop(state);
        match verdict {
            Verdict::Reject(reason) if !is_meant => {
                self.shadow.count_rejection(reason);
                Verdict::Admit
            }
            verdict => verdict,
        }
    }

    fn reply(&mut self, _: &mut Session, _: &Departure) -> Feedback {
        Feedback::NONE
    }

    fn close(&mut self, session: &mut Session, _: Time) {
        lock(&self.shadow.0.state).close(self.core, session.slot);
    }
}

/// The plant's end of the slow half, which learns from it how long requests take. The controller's own has its turns by the clock of arrival.
struct ShadowLoop {
    period: Nanos,
    shadow: ShadowMode,
}

impl ControlLoop for ShadowLoop {
    fn period(&self) -> Nanos {
        self.period
    }

    fn tick(&mut self, signals: &Signals) {
        let inner = &*self.shadow.0;
        let idle = inner.idle.get().map(|idle| idle());
        let mut state = lock(&inner.state);
        let cores = state.workers();
        state.cost.sample(signals, idle, cores, inner.watch.as_deref());
    }

    fn on_core_grant(&mut self, event: &CoreGrant) {
        lock(&self.shadow.0.state).control().on_core_grant(event);
    }

    fn set_downstream(&mut self, event: &Downstream) {
        lock(&self.shadow.0.state).control().set_downstream(event);
    }

    /// Clients have no credits, whatever the controller would give.
    fn gauges(&self) -> Gauges {
        Gauges { credit_pool: None, credits_issued: None, ..lock(&self.shadow.0.state).control().gauges() }
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
