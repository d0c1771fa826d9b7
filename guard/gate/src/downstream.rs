//! Services behind this one: as many requests are let in as they accept, the most important first, so that what they would refuse is
//! refused before anybody has worked for it. Requests that ask the same services have one number, so that nobody pays for other
//! requests' services. Never here: which services there are, and who asks them.

use crate::request::Class;
use leeward_core::units::{Nanos, Time};
use leeward_host::sync::{Mutex, lock};
use std::sync::OnceLock;

/// Answers of a period, and the shortest and the longest that is waited for so many.
const ENOUGH: u32 = 50;
const SHORTEST: Nanos = Nanos::from_millis(10);
const LONGEST: Nanos = Nanos::from_millis(250);
/// Time over which requests and answers are remembered: bursts of refusals are shorter.
const MEMORY: Nanos = Nanos::from_millis(500);
/// Refusals among the requests that are let in, in the end. With fewer, services behind would be idle now and then; more are wasted work.
const TARGET_REJECTED: f64 = 0.03;
/// Refusals that are looked at, at least: fewer say nothing.
const REJECTED_MIN: f64 = 3.0;
/// Growth of the share per second while no more is refused than is borne, and the time in which it doubles: of an overload that stands, the
/// first steps would have shown it.
const GROWTH: f64 = 0.1;
const DOUBLING_TIME: Nanos = Nanos::from_millis(500);
/// Largest step, over the share.
const MOST: f64 = 3.0;
/// Least share. One request passes in each of the longest periods besides, so that somebody finds out.
const LEAST: f64 = 0.002;
/// Time without news after which everything is let in, as before the first: nobody has come.
const IDLE_RESET: Nanos = Nanos::from_millis(1_000);

const CLASSES: usize = Class::COUNT as usize;

/// Accounts by number. A number's begins with its first request that has asked somebody.
#[derive(Debug)]
pub(crate) struct DownstreamGroups(Vec<OnceLock<Box<Mutex<DownstreamShare>>>>);

impl DownstreamGroups {
    pub(crate) fn new(numbers: usize) -> Self {
        DownstreamGroups((0..numbers).map(|_| OnceLock::new()).collect())
    }

    /// Whether a request may come in; `random` decides among those of a class.
    pub(crate) fn admits(&self, now: Time, (number, class): (u8, u8), random: u64) -> bool {
        let Some(account) = self.0.get(usize::from(number)).and_then(OnceLock::get) else { return true };
        // Other bits than those that decide among equally important ones.
        let chance = (random.rotate_left(17) >> 11) as f64 / (1u64 << 53) as f64;
        lock(account).admits(now, usize::from(class) % CLASSES, chance)
    }

    /// A request has asked; whether it was refused.
    pub(crate) fn note(&self, now: Time, number: u8, refused: bool) {
        let Some(account) = self.0.get(usize::from(number)) else { return };
        lock(account.get_or_init(|| Box::new(Mutex::new(DownstreamShare::new(now))))).note(now, refused);
    }
}

/// Requests of one number.
#[derive(Debug)]
struct DownstreamShare {
    /// Part of the requests that is let in.
    share: f64,
    /// Requests that came, by class; those of them that were accepted, and refused. Over the memory.
    arrivals: [f64; CLASSES],
    accepted: f64,
    refused: f64,
    /// When the share last changed, and the answers since.
    updated_at: Time,
    answers: u32,
    /// When there were last too many refusals.
    reduced_at: Time,
    /// When somebody last had an answer, and when a request was last let in.
    last_answer: Time,
    last_admitted: Time,
}

impl DownstreamShare {
    fn new(now: Time) -> Self {
        DownstreamShare {
            share: 1.0,
            arrivals: [0.0; CLASSES],
            accepted: 0.0,
            refused: 0.0,
            updated_at: now,
            answers: 0,
            reduced_at: now,
            last_answer: now,
            last_admitted: now,
        }
    }

    fn admits(&mut self, now: Time, class: usize, chance: f64) -> bool {
        if self.share < 1.0 && now.since(self.last_answer) >= IDLE_RESET {
            *self = DownstreamShare::new(now);
        }
        self.arrivals[class] += 1.0;
        let admits =
            self.share >= 1.0 || self.rank(class, chance) < self.share || now.since(self.last_admitted) >= LONGEST;
        if admits {
            self.last_admitted = now;
        }
        admits
    }

    /// A request's place among all when the most important ones stand first, from 0 to 1.
    fn rank(&self, class: usize, chance: f64) -> f64 {
        let before: f64 = self.arrivals[..class].iter().sum();
        (before + chance * self.arrivals[class]) / self.all()
    }

    fn all(&self) -> f64 {
        self.arrivals.iter().sum::<f64>().max(1.0)
    }

    fn note(&mut self, now: Time, refused: bool) {
        self.last_answer = now;
        self.answers += 1;
        *(if refused { &mut self.refused } else { &mut self.accepted }) += 1.0;
        let lasted = now.since(self.updated_at);
        if lasted >= LONGEST || lasted >= SHORTEST && self.answers >= ENOUGH {
            self.change(now, lasted);
        }
    }

    fn change(&mut self, now: Time, lasted: Nanos) {
        if self.refused >= REJECTED_MIN && self.refused > TARGET_REJECTED * (self.accepted + self.refused) {
            // As many as are accepted: how many are refused of the last ones depends on how long their queue has become.
            let share = (1.0 + TARGET_REJECTED) * self.accepted / self.all();
            self.share = share.clamp(LEAST, self.share);
            self.reduced_at = now;
        } else {
            let calm = now.since(self.reduced_at).0 as f64 / DOUBLING_TIME.0 as f64;
            let step = GROWTH * calm.exp2() * lasted.0.min(LONGEST.0) as f64 / 1e9;
            self.share = (self.share * (1.0 + step.min(MOST))).min(1.0);
        }
        let keep = (-(lasted.0 as f64) / MEMORY.0 as f64).exp();
        self.arrivals.iter_mut().for_each(|came| *came *= keep);
        self.accepted *= keep;
        self.refused *= keep;
        (self.updated_at, self.answers) = (now, 0);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    /// So many requests a millisecond apart, answered at once; `refused` tells of those let in, by their number. How many that were.
    fn ask(behind: &DownstreamGroups, from: &mut u64, requests: u64, refused: impl Fn(u64) -> bool) -> u64 {
        let (mut random, mut admitted) = (0x9E37_79B9_7F4A_7C15u64, 0);
        for _ in 0..requests {
            *from += MS;
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            if behind.admits(Time(*from), (3, 2), random) {
                admitted += 1;
                behind.note(Time(*from), 3, refused(admitted));
            }
        }
        admitted
    }

    #[test]
    fn a_service_that_refuses_nothing_changes_nothing() {
        let (behind, mut now) = (DownstreamGroups::new(256), 5_000 * MS);
        assert_eq!(ask(&behind, &mut now, 5_000, |_| false), 5_000);
        assert_eq!(ask(&behind, &mut now, 5_000, |number| number % 60 == 0), 5_000, "a few are borne");
    }

    #[test]
    fn a_service_that_refuses_all_gets_next_to_nothing_and_all_again_later() {
        let (behind, mut now) = (DownstreamGroups::new(256), 5_000 * MS);
        let admitted = ask(&behind, &mut now, 5_000, |_| true);
        assert!((10..400).contains(&admitted), "{admitted} of 5,000");
        assert!(behind.admits(Time(now), (4, 2), u64::MAX), "others pay nothing");
        let _ = ask(&behind, &mut now, 5_000, |_| false);
        assert_eq!(ask(&behind, &mut now, 1_000, |_| false), 1_000);
    }

    #[test]
    fn what_nobody_has_asked_for_is_forgotten() {
        let (behind, mut now) = (DownstreamGroups::new(256), 5_000 * MS);
        let _ = ask(&behind, &mut now, 1_000, |_| true);
        assert!(!behind.admits(Time(now), (3, 2), u64::MAX));
        now += 2_000 * MS;
        assert!(behind.admits(Time(now), (3, 2), u64::MAX));
    }

    #[test]
    fn the_most_important_come_in_first() {
        let (mut account, mut random, mut let_in) = (DownstreamShare::new(Time(0)), 7u64, [0u32; 4]);
        for number in 1..=8_000u64 {
            random = random.wrapping_mul(0x5851_F42D_4C95_7F2D).wrapping_add(1);
            let (now, class) = (Time(number * MS), number as usize % 4);
            if account.admits(now, class, (random >> 11) as f64 / (1u64 << 53) as f64) {
                let_in[class] += u32::from(number > 4_000);
                // The service behind takes every second request of all that come, and has no favourites.
                account.note(now, random >> 33 & 1_023 > (512.0 / account.share) as u64);
            }
        }
        assert!(let_in[0] > 980 && let_in[3] < 30 && let_in[1] > 600 && let_in[2] < 400, "{let_in:?}");
    }
}
