//! A thread between two requests: where it looks, what it takes, how it waits, and how it is called. What it does with a request is in
//! `serve`.

use super::crew::{Doing, Next, Place};
use super::event::{Event, ThreadId};
use super::run::Run;
use leeward_core::units::Nanos;
use leeward_threading::{Duty, Roles, Wait};

impl Run<'_> {
    /// A thread that has a CPU goes on, until it computes, sleeps or polls.
    pub(super) fn advance(&mut self, thread: ThreadId) {
        loop {
            match self.next(thread) {
                Next::Compute(span, doing) => {
                    self.threads[thread as usize].doing = doing;
                    if span > Nanos::ZERO {
                        self.cpus.compute(thread, span, self.now, &mut self.agenda);
                        return;
                    }
                }
                Next::Sleep(place, doing) => {
                    let own = &mut self.threads[thread as usize];
                    (own.place, own.doing) = (place, doing);
                    self.stir(thread);
                    self.cpus.sleep(thread, self.now, &mut self.agenda);
                    return;
                }
                Next::Poll(place) => {
                    self.threads[thread as usize].place = place;
                    self.cpus.spin(thread, self.now, &mut self.agenda);
                    return;
                }
            }
        }
    }

    fn next(&mut self, thread: ThreadId) -> Next {
        match self.threads[thread as usize].doing {
            Doing::Turn => self.turn(thread),
            Doing::Doze => self.doze(thread),
            doing => self.serve(thread, doing),
        }
    }

    fn turn(&mut self, thread: ThreadId) -> Next {
        let Some((duty, share)) = self.duty(thread) else {
            self.parked.push(thread);
            return Next::Sleep(Place::Parked, Doing::Turn);
        };
        // What was queued first is taken first, whatever the setup is by now.
        if duty.roles.contain(Roles::RUN)
            && let Some(job) = self.queue.pop_front()
        {
            let cost = self.queue_lock.take(self.now, self.costs.push_pop, self.costs.line, 0, Nanos::ZERO);
            if duty.roles.contain(Roles::FRONT) {
                self.fronts[share].called = false;
            }
            let call = self.follow(thread, duty, share);
            return Next::Compute(cost + call, Doing::Begins(job));
        }
        let look = self.costs.poll_turn;
        if duty.roles.contain(Roles::FRONT) {
            self.fronts[share].called = false;
            if let Some(next) = self.receive(thread, share, look) {
                return next;
            }
        } else if duty.roles.contain(Roles::LEAVES) {
            self.links[share].called = false;
            if let Some(next) = self.receive_reply(thread, share, look) {
                return next;
            }
        }
        self.wait(thread, duty, share)
    }

    /// Waits as its duty says.
    fn wait(&mut self, thread: ThreadId, duty: Duty, share: usize) -> Next {
        let at_front = duty.roles.contain(Roles::FRONT);
        let place = if at_front { Place::PollsFront } else { Place::PollsLinks };
        let spin = match duty.wait {
            // A look that finds nothing comes before sleep.
            _ if !at_front && !duty.roles.contain(Roles::LEAVES) => return Next::Compute(Nanos::ZERO, Doing::Doze),
            Wait::Block => return Next::Compute(self.costs.poll_turn, Doing::Doze),
            Wait::Poll => None,
            Wait::PollFor(span) => Some(span),
        };
        self.threads[thread as usize].leads = false;
        if at_front {
            self.fronts[share].poll(thread, self.now)
        } else {
            self.links[share].poll(thread, self.now)
        }
        let own = &mut self.threads[thread as usize];
        own.poll = own.poll.wrapping_add(1);
        if let Some(span) = spin {
            let poll = own.poll;
            self.agenda.schedule(self.now + span, Event::PollEnds(thread, poll));
        }
        Next::Poll(place)
    }

    /// Sleeps, unless something has come since it looked.
    fn doze(&mut self, thread: ThreadId) -> Next {
        let own = self.threads[thread as usize];
        let Some(slot) = own.slot.filter(|_| own.epoch == self.plan.epoch) else {
            return Next::Compute(Nanos::ZERO, Doing::Turn);
        };
        let slot = self.plan.slots[slot];
        let (roles, share) = (slot.duty.roles, usize::from(slot.share));
        let (front, links) = (roles.contain(Roles::FRONT), roles.contain(Roles::LEAVES));
        let come = (roles.contain(Roles::RUN) && !self.queue.is_empty())
            || (front && !self.fronts[share].unread.is_empty())
            || (links && !self.links[share].unread.is_empty());
        if come {
            return Next::Compute(Nanos::ZERO, Doing::Turn);
        }
        self.threads[thread as usize].leads = false;
        if front {
            self.fronts[share].sleepers.push_back(thread);
            return Next::Sleep(Place::AtFront, Doing::Turn);
        }
        if links {
            self.links[share].sleepers.push_back(thread);
            return Next::Sleep(Place::AtLinks, Doing::Turn);
        }
        self.workers.push_back(thread);
        Next::Sleep(Place::AtQueue, Doing::Turn)
    }

    /// Somebody is to see what has come at a front.
    pub(super) fn call_front(&mut self, front: usize) {
        let inlet = &mut self.fronts[front];
        if inlet.unread.is_empty() {
            return;
        }
        if !inlet.pollers.is_empty() {
            if !std::mem::replace(&mut inlet.finding, true) {
                let at = inlet.found_at(self.now, self.costs.poll_turn, self.costs.line);
                self.agenda.schedule(at, Event::FoundAtFront(front as u32));
            }
        } else if !inlet.called
            && let Some(thread) = inlet.sleepers.pop_front()
        {
            inlet.called = true;
            self.threads[thread as usize].leads = true;
            self.wake(thread);
        }
    }

    /// Somebody is to see what has come over links.
    pub(super) fn call_links(&mut self, links: usize) {
        let inlet = &mut self.links[links];
        if inlet.unread.is_empty() {
            return;
        }
        if !inlet.pollers.is_empty() {
            if !std::mem::replace(&mut inlet.finding, true) {
                let at = inlet.found_at(self.now, self.costs.poll_turn, self.costs.line);
                self.agenda.schedule(at, Event::FoundAtLinks(links as u32));
            }
        } else if !inlet.called
            && let Some(thread) = inlet.sleepers.pop_front()
        {
            inlet.called = true;
            self.threads[thread as usize].leads = true;
            self.wake(thread);
        }
    }

    /// Somebody who executes is to see what has been queued. True if a thread was woken.
    pub(super) fn call_queue(&mut self) -> bool {
        if let Some(worker) = self.workers.pop_front() {
            self.wake(worker);
            return true;
        }
        // In-line threads execute as well: after a change of setup, what was queued before is theirs.
        let runs = self.plan.slots.iter().any(|slot| slot.duty.roles.contain(Roles::FRONT | Roles::RUN));
        if !runs {
            return false;
        }
        for front in 0..self.fronts.len() {
            if let Some(thread) = self.fronts[front].sleepers.pop_front() {
                self.wake(thread);
                return true;
            }
            if let Some(thread) = self.fronts[front].pollers.first().copied() {
                self.fronts[front].leave(thread, self.now);
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
        (own.place, own.doing) = (Place::Busy, Doing::Turn);
        self.cpus.compute(thread, Nanos::ZERO, self.now, &mut self.agenda);
    }

    /// The thread that waited for messages names its successor before it does something else. CPU time of the call.
    pub(super) fn follow(&mut self, thread: ThreadId, duty: Duty, share: usize) -> Nanos {
        if !std::mem::take(&mut self.threads[thread as usize].leads) {
            return Nanos::ZERO;
        }
        let successor = if duty.roles.contain(Roles::FRONT) {
            let inlet = &mut self.fronts[share];
            inlet.sleepers.pop_front().inspect(|_| inlet.called = true)
        } else {
            let inlet = &mut self.links[share];
            inlet.sleepers.pop_front().inspect(|_| inlet.called = true)
        };
        let Some(successor) = successor else { return Nanos::ZERO };
        self.threads[successor as usize].leads = true;
        self.wake(successor);
        self.costs.wake_call
    }

    pub(super) fn found_at_front(&mut self, front: usize) {
        let Some(inlet) = self.fronts.get_mut(front) else { return };
        inlet.finding = false;
        let Some(thread) = inlet.pollers.first().copied().filter(|_| !inlet.unread.is_empty()) else {
            self.call_front(front);
            return;
        };
        inlet.leave(thread, self.now);
        self.cpus.stop_spinning(thread, self.now);
        self.threads[thread as usize].place = Place::Busy;
        // Its look has ended with the poll: receiving alone is left.
        if let Some(Next::Compute(span, doing)) = self.receive(thread, front, Nanos::ZERO) {
            self.threads[thread as usize].doing = doing;
            self.cpus.compute(thread, span, self.now, &mut self.agenda);
        }
        self.call_front(front);
    }

    pub(super) fn found_at_links(&mut self, links: usize) {
        let Some(inlet) = self.links.get_mut(links) else { return };
        inlet.finding = false;
        let Some(thread) = inlet.pollers.first().copied().filter(|_| !inlet.unread.is_empty()) else {
            self.call_links(links);
            return;
        };
        inlet.leave(thread, self.now);
        self.cpus.stop_spinning(thread, self.now);
        self.threads[thread as usize].place = Place::Busy;
        if let Some(Next::Compute(span, doing)) = self.receive_reply(thread, links, Nanos::ZERO) {
            self.threads[thread as usize].doing = doing;
            self.cpus.compute(thread, span, self.now, &mut self.agenda);
        }
        self.call_links(links);
    }

    /// A poller's patience is over.
    pub(super) fn poll_ends(&mut self, thread: ThreadId, poll: u32) {
        if self.threads[thread as usize].poll != poll || !self.leave_poll(thread) {
            return;
        }
        self.cpus.stop_spinning(thread, self.now);
        let own = &mut self.threads[thread as usize];
        (own.place, own.doing) = (Place::Busy, Doing::Doze);
        self.cpus.compute(thread, Nanos::ZERO, self.now, &mut self.agenda);
    }

    /// A poller has lost its CPU; it will look when it has one again.
    pub(super) fn spin_ended(&mut self, thread: ThreadId) {
        self.leave_poll(thread);
        let own = &mut self.threads[thread as usize];
        (own.place, own.doing) = (Place::Busy, Doing::Turn);
    }

    /// Takes a thread from the pollers. False if it does not poll.
    fn leave_poll(&mut self, thread: ThreadId) -> bool {
        let now = self.now;
        let place = self.threads[thread as usize].place;
        match place {
            Place::PollsFront => self.fronts.iter_mut().for_each(|inlet| inlet.leave(thread, now)),
            Place::PollsLinks => self.links.iter_mut().for_each(|inlet| inlet.leave(thread, now)),
            _ => return false,
        }
        true
    }
}
