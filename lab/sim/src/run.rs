//! A run of one server: the clients, the wire and the server, and the event loop.

mod cores;
mod shadow;
mod steps;

use crate::SimError;
use crate::audit::Audit;
use crate::clients::Clients;
use crate::config::{Aqm, ControlTiming, MeasuredInterval, MethodVisibility, SimConfig};
use crate::event::{Event, Packet};
use crate::event_queue::{EventQueue, Lane};
use crate::kinds::KindEstimates;
use crate::oracle::Oracle;
use crate::pending_responses::PendingResponses;
use crate::requests::{Attempt, EndedRequest, Request, RequestId, RequestOutcome, Requests};
use crate::run_guard::RunGuard;
use crate::scheduling::scheduler::Scheduler;
use crate::server::{Activity, OutgoingMessage, Server, WAKES_PER_TICK};
use crate::server_queues::Task;
use crate::sleep::CoreSleep;
use crate::stalls::StallClock;
use crate::stats::Stats;
use crate::wire::Wire;
use leeward_core::client::LocalReason;
use leeward_core::params::Params;
use leeward_core::registry::Algorithm;
use leeward_core::server::{
    Arrival, CoreId, Departure, Feedback, Gauges, Outcome, Registration, ServerHalves, Session, SessionSlot, Signals,
    Verdict,
};
use leeward_core::units::{CreditId, Method, Nanos, Time};
use leeward_outcome::RunOutcome;
use leeward_workload::rng::{Purpose, Rng};
use leeward_workload::{ArrivalStream, KindStream, ThinkTimes};
use shadow::ShadowMode;
use std::sync::atomic::AtomicBool;
use steps::StepRunner;

/// The state of one run.
pub(crate) struct Run<'a> {
    config: &'a SimConfig,
    now: Time,
    event_queue: EventQueue<Event>,
    /// `None` if requests come from a service of replicas.
    arrivals: Option<ArrivalStream>,
    /// Think times, if the load is a closed loop.
    think_times: Option<ThinkTimes>,
    requests: Requests,
    kind_estimates: KindEstimates,
    clients: Clients<RequestId>,
    wire: Wire,
    server: Server,
    pending_responses: PendingResponses,
    /// Core allocation; `None`: all cores are permanent.
    scheduler: Option<Box<Scheduler>>,
    stalls: StallClock,
    /// Sleep of idle cores; `None`: cores are always awake.
    sleep: Option<Box<CoreSleep>>,
    steps: Option<Box<StepRunner>>,
    /// `None` unless the algorithm is the oracle.
    oracle: Option<Box<Oracle>>,
    /// `None` unless the controller runs in shadow mode.
    shadow: Option<Box<ShadowMode>>,
    sessions: Vec<Session>,
    halves: ServerHalves,
    period: Nanos,
    /// Whether the pending tick has already waited in the run queue.
    tick_has_queued: bool,
    first_woken: usize,
    since_tick: Signals,
    stats: Stats,
    audit: Audit,
    events: u64,
    guard: RunGuard<'a>,
    kind_stream: KindStream,
    service_rng: Rng,
    client_rng: Rng,
    server_rng: Rng,
}

impl<'a> Run<'a> {
    pub(crate) fn new(
        config: &'a SimConfig,
        algorithm: &Algorithm,
        params: &Params,
        mut halves: ServerHalves,
        scheduler: Option<Box<Scheduler>>,
        stop: &'a AtomicBool,
    ) -> Result<Self, SimError> {
        let environment = config.environment();
        let cores = config.server.cores;
        let thinking = ThinkTimes::new(&config.workload, config.seed);
        let notes_ends = config.replicas.is_some() || thinking.is_some();
        let mut sessions: Vec<Session> = (0..config.workload.clients)
            .map(|client| Session::new(SessionSlot(client / cores), CoreId(client % cores)))
            .collect();
        for session in &mut sessions {
            halves.cores[session.core.0 as usize].open(session, &Registration { now: Time::ZERO, demand: 0 });
        }
        let mut stats = Stats::new(config);
        stats.expect_reaction(halves.control.reaction());
        Ok(Run {
            now: Time::ZERO,
            event_queue: EventQueue::new(),
            arrivals: config.replicas.is_none().then(|| ArrivalStream::new(&config.workload, config.seed)),
            think_times: thinking,
            requests: if notes_ends { Requests::new().with_end_log() } else { Requests::new() },
            kind_estimates: KindEstimates::new(config),
            clients: Clients::new(config, algorithm, params, &environment)?,
            wire: Wire::new(config),
            server: match &scheduler {
                None => Server::new(&config.server),
                Some(_) => {
                    let extra = Scheduler::extra_queues(config.server.scheduling.as_ref());
                    Server::new(&config.server).managed(extra)
                }
            },
            pending_responses: PendingResponses::new(&config.server, !config.application.is_plain()),
            scheduler,
            stalls: StallClock::new(&config.server, config.seed),
            sleep: CoreSleep::from_config(&config.server, config.seed).map(Box::new),
            steps: StepRunner::new(config).map(Box::new),
            oracle: Oracle::from_config(config, algorithm),
            shadow: ShadowMode::from_config(config, &halves, algorithm.name)?,
            sessions,
            period: halves.control.period().max(Nanos(1)),
            halves,
            tick_has_queued: false,
            first_woken: 0,
            since_tick: Signals::idle(Time::ZERO),
            stats,
            audit: Audit::default(),
            events: 0,
            guard: RunGuard::new(config, algorithm.name, stop),
            kind_stream: KindStream::new(&config.kinds, config.seed),
            service_rng: Rng::new(config.seed, Purpose::Service),
            client_rng: Rng::new(config.seed, Purpose::Clients),
            server_rng: Rng::new(config.seed, Purpose::Server),
            config,
        })
    }

    /// Time between two changes of what the controller admits.
    pub(crate) fn reaction(&self) -> Nanos {
        self.halves.control.reaction()
    }

    /// Sets a fixed margin for the oracle, if any.
    pub(crate) fn with_margin(mut self, margin: Option<f64>) -> Self {
        if let (Some(oracle), Some(margin)) = (&mut self.oracle, margin) {
            oracle.fix_margin(margin);
        }
        self
    }

    /// Runs until the end of the measurement.
    pub(crate) fn finish(mut self) -> Result<RunOutcome, SimError> {
        self.start();
        while self.step(self.stats.interval().to)? {}
        Ok(self.end().0)
    }

    /// Schedules the first events.
    pub(crate) fn start(&mut self) {
        self.event_queue.schedule(self.stats.interval().from, Event::WarmedUp);
        self.event_queue.schedule(self.stats.next_observation(Time::ZERO), Event::Observe);
        if let Some(window) = self.config.window {
            self.event_queue.schedule(Time::ZERO + window, Event::Window);
        }
        self.event_queue.schedule(Time::ZERO + self.period, Event::Tick);
        self.schedule_issue();
        (0..self.config.workload.clients).for_each(|client| self.schedule_think(client));
        self.start_cores();
    }

    /// Handles the next event if it is not after `end`.
    pub(crate) fn step(&mut self, end: Time) -> Result<bool, SimError> {
        let Some((now, event)) = self.event_queue.pop(end) else { return Ok(false) };
        self.now = now;
        self.events += 1;
        if self.guard.must_stop(now) {
            return Err(self.guard.error());
        }
        self.handle(event);
        self.reschedule_thinkers();
        self.check_cores();
        Ok(true)
    }

    fn check_cores(&mut self) {
        let now = self.now;
        match &self.scheduler {
            None => {
                self.audit.check(!self.server.idles_despite_work(), now, || "a core idles despite work".into());
            }
            Some(_) if self.config.audit => {
                self.audit.check(!self.has_parked_work(), now, || "a parked core has work".into());
            }
            Some(_) => {}
        }
    }

    /// Returns the report, after the last event of the measured interval.
    pub(crate) fn end(mut self) -> (RunOutcome, Stats) {
        let end = self.stats.interval().to;
        self.audit_accounting();
        self.account_spinning(end);
        let cores = self.core_usage(end);
        self.audit.check(self.stats.littles_law_holds(), self.now, || "Little's law does not hold".into());
        let gauges = self.halves.control.gauges();
        let unfinished = self.requests.len() as u64;
        let mut report = self.stats.report(self.config.server.cores, unfinished, gauges, self.events);
        report.locks = self.steps.map(|steps| steps.report()).unwrap_or_default();
        self.audit.check(report.totals.is_balanced(), end, || format!("requests don't add up: {:?}", report.totals));
        self.audit.check(self.stats.kinds_add_up(), end, || "kinds don't add up to all requests".into());
        report.violations = self.audit.into_violations();
        report.cores = cores;
        (report, self.stats)
    }

    /// Leaves the observation of the run, and its measured interval, to the caller.
    pub(crate) fn observed_by_caller(mut self) -> Self {
        self.stats.stop_observing();
        self
    }

    /// Sets the measured interval, which the caller decides.
    pub(crate) fn set_interval(&mut self, interval: MeasuredInterval) {
        self.stats.set_interval(interval);
        self.on_interval(interval);
    }

    /// Follows a change of the measured interval.
    fn on_interval(&mut self, interval: MeasuredInterval) {
        if let Some(steps) = &mut self.steps {
            steps.set_interval(interval);
        }
        if !interval.has_begun(self.now) {
            self.event_queue.schedule(interval.from, Event::WarmedUp);
        }
    }

    /// Time of the next event.
    pub(crate) fn next_at(&self) -> Time {
        self.event_queue.next_time()
    }

    /// Accepts a request of a service of replicas. `now` is not before the last event.
    pub(crate) fn accept_attempt(&mut self, now: Time, attempt: &Attempt) {
        self.now = now;
        self.submit(attempt);
    }

    /// Returns the requests that have ended since the last call.
    pub(crate) fn take_ended(&mut self) -> impl Iterator<Item = EndedRequest> + '_ {
        self.requests.take_ended()
    }

    /// Gauges of the controller.
    pub(crate) fn gauges(&self) -> Gauges {
        self.halves.control.gauges()
    }

    /// d_m (Breakwater §4), the queueing delay, at a time not before the last event.
    pub(crate) fn delay_at(&self, now: Time) -> Nanos {
        self.server.queues.packet_delay(now) + self.server.queues.run_delay(now)
    }

    /// Checks that the parts of this run agree on their counts.
    fn audit_accounting(&mut self) {
        self.audit.check_credits(self.now, &self.halves.control.gauges(), &self.sessions);
        let (waiting, outstanding) = self.clients.waiting_and_outstanding();
        let in_flight = self.requests.len() as u64;
        self.audit.check(in_flight == waiting + outstanding, self.now, || {
            format!("{in_flight} requests under way, but {waiting} wait at clients and {outstanding} are unanswered")
        });
        if let Some(steps) = &self.steps {
            steps.audit(self.now, &mut self.audit);
        }
    }

    fn handle(&mut self, event: Event) {
        match event {
            Event::Issue(client) => self.issue(client),
            Event::PacketArrived(packet) => self.on_packet(packet),
            Event::Reply(request, outcome, feedback) => self.on_reply(request, outcome, feedback),
            Event::Credit(client, feedback) => self.with_client(client, |clients, now, wire| {
                clients.on_credit(client, now, &feedback, wire);
            }),
            Event::Timer(client) => {
                let now = self.now;
                if self.clients.timer_is_due(client, now) {
                    self.with_client(client, |clients, now, wire| clients.on_timer(client, now, wire));
                }
            }
            Event::Core(core) => self.on_core_done(core as usize),
            Event::WaitEnded(request) => self.on_wait_ended(request),
            Event::LockTimeout(request, wait) => self.on_lock_timeout(request, wait),
            Event::Tick => self.tick(),
            Event::Allocate => self.allocator_tick(),
            Event::Granted(core) => self.on_granted(core as usize),
            Event::SearchStep(core, generation) => self.on_search_step(core as usize, generation),
            Event::WarmedUp => {
                self.stats.end_warmup(self.now);
                if let Some(scheduler) = &mut self.scheduler {
                    scheduler.usage.end_warmup(self.now);
                }
            }
            Event::Observe => {
                let (now, gauges) = (self.now, self.halves.control.gauges());
                if self.stats.observe(now, &gauges) {
                    self.on_interval(self.stats.interval());
                }
                self.event_queue.schedule(self.stats.next_observation(now), Event::Observe);
            }
            Event::Window => {
                let delay = self.delay();
                let length = self.config.window.unwrap_or_default();
                let now = self.now;
                let cores = self.scheduler.as_mut().map(|scheduler| scheduler.usage.end_window(now, length));
                self.stats.end_window(self.now, self.halves.control.gauges(), delay, cores);
                if let Some(window) = self.config.window {
                    self.event_queue.schedule(self.now + window, Event::Window);
                }
            }
        }
    }

    // ---- clients ----

    fn schedule_issue(&mut self) {
        self.event_queue.schedule_arrival(self.arrivals.as_mut().and_then(Iterator::next), Event::Issue);
    }

    /// Schedules the client's next request after its think time, in a closed loop.
    fn schedule_think(&mut self, client: u32) {
        let now = self.now;
        if let Some(at) = self.think_times.as_mut().and_then(|thinking| thinking.next(client, now)) {
            self.event_queue.schedule(at, Event::Issue(client));
        }
    }

    /// Schedules the next request of each client whose request has just ended.
    fn reschedule_thinkers(&mut self) {
        if self.think_times.is_none() {
            return;
        }
        let idle: Vec<u32> = self.requests.take_ended().map(|ended| ended.request.session).collect();
        idle.into_iter().for_each(|client| self.schedule_think(client));
    }

    fn issue(&mut self, client: u32) {
        let kind = self.kind_stream.draw();
        let attempt = Attempt {
            request: RequestId::default(),
            client,
            service: self.config.service_of(kind).draw(&mut self.service_rng),
            priority: self.config.kinds.priority(kind, self.client_rng.bits()),
            kind,
            path: self.steps.as_mut().map_or(0, |steps| steps.draw()),
        };
        self.submit(&attempt);
        self.schedule_issue();
    }

    fn submit(&mut self, attempt: &Attempt) {
        let Attempt { request: of, client, service, priority, kind, path } = *attempt;
        self.stats.record_issue(kind);
        let request = self.requests.insert(Request {
            issued: self.now,
            sent: self.now,
            arrived: self.now,
            service,
            session: client,
            demand: 0,
            priority,
            kind,
            credit: CreditId::NONE,
            attempt_of: of,
        });
        if let Some(steps) = &mut self.steps {
            steps.add_request(request, path);
        }
        let random = self.client_rng.bits();
        let objective = self.config.objective_of(kind);
        if self.oracle.as_mut().is_some_and(|oracle| !oracle.admit(request, service, path, objective, self.now)) {
            self.requests.remove(request, RequestOutcome::AtClient(LocalReason::Throttled));
            self.stats.record_client_end(kind, LocalReason::Throttled);
            return;
        }
        self.with_client(client, |clients, now, wire| clients.submit(client, now, request, priority, random, wire));
    }

    fn on_reply(&mut self, request: RequestId, outcome: Outcome, feedback: Feedback) {
        let end = match outcome {
            Outcome::Completed => RequestOutcome::Completed,
            Outcome::Rejected => RequestOutcome::Rejected,
        };
        let record = self.requests.remove(request, end);
        let given_up = self.config.clients.timeout.is_some_and(|timeout| self.now.since(record.issued) > timeout);
        match outcome {
            _ if given_up => self.stats.record_timeout(record.kind),
            Outcome::Completed => self.stats.record_completion(self.now, &record),
            Outcome::Rejected => self.stats.record_client_reject(self.now, &record),
        }
        let round_trip = self.now.since(record.sent);
        self.with_client(record.session, |clients, now, wire| {
            clients.on_reply(record.session, now, outcome, round_trip, &feedback, wire);
        });
    }

    /// Applies `act` to the clients, then sets this client's timer.
    fn with_client(
        &mut self,
        client: u32,
        act: impl FnOnce(&mut Clients<RequestId>, Time, &mut crate::wire::ClientSink<'_>),
    ) {
        let (requests, stats, oracle) = (&mut self.requests, &mut self.stats, self.oracle.as_deref_mut());
        let mut sink = self.wire.sink(client, self.now, &mut self.event_queue, requests, stats, oracle);
        act(&mut self.clients, self.now, &mut sink);
        if let Some(at) = self.clients.rearm(client, self.now) {
            self.event_queue.schedule_on(Lane::Timers, at, Event::Timer(client));
        }
    }

    // ---- server ----

    fn on_packet(&mut self, packet: Packet) {
        if let Packet::Request { request, .. } = packet {
            self.requests[request].arrived = self.now;
            self.stats.record_arrival(self.now);
            if self.config.server.aqm == Aqm::Arrival && !self.admit(request) {
                self.reject_unreceived(request);
                return;
            }
        }
        if self.scheduler.is_some() {
            self.place(packet);
            return;
        }
        let home = self.home(packet.session());
        self.server.enqueue_packet(home, self.now, packet);
        if let Some(core) = self.server.idle_core(home) {
            self.begin(core, Nanos::ZERO);
        }
    }

    fn on_core_done(&mut self, core: usize) {
        let activity = std::mem::replace(&mut self.server.cores[core].activity, Activity::Idle);
        let debt = match activity {
            Activity::Idle | Activity::Settling | Activity::Spinning(..) => Some(Nanos::ZERO),
            Activity::Waking => {
                self.server.end_wake(core, self.now);
                Some(Nanos::ZERO)
            }
            Activity::Receiving(packet) => Some(self.on_received(core, packet)),
            Activity::Executing(task) if self.steps.is_some() => self.on_step_end(core, task),
            Activity::Executing(task) => {
                self.on_executed(core, task.request);
                Some(Nanos::ZERO)
            }
            Activity::Sending(count, messages) => {
                self.stats.record_sent(messages);
                for _ in 0..count {
                    self.send_outgoing(core);
                }
                Some(Nanos::ZERO)
            }
        };
        // `None`: the core continues with the same request.
        if let Some(debt) = debt {
            if self.scheduler.is_some() {
                self.continue_core(core, debt);
                return;
            }
            self.begin(core, debt);
        }
        self.wake_idle_cores(core);
    }

    /// Wakes idle cores for work that `core` has queued and can't execute yet.
    fn wake_idle_cores(&mut self, core: usize) {
        while self.server.has_unserved_work() {
            match self.server.idle_core(core) {
                Some(idle) => self.begin(idle, Nanos::ZERO),
                None => break,
            }
        }
    }

    /// Processes a message that `core` has received and parsed. Returns the CPU time that the core
    /// still owes for it.
    fn on_received(&mut self, core: usize, packet: Packet) -> Nanos {
        match packet {
            Packet::Request { request, session } => {
                let is_admitted = self.config.server.aqm == Aqm::Arrival || self.admit(request);
                if is_admitted && self.has_budget(request) {
                    self.server.queues.push_task(core, self.now, Task { request });
                    self.pending_responses.add(session);
                    return self.server.cost_of_admission();
                }
                self.record_rejection();
                self.server.cores[core].outgoing.push_back(OutgoingMessage::Rejection(session, request));
                self.server.cost_of_rejection()
            }
            Packet::Demand { session, demand } => {
                self.stats.record_receive(false);
                let home = self.home(session);
                let record = &mut self.sessions[session as usize];
                record.demand = demand;
                if let Some(feedback) = self.halves.cores[home].demand(record, self.now) {
                    self.server.cores[core].outgoing.push_back(OutgoingMessage::Credit(session, feedback));
                }
                Nanos::ZERO
            }
        }
    }

    /// Asks the controller whether to admit a request.
    fn admit(&mut self, request: RequestId) -> bool {
        if self.shadow.is_some() {
            return self.admit_shadow(request);
        }
        self.stats.record_receive(true);
        self.since_tick.arrivals += 1;
        let record = self.requests[request];
        let arrival = Arrival::new(self.now)
            .with_demand(record.demand)
            .with_priority(record.priority)
            .with_delay(self.delay())
            .with_random(self.server_rng.bits());
        let arrival = self.kind_estimates.describe(arrival, &record, self.server.queues.run_delay(self.now));
        let arrival = match &self.steps {
            Some(steps) if self.config.server.methods == MethodVisibility::Paths => {
                arrival.with_method(Method(steps.path_of(request).into()))
            }
            _ => arrival,
        };
        let home = self.home(record.session);
        let session = &mut self.sessions[record.session as usize];
        let (verdict, permit) = session.request(self.halves.cores[home].as_mut(), &arrival);
        self.requests.store_permit(request, permit);
        verdict == Verdict::Admit
    }

    /// Rejects a request before a core has received it.
    fn reject_unreceived(&mut self, request: RequestId) {
        self.record_rejection();
        let session = self.requests[request].session;
        let core = self.sender(self.home(session));
        let cost = self.server.cost_of_rejection();
        self.server.cores[core].outgoing.push_back(OutgoingMessage::Rejection(session, request));
        self.server.cores[core].debt += cost;
        if self.scheduler.is_some() {
            self.send_if_idle(core);
        } else if let Activity::Idle = self.server.cores[core].activity {
            self.begin(core, Nanos::ZERO);
        }
    }

    /// Begins the next step of `core`, or puts the core to sleep.
    fn begin(&mut self, core: usize, mut debt: Nanos) {
        if let (Some(sleep), true) = (&mut self.sleep, self.server.is_idle(core)) {
            let at = self.now + sleep.wake_delay(core, self.now);
            self.server.begin_wake(core);
            self.event_queue.schedule(at, Event::Core(core as u32));
            return;
        }
        debt += std::mem::take(&mut self.server.cores[core].debt);
        let step = loop {
            let (requests, steps, responses) = (&self.requests, &self.steps, &self.pending_responses);
            let length = |request| match steps {
                None => {
                    let Request { service, session, .. } = requests[request];
                    service + responses.cost(session, service)
                }
                Some(steps) => steps.next_work(request, requests[request].service),
            };
            let Some(step) = self.server.begin(core, self.now, debt, length) else {
                if let Some(sleep) = &mut self.sleep {
                    sleep.begin(core, self.now);
                }
                self.on_idle(core);
                return;
            };
            let (Activity::Executing(task), Some(from)) = (self.server.cores[core].activity, step.execution_start)
            else {
                break step;
            };
            if let Some(steps) = &mut self.steps
                && !steps.start_if_new(task.request, from)
            {
                break step;
            }
            let record = self.requests[task.request];
            let home = self.home(record.session);
            // Its own receiving and spawning are work, not waiting. At a service time of 100 ns
            // they would use up a short target.
            let waited = from.since(record.arrived).saturating_sub(self.server.cost_of_entering());
            let verdict = match &self.shadow {
                None => self.halves.cores[home].on_dequeue(waited),
                Some(_) => Verdict::Admit,
            };
            match verdict {
                Verdict::Admit => {
                    self.stats.record_start(from, &record);
                    break step;
                }
                Verdict::Reject(_) => {
                    self.record_rejection();
                    self.pending_responses.remove(record.session);
                    self.server.cores[core]
                        .outgoing
                        .push_back(OutgoingMessage::Rejection(record.session, task.request));
                    debt += self.server.cost_of_rejection();
                }
            }
        };
        let until = self.stalls.delayed_end(core, self.now, step.end);
        self.stats.record_busy(self.now, until, step.end.since(self.now));
        self.event_queue.schedule(until, Event::Core(core as u32));
    }

    fn send_outgoing(&mut self, core: usize) {
        match self.server.cores[core].outgoing.pop_front() {
            Some(OutgoingMessage::Rejection(_, request)) => self.respond(request, Outcome::Rejected),
            Some(OutgoingMessage::Response(_, request)) => self.respond(request, Outcome::Completed),
            Some(OutgoingMessage::Credit(session, mut feedback)) => {
                // The window may have changed while the message waited for its core, and a response
                // with the newer window may have left. An older window must not follow it.
                feedback.window = self.sessions[session as usize].window;
                let at = self.wire.arrival_at_client(session, self.now);
                self.event_queue.schedule_on(Lane::ToClient, at, Event::Credit(session, feedback));
            }
            None => {}
        }
    }

    /// Sends the response of an executed request, or holds it for others of its session.
    fn on_executed(&mut self, core: usize, request: RequestId) {
        let Request { session, service, .. } = self.requests[request];
        let is_immediate = self.pending_responses.is_written_immediately(session, service);
        self.pending_responses.remove(session);
        if !is_immediate {
            self.server.cores[core].outgoing.push_back(OutgoingMessage::Response(session, request));
            self.server.expire_hold(core, service);
            return;
        }
        // Pending responses of the same session share this write.
        for waiting in self.server.take_responses(core, session) {
            self.respond(waiting, Outcome::Completed);
        }
        self.respond(request, Outcome::Completed);
        self.stats.record_sent(1);
    }

    /// Sends a response or rejection.
    fn respond(&mut self, request: RequestId, outcome: Outcome) {
        let record = self.requests[request];
        self.stats.record_departure(self.now, &record);
        if let Some(oracle) = &mut self.oracle {
            oracle.on_departure(request, record.issued, self.now);
        }
        match outcome {
            Outcome::Completed => {
                self.since_tick.completions += 1;
                self.kind_estimates.record_execution(&record);
            }
            Outcome::Rejected => self.since_tick.rejections += 1,
        }
        if let Some(steps) = &mut self.steps {
            self.since_tick.lock_rejections += u64::from(steps.on_departure(request));
        }
        if let Some(shadow) = &self.shadow {
            if outcome == Outcome::Completed {
                shadow.record_execution(&record);
            }
            // The controller sees the outcome through the shadow queue, and the client gets no
            // feedback from it.
            let window = self.sessions[record.session as usize].window;
            let at = self.wire.arrival_at_client(record.session, self.now);
            let feedback = Feedback { window, ..Feedback::NONE };
            self.event_queue.schedule_on(Lane::ToClient, at, Event::Reply(request, outcome, feedback));
            return;
        }
        let sojourn = self.now.since(record.arrived);
        let departure = Departure { now: self.now, outcome, sojourn, credit: record.credit };
        let home = self.home(record.session);
        let session = &mut self.sessions[record.session as usize];
        let permit = self.requests.take_permit(request);
        let feedback = session.reply(self.halves.cores[home].as_mut(), permit, &departure);
        let at = self.wire.arrival_at_client(record.session, self.now);
        self.event_queue.schedule_on(Lane::ToClient, at, Event::Reply(request, outcome, feedback));
    }

    fn tick(&mut self) {
        if let Some(later) = self.stalls.blocked_until(self.now) {
            self.event_queue.schedule(later, Event::Tick);
            return;
        }
        if self.shadow.is_some() {
            self.event_queue.schedule(self.now + self.period, Event::Tick);
            return;
        }
        if self.config.server.control == ControlTiming::Queued && !std::mem::take(&mut self.tick_has_queued) {
            // A tick that joins the run queue now waits about as long as the oldest task has
            // waited.
            let wait = self.server.queues.run_delay(self.now);
            if wait > Nanos::ZERO {
                self.tick_has_queued = true;
                self.event_queue.schedule(self.now + wait, Event::Tick);
                return;
            }
        }
        let signals = Signals {
            now: self.now,
            packet_delay: self.server.queues.packet_delay(self.now),
            run_delay: self.server.queues.run_delay(self.now),
            ..self.since_tick
        };
        self.halves.control.tick(&signals);
        self.since_tick = Signals::idle(self.now);
        self.wake_sessions();
        if self.config.audit {
            self.audit_accounting();
        }
        self.event_queue.schedule(self.now + self.period, Event::Tick);
    }

    /// Sends explicit credits while the controller names sessions to wake. Each call begins with
    /// another core.
    fn wake_sessions(&mut self) {
        let cores = self.halves.cores.len();
        let mut left = WAKES_PER_TICK;
        for step in 0..cores {
            let core = (self.first_woken + step) % cores;
            while left > 0 {
                let random = self.server_rng.bits();
                let Some(slot) = self.halves.cores[core].next_to_wake(random) else { break };
                left -= 1;
                let session = slot.0 * cores as u32 + core as u32;
                let feedback = self.halves.cores[core].wake(&mut self.sessions[session as usize], self.now);
                let sender = self.sender(core);
                self.server.cores[sender].outgoing.push_back(OutgoingMessage::Credit(session, feedback));
            }
            if self.scheduler.is_some() {
                self.send_if_idle(self.sender(core));
            } else if let (Activity::Idle, false) =
                (self.server.cores[core].activity, self.server.cores[core].outgoing.is_empty())
            {
                self.begin(core, Nanos::ZERO);
            }
        }
        self.first_woken = (self.first_woken + 1) % cores;
    }

    fn home(&self, session: u32) -> usize {
        self.sessions[session as usize].core.0 as usize
    }

    /// d_m (Breakwater §4), the current queueing delay.
    fn delay(&self) -> Nanos {
        self.delay_at(self.now)
    }
}
