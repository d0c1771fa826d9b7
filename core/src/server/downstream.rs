//! Capacity that the servers behind a server let through, as its controller is told. Never here: how credits are reserved there, which
//! is the plant's.

use crate::units::Priority;

/// Credits at the narrowest of the servers that a server asks.
///
/// ```
/// use leeward_core::server::Downstream;
///
/// // Two leaves: every request asks the first once, every second request asks the other.
/// let narrowest = Downstream::narrowest([Downstream::new(30, 1.0), Downstream::new(20, 0.5)]);
/// assert_eq!(narrowest.requests_allowed(), 30.0);
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct Downstream {
    /// W: credits that this server holds there, the sum of its windows.
    pub credits: u64,
    /// f: calls there per request of this server, an average.
    pub calls_per_request: f64,
    /// Requests that this server has taken in and not answered; `None` if the plant does not tell.
    pub in_flight: Option<u64>,
    /// Requests less important than this are dropped there: the smallest of what they last told.
    pub threshold: Priority,
}

impl Downstream {
    /// Nothing limits this server from behind.
    pub const UNLIMITED: Downstream = Downstream::new(u64::MAX, 0.0);

    /// So many credits, for so many calls per request.
    pub const fn new(credits: u64, per_request: f64) -> Self {
        Downstream { credits, calls_per_request: per_request, in_flight: None, threshold: Priority::LOWEST }
    }

    /// The same with [`Downstream::requests`].
    pub const fn with_in_flight(mut self, requests: u64) -> Self {
        self.in_flight = Some(requests);
        self
    }

    /// The same with [`Downstream::threshold`].
    pub const fn with_threshold(mut self, threshold: Priority) -> Self {
        self.threshold = threshold;
        self
    }

    /// W / f: requests of this server that the credits last for; infinite where no request needs any.
    pub fn max_requests(&self) -> f64 {
        if self.calls_per_request > 0.0 { self.credits as f64 / self.calls_per_request } else { f64::INFINITY }
    }

    /// The one of `servers` whose credits last for the fewest requests, of equals the first, with the smallest threshold of
    /// all.
    pub fn bottleneck(servers: impl IntoIterator<Item = Downstream>) -> Self {
        let narrower = |least: Downstream, next: Downstream| {
            let threshold = least.threshold.min(next.threshold);
            if next.max_requests() < least.max_requests() { next } else { least }.with_threshold(threshold)
        };
        servers.into_iter().fold(Downstream::UNLIMITED, narrower)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn the_narrowest_lasts_for_the_fewest_requests() {
        assert_eq!(Downstream::bottleneck([]), Downstream::UNLIMITED);
        let [wide, narrow, unused] = [Downstream::new(10, 1.0), Downstream::new(30, 4.0), Downstream::new(0, 0.0)];
        assert_eq!(Downstream::bottleneck([wide, narrow, unused]), narrow);
        assert_eq!(Downstream::bottleneck([unused]), Downstream::UNLIMITED);
    }

    #[test]
    fn a_rate_that_is_none_limits_nothing() {
        for rate in [f64::NAN, -1.0, 0.0] {
            assert_eq!(Downstream::new(5, rate).max_requests(), f64::INFINITY);
        }
    }
}
