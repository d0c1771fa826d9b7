//! Work of a server's cores on requests: receive and judge, compute, go on after replies, answer.

use super::event::{Event, Work};
use super::jobs::JobId;
use super::model::{Begin, Deadlines, ServiceModel};
use super::run::{Run, as_request};
use crate::agenda::Lane;
use leeward_core::budget::Budget;
use leeward_core::server::{Arrival, Departure, Outcome, Verdict};
use leeward_core::units::{Nanos, Time};

/// CPU time of building a drop, besides sending it, as at the simulated server of one tier.
const REJECT: Nanos = Nanos(50);

impl Run<'_> {
    pub(super) fn arrive(&mut self, id: JobId) {
        let (now, link) = (self.now, self.jobs[id].link);
        self.jobs[id].arrived = now;
        let server = self.links[link as usize].to as usize;
        if self.jobs[id].parent == JobId::NONE {
            self.stats.entered(now);
            self.stats.received(true);
        }
        if now >= Time::ZERO + self.config.warmup {
            self.books[self.servers[server].service as usize].received += 1;
        }
        if self.servers[server].requests.len() >= ServiceModel::MOST_QUEUED {
            // No core has seen it: the machine's network drops it, and costs nothing.
            let (_, ticket) = self.judge(server, id, Nanos::ZERO);
            self.jobs.keep_ticket(id, ticket);
            self.answer(server, id, Outcome::Dropped);
            return;
        }
        self.servers[server].requests.push_back((now, id));
        self.give_cores(server);
    }

    /// Gives work to cores that have none: first what has begun.
    pub(super) fn give_cores(&mut self, server: usize) {
        while self.servers[server].busy < self.servers[server].cores {
            let found = &mut self.servers[server];
            if let Some((_, id)) = found.ready.pop_front() {
                self.go_on(server, id);
            } else if let Some((_, id)) = found.requests.pop_front() {
                self.take(server, id);
            } else {
                break;
            }
        }
        let idles = self.servers[server].idles_beside_work();
        self.audit.check(!idles, self.now, || "a core idles beside work".into());
    }

    /// A core receives a request.
    fn take(&mut self, server: usize, id: JobId) {
        let waited = self.now.since(self.jobs[id].arrived);
        let delay = waited + self.servers[server].run_delay(self.now);
        let (verdict, ticket) = self.judge(server, id, delay);
        self.jobs.keep_ticket(id, ticket);
        let service = self.servers[server].service as usize;
        let model = &self.graph.services[service];
        let work = if verdict != Verdict::Admit || self.is_late(id) {
            Work::Reject
        } else {
            self.draw_calls(server, id);
            self.jobs[id].patience = self.patience(service, id);
            let reserves = self.graph.passing.begin == Begin::Reserved;
            if reserves && !self.reserve(server, id) { Work::Park } else { Work::Begin }
        };
        let rest = match work {
            Work::Reject => REJECT + model.send,
            Work::Park => Nanos::ZERO,
            Work::Begin | Work::Resume => self.begin_cost(server, id),
        };
        self.occupy(server, id, work, model.receive + rest);
    }

    /// Tells the server's controller of a request and asks for its verdict, on arrival and again for its turn.
    fn judge(&mut self, server: usize, id: JobId, delay: Nanos) -> (Verdict, leeward_core::server::Ticket) {
        let job = self.jobs[id];
        let left = Nanos(job.deadline.0.saturating_sub(self.now.0));
        let arrival = Arrival::new(self.now)
            .with_demand(job.demand)
            .with_priority(job.priority)
            .with_delay(delay)
            .with_random(self.server_rng.bits())
            .with_budget(Budget::of(left));
        let found = &mut self.servers[server];
        found.since_tick.arrivals += 1;
        found.inside += 1;
        let session = &mut found.sessions[self.links[job.link as usize].session as usize];
        let core = found.halves.cores[session.core.0 as usize].as_mut();
        let (first, ticket) = session.request(core, &arrival);
        let verdict = if first == Verdict::Admit { core.execute(self.now.since(job.arrived)) } else { first };
        (verdict, ticket)
    }

    fn is_late(&self, id: JobId) -> bool {
        self.graph.passing.deadlines == Deadlines::Kept && self.now > self.jobs[id].deadline
    }

    /// When a request at `service` stops waiting for credits: half of this service's own part of the objective after it came,
    /// or when it could not be answered in time any more. The other half is for the queues behind.
    fn patience(&self, service: usize, id: JobId) -> Time {
        let job = &self.jobs[id];
        let latest = Time(job.deadline.0.saturating_sub(self.spans[service].0));
        latest.min(job.arrived + self.objectives[service] / 2)
    }

    /// CPU time of a request up to its first calls, or its answer.
    fn begin_cost(&self, server: usize, id: JobId) -> Nanos {
        let model = &self.graph.services[self.servers[server].service as usize];
        let messages = self.calls_of_stage(server, id, 0).max(1);
        self.jobs[id].service + model.send * u64::from(messages)
    }

    /// A core goes on with a request that waited for credits or replies.
    fn go_on(&mut self, server: usize, id: JobId) {
        if !self.jobs[id].begun {
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
        let found = &mut self.servers[server];
        found.busy += 1;
        let cost = cost + std::mem::take(&mut found.owed);
        let end = self.now + cost;
        let run_end = Time::ZERO + self.config.duration;
        let measured = end.min(run_end).since(self.now.max(Time::ZERO + self.config.warmup));
        found.spent += u128::from(measured.0);
        let spent = &mut self.jobs[id].spent;
        let place = if found.groups.is_empty() { &mut spent.last } else { &mut spent.upstream };
        *place += cost;
        self.stats.busy(self.now, end);
        self.agenda.schedule(end, Event::Core(server as u32, id, work));
    }

    pub(super) fn core_is_done(&mut self, server: usize, id: JobId, work: Work) {
        self.servers[server].busy -= 1;
        match work {
            Work::Reject => self.answer(server, id, Outcome::Dropped),
            Work::Park => self.park(server, id),
            Work::Begin => {
                self.jobs[id].begun = true;
                self.ask_or_answer(server, id, 0);
            }
            Work::Resume if self.jobs[id].failed => self.answer(server, id, Outcome::Dropped),
            Work::Resume => {
                let next = self.jobs[id].stage + 1;
                self.ask_or_answer(server, id, next);
            }
        }
        self.give_cores(server);
    }

    /// Makes the calls of a stage, or answers if there are none.
    fn ask_or_answer(&mut self, server: usize, id: JobId, stage: u16) {
        if self.calls_of_stage(server, id, stage) == 0 {
            // Stages without a call of this request are skipped together: their calls come in order.
            match self.next_stage(server, id, stage) {
                Some(later) => self.ask(server, id, later),
                None => self.answer(server, id, Outcome::Completed),
            }
        } else {
            self.ask(server, id, stage);
        }
    }

    /// Lets an answer leave.
    pub(super) fn answer(&mut self, server: usize, id: JobId, outcome: Outcome) {
        self.release_all(id);
        let job = self.jobs[id];
        let ticket = self.jobs.take_ticket(id);
        let found = &mut self.servers[server];
        found.inside -= 1;
        match outcome {
            Outcome::Completed => found.since_tick.completions += 1,
            Outcome::Dropped => found.since_tick.drops += 1,
        }
        let link = &self.links[job.link as usize];
        let session = &mut found.sessions[link.session as usize];
        let core = found.halves.cores[session.core.0 as usize].as_mut();
        let sojourn = self.now.since(job.arrived);
        let departure = Departure { now: self.now, outcome, sojourn, credit: job.credit };
        let feedback = session.reply(core, ticket, &departure);
        if job.parent == JobId::NONE {
            self.stats.left(self.now, &as_request(&job));
            self.stats.sent_messages(1);
            if outcome == Outcome::Dropped {
                self.stats.rejected();
            }
        }
        if outcome == Outcome::Dropped && self.now >= Time::ZERO + self.config.warmup {
            self.books[found.service as usize].dropped += 1;
        }
        self.agenda.schedule_on(Lane::ToClient, self.now + link.way, Event::Reply(id, outcome, feedback));
    }
}
