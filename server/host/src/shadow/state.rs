//! The queue that would be, and the controller that decides on it, with sessions of its own. Never here: what becomes of a decision.

use super::cost::CostEstimator;
use leeward_core::server::{
    Admission, Arrival, ControlLoop, CoreId, Departure, Outcome, PendingRequest, Registration, RejectReason,
    ServerHalves, Session, SessionSlot, Signals, Verdict,
};
use leeward_core::shadow::{ShadowQueue, ShadowRequest, is_enforced};
use leeward_core::units::{CreditId, Nanos, Tenant, Time};
use std::collections::HashMap;

/// Periods without a request that are made up for at once.
const SILENT_TICKS: u64 = 1_000;
/// Credits that are handed out after a tick.
const WAKES: usize = 64;
/// Requests in the queue that would be: a controller that refuses nobody must not cost all memory.
const MAX_QUEUED: usize = 1 << 18;

type SessionKey = (CoreId, SessionSlot);

/// A session of the controller's, and which of its place's it is.
struct ShadowSession {
    session: Session,
    number: u64,
}

/// A request in the queue that would be.
struct ShadowToken {
    key: SessionKey,
    number: u64,
    ticket: PendingRequest,
}

pub(super) struct ShadowState {
    cores: Vec<Box<dyn Admission>>,
    control: Box<dyn ControlLoop>,
    sessions: HashMap<SessionKey, ShadowSession>,
    /// Sessions so far.
    opened: u64,
    queue: ShadowQueue<ShadowToken>,
    /// Requests in it.
    in_flight: usize,
    /// Newest time of it that the controller was told.
    now: Time,
    /// When the control loop has its next turn, by the clock of arrival.
    next_tick: Time,
    since_tick: Signals,
    pub(super) cost: CostEstimator,
}

impl ShadowState {
    pub(super) fn new(halves: ServerHalves) -> Self {
        ShadowState {
            cores: halves.cores,
            control: halves.control,
            sessions: HashMap::new(),
            opened: 0,
            queue: ShadowQueue::default(),
            in_flight: 0,
            now: Time::ZERO,
            next_tick: Time::ZERO,
            since_tick: Signals::idle(Time::ZERO),
            cost: CostEstimator::default(),
        }
    }

    pub(super) fn workers(&self) -> usize {
        self.cores.len()
    }

    pub(super) fn control(&mut self) -> &mut dyn ControlLoop {
        self.control.as_mut()
    }

    pub(super) fn open(&mut self, place: SessionKey, event: &Registration) {
        self.opened += 1;
        let mut session = Session::new(place.1, place.0);
        self.cores[place.0.0 as usize].open(&mut session, &Registration { now: self.now, ..*event });
        self.sessions.insert(place, ShadowSession { session, number: self.opened });
    }

    pub(super) fn close(&mut self, core: usize, slot: SessionSlot) {
        if let Some(mut known) = self.sessions.remove(&(CoreId(core as u32), slot)) {
            self.cores[core].close(&mut known.session, self.now);
        }
    }

    /// Whether refusals happen to a request's tenant, or to its session where it has none.
    pub(super) fn enforces(&self, percent: u8, core: usize, slot: SessionSlot, tenant: Tenant) -> bool {
        let session = || self.sessions.get(&(CoreId(core as u32), slot)).map_or(0, |known| known.number);
        is_enforced(percent, if tenant == Tenant::DEFAULT { session() } else { tenant.0.into() })
    }

    /// Asks the controller about a request that has been read and takes about so much `time` of a core.
    pub(super) fn decide(&mut self, core: usize, slot: SessionSlot, event: &Arrival, time: Nanos) -> Verdict {
        let came = Time(event.now.0.saturating_sub(event.age.0));
        let (now, delay, ended) = self.queue.poll(event.now, came);
        self.now = now;
        self.in_flight -= ended.len();
        for ShadowRequest { end: at, sojourn, token: ShadowToken { key: place, number, ticket }, .. } in ended {
            self.since_tick.completions += 1;
            if self.sessions.get(&place).is_some_and(|known| known.number == number) {
                self.report(place, ticket, at, Outcome::Completed, sojourn);
            }
        }
        self.since_tick.arrivals += 1;
        self.tick(now, event.random);
        let place = (CoreId(core as u32), slot);
        let Some(known) = self.sessions.get_mut(&place) else { return Verdict::Admit };
        let (number, mut arrival) = (known.number, *event);
        (arrival.now, arrival.delay) = (now, delay);
        let (mut verdict, ticket) = known.session.request(self.cores[core].as_mut(), &arrival);
        if verdict == Verdict::Admit {
            verdict = self.cores[core].on_dequeue(delay);
        }
        if verdict == Verdict::Admit && self.in_flight == MAX_QUEUED {
            verdict = Verdict::Reject(RejectReason::Concurrency);
        }
        if verdict == Verdict::Admit {
            self.in_flight += 1;
            self.queue.admit(time, self.cores.len(), ShadowToken { key: place, number, ticket });
        } else {
            self.since_tick.rejections += 1;
            self.report(place, ticket, now, Outcome::Rejected, delay);
        }
        verdict
    }

    /// Gives the control loop its turn, if that has come.
    fn tick(&mut self, now: Time, random: u64) {
        if now < self.next_tick {
            return;
        }
        let period = self.control.period().max(Nanos(1));
        let delay = self.queue.oldest();
        let missed = if delay == Nanos::ZERO { now.since(self.next_tick).0 / period.0 } else { 0 };
        self.control.tick(&Signals { now, packet_delay: delay, run_delay: Nanos::ZERO, ..self.since_tick });
        // As on a server that sleeps (`Pulse`): a pool that grows by each period does so in silence.
        (0..missed.min(SILENT_TICKS)).for_each(|_| self.control.tick(&Signals::idle(now)));
        (self.since_tick, self.next_tick) = (Signals::idle(now), now + period);
        for (core, half) in self.cores.iter_mut().enumerate() {
            // Sessions that no client hears of are given their credits all the same.
            for _ in 0..WAKES {
                let Some(slot) = half.next_to_wake(random) else { break };
                if let Some(known) = self.sessions.get_mut(&(CoreId(core as u32), slot)) {
                    let _ = half.wake(&mut known.session, now);
                }
            }
        }
    }

    /// Tells the controller how a request of the queue that would be has ended.
    fn report(&mut self, place: SessionKey, ticket: PendingRequest, now: Time, outcome: Outcome, sojourn: Nanos) {
        if let Some(known) = self.sessions.get_mut(&place) {
            let departure = Departure { now, outcome, sojourn, credit: CreditId::NONE };
            let _ = known.session.reply(self.cores[place.0.0 as usize].as_mut(), ticket, &departure);
        }
    }
}
