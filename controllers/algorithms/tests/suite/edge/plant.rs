//! A server of other software, in virtual time: requests wait unread before the decision, a
//! rejection costs worker time, and a worker is busy with an admitted request until its response.

use leeward_controllers::edge::deadline;
use leeward_core::params::{Params, RawParam};
use leeward_core::registry::{Algorithm, Environment};
use leeward_core::server::{
    Arrival, CoreId, Departure, Outcome, Registration, RejectReason, ServerHalves, Session, SessionSlot, Signals,
    Verdict,
};
use leeward_core::units::{Cost, CreditId, Nanos, Priority, Tenant, Time};

/// A seeded stream of numbers (splitmix64).
pub(crate) struct Rng(pub(crate) u64);

impl Rng {
    pub(crate) fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ mixed >> 31
    }

    pub(crate) fn unit(&mut self) -> f64 {
        (self.bits() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// Draws a gap of a Poisson process with this mean.
    pub(crate) fn gap(&mut self, mean: Nanos) -> Nanos {
        mean.scale(-(1.0 - self.unit()).ln())
    }
}

#[derive(Clone, Copy)]
pub(crate) struct Request {
    pub(crate) at: Time,
    pub(crate) service: Nanos,
    pub(crate) priority: u8,
    pub(crate) tenant: u32,
    pub(crate) cost: u32,
    pub(crate) time_left: Nanos,
}

#[derive(Clone, Copy)]
pub(crate) struct Server {
    pub(crate) workers: u32,
    pub(crate) slo: Nanos,
    /// Cost of reading, parsing and answering a rejected request. An admitted request costs as much
    /// in addition.
    pub(crate) rejection_cost: Nanos,
}

/// Outcome of a request.
#[derive(Clone, Copy)]
pub(crate) struct RequestOutcome {
    pub(crate) request: Request,
    /// Time of the decision.
    pub(crate) decision_time: Time,
    pub(crate) reject_reason: Option<RejectReason>,
    /// Time from its arrival to its response.
    pub(crate) latency: Nanos,
}

pub(crate) struct Plant {
    server: Server,
    halves: ServerHalves,
    sessions: Vec<Session>,
    workers: Vec<Worker>,
    next_tick: Time,
    since: (u64, u64, u64),
    rng: Rng,
    pub(crate) outcomes: Vec<RequestOutcome>,
    pub(crate) peak_threshold: f64,
}

struct Worker {
    free_at: Time,
    executes: bool,
}

impl Plant {
    pub(crate) fn new(algorithm: &Algorithm, pairs: &[(&str, &str)], server: Server, seed: u64) -> Self {
        let pairs: Vec<_> = pairs.iter().map(|(name, value)| (*name, RawParam::Text((*value).into()))).collect();
        let params: Params = algorithm.params(&pairs).expect("declared");
        let environment = Environment::new(server.workers, Nanos::ZERO, server.slo);
        let mut halves = algorithm.server(&params, &environment).expect("defaults");
        let sessions = (0..server.workers)
            .map(|core| {
                let mut session = Session::new(SessionSlot(0), CoreId(core));
                halves.cores[core as usize].open(&mut session, &Registration { now: Time::ZERO, demand: 0 });
                session
            })
            .collect();
        let worker = |_| Worker { free_at: Time::ZERO, executes: false };
        Plant {
            server,
            halves,
            sessions,
            workers: (0..server.workers).map(worker).collect(),
            next_tick: Time::ZERO,
            since: (0, 0, 0),
            rng: Rng(seed),
            outcomes: Vec::new(),
            peak_threshold: 1.0,
        }
    }

    /// Serves these requests, in order of their arrival.
    pub(crate) fn run(&mut self, requests: &[Request]) {
        for request in requests {
            let index = (0..self.workers.len()).min_by_key(|index| self.workers[*index].free_at).expect("a worker");
            let now = self.workers[index].free_at.max(request.at);
            self.tick_until(now, request.at);
            self.serve(index, now, request);
        }
    }

    /// Lets time pass without a request.
    pub(crate) fn idle_until(&mut self, now: Time) {
        self.tick_until(now, Time::NEVER);
    }

    fn tick_until(&mut self, now: Time, head: Time) {
        while self.next_tick <= now {
            let tick = self.next_tick;
            for worker in self.workers.iter_mut().filter(|worker| worker.executes && worker.free_at <= tick) {
                worker.executes = false;
                self.since.1 += 1;
            }
            let (arrivals, completions, rejected) = std::mem::take(&mut self.since);
            let packet_delay = if head <= tick { tick.since(head) } else { Nanos::ZERO };
            let signals = Signals { packet_delay, arrivals, completions, rejections: rejected, ..Signals::idle(tick) };
            self.halves.control.tick(&signals);
            self.peak_threshold = self.peak_threshold.max(self.threshold());
            self.next_tick = tick + self.halves.control.period();
        }
    }

    pub(crate) fn threshold(&self) -> f64 {
        self.halves.control.gauges().priority_threshold.unwrap_or(128.0)
    }

    fn arrival(&mut self, now: Time, request: &Request) -> Arrival {
        let delay = now.since(request.at);
        let left = request.time_left.min(self.server.slo);
        Arrival::new(now)
            .with_delay(delay)
            .with_priority(Priority::new(request.priority))
            .with_tenant(Tenant(request.tenant))
            .with_cost(Cost(request.cost))
            .with_budget(deadline::budget(left, delay, request.service))
            .with_random(self.rng.bits())
    }

    /// Returns the verdict on a request at this moment, without serving it.
    pub(crate) fn probe(&mut self, now: Time, request: &Request) -> Verdict {
        let arrival = self.arrival(now, request);
        self.halves.cores[0].request(&mut self.sessions[0], &arrival)
    }

    fn serve(&mut self, index: usize, now: Time, request: &Request) {
        let arrival = self.arrival(now, request);
        let (core, session) = (self.halves.cores[index].as_mut(), &mut self.sessions[index]);
        let (mut verdict, pending) = session.request(core, &arrival);
        if verdict == Verdict::Admit {
            verdict = core.on_dequeue(arrival.delay);
        }
        let worker = &mut self.workers[index];
        if worker.executes {
            self.since.1 += 1;
        }
        self.since.0 += 1;
        let (rejected, outcome, busy) = match verdict {
            Verdict::Admit => (None, Outcome::Completed, self.server.rejection_cost + request.service),
            Verdict::Reject(reason) => (Some(reason), Outcome::Rejected, self.server.rejection_cost),
        };
        self.since.2 += u64::from(rejected.is_some());
        worker.executes = rejected.is_none();
        worker.free_at = now + busy;
        let latency = worker.free_at.since(request.at);
        let departure = Departure { now: worker.free_at, outcome, sojourn: latency, credit: CreditId::NONE };
        let _ = session.reply(core, pending, &departure);
        self.outcomes.push(RequestOutcome { request: *request, decision_time: now, reject_reason: rejected, latency });
    }

    /// Outcomes of requests that arrived in this span.
    pub(crate) fn outcomes_between(&self, from: Nanos, to: Nanos) -> impl Iterator<Item = &RequestOutcome> {
        let span = (Time::ZERO + from)..(Time::ZERO + to);
        self.outcomes.iter().filter(move |outcome| span.contains(&outcome.request.at))
    }

    /// Responses within the objective to requests that arrived in this span.
    pub(crate) fn timely_responses(&self, from: Nanos, to: Nanos) -> usize {
        let slo = self.server.slo;
        self.outcomes_between(from, to)
            .filter(|outcome| outcome.reject_reason.is_none() && outcome.latency <= slo)
            .count()
    }

    /// Quantile of the admitted requests' latencies.
    pub(crate) fn quantile(&self, from: Nanos, to: Nanos, part: f64) -> Nanos {
        let mut latencies: Vec<_> = self
            .outcomes_between(from, to)
            .filter(|outcome| outcome.reject_reason.is_none())
            .map(|outcome| outcome.latency)
            .collect();
        latencies.sort_unstable();
        latencies.get((latencies.len() as f64 * part) as usize).copied().unwrap_or(Nanos::ZERO)
    }
}

/// Draws Poisson arrivals at `load` times the capacity of `server` for requests of `service`;
/// `change` adapts each.
pub(crate) fn poisson(
    server: &Server,
    service: Nanos,
    load: f64,
    from: Nanos,
    to: Nanos,
    seed: u64,
    mut change: impl FnMut(&mut Request, &mut Rng),
) -> Vec<Request> {
    let mut draw = Rng(seed);
    let mean = (service + server.rejection_cost).scale(1.0 / (load * f64::from(server.workers)));
    let (mut at, end) = (Time::ZERO + from, Time::ZERO + to);
    let mut requests = Vec::new();
    loop {
        at += draw.gap(mean);
        if at >= end {
            return requests;
        }
        let priority = (draw.bits() >> 57) as u8 + 1;
        let mut request = Request { at, service, priority, tenant: 0, cost: 1, time_left: Nanos::MAX };
        change(&mut request, &mut draw);
        requests.push(request);
    }
}
