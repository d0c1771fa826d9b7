//! Requests that wait for the credits of their leaves before they begin: work for a request that a leaf then refuses would be lost. Never
//! here: how credits are set aside (`shard::reserve`).

use super::duties::{Hand, Tier};
use super::gather::Gather;
use super::service::{MidTier, Needs};
use crate::wire::DropReason;
use leeward_core::units::{Nanos, Time};
use leeward_threading::Roles;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::Ordering;
use std::time::Duration;

/// A request that can begin, and the shard that its credits are of.
type Begins<S> = (Box<Gather<S>>, Option<usize>);

impl<M: MidTier> Tier<M> {
    /// Has the service name the leaves that a request needs. Whether it needs any, where that matters.
    fn find_needs(&self, gather: &mut Gather<M::State>) -> bool {
        if !self.settings.reserves {
            return false;
        }
        let Gather { owner: Some(owner), needs, .. } = gather else { return false };
        needs.clear();
        let mut named = Needs { named: needs, leaves: self.settings.parts_of_data() as u16 };
        let name = || self.service.needs(&owner.request(), &mut named);
        // A panic is told of when the request begins.
        catch_unwind(AssertUnwindSafe(name)).is_ok() && !gather.needs.is_empty()
    }

    /// When a request stops waiting for credits: after half of the objective, for the other half is for what is behind; within its
    /// budget; and before its leaves' own time would be over.
    fn patience(&self, gather: &Gather<M::State>) -> Time {
        let now = self.clock.now();
        let arrived = gather.owner.as_ref().map_or(now, |owner| owner.arrived);
        let timeout = self.settings.timeout.unwrap_or(self.objective);
        let left = gather.budget().remaining().unwrap_or(Nanos::MAX).min(timeout);
        (arrived + self.objective / 2).min(now + left)
    }

    /// Waits, on this thread, until a request has a credit at each leaf that it needs; `false`: for too long.
    pub(super) fn await_credits(&self, hand: &mut Hand<M::State>, gather: &mut Gather<M::State>) -> bool {
        if !self.find_needs(gather) {
            return true;
        }
        let until = self.patience(gather);
        let Some(own) = &mut hand.own else { return true };
        if own.reserve(gather) {
            return true;
        }
        self.gathering.fetch_add(1, Ordering::Relaxed);
        self.stir();
        own.set_waiting(1);
        // What leaves have said since this thread looked last is news.
        let mut wait = Duration::ZERO;
        let has_all = loop {
            if own.turn(Some(wait)).is_err() || own.reserve(gather) {
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
        self.stir();
        hand.used = self.clock.now();
        has_all
    }

    /// Sets a request's credits aside on the next of so many shards, which is told if it was asked; `None`: it waits there.
    pub(super) fn reserve_or_park(
        &self,
        hand: &mut Hand<M::State>,
        shards: usize,
        mut gather: Box<Gather<M::State>>,
    ) -> Option<Begins<M::State>> {
        if !self.find_needs(&mut gather) {
            return Some((gather, None));
        }
        let (index, until) = (self.next_shard(hand, shards), self.patience(&gather));
        let shared = &self.shards[index];
        let mut shard = shared.lock();
        if shard.is_clear() && shard.reserve(&mut gather) {
            return Some((gather, Some(index)));
        }
        // It is owed from now on, as calls are: some thread has to look at the shard.
        self.control.begin_calls();
        let refused = shard.park(gather, until);
        let has_work = shard.has_work();
        drop(shard);
        if let Some(gather) = refused {
            self.drop_waiting(gather);
            self.control.end_calls();
        }
        shared.look_soon(has_work);
        self.control.call(Roles::LEAVES);
        None
    }

    /// Drops a request before it has begun.
    pub(super) fn drop_waiting(&self, mut gather: Box<Gather<M::State>>) {
        if let Some((to, done)) = gather.drop_for(DropReason::Delay)
            && self.front.answer(to, done)
        {
            self.control.call(Roles::FRONT);
        }
        self.pool.keep(gather);
    }
}
