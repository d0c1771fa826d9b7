//! Requests that wait for credits of their leaves before they begin.
//!
//! Without the wait, the tier would do work for a request that a leaf rejects later. Does not
//! contain how credits are reserved (`shard::reserve`).

use super::gather::Gather;
use super::runtime::{ThreadState, TierRuntime};
use super::service::{MidTier, RequiredLeaves};
use crate::wire::RejectCode;
use leeward_core::units::{Nanos, Time};
use leeward_threading::Tasks;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::Ordering;
use std::time::Duration;

/// A request that can begin, and the index of the shard that holds its credits.
type Startable<S> = (Box<Gather<S>>, Option<usize>);

impl<M: MidTier> TierRuntime<M> {
    /// Asks the service for the leaves that a request needs.
    ///
    /// Returns whether the request needs any, always `false` if the tier does not reserve credits.
    fn find_required_leaves(&self, gather: &mut Gather<M::State>) -> bool {
        if !self.settings.reserves {
            return false;
        }
        let Gather { inbound: Some(inbound), required_leaves: leaves, spare_leaves, .. } = gather else {
            return false;
        };
        leaves.clear();
        let leaf_count = self.settings.parts_of_data() as u16;
        let mut named = RequiredLeaves { required: leaves, leaf_count, percent: 100 };
        let name = || self.service.required_leaves(&inbound.request(), &mut named);
        // The request reports a panic when it begins.
        let is_named = catch_unwind(AssertUnwindSafe(name)).is_ok();
        *spare_leaves = named.spare();
        is_named && !gather.required_leaves.is_empty()
    }

    /// Time at which a request stops waiting for credits.
    ///
    /// The earliest of three: half of the objective (the leaves need the other half), the end of
    /// the request's budget, and the leaves' timeout.
    fn credit_deadline(&self, gather: &Gather<M::State>) -> Time {
        let now = self.clock.now();
        let arrived = gather.inbound.as_ref().map_or(now, |inbound| inbound.arrival);
        let timeout = self.settings.timeout.unwrap_or(self.objective);
        let remaining = gather.budget().remaining().unwrap_or(Nanos::MAX).min(timeout);
        (arrived + self.objective / 2).min(now + remaining)
    }

    /// Blocks this thread until a request has a credit at each leaf that it needs.
    ///
    /// Returns `false` if the deadline has passed.
    pub(super) fn await_credits(&self, state: &mut ThreadState<M::State>, gather: &mut Gather<M::State>) -> bool {
        if !self.find_required_leaves(gather) {
            return true;
        }
        let until = self.credit_deadline(gather);
        let Some(shard) = &mut state.shard else { return true };
        if shard.reserve(gather) {
            return true;
        }
        self.gathering.fetch_add(1, Ordering::Relaxed);
        self.notify_blocking();
        shard.begin_wait(gather);
        shard.report_waiting();
        // The first poll does not wait: leaves may have sent credits since this thread's last poll.
        let mut wait = Duration::ZERO;
        let has_all = loop {
            if shard.poll(Some(wait)).is_err() || shard.reserve(gather) {
                break true;
            }
            let now = self.clock.now();
            if now >= until {
                break false;
            }
            wait = Duration::from_nanos(until.since(now).0);
        };
        shard.end_wait(gather);
        shard.report_waiting();
        self.gathering.fetch_sub(1, Ordering::Relaxed);
        self.notify_blocking();
        state.last_used = self.clock.now();
        has_all
    }

    /// Reserves a request's credits on the next of `shards` shards.
    ///
    /// Returns the shard's index if the request asked for credits. `None`: the request waits in the
    /// shard.
    pub(super) fn reserve_or_park(
        &self,
        state: &mut ThreadState<M::State>,
        shards: usize,
        mut gather: Box<Gather<M::State>>,
    ) -> Option<Startable<M::State>> {
        if !self.find_required_leaves(&mut gather) {
            return Some((gather, None));
        }
        let (index, until) = (self.next_shard(state, shards), self.credit_deadline(&gather));
        let shared = &self.shards[index];
        let mut shard = shared.lock();
        if shard.has_no_parked() && shard.reserve(&mut gather) {
            return Some((gather, Some(index)));
        }
        // The request counts as owed from now on, as calls do: some thread has to poll the shard.
        self.control.begin_calls();
        let rejected = shard.park(gather, until);
        let has_work = shard.has_work();
        drop(shard);
        if let Some(gather) = rejected {
            self.reject_waiting(gather);
            self.control.end_calls();
        }
        shared.request_poll(has_work);
        self.control.notify(Tasks::AWAIT_LEAVES);
        None
    }

    /// Rejects a request before it has begun.
    pub(super) fn reject_waiting(&self, mut gather: Box<Gather<M::State>>) {
        if let Some((client, completed)) = gather.reject(RejectCode::Delay)
            && self.event_loop.answer(client, completed)
        {
            self.control.notify(Tasks::RECEIVE);
        }
        self.pool.keep(gather);
    }
}
