//! The automatic signal: runs the delay and the efficiency signal side by side, and the one with
//! evidence of overload decides.
//!
//! Each signal is blind to the other's bottleneck. Queues for CPUs don't show a wait for a lock. At
//! a CPU bottleneck the efficiency signal shrinks a pool that is not too large. The evidence of
//! each is unambiguous:
//! - **CPUs**: the queueing delay reached its target (d_t).
//! - **Something else**: locks rejected requests, or responses were too late for the objective, in
//!   an iteration in which the queueing delay never reached its target.
//!
//! The signals take turns as follows:
//! - The delay signal acts at once when the delay reaches the target. In between it lets the pool
//!   grow, as it does alone.
//! - An iteration that finds something else hands the pool to the efficiency signal. This signal
//!   grows or shrinks the pool by the effect of the last change of load. If locks rejected
//!   requests, the admitted ones are in time and the pool only has to save rejections: it shrinks
//!   by as much as it grows (Hoover). If responses were late, each surplus credit delays other
//!   requests: the pool shrinks by a part (thesis).
//! - A later iteration without any finding lets the pool grow by the efficiency signal's step, the
//!   next by twice that step, and so on. The pool grows gently near the limit, and soon as fast as
//!   under the delay signal, which then takes over again.
//! - The delay signal takes over at once when it finds CPUs as the bottleneck.
//!
//! A credit permits one request and lasts a round trip, but holders of credits may all send at
//! once. Requests may also wait in queues that the controller can't see. A second limit therefore
//! bounds the requests in the server ([`sojourn`](super::sojourn)), for each method separately
//! ([`methods`](super::methods)). Rejections by this bound are evidence of something else, as those
//! by a lock are.
//!
//! A credit can't limit the time that its request spends in the server either. While the server is
//! overloaded, each credit therefore carries the sojourn time of nearly all requests, and clients
//! don't send requests that would be late.
//!
//! Evidence does not outlast its cause, so no state can lock in.

use super::efficiency::{Efficiency, PoolStep};
use super::iteration::{IterationCounts, IterationEnd, IterationTracker};
use super::methods::{Evidence, MethodBounds};
use super::regrowth::Regrowth;
use super::{DelayLaw, Law};
use crate::breakwater::config::{Config, Decrease};
use crate::breakwater::pool::Pool;
use crate::breakwater::samples::Samples;
use leeward_core::server::Signals;
use leeward_core::sync::Arc;
use leeward_core::units::{Nanos, Time};

/// Share of affected requests that counts as evidence. The objective is one of the 99th percentile,
/// so one request in a hundred may miss it.
const EVIDENCE_SHARE: f64 = 0.01;

/// Share of requests that the bound rejects from which it decides, even if requests wait for cores
/// as well: rejections keep the cores busy, and only fewer credits prevent them.
const DECISIVE_SHARE: f64 = 0.25;

/// Share of served arrivals below which the cores do nothing but reject, and the objectives over
/// which it is taken.
const HARDLY_SERVED: f64 = 0.1;
const RECENT_OBJECTIVES: f64 = 2.0;

/// Objectives for which clients get reports after a sign of overload. Signs come and go within a
/// few round trips, and clients get a report with each response.
const REPORT_OBJECTIVES: u64 = 20;

/// The automatic signal: both signals, and the state that chooses between them.
#[derive(Debug)]
pub(crate) struct AutoLaw {
    delay: DelayLaw,
    regrowth: Regrowth,
    samples: Arc<Samples>,
    methods: MethodBounds,
    iterations: IterationTracker,
    efficiency: Efficiency,
    /// Whether the queueing delay has reached its target in this iteration.
    is_cpu_bound: bool,
    /// Whether the bound rejected most of what was too much in the last iteration.
    is_bound_decisive: bool,
    /// Decrease set by the operator, which overrides the one that the evidence suggests.
    decrease: Option<Decrease>,
    /// Ticks of this iteration.
    ticks: u32,
    active_signal: ActiveSignal,
    objective: Nanos,
    /// Share of the recent arrivals that were served, and the time of the last tick.
    served_share: f64,
    ticked: Time,
    /// Time until which clients get reports of the sojourn time.
    report_until: Time,
    is_occupied: bool,
}

/// Signal that decides whether the pool grows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ActiveSignal {
    Delay,
    /// `quiet`: iterations since the last evidence.
    Efficiency {
        quiet: u32,
    },
}

impl AutoLaw {
    pub(crate) fn new(config: &Config, cores: u32, samples: Arc<Samples>) -> Self {
        AutoLaw {
            delay: DelayLaw::new(config),
            regrowth: Regrowth::new(cores, config.target),
            methods: MethodBounds::new(config, cores),
            iterations: IterationTracker::new(config),
            samples,
            efficiency: Efficiency::new(config),
            is_cpu_bound: false,
            is_bound_decisive: false,
            decrease: config.decrease,
            ticks: 0,
            active_signal: ActiveSignal::Delay,
            objective: config.deadline.max(Nanos(1)),
            served_share: 1.0,
            ticked: Time::ZERO,
            report_until: Time::ZERO,
            is_occupied: false,
        }
    }

    /// Follows the share of served arrivals.
    fn follow_served(&mut self, signals: &Signals) {
        let elapsed = signals.now.since(std::mem::replace(&mut self.ticked, signals.now));
        if signals.arrivals > 0 {
            let weight = (elapsed.0 as f64 / (self.objective.0 as f64 * RECENT_OBJECTIVES)).min(1.0);
            let share = (signals.completions as f64 / signals.arrivals as f64).min(1.0);
            self.served_share += (share - self.served_share) * weight;
        }
    }

    /// Whether the queueing delay has reached its target.
    fn is_delayed(&self, signals: &Signals) -> bool {
        self.delay.is_overloaded(signals.delay())
    }

    /// Reports the sojourn time of nearly all requests to clients while the server is overloaded,
    /// so that clients don't send requests that would be late. Without overload clients send all
    /// requests: each may be in time.
    fn report_sojourn(&mut self, pool: &Pool, signals: &Signals) {
        let has_queue = self.is_delayed(signals) && pool.is_overload_detected();
        if self.methods.has_bound() || has_queue {
            self.report_until = signals.now + self.objective * REPORT_OBJECTIVES;
        }
        self.samples.set_client_percentile(if signals.now < self.report_until {
            self.methods.sojourn_percentile()
        } else {
            Nanos::ZERO
        });
    }

    /// Ends an iteration: hands the pool over or back, and takes the efficiency signal's step.
    fn finish_iteration(&mut self, pool: &Pool, end: &IterationEnd) {
        let found = self.methods.take_evidence();
        let rejected = found.rejected;
        // Until an overload is detected, a late response may be a core's late wake-up.
        let evidence = evidence(end, found).filter(|_| pool.is_overload_detected());
        let decrease = self.decrease.or(evidence).unwrap_or(Decrease::Multiplicative);
        let gain = self.efficiency.judge(end, decrease);
        let delay_growth = self.delay.increase(pool) * f64::from(self.ticks);
        self.is_bound_decisive = matches!(end, IterationEnd::Counted(IterationCounts { received, .. })
            if rejected as f64 > DECISIVE_SHARE * *received as f64);
        let cpus = std::mem::take(&mut self.is_cpu_bound) && !self.is_bound_decisive;
        self.ticks = 0;
        if !cpus && evidence.is_some() {
            self.efficiency.step(pool, gain, decrease);
            if let (PoolStep::Shrink, IterationEnd::Counted(IterationCounts { received, .. })) = (gain, end) {
                // Each rejection costs a message each way, so a larger share of rejections shrinks
                // the pool faster.
                self.efficiency.shrink_by(pool, rejected.min(*received) as f64 / (*received).max(1) as f64);
            }
            self.active_signal = ActiveSignal::Efficiency { quiet: 0 };
        } else if let ActiveSignal::Efficiency { quiet } = self.active_signal {
            let steps = f64::from(quiet).exp2();
            self.efficiency.add(pool, steps);
            let as_fast = steps * self.efficiency.increase(pool) >= delay_growth;
            self.active_signal =
                if as_fast { ActiveSignal::Delay } else { ActiveSignal::Efficiency { quiet: quiet + 1 } };
        }
    }
}

/// Decrease that follows from evidence of a bottleneck other than CPUs; `None` without such
/// evidence. `found` is what the methods show.
fn evidence(end: &IterationEnd, found: Evidence) -> Option<Decrease> {
    let IterationEnd::Counted(IterationCounts { received, lock_rejections: by_locks, late, .. }) = *end else {
        return None;
    };
    // An iteration counts only a part of its time.
    let late = late.min(found.late);
    let rejected = by_locks.saturating_add(found.rejected);
    if rejected.saturating_add(late) as f64 <= EVIDENCE_SHARE * received as f64 {
        None
    } else if late > rejected {
        Some(Decrease::Multiplicative)
    } else {
        Some(Decrease::Additive)
    }
}

impl Law for AutoLaw {
    fn bound(&self) -> Option<u64> {
        self.methods.bound()
    }

    fn is_occupied(&self) -> bool {
        self.is_occupied
    }

    fn tick(&mut self, pool: &Pool, signals: &Signals) {
        self.ticks = self.ticks.saturating_add(1);
        if self.is_delayed(signals) {
            self.is_cpu_bound = true;
            if !self.is_bound_decisive {
                self.active_signal = ActiveSignal::Delay;
            }
        }
        self.follow_served(signals);
        let totals = self.methods.tick(pool, &self.samples, signals);
        self.is_occupied = totals.in_server() > signals.arrivals;
        self.regrowth.record(signals, &totals, &self.methods);
        self.report_sojourn(pool, signals);
        if let Some(end) = self.iterations.tick(pool, signals, &totals) {
            self.finish_iteration(pool, &end);
        }
        pool.set_reclaims_last_credit(self.active_signal != ActiveSignal::Delay);
        match self.active_signal {
            ActiveSignal::Delay => {
                let extra = self.regrowth.step(pool, signals.delay());
                self.delay.step_with_extra(pool, signals.delay(), extra);
            }
            ActiveSignal::Efficiency { .. } => {
                self.regrowth.end();
                self.efficiency.hold(pool);
                // Where the cores do nothing but reject, hardly an iteration ends, and only fewer
                // credits help.
                if self.served_share < HARDLY_SERVED && self.is_delayed(signals) {
                    self.delay.step(pool, signals.delay());
                }
            }
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::breakwater::config::PoolSignal;
    use crate::breakwater::params;
    use leeward_core::params::Params;
    use leeward_core::registry::Environment;
    use proptest::prelude::*;

    const SESSIONS: usize = 1_000;

    fn config(signal: PoolSignal) -> Config {
        let environment = Environment::new(10, Nanos::from_micros(10), Nanos::from_micros(200));
        let specs = if signal == PoolSignal::Auto { params::AUTO } else { params::DELAY };
        Config::read(signal, &Params::read(specs, &[]).unwrap(), &environment).unwrap()
    }

    fn pool() -> Pool {
        let pool = Pool::new(500);
        (0..SESSIONS).for_each(|_| pool.session_opened());
        pool
    }

    struct Fixture {
        law: AutoLaw,
        pool: Pool,
        now: Time,
    }

    impl Fixture {
        fn new() -> Self {
            Fixture {
                law: AutoLaw::new(&config(PoolSignal::Auto), 10, Arc::new(Samples::new(10))),
                pool: pool(),
                now: Time::ZERO,
            }
        }

        /// Round trips of 10 µs with 20 requests each; locks reject `lock_rejected` of them.
        fn advance(&mut self, round_trips: u64, lock_rejected: u64, delay: Nanos) -> i64 {
            let before = self.pool.total();
            for _ in 0..round_trips {
                self.now += Nanos::from_micros(10);
                let signals = Signals {
                    run_delay: delay,
                    arrivals: 20,
                    completions: 20 - lock_rejected,
                    rejections: lock_rejected,
                    lock_rejections: lock_rejected,
                    ..Signals::idle(self.now)
                };
                self.law.tick(&self.pool, &signals);
            }
            self.pool.total() - before
        }
    }

    proptest! {
        /// If only CPUs are a bottleneck, the pool equals that of the delay signal to the last
        /// credit.
        #[test]
        fn auto_equals_the_delay_signal_without_lock_rejections(ticks in prop::collection::vec((0u64..200, 0u64..50, 0u64..50), 1..400)) {
            let mut world = Fixture::new();
            let (mut delay, alone) = (DelayLaw::new(&config(PoolSignal::Delay)), pool());
            for (delay_us, arrivals, completions) in ticks {
                world.now += Nanos::from_micros(10);
                let run_delay = Nanos::from_micros(delay_us);
                let rejections = arrivals.saturating_sub(completions);
                let signals = Signals { run_delay, arrivals, completions, rejections, ..Signals::idle(world.now) };
                world.law.tick(&world.pool, &signals);
                delay.tick(&alone, &signals);
                prop_assert_eq!(world.pool.total(), alone.total());
                prop_assert!(!world.pool.reclaims_last_credit());
            }
        }
    }

    #[test]
    fn lock_rejections_stop_the_growth_by_the_delay_signal() {
        let mut world = Fixture::new();
        assert_eq!(world.advance(100, 0, Nanos::ZERO), 100, "the delay signal alone: one per round trip");
        world.advance(10, 2, Nanos::ZERO);
        let grown = world.advance(400, 2, Nanos::ZERO);
        assert!(grown.abs() <= 100, "one step per iteration of four, up or down, not {grown}");
        assert!(world.pool.reclaims_last_credit());
    }

    #[test]
    fn half_a_percent_of_lock_rejections_does_not_stop_growth() {
        let mut world = Fixture::new();
        world.advance(100, 0, Nanos::ZERO);
        let before = world.pool.total();
        for _ in 0..50 {
            world.advance(1, 1, Nanos::ZERO); // one of 200 requests
            world.advance(9, 0, Nanos::ZERO);
        }
        // An iteration counts 60 requests, so one rejection is evidence. Quiet iterations follow,
        // which soon return the credits.
        assert!(world.pool.total() > before, "{} after {before}", world.pool.total());
    }

    #[test]
    fn a_cpu_queue_shrinks_the_pool_and_ends_the_lock_mode_at_once() {
        let mut world = Fixture::new();
        world.advance(100, 2, Nanos::ZERO);
        assert!(world.pool.reclaims_last_credit());
        assert!(world.advance(1, 2, Nanos::from_micros(120)) < 0, "120 us are over the target of 80 us");
        assert!(!world.pool.reclaims_last_credit());
        assert_eq!(world.advance(2, 2, Nanos::ZERO), 2, "and back to one per round trip");
    }

    #[test]
    fn growth_doubles_after_lock_contention_until_the_delay_signal_resumes() {
        let mut world = Fixture::new();
        world.advance(100, 2, Nanos::ZERO);
        let mut steps = Vec::new();
        while world.pool.reclaims_last_credit() {
            steps.push(world.advance(4, 0, Nanos::ZERO));
            assert!(steps.len() < 20, "{steps:?}");
        }
        assert_eq!(world.advance(100, 0, Nanos::ZERO), 100, "after {steps:?}");
    }
}
