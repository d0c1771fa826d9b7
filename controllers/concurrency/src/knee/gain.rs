//! What a higher limit would gain: from time to time the limit is lifted for one level, and the
//! answers per second there are compared with those at the levels before. Does not contain the
//! limit ([`super`]).

use super::level::ENOUGH_ANSWERS;

/// Limit while it is lifted, as a multiple, and the least multiple where the tail allows no more.
/// Smaller steps gain less than the noise.
pub(super) const LIFT: f64 = 1.5;
pub(super) const LEAST_LIFT: f64 = 1.08;
/// One level in two is lifted at first. Each comparison after which the tolerance does not grow
/// halves the share, so often at most.
const MOST_CONTENT: u32 = 4;
/// Gain, as a share of the lift, above which the tolerance grows, and below which it shrinks: one
/// per cent more requests bring more than 0.25 or less than 0.1 per cent more answers.
const GROW_ABOVE: f64 = 0.25;
const SHRINK_BELOW: f64 = 0.1;
/// Factor by which the tolerance shrinks, and bound of the one by which it grows.
const SHRINK: f64 = 1.3;
const MOST_GROWTH: f64 = 1.5;
/// Lifts of weight 1 that a comparison needs: the gain has an error of 0.2 then.
const LIFTS: f64 = 4.0;
/// Bounds of the tolerance. The lower one is that of Envoy's filter; with the upper one, a limit of
/// one core's requests would be nine.
const LEAST: f64 = 1.25;
const MOST: f64 = 3.0;
/// Largest tolerance that the descent may leave behind: its few answers may be wrong, and with more
/// than this, a limit of one core's requests would stand where it is.
const MOST_KEPT: f64 = 2.0;

/// Sojourn that is allowed, as a multiple of the one without a queue, and the evidence for it.
#[derive(Clone, Debug)]
pub(super) struct Gain {
    tolerance: f64,
    /// Answers and time of the levels since the last lift.
    answers: f64,
    ns: f64,
    levels: u32,
    /// Lifts since the tolerance has changed, and the sum of their gains, both weighted by
    /// precision: 1 is that of a lift by [`LIFT`] with [`ENOUGH_ANSWERS`] on both sides.
    lifts: f64,
    gains: f64,
    /// One more than the comparisons in a row after which the tolerance did not grow.
    content: u32,
}

impl Default for Gain {
    fn default() -> Self {
        Gain { tolerance: LEAST, answers: 0.0, ns: 0.0, levels: 0, lifts: 0.0, gains: 0.0, content: 1 }
    }
}

impl Gain {
    pub(super) fn tolerance(&self) -> f64 {
        self.tolerance
    }

    /// Sets the tolerance by which a limit stands that must not fall.
    pub(super) fn set_tolerance(&mut self, tolerance: f64) {
        *self = Gain { tolerance: tolerance.clamp(LEAST, MOST_KEPT), ..Gain::default() };
    }

    /// Lowers the tolerance to this one, if it is higher.
    pub(super) fn bound_tolerance(&mut self, tolerance: f64) {
        self.tolerance = self.tolerance.min(tolerance.max(LEAST));
    }

    /// Takes note of a level; returns whether the next one should be lifted.
    pub(super) fn on_level(&mut self, answers: f64, ns: f64) -> bool {
        self.answers += answers;
        self.ns += ns;
        self.levels += 1;
        self.levels >= (1 << self.content.min(MOST_CONTENT)) - 1
    }

    /// Takes note of a level that was lifted by `factor`, and adapts the tolerance.
    pub(super) fn on_lifted_level(&mut self, factor: f64, answers: f64, ns: f64) {
        let ratio = answers * self.ns / (ns * self.answers).max(1.0);
        // No more answers are possible than there are more requests: what exceeds that is a change
        // of the backend.
        let gain = (ratio.max(f64::MIN_POSITIVE).ln() / factor.ln()).clamp(-1.0, 1.0);
        let errors = 1.0 / answers.max(1.0) + 1.0 / self.answers.max(1.0);
        let weight = (factor.ln() / LIFT.ln()).powi(2) * (2.0 / ENOUGH_ANSWERS) / errors;
        self.gains += weight * gain;
        self.lifts += weight;
        (self.answers, self.ns, self.levels) = (0.0, 0.0, 0);
        if self.lifts < LIFTS {
            return;
        }
        let gain = self.gains / self.lifts;
        self.content += 1;
        if gain > GROW_ABOVE {
            self.content = 1;
            self.tolerance = (self.tolerance * gain.exp().min(MOST_GROWTH)).min(MOST);
        } else if gain < SHRINK_BELOW {
            self.tolerance = (self.tolerance / SHRINK).max(LEAST);
        }
        (self.lifts, self.gains) = (0.0, 0.0);
    }

    /// Forgets the levels before a lift that could not be measured.
    pub(super) fn forget(&mut self) {
        (self.answers, self.ns, self.levels) = (0.0, 0.0, 0);
    }
}
