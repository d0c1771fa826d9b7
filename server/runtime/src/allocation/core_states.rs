//! Which cores are there. Grants and revocations are decided under one lock, which cores that work take only when the
//! allocator's time has come; a core that is parked waits at its bed.
//!
//! The first core is always there. It looks after what the parked ones have left, so whoever leaves something says so
//! ([`Roster::leave_to_first`]), wakes it if it sleeps, and it looks at that before it goes to sleep.

use super::usage::{CoreUsage, UsageCounter};
use super::{Allocation, AllocationMessages};
use crate::sync::{AtomicBool, AtomicU64, Condvar, Mutex, Ordering, Padded, lock, wait};
use leeward_allocation::{Allocator, CoreChange, CoreLimits, CoreSignals, PollSchedule};
use leeward_core::server::CoreGrant;
use leeward_core::units::{Nanos, Time};

/// How often a policy is asked that wants to be asked at every event: it is asked between two jobs, if so much has passed.
const EVENTS: Nanos = Nanos(1_000);

/// Where a core is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CoreState {
    Parked,
    /// Granted, and not awake yet.
    Granted,
    Active,
    /// Parks when it is done with what it is at.
    Revoked,
}

/// Measurements for the allocator.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AllocatorLoad {
    pub(crate) waiting: u32,
    pub(crate) oldest: Nanos,
    /// Sum over the queues of the ages of their oldest entries.
    pub(crate) ages: Nanos,
    /// Time that all cores have had nothing to do, since the start.
    pub(crate) idle: Nanos,
}

/// See the module.
pub(crate) struct CoreStates {
    state: Mutex<State>,
    wakeups: Vec<Condvar>,
    flags: Vec<Padded<CoreFlags>>,
    /// Cores that may park just now.
    parkable: AtomicU64,
    /// When the allocator is to be asked next.
    due: AtomicU64,
    period: Nanos,
    search: Option<Nanos>,
}

/// Flags that are read of a core without the lock.
struct CoreFlags {
    parked: AtomicBool,
    revoked: AtomicBool,
    /// Whether something was left to the first core that it has not looked at.
    has_leftover: AtomicBool,
    /// Whether it has nothing to do.
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
    fn count(&self, place: CoreState) -> u32 {
        self.states.iter().filter(|other| **other == place).count() as u32
    }

    /// Cores that are there and stay, or will be.
    fn allocated(&self) -> u32 {
        self.count(CoreState::Active) + self.count(CoreState::Granted)
    }

    /// Admission control hears that the server has fewer cores.
    fn report_fewer(&self, now: Time) {
        self.admission.cores_changed(&CoreGrant { now, granted: 0, total: self.allocated() });
    }

    /// The least of them stays, however few the limits allow.
    fn parkable(&self) -> u32 {
        self.allocated().saturating_sub(self.limits.min).min(self.count(CoreState::Active).saturating_sub(1))
    }
}

impl CoreStates {
    /// As many cores as there must be are there, the first ones; the others are parked.
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
        let search = allocation.allocator.search();
        let place = |core| if parked(core) { CoreState::Parked } else { CoreState::Active };
        let state = State {
            allocator: allocation.allocator,
            admission: allocation.admission,
            limits,
            states: (0..cores).map(place).collect(),
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
            search,
        }
    }

    /// How long a core looks for work before it parks; `None`: until it is told to.
    pub(crate) fn search(&self) -> Option<Nanos> {
        self.search
    }

    /// Whether `core` is parked, so that the first core looks after what is its.
    pub(crate) fn is_parked(&self, core: usize) -> bool {
        self.flags[core].0.parked.load(Ordering::SeqCst)
    }

    /// The cores that are parked.
    pub(crate) fn parked(&self) -> impl Iterator<Item = usize> {
        (1..self.flags.len()).filter(|core| self.is_parked(*core))
    }

    /// Whether `core` shall park as soon as it can.
    pub(crate) fn is_revoked(&self, core: usize) -> bool {
        self.flags[core].0.revoked.load(Ordering::Relaxed)
    }

    /// Whether a core could be spared just now.
    pub(crate) fn may_park(&self, core: usize) -> bool {
        core > 0 && self.parkable.load(Ordering::Relaxed) > 0
    }

    /// `core` has nothing to do, or has again.
    pub(crate) fn set_idle(&self, core: usize, idle: bool) {
        let flag = &self.flags[core].0.idle;
        if flag.load(Ordering::Relaxed) != idle {
            flag.store(idle, Ordering::Relaxed);
        }
    }

    /// Leaves work of `core`, which is parked, to the first core. The caller wakes the first core afterwards.
    pub(crate) fn mark_leftover(&self, core: usize) {
        self.flags[core].0.has_leftover.store(true, Ordering::Release);
    }

    /// The first core looks at what is left of `core` now.
    pub(crate) fn clear_leftover(&self, core: usize) {
        let left = &self.flags[core].0.has_leftover;
        if left.load(Ordering::Relaxed) {
            left.swap(false, Ordering::Acquire);
        }
    }

    /// Whether anything is left that the first core has not looked at.
    pub(crate) fn has_leftover(&self) -> bool {
        self.flags
            .iter()
            .any(|flags| flags.0.parked.load(Ordering::SeqCst) && flags.0.has_leftover.load(Ordering::Acquire))
    }

    /// Asks the allocator if that is due and no other core is at it, and does what it says; calls `wake` for each core
    /// that shall look at its standing.
    pub(crate) fn tick(&self, now: Time, load: impl FnOnce() -> AllocatorLoad, wake: impl FnMut(usize)) {
        if now.0 < self.due.load(Ordering::Relaxed) {
            return;
        }
        let Ok(mut state) = self.state.try_lock() else { return };
        // Another core may have asked between the look and the lock.
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
        let now_told = TickTotals { rejected, held, idle: load.idle };
        let before = std::mem::replace(&mut state.before, now_told);
        let available = held.saturating_sub(before.held);
        let active = state.count(CoreState::Active);
        let is_idle = |core: &usize| self.flags[*core].0.idle.load(Ordering::Relaxed);
        let here = (0..state.states.len()).filter(|core| state.states[*core] == CoreState::Active);
        CoreSignals {
            now,
            active,
            granting: state.count(CoreState::Granted),
            idle: here.filter(is_idle).count() as u32,
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
            // One that has not left yet is there at once.
            if let Some(core) = state.states.iter().position(|place| *place == CoreState::Revoked) {
                state.states[core] = CoreState::Active;
                self.flags[core].0.revoked.store(false, Ordering::Relaxed);
            } else if let Some(core) = state.states.iter().position(|place| *place == CoreState::Parked) {
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

    /// `core` wants to park: because it was told to, or finds nothing to do. Says whether it may, and then it is: what is
    /// its it must leave to the first core, and rest.
    pub(crate) fn park(&self, core: usize, now: Time) -> bool {
        let mut state = lock(&self.state);
        let leaving = state.states[core] == CoreState::Revoked;
        if core == 0 || state.closing || !(leaving || state.parkable() > 0) {
            return false;
        }
        state.states[core] = CoreState::Parked;
        state.usage.park(core, now);
        let flags = &self.flags[core].0;
        flags.revoked.store(false, Ordering::Relaxed);
        flags.idle.store(false, Ordering::Relaxed);
        flags.parked.store(true, Ordering::SeqCst);
        self.parkable.store(state.parkable().into(), Ordering::Relaxed);
        if !leaving {
            state.report_fewer(now);
        }
        true
    }

    /// Waits until `core`, which is parked, is needed, or all shall end. It is there from then on, and must take back what
    /// is its.
    pub(crate) fn wait_granted(&self, core: usize) {
        let mut state = lock(&self.state);
        while state.states[core] == CoreState::Parked && !state.closing {
            state = wait(&self.wakeups[core], state);
        }
        state.states[core] = CoreState::Active;
        self.flags[core].0.parked.store(false, Ordering::SeqCst);
        self.parkable.store(state.parkable().into(), Ordering::Relaxed);
    }

    /// All cores are needed, to end: those that are parked come, and none parks any more.
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
