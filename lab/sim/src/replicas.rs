//! A service of several identical servers: a request goes to one of them, and to a second one if
//! the first rejects it or gives no credit in time.
//!
//! Each server is a [`Run`] of its own, with its own cores, locks, controller and sessions, and
//! knows nothing of the others. This file orders the servers' events in time, chooses the server of
//! each request, and records its end. Does not contain the inside of a server or a session.

use crate::SimError;
use crate::audit::Audit;
use crate::config::{FirstServer, MeasuredInterval, Replicas, RequestKinds, SimConfig};
use crate::event_queue::EventQueue;
use crate::requests::{Attempt, EndedRequest, Request, RequestId, RequestOutcome, Requests};
use crate::run::Run;
use crate::stats::{Occupancy, Stats};
use leeward_core::params::Params;
use leeward_core::registry::Algorithm;
use leeward_core::server::Gauges;
use leeward_core::units::{CreditId, Time};
use leeward_outcome::{Distribution, RunOutcome};
use leeward_workload::rng::{Purpose, Rng};
use leeward_workload::{ArrivalStream, KindStream};
use std::collections::VecDeque;
use std::sync::atomic::AtomicBool;

/// Simulates a validated configuration with replicas until `stop` is set.
pub(crate) fn simulate(
    config: &SimConfig,
    replicas: Replicas,
    algorithm: &Algorithm,
    params: &Params,
    stop: &AtomicBool,
) -> Result<RunOutcome, SimError> {
    let configs: Vec<SimConfig> = (0..replicas.servers).map(|server| server_config(config, replicas, server)).collect();
    let mut servers = Vec::with_capacity(configs.len());
    for config in &configs {
        let halves = algorithm.server(params, &config.environment())?;
        // The service observes the run, and tells its servers the measured interval.
        servers.push(Run::new(config, algorithm, params, halves, None, stop)?.observed_by_caller());
    }
    ReplicatedService::new(config, replicas, servers).finish()
}

/// Configuration of one server: its part of the objective, and its own seed. Its requests come from
/// the service.
fn server_config(config: &SimConfig, replicas: Replicas, server: u32) -> SimConfig {
    let mut kinds = RequestKinds::clone(&config.kinds);
    for kind in &mut kinds.0 {
        kind.deadline = kind.deadline.map(|deadline| replicas.objective(deadline));
    }
    SimConfig {
        slo: replicas.objective(config.slo),
        kinds,
        // The offset keeps the seed apart from those that people choose and those of the cores
        // (`stalls.rs`).
        seed: config.seed.wrapping_add(u64::from(server + 1) << 48),
        ..config.clone()
    }
}

/// An event outside of the servers.
#[derive(Clone, Copy, Debug)]
enum Event {
    /// This client issues a request.
    Issue(u32),
    /// The measurement begins.
    WarmedUp,
    /// An observed window ends.
    Observe,
    /// A window of the time series ends.
    Window,
}

/// State of a request between attempts.
#[derive(Clone, Copy, Debug)]
struct Progress {
    /// Server of the current attempt.
    server: usize,
    /// Its path through the application.
    path: u8,
    /// Whether the request has been sent to a second server.
    retried: bool,
}

/// The service as its clients see it.
struct ReplicatedService<'a> {
    config: &'a SimConfig,
    replicas: Replicas,
    servers: Vec<Run<'a>>,
    now: Time,
    event_queue: EventQueue<Event>,
    arrivals: ArrivalStream,
    /// Requests with their clients and times of issue, one record each.
    requests: Requests,
    /// By slot.
    progress: Vec<Progress>,
    /// Ended attempts that have not been processed.
    ended: VecDeque<(usize, EndedRequest)>,
    /// Server that each client uses first for its next request; empty for [`FirstServer::Primary`].
    next_server: Vec<u32>,
    stats: Stats,
    /// Number of requests in flight, for Little's law.
    in_flight: Occupancy,
    /// Time from the issue to the failure of the first attempt.
    failure_delay: Distribution,
    audit: Audit,
    events: u64,
    kind_stream: KindStream,
    service_rng: Rng,
    client_rng: Rng,
    path_rng: Rng,
}

impl<'a> ReplicatedService<'a> {
    fn new(config: &'a SimConfig, replicas: Replicas, servers: Vec<Run<'a>>) -> Self {
        let turns = match replicas.first {
            FirstServer::Primary => Vec::new(),
            // Clients begin at different servers.
            FirstServer::InTurn => (0..config.workload.clients).map(|client| client % replicas.servers).collect(),
        };
        let mut stats = Stats::new(config);
        servers.iter().for_each(|server| stats.expect_reaction(server.reaction()));
        ReplicatedService {
            config,
            replicas,
            servers,
            now: Time::ZERO,
            event_queue: EventQueue::new(),
            arrivals: ArrivalStream::new(&config.workload, config.seed),
            requests: Requests::new(),
            progress: Vec::new(),
            ended: VecDeque::new(),
            next_server: turns,
            stats,
            in_flight: Occupancy::default(),
            failure_delay: Distribution::new(),
            audit: Audit::default(),
            events: 0,
            kind_stream: KindStream::new(&config.kinds, config.seed),
            service_rng: Rng::new(config.seed, Purpose::Service),
            client_rng: Rng::new(config.seed, Purpose::Clients),
            path_rng: Rng::new(config.seed, Purpose::Paths),
        }
    }

    /// Runs until the end of the measurement.
    fn finish(mut self) -> Result<RunOutcome, SimError> {
        let interval = self.stats.interval();
        self.event_queue.schedule(interval.from, Event::WarmedUp);
        self.event_queue.schedule(self.stats.next_observation(Time::ZERO), Event::Observe);
        if let Some(window) = self.config.window {
            self.event_queue.schedule(Time::ZERO + window, Event::Window);
        }
        self.schedule_issue();
        self.servers.iter_mut().for_each(Run::start);
        while self.step(self.stats.interval().to)? {}
        Ok(self.report())
    }

    /// Handles the earliest event of all. At equal times the service's own events come first, then
    /// the servers in order.
    fn step(&mut self, end: Time) -> Result<bool, SimError> {
        let mut first = (self.event_queue.next_time(), None);
        for (index, server) in self.servers.iter().enumerate() {
            let at = server.next_at();
            if at < first.0 {
                first = (at, Some(index));
            }
        }
        match first {
            (_, Some(server)) => {
                if !self.servers[server].step(end)? {
                    return Ok(false);
                }
                self.now = first.0;
                self.collect_ended(server);
            }
            (_, None) => {
                let Some((now, event)) = self.event_queue.pop(end) else { return Ok(false) };
                self.now = now;
                self.events += 1;
                self.handle(event);
            }
        }
        while let Some((server, ended)) = self.ended.pop_front() {
            self.on_attempt_ended(server, ended);
        }
        Ok(true)
    }

    fn handle(&mut self, event: Event) {
        match event {
            Event::Issue(client) => self.issue(client),
            Event::WarmedUp => self.stats.end_warmup(self.now),
            Event::Observe => {
                let gauges = sum_gauges(self.servers.iter().map(Run::gauges));
                if self.stats.observe(self.now, &gauges) {
                    self.on_interval();
                }
                self.event_queue.schedule(self.stats.next_observation(self.now), Event::Observe);
            }
            Event::Window => {
                let gauges = sum_gauges(self.servers.iter().map(Run::gauges));
                let delay = self.servers.iter().map(|server| server.delay_at(self.now)).max().unwrap_or_default();
                self.stats.end_window(self.now, gauges, delay, None);
                if let Some(window) = self.config.window {
                    self.event_queue.schedule(self.now + window, Event::Window);
                }
            }
        }
    }

    /// Follows a change of the measured interval.
    fn on_interval(&mut self) {
        let interval = self.stats.interval();
        self.servers.iter_mut().for_each(|server| server.set_interval(interval));
        if interval == MeasuredInterval::UNDECIDED {
            self.failure_delay.clear();
        }
        if !interval.has_begun(self.now) {
            self.event_queue.schedule(interval.from, Event::WarmedUp);
        }
    }

    fn schedule_issue(&mut self) {
        self.event_queue.schedule_arrival(self.arrivals.next(), Event::Issue);
    }

    fn issue(&mut self, client: u32) {
        let kind = self.kind_stream.draw();
        self.stats.record_issue(kind);
        self.in_flight.enter(self.now);
        let request = self.requests.insert(Request {
            issued: self.now,
            sent: self.now,
            arrived: self.now,
            service: self.config.service_of(kind).draw(&mut self.service_rng),
            session: client,
            demand: 0,
            priority: self.config.kinds.priority(kind, self.client_rng.bits()),
            kind,
            credit: CreditId::NONE,
            attempt_of: RequestId::default(),
        });
        let path =
            if self.config.application.is_plain() { 0 } else { self.config.application.draw(&mut self.path_rng) };
        let progress = Progress { server: self.first_server(client), path: path as u8, retried: false };
        match self.progress.get_mut(request.slot()) {
            Some(known) => *known = progress,
            // Slots are allocated consecutively.
            None => self.progress.push(progress),
        }
        self.send(request);
        self.schedule_issue();
    }

    fn first_server(&mut self, client: u32) -> usize {
        match self.next_server.get_mut(client as usize) {
            None => 0,
            Some(next) => {
                let server = *next;
                *next = (server + 1) % self.replicas.servers;
                server as usize
            }
        }
    }

    /// Sends the request to the server in its progress.
    fn send(&mut self, request: RequestId) {
        let Progress { server, path, .. } = self.progress[request.slot()];
        let Request { session: client, service, priority, kind, .. } = self.requests[request];
        self.servers[server].accept_attempt(self.now, &Attempt { request, client, service, priority, kind, path });
        self.collect_ended(server);
    }

    /// Collects the ended attempts of a server. A request that joins a session may displace others
    /// there.
    fn collect_ended(&mut self, server: usize) {
        let ended = self.servers[server].take_ended();
        self.ended.extend(ended.map(|ended| (server, ended)));
    }

    /// Handles the end of an attempt at `server`.
    fn on_attempt_ended(&mut self, server: usize, ended: EndedRequest) {
        let (request, attempt) = (ended.request.attempt_of, ended.request);
        let progress = self.progress[request.slot()];
        self.audit.check(progress.server == server, self.now, || {
            format!("a request of server {} ended at server {}", progress.server + 1, server + 1)
        });
        if let RequestOutcome::Rejected = ended.outcome {
            self.stats.record_reject_delay(self.now, &attempt);
        }
        match ended.outcome {
            RequestOutcome::Completed => {
                let record = self.remove(request, ended.outcome);
                self.stats.record_completion(self.now, &record);
            }
            RequestOutcome::Rejected | RequestOutcome::AtClient(_) if !progress.retried => self.retry(request),
            RequestOutcome::Rejected => {
                self.remove(request, ended.outcome);
                self.stats.record_rejected_end(attempt.kind);
            }
            RequestOutcome::AtClient(reason) => {
                self.remove(request, ended.outcome);
                self.stats.record_client_end(attempt.kind, reason);
            }
        }
    }

    /// Sends the request's second and last attempt, to the next server.
    fn retry(&mut self, request: RequestId) {
        let issued = self.requests[request].issued;
        if self.stats.interval().has_begun(self.now) {
            self.failure_delay.record(self.now.since(issued));
        }
        self.stats.record_retry();
        let progress = &mut self.progress[request.slot()];
        progress.retried = true;
        progress.server = (progress.server + 1) % self.servers.len();
        self.send(request);
    }

    fn remove(&mut self, request: RequestId, outcome: RequestOutcome) -> Request {
        let record = self.requests.remove(request, outcome);
        self.in_flight.leave(self.now, record.issued);
        record
    }

    fn report(mut self) -> RunOutcome {
        let end = self.stats.interval().to;
        self.audit
            .check(self.in_flight.is_consistent(), self.now, || "Little's law does not hold for the whole".into());
        let unfinished = self.requests.len() as u64;
        let gauges = sum_gauges(self.servers.iter().map(Run::gauges));
        let mut reports = Vec::with_capacity(self.servers.len());
        for server in self.servers {
            let (report, stats) = server.end();
            self.stats.merge(&stats);
            reports.push(report);
        }
        let cores = self.config.server.cores * self.replicas.servers;
        let events = self.events + reports.iter().map(|report| report.events.unwrap_or(0)).sum::<u64>();
        let mut whole = self.stats.report(cores, unfinished, gauges, events);
        whole.failure_delay = Some(self.failure_delay.percentiles());
        let sums = |of: fn(&RunOutcome) -> u64| reports.iter().map(of).sum::<u64>();
        let totals = whole.totals;
        let invariants = [
            (totals.is_balanced(), "requests don't add up".to_string()),
            (
                sums(|report| report.totals.offered) == totals.offered + totals.sent_again,
                "attempts are not requests and second attempts".into(),
            ),
            (
                sums(|report| report.totals.unfinished) == totals.unfinished,
                "requests under way are not at exactly one server each".into(),
            ),
            (
                sums(|report| report.totals.completed) == totals.completed,
                "responses of the servers are not those of the whole".into(),
            ),
            (
                sums(|report| report.totals.dropped + report.totals.client_total())
                    == totals.dropped + totals.client_total() + totals.sent_again,
                "attempts that failed were neither the last nor followed by another".into(),
            ),
        ];
        for (holds, problem) in invariants {
            self.audit.check(holds, end, || format!("{problem}: {totals:?}"));
        }
        whole.violations = self.audit.into_violations();
        for (index, report) in reports.iter_mut().enumerate() {
            let own = std::mem::take(&mut report.violations);
            whole.violations.extend(own.into_iter().map(|violation| format!("server {}: {violation}", index + 1)));
            add_windows(&mut whole, report);
        }
        whole.replicas = reports;
        whole
    }
}

/// Adds a server's windows to those of the service.
///
/// Messages and rejections are counted at the servers; before this, the service's windows have only
/// the clients' counts.
fn add_windows(whole: &mut RunOutcome, server: &RunOutcome) {
    for (window, own) in whole.windows.iter_mut().zip(&server.windows) {
        if let (Some(sum), Some(own)) = (&mut window.server, &own.server) {
            sum.add(own);
        }
    }
}

/// Adds up the gauges of all controllers that are sums.
fn sum_gauges(gauges: impl Iterator<Item = Gauges>) -> Gauges {
    let both = |one: Option<i64>, other: Option<i64>| match (one, other) {
        (Some(one), Some(other)) => Some(one + other),
        (one, other) => one.or(other),
    };
    gauges.fold(Gauges::default(), |sum, own| Gauges {
        credit_pool: both(sum.credit_pool, own.credit_pool),
        credits_issued: both(sum.credits_issued, own.credits_issued),
        sessions: both(sum.sessions, own.sessions),
        in_flight: both(sum.in_flight, own.in_flight),
        ..sum
    })
}
