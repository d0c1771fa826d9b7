//! A simulation run: the clients, the wire and the server put together, and the loop over their events.

mod cores;
mod rehearsal;
mod staged;

use crate::SimError;
use crate::agenda::{Agenda, Lane};
use crate::answers::Answers;
use crate::audit::Audit;
use crate::clients::Clients;
use crate::config::{Aqm, Methods, SimConfig, Turns};
use crate::event::{Event, Packet};
use crate::instant::Instant;
use crate::kinds::Known;
use crate::oracle::Oracle;
use crate::requests::{Attempt, End, Ended, Request, RequestId, Requests};
use crate::scheduling::scheduler::Scheduler;
use crate::server::{Activity, Outgoing, Server, WAKES_PER_TICK};
use crate::server_queues::Task;
use crate::sleep::Sleep;
use crate::stalls::StallClock;
use crate::stats::Stats;
use crate::wire::Wire;
use leeward_core::client::LocalReason;
use leeward_core::params::Params;
use leeward_core::registry::Algorithm;
use leeward_core::server::{
    Arrival, CoreId, Departure, Feedback, Gauges, Opened, Outcome, ServerHalves, Session, SessionSlot, Signals, Verdict,
};
use leeward_core::units::{CreditId, Method, Nanos, Time};
use leeward_outcome::RunOutcome;
use leeward_workload::rng::{Purpose, Rng};
use leeward_workload::{ArrivalStream, KindStream, ThinkTimes};
use rehearsal::Rehearsal;
use staged::Staged;
use std::sync::atomic::AtomicBool;

/// Everything of one run.
pub(crate) struct Run<'a> {
    config: &'a SimConfig,
    now: Time,
    agenda: Agenda<Event>,
    /// `None` where requests come from elsewhere.
    arrivals: Option<ArrivalStream>,
    /// Where clients wait for answers before they issue again.
    thinking: Option<ThinkTimes>,
    requests: Requests,
    kinds: Known,
    clients: Clients<RequestId>,
    wire: Wire,
    server: Server,
    answers: Answers,
    /// Where an allocator grants and parks the cores. Without one every core is always there.
    scheduler: Option<Box<Scheduler>>,
    stalls: StallClock,
    /// Where cores sleep while they are idle.
    sleep: Option<Box<Sleep>>,
    staged: Option<Box<Staged>>,
    /// Where it decides in the controller's place.
    oracle: Option<Box<Oracle>>,
    /// Where the controller rehearses.
    rehearsal: Option<Box<Rehearsal>>,
    sessions: Vec<Session>,
    halves: ServerHalves,
    period: Nanos,
    /// Whether the turn that is due has waited in the run queue.
    turn_has_queued: bool,
    first_woken: usize,
    since_tick: Signals,
    stats: Stats,
    audit: Audit,
    events: u64,
    instant: Instant<'a>,
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
            halves.cores[session.core.0 as usize].open(session, &Opened { now: Time::ZERO, demand: 0 });
        }
        Ok(Run {
            now: Time::ZERO,
            agenda: Agenda::new(),
            arrivals: config.replicas.is_none().then(|| ArrivalStream::new(&config.workload, config.seed)),
            thinking,
            requests: if notes_ends { Requests::new().noting_ends() } else { Requests::new() },
            kinds: Known::new(config),
            clients: Clients::new(config, algorithm, params, &environment)?,
            wire: Wire::new(config),
            server: match &scheduler {
                None => Server::new(&config.server),
                Some(_) => {
                    let extra = Scheduler::extra_queues(config.server.scheduling.as_ref());
                    Server::new(&config.server).managed(extra)
                }
            },
            answers: Answers::new(&config.server, !config.application.is_plain()),
            scheduler,
            stalls: StallClock::new(&config.server, config.seed),
            sleep: Sleep::of(&config.server, config.seed).map(Box::new),
            staged: Staged::new(config).map(Box::new),
            oracle: Oracle::of(config, algorithm),
            rehearsal: Rehearsal::of(config, &halves, algorithm.name)?,
            sessions,
            period: halves.control.period().max(Nanos(1)),
            halves,
            turn_has_queued: false,
            first_woken: 0,
            since_tick: Signals::idle(Time::ZERO),
            stats: Stats::new(config),
            audit: Audit::default(),
            events: 0,
            instant: Instant::new(config, algorithm.name, stop),
            kind_stream: KindStream::new(&config.kinds, config.seed),
            service_rng: Rng::new(config.seed, Purpose::Service),
            client_rng: Rng::new(config.seed, Purpose::Clients),
            server_rng: Rng::new(config.seed, Purpose::Server),
            config,
        })
    }

    /// The same, whose oracle has this margin and learns none.
    pub(crate) fn with_margin(mut self, margin: Option<f64>) -> Self {
        if let (Some(oracle), Some(margin)) = (&mut self.oracle, margin) {
            oracle.fix_margin(margin);
        }
        self
    }

    /// Runs to the end.
    pub(crate) fn finish(mut self) -> Result<RunOutcome, SimError> {
        let end = Time::ZERO + self.config.duration;
        self.start();
        while self.step(end)? {}
        Ok(self.end(end).0)
    }

    /// Puts the first events on the agenda.
    pub(crate) fn start(&mut self) {
        self.agenda.schedule(Time::ZERO + self.config.warmup, Event::WarmedUp);
        if let Some(window) = self.config.window {
            self.agenda.schedule(Time::ZERO + window, Event::Window);
        }
        self.agenda.schedule(Time::ZERO + self.period, Event::Tick);
        self.schedule_issue();
        (0..self.config.workload.clients).for_each(|client| self.think(client));
        self.start_cores();
    }

    /// The next event, if it is not after `end`.
    pub(crate) fn step(&mut self, end: Time) -> Result<bool, SimError> {
        let Some((now, event)) = self.agenda.pop(end) else { return Ok(false) };
        self.now = now;
        self.events += 1;
        if self.instant.is_over(now) {
            return Err(self.instant.error());
        }
        self.handle(event);
        self.think_again();
        self.check_cores();
        Ok(true)
    }

    fn check_cores(&mut self) {
        let now = self.now;
        match &self.scheduler {
            None => {
                self.audit.check(!self.server.idles_beside_work(), now, || "a core idles beside work".into());
            }
            Some(_) if self.config.audit => {
                self.audit.check(!self.parked_with_work(), now, || "a parked core has work".into());
            }
            Some(_) => {}
        }
    }

    /// The report, once the last event before `end` has been.
    pub(crate) fn end(mut self, end: Time) -> (RunOutcome, Stats) {
        self.audit_books();
        self.spinners_end(end);
        let cores = self.core_usage(end);
        self.audit.check(self.stats.littles_law_holds(), self.now, || "Little's law does not hold".into());
        let gauges = self.halves.control.gauges();
        let unfinished = self.requests.len() as u64;
        let mut report = self.stats.report(self.config.server.cores, unfinished, gauges, self.events);
        report.locks = self.staged.map(|staged| staged.report()).unwrap_or_default();
        self.audit.check(report.totals.balance(), end, || format!("requests don't add up: {:?}", report.totals));
        self.audit.check(self.stats.kinds_add_up(), end, || "kinds don't add up to all requests".into());
        report.violations = self.audit.into_found();
        report.cores = cores;
        (report, self.stats)
    }

    /// When the next event is.
    pub(crate) fn next_at(&self) -> Time {
        self.agenda.next_at()
    }

    /// A request comes from elsewhere, not before the last event.
    pub(crate) fn take_in(&mut self, now: Time, attempt: &Attempt) {
        self.now = now;
        self.submit(attempt);
    }

    /// The requests that have ended since this was last asked.
    pub(crate) fn ended(&mut self) -> impl Iterator<Item = Ended> + '_ {
        self.requests.ended()
    }

    /// The controller's state.
    pub(crate) fn gauges(&self) -> Gauges {
        self.halves.control.gauges()
    }

    /// d_m (Breakwater §4) at a time that is not before the last event.
    pub(crate) fn delay_at(&self, now: Time) -> Nanos {
        self.server.queues.packet_delay(now) + self.server.queues.run_delay(now)
    }

    /// Compares what the parts of this run say of the same things.
    fn audit_books(&mut self) {
        self.audit.credits(self.now, &self.halves.control.gauges(), &self.sessions);
        let (waiting, outstanding) = self.clients.waiting_and_outstanding();
        let known = self.requests.len() as u64;
        self.audit.check(known == waiting + outstanding, self.now, || {
            format!("{known} requests under way, but {waiting} wait at clients and {outstanding} are unanswered")
        });
        if let Some(staged) = &self.staged {
            staged.audit(self.now, &mut self.audit);
        }
    }

    fn handle(&mut self, event: Event) {
        match event {
            Event::Issue(client) => self.issue(client),
            Event::ToServer(packet) => self.packet_arrives(packet),
            Event::Reply(request, outcome, feedback) => self.reply_arrives(request, outcome, feedback),
            Event::Credit(client, feedback) => self.with_client(client, |clients, now, wire| {
                clients.credit(client, now, &feedback, wire);
            }),
            Event::Timer(client) => {
                let now = self.now;
                if self.clients.timer_is_due(client, now) {
                    self.with_client(client, |clients, now, wire| clients.timer(client, now, wire));
                }
            }
            Event::Core(core) => self.core_is_done(core as usize),
            Event::Returns(request) => self.returns(request),
            Event::LockTimeout(request, wait) => self.lock_times_out(request, wait),
            Event::Tick => self.tick(),
            Event::Allocate => self.allocator_tick(),
            Event::Granted(core) => self.granted(core as usize),
            Event::Look(core, generation) => self.look(core as usize, generation),
            Event::WarmedUp => {
                self.stats.warmed_up(self.now);
                if let Some(scheduler) = &mut self.scheduler {
                    scheduler.usage.warmed_up(self.now);
                }
            }
            Event::Window => {
                let delay = self.delay();
                let length = self.config.window.unwrap_or_default();
                let now = self.now;
                let cores = self.scheduler.as_mut().map(|scheduler| scheduler.usage.window_ends(now, length));
                self.stats.window_ends(self.now, self.halves.control.gauges(), delay, cores);
                if let Some(window) = self.config.window {
                    self.agenda.schedule(self.now + window, Event::Window);
                }
            }
        }
    }

    // ---- clients ----

    fn schedule_issue(&mut self) {
        self.agenda.schedule_issue(self.arrivals.as_mut().and_then(Iterator::next), Event::Issue);
    }

    /// This client begins to think of its next request, if it is one that thinks.
    fn think(&mut self, client: u32) {
        let now = self.now;
        if let Some(at) = self.thinking.as_mut().and_then(|thinking| thinking.next(client, now)) {
            self.agenda.schedule(at, Event::Issue(client));
        }
    }

    /// Clients whose requests have just ended think of the next.
    fn think_again(&mut self) {
        if self.thinking.is_none() {
            return;
        }
        let idle: Vec<u32> = self.requests.ended().map(|ended| ended.attempt.session).collect();
        idle.into_iter().for_each(|client| self.think(client));
    }

    fn issue(&mut self, client: u32) {
        let kind = self.kind_stream.draw();
        let attempt = Attempt {
            of: RequestId::default(),
            client,
            service: self.config.service_of(kind).draw(&mut self.service_rng),
            priority: self.config.kinds.priority(kind, self.client_rng.bits()),
            kind,
            path: self.staged.as_mut().map_or(0, |staged| staged.draw()),
        };
        self.submit(&attempt);
        self.schedule_issue();
    }

    fn submit(&mut self, attempt: &Attempt) {
        let Attempt { of, client, service, priority, kind, path } = *attempt;
        self.stats.issued(kind);
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
        if let Some(staged) = &mut self.staged {
            staged.issued(request, path);
        }
        let random = self.client_rng.bits();
        let objective = self.config.objective_of(kind);
        if self.oracle.as_mut().is_some_and(|oracle| !oracle.admits(request, service, path, objective, self.now)) {
            self.requests.remove(request, End::AtClient(LocalReason::Throttled));
            self.stats.ended_at_client(kind, LocalReason::Throttled);
            return;
        }
        self.with_client(client, |clients, now, wire| clients.submit(client, now, request, priority, random, wire));
    }

    fn reply_arrives(&mut self, request: RequestId, outcome: Outcome, feedback: Feedback) {
        let end = match outcome {
            Outcome::Completed => End::Completed,
            Outcome::Dropped => End::Dropped,
        };
        let record = self.requests.remove(request, end);
        let given_up = self.config.clients.timeout.is_some_and(|timeout| self.now.since(record.issued) > timeout);
        match outcome {
            _ if given_up => self.stats.timed_out(record.kind),
            Outcome::Completed => self.stats.completed(self.now, &record),
            Outcome::Dropped => self.stats.dropped(self.now, &record),
        }
        let round_trip = self.now.since(record.sent);
        self.with_client(record.session, |clients, now, wire| {
            clients.reply(record.session, now, outcome, round_trip, &feedback, wire);
        });
    }

    /// Lets `act` talk to the clients, then sets this client's timer.
    fn with_client(
        &mut self,
        client: u32,
        act: impl FnOnce(&mut Clients<RequestId>, Time, &mut crate::wire::Outlet<'_>),
    ) {
        let (requests, stats, oracle) = (&mut self.requests, &mut self.stats, self.oracle.as_deref_mut());
        let mut outlet = self.wire.outlet(client, self.now, &mut self.agenda, requests, stats, oracle);
        act(&mut self.clients, self.now, &mut outlet);
        if let Some(at) = self.clients.rearm(client, self.now) {
            self.agenda.schedule_on(Lane::Timers, at, Event::Timer(client));
        }
    }

    // ---- server ----

    fn packet_arrives(&mut self, packet: Packet) {
        if let Packet::Request { request, .. } = packet {
            self.requests[request].arrived = self.now;
            self.stats.entered(self.now);
            if self.config.server.aqm == Aqm::Arrival && !self.admits(request) {
                self.reject_unreceived(request);
                return;
            }
        }
        if self.scheduler.is_some() {
            self.place(packet);
            return;
        }
        let home = self.home(packet.session());
        self.server.packet_comes(home, self.now, packet);
        if let Some(core) = self.server.idle_core(home) {
            self.begin(core, Nanos::ZERO);
        }
    }

    fn core_is_done(&mut self, core: usize) {
        let activity = std::mem::replace(&mut self.server.cores[core].activity, Activity::Idle);
        let owed = match activity {
            Activity::Idle | Activity::Settling | Activity::Spinning(..) => Some(Nanos::ZERO),
            Activity::Waking => {
                self.server.is_awake(core, self.now);
                Some(Nanos::ZERO)
            }
            Activity::Receiving(packet) => Some(self.received(core, packet)),
            Activity::Executing(task) if self.staged.is_some() => self.step_ends(core, task),
            Activity::Executing(task) => {
                self.answered(core, task.request);
                Some(Nanos::ZERO)
            }
            Activity::Sending(count, messages) => {
                self.stats.sent_messages(messages);
                for _ in 0..count {
                    self.send_outgoing(core);
                }
                Some(Nanos::ZERO)
            }
        };
        // `None`: it goes on with the same request.
        if let Some(owed) = owed {
            if self.scheduler.is_some() {
                self.next_on(core, owed);
                return;
            }
            self.begin(core, owed);
        }
        self.wake_idle_cores(core);
    }

    /// Wakes idle cores for work that `core` has queued and can't do itself yet.
    fn wake_idle_cores(&mut self, core: usize) {
        while self.server.has_work_to_give() {
            match self.server.idle_core(core) {
                Some(idle) => self.begin(idle, Nanos::ZERO),
                None => break,
            }
        }
    }

    /// A message has been received and parsed by `core`. Returns what that core has still to do for it.
    fn received(&mut self, core: usize, packet: Packet) -> Nanos {
        match packet {
            Packet::Request { request, session } => {
                let is_admitted = self.config.server.aqm == Aqm::Arrival || self.admits(request);
                if is_admitted && self.budget_lasts(request) {
                    self.server.queues.push_task(core, self.now, Task { request });
                    self.answers.owed(session);
                    return self.server.cost_of_admission();
                }
                self.note_rejection();
                self.server.cores[core].outgoing.push_back(Outgoing::Drop(session, request));
                self.server.cost_of_rejection()
            }
            Packet::Demand { session, demand } => {
                self.stats.received(false);
                let home = self.home(session);
                let record = &mut self.sessions[session as usize];
                record.demand = demand;
                if let Some(feedback) = self.halves.cores[home].demand(record, self.now) {
                    self.server.cores[core].outgoing.push_back(Outgoing::Credit(session, feedback));
                }
                Nanos::ZERO
            }
        }
    }

    /// Asks the controller whether a request is admitted.
    fn admits(&mut self, request: RequestId) -> bool {
        if self.rehearsal.is_some() {
            return self.rehearses(request);
        }
        self.stats.received(true);
        self.since_tick.arrivals += 1;
        let record = self.requests[request];
        let arrival = Arrival::new(self.now)
            .with_demand(record.demand)
            .with_priority(record.priority)
            .with_delay(self.delay())
            .with_random(self.server_rng.bits());
        let arrival = self.kinds.describe(arrival, &record, self.server.queues.run_delay(self.now));
        let arrival = match &self.staged {
            Some(staged) if self.config.server.methods == Methods::Paths => {
                arrival.with_method(Method(staged.path_of(request).into()))
            }
            _ => arrival,
        };
        let home = self.home(record.session);
        let session = &mut self.sessions[record.session as usize];
        let (verdict, ticket) = session.request(self.halves.cores[home].as_mut(), &arrival);
        self.requests.keep_ticket(request, ticket);
        verdict == Verdict::Admit
    }

    /// A request is rejected before any core has received it.
    fn reject_unreceived(&mut self, request: RequestId) {
        self.note_rejection();
        let session = self.requests[request].session;
        let core = self.sender(self.home(session));
        let cost = self.server.cost_of_rejection();
        self.server.cores[core].outgoing.push_back(Outgoing::Drop(session, request));
        self.server.cores[core].debt += cost;
        if self.scheduler.is_some() {
            self.send_if_idle(core);
        } else if let Activity::Idle = self.server.cores[core].activity {
            self.begin(core, Nanos::ZERO);
        }
    }

    /// `core` begins what comes next for it.
    fn begin(&mut self, core: usize, mut owed: Nanos) {
        if let (Some(sleep), true) = (&mut self.sleep, self.server.is_idle(core)) {
            let at = self.now + sleep.wake(core, self.now);
            self.server.wakes(core);
            self.agenda.schedule(at, Event::Core(core as u32));
            return;
        }
        owed += std::mem::take(&mut self.server.cores[core].debt);
        let begun = loop {
            let (requests, staged, answers) = (&self.requests, &self.staged, &self.answers);
            let length = |request| match staged {
                None => {
                    let Request { service, session, .. } = requests[request];
                    service + answers.cost(session, service)
                }
                Some(staged) => staged.next_work(request, requests[request].service),
            };
            let Some(begun) = self.server.begin(core, self.now, owed, length) else {
                if let Some(sleep) = &mut self.sleep {
                    sleep.begin(core, self.now);
                }
                self.ran_dry(core);
                return;
            };
            let (Activity::Executing(task), Some(from)) = (self.server.cores[core].activity, begun.executes_from)
            else {
                break begun;
            };
            if let Some(staged) = &mut self.staged
                && !staged.takes_its_first_turn(task.request, from)
            {
                break begun;
            }
            let record = self.requests[task.request];
            let home = self.home(record.session);
            // Its own receiving and spawning are work, not waiting: at a service of 100 ns they would be all of a short target.
            let waited = from.since(record.arrived).saturating_sub(self.server.cost_of_entering());
            let verdict = match &self.rehearsal {
                None => self.halves.cores[home].execute(waited),
                Some(_) => Verdict::Admit,
            };
            match verdict {
                Verdict::Admit => {
                    self.stats.started(from, &record);
                    break begun;
                }
                Verdict::Reject(_) => {
                    self.note_rejection();
                    self.answers.settled(record.session);
                    self.server.cores[core].outgoing.push_back(Outgoing::Drop(record.session, task.request));
                    owed += self.server.cost_of_rejection();
                }
            }
        };
        let until = self.stalls.delayed(core, self.now, begun.until);
        self.stats.busy(self.now, until);
        self.agenda.schedule(until, Event::Core(core as u32));
    }

    fn send_outgoing(&mut self, core: usize) {
        match self.server.cores[core].outgoing.pop_front() {
            Some(Outgoing::Drop(_, request)) => self.respond(request, Outcome::Dropped),
            Some(Outgoing::Answer(_, request)) => self.respond(request, Outcome::Completed),
            Some(Outgoing::Credit(session, mut feedback)) => {
                // The window may have changed while the message waited for its core, and a response with the newer one
                // may have left: an older number must not follow it.
                feedback.window = self.sessions[session as usize].window;
                let at = self.wire.arrival_at_client(session, self.now);
                self.agenda.schedule_on(Lane::ToClient, at, Event::Credit(session, feedback));
            }
            None => {}
        }
    }

    /// A request has been executed: its answer leaves, or waits for others of its session.
    fn answered(&mut self, core: usize, request: RequestId) {
        let Request { session, service, .. } = self.requests[request];
        let at_once = self.answers.leaves_at_once(session, service);
        self.answers.settled(session);
        if !at_once {
            self.server.cores[core].outgoing.push_back(Outgoing::Answer(session, request));
            self.server.has_worked(core, service);
            return;
        }
        // What waits for its session goes with it.
        for waiting in self.server.take_answers(core, session) {
            self.respond(waiting, Outcome::Completed);
        }
        self.respond(request, Outcome::Completed);
        self.stats.sent_messages(1);
    }

    /// A response or drop leaves.
    fn respond(&mut self, request: RequestId, outcome: Outcome) {
        let record = self.requests[request];
        self.stats.left(self.now, &record);
        if let Some(oracle) = &mut self.oracle {
            oracle.leaves(request, record.issued, self.now);
        }
        match outcome {
            Outcome::Completed => {
                self.since_tick.completions += 1;
                self.kinds.executed(&record);
            }
            Outcome::Dropped => self.since_tick.drops += 1,
        }
        if let Some(staged) = &mut self.staged {
            self.since_tick.lock_drops += u64::from(staged.leaves(request));
        }
        if let Some(rehearsal) = &self.rehearsal {
            if outcome == Outcome::Completed {
                rehearsal.executed(&record);
            }
            // The controller hears of the queue that would be, and clients hear nothing of it.
            let window = self.sessions[record.session as usize].window;
            let at = self.wire.arrival_at_client(record.session, self.now);
            let feedback = Feedback { window, ..Feedback::NONE };
            self.agenda.schedule_on(Lane::ToClient, at, Event::Reply(request, outcome, feedback));
            return;
        }
        let sojourn = self.now.since(record.arrived);
        let departure = Departure { now: self.now, outcome, sojourn, credit: record.credit };
        let home = self.home(record.session);
        let session = &mut self.sessions[record.session as usize];
        let ticket = self.requests.take_ticket(request);
        let feedback = session.reply(self.halves.cores[home].as_mut(), ticket, &departure);
        let at = self.wire.arrival_at_client(record.session, self.now);
        self.agenda.schedule_on(Lane::ToClient, at, Event::Reply(request, outcome, feedback));
    }

    fn tick(&mut self) {
        if let Some(later) = self.stalls.all_until(self.now) {
            self.agenda.schedule(later, Event::Tick);
            return;
        }
        if self.rehearsal.is_some() {
            self.agenda.schedule(self.now + self.period, Event::Tick);
            return;
        }
        if self.config.server.control == Turns::Queued && !std::mem::take(&mut self.turn_has_queued) {
            // What comes now waits about as long as the oldest that waits has waited.
            let wait = self.server.queues.run_delay(self.now);
            if wait > Nanos::ZERO {
                self.turn_has_queued = true;
                self.agenda.schedule(self.now + wait, Event::Tick);
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
            self.audit_books();
        }
        self.agenda.schedule(self.now + self.period, Event::Tick);
    }

    /// Sends explicit credits as long as the controller names sessions, beginning with another core each time.
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
                self.server.cores[sender].outgoing.push_back(Outgoing::Credit(session, feedback));
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

    /// d_m (Breakwater §4).
    fn delay(&self) -> Nanos {
        self.delay_at(self.now)
    }
}
