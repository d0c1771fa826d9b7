//! A thread between two requests: where it polls, what it takes, how it waits, and how it is
//! notified.
//!
//! Its work on a request is in `serve`.

use super::event::{Event, ThreadId};
use super::run::Run;
use super::thread_pool::{ThreadAction, ThreadState, ThreadStep};
use leeward_core::units::Nanos;
use leeward_threading::{Role, Tasks, Wait};

impl Run<'_> {
    /// Lets a thread with a CPU take steps until it computes, sleeps or polls.
    pub(super) fn advance(&mut self, thread: ThreadId) {
        loop {
            match self.next(thread) {
                ThreadAction::Compute(span, step) => {
                    self.threads[thread as usize].step = step;
                    if span > Nanos::ZERO {
                        self.cpus.compute(thread, span, self.now, &mut self.event_queue);
                        return;
                    }
                }
                ThreadAction::Sleep(state, step) => {
                    let own = &mut self.threads[thread as usize];
                    (own.state, own.step) = (state, step);
                    self.mark_blocking_changed(thread);
                    self.cpus.sleep(thread, self.now, &mut self.event_queue);
                    return;
                }
                ThreadAction::Poll(state) => {
                    self.threads[thread as usize].state = state;
                    self.cpus.spin(thread, self.now, &mut self.event_queue);
                    return;
                }
            }
        }
    }

    fn next(&mut self, thread: ThreadId) -> ThreadAction {
        match self.threads[thread as usize].step {
            ThreadStep::Poll => self.poll_once(thread),
            ThreadStep::TrySleep => self.try_sleep(thread),
            step => self.serve(thread, step),
        }
    }

    fn poll_once(&mut self, thread: ThreadId) -> ThreadAction {
        let Some((role, share)) = self.role(thread) else {
            self.parked.push(thread);
            return ThreadAction::Sleep(ThreadState::Parked, ThreadStep::Poll);
        };
        // The queue comes first, in every setup: its requests may be from an earlier one.
        if role.tasks.contains(Tasks::EXECUTE)
            && let Some(job) = self.queue.pop_front()
        {
            let cost = self.queue_lock.acquire(self.now, self.costs.push_pop, self.costs.cache_line, 0, Nanos::ZERO);
            if role.tasks.contains(Tasks::RECEIVE) {
                self.fronts[share].notified = false;
            }
            let call = self.promote_follower(thread, role, share);
            return ThreadAction::Compute(cost + call, ThreadStep::Begin(job));
        }
        let poll_cost = self.costs.poll;
        if role.tasks.contains(Tasks::RECEIVE) {
            self.fronts[share].notified = false;
            if let Some(next) = self.receive(thread, share, poll_cost) {
                return next;
            }
        } else if role.tasks.contains(Tasks::AWAIT_LEAVES) {
            self.links[share].notified = false;
            if let Some(next) = self.receive_reply(thread, share, poll_cost) {
                return next;
            }
        }
        self.wait(thread, role, share)
    }

    /// Lets a thread wait according to its role.
    fn wait(&mut self, thread: ThreadId, role: Role, share: usize) -> ThreadAction {
        let at_front = role.tasks.contains(Tasks::RECEIVE);
        let state = if at_front { ThreadState::PollingFront } else { ThreadState::PollingLinks };
        let spin = match role.wait {
            // A thread polls once more before it sleeps.
            _ if !at_front && !role.tasks.contains(Tasks::AWAIT_LEAVES) => {
                return ThreadAction::Compute(Nanos::ZERO, ThreadStep::TrySleep);
            }
            Wait::Block => return ThreadAction::Compute(self.costs.poll, ThreadStep::TrySleep),
            Wait::Poll => None,
            Wait::PollFor(span) => Some(span),
        };
        self.threads[thread as usize].is_leader = false;
        if at_front {
            self.fronts[share].start_polling(thread, self.now)
        } else {
            self.links[share].start_polling(thread, self.now)
        }
        let own = &mut self.threads[thread as usize];
        own.poll_id = own.poll_id.wrapping_add(1);
        if let Some(span) = spin {
            let poll = own.poll_id;
            self.event_queue.schedule(self.now + span, Event::PollTimeout(thread, poll));
        }
        ThreadAction::Poll(state)
    }

    /// Lets a thread sleep, unless a message has arrived since its poll.
    fn try_sleep(&mut self, thread: ThreadId) -> ThreadAction {
        let own = self.threads[thread as usize];
        let Some(slot) = own.slot.filter(|_| own.epoch == self.plan.epoch) else {
            return ThreadAction::Compute(Nanos::ZERO, ThreadStep::Poll);
        };
        let slot = self.plan.slots[slot];
        let (roles, share) = (slot.role.tasks, usize::from(slot.share));
        let (front, links) = (roles.contains(Tasks::RECEIVE), roles.contains(Tasks::AWAIT_LEAVES));
        let is_ready = (roles.contains(Tasks::EXECUTE) && !self.queue.is_empty())
            || (front && !self.fronts[share].unread.is_empty())
            || (links && !self.links[share].unread.is_empty());
        if is_ready {
            return ThreadAction::Compute(Nanos::ZERO, ThreadStep::Poll);
        }
        self.threads[thread as usize].is_leader = false;
        if front {
            self.fronts[share].sleepers.push_back(thread);
            return ThreadAction::Sleep(ThreadState::AsleepAtFront, ThreadStep::Poll);
        }
        if links {
            self.links[share].sleepers.push_back(thread);
            return ThreadAction::Sleep(ThreadState::AsleepAtLinks, ThreadStep::Poll);
        }
        self.workers.push_back(thread);
        ThreadAction::Sleep(ThreadState::AsleepAtQueue, ThreadStep::Poll)
    }

    /// Notifies a thread of unread requests at a front.
    pub(super) fn notify_front(&mut self, front: usize) {
        let set = &mut self.fronts[front];
        if set.unread.is_empty() {
            return;
        }
        if !set.pollers.is_empty() {
            if !std::mem::replace(&mut set.poll_scheduled, true) {
                let at = set.found_at(self.now, self.costs.poll, self.costs.cache_line);
                self.event_queue.schedule(at, Event::FoundAtFront(front as u32));
            }
        } else if !set.notified
            && let Some(thread) = set.sleepers.pop_front()
        {
            set.notified = true;
            self.threads[thread as usize].is_leader = true;
            self.wake(thread);
        }
    }

    /// Notifies a thread of unread replies on links.
    pub(super) fn notify_links(&mut self, links: usize) {
        let set = &mut self.links[links];
        if set.unread.is_empty() {
            return;
        }
        if !set.pollers.is_empty() {
            if !std::mem::replace(&mut set.poll_scheduled, true) {
                let at = set.found_at(self.now, self.costs.poll, self.costs.cache_line);
                self.event_queue.schedule(at, Event::FoundAtLinks(links as u32));
            }
        } else if !set.notified
            && let Some(thread) = set.sleepers.pop_front()
        {
            set.notified = true;
            self.threads[thread as usize].is_leader = true;
            self.wake(thread);
        }
    }

    /// Notifies an executing thread of a queued request. Returns whether a thread was woken.
    pub(super) fn notify_worker(&mut self) -> bool {
        if let Some(worker) = self.workers.pop_front() {
            self.wake(worker);
            return true;
        }
        // In-line threads execute as well: after a change of setup, they take the requests queued
        // before.
        let runs = self.plan.slots.iter().any(|slot| slot.role.tasks.contains(Tasks::RECEIVE | Tasks::EXECUTE));
        if !runs {
            return false;
        }
        for front in 0..self.fronts.len() {
            if let Some(thread) = self.fronts[front].sleepers.pop_front() {
                self.wake(thread);
                return true;
            }
            if let Some(thread) = self.fronts[front].pollers.first().copied() {
                self.fronts[front].stop_polling(thread, self.now);
                self.resume_poller(thread);
                return false;
            }
        }
        false
    }

    /// Ends the polling of a thread with a CPU; the thread polls once.
    pub(super) fn resume_poller(&mut self, thread: ThreadId) {
        self.cpus.stop_spinning(thread, self.now);
        let own = &mut self.threads[thread as usize];
        (own.state, own.step) = (ThreadState::Busy, ThreadStep::Poll);
        self.cpus.compute(thread, Nanos::ZERO, self.now, &mut self.event_queue);
    }

    /// Promotes a successor before the thread that waited for messages does other work. Returns the
    /// CPU time of the wake-up call.
    pub(super) fn promote_follower(&mut self, thread: ThreadId, role: Role, share: usize) -> Nanos {
        if !std::mem::take(&mut self.threads[thread as usize].is_leader) {
            return Nanos::ZERO;
        }
        let successor = if role.tasks.contains(Tasks::RECEIVE) {
            let set = &mut self.fronts[share];
            set.sleepers.pop_front().inspect(|_| set.notified = true)
        } else {
            let set = &mut self.links[share];
            set.sleepers.pop_front().inspect(|_| set.notified = true)
        };
        let Some(successor) = successor else { return Nanos::ZERO };
        self.threads[successor as usize].is_leader = true;
        self.wake(successor);
        self.costs.wake_call
    }

    pub(super) fn on_front_found(&mut self, front: usize) {
        let Some(set) = self.fronts.get_mut(front) else { return };
        set.poll_scheduled = false;
        let Some(thread) = set.pollers.first().copied().filter(|_| !set.unread.is_empty()) else {
            self.notify_front(front);
            return;
        };
        set.stop_polling(thread, self.now);
        self.cpus.stop_spinning(thread, self.now);
        self.threads[thread as usize].state = ThreadState::Busy;
        // The poll itself is over, so only receiving costs time.
        if let Some(ThreadAction::Compute(span, step)) = self.receive(thread, front, Nanos::ZERO) {
            self.threads[thread as usize].step = step;
            self.cpus.compute(thread, span, self.now, &mut self.event_queue);
        }
        self.notify_front(front);
    }

    pub(super) fn on_links_found(&mut self, links: usize) {
        let Some(set) = self.links.get_mut(links) else { return };
        set.poll_scheduled = false;
        let Some(thread) = set.pollers.first().copied().filter(|_| !set.unread.is_empty()) else {
            self.notify_links(links);
            return;
        };
        set.stop_polling(thread, self.now);
        self.cpus.stop_spinning(thread, self.now);
        self.threads[thread as usize].state = ThreadState::Busy;
        if let Some(ThreadAction::Compute(span, step)) = self.receive_reply(thread, links, Nanos::ZERO) {
            self.threads[thread as usize].step = step;
            self.cpus.compute(thread, span, self.now, &mut self.event_queue);
        }
        self.notify_links(links);
    }

    /// Ends a poll that has reached its time limit.
    pub(super) fn on_poll_timeout(&mut self, thread: ThreadId, poll: u32) {
        if self.threads[thread as usize].poll_id != poll || !self.stop_polling(thread) {
            return;
        }
        self.cpus.stop_spinning(thread, self.now);
        let own = &mut self.threads[thread as usize];
        (own.state, own.step) = (ThreadState::Busy, ThreadStep::TrySleep);
        self.cpus.compute(thread, Nanos::ZERO, self.now, &mut self.event_queue);
    }

    /// Handles a poller's loss of its CPU; the thread polls once it has a CPU again.
    pub(super) fn on_spin_ended(&mut self, thread: ThreadId) {
        self.stop_polling(thread);
        let own = &mut self.threads[thread as usize];
        (own.state, own.step) = (ThreadState::Busy, ThreadStep::Poll);
    }

    /// Removes a thread from the pollers. Returns `false` if it does not poll.
    fn stop_polling(&mut self, thread: ThreadId) -> bool {
        let now = self.now;
        let state = self.threads[thread as usize].state;
        match state {
            ThreadState::PollingFront => self.fronts.iter_mut().for_each(|set| set.stop_polling(thread, now)),
            ThreadState::PollingLinks => self.links.iter_mut().for_each(|set| set.stop_polling(thread, now)),
            _ => return false,
        }
        true
    }
}
