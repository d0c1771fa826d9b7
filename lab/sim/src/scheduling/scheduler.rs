//! The state of all cores of a server with core allocation. `crate::run::cores` handles the work on
//! them.

use super::balancing::{Balancing, DispatchPolicy};
use super::search::Search;
use super::usage::{CoreCounts, Usage};
use super::{InitialCores, RevokePolicy, Scheduling, StealAmount};
use crate::server_queues::Queues;
use leeward_allocation::{Allocator, CoreChange, CoreLimits, CoreSignals, PollSchedule, registry};
use leeward_core::units::{Nanos, Time};
use leeward_outcome::CoreUsage;
use leeward_workload::rng::{Purpose, Rng};

/// Period of additional calls to a policy that decides at every event. Without them, a request
/// could wait for ever if another took the core granted for it.
const FALLBACK_PERIOD: Nanos = Nanos::from_micros(5);

/// A set of cores, of at most 128.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct CoreSet(u128);

impl CoreSet {
    pub(crate) fn has(self, core: usize) -> bool {
        self.0 >> core & 1 == 1
    }

    pub(crate) fn len(self) -> u32 {
        self.0.count_ones()
    }

    pub(crate) fn first(self) -> Option<usize> {
        (self.0 != 0).then(|| self.0.trailing_zeros() as usize)
    }

    pub(crate) fn last(self) -> Option<usize> {
        (self.0 != 0).then(|| 127 - self.0.leading_zeros() as usize)
    }

    pub(crate) fn without(self, other: CoreSet) -> CoreSet {
        CoreSet(self.0 & !other.0)
    }

    pub(crate) fn iter(self) -> impl Iterator<Item = usize> {
        let mut left = self.0;
        std::iter::from_fn(move || {
            let core = CoreSet(left).first()?;
            left &= left - 1;
            Some(core)
        })
    }

    fn put(&mut self, core: usize, inside: bool) {
        let bit = 1u128 << core;
        self.0 = if inside { self.0 | bit } else { self.0 & !bit };
    }

    /// Returns the `index`-th core of the set, from 0.
    fn nth(self, index: u32) -> usize {
        let mut left = self.0;
        for _ in 0..index {
            left &= left - 1;
        }
        left.trailing_zeros() as usize
    }
}

/// The state of all cores.
pub(crate) struct Scheduler {
    pub(crate) balancing: Balancing,
    pub(crate) check_cost: Nanos,
    pub(crate) allocation_delay: Nanos,
    pub(crate) searches: Vec<Search>,
    pub(crate) usage: Usage,
    /// Requests rejected since the allocator's last decision.
    pub(crate) rejected: u64,
    allocator: Box<dyn Allocator>,
    limits: CoreLimits,
    pace: PollSchedule,
    /// Time for which a core searches for work; `None`: until it is revoked.
    search_limit: Option<Nanos>,
    revoke: RevokePolicy,
    pub(crate) steal: StealAmount,
    /// Cores with work or in search of it.
    active: CoreSet,
    /// Active cores that search for work.
    searching: CoreSet,
    /// Active cores that park after their current step.
    leaving: CoreSet,
    /// Granted cores that are not usable yet.
    granting: CoreSet,
    rng: Rng,
}

impl Scheduler {
    /// Creates the state at the beginning of a run, with the minimum number of cores or all of them
    /// active.
    ///
    /// # Errors
    /// An unknown policy, or parameters that the policy rejects, as text.
    pub(crate) fn new(model: &Scheduling, cores: u32, seed: u64) -> Result<Self, String> {
        let limits = model.limits(cores);
        let policy = registry::find(&model.allocator).map_err(|error| error.to_string())?;
        let allocator = policy.build(&model.params, limits).map_err(|error| error.to_string())?;
        let mut scheduler = Scheduler {
            balancing: model.balancing,
            check_cost: model.check_cost,
            allocation_delay: model.allocation_delay,
            searches: vec![Search::new(); cores as usize],
            usage: Usage::default(),
            rejected: 0,
            limits,
            pace: allocator.poll_schedule(),
            search_limit: allocator.search(),
            revoke: model.revoke,
            steal: model.steal,
            allocator,
            active: CoreSet::default(),
            searching: CoreSet::default(),
            leaving: CoreSet::default(),
            granting: CoreSet::default(),
            rng: Rng::new(seed, Purpose::Balancing),
        };
        let initial = if model.start == InitialCores::All { limits.max } else { limits.min };
        for core in 0..initial as usize {
            scheduler.active.put(core, true);
        }
        Ok(scheduler)
    }

    /// Number of queues besides one per core.
    pub(crate) fn extra_queues(model: Option<&Scheduling>) -> usize {
        model.map_or(0, |model| usize::from(matches!(model.balancing.dispatch, DispatchPolicy::Bounded(_))))
    }

    pub(crate) fn period(&self) -> Nanos {
        match self.pace {
            PollSchedule::Periodic(period) => period.max(Nanos(1)),
            PollSchedule::EveryEvent { .. } => FALLBACK_PERIOD,
        }
    }

    /// Whether the policy decides at every arrival.
    pub(crate) fn follows_events(&self) -> bool {
        matches!(self.pace, PollSchedule::EveryEvent { .. })
    }

    /// Whether granted cores are usable at once.
    pub(crate) fn is_instant(&self) -> bool {
        self.pace == PollSchedule::EveryEvent { instant: true }
    }

    pub(crate) fn active(&self) -> CoreSet {
        self.active
    }

    pub(crate) fn searching(&self) -> CoreSet {
        self.searching
    }

    pub(crate) fn is_leaving(&self, core: usize) -> bool {
        self.leaving.has(core)
    }

    /// Cores to which work may be assigned.
    pub(crate) fn assignable(&self) -> CoreSet {
        let staying = self.active.without(self.leaving);
        if staying.len() > 0 { staying } else { self.active }
    }

    /// Core that sends messages of `core`: `core` itself if active, else a searching core, else any
    /// assignable one.
    pub(crate) fn substitute(&self, core: usize) -> usize {
        if self.active.has(core) {
            return core;
        }
        self.searching.first().or(self.assignable().first()).unwrap_or(core)
    }

    /// Draws a core to which work may be assigned.
    pub(crate) fn random_assignable(&mut self) -> usize {
        let candidates = self.assignable();
        let index = self.rng.below(candidates.len().max(1).into());
        candidates.nth(index as u32)
    }

    /// Asks the allocator for a change, limited to the allowed number of cores.
    pub(crate) fn decide(&mut self, now: Time, queues: &Queues, arriving: u32) -> CoreChange {
        let (busy, available) = self.usage.since_tick(now);
        let staying = self.active.without(self.leaving);
        let (oldest, sum) = queues.ages(now);
        let signals = CoreSignals {
            now,
            active: staying.len(),
            granting: self.granting.len(),
            idle: self.searching.without(self.leaving).len(),
            waiting: queues.waiting() as u32 + arriving,
            oldest,
            mean_delay: Nanos(sum.0 / u64::from(self.active.len().max(1))),
            rejected: std::mem::take(&mut self.rejected),
            busy,
            available,
        };
        let allocated = signals.allocated();
        match self.allocator.tick(&signals) {
            CoreChange::Keep => CoreChange::Keep,
            CoreChange::Grant(more) => match more.min(self.limits.max.saturating_sub(allocated)) {
                0 => CoreChange::Keep,
                more => CoreChange::Grant(more),
            },
            CoreChange::Revoke(fewer) => {
                // A grant under way can't be revoked.
                let most = allocated.saturating_sub(self.limits.min).min(signals.active.saturating_sub(1));
                match fewer.min(most) {
                    0 => CoreChange::Keep,
                    fewer => CoreChange::Revoke(fewer),
                }
            }
        }
    }

    /// Number of cores that the server has or has been granted.
    pub(crate) fn allocated(&self) -> u32 {
        self.active.without(self.leaving).len() + self.granting.len()
    }

    /// Cancels a revocation that has not taken effect yet. Returns `false` if there is none.
    pub(crate) fn cancel_revocation(&mut self) -> bool {
        let Some(core) = self.leaving.first() else { return false };
        self.leaving.put(core, false);
        true
    }

    /// Chooses a core to grant and marks it as granting; `None` if all cores are taken.
    pub(crate) fn grant(&mut self, now: Time) -> Option<usize> {
        let taken = CoreSet(self.active.0 | self.granting.0);
        let core = (!taken.0).trailing_zeros() as usize;
        if core >= self.searches.len() {
            return None;
        }
        self.granting.put(core, true);
        self.record_usage(now);
        Some(core)
    }

    /// Makes a granted core usable.
    pub(crate) fn ready(&mut self, now: Time, core: usize) {
        self.granting.put(core, false);
        self.active.put(core, true);
        self.record_usage(now);
    }

    /// Next core to revoke: an idle one if possible, else any that the policy allows.
    pub(crate) fn revocation_candidate(&self) -> Option<usize> {
        let idle = self.searching.without(self.leaving);
        let busy = match self.revoke {
            RevokePolicy::Any => self.active.without(self.leaving),
            RevokePolicy::Idle => CoreSet::default(),
        };
        idle.last().or(busy.last())
    }

    /// Marks `core` for parking after its current step.
    pub(crate) fn mark_leaving(&mut self, core: usize) {
        self.leaving.put(core, true);
    }

    /// Whether `core` may park by itself.
    pub(crate) fn may_park(&self, core: usize) -> bool {
        let staying = self.active.without(self.leaving).len();
        // One core must be active now, even while grants are under way.
        self.allocated() > self.limits.min && staying > 1 || self.leaving.has(core)
    }

    pub(crate) fn park(&mut self, now: Time, core: usize) {
        for set in [&mut self.active, &mut self.searching, &mut self.leaving] {
            set.put(core, false);
        }
        self.usage.record_park();
        self.record_usage(now);
    }

    /// Begins a search for work on `core`.
    pub(crate) fn begin_search(&mut self, now: Time, core: usize) {
        self.searching.put(core, true);
        let others = (self.searches.len() as u64 - 1).max(1);
        let start = self.rng.below(others) as usize;
        let in_order = self.balancing.stealing == super::StealPolicy::InOrder;
        let search = &mut self.searches[core];
        search.since = now;
        search.start = if in_order { 0 } else { start };
        search.until = self.search_limit.map_or(Time::NEVER, |span| now + span);
        search.next = Time::NEVER;
        self.record_usage(now);
    }

    /// Ends the search of `core`.
    pub(crate) fn end_search(&mut self, now: Time, core: usize) {
        if self.searching.has(core) {
            self.searching.put(core, false);
            self.record_usage(now);
        }
    }

    /// Time at which the searching `core` finds the entry that has waited in `queue` since `head`.
    pub(crate) fn discovery_time(&self, core: usize, queue: usize, head: Time, now: Time) -> Time {
        let route = (core, queue, self.searches.len());
        self.searches[core].discovery_time(self.balancing.stealing, self.check_cost, route, head, now)
    }

    pub(crate) fn report(&mut self, end: Time, measured: Nanos) -> CoreUsage {
        let cores = self.searches.len() as u32;
        self.usage.report(end, measured, cores)
    }

    fn record_usage(&mut self, now: Time) {
        let (active, granting, searching) = (self.active.len(), self.granting.len(), self.searching.len());
        self.usage.set(now, CoreCounts { active, granting, searching });
    }
}
