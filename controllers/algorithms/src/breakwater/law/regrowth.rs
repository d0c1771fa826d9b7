//! Growth where nothing waits, under auto. The published step (Breakwater §3.2.1) is a thousandth of the sessions in credits per round
//! trip: right beside a queue, and slow where there is none. Ten clients get a credit in a hundred round trips; a pool that shrank to
//! one takes a thousand of them for a thousand clients.
//!
//! So while no request waits for a core though nearly all credits are out, the pool grows by a part of itself. The first queue ends
//! this: from there on it is the published step.
//!
//! How large a part follows from how many requests are in the server, whatever they do there. While they are fewer than a quarter of the
//! cores the pool grows so that they become a quarter, at most to twice its size: whoever starts, or comes back to a demand a hundred
//! times as high, needs seven round trips for that and not a hundred. From there on it is a sixteenth.
//!
//! No step is larger than what has come since the last one: a credit for each request while it grows by a sixteenth, sixteen where it grows
//! to twice its size, and one in any case. Cores are without a queue for a while by chance as well, one core often: then nothing comes, and
//! the step would be for nobody. Where there is room, what comes finds none before it.

use super::methods::MethodBounds;
use crate::breakwater::pool::Pool;
use crate::breakwater::samples::Totals;
use leeward_core::server::Signals;
use leeward_core::units::{Nanos, Time};

/// Round trips without a queue after which the pool grows faster: what was granted has arrived by then, and would be seen.
const QUIET: u32 = 4;
/// The least part of the pool that makes a step: two round trips pass before a queue is seen, which is an eighth too much.
const MIN_GROWTH: f64 = 1.0 / 16.0;
/// Part of the cores that a step may fill: two round trips pass before it is seen what a step has brought, in which others are taken.
const FILL: f64 = 0.25;
/// Part of the pool that may be left over while there are cores for more: clients whose demand is a credit short for a moment leave
/// some in each round trip, and waiting for the last of them stopped ten busy clients at two fifths of what the server could do.
const UNUSED_DIVISOR: i64 = 8;
/// Part of the target that is no queue.
const NO_QUEUE: u64 = 8;

/// Round trips after a refusal in which few in the server say nothing of its room: refusals come now and then, and not in each.
const CAUTION_ROUND_TRIPS: u32 = 64;

/// How long no queue has been seen, how many requests were in the server, and how many have come.
#[derive(Debug)]
pub(super) struct Regrowth {
    cores: f64,
    target: Nanos,
    quiet: u32,
    now: Time,
    served_nanos: u64,
    in_server: f64,
    /// Requests that came since the last tick.
    arrivals: f64,
    /// Round trips since a request was refused.
    since_rejection: u32,
}

impl Regrowth {
    /// `target` is that of the delay signal.
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

    /// Notes how many requests were in the server since the last tick, on average: by Little's law what the responses stayed, over the
    /// time. Where all wait there are no responses, so those here now count by a half. Notes as well how many have come.
    pub(super) fn record(&mut self, signals: &Signals, totals: &Totals, methods: &MethodBounds) {
        let is_refusing = signals.rejections > 0 || methods.has_bound();
        self.since_rejection = if is_refusing { 0 } else { self.since_rejection.saturating_add(1) };
        let elapsed = signals.now.since(std::mem::replace(&mut self.now, signals.now)).max(Nanos(1));
        self.arrivals = signals.arrivals as f64;
        let stayed = totals.served_nanos.wrapping_sub(std::mem::replace(&mut self.served_nanos, totals.served_nanos));
        self.in_server = (stayed as f64 / elapsed.0 as f64).max(totals.in_server() as f64 / 2.0);
    }

    /// Credits to add in this round trip.
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
        // Nobody inside makes it infinite, or (without cores) no number: `clamp` and the conversion bear both.
        let fast = (self.cores * FILL / self.in_server - 1.0).clamp(MIN_GROWTH, 1.0);
        let part = if self.since_rejection < CAUTION_ROUND_TRIPS { MIN_GROWTH } else { fast };
        ((self.arrivals / MIN_GROWTH).min(total as f64) * part).max(1.0) as i64
    }

    /// Something else is short.
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

        /// A round trip with so many requests in the server, all of them answered in it.
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

    /// The steps of ten round trips, with so many requests in the server in each. The last refusal was so many round trips ago.
    fn steps(inside: u64, refused_before: u64) -> Vec<i64> {
        let mut world = Fixture::new();
        for past in 0..refused_before {
            let refused = u64::from(past == 0);
            world.advance(0, &Signals { rejections: refused, lock_rejections: refused, ..quiet() });
        }
        let step = |_| {
            world.advance(inside, &quiet());
            world.step(Nanos::ZERO)
        };
        (0..10).map(step).collect()
    }

    #[test]
    fn the_emptier_the_server_the_larger_the_step() {
        for (inside, expected) in [(0, 160), (1, 160), (2, 160), (3, 53), (4, 10), (100, 10)] {
            assert_eq!(steps(inside, 0), [vec![0; 4], vec![expected; 6]].concat(), "with {inside} inside");
        }
    }

    #[test]
    fn a_server_that_refuses_now_and_then_grows_carefully_though_it_is_empty() {
        assert_eq!(steps(0, 1), [vec![0; 4], vec![10; 6]].concat());
        assert_eq!(steps(0, 50), [vec![0; 4], vec![10; 6]].concat());
        assert_eq!(steps(0, 100), [vec![0; 4], vec![160; 6]].concat());
    }

    #[test]
    fn no_step_is_larger_than_what_has_come() {
        let grown = |came: u64, inside: u64| {
            let mut world = Fixture::new();
            let step = |_| {
                world.advance(inside, &Signals { arrivals: came, ..quiet() });
                world.step(Nanos::ZERO)
            };
            (0..10).map(step).max()
        };
        assert_eq!([0, 1, 4, 10, 20].map(|came| grown(came, 16)), [1, 1, 4, 10, 10].map(Some));
        assert_eq!([0, 1, 4, 20].map(|came| grown(came, 0)), [1, 16, 64, 160].map(Some), "an empty server fills fast");
    }

    #[test]
    fn those_who_all_wait_fill_the_server_though_nobody_is_answered() {
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
    fn a_queue_or_credits_left_over_end_it() {
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
    fn with_as_many_inside_as_there_are_cores_the_last_credit_is_waited_for() {
        let mut world = Fixture::new();
        world.pool.issue(-1);
        world.advance(15, &quiet());
        assert_eq!((0..5).map(|_| world.step(Nanos::ZERO)).max(), Some(10));
        world.advance(16, &quiet());
        assert_eq!(world.step(Nanos::ZERO), 0);
    }
}
