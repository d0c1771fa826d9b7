//! Changes of setup: the plan is a level that threads read once per turn, between requests. Who sleeps and has no duty any more is woken
//! and parks; who is parked and has one is woken and takes it; old work keeps its hands. Which setup is chosen is the policy's.

use super::connection_set::ConnectionSet;
use super::event::ThreadId;
use super::governor::Governor;
use super::model::Sharing;
use super::run::Run;
use super::thread_pool::{Plan, Slot, ThreadState, ThreadStep};
use leeward_core::units::Nanos;
use leeward_threading::{LeftoverWork, Role, Setup, Tasks};

/// Threads that a crew has besides those of its largest setup: the front and the links find one at once, even if all others are held.
const SPARE: u32 = 2;

impl Run<'_> {
    /// The crew's threads take the first setup's slots.
    pub(super) fn start_pool(&mut self) {
        let (first, most) = self.governor.as_ref().map_or((None, 0), Governor::initial_setup);
        let first = first.unwrap_or(self.tier.setup());
        self.plan = Plan::new(first, LeftoverWork::default(), 0);
        for _ in 0..most.max(first.threads()) + SPARE {
            self.add_thread();
        }
        self.pool_size = self.threads.len();
        // The first threads take the first slots.
        self.parked.reverse();
        self.plan.epoch = 1;
        self.lay_out();
        self.unpark();
    }

    /// Connections for the present plan. What has come and was not taken stays in the order in which it came.
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
        let jobs = self.fronts.iter_mut().flat_map(|inlet| inlet.unread.drain(..)).collect::<Vec<_>>();
        let replies = self.links.iter_mut().flat_map(|inlet| inlet.unread.drain(..)).collect::<Vec<_>>();
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

    /// Another setup is in force from now on. CPU time of the thread that planned it: a call per thread that it wakes.
    pub(super) fn apply(&mut self, setup: Setup) -> Nanos {
        let before = self.cpus.accounting.wakes;
        let owed = LeftoverWork { async_calls: self.async_calls };
        let plan = Plan::new(setup, owed, self.plan.epoch + 1);
        let old = std::mem::replace(&mut self.plan, plan);
        self.lay_out();
        self.workers.clear();
        for thread in 0..self.threads.len() as ThreadId {
            let own = self.threads[thread as usize];
            let Some(slot) = own.slot.filter(|_| own.epoch == old.epoch) else { continue };
            let duty = old.slots[slot].role;
            self.carry_over(thread, slot, duty);
        }
        self.unpark();
        (0..self.fronts.len()).for_each(|front| self.notify_front(front));
        (0..self.links.len()).for_each(|links| self.notify_links(links));
        if !self.queue.is_empty() {
            self.notify_worker();
        }
        self.costs.wake_call * (self.cpus.accounting.wakes - before)
    }

    /// A thread of the old plan keeps its duty if the new plan has it, wherever it waits; else it is woken to see for itself.
    fn carry_over(&mut self, thread: ThreadId, slot: usize, duty: Role) {
        let place = self.threads[thread as usize].state;
        // Who has a request until its end counts as gone: another takes the slot.
        if place == ThreadState::Blocked {
            return;
        }
        let slots = &self.plan.slots;
        let fits = |slot: &Slot| slot.holder.is_none() && slot.role == duty;
        let exact = slots.iter().position(fits);
        // Only a poller must know at once that it is to wait otherwise; others do from their next turn on. So a change from blocking to
        // polling wakes nobody, and whoever was called for a message keeps its place on the way there.
        let polls = matches!(place, ThreadState::PollingFront | ThreadState::PollingLinks);
        let alike = |slot: &Slot| slot.holder.is_none() && !polls && slot.role.tasks == duty.tasks;
        let own = slots.get(slot).filter(|own| alike(own)).map(|_| slot);
        let same = own.or(exact).or_else(|| slots.iter().position(alike));
        let share = same.map(|slot| {
            self.plan.slots[slot].holder = Some(thread);
            let own = &mut self.threads[thread as usize];
            (own.slot, own.epoch) = (Some(slot), self.plan.epoch);
            usize::from(self.plan.slots[slot].share)
        });
        let now = self.now;
        match (place, share) {
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

    /// Wakes a parked thread per slot that nobody has.
    fn unpark(&mut self) {
        let free = self.plan.slots.iter().filter(|slot| slot.holder.is_none()).count();
        for _ in 0..free {
            let Some(thread) = self.parked.pop() else { return };
            self.threads[thread as usize].step = ThreadStep::Poll;
            self.wake(thread);
        }
    }

    /// The duty of a thread and its share of the connections; takes a slot if the plan has changed. `None`: there is none for it.
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

    /// The last reply to a call of an async setup has come: in a sync setup nobody needs to wait for leaves any more.
    pub(super) fn on_last_reply(&mut self) -> Nanos {
        let waits = self.plan.slots.iter().any(|slot| slot.role.tasks.contains(Tasks::AWAIT_LEAVES));
        if self.plan.setup.response == 0 && waits { self.apply(self.plan.setup) } else { Nanos::ZERO }
    }
}
