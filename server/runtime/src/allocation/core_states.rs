//! States of the cores under an allocator. Grants and revocations are decided under one lock, which
//! running cores take only when the allocator is due. A parked core waits on its condition
//! variable.
//!
//! The first core is never parked, and serves what parked cores have left. A core that leaves work
//! marks it ([`CoreStates::mark_leftover`]) and wakes the first core if it sleeps. The first core
//! checks the marks before it sleeps.

use super::usage::{CoreUsage, UsageCounter};
use super::{Allocation, AllocationMessages};
use crate::sync::{AtomicBool, AtomicU64, Condvar, Mutex, Ordering, Padded, lock, wait};
use leeward_allocation::{Allocator, CoreChange, CoreLimits, CoreSignals, PollSchedule};
use leeward_core::server::CoreGrant;
use leeward_core::units::{Nanos, Time};

/// Minimum time between two calls of a policy that wants every event. Cores call it between two
/// jobs.
const EVENTS: Nanos = Nanos(1_000);

/// State of a core.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CoreState {
    Parked,
    /// Granted, and not awake yet.
    Granted,
    Active,
    /// Parks after its current work.
    Revoked,
}

/// Load for the allocator.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AllocatorLoad {
    pub(crate) waiting: u32,
    pub(crate) oldest: Nanos,
    /// Sum over the queues of the ages of their oldest entries.
    pub(crate) ages: Nanos,
    /// Idle time of all cores since the start.
    pub(crate) idle: Nanos,
}

/// States of all cores, and the allocator. See the module.
pub(crate) struct CoreStates {
    state: Mutex<State>,
    wakeups: Vec<Condvar>,
    flags: Vec<Padded<CoreFlags>>,
    /// Number of cores that may park now.
    parkable: AtomicU64,
    /// Time at which the allocator is due.
    due: AtomicU64,
    period: Nanos,
    search_time: Option<Nanos>,
}

/// Flags of a core that are read without the lock.
struct CoreFlags {
    parked: AtomicBool,
    revoked: AtomicBool,
    /// Whether the core has leftover work that the first core has not seen.
    has_leftover: AtomicBool,
    /// Whether the core is idle.
    idle: AtomicBool,
}

struct State {
    allocator: Box<dyn Allocator>,
    admission: Box<dyn AllocationMessages>,
    limits: CoreLimits,
    states: Vec<CoreState>,
    closing: bool,
    usage: UsageCounter,
    before: TickTotals,
}

/// Totals at the allocator's last tick.
#[derive(Clone, Copy, Debug, Default)]
struct TickTotals {
    rejected: u64,
    held: Nanos,
    idle: Nanos,
}

impl State {
    fn count(&self, state: CoreState) -> u32 {
        self.states.iter().filter(|other| **other == state).count() as u32
    }

    /// Number of cores that are active or granted.
    fn allocated(&self) -> u32 {
        self.count(CoreState::Active) + self.count(CoreState::Granted)
    }

    /// Reports to admission control that the server has fewer cores.
    fn report_fewer(&self, now: Time) {
        self.admission.cores_changed(&CoreGrant { now, granted: 0, total: self.allocated() });
    }

    /// At least one active core stays, however few the limits allow.
    fn parkable(&self) -> u32 {
        self.allocated().saturating_sub(self.limits.min).min(self.count(CoreState::Active).saturating_sub(1))
    }
}

impl CoreStates {
    /// Makes the states: the first `limits.min` cores are active, the others parked.
    pub(crate) fn new(allocation: Allocation, cores: usize, now: Time) -> Self {
        let limits = CoreLimits::new(allocation.limits.min, allocation.limits.max.min(cores as u32));
        let parked = |core: usize| core >= limits.min as usize;
        let flags = |core| {
            let flag = AtomicBool::new;
            Padded(CoreFlags {
                parked: flag(parked(core)),
                revoked: flag(false),
                has_leftover: flag(false),
                idle: flag(false),
            })
        };
        let period = match allocation.allocator.poll_schedule() {
            PollSchedule::Periodic(period) => period.max(Nanos(1)),
            PollSchedule::EveryEvent { .. } => EVENTS,
        };
        let search_time = allocation.allocator.search();
        let initial = |core| if parked(core) { CoreState::Parked } else { CoreState::Active };
        let state = State {
            allocator: allocation.allocator,
            admission: allocation.admission,
            limits,
            states: (0..cores).map(initial).collect(),
            closing: false,
            usage: UsageCounter::new(cores, parked, now),
            before: TickTotals::default(),
        };
        CoreStates {
            state: Mutex::new(state),
            wakeups: (0..cores).map(|_| Condvar::new()).collect(),
            flags: (0..cores).map(flags).collect(),
            parkable: AtomicU64::new(0),
            due: AtomicU64::new(0),
            period,
            search_time,
        }
    }

    /// Time for which a core looks for work before it parks; `None`: until it is revoked.
    pub(crate) fn search_time(&self) -> Option<Nanos> {
        self.search_time
    }

    /// Returns whether `core` is parked, so that the first core serves its network and queue.
    pub(crate) fn is_parked(&self, core: usize) -> bool {
        self.flags[core].0.parked.load(Ordering::SeqCst)
    }

    /// The parked cores.
    pub(crate) fn parked(&self) -> impl Iterator<Item = usize> {
        (1..self.flags.len()).filter(|core| self.is_parked(*core))
    }

    /// Returns whether `core` must park as soon as it can.
    pub(crate) fn is_revoked(&self, core: usize) -> bool {
        self.flags[core].0.revoked.load(Ordering::Relaxed)
    }

    /// Returns whether `core` may park now.
    pub(crate) fn may_park(&self, core: usize) -> bool {
        core > 0 && self.parkable.load(Ordering::Relaxed) > 0
    }

    /// Notes that `core` is idle, or busy again.
    pub(crate) fn set_idle(&self, core: usize, idle: bool) {
        let flag = &self.flags[core].0.idle;
        if flag.load(Ordering::Relaxed) != idle {
            flag.store(idle, Ordering::Relaxed);
        }
    }

    /// Marks leftover work of `core`, which is parked. The caller wakes the first core afterwards.
    pub(crate) fn mark_leftover(&self, core: usize) {
        self.flags[core].0.has_leftover.store(true, Ordering::Release);
    }

    /// Notes that the first core looks at `core`'s leftover work now.
    pub(crate) fn clear_leftover(&self, core: usize) {
        let leftover = &self.flags[core].0.has_leftover;
        if leftover.load(Ordering::Relaxed) {
            leftover.swap(false, Ordering::Acquire);
        }
    }

    /// Returns whether there is leftover work that the first core has not seen.
    pub(crate) fn has_leftover(&self) -> bool {
        self.flags
            .iter()
            .any(|flags| flags.0.parked.load(Ordering::SeqCst) && flags.0.has_leftover.load(Ordering::Acquire))
    }

    /// Asks the allocator if it is due and no other core does so, and applies its answer. Calls
    /// `wake` for each core that must check its state.
    pub(crate) fn tick(&self, now: Time, load: impl FnOnce() -> AllocatorLoad, wake: impl FnMut(usize)) {
        if now.0 < self.due.load(Ordering::Relaxed) {
            return;
        }
        let Ok(mut state) = self.state.try_lock() else { return };
        // Another core may have asked between the check and the lock.
        if now.0 < self.due.load(Ordering::Relaxed) || state.closing {
            return;
        }
        self.due.store((now + self.period).0, Ordering::Relaxed);
        let signals = self.signals(&mut state, now, &load());
        match state.allocator.tick(&signals) {
            CoreChange::Keep => {}
            CoreChange::Grant(more) => self.grant(&mut state, more, now),
            CoreChange::Revoke(fewer) => self.revoke(&mut state, fewer, now, wake),
        }
    }

    fn signals(&self, state: &mut State, now: Time, load: &AllocatorLoad) -> CoreSignals {
        let rejected = state.admission.rejected();
        let held = state.usage.held(now);
        let totals = TickTotals { rejected, held, idle: load.idle };
        let before = std::mem::replace(&mut state.before, totals);
        let available = held.saturating_sub(before.held);
        let active = state.count(CoreState::Active);
        let is_idle = |core: &usize| self.flags[*core].0.idle.load(Ordering::Relaxed);
        let active_cores = (0..state.states.len()).filter(|core| state.states[*core] == CoreState::Active);
        CoreSignals {
            now,
            active,
            granting: state.count(CoreState::Granted),
            idle: active_cores.filter(is_idle).count() as u32,
            waiting: load.waiting,
            oldest: load.oldest,
            mean_delay: Nanos(load.ages.0 / u64::from(active.max(1))),
            rejected: rejected.saturating_sub(before.rejected),
            busy: available.saturating_sub(load.idle.saturating_sub(before.idle)),
            available,
        }
    }

    fn grant(&self, state: &mut State, cores: u32, now: Time) {
        let mut granted = 0;
        for _ in 0..cores.min(state.limits.max.saturating_sub(state.allocated())) {
            // A revoked core that has not parked yet is available at once.
            if let Some(core) = state.states.iter().position(|entry| *entry == CoreState::Revoked) {
                state.states[core] = CoreState::Active;
                self.flags[core].0.revoked.store(false, Ordering::Relaxed);
            } else if let Some(core) = state.states.iter().position(|entry| *entry == CoreState::Parked) {
                state.states[core] = CoreState::Granted;
                state.usage.unpark(core, now);
                self.wakeups[core].notify_one();
            } else {
                break;
            }
            granted += 1;
        }
        if granted > 0 {
            state.usage.grants += u64::from(granted);
            self.parkable.store(state.parkable().into(), Ordering::Relaxed);
            state.admission.cores_changed(&CoreGrant { now, granted, total: state.allocated() });
        }
    }

    fn revoke(&self, state: &mut State, cores: u32, now: Time, mut wake: impl FnMut(usize)) {
        let before = state.allocated();
        for _ in 0..cores.min(state.parkable()) {
            let is_idle = |core: &usize| self.flags[*core].0.idle.load(Ordering::Relaxed);
            let staying = |core: &usize| state.states[*core] == CoreState::Active;
            let cores = 1..state.states.len();
            let core = cores.clone().rev().filter(staying).find(is_idle).or(cores.rev().find(staying));
            let Some(core) = core else { break };
            state.states[core] = CoreState::Revoked;
            self.flags[core].0.revoked.store(true, Ordering::Relaxed);
            wake(core);
        }
        self.parkable.store(state.parkable().into(), Ordering::Relaxed);
        if state.allocated() < before {
            state.report_fewer(now);
        }
    }

    /// Parks `core`, which is revoked or idle, if it may. Returns whether it may. A parked core
    /// must leave its work to the first core and [wait](Self::wait_granted).
    pub(crate) fn park(&self, core: usize, now: Time) -> bool {
        let mut state = lock(&self.state);
        let is_revoked = state.states[core] == CoreState::Revoked;
        if core == 0 || state.closing || !(is_revoked || state.parkable() > 0) {
            return false;
        }
        state.states[core] = CoreState::Parked;
        state.usage.park(core, now);
        let flags = &self.flags[core].0;
        flags.revoked.store(false, Ordering::Relaxed);
        flags.idle.store(false, Ordering::Relaxed);
        flags.parked.store(true, Ordering::SeqCst);
        self.parkable.store(state.parkable().into(), Ordering::Relaxed);
        if !is_revoked {
            state.report_fewer(now);
        }
        true
    }

    /// Waits until `core`, which is parked, is granted, or all cores must end. The core is active
    /// afterwards, and must take back its network.
    pub(crate) fn wait_granted(&self, core: usize) {
        let mut state = lock(&self.state);
        while state.states[core] == CoreState::Parked && !state.closing {
            state = wait(&self.wakeups[core], state);
        }
        state.states[core] = CoreState::Active;
        self.flags[core].0.parked.store(false, Ordering::SeqCst);
        self.parkable.store(state.parkable().into(), Ordering::Relaxed);
    }

    /// Makes all cores end: parked cores wake, and none parks any more.
    pub(crate) fn close(&self, now: Time) {
        let mut state = lock(&self.state);
        state.closing = true;
        for core in 0..state.states.len() {
            state.usage.unpark(core, now);
            self.wakeups[core].notify_one();
        }
    }

    /// Use of the cores so far.
    pub(crate) fn usage(&self, now: Time) -> CoreUsage {
        let state = lock(&self.state);
        state.usage.report(state.allocated(), now)
    }
}

#[cfg(all(test, loom))]
mod model;
#[cfg(test)]
mod stubs;
#[cfg(all(test, not(loom)))]
mod tests;
