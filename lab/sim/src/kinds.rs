//! Kinds of requests at the server: what a request's kind tells its controller, and what each kind came to. Never here: which
//! kinds there are, and what a controller makes of them.

use crate::config::{RequestKinds, SimConfig};
use crate::requests::Request;
use leeward_controllers::edge::{cost::CostEstimate, deadline};
use leeward_core::server::Arrival;
use leeward_core::units::{Nanos, Time};
use leeward_outcome::{Distribution, KindOutcome, RequestCounts};

/// Knowledge of a server about the kinds of its requests: what they say of themselves, and how long those before them took.
pub(crate) struct KindEstimates {
    kinds: RequestKinds,
    /// Objective of a kind that has no deadline of its own.
    slo: Nanos,
    /// Round trip, which a client takes off its deadline.
    rtt: Nanos,
    /// Time on a core, by kind.
    estimates: Vec<CostEstimate>,
}

impl KindEstimates {
    pub(crate) fn new(config: &SimConfig) -> Self {
        let estimates = config.kinds.0.iter().map(|_| CostEstimate::default()).collect();
        KindEstimates { kinds: config.kinds.clone(), slo: config.slo, rtt: config.network.rtt, estimates }
    }

    /// `arrival` with what is known of a request which has `ahead` to wait for if it is admitted. The same where all requests
    /// are alike.
    pub(crate) fn describe(&self, arrival: Arrival, request: &Request, ahead: Nanos) -> Arrival {
        let index = usize::from(request.kind);
        let Some(kind) = self.kinds.0.get(index) else { return arrival };
        // A client says how long it can still wait at the server.
        let left = kind.deadline.unwrap_or(self.slo).saturating_sub(self.rtt + request.sent.since(request.issued));
        let service = self.estimates[index].time().unwrap_or(Nanos::ZERO);
        let waited = arrival.now.since(request.arrived) + ahead;
        arrival.with_tenant(kind.tenant).with_cost(kind.cost).with_budget(deadline::budget(left, waited, service))
    }

    /// A request was executed.
    pub(crate) fn record_execution(&self, request: &Request) {
        if let Some(estimate) = self.estimates.get(usize::from(request.kind)) {
            estimate.record(request.service);
        }
    }
}

/// Books of each kind.
pub(crate) struct KindStats {
    warmup: Time,
    rows: Vec<KindRecord>,
}

struct KindRecord {
    name: String,
    /// Latest response that is in time.
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
        KindStats { warmup: Time::ZERO + config.warmup, rows: rows.collect() }
    }

    /// The measured part begins.
    pub(crate) fn end_warmup(&mut self) {
        self.rows.iter_mut().for_each(|row| row.at_warmup = row.counts);
    }

    /// Counts an event of a request of this kind.
    pub(crate) fn count(&mut self, kind: u8, event: impl FnOnce(&mut RequestCounts)) {
        if let Some(row) = self.rows.get_mut(usize::from(kind)) {
            event(&mut row.counts);
        }
    }

    /// Latest response of a request of this kind that is in time, from its issue; `otherwise` where all are alike.
    pub(crate) fn objective(&self, kind: u8, otherwise: Nanos) -> Nanos {
        self.rows.get(usize::from(kind)).map_or(otherwise, |row| row.objective)
    }

    /// A client has received a response.
    pub(crate) fn record_completion(&mut self, now: Time, kind: u8, latency: Nanos) {
        let Some(row) = self.rows.get_mut(usize::from(kind)) else { return };
        row.counts.completed += 1;
        row.counts.good += u64::from(latency <= row.objective);
        if now >= self.warmup {
            row.latency.record(latency);
        }
    }

    /// Whether the kinds' counts add up to those of the whole.
    pub(crate) fn sums_to(&self, whole: &RequestCounts) -> bool {
        let sum = self.rows.iter().fold(RequestCounts::default(), |sum, row| sum.plus(&row.counts));
        self.rows.is_empty()
            || RequestCounts { sent_again: whole.sent_again, unfinished: whole.unfinished, ..sum } == *whole
    }

    /// Outcomes, in the kinds' order.
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
