//! Admission control of a tier: calls of the controller, and their CPU cost for the threads.
//! Separate messages with credits or demand cost CPU time of the next thread that receives a
//! request.

use super::event::{Event, JobId};
use super::jobs::Jobs;
use super::run::Run;
use crate::clients::Clients;
use crate::event_queue::{EventQueue, Lane};
use crate::server::WAKES_PER_TICK;
use crate::stats::Stats;
use leeward_core::client::{ClientSink, Header, LocalOutcome};
use leeward_core::server::{Arrival, Departure, Feedback, Outcome, Signals, Verdict};
use leeward_core::units::{Nanos, Priority, Time};

/// Applies a client's decisions to the simulation.
struct ThreadedSink<'a> {
    session: u32,
    now: Time,
    to_server: Nanos,
    event_queue: &'a mut EventQueue<Event>,
    jobs: &'a mut Jobs,
    stats: &'a mut Stats,
}

impl ClientSink<JobId> for ThreadedSink<'_> {
    fn send(&mut self, job: JobId, header: Header) {
        let base = &mut self.jobs[job].base;
        (base.sent, base.demand, base.credit) = (self.now, header.demand, header.credit);
        self.event_queue.schedule_on(Lane::ToServer, self.now + self.to_server, Event::Arrive(job));
    }

    fn end(&mut self, job: JobId, end: LocalOutcome) {
        self.jobs.end(job);
        self.stats.record_client_end(0, end.reason);
    }

    fn send_demand(&mut self, demand: u32) {
        self.event_queue.schedule_on(Lane::ToServer, self.now + self.to_server, Event::Demand(self.session, demand));
    }
}

impl Run<'_> {
    /// Issues a client's request: it leaves at once or waits for its credit.
    pub(super) fn submit(&mut self, client: u32, job: JobId) {
        let Some(admission) = &mut self.admission else {
            let one_way = self.config.network.rtt / 2;
            return self.event_queue.schedule_on(Lane::ToServer, self.now + one_way, Event::Arrive(job));
        };
        let priority = Priority::from_random(admission.client_rng.bits());
        let random = admission.client_rng.bits();
        self.jobs[job].base.priority = priority;
        self.with_client(client, |clients, now, wire| clients.submit(client, now, job, priority, random, wire));
    }

    fn with_client(&mut self, client: u32, act: impl FnOnce(&mut Clients<JobId>, Time, &mut ThreadedSink<'_>)) {
        let Some(admission) = &mut self.admission else { return };
        let mut wire = ThreadedSink {
            session: client,
            now: self.now,
            to_server: self.config.network.rtt / 2,
            event_queue: &mut self.event_queue,
            jobs: &mut self.jobs,
            stats: &mut self.stats,
        };
        act(&mut admission.clients, self.now, &mut wire);
        if let Some(at) = admission.clients.rearm(client, self.now) {
            self.event_queue.schedule_on(Lane::Timers, at, Event::Timer(client));
        }
    }

    pub(super) fn client_timer(&mut self, client: u32) {
        let now = self.now;
        if self.admission.as_mut().is_some_and(|admission| admission.clients.timer_is_due(client, now)) {
            self.with_client(client, |clients, now, wire| clients.on_timer(client, now, wire));
        }
    }

    /// Takes the CPU time of the controller's own messages that no thread has paid for yet.
    pub(super) fn take_debt(&mut self) -> Nanos {
        self.admission.as_mut().map_or(Nanos::ZERO, |admission| std::mem::take(&mut admission.debt))
    }

    /// Asks the controller whether to admit a received request.
    pub(super) fn admit(&mut self, job: JobId) -> bool {
        let delay = self.oldest_age();
        let Some(admission) = &mut self.admission else { return true };
        admission.since_tick.arrivals += 1;
        let base = self.jobs[job].base;
        let arrival = Arrival::new(self.now)
            .with_demand(base.demand)
            .with_priority(base.priority)
            .with_delay(delay)
            .with_random(admission.server_rng.bits());
        admission.update_demand(base.session, base.demand);
        let session = &mut admission.sessions[base.session as usize];
        let (verdict, permit) = session.request(admission.halves.cores[0].as_mut(), &arrival);
        admission.keep(job, permit);
        verdict == Verdict::Admit
    }

    /// Asks the controller again when a thread dequeues the request.
    pub(super) fn may_begin(&mut self, job: JobId) -> bool {
        let waited = self.now.since(self.jobs[job].base.arrived).saturating_sub(self.costs.receive);
        let Some(admission) = &mut self.admission else { return true };
        admission.halves.cores[0].on_dequeue(waited) == Verdict::Admit
    }

    /// Sends a response or rejection to its client.
    pub(super) fn respond(&mut self, job: JobId, outcome: Outcome) {
        self.stats.record_sent(1);
        let base = self.jobs[job].base;
        self.stats.record_departure(self.now, &base);
        let sojourn = self.now.since(base.arrived);
        if let Some(governor) = &mut self.governor
            && outcome == Outcome::Completed
        {
            governor.record_latency(sojourn, self.config.slo);
        }
        let at = self.now + (self.config.network.rtt - self.config.network.rtt / 2);
        let Some(admission) = &mut self.admission else {
            return self.event_queue.schedule_on(Lane::ToClient, at, Event::Completed(job));
        };
        match outcome {
            Outcome::Completed => admission.since_tick.completions += 1,
            Outcome::Rejected => {
                admission.since_tick.rejections += 1;
                admission.rejected += 1;
                self.stats.record_reject();
            }
        }
        let departure = Departure { now: self.now, outcome, sojourn, credit: base.credit };
        let permit = admission.permits[job as usize].take().expect("a request is answered once");
        let session = &mut admission.sessions[base.session as usize];
        let feedback = session.reply(admission.halves.cores[0].as_mut(), permit, &departure);
        self.event_queue.schedule_on(Lane::ToClient, at, Event::ClientReply(job, outcome, feedback));
    }

    /// Handles a response or rejection at its client.
    pub(super) fn on_client_reply(&mut self, job: JobId, outcome: Outcome, feedback: &Feedback) {
        let base = self.jobs.end(job);
        match outcome {
            Outcome::Completed => self.stats.record_completion(self.now, &base),
            Outcome::Rejected => self.stats.record_client_reject(self.now, &base),
        }
        let round_trip = self.now.since(base.sent);
        self.with_client(base.session, |clients, now, wire| {
            clients.on_reply(base.session, now, outcome, round_trip, feedback, wire);
        });
    }

    /// Handles an explicit credit at its client.
    pub(super) fn on_credit(&mut self, client: u32, feedback: &Feedback) {
        self.with_client(client, |clients, now, wire| clients.on_credit(client, now, feedback, wire));
    }

    /// Handles a client's demand message at the server.
    pub(super) fn on_demand(&mut self, client: u32, demand: u32) {
        let (now, to_client) = (self.now, self.config.network.rtt - self.config.network.rtt / 2);
        let Some(admission) = &mut self.admission else { return };
        self.stats.record_receive(false);
        admission.debt += self.costs.receive;
        admission.update_demand(client, demand);
        let session = &mut admission.sessions[client as usize];
        if let Some(feedback) = admission.halves.cores[0].demand(session, now) {
            admission.debt += self.costs.send;
            self.stats.record_sent(1);
            self.event_queue.schedule_on(Lane::ToClient, now + to_client, Event::Credit(client, feedback));
        }
    }

    /// Runs the controller's slow half and sends explicit credits.
    pub(super) fn control_tick(&mut self) {
        let (now, delay) = (self.now, self.oldest_age());
        let to_client = self.config.network.rtt - self.config.network.rtt / 2;
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
            self.stats.record_sent(1);
            self.event_queue.schedule_on(Lane::ToClient, now + to_client, Event::Credit(slot.0, feedback));
        }
        let next = now + admission.period;
        self.event_queue.schedule(next, Event::Control);
        if self.config.audit {
            let gauges = admission.gauges();
            self.audit.check_credits(now, &gauges, &admission.sessions);
        }
    }

    /// Age of the oldest request that waits for a thread.
    pub(super) fn oldest_age(&self) -> Nanos {
        let unread = self.fronts.iter().filter_map(|front| front.unread.front());
        let oldest = unread.chain(self.queue.front()).map(|job| self.now.since(self.jobs[*job].base.arrived)).max();
        oldest.unwrap_or_default()
    }
}
