//! Measurement of this machine: its capacity for a kind of request without control, the round trip
//! without queueing, and the stalls of its CPUs.

use crate::error::RealError;
use crate::placement::Placement;
use crate::run::{address, raise_socket_limit, start};
use crate::stalls::{self, ClockGaps};
use leeward_core::budget::Budget;
use leeward_core::none;
use leeward_core::params::Params;
use leeward_core::registry::Environment;
use leeward_core::units::{Nanos, Rate};
use leeward_load::{LoadConfig, Plan, RunResults};
use leeward_rpc::server::RequestCounts;
use leeward_services::backend::InProcessService;
use leeward_services::synthetic;
use leeward_workload::ServiceTime;
use std::sync::atomic::{AtomicBool, Ordering};

/// Measured properties of the machine.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Machine {
    /// Most responses per second without control, at any latency: the median of [`ROUNDS`] closed
    /// loops.
    pub capacity: Rate,
    /// Median round trip of an empty request on an idle machine.
    pub rtt: Nanos,
    /// 99th percentile of that round trip.
    pub rtt_p99: Nanos,
    /// CPU time per message, measured at the capacity.
    pub costs: MessageCosts,
    /// Costs of messages that share a read or a write.
    ///
    /// `None` for a service that is not synthetic: its measured time includes all costs.
    pub sockets: Option<SharedCosts>,
    /// Stalls of a busy core; `None` if there were none.
    pub stalls: Option<Stalls>,
    /// Measured latency of the service on an idle server; `None` if service times are drawn.
    pub unloaded: Option<UnloadedLatency>,
}

/// Service latency without a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnloadedLatency {
    /// Mean with a single request in the server.
    pub mean: Nanos,
    /// 99th percentile with one request per core.
    pub p99: Nanos,
}

/// CPU time per message, in addition to the service.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MessageCosts {
    /// Cost per received request: polling sockets, reading, decoding, deciding.
    pub receive: Nanos,
    /// Cost per write, including the kernel's delivery to the receiver's socket.
    pub send: Nanos,
    /// All other cost per request.
    pub spawn: Nanos,
}

/// CPU time of messages that share a read or a write.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SharedCosts {
    /// Cost of receiving a message that was read with an earlier message of its connection.
    pub receive: Nanos,
    /// Cost of sending an answer that shares its write with another answer.
    pub send: Nanos,
    /// Cost of a write that shares its system call with writes of other connections.
    pub batched_write: Nanos,
}

/// Stalls: times in which a busy core does not run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stalls {
    /// Mean time from the end of a stall to the beginning of the next.
    pub mean_interval: Nanos,
    /// Mean length of the stall, weighted by the lost time.
    pub mean_length: Nanos,
}

/// Closed loops whose median is the capacity.
pub const ROUNDS: usize = 3;
/// Length of each closed loop; its first quarter is warm-up.
const ROUND_DURATION: Nanos = Nanos::from_millis(1_000);
/// Outstanding requests per client in the measurement of shared reads; all are read at once.
const DEEP_OUTSTANDING: u32 = 8;
/// Length of the round-trip measurement.
const RTT_DURATION: Nanos = Nanos::from_millis(400);
/// Length of the measurement of a service that is not synthetic, on an idle server.
const UNLOADED_DURATION: Nanos = Nanos::from_millis(2_000);
/// Length of the stall measurement, on the CPUs of both ends at once.
const STALL_DURATION: Nanos = Nanos::from_millis(3_000);
/// Attempts for a closed loop without any response.
const ATTEMPTS: usize = 5;
/// Steps that [`Machine::measure`] reports.
pub const STEPS: usize = ROUNDS + 4;

impl Machine {
    /// Measures with `clients` connections and the service `backend`; drawn service times are those
    /// of `service`.
    ///
    /// Calls `step` before each of [`STEPS`] steps.
    ///
    /// # Errors
    ///
    /// See [`RealError`].
    pub fn measure(
        placement: &Placement,
        backend: &InProcessService,
        service: &ServiceTime,
        clients: u32,
        stop: &AtomicBool,
        mut step: impl FnMut(&str),
    ) -> Result<Self, RealError> {
        raise_socket_limit(clients)?;
        step("round trip");
        let nothing = ServiceTime::Constant(Nanos(1));
        let single = Plan::Closed { connections: 1, outstanding: 1, service: nothing, seed: 1, duration: RTT_DURATION };
        let trip =
            run_closed_loop(placement, &synthetic::in_process(), &single, stop)?.results.report.latency_from_send;
        let (rtt, rtt_p99) = (trip.p50, trip.p99);
        let unloaded_latency = match backend.is_measured() {
            false => None,
            true => {
                step("service alone");
                let sojourn = |connections| {
                    let service = service.clone();
                    let plan =
                        Plan::Closed { connections, outstanding: 1, service, seed: 1, duration: UNLOADED_DURATION };
                    Ok::<_, RealError>(run_closed_loop(placement, backend, &plan, stop)?.results.report.server_sojourn)
                };
                let mean = Nanos(sojourn(1)?.mean_ns as u64);
                // Cores share caches and memory: with all cores busy, each request takes longer.
                // The figure includes that contention, so budgets from it are on the safe side.
                Some(UnloadedLatency { mean, p99: sojourn(placement.server.len() as u32)?.p99 })
            }
        };
        step("stalls");
        let gaps = measure_gaps(placement, stop);
        let mut rounds = Vec::with_capacity(ROUNDS);
        for round in 0..ROUNDS {
            step("capacity");
            let (service, seed) = (service.clone(), round as u64 + 1);
            let plan = Plan::Closed { connections: clients, outstanding: 1, service, seed, duration: ROUND_DURATION };
            rounds.push(run_closed_loop(placement, backend, &plan, stop)?);
        }
        rounds.sort_by(|a, b| a.throughput().total_cmp(&b.throughput()));
        let middle = &rounds[ROUNDS / 2];
        let capacity = Rate(middle.throughput());
        // The time of a measured service includes its stalls, and its locks limit its throughput.
        // Its machine is modelled by a cost per request that yields the measured capacity.
        let stalls = Stalls::from_gaps(&gaps).filter(|_| unloaded_latency.is_none());
        let available = stalls.map_or(1.0, |stalls| stalls.available());
        let busy = Nanos::from_secs_f64(available * placement.server.len() as f64 / capacity.0);
        let unloaded_latency = unloaded_latency
            .map(|unloaded_latency| UnloadedLatency { mean: unloaded_latency.mean.min(busy), ..unloaded_latency });
        let mean = unloaded_latency.map_or(service.mean(), |unloaded_latency| unloaded_latency.mean);
        let costs = MessageCosts::from_counts(&middle.counts, busy.saturating_sub(mean));
        let mut shared = || {
            step("deep sockets");
            let deep = Plan::Closed {
                connections: clients,
                outstanding: DEEP_OUTSTANDING,
                service: service.clone(),
                seed: 1,
                duration: ROUND_DURATION,
            };
            let deep = run_closed_loop(placement, backend, &deep, stop)?;
            step("answers together");
            let short = Plan::Closed {
                connections: clients,
                outstanding: 1,
                service: ServiceTime::Constant(Nanos(1)),
                seed: 1,
                duration: ROUND_DURATION,
            };
            let short = run_closed_loop(placement, backend, &short, stop)?;
            let busy = Nanos::from_secs_f64(available * placement.server.len() as f64 / deep.throughput());
            let besides = busy.saturating_sub(service.mean());
            Ok::<_, RealError>(SharedCosts::from_counts(&costs, &deep.counts, besides, &short.counts))
        };
        // A measured service skips these steps, but still reports them: a view counts them.
        let sockets = match unloaded_latency {
            None => Some(shared()?),
            Some(_) => {
                step("deep sockets");
                step("answers together");
                None
            }
        };
        Ok(Machine { capacity, rtt, rtt_p99, costs, sockets, stalls, unloaded: unloaded_latency })
    }
}

impl SharedCosts {
    /// Costs that explain two runs.
    ///
    /// `deep` has [`DEEP_OUTSTANDING`] requests outstanding per client; each request costs
    /// `besides` in addition to its service. `quick` has answers with nearly no service time.
    /// `alone` is the cost of an unshared message.
    fn from_counts(alone: &MessageCosts, deep: &RequestCounts, besides: Nanos, quick: &RequestCounts) -> Self {
        let per = |ns: u64, events: u64| ns as f64 / events.max(1) as f64;
        let depth = f64::from(DEEP_OUTSTANDING);
        let writes = (deep.writes as f64 / deep.completed.max(1) as f64).min(1.0);
        // Cost of the reads and writes themselves, and of the rest of a request.
        let known = alone.spawn.0 as f64 + alone.receive.0 as f64 / depth + alone.send.0 as f64 * writes;
        let remaining = (besides.0 as f64 - known).max(0.0);
        let reading = (per(deep.reading_ns, deep.received) - alone.receive.0 as f64 / depth).max(0.0);
        let receive = (reading / (1.0 - 1.0 / depth)).min(remaining / (1.0 - 1.0 / depth)).min(alone.receive.0 as f64);
        let send = (remaining - receive * (1.0 - 1.0 / depth)).clamp(0.0, alone.send.0 as f64);
        let batched = per(quick.writing_ns, quick.writes).min(alone.send.0 as f64);
        SharedCosts { receive: Nanos(receive as u64), send: Nanos(send as u64), batched_write: Nanos(batched as u64) }
    }
}

impl MessageCosts {
    /// Costs from the server's counters, scaled down to `besides`, the known cost of a request in
    /// addition to its service.
    ///
    /// The scaling is needed because the clock of the parts also counts stalls.
    fn from_counts(counts: &RequestCounts, besides: Nanos) -> Self {
        let part = |ns: u64, events: u64| ns as f64 / events.max(1) as f64;
        let (receive, send) = (part(counts.reading_ns, counts.received), part(counts.writing_ns, counts.writes));
        let scale = (besides.0 as f64 / (receive + send).max(1.0)).min(1.0);
        let (receive, send) = (Nanos((receive * scale) as u64), Nanos((send * scale) as u64));
        MessageCosts { receive, send, spawn: besides.saturating_sub(receive + send) }
    }
}

impl Stalls {
    /// The share of time without stalls, 0 to 1.
    pub fn available(&self) -> f64 {
        self.mean_interval.0 as f64 / (self.mean_interval + self.mean_length).0.max(1) as f64
    }

    fn from_gaps(gaps: &ClockGaps) -> Option<Self> {
        if gaps.lost == Nanos::ZERO {
            return None;
        }
        // Most stalls are interrupts of some tens of microseconds. Most of the lost time lies in a
        // few stalls of milliseconds, which cause the queueing. So the length is weighted by lost
        // time, and the interval is chosen to lose the same time.
        let length = Nanos((gaps.sum_of_squares / u128::from(gaps.lost.0)) as u64);
        let ran = gaps.duration.saturating_sub(gaps.lost);
        let interval = Nanos((u128::from(ran.0) * u128::from(length.0) / u128::from(gaps.lost.0)) as u64);
        Some(Stalls { mean_interval: interval.max(Nanos(1_000)), mean_length: length })
    }
}

/// Reports of both ends of a closed loop.
pub(crate) struct ClosedLoopRun {
    results: RunResults,
    counts: RequestCounts,
}

impl ClosedLoopRun {
    pub(crate) fn throughput(&self) -> f64 {
        self.results.report.throughput_per_s
    }
}

/// Runs a closed loop on its own server, without control.
///
/// A loop without any response is repeated, because other work may have had the CPUs.
pub(crate) fn run_closed_loop(
    placement: &Placement,
    service: &InProcessService,
    plan: &Plan,
    stop: &AtomicBool,
) -> Result<ClosedLoopRun, RealError> {
    for _ in 0..ATTEMPTS {
        let round = try_closed_loop(placement, service, plan, stop)?;
        if round.throughput() > 0.0 {
            return Ok(round);
        }
    }
    Err(RealError::NoResponses)
}

fn try_closed_loop(
    placement: &Placement,
    service: &InProcessService,
    plan: &Plan,
    stop: &AtomicBool,
) -> Result<ClosedLoopRun, RealError> {
    // Nothing here depends on the objective.
    let (rtt, slo, params) = (Nanos::from_micros(10), Nanos::from_millis(1), Params::default());
    let server = start(placement, service, (&none::ALGORITHM, &params), (rtt, slo), Budget::UNLIMITED, false)?;
    let config = LoadConfig {
        ask: service.generator.clone(),
        warmup: Nanos(plan.duration().0 / 4),
        polling: placement.polling(),
        cpu: Some(placement.load),
        transport: placement.transport,
        ..LoadConfig::new(address(placement, &server), slo)
    };
    let client = || (none::ALGORITHM.build_client)(&params, &Environment::new(1, rtt, slo));
    let outcome = leeward_load::run(&config, plan, client, stop, |_| {});
    let counts = server.stop().map_err(RealError::Core)?;
    if stop.load(Ordering::Relaxed) {
        return Err(RealError::Cancelled);
    }
    let recording = outcome?;
    match recording.report.totals.failed {
        0 => Ok(ClosedLoopRun { results: recording, counts }),
        failed => Err(RealError::RequestsFailed(failed)),
    }
}

/// Keeps all CPUs of the placement busy and returns the gaps of the server's first CPU.
fn measure_gaps(placement: &Placement, stop: &AtomicBool) -> ClockGaps {
    let busy = |cpu: usize| {
        pin(cpu);
        stalls::measure_gaps(STALL_DURATION, stop)
    };
    std::thread::scope(|scope| {
        let others = placement.server.iter().skip(1).chain((!placement.shared).then_some(&placement.load));
        for cpu in others {
            scope.spawn(move || busy(*cpu));
        }
        let first = placement.server.first().copied().unwrap_or(0);
        scope.spawn(move || busy(first)).join().unwrap_or_default()
    })
}

/// Moves the calling thread to `cpu`. Without permission, the thread stays and measures another
/// CPU.
fn pin(cpu: usize) {
    let mut only = rustix::thread::CpuSet::new();
    if cpu < rustix::thread::CpuSet::MAX_CPU {
        only.set(cpu);
        let _ = rustix::thread::sched_setaffinity(None, &only);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn costs_add_up_to_what_a_request_costs() {
        let counts = RequestCounts {
            received: 10,
            reading_ns: 20_000,
            writes: 20,
            writing_ns: 100_000,
            ..RequestCounts::default()
        };
        let costs = MessageCosts::from_counts(&counts, Nanos(8_000));
        assert_eq!((costs.receive, costs.send, costs.spawn), (Nanos(2_000), Nanos(5_000), Nanos(1_000)));
        let scaled = MessageCosts::from_counts(&counts, Nanos(3_500));
        assert_eq!((scaled.receive, scaled.send, scaled.spawn), (Nanos(1_000), Nanos(2_500), Nanos(0)));
    }

    #[test]
    fn shared_costs_are_derived_from_the_batched_run() {
        let alone = MessageCosts { receive: Nanos(2_000), send: Nanos(6_000), spawn: Nanos(500) };
        // Eight requests per read, two answers per write; 300 ns for each further request, 200 ns
        // for each answer.
        let besides = Nanos(500 + 250 + 3_000 + 262 + 200);
        let deep = RequestCounts {
            received: 800,
            completed: 800,
            writes: 400,
            reading_ns: 800 * 512,
            ..RequestCounts::default()
        };
        let quick = RequestCounts { writes: 100, writing_ns: 450_000, ..RequestCounts::default() };
        let shared = SharedCosts::from_counts(&alone, &deep, besides, &quick);
        assert!(shared.receive.0.abs_diff(300) <= 2 && shared.send.0.abs_diff(200) <= 4, "{shared:?}");
        assert_eq!(shared.batched_write, Nanos(4_500));
        // On a noisy machine, the deep run may cost more than single requests. Sharing then saves
        // nothing, and no cost exceeds a message's own.
        let expensive = SharedCosts::from_counts(&alone, &deep, Nanos(60_000), &quick);
        assert!(expensive.receive <= alone.receive && expensive.send <= alone.send, "{expensive:?}");
        assert_eq!(SharedCosts::from_counts(&alone, &deep, Nanos(0), &quick).receive, Nanos::ZERO);
    }

    #[test]
    fn stalls_are_derived_from_lost_time() {
        // Four gaps of 5 ms.
        let squares = 4 * 5_000_000u128.pow(2);
        let gaps =
            ClockGaps { duration: Nanos::from_millis(100), lost: Nanos::from_millis(20), sum_of_squares: squares };
        let stalls = Stalls::from_gaps(&gaps).unwrap();
        assert_eq!(stalls, Stalls { mean_interval: Nanos::from_millis(20), mean_length: Nanos::from_millis(5) });
        assert!((stalls.available() - 0.8).abs() < 1e-9);
        // A hundred short gaps more change the share of time, and the length little.
        let more =
            ClockGaps { lost: Nanos::from_millis(21), sum_of_squares: squares + 100 * 10_000u128.pow(2), ..gaps };
        assert!(Stalls::from_gaps(&more).unwrap().mean_length > Nanos::from_micros(4_700));
        assert_eq!(Stalls::from_gaps(&ClockGaps { lost: Nanos::ZERO, ..gaps }), None);
    }
}
