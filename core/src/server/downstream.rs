//! Capacity of the downstream servers, as reported to the controller. Does not contain the
//! reservation of credits there, which is the plant's task.

use crate::units::Priority;

/// Credits at the narrowest of a server's downstream servers.
///
/// ```
/// use leeward_core::server::Downstream;
///
/// // Two leaves: every request calls the first once, every second request calls the other.
/// let narrowest = Downstream::bottleneck([Downstream::new(30, 1.0), Downstream::new(20, 0.5)]);
/// assert_eq!(narrowest.max_requests(), 30.0);
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct Downstream {
    /// W: credits that this server holds there, the sum of its windows.
    pub credits: u64,
    /// f: mean calls there per request of this server, 0 or more. NaN and negative values mean no
    /// limit, as 0 does.
    pub calls_per_request: f64,
    /// Requests received by this server and not answered; `None` if the plant does not report them.
    pub in_flight: Option<u64>,
    /// Priority threshold: the downstream servers reject less important requests. The smallest of
    /// the thresholds in their last feedback.
    pub threshold: Priority,
}

impl Downstream {
    /// No limit by downstream servers.
    pub const UNLIMITED: Downstream = Downstream::new(u64::MAX, 0.0);

    /// Creates a limit of `credits`, with `per_request` calls per request.
    pub const fn new(credits: u64, per_request: f64) -> Self {
        Downstream { credits, calls_per_request: per_request, in_flight: None, threshold: Priority::LOWEST }
    }

    /// Returns the same limit with [`Downstream::in_flight`].
    pub const fn with_in_flight(mut self, requests: u64) -> Self {
        self.in_flight = Some(requests);
        self
    }

    /// Returns the same limit with [`Downstream::threshold`].
    pub const fn with_threshold(mut self, threshold: Priority) -> Self {
        self.threshold = threshold;
        self
    }

    /// W / f: requests of this server that the credits suffice for; infinite if no request needs
    /// any.
    pub fn max_requests(&self) -> f64 {
        if self.calls_per_request > 0.0 { self.credits as f64 / self.calls_per_request } else { f64::INFINITY }
    }

    /// Returns the downstream server whose credits suffice for the fewest requests (the first of
    /// equals), with the smallest threshold of all.
    pub fn bottleneck(servers: impl IntoIterator<Item = Downstream>) -> Self {
        let narrower = |narrowest: Downstream, next: Downstream| {
            let threshold = narrowest.threshold.min(next.threshold);
            if next.max_requests() < narrowest.max_requests() { next } else { narrowest }.with_threshold(threshold)
        };
        servers.into_iter().fold(Downstream::UNLIMITED, narrower)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn the_bottleneck_is_the_downstream_with_credit_for_the_fewest_requests() {
        assert_eq!(Downstream::bottleneck([]), Downstream::UNLIMITED);
        let [wide, narrow, unused] = [Downstream::new(10, 1.0), Downstream::new(30, 4.0), Downstream::new(0, 0.0)];
        assert_eq!(Downstream::bottleneck([wide, narrow, unused]), narrow);
        assert_eq!(Downstream::bottleneck([unused]), Downstream::UNLIMITED);
    }

    #[test]
    fn an_invalid_call_rate_limits_nothing() {
        for rate in [f64::NAN, -1.0, 0.0] {
            assert_eq!(Downstream::new(5, rate).max_requests(), f64::INFINITY);
        }
    }
}
