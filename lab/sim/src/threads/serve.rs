//! A thread's work on a request: receiving, beginning, calling leaves, gathering replies,
//! responding.
//!
//! Its work between two requests is in `poll`.

use super::event::{JobId, Reply, ReplyKind, ReplyReceiver, ThreadId};
use super::model::Gather;
use super::run::Run;
use super::second_calls::ReplyEffect;
use super::thread_pool::{Thread, ThreadAction, ThreadState, ThreadStep};
use leeward_core::server::Outcome;
use leeward_core::units::Nanos;
use leeward_threading::{Fanout, Handling};

impl Run<'_> {
    /// Takes the oldest request of a front, if any. `poll_cost` is the cost of the poll that found
    /// it.
    pub(super) fn receive(&mut self, thread: ThreadId, front: usize, poll_cost: Nanos) -> Option<ThreadAction> {
        let job = self.fronts[front].unread.pop_front()?;
        let (locked, rest) = self.costs.split(self.costs.receive);
        let cost = self.lock_front(front, poll_cost + locked) + rest;
        let role = self.threads[thread as usize].slot.map(|slot| self.plan.slots[slot].role);
        let call = role.map_or(Nanos::ZERO, |role| self.promote_follower(thread, role, front));
        Some(ThreadAction::Compute(cost + call, ThreadStep::Received(job)))
    }

    /// Takes the oldest reply on links, if any.
    pub(super) fn receive_reply(&mut self, thread: ThreadId, links: usize, poll_cost: Nanos) -> Option<ThreadAction> {
        let reply = self.links[links].unread.pop_front()?;
        let (locked, rest) = self.costs.split(self.receive_cost(&reply));
        let cost = self.lock_links(links, poll_cost + locked) + rest;
        let role = self.threads[thread as usize].slot.map(|slot| self.plan.slots[slot].role);
        let call = role.map_or(Nanos::ZERO, |role| self.promote_follower(thread, role, links));
        Some(ThreadAction::Compute(cost + call, ThreadStep::Replied(reply)))
    }

    /// CPU time of receiving a reply, without the poll. A timer costs nothing more.
    fn receive_cost(&self, reply: &Reply) -> Nanos {
        if reply.kind == ReplyKind::HedgeTimeout { Nanos::ZERO } else { self.costs.receive }
    }

    fn lock_front(&mut self, front: usize, hold: Nanos) -> Nanos {
        let (poll, line) = (self.costs.poll, self.costs.cache_line);
        let set = &mut self.fronts[front];
        let poll_rest = set.poll_remaining(self.now, poll, line);
        set.lock.acquire(self.now, hold, line, set.pollers.len() as u32, poll_rest)
    }

    fn lock_links(&mut self, links: usize, hold: Nanos) -> Nanos {
        let (poll, line) = (self.costs.poll, self.costs.cache_line);
        let set = &mut self.links[links];
        let poll_rest = set.poll_remaining(self.now, poll, line);
        set.lock.acquire(self.now, hold, line, set.pollers.len() as u32, poll_rest)
    }

    /// Next step of a thread with a request.
    pub(super) fn serve(&mut self, thread: ThreadId, step: ThreadStep) -> ThreadAction {
        match step {
            // `poll` handles these.
            ThreadStep::Poll | ThreadStep::TrySleep => ThreadAction::Compute(Nanos::ZERO, ThreadStep::Poll),
            ThreadStep::Received(job) => self.on_received(job),
            ThreadStep::Pushed(job) => {
                self.queue.push_back(job);
                let woken = self.notify_worker();
                ThreadAction::Compute(if woken { self.costs.wake_call } else { Nanos::ZERO }, ThreadStep::Poll)
            }
            ThreadStep::Begin(job) if !self.may_begin(job) => self.reject(job, Nanos::ZERO),
            ThreadStep::Begin(job) => {
                self.stats.record_start(self.now, &self.jobs[job].base);
                ThreadAction::Compute(self.jobs[job].base.service, ThreadStep::Begun(job))
            }
            ThreadStep::Begun(job) => self.on_begun(job),
            ThreadStep::Sent(job, call) => self.on_sent(thread, job, call),
            ThreadStep::Resent(attempt, timing, to) => self.on_resent(attempt, timing, to),
            ThreadStep::Gather(job) => self.gather(thread, job),
            ThreadStep::Gathered(reply) => self.on_gathered(&reply),
            ThreadStep::Fork(job, call) => self.fork(job, call),
            ThreadStep::Join(job) => {
                if self.jobs[job].pending == 0 {
                    return ThreadAction::Compute(self.tier.resume, ThreadStep::Resumed(job));
                }
                self.jobs[job].blocked_thread = Some(thread);
                ThreadAction::Sleep(ThreadState::Blocked, ThreadStep::Join(job))
            }
            ThreadStep::Replied(reply) => self.on_reply_received(reply),
            ThreadStep::Resumed(job) => {
                let front = self.jobs[job].base.session as usize % self.fronts.len();
                let (locked, rest) = self.costs.split(self.costs.send);
                ThreadAction::Compute(self.lock_front(front, locked) + rest, ThreadStep::Responded(job))
            }
            ThreadStep::Responded(job) => {
                self.second_calls.record_response(self.jobs[job].is_partial);
                self.respond(job, Outcome::Completed);
                ThreadAction::Compute(Nanos::ZERO, ThreadStep::Poll)
            }
            ThreadStep::Rejected(job) => {
                self.respond(job, Outcome::Rejected);
                ThreadAction::Compute(Nanos::ZERO, ThreadStep::Poll)
            }
            ThreadStep::HelperBegin(..)
            | ThreadStep::HelperSent(..)
            | ThreadStep::HelperWait(_)
            | ThreadStep::HelperReceived(_)
            | ThreadStep::HelperIdle => self.help(thread, step),
        }
    }

    fn on_received(&mut self, job: JobId) -> ThreadAction {
        self.stats.record_receive(true);
        let cost = self.take_debt() + self.record_arrival();
        if !self.admit(job) {
            return self.reject(job, cost);
        }
        match self.plan.setup.handling {
            Handling::InLine => ThreadAction::Compute(cost, ThreadStep::Begin(job)),
            Handling::Dispatched => {
                let push =
                    self.queue_lock.acquire(self.now, self.costs.push_pop, self.costs.cache_line, 0, Nanos::ZERO);
                ThreadAction::Compute(cost + push, ThreadStep::Pushed(job))
            }
        }
    }

    /// Sends a request's rejection, from the request's thread.
    fn reject(&mut self, job: JobId, cost: Nanos) -> ThreadAction {
        let front = self.jobs[job].base.session as usize % self.fronts.len();
        let (locked, rest) = self.costs.split(self.costs.send);
        ThreadAction::Compute(cost + self.lock_front(front, locked) + rest, ThreadStep::Rejected(job))
    }

    fn on_begun(&mut self, job: JobId) -> ThreadAction {
        let fanout = self.plan.setup.fanout;
        let link = self.next_link;
        let own = &mut self.jobs[job];
        own.fanout = fanout;
        match (fanout, self.tier.gather) {
            (Fanout::Async, _) => {
                self.next_link = self.next_link.wrapping_add(1) % self.links.len() as u16;
                own.link = link;
                // One more, removed once all calls have left, so that the request does not continue
                // before.
                own.pending += 1;
                self.async_calls += u32::from(own.calls);
                self.send(job, 0)
            }
            (Fanout::Sync, Gather::Own) => self.send(job, 0),
            (Fanout::Sync, Gather::ForkJoin) => ThreadAction::Compute(Nanos::ZERO, ThreadStep::Fork(job, 0)),
        }
    }

    /// Sends a call of a request, from the request's thread.
    fn send(&mut self, job: JobId, call: u16) -> ThreadAction {
        let cost = self.send_cost(job);
        ThreadAction::Compute(cost, ThreadStep::Sent(job, call))
    }

    /// CPU time of sending a call of a request, with the wait for the links' lock.
    pub(super) fn send_cost(&mut self, job: JobId) -> Nanos {
        match self.jobs[job].fanout {
            Fanout::Sync => self.costs.send,
            Fanout::Async => {
                let (locked, rest) = self.costs.split(self.costs.send);
                let links = usize::from(self.jobs[job].link) % self.links.len();
                self.lock_links(links, locked) + rest
            }
        }
    }

    fn on_sent(&mut self, thread: ThreadId, job: JobId, call: u16) -> ThreadAction {
        let own = self.jobs[job];
        let to = if own.fanout == Fanout::Sync { ReplyReceiver::Own(thread) } else { ReplyReceiver::Links(own.link) };
        self.send_call(job, call, to);
        if call + 1 < own.calls {
            return self.send(job, call + 1);
        }
        match own.fanout {
            Fanout::Sync => {
                // The thread's connections hold these late replies before the ones that it waits
                // for.
                let late = std::mem::take(&mut self.threads[thread as usize].late_replies);
                ThreadAction::Compute(self.costs.receive * u64::from(late), ThreadStep::Gather(job))
            }
            Fanout::Async => self.complete_one(job),
        }
    }

    /// Counts down the calls of a request in an async setup, and resumes the request after the
    /// last.
    fn complete_one(&mut self, job: JobId) -> ThreadAction {
        let own = &mut self.jobs[job];
        own.pending -= 1;
        match own.pending {
            0 => ThreadAction::Compute(self.tier.resume, ThreadStep::Resumed(job)),
            _ => ThreadAction::Compute(Nanos::ZERO, ThreadStep::Poll),
        }
    }

    fn on_reply_received(&mut self, reply: Reply) -> ThreadAction {
        let effect = self.apply_reply(&reply);
        let is_message = reply.kind != ReplyKind::HedgeTimeout;
        self.async_calls -= u32::from(is_message);
        let cost = if is_message && self.async_calls == 0 { self.on_last_reply() } else { Nanos::ZERO };
        let next = match effect {
            ReplyEffect::Nothing => ThreadAction::Compute(Nanos::ZERO, ThreadStep::Poll),
            ReplyEffect::Ended => self.complete_one(reply.attempt.job),
            ReplyEffect::Resend(span, step) => ThreadAction::Compute(span, step),
        };
        match next {
            ThreadAction::Compute(span, step) => ThreadAction::Compute(span + cost, step),
            other => other,
        }
    }

    /// Receives replies over the thread's own connections, and sleeps in between.
    fn gather(&mut self, thread: ThreadId, job: JobId) -> ThreadAction {
        if self.jobs[job].pending == 0 {
            while let Some(reply) = self.jobs.receive(job) {
                self.threads[thread as usize].late_replies += u32::from(reply.kind != ReplyKind::HedgeTimeout);
            }
            return ThreadAction::Compute(self.tier.resume, ThreadStep::Resumed(job));
        }
        if let Some(reply) = self.jobs.receive(job) {
            return ThreadAction::Compute(self.costs.poll + self.receive_cost(&reply), ThreadStep::Gathered(reply));
        }
        self.jobs[job].blocked_thread = Some(thread);
        ThreadAction::Sleep(ThreadState::Blocked, ThreadStep::Gather(job))
    }

    /// Applies a reply that a thread has received over its own connections.
    fn on_gathered(&mut self, reply: &Reply) -> ThreadAction {
        let job = reply.attempt.job;
        match self.apply_reply(reply) {
            ReplyEffect::Nothing => {}
            ReplyEffect::Ended => self.jobs[job].pending -= 1,
            ReplyEffect::Resend(span, step) => return ThreadAction::Compute(span, step),
        }
        ThreadAction::Compute(Nanos::ZERO, ThreadStep::Gather(job))
    }

    /// Wakes a helper for `call`; the next step does so for the next call.
    fn fork(&mut self, job: JobId, call: u16) -> ThreadAction {
        if call == self.jobs[job].calls {
            return ThreadAction::Compute(Nanos::ZERO, ThreadStep::Join(job));
        }
        let helper = self.helpers.pop().unwrap_or_else(|| {
            let helper = self.cpus.add_thread();
            self.threads.push(Thread::new(ThreadStep::HelperIdle));
            helper
        });
        let own = &mut self.threads[helper as usize];
        (own.step, own.reply_arrived) = (ThreadStep::HelperBegin(job, call), false);
        self.wake(helper);
        ThreadAction::Compute(self.costs.wake_call, ThreadStep::Fork(job, call + 1))
    }

    fn help(&mut self, thread: ThreadId, step: ThreadStep) -> ThreadAction {
        match step {
            ThreadStep::HelperBegin(job, call) => {
                ThreadAction::Compute(self.costs.send, ThreadStep::HelperSent(job, call))
            }
            ThreadStep::HelperSent(job, call) => {
                self.send_call(job, call, ReplyReceiver::Helper(thread));
                ThreadAction::Compute(Nanos::ZERO, ThreadStep::HelperWait(job))
            }
            ThreadStep::HelperWait(job) if self.threads[thread as usize].reply_arrived => {
                ThreadAction::Compute(self.costs.poll + self.costs.receive, ThreadStep::HelperReceived(job))
            }
            ThreadStep::HelperWait(job) => ThreadAction::Sleep(ThreadState::Blocked, ThreadStep::HelperWait(job)),
            ThreadStep::HelperReceived(job) => {
                self.jobs[job].pending -= 1;
                let sleeper = if self.jobs[job].pending == 0 { self.jobs[job].blocked_thread.take() } else { None };
                let Some(main) = sleeper else { return ThreadAction::Compute(Nanos::ZERO, ThreadStep::HelperIdle) };
                self.wake(main);
                ThreadAction::Compute(self.costs.wake_call, ThreadStep::HelperIdle)
            }
            _ => {
                self.helpers.push(thread);
                ThreadAction::Sleep(ThreadState::Parked, ThreadStep::HelperIdle)
            }
        }
    }
}
