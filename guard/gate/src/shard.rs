//! Shard of a gate: a fast half with its session, random choices and counters, for the threads that
//! share it.

use crate::counts::{ClassCounts, GateCounts, RouteCounts};
use crate::outcome::Outcome;
use leeward_core::server::{self, Admission, Arrival, CoreId, Departure, Registration, Session, SessionSlot, Verdict};
use leeward_core::units::{CreditId, Nanos, Time};
use leeward_host::FastRng;
use leeward_observe::{Answer, DecisionReason, LatencyHistogram, ROUTE_SLOTS, WaitHistogram};

pub(crate) struct Shard {
    half: Box<dyn Admission>,
    session: Session,
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
}

impl Shard {
    pub(crate) fn new(index: usize, seed: u64, mut half: Box<dyn Admission>) -> Self {
        let mut session = Session::new(SessionSlot(0), CoreId(index as u32));
        half.open(&mut session, &Registration { now: Time::ZERO, demand: 0 });
        let choices = FastRng::new(index ^ (seed as usize).wrapping_mul(0x9E37_79B9));
        Shard {
            half,
            session,
            rng: choices,
            counts: GateCounts::default(),
            by_class: ClassCounts::default(),
            waits: WaitHistogram::default(),
            by_route: Box::default(),
            latencies: Box::default(),
            costs: Box::default(),
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
}
