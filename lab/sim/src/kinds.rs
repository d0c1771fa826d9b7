//! Kinds of requests at the server: the data that a kind adds to an arrival, and the results per
//! kind.
//!
//! Does not contain the kinds themselves, or a controller's use of them.

use crate::config::{RequestKinds, SimConfig};
use crate::requests::Request;
use leeward_controllers::edge::{cost::CostEstimate, deadline};
use leeward_core::server::Arrival;
use leeward_core::units::Nanos;
use leeward_outcome::{Distribution, KindOutcome, RequestCounts};

/// A server's knowledge of its request kinds: their attributes and their past service times.
pub(crate) struct KindEstimates {
    kinds: RequestKinds,
    /// Objective of a kind without a deadline of its own.
    slo: Nanos,
    /// Round trip, which a client subtracts from its deadline.
    rtt: Nanos,
    /// Time on a core, by kind.
    estimates: Vec<CostEstimate>,
}

impl KindEstimates {
    pub(crate) fn new(config: &SimConfig) -> Self {
        let estimates = config.kinds.0.iter().map(|_| CostEstimate::default()).collect();
        KindEstimates { kinds: config.kinds.clone(), slo: config.slo, rtt: config.network.rtt, estimates }
    }

    /// Adds the kind's tenant, cost and remaining budget to `arrival`; `ahead` is the queueing
    /// delay that the request would find if admitted.
    ///
    /// Returns `arrival` unchanged if all requests are alike.
    pub(crate) fn describe(&self, arrival: Arrival, request: &Request, ahead: Nanos) -> Arrival {
        let index = usize::from(request.kind);
        let Some(kind) = self.kinds.0.get(index) else { return arrival };
        // The client sends how long its request can still wait at the server.
        let left = kind.deadline.unwrap_or(self.slo).saturating_sub(self.rtt + request.sent.since(request.issued));
        let service = self.estimates[index].time().unwrap_or(Nanos::ZERO);
        let waited = arrival.now.since(request.arrived) + ahead;
        arrival.with_tenant(kind.tenant).with_cost(kind.cost).with_budget(deadline::budget(left, waited, service))
    }

    /// Records the service time of an executed request.
    pub(crate) fn record_execution(&self, request: &Request) {
        if let Some(estimate) = self.estimates.get(usize::from(request.kind)) {
            estimate.record(request.service);
        }
    }
}

/// Counters of each kind.
pub(crate) struct KindStats {
    rows: Vec<KindRecord>,
}

struct KindRecord {
    name: String,
    /// Latency objective, from issue.
    objective: Nanos,
    counts: RequestCounts,
    at_warmup: RequestCounts,
    latency: Distribution,
}

impl KindStats {
    pub(crate) fn new(config: &SimConfig) -> Self {
        let rows = config.kinds.0.iter().map(|kind| KindRecord {
            name: kind.name.clone(),
            objective: kind.deadline.unwrap_or(config.slo),
            counts: RequestCounts::default(),
            at_warmup: RequestCounts::default(),
            latency: Distribution::new(),
        });
        KindStats { rows: rows.collect() }
    }

    /// Begins the measurement.
    pub(crate) fn end_warmup(&mut self) {
        self.rows.iter_mut().for_each(|row| row.at_warmup = row.counts);
    }

    /// Removes what was measured so far.
    pub(crate) fn discard(&mut self) {
        self.rows.iter_mut().for_each(|row| row.latency.clear());
    }

    /// Applies `event` to the counters of this kind.
    pub(crate) fn count(&mut self, kind: u8, event: impl FnOnce(&mut RequestCounts)) {
        if let Some(row) = self.rows.get_mut(usize::from(kind)) {
            event(&mut row.counts);
        }
    }

    /// Latency objective of this kind, from issue; `otherwise` if all requests are alike.
    pub(crate) fn objective(&self, kind: u8, otherwise: Nanos) -> Nanos {
        self.rows.get(usize::from(kind)).map_or(otherwise, |row| row.objective)
    }

    /// Counts a response that a client has received, and its latency if it `is_measured`.
    pub(crate) fn record_completion(&mut self, is_measured: bool, kind: u8, latency: Nanos) {
        let Some(row) = self.rows.get_mut(usize::from(kind)) else { return };
        row.counts.completed += 1;
        row.counts.good += u64::from(latency <= row.objective);
        if is_measured {
            row.latency.record(latency);
        }
    }

    /// Whether the kinds' counts add up to those of the run.
    pub(crate) fn sums_to(&self, whole: &RequestCounts) -> bool {
        let sum = self.rows.iter().fold(RequestCounts::default(), |sum, row| sum.plus(&row.counts));
        self.rows.is_empty()
            || RequestCounts { sent_again: whole.sent_again, unfinished: whole.unfinished, ..sum } == *whole
    }

    /// Outcomes, in the order of the kinds.
    pub(crate) fn report(&self) -> Vec<KindOutcome> {
        let outcome = |row: &KindRecord| KindOutcome {
            name: row.name.clone(),
            objective: row.objective,
            counts: row.counts.since(&row.at_warmup),
            latency: row.latency.percentiles(),
        };
        self.rows.iter().map(outcome).collect()
    }
}
