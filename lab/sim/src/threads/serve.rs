//! A request in the hands of threads: received, begun, its leaves asked, its replies gathered, answered. What a thread does between two
//! requests is in `turn`.

use super::crew::{Doing, Next, Place, Thread};
use super::event::{JobId, News, Reply, Route, ThreadId};
use super::model::Gather;
use super::run::Run;
use super::second::Heard;
use leeward_core::server::Outcome;
use leeward_core::units::Nanos;
use leeward_threading::{Fanout, Handling};

impl Run<'_> {
    /// Takes the oldest request of a front, if there is one; `look` is what looking has cost.
    pub(super) fn receive(&mut self, thread: ThreadId, front: usize, look: Nanos) -> Option<Next> {
        let job = self.fronts[front].unread.pop_front()?;
        let (locked, rest) = self.costs.split(self.costs.receive);
        let cost = self.lock_front(front, look + locked) + rest;
        let duty = self.threads[thread as usize].slot.map(|slot| self.plan.slots[slot].duty);
        let call = duty.map_or(Nanos::ZERO, |duty| self.follow(thread, duty, front));
        Some(Next::Compute(cost + call, Doing::Received(job)))
    }

    /// Takes the oldest reply of links, if there is one.
    pub(super) fn receive_reply(&mut self, thread: ThreadId, links: usize, look: Nanos) -> Option<Next> {
        let reply = self.links[links].unread.pop_front()?;
        let (locked, rest) = self.costs.split(self.receive_cost(&reply));
        let cost = self.lock_links(links, look + locked) + rest;
        let duty = self.threads[thread as usize].slot.map(|slot| self.plan.slots[slot].duty);
        let call = duty.map_or(Nanos::ZERO, |duty| self.follow(thread, duty, links));
        Some(Next::Compute(cost + call, Doing::Replied(reply)))
    }

    /// Receiving news, besides the look; a timer is seen by the look alone.
    fn receive_cost(&self, reply: &Reply) -> Nanos {
        if reply.news == News::TakesLong { Nanos::ZERO } else { self.costs.receive }
    }

    fn lock_front(&mut self, front: usize, hold: Nanos) -> Nanos {
        let (look, line) = (self.costs.poll_turn, self.costs.line);
        let inlet = &mut self.fronts[front];
        let look_ends = inlet.look_ends(self.now, look, line);
        inlet.lock.take(self.now, hold, line, inlet.pollers.len() as u32, look_ends)
    }

    fn lock_links(&mut self, links: usize, hold: Nanos) -> Nanos {
        let (look, line) = (self.costs.poll_turn, self.costs.line);
        let inlet = &mut self.links[links];
        let look_ends = inlet.look_ends(self.now, look, line);
        inlet.lock.take(self.now, hold, line, inlet.pollers.len() as u32, look_ends)
    }

    /// The next step of a thread that has to do with a request.
    pub(super) fn serve(&mut self, thread: ThreadId, doing: Doing) -> Next {
        match doing {
            // `turn` has these.
            Doing::Turn | Doing::Doze => Next::Compute(Nanos::ZERO, Doing::Turn),
            Doing::Received(job) => self.received(job),
            Doing::Pushed(job) => {
                self.queue.push_back(job);
                let woken = self.call_queue();
                Next::Compute(if woken { self.costs.wake_call } else { Nanos::ZERO }, Doing::Turn)
            }
            Doing::Begins(job) if !self.may_begin(job) => self.refuse(job, Nanos::ZERO),
            Doing::Begins(job) => {
                self.stats.started(self.now, &self.jobs[job].base);
                Next::Compute(self.jobs[job].base.service, Doing::Begun(job))
            }
            Doing::Begun(job) => self.begun(job),
            Doing::Sent(job, call) => self.sent(thread, job, call),
            Doing::Resent(leg, draw, to) => self.resent(leg, draw, to),
            Doing::Gathers(job) => self.gathers(thread, job),
            Doing::Gathered(reply) => self.gathered(&reply),
            Doing::Forks(job, call) => self.forks(job, call),
            Doing::Joins(job) => {
                if self.jobs[job].left == 0 {
                    return Next::Compute(self.tier.resume, Doing::Resumed(job));
                }
                self.jobs[job].sleeper = Some(thread);
                Next::Sleep(Place::Held, Doing::Joins(job))
            }
            Doing::Replied(reply) => self.replied(reply),
            Doing::Resumed(job) => {
                let front = self.jobs[job].base.session as usize % self.fronts.len();
                let (locked, rest) = self.costs.split(self.costs.send);
                Next::Compute(self.lock_front(front, locked) + rest, Doing::Answered(job))
            }
            Doing::Answered(job) => {
                self.seconds.answered(self.jobs[job].is_partial);
                self.respond(job, Outcome::Completed);
                Next::Compute(Nanos::ZERO, Doing::Turn)
            }
            Doing::Refused(job) => {
                self.respond(job, Outcome::Dropped);
                Next::Compute(Nanos::ZERO, Doing::Turn)
            }
            Doing::Helps(..)
            | Doing::HelperSent(..)
            | Doing::HelperWaits(_)
            | Doing::HelperReceived(_)
            | Doing::HelperRests => self.help(thread, doing),
        }
    }

    fn received(&mut self, job: JobId) -> Next {
        self.stats.received(true);
        let cost = self.debt() + self.arrival_is_recorded();
        if !self.admits(job) {
            return self.refuse(job, cost);
        }
        match self.plan.setup.handling {
            Handling::InLine => Next::Compute(cost, Doing::Begins(job)),
            Handling::Dispatched => {
                let push = self.queue_lock.take(self.now, self.costs.push_pop, self.costs.line, 0, Nanos::ZERO);
                Next::Compute(cost + push, Doing::Pushed(job))
            }
        }
    }

    /// Sends the drop of a request that the controller refuses, from the thread that has it.
    fn refuse(&mut self, job: JobId, cost: Nanos) -> Next {
        let front = self.jobs[job].base.session as usize % self.fronts.len();
        let (locked, rest) = self.costs.split(self.costs.send);
        Next::Compute(cost + self.lock_front(front, locked) + rest, Doing::Refused(job))
    }

    fn begun(&mut self, job: JobId) -> Next {
        let fanout = self.plan.setup.fanout;
        let link = self.next_link;
        let own = &mut self.jobs[job];
        own.fanout = fanout;
        match (fanout, self.tier.gather) {
            (Fanout::Async, _) => {
                self.next_link = self.next_link.wrapping_add(1) % self.links.len() as u16;
                own.link = link;
                // One more, taken off when all calls have left: nothing continues before.
                own.left += 1;
                self.async_calls += u32::from(own.calls);
                self.send(job, 0)
            }
            (Fanout::Sync, Gather::Own) => self.send(job, 0),
            (Fanout::Sync, Gather::ForkJoin) => Next::Compute(Nanos::ZERO, Doing::Forks(job, 0)),
        }
    }

    /// Sends a call of a request, from the thread that has it.
    fn send(&mut self, job: JobId, call: u16) -> Next {
        let cost = self.send_cost(job);
        Next::Compute(cost, Doing::Sent(job, call))
    }

    /// CPU time of sending a call of a request, waiting for the links' lock included.
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

    fn sent(&mut self, thread: ThreadId, job: JobId, call: u16) -> Next {
        let own = self.jobs[job];
        let to = if own.fanout == Fanout::Sync { Route::Own(thread) } else { Route::Links(own.link) };
        self.leaves(job, call, to);
        if call + 1 < own.calls {
            return self.send(job, call + 1);
        }
        match own.fanout {
            Fanout::Sync => {
                // Its connections have these before the replies that it waits for.
                let late = std::mem::take(&mut self.threads[thread as usize].late);
                Next::Compute(self.costs.receive * u64::from(late), Doing::Gathers(job))
            }
            Fanout::Async => self.one_less(job),
        }
    }

    /// A request of an async setup waits for one reply less, or its calls have all left.
    fn one_less(&mut self, job: JobId) -> Next {
        let own = &mut self.jobs[job];
        own.left -= 1;
        match own.left {
            0 => Next::Compute(self.tier.resume, Doing::Resumed(job)),
            _ => Next::Compute(Nanos::ZERO, Doing::Turn),
        }
    }

    fn replied(&mut self, reply: Reply) -> Next {
        let heard = self.heard(&reply);
        let is_message = reply.news != News::TakesLong;
        self.async_calls -= u32::from(is_message);
        let cost = if is_message && self.async_calls == 0 { self.last_reply() } else { Nanos::ZERO };
        let next = match heard {
            Heard::Nothing => Next::Compute(Nanos::ZERO, Doing::Turn),
            Heard::Ended => self.one_less(reply.leg.job),
            Heard::Again(span, doing) => Next::Compute(span, doing),
        };
        match next {
            Next::Compute(span, doing) => Next::Compute(span + cost, doing),
            other => other,
        }
    }

    /// Over its own connections a thread receives what has come, and sleeps in between.
    fn gathers(&mut self, thread: ThreadId, job: JobId) -> Next {
        if self.jobs[job].left == 0 {
            while let Some(reply) = self.jobs.receive(job) {
                self.threads[thread as usize].late += u32::from(reply.news != News::TakesLong);
            }
            return Next::Compute(self.tier.resume, Doing::Resumed(job));
        }
        if let Some(reply) = self.jobs.receive(job) {
            return Next::Compute(self.costs.poll_turn + self.receive_cost(&reply), Doing::Gathered(reply));
        }
        self.jobs[job].sleeper = Some(thread);
        Next::Sleep(Place::Held, Doing::Gathers(job))
    }

    /// A thread has received news over its own connections.
    fn gathered(&mut self, reply: &Reply) -> Next {
        let job = reply.leg.job;
        match self.heard(reply) {
            Heard::Nothing => {}
            Heard::Ended => self.jobs[job].left -= 1,
            Heard::Again(span, doing) => return Next::Compute(span, doing),
        }
        Next::Compute(Nanos::ZERO, Doing::Gathers(job))
    }

    /// Wakes a helper for `call`, then for the next.
    fn forks(&mut self, job: JobId, call: u16) -> Next {
        if call == self.jobs[job].calls {
            return Next::Compute(Nanos::ZERO, Doing::Joins(job));
        }
        let helper = self.helpers.pop().unwrap_or_else(|| {
            let helper = self.cpus.add_thread();
            self.threads.push(Thread::new(Doing::HelperRests));
            helper
        });
        let own = &mut self.threads[helper as usize];
        (own.doing, own.came) = (Doing::Helps(job, call), false);
        self.wake(helper);
        Next::Compute(self.costs.wake_call, Doing::Forks(job, call + 1))
    }

    fn help(&mut self, thread: ThreadId, doing: Doing) -> Next {
        match doing {
            Doing::Helps(job, call) => Next::Compute(self.costs.send, Doing::HelperSent(job, call)),
            Doing::HelperSent(job, call) => {
                self.leaves(job, call, Route::Helper(thread));
                Next::Compute(Nanos::ZERO, Doing::HelperWaits(job))
            }
            Doing::HelperWaits(job) if self.threads[thread as usize].came => {
                Next::Compute(self.costs.poll_turn + self.costs.receive, Doing::HelperReceived(job))
            }
            Doing::HelperWaits(job) => Next::Sleep(Place::Held, Doing::HelperWaits(job)),
            Doing::HelperReceived(job) => {
                self.jobs[job].left -= 1;
                let sleeper = if self.jobs[job].left == 0 { self.jobs[job].sleeper.take() } else { None };
                let Some(main) = sleeper else { return Next::Compute(Nanos::ZERO, Doing::HelperRests) };
                self.wake(main);
                Next::Compute(self.costs.wake_call, Doing::HelperRests)
            }
            _ => {
                self.helpers.push(thread);
                Next::Sleep(Place::Parked, Doing::HelperRests)
            }
        }
    }
}
