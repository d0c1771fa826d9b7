//! Routes with metrics of their own: a bounded number, each with its answers and its cost. Does not
//! contain route names.

use crate::waits::{WaitCounts, WaitHistogram};
use leeward_core::units::Nanos;
use std::sync::atomic::{AtomicU64, Ordering};

/// Number of routes with labels of their own. Later routes share the label `other`, so that no
/// client can create endless series.
pub const ROUTES_MAX: usize = 20;
/// Number of counter slots: one per route, and the last one for all other routes.
pub const ROUTE_SLOTS: usize = ROUTES_MAX + 1;

/// Slots of the first routes that arrived. A route keeps its slot, so that no counter goes back.
#[derive(Debug)]
pub struct Routes([AtomicU64; ROUTES_MAX]);

impl Default for Routes {
    /// Assigns a slot to route 0, so its counters exist from the server's start, before its first
    /// request.
    fn default() -> Self {
        Routes(std::array::from_fn(|slot| AtomicU64::new(u64::from(slot == 0))))
    }
}

impl Routes {
    /// Returns the slot of a route; assigns the next free slot if it has none. The last slot, if
    /// none is free.
    #[inline]
    pub fn find_or_insert(&self, route: u32) -> usize {
        let key = u64::from(route) + 1;
        for (slot, held) in self.0.iter().enumerate() {
            let holds = match held.load(Ordering::Relaxed) {
                // Relaxed suffices: no other write is published through this number.
                0 => held
                    .compare_exchange(0, key, Ordering::Relaxed, Ordering::Relaxed)
                    .map_or_else(|held| held, |_| key),
                held => held,
            };
            if holds == key {
                return slot;
            }
        }
        ROUTES_MAX
    }

    /// Returns the slot of a route, or the last slot if the route has none.
    ///
    /// Use it for routes that are not validated yet, since a client may name any.
    #[inline]
    pub fn find(&self, route: u32) -> usize {
        let key = u64::from(route) + 1;
        let held = self.0.iter().map(|held| held.load(Ordering::Relaxed));
        held.take_while(|held| *held > 0).position(|held| held == key).unwrap_or(ROUTES_MAX)
    }

    /// Routes that have a slot, in the order of the slots.
    pub fn to_vec(&self) -> Vec<u32> {
        let held = self.0.iter().map(|held| held.load(Ordering::Relaxed));
        held.take_while(|held| *held > 0).map(|held| (held - 1) as u32).collect()
    }
}

/// Kind of answer to an executed request. Only `InTime` counts as goodput; a failure never does,
/// however fast it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// A result within the objective.
    InTime,
    /// A result after the objective.
    Late,
    /// A failure.
    Failed,
}

impl Answer {
    /// Classifies an answer by success and by the objective.
    #[inline]
    pub fn classify(succeeded: bool, is_in_time: bool) -> Self {
        match (succeeded, is_in_time) {
            (false, _) => Answer::Failed,
            (true, false) => Answer::Late,
            (true, true) => Answer::InTime,
        }
    }
}

/// Counters of one core by route. One thread at a time writes them.
#[derive(Debug, Default)]
pub(crate) struct RouteCounters {
    /// Indexed by slot, then by [`Answer`].
    answers: [[AtomicU64; 3]; ROUTE_SLOTS],
    costs: [WaitHistogram; ROUTE_SLOTS],
}

impl RouteCounters {
    pub(crate) fn record_answer(&self, slot: usize, answer: Answer) {
        let counter = &self.answers[slot.min(ROUTES_MAX)][answer as usize];
        counter.store(counter.load(Ordering::Relaxed).wrapping_add(1), Ordering::Relaxed);
    }

    pub(crate) fn record_cost(&self, slot: usize, span: Nanos) {
        self.costs[slot.min(ROUTES_MAX)].record(span);
    }

    /// Mean cost of a route; zero until one is known.
    pub(crate) fn mean_cost(&self, slot: usize) -> Nanos {
        let mut sum = WaitCounts::default();
        self.costs[slot.min(ROUTES_MAX)].add_to(&mut sum);
        Nanos(sum.sum_ns.checked_div(sum.count()).unwrap_or(0))
    }

    pub(crate) fn add_to(&self, sums: &mut [RouteCounts; ROUTE_SLOTS]) {
        for ((sum, [in_time, late, failed]), costs) in sums.iter_mut().zip(&self.answers).zip(&self.costs) {
            sum.late = sum.late.wrapping_add(late.load(Ordering::Relaxed));
            sum.in_time = sum.in_time.wrapping_add(in_time.load(Ordering::Relaxed));
            sum.failed = sum.failed.wrapping_add(failed.load(Ordering::Relaxed));
            costs.add_to(&mut sum.costs);
        }
    }
}

/// Counts of one route so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RouteCounts {
    /// Results within the objective.
    pub in_time: u64,
    /// Results after the objective.
    pub late: u64,
    /// Failures.
    pub failed: u64,
    /// Time for which requests occupied a worker.
    pub costs: WaitCounts,
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn the_first_routes_keep_their_slots_and_the_others_share_one() {
        let routes = Routes::default();
        assert_eq!((routes.find_or_insert(7), routes.find_or_insert(0), routes.find_or_insert(7)), (1, 0, 1));
        (100..10_000).for_each(|route| assert!(routes.find_or_insert(route) <= ROUTES_MAX));
        assert_eq!(
            (routes.find_or_insert(9_999), routes.find_or_insert(100), routes.find_or_insert(u32::MAX)),
            (ROUTES_MAX, 2, ROUTES_MAX)
        );
        assert_eq!((routes.find(7), routes.find(9_999), Routes::default().find(7)), (1, ROUTES_MAX, ROUTES_MAX));
        let known = routes.to_vec();
        assert_eq!((known.len(), &known[..3]), (ROUTES_MAX, &[0, 7, 100][..]));
    }

    #[test]
    fn concurrent_lookups_agree() {
        let routes = Routes::default();
        let ask = || (0..200).map(|route| routes.find_or_insert(route * 3 % 40)).collect::<Vec<_>>();
        let places = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..4).map(|_| scope.spawn(ask)).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect::<Vec<_>>()
        });
        assert!(places.iter().all(|of| *of == ask()), "a route has moved: {places:?}");
    }

    #[test]
    fn counters_are_summed_over_cores() {
        let cores = [RouteCounters::default(), RouteCounters::default()];
        assert_eq!(cores[0].mean_cost(1), Nanos::ZERO);
        cores[0].record_answer(1, Answer::InTime);
        cores[1].record_answer(1, Answer::InTime);
        cores[1].record_answer(1, Answer::Failed);
        cores[1].record_answer(ROUTES_MAX + 5, Answer::Late);
        cores[0].record_cost(1, Nanos(1_000));
        cores[0].record_cost(1, Nanos(3_000));
        let mut sums = [RouteCounts::default(); ROUTE_SLOTS];
        cores.iter().for_each(|core| core.add_to(&mut sums));
        assert_eq!((sums[1].in_time, sums[1].failed, sums[ROUTES_MAX].late), (2, 1, 1));
        assert_eq!((sums[1].costs.count(), cores[0].mean_cost(1)), (2, Nanos(2_000)));
    }
}
