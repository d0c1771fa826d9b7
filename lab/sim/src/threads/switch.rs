//! Changes of setup. Threads read the plan between requests, once per poll.
//!
//! A sleeping thread without a role in the new plan is woken and parks. A parked thread is woken
//! for a free slot. Requests that have begun stay with their threads. Does not contain the choice
//! of setups.

use super::connection_set::ConnectionSet;
use super::event::ThreadId;
use super::governor::Governor;
use super::model::Sharing;
use super::run::Run;
use super::thread_pool::{Plan, Slot, ThreadState, ThreadStep};
use leeward_core::units::Nanos;
use leeward_threading::{LeftoverWork, Role, Setup, Tasks};

/// Number of pool threads beyond the largest setup, so that fronts and links have a thread at once
/// even if all others are blocked.
const SPARE: u32 = 2;

impl Run<'_> {
    /// Creates the pool, whose threads take the initial setup's slots.
    pub(super) fn start_pool(&mut self) {
        let (first, max_threads) = self.governor.as_ref().map_or((None, 0), Governor::initial_setup);
        let first = first.unwrap_or(self.tier.setup());
        self.plan = Plan::new(first, LeftoverWork::default(), 0);
        for _ in 0..max_threads.max(first.threads()) + SPARE {
            self.add_thread();
        }
        self.pool_size = self.threads.len();
        // The first threads take the first slots.
        self.parked.reverse();
        self.plan.epoch = 1;
        self.lay_out();
        self.unpark();
    }

    /// Creates the connection sets of the present plan. Unread messages keep their order of
    /// arrival.
    fn lay_out(&mut self) {
        self.save_lock_counts();
        let fronts = if self.tier.front == Sharing::Shared { 1 } else { self.plan.count(Tasks::RECEIVE) };
        let links = if self.tier.links == Sharing::Shared { 1 } else { self.plan.count(Tasks::AWAIT_LEAVES).max(1) };
        for slot in &mut self.plan.slots {
            let shared = if slot.role.tasks.contains(Tasks::RECEIVE) { self.tier.front } else { self.tier.links };
            if shared == Sharing::Shared {
                slot.share = 0;
            }
        }
        let jobs = self.fronts.iter_mut().flat_map(|set| set.unread.drain(..)).collect::<Vec<_>>();
        let replies = self.links.iter_mut().flat_map(|set| set.unread.drain(..)).collect::<Vec<_>>();
        self.fronts = (0..fronts).map(|_| ConnectionSet::new()).collect();
        self.links = (0..links).map(|_| ConnectionSet::new()).collect();
        for job in jobs {
            let front = self.jobs[job].base.session as usize % fronts;
            self.fronts[front].unread.push_back(job);
        }
        for reply in replies {
            let link = usize::from(self.jobs[reply.attempt.job].link) % links;
            self.links[link].unread.push_back(reply);
        }
        self.next_link %= links as u16;
    }

    /// Applies another setup. Returns the CPU time of the thread that planned it: one call per
    /// thread that it wakes.
    pub(super) fn apply(&mut self, setup: Setup) -> Nanos {
        let before = self.cpus.accounting.wakes;
        let leftover = LeftoverWork { async_calls: self.async_calls };
        let plan = Plan::new(setup, leftover, self.plan.epoch + 1);
        let old = std::mem::replace(&mut self.plan, plan);
        self.lay_out();
        self.workers.clear();
        for thread in 0..self.threads.len() as ThreadId {
            let own = self.threads[thread as usize];
            let Some(slot) = own.slot.filter(|_| own.epoch == old.epoch) else { continue };
            let role = old.slots[slot].role;
            self.carry_over(thread, slot, role);
        }
        self.unpark();
        (0..self.fronts.len()).for_each(|front| self.notify_front(front));
        (0..self.links.len()).for_each(|links| self.notify_links(links));
        if !self.queue.is_empty() {
            self.notify_worker();
        }
        self.costs.wake_call * (self.cpus.accounting.wakes - before)
    }

    /// Keeps a thread of the old plan in its role if the new plan has that role, else wakes it.
    fn carry_over(&mut self, thread: ThreadId, slot: usize, role: Role) {
        let state = self.threads[thread as usize].state;
        // A thread that is blocked with a request loses its slot to another thread.
        if state == ThreadState::Blocked {
            return;
        }
        let slots = &self.plan.slots;
        let fits = |slot: &Slot| slot.holder.is_none() && slot.role == role;
        let exact = slots.iter().position(fits);
        // Only a poller must change its way of waiting at once; other threads do so at their next
        // poll. So a change from blocking to polling wakes no thread, and a thread woken for a
        // message keeps its slot.
        let polls = matches!(state, ThreadState::PollingFront | ThreadState::PollingLinks);
        let alike = |slot: &Slot| slot.holder.is_none() && !polls && slot.role.tasks == role.tasks;
        let own = slots.get(slot).filter(|own| alike(own)).map(|_| slot);
        let same = own.or(exact).or_else(|| slots.iter().position(alike));
        let share = same.map(|slot| {
            self.plan.slots[slot].holder = Some(thread);
            let own = &mut self.threads[thread as usize];
            (own.slot, own.epoch) = (Some(slot), self.plan.epoch);
            usize::from(self.plan.slots[slot].share)
        });
        let now = self.now;
        match (state, share) {
            (ThreadState::AsleepAtFront, Some(share)) => self.fronts[share].sleepers.push_back(thread),
            (ThreadState::AsleepAtLinks, Some(share)) => self.links[share].sleepers.push_back(thread),
            (ThreadState::AsleepAtQueue, Some(_)) => self.workers.push_back(thread),
            (ThreadState::PollingFront, Some(share)) => self.fronts[share].start_polling(thread, now),
            (ThreadState::PollingLinks, Some(share)) => self.links[share].start_polling(thread, now),
            (ThreadState::AsleepAtFront | ThreadState::AsleepAtLinks | ThreadState::AsleepAtQueue, None) => {
                self.wake(thread)
            }
            (ThreadState::PollingFront | ThreadState::PollingLinks, None) => self.resume_poller(thread),
            (ThreadState::Busy | ThreadState::Blocked | ThreadState::Parked, _) => {}
        }
    }

    /// Wakes a parked thread for each free slot.
    fn unpark(&mut self) {
        let free = self.plan.slots.iter().filter(|slot| slot.holder.is_none()).count();
        for _ in 0..free {
            let Some(thread) = self.parked.pop() else { return };
            self.threads[thread as usize].step = ThreadStep::Poll;
            self.wake(thread);
        }
    }

    /// Role of a thread and its share of the connections. Takes a slot if the plan has changed.
    /// `None`: no slot is free.
    pub(super) fn role(&mut self, thread: ThreadId) -> Option<(Role, usize)> {
        let own = self.threads[thread as usize];
        let slot = match own.slot {
            Some(slot) if own.epoch == self.plan.epoch => Some(slot),
            _ => {
                self.threads[thread as usize].is_leader = false;
                let slot = self.plan.free_slot();
                if let Some(slot) = slot {
                    self.plan.slots[slot].holder = Some(thread);
                }
                slot
            }
        };
        let own = &mut self.threads[thread as usize];
        (own.slot, own.epoch) = (slot, self.plan.epoch);
        let slot = self.plan.slots[slot?];
        Some((slot.role, usize::from(slot.share)))
    }

    /// Handles the last reply of an async setup's calls. In a sync setup no thread needs to wait
    /// for leaves any more.
    pub(super) fn on_last_reply(&mut self) -> Nanos {
        let waits = self.plan.slots.iter().any(|slot| slot.role.tasks.contains(Tasks::AWAIT_LEAVES));
        if self.plan.setup.response == 0 && waits { self.apply(self.plan.setup) } else { Nanos::ZERO }
    }
}
