//! The queue as it would be if a proxy held requests back, for one that only observes. Does not
//! contain requests.
//!
//! A backend that is overloaded answers as fast as it can, whoever holds the queue. So the backlog
//! of the shadow queue grows with each request that would be admitted, and falls with each answer.

use leeward_core::units::{Nanos, Time};

/// Weight of an interval between two answers in the mean.
const WEIGHT: f64 = 1.0 / 64.0;

/// A queue of the requests that would be admitted.
#[derive(Clone, Debug, Default)]
pub struct ShadowBacklog {
    backlog: u64,
    last_answer: Option<Time>,
    /// Mean interval between answers while requests were there, ns.
    interval_ns: f64,
}

impl ShadowBacklog {
    /// Decides about a request: whether it would be admitted under the objective. If so, it joins
    /// the backlog.
    pub fn arrive(&mut self, now: Time, objective: Nanos) -> bool {
        if self.backlog == 0 {
            // The next interval begins with this request, not with the last answer.
            self.last_answer = Some(now);
        }
        let wait = self.wait();
        // The first requests tell how fast the backend answers.
        let is_admitted = self.interval_ns == 0.0 || wait.0 as f64 + self.interval_ns <= objective.0 as f64;
        self.backlog += u64::from(is_admitted);
        is_admitted
    }

    /// Takes note of an answer, whether its request would have been admitted or not.
    pub fn answer(&mut self, now: Time) {
        if self.backlog == 0 {
            return;
        }
        self.backlog -= 1;
        if let Some(last) = self.last_answer {
            let interval = now.since(last).0 as f64;
            let weight = if self.interval_ns == 0.0 { 1.0 } else { WEIGHT };
            self.interval_ns += weight * (interval - self.interval_ns);
        }
        self.last_answer = Some(now);
    }

    /// Time that the backlog takes.
    pub fn wait(&self) -> Nanos {
        Nanos((self.backlog as f64 * self.interval_ns) as u64)
    }
}
