//! Costs of the endpoints of a real tier, measured without the tier: time of its clients and of its
//! waiting leaves beyond their specified waits. The simulator does not model these costs and would
//! otherwise assume free endpoints. Does not contain the costs of the tier's own threads
//! ([`crate::threads`]).

use crate::error::RealError;
use crate::machine::run_closed_loop;
use crate::placement::Placement;
use crate::run::{RunSpec, run};
use crate::tier::start_waiting_leaves;
use leeward_core::budget::Budget;
use leeward_core::none;
use leeward_core::params::Params;
use leeward_core::units::{Nanos, Rate};
use leeward_load::Plan;
use leeward_outcome::Percentiles;
use leeward_rpc::server::{Builder, Server, ServerError};
use leeward_services::backend::{Backend, Bottleneck, InProcessService};
use leeward_services::synthetic;
use leeward_workload::{Arrivals, Segment, ServiceTime, Shares, Workload};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// Time that the endpoints of an otherwise idle tier add.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EndpointCosts {
    /// Median round trip of an empty request, for clients that sleep until it is due and until it
    /// is answered.
    pub client: Nanos,
    /// 99th percentile of that round trip.
    pub client_p99: Nanos,
    /// Median round trip of a call to an idle leaf, less its specified wait and its CPU time.
    pub leaf: Nanos,
    /// Largest CPU time of a call on the leaves' shared CPU: the inverse of the highest call rate.
    pub host_call: Nanos,
}

/// Requests per second at low load: both ends sleep in between, as they do in a tier.
const LOW_RATE: f64 = 400.0;
/// Length of each measurement; its first quarter is warm-up.
const DURATION: Nanos = Nanos::from_millis(2_000);
/// Outstanding calls, and the leaves' wait, when the leaves' CPU is the bottleneck.
///
/// The wait is short, because a call costs only about 5 us of CPU time.
const OUTSTANDING: u32 = 64;
const SHORT_WAIT: Nanos = Nanos::from_micros(10);

impl EndpointCosts {
    /// Measures with leaves that wait for `wait`.
    ///
    /// `messages` is the tier's own cost of receiving and sending one message each; it is
    /// subtracted.
    ///
    /// # Errors
    ///
    /// See [`RealError`].
    pub fn measure(placement: &Placement, wait: Nanos, messages: Nanos, stop: &AtomicBool) -> Result<Self, RealError> {
        Self::measure_for(DURATION, placement, wait, messages, stop)
    }

    fn measure_for(
        span: Nanos,
        placement: &Placement,
        wait: Nanos,
        messages: Nanos,
        stop: &AtomicBool,
    ) -> Result<Self, RealError> {
        // The clients sleep, as in a run of a tier.
        let empty = InProcessService { bottleneck: Bottleneck::Threads, ..synthetic::in_process() };
        let client = latency_at_low_rate(span, placement, &empty, stop)?;
        // The leaves stay on their CPU, and their caller runs on the tier's CPU.
        let swapped = Placement {
            server: vec![placement.load],
            load: placement.server.first().copied().unwrap_or(placement.load),
            ..placement.clone()
        };
        let leaves = |wait| InProcessService {
            backend: Arc::new(WaitingLeaves(wait, placement.load)),
            ..synthetic::in_process()
        };
        let call = latency_at_low_rate(span, &swapped, &leaves(wait), stop)?;
        let nothing = ServiceTime::Constant(Nanos(1));
        let saturating =
            Plan::Closed { connections: OUTSTANDING, outstanding: 1, service: nothing, seed: 1, duration: span };
        let max_throughput = run_closed_loop(&swapped, &leaves(SHORT_WAIT), &saturating, stop)?.throughput();
        let host_call = Nanos::from_secs_f64(1.0 / max_throughput.max(1.0));
        Ok(EndpointCosts {
            client: client.p50.saturating_sub(messages),
            client_p99: client.p99.saturating_sub(messages),
            // A call to an idle leaf also includes its time on that CPU.
            leaf: call.p50.saturating_sub(wait + messages + host_call),
            host_call,
        })
    }
}

/// Latencies of requests that arrive one by one.
fn latency_at_low_rate(
    span: Nanos,
    placement: &Placement,
    backend: &InProcessService,
    stop: &AtomicBool,
) -> Result<Percentiles, RealError> {
    let workload = Workload {
        clients: 1,
        arrivals: Arrivals::Constant,
        shares: Shares::Equal,
        demand: vec![Segment { from: Nanos::ZERO, rate: Rate(LOW_RATE) }],
        service: ServiceTime::Constant(Nanos(1)),
    };
    let spec = RunSpec {
        placement,
        service: backend,
        budget: Budget::UNLIMITED,
        algorithm: &none::ALGORITHM,
        params: &Params::default(),
        rtt: Nanos::from_micros(10),
        slo: Nanos::from_millis(10),
        workload: &workload,
        seed: 1,
        warmup: span / 4,
        duration: span,
        window: span / 4,
        fine_window: None,
        observers: None,
    };
    Ok(run(&spec, stop, |_| ())?.load.latency)
}

/// Leaves without a tier: their wait, and their CPU.
struct WaitingLeaves(Nanos, usize);

impl Backend for WaitingLeaves {
    fn start(&self, _: Builder, _: &str) -> Result<Server, ServerError> {
        start_waiting_leaves(&ServiceTime::Constant(self.0), self.1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_and_leaves_have_measurable_costs() {
        let placement = Placement::choose(1).unwrap();
        let duration = Nanos::from_millis(300);
        let ends = EndpointCosts::measure_for(
            duration,
            &placement,
            Nanos::from_micros(50),
            Nanos::ZERO,
            &AtomicBool::new(false),
        )
        .unwrap();
        let is_some = |span: Nanos| span > Nanos::ZERO && span < Nanos::from_millis(100);
        assert!(is_some(ends.client) && is_some(ends.host_call) && ends.client <= ends.client_p99, "{ends:?}");
        assert!(ends.leaf < Nanos::from_millis(100), "{ends:?}");
    }
}
