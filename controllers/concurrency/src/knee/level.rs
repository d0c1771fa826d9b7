//! Measurement of one level: what the backend does while a limit stands. Does not contain the
//! choice of the next level ([`super`]).

use crate::{Response, TICK, Tick};
use leeward_core::units::{Nanos, Time};

/// Answers below which a mean is noise: 64 of exponential times have an error of an eighth.
pub(super) const ENOUGH_ANSWERS: f64 = 64.0;
/// Answers that do for a dip if they vary little.
const REGULAR_ANSWERS: f64 = 16.0;
/// Answers that must do after [`MAX_NS`], for services with few requests per second.
const FEW_ANSWERS: f64 = 8.0;
/// Shortest and longest measurement, ns: three ticks, and a time in which a person sees no change.
const MIN_NS: f64 = 30e6;
const MAX_NS: f64 = 1e9;

/// A level and its measurement.
#[derive(Clone, Debug)]
pub(super) struct Level {
    /// Time of the change of the limit.
    changed: Time,
    /// Beginning of the measurement, once the backend has no more requests than the limit allows.
    begun: Time,
    is_drained: bool,
    /// Time before which the backend has not taken up a higher limit.
    settles: Time,
    /// Answers to requests that were sent since the beginning, with the sums of their times, ns,
    /// and of the squares of these.
    own_answers: f64,
    own_sum: f64,
    own_squares: f64,
    /// Those of them that are late.
    own_late: f64,
    /// All answers since the beginning.
    answers: f64,
    /// Answers in a turnover: as many as there are places. And the answers up to the end of the
    /// last whole turnover, with its time.
    turnover: f64,
    turned: (f64, Time),
    ticks: f64,
    in_flight_sum: f64,
    is_saturated: bool,
    was_full: bool,
    /// Time of the last answer.
    answered: Time,
}

impl Level {
    /// Begins a level: its measurement begins when the requests of a higher level have left.
    pub(super) fn begin(now: Time) -> Self {
        Level { is_drained: false, ..Level::begin_at_once(now) }
    }

    /// Begins a level with a higher limit: its measurement begins after `settle_ns`.
    pub(super) fn begin_lifted(now: Time, settle_ns: f64) -> Self {
        Level { settles: Time(now.0.saturating_add(settle_ns as u64)), ..Level::begin(now) }
    }

    /// Begins a level and its measurement.
    pub(super) fn begin_at_once(now: Time) -> Self {
        Level {
            changed: now,
            begun: now,
            is_drained: true,
            settles: Time::ZERO,
            own_answers: 0.0,
            own_sum: 0.0,
            own_squares: 0.0,
            own_late: 0.0,
            answers: 0.0,
            turnover: f64::INFINITY,
            turned: (0.0, now),
            ticks: 0.0,
            in_flight_sum: 0.0,
            is_saturated: true,
            was_full: false,
            answered: now,
        }
    }

    /// Takes note of an answer; returns whether its request was sent since the beginning: an answer
    /// counts for the level under which its request was sent.
    pub(super) fn on_response(&mut self, response: &Response, is_late: bool) -> bool {
        self.answers += 1.0;
        self.answered = response.now;
        if self.answers >= self.turned.0 + self.turnover {
            self.turned = (self.answers, response.now);
        }
        let is_own = self.is_drained && response.dispatched >= self.begun;
        if is_own {
            self.own_answers += 1.0;
            self.own_late += f64::from(u8::from(is_late));
            let sojourn_ns = response.sojourn().0 as f64;
            self.own_sum += sojourn_ns;
            self.own_squares += sojourn_ns * sojourn_ns;
        }
        is_own
    }

    pub(super) fn on_dispatch(&mut self, in_flight: u32, limit: u32) {
        self.was_full |= in_flight >= limit;
    }

    /// Takes note of a request that was at the backend for so long and was no load: it does not
    /// count for Little's law.
    pub(super) fn on_hang(&mut self, now: Time, waited: Nanos) {
        if self.is_drained {
            let counted = now.since(self.begun).min(waited);
            self.in_flight_sum = (self.in_flight_sum - counted.0 as f64 / TICK.0 as f64).max(0.0);
        }
    }

    pub(super) fn on_tick(&mut self, tick: &Tick, limit: u32) {
        if !self.is_drained {
            if tick.in_flight <= limit && tick.now >= self.settles {
                let turnover = f64::from(limit.max(1));
                *self = Level { changed: self.changed, turnover, ..Level::begin_at_once(tick.now) };
            }
            return;
        }
        self.ticks += 1.0;
        self.in_flight_sum += f64::from(tick.in_flight);
        self.is_saturated &= !tick.has_starved;
    }

    /// Whether the mean sojourn can be used. `mean_ns` is the sojourn as far as it is known: the
    /// first answers of a level are those of short requests.
    pub(super) fn is_complete(&self, now: Time, mean_ns: f64) -> bool {
        let elapsed = self.elapsed_ns(now);
        self.is_drained
            && elapsed >= (2.0 * mean_ns).clamp(MIN_NS, MAX_NS)
            && (self.own_answers >= ENOUGH_ANSWERS || (elapsed >= MAX_NS && self.own_answers >= FEW_ANSWERS))
    }

    /// Whether the mean sojourn can be used, or few answers vary so little that their mean is as
    /// precise as that of enough exponential times. A dip then ends before the queue that it causes
    /// costs requests.
    pub(super) fn is_dip_complete(&self, now: Time, mean_ns: f64) -> bool {
        let mean_square = (self.own_sum / self.own_answers.max(1.0)).powi(2);
        let variance = self.own_squares / self.own_answers.max(1.0) - mean_square;
        let is_regular =
            self.own_answers >= REGULAR_ANSWERS && variance * ENOUGH_ANSWERS <= self.own_answers * mean_square;
        self.is_complete(now, mean_ns) || (is_regular && self.elapsed_ns(now) >= MIN_NS)
    }

    /// Whether the requests of a higher level have left.
    pub(super) fn is_drained(&self) -> bool {
        self.is_drained
    }

    /// Whether the mean sojourn is precise enough for a decision that stands: twice the answers.
    pub(super) fn is_precise(&self, now: Time) -> bool {
        self.own_answers >= 2.0 * ENOUGH_ANSWERS || self.elapsed_ns(now) >= MAX_NS
    }

    /// Whether every place at the backend was taken all the time: only then did the limit bind.
    pub(super) fn is_saturated(&self) -> bool {
        self.is_saturated
    }

    /// Whether a request has taken the last place.
    pub(super) fn was_full(&self) -> bool {
        self.was_full
    }

    /// Time without an answer.
    pub(super) fn silence_ns(&self, now: Time) -> f64 {
        now.since(self.answered).0 as f64
    }

    /// Time since the change of the limit.
    pub(super) fn length_ns(&self, now: Time) -> f64 {
        now.since(self.changed).0 as f64
    }

    /// Time since the beginning of the measurement.
    pub(super) fn elapsed_ns(&self, now: Time) -> f64 {
        now.since(self.begun).0 as f64
    }

    /// Answers since the beginning.
    pub(super) fn answers(&self) -> f64 {
        self.answers
    }

    /// Share of its answers that are late, and the number of these.
    pub(super) fn late_share(&self) -> (f64, f64) {
        (self.own_late / self.own_answers.max(1.0), self.own_answers)
    }

    /// Mean number of requests at the backend.
    pub(super) fn mean_in_flight(&self) -> f64 {
        self.in_flight_sum / self.ticks.max(1.0)
    }

    /// Mean sojourn at this level, ns: the larger of the mean of its answers and of Little's law.
    /// The answers alone would be those of requests that a queue inside the backend lets pass.
    pub(super) fn sojourn_ns(&self, now: Time) -> f64 {
        (self.own_sum / self.own_answers.max(1.0)).max(self.littles_sojourn_ns(now))
    }

    /// Mean sojourn by Little's law, ns. It sees requests that get no answer, too.
    pub(super) fn littles_sojourn_ns(&self, now: Time) -> f64 {
        let (answers, ns) = self.throughput(now);
        self.mean_in_flight() * ns / answers.max(1.0)
    }

    /// Answers, and the time that they have taken, ns. Requests that begin together end together,
    /// so both are those of whole turnovers, unless no further answers come.
    pub(super) fn throughput(&self, now: Time) -> (f64, f64) {
        let (answers, turned) = self.turned;
        let turned_ns = self.elapsed_ns(turned);
        let elapsed_ns = self.elapsed_ns(now);
        if elapsed_ns <= 2.0 * turned_ns { (answers, turned_ns) } else { (self.answers, elapsed_ns) }
    }
}
