//! Growth where nothing waits, under auto. The published step (Breakwater §3.2.1) is a thousandth of the sessions in credits per round
//! trip: right beside a queue, and slow where there is none. Ten clients get a credit in a hundred round trips; a pool that shrank to
//! one takes a thousand of them for a thousand clients.
//!
//! So while no request waits for a core though all credits are out, the pool grows by a part of itself. The first queue ends this: from there on
//! it is the published step.
//!
//! How large a part follows from how many requests are in the server, whatever they do there. While they are fewer than a quarter of the
//! cores the pool grows so that they become a quarter, at most to twice its size: whoever starts, or comes back to a demand a hundred
//! times as high, needs seven round trips for that and not a hundred. From there on it is a sixteenth.

use crate::algorithms::breakwater::pool::Pool;
use crate::algorithms::breakwater::samples::Totals;
use crate::units::{Nanos, Time};

/// Round trips without a queue after which the pool grows faster: what was granted has arrived by then, and would be seen.
const QUIET: u32 = 4;
/// The least part of the pool that makes a step: two round trips pass before a queue is seen, which is an eighth too much.
const LEAST: f64 = 1.0 / 16.0;
/// Part of the cores that a step may fill: two round trips pass before it is seen what a step has brought, in which others are taken.
const FILL: f64 = 0.25;
/// Part of the target that is no queue.
const NO_QUEUE: u64 = 8;

/// Round trips after a refusal in which few in the server say nothing of its room: refusals come now and then, and not in each.
const CAREFUL: u32 = 64;

/// How long no queue has been seen, and how many requests were in the server.
#[derive(Debug)]
pub(super) struct Regrowth {
    cores: f64,
    quiet: u32,
    now: Time,
    served_nanos: u64,
    inside: f64,
    /// Round trips since a request was refused.
    without_refusal: u32,
}

impl Regrowth {
    pub(super) fn new(cores: u32) -> Self {
        Regrowth {
            cores: cores.into(),
            quiet: 0,
            now: Time::ZERO,
            served_nanos: 0,
            inside: 0.0,
            without_refusal: u32::MAX,
        }
    }

    /// Notes how many requests were in the server since the last tick, on average: by Little's law what the responses stayed, over the
    /// time. Where all wait there are no responses, so those here now count by a half. `is_refusing`: requests were refused meanwhile, or
    /// may be.
    pub(super) fn note(&mut self, now: Time, totals: &Totals, is_refusing: bool) {
        self.without_refusal = if is_refusing { 0 } else { self.without_refusal.saturating_add(1) };
        let elapsed = now.since(std::mem::replace(&mut self.now, now)).0.max(1);
        let stayed = totals.served_nanos.wrapping_sub(std::mem::replace(&mut self.served_nanos, totals.served_nanos));
        self.inside = (stayed as f64 / elapsed as f64).max(totals.in_server() as f64 / 2.0);
    }

    /// Credits to add in this round trip.
    pub(super) fn step(&mut self, pool: &Pool, delay: Nanos, target: Nanos) -> i64 {
        if delay > target / NO_QUEUE {
            self.quiet = 0;
            return 0;
        }
        self.quiet = self.quiet.saturating_add(1);
        let total = pool.total();
        if self.quiet <= QUIET || pool.issued() < total {
            return 0;
        }
        // Nobody inside makes it infinite, or (without cores) no number: `clamp` and the conversion bear both.
        let fast = (self.cores * FILL / self.inside - 1.0).clamp(LEAST, 1.0);
        let part = if self.without_refusal < CAREFUL { LEAST } else { fast };
        (total as f64 * part).max(1.0) as i64
    }

    /// Something else is short.
    pub(super) fn end(&mut self) {
        self.quiet = 0;
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    const TARGET: Nanos = Nanos::from_micros(80);

    /// The steps of ten round trips, with so many requests in a server of sixteen cores, of which so many are answered in each. The last
    /// refusal was so many round trips ago.
    fn steps(inside: u64, refused_before: u64) -> Vec<i64> {
        let (pool, mut regrowth) = (Pool::new(160), Regrowth::new(16));
        pool.issue(160);
        let mut totals = Totals::default();
        for past in 0..refused_before {
            regrowth.note(Time(0), &totals, past == 0);
        }
        (1..=10)
            .map(|tick| {
                totals.served_nanos += inside * 10_000;
                regrowth.note(Time(tick * 10_000), &totals, false);
                regrowth.step(&pool, Nanos::ZERO, TARGET)
            })
            .collect()
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
    fn those_who_all_wait_fill_the_server_though_nobody_is_answered() {
        let (pool, mut regrowth) = (Pool::new(160), Regrowth::new(16));
        pool.issue(160);
        let totals = Totals { received: 40, ..Totals::default() };
        let mut grown = 0;
        for tick in 1..=5 {
            regrowth.note(Time(tick * 10_000), &totals, false);
            grown = regrowth.step(&pool, Nanos::ZERO, TARGET);
        }
        assert_eq!(grown, 10);
    }

    #[test]
    fn a_queue_or_credits_left_over_end_it() {
        let (pool, mut regrowth) = (Pool::new(160), Regrowth::new(16));
        pool.issue(160);
        let mut step = |pool: &Pool, delay: Nanos| (0..5).map(|_| regrowth.step(pool, delay, TARGET)).max();
        assert_eq!(step(&pool, Nanos::ZERO), Some(160));
        assert_eq!(step(&pool, TARGET), Some(0));
        assert_eq!(step(&pool, Nanos::ZERO), Some(160));
        pool.issue(-1);
        assert_eq!(step(&pool, Nanos::ZERO), Some(0));
    }
}
