//! Controllers of the servers: their ticks, explicit credits, demand messages, and the audit of their books.

use super::event::Event;
use super::model::{Begin, ServiceModel, Told};
use super::run::Run;
use crate::agenda::Lane;
use crate::server::WAKES_PER_TICK;
use leeward_core::server::{Downstream, Feedback, Signals};
use leeward_core::units::{Nanos, Priority};

impl Run<'_> {
    /// The controllers of a service's servers are due.
    pub(super) fn tick(&mut self, service: usize) {
        for server in self.first[service]..self.first[service + 1] {
            self.tick_server(server as usize);
        }
        self.agenda.schedule(self.now + self.periods[service], Event::Tick(service as u32));
    }

    fn tick_server(&mut self, server: usize) {
        if !self.servers[server].waiting.is_empty() {
            self.serve_waiting(server);
        }
        if self.graph.passing.downstream == Told::Downstream {
            self.tell_downstream(server);
        }
        let now = self.now;
        // Those that wait for credits are a queue on the way of requests as well.
        let oldest = self.servers[server].waiting.front().map_or(Nanos::ZERO, |id| now.since(self.jobs[*id].arrived));
        let found = &mut self.servers[server];
        let signals = Signals {
            now,
            packet_delay: found.packet_delay(now),
            run_delay: found.run_delay(now).max(oldest),
            ..found.since_tick
        };
        found.halves.control.tick(&signals);
        found.since_tick = Signals::idle(now);
        self.wake_sessions(server);
        if self.config.audit {
            self.audit_server(server);
        }
    }

    /// Tells a server's controller what the narrowest of those that it asks lets through.
    fn tell_downstream(&mut self, server: usize) {
        let found = &self.servers[server];
        if found.groups.is_empty() {
            return;
        }
        let narrowest = Downstream::narrowest(found.groups.iter().map(|group| {
            let credits = u64::try_from(group.credits).unwrap_or(0);
            Downstream::new(credits, group.per_request).with_threshold(group.threshold)
        }));
        let inside = self.servers[server].inside;
        self.servers[server].halves.control.downstream(&narrowest.with_requests(inside));
    }

    /// Notes what a link's caller was told.
    pub(super) fn heard(&mut self, link: u32, feedback: &Feedback) {
        let found = &mut self.links[link as usize];
        let more = i64::from(feedback.window.0) - i64::from(found.window.0);
        let before = std::mem::replace(&mut found.threshold, feedback.threshold);
        found.window = feedback.window;
        let Some(from) = found.from else { return };
        let group = &mut self.servers[from as usize].groups[usize::from(found.group)];
        group.credits += more;
        if feedback.threshold < group.threshold {
            group.threshold = feedback.threshold;
        } else if before == group.threshold && feedback.threshold > before {
            // The smallest may have risen: that takes a look at all.
            let links = &self.links[group.links.start as usize..group.links.end as usize];
            group.threshold = links.iter().map(|link| link.threshold).min().unwrap_or(Priority::LOWEST);
        }
    }

    fn wake_sessions(&mut self, server: usize) {
        let found = &mut self.servers[server];
        let cores = found.halves.cores.len();
        let send = self.graph.services[found.service as usize].send;
        let mut left = WAKES_PER_TICK;
        for step in 0..cores {
            let core = (found.first_woken + step) % cores;
            while left > 0 {
                let Some(slot) = found.halves.cores[core].next_to_wake(self.server_rng.bits()) else { break };
                left -= 1;
                let session = slot.0 as usize * cores + core;
                let feedback = found.halves.cores[core].wake(&mut found.sessions[session], self.now);
                let link = found.links[session];
                found.owed += send;
                self.stats.sent_messages(u64::from(self.links[link as usize].from.is_none()));
                let at = self.now + self.links[link as usize].way;
                self.agenda.schedule_on(Lane::ToClient, at, Event::Credit(link, feedback));
            }
        }
        found.first_woken = (found.first_woken + 1) % cores;
    }

    pub(super) fn demand_arrives(&mut self, link: u32, demand: u32) {
        let found = &self.links[link as usize];
        let (way, place, is_of_client) = (found.way, found.session as usize, found.from.is_none());
        let server = &mut self.servers[found.to as usize];
        let ServiceModel { receive, send, .. } = self.graph.services[server.service as usize];
        server.owed += receive;
        if is_of_client {
            self.stats.received(false);
        }
        let session = &mut server.sessions[place];
        session.demand = demand;
        let core = session.core.0 as usize;
        if let Some(feedback) = server.halves.cores[core].demand(session, self.now) {
            server.owed += send;
            self.stats.sent_messages(u64::from(is_of_client));
            self.agenda.schedule_on(Lane::ToClient, self.now + way, Event::Credit(link, feedback));
        }
    }

    fn audit_server(&mut self, server: usize) {
        let found = &self.servers[server];
        self.audit.credits(self.now, &found.halves.control.gauges(), &found.sessions);
    }

    /// Compares what the parts of a run say of the same things.
    pub(super) fn audit_books(&mut self) {
        for server in 0..self.servers.len() {
            self.audit_server(server);
            let reserves = self.graph.passing.begin == Begin::Reserved;
            let waits = !self.servers[server].waiting.is_empty();
            self.audit
                .check(reserves || !waits, self.now, || "a request waits for credits that nobody reserves".into());
        }
        let clients = self.config.workload.clients as usize;
        let (mut waiting, mut out) = (0, 0);
        for link in &self.links[..clients] {
            waiting += u64::from(link.client.demand());
            out += u64::from(link.client.outstanding());
        }
        let known = self.jobs.of_clients();
        self.audit.check(known == waiting + out, self.now, || {
            format!("{known} requests under way, but {waiting} wait at clients and {out} are unanswered")
        });
    }
}
