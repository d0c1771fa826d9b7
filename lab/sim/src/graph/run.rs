//! A run of a graph: clients, servers and links put together, and the loop over their events. What cores do is in `serve`, how
//! requests ask others in `calls`, what controllers are told in `control`.

use super::event::Event;
use super::jobs::{Job, JobId, Jobs, Spent};
use super::links::{Effects, Link};
use super::model::{Graph, ServiceModel};
use super::purse::Purse;
use super::server::Server;
use crate::SimError;
use crate::agenda::{Agenda, Lane};
use crate::audit::Audit;
use crate::config::SimConfig;
use crate::instant::Instant;
use crate::requests::{Request, RequestId};
use crate::stats::Stats;
use leeward_core::client::{Client, LocalReason};
use leeward_core::server::{Feedback, Gauges, Outcome};
use leeward_core::units::{CreditId, Nanos, Priority, Time};
use leeward_outcome::{Distribution, GraphOutcome, RunOutcome, ServiceOutcome};
use leeward_workload::ArrivalStream;
use leeward_workload::rng::Rng;

/// Everything of one run.
pub(super) struct Run<'a> {
    pub(super) config: &'a SimConfig,
    pub(super) graph: &'a Graph,
    pub(super) now: Time,
    pub(super) agenda: Agenda<Event>,
    pub(super) arrivals: ArrivalStream,
    pub(super) jobs: Jobs,
    /// Links of all servers, after the clients' own.
    pub(super) links: Vec<Link>,
    pub(super) servers: Vec<Server>,
    /// The first server of each service, and one past the last.
    pub(super) first: Vec<u32>,
    /// Control period of each service.
    pub(super) periods: Vec<Nanos>,
    /// Part of the objective that is each service's.
    pub(super) objectives: Vec<Nanos>,
    /// Time of a request at each service when nothing queues, its calls included.
    pub(super) spans: Vec<Nanos>,
    /// Retries that clients may make.
    pub(super) client_retries: Purse,
    pub(super) stats: Stats,
    pub(super) audit: Audit,
    pub(super) books: Vec<Book>,
    pub(super) used: Spent,
    pub(super) wasted: Spent,
    pub(super) effects: Effects,
    pub(super) events: u64,
    pub(super) instant: Instant<'a>,
    pub(super) service_rng: Rng,
    pub(super) client_rng: Rng,
    pub(super) server_rng: Rng,
    pub(super) path_rng: Rng,
}

/// Counts of a service in the measured part.
pub(super) struct Book {
    /// Time of answered calls, from when they left the caller.
    pub(super) latency: Distribution,
    /// Calls that came.
    pub(super) received: u64,
    /// Calls that were dropped.
    pub(super) dropped: u64,
}

impl Run<'_> {
    /// Runs to the end.
    pub(super) fn finish(mut self) -> Result<RunOutcome, SimError> {
        let end = Time::ZERO + self.config.duration;
        self.agenda.schedule(Time::ZERO + self.config.warmup, Event::WarmedUp);
        if let Some(window) = self.config.window {
            self.agenda.schedule(Time::ZERO + window, Event::Window);
        }
        for service in 0..self.periods.len() {
            self.agenda.schedule(Time::ZERO + self.periods[service], Event::Tick(service as u32));
        }
        self.schedule_issue();
        while let Some((now, event)) = self.agenda.pop(end) {
            self.now = now;
            self.events += 1;
            if self.instant.is_over(now) {
                return Err(self.instant.error());
            }
            self.handle(event);
        }
        self.now = end;
        Ok(self.end())
    }

    fn handle(&mut self, event: Event) {
        match event {
            Event::Issue(client) => self.issue(client),
            Event::Arrive(job) => self.arrive(job),
            Event::Core(server, job, work) => self.core_is_done(server as usize, job, work),
            Event::Reply(job, outcome, feedback) => self.reply_arrives(job, outcome, feedback),
            Event::Credit(link, feedback) => {
                self.heard(link, &feedback);
                self.with_client(link, |client, now, out| client.on_credit(now, &feedback, out));
                self.credits_came(link);
            }
            Event::Demand(link, demand) => self.demand_arrives(link, demand),
            Event::Timer(link) => {
                if self.links[link as usize].timer.is_due(self.now) {
                    self.with_client(link, |client, now, out| client.on_timer(now, out));
                }
            }
            Event::Tick(service) => self.tick(service as usize),
            Event::WarmedUp => self.stats.warmed_up(self.now),
            Event::Window => self.window_ends(),
        }
    }

    fn schedule_issue(&mut self) {
        self.agenda.schedule_issue(self.arrivals.next(), Event::Issue);
    }

    fn issue(&mut self, client: u32) {
        self.stats.issued(0);
        let service = self.graph.services[0].service.draw(&mut self.service_rng);
        let priority = Priority::from_random(self.client_rng.bits());
        let deadline = self.now + self.config.slo;
        let job = self.job(JobId::NONE, client, service, priority, (self.now, deadline));
        self.submit(client, job);
        self.schedule_issue();
    }

    /// A request that its caller has just decided on.
    pub(super) fn job(
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
            patience: deadline,
            service,
            priority,
            credit: CreditId::NONE,
            demand: 0,
            asks: 0,
            stage: 0,
            open: 0,
            replies: 0,
            attempts: 1,
            begun: false,
            failed: false,
            spent: Spent::default(),
        })
    }

    /// Gives a request to the client of its link.
    pub(super) fn submit(&mut self, link: u32, job: JobId) {
        let (priority, random) = (self.jobs[job].priority, self.client_rng.bits());
        self.with_client(link, |client, now, out| client.submit(now, job, priority, random, out));
    }

    /// Lets `act` talk to a link's client, carries out what it decides, and sets its timer.
    pub(super) fn with_client(&mut self, link: u32, act: impl FnOnce(&mut Client<JobId>, Time, &mut Effects)) {
        // What is carried out may talk to clients again: that finds empty lists here, and these come back afterwards.
        let mut effects = std::mem::take(&mut self.effects);
        let found = &mut self.links[link as usize];
        act(&mut found.client, self.now, &mut effects);
        let at = self.now + found.way;
        if let Some(timer) = found.rearm(self.now) {
            self.agenda.schedule_on(Lane::Timers, timer, Event::Timer(link));
        }
        for (job, header) in effects.sent.drain(..) {
            let record = &mut self.jobs[job];
            (record.sent, record.demand, record.credit) = (self.now, header.demand, header.credit);
            self.agenda.schedule_on(Lane::ToServer, at, Event::Arrive(job));
        }
        if let Some(demand) = effects.demand.take() {
            self.agenda.schedule_on(Lane::ToServer, at, Event::Demand(link, demand));
        }
        for (job, end) in effects.ended.drain(..) {
            self.call_ended(job, Outcome::Dropped, Some(end.reason));
        }
        self.effects = effects;
    }

    fn reply_arrives(&mut self, job: JobId, outcome: Outcome, feedback: Feedback) {
        let record = self.jobs[job];
        let link = record.link;
        let found = &self.links[link as usize];
        let round_trip = self.now.since(record.sent);
        if outcome == Outcome::Completed && self.now >= Time::ZERO + self.config.warmup {
            let service = self.servers[found.to as usize].service as usize;
            self.books[service].latency.record(round_trip);
        }
        self.heard(link, &feedback);
        self.with_client(link, |client, now, out| client.on_reply(now, outcome, round_trip, &feedback, out));
        self.call_ended(job, outcome, None);
        self.credits_came(link);
    }

    /// A client's request has ended.
    pub(super) fn client_ended(&mut self, job: &Job, outcome: Outcome, local: Option<LocalReason>) {
        let request = as_request(job);
        let in_time = outcome == Outcome::Completed && self.now <= job.deadline;
        if self.now >= Time::ZERO + self.config.warmup {
            self.used.add(job.spent);
            if !in_time {
                self.wasted.add(job.spent);
            }
        }
        match (outcome, local) {
            (_, Some(reason)) => self.stats.ended_at_client(0, reason),
            (Outcome::Completed, None) => self.stats.completed(self.now, &request),
            (Outcome::Dropped, None) => self.stats.dropped(self.now, &request),
        }
    }

    fn window_ends(&mut self) {
        let delay = |server: &Server| server.packet_delay(self.now) + server.run_delay(self.now);
        let delay = self.servers.iter().map(delay).max().unwrap_or_default();
        let gauges = self.servers.first().map_or_else(Gauges::default, |server| server.halves.control.gauges());
        self.stats.window_ends(self.now, gauges, delay, None);
        if let Some(window) = self.config.window {
            self.agenda.schedule(self.now + window, Event::Window);
        }
    }

    fn end(mut self) -> RunOutcome {
        self.audit_books();
        self.audit.check(self.stats.littles_law_holds(), self.now, || "Little's law does not hold".into());
        let cores: u64 = self.graph.services.iter().map(|one| u64::from(one.servers) * u64::from(one.cores)).sum();
        let gauges = self.servers.first().map_or_else(Gauges::default, |server| server.halves.control.gauges());
        let unfinished = self.jobs.of_clients();
        let mut report = self.stats.report(cores as u32, unfinished, gauges, self.events);
        self.audit.check(report.totals.balance(), self.now, || format!("requests don't add up: {:?}", report.totals));
        let share = |part: Nanos, whole: Nanos| if whole.0 == 0 { 0.0 } else { part.0 as f64 / whole.0 as f64 };
        let (used, wasted) = (self.used, self.wasted);
        report.graph = Some(GraphOutcome {
            wasted: share(wasted.upstream + wasted.last, used.upstream + used.last),
            wasted_upstream: share(wasted.upstream, used.upstream),
            services: self.services(report.measured),
        });
        report.violations = self.audit.into_found();
        report
    }

    fn services(&mut self, measured: Nanos) -> Vec<ServiceOutcome> {
        let capacity =
            |model: &ServiceModel| measured.0.max(1) as f64 * f64::from(model.servers) * f64::from(model.cores);
        let mut services = Vec::new();
        for (index, model) in self.graph.services.iter().enumerate() {
            let own = self.first[index] as usize..self.first[index + 1] as usize;
            let spent: u128 = self.servers[own].iter().map(|server| server.spent).sum();
            let book = &mut self.books[index];
            services.push(ServiceOutcome {
                name: model.name.clone(),
                latency: book.latency.percentiles(),
                received: book.received,
                dropped: book.dropped,
                cpu_utilization: spent as f64 / capacity(model),
                objective: self.objectives[index],
            });
        }
        services
    }
}

/// A client's request as the books have it.
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
