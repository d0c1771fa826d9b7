//! Growth of the pool while no request waits, under `auto`. The published step (Breakwater §3.2.1)
//! adds a thousandth of the sessions in credits per round trip. That step is right near a queue,
//! and slow far from one. Ten clients get a credit in a hundred round trips. A pool that shrank to
//! one credit needs a thousand round trips for a thousand clients.
//!
//! So the pool grows by a part of itself while no request waits for a core though nearly all
//! credits are issued. The first queue ends this growth, and the published step applies again.
//!
//! The part depends on the number of requests in the server. While they are fewer than a quarter of
//! the cores, the pool grows so that they become a quarter, at most to twice its size. A server
//! that starts, or whose demand rises a hundredfold, then needs seven round trips and not a
//! hundred. Above a quarter the part is a sixteenth.
//!
//! The arrivals since the last tick limit each step: one credit per request at a sixteenth, sixteen
//! at a doubling, and at least one. Cores are sometimes without a queue by chance, one core often.
//! Then no request arrives, and a larger step would serve no demand. If the server has spare
//! capacity, arriving requests find no queue.

use super::methods::MethodBounds;
use crate::breakwater::pool::Pool;
use crate::breakwater::samples::Totals;
use leeward_core::server::Signals;
use leeward_core::units::{Nanos, Time};

/// Round trips without a queue after which the pool grows faster: granted credits have arrived by
/// then, and their queue would show.
const QUIET: u32 = 4;
/// Smallest part of the pool in a step. A queue shows after two round trips, in which the pool
/// grows an eighth too far.
const MIN_GROWTH: f64 = 1.0 / 16.0;
/// Part of the cores that a step may fill: the effect of a step shows after two round trips, in
/// which further steps follow.
const FILL: f64 = 0.25;
/// Divisor of the pool that gives the credits that may be left over while there are idle cores.
/// Some clients lack demand for a moment and leave a few credits in each round trip. A wait for the
/// last of them stopped ten busy clients at two fifths of the server's capacity.
const UNUSED_DIVISOR: i64 = 8;
/// Divisor of the target that gives the largest delay without a queue.
const NO_QUEUE: u64 = 8;

/// Round trips after a rejection in which few requests in the server don't prove spare capacity:
/// rejections occur now and then, not in each round trip.
const CAUTION_ROUND_TRIPS: u32 = 64;

/// State of the growth: time without a queue, requests in the server, and arrivals.
#[derive(Debug)]
pub(super) struct Regrowth {
    cores: f64,
    target: Nanos,
    quiet: u32,
    now: Time,
    served_nanos: u64,
    in_server: f64,
    /// Requests that arrived since the last tick.
    arrivals: f64,
    /// Round trips since the last rejection.
    since_rejection: u32,
}

impl Regrowth {
    /// Creates the state; `target` is that of the delay signal.
    pub(super) fn new(cores: u32, target: Nanos) -> Self {
        Regrowth {
            cores: cores.into(),
            target,
            quiet: 0,
            now: Time::ZERO,
            served_nanos: 0,
            in_server: 0.0,
            arrivals: 0.0,
            since_rejection: u32::MAX,
        }
    }

    /// Records the arrivals and the mean requests in the server since the last tick. By Little's
    /// law the mean is the sum of the responses' sojourn times over the time. If all requests wait
    /// there are no responses, so the present requests count by a half.
    pub(super) fn record(&mut self, signals: &Signals, totals: &Totals, methods: &MethodBounds) {
        let is_rejecting = signals.rejections > 0 || methods.has_bound();
        self.since_rejection = if is_rejecting { 0 } else { self.since_rejection.saturating_add(1) };
        let elapsed = signals.now.since(std::mem::replace(&mut self.now, signals.now)).max(Nanos(1));
        self.arrivals = signals.arrivals as f64;
        let sojourn_nanos =
            totals.served_nanos.wrapping_sub(std::mem::replace(&mut self.served_nanos, totals.served_nanos));
        self.in_server = (sojourn_nanos as f64 / elapsed.0 as f64).max(totals.in_server() as f64 / 2.0);
    }

    /// Returns the credits to add in this round trip.
    pub(super) fn step(&mut self, pool: &Pool, delay: Nanos) -> i64 {
        if delay > self.target / NO_QUEUE {
            self.quiet = 0;
            return 0;
        }
        self.quiet = self.quiet.saturating_add(1);
        let total = pool.total();
        let left_over = if self.in_server < self.cores { total / UNUSED_DIVISOR } else { 0 };
        if self.quiet <= QUIET || pool.issued() < total - left_over {
            return 0;
        }
        // An empty server makes this infinite or, without cores, NaN. `clamp` and the conversion
        // handle both.
        let fast = (self.cores * FILL / self.in_server - 1.0).clamp(MIN_GROWTH, 1.0);
        let part = if self.since_rejection < CAUTION_ROUND_TRIPS { MIN_GROWTH } else { fast };
        ((self.arrivals / MIN_GROWTH).min(total as f64) * part).max(1.0) as i64
    }

    /// Ends the growth: another resource is the bottleneck.
    pub(super) fn end(&mut self) {
        self.quiet = 0;
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::breakwater::config::{Config, PoolSignal};
    use crate::breakwater::params;
    use leeward_core::params::Params;
    use leeward_core::registry::Environment;

    const TARGET: Nanos = Nanos::from_micros(80);

    /// Sixteen cores with 160 credits, and round trips of 10 us.
    struct Fixture {
        pool: Pool,
        regrowth: Regrowth,
        methods: MethodBounds,
        totals: Totals,
        now: Time,
    }

    impl Fixture {
        fn new() -> Self {
            let environment = Environment::new(16, Nanos::from_micros(10), Nanos::from_micros(200));
            let config =
                Config::read(PoolSignal::Auto, &Params::read(params::AUTO, &[]).unwrap(), &environment).unwrap();
            let (pool, methods) = (Pool::new(160), MethodBounds::new(&config, 16));
            pool.issue(160);
            let totals = Totals::default();
            Fixture { pool, regrowth: Regrowth::new(16, TARGET), methods, totals, now: Time::ZERO }
        }

        /// Advances a round trip with `inside` requests in the server, all answered in it.
        fn advance(&mut self, inside: u64, signals: &Signals) {
            self.now += Nanos::from_micros(10);
            self.totals.served_nanos += inside * 10_000;
            self.regrowth.record(&Signals { now: self.now, ..*signals }, &self.totals, &self.methods);
        }

        fn step(&mut self, delay: Nanos) -> i64 {
            self.regrowth.step(&self.pool, delay)
        }
    }

    fn quiet() -> Signals {
        Signals { arrivals: 20, ..Signals::idle(Time::ZERO) }
    }

    /// Steps of ten round trips with `inside` requests in the server in each. The last rejection
    /// was `refused_before` round trips before.
    fn steps(inside: u64, refused_before: u64) -> Vec<i64> {
        let mut world = Fixture::new();
        for past in 0..refused_before {
            let rejected = u64::from(past == 0);
            world.advance(0, &Signals { rejections: rejected, lock_rejections: rejected, ..quiet() });
        }
        let step = |_| {
            world.advance(inside, &quiet());
            world.step(Nanos::ZERO)
        };
        (0..10).map(step).collect()
    }

    #[test]
    fn an_emptier_server_takes_larger_steps() {
        for (inside, expected) in [(0, 160), (1, 160), (2, 160), (3, 53), (4, 10), (100, 10)] {
            assert_eq!(steps(inside, 0), [vec![0; 4], vec![expected; 6]].concat(), "with {inside} inside");
        }
    }

    #[test]
    fn a_server_with_occasional_lock_rejections_grows_by_small_steps() {
        assert_eq!(steps(0, 1), [vec![0; 4], vec![10; 6]].concat());
        assert_eq!(steps(0, 50), [vec![0; 4], vec![10; 6]].concat());
        assert_eq!(steps(0, 100), [vec![0; 4], vec![160; 6]].concat());
    }

    #[test]
    fn a_step_is_bounded_by_the_requests_received() {
        let grown = |received: u64, inside: u64| {
            let mut world = Fixture::new();
            let step = |_| {
                world.advance(inside, &Signals { arrivals: received, ..quiet() });
                world.step(Nanos::ZERO)
            };
            (0..10).map(step).max()
        };
        assert_eq!([0, 1, 4, 10, 20].map(|received| grown(received, 16)), [1, 1, 4, 10, 10].map(Some));
        assert_eq!(
            [0, 1, 4, 20].map(|received| grown(received, 0)),
            [1, 16, 64, 160].map(Some),
            "an empty server fills fast"
        );
    }

    #[test]
    fn regrowth_continues_when_no_response_has_left_yet() {
        let mut world = Fixture::new();
        world.totals.received = 40;
        let mut grown = 0;
        for _ in 0..5 {
            world.advance(0, &quiet());
            grown = world.step(Nanos::ZERO);
        }
        assert_eq!(grown, 10);
    }

    #[test]
    fn a_queue_or_unused_credits_end_regrowth() {
        let mut world = Fixture::new();
        world.advance(0, &quiet());
        let mut step = |issued: i64, delay: Nanos| {
            world.pool.issue(issued - world.pool.issued());
            (0..5).map(|_| world.step(delay)).max()
        };
        assert_eq!(step(160, Nanos::ZERO), Some(160));
        assert_eq!(step(160, TARGET), Some(0));
        assert_eq!(step(140, Nanos::ZERO), Some(160), "an eighth left over");
        assert_eq!(step(139, Nanos::ZERO), Some(0));
    }

    #[test]
    fn with_every_core_busy_regrowth_waits_until_all_credits_are_issued() {
        let mut world = Fixture::new();
        world.pool.issue(-1);
        world.advance(15, &quiet());
        assert_eq!((0..5).map(|_| world.step(Nanos::ZERO)).max(), Some(10));
        world.advance(16, &quiet());
        assert_eq!(world.step(Nanos::ZERO), 0);
    }
}
