//! Times at which a searching core checks each queue: arithmetic instead of one event per check.
//! Checks take `check` each. A sweep over all other cores is followed by the next, in the same
//! order.

use super::balancing::StealPolicy;
use leeward_core::units::{Nanos, Time};

/// Search of one core for work.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Search {
    /// Beginning of the search.
    pub(crate) since: Time,
    /// First core of the sweep, as an offset from the core's successor.
    pub(crate) start: usize,
    /// Time at which the core stops searching.
    pub(crate) until: Time,
    /// Time of the core's next event.
    pub(crate) next: Time,
    /// Number of that event, to tell it from outdated ones.
    pub(crate) generation: u32,
}

impl Search {
    pub(crate) fn new() -> Self {
        Search { since: Time::ZERO, start: 0, until: Time::NEVER, next: Time::NEVER, generation: 0 }
    }

    /// Time, not before `now`, at which `thief` finds the entry that has waited in `queue` since
    /// `head`; [`Time::NEVER`] if it does not check that queue.
    pub(crate) fn discovery_time(
        &self,
        stealing: StealPolicy,
        check: Nanos,
        (thief, queue, cores): (usize, usize, usize),
        head: Time,
        now: Time,
    ) -> Time {
        if queue == thief {
            return self.boundary(check, now);
        }
        match stealing {
            StealPolicy::Never => Time::NEVER,
            StealPolicy::Oracle => now,
            StealPolicy::Flagged(from) => self.boundary(check, Time(head.0.max(self.since.0)) + from + check).max(now),
            StealPolicy::InOrder | StealPolicy::Random | StealPolicy::SiblingFirst => {
                if check == Nanos::ZERO || cores < 2 {
                    return now;
                }
                let index = position(stealing, self.start, thief, queue, cores) as u64;
                let first = self.since.0 + (index + 1) * check.0;
                let sweep = (cores as u64 - 1) * check.0;
                let late = now.0.saturating_sub(first);
                Time(first + late.div_ceil(sweep) * sweep)
            }
        }
    }

    /// End of the first check that does not end before `at`.
    fn boundary(&self, check: Nanos, at: Time) -> Time {
        if check == Nanos::ZERO {
            return at;
        }
        Time(self.since.0 + at.since(self.since).0.div_ceil(check.0) * check.0)
    }
}

/// Position of `queue` in the sweep of `thief`, from 0.
fn position(stealing: StealPolicy, start: usize, thief: usize, queue: usize, cores: usize) -> usize {
    let after = |core: usize| (core + cores - thief - 1) % cores;
    let others = cores - 1;
    let index = after(queue);
    if stealing != StealPolicy::SiblingFirst {
        return (index + others - start % others) % others;
    }
    let sibling = thief ^ 1;
    if sibling >= cores {
        return (index + others - start % others) % others;
    }
    if queue == sibling {
        return 0;
    }
    let rest = others - 1;
    let index = index - usize::from(index > after(sibling));
    1 + (index + rest - start % rest) % rest
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each other core has its own position, for every order and start.
    #[test]
    fn an_order_visits_each_core_once() {
        for stealing in [StealPolicy::InOrder, StealPolicy::Random, StealPolicy::SiblingFirst] {
            for cores in 2..9 {
                for thief in 0..cores {
                    for start in 0..cores {
                        let mut positions: Vec<usize> = (0..cores)
                            .filter(|queue| *queue != thief)
                            .map(|queue| position(stealing, start, thief, queue, cores))
                            .collect();
                        positions.sort_unstable();
                        assert_eq!(positions, (0..cores - 1).collect::<Vec<_>>());
                    }
                }
            }
        }
    }

    #[test]
    fn queue_checks_are_evenly_spaced_and_sweeps_repeat() {
        let search = Search { since: Time(1_000), ..Search::new() };
        let check = Nanos(100);
        let sees = |queue, now| search.discovery_time(StealPolicy::InOrder, check, (0, queue, 4), Time(0), Time(now)).0;
        assert_eq!([sees(1, 1_000), sees(2, 1_000), sees(3, 1_000)], [1_100, 1_200, 1_300]);
        assert_eq!(sees(1, 1_100), 1_100);
        assert_eq!(sees(1, 1_101), 1_400);
        assert_eq!(sees(3, 1_950), 2_200);
        assert_eq!(sees(0, 1_001), 1_100, "its own queue between two looks");
    }

    #[test]
    fn a_flag_is_seen_at_the_next_check() {
        let search = Search { since: Time(1_000), ..Search::new() };
        let sees = |head, now| {
            search.discovery_time(StealPolicy::Flagged(Nanos(500)), Nanos(100), (0, 2, 4), Time(head), Time(now)).0
        };
        assert_eq!(sees(1_250, 1_250), 1_900);
        assert_eq!(sees(1_250, 2_000), 2_000);
    }
}
