//! Observation of a server: a stripe of counters per core, a ring of decisions, and the
//! controller's last published state. Does not contain controllers or connections.

use crate::decision::{Decision, DecisionId};
use crate::ring::DecisionRing;
use crate::routes::{Answer, ROUTE_SLOTS, ROUTES_MAX, RouteCounters, RouteCounts, Routes};
use crate::tenants::Tenants;
use crate::waits::{WaitCounts, WaitHistogram};
use leeward_core::server::Gauges;
use leeward_core::units::{Method, Nanos, Tenant, Time};
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};

/// Capacity of the ring in decisions of 64 bytes: 4 MiB.
pub const RING_CAPACITY: usize = 65_536;
/// The ring keeps one admission in this many, and every rejection.
pub const SAMPLING_INTERVAL: u64 = 64;

/// Stage in which a request waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WaitStage {
    /// In the socket and receive buffer of the connection.
    Socket,
    /// In the run queue of a core.
    Worker,
}

impl WaitStage {
    /// All stages.
    pub const ALL: [WaitStage; 2] = [WaitStage::Socket, WaitStage::Worker];

    /// Name in metrics.
    pub const fn name(self) -> &'static str {
        match self {
            WaitStage::Socket => "socket",
            WaitStage::Worker => "worker",
        }
    }
}

/// Counters of one core. One thread at a time writes them.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Stripe {
    admitted: AtomicU64,
    waits: [WaitHistogram; WaitStage::ALL.len()],
    routes: RouteCounters,
    /// Number of the last rejection, for the reply to the client.
    last_rejection: AtomicU64,
    /// True if the request under decision is admitted whatever the controller decides.
    is_shadow: AtomicBool,
}

/// Counters, decisions and controller state of one server.
pub struct Watch {
    ring: DecisionRing,
    stripes: Vec<Stripe>,
    routes: Routes,
    tenants: Tenants,
    published: PublishedState,
}

/// The controller's last published state. Absent numbers are [`ABSENT`].
struct PublishedState {
    at: AtomicU64,
    standing_ns: AtomicU64,
    pool: AtomicI64,
    issued: AtomicI64,
    sessions: AtomicI64,
    /// Bits of an `f64`; NaN if absent.
    level: AtomicU64,
    limit: AtomicU64,
}

const ABSENT: i64 = i64::MIN;

/// The controller's last published state.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ControllerState {
    /// Time of publication.
    pub at: Time,
    /// Standing queueing delay: the minimum over a short window.
    pub standing_delay: Nanos,
    /// The controller's gauges; `in_flight` is always `None`.
    pub gauges: Gauges,
}

impl Watch {
    /// Makes a watch for this many cores (at least one) and a ring of this many decisions.
    pub fn new(cores: usize, decisions: usize) -> Self {
        let none = || AtomicI64::new(ABSENT);
        Watch {
            ring: DecisionRing::new(decisions),
            stripes: (0..cores.max(1)).map(|_| Stripe::default()).collect(),
            routes: Routes::default(),
            tenants: Tenants::new(cores),
            published: PublishedState {
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

    /// Counts an admission; one in [`SAMPLING_INTERVAL`] is described and kept.
    #[inline]
    pub fn record_admission(&self, core: usize, describe: impl FnOnce() -> Decision) {
        let admitted = &self.stripe(core).admitted;
        let count = admitted.load(Ordering::Relaxed).wrapping_add(1);
        admitted.store(count, Ordering::Relaxed);
        if count.is_multiple_of(SAMPLING_INTERVAL) {
            self.ring.write(&describe());
        }
    }

    /// Stores a rejection and returns its number.
    pub fn record_rejection(&self, core: usize, decision: &Decision) -> DecisionId {
        let id = self.ring.write(decision);
        self.stripe(core).last_rejection.store(id.0, Ordering::Relaxed);
        id
    }

    /// Number of the core's last rejection.
    pub fn last_rejection(&self, core: usize) -> Option<DecisionId> {
        let id = self.stripe(core).last_rejection.load(Ordering::Relaxed);
        (id > 0).then_some(DecisionId(id))
    }

    /// Sets whether the core's next request is admitted whatever the controller decides.
    pub fn set_shadow(&self, core: usize, is_shadow: bool) {
        self.stripe(core).is_shadow.store(is_shadow, Ordering::Relaxed);
    }

    /// True if the core's rejection is not enforced, because its controller runs in shadow mode.
    pub fn is_shadow(&self, core: usize) -> bool {
        self.stripe(core).is_shadow.load(Ordering::Relaxed)
    }

    /// Mean time for which requests of a method occupied this core; zero until one is known.
    pub fn mean_cost(&self, core: usize, method: Method) -> Nanos {
        self.stripe(core).routes.mean_cost(self.routes.find(method.0))
    }

    /// Counts a wait.
    #[inline]
    pub fn record_wait(&self, core: usize, stage: WaitStage, span: Nanos) {
        self.stripe(core).waits[stage as usize].record(span);
    }

    /// Counts an answer to a request of a method that exists.
    #[inline]
    pub fn record_answer(&self, core: usize, method: Method, answer: Answer) {
        self.stripe(core).routes.record_answer(self.routes.find_or_insert(method.0), answer);
    }

    /// Counts an answer to a request of an unknown method. Clients may invent any number of those.
    #[inline]
    pub fn record_unknown_answer(&self, core: usize, answer: Answer) {
        self.stripe(core).routes.record_answer(ROUTES_MAX, answer);
    }

    /// Counts the time for which a request of a method occupied its core.
    #[inline]
    pub fn record_cost(&self, core: usize, method: Method, span: Nanos) {
        self.stripe(core).routes.record_cost(self.routes.find(method.0), span);
    }

    /// Charges a decision about a request to its tenant, at the mean cost of the method on this
    /// core so far.
    #[inline]
    pub fn charge(&self, core: usize, tenant: Tenant, method: Method, is_admitted: bool) {
        if tenant != Tenant::DEFAULT {
            let cost = self.mean_cost(core, method);
            self.tenants.charge(core, tenant, cost, is_admitted);
        }
    }

    /// Usage by tenant.
    pub fn tenants(&self) -> &Tenants {
        &self.tenants
    }

    /// Counts by route, for the routes with slots of their own; `None`: all other routes.
    pub fn route_counts(&self) -> Vec<(Option<u32>, RouteCounts)> {
        let mut sums = [RouteCounts::default(); ROUTE_SLOTS];
        self.stripes.iter().for_each(|stripe| stripe.routes.add_to(&mut sums));
        let known = self.routes.to_vec().into_iter().map(Some).chain(std::iter::repeat(None));
        let others = sums[ROUTE_SLOTS - 1];
        let counts = known.zip(sums).take_while(|(route, _)| route.is_some());
        counts.chain((others != RouteCounts::default()).then_some((None, others))).collect()
    }

    /// Number of admitted requests so far.
    pub fn admitted(&self) -> u64 {
        self.stripes.iter().fold(0, |sum, stripe| sum.wrapping_add(stripe.admitted.load(Ordering::Relaxed)))
    }

    /// Waits so far, summed over all cores.
    pub fn waits(&self, stage: WaitStage) -> WaitCounts {
        let mut sum = WaitCounts::default();
        self.stripes.iter().for_each(|stripe| stripe.waits[stage as usize].add_to(&mut sum));
        sum
    }

    /// Ring of decisions.
    pub fn ring(&self) -> &DecisionRing {
        &self.ring
    }

    /// Publishes the controller's state. A concurrent reader may see parts of two states.
    pub fn publish(&self, now: Time, standing: Nanos, gauges: &Gauges) {
        let published = &self.published;
        published.at.store(now.0, Ordering::Relaxed);
        published.standing_ns.store(standing.0, Ordering::Relaxed);
        published.pool.store(gauges.credit_pool.unwrap_or(ABSENT), Ordering::Relaxed);
        published.issued.store(gauges.credits_issued.unwrap_or(ABSENT), Ordering::Relaxed);
        published.sessions.store(gauges.sessions.unwrap_or(ABSENT), Ordering::Relaxed);
        published.level.store(gauges.priority_threshold.unwrap_or(f64::NAN).to_bits(), Ordering::Relaxed);
        published.limit.store(gauges.concurrency_limit.unwrap_or(f64::NAN).to_bits(), Ordering::Relaxed);
    }

    /// The controller's last published state.
    pub fn controller_state(&self) -> ControllerState {
        let whole = |number: &AtomicI64| Some(number.load(Ordering::Relaxed)).filter(|number| *number != ABSENT);
        let real =
            |bits: &AtomicU64| Some(f64::from_bits(bits.load(Ordering::Relaxed))).filter(|number| !number.is_nan());
        let PublishedState { at, standing_ns, pool, issued, sessions, level, limit } = &self.published;
        ControllerState {
            at: Time(at.load(Ordering::Relaxed)),
            standing_delay: Nanos(standing_ns.load(Ordering::Relaxed)),
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
        f.debug_struct("Watch")
            .field("cores", &self.stripes.len())
            .field("told", &self.controller_state())
            .finish_non_exhaustive()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::reason::DecisionReason;
    use crate::tenants::Usage;

    #[test]
    fn every_rejection_and_one_admission_in_64_is_recorded() {
        let watch = Watch::new(2, 1_024);
        (0..640).for_each(|number| watch.record_admission(number % 2, || Decision::admitted(Time(number as u64))));
        assert_eq!((watch.admitted(), watch.ring().newest(1_024).len()), (640, 10));
        assert_eq!(watch.last_rejection(1), None);
        let id = watch.record_rejection(1, &Decision::rejected(Time(5), DecisionReason::Delay));
        assert_eq!((watch.last_rejection(1), watch.last_rejection(0)), (Some(id), None));
        assert_eq!(watch.ring().read(id).unwrap().reject_reason, Some(DecisionReason::Delay));
    }

    #[test]
    fn routes_and_tenants_are_counted_separately() {
        let watch = Watch::new(2, 16);
        watch.record_answer(0, Method(0), Answer::InTime);
        watch.record_answer(1, Method(4), Answer::Late);
        watch.record_cost(1, Method(4), Nanos(2_000));
        watch.charge(1, Tenant(77), Method(4), true);
        watch.charge(1, Tenant(77), Method(4), false);
        watch.charge(0, Tenant::DEFAULT, Method(4), true);
        let routes = watch.route_counts();
        let counts: Vec<_> = routes.iter().map(|(route, of)| (*route, of.in_time, of.late, of.costs.sum_ns)).collect();
        assert_eq!(counts, [(Some(0), 1, 0, 0), (Some(4), 0, 1, 2_000)]);
        let account = Usage { admitted_ns: 2_000, refused_ns: 2_000 };
        assert_eq!(watch.tenants().usage(), [(Some(Tenant(77)), account)]);
        (1..100).for_each(|method| watch.record_answer(0, Method(method), Answer::InTime));
        let routes = watch.route_counts();
        assert_eq!((routes.len(), routes[ROUTE_SLOTS - 1].0), (ROUTE_SLOTS, None));
        assert_eq!(routes.iter().map(|(_, of)| of.in_time + of.late).sum::<u64>(), 101);
    }

    #[test]
    fn a_published_state_is_read_back() {
        let watch = Watch::new(1, 16);
        assert_eq!(watch.controller_state(), ControllerState::default());
        let gauges = Gauges { credit_pool: Some(-3), priority_threshold: Some(61.5), ..Gauges::default() };
        watch.publish(Time(3), Nanos(7), &gauges);
        assert_eq!(watch.controller_state(), ControllerState { at: Time(3), standing_delay: Nanos(7), gauges });
    }
}
