//! The shadow queue, and the controller that decides on it, with sessions of its own. Does not
//! contain the enforcement of decisions.

use super::cost::CostEstimator;
use leeward_core::server::{
    Admission, Arrival, ControlLoop, CoreId, Departure, Outcome, PendingRequest, Registration, RejectReason,
    ServerHalves, Session, SessionSlot, Signals, Verdict,
};
use leeward_core::shadow::{ShadowQueue, ShadowRequest, is_enforced};
use leeward_core::units::{CreditId, Nanos, Tenant, Time};
use std::collections::HashMap;

/// Maximum periods without a request that one tick makes up for.
const SILENT_TICKS: u64 = 1_000;
/// Maximum credits given out per core after a tick.
const WAKES: usize = 64;
/// Maximum requests in the shadow queue. A controller that rejects nothing must not use up all
/// memory.
const MAX_QUEUED: usize = 1 << 18;

type SessionKey = (CoreId, SessionSlot);

/// A session of the controller, and its number among all sessions.
struct ShadowSession {
    session: Session,
    number: u64,
}

/// A request in the shadow queue.
struct ShadowToken {
    key: SessionKey,
    number: u64,
    pending: PendingRequest,
}

pub(super) struct ShadowState {
    cores: Vec<Box<dyn Admission>>,
    control: Box<dyn ControlLoop>,
    sessions: HashMap<SessionKey, ShadowSession>,
    /// Sessions so far.
    opened: u64,
    queue: ShadowQueue<ShadowToken>,
    /// Requests in the shadow queue.
    in_flight: usize,
    /// Latest shadow time that the controller was given.
    now: Time,
    /// Time of the control loop's next tick, by the arrival clock.
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

    pub(super) fn open(&mut self, key: SessionKey, event: &Registration) {
        self.opened += 1;
        let mut session = Session::new(key.1, key.0);
        self.cores[key.0.0 as usize].open(&mut session, &Registration { now: self.now, ..*event });
        self.sessions.insert(key, ShadowSession { session, number: self.opened });
    }

    pub(super) fn close(&mut self, core: usize, slot: SessionSlot) {
        if let Some(mut shadow_session) = self.sessions.remove(&(CoreId(core as u32), slot)) {
            self.cores[core].close(&mut shadow_session.session, self.now);
        }
    }

    /// Returns whether rejections are enforced for a request's tenant, or for its session if it has
    /// none.
    pub(super) fn enforces(&self, percent: u8, core: usize, slot: SessionSlot, tenant: Tenant) -> bool {
        let session = || self.sessions.get(&(CoreId(core as u32), slot)).map_or(0, |known| known.number);
        is_enforced(percent, if tenant == Tenant::DEFAULT { session() } else { tenant.0.into() })
    }

    /// Asks the controller about a request that was read and will take about `time` of a core.
    pub(super) fn decide(&mut self, core: usize, slot: SessionSlot, event: &Arrival, time: Nanos) -> Verdict {
        let arrived = Time(event.now.0.saturating_sub(event.age.0));
        let (now, delay, ended) = self.queue.poll(event.now, arrived);
        self.now = now;
        self.in_flight -= ended.len();
        for ShadowRequest { end: at, sojourn, token: ShadowToken { key: place, number, pending }, .. } in ended {
            self.since_tick.completions += 1;
            if self.sessions.get(&place).is_some_and(|known| known.number == number) {
                self.report(place, pending, at, Outcome::Completed, sojourn);
            }
        }
        self.since_tick.arrivals += 1;
        self.tick(now, event.random);
        let place = (CoreId(core as u32), slot);
        let Some(known) = self.sessions.get_mut(&place) else { return Verdict::Admit };
        let (number, mut arrival) = (known.number, *event);
        (arrival.now, arrival.delay) = (now, delay);
        let (mut verdict, pending) = known.session.request(self.cores[core].as_mut(), &arrival);
        if verdict == Verdict::Admit {
            verdict = self.cores[core].on_dequeue(delay);
        }
        if verdict == Verdict::Admit && self.in_flight == MAX_QUEUED {
            verdict = Verdict::Reject(RejectReason::Concurrency);
        }
        if verdict == Verdict::Admit {
            self.in_flight += 1;
            self.queue.admit(time, self.cores.len(), ShadowToken { key: place, number, pending });
        } else {
            self.since_tick.rejections += 1;
            self.report(place, pending, now, Outcome::Rejected, delay);
        }
        verdict
    }

    /// Ticks the control loop, if a tick is due.
    fn tick(&mut self, now: Time, random: u64) {
        if now < self.next_tick {
            return;
        }
        let period = self.control.period().max(Nanos(1));
        let delay = self.queue.oldest();
        let missed = if delay == Nanos::ZERO { now.since(self.next_tick).0 / period.0 } else { 0 };
        self.control.tick(&Signals { now, packet_delay: delay, run_delay: Nanos::ZERO, ..self.since_tick });
        // As on a server that sleeps (`ControlTicker`): a pool that grows in each period grows also
        // while no requests arrive.
        (0..missed.min(SILENT_TICKS)).for_each(|_| self.control.tick(&Signals::idle(now)));
        (self.since_tick, self.next_tick) = (Signals::idle(now), now + period);
        for (core, half) in self.cores.iter_mut().enumerate() {
            // Sessions get their credits although no client is told.
            for _ in 0..WAKES {
                let Some(slot) = half.next_to_wake(random) else { break };
                if let Some(known) = self.sessions.get_mut(&(CoreId(core as u32), slot)) {
                    let _ = half.wake(&mut known.session, now);
                }
            }
        }
    }

    /// Reports the end of a request in the shadow queue to the controller.
    fn report(&mut self, key: SessionKey, permit: PendingRequest, now: Time, outcome: Outcome, sojourn: Nanos) {
        if let Some(known) = self.sessions.get_mut(&key) {
            let departure = Departure { now, outcome, sojourn, credit: CreditId::NONE };
            let _ = known.session.reply(self.cores[key.0.0 as usize].as_mut(), permit, &departure);
        }
    }
}
