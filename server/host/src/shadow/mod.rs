//! Shadow mode of a server's controller. The controller decides on the shadow queue that enforced
//! rejections would leave. Its rejections are enforced for a share of the clients, or for none. A
//! gate's shadow mode works alike (decision 66). All cores decide under one mutex meanwhile.
//!
//! - `state`: the shadow queue, and the controller with sessions of its own. `cost`: the time for
//!   which requests occupy a core.
//!
//! Clients get neither credits nor thresholds: each sends as it likes. Does not contain decisions.

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

/// Returns the idle time of all of a server's cores so far.
type Idle = Box<dyn Fn() -> Nanos + Send + Sync>;

/// A controller in shadow mode, with its counts. Clones share it.
#[derive(Clone)]
pub struct ShadowMode(Arc<Inner>);

struct Inner {
    /// Percentage of clients for which rejections are enforced.
    percent: u8,
    /// Requests that were admitted although the controller rejected them, by index of the reason.
    shadow_rejections: [AtomicU64; DecisionReason::ALL.len()],
    idle: OnceLock<Idle>,
    watch: Option<Arc<Watch>>,
    state: Mutex<ShadowState>,
}

impl ShadowMode {
    /// Puts a controller into shadow mode. Its rejections are enforced for `percent` of 100 tenants
    /// (connections, without tenants). `watch` must observe these halves already.
    pub fn of(halves: ServerHalves, percent: u8, watch: Option<Arc<Watch>>) -> (ServerHalves, ShadowMode) {
        let (cores, period) = (halves.cores.len(), halves.control.period());
        let shadow_mode = ShadowMode(Arc::new(Inner {
            percent,
            shadow_rejections: std::array::from_fn(|_| AtomicU64::new(0)),
            idle: OnceLock::new(),
            watch,
            state: Mutex::new(ShadowState::new(halves)),
        }));
        let half = |core| -> Box<dyn Admission> { Box::new(ShadowAdmission { core, shadow: shadow_mode.clone() }) };
        let control = Box::new(ShadowLoop { period, shadow: shadow_mode.clone() });
        (ServerHalves { cores: (0..cores).map(half).collect(), control }, shadow_mode)
    }

    /// Sets the source of the cores' idle time. Until it is set, requests take only their handlers'
    /// time.
    pub fn set_idle_source(&self, idle: impl Fn() -> Nanos + Send + Sync + 'static) {
        let _ = self.0.idle.set(Box::new(idle));
    }

    /// Requests that were admitted although the controller rejected them for this reason.
    pub fn shadow_rejections_for(&self, reason: DecisionReason) -> u64 {
        self.0.shadow_rejections[reason as usize].load(Ordering::Relaxed)
    }

    /// Requests that were admitted although the controller rejected them.
    pub fn shadow_rejections(&self) -> u64 {
        DecisionReason::ALL.iter().map(|reason| self.shadow_rejections_for(*reason)).sum()
    }

    /// Mode name for metrics.
    pub fn name(&self) -> &'static str {
        if self.0.percent == 0 { "shadow" } else { "share" }
    }

    fn count_rejection(&self, reason: RejectReason) {
        self.0.shadow_rejections[DecisionReason::from(reason) as usize].fetch_add(1, Ordering::Relaxed);
    }
}

impl std::fmt::Debug for ShadowMode {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ShadowMode")
            .field("percent", &self.0.percent)
            .field("foreseen", &self.shadow_rejections())
            .finish()
    }
}

/// The fast half that the plant sees.
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
        let is_enforced = state.enforces(inner.percent, self.core, session.slot, event.tenant);
        if let Some(watch) = &inner.watch {
            watch.set_shadow(self.core, !is_enforced);
        }
        let time = state.cost.time(self.core, event.method, inner.watch.as_deref());
        let verdict = state.decide(self.core, session.slot, event, time);
        drop(state);
        match verdict {
            Verdict::Reject(reason) if !is_enforced => {
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

/// The slow half that the plant sees; its ticks update the cost estimate. The controller's own slow
/// half ticks by the shadow queue's arrival clock.
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

    /// Clients have no credits, even if the controller gives some.
    fn gauges(&self) -> Gauges {
        Gauges { credit_pool: None, credits_issued: None, ..lock(&self.shadow.0.state).control().gauges() }
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
