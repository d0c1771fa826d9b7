//! The application's locks: their holders, their waiters with waiting times, and the counters of
//! both.
//!
//! `run/steps.rs` decides how a core handles a request that waits.

use crate::config::MeasuredInterval;
use crate::requests::RequestId;
use crate::stats::Occupancy;
use leeward_core::units::{Nanos, Time};
use leeward_outcome::{Distribution, LockOutcome};
use std::collections::VecDeque;

/// A request that waits for a lock.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Waiter {
    pub(crate) request: RequestId,
    pub(crate) since: Time,
    /// The core that the request occupies, if it spins.
    pub(crate) spinning_core: Option<usize>,
}

/// A lock. Requests get it in order of arrival, by direct handover: the lock is never free while a
/// request waits (as with Shenango's mutex).
pub(crate) struct Lock {
    name: String,
    /// The holder, and the time at which it got the lock.
    holder: Option<(RequestId, Time)>,
    waiters: VecDeque<Waiter>,
    occupancy: Occupancy,
    /// Start of the wait of the last waiter that got the lock; checks the first-in, first-out
    /// order.
    last_served: Time,
    out_of_order: bool,
    acquisitions: u64,
    waited: u64,
    refusals: u64,
    waits: Distribution,
    held_time: u128,
}

/// All locks of the application.
pub(crate) struct Locks {
    locks: Vec<Lock>,
    measured: MeasuredInterval,
}

impl Locks {
    pub(crate) fn new(names: &[String], measured: MeasuredInterval) -> Self {
        let lock = |name: &String| Lock {
            name: name.clone(),
            holder: None,
            waiters: VecDeque::new(),
            occupancy: Occupancy::default(),
            last_served: Time::ZERO,
            out_of_order: false,
            acquisitions: 0,
            waited: 0,
            refusals: 0,
            waits: Distribution::new(),
            held_time: 0,
        };
        Locks { locks: names.iter().map(lock).collect(), measured }
    }

    /// Changes the measured interval. One that has not begun removes what was measured before.
    pub(crate) fn set_interval(&mut self, measured: MeasuredInterval) {
        self.measured = measured;
        if measured == MeasuredInterval::UNDECIDED {
            for lock in &mut self.locks {
                (lock.acquisitions, lock.waited, lock.refusals, lock.held_time) = (0, 0, 0, 0);
                lock.waits.clear();
            }
        }
    }

    /// Takes `lock` if it is free.
    pub(crate) fn acquire(&mut self, lock: usize, request: RequestId, now: Time) -> bool {
        let own = &mut self.locks[lock];
        if own.holder.is_some() {
            return false;
        }
        own.set_holder(request, now, Nanos::ZERO, self.measured);
        true
    }

    /// Age of the oldest waiter; zero if there is none.
    pub(crate) fn delay(&self, lock: usize, now: Time) -> Nanos {
        self.locks[lock].waiters.front().map_or(Nanos::ZERO, |oldest| now.since(oldest.since))
    }

    /// Adds `waiter` to the lock's queue.
    pub(crate) fn enqueue(&mut self, lock: usize, waiter: Waiter) {
        let own = &mut self.locks[lock];
        own.occupancy.enter(waiter.since);
        own.waiters.push_back(waiter);
    }

    /// Counts a request that neither gets `lock` nor waits for it.
    pub(crate) fn reject(&mut self, lock: usize, now: Time) {
        self.locks[lock].refusals += u64::from(self.measured.has_begun(now));
    }

    /// Removes `request` from the waiters of `lock` before it has got the lock.
    pub(crate) fn cancel_wait(&mut self, lock: usize, request: RequestId, now: Time) -> Option<Waiter> {
        let own = &mut self.locks[lock];
        let index = own.waiters.iter().position(|waiter| waiter.request == request)?;
        let waiter = own.waiters.remove(index)?;
        own.occupancy.leave(now, waiter.since);
        self.reject(lock, now);
        Some(waiter)
    }

    /// Releases `lock`. The caller must pass it to [`pop_waiter`](Self::pop_waiter)'s request at
    /// once.
    pub(crate) fn release(&mut self, lock: usize, now: Time) {
        let own = &mut self.locks[lock];
        if let Some((_, since)) = own.holder.take() {
            own.held_time += self.measured.part(since, now);
        }
    }

    /// Removes and returns the oldest waiter.
    pub(crate) fn pop_waiter(&mut self, lock: usize, now: Time) -> Option<Waiter> {
        let own = &mut self.locks[lock];
        let next = own.waiters.pop_front()?;
        own.occupancy.leave(now, next.since);
        own.out_of_order |= next.since < own.last_served;
        own.last_served = next.since;
        Some(next)
    }

    /// Gives `lock`, which is free, to `next`.
    pub(crate) fn grant(&mut self, lock: usize, next: Waiter, now: Time) {
        self.locks[lock].set_holder(next.request, now, now.since(next.since), self.measured);
    }

    /// The holder of `lock`.
    pub(crate) fn holder(&self, lock: usize) -> Option<RequestId> {
        self.locks[lock].holder.map(|(request, _)| request)
    }

    pub(crate) fn waiters(&self, lock: usize) -> usize {
        self.locks[lock].waiters.len()
    }

    pub(crate) fn count(&self) -> usize {
        self.locks.len()
    }

    /// Describes a violated invariant of a lock, if any.
    pub(crate) fn contradiction(&self) -> Option<String> {
        self.locks.iter().find_map(|lock| {
            let name = &lock.name;
            if lock.out_of_order {
                Some(format!("`{name}` did not go to the one that had waited longest"))
            } else if lock.holder.is_none() && !lock.waiters.is_empty() {
                Some(format!("requests wait for `{name}`, which is not held"))
            } else if !lock.occupancy.is_consistent() {
                Some(format!("Little's law does not hold for the requests that wait for `{name}`"))
            } else {
                None
            }
        })
    }

    pub(crate) fn report(self) -> Vec<LockOutcome> {
        let measured = self.measured;
        let span = measured.to.since(measured.from).0.max(1) as f64;
        let outcome = |lock: Lock| {
            let held_at_end = lock.holder.map_or(0, |(_, since)| measured.part(since, measured.to));
            let waits = lock.waits.percentiles();
            LockOutcome {
                name: lock.name,
                kind: None,
                span: measured.to.since(measured.from),
                acquisitions: lock.acquisitions,
                contended: lock.waited,
                rejected: lock.refusals,
                wait_mean_ns: waits.mean_ns,
                wait_p50: waits.p50,
                wait_p99: waits.p99,
                wait_max: Some(waits.max),
                waiting: Some(lock.waiters.len() as u64),
                utilization: Some((lock.held_time + held_at_end) as f64 / span),
            }
        };
        self.locks.into_iter().map(outcome).collect()
    }
}

impl Lock {
    fn set_holder(&mut self, request: RequestId, now: Time, waited: Nanos, measured: MeasuredInterval) {
        self.holder = Some((request, now));
        if measured.has_begun(now) {
            self.acquisitions += 1;
            self.waited += u64::from(waited > Nanos::ZERO);
            self.waits.record(waited);
        }
    }
}
