//! Measurement of the efficiency signal: iterations of a few end-to-end round trips, and the counts
//! of each (thesis §2.3.2, Hoover §3.3). Does not contain decisions on the pool.

use crate::breakwater::config::Config;
use crate::breakwater::pool::Pool;
use crate::breakwater::samples::Totals;
use leeward_core::server::Signals;
use leeward_core::units::{Nanos, Time};

/// Counts of one iteration.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct IterationCounts {
    /// Counted time; never zero.
    pub(super) duration: Nanos,
    /// Requests received (`in`).
    pub(super) received: u64,
    /// Successful responses (`out`).
    pub(super) responses: u64,
    /// Rejections for any reason.
    pub(super) rejections: u64,
    /// Rejections by a lock.
    pub(super) lock_rejections: u64,
    /// Responses that were in the server for too long to be in time.
    pub(super) late: u64,
}

/// How an iteration ended.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum IterationEnd {
    /// The iteration received enough requests to judge it.
    Counted(IterationCounts),
    /// The iteration received few requests, and few are in the server. Throughput then says
    /// nothing, but nothing is overloaded either: the pool has to grow beyond the credits that
    /// clients hold and don't use.
    ///
    /// Rejections don't matter here. They happened earlier in the iteration, and an iteration that
    /// waited for more requests because of them might never end.
    Idle,
}

/// Divides time into iterations.
#[derive(Debug)]
pub(super) struct IterationTracker {
    network: Nanos,
    round_trips: u64,
    /// Requests below which a count is too small to judge.
    min_requests: u64,
    current: Option<OpenIteration>,
    /// The last known end-to-end round trip.
    round_trip: Nanos,
    /// The last known part of the round trip outside the client.
    transit: Nanos,
}

/// An iteration that has not ended.
#[derive(Clone, Copy, Debug)]
struct OpenIteration {
    at: Time,
    samples: Totals,
    /// Requests received since the iteration began.
    received: u64,
    counted_part: Option<CountedPart>,
}

/// The counted part of an iteration.
#[derive(Clone, Copy, Debug)]
struct CountedPart {
    since: Time,
    late: u64,
    counts: IterationCounts,
}

impl IterationTracker {
    pub(super) fn new(config: &Config) -> Self {
        let network = config.network_rtt.max(Nanos(1));
        IterationTracker {
            network,
            round_trips: config.iteration.into(),
            // Requests that the smallest pool admits in one round trip. With fewer, no pool size
            // has been tried. As published, every sample counts.
            min_requests: if config.version.is_published() { 0 } else { config.min_pool.into() },
            current: None,
            round_trip: network,
            transit: network,
        }
    }

    /// Runs one control tick with the samples so far; returns `Some` when it ends an iteration. The
    /// next iteration begins at once.
    pub(super) fn tick(&mut self, pool: &Pool, signals: &Signals, totals: &Totals) -> Option<IterationEnd> {
        let now = signals.now;
        let fresh = OpenIteration { at: now, samples: *totals, received: 0, counted_part: None };
        let begun = self.current.get_or_insert(fresh);
        begun.received = begun.received.saturating_add(signals.arrivals);
        // The iteration's own samples set its length, so a time of long waits does not prolong
        // later iterations.
        let so_far = totals.since(&begun.samples);
        let lasted = now.since(begun.at);
        let issued = pool.issued().max(0) as u64;
        self.transit = so_far.transit(self.network).unwrap_or(self.transit);
        self.round_trip = so_far.round_trip(self.network, issued, lasted).unwrap_or(self.round_trip);
        // The time for which clients hold credits does not count here: they have not used them.
        let quiet = begun.received < self.min_requests && totals.in_server() < self.min_requests;
        if quiet && lasted >= self.transit * self.round_trips {
            self.current = Some(fresh);
            return Some(IterationEnd::Idle);
        }
        let Some(counting) = &mut begun.counted_part else {
            // A new pool size acts one round trip later (Hoover §3.3), so counting starts then.
            if lasted >= self.round_trip {
                begun.counted_part =
                    Some(CountedPart { since: now, late: totals.late, counts: IterationCounts::default() });
            }
            return None;
        };
        let counts = &mut counting.counts;
        counts.received = counts.received.saturating_add(signals.arrivals);
        counts.responses = counts.responses.saturating_add(signals.completions);
        counts.rejections = counts.rejections.saturating_add(signals.rejections);
        counts.lock_rejections = counts.lock_rejections.saturating_add(signals.lock_rejections);
        let counted = now.since(counting.since);
        if counted < self.round_trip * (self.round_trips - 1) {
            return None;
        }
        let end = if counts.received >= self.min_requests {
            IterationEnd::Counted(IterationCounts {
                duration: counted,
                late: totals.late.wrapping_sub(counting.late),
                ..*counts
            })
        } else if totals.in_server() < self.min_requests {
            // Silence may begin after the first round trip. A burst before it must not hide it for
            // ever.
            IterationEnd::Idle
        } else {
            return None;
        };
        self.current = Some(fresh);
        Some(end)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::breakwater::config::PoolSignal;
    use crate::breakwater::params;
    use crate::breakwater::samples::{Sampler, Samples};
    use leeward_core::params::Params;
    use leeward_core::registry::Environment;
    use leeward_core::server::{Departure, Outcome};
    use leeward_core::sync::Arc;
    use leeward_core::units::{CreditId, Method};

    /// Iterations and their samples.
    struct Fixture {
        iterations: IterationTracker,
        samples: Arc<Samples>,
    }

    impl Fixture {
        fn tick(&mut self, pool: &Pool, signals: &Signals) -> Option<IterationEnd> {
            self.iterations.tick(pool, signals, &self.samples.totals())
        }
    }

    fn iterations() -> (Fixture, Sampler) {
        let environment = Environment::new(4, Nanos::from_micros(10), Nanos::from_micros(200));
        let params = Params::read(params::EFFICIENCY, &[]).unwrap();
        let config = Config::read(PoolSignal::Efficiency, &params, &environment).unwrap();
        let samples = Arc::new(Samples::new(1));
        let sampler = Sampler::new(Arc::clone(&samples), 0, config.deadline, config.deadline);
        (Fixture { iterations: IterationTracker::new(&config), samples }, sampler)
    }

    fn pool() -> Pool {
        let pool = Pool::new(4);
        pool.issue(4_000_000);
        pool
    }

    fn at(us: u64, arrivals: u64) -> Signals {
        Signals { arrivals, completions: arrivals, ..Signals::idle(Time(us * 1_000)) }
    }

    /// Ticks every 10 µs with `arrivals` each until the iteration ends; returns its time and its
    /// end.
    fn run(iterations: &mut Fixture, from_us: u64, arrivals: u64) -> (u64, IterationEnd) {
        for us in (from_us..).step_by(10).take(100_000) {
            if let Some(end) = iterations.tick(&pool(), &at(us, arrivals)) {
                return (us, end);
            }
        }
        panic!("an iteration without an end");
    }

    fn counted((us, end): (u64, IterationEnd)) -> (u64, IterationCounts) {
        match end {
            IterationEnd::Counted(iteration) => (us, iteration),
            IterationEnd::Idle => panic!("a lull at {us} us"),
        }
    }

    #[test]
    fn an_iteration_skips_its_first_round_trip() {
        let (mut iterations, _) = iterations();
        let (end, done) = counted(run(&mut iterations, 0, 5));
        assert_eq!((end, done.received, done.duration), (40, 15, Nanos::from_micros(30)));
    }

    #[test]
    fn too_few_requests_extend_an_iteration_while_the_server_is_occupied() {
        let (mut iterations, sampler) = iterations();
        (0..4).for_each(|_| sampler.record_arrival(Method::DEFAULT));
        for us in 0..50 {
            assert_eq!(iterations.tick(&pool(), &at(us * 10, 0)), None, "nothing came: nothing to divide by");
        }
        let (end, done) = counted(run(&mut iterations, 500, 1));
        assert_eq!((end, done.received), (530, 4), "four cores, four requests");
    }

    #[test]
    fn too_few_requests_end_an_iteration_as_idle_when_the_server_is_empty() {
        let (mut iterations, _) = iterations();
        assert_eq!(run(&mut iterations, 0, 0), (40, IterationEnd::Idle));
        assert_eq!(run(&mut iterations, 50, 0), (80, IterationEnd::Idle));
    }

    #[test]
    fn a_burst_before_an_iteration_does_not_hide_that_it_is_idle() {
        let (mut iterations, _) = iterations();
        assert_eq!(iterations.tick(&pool(), &at(0, 0)), None);
        assert_eq!(iterations.tick(&pool(), &at(10, 50)), None);
        assert_eq!(run(&mut iterations, 20, 0), (40, IterationEnd::Idle));
    }

    #[test]
    fn an_iteration_lasts_as_long_as_its_own_round_trips() {
        let (mut iterations, mut sampler) = iterations();
        let mut served = |now_us: u64, elapsed_us: u64| {
            sampler.record_departure(
                Method::DEFAULT,
                &Departure {
                    now: Time(now_us * 1_000),
                    outcome: Outcome::Completed,
                    sojourn: Nanos::from_micros(elapsed_us - 10),
                    credit: CreditId((now_us - elapsed_us) * 1_000),
                },
            );
        };
        assert_eq!(iterations.tick(&pool(), &at(0, 5)), None);
        served(1_000, 100);
        let (end, done) = counted(run(&mut iterations, 10, 5));
        assert_eq!((end, done.duration), (400, Nanos::from_micros(300)));
        // One request waited for ten seconds. The next requests, without waits, end the iteration.
        served(20_000_000, 10_000_000);
        assert_eq!(iterations.tick(&pool(), &at(410, 5)), None);
        (0..1_000_000).for_each(|_| served(20_000_000, 20));
        let (end, _) = counted(run(&mut iterations, 420, 5));
        assert!(end < 1_000, "still waiting at {end} us");
    }

    #[test]
    fn a_tick_after_a_long_pause_does_not_end_an_empty_iteration() {
        let (mut iterations, _) = iterations();
        assert_eq!(iterations.tick(&pool(), &at(0, 50)), None);
        assert_eq!(iterations.tick(&pool(), &at(5_000_000, 50)), None);
        assert_eq!(iterations.tick(&pool(), &at(5_000_000, 50)), None, "no time has passed");
        assert!(iterations.tick(&pool(), &at(5_000_030, 50)).is_some());
    }
}
