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

use super::efficiency::{Efficiency, Gain};
use super::iteration::{End, Iteration, Iterations};
use super::methods::Methods;
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
const MISSES_ALLOWED: f64 = 0.01;

/// Objectives for which clients are told after a sign of overload: signs come and go within a few round trips, and clients hear with
/// each response.
const TOLD: u64 = 20;

/// Both signals.
#[derive(Debug)]
pub(crate) struct AutoLaw {
    delay: DelayLaw,
    regrowth: Regrowth,
    samples: Arc<Samples>,
    methods: Methods,
    iterations: Iterations,
    efficiency: Efficiency,
    /// The queueing delay has reached its target in this iteration.
    cpus: bool,
    /// Decrease set by the operator, which overrides the one that the evidence suggests.
    decrease: Option<Decrease>,
    /// Ticks of this iteration.
    ticks: u32,
    decides: Decides,
    objective: Nanos,
    /// Clients are told how long requests stay, until then.
    told_until: Time,
    is_occupied: bool,
}

/// Signal that decides whether the pool grows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Decides {
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
            methods: Methods::new(config, cores),
            iterations: Iterations::new(config),
            samples,
            efficiency: Efficiency::new(config),
            cpus: false,
            decrease: config.decrease,
            ticks: 0,
            decides: Decides::Delay,
            objective: config.late.max(Nanos(1)),
            told_until: Time::ZERO,
            is_occupied: false,
        }
    }

    /// Tells the clients how long nearly all requests stay while the server is overloaded, so that they don't send what would be late. A
    /// client of a server that is well sends whatever it has: it may be in time.
    fn tell(&mut self, pool: &Pool, signals: &Signals) {
        let has_queue = self.delay.says_overloaded(signals.delay()) && !pool.is_calm();
        if self.methods.is_bounding() || has_queue {
            self.told_until = signals.now + self.objective * TOLD;
        }
        self.samples.tell_clients(if signals.now < self.told_until { self.methods.stay() } else { Nanos::ZERO });
    }

    /// An iteration is over: hands the pool over or back, and takes the efficiency signal's step.
    fn iteration_ends(&mut self, pool: &Pool, end: &End) {
        let refused = self.methods.take_refused();
        // Until an overload is detected, a late response may be a core's late wake-up.
        let evidence = evidence(end, refused).filter(|_| !pool.is_calm());
        let decrease = self.decrease.or(evidence).unwrap_or(Decrease::Multiplicative);
        let gain = self.efficiency.judge(end, decrease);
        let delays_pace = self.delay.increase(pool) * f64::from(self.ticks);
        let cpus = std::mem::take(&mut self.cpus);
        self.ticks = 0;
        if !cpus && evidence.is_some() {
            self.efficiency.step(pool, gain, decrease);
            if let (Gain::Shrink, End::Counted(Iteration { received, .. })) = (gain, end) {
                // Who finds no place has cost a message each way: the more of them there are, the faster the pool shrinks.
                self.efficiency.take_part(pool, refused.min(*received) as f64 / (*received).max(1) as f64);
            }
            self.decides = Decides::Efficiency { quiet: 0 };
        } else if let Decides::Efficiency { quiet } = self.decides {
            let steps = f64::from(quiet).exp2();
            self.efficiency.add(pool, steps);
            let as_fast = steps * self.efficiency.increase(pool) >= delays_pace;
            self.decides = if as_fast { Decides::Delay } else { Decides::Efficiency { quiet: quiet + 1 } };
        }
    }
}

/// Decrease asked for by evidence that requests have suffered from something other than a queue for a CPU; `None`
/// without such evidence. `refused` are those that found no place in the server.
fn evidence(end: &End, refused: u64) -> Option<Decrease> {
    let End::Counted(Iteration { received, lock_drops, late, .. }) = *end else { return None };
    let refused = lock_drops.saturating_add(refused);
    if refused.saturating_add(late) as f64 <= MISSES_ALLOWED * received as f64 {
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
        if self.delay.says_overloaded(signals.delay()) {
            self.cpus = true;
            self.decides = Decides::Delay;
        }
        let totals = self.methods.tick(pool, &self.samples, signals);
        self.is_occupied = totals.in_server() > signals.arrivals;
        self.regrowth.note(signals, &totals, &self.methods);
        self.tell(pool, signals);
        if let Some(end) = self.iterations.tick(pool, signals, &totals) {
            self.iteration_ends(pool, &end);
        }
        pool.set_binding(self.decides != Decides::Delay);
        match self.decides {
            Decides::Delay => {
                let more = self.regrowth.step(pool, signals.delay());
                self.delay.step_and(pool, signals.delay(), more);
            }
            Decides::Efficiency { .. } => {
                self.regrowth.end();
                self.efficiency.hold(pool);
            }
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::breakwater::config::Signal;
    use crate::breakwater::params;
    use leeward_core::params::Params;
    use leeward_core::registry::Environment;
    use proptest::prelude::*;

    const SESSIONS: usize = 1_000;

    fn config(signal: Signal) -> Config {
        let environment = Environment::new(10, Nanos::from_micros(10), Nanos::from_micros(200));
        let specs = if signal == Signal::Auto { params::AUTO } else { params::DELAY };
        Config::read(signal, &Params::read(specs, &[]).unwrap(), &environment).unwrap()
    }

    fn pool() -> Pool {
        let pool = Pool::new(500);
        (0..SESSIONS).for_each(|_| pool.session_opened());
        pool
    }

    struct World {
        law: AutoLaw,
        pool: Pool,
        now: Time,
    }

    impl World {
        fn new() -> Self {
            World {
                law: AutoLaw::new(&config(Signal::Auto), 10, Arc::new(Samples::new(10))),
                pool: pool(),
                now: Time::ZERO,
            }
        }

        /// Round trips of 10 µs with 20 requests each, of which so many are refused a lock.
        fn pass(&mut self, round_trips: u64, lock_drops: u64, delay: Nanos) -> i64 {
            let before = self.pool.total();
            for _ in 0..round_trips {
                self.now += Nanos::from_micros(10);
                let signals = Signals {
                    run_delay: delay,
                    arrivals: 20,
                    completions: 20 - lock_drops,
                    drops: lock_drops,
                    lock_drops,
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
            let mut world = World::new();
            let (mut delay, alone) = (DelayLaw::new(&config(Signal::Delay)), pool());
            for (delay_us, arrivals, completions) in ticks {
                world.now += Nanos::from_micros(10);
                let run_delay = Nanos::from_micros(delay_us);
                let drops = arrivals.saturating_sub(completions);
                let signals = Signals { run_delay, arrivals, completions, drops, ..Signals::idle(world.now) };
                world.law.tick(&world.pool, &signals);
                delay.tick(&alone, &signals);
                prop_assert_eq!(world.pool.total(), alone.total());
                prop_assert!(!world.pool.binds());
            }
        }
    }

    #[test]
    fn refused_locks_stop_the_delay_signals_growth() {
        let mut world = World::new();
        assert_eq!(world.pass(100, 0, Nanos::ZERO), 100, "the delay signal alone: one per round trip");
        world.pass(10, 2, Nanos::ZERO);
        let grown = world.pass(400, 2, Nanos::ZERO);
        assert!(grown.abs() <= 100, "one step per iteration of four, up or down, not {grown}");
        assert!(world.pool.binds());
    }

    #[test]
    fn one_refusal_in_a_hundred_is_within_the_objective() {
        let mut world = World::new();
        world.pass(100, 0, Nanos::ZERO);
        let before = world.pool.total();
        for _ in 0..50 {
            world.pass(1, 1, Nanos::ZERO); // one of 200 requests
            world.pass(9, 0, Nanos::ZERO);
        }
        // Iterations count 60 requests: one of them is evidence. They are followed by quiet ones, which soon give back.
        assert!(world.pool.total() > before, "{} after {before}", world.pool.total());
    }

    #[test]
    fn queues_for_cpus_take_the_pool_back_at_once() {
        let mut world = World::new();
        world.pass(100, 2, Nanos::ZERO);
        assert!(world.pool.binds());
        assert!(world.pass(1, 2, Nanos::from_micros(120)) < 0, "120 us are over the target of 80 us");
        assert!(!world.pool.binds());
        assert_eq!(world.pass(2, 2, Nanos::ZERO), 2, "and back to one per round trip");
    }

    #[test]
    fn when_the_locks_are_free_again_growth_doubles_until_it_is_the_delay_signals() {
        let mut world = World::new();
        world.pass(100, 2, Nanos::ZERO);
        let mut steps = Vec::new();
        while world.pool.binds() {
            steps.push(world.pass(4, 0, Nanos::ZERO));
            assert!(steps.len() < 20, "{steps:?}");
        }
        assert_eq!(world.pass(100, 0, Nanos::ZERO), 100, "after {steps:?}");
    }
}
