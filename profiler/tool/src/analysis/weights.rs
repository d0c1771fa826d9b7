//! Weights of requests: where a trace holds all slow requests but only some of the others, each of
//! those stands for several.
//!
//! Does not contain the counts that the weights follow from (`format::request_totals`).

use super::requests::Request;
use super::select::Selection;
use crate::format::request_totals::RequestTotals;
use crate::trace::Trace;

/// A time in which requests were reported in the same way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Period {
    end: u64,
    /// From this latency on, in nanoseconds, all requests are in the trace.
    threshold: u64,
    /// Requests that each of the others stands for.
    weight: u64,
}

/// Weights of the requests of a trace.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RequestWeights {
    /// In the order of time.
    periods: Vec<Period>,
    /// All requests that ended, and those of them that are in the trace, where it tells.
    total: Option<(u64, u64)>,
}

impl RequestWeights {
    /// Computes the weights of a trace's requests. Calls of functions that were selected as
    /// requests have none.
    pub fn new(trace: &Trace, selection: &Selection) -> RequestWeights {
        match selection {
            Selection::Marked => {
                let total = trace.all_requests().map(|totals| (totals.seen, totals.slow + totals.sampled));
                RequestWeights { total, ..RequestWeights::from_totals(trace.request_totals()) }
            }
            Selection::CallsOf(_) => RequestWeights::default(),
        }
    }

    fn from_totals(totals: &[RequestTotals]) -> RequestWeights {
        let mut periods: Vec<Period> = Vec::new();
        let (mut sampled, mut represented) = (0, 0);
        for now in totals {
            let all = now.seen.saturating_sub(now.slow);
            let (others, own) = (all.saturating_sub(represented), now.sampled.saturating_sub(sampled));
            let weight = (others + own / 2).checked_div(own).unwrap_or(1).max(1);
            periods.push(Period { end: now.time, threshold: now.threshold, weight });
            // Where none was sampled, those of the next period stand for these, too.
            if own > 0 {
                (sampled, represented) = (now.sampled, all);
            }
        }
        periods.sort_by_key(|period| period.end);
        RequestWeights { periods, total: None }
    }

    /// Returns how many requests this one stands for.
    pub fn weight(&self, request: &Request) -> u64 {
        self.period_of_sampled(request).map_or(1, |period| period.weight)
    }

    /// Returns whether this request is in the trace because it took long: all like it are.
    pub(crate) fn is_slow(&self, request: &Request) -> bool {
        self.period_of_sampled(request).is_none()
    }

    /// Returns how many requests ended, also those that are not in the trace, if the trace tells;
    /// else `sum`, that of the weights, which are whole numbers. 0 if the sum is.
    pub(crate) fn counted(&self, sum: u64) -> u64 {
        self.total.filter(|_| sum > 0).map_or(sum, |(seen, _)| seen)
    }

    /// Returns how many requests took less than a threshold, and none was recorded that stands for
    /// them.
    pub(crate) fn unknown(&self) -> u64 {
        let is_known = self.periods.iter().any(|period| period.weight > 1);
        // Without a threshold they may have taken long, and were lost.
        let is_known = is_known || self.periods.iter().all(|period| period.threshold == 0);
        self.total.filter(|_| !is_known).map_or(0, |(seen, recorded)| seen.saturating_sub(recorded))
    }

    /// Returns the period of a request, if it is one of so many.
    fn period_of_sampled(&self, request: &Request) -> Option<&Period> {
        let index = self.periods.partition_point(|period| period.end < request.end);
        let period = self.periods.get(index).or(self.periods.last());
        period.filter(|period| request.end.saturating_sub(request.start) < period.threshold)
    }

    /// Returns whether some requests stand for others, or there are none for those.
    pub(crate) fn are_uneven(&self) -> bool {
        self.periods.iter().any(|period| period.weight > 1) || self.unknown() > 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(end: u64, latency: u64) -> Request {
        Request {
            id: 1,
            start: end - latency,
            end,
            work: Vec::new(),
            queued: Vec::new(),
            truncated: false,
            label: 0,
            idle: 0,
            context: None,
        }
    }

    #[test]
    fn requests_below_the_threshold_stand_for_those_that_were_left_out() {
        let totals = |time, seen, slow, sampled, threshold| RequestTotals {
            time,
            seen,
            slow,
            sampled,
            threshold,
            latencies: Vec::new(),
        };
        let weights = RequestWeights::from_totals(&[totals(1000, 100, 100, 0, 0), totals(2000, 1110, 110, 50, 70)]);
        assert!(weights.are_uneven());
        let weight = |end, latency| weights.weight(&request(end, latency));
        assert_eq!([weight(900, 10), weight(1500, 10), weight(1500, 70), weight(3000, 10)], [1, 20, 1, 20]);
        assert_eq!(RequestWeights::default().weight(&request(5, 1)), 1);
        assert!(weights.is_slow(&request(1500, 70)) && !weights.is_slow(&request(1500, 69)));
    }

    #[test]
    fn no_request_is_left_without_one_that_stands_for_it() {
        let totals = |time, seen, sampled| RequestTotals { time, seen, sampled, threshold: 70, ..Default::default() };
        // Of the first 10 none was sampled: the next 3 stand for 13 and for those.
        let weights = RequestWeights::from_totals(&[totals(1, 10, 0), totals(2, 23, 3), totals(3, 63, 9)]);
        let weight = |end| weights.weight(&request(end, 1));
        assert_eq!([weight(2), weight(3)], [8, 7]);
    }
    #[test]
    fn requests_may_be_unknown_where_none_of_the_others_was_recorded() {
        let totals =
            |sampled| RequestTotals { time: 9, seen: 288, slow: 14, sampled, threshold: 70, ..Default::default() };
        let weights = |sampled: u64| RequestWeights {
            total: Some((288, 14 + sampled)),
            ..RequestWeights::from_totals(&[totals(sampled)])
        };
        assert_eq!((weights(0).unknown(), weights(0).are_uneven()), (274, true));
        assert_eq!((weights(2).unknown(), weights(2).are_uneven()), (0, true));
        assert_eq!((weights(274).unknown(), weights(274).are_uneven()), (0, false));
    }
}
