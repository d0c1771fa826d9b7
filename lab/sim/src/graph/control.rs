//! Controllers of the servers: their ticks, explicit credits, demand messages, and the audit of
//! their accounting.

use super::event::Event;
use super::model::{DownstreamReports, ServiceModel, StartCondition};
use super::run::Run;
use crate::event_queue::Lane;
use crate::server::WAKES_PER_TICK;
use leeward_core::server::{Downstream, Feedback, Signals};
use leeward_core::units::{Nanos, Priority};

impl Run<'_> {
    /// Ticks the controllers of a service's servers.
    pub(super) fn tick(&mut self, service: usize) {
        for server in self.first_server[service]..self.first_server[service + 1] {
            self.tick_server(server as usize);
        }
        self.event_queue.schedule(self.now + self.periods[service], Event::Tick(service as u32));
    }

    fn tick_server(&mut self, server: usize) {
        if !self.servers[server].waiting.is_empty() {
            self.serve_waiting(server);
        }
        if self.graph.policy.downstream == DownstreamReports::On {
            self.report_downstream(server);
        }
        let now = self.now;
        // Requests that wait for credits count as queueing delay, too.
        let oldest = self.servers[server].waiting.front().map_or(Nanos::ZERO, |id| now.since(self.jobs[*id].arrived));
        let state = &mut self.servers[server];
        let signals = Signals {
            now,
            packet_delay: state.packet_delay(now),
            run_delay: state.run_delay(now).max(oldest),
            ..state.since_tick
        };
        state.halves.control.tick(&signals);
        state.since_tick = Signals::idle(now);
        self.wake_sessions(server);
        if self.config.audit {
            self.audit_server(server);
        }
    }

    /// Reports the bottleneck among a server's callees to its controller.
    fn report_downstream(&mut self, server: usize) {
        let state = &self.servers[server];
        if state.groups.is_empty() {
            return;
        }
        let narrowest = Downstream::bottleneck(state.groups.iter().map(|group| {
            let credits = u64::try_from(group.credits).unwrap_or(0);
            Downstream::new(credits, group.per_request).with_threshold(group.threshold)
        }));
        let inside = self.servers[server].in_flight;
        self.servers[server].halves.control.set_downstream(&narrowest.with_in_flight(inside));
    }

    /// Records the feedback that a link's caller received.
    pub(super) fn on_feedback(&mut self, link: u32, feedback: &Feedback) {
        let state = &mut self.links[link as usize];
        let change = i64::from(feedback.window.0) - i64::from(state.window.0);
        let before = std::mem::replace(&mut state.threshold, feedback.threshold);
        state.window = feedback.window;
        let Some(from) = state.from else { return };
        let group = &mut self.servers[from as usize].groups[usize::from(state.group)];
        group.credits += change;
        if feedback.threshold < group.threshold {
            group.threshold = feedback.threshold;
        } else if before == group.threshold && feedback.threshold > before {
            // The minimum may have risen, which takes a scan of all links.
            let links = &self.links[group.links.start as usize..group.links.end as usize];
            group.threshold = links.iter().map(|link| link.threshold).min().unwrap_or(Priority::LOWEST);
        }
    }

    fn wake_sessions(&mut self, server: usize) {
        let state = &mut self.servers[server];
        let cores = state.halves.cores.len();
        let send = self.graph.services[state.service as usize].send;
        let mut left = WAKES_PER_TICK;
        for step in 0..cores {
            let core = (state.first_woken + step) % cores;
            while left > 0 {
                let Some(slot) = state.halves.cores[core].next_to_wake(self.server_rng.bits()) else { break };
                left -= 1;
                let session = slot.0 as usize * cores + core;
                let feedback = state.halves.cores[core].wake(&mut state.sessions[session], self.now);
                let link = state.links[session];
                state.debt += send;
                self.stats.record_sent(u64::from(self.links[link as usize].from.is_none()));
                let at = self.now + self.links[link as usize].one_way_delay;
                self.event_queue.schedule_on(Lane::ToClient, at, Event::Credit(link, feedback));
            }
        }
        state.first_woken = (state.first_woken + 1) % cores;
    }

    pub(super) fn on_demand(&mut self, link: u32, demand: u32) {
        let state = &self.links[link as usize];
        let (delay, slot, is_of_client) = (state.one_way_delay, state.session as usize, state.from.is_none());
        let server = &mut self.servers[state.to as usize];
        let ServiceModel { receive, send, .. } = self.graph.services[server.service as usize];
        server.debt += receive;
        if is_of_client {
            self.stats.record_receive(false);
        }
        let session = &mut server.sessions[slot];
        session.demand = demand;
        let core = session.core.0 as usize;
        if let Some(feedback) = server.halves.cores[core].demand(session, self.now) {
            server.debt += send;
            self.stats.record_sent(u64::from(is_of_client));
            self.event_queue.schedule_on(Lane::ToClient, self.now + delay, Event::Credit(link, feedback));
        }
    }

    fn audit_server(&mut self, server: usize) {
        let state = &self.servers[server];
        self.audit.check_credits(self.now, &state.halves.control.gauges(), &state.sessions);
    }

    /// Checks that the parts of a run agree on their counts.
    pub(super) fn audit_accounting(&mut self) {
        for server in 0..self.servers.len() {
            self.audit_server(server);
            let reserves = self.graph.policy.start == StartCondition::Reserved;
            let waits = !self.servers[server].waiting.is_empty();
            self.audit
                .check(reserves || !waits, self.now, || "a request waits for credits that nobody reserves".into());
        }
        let clients = self.config.workload.clients as usize;
        let (mut waiting, mut outstanding) = (0, 0);
        for link in &self.links[..clients] {
            waiting += u64::from(link.client.demand());
            outstanding += u64::from(link.client.outstanding());
        }
        let in_flight = self.jobs.client_jobs();
        self.audit.check(in_flight == waiting + outstanding, self.now, || {
            format!("{in_flight} requests under way, but {waiting} wait at clients and {outstanding} are unanswered")
        });
    }
}
