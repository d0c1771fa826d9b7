//! Which cores are there. Grants and revocations are decided under one lock, which cores that work take only when the
//! allocator's time has come; a core that is parked waits at its bed.
//!
//! The first core is always there. It looks after what the parked ones have left, so whoever leaves something says so
//! ([`Roster::leave_to_first`]), wakes it if it sleeps, and it looks at that before it goes to sleep.

use super::usage::{CoreUsage, Counting};
use super::{Allocation, Bystander};
use crate::sync::{AtomicBool, AtomicU64, Condvar, Mutex, Ordering, Padded, lock, wait};
use leeward_allocation::{Allocator, Change, CoreLimits, CoreSignals, Pace};
use leeward_core::server::CoresGranted;
use leeward_core::units::{Nanos, Time};

/// How often a policy is asked that wants to be asked at every event: it is asked between two jobs, if so much has passed.
const EVENTS: Nanos = Nanos(1_000);

/// Where a core is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    Parked,
    /// Granted, and not awake yet.
    Coming,
    Here,
    /// Parks when it is done with what it is at.
    Leaving,
}

/// Measurements for the allocator.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Load {
    pub(crate) waiting: u32,
    pub(crate) oldest: Nanos,
    /// Sum over the queues of the ages of their oldest entries.
    pub(crate) ages: Nanos,
    /// Time that all cores have had nothing to do, since the start.
    pub(crate) idle: Nanos,
}

/// See the module.
pub(crate) struct Roster {
    state: Mutex<State>,
    beds: Vec<Condvar>,
    flags: Vec<Padded<Flags>>,
    /// Cores that may park just now.
    spare: AtomicU64,
    /// When the allocator is to be asked next.
    due: AtomicU64,
    period: Nanos,
    search: Option<Nanos>,
}

/// Flags that are read of a core without the lock.
struct Flags {
    parked: AtomicBool,
    leaving: AtomicBool,
    /// Whether something was left to the first core that it has not looked at.
    left: AtomicBool,
    /// Whether it has nothing to do.
    idle: AtomicBool,
}

struct State {
    allocator: Box<dyn Allocator>,
    admission: Box<dyn Bystander>,
    limits: CoreLimits,
    places: Vec<Place>,
    closing: bool,
    usage: Counting,
    before: Before,
}

/// Totals at the allocator's last tick.
#[derive(Clone, Copy, Debug, Default)]
struct Before {
    rejected: u64,
    held: Nanos,
    idle: Nanos,
}

impl State {
    fn count(&self, place: Place) -> u32 {
        self.places.iter().filter(|other| **other == place).count() as u32
    }

    /// Cores that are there and stay, or will be.
    fn allocated(&self) -> u32 {
        self.count(Place::Here) + self.count(Place::Coming)
    }

    /// Admission control hears that the server has fewer cores.
    fn tell_of_fewer(&self, now: Time) {
        self.admission.changed(&CoresGranted { now, granted: 0, total: self.allocated() });
    }

    /// The least of them stays, however few the limits allow.
    fn may_park(&self) -> u32 {
        self.allocated().saturating_sub(self.limits.min).min(self.count(Place::Here).saturating_sub(1))
    }
}

impl Roster {
    /// As many cores as there must be are there, the first ones; the others are parked.
    pub(crate) fn new(allocation: Allocation, cores: usize, now: Time) -> Self {
        let limits = CoreLimits::new(allocation.limits.min, allocation.limits.max.min(cores as u32));
        let parked = |core: usize| core >= limits.min as usize;
        let flags = |core| {
            let flag = AtomicBool::new;
            Padded(Flags { parked: flag(parked(core)), leaving: flag(false), left: flag(false), idle: flag(false) })
        };
        let period = match allocation.allocator.pace() {
            Pace::Periodic(period) => period.max(Nanos(1)),
            Pace::EveryEvent { .. } => EVENTS,
        };
        let search = allocation.allocator.search();
        let place = |core| if parked(core) { Place::Parked } else { Place::Here };
        let state = State {
            allocator: allocation.allocator,
            admission: allocation.admission,
            limits,
            places: (0..cores).map(place).collect(),
            closing: false,
            usage: Counting::new(cores, parked, now),
            before: Before::default(),
        };
        Roster {
            state: Mutex::new(state),
            beds: (0..cores).map(|_| Condvar::new()).collect(),
            flags: (0..cores).map(flags).collect(),
            spare: AtomicU64::new(0),
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
    pub(crate) fn shall_leave(&self, core: usize) -> bool {
        self.flags[core].0.leaving.load(Ordering::Relaxed)
    }

    /// Whether a core could be spared just now.
    pub(crate) fn could_park(&self, core: usize) -> bool {
        core > 0 && self.spare.load(Ordering::Relaxed) > 0
    }

    /// `core` has nothing to do, or has again.
    pub(crate) fn set_idle(&self, core: usize, idle: bool) {
        let flag = &self.flags[core].0.idle;
        if flag.load(Ordering::Relaxed) != idle {
            flag.store(idle, Ordering::Relaxed);
        }
    }

    /// Leaves work of `core`, which is parked, to the first core. The caller wakes the first core afterwards.
    pub(crate) fn leave_to_first(&self, core: usize) {
        self.flags[core].0.left.store(true, Ordering::Release);
    }

    /// The first core looks at what is left of `core` now.
    pub(crate) fn take_left(&self, core: usize) {
        let left = &self.flags[core].0.left;
        if left.load(Ordering::Relaxed) {
            left.swap(false, Ordering::Acquire);
        }
    }

    /// Whether anything is left that the first core has not looked at.
    pub(crate) fn is_left(&self) -> bool {
        self.flags.iter().any(|flags| flags.0.parked.load(Ordering::SeqCst) && flags.0.left.load(Ordering::Acquire))
    }

    /// Asks the allocator if that is due and no other core is at it, and does what it says; calls `wake` for each core
    /// that shall look at its standing.
    pub(crate) fn tick(&self, now: Time, load: impl FnOnce() -> Load, wake: impl FnMut(usize)) {
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
            Change::Keep => {}
            Change::Grant(more) => self.grant(&mut state, more, now),
            Change::Revoke(fewer) => self.revoke(&mut state, fewer, now, wake),
        }
    }

    fn signals(&self, state: &mut State, now: Time, load: &Load) -> CoreSignals {
        let rejected = state.admission.rejected();
        let held = state.usage.held(now);
        let now_told = Before { rejected, held, idle: load.idle };
        let before = std::mem::replace(&mut state.before, now_told);
        let available = held.saturating_sub(before.held);
        let active = state.count(Place::Here);
        let is_idle = |core: &usize| self.flags[*core].0.idle.load(Ordering::Relaxed);
        let here = (0..state.places.len()).filter(|core| state.places[*core] == Place::Here);
        CoreSignals {
            now,
            active,
            granting: state.count(Place::Coming),
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
            if let Some(core) = state.places.iter().position(|place| *place == Place::Leaving) {
                state.places[core] = Place::Here;
                self.flags[core].0.leaving.store(false, Ordering::Relaxed);
            } else if let Some(core) = state.places.iter().position(|place| *place == Place::Parked) {
                state.places[core] = Place::Coming;
                state.usage.come(core, now);
                self.beds[core].notify_one();
            } else {
                break;
            }
            granted += 1;
        }
        if granted > 0 {
            state.usage.grants += u64::from(granted);
            self.spare.store(state.may_park().into(), Ordering::Relaxed);
            state.admission.changed(&CoresGranted { now, granted, total: state.allocated() });
        }
    }

    fn revoke(&self, state: &mut State, cores: u32, now: Time, mut wake: impl FnMut(usize)) {
        let before = state.allocated();
        for _ in 0..cores.min(state.may_park()) {
            let is_idle = |core: &usize| self.flags[*core].0.idle.load(Ordering::Relaxed);
            let staying = |core: &usize| state.places[*core] == Place::Here;
            let cores = 1..state.places.len();
            let core = cores.clone().rev().filter(staying).find(is_idle).or(cores.rev().find(staying));
            let Some(core) = core else { break };
            state.places[core] = Place::Leaving;
            self.flags[core].0.leaving.store(true, Ordering::Relaxed);
            wake(core);
        }
        self.spare.store(state.may_park().into(), Ordering::Relaxed);
        if state.allocated() < before {
            state.tell_of_fewer(now);
        }
    }

    /// `core` wants to park: because it was told to, or finds nothing to do. Says whether it may, and then it is: what is
    /// its it must leave to the first core, and rest.
    pub(crate) fn park(&self, core: usize, now: Time) -> bool {
        let mut state = lock(&self.state);
        let leaving = state.places[core] == Place::Leaving;
        if core == 0 || state.closing || !(leaving || state.may_park() > 0) {
            return false;
        }
        state.places[core] = Place::Parked;
        state.usage.park(core, now);
        let flags = &self.flags[core].0;
        flags.leaving.store(false, Ordering::Relaxed);
        flags.idle.store(false, Ordering::Relaxed);
        flags.parked.store(true, Ordering::SeqCst);
        self.spare.store(state.may_park().into(), Ordering::Relaxed);
        if !leaving {
            state.tell_of_fewer(now);
        }
        true
    }

    /// Waits until `core`, which is parked, is needed, or all shall end. It is there from then on, and must take back what
    /// is its.
    pub(crate) fn rest(&self, core: usize) {
        let mut state = lock(&self.state);
        while state.places[core] == Place::Parked && !state.closing {
            state = wait(&self.beds[core], state);
        }
        state.places[core] = Place::Here;
        self.flags[core].0.parked.store(false, Ordering::SeqCst);
        self.spare.store(state.may_park().into(), Ordering::Relaxed);
    }

    /// All cores are needed, to end: those that are parked come, and none parks any more.
    pub(crate) fn close(&self, now: Time) {
        let mut state = lock(&self.state);
        state.closing = true;
        for core in 0..state.places.len() {
            state.usage.come(core, now);
            self.beds[core].notify_one();
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
mod scripted;
#[cfg(all(test, not(loom)))]
mod tests;
