//! Work of a server's cores on requests: receiving, admission, computing, resuming after replies,
//! responding.

use super::event::{Event, Work};
use super::jobs::JobId;
use super::model::{DeadlinePolicy, ServiceModel, StartCondition};
use super::run::{Run, as_request};
use crate::event_queue::Lane;
use leeward_core::budget::Budget;
use leeward_core::server::{Arrival, Departure, Outcome, Verdict};
use leeward_core::units::{Nanos, Time};

/// CPU time of building a rejection, without sending it, as at the simulated server of one tier.
const REJECT: Nanos = Nanos(50);

impl Run<'_> {
    pub(super) fn on_arrival(&mut self, id: JobId) {
        let (now, link) = (self.now, self.jobs[id].link);
        self.jobs[id].arrived = now;
        let server = self.links[link as usize].to as usize;
        if self.jobs[id].parent == JobId::NONE {
            self.stats.record_arrival(now);
            self.stats.record_receive(true);
        }
        if self.is_measured() {
            self.service_stats[self.servers[server].service as usize].received += 1;
        }
        if self.servers[server].requests.len() >= ServiceModel::MAX_QUEUED {
            // No core receives the request: the network drops it at no cost.
            let (_, permit) = self.request_verdict(server, id, Nanos::ZERO);
            self.jobs.store_permit(id, permit);
            self.respond(server, id, Outcome::Rejected);
            return;
        }
        self.servers[server].requests.push_back((now, id));
        self.assign_cores(server);
    }

    /// Assigns work to idle cores; requests that have begun come first.
    pub(super) fn assign_cores(&mut self, server: usize) {
        while self.servers[server].busy < self.servers[server].cores {
            let state = &mut self.servers[server];
            if let Some((_, id)) = state.ready.pop_front() {
                self.resume(server, id);
            } else if let Some((_, id)) = state.requests.pop_front() {
                self.receive(server, id);
            } else {
                break;
            }
        }
        let idles = self.servers[server].idles_despite_work();
        self.audit.check(!idles, self.now, || "a core idles despite work".into());
    }

    /// A core receives a request.
    fn receive(&mut self, server: usize, id: JobId) {
        let waited = self.now.since(self.jobs[id].arrived);
        let delay = waited + self.servers[server].run_delay(self.now);
        let (verdict, permit) = self.request_verdict(server, id, delay);
        self.jobs.store_permit(id, permit);
        let service = self.servers[server].service as usize;
        let model = &self.graph.services[service];
        let work = if verdict != Verdict::Admit || self.is_late(id) {
            Work::Reject
        } else {
            self.draw_calls(server, id);
            self.jobs[id].credit_deadline = self.credit_deadline(service, id);
            let reserves = self.graph.policy.start == StartCondition::Reserved;
            if reserves && !self.reserve(server, id) { Work::Park } else { Work::Begin }
        };
        let rest = match work {
            Work::Reject => REJECT + model.send,
            Work::Park => Nanos::ZERO,
            Work::Begin | Work::Resume => self.begin_cost(server, id),
        };
        self.occupy(server, id, work, model.receive + rest);
    }

    /// Asks the server's controller for its verdict on a request, on arrival and again on dequeue.
    fn request_verdict(
        &mut self,
        server: usize,
        id: JobId,
        delay: Nanos,
    ) -> (Verdict, leeward_core::server::PendingRequest) {
        let job = self.jobs[id];
        let left = Nanos(job.deadline.0.saturating_sub(self.now.0));
        let arrival = Arrival::new(self.now)
            .with_demand(job.demand)
            .with_priority(job.priority)
            .with_delay(delay)
            .with_random(self.server_rng.bits())
            .with_budget(Budget::new(left));
        let state = &mut self.servers[server];
        state.since_tick.arrivals += 1;
        state.in_flight += 1;
        let session = &mut state.sessions[self.links[job.link as usize].session as usize];
        let core = state.halves.cores[session.core.0 as usize].as_mut();
        let (first, permit) = session.request(core, &arrival);
        let verdict = if first == Verdict::Admit { core.on_dequeue(self.now.since(job.arrived)) } else { first };
        (verdict, permit)
    }

    fn is_late(&self, id: JobId) -> bool {
        self.graph.policy.deadlines == DeadlinePolicy::Enforced && self.now > self.jobs[id].deadline
    }

    /// Time at which a request at `service` stops waiting for credits.
    ///
    /// This is half of the service's own part of the objective after arrival, or earlier if the
    /// request could no longer be in time. The other half is for the downstream queues.
    fn credit_deadline(&self, service: usize, id: JobId) -> Time {
        let job = &self.jobs[id];
        let latest = Time(job.deadline.0.saturating_sub(self.spans[service].0));
        latest.min(job.arrived + self.objectives[service] / 2)
    }

    /// CPU time of a request up to its first calls or its response.
    fn begin_cost(&self, server: usize, id: JobId) -> Nanos {
        let model = &self.graph.services[self.servers[server].service as usize];
        let messages = self.calls_of_stage(server, id, 0).max(1);
        self.jobs[id].service + model.send * u64::from(messages)
    }

    /// A core continues a request that waited for credits or replies.
    fn resume(&mut self, server: usize, id: JobId) {
        if !self.jobs[id].started {
            let cost = self.begin_cost(server, id);
            self.occupy(server, id, Work::Begin, cost);
            return;
        }
        let model = &self.graph.services[self.servers[server].service as usize];
        let late = self.is_late(id);
        let job = &mut self.jobs[id];
        job.failed |= late;
        let replies = model.receive * u64::from(std::mem::take(&mut job.replies));
        let (failed, next) = (job.failed, job.stage + 1);
        let sends = if failed { 0 } else { self.calls_of_stage(server, id, next) };
        let rest = match (failed, sends) {
            (true, _) => REJECT + model.send,
            (false, 0) => model.resume + model.send,
            (false, sends) => model.send * u64::from(sends),
        };
        self.occupy(server, id, Work::Resume, replies + rest);
    }

    fn occupy(&mut self, server: usize, id: JobId, work: Work, cost: Nanos) {
        let state = &mut self.servers[server];
        state.busy += 1;
        let cost = cost + std::mem::take(&mut state.debt);
        let end = self.now + cost;
        state.cpu_time += self.stats.interval().part(self.now, end);
        let spent = &mut self.jobs[id].cpu_time;
        let spent_here = if state.groups.is_empty() { &mut spent.last } else { &mut spent.upstream };
        *spent_here += cost;
        self.stats.record_busy(self.now, end, cost);
        self.event_queue.schedule(end, Event::Core(server as u32, id, work));
    }

    pub(super) fn on_core_done(&mut self, server: usize, id: JobId, work: Work) {
        self.servers[server].busy -= 1;
        match work {
            Work::Reject => self.respond(server, id, Outcome::Rejected),
            Work::Park => self.park(server, id),
            Work::Begin => {
                self.jobs[id].started = true;
                self.call_or_respond(server, id, 0);
            }
            Work::Resume if self.jobs[id].failed => self.respond(server, id, Outcome::Rejected),
            Work::Resume => {
                let next = self.jobs[id].stage + 1;
                self.call_or_respond(server, id, next);
            }
        }
        self.assign_cores(server);
    }

    /// Makes the calls of a stage, or responds if there are none.
    fn call_or_respond(&mut self, server: usize, id: JobId, stage: u16) {
        if self.calls_of_stage(server, id, stage) == 0 {
            // Skips all stages in which this request makes no calls.
            match self.next_stage(server, id, stage) {
                Some(later) => self.send_calls(server, id, later),
                None => self.respond(server, id, Outcome::Completed),
            }
        } else {
            self.send_calls(server, id, stage);
        }
    }

    /// Sends a response.
    pub(super) fn respond(&mut self, server: usize, id: JobId, outcome: Outcome) {
        self.release_all(id);
        let job = self.jobs[id];
        let permit = self.jobs.take_permit(id);
        let is_measured = self.is_measured();
        let state = &mut self.servers[server];
        state.in_flight -= 1;
        match outcome {
            Outcome::Completed => state.since_tick.completions += 1,
            Outcome::Rejected => state.since_tick.rejections += 1,
        }
        let link = &self.links[job.link as usize];
        let session = &mut state.sessions[link.session as usize];
        let core = state.halves.cores[session.core.0 as usize].as_mut();
        let sojourn = self.now.since(job.arrived);
        let departure = Departure { now: self.now, outcome, sojourn, credit: job.credit };
        let feedback = session.reply(core, permit, &departure);
        if job.parent == JobId::NONE {
            self.stats.record_departure(self.now, &as_request(&job));
            self.stats.record_sent(1);
            if outcome == Outcome::Rejected {
                self.stats.record_reject();
            }
        }
        if outcome == Outcome::Rejected && is_measured {
            self.service_stats[state.service as usize].rejected += 1;
        }
        self.event_queue.schedule_on(
            Lane::ToClient,
            self.now + link.one_way_delay,
            Event::Reply(id, outcome, feedback),
        );
    }
}
