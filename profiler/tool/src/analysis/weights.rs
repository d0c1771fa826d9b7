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
pub(crate) struct RequestWeights {
    /// In the order of time.
    periods: Vec<Period>,
}

impl RequestWeights {
    /// Computes the weights of a trace's requests. Calls of functions that were selected as
    /// requests have none.
    pub(crate) fn new(trace: &Trace, selection: &Selection) -> RequestWeights {
        match selection {
            Selection::Marked => RequestWeights::from_totals(trace.request_totals()),
            Selection::CallsOf(_) => RequestWeights::default(),
        }
    }

    fn from_totals(totals: &[RequestTotals]) -> RequestWeights {
        let mut before = &RequestTotals::default();
        let mut periods: Vec<Period> = Vec::new();
        for now in totals {
            let sampled = now.sampled.saturating_sub(before.sampled);
            let others = now.seen.saturating_sub(now.slow).saturating_sub(before.seen.saturating_sub(before.slow));
            let weight = (others + sampled / 2).checked_div(sampled).unwrap_or(1).max(1);
            periods.push(Period { end: now.time, threshold: now.threshold, weight });
            before = now;
        }
        periods.sort_by_key(|period| period.end);
        RequestWeights { periods }
    }

    /// Returns how many requests this one stands for.
    pub(crate) fn weight(&self, request: &Request) -> u64 {
        let index = self.periods.partition_point(|period| period.end < request.end);
        let period = self.periods.get(index).or(self.periods.last());
        let is_sampled = |period: &&Period| request.end.saturating_sub(request.start) < period.threshold;
        period.filter(is_sampled).map_or(1, |period| period.weight)
    }

    /// Returns whether some requests stand for others.
    pub(crate) fn are_uneven(&self) -> bool {
        self.periods.iter().any(|period| period.weight > 1)
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
    }
}
