//! Admission control of a tier: when the controller is asked, and what its answers cost the threads. Credits and demands that travel in
//! messages of their own cost CPU time of whichever thread receives a request next.

use super::event::{Event, JobId};
use super::jobs::Jobs;
use super::run::Run;
use crate::agenda::{Agenda, Lane};
use crate::clients::Clients;
use crate::server::WAKES_PER_TICK;
use crate::stats::Stats;
use leeward_core::client::{Header, LocalEnd, Outlet};
use leeward_core::server::{Arrival, Departure, Feedback, Outcome, Signals, Verdict};
use leeward_core::units::{Nanos, Priority, Time};

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
