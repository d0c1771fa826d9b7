//! Admission control of a tier: a controller's halves at the server and at its clients, and what passes between them. What is admitted is the
//! controller's business; here is when it is asked, and what its answers cost the threads.
//!
//! The server is one core to its controller: its threads share the half that decides about requests. Credits and demands that travel in
//! messages of their own cost CPU time of whichever thread receives a request next.

use super::event::{Event, JobId};
use super::jobs::Jobs;
use super::run::Run;
use crate::agenda::{Agenda, Lane};
use crate::clients::Clients;
use crate::config::SimConfig;
use crate::server::WAKES_PER_TICK;
use crate::stats::Stats;
use leeward_core::client::{Header, LocalEnd, Outlet};
use leeward_core::params::{ParamError, Params};
use leeward_core::registry::{Algorithm, Environment};
use leeward_core::server::{
    Arrival, CoreId, Departure, Feedback, Gauges, Opened, Outcome, ServerHalves, Session, SessionSlot, Signals, Ticket,
    Verdict,
};
use leeward_core::units::{Nanos, Priority, Rate, Time};
use leeward_workload::rng::{Purpose, Rng};

/// Time in which a server is to catch up with what clients hold back: so it is told as a rate. The growth alone would say nothing any more
/// once the clients' queues are full, and a small setup would stay.
const CATCH_UP: Nanos = Nanos::from_millis(100);

/// A controller around a tier.
pub(super) struct Admission {
    clients: Clients<JobId>,
    halves: ServerHalves,
    sessions: Vec<Session>,
    tickets: Vec<Option<Ticket>>,
    since_tick: Signals,
    period: Nanos,
    /// CPU time of messages that no request has paid for.
    debt: Nanos,
    /// Requests that wait at clients, as far as these have told.
    held_back: u64,
    dropped: u64,
    /// Drops when the policy of threading was last asked.
    dropped_then: u64,
    client_rng: Rng,
    server_rng: Rng,
}

impl Admission {
    /// The controller, unless it decides nothing.
    pub(super) fn new(config: &SimConfig, algorithm: &Algorithm, params: &Params) -> Result<Option<Self>, ParamError> {
        if algorithm.name == "none" {
            return Ok(None);
        }
        let environment = Environment::new(1, config.network.rtt, config.slo);
        let mut halves = algorithm.server(params, &environment)?;
        let open = |client| {
            let mut session = Session::new(SessionSlot(client), CoreId(0));
            halves.cores[0].open(&mut session, &Opened { now: Time::ZERO, demand: 0 });
            session
        };
        let sessions = (0..config.workload.clients).map(open).collect();
        Ok(Some(Admission {
            clients: Clients::new(config, algorithm, params, &environment)?,
            sessions,
            tickets: Vec::new(),
            since_tick: Signals::idle(Time::ZERO),
            period: halves.control.period().max(Nanos(1)),
            halves,
            debt: Nanos::ZERO,
            held_back: 0,
            dropped: 0,
            dropped_then: 0,
            client_rng: Rng::new(config.seed, Purpose::Clients),
            server_rng: Rng::new(config.seed, Purpose::Server),
        }))
    }

    pub(super) fn period(&self) -> Nanos {
        self.period
    }

    pub(super) fn gauges(&self) -> Gauges {
        self.halves.control.gauges()
    }

    /// Drops since this was last asked, for the policy of threading.
    pub(super) fn drops_since(&mut self) -> u64 {
        self.dropped - std::mem::replace(&mut self.dropped_then, self.dropped)
    }

    /// Requests that clients hold back, as a rate per second.
    pub(super) fn held_back(&self) -> Rate {
        Rate(self.held_back as f64 / CATCH_UP.as_secs_f64())
    }

    fn hears_demand(&mut self, client: u32, demand: u32) {
        let session = &mut self.sessions[client as usize];
        self.held_back = (self.held_back + u64::from(demand)).saturating_sub(u64::from(session.demand));
        session.demand = demand;
    }

    fn keep(&mut self, job: JobId, ticket: Ticket) {
        let place = job as usize;
        if self.tickets.len() <= place {
            self.tickets.resize_with(place + 1, || None);
        }
        self.tickets[place] = Some(ticket);
    }
}

/// Effects of a client's decisions.
struct Wire<'a> {
    session: u32,
    now: Time,
    there: Nanos,
    agenda: &'a mut Agenda<Event>,
    jobs: &'a mut Jobs,
    stats: &'a mut Stats,
}

impl Outlet<JobId> for Wire<'_> {
    fn send(&mut self, job: JobId, header: Header) {
        let base = &mut self.jobs[job].base;
        (base.sent, base.demand, base.credit) = (self.now, header.demand, header.credit);
        self.agenda.schedule_on(Lane::ToServer, self.now + self.there, Event::Reach(job));
    }

    fn end(&mut self, job: JobId, end: LocalEnd) {
        self.jobs.end(job);
        self.stats.ended_at_client(0, end.reason);
    }

    fn send_demand(&mut self, demand: u32) {
        self.agenda.schedule_on(Lane::ToServer, self.now + self.there, Event::Demand(self.session, demand));
    }
}

impl Run<'_> {
    /// A client issues a request: it leaves at once, or waits for its credit.
    pub(super) fn submit(&mut self, client: u32, job: JobId) {
        let Some(admission) = &mut self.admission else {
            let there = self.config.network.rtt / 2;
            return self.agenda.schedule_on(Lane::ToServer, self.now + there, Event::Reach(job));
        };
        let priority = Priority::from_random(admission.client_rng.bits());
        let random = admission.client_rng.bits();
        self.jobs[job].base.priority = priority;
        self.with_client(client, |clients, now, wire| clients.submit(client, now, job, priority, random, wire));
    }

    fn with_client(&mut self, client: u32, act: impl FnOnce(&mut Clients<JobId>, Time, &mut Wire<'_>)) {
        let Some(admission) = &mut self.admission else { return };
        let mut wire = Wire {
            session: client,
            now: self.now,
            there: self.config.network.rtt / 2,
            agenda: &mut self.agenda,
            jobs: &mut self.jobs,
            stats: &mut self.stats,
        };
        act(&mut admission.clients, self.now, &mut wire);
        if let Some(at) = admission.clients.rearm(client, self.now) {
            self.agenda.schedule_on(Lane::Timers, at, Event::Timer(client));
        }
    }

    pub(super) fn client_timer(&mut self, client: u32) {
        let now = self.now;
        if self.admission.as_mut().is_some_and(|admission| admission.clients.timer_is_due(client, now)) {
            self.with_client(client, |clients, now, wire| clients.timer(client, now, wire));
        }
    }

    /// CPU time of the controller's own messages since a thread last paid for them.
    pub(super) fn debt(&mut self) -> Nanos {
        self.admission.as_mut().map_or(Nanos::ZERO, |admission| std::mem::take(&mut admission.debt))
    }

    /// Asks the controller whether a request that was received is admitted.
    pub(super) fn admits(&mut self, job: JobId) -> bool {
        let delay = self.oldest();
        let Some(admission) = &mut self.admission else { return true };
        admission.since_tick.arrivals += 1;
        let base = self.jobs[job].base;
        let arrival = Arrival::new(self.now)
            .with_demand(base.demand)
            .with_priority(base.priority)
            .with_delay(delay)
            .with_random(admission.server_rng.bits());
        admission.hears_demand(base.session, base.demand);
        let session = &mut admission.sessions[base.session as usize];
        let (verdict, ticket) = session.request(admission.halves.cores[0].as_mut(), &arrival);
        admission.keep(job, ticket);
        verdict == Verdict::Admit
    }

    /// Asks it again when the request's turn has come.
    pub(super) fn may_begin(&mut self, job: JobId) -> bool {
        let waited = self.now.since(self.jobs[job].base.arrived).saturating_sub(self.costs.receive);
        let Some(admission) = &mut self.admission else { return true };
        admission.halves.cores[0].execute(waited) == Verdict::Admit
    }

    /// A response or drop leaves for its client.
    pub(super) fn respond(&mut self, job: JobId, outcome: Outcome) {
        self.stats.sent_messages(1);
        let base = self.jobs[job].base;
        self.stats.left(self.now, &base);
        let sojourn = self.now.since(base.arrived);
        if let Some(governor) = &mut self.governor
            && outcome == Outcome::Completed
        {
            governor.ended(sojourn, self.config.slo);
        }
        let at = self.now + (self.config.network.rtt - self.config.network.rtt / 2);
        let Some(admission) = &mut self.admission else {
            return self.agenda.schedule_on(Lane::ToClient, at, Event::Answered(job));
        };
        match outcome {
            Outcome::Completed => admission.since_tick.completions += 1,
            Outcome::Dropped => {
                admission.since_tick.drops += 1;
                admission.dropped += 1;
                self.stats.rejected();
            }
        }
        let departure = Departure { now: self.now, outcome, sojourn, credit: base.credit };
        let ticket = admission.tickets[job as usize].take().expect("a request is answered once");
        let session = &mut admission.sessions[base.session as usize];
        let feedback = session.reply(admission.halves.cores[0].as_mut(), ticket, &departure);
        self.agenda.schedule_on(Lane::ToClient, at, Event::Told(job, outcome, feedback));
    }

    /// A client hears what became of its request.
    pub(super) fn told(&mut self, job: JobId, outcome: Outcome, feedback: &Feedback) {
        let base = self.jobs.end(job);
        match outcome {
            Outcome::Completed => self.stats.completed(self.now, &base),
            Outcome::Dropped => self.stats.dropped(self.now, &base),
        }
        let round_trip = self.now.since(base.sent);
        self.with_client(base.session, |clients, now, wire| {
            clients.reply(base.session, now, outcome, round_trip, feedback, wire);
        });
    }

    /// A client hears of a credit.
    pub(super) fn credited(&mut self, client: u32, feedback: &Feedback) {
        self.with_client(client, |clients, now, wire| clients.credit(client, now, feedback, wire));
    }

    /// A client tells how many requests it holds back.
    pub(super) fn demanded(&mut self, client: u32, demand: u32) {
        let (now, back) = (self.now, self.config.network.rtt - self.config.network.rtt / 2);
        let Some(admission) = &mut self.admission else { return };
        self.stats.received(false);
        admission.debt += self.costs.receive;
        admission.hears_demand(client, demand);
        let session = &mut admission.sessions[client as usize];
        if let Some(feedback) = admission.halves.cores[0].demand(session, now) {
            admission.debt += self.costs.send;
            self.stats.sent_messages(1);
            self.agenda.schedule_on(Lane::ToClient, now + back, Event::Credit(client, feedback));
        }
    }

    /// The controller's period is over.
    pub(super) fn control_tick(&mut self) {
        let (now, delay) = (self.now, self.oldest());
        let back = self.config.network.rtt - self.config.network.rtt / 2;
        let Some(admission) = &mut self.admission else { return };
        let signals = Signals { now, packet_delay: delay, ..admission.since_tick };
        admission.halves.control.tick(&signals);
        admission.since_tick = Signals::idle(now);
        for _ in 0..WAKES_PER_TICK {
            let random = admission.server_rng.bits();
            let core = &mut admission.halves.cores[0];
            let Some(slot) = core.next_to_wake(random) else { break };
            let feedback = core.wake(&mut admission.sessions[slot.0 as usize], now);
            admission.debt += self.costs.send;
            self.stats.sent_messages(1);
            self.agenda.schedule_on(Lane::ToClient, now + back, Event::Credit(slot.0, feedback));
        }
        let next = now + admission.period;
        self.agenda.schedule(next, Event::Control);
        if self.config.audit {
            let gauges = admission.gauges();
            self.audit.credits(now, &gauges, &admission.sessions);
        }
    }

    /// The age of the oldest request that waits for a thread.
    pub(super) fn oldest(&self) -> Nanos {
        let unread = self.fronts.iter().filter_map(|front| front.unread.front());
        let oldest = unread.chain(self.queue.front()).map(|job| self.now.since(self.jobs[*job].base.arrived)).max();
        oldest.unwrap_or_default()
    }
}
