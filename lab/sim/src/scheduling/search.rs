//! Times at which a core that looks for work looks into each queue: arithmetic instead of an event per look. Looks are
//! `check` apart; a sweep over all other cores is followed by the next, in the same order.

use super::balancing::StealPolicy;
use leeward_core::units::{Nanos, Time};

/// Search of one core.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Search {
    /// When it began.
    pub(crate) since: Time,
    /// Where its order begins, in cores after its own.
    pub(crate) start: usize,
    /// Time at which the core gives up.
    pub(crate) until: Time,
    /// The next moment at which something is to be done for it.
    pub(crate) next: Time,
    /// Distinguishes that moment's event from those that were overtaken.
    pub(crate) generation: u32,
}

impl Search {
    pub(crate) fn new() -> Self {
        Search { since: Time::ZERO, start: 0, until: Time::NEVER, next: Time::NEVER, generation: 0 }
    }

    /// When `thief` sees what lies in `queue` since `head`, at `now` or later; [`Time::NEVER`] if it does not look there.
    pub(crate) fn discovery_time(
        &self,
        finding: StealPolicy,
        check: Nanos,
        (thief, queue, cores): (usize, usize, usize),
        head: Time,
        now: Time,
    ) -> Time {
        if queue == thief {
            return self.boundary(check, now);
        }
        match finding {
            StealPolicy::Never => Time::NEVER,
            StealPolicy::Oracle => now,
            StealPolicy::Flagged(from) => self.boundary(check, Time(head.0.max(self.since.0)) + from + check).max(now),
            StealPolicy::InOrder | StealPolicy::Random | StealPolicy::SiblingFirst => {
                if check == Nanos::ZERO || cores < 2 {
                    return now;
                }
                let place = position(finding, self.start, thief, queue, cores) as u64;
                let first = self.since.0 + (place + 1) * check.0;
                let sweep = (cores as u64 - 1) * check.0;
                let behind = now.0.saturating_sub(first);
                Time(first + behind.div_ceil(sweep) * sweep)
            }
        }
    }

    /// The first end of a look that is not before `at`.
    fn boundary(&self, check: Nanos, at: Time) -> Time {
        if check == Nanos::ZERO {
            return at;
        }
        Time(self.since.0 + at.since(self.since).0.div_ceil(check.0) * check.0)
    }
}

/// Where `queue` comes in the order in which `thief` looks at the others, from 0.
fn position(finding: StealPolicy, start: usize, thief: usize, queue: usize, cores: usize) -> usize {
    let after = |core: usize| (core + cores - thief - 1) % cores;
    let others = cores - 1;
    let place = after(queue);
    if finding != StealPolicy::SiblingFirst {
        return (place + others - start % others) % others;
    }
    let sibling = thief ^ 1;
    if sibling >= cores {
        return (place + others - start % others) % others;
    }
    if queue == sibling {
        return 0;
    }
    let rest = others - 1;
    let place = place - usize::from(place > after(sibling));
    1 + (place + rest - start % rest) % rest
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every other core has a place of its own, whatever the order and its start.
    #[test]
    fn an_order_visits_each_core_once() {
        for finding in [StealPolicy::InOrder, StealPolicy::Random, StealPolicy::SiblingFirst] {
            for cores in 2..9 {
                for thief in 0..cores {
                    for start in 0..cores {
                        let mut places: Vec<usize> = (0..cores)
                            .filter(|queue| *queue != thief)
                            .map(|queue| position(finding, start, thief, queue, cores))
                            .collect();
                        places.sort_unstable();
                        assert_eq!(places, (0..cores - 1).collect::<Vec<_>>());
                    }
                }
            }
        }
    }

    #[test]
    fn looks_are_a_check_apart_and_sweeps_repeat() {
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
    fn a_flag_is_seen_a_look_after_it_goes_up() {
        let search = Search { since: Time(1_000), ..Search::new() };
        let sees = |head, now| {
            search.discovery_time(StealPolicy::Flagged(Nanos(500)), Nanos(100), (0, 2, 4), Time(head), Time(now)).0
        };
        assert_eq!(sees(1_250, 1_250), 1_900);
        assert_eq!(sees(1_250, 2_000), 2_000);
    }
}
