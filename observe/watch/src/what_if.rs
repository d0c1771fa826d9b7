//! What a bounded queue in front of the service would have refused. Pure.
//!
//! The polls drive a shadow queue: a fluid that fills with the arrivals and empties at the rate at
//! which the service responded while requests stood unread. A queue with an objective is no longer
//! than what the service does within the objective; what comes beyond is refused.

use std::time::Duration;

use serde::Serialize;

use crate::poll::Poll;

/// What a queue with an objective would have done.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct WhatIf {
    /// The objective.
    pub slo_ms: f64,
    /// Responses per second while requests stood unread: the service's capacity. None if it was
    /// never busy.
    pub capacity_per_s: Option<f64>,
    /// Requests that stood there at the beginning and would have been refused at once.
    pub refused_at_once: f64,
    /// Share of the requests that came afterwards and would have been refused.
    pub refused_share: f64,
    /// Longest wait before the service, as it was.
    pub longest_wait_ms: f64,
    /// Longest wait that the queue would have allowed.
    pub allowed_wait_ms: f64,
    /// The result in one sentence.
    pub sentence: String,
}

/// Answers what a queue with the objective `slo` would have done in the polls' time.
pub fn what_if(polls: &[Poll], slo: Duration) -> WhatIf {
    let longest = polls.iter().filter_map(|poll| poll.front.oldest_unread).map(|age| age.estimate).max();
    let longest = longest.unwrap_or_default();
    let capacity = capacity(polls);
    // What the service may have in front of it.
    let bound = capacity.unwrap_or(0.0) * slo.as_secs_f64();
    let standing = polls.first().map_or(0.0, |poll| f64::from(poll.front.unread));
    let is_late = longest > slo;
    let refused_at_once = if is_late { (standing - bound).max(0.0) } else { 0.0 };
    let mut queue = standing - refused_at_once;
    let (mut came, mut refused) = (0.0, 0.0);
    for pair in polls.windows(2) {
        let seconds = pair[1].at.saturating_sub(pair[0].at).as_secs_f64();
        let arrivals = pair[1].front.arrivals as f64;
        came += arrivals;
        queue = (queue + arrivals - capacity.unwrap_or(f64::INFINITY) * seconds).max(0.0);
        if is_late && queue > bound {
            refused += queue - bound;
            queue = bound;
        }
    }
    let refused_share = if came > 0.0 { (refused / came).min(1.0) } else { 0.0 };
    let milliseconds = |time: Duration| 1e3 * time.as_secs_f64();
    let sentence = match capacity {
        Some(_) if is_late => format!(
            "a queue with an objective of {} ms would have refused {:.0} % of the requests{}; the others would have waited at most {} ms, not {} ms",
            milliseconds(slo),
            100.0 * refused_share,
            if refused_at_once >= 1.0 {
                format!(", and {refused_at_once:.0} that stood there before")
            } else {
                String::new()
            },
            milliseconds(slo),
            milliseconds(longest).round()
        ),
        _ => format!(
            "a queue with an objective of {} ms would have refused nothing: no request waited longer than {} ms before it was read",
            milliseconds(slo),
            milliseconds(longest).round()
        ),
    };
    WhatIf {
        slo_ms: milliseconds(slo),
        capacity_per_s: capacity,
        refused_at_once,
        refused_share,
        longest_wait_ms: milliseconds(longest),
        allowed_wait_ms: milliseconds(longest.min(slo)),
        sentence,
    }
}

/// Responses per second in the intervals at whose both ends requests stood unread.
fn capacity(polls: &[Poll]) -> Option<f64> {
    let busy = polls.windows(2).filter(|pair| pair.iter().all(|poll| poll.front.unread > 0));
    let (responses, seconds) = busy.fold((0.0, 0.0), |(responses, seconds), pair| {
        let span = pair[1].at.saturating_sub(pair[0].at).as_secs_f64();
        (responses + pair[1].front.responses as f64, seconds + span)
    });
    (responses > 0.0 && seconds > 0.0).then(|| responses / seconds)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::poll::FrontPoll;
    use leeward_sockdiag::AgeBounds;

    /// 41 polls within two seconds: `arrivals` and `responses` between two, `unread` waiting for
    /// `age` milliseconds.
    fn polls(arrivals: u64, responses: u64, unread: u32, age: u64) -> Vec<Poll> {
        let age =
            AgeBounds { estimate: Duration::from_millis(age), at_least: Duration::from_millis(age), at_most: None };
        let oldest_unread = (unread > 0).then_some(age);
        let front = FrontPoll { arrivals, responses, unread, oldest_unread, ..FrontPoll::default() };
        (0..41)
            .map(|number| Poll { at: Duration::from_millis(50 * number), front: front.clone(), ..Poll::default() })
            .collect()
    }

    #[test]
    fn an_overload_is_refused_down_to_the_capacity() {
        // 1000 come and 800 are served a second, and 300 wait.
        let answer = what_if(&polls(50, 40, 300, 380), Duration::from_millis(50));
        assert!((answer.capacity_per_s.unwrap() - 800.0).abs() < 1e-6, "{answer:?}");
        assert!((answer.refused_share - 0.2).abs() < 0.03, "{answer:?}");
        assert!((answer.refused_at_once - 260.0).abs() < 1e-6, "{answer:?}");
    }

    #[test]
    fn a_queue_within_the_objective_is_left_alone() {
        for answer in [
            what_if(&polls(50, 50, 3, 4), Duration::from_millis(50)),
            what_if(&polls(50, 50, 0, 0), Duration::from_millis(50)),
            what_if(&[], Duration::from_millis(50)),
        ] {
            assert_eq!((answer.refused_share, answer.refused_at_once), (0.0, 0.0), "{answer:?}");
        }
    }
}
