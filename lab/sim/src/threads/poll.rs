//! A thread between two requests: where it looks, what it takes, how it waits, and how it is called. What it does with a request is in
//! `serve`.

use super::event::{Event, ThreadId};
use super::run::Run;
use super::thread_pool::{ThreadAction, ThreadState, ThreadStep};
use leeward_core::units::Nanos;
use leeward_threading::{Role, Tasks, Wait};

impl Run<'_> {
    /// A thread that has a CPU goes on, until it computes, sleeps or polls.
    pub(super) fn advance(&mut self, thread: ThreadId) {
        loop {
            match self.next(thread) {
                ThreadAction::Compute(span, doing) => {
                    self.threads[thread as usize].step = doing;
                    if span > Nanos::ZERO {
                        self.cpus.compute(thread, span, self.now, &mut self.event_queue);
                        return;
                    }
                }
                ThreadAction::Sleep(place, doing) => {
                    let own = &mut self.threads[thread as usize];
                    (own.state, own.step) = (place, doing);
                    self.mark_blocking_changed(thread);
                    self.cpus.sleep(thread, self.now, &mut self.event_queue);
                    return;
                }
                ThreadAction::Poll(place) => {
                    self.threads[thread as usize].state = place;
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
            doing => self.serve(thread, doing),
        }
    }

    fn poll_once(&mut self, thread: ThreadId) -> ThreadAction {
        let Some((duty, share)) = self.role(thread) else {
            self.parked.push(thread);
            return ThreadAction::Sleep(ThreadState::Parked, ThreadStep::Poll);
        };
        // What was queued first is taken first, whatever the setup is by now.
        if duty.tasks.contains(Tasks::EXECUTE)
            && let Some(job) = self.queue.pop_front()
        {
            let cost = self.queue_lock.acquire(self.now, self.costs.push_pop, self.costs.cache_line, 0, Nanos::ZERO);
            if duty.tasks.contains(Tasks::RECEIVE) {
                self.fronts[share].notified = false;
            }
            let call = self.promote_follower(thread, duty, share);
            return ThreadAction::Compute(cost + call, ThreadStep::Begin(job));
        }
        let look = self.costs.poll;
        if duty.tasks.contains(Tasks::RECEIVE) {
            self.fronts[share].notified = false;
            if let Some(next) = self.receive(thread, share, look) {
                return next;
            }
        } else if duty.tasks.contains(Tasks::AWAIT_LEAVES) {
            self.links[share].notified = false;
            if let Some(next) = self.receive_reply(thread, share, look) {
                return next;
            }
        }
        self.wait(thread, duty, share)
    }

    /// Waits as its duty says.
    fn wait(&mut self, thread: ThreadId, duty: Role, share: usize) -> ThreadAction {
        let at_front = duty.tasks.contains(Tasks::RECEIVE);
        let place = if at_front { ThreadState::PollingFront } else { ThreadState::PollingLinks };
        let spin = match duty.wait {
            // A look that finds nothing comes before sleep.
            _ if !at_front && !duty.tasks.contains(Tasks::AWAIT_LEAVES) => {
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
        ThreadAction::Poll(place)
    }

    /// Sleeps, unless something has come since it looked.
    fn try_sleep(&mut self, thread: ThreadId) -> ThreadAction {
        let own = self.threads[thread as usize];
        let Some(slot) = own.slot.filter(|_| own.epoch == self.plan.epoch) else {
            return ThreadAction::Compute(Nanos::ZERO, ThreadStep::Poll);
        };
        let slot = self.plan.slots[slot];
        let (roles, share) = (slot.role.tasks, usize::from(slot.share));
        let (front, links) = (roles.contains(Tasks::RECEIVE), roles.contains(Tasks::AWAIT_LEAVES));
        let come = (roles.contains(Tasks::EXECUTE) && !self.queue.is_empty())
            || (front && !self.fronts[share].unread.is_empty())
            || (links && !self.links[share].unread.is_empty());
        if come {
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

    /// Somebody is to see what has come at a front.
    pub(super) fn notify_front(&mut self, front: usize) {
        let inlet = &mut self.fronts[front];
        if inlet.unread.is_empty() {
            return;
        }
        if !inlet.pollers.is_empty() {
            if !std::mem::replace(&mut inlet.poll_scheduled, true) {
                let at = inlet.found_at(self.now, self.costs.poll, self.costs.cache_line);
                self.event_queue.schedule(at, Event::FoundAtFront(front as u32));
            }
        } else if !inlet.notified
            && let Some(thread) = inlet.sleepers.pop_front()
        {
            inlet.notified = true;
            self.threads[thread as usize].is_leader = true;
            self.wake(thread);
        }
    }

    /// Somebody is to see what has come over links.
    pub(super) fn notify_links(&mut self, links: usize) {
        let inlet = &mut self.links[links];
        if inlet.unread.is_empty() {
            return;
        }
        if !inlet.pollers.is_empty() {
            if !std::mem::replace(&mut inlet.poll_scheduled, true) {
                let at = inlet.found_at(self.now, self.costs.poll, self.costs.cache_line);
                self.event_queue.schedule(at, Event::FoundAtLinks(links as u32));
            }
        } else if !inlet.notified
            && let Some(thread) = inlet.sleepers.pop_front()
        {
            inlet.notified = true;
            self.threads[thread as usize].is_leader = true;
            self.wake(thread);
        }
    }

    /// Somebody who executes is to see what has been queued. True if a thread was woken.
    pub(super) fn notify_worker(&mut self) -> bool {
        if let Some(worker) = self.workers.pop_front() {
            self.wake(worker);
            return true;
        }
        // In-line threads execute as well: after a change of setup, what was queued before is theirs.
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

    /// A poller leaves its poll, with its CPU, and takes its turn.
    pub(super) fn resume_poller(&mut self, thread: ThreadId) {
        self.cpus.stop_spinning(thread, self.now);
        let own = &mut self.threads[thread as usize];
        (own.state, own.step) = (ThreadState::Busy, ThreadStep::Poll);
        self.cpus.compute(thread, Nanos::ZERO, self.now, &mut self.event_queue);
    }

    /// The thread that waited for messages names its successor before it does something else. CPU time of the call.
    pub(super) fn promote_follower(&mut self, thread: ThreadId, duty: Role, share: usize) -> Nanos {
        if !std::mem::take(&mut self.threads[thread as usize].is_leader) {
            return Nanos::ZERO;
        }
        let successor = if duty.tasks.contains(Tasks::RECEIVE) {
            let inlet = &mut self.fronts[share];
            inlet.sleepers.pop_front().inspect(|_| inlet.notified = true)
        } else {
            let inlet = &mut self.links[share];
            inlet.sleepers.pop_front().inspect(|_| inlet.notified = true)
        };
        let Some(successor) = successor else { return Nanos::ZERO };
        self.threads[successor as usize].is_leader = true;
        self.wake(successor);
        self.costs.wake_call
    }

    pub(super) fn on_front_found(&mut self, front: usize) {
        let Some(inlet) = self.fronts.get_mut(front) else { return };
        inlet.poll_scheduled = false;
        let Some(thread) = inlet.pollers.first().copied().filter(|_| !inlet.unread.is_empty()) else {
            self.notify_front(front);
            return;
        };
        inlet.stop_polling(thread, self.now);
        self.cpus.stop_spinning(thread, self.now);
        self.threads[thread as usize].state = ThreadState::Busy;
        // Its look has ended with the poll: receiving alone is left.
        if let Some(ThreadAction::Compute(span, doing)) = self.receive(thread, front, Nanos::ZERO) {
            self.threads[thread as usize].step = doing;
            self.cpus.compute(thread, span, self.now, &mut self.event_queue);
        }
        self.notify_front(front);
    }

    pub(super) fn on_links_found(&mut self, links: usize) {
        let Some(inlet) = self.links.get_mut(links) else { return };
        inlet.poll_scheduled = false;
        let Some(thread) = inlet.pollers.first().copied().filter(|_| !inlet.unread.is_empty()) else {
            self.notify_links(links);
            return;
        };
        inlet.stop_polling(thread, self.now);
        self.cpus.stop_spinning(thread, self.now);
        self.threads[thread as usize].state = ThreadState::Busy;
        if let Some(ThreadAction::Compute(span, doing)) = self.receive_reply(thread, links, Nanos::ZERO) {
            self.threads[thread as usize].step = doing;
            self.cpus.compute(thread, span, self.now, &mut self.event_queue);
        }
        self.notify_links(links);
    }

    /// A poller's patience is over.
    pub(super) fn on_poll_timeout(&mut self, thread: ThreadId, poll: u32) {
        if self.threads[thread as usize].poll_id != poll || !self.stop_polling(thread) {
            return;
        }
        self.cpus.stop_spinning(thread, self.now);
        let own = &mut self.threads[thread as usize];
        (own.state, own.step) = (ThreadState::Busy, ThreadStep::TrySleep);
        self.cpus.compute(thread, Nanos::ZERO, self.now, &mut self.event_queue);
    }

    /// A poller has lost its CPU; it will look when it has one again.
    pub(super) fn on_spin_ended(&mut self, thread: ThreadId) {
        self.stop_polling(thread);
        let own = &mut self.threads[thread as usize];
        (own.state, own.step) = (ThreadState::Busy, ThreadStep::Poll);
    }

    /// Takes a thread from the pollers. False if it does not poll.
    fn stop_polling(&mut self, thread: ThreadId) -> bool {
        let now = self.now;
        let place = self.threads[thread as usize].state;
        match place {
            ThreadState::PollingFront => self.fronts.iter_mut().for_each(|inlet| inlet.stop_polling(thread, now)),
            ThreadState::PollingLinks => self.links.iter_mut().for_each(|inlet| inlet.stop_polling(thread, now)),
            _ => return false,
        }
        true
    }
}
