//! Greedy sessions beside others with occasional requests: a session with credits must not keep
//! them for ever.

use leeward_core::params::RawParam;
use leeward_core::registry::Environment;
use leeward_core::server::{
    Arrival, CoreId, Departure, Outcome, PendingRequest, Registration, ServerHalves, Session, SessionSlot, Signals,
    Verdict,
};
use leeward_core::units::{CreditId, Nanos, Time};
use std::collections::VecDeque;

const STEP: Nanos = Nanos(5_000);
const ROUND_TRIP: Nanos = Nanos(20_000);
const OBJECTIVE: Nanos = Nanos(1_000_000);
/// Service time of each request.
const WORK: Nanos = Nanos(50_000);

/// Time at which the other sessions start, after the greedy ones.
const LATE_START: Time = Time(300_000_000);

/// A client of the model: sends as soon as it may while requests wait.
struct Client {
    session: Session,
    /// Intended send times of the waiting requests.
    waiting: VecDeque<Time>,
    window: u32,
    in_flight: u32,
    is_greedy: bool,
}

struct Job {
    at: Time,
    intended: Time,
    client: usize,
    pending: PendingRequest,
}

/// Core that serves one request after the other, as the servers do: decisions on arrival, a tick
/// per round trip.
struct Model {
    halves: ServerHalves,
    clients: Vec<Client>,
    queue: VecDeque<Job>,
    busy_until: Time,
    /// Requests of the other clients, by the tenth of a second: in time, and in all.
    served: Vec<(u32, u32)>,
}

impl Model {
    fn new(greedy: usize, others: usize) -> Self {
        let breakwater = leeward_controllers::builtin().find("breakwater").unwrap().clone();
        let environment = Environment::new(1, ROUND_TRIP, OBJECTIVE);
        let mut halves = breakwater.server(&breakwater.params(&[]).unwrap(), &environment).unwrap();
        let clients = (0..greedy + others)
            .map(|slot| {
                let mut session = Session::new(SessionSlot(slot as u32), CoreId(0));
                if slot < greedy {
                    halves.cores[0].open(&mut session, &Registration { now: Time::ZERO, demand: 0 });
                }
                // A first call may be sent without a credit.
                Client { session, waiting: VecDeque::new(), window: 1, in_flight: 0, is_greedy: slot < greedy }
            })
            .collect();
        Model { halves, clients, queue: VecDeque::new(), busy_until: Time::ZERO, served: vec![(0, 0); 40] }
    }

    fn reply(&mut self, job: Job, outcome: Outcome, now: Time) {
        let departure = Departure { now, outcome, sojourn: now.since(job.at), credit: CreditId::NONE };
        let client = &mut self.clients[job.client];
        let feedback = client.session.reply(self.halves.cores[0].as_mut(), job.pending, &departure);
        (client.window, client.in_flight) = (feedback.window.0, client.in_flight - 1);
        if !client.is_greedy {
            let count = &mut self.served[(job.intended.0 / 100_000_000) as usize];
            count.1 += 1;
            count.0 += u32::from(outcome == Outcome::Completed && now.since(job.intended) + ROUND_TRIP <= OBJECTIVE);
        }
    }

    fn run(&mut self, span: Nanos) {
        let (mut now, mut next_tick, mut random) = (Time::ZERO, Time::ZERO, 7_u64);
        let mut draw = || {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            random ^ (random >> 29)
        };
        while now < Time::ZERO + span {
            now += STEP;
            if now == LATE_START {
                for client in self.clients.iter_mut().filter(|client| !client.is_greedy) {
                    self.halves.cores[0].open(&mut client.session, &Registration { now, demand: 0 });
                }
            }
            for at in 0..self.clients.len() {
                let client = &mut self.clients[at];
                if client.is_greedy && client.in_flight == 0 && client.waiting.is_empty() {
                    client.waiting.push_back(now);
                }
                // The others start later, with 20 requests per second each.
                if !client.is_greedy && now > LATE_START && draw() % 10_000 == 0 {
                    client.waiting.push_back(now);
                    if client.window <= client.in_flight {
                        client.session.demand = client.waiting.len() as u32;
                        if let Some(feedback) = client.session_demand(&mut self.halves, now) {
                            client.window = feedback;
                        }
                    }
                }
                while client.window > client.in_flight && !client.waiting.is_empty() {
                    let intended = client.waiting.pop_front().unwrap();
                    client.in_flight += 1;
                    let delay = self.queue.front().map_or(Nanos::ZERO, |job| now.since(job.at));
                    let demand = if client.is_greedy { u32::MAX } else { client.waiting.len() as u32 };
                    let mut arrival = Arrival::new(now).with_demand(demand);
                    arrival.delay = delay;
                    let (verdict, pending) = client.session.request(self.halves.cores[0].as_mut(), &arrival);
                    let job = Job { at: now, intended, client: at, pending };
                    if verdict == Verdict::Admit {
                        self.queue.push_back(job);
                    } else {
                        // The rejection reduces its window; it takes no time in the model.
                        self.reply(job, Outcome::Rejected, now);
                        break;
                    }
                }
            }
            while self.busy_until <= now {
                let Some(job) = self.queue.pop_front() else { break };
                self.busy_until = now + WORK;
                self.reply(job, Outcome::Completed, now + WORK);
            }
            if now >= next_tick {
                next_tick = now + self.halves.control.period();
                let packet_delay = self.queue.front().map_or(Nanos::ZERO, |job| now.since(job.at));
                self.halves.control.tick(&Signals { packet_delay, ..Signals::idle(now) });
                while let Some(SessionSlot(slot)) = self.halves.cores[0].next_to_wake(draw()) {
                    let client = &mut self.clients[slot as usize];
                    client.window = self.halves.cores[0].wake(&mut client.session, now).window.0;
                }
            }
        }
    }
}

impl Client {
    fn session_demand(&mut self, halves: &mut ServerHalves, now: Time) -> Option<u32> {
        halves.cores[0].demand(&mut self.session, now).map(|feedback| feedback.window.0)
    }
}

#[test]
fn no_session_keeps_the_last_credits_for_ever() {
    for greedy in [4, 8, 9, 12, 16, 30] {
        let mut model = Model::new(greedy, 50);
        model.run(Nanos::from_secs(2));
        // From half a second after the others started.
        let late = model.served[8..20].iter().fold((0, 0), |sum, tenth| (sum.0 + tenth.0, sum.1 + tenth.1));
        assert!(late.1 > 1_000, "{greedy} keep {late:?} of some 1,150 from being served");
        assert!(f64::from(late.0) >= 0.9 * f64::from(late.1), "{greedy} keep {late:?} from being served in time");
    }
}

/// Three sessions at a pool that has shrunk from two credits to one: the first two have one each,
/// the third waits.
struct ThreeSessions {
    halves: ServerHalves,
    sessions: Vec<Session>,
}

impl ThreeSessions {
    fn new() -> Self {
        let breakwater = leeward_controllers::builtin().find("breakwater").unwrap().clone();
        let params = breakwater.params(&[("initial_pool", RawParam::Integer(2))]).unwrap();
        let mut halves = breakwater.server(&params, &Environment::new(1, ROUND_TRIP, OBJECTIVE)).unwrap();
        let mut sessions: Vec<Session> = (0..3).map(|slot| Session::new(SessionSlot(slot), CoreId(0))).collect();
        let opened = Registration { now: Time::ZERO, demand: 9 };
        sessions.iter_mut().for_each(|session| halves.cores[0].open(session, &opened));
        let mut three = ThreeSessions { halves, sessions };
        for (at, demand) in [(1, 0), (0, 9)] {
            let pending = three.request(at, demand);
            assert_eq!(three.reply(at, pending, Time::ZERO), 1);
        }
        let packet_delay = Nanos::from_millis(5);
        three.halves.control.tick(&Signals { packet_delay, ..Signals::idle(Time(1)) });
        assert_eq!(three.halves.control.gauges().credit_pool, Some(1));
        three
    }

    fn request(&mut self, at: usize, demand: u32) -> PendingRequest {
        self.sessions[at].request(self.halves.cores[0].as_mut(), &Arrival::new(Time::ZERO).with_demand(demand)).1
    }

    /// Answers a request; returns the session's window.
    fn reply(&mut self, at: usize, pending: PendingRequest, now: Time) -> u32 {
        let departure = Departure { now, outcome: Outcome::Completed, sojourn: Nanos(1), credit: CreditId::NONE };
        self.sessions[at].reply(self.halves.cores[0].as_mut(), pending, &departure).window.0
    }

    /// Returns the next session to wake, and the issued credits after it.
    fn wake_next(&mut self) -> (Option<SessionSlot>, i64) {
        (self.halves.cores[0].next_to_wake(0), self.halves.control.gauges().credits_issued.unwrap())
    }
}

#[test]
fn a_session_with_a_request_in_flight_keeps_its_credit() {
    let mut three = ThreeSessions::new();
    // The client sent the second call before it received the message that took its credit back.
    let (first, second) = (three.request(0, 9), three.request(0, 9));
    let late = Time::ZERO + Nanos::from_millis(50);
    assert_eq!(three.reply(0, first, late), 1, "its other request needs the credit");
    assert_eq!(three.wake_next(), (None, 2));
    assert_eq!(three.reply(0, second, late), 0);
    assert_eq!(three.wake_next(), (Some(SessionSlot(2)), 2), "one gives it, another gets it");
}
