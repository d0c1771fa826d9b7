//! Calls of a request to other servers: reservations before its work, the calls, their ends, and
//! retries.

use super::jobs::JobId;
use super::model::ServiceModel;
use super::run::Run;
use super::server::CalleeGroup;
use leeward_core::client::LocalReason;
use leeward_core::server::Outcome;

/// Maximum number of a group's servers that are tried for one reservation.
const MAX_TRIED: u32 = 16;
/// Maximum number of waiting requests that are tried when credits arrive, oldest first.
const MAX_SCANNED: usize = 16;
/// Maximum number of attempts per call, as in gRPC's retry policies.
const MAX_ATTEMPTS: u8 = 3;

impl Run<'_> {
    /// Draws the calls that a request will make.
    pub(super) fn draw_calls(&mut self, server: usize, id: JobId) {
        let mut mask = 0;
        for (index, group) in self.servers[server].groups.iter_mut().enumerate() {
            let call = &self.graph.calls[group.call];
            let is_made = call.probability >= 1.0 || self.path_rng.unit() < call.probability;
            mask |= u64::from(is_made) << index;
            group.record_calls(if is_made { call.times } else { 0 });
        }
        self.jobs[id].call_mask = mask;
    }

    /// Number of calls that a request makes in `stage`.
    pub(super) fn calls_of_stage(&self, server: usize, id: JobId, stage: u16) -> u32 {
        let mask = self.jobs[id].call_mask;
        let groups = self.servers[server].groups.iter().enumerate();
        let made = groups.filter(|(index, group)| mask >> index & 1 == 1 && group.stage == stage);
        made.map(|(_, group)| u32::from(self.graph.calls[group.call].times)).sum()
    }

    /// First stage after `stage` in which a request makes calls.
    pub(super) fn next_stage(&self, server: usize, id: JobId, stage: u16) -> Option<u16> {
        let last = self.servers[server].groups.last()?.stage;
        (stage + 1..=last).find(|later| self.calls_of_stage(server, id, *later) > 0)
    }

    /// Reserves a credit for every call of a request. Returns `false`, without any reservation, if
    /// one is missing.
    ///
    /// A request with more calls than a group permits at once would wait for ever. It begins with
    /// all that is permitted; replies bring the rest.
    pub(super) fn reserve(&mut self, server: usize, id: JobId) -> bool {
        let mask = self.jobs[id].call_mask;
        for index in 0..self.servers[server].groups.len() {
            if mask >> index & 1 == 0 {
                continue;
            }
            for held in 0..self.graph.calls[self.servers[server].groups[index].call].times {
                match self.reserve_one(server, index) {
                    Some(link) => self.jobs.reserved(id).push(link),
                    None if held > 0 && self.is_free_but_for(server, index, held) => break,
                    None => {
                        self.release_all(id);
                        return false;
                    }
                }
            }
        }
        true
    }

    /// Whether a group has no unanswered calls, and no reservations but the `held` ones: no reply
    /// will permit more.
    ///
    /// The windows do not tell: an algorithm may limit calls at its clients only.
    fn is_free_but_for(&self, server: usize, index: usize, held: u16) -> bool {
        let group = &self.servers[server].groups[index];
        let links = &self.links[group.links.start as usize..group.links.end as usize];
        group.reserved == u32::from(held) && links.iter().all(|link| link.client.outstanding() == 0)
    }

    fn reserve_one(&mut self, server: usize, index: usize) -> Option<u32> {
        let links = self.servers[server].groups[index].links.clone();
        let count = links.end - links.start;
        let best = self.choose(server, index);
        let now = self.now;
        let tried = (0..count.min(MAX_TRIED)).map(|step| links.start + (best - links.start + step) % count);
        let mut tried = tried;
        let link = tried.find(|link| self.links[*link as usize].client.reserve(now))?;
        self.servers[server].groups[index].reserved += 1;
        Some(link)
    }

    /// Chooses a server of a group: of two random ones the one with fewer unanswered calls.
    fn choose(&mut self, server: usize, index: usize) -> u32 {
        let links = self.servers[server].groups[index].links.clone();
        let count = u64::from(links.end - links.start);
        if count == 1 {
            return links.start;
        }
        let bits = self.server_rng.bits();
        let [one, other] = [bits >> 32, bits & 0xffff_ffff].map(|half| links.start + ((half * count) >> 32) as u32);
        let outstanding = |link: u32| self.links[link as usize].client.outstanding();
        if outstanding(other) < outstanding(one) { other } else { one }
    }

    /// Releases a request's unused reservations.
    pub(super) fn release_all(&mut self, id: JobId) {
        let mut reserved = std::mem::take(self.jobs.reserved(id));
        for link in reserved.drain(..) {
            self.links[link as usize].client.release();
            if let Some(group) = self.group_of(link) {
                group.reserved -= 1;
            }
        }
        *self.jobs.reserved(id) = reserved;
    }

    /// Sends the calls of a stage.
    pub(super) fn send_calls(&mut self, server: usize, id: JobId, stage: u16) {
        let job = self.jobs[id];
        self.jobs[id].stage = stage;
        self.jobs[id].open = self.calls_of_stage(server, id, stage) as u16;
        for index in 0..self.servers[server].groups.len() {
            let group = &self.servers[server].groups[index];
            if job.call_mask >> index & 1 == 0 || group.stage != stage {
                continue;
            }
            let (call, links) = (&self.graph.calls[group.call], group.links.clone());
            let held = self.jobs.reserved(id).iter().take_while(|link| links.contains(link)).count();
            let without_credit = usize::from(call.times) - held;
            for number in 0..usize::from(call.times) {
                let service = self.graph.services[call.to].service.draw(&mut self.service_rng);
                // Calls without a credit are queued first: those with one report them as demand.
                let link = match held {
                    0 => self.choose(server, index),
                    _ if number >= without_credit => self.jobs.reserved(id).remove(0),
                    _ => self.jobs.reserved(id)[number % held],
                };
                let child = self.new_job(id, link, service, job.priority, (job.issued, job.deadline));
                if number >= without_credit {
                    let priority = job.priority;
                    self.servers[server].groups[index].reserved -= 1;
                    self.with_client(link, |client, now, out| client.submit_reserved(now, child, priority, out));
                } else {
                    self.submit(link, child);
                }
            }
        }
    }

    /// Queues a request until it has its credits, or rejects it if the queue is full.
    pub(super) fn park(&mut self, server: usize, id: JobId) {
        if self.servers[server].waiting.len() >= ServiceModel::MAX_WAITING {
            self.respond(server, id, Outcome::Rejected);
            return;
        }
        self.servers[server].waiting.push_back(id);
        for (group, calls) in self.calls_by_group(server, id) {
            group.waiting += calls;
        }
        self.serve_waiting(server);
    }

    /// Serves waiting requests after a link may have received credits.
    pub(super) fn on_credits(&mut self, link: u32) {
        if let Some(server) = self.links[link as usize].from {
            self.serve_waiting(server as usize);
        }
    }

    /// Rejects waiting requests past their deadline, and continues those that get all their
    /// credits.
    pub(super) fn serve_waiting(&mut self, server: usize) {
        let mut index = 0;
        while let (true, Some(id)) = (index < MAX_SCANNED, self.servers[server].waiting.get(index).copied()) {
            if self.now >= self.jobs[id].credit_deadline {
                self.end_wait(server, index);
                let send = self.graph.services[self.servers[server].service as usize].send;
                self.servers[server].debt += send;
                self.respond(server, id, Outcome::Rejected);
            } else if self.reserve(server, id) {
                self.end_wait(server, index);
                self.servers[server].ready.push_back((self.now, id));
            } else {
                index += 1;
            }
        }
        self.report_waiting(server);
        self.assign_cores(server);
    }

    /// Removes a request from those that wait.
    fn end_wait(&mut self, server: usize, index: usize) {
        if let Some(id) = self.servers[server].waiting.remove(index) {
            for (group, calls) in self.calls_by_group(server, id) {
                group.waiting -= calls;
            }
        }
    }

    /// The groups that a request calls, each with its number of calls.
    fn calls_by_group(&mut self, server: usize, id: JobId) -> impl Iterator<Item = (&mut CalleeGroup, u32)> {
        let (mask, calls) = (self.jobs[id].call_mask, &self.graph.calls);
        let groups = self.servers[server].groups.iter_mut().enumerate();
        let called = groups.filter(move |(index, _)| mask >> index & 1 == 1);
        called.map(|(_, group)| {
            let times = u32::from(calls[group.call].times);
            (group, times)
        })
    }

    /// Reports to a server's callees how many calls wait for their credits.
    fn report_waiting(&mut self, server: usize) {
        for index in 0..self.servers[server].groups.len() {
            let group = &mut self.servers[server].groups[index];
            if std::mem::replace(&mut group.reported, group.waiting) == group.waiting {
                continue;
            }
            let share = group.waiting.div_ceil(group.links.len() as u32);
            for link in group.links.clone() {
                self.with_client(link, |client, _, out| client.set_waiting_elsewhere(share, out));
            }
        }
    }

    /// Handles the end of a call, at a server or (`local`) before it left.
    pub(super) fn on_call_ended(&mut self, id: JobId, outcome: Outcome, local: Option<LocalReason>) {
        let job = self.jobs[id];
        if outcome == Outcome::Rejected && self.may_retry(id) {
            let record = &mut self.jobs[id];
            record.attempts += 1;
            (record.started, record.failed, record.stage, record.open) = (false, false, 0, 0);
            let link = self.retry_link(id);
            self.jobs[id].link = link;
            self.submit(link, id);
            return;
        }
        let job_ended = self.jobs.remove(id);
        if job.parent == JobId::NONE {
            if outcome == Outcome::Completed {
                self.client_retries.deposit(self.graph.policy.retries);
            }
            self.on_request_ended(&job_ended, outcome, local);
            return;
        }
        if outcome == Outcome::Completed {
            let share = self.graph.policy.retries;
            if let Some(group) = self.group_of(job.link) {
                group.retries.deposit(share);
            }
        }
        let parent = &mut self.jobs[job.parent];
        parent.cpu_time.add(job.cpu_time);
        parent.failed |= outcome == Outcome::Rejected;
        parent.replies += u16::from(local.is_none());
        parent.open -= 1;
        if parent.open == 0 {
            let server = self.links[parent.link as usize].to as usize;
            self.servers[server].ready.push_back((self.now, job.parent));
            self.assign_cores(server);
        }
    }

    fn group_of(&mut self, link: u32) -> Option<&mut CalleeGroup> {
        let link = &self.links[link as usize];
        self.servers[link.from? as usize].groups.get_mut(usize::from(link.group))
    }

    /// Whether a rejected call is sent again.
    ///
    /// A budget pays for retries, so that they add at most its share to the load. A caller whose
    /// own request is past its deadline sends none.
    fn may_retry(&mut self, id: JobId) -> bool {
        let (job, share) = (self.jobs[id], self.graph.policy.retries);
        if share == 0.0 || job.attempts >= MAX_ATTEMPTS || self.now >= job.deadline {
            return false;
        }
        if job.parent == JobId::NONE {
            return self.client_retries.withdraw();
        }
        self.group_of(job.link).is_some_and(|group| group.retries.withdraw())
    }

    /// Link of the next attempt: another server of the same service, if there is one.
    fn retry_link(&mut self, id: JobId) -> u32 {
        let link = self.jobs[id].link;
        match self.group_of(link).map(|group| group.links.clone()) {
            Some(links) if link + 1 < links.end => link + 1,
            Some(links) => links.start,
            None => link,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::model::{CallModel, CallOrder, CallPolicy, Graph, StartCondition};
    use super::*;
    use crate::config::SimConfig;
    use leeward_core::params::Params;
    use leeward_core::units::{Nanos, Priority, Time};
    use leeward_workload::service_time::ServiceTime;
    use std::sync::atomic::AtomicBool;

    /// One request takes the credit of the first callee. Of eleven that wait, one calls the second.
    #[test]
    fn waiting_requests_report_the_calls_that_they_make() {
        let (none, service) = (Nanos::ZERO, ServiceTime::Constant(Nanos(1_000)));
        let services = ["a", "b", "c"].map(|name| ServiceModel {
            name: name.into(),
            servers: 1,
            cores: 1,
            service: service.clone(),
            resume: none,
            receive: none,
            send: none,
            rtt: none,
        });
        let call = |to, times| CallModel { from: 0, to, times, probability: 1.0, order: CallOrder::Parallel };
        let policy = CallPolicy { start: StartCondition::Reserved, ..CallPolicy::default() };
        let graph = Graph { services: services.into(), calls: vec![call(1, 1), call(2, 8)], policy };
        let config = SimConfig::testbed(service, 1.0);
        let window = leeward_controllers::builtin().find("window").unwrap().clone();
        let stop = AtomicBool::new(false);
        let mut run = Run::new(&config, &graph, &window, &Params::default(), &stop).unwrap();
        for mask in std::iter::repeat_n(0b01, 11).chain([0b11]) {
            let id = run.new_job(JobId::NONE, 0, Nanos(1_000), Priority::HIGHEST, (Time::ZERO, Time::NEVER));
            run.jobs[id].call_mask = mask;
            run.park(0, id);
        }
        let groups = [0, 1].map(|index| run.servers[0].groups[index].links.start as usize);
        assert_eq!(groups.map(|link| run.links[link].client.demand()), [11, 8]);
    }
}
