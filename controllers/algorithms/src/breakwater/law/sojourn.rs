//! A bound on the requests in the server, where they wait in queues that nobody sees: a plain lock's, a disk's, a server's further
//! down.
//!
//! By Little's law the requests that are in the server, over the responses per time, are the time that those here now will
//! have taken, whatever they wait for. So the responses of a part of the objective are as many requests as may be in it. What
//! part follows from how long nearly all of them stay ([`stay`](super::stay)), since a mean says little of a 99th percentile: where
//! a fifth of the requests wait and the others don't, the mean is a fifth of what the fifth suffers.
//!
//! - It is known as a request comes, before any late response tells, and needs no baseline that could drift.
//! - **No lock-out**: a request for every second core is always let in (one that was refused, and whose drop is still to leave, takes
//!   nobody's place); with fewer than fill the part, each response makes
//!   room for more than one; and the part grows with every response while nearly all are in time.
//! - **No harm**: it bounds nobody while the queues for cores are as long as the delay signal lets them be, which then decides; nor for
//!   responses that are long because of such a queue, which may be over as they leave. It
//!   wakes when nearly all is no longer in time, and sleeps again when its part has grown to the whole objective. A server whose
//!   queues are all seen hardly meets it.

use super::percentile::SojournPercentile;
use crate::breakwater::config::Config;
use crate::breakwater::samples::Totals;
use leeward_core::server::Signals;
use leeward_core::units::{Nanos, Time};

/// The part at which it wakes. Sojourns of exponential length whose mean is half of the objective are late once in seven;
/// from here both ways are short.
const ACTIVATION_SHARE: f64 = 0.5;
/// The smallest part: where one in so many requests waits and is late.
const MIN_SHARE: f64 = 1.0 / 64.0;

/// Locks that refuse at least this share see to it that who waits for them is in time; as many as may miss the objective are chance.
const LOCK_REJECTION_SHARE: f64 = 0.01;

/// Bound on the requests in the server.
#[derive(Debug)]
pub(super) struct SojournBound {
    objective: f64,
    /// That of the delay signal, ns.
    target: f64,
    cores: u64,
    last: Option<LastTick>,
    /// Responses per nanosecond while anybody was in the server.
    rate: f64,
    percentile: SojournPercentile,
    /// Share of requests that locks refuse.
    lock_rejection_share: f64,
    /// Share of responses that were late, and share of requests that waited for a core for nearly as long as AQM lets them.
    late_share: f64,
    waited_share: f64,
    /// Counts of all requests as of the last tick that had a response, and requests that were refused a lock since.
    last_totals: Totals,
    lock_drops: u64,
    /// Part of the objective that the mean sojourn may be; `None`: it sleeps.
    share: Option<f64>,
    /// Requests that may be in the server, if there is a bound.
    bound: Option<u64>,
}

/// Time and counts of the last tick.
#[derive(Clone, Copy, Debug)]
struct LastTick {
    now: Time,
    totals: Totals,
    all: Totals,
}

impl SojournBound {
    pub(super) fn new(config: &Config, cores: u32) -> Self {
        let objective = config.deadline.max(Nanos(1)).0 as f64;
        SojournBound {
            objective,
            target: config.target.max(Nanos(1)).0 as f64,
            cores: cores.into(),
            last: None,
            rate: 0.0,
            percentile: SojournPercentile::new(objective),
            lock_rejection_share: 0.0,
            late_share: 0.0,
            waited_share: 0.0,
            last_totals: Totals::default(),
            lock_drops: 0,
            share: None,
            bound: None,
        }
    }

    /// Runs one control tick. `totals` are those of the requests that it bounds, `all` those of all requests. How many may still come
    /// in, if there is a bound.
    pub(super) fn tick(&mut self, signals: &Signals, totals: &Totals, all: &Totals) -> Option<i64> {
        let LastTick { now: before, totals: counts, all: all_counts } =
            self.last.replace(LastTick { now: signals.now, totals: *totals, all: *all })?;
        let elapsed = signals.now.since(before).0 as f64;
        let new = totals.since(&counts);
        // How fast the server is nobody says while nobody is here.
        if elapsed > 0.0 && (counts.in_server() > 0 || new.served > 0) {
            let weight = 1.0 - (-elapsed / self.objective).exp();
            self.rate += (new.served as f64 / elapsed - self.rate) * weight;
        }
        let seen = signals.delay().0 as f64 / self.target;
        self.lock_drops += signals.lock_rejections;
        if new.served > 0 {
            // No bound is smaller than this: what is late though no more are here, no bound can mend.
            let is_idle = all_counts.in_server() <= self.min_bound();
            let memories = self.percentile.learn(&new, self.rate * self.objective, is_idle);
            // Since the last tick with a response of these: requests begin, and are refused locks, in other ticks than they end.
            let new_of_all = all.since(&std::mem::replace(&mut self.last_totals, *all));
            let of_all = |count: u64| (count as f64 / new_of_all.served.max(1) as f64).min(1.0);
            self.lock_rejection_share +=
                (of_all(std::mem::take(&mut self.lock_drops)) - self.lock_rejection_share) * memories;
            self.waited_share += (of_all(new_of_all.long_waits) - self.waited_share) * memories;
            self.late_share += (new.late as f64 / new.served as f64 - self.late_share) * memories;
            let explained = if self.late_share > 0.0 { self.waited_share / self.late_share } else { 0.0 };
            self.adjust_share(
                memories,
                if self.lock_rejection_share > LOCK_REJECTION_SHARE { 1.0 } else { seen.max(explained) },
            );
        }
        // A queue for cores that is as long as it may be is the delay signal's business, and refusals would only add to it.
        let part = self.share;
        self.bound = part.map(|part| {
            let span = part * self.objective + signals.run_delay.0 as f64;
            ((self.rate * span) as u64).max(self.min_bound())
        });
        self.bound.map(|bound| bound.saturating_sub(totals.in_server()) as i64)
    }

    /// The smallest bound: a request for every second core.
    fn min_bound(&self) -> u64 {
        (self.cores / 2).max(1)
    }

    /// Turns the part towards the one at which nearly all are just in time. Stays are proportional to it, so one memory of
    /// responses at the present stay is the way from here to there. `seen`: how much of it queues for cores explain, 1 or more if all.
    fn adjust_share(&mut self, memories: f64, seen: f64) {
        let excess = self.percentile.in_objectives().ln();
        let excess = if excess > 0.0 { excess * (1.0 - seen).max(0.0) } else { excess };
        self.share = match self.share {
            None => (excess > 0.0).then_some(ACTIVATION_SHARE),
            Some(part) => Some((part * (-excess * memories).exp()).max(MIN_SHARE)).filter(|part| *part < 1.0),
        };
    }

    /// Responses per nanosecond.
    pub(super) fn rate(&self) -> f64 {
        self.rate
    }

    /// The span in which nearly all requests are answered.
    pub(super) fn percentile(&self) -> Nanos {
        self.percentile.span()
    }

    /// Requests that may be in the server, if there is a bound.
    pub(super) fn bound(&self) -> Option<u64> {
        self.bound
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::breakwater::config::PoolSignal;
    use crate::breakwater::params;
    use leeward_core::params::Params;
    use leeward_core::registry::Environment;

    /// A server that answers 20 requests in each round trip of 10 us. Its objective in the server is 190 us.
    struct Fixture {
        sojourn: SojournBound,
        now: Time,
        totals: Totals,
        /// Counts of requests that it does not bound.
        others: Totals,
    }

    impl Fixture {
        fn new() -> Self {
            let environment = Environment::new(10, Nanos::from_micros(10), Nanos::from_micros(200));
            let params = Params::read(params::AUTO, &[]).unwrap();
            let config = Config::read(PoolSignal::Auto, &params, &environment).unwrap();
            Fixture {
                sojourn: SojournBound::new(&config, 10),
                now: Time::ZERO,
                totals: Totals::default(),
                others: Totals::default(),
            }
        }

        /// So many round trips with so many responses in each, of which so many are late, and so many requests in the server. The last
        /// bound on all of them.
        fn advance(&mut self, round_trips: u32, served: u64, late: u64, inside: u64) -> Option<u64> {
            self.advance_with(&Signals::idle(Time::ZERO), round_trips, served, late, inside)
        }

        fn advance_with(
            &mut self,
            signals: &Signals,
            round_trips: u32,
            served: u64,
            late: u64,
            inside: u64,
        ) -> Option<u64> {
            let mut places = None;
            for _ in 0..round_trips {
                self.now += Nanos::from_micros(10);
                // Those that are late take one and a half times the objective, the others half of it.
                let objective = self.sojourn.objective;
                let longer = |took: f64| self.sojourn.percentile.span().0 < (took * objective) as u64;
                let slow = if longer(1.5) { late } else { 0 };
                self.totals.above_percentile += slow + if longer(0.5) { served - late } else { 0 };
                self.totals.served += served;
                self.totals.departures += served;
                self.totals.late += late;
                self.totals.received = self.totals.departures + inside;
                let all = self.totals.merge(self.others);
                places = self.sojourn.tick(&Signals { now: self.now, ..*signals }, &self.totals, &all);
            }
            places.map(|places| places as u64 + inside)
        }
    }

    #[test]
    fn a_server_in_time_knows_no_bound() {
        assert_eq!(Fixture::new().advance(1_000, 20, 0, 300), None);
    }

    #[test]
    fn the_bound_is_the_responses_of_a_part_of_the_objective() {
        let mut world = Fixture::new();
        world.advance(200, 20, 0, 30);
        let bound = world.advance(20, 20, 2, 30).expect("a tenth is late");
        assert!((100..=190).contains(&bound), "half of 380, or a little less, not {bound}");
        assert_eq!(world.sojourn.bound(), Some(bound));
    }

    #[test]
    fn what_is_late_for_ever_leaves_a_request_for_every_second_core() {
        let mut world = Fixture::new();
        world.advance(10_000, 20, 20, 7);
        assert_eq!(world.sojourn.bound(), Some(5));
    }

    #[test]
    fn queues_for_cores_and_locks_that_refuse_are_no_reason_for_a_bound() {
        let at_cores = Signals { run_delay: Nanos::from_millis(1), ..Signals::idle(Time::ZERO) };
        assert_eq!(Fixture::new().advance_with(&at_cores, 1_000, 20, 4, 300), None);
        let refused = Signals { lock_rejections: 5, ..Signals::idle(Time::ZERO) };
        let mut world = Fixture::new();
        world.advance_with(&refused, 200, 20, 0, 30);
        assert_eq!(world.advance_with(&refused, 1_000, 20, 4, 300), None);
    }

    #[test]
    fn responses_that_a_queue_for_cores_has_made_late_are_no_reason_for_a_bound() {
        let with_waits = |waited: u64| {
            let mut world = Fixture::new();
            (0..1_000).for_each(|_| {
                world.totals.long_waits += waited;
                world.advance(1, 20, 4, 300);
            });
            world.sojourn.bound()
        };
        // The queue is over when they leave, and no tick sees it.
        assert_eq!(with_waits(4), None);
        assert!(with_waits(0).is_some());
        assert!(with_waits(1).is_some(), "a quarter of them explains a quarter");
    }

    #[test]
    fn waits_of_others_do_not_explain_what_is_late_by_itself() {
        let mut world = Fixture::new();
        // One in ten of all requests is of these, and all of these are late; a few of the others wait for a core.
        for turn in 0..30_000u64 {
            world.others.long_waits += u64::from(turn % 10 == 0);
            world.others.served += 180;
            world.advance(1, 20, 20, 300);
        }
        assert!(world.sojourn.bound().is_some());
    }

    #[test]
    fn ticks_without_a_response_lose_no_wait() {
        let mut world = Fixture::new();
        for _ in 0..3_000 {
            world.totals.long_waits += 4;
            world.advance(1, 0, 0, 300);
            world.advance(1, 20, 4, 300);
        }
        assert_eq!(world.sojourn.bound(), None);
    }

    #[test]
    fn what_is_late_in_an_idle_server_is_no_reason_for_a_bound() {
        let mut world = Fixture::new();
        assert!(world.advance(20, 20, 20, 300).is_some());
        assert_eq!(world.advance(30_000, 20, 20, 2), None);
    }

    #[test]
    fn it_sleeps_again_when_all_are_in_time() {
        let mut world = Fixture::new();
        assert!(world.advance(5_000, 20, 20, 300).is_some());
        let mut round_trips = 0;
        while world.advance(1, 20, 0, 10).is_some() {
            round_trips += 1;
            // It has to forget that all were late, and to grow 64-fold.
            assert!(round_trips < 19 * 20 * 12, "a lock-out");
        }
    }

    #[test]
    fn a_stillness_changes_nothing() {
        let mut world = Fixture::new();
        let before = world.advance(100, 20, 2, 30).map(|_| world.sojourn.share);
        world.advance(100_000, 0, 0, 30);
        assert_eq!(before, Some(world.sojourn.share));
        assert_eq!(
            world.advance(1, 0, 0, 30),
            Some(30),
            "nor does it refuse what the cores could do: 30 are more than 5"
        );
    }
}
