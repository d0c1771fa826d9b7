//! How long a request waits for its leaves where nobody has said: while no leaf is slow, through a pause of any of them; else as long as its
//! objective allows, and longer only where most leaves take longer than that by nature. Never here: which leaf is asked, and what an answer that is missing costs.

use crate::units::Nanos;

/// The wait before any leaf has answered, and the longest one that follows from what leaves take.
const INITIAL_TIMEOUT: Nanos = Nanos::from_secs(1);
/// Part of what is left of the objective that leaves may take, in eighths: the last one is for what the tier does with the answers.
const EIGHTHS: u64 = 7;
/// A leaf that takes so many times what most leaves take on average is late, whatever the objective says.
const SLOW_FACTOR: u64 = 4;
/// A pause that is borne of a leaf that is not slow: its machine has taken the CPU away, or it collects garbage.
const PAUSE: Nanos = Nanos::from_millis(50);
/// Answers after which the usual round trip is looked up anew.
const REFRESH_INTERVAL: u32 = 32;
/// Weight of an average's newest value: one part in so many.
const WEIGHT: u64 = 8;

/// Round trips of leaves, and the waits that follow from them.
///
/// ```
/// use leeward_core::hedging::Waits;
/// use leeward_core::units::Nanos;
///
/// let mut waits = Waits::new(None, Nanos::from_millis(4), 3);
/// (0..3).for_each(|leaf| waits.answered(leaf, Nanos::from_micros(200)));
/// assert_eq!(waits.most(Nanos::ZERO), Nanos::from_millis(50));
/// // One of them becomes slow. A request that has spent a millisecond already waits for seven eighths of the rest.
/// (0..64).for_each(|_| waits.answered(2, Nanos::from_millis(30)));
/// assert_eq!(waits.most(Nanos::from_millis(1)), Nanos::from_micros(2_625));
/// ```
#[derive(Clone, Debug)]
pub struct LeafTimeouts {
    configured: Option<Nanos>,
    objective: Nanos,
    /// Average round trip of each leaf; zero while it has not answered.
    averages: Vec<Nanos>,
    /// Round trip of most of the leaves that have answered; zero while none has.
    typical: Nanos,
    /// Whether any leaf takes longer on average than a request waits.
    is_any_slow: bool,
    answers: u32,
}

impl LeafTimeouts {
    /// For so many leaves, none of which has answered. `said`: each wait is that; else it follows from the tier's objective.
    pub fn new(said: Option<Nanos>, objective: Nanos, leaves: usize) -> Self {
        LeafTimeouts {
            configured: said,
            objective,
            averages: vec![Nanos::ZERO; leaves],
            typical: Nanos::ZERO,
            is_any_slow: false,
            answers: 0,
        }
    }

    /// A request has waited for a leaf for so long, in vain. Answers that nobody waits for any more may never be seen: so the leaf counts as twice as
    /// slow as that, unless it is known to be slower. Without this only quick answers would count.
    pub fn record_timeout(&mut self, leaf: usize, waited: Nanos) {
        let least = waited * 2;
        if self.averages.get(leaf).is_some_and(|average| *average < least) {
            self.record_response(leaf, least);
        }
    }

    /// A leaf is not there: what it took tells nothing of the others.
    pub fn forget(&mut self, leaf: usize) {
        if let Some(average) = self.averages.get_mut(leaf).filter(|average| **average > Nanos::ZERO) {
            *average = Nanos::ZERO;
            self.refresh();
        }
    }

    /// A leaf has answered after so long, in time or not.
    pub fn record_response(&mut self, leaf: usize, round_trip: Nanos) {
        let Some(average) = self.averages.get_mut(leaf).filter(|_| self.configured.is_none()) else { return };
        let is_first = *average == Nanos::ZERO;
        let before = if is_first { round_trip.0 } else { average.0 };
        *average = Nanos((before - before / WEIGHT + round_trip.0 / WEIGHT).max(1));
        self.answers += 1;
        if is_first || self.answers >= REFRESH_INTERVAL {
            self.answers = 0;
            self.refresh();
        }
    }

    fn refresh(&mut self) {
        let mut known: Vec<Nanos> = self.averages.iter().copied().filter(|average| *average > Nanos::ZERO).collect();
        // Of two the faster one: the slow one is not most of them.
        let middle = known.len().saturating_sub(1) / 2;
        self.typical = if known.is_empty() { Nanos::ZERO } else { *known.select_nth_unstable(middle).1 };
        let most = self.slow_leaf_timeout(Nanos::ZERO);
        self.is_any_slow = known.iter().any(|average| *average > most);
    }

    /// How long a request waits at most that has spent so much of its objective before it asked.
    pub fn timeout(&self, spent: Nanos) -> Nanos {
        match self.configured {
            Some(said) => said,
            None if self.typical == Nanos::ZERO => INITIAL_TIMEOUT,
            None if self.is_any_slow => self.slow_leaf_timeout(spent),
            None => self.slow_leaf_timeout(spent).max(PAUSE),
        }
    }

    /// The wait where a leaf is slow.
    fn slow_leaf_timeout(&self, spent: Nanos) -> Nanos {
        let left = self.objective.saturating_sub(spent);
        Nanos(left.0 / 8 * EIGHTHS).max((self.typical * SLOW_FACTOR).min(INITIAL_TIMEOUT))
    }

    /// How long a leaf that owes answers may say nothing before it counts as away.
    pub fn failure_timeout(&self) -> Nanos {
        if self.configured.is_some() { self.timeout(Nanos::ZERO) } else { self.timeout(Nanos::ZERO).max(PAUSE) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: fn(u64) -> Nanos = Nanos::from_millis;

    fn answered(waits: &mut LeafTimeouts, times: usize, takes: &[u64]) {
        for _ in 0..times {
            takes.iter().enumerate().for_each(|(leaf, ms)| waits.record_response(leaf, MS(*ms)));
        }
    }

    #[test]
    fn what_was_said_holds() {
        let mut waits = LeafTimeouts::new(Some(MS(50)), MS(4), 2);
        answered(&mut waits, 100, &[100, 100]);
        assert_eq!((waits.timeout(MS(3)), waits.failure_timeout()), (MS(50), MS(50)));
    }

    #[test]
    fn one_leaf_that_is_slow_is_not_waited_for() {
        let mut waits = LeafTimeouts::new(None, MS(8), 4);
        assert_eq!(waits.timeout(Nanos::ZERO), INITIAL_TIMEOUT, "nothing is known");
        answered(&mut waits, 100, &[1, 1, 1, 1]);
        assert_eq!(waits.timeout(Nanos::ZERO), PAUSE, "none is slow");
        answered(&mut waits, 100, &[1, 200, 1, 1]);
        assert_eq!((waits.timeout(Nanos::ZERO), waits.failure_timeout()), (MS(7), PAUSE));
        assert_eq!(waits.timeout(MS(9)), MS(4), "what is usual has time even when the objective is over");
        // Nor one of two.
        let mut waits = LeafTimeouts::new(None, MS(8), 2);
        answered(&mut waits, 100, &[200, 1]);
        assert_eq!(waits.timeout(Nanos::ZERO), MS(7));
    }

    #[test]
    fn leaves_that_are_slow_by_nature_are_waited_for() {
        let mut waits = LeafTimeouts::new(None, MS(1), 3);
        answered(&mut waits, 100, &[20, 20, 20]);
        let most = waits.timeout(Nanos::ZERO);
        assert!(most > MS(70) && most <= MS(80), "{most}");
        // All of them have become slower: late answers tell, and the waits follow; and back.
        answered(&mut waits, 40, &[100, 100, 100]);
        assert!(waits.timeout(Nanos::ZERO) > MS(300));
        answered(&mut waits, 100, &[1, 1, 1]);
        assert_eq!(waits.timeout(Nanos::ZERO), PAUSE);
    }

    #[test]
    fn answers_that_never_come_count() {
        // All leaves take longer than anybody waits, so that no answer is seen.
        let mut waits = LeafTimeouts::new(None, MS(1), 2);
        answered(&mut waits, 100, &[1, 1]);
        for _ in 0..20 {
            let most = waits.timeout(Nanos::ZERO);
            if most < MS(60) {
                (0..2).for_each(|leaf| waits.record_timeout(leaf, most));
            }
        }
        assert!(waits.timeout(Nanos::ZERO) >= MS(60), "they are waited for again");
        // One that answers nothing in time stays slow, whatever others have done before.
        let mut waits = LeafTimeouts::new(None, MS(8), 3);
        answered(&mut waits, 100, &[1, 1, 1]);
        for _ in 0..200 {
            answered(&mut waits, 1, &[1, 1]);
            let most = waits.timeout(Nanos::ZERO);
            waits.record_timeout(2, most);
        }
        assert_eq!(waits.timeout(Nanos::ZERO), MS(7));
        waits.forget(2);
        assert_eq!(waits.timeout(Nanos::ZERO), PAUSE, "it is away");
    }

    #[test]
    fn no_wait_feeds_itself() {
        let mut waits = LeafTimeouts::new(None, MS(1), 1);
        for _ in 0..1_000 {
            let most = waits.timeout(Nanos::ZERO);
            waits.record_timeout(0, most);
        }
        assert_eq!((waits.timeout(Nanos::ZERO), waits.failure_timeout()), (INITIAL_TIMEOUT, INITIAL_TIMEOUT));
        answered(&mut waits, 200, &[1]);
        assert_eq!(waits.timeout(Nanos::ZERO), PAUSE);
    }

    #[test]
    fn any_values_are_borne() {
        let mut waits = LeafTimeouts::new(None, Nanos::MAX, 1);
        waits.record_response(7, MS(1));
        waits.record_response(0, Nanos::MAX);
        waits.record_response(0, Nanos::ZERO);
        waits.record_timeout(0, Nanos::MAX);
        waits.forget(7);
        assert_eq!(waits.timeout(Nanos::MAX), INITIAL_TIMEOUT);
    }
}
