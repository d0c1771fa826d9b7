//! Leeward's law: the number in flight from which more requests only queue at the backend. It needs
//! the objective and nothing else.
//!
//! With *R* the mean sojourn at the present limit *L*, and *R₀* the one with a quarter of *L*:
//!
//! ```text
//! L ← min(clamp(τ · R₀ / R, 0.5, 2) · L + √L,  L · max(0.8 · objective / tail, 0.5))
//! ```
//!
//! 1. *Opening*: the limit begins at 64 and doubles until more requests in flight bring no more
//!    answers, and these take longer or requests wait; or until the answers are nearly late. A
//!    smaller first number would cost seconds where the best one is large; without any, a flood
//!    could not be taken back.
//! 2. *Descent*: the limit falls by halves as long as the sojourn falls with it, or is late. The
//!    queue at the backend is gone when it does not.
//! 3. *Tracking*: the equation above, as in Envoy's filter (`super::gradient`), but by the mean. A
//!    mean sees queues that a median does not, such as a lock before a third of the requests. √L is
//!    the queue that keeps the backend busy between two answers.
//! 4. *Dip*: from time to time the limit falls to a quarter until R₀ is measured. Dips take 1/200
//!    of the time, and come sooner when the limit has moved far from the one of the last dip: at
//!    once when it has fallen to that dip's, for then R₀ may hold a queue.
//!
//! 5. *Lift*: one level in four has half as many requests again. If these bring more answers, the
//!    tolerance τ grows, else it shrinks to the 1.25 of Envoy's filter: an event loop that reads
//!    its sockets late has a long sojourn, and answers more for it.
//!
//! A level is measured when the requests of a higher one have left. A level in which the queue of
//! the proxy was empty at times does not tell R, for the limit did not always bind. But bursts must
//! not stay at a limit that was right for another time: where it has bound at times and the answers
//! were quick, it grows by √L (decision 110). The tail is the larger of the
//! 95th percentile without what is late in a dip, too (decision 121), the sojourn by Little's law
//! (it sees requests without an answer) and the age of the oldest unread byte, where that is known.
//! When that age is late, the limit falls by half at once, and again when no more requests than it
//! allows are at the backend.
//!
//! - `level`: the measurement of one level. `gain`: lifts, and the tolerance.
//! - `opening`: the first limit.

mod gain;
mod level;
mod opening;

use crate::policy::LimitPolicy;
use crate::sojourn::SojournWindow;
use crate::{ConcurrencyLimit, LimitEnvironment, Outcome, Response, Tick, UNLIMITED};
use gain::{Gain, LEAST_LIFT, LIFT};
use leeward_core::units::{Nanos, Time};
use level::Level;
use opening::{FIRST_LIMIT, Opening, silent_limit};

/// Entry of the registry.
pub const POLICY: LimitPolicy = LimitPolicy {
    name: "knee",
    summary: "the number from which more only queue at the backend, learnt by short dips",
    source: "Leeward",
    params: &[],
    build: |_, environment| Box::new(Knee::new(environment)),
};

/// Share of the objective that the tail of the sojourn may take. The rest is for the queue of the
/// proxy: without any wait there, the backend idles between two requests.
const TAIL_SHARE: f64 = 0.8;
/// Bounds of the factor per step; as in Envoy's filter.
const MIN_FACTOR: f64 = 0.5;
const MAX_FACTOR: f64 = 2.0;
/// Share of the limit that a dip keeps. With a half, a limit of 7 could hold a queue at one core
/// for ever: half of it would hold one, too. With a quarter this ends at 2.
const DIP: f64 = 0.25;
/// A dip in which the sojourn is longer by this factor than before it teaches nothing: fewer
/// requests at the backend cannot be slower, so it has slowed down or stopped meanwhile.
const CONTRARY: f64 = 2.0;
/// Time between dips as a multiple of a dip: dips cost at most 0.4 % of the answers.
const DIP_INTERVAL: f64 = 200.0;
/// The same when the limit is less than at the last dip by the factor [`FAR`], and its bound in ns:
/// after a dip that took seconds, a wrong R₀ must not stand for minutes.
const EARLY_DIP_INTERVAL: f64 = 20.0;
const MAX_EARLY_DIP_INTERVAL_NS: f64 = 1e9;
/// The same when it is more by that factor: R₀ is too low then, or of a slower time.
const LATE_DIP_INTERVAL: f64 = 20.0;
const FAR: f64 = 2.0;
/// The descent ends where half the limit has more than this share of the sojourn. With a queue it
/// would have a half, without one all; with this share it has three quarters of the answers.
const UNQUEUED: f64 = 0.60;
/// Requests in flight that are no overload, however few answers they bring.
const FEW: u32 = 4;
/// Share of the limit in flight below which the limit does not bind.
const IDLE: f64 = 0.5;
/// Time that is allowed over the tail, from which on answers are so quick that more requests at the
/// backend do no harm.
const QUICK: f64 = 2.0;
/// Weight of an answer in the running mean of the sojourn: the last 20 answers.
const WEIGHT: f64 = 0.05;

/// Latest answers of which the tail is taken.
const TAIL: usize = 100;
/// Share of the answers that may be late.
const LATE: f64 = 0.05;
/// Shares of answers that are late without a queue: the least that is more than chance, and the one
/// from which on the tail says nothing.
const LEAST_LATE: f64 = 0.05;
const MOST_LATE: f64 = 0.9;
/// Objectives from which on answers are so late that they are of another kind than the quick ones.
const VERY_LATE: f64 = 3.0;
/// Longest time that a dip waits for late answers, ns.
const LONGEST_DIP_NS: f64 = 1e9;

#[derive(Clone, Copy, Debug, PartialEq)]
enum Phase {
    /// The limit doubles.
    Open(Opening),
    /// The limit falls by halves.
    Descent {
        /// The limit before, and its mean sojourn.
        former: Option<(f64, f64)>,
    },
    /// The limit follows the sojourn.
    Tracking,
    /// The limit is low, to measure the sojourn without a queue.
    Dip {
        /// The mean sojourn at the limit before.
        former_ns: f64,
    },
}

/// The limit.
#[derive(Clone, Debug)]
pub struct Knee {
    objective_ns: f64,
    phase: Phase,
    limit: f64,
    level: Level,
    /// Running mean of the sojourn, ns; 0 before the first answer.
    mean_ns: f64,
    tail: SojournWindow<TAIL>,
    /// R₀.
    baseline_ns: f64,
    /// Limit at the last dip, to which it returned.
    dip_limit: f64,
    dip_end: Time,
    dip_length_ns: f64,
    /// Share of the answers that are late without a queue: a lower limit would cost answers and
    /// help nobody.
    late_share: f64,
    /// Least length of a dip, ns: it must see late answers, if there are any.
    least_ns: f64,
    /// Sojourn that is allowed, as a multiple of R₀.
    gain: Gain,
    /// Sojourn that must be allowed at the end of the descent, ns.
    kept_ns: Option<f64>,
    /// The limit, while it is lifted.
    unlifted: Option<f64>,
    /// Whether the level before was one of bursts that the limit held back.
    was_burst: bool,
}

impl Knee {
    /// Creates the limit; it uses no random numbers.
    pub fn new(environment: &LimitEnvironment) -> Self {
        Knee {
            objective_ns: environment.objective.0 as f64,
            phase: Phase::Open(Opening::default()),
            limit: FIRST_LIMIT,
            level: Level::begin_at_once(Time::ZERO),
            mean_ns: 0.0,
            tail: SojournWindow::default(),
            baseline_ns: 0.0,
            dip_limit: 0.0,
            dip_end: Time::ZERO,
            dip_length_ns: 0.0,
            late_share: 0.0,
            least_ns: 0.0,
            gain: Gain::default(),
            kept_ns: None,
            unlifted: None,
            was_burst: false,
        }
    }

    /// Begins a level; `limit` is clamped to what a limit may be.
    fn begin_level(&mut self, now: Time, limit: f64) {
        self.limit = limit.clamp(1.0, f64::from(UNLIMITED));
        self.level = Level::begin(now);
    }

    /// Doubles the limit, or ends the phase when the backend is overloaded.
    fn open(&mut self, mut opening: Opening, tick: &Tick) {
        if tick.in_flight <= FEW && tick.oldest_unread.is_none() {
            opening.has_answers = false;
            opening.mean_ns = self.mean_ns;
            self.limit = FIRST_LIMIT;
            self.phase = Phase::Open(opening);
            self.level = Level::begin_at_once(tick.now);
            return;
        }
        let longest_ns = TAIL_SHARE * self.objective_ns;
        let is_unread = unread_ns(tick) > longest_ns;
        // Where no request waits for a place, and answers are as quick as ever, there is no queue.
        // What is at the backend without an answer hangs.
        let is_quiet = self.level.silence_ns(tick.now) > longest_ns;
        let may_queue = tick.queued > 0 || is_quiet || self.level.answers() == 0.0 || opening.is_slower(self.mean_ns);
        // So long without enough answers is late, too.
        let is_silent = may_queue && self.level.elapsed_ns(tick.now) > longest_ns;
        if !is_unread && !is_silent && !opening.has_answers && self.level.answers() > 0.0 {
            opening.has_answers = true;
            self.phase = Phase::Open(opening);
            self.level = Level::begin_at_once(tick.now);
            return;
        }
        if !opening.has_answers {
            self.limit = self.limit.max(silent_limit(self.level.elapsed_ns(tick.now)));
        }
        if !is_unread && !is_silent && !Opening::is_complete(&self.level, tick.now, self.mean_ns) {
            return;
        }
        let in_flight = f64::from(tick.in_flight);
        let little = in_flight * self.level.elapsed_ns(tick.now) / self.level.answers().max(1.0);
        let sojourn = if may_queue { little } else { self.mean_ns };
        let overloaded = opening.on_interval(&self.level, tick.now, self.mean_ns, may_queue);
        let first = if sojourn.max(self.percentile_ns()).max(unread_ns(tick)) > longest_ns {
            Some(in_flight / 2.0)
        } else {
            overloaded
        };
        match first {
            None => {
                // What hangs is no reason for more requests.
                if may_queue || opening.is_current(&self.level) {
                    self.limit = (2.0 * self.level.mean_in_flight()).clamp(FIRST_LIMIT, f64::from(UNLIMITED));
                }
                self.phase = Phase::Open(opening);
                self.level = Level::begin_at_once(tick.now);
            }
            Some(limit) => {
                self.phase = Phase::Descent { former: None };
                self.begin_level(tick.now, limit.max(2.0));
            }
        }
    }

    /// Falls by half, or ends the descent where the sojourn does not fall with the limit.
    fn descend(&mut self, former: Option<(f64, f64)>, now: Time) {
        let sojourn_ns = self.level.sojourn_ns(now);
        // Where some requests take long whatever waits, and others are quick, the mean says nothing
        // of lateness.
        let is_mixed = (LEAST_LATE..MOST_LATE).contains(&self.level.late_share().0);
        let limit = match former {
            Some((limit, former_ns))
                if sojourn_ns > UNQUEUED * former_ns && (is_mixed || !self.is_late(sojourn_ns)) =>
            {
                self.kept_ns = Some(former_ns);
                limit
            }
            _ if self.limit <= 1.0 => 1.0,
            // The load has gone, and the queue with it.
            _ if self.level.mean_in_flight() < self.limit * IDLE => self.limit,
            _ => {
                self.phase = Phase::Descent { former: Some((self.limit, sojourn_ns)) };
                return self.begin_level(now, (self.limit / 2.0).floor());
            }
        };
        self.phase = Phase::Tracking;
        if is_mixed {
            self.learn_late_share();
        }
        self.baseline_ns = sojourn_ns;
        self.dip_limit = limit;
        self.dip_end = now;
        self.dip_length_ns = 0.0;
        self.begin_level(now, limit);
    }

    /// Takes the share of the late answers of this level as the one without a queue.
    fn learn_late_share(&mut self) {
        let (share, answers) = self.level.late_share();
        let error = (share * (1.0 - share) * (1.0 / answers.max(1.0) + 1.0 / TAIL as f64)).sqrt();
        self.late_share = if share > LEAST_LATE { share + 2.0 * error } else { 0.0 };
    }

    /// Whether a time leaves too little of the objective for the queue of the proxy.
    fn is_late(&self, sojourn_ns: f64) -> bool {
        sojourn_ns > TAIL_SHARE * self.objective_ns
    }

    /// Follows the sojourn, and begins a dip when it is due.
    fn track(&mut self, tick: &Tick) {
        let now = tick.now;
        let was_burst = std::mem::take(&mut self.was_burst);
        let (answers, elapsed_ns) = self.level.throughput(now);
        if let Some(limit) = self.unlifted.take() {
            if self.level.is_saturated() {
                self.gain.on_lifted_level(self.limit / limit, answers, elapsed_ns);
            } else {
                self.gain.forget();
            }
            return self.begin_level(now, limit);
        }
        let sojourn_ns = self.level.sojourn_ns(now);
        let unqueued = self.baseline_ns / sojourn_ns.max(1.0);
        let bound = if self.late_share >= MOST_LATE {
            f64::INFINITY
        } else {
            (TAIL_SHARE * self.objective_ns / self.tail_ns(tick).max(1.0)).max(MIN_FACTOR)
        };
        if !self.level.is_saturated() {
            let is_idle = self.level.mean_in_flight() < self.limit * IDLE;
            let is_short = bound.is_finite() && bound >= QUICK;
            let is_quick = is_short || sojourn_ns <= self.gain.tolerance() * self.baseline_ns;
            // The requests of a burst have waited for places, those at the backend have not. Once
            // is not enough: so ends every overload.
            let is_burst = is_idle && is_quick && self.level.was_full();
            self.was_burst = is_burst;
            let next = match bound {
                bound if bound < 1.0 => self.limit * bound,
                _ if is_burst && was_burst => self.limit + self.limit.sqrt(),
                _ => self.limit,
            };
            if is_idle && bound <= MIN_FACTOR {
                // What was so late belongs to the former limit, and with few requests per second it
                // would be among the latest ones for many levels.
                self.tail.clear();
            }
            return self.begin_level(now, next);
        }
        let factor = (self.gain.tolerance() * unqueued).clamp(MIN_FACTOR, MAX_FACTOR);
        let next = factor * self.limit + self.limit.sqrt();
        if bound < 1.0 {
            // A tolerance that the tail does not allow would raise the limit as soon as the tail is
            // a little shorter.
            self.gain.bound_tolerance(sojourn_ns / self.baseline_ns.max(1.0) * (1.0 - 1.0 / self.limit.sqrt()));
        }
        self.begin_level(now, next.min(self.limit * bound));
        let interval_ns = if self.limit * FAR < self.dip_limit {
            (self.dip_length_ns * EARLY_DIP_INTERVAL).min(MAX_EARLY_DIP_INTERVAL_NS)
        } else if self.limit > self.dip_limit * FAR {
            self.dip_length_ns * LATE_DIP_INTERVAL
        } else {
            self.dip_length_ns * DIP_INTERVAL
        };
        // R₀ of this number or a higher one says nothing of a queue at this one.
        let is_below = self.limit <= self.dip_limit * DIP;
        if is_below || now.since(self.dip_end).0 as f64 > interval_ns {
            self.dip_limit = self.limit;
            self.phase = Phase::Dip { former_ns: sojourn_ns };
            self.least_ns = self.late_tail_ns();
            self.tail.clear();
            self.gain.forget();
            self.begin_level(now, (self.limit * DIP).round());
        } else if self.gain.on_level(answers, elapsed_ns) && bound > LEAST_LIFT {
            self.unlifted = Some(self.limit);
            self.limit = (self.limit * bound.min(LIFT)).max(self.limit + 1.0);
            self.level = Level::begin_lifted(now, self.mean_ns);
        }
    }

    /// Takes the sojourn of the dip as the one without a queue, and returns to the limit before.
    fn end_dip(&mut self, former_ns: f64, tick: &Tick) {
        let now = tick.now;
        let sojourn_ns = self.level.sojourn_ns(now);
        if sojourn_ns > CONTRARY * former_ns {
            self.leave_dip(now);
            // The next level ends with a dip.
            self.dip_limit = f64::INFINITY;
            return;
        }
        self.learn_late_share();
        self.baseline_ns = sojourn_ns;
        if let Some(kept_ns) = self.kept_ns.take() {
            // The tolerance with which the law stands where the descent has ended.
            let rest = 1.0 - 1.0 / self.dip_limit.max(1.0).sqrt();
            self.gain.set_tolerance(rest * kept_ns / self.baseline_ns.max(1.0));
        }
        self.dip_length_ns = self.level.length_ns(now);
        self.leave_dip(now);
    }

    fn leave_dip(&mut self, now: Time) {
        self.dip_end = now;
        self.phase = Phase::Tracking;
        self.begin_level(now, self.dip_limit);
    }

    /// Whether the limit binds and a request has been unread for so long that no answers need be
    /// awaited. A backend that has stopped lowers the limit once, for its requests never leave.
    fn is_unread(&self, tick: &Tick) -> bool {
        matches!(self.phase, Phase::Descent { .. } | Phase::Tracking)
            && self.late_share < MOST_LATE
            && self.level.is_drained()
            && f64::from(tick.in_flight) >= self.limit * IDLE
            && self.is_late(unread_ns(tick))
    }

    /// The 95th percentile of the latest answers that are not late without a queue, ns.
    fn percentile_ns(&mut self) -> f64 {
        self.tail.quantile((1.0 - LATE) * (1.0 - self.late_share).max(0.0)).0 as f64
    }

    /// Time that a dip needs to see late answers beside quick ones, ns: else the first ones of it
    /// are all quick. Where all are late, or none, it needs none.
    fn late_tail_ns(&mut self) -> f64 {
        let [quick_ns, tail_ns] = [LATE, 1.0 - LATE].map(|share| self.tail.quantile(share).0 as f64);
        let is_mixed = tail_ns > VERY_LATE * self.objective_ns && !self.is_late(quick_ns);
        if is_mixed { tail_ns.min(LONGEST_DIP_NS) } else { 0.0 }
    }

    /// Time by which nearly all answers come, ns.
    fn tail_ns(&mut self, tick: &Tick) -> f64 {
        let little_ns = self.level.littles_sojourn_ns(tick.now);
        let queued_ns = if self.late_share > 0.0 { little_ns - 2.0 * self.baseline_ns } else { little_ns };
        self.percentile_ns().max(queued_ns).max(unread_ns(tick))
    }
}

fn unread_ns(tick: &Tick) -> f64 {
    tick.oldest_unread.unwrap_or(Nanos::ZERO).0 as f64
}

impl ConcurrencyLimit for Knee {
    fn set_objective(&mut self, objective: Nanos) {
        self.objective_ns = objective.0 as f64;
    }

    fn on_dispatch(&mut self, _: Time, in_flight: u32) {
        self.level.on_dispatch(in_flight, self.limit());
    }

    fn on_response(&mut self, response: &Response) {
        let sojourn_ns = response.sojourn().0 as f64;
        // A failure in no time says nothing of the queue; one that is late says that it is long.
        if response.outcome == Outcome::Failed && sojourn_ns < self.objective_ns {
            return;
        }
        let weight = if self.mean_ns == 0.0 { 1.0 } else { WEIGHT };
        self.mean_ns += weight * (sojourn_ns - self.mean_ns);
        let is_own = self.level.on_response(response, self.is_late(sojourn_ns));
        // Whether a dip is late is told by its own answers.
        if is_own || !matches!(self.phase, Phase::Dip { .. }) {
            self.tail.push(response.sojourn());
        }
    }

    fn on_hang(&mut self, now: Time, waited: Nanos) {
        self.level.on_hang(now, waited);
    }

    fn on_tick(&mut self, tick: &Tick) {
        self.level.on_tick(tick, self.limit());
        if self.is_unread(tick) {
            let limit = self.unlifted.take().unwrap_or(self.limit);
            self.was_burst = false;
            return self.begin_level(tick.now, limit * MIN_FACTOR);
        }
        match self.phase {
            Phase::Open(opening) => self.open(opening, tick),
            Phase::Dip { .. } if !self.level.is_saturated() => self.leave_dip(tick.now),
            Phase::Dip { former_ns }
                if self.level.elapsed_ns(tick.now) >= self.least_ns
                    && self.level.is_dip_complete(tick.now, self.mean_ns) =>
            {
                self.end_dip(former_ns, tick);
            }
            _ if !self.level.is_complete(tick.now, self.mean_ns) => {}
            Phase::Descent { .. } if !self.level.is_precise(tick.now) => {}
            Phase::Descent { former } => self.descend(former, tick.now),
            Phase::Tracking => self.track(tick),
            Phase::Dip { .. } => {}
        }
    }

    fn limit(&self) -> u32 {
        self.limit as u32
    }

    fn steady_limit(&self) -> u32 {
        self.unlifted.unwrap_or(self.limit) as u32
    }
}
