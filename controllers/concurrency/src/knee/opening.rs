//! Detection of overload while the limit doubles: more requests at the backend bring no more
//! answers, and there may be a queue. Does not contain what happens then ([`super`]).

use super::level::Level;
use crate::UNLIMITED;
use leeward_core::units::Time;

/// Limit at the beginning. It doubles with each interval in which there is no overload, and at this
/// interval, in ns, while no answer has come: without it, a fast client floods a backend that gets
/// slower with each request, and what is there cannot be taken back.
pub(super) const FIRST_LIMIT: f64 = 64.0;
const SILENT_NS: f64 = 100e6;
/// Shortest interval of a comparison, ns, and its least number of answers.
const MIN_NS: f64 = 30e6;
const MIN_ANSWERS: f64 = 15.0;
/// Growth of the number of requests from which a comparison says something.
const GROWTH: f64 = 1.5;
/// Growth of the answers, as a share of the growth of the requests, below which the requests queue.
const LEAST_GAIN: f64 = 0.15;
/// Growth of the sojourn from which there is a queue.
const SLOWER: f64 = 1.25;
/// First limit as a multiple of the requests with which the answers stopped growing.
const ROOM: f64 = 1.5;
/// Weight of a new interval in the averages.
const WEIGHT: f64 = 0.3;

/// Requests at the backend and answers per ns, as of the last time when more brought more.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Opening {
    requests: f64,
    rate: f64,
    /// Mean sojourn of the answers then, or while there were few requests, ns.
    pub(super) mean_ns: f64,
    /// Whether an answer has come. Intervals begin with it: until then there is no rate.
    pub(super) has_answers: bool,
}

/// Limit while an opening lasts, after `ns` without an answer.
pub(super) fn silent_limit(ns: f64) -> f64 {
    (FIRST_LIMIT * (ns / SILENT_NS).floor().exp2()).min(f64::from(UNLIMITED))
}

impl Opening {
    /// Whether an interval is long enough.
    pub(super) fn is_complete(level: &Level, now: Time, mean_ns: f64) -> bool {
        level.elapsed_ns(now) >= mean_ns.max(MIN_NS) && level.answers() >= MIN_ANSWERS
    }

    /// Whether answers take longer than they did: in a queue they do. Requests that hang take
    /// places, too, and bring no answers, but leave the others as quick as they were.
    pub(super) fn is_slower(&self, mean_ns: f64) -> bool {
        self.mean_ns == 0.0 || mean_ns > self.mean_ns * SLOWER
    }

    /// Whether an interval has not many more requests than the last that brought more answers.
    pub(super) fn is_current(&self, level: &Level) -> bool {
        level.mean_in_flight() < self.requests * GROWTH
    }

    /// Takes note of an interval; returns the first limit if the backend is overloaded. `mean_ns`
    /// is the mean sojourn of the latest answers; without `may_queue` there is no overload.
    pub(super) fn on_interval(&mut self, level: &Level, now: Time, mean_ns: f64, may_queue: bool) -> Option<f64> {
        let (requests, rate) = (level.mean_in_flight(), level.answers() / level.elapsed_ns(now));
        if self.rate == 0.0 {
            (self.requests, self.rate) = (requests, rate);
            if self.mean_ns == 0.0 {
                self.mean_ns = mean_ns;
            }
        } else if requests < self.requests * GROWTH {
            if rate > self.rate || requests < self.requests {
                self.requests += WEIGHT * (requests - self.requests);
                self.rate += WEIGHT * (rate - self.rate);
            }
        } else if rate / self.rate - 1.0 >= LEAST_GAIN * (requests / self.requests - 1.0) {
            (self.requests, self.rate, self.mean_ns) = (requests, rate, mean_ns);
        } else if may_queue {
            return Some(self.requests * ROOM);
        }
        None
    }
}
