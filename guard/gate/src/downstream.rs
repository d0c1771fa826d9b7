//! Admission by the acceptance rate of downstream services. The gate admits as many requests as the
//! services accept, the most important first. It rejects requests that downstream would reject
//! before any core works for them. Requests of one group ask the same services, so each group has
//! its own share. Does not contain which services exist, and which requests ask them.

use crate::request::Class;
use leeward_core::units::{Nanos, Time};
use leeward_host::sync::{Mutex, lock};
use std::sync::OnceLock;

/// Answers after which a period may end.
const ENOUGH: u32 = 50;
const SHORTEST: Nanos = Nanos::from_millis(10);
const LONGEST: Nanos = Nanos::from_millis(250);
/// Time over which arrivals and answers are remembered; bursts of rejections are shorter.
const MEMORY: Nanos = Nanos::from_millis(500);
/// Steady share of rejections among the admitted requests.
///
/// With fewer, the downstream services would sometimes be idle; more would be wasted work.
const TARGET_REJECTED: f64 = 0.03;
/// Fewest rejections that can reduce the share.
const REJECTED_MIN: f64 = 3.0;
/// Growth of the admitted share per second; doubles after each quiet interval.
///
/// In a persistent overload, the first small steps already cause rejections.
const GROWTH: f64 = 0.1;
const DOUBLING_TIME: Nanos = Nanos::from_millis(500);
/// Largest step, relative to the share, or to what was accepted lately.
const MOST: f64 = 3.0;
/// Share to which an outage leads, and hardly any overload.
const OUTAGE: f64 = 0.01;
/// Remembered rejections below which all was accepted lately.
const FEW_REJECTED: f64 = 0.5;
/// Least share.
///
/// Besides, one request per [`LONGEST`] is admitted, so that a recovery is noticed.
const LEAST: f64 = 0.002;
/// Time without an answer after which every request is admitted again.
const IDLE_RESET: Nanos = Nanos::from_millis(1_000);

const CLASSES: usize = Class::COUNT as usize;

/// Admitted shares by group number. A share is created at the group's first downstream answer.
#[derive(Debug)]
pub(crate) struct DownstreamGroups(Vec<OnceLock<Box<Mutex<DownstreamShare>>>>);

impl DownstreamGroups {
    pub(crate) fn new(numbers: usize) -> Self {
        DownstreamGroups((0..numbers).map(|_| OnceLock::new()).collect())
    }

    /// Whether a request may be admitted; `random` decides among requests of one class.
    pub(crate) fn admits(&self, now: Time, (number, class): (u8, u8), random: u64) -> bool {
        let Some(share) = self.0.get(usize::from(number)).and_then(OnceLock::get) else { return true };
        // These bits differ from the bits that decide among equally important requests.
        let chance = (random.rotate_left(17) >> 11) as f64 / (1u64 << 53) as f64;
        lock(share).admits(now, usize::from(class) % CLASSES, chance)
    }

    /// Records that a request asked downstream, and whether downstream rejected it.
    pub(crate) fn note(&self, now: Time, number: u8, rejected: bool) {
        let Some(share) = self.0.get(usize::from(number)) else { return };
        lock(share.get_or_init(|| Box::new(Mutex::new(DownstreamShare::new(now))))).note(now, rejected);
    }
}

/// Admitted share of one group of requests.
#[derive(Debug)]
struct DownstreamShare {
    /// Part of the requests that is admitted, 0 to 1.
    share: f64,
    /// Arrivals by class, accepted requests and rejected requests, decayed over [`MEMORY`].
    arrivals: [f64; CLASSES],
    accepted: f64,
    refused: f64,
    /// When the share last changed, and the answers since then.
    updated_at: Time,
    answers: u32,
    /// When the share was last reduced for too many rejections, and whether to that of an outage.
    reduced_at: Time,
    is_after_outage: bool,
    /// When the last downstream answer came, and when a request was last admitted.
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
            is_after_outage: false,
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

    /// Rank of a request among all arrivals in order of importance, from 0 (first) to 1.
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
            // Uses the accepted count: the rejected count also depends on the length of the
            // downstream queue.
            let share = (1.0 + TARGET_REJECTED) * self.accepted / self.all();
            self.share = share.clamp(LEAST, self.share);
            self.reduced_at = now;
            self.is_after_outage = self.share <= OUTAGE;
        } else {
            let calm = now.since(self.reduced_at).0 as f64 / DOUBLING_TIME.0 as f64;
            let step = GROWTH * calm.exp2() * lasted.0.min(LONGEST.0) as f64 / 1e9;
            // After an outage small steps would take seconds. A multiple of what was accepted is no
            // herd.
            let is_accepted = self.is_after_outage && self.refused < FEW_REJECTED;
            let proven = if is_accepted { (1.0 + MOST) * self.accepted / self.all() } else { 0.0 };
            self.share = (self.share * (1.0 + step.min(MOST))).max(proven).min(1.0);
            self.is_after_outage &= self.share < 1.0;
        }
        let keep = (-(lasted.0 as f64) / MEMORY.0 as f64).exp();
        self.arrivals.iter_mut().for_each(|count| *count *= keep);
        self.accepted *= keep;
        self.refused *= keep;
        (self.updated_at, self.answers) = (now, 0);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    /// Sends `requests` requests, one per millisecond, each answered at once; returns the number of
    /// admitted requests.
    ///
    /// `refused` gets the number of an admitted request and decides whether downstream rejects it.
    fn ask(groups: &DownstreamGroups, from: &mut u64, requests: u64, refused: impl Fn(u64) -> bool) -> u64 {
        let (mut random, mut admitted) = (0x9E37_79B9_7F4A_7C15u64, 0);
        for _ in 0..requests {
            *from += MS;
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            if groups.admits(Time(*from), (3, 2), random) {
                admitted += 1;
                groups.note(Time(*from), 3, refused(admitted));
            }
        }
        admitted
    }

    #[test]
    fn a_downstream_without_rejections_has_no_effect() {
        let (groups, mut now) = (DownstreamGroups::new(256), 5_000 * MS);
        assert_eq!(ask(&groups, &mut now, 5_000, |_| false), 5_000);
        assert_eq!(ask(&groups, &mut now, 5_000, |number| number % 60 == 0), 5_000, "a few are borne");
    }

    #[test]
    fn a_downstream_that_rejects_all_gets_few_requests_until_it_recovers() {
        let (groups, mut now) = (DownstreamGroups::new(256), 5_000 * MS);
        let admitted = ask(&groups, &mut now, 5_000, |_| true);
        assert!((10..400).contains(&admitted), "{admitted} of 5,000");
        assert!(groups.admits(Time(now), (4, 2), u64::MAX), "others pay nothing");
        let _ = ask(&groups, &mut now, 2_800, |_| false);
        assert_eq!(ask(&groups, &mut now, 1_000, |_| false), 1_000);
    }

    #[test]
    fn an_unused_downstream_group_is_forgotten() {
        let (groups, mut now) = (DownstreamGroups::new(256), 5_000 * MS);
        let _ = ask(&groups, &mut now, 1_000, |_| true);
        assert!(!groups.admits(Time(now), (3, 2), u64::MAX));
        now += 2_000 * MS;
        assert!(groups.admits(Time(now), (3, 2), u64::MAX));
    }

    #[test]
    fn more_important_classes_are_admitted_first() {
        let (mut share, mut random, mut admitted) = (DownstreamShare::new(Time(0)), 7u64, [0u32; 4]);
        for number in 1..=8_000u64 {
            random = random.wrapping_mul(0x5851_F42D_4C95_7F2D).wrapping_add(1);
            let (now, class) = (Time(number * MS), number as usize % 4);
            if share.admits(now, class, (random >> 11) as f64 / (1u64 << 53) as f64) {
                admitted[class] += u32::from(number > 4_000);
                // The downstream service accepts every second of all arriving requests, in any
                // class.
                share.note(now, random >> 33 & 1_023 > (512.0 / share.share) as u64);
            }
        }
        assert!(admitted[0] > 980 && admitted[3] < 30 && admitted[1] > 600 && admitted[2] < 400, "{admitted:?}");
    }
}
