//! A run of a graph: clients, servers and links, and the event loop.
//!
//! Cores' work is in `serve`, calls in `calls`, controllers in `control`.

use super::event::Event;
use super::jobs::{CpuTime, Job, JobId, Jobs};
use super::links::{Effects, Link};
use super::model::{Graph, ServiceModel};
use super::retry_budget::RetryBudget;
use super::server::Server;
use crate::SimError;
use crate::audit::Audit;
use crate::config::{MeasuredInterval, SimConfig};
use crate::event_queue::{EventQueue, Lane};
use crate::requests::{Request, RequestId};
use crate::run_guard::RunGuard;
use crate::stats::Stats;
use leeward_core::client::{Client, LocalReason};
use leeward_core::server::{Feedback, Gauges, Outcome};
use leeward_core::units::{CreditId, Nanos, Priority, Time};
use leeward_outcome::{Distribution, GraphOutcome, RunOutcome, ServiceOutcome};
use leeward_workload::ArrivalStream;
use leeward_workload::rng::Rng;

/// The state of one run.
pub(super) struct Run<'a> {
    pub(super) config: &'a SimConfig,
    pub(super) graph: &'a Graph,
    pub(super) now: Time,
    pub(super) event_queue: EventQueue<Event>,
    pub(super) arrivals: ArrivalStream,
    pub(super) jobs: Jobs,
    /// Links of all servers, after the clients' own.
    pub(super) links: Vec<Link>,
    pub(super) servers: Vec<Server>,
    /// The first server of each service, and one past the last.
    pub(super) first_server: Vec<u32>,
    /// Control period of each service.
    pub(super) periods: Vec<Nanos>,
    /// Part of the objective of each service.
    pub(super) objectives: Vec<Nanos>,
    /// Time of a request at each service without queueing, its calls included.
    pub(super) spans: Vec<Nanos>,
    /// Retry budget of the clients.
    pub(super) client_retries: RetryBudget,
    pub(super) stats: Stats,
    pub(super) audit: Audit,
    pub(super) service_stats: Vec<ServiceStats>,
    pub(super) used_cpu: CpuTime,
    pub(super) wasted_cpu: CpuTime,
    pub(super) effects: Effects,
    pub(super) events: u64,
    pub(super) guard: RunGuard<'a>,
    pub(super) service_rng: Rng,
    pub(super) client_rng: Rng,
    pub(super) server_rng: Rng,
    pub(super) path_rng: Rng,
}

/// Counters of a service since the warm-up.
pub(super) struct ServiceStats {
    /// Time of answered calls, from leaving the caller.
    pub(super) latency: Distribution,
    /// Calls received.
    pub(super) received: u64,
    /// Calls rejected.
    pub(super) rejected: u64,
}

impl Run<'_> {
    /// Runs until the end of the measurement.
    pub(super) fn finish(mut self) -> Result<RunOutcome, SimError> {
        self.event_queue.schedule(self.stats.interval().from, Event::WarmedUp);
        self.event_queue.schedule(self.stats.next_observation(Time::ZERO), Event::Observe);
        if let Some(window) = self.config.window {
            self.event_queue.schedule(Time::ZERO + window, Event::Window);
        }
        for service in 0..self.periods.len() {
            self.event_queue.schedule(Time::ZERO + self.periods[service], Event::Tick(service as u32));
        }
        self.schedule_issue();
        while let Some((now, event)) = self.event_queue.pop(self.stats.interval().to) {
            self.now = now;
            self.events += 1;
            if self.guard.must_stop(now) {
                return Err(self.guard.error());
            }
            self.handle(event);
        }
        self.now = self.stats.interval().to;
        Ok(self.end())
    }

    fn handle(&mut self, event: Event) {
        match event {
            Event::Issue(client) => self.issue(client),
            Event::Arrive(job) => self.on_arrival(job),
            Event::Core(server, job, work) => self.on_core_done(server as usize, job, work),
            Event::Reply(job, outcome, feedback) => self.on_reply(job, outcome, feedback),
            Event::Credit(link, feedback) => {
                self.on_feedback(link, &feedback);
                self.with_client(link, |client, now, out| client.on_credit(now, &feedback, out));
                self.on_credits(link);
            }
            Event::Demand(link, demand) => self.on_demand(link, demand),
            Event::Timer(link) => {
                if self.links[link as usize].timer.is_due(self.now) {
                    self.with_client(link, |client, now, out| client.on_timer(now, out));
                }
            }
            Event::Tick(service) => self.tick(service as usize),
            Event::WarmedUp => self.stats.end_warmup(self.now),
            Event::Observe => {
                let (now, gauges) = (self.now, self.gauges());
                if self.stats.observe(now, &gauges) {
                    self.on_interval();
                }
                self.event_queue.schedule(self.stats.next_observation(now), Event::Observe);
            }
            Event::Window => self.end_window(),
        }
    }

    /// Gauges of the first service's controller.
    fn gauges(&self) -> Gauges {
        self.servers.first().map_or_else(Gauges::default, |server| server.halves.control.gauges())
    }

    /// Whether the measurement has begun.
    pub(super) fn is_measured(&self) -> bool {
        self.stats.interval().has_begun(self.now)
    }

    /// Follows a change of the measured interval.
    fn on_interval(&mut self) {
        let interval = self.stats.interval();
        if interval == MeasuredInterval::UNDECIDED {
            (self.used_cpu, self.wasted_cpu) = (CpuTime::default(), CpuTime::default());
            self.servers.iter_mut().for_each(|server| server.cpu_time = 0);
            for service in &mut self.service_stats {
                (service.received, service.rejected) = (0, 0);
                service.latency.clear();
            }
        }
        if !interval.has_begun(self.now) {
            self.event_queue.schedule(interval.from, Event::WarmedUp);
        }
    }

    fn schedule_issue(&mut self) {
        self.event_queue.schedule_arrival(self.arrivals.next(), Event::Issue);
    }

    fn issue(&mut self, client: u32) {
        self.stats.record_issue(0);
        let service = self.graph.services[0].service.draw(&mut self.service_rng);
        let priority = Priority::from_random(self.client_rng.bits());
        let deadline = self.now + self.config.slo;
        let job = self.new_job(JobId::NONE, client, service, priority, (self.now, deadline));
        self.submit(client, job);
        self.schedule_issue();
    }

    /// Adds a record for a request that its caller has just created.
    pub(super) fn new_job(
        &mut self,
        parent: JobId,
        link: u32,
        service: Nanos,
        priority: Priority,
        (issued, deadline): (Time, Time),
    ) -> JobId {
        self.jobs.insert(Job {
            parent,
            link,
            issued,
            sent: self.now,
            arrived: self.now,
            deadline,
            credit_deadline: deadline,
            service,
            priority,
            credit: CreditId::NONE,
            demand: 0,
            call_mask: 0,
            stage: 0,
            open: 0,
            replies: 0,
            attempts: 1,
            started: false,
            failed: false,
            cpu_time: CpuTime::default(),
        })
    }

    /// Submits a request to the client shell of its link.
    pub(super) fn submit(&mut self, link: u32, job: JobId) {
        let (priority, random) = (self.jobs[job].priority, self.client_rng.bits());
        self.with_client(link, |client, now, out| client.submit(now, job, priority, random, out));
    }

    /// Applies `act` to a link's client, carries out the client's decisions, and sets its timer.
    pub(super) fn with_client(&mut self, link: u32, act: impl FnOnce(&mut Client<JobId>, Time, &mut Effects)) {
        // Carrying out a decision may call clients again. The inner calls find empty lists; the
        // lists here are put back afterwards.
        let mut effects = std::mem::take(&mut self.effects);
        let state = &mut self.links[link as usize];
        act(&mut state.client, self.now, &mut effects);
        let at = self.now + state.one_way_delay;
        if let Some(timer) = state.rearm(self.now) {
            self.event_queue.schedule_on(Lane::Timers, timer, Event::Timer(link));
        }
        for (job, header) in effects.sent.drain(..) {
            let record = &mut self.jobs[job];
            (record.sent, record.demand, record.credit) = (self.now, header.demand, header.credit);
            self.event_queue.schedule_on(Lane::ToServer, at, Event::Arrive(job));
        }
        if let Some(demand) = effects.demand.take() {
            self.event_queue.schedule_on(Lane::ToServer, at, Event::Demand(link, demand));
        }
        for (job, end) in effects.ended.drain(..) {
            self.on_call_ended(job, Outcome::Rejected, Some(end.reason));
        }
        self.effects = effects;
    }

    fn on_reply(&mut self, job: JobId, outcome: Outcome, feedback: Feedback) {
        let record = self.jobs[job];
        let link = record.link;
        let state = &self.links[link as usize];
        let round_trip = self.now.since(record.sent);
        if outcome == Outcome::Completed && self.is_measured() {
            let service = self.servers[state.to as usize].service as usize;
            self.service_stats[service].latency.record(round_trip);
        }
        self.on_feedback(link, &feedback);
        self.with_client(link, |client, now, out| client.on_reply(now, outcome, round_trip, &feedback, out));
        self.on_call_ended(job, outcome, None);
        self.on_credits(link);
    }

    /// Counts the end of a client's request.
    pub(super) fn on_request_ended(&mut self, job: &Job, outcome: Outcome, local: Option<LocalReason>) {
        let request = as_request(job);
        let in_time = outcome == Outcome::Completed && self.now <= job.deadline;
        if self.is_measured() {
            self.used_cpu.add(job.cpu_time);
            if !in_time {
                self.wasted_cpu.add(job.cpu_time);
            }
        }
        match (outcome, local) {
            (_, Some(reason)) => self.stats.record_client_end(0, reason),
            (Outcome::Completed, None) => self.stats.record_completion(self.now, &request),
            (Outcome::Rejected, None) => self.stats.record_client_reject(self.now, &request),
        }
    }

    fn end_window(&mut self) {
        let delay = |server: &Server| server.packet_delay(self.now) + server.run_delay(self.now);
        let delay = self.servers.iter().map(delay).max().unwrap_or_default();
        let gauges = self.gauges();
        self.stats.end_window(self.now, gauges, delay, None);
        if let Some(window) = self.config.window {
            self.event_queue.schedule(self.now + window, Event::Window);
        }
    }

    fn end(mut self) -> RunOutcome {
        self.audit_accounting();
        self.audit.check(self.stats.littles_law_holds(), self.now, || "Little's law does not hold".into());
        let cores: u64 =
            self.graph.services.iter().map(|service| u64::from(service.servers) * u64::from(service.cores)).sum();
        let gauges = self.gauges();
        let unfinished = self.jobs.client_jobs();
        let mut report = self.stats.report(cores as u32, unfinished, gauges, self.events);
        self.audit
            .check(report.totals.is_balanced(), self.now, || format!("requests don't add up: {:?}", report.totals));
        let share = |part: Nanos, whole: Nanos| if whole.0 == 0 { 0.0 } else { part.0 as f64 / whole.0 as f64 };
        let (used, wasted) = (self.used_cpu, self.wasted_cpu);
        report.graph = Some(GraphOutcome {
            wasted_cpu: share(wasted.upstream + wasted.last, used.upstream + used.last),
            wasted_upstream_cpu: share(wasted.upstream, used.upstream),
            services: self.services(report.measured),
        });
        report.violations = self.audit.into_violations();
        report
    }

    fn services(&mut self, measured: Nanos) -> Vec<ServiceOutcome> {
        let capacity =
            |model: &ServiceModel| measured.0.max(1) as f64 * f64::from(model.servers) * f64::from(model.cores);
        let mut services = Vec::new();
        for (index, model) in self.graph.services.iter().enumerate() {
            let own = self.first_server[index] as usize..self.first_server[index + 1] as usize;
            let spent: u128 = self.servers[own].iter().map(|server| server.cpu_time).sum();
            let stats = &mut self.service_stats[index];
            services.push(ServiceOutcome {
                name: model.name.clone(),
                latency: stats.latency.percentiles(),
                received: stats.received,
                rejected: stats.rejected,
                cpu_utilization: spent as f64 / capacity(model),
                objective: self.objectives[index],
            });
        }
        services
    }
}

/// Converts a client's request for the statistics.
pub(super) fn as_request(job: &Job) -> Request {
    Request {
        issued: job.issued,
        sent: job.sent,
        arrived: job.arrived,
        service: job.service,
        session: job.link,
        demand: job.demand,
        priority: job.priority,
        kind: 0,
        credit: job.credit,
        attempt_of: RequestId::default(),
    }
}
