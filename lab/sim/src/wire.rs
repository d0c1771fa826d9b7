//! The network: when a message sent now arrives. The same delay each way, in order within a session.

use crate::agenda::{Agenda, Lane};
use crate::config::SimConfig;
use crate::event::{Event, Packet};
use crate::oracle::Oracle;
use crate::requests::{End, RequestId, Requests};
use crate::stats::Stats;
use leeward_core::client::{Header, LocalEnd};
use leeward_core::units::{Nanos, Time};
use leeward_workload::rng::{Purpose, Rng};

/// Both directions of every session.
pub(crate) struct Wire {
    there: Nanos,
    back: Nanos,
    jitter: Option<Jitter>,
}

/// Random extra delay that never lets one message of a session overtake another.
struct Jitter {
    rng: Rng,
    up_to: Nanos,
    last_there: Vec<Time>,
    last_back: Vec<Time>,
}

impl Wire {
    pub(crate) fn new(config: &SimConfig) -> Self {
        let clients = config.workload.clients as usize;
        let there = config.network.rtt / 2;
        Wire {
            there,
            back: config.network.rtt - there,
            jitter: (config.network.jitter > Nanos::ZERO).then(|| Jitter {
                rng: Rng::new(config.seed, Purpose::Network),
                up_to: config.network.jitter,
                last_there: vec![Time::ZERO; clients],
                last_back: vec![Time::ZERO; clients],
            }),
        }
    }

    fn arrival_at_server(&mut self, session: u32, now: Time) -> Time {
        let earliest = now + self.there;
        match &mut self.jitter {
            None => earliest,
            Some(jitter) => delayed(&mut jitter.rng, jitter.up_to, &mut jitter.last_there[session as usize], earliest),
        }
    }

    /// When a message that leaves the server now is at its client.
    pub(crate) fn arrival_at_client(&mut self, session: u32, now: Time) -> Time {
        let earliest = now + self.back;
        match &mut self.jitter {
            None => earliest,
            Some(jitter) => delayed(&mut jitter.rng, jitter.up_to, &mut jitter.last_back[session as usize], earliest),
        }
    }

    /// Where `session`'s client puts its decisions.
    pub(crate) fn outlet<'a>(
        &'a mut self,
        session: u32,
        now: Time,
        agenda: &'a mut Agenda<Event>,
        requests: &'a mut Requests,
        stats: &'a mut Stats,
        oracle: Option<&'a mut Oracle>,
    ) -> Outlet<'a> {
        Outlet { wire: self, session, now, agenda, requests, stats, oracle }
    }
}

fn delayed(rng: &mut Rng, up_to: Nanos, last: &mut Time, earliest: Time) -> Time {
    let at = (earliest + Nanos(rng.below(up_to.0 + 1))).max(*last);
    *last = at;
    at
}

/// Effects of a client's decisions on the rest of the simulation.
pub(crate) struct Outlet<'a> {
    wire: &'a mut Wire,
    session: u32,
    now: Time,
    agenda: &'a mut Agenda<Event>,
    requests: &'a mut Requests,
    stats: &'a mut Stats,
    oracle: Option<&'a mut Oracle>,
}

impl leeward_core::client::Outlet<RequestId> for Outlet<'_> {
    fn send(&mut self, request: RequestId, header: Header) {
        let record = &mut self.requests[request];
        record.sent = self.now;
        record.demand = header.demand;
        record.credit = header.credit;
        let at = self.wire.arrival_at_server(self.session, self.now);
        let packet = Packet::Request { request, session: self.session };
        self.agenda.schedule_on(Lane::ToServer, at, Event::ToServer(packet));
    }

    fn end(&mut self, request: RequestId, end: LocalEnd) {
        if let Some(oracle) = &mut self.oracle {
            oracle.ends_at_client(request);
        }
        let record = self.requests.remove(request, End::AtClient(end.reason));
        self.stats.ended_at_client(record.kind, end.reason);
    }

    fn send_demand(&mut self, demand: u32) {
        let at = self.wire.arrival_at_server(self.session, self.now);
        let packet = Packet::Demand { session: self.session, demand };
        self.agenda.schedule_on(Lane::ToServer, at, Event::ToServer(packet));
    }
}
