//! Bounds on requests in the server ([`sojourn`](super::sojourn)), one for each class of methods.
//! If one method waits for a lock or a disk, the bound does not reject the others. Does not contain
//! the bound itself.
//!
//! - **One class**: if only one class has received requests, it counts as the whole server. This is
//!   so if the plant reports no methods.
//! - **Closed sessions** take their pending requests along, whose class is unknown. These requests
//!   are shared out in proportion to each class's requests in the server, and the error decays: by
//!   Little's law the class's response rate and mean sojourn give the number of its requests.
//! - **Evidence**: rejections and late responses of a bounded class show that there are too many
//!   credits only if every class is bounded. Requests of an unbounded class use the same credits,
//!   and would lose by fewer of them.

use super::sojourn::SojournBound;
use crate::breakwater::config::Config;
use crate::breakwater::pool::Pool;
use crate::breakwater::samples::{CLASSES, Samples, Totals};
use leeward_core::server::Signals;
use leeward_core::units::{Nanos, Time};

/// Share of requests from which a class counts for the whole server.
const MIN_CLASS_SHARE: f64 = 0.01;
/// Objectives in which an error about lost requests decays.
const ERROR_DECAY_OBJECTIVES: f64 = 250.0;
/// Weight of one tick in the mean sojourn.
const WEIGHT: f64 = 0.05;
/// Responses over which the mean time without the wait for a core is taken.
const REST_MEMORY: f64 = 200.0;

/// The bounds of all classes.
#[derive(Debug)]
pub(super) struct MethodBounds {
    objective: f64,
    classes: Vec<MethodClass>,
    /// Classes seen so far.
    seen: usize,
    /// Requests of closed sessions, as counted at the last tick.
    lost: u64,
    /// Counts of all requests at the last tick.
    totals: Totals,
    /// Mean time in the server without the wait for a core, ns.
    mean_rest: f64,
    now: Time,
}

/// What shows in an iteration that there are too many credits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Evidence {
    /// Requests that a bound has rejected.
    pub(super) rejected: u64,
    /// Responses that were late.
    pub(super) late: u64,
}

#[derive(Debug)]
struct MethodClass {
    sojourn: SojournBound,
    /// Estimated requests of this class among those of closed sessions.
    lost: f64,
    last: Totals,
    /// Mean sojourn, ns.
    mean_sojourn: f64,
    /// Requests received, and responses late, by the end of the last iteration.
    received: u64,
    late: u64,
    /// Requests that the bound has rejected in this iteration.
    rejected: u64,
}

impl MethodClass {
    fn new(config: &Config, cores: u32) -> Self {
        MethodClass {
            sojourn: SojournBound::new(config, cores),
            lost: 0.0,
            last: Totals::default(),
            mean_sojourn: 0.0,
            received: 0,
            late: 0,
            rejected: 0,
        }
    }

    /// Requests received but not answered, less those of closed sessions.
    fn in_server(&self) -> f64 {
        (self.last.in_server() as f64 - self.lost).max(0.0)
    }

    fn bound(&self) -> Option<u64> {
        self.sojourn.bound()
    }

    fn record(&mut self, totals: Totals) {
        let new = totals.since(&self.last);
        if let Some(mean) = new.served_nanos.checked_div(new.served) {
            self.mean_sojourn += (mean as f64 - self.mean_sojourn) * WEIGHT;
        }
        self.last = totals;
    }

    /// Moves the estimate of lost requests towards Little's law, if any are lost.
    fn correct_lost(&mut self, part: f64) {
        if self.lost > 0.0 {
            let expected = self.sojourn.rate() * self.mean_sojourn;
            let max = self.last.in_server() as f64;
            self.lost = (self.lost + (self.in_server() - expected) * part).clamp(0.0, max);
        }
    }
}

impl MethodBounds {
    pub(super) fn new(config: &Config, cores: u32) -> Self {
        MethodBounds {
            objective: config.deadline.max(Nanos(1)).0 as f64,
            classes: (0..CLASSES).map(|_| MethodClass::new(config, cores)).collect(),
            seen: 1,
            lost: 0,
            totals: Totals::default(),
            mean_rest: 0.0,
            now: Time::ZERO,
        }
    }

    /// Runs one control tick: sets the slots of each class and its sojourn percentile. Returns the
    /// sums over all requests.
    pub(super) fn tick(&mut self, pool: &Pool, samples: &Samples, signals: &Signals) -> Totals {
        let before = std::mem::replace(&mut self.now, signals.now);
        let part = signals.now.since(before).0 as f64 / (self.objective * ERROR_DECAY_OBJECTIVES);
        let all = self.count(samples, part.min(1.0));
        self.follow_rest(&all);
        samples.set_mean_rest(Nanos(self.mean_rest as u64));
        let used = |class: &&MethodClass| class.last.received > 0;
        let is_one = self.seen == 1 || self.classes[..self.seen].iter().filter(used).count() == 1;
        for (index, class) in self.classes[..self.seen].iter_mut().enumerate() {
            let own = class.last;
            let totals = if self.seen > 1 && own.received == 0 {
                continue;
            } else if is_one {
                all
            } else {
                Totals { departures: own.departures.wrapping_add(class.lost as u64), ..own }
            };
            let slots = class.sojourn.tick(signals, &totals, &all);
            samples.set_percentile(index, class.sojourn.percentile());
            class.rejected += pool.set_slots(index, slots);
        }
        all
    }

    /// Follows the mean time in the server without the wait for a core.
    fn follow_rest(&mut self, all: &Totals) {
        let new = all.since(&std::mem::replace(&mut self.totals, *all));
        if let Some(mean) = new.served_nanos.saturating_sub(new.waited_nanos).checked_div(new.served) {
            let weight = (new.served as f64 / REST_MEMORY).min(1.0);
            self.mean_rest += (mean as f64 - self.mean_rest) * weight;
        }
    }

    /// Reads the counts of each class, and shares out the requests lost since. Returns the sums
    /// over all classes.
    fn count(&mut self, samples: &Samples, part: f64) -> Totals {
        let unclassified = samples.unclassified();
        let lost = unclassified.departures;
        let new = lost.wrapping_sub(std::mem::replace(&mut self.lost, lost)) as f64;
        self.seen = samples.classes();
        let classes = &mut self.classes[..self.seen];
        for (index, class) in classes.iter_mut().enumerate() {
            class.record(samples.class_totals(index));
        }
        let all = classes.iter().map(|class| class.last).fold(unclassified, Totals::merge);
        let inside: f64 = classes.iter().map(MethodClass::in_server).sum();
        for class in classes {
            if new > 0.0 && inside > 0.0 {
                class.lost += class.in_server() * (new / inside).min(1.0);
            }
            class.correct_lost(part);
        }
        all
    }

    /// Responses per nanosecond while requests were in the server.
    fn rate(&self) -> f64 {
        self.classes[..self.seen].iter().map(|class| class.sojourn.rate()).sum()
    }

    /// Ends an iteration. Returns its rejections and late responses that show that there are too
    /// many credits.
    pub(super) fn take_evidence(&mut self) -> Evidence {
        let classes = &mut self.classes[..self.seen];
        let received = |class: &MethodClass| class.last.received.wrapping_sub(class.received) as f64;
        let notable = classes.iter().map(received).sum::<f64>() * MIN_CLASS_SHARE;
        let is_open =
            classes.len() > 1 && classes.iter().any(|class| class.bound().is_none() && received(class) > notable);
        let mut evidence = Evidence::default();
        for class in classes {
            class.received = class.last.received;
            let rejected = std::mem::take(&mut class.rejected);
            let late = class.last.late.wrapping_sub(std::mem::replace(&mut class.late, class.last.late));
            evidence.rejected += if is_open { 0 } else { rejected };
            evidence.late += if is_open && class.bound().is_some() { 0 } else { late };
        }
        evidence
    }

    /// Sojourn time of nearly all requests of the quickest class; a client can't know the class
    /// that waits.
    pub(super) fn sojourn_percentile(&self) -> Nanos {
        let classes = &self.classes[..self.seen];
        let notable = self.rate() * MIN_CLASS_SHARE;
        let counted = classes.iter().filter(|class| class.sojourn.rate() >= notable);
        counted.map(|class| class.sojourn.percentile()).min().unwrap_or(Nanos::ZERO)
    }

    /// Whether any class is bounded.
    pub(super) fn has_bound(&self) -> bool {
        self.classes.iter().any(|class| class.bound().is_some())
    }

    /// Requests of the bounded classes that may be in the server, if any class is bounded.
    pub(super) fn bound(&self) -> Option<u64> {
        let bounds = self.classes.iter().filter_map(MethodClass::bound);
        bounds.reduce(u64::saturating_add)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::breakwater::config::PoolSignal;
    use crate::breakwater::params;
    use crate::breakwater::samples::Sampler;
    use leeward_core::params::Params;
    use leeward_core::registry::Environment;
    use leeward_core::server::{Departure, Outcome};
    use leeward_core::sync::Arc;
    use leeward_core::units::{CreditId, Method};

    const FREE: Method = Method(1);
    const SLOW: Method = Method(2);

    /// A server with an objective of 190 us in the server, and round trips of 10 us.
    struct Fixture {
        methods: MethodBounds,
        pool: Pool,
        samples: Arc<Samples>,
        sampler: Sampler,
        now: Time,
    }

    impl Fixture {
        fn new() -> Self {
            let environment = Environment::new(10, Nanos::from_micros(10), Nanos::from_micros(200));
            let params = Params::read(params::AUTO, &[]).unwrap();
            let config = Config::read(PoolSignal::Auto, &params, &environment).unwrap();
            let samples = Arc::new(Samples::new(10));
            Fixture {
                methods: MethodBounds::new(&config, 10),
                pool: Pool::new(500),
                sampler: Sampler::new(Arc::clone(&samples), 0, config.deadline, config.deadline),
                samples,
                now: Time::ZERO,
            }
        }

        /// Receives `count` requests of a method and answers as many, each after `sojourn`.
        fn serve(&mut self, method: Method, count: u32, sojourn: Nanos) {
            let departure = Departure { now: self.now, outcome: Outcome::Completed, sojourn, credit: CreditId::NONE };
            for _ in 0..count {
                self.sampler.record_arrival(method);
                self.sampler.record_departure(method, &departure);
            }
        }

        fn tick(&mut self) {
            self.now += Nanos::from_micros(10);
            let all = self.methods.tick(&self.pool, &self.samples, &Signals::idle(self.now));
            assert_eq!(all, self.samples.totals());
        }

        fn bound(&self, method: Method) -> Option<u64> {
            self.methods.classes[method.0 as usize].bound()
        }
    }

    /// Twenty requests of each method per round trip, with a hundred of the slow one in the server.
    fn with_a_slow_method(round_trips: u32) -> Fixture {
        let mut world = Fixture::new();
        (0..100).for_each(|_| world.sampler.record_arrival(SLOW));
        for _ in 0..round_trips {
            world.serve(FREE, 20, Nanos::from_micros(20));
            world.serve(SLOW, 20, Nanos::from_millis(1));
            world.tick();
        }
        world
    }

    #[test]
    fn only_the_slow_method_is_bounded() {
        let world = with_a_slow_method(2_000);
        assert!(world.bound(SLOW).is_some());
        assert_eq!(world.bound(FREE), None);
        assert!(!world.pool.try_enter(2), "a hundred are more than the bound");
        assert!(world.pool.try_enter(1));
        assert!(world.methods.sojourn_percentile() < Nanos::from_micros(100), "clients hear of the quick one");
    }

    #[test]
    fn a_bounded_method_is_no_evidence_while_another_method_is_open() {
        let mut world = with_a_slow_method(2_000);
        world.methods.take_evidence();
        (0..7).for_each(|_| assert!(!world.pool.try_enter(2)));
        world.serve(FREE, 20, Nanos::from_micros(20));
        world.serve(FREE, 3, Nanos::from_millis(1));
        world.serve(SLOW, 5, Nanos::from_millis(1));
        world.tick();
        let of_free = Evidence { rejected: 0, late: 3 };
        assert_eq!(world.methods.take_evidence(), of_free, "the free method came by the same credits");
        (0..7).for_each(|_| assert!(!world.pool.try_enter(2)));
        world.serve(SLOW, 1, Nanos::from_millis(1));
        world.tick();
        assert_eq!(world.methods.take_evidence(), Evidence { rejected: 7, late: 1 }, "nobody else has come");
    }

    #[test]
    fn a_method_without_sessions_is_not_locked_out() {
        let mut world = with_a_slow_method(2_000);
        // Each closed session takes its request along.
        for _ in 0..1_000 {
            (0..100).for_each(|_| world.sampler.record_arrival(SLOW));
            world.sampler.record_close(100);
            world.tick();
        }
        world.sampler.record_close(100);
        let mut round_trips = 0;
        while !world.pool.try_enter(2) {
            world.serve(SLOW, 1, Nanos::from_micros(20));
            world.tick();
            round_trips += 1;
            assert!(round_trips < 20_000, "a lock-out");
        }
    }

    #[test]
    fn a_thousand_methods_share_a_fixed_number_of_classes() {
        let mut world = Fixture::new();
        for round in 0..200u32 {
            (0..1_000).for_each(|method| world.serve(Method(method), 1, Nanos::from_micros(20)));
            world.tick();
            assert_eq!(world.samples.classes(), CLASSES, "round {round}");
        }
        assert!(!world.methods.has_bound());
    }
}
