//! Rehearsals of a server's controller: it decides on the queue that would be if its refusals happened, and they happen to a share of the
//! clients, or to none. As a gate rehearses (decision 66). All cores decide under one mutex meanwhile.
//!
//! - `state`: that queue, and the controller with sessions of its own. `work`: how long requests occupy a core.
//!
//! Clients hear neither of credits nor of thresholds: each sends as it likes. Never here: decisions.

mod state;
mod work;

use crate::sync::{AtomicU64, Mutex, Ordering, lock};
use leeward_core::server::{
    Admission, Arrival, ControlLoop, CoreId, CoresGranted, Departure, Downstream, Feedback, Gauges, Opened,
    RejectReason, ServerHalves, Session, Signals, Verdict,
};
use leeward_core::units::{Nanos, Time};
use leeward_observe::{Reason, Watch};
use state::State;
use std::sync::{Arc, OnceLock};

/// Time in which a server's cores have had nothing to do so far, all together.
type Idle = Box<dyn Fn() -> Nanos + Send + Sync>;

/// A rehearsal under way, for those who tell of it. Clones are the same one.
#[derive(Clone)]
pub struct Rehearsal(Arc<Inner>);

struct Inner {
    /// Clients of a hundred to whom refusals happen.
    percent: u8,
    /// Requests that would have been refused and were not, by the number of the reason.
    foreseen: [AtomicU64; Reason::ALL.len()],
    idle: OnceLock<Idle>,
    watch: Option<Arc<Watch>>,
    state: Mutex<State>,
}

impl Rehearsal {
    /// Has a controller rehearse. Its refusals happen to `percent` of a hundred tenants (connections, where there are no tenants). A watch
    /// is one that looks at these halves already.
    pub fn of(halves: ServerHalves, percent: u8, watch: Option<Arc<Watch>>) -> (ServerHalves, Rehearsal) {
        let (cores, period) = (halves.cores.len(), halves.control.period());
        let rehearsal = Rehearsal(Arc::new(Inner {
            percent,
            foreseen: std::array::from_fn(|_| AtomicU64::new(0)),
            idle: OnceLock::new(),
            watch,
            state: Mutex::new(State::new(halves)),
        }));
        let half = |core| -> Box<dyn Admission> { Box::new(Half { core, rehearsal: rehearsal.clone() }) };
        let control = Box::new(Loop { period, rehearsal: rehearsal.clone() });
        (ServerHalves { cores: (0..cores).map(half).collect(), control }, rehearsal)
    }

    /// How the time is learnt in which the cores have had nothing to do. Until that is known requests take the time of their handlers alone.
    pub fn learns_idle(&self, idle: impl Fn() -> Nanos + Send + Sync + 'static) {
        let _ = self.0.idle.set(Box::new(idle));
    }

    /// Requests that would have been refused for this reason, and were not.
    pub fn foreseen_for(&self, reason: Reason) -> u64 {
        self.0.foreseen[reason as usize].load(Ordering::Relaxed)
    }

    /// Requests that would have been refused, and were not.
    pub fn foreseen(&self) -> u64 {
        Reason::ALL.iter().map(|reason| self.foreseen_for(*reason)).sum()
    }

    /// As metrics name it.
    pub fn word(&self) -> &'static str {
        if self.0.percent == 0 { "shadow" } else { "share" }
    }

    fn foresee(&self, reason: RejectReason) {
        self.0.foreseen[Reason::from(reason) as usize].fetch_add(1, Ordering::Relaxed);
    }
}

impl std::fmt::Debug for Rehearsal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Rehearsal").field("percent", &self.0.percent).field("foreseen", &self.foreseen()).finish()
    }
}

/// The plant's end of a fast half.
struct Half {
    core: usize,
    rehearsal: Rehearsal,
}

impl Admission for Half {
    fn open(&mut self, session: &mut Session, event: &Opened) {
        lock(&self.rehearsal.0.state).open((CoreId(self.core as u32), session.slot), event);
    }

    fn request(&mut self, session: &mut Session, event: &Arrival) -> Verdict {
        let inner = &*self.rehearsal.0;
        let mut state = lock(&inner.state);
        let is_meant = state.is_meant(inner.percent, self.core, session.slot, event.tenant);
        if let Some(watch) = &inner.watch {
            watch.rehearse(self.core, !is_meant);
        }
        let time = state.work.time(self.core, event.method, inner.watch.as_deref());
        let verdict = state.decide(self.core, session.slot, event, time);
        drop(state);
        match verdict {
            Verdict::Reject(reason) if !is_meant => {
                self.rehearsal.foresee(reason);
                Verdict::Admit
            }
            verdict => verdict,
        }
    }

    fn reply(&mut self, _: &mut Session, _: &Departure) -> Feedback {
        Feedback::NONE
    }

    fn close(&mut self, session: &mut Session, _: Time) {
        lock(&self.rehearsal.0.state).close(self.core, session.slot);
    }
}

/// The plant's end of the slow half, which learns from it how long requests take. The controller's own has its turns by the clock of arrival.
struct Loop {
    period: Nanos,
    rehearsal: Rehearsal,
}

impl ControlLoop for Loop {
    fn period(&self) -> Nanos {
        self.period
    }

    fn tick(&mut self, signals: &Signals) {
        let inner = &*self.rehearsal.0;
        let idle = inner.idle.get().map(|idle| idle());
        let mut state = lock(&inner.state);
        let cores = state.workers();
        state.work.look(signals, idle, cores, inner.watch.as_deref());
    }

    fn cores_granted(&mut self, event: &CoresGranted) {
        lock(&self.rehearsal.0.state).control().cores_granted(event);
    }

    fn downstream(&mut self, event: &Downstream) {
        lock(&self.rehearsal.0.state).control().downstream(event);
    }

    /// Clients have no credits, whatever the controller would give.
    fn gauges(&self) -> Gauges {
        Gauges { credit_pool: None, credits_issued: None, ..lock(&self.rehearsal.0.state).control().gauges() }
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
