//! The network: computes when a message arrives. The delay is the same in both directions; messages
//! of a session stay in order.

use crate::config::SimConfig;
use crate::event::{Event, Packet};
use crate::event_queue::{EventQueue, Lane};
use crate::oracle::Oracle;
use crate::requests::{RequestId, RequestOutcome, Requests};
use crate::stats::Stats;
use leeward_core::client::{Header, LocalOutcome};
use leeward_core::units::{Nanos, Time};
use leeward_workload::rng::{Purpose, Rng};

/// Both directions of every session.
pub(crate) struct Wire {
    to_server: Nanos,
    to_client: Nanos,
    jitter: Option<Jitter>,
}

/// Random extra delay that never lets one message of a session overtake another.
struct Jitter {
    rng: Rng,
    max: Nanos,
    last_to_server: Vec<Time>,
    last_to_client: Vec<Time>,
}

impl Wire {
    pub(crate) fn new(config: &SimConfig) -> Self {
        let clients = config.workload.clients as usize;
        let one_way = config.network.rtt / 2;
        Wire {
            to_server: one_way,
            to_client: config.network.rtt - one_way,
            jitter: (config.network.jitter > Nanos::ZERO).then(|| Jitter {
                rng: Rng::new(config.seed, Purpose::Network),
                max: config.network.jitter,
                last_to_server: vec![Time::ZERO; clients],
                last_to_client: vec![Time::ZERO; clients],
            }),
        }
    }

    fn arrival_at_server(&mut self, session: u32, now: Time) -> Time {
        let earliest = now + self.to_server;
        match &mut self.jitter {
            None => earliest,
            Some(jitter) => {
                jittered_arrival(&mut jitter.rng, jitter.max, &mut jitter.last_to_server[session as usize], earliest)
            }
        }
    }

    /// Arrival time of a message that leaves the server now.
    pub(crate) fn arrival_at_client(&mut self, session: u32, now: Time) -> Time {
        let earliest = now + self.to_client;
        match &mut self.jitter {
            None => earliest,
            Some(jitter) => {
                jittered_arrival(&mut jitter.rng, jitter.max, &mut jitter.last_to_client[session as usize], earliest)
            }
        }
    }

    /// Returns the sink for the decisions of `session`'s client.
    pub(crate) fn sink<'a>(
        &'a mut self,
        session: u32,
        now: Time,
        queue: &'a mut EventQueue<Event>,
        requests: &'a mut Requests,
        stats: &'a mut Stats,
        oracle: Option<&'a mut Oracle>,
    ) -> ClientSink<'a> {
        ClientSink { wire: self, session, now, event_queue: queue, requests, stats, oracle }
    }
}

fn jittered_arrival(rng: &mut Rng, max: Nanos, last: &mut Time, earliest: Time) -> Time {
    let at = (earliest + Nanos(rng.below(max.0 + 1))).max(*last);
    *last = at;
    at
}

/// Applies a client's decisions to the simulation.
pub(crate) struct ClientSink<'a> {
    wire: &'a mut Wire,
    session: u32,
    now: Time,
    event_queue: &'a mut EventQueue<Event>,
    requests: &'a mut Requests,
    stats: &'a mut Stats,
    oracle: Option<&'a mut Oracle>,
}

impl leeward_core::client::ClientSink<RequestId> for ClientSink<'_> {
    fn send(&mut self, request: RequestId, header: Header) {
        let record = &mut self.requests[request];
        record.sent = self.now;
        record.demand = header.demand;
        record.credit = header.credit;
        let at = self.wire.arrival_at_server(self.session, self.now);
        let packet = Packet::Request { request, session: self.session };
        self.event_queue.schedule_on(Lane::ToServer, at, Event::PacketArrived(packet));
    }

    fn end(&mut self, request: RequestId, end: LocalOutcome) {
        if let Some(oracle) = &mut self.oracle {
            oracle.on_client_end(request);
        }
        let record = self.requests.remove(request, RequestOutcome::AtClient(end.reason));
        self.stats.record_client_end(record.kind, end.reason);
    }

    fn send_demand(&mut self, demand: u32) {
        let at = self.wire.arrival_at_server(self.session, self.now);
        let packet = Packet::Demand { session: self.session, demand };
        self.event_queue.schedule_on(Lane::ToServer, at, Event::PacketArrived(packet));
    }
}
