//! Bound on the requests in the server, for requests that wait in queues the controller can't see:
//! those of a plain lock, a disk, or a downstream server.
//!
//! By Little's law, the requests in the server divided by the response rate give their mean time in
//! the server. This holds for any resource that they wait for. So the bound is the number of
//! responses in a part of the objective. The part follows from the sojourn time of nearly all
//! requests ([`percentile`](super::percentile)), since a mean says little about a 99th percentile:
//! if a fifth of the requests wait and the others don't, the mean is a fifth of the wait of that
//! fifth.
//!
//! - The bound acts when a request arrives, before any response is late, and needs no baseline that
//!   could drift.
//! - **No lock-out**: the bound always admits a request for every second core, or fewer where these
//!   were late and fewer may not be: behind many cores may stand one disk. A rejected request whose
//!   rejection is still to leave takes no slot, and one that leaves gives its slot back. With fewer
//!   requests than fill the part, each response admits more than one; and the part grows with each
//!   response while nearly all are in time.
//! - **No harm**: the bound rejects nothing while the queues for cores are as long as the delay
//!   signal lets them be; the delay signal then decides. Nor does it count responses that such a
//!   queue made late, which may be over when they leave, or those of a nearly empty server. It
//!   activates when nearly all requests are no longer in time, and ends when its part has grown to
//!   the whole objective. A server whose queues are all visible hardly meets it.

use super::percentile::SojournPercentile;
use crate::breakwater::config::Config;
use crate::breakwater::samples::Totals;
use leeward_core::server::Signals;
use leeward_core::units::{Nanos, Time};

/// Part at which the bound activates. With exponential sojourn times whose mean is half of the
/// objective, one response in seven is late; from here both directions are short.
const ACTIVATION_SHARE: f64 = 0.5;
/// Smallest part, for the case that one in 64 requests waits and is late.
const MIN_SHARE: f64 = 1.0 / 64.0;

/// Share of late responses with about the smallest bound in the server from which a smaller one is
/// tried; and responses, in memories, for which the outcome of such a trial holds.
const LATE_AT_LEAST: f64 = 0.3;
const TRIAL_MEMORIES: f64 = 256.0;
/// Responses, in memories, that tell whether half as many requests are late, too.
const KNOWN_MEMORIES: f64 = 0.1;

/// Share of late responses in a nearly empty server from which they are no excuse: hardly an answer
/// of these requests is of use, and what they take is missing for others.
const MOSTLY_LATE: f64 = 0.25;

/// Share of lock rejections from which locks keep their waiting requests in time themselves. Fewer
/// rejections may be chance: as many requests may miss the objective.
const LOCK_REJECTION_SHARE: f64 = 0.01;

/// Bound on the requests in the server.
#[derive(Debug)]
pub(super) struct SojournBound {
    objective: f64,
    /// Delay target of the delay signal, ns.
    target: f64,
    cores: u64,
    /// Smallest bound.
    least: u64,
    /// Late responses with more than half of the smallest bound in the server, but no more than it;
    /// and with up to half of it.
    late_at_least: LateShare,
    late_below: LateShare,
    /// Responses, in memories, for which the outcome of the last trial of a smaller one holds.
    trial: f64,
    last: Option<LastTick>,
    /// Responses per nanosecond while requests were in the server.
    rate: f64,
    percentile: SojournPercentile,
    /// Share of requests that locks reject.
    lock_rejection_share: f64,
    /// Share of late responses, and share of requests that waits for a core made late.
    late_share: f64,
    waited_share: f64,
    /// Counts of all requests at the last tick with a response, and lock rejections since.
    last_totals: Totals,
    lock_drops: u64,
    /// Part of the objective that the mean sojourn may take; `None` while the bound is inactive.
    share: Option<f64>,
    /// Requests that may be in the server, if there is a bound.
    bound: Option<u64>,
}

/// Share of late responses: of all until there are enough for a memory, then of the last ones.
#[derive(Clone, Copy, Debug, Default)]
struct LateShare {
    share: f64,
    /// Responses, in memories.
    memories: f64,
}

impl LateShare {
    fn learn(&mut self, share: f64, memories: f64) {
        self.memories += memories;
        if memories > 0.0 {
            self.share += (share - self.share) * memories / self.memories.min(1.0);
        }
    }
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
            least: u64::from(cores / 2).max(1),
            late_at_least: LateShare::default(),
            late_below: LateShare::default(),
            trial: 0.0,
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

    /// Runs one control tick. Returns the number of requests that may still enter, if there is a
    /// bound.
    ///
    /// `totals` counts the bounded requests, `all` counts all requests.
    pub(super) fn tick(&mut self, signals: &Signals, totals: &Totals, all: &Totals) -> Option<i64> {
        let LastTick { now: before, totals: counts, all: all_counts } =
            self.last.replace(LastTick { now: signals.now, totals: *totals, all: *all })?;
        let elapsed = signals.now.since(before).0 as f64;
        let new = totals.since(&counts);
        // An empty server gives no sample of its response rate.
        if elapsed > 0.0 && (counts.in_server() > 0 || new.served > 0) {
            let weight = 1.0 - (-elapsed / self.objective).exp();
            self.rate += (new.served as f64 / elapsed - self.rate) * weight;
        }
        let seen = signals.delay().0 as f64 / self.target;
        self.lock_drops += signals.lock_rejections;
        if new.served > 0 {
            // No bound is smaller than `least`. If so few requests are here and responses are late,
            // no bound can help.
            let inside = all_counts.in_server();
            // With a lowered bound it is known that others can be in time.
            let is_excused = !self.is_lowered();
            let is_idle = inside <= self.least && is_excused;
            let memories = self.percentile.learn(&new, self.rate * self.objective, is_idle, is_excused);
            if inside <= self.least {
                let late = if inside <= self.least / 2 { &mut self.late_below } else { &mut self.late_at_least };
                late.learn(new.late as f64 / new.served as f64, memories);
            }
            self.adjust_least(memories);
            // Counts since the last tick with a response of this class: requests begin, and are
            // rejected by locks, in other ticks than they end.
            let new_of_all = all.since(&std::mem::replace(&mut self.last_totals, *all));
            let of_all = |count: f64| (count / new_of_all.served.max(1) as f64).min(1.0);
            self.lock_rejection_share +=
                (of_all(std::mem::take(&mut self.lock_drops) as f64) - self.lock_rejection_share) * memories;
            self.waited_share += (of_all(new_of_all.late_by_wait()) - self.waited_share) * memories;
            self.late_share += (new.late as f64 / new.served as f64 - self.late_share) * memories;
            let idle_late = self.percentile.idle_late_share();
            let is_excuse = is_excused && idle_late < MOSTLY_LATE;
            let no_queue = self.waited_share + if is_excuse { idle_late } else { 0.0 };
            let explained = if self.late_share > 0.0 { no_queue / self.late_share } else { 0.0 };
            self.adjust_share(
                memories,
                if self.lock_rejection_share > LOCK_REJECTION_SHARE { 1.0 } else { seen.max(explained) },
            );
        }
        // If the queue for cores is as long as allowed, the delay signal decides, and rejections by
        // the bound would only add to its own.
        let part = self.share;
        self.bound = part.map(|part| {
            let span = part * self.objective + signals.run_delay.0 as f64;
            ((self.rate * span) as u64).max(self.least)
        });
        self.bound.map(|bound| bound.saturating_sub(totals.in_server()) as i64)
    }

    /// Lowers the smallest bound if so few requests are late, unless half as many are, too: to
    /// those that are answered in half of the objective. If even these are late, no bound helps:
    /// then the smallest one is a request for every second core again, as it is after a while in
    /// any case.
    fn adjust_least(&mut self, memories: f64) {
        self.trial = (self.trial - memories).max(0.0);
        let (here, below) = (self.late_at_least, self.late_below);
        let is_late = here.memories >= 1.0 && here.share > LATE_AT_LEAST;
        let is_late_below = below.memories >= KNOWN_MEMORIES && below.share > here.share / 2.0;
        let is_over = self.trial == 0.0;
        let in_time = ((self.rate * self.objective / 2.0) as u64).max(1);
        if self.is_lowered() {
            // Nearly all late: a few responses tell.
            let is_late = is_late || (here.memories >= KNOWN_MEMORIES && here.share > 0.9);
            if is_late || is_over {
                self.least = self.usual_least();
                if is_late {
                    self.trial = TRIAL_MEMORIES;
                } else {
                    self.percentile.forget_idle();
                }
                (self.late_at_least, self.late_below) = Default::default();
            }
        } else if is_over && is_late && !is_late_below && in_time < self.least {
            self.least = in_time;
            self.trial = TRIAL_MEMORIES;
            (self.late_at_least, self.late_below) = Default::default();
        }
    }

    /// The smallest bound unless it is lowered: a request for every second core.
    fn usual_least(&self) -> u64 {
        (self.cores / 2).max(1)
    }

    fn is_lowered(&self) -> bool {
        self.least < self.usual_least()
    }

    /// Moves the part towards the value at which nearly all requests are just in time. Sojourn
    /// times are proportional to the part, so one memory of responses at the present sojourn time
    /// leads to that value. `seen` is the share of the sojourn with another reason than a hidden
    /// queue; 1 or more means all.
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

    /// Sojourn time of nearly all requests.
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
    use crate::breakwater::samples::WHOLE;
    use leeward_core::params::Params;
    use leeward_core::registry::Environment;

    /// A server that answers 20 requests in each round trip of 10 us. Its objective in the server
    /// is 190 us.
    struct Fixture {
        sojourn: SojournBound,
        now: Time,
        totals: Totals,
        /// Counts of requests that the bound does not cover.
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

        /// Advances `round_trips` with `served` responses in each, `late` of them late, and
        /// `inside` requests in the server. Returns the last bound on all of them.
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
            let mut slots = None;
            for _ in 0..round_trips {
                self.now += Nanos::from_micros(10);
                // Late responses take one and a half times the objective, the others half of it.
                let objective = self.sojourn.objective;
                let longer = |factor: f64| self.sojourn.percentile.span().0 < (factor * objective) as u64;
                let slow = if longer(1.5) { late } else { 0 };
                self.totals.above_percentile += slow + if longer(0.5) { served - late } else { 0 };
                self.totals.served += served;
                self.totals.departures += served;
                self.totals.late += late;
                self.totals.received = self.totals.departures + inside;
                let all = self.totals.merge(self.others);
                slots = self.sojourn.tick(&Signals { now: self.now, ..*signals }, &self.totals, &all);
            }
            slots.map(|slots| slots as u64 + inside)
        }
    }

    #[test]
    fn no_bound_applies_while_responses_are_in_time() {
        assert_eq!(Fixture::new().advance(1_000, 20, 0, 300), None);
    }

    #[test]
    fn the_bound_is_the_number_of_responses_in_part_of_the_objective() {
        let mut world = Fixture::new();
        world.advance(200, 20, 0, 30);
        let bound = world.advance(20, 20, 2, 30).expect("a tenth is late");
        assert!((100..=190).contains(&bound), "half of 380, or a little less, not {bound}");
        assert_eq!(world.sojourn.bound(), Some(bound));
    }

    #[test]
    fn the_lowest_bound_is_one_request_per_two_cores() {
        let mut world = Fixture::new();
        world.advance(10_000, 20, 20, 7);
        assert_eq!(world.sojourn.bound(), Some(5));
    }

    #[test]
    fn core_queues_and_lock_rejections_set_no_bound() {
        let at_cores = Signals { run_delay: Nanos::from_millis(1), ..Signals::idle(Time::ZERO) };
        assert_eq!(Fixture::new().advance_with(&at_cores, 1_000, 20, 4, 300), None);
        let rejected = Signals { lock_rejections: 5, ..Signals::idle(Time::ZERO) };
        let mut world = Fixture::new();
        world.advance_with(&rejected, 200, 20, 0, 30);
        assert_eq!(world.advance_with(&rejected, 1_000, 20, 4, 300), None);
    }

    #[test]
    fn responses_made_late_by_a_core_queue_set_no_bound() {
        let with_waits = |waited: u64| {
            let mut world = Fixture::new();
            (0..1_000).for_each(|_| {
                world.totals.late_by_wait += waited * WHOLE;
                world.advance(1, 20, 4, 300);
            });
            world.sojourn.bound()
        };
        // The queue is over when the responses leave, and no tick sees it.
        assert_eq!(with_waits(4), None);
        assert!(with_waits(0).is_some());
        assert!(with_waits(1).is_some(), "a quarter of them explains a quarter");
    }

    #[test]
    fn core_waits_of_other_methods_do_not_excuse_late_responses() {
        let mut world = Fixture::new();
        // One in ten of all requests is bounded, and all of these are late. A few of the others
        // wait for a core.
        for turn in 0..30_000u64 {
            world.others.late_by_wait += u64::from(turn % 10 == 0) * WHOLE;
            world.others.served += 180;
            world.advance(1, 20, 20, 300);
        }
        assert!(world.sojourn.bound().is_some());
    }

    #[test]
    fn core_waits_survive_ticks_without_a_response() {
        let mut world = Fixture::new();
        for _ in 0..3_000 {
            world.totals.late_by_wait += 4 * WHOLE;
            world.advance(1, 0, 0, 300);
            world.advance(1, 20, 4, 300);
        }
        assert_eq!(world.sojourn.bound(), None);
    }

    #[test]
    fn late_responses_of_an_idle_server_set_no_bound() {
        let mut world = Fixture::new();
        assert!(world.advance(20, 20, 20, 300).is_some());
        assert_eq!(world.advance(30_000, 20, 20, 2), None);
    }

    #[test]
    fn the_lowest_bound_falls_where_so_few_requests_are_late() {
        let mut world = Fixture::new();
        // A resource behind the cores that takes 60 us: with five requests these are late, with two
        // they are not.
        for _ in 0..40_000 {
            let inside = world.sojourn.bound().unwrap_or(300);
            world.advance(5, 0, 0, inside);
            world.advance(1, 1, u64::from(inside > 3), inside);
        }
        assert!(world.sojourn.bound().is_some_and(|bound| bound <= 4), "{:?}", world.sojourn.bound());
        assert_eq!(world.sojourn.least, 1);
    }

    #[test]
    fn the_lowest_bound_stays_where_a_single_request_is_late() {
        let mut world = Fixture::new();
        let mut lower = 0;
        for _ in 0..200_000 {
            let inside = world.sojourn.bound().unwrap_or(5).min(5);
            world.advance(1, 1, 1, inside);
            lower += u32::from(world.sojourn.least < 5);
        }
        assert!(lower < 10_000, "lower for {lower} of 200,000 round trips");
    }

    #[test]
    fn the_bound_is_lifted_when_all_responses_are_in_time() {
        let mut world = Fixture::new();
        assert!(world.advance(5_000, 20, 20, 300).is_some());
        let mut round_trips = 0;
        while world.advance(1, 20, 0, 10).is_some() {
            round_trips += 1;
            // The estimate has to forget the late responses, and the part has to grow 64-fold.
            assert!(round_trips < 19 * 20 * 12, "a lock-out");
        }
    }

    #[test]
    fn a_pause_without_requests_changes_nothing() {
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
