//! What the gate has learnt about the time that requests take, by route and over all. Does not
//! contain decisions.

use crate::handler_time::HandlerTime;
use crate::outcome::Outcome;
use leeward_controllers::edge::cost::CostEstimate;
use leeward_core::sync::CachePadded;
use leeward_core::units::{Cost, Nanos};

/// Routes whose cost is learnt separately: every value of a route's number.
pub(crate) const ROUTES: usize = 1 + u8::MAX as usize;

/// Estimates by route.
pub(crate) struct Estimates {
    slo: Nanos,
    routes: Box<[RouteEstimates; ROUTES]>,
    /// Over all routes. Apart from what no thread writes.
    all: CachePadded<RouteEstimates>,
}

/// Estimates of one route, on a cache line of their own: a decision reads all of them.
#[derive(Default)]
#[repr(align(64))]
struct RouteEstimates {
    /// Time that a request occupies a worker.
    cost: CostEstimate,
    /// The same, as far as it decides whether a request can still be in time.
    service: CostEstimate,
    /// Time from admission to the answer.
    handler: HandlerTime,
}

#[cfg(not(loom))]
const _: () = assert!(size_of::<RouteEstimates>() == 64, "one cache line");

impl Estimates {
    /// Knows nothing about requests with the objective `slo`.
    pub(crate) fn new(slo: Nanos) -> Self {
        Estimates {
            slo,
            routes: Box::new(std::array::from_fn(|_| RouteEstimates::default())),
            all: CachePadded::default(),
        }
    }

    #[inline]
    fn of(&self, route: u8) -> &RouteEstimates {
        &self.routes[usize::from(route)]
    }

    /// Records how long a request has occupied a worker until it ended.
    #[inline]
    pub(crate) fn record_cost(&self, route: u8, span: Nanos, outcome: Outcome, is_trial: bool) {
        let RouteEstimates { cost, service, .. } = self.of(route);
        cost.record(span);
        self.all.0.cost.record(span);
        // Of a request that was abandoned nobody knows how long it would have taken, but at least.
        let is_long = || outcome == Outcome::Abandoned && service.time().is_none_or(|time| span > time);
        if outcome.is_whole() || is_long() {
            // Capped a little above the objective: a longer time changes no decision, and a few
            // long requests would reject all others for a long while.
            let span = span.min(self.slo + self.slo / 8);
            if is_trial {
                service.record_trial(span)
            } else {
                service.record(span)
            }
            self.all.0.service.record(span);
        }
    }

    /// Records that a request was inside for `span` until its answer began.
    #[inline]
    pub(crate) fn record_handler_time(&self, route: u8, span: Nanos) {
        // Capped at the objective: a longer time changes no decision and would take longer to
        // forget.
        self.of(route).handler.note(span.min(self.slo));
    }

    /// Time that a request of this route works, as far as it decides whether it can still be in
    /// time; 0 while it is unknown.
    #[inline]
    pub(crate) fn service(&self, route: u8) -> Nanos {
        self.of(route).service.time_above(self.slo).unwrap_or(Nanos::ZERO)
    }

    /// The same over all routes.
    pub(crate) fn mean_service(&self) -> Nanos {
        self.all.0.service.time().unwrap_or(Nanos::ZERO)
    }

    /// Expected time that a request of this route occupies a worker; 0 before the first
    /// measurement.
    #[inline]
    pub(crate) fn expected_cost(&self, route: u8) -> Nanos {
        self.of(route).cost.time().or(self.all.0.cost.time()).unwrap_or(Nanos::ZERO)
    }

    /// Mean time over all routes that a request occupies a worker.
    pub(crate) fn mean_cost(&self) -> Option<Nanos> {
        self.all.0.cost.time()
    }

    /// Cost in microseconds. Before the first measurement, every request costs the same.
    #[inline]
    pub(crate) fn cost(&self, route: u8) -> Cost {
        self.of(route).cost.cost(self.all.0.cost.cost(Cost::ONE))
    }

    /// Time that a request of this route works if it is slow: if that exceeds the objective.
    /// `service`: as far as it is known.
    #[inline]
    pub(crate) fn slow_time(&self, route: u8, service: Nanos) -> Option<Nanos> {
        let time = self.of(route).cost.time_above(self.slo).unwrap_or(service);
        Some(time).filter(|time| *time >= self.slo)
    }

    /// Mean time from admission to the answer; 0 before the first request.
    #[inline]
    pub(crate) fn handler_time(&self, route: u8) -> Nanos {
        self.of(route).handler.mean()
    }

    /// Time within which nearly all requests are answered; 0 before the first request.
    #[inline]
    pub(crate) fn most_handler_time(&self, route: u8) -> Nanos {
        self.of(route).handler.upper_bound()
    }
}
