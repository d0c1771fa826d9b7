//! Both ends of a real tier, measured without the tier: what its clients and its waiting leaves take besides what they are told to. The simulator knows
//! neither, so its tier would stand between ends that cost nothing. Never here: what the tier's own threads cost ([`crate::threads`]).

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

/// Time at both ends of a tier that nobody else asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EndpointCosts {
    /// Median round trip of an empty request for clients that sleep until it is due and until it is answered.
    pub client: Nanos,
    /// Its 99th percentile.
    pub client_p99: Nanos,
    /// Median round trip of a call to a leaf that had nothing to do, besides the time that it is told to wait and its time on that CPU.
    pub leaf: Nanos,
    /// Time of a call on the CPU that all leaves have in common, at most: of one of many calls, by how many there were per second.
    pub host_call: Nanos,
}

/// Requests per second of a server that is hardly asked: both ends sleep in between, as they do in a tier.
const LOW_RATE: f64 = 400.0;
/// Length of each measurement, the first quarter of which is warm-up.
const DURATION: Nanos = Nanos::from_millis(2_000);
/// Calls under way where the leaves' CPU is the limit, and how short they wait: some 5 µs of CPU per call could not be seen with longer waits.
const OUTSTANDING: u32 = 64;
const SHORT_WAIT: Nanos = Nanos::from_micros(10);

impl EndpointCosts {
    /// Measures with leaves that wait for `wait`. `messages` is what the tier itself pays for a message that it receives and one that it sends: no
    /// part of the ends.
    ///
    /// # Errors
    /// See [`RealError`].
    pub fn measure(placement: &Placement, wait: Nanos, messages: Nanos, stop: &AtomicBool) -> Result<Self, RealError> {
        Self::measure_for(DURATION, placement, wait, messages, stop)
    }

    fn measure_for(
        lasts: Nanos,
        placement: &Placement,
        wait: Nanos,
        messages: Nanos,
        stop: &AtomicBool,
    ) -> Result<Self, RealError> {
        // As in a run of a tier: its clients sleep.
        let empty = InProcessService { bottleneck: Bottleneck::Threads, ..synthetic::in_process() };
        let client = latency_at_low_rate(lasts, placement, &empty, stop)?;
        // The leaves stay on their CPU, and who asks them is where the tier will be.
        let turned = Placement {
            server: vec![placement.load],
            load: placement.server.first().copied().unwrap_or(placement.load),
            ..placement.clone()
        };
        let leaves = |wait| InProcessService {
            backend: Arc::new(WaitingLeaves(wait, placement.load)),
            ..synthetic::in_process()
        };
        let call = latency_at_low_rate(lasts, &turned, &leaves(wait), stop)?;
        let nothing = ServiceTime::Constant(Nanos(1));
        let many =
            Plan::Closed { connections: OUTSTANDING, outstanding: 1, service: nothing, seed: 1, duration: lasts };
        let most = run_closed_loop(&turned, &leaves(SHORT_WAIT), &many, stop)?.throughput();
        let host_call = Nanos::from_secs_f64(1.0 / most.max(1.0));
        Ok(EndpointCosts {
            client: client.p50.saturating_sub(messages),
            client_p99: client.p99.saturating_sub(messages),
            // A call to an idle leaf has its time on that CPU, too.
            leaf: call.p50.saturating_sub(wait + messages + host_call),
            host_call,
        })
    }
}

/// Latencies of requests that come one by one.
fn latency_at_low_rate(
    lasts: Nanos,
    placement: &Placement,
    served: &InProcessService,
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
        service: served,
        budget: Budget::UNLIMITED,
        algorithm: &none::ALGORITHM,
        params: &Params::default(),
        rtt: Nanos::from_micros(10),
        slo: Nanos::from_millis(10),
        workload: &workload,
        seed: 1,
        warmup: lasts / 4,
        duration: lasts,
        window: lasts / 4,
        fine_window: None,
        observers: None,
    };
    Ok(run(&spec, stop, |_| ())?.load.latency)
}

/// The leaves of a tier without the tier: how long they wait, and on which CPU.
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
    fn clients_and_leaves_take_time_besides_what_they_are_told() {
        let placement = Placement::choose(1).unwrap();
        let lasts = Nanos::from_millis(300);
        let ends =
            EndpointCosts::measure_for(lasts, &placement, Nanos::from_micros(50), Nanos::ZERO, &AtomicBool::new(false))
                .unwrap();
        let is_some = |span: Nanos| span > Nanos::ZERO && span < Nanos::from_millis(100);
        assert!(is_some(ends.client) && is_some(ends.host_call) && ends.client <= ends.client_p99, "{ends:?}");
        assert!(ends.leaf < Nanos::from_millis(100), "{ends:?}");
    }
}
