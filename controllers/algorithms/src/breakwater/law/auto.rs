//! The automatic signal: delay and efficiency side by side, and the one that says "overloaded" with evidence decides.
//!
//! Each signal is blind for the other's bottleneck: locks don't show in the queues for CPUs, and at a CPU bottleneck the
//! efficiency signal shrinks a pool that is not too large. What they can't mistake is this:
//! - **CPUs**: the queueing delay reached its target (d_t). The queue is there, whatever else is.
//! - **Something else**: requests were refused a lock, or answered too late for the objective, in an iteration in which the
//!   queueing delay never reached its target.
//!
//! Who decides:
//! - The delay signal acts at once on each of its findings, and lets the pool grow in between, as alone.
//! - An iteration that has found something else hands the pool to the efficiency signal, which lets it grow or shrink by
//!   what the last change of load has brought. Where requests were refused locks, those admitted are in time, and
//!   only drops are to be saved: it shrinks by as much as it grows (Hoover). Where responses were late, every credit too
//!   many harms the others: it takes a part of the pool (thesis).
//! - An iteration after that without any finding lets the pool grow by the efficiency signal's step, the next one by twice as
//!   much, and so on: gently where the limit was just met, and soon as fast as the delay signal, which has the pool
//!   again from there.
//! - The delay signal has it back at once when it finds CPUs.
//!
//! A credit says who may send, and lasts a round trip; it can't say how many of those who hold one send at once. Where requests wait
//! in queues that nobody sees, the number of those in the server is therefore bounded as well ([`sojourn`](super::sojourn)), for each
//! method by itself ([`methods`](super::methods)). Those refused by this bound are evidence of something else, as those refused by a
//! lock are.
//!
//! Nor can a credit say how long its request will stay, once sent. While the server is overloaded its clients are told with each
//! credit how long nearly all do, and don't send what has waited for so long that it would be late.
//!
//! So no evidence outlives what it was evidence of, and nothing can lock in.

use super::efficiency::{Efficiency, PoolStep};
use super::iteration::{IterationCounts, IterationEnd, IterationTracker};
use super::methods::MethodBounds;
use super::regrowth::Regrowth;
use super::{DelayLaw, Law};
use crate::breakwater::config::{Config, Decrease};
use crate::breakwater::pool::Pool;
use crate::breakwater::samples::Samples;
use leeward_core::server::Signals;
use leeward_core::sync::Arc;
use leeward_core::units::{Nanos, Time};

/// Share of requests that must have suffered for it to be evidence: the objective is one of the 99th percentile, so a
/// hundredth may miss it.
const EVIDENCE_SHARE: f64 = 0.01;

/// Objectives for which clients are told after a sign of overload: signs come and go within a few round trips, and clients hear with
/// each response.
const REPORT_OBJECTIVES: u64 = 20;

/// Both signals.
#[derive(Debug)]
pub(crate) struct AutoLaw {
    delay: DelayLaw,
    regrowth: Regrowth,
    samples: Arc<Samples>,
    methods: MethodBounds,
    iterations: IterationTracker,
    efficiency: Efficiency,
    /// The queueing delay has reached its target in this iteration.
    is_cpu_bound: bool,
    /// Decrease set by the operator, which overrides the one that the evidence suggests.
    decrease: Option<Decrease>,
    /// Ticks of this iteration.
    ticks: u32,
    active_signal: ActiveSignal,
    objective: Nanos,
    /// Clients are told how long requests stay, until then.
    report_until: Time,
    is_occupied: bool,
}

/// Signal that decides whether the pool grows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ActiveSignal {
    Delay,
    /// For so many iterations nothing has been found any more.
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
            decrease: config.decrease,
            ticks: 0,
            active_signal: ActiveSignal::Delay,
            objective: config.deadline.max(Nanos(1)),
            report_until: Time::ZERO,
            is_occupied: false,
        }
    }

    /// Tells the clients how long nearly all requests stay while the server is overloaded, so that they don't send what would be late. A
    /// client of a server that is well sends whatever it has: it may be in time.
    fn report_sojourn(&mut self, pool: &Pool, signals: &Signals) {
        let has_queue = self.delay.is_overloaded(signals.delay()) && !pool.is_calm();
        if self.methods.has_bound() || has_queue {
            self.report_until = signals.now + self.objective * REPORT_OBJECTIVES;
        }
        self.samples.set_client_percentile(if signals.now < self.report_until {
            self.methods.sojourn_percentile()
        } else {
            Nanos::ZERO
        });
    }

    /// An iteration is over: hands the pool over or back, and takes the efficiency signal's step.
    fn finish_iteration(&mut self, pool: &Pool, end: &IterationEnd) {
        let refused = self.methods.take_rejections();
        // Until an overload is detected, a late response may be a core's late wake-up.
        let evidence = evidence(end, refused).filter(|_| !pool.is_calm());
        let decrease = self.decrease.or(evidence).unwrap_or(Decrease::Multiplicative);
        let gain = self.efficiency.judge(end, decrease);
        let delays_pace = self.delay.increase(pool) * f64::from(self.ticks);
        let cpus = std::mem::take(&mut self.is_cpu_bound);
        self.ticks = 0;
        if !cpus && evidence.is_some() {
            self.efficiency.step(pool, gain, decrease);
            if let (PoolStep::Shrink, IterationEnd::Counted(IterationCounts { received, .. })) = (gain, end) {
                // Who finds no place has cost a message each way: the more of them there are, the faster the pool shrinks.
                self.efficiency.shrink_by(pool, refused.min(*received) as f64 / (*received).max(1) as f64);
            }
            self.active_signal = ActiveSignal::Efficiency { quiet: 0 };
        } else if let ActiveSignal::Efficiency { quiet } = self.active_signal {
            let steps = f64::from(quiet).exp2();
            self.efficiency.add(pool, steps);
            let as_fast = steps * self.efficiency.increase(pool) >= delays_pace;
            self.active_signal =
                if as_fast { ActiveSignal::Delay } else { ActiveSignal::Efficiency { quiet: quiet + 1 } };
        }
    }
}

/// Decrease asked for by evidence that requests have suffered from something other than a queue for a CPU; `None`
/// without such evidence. `refused` are those that found no place in the server.
fn evidence(end: &IterationEnd, refused: u64) -> Option<Decrease> {
    let IterationEnd::Counted(IterationCounts { received, lock_rejections: lock_drops, late, .. }) = *end else {
        return None;
    };
    let refused = lock_drops.saturating_add(refused);
    if refused.saturating_add(late) as f64 <= EVIDENCE_SHARE * received as f64 {
        None
    } else if late > refused {
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
        if self.delay.is_overloaded(signals.delay()) {
            self.is_cpu_bound = true;
            self.active_signal = ActiveSignal::Delay;
        }
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
                let more = self.regrowth.step(pool, signals.delay());
                self.delay.step_with_extra(pool, signals.delay(), more);
            }
            ActiveSignal::Efficiency { .. } => {
                self.regrowth.end();
                self.efficiency.hold(pool);
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

        /// Round trips of 10 µs with 20 requests each, of which so many are refused a lock.
        fn advance(&mut self, round_trips: u64, lock_drops: u64, delay: Nanos) -> i64 {
            let before = self.pool.total();
            for _ in 0..round_trips {
                self.now += Nanos::from_micros(10);
                let signals = Signals {
                    run_delay: delay,
                    arrivals: 20,
                    completions: 20 - lock_drops,
                    rejections: lock_drops,
                    lock_rejections: lock_drops,
                    ..Signals::idle(self.now)
                };
                self.law.tick(&self.pool, &signals);
            }
            self.pool.total() - before
        }
    }

    proptest! {
        /// Where nothing but CPUs shows, it is the delay signal to the last credit.
        #[test]
        fn without_locks_it_is_the_delay_signal(ticks in prop::collection::vec((0u64..200, 0u64..50, 0u64..50), 1..400)) {
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
    fn refused_locks_stop_the_delay_signals_growth() {
        let mut world = Fixture::new();
        assert_eq!(world.advance(100, 0, Nanos::ZERO), 100, "the delay signal alone: one per round trip");
        world.advance(10, 2, Nanos::ZERO);
        let grown = world.advance(400, 2, Nanos::ZERO);
        assert!(grown.abs() <= 100, "one step per iteration of four, up or down, not {grown}");
        assert!(world.pool.reclaims_last_credit());
    }

    #[test]
    fn one_refusal_in_a_hundred_is_within_the_objective() {
        let mut world = Fixture::new();
        world.advance(100, 0, Nanos::ZERO);
        let before = world.pool.total();
        for _ in 0..50 {
            world.advance(1, 1, Nanos::ZERO); // one of 200 requests
            world.advance(9, 0, Nanos::ZERO);
        }
        // Iterations count 60 requests: one of them is evidence. They are followed by quiet ones, which soon give back.
        assert!(world.pool.total() > before, "{} after {before}", world.pool.total());
    }

    #[test]
    fn queues_for_cpus_take_the_pool_back_at_once() {
        let mut world = Fixture::new();
        world.advance(100, 2, Nanos::ZERO);
        assert!(world.pool.reclaims_last_credit());
        assert!(world.advance(1, 2, Nanos::from_micros(120)) < 0, "120 us are over the target of 80 us");
        assert!(!world.pool.reclaims_last_credit());
        assert_eq!(world.advance(2, 2, Nanos::ZERO), 2, "and back to one per round trip");
    }

    #[test]
    fn when_the_locks_are_free_again_growth_doubles_until_it_is_the_delay_signals() {
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
