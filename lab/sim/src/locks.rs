//! The application's locks: their holders, their waiters with the times from which they wait, and the counts of both.
//! `run/staged.rs` decides what a core does with a request that waits.

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
    /// The core that it burns, if it spins.
    pub(crate) spinning_core: Option<usize>,
}

/// A lock. Waiters get it in the order in which they came, from hand to hand: the lock is never free while a request
/// waits (Shenango's mutex does the same).
pub(crate) struct Lock {
    name: String,
    /// The holder, and the time at which it got the lock.
    holder: Option<(RequestId, Time)>,
    waiters: VecDeque<Waiter>,
    occupancy: Occupancy,
    /// When the last one that got it after waiting had begun to wait: first in, first out.
    last_served: Time,
    out_of_order: bool,
    acquisitions: u64,
    waited: u64,
    refusals: u64,
    waits: Distribution,
    held_time: u128,
}

/// The measured part of the run.
#[derive(Clone, Copy, Debug)]
struct MeasuredInterval {
    from: Time,
    to: Time,
}

/// All locks of the application.
pub(crate) struct Locks {
    locks: Vec<Lock>,
    measured: MeasuredInterval,
}

impl Locks {
    pub(crate) fn new(names: &[String], warmup: Nanos, duration: Nanos) -> Self {
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
        let measured = MeasuredInterval { from: Time::ZERO + warmup, to: Time::ZERO + duration };
        Locks { locks: names.iter().map(lock).collect(), measured }
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

    /// `waiter` joins the others.
    pub(crate) fn enqueue(&mut self, lock: usize, waiter: Waiter) {
        let own = &mut self.locks[lock];
        own.occupancy.enter(waiter.since);
        own.waiters.push_back(waiter);
    }

    /// A request does not get `lock` and does not wait for it.
    pub(crate) fn reject(&mut self, lock: usize, now: Time) {
        self.locks[lock].refusals += u64::from(now >= self.measured.from);
    }

    /// `request` stops waiting for `lock` without having got it.
    pub(crate) fn cancel_wait(&mut self, lock: usize, request: RequestId, now: Time) -> Option<Waiter> {
        let own = &mut self.locks[lock];
        let place = own.waiters.iter().position(|waiter| waiter.request == request)?;
        let waiter = own.waiters.remove(place)?;
        own.occupancy.leave(now, waiter.since);
        self.reject(lock, now);
        Some(waiter)
    }

    /// The holder gives `lock` back. It is to go on to the [`next`](Self::next) at once.
    pub(crate) fn release(&mut self, lock: usize, now: Time) {
        let own = &mut self.locks[lock];
        if let Some((_, since)) = own.holder.take() {
            own.held_time += self.measured.part(since, now);
        }
    }

    /// The turn of the oldest waiter has come: it waits no longer.
    pub(crate) fn pop_waiter(&mut self, lock: usize, now: Time) -> Option<Waiter> {
        let own = &mut self.locks[lock];
        let next = own.waiters.pop_front()?;
        own.occupancy.leave(now, next.since);
        own.out_of_order |= next.since < own.last_served;
        own.last_served = next.since;
        Some(next)
    }

    /// Gives `lock`, which is free, to the waiter whose turn it is.
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

    /// Contradiction in a lock's own books, in words.
    pub(crate) fn contradiction(&self) -> Option<String> {
        self.locks.iter().find_map(|lock| {
            let name = &lock.name;
            if lock.out_of_order {
                Some(format!("`{name}` did not go to the one that had waited longest"))
            } else if lock.holder.is_none() && !lock.waiters.is_empty() {
                Some(format!("requests wait for `{name}`, which nobody holds"))
            } else if !lock.occupancy.is_consistent() {
                Some(format!("Little's law does not hold for those who wait for `{name}`"))
            } else {
                None
            }
        })
    }

    pub(crate) fn report(self) -> Vec<LockOutcome> {
        let measured = self.measured;
        let span = measured.to.since(measured.from).0.max(1) as f64;
        let one = |lock: Lock| {
            let held_still = lock.holder.map_or(0, |(_, since)| measured.part(since, measured.to));
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
                utilization: Some((lock.held_time + held_still) as f64 / span),
            }
        };
        self.locks.into_iter().map(one).collect()
    }
}

impl Lock {
    fn set_holder(&mut self, request: RequestId, now: Time, waited: Nanos, measured: MeasuredInterval) {
        self.holder = Some((request, now));
        if now >= measured.from {
            self.acquisitions += 1;
            self.waited += u64::from(waited > Nanos::ZERO);
            self.waits.record(waited);
        }
    }
}

impl MeasuredInterval {
    /// How much of a span falls into it, ns.
    fn part(self, from: Time, to: Time) -> u128 {
        to.min(self.to).since(from.max(self.from)).0.into()
    }
}
