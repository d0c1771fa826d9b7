//! Watch over a server: a stripe of counters per core, a ring of decisions, and the controller's state as it was last told.
//! Never here: who decides, and where requests come from.

use crate::decision::{Decision, DecisionId};
use crate::ring::Ring;
use crate::routes::{Answer, ByRoute, PLACES, ROUTES, RouteCounts, Routes};
use crate::tenants::Tenants;
use crate::waits::{WaitCounts, Waits};
use leeward_core::server::Gauges;
use leeward_core::units::{Method, Nanos, Tenant, Time};
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};

/// Decisions that are kept, 64 bytes each: 4 MiB.
pub const DECISIONS: usize = 65_536;
/// An admission in so many is kept in the ring; every refusal is.
pub const SAMPLED: u64 = 64;

/// Where a request waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// In its connection's socket and buffer.
    Socket,
    /// In a core's queue, for a core.
    Worker,
}

impl Stage {
    /// All of them.
    pub const ALL: [Stage; 2] = [Stage::Socket, Stage::Worker];

    /// The word for it in metrics.
    pub const fn word(self) -> &'static str {
        match self {
            Stage::Socket => "socket",
            Stage::Worker => "worker",
        }
    }
}

/// Counters of a core. One thread at a time writes them.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Stripe {
    admitted: AtomicU64,
    waits: [Waits; Stage::ALL.len()],
    by_route: ByRoute,
    /// The last refusal's number, for whoever tells the client.
    last: AtomicU64,
    /// Whether the request that is being decided about is let in whatever is decided.
    rehearses: AtomicBool,
}

/// Watch over a server.
pub struct Watch {
    ring: Ring,
    stripes: Vec<Stripe>,
    routes: Routes,
    tenants: Tenants,
    told: Told,
}

/// The controller's state when it was last told. Numbers that are not there are [`NOTHING`].
struct Told {
    at: AtomicU64,
    standing_ns: AtomicU64,
    pool: AtomicI64,
    issued: AtomicI64,
    sessions: AtomicI64,
    /// Bits of an `f64`, a NaN if there is none.
    level: AtomicU64,
    limit: AtomicU64,
}

const NOTHING: i64 = i64::MIN;

/// The controller's state as it was last told.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct LastTold {
    /// When.
    pub at: Time,
    /// The queueing delay that stood: the least of a short while.
    pub standing: Nanos,
    /// The controller's state. Of requests in flight nothing is told.
    pub gauges: Gauges,
}

impl Watch {
    /// Watch over so many cores, at least one, with a ring of so many decisions.
    pub fn new(cores: usize, decisions: usize) -> Self {
        let none = || AtomicI64::new(NOTHING);
        Watch {
            ring: Ring::new(decisions),
            stripes: (0..cores.max(1)).map(|_| Stripe::default()).collect(),
            routes: Routes::default(),
            tenants: Tenants::new(cores),
            told: Told {
                at: AtomicU64::new(0),
                standing_ns: AtomicU64::new(0),
                pool: none(),
                issued: none(),
                sessions: none(),
                level: AtomicU64::new(f64::NAN.to_bits()),
                limit: AtomicU64::new(f64::NAN.to_bits()),
            },
        }
    }

    fn stripe(&self, core: usize) -> &Stripe {
        &self.stripes[core % self.stripes.len()]
    }

    /// Counts an admission; one in [`SAMPLED`] is described and kept.
    #[inline]
    pub fn admit(&self, core: usize, describe: impl FnOnce() -> Decision) {
        let admitted = &self.stripe(core).admitted;
        let count = admitted.load(Ordering::Relaxed).wrapping_add(1);
        admitted.store(count, Ordering::Relaxed);
        if count.is_multiple_of(SAMPLED) {
            self.ring.write(&describe());
        }
    }

    /// Keeps a refusal, and gives it its number.
    pub fn refuse(&self, core: usize, decision: &Decision) -> DecisionId {
        let id = self.ring.write(decision);
        self.stripe(core).last.store(id.0, Ordering::Relaxed);
        id
    }

    /// Number of the core's last refusal.
    pub fn last_refusal(&self, core: usize) -> Option<DecisionId> {
        let id = self.stripe(core).last.load(Ordering::Relaxed);
        (id > 0).then_some(DecisionId(id))
    }

    /// Tells whether the request that the core decides about next is let in whatever is decided.
    pub fn rehearse(&self, core: usize, rehearses: bool) {
        self.stripe(core).rehearses.store(rehearses, Ordering::Relaxed);
    }

    /// Whether the core's refusal is none, because its controller rehearses.
    pub fn rehearses(&self, core: usize) -> bool {
        self.stripe(core).rehearses.load(Ordering::Relaxed)
    }

    /// The mean time for which requests of a method have occupied this core; nothing before one is known.
    pub fn mean(&self, core: usize, method: Method) -> Nanos {
        self.stripe(core).by_route.mean(self.routes.find(method.0))
    }

    /// Counts a wait.
    #[inline]
    pub fn waited(&self, core: usize, stage: Stage, span: Nanos) {
        self.stripe(core).waits[stage as usize].note(span);
    }

    /// Counts an answer to a request of a method that there is.
    #[inline]
    pub fn answered(&self, core: usize, method: Method, answer: Answer) {
        self.stripe(core).by_route.answered(self.routes.place(method.0), answer);
    }

    /// Counts an answer to a request of a method that there is not: clients may invent as many as they like.
    #[inline]
    pub fn answered_unknown(&self, core: usize, answer: Answer) {
        self.stripe(core).by_route.answered(ROUTES, answer);
    }

    /// Counts how long a request of a method has occupied its core.
    #[inline]
    pub fn worked(&self, core: usize, method: Method, span: Nanos) {
        self.stripe(core).by_route.cost(self.routes.find(method.0), span);
    }

    /// Charges a decision about a request of a method to its tenant, at what such requests have taken on this core so far.
    #[inline]
    pub fn charge(&self, core: usize, tenant: Tenant, method: Method, is_admitted: bool) {
        if tenant != Tenant::DEFAULT {
            let cost = self.mean(core, method);
            self.tenants.charge(core, tenant, cost, is_admitted);
        }
    }

    /// Accounts of the tenants.
    pub fn tenants(&self) -> &Tenants {
        &self.tenants
    }

    /// Counts by route, of those that have requests of their own; `None`: all others.
    pub fn by_route(&self) -> Vec<(Option<u32>, RouteCounts)> {
        let mut sums = [RouteCounts::default(); PLACES];
        self.stripes.iter().for_each(|stripe| stripe.by_route.add_to(&mut sums));
        let known = self.routes.known().into_iter().map(Some).chain(std::iter::repeat(None));
        let others = sums[PLACES - 1];
        let told = known.zip(sums).take_while(|(route, _)| route.is_some());
        told.chain((others != RouteCounts::default()).then_some((None, others))).collect()
    }

    /// Requests that were admitted so far.
    pub fn admitted(&self) -> u64 {
        self.stripes.iter().fold(0, |sum, stripe| sum.wrapping_add(stripe.admitted.load(Ordering::Relaxed)))
    }

    /// Waits so far, of all cores together.
    pub fn waits(&self, stage: Stage) -> WaitCounts {
        let mut sum = WaitCounts::default();
        self.stripes.iter().for_each(|stripe| stripe.waits[stage as usize].add_to(&mut sum));
        sum
    }

    /// The decisions.
    pub fn ring(&self) -> &Ring {
        &self.ring
    }

    /// Tells the controller's state. Parts may be of two moments for a reader in between.
    pub fn tell(&self, now: Time, standing: Nanos, gauges: &Gauges) {
        let told = &self.told;
        told.at.store(now.0, Ordering::Relaxed);
        told.standing_ns.store(standing.0, Ordering::Relaxed);
        told.pool.store(gauges.credit_pool.unwrap_or(NOTHING), Ordering::Relaxed);
        told.issued.store(gauges.credits_issued.unwrap_or(NOTHING), Ordering::Relaxed);
        told.sessions.store(gauges.sessions.unwrap_or(NOTHING), Ordering::Relaxed);
        told.level.store(gauges.priority_threshold.unwrap_or(f64::NAN).to_bits(), Ordering::Relaxed);
        told.limit.store(gauges.concurrency_limit.unwrap_or(f64::NAN).to_bits(), Ordering::Relaxed);
    }

    /// The controller's state as it was last told.
    pub fn told(&self) -> LastTold {
        let whole = |number: &AtomicI64| Some(number.load(Ordering::Relaxed)).filter(|number| *number != NOTHING);
        let real =
            |bits: &AtomicU64| Some(f64::from_bits(bits.load(Ordering::Relaxed))).filter(|number| !number.is_nan());
        let Told { at, standing_ns, pool, issued, sessions, level, limit } = &self.told;
        LastTold {
            at: Time(at.load(Ordering::Relaxed)),
            standing: Nanos(standing_ns.load(Ordering::Relaxed)),
            gauges: Gauges {
                credit_pool: whole(pool),
                credits_issued: whole(issued),
                sessions: whole(sessions),
                priority_threshold: real(level),
                concurrency_limit: real(limit),
                in_flight: None,
            },
        }
    }
}

impl std::fmt::Debug for Watch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Watch").field("cores", &self.stripes.len()).field("told", &self.told()).finish_non_exhaustive()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::reason::Reason;
    use crate::tenants::Account;

    #[test]
    fn every_refusal_is_kept_and_an_admission_in_64() {
        let watch = Watch::new(2, 1_024);
        (0..640).for_each(|number| watch.admit(number % 2, || Decision::admitted(Time(number as u64))));
        assert_eq!((watch.admitted(), watch.ring().newest(1_024).len()), (640, 10));
        assert_eq!(watch.last_refusal(1), None);
        let id = watch.refuse(1, &Decision::refused(Time(5), Reason::Delay));
        assert_eq!((watch.last_refusal(1), watch.last_refusal(0)), (Some(id), None));
        assert_eq!(watch.ring().read(id).unwrap().refused, Some(Reason::Delay));
    }

    #[test]
    fn routes_and_tenants_are_told_apart() {
        let watch = Watch::new(2, 16);
        watch.answered(0, Method(0), Answer::InTime);
        watch.answered(1, Method(4), Answer::Late);
        watch.worked(1, Method(4), Nanos(2_000));
        watch.charge(1, Tenant(77), Method(4), true);
        watch.charge(1, Tenant(77), Method(4), false);
        watch.charge(0, Tenant::DEFAULT, Method(4), true);
        let told = watch.by_route();
        let counts: Vec<_> = told.iter().map(|(route, of)| (*route, of.in_time, of.late, of.costs.sum_ns)).collect();
        assert_eq!(counts, [(Some(0), 1, 0, 0), (Some(4), 0, 1, 2_000)]);
        let account = Account { admitted_ns: 2_000, refused_ns: 2_000 };
        assert_eq!(watch.tenants().told(), [(Some(Tenant(77)), account)]);
        (1..100).for_each(|method| watch.answered(0, Method(method), Answer::InTime));
        let told = watch.by_route();
        assert_eq!((told.len(), told[PLACES - 1].0), (PLACES, None));
        assert_eq!(told.iter().map(|(_, of)| of.in_time + of.late).sum::<u64>(), 101);
    }

    #[test]
    fn a_state_comes_back_as_it_was_told() {
        let watch = Watch::new(1, 16);
        assert_eq!(watch.told(), LastTold::default());
        let gauges = Gauges { credit_pool: Some(-3), priority_threshold: Some(61.5), ..Gauges::default() };
        watch.tell(Time(3), Nanos(7), &gauges);
        assert_eq!(watch.told(), LastTold { at: Time(3), standing: Nanos(7), gauges });
    }
}
