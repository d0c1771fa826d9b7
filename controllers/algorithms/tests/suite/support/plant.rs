//! The plant: clients, connections with messages in flight in both directions, cores and the
//! control loop of one algorithm. It decides nothing: the caller gives every step, and the plant
//! records the events.

use std::collections::VecDeque;

use leeward_core::client::{Client, ClientSink, Header, LocalOutcome};
use leeward_core::params::Params;
use leeward_core::registry::{Algorithm, Environment};
use leeward_core::server::{
    Admission, Arrival, ControlLoop, CoreId, Departure, Feedback, Outcome, PendingRequest, Registration, Session,
    SessionSlot, Signals, Verdict,
};
use leeward_core::units::{CreditId, Nanos, Priority, Time};

use super::checker::{End, Event, SessionView, View};
use super::step::{MAX_CONNECTIONS, Step};

enum ToServer {
    Request { request: u64, header: Header, sent: Time },
    Demand(u32),
}

enum ToClient {
    Answer { request: u64, outcome: Outcome, sent: Time, feedback: Feedback },
    Credit(Feedback),
}

struct InServer {
    request: u64,
    credit: CreditId,
    sent: Time,
    arrived: Time,
    admitted: bool,
    pending: PendingRequest,
}

struct Connection {
    session: Session,
    client: Client<u64>,
    to_server: VecDeque<ToServer>,
    in_server: Vec<InServer>,
    to_client: VecDeque<ToClient>,
}

/// Records a client's decisions.
struct Wire<'a> {
    place: usize,
    now: Time,
    to_server: &'a mut VecDeque<ToServer>,
    events: &'a mut Vec<Event>,
}

impl ClientSink<u64> for Wire<'_> {
    fn send(&mut self, request: u64, header: Header) {
        self.events.push(Event::Sent { place: self.place, request });
        self.to_server.push_back(ToServer::Request { request, header, sent: self.now });
    }

    fn end(&mut self, request: u64, _: LocalOutcome) {
        self.events.push(Event::Ended { request, end: End::Client });
    }

    fn send_demand(&mut self, demand: u32) {
        self.to_server.push_back(ToServer::Demand(demand));
    }
}

/// Defects of the plant itself, which the checker must detect.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum PlantDefect {
    #[default]
    None,
    /// Reports every 50th reply twice.
    EndsTwice,
    /// Loses the end of every 50th reply.
    ForgetsEnd,
}

pub(crate) struct Plant {
    pub(crate) now: Time,
    algorithm: Algorithm,
    params: Params,
    environment: Environment,
    cores: Vec<Box<dyn Admission>>,
    pub(crate) control: Box<dyn ControlLoop>,
    connections: Vec<Option<Connection>>,
    free_slots: Vec<Vec<SessionSlot>>,
    requests: u64,
    answers: u64,
    /// The delay of the packet queue and of the run queue.
    queues: (Nanos, Nanos),
    /// Arrivals, completions and rejections, and rejections by a lock.
    since_tick: (u64, u64, u64, u64),
    defect: PlantDefect,
    events: Vec<Event>,
}

impl Plant {
    pub(crate) fn new(algorithm: &Algorithm, params: &Params, environment: &Environment, mistake: PlantDefect) -> Self {
        let server = algorithm.server(params, environment).expect("the case's parameters are valid");
        Plant {
            now: Time::ZERO,
            algorithm: algorithm.clone(),
            params: params.clone(),
            environment: *environment,
            free_slots: server
                .cores
                .iter()
                .map(|_| (0..MAX_CONNECTIONS as u32).rev().map(SessionSlot).collect())
                .collect(),
            cores: server.cores,
            control: server.control,
            connections: (0..MAX_CONNECTIONS).map(|_| None).collect(),
            requests: 0,
            answers: 0,
            queues: (Nanos::ZERO, Nanos::ZERO),
            since_tick: (0, 0, 0, 0),
            defect: mistake,
            events: Vec::new(),
        }
    }

    /// Executes one step and returns its events.
    pub(crate) fn step(&mut self, step: &Step) -> Vec<Event> {
        match *step {
            Step::Open { place, waiting } => self.open(place, waiting),
            Step::Close { place } => self.close(place),
            Step::Submit { place, level, random } => self.submit(place, level, random),
            Step::ToServer { place, random, at_once } => self.arrive_at_server(place, random, at_once),
            Step::Finish { place, pick, executed } => self.finish(place, pick, executed),
            Step::ToClient { place } => self.arrive_at_client(place),
            Step::Tick { random } => self.tick(random),
            Step::Queues { packet_delay, run_delay } => self.queues = (packet_delay, run_delay),
            Step::Advance { time } => self.now += time,
            Step::Timer { place } => self.timer(place),
        }
        std::mem::take(&mut self.events)
    }

    pub(crate) fn view(&self) -> View {
        let session = |connection: &Connection| SessionView {
            window: connection.session.window.0,
            admitted: connection.in_server.iter().filter(|entry| entry.admitted).count() as u32,
            rejected: connection.in_server.iter().filter(|entry| !entry.admitted).count() as u32,
            queued: connection.client.demand() as usize,
        };
        View { gauges: self.control.gauges(), sessions: self.connections.iter().flatten().map(session).collect() }
    }

    pub(crate) fn is_open(&self, place: usize) -> bool {
        self.connections[place].is_some()
    }

    /// Whether a message is on its way to the server.
    pub(crate) fn sends_to_server(&self, place: usize) -> bool {
        self.connections[place].as_ref().is_some_and(|connection| !connection.to_server.is_empty())
    }

    /// Whether a message is on its way to the client.
    pub(crate) fn sends_to_client(&self, place: usize) -> bool {
        self.connections[place].as_ref().is_some_and(|connection| !connection.to_client.is_empty())
    }

    /// Whether a request is in the server.
    pub(crate) fn serves(&self, place: usize) -> bool {
        self.connections[place].as_ref().is_some_and(|connection| !connection.in_server.is_empty())
    }

    fn core_of(&self, place: usize) -> usize {
        place % self.cores.len()
    }

    fn open(&mut self, place: usize, waiting: u8) {
        if self.is_open(place) {
            return;
        }
        let core = self.core_of(place);
        let slot = self.free_slots[core].pop().expect("as many slots as places");
        self.connections[place] = Some(Connection {
            session: Session::new(slot, CoreId(core as u32)),
            client: self.algorithm.client(&self.params, &self.environment).expect("the case's parameters are valid"),
            to_server: VecDeque::new(),
            in_server: Vec::new(),
            to_client: VecDeque::new(),
        });
        self.events.push(Event::Connected { place });
        (0..waiting).for_each(|level| self.submit(place, level, u64::MAX));
        let connection = self.connections[place].as_mut().expect("just opened");
        let event = Registration { now: self.now, demand: connection.client.demand() };
        self.cores[core].open(&mut connection.session, &event);
    }

    fn close(&mut self, place: usize) {
        let core = self.core_of(place);
        let Some(mut connection) = self.connections[place].take() else { return };
        self.cores[core].close(&mut connection.session, self.now);
        self.free_slots[core].push(connection.session.slot);
        let events = &mut self.events;
        connection.client.close(self.now, |request, _| events.push(Event::Ended { request, end: End::Client }));
        let lost = |request| Event::Ended { request, end: End::Disconnect };
        events.extend(connection.to_server.iter().filter_map(|message| match message {
            ToServer::Request { request, .. } => Some(lost(*request)),
            ToServer::Demand(_) => None,
        }));
        events.extend(connection.in_server.iter().map(|entry| lost(entry.request)));
        events.extend(connection.to_client.iter().filter_map(|message| match message {
            ToClient::Answer { request, .. } => Some(lost(*request)),
            ToClient::Credit(_) => None,
        }));
        events.push(Event::Disconnected { place });
    }

    fn submit(&mut self, place: usize, level: u8, random: u64) {
        if !self.is_open(place) {
            return;
        }
        let request = self.requests;
        self.requests += 1;
        self.events.push(Event::Submitted { request });
        self.with_client(place, |client, now, wire| client.submit(now, request, Priority::new(level), random, wire));
    }

    fn timer(&mut self, place: usize) {
        let spins = self.with_client(place, |client, now, wire| {
            client.on_timer(now, wire);
            client.next_timeout(now).is_some_and(|next| next <= now)
        });
        if spins == Some(true) {
            self.events.push(Event::TimerSpins { place });
        }
    }

    fn with_client<R>(
        &mut self,
        place: usize,
        act: impl FnOnce(&mut Client<u64>, Time, &mut Wire<'_>) -> R,
    ) -> Option<R> {
        let connection = self.connections[place].as_mut()?;
        let mut wire = Wire { place, now: self.now, to_server: &mut connection.to_server, events: &mut self.events };
        Some(act(&mut connection.client, self.now, &mut wire))
    }

    fn arrive_at_server(&mut self, place: usize, random: u64, at_once: bool) {
        let (now, core, delay) = (self.now, self.core_of(place), self.queues.0 + self.queues.1);
        let Some(connection) = self.connections[place].as_mut() else { return };
        match connection.to_server.pop_front() {
            None => {}
            Some(ToServer::Demand(demand)) => {
                connection.session.demand = demand;
                if let Some(feedback) = self.cores[core].demand(&mut connection.session, now) {
                    self.events.push(departed(&feedback, &connection.session));
                    connection.to_client.push_back(ToClient::Credit(feedback));
                }
            }
            Some(ToServer::Request { request, header, sent }) => {
                let arrival = Arrival::new(now)
                    .with_demand(header.demand)
                    .with_priority(header.priority)
                    .with_delay(delay)
                    .with_random(random);
                let (verdict, pending) = connection.session.request(self.cores[core].as_mut(), &arrival);
                let admitted = verdict == Verdict::Admit;
                let credit = header.credit;
                connection.in_server.push(InServer { request, credit, sent, arrived: now, admitted, pending });
                self.since_tick.0 += 1;
                if admitted {
                    self.events.push(Event::Admitted);
                } else if at_once {
                    let last = connection.in_server.len() - 1;
                    self.finish(place, last, false);
                }
            }
        }
    }

    fn finish(&mut self, place: usize, pick: usize, executed: bool) {
        let (now, core) = (self.now, self.core_of(place));
        let Some(connection) = self.connections[place].as_mut() else { return };
        if connection.in_server.is_empty() {
            return;
        }
        let entry = connection.in_server.remove(pick % connection.in_server.len());
        // The request is dequeued, and ends at the same moment.
        let waited = now.since(entry.arrived);
        let begins = entry.admitted && executed && self.cores[core].on_dequeue(waited) == Verdict::Admit;
        let outcome = if begins { Outcome::Completed } else { Outcome::Rejected };
        match outcome {
            Outcome::Completed => self.since_tick.1 += 1,
            Outcome::Rejected => self.since_tick.2 += 1,
        }
        // Admitted and not executed: a lock rejected it.
        self.since_tick.3 += u64::from(entry.admitted && !executed);
        let departure = Departure { now, outcome, sojourn: waited, credit: entry.credit };
        let feedback = connection.session.reply(self.cores[core].as_mut(), entry.pending, &departure);
        self.events.push(departed(&feedback, &connection.session));
        let answer = ToClient::Answer { request: entry.request, outcome, sent: entry.sent, feedback };
        connection.to_client.push_back(answer);
    }

    fn arrive_at_client(&mut self, place: usize) {
        let Some(message) = self.connections[place].as_mut().and_then(|connection| connection.to_client.pop_front())
        else {
            return;
        };
        match message {
            ToClient::Credit(feedback) => {
                self.events.push(Event::WindowReceived { place, window: feedback.window.0 });
                self.with_client(place, |client, now, wire| client.on_credit(now, &feedback, wire));
            }
            ToClient::Answer { request, outcome, sent, feedback } => {
                self.events.push(Event::WindowReceived { place, window: feedback.window.0 });
                self.events.push(Event::Answered { place });
                self.answered(request, outcome);
                let round_trip = self.now.since(sent);
                self.with_client(place, |client, now, wire| {
                    client.on_reply(now, outcome, round_trip, &feedback, wire);
                });
            }
        }
    }

    fn answered(&mut self, request: u64, outcome: Outcome) {
        let end = if outcome == Outcome::Completed { End::Response } else { End::Rejected };
        self.answers += 1;
        let times = match self.defect {
            PlantDefect::EndsTwice if self.answers.is_multiple_of(50) => 2,
            PlantDefect::ForgetsEnd if self.answers.is_multiple_of(50) => 0,
            _ => 1,
        };
        (0..times).for_each(|_| self.events.push(Event::Ended { request, end }));
    }

    fn tick(&mut self, random: u64) {
        let (packet_delay, run_delay) = self.queues;
        let (arrivals, completions, rejected, lock_rejected) = std::mem::take(&mut self.since_tick);
        let signals = Signals {
            now: self.now,
            packet_delay,
            run_delay,
            arrivals,
            completions,
            rejections: rejected,
            lock_rejections: lock_rejected,
        };
        self.control.tick(&signals);
        self.events.push(Event::Ticked);
        // One more than there are sessions, so that the checker sees a repetition.
        for attempt in 0..=MAX_CONNECTIONS as u64 {
            let woken = (0..self.cores.len()).fold(false, |woken, core| {
                let random = random.wrapping_mul(attempt * 2 + 1).rotate_left(core as u32 + 17);
                self.wake_next(core, random) || woken
            });
            if !woken {
                break;
            }
        }
    }

    fn wake_next(&mut self, core: usize, random: u64) -> bool {
        let Some(slot) = self.cores[core].next_to_wake(random) else { return false };
        let is_chosen = |connection: &Option<Connection>| {
            connection.as_ref().is_some_and(|open| open.session.slot == slot && open.session.core.0 as usize == core)
        };
        let place = self.connections.iter().position(is_chosen);
        self.events.push(Event::Woken { place });
        if let Some(connection) = place.and_then(|place| self.connections[place].as_mut()) {
            let feedback = self.cores[core].wake(&mut connection.session, self.now);
            self.events.push(departed(&feedback, &connection.session));
            connection.to_client.push_back(ToClient::Credit(feedback));
        }
        true
    }
}

fn departed(feedback: &Feedback, session: &Session) -> Event {
    Event::Departed { window: feedback.window.0, pending: session.pending() }
}
