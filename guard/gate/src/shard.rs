//! Shard of a gate: a fast half with its session, random choices and counters, for the threads that
//! share it.

use crate::counts::{ClassCounts, GateCounts, RouteCounts};
use crate::outcome::Outcome;
use leeward_core::server::{self, Admission, Arrival, CoreId, Departure, Registration, Session, SessionSlot, Verdict};
use leeward_core::units::{CreditId, Nanos, Time};
use leeward_host::FastRng;
use leeward_observe::{Answer, DecisionReason, LatencyHistogram, ROUTE_SLOTS, WaitHistogram};

/// What a request inside is to others.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Presence {
    /// Epoch of its admission.
    epoch: u32,
    /// It occupies no worker: it waits for a backend, or its answer is on its way.
    is_suspended: bool,
}

impl Presence {
    /// Of no request.
    pub(crate) const fn none() -> Self {
        Presence { epoch: 0, is_suspended: false }
    }

    pub(crate) fn is_suspended(self) -> bool {
        self.is_suspended
    }
}

/// Requests inside that are no company, among all that are.
#[derive(Debug, Default)]
struct Company {
    suspended: u32,
    /// Of the others, those that were admitted before the latest epoch, and before that.
    before: u32,
    old: u32,
    epoch: u32,
    began: Time,
}

impl Company {
    fn count(&mut self, now: Time, memory: Nanos, inside: u32) -> u32 {
        if now.since(self.began) >= memory {
            (self.old, self.before) = (self.before, inside.saturating_sub(self.suspended));
            (self.epoch, self.began) = (self.epoch.wrapping_add(1), now);
        }
        inside.saturating_sub(self.suspended + self.old)
    }

    /// Counters of a request with this presence.
    fn counters(&mut self, presence: Presence) -> [Option<&mut u32>; 2] {
        if presence.is_suspended {
            return [Some(&mut self.suspended), None];
        }
        let age = self.epoch.wrapping_sub(presence.epoch);
        [(age > 0).then_some(&mut self.before), (age > 1).then_some(&mut self.old)]
    }

    fn add(&mut self, presence: Presence) {
        self.counters(presence).into_iter().flatten().for_each(|counter| *counter += 1);
    }

    fn remove(&mut self, presence: Presence) {
        self.counters(presence).into_iter().flatten().for_each(|counter| *counter = counter.saturating_sub(1));
    }
}

pub(crate) struct Shard {
    half: Box<dyn Admission>,
    session: Session,
    company: Company,
    /// When a request of this shard ended last; zero: none has.
    pub(crate) last_end: Time,
    pub(crate) rng: FastRng,
    pub(crate) counts: GateCounts,
    pub(crate) by_class: ClassCounts,
    /// Waits before the gate, of requests with an age.
    pub(crate) waits: WaitHistogram,
    pub(crate) by_route: Box<RouteCounts>,
    /// Latencies of results, including the wait before the gate.
    pub(crate) latencies: Box<LatencyHistogram>,
    /// Time that requests have occupied a worker, by slot of their route.
    pub(crate) costs: Box<[WaitHistogram; ROUTE_SLOTS]>,
    /// The same in all, and the number of these requests.
    pub(crate) work: (Nanos, u64),
}

impl Shard {
    pub(crate) fn new(index: usize, seed: u64, mut half: Box<dyn Admission>) -> Self {
        let mut session = Session::new(SessionSlot(0), CoreId(index as u32));
        half.open(&mut session, &Registration { now: Time::ZERO, demand: 0 });
        let choices = FastRng::new(index ^ (seed as usize).wrapping_mul(0x9E37_79B9));
        Shard {
            half,
            session,
            company: Company::default(),
            last_end: Time::ZERO,
            rng: choices,
            counts: GateCounts::default(),
            by_class: ClassCounts::default(),
            waits: WaitHistogram::default(),
            by_route: Box::default(),
            latencies: Box::default(),
            costs: Box::default(),
            work: (Nanos::ZERO, 0),
        }
    }

    /// Asks the controller about a request. A rejected request ends for the controller at once.
    pub(crate) fn admit(&mut self, arrival: &Arrival, waited: Nanos) -> Result<server::PendingRequest, DecisionReason> {
        let (mut verdict, pending) = self.session.request(self.half.as_mut(), arrival);
        if verdict == Verdict::Admit {
            verdict = self.half.on_dequeue(waited);
        }
        match verdict {
            Verdict::Admit => Ok(pending),
            Verdict::Reject(reason) => {
                self.end(pending, arrival.now, Outcome::Rejected, waited);
                Err(reason.into())
            }
        }
    }

    /// Asks the controller about an admitted request that leaves the wait queue.
    pub(crate) fn admit_dequeued(&mut self, waited: Nanos) -> Result<(), DecisionReason> {
        match self.half.on_dequeue(waited) {
            Verdict::Admit => Ok(()),
            Verdict::Reject(reason) => Err(reason.into()),
        }
    }

    /// Records the time that a request has occupied a worker. `route` is the slot of its route.
    pub(crate) fn record_cost(&mut self, route: usize, span: Nanos) {
        self.costs[route].record(span);
        self.work = (self.work.0 + span, self.work.1 + 1);
    }

    /// Counts the end of an admitted request, `latency` after its arrival. `route` is the slot of
    /// its route.
    pub(crate) fn count_end(&mut self, (class, route): (u8, usize), outcome: Outcome, latency: Nanos, slo: Nanos) {
        self.by_class.end(class);
        match outcome {
            Outcome::Completed | Outcome::Failed => {
                let answer = Answer::classify(outcome == Outcome::Completed, latency <= slo);
                self.counts.completed += 1;
                self.counts.in_time += u64::from(answer == Answer::InTime);
                self.counts.failed += u64::from(answer == Answer::Failed);
                self.by_route.record(class, route, answer);
                if answer != Answer::Failed {
                    self.latencies.record(latency);
                }
            }
            Outcome::Rejected => self.counts.rejected_inside += 1,
            Outcome::Abandoned => self.counts.abandoned += 1,
        }
    }

    /// Ends a request for the controller.
    pub(crate) fn end(&mut self, pending: server::PendingRequest, now: Time, outcome: Outcome, sojourn: Nanos) {
        let outcome = match outcome {
            Outcome::Completed | Outcome::Failed => server::Outcome::Completed,
            Outcome::Rejected | Outcome::Abandoned => server::Outcome::Rejected,
        };
        let departure = Departure { now, outcome, sojourn, credit: CreditId::NONE };
        let _ = self.session.reply(self.half.as_mut(), pending, &departure);
    }

    pub(crate) fn pending(&self) -> u32 {
        self.session.pending()
    }

    /// Requests inside beside which another one would wait. Those that occupy no worker are none,
    /// and after `memory` no request is: it streams, or was forgotten.
    pub(crate) fn company(&mut self, now: Time, memory: Nanos) -> u32 {
        self.company.count(now, memory, self.session.pending())
    }

    /// Presence of a request that is admitted now.
    pub(crate) fn presence(&self) -> Presence {
        Presence { epoch: self.company.epoch, is_suspended: false }
    }

    /// Changes whether a request occupies no worker.
    pub(crate) fn suspend(&mut self, presence: &mut Presence, suspended: bool) {
        self.company.remove(*presence);
        presence.is_suspended = suspended;
        self.company.add(*presence);
    }

    /// Counts out an admitted request, which ends.
    pub(crate) fn remove_presence(&mut self, presence: Presence) {
        self.company.remove(presence);
    }
}
