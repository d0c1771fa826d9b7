//! Requests that wait for the credits of their leaves before they begin: work for a request that a leaf then refuses would be lost. Never
//! here: how credits are set aside (`shard::reserve`).

use super::gather::Gather;
use super::runtime::{ThreadState, TierRuntime};
use super::service::{MidTier, RequiredLeaves};
use crate::wire::RejectCode;
use leeward_core::units::{Nanos, Time};
use leeward_threading::Tasks;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::Ordering;
use std::time::Duration;

/// A request that can begin, and the shard that its credits are of.
type Startable<S> = (Box<Gather<S>>, Option<usize>);

impl<M: MidTier> TierRuntime<M> {
    /// Has the service name the leaves that a request needs. Whether it needs any, where that matters.
    fn find_required_leaves(&self, gather: &mut Gather<M::State>) -> bool {
        if !self.settings.reserves {
            return false;
        }
        let Gather { inbound: Some(owner), required_leaves: needs, .. } = gather else { return false };
        needs.clear();
        let mut named = RequiredLeaves { required: needs, leaf_count: self.settings.parts_of_data() as u16 };
        let name = || self.service.required_leaves(&owner.request(), &mut named);
        // A panic is told of when the request begins.
        catch_unwind(AssertUnwindSafe(name)).is_ok() && !gather.required_leaves.is_empty()
    }

    /// When a request stops waiting for credits: after half of the objective, for the other half is for what is behind; within its
    /// budget; and before its leaves' own time would be over.
    fn credit_deadline(&self, gather: &Gather<M::State>) -> Time {
        let now = self.clock.now();
        let arrived = gather.inbound.as_ref().map_or(now, |owner| owner.arrival);
        let timeout = self.settings.timeout.unwrap_or(self.objective);
        let left = gather.budget().remaining().unwrap_or(Nanos::MAX).min(timeout);
        (arrived + self.objective / 2).min(now + left)
    }

    /// Waits, on this thread, until a request has a credit at each leaf that it needs; `false`: for too long.
    pub(super) fn await_credits(&self, hand: &mut ThreadState<M::State>, gather: &mut Gather<M::State>) -> bool {
        if !self.find_required_leaves(gather) {
            return true;
        }
        let until = self.credit_deadline(gather);
        let Some(own) = &mut hand.shard else { return true };
        if own.reserve(gather) {
            return true;
        }
        self.gathering.fetch_add(1, Ordering::Relaxed);
        self.notify_blocking();
        own.set_waiting(1);
        // What leaves have said since this thread looked last is news.
        let mut wait = Duration::ZERO;
        let has_all = loop {
            if own.poll(Some(wait)).is_err() || own.reserve(gather) {
                break true;
            }
            let now = self.clock.now();
            if now >= until {
                break false;
            }
            wait = Duration::from_nanos(until.since(now).0);
        };
        own.set_waiting(0);
        self.gathering.fetch_sub(1, Ordering::Relaxed);
        self.notify_blocking();
        hand.last_used = self.clock.now();
        has_all
    }

    /// Sets a request's credits aside on the next of so many shards, which is told if it was asked; `None`: it waits there.
    pub(super) fn reserve_or_park(
        &self,
        hand: &mut ThreadState<M::State>,
        shards: usize,
        mut gather: Box<Gather<M::State>>,
    ) -> Option<Startable<M::State>> {
        if !self.find_required_leaves(&mut gather) {
            return Some((gather, None));
        }
        let (index, until) = (self.next_shard(hand, shards), self.credit_deadline(&gather));
        let shared = &self.shards[index];
        let mut shard = shared.lock();
        if shard.has_no_parked() && shard.reserve(&mut gather) {
            return Some((gather, Some(index)));
        }
        // It is owed from now on, as calls are: some thread has to look at the shard.
        self.control.begin_calls();
        let refused = shard.park(gather, until);
        let has_work = shard.has_work();
        drop(shard);
        if let Some(gather) = refused {
            self.reject_waiting(gather);
            self.control.end_calls();
        }
        shared.request_poll(has_work);
        self.control.notify(Tasks::AWAIT_LEAVES);
        None
    }

    /// Drops a request before it has begun.
    pub(super) fn reject_waiting(&self, mut gather: Box<Gather<M::State>>) {
        if let Some((to, done)) = gather.reject(RejectCode::Delay)
            && self.event_loop.answer(to, done)
        {
            self.control.notify(Tasks::RECEIVE);
        }
        self.pool.keep(gather);
    }
}
