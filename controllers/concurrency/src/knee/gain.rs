//! What a higher limit would gain: from time to time the limit is lifted for one level, and the
//! answers per second there are compared with those at the levels before. Does not contain the
//! limit ([`super`]).

/// Limit while it is lifted, as a multiple. Smaller steps gain less than the noise.
pub(super) const LIFT: f64 = 1.5;
/// One level in this many is lifted.
const LIFT_EVERY: u32 = 4;
/// Gain, as a share of the lift, above which the tolerance grows, and below which it shrinks: one
/// per cent more requests bring more than 0.25 or less than 0.1 per cent more answers.
const GROW_ABOVE: f64 = 0.25;
const SHRINK_BELOW: f64 = 0.1;
/// Factor by which the tolerance shrinks, and bound of the one by which it grows.
const SHRINK: f64 = 1.15;
const MOST_GROWTH: f64 = 1.5;
/// Lifts that a comparison needs: with 64 answers each, the gain has an error of 0.2.
const LIFTS: f64 = 4.0;
/// Bounds of the tolerance. The lower one is that of Envoy's filter; with the upper one, a limit of
/// one core's requests would be nine.
const LEAST: f64 = 1.25;
const MOST: f64 = 3.0;
/// Largest tolerance that the descent may leave behind: its few answers may be wrong, and with more
/// than this, a limit of one core's requests would stand where it is.
const MOST_KEPT: f64 = 1.6;

/// Sojourn that is allowed, as a multiple of the one without a queue, and the evidence for it.
#[derive(Clone, Debug)]
pub(super) struct Gain {
    tolerance: f64,
    /// Answers and time of the levels since the last lift.
    answers: f64,
    ns: f64,
    levels: u32,
    /// Lifts since the tolerance has changed, and the sum of their gains.
    lifts: f64,
    gains: f64,
}

impl Default for Gain {
    fn default() -> Self {
        Gain { tolerance: LEAST, answers: 0.0, ns: 0.0, levels: 0, lifts: 0.0, gains: 0.0 }
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

    /// Takes note of a level; returns whether the next one should be lifted.
    pub(super) fn on_level(&mut self, answers: f64, ns: f64) -> bool {
        self.answers += answers;
        self.ns += ns;
        self.levels += 1;
        self.levels >= LIFT_EVERY - 1
    }

    /// Takes note of a lifted level, and adapts the tolerance.
    pub(super) fn on_lifted_level(&mut self, answers: f64, ns: f64) {
        let ratio = answers * self.ns / (ns * self.answers).max(1.0);
        // No more answers are possible than there are more requests: what exceeds that is a change
        // of the backend.
        self.gains += (ratio.max(f64::MIN_POSITIVE).ln() / LIFT.ln()).clamp(-1.0, 1.0);
        self.lifts += 1.0;
        (self.answers, self.ns, self.levels) = (0.0, 0.0, 0);
        if self.lifts < LIFTS {
            return;
        }
        let gain = self.gains / self.lifts;
        if gain > GROW_ABOVE {
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
