//! Measurement of this machine: how many requests of a kind it serves without control, how long a round trip takes when
//! nothing waits, how often it takes a CPU away.

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
    /// Most responses per second without control, whatever their latency: the median of [`ROUNDS`] closed loops.
    pub capacity: Rate,
    /// Median round trip of an empty request when nothing else is under way.
    pub rtt: Nanos,
    /// Its 99th percentile.
    pub rtt_p99: Nanos,
    /// CPU time that a message costs, while the capacity was measured.
    pub costs: MessageCosts,
    /// Costs of messages that share a read or a write; `None` if the service is not synthetic: its time is what its machine takes in all.
    pub sockets: Option<SharedCosts>,
    /// How often a core that is busy is taken away; `None` if it was never.
    pub stalls: Option<Stalls>,
    /// How long the server takes over a request when it has no other, if that is not drawn but measured.
    pub unloaded: Option<UnloadedLatency>,
}

/// Requests without a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnloadedLatency {
    /// Mean of those that had the server for themselves.
    pub mean: Nanos,
    /// 99th percentile with one for each core.
    pub p99: Nanos,
}

/// CPU time per message besides the service.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MessageCosts {
    /// Looking at sockets, reading, decoding, deciding: per request received.
    pub receive: Nanos,
    /// Writing, the system's delivery to the receiver's socket included: per write.
    pub send: Nanos,
    /// Everything else: what is left of the time per request.
    pub spawn: Nanos,
}

/// CPU time of messages that share a read or a write.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SharedCosts {
    /// Receiving a message that was read with an earlier one of its connection.
    pub receive: Nanos,
    /// Sending an answer that leaves in one write with another.
    pub send: Nanos,
    /// A write that leaves in one system call with those of other connections.
    pub batched_write: Nanos,
}

/// Moments in which a busy core does not run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stalls {
    /// Mean time from the end of one to the beginning of the next.
    pub mean_interval: Nanos,
    /// Length of the stall that a lost moment lies in, on average.
    pub mean_length: Nanos,
}

/// Closed loops whose median is the capacity.
pub const ROUNDS: usize = 3;
/// Length of each, a quarter of which is warm-up.
const ROUND_DURATION: Nanos = Nanos::from_millis(1_000);
/// Requests that each client has outstanding where sockets are deep: so many are read at once.
const DEEP_OUTSTANDING: u32 = 8;
/// Round trips are measured for this long.
const RTT_DURATION: Nanos = Nanos::from_millis(400);
/// A service that is not synthetic has the server for itself for this long.
const UNLOADED_DURATION: Nanos = Nanos::from_millis(2_000);
/// Stalls are looked for on both ends' CPUs at once for this long.
const STALL_DURATION: Nanos = Nanos::from_millis(3_000);
/// Times that each is tried in which nothing was answered.
const ATTEMPTS: usize = 5;
/// Steps that [`Machine::measure`] tells of.
pub const STEPS: usize = ROUNDS + 4;

impl Machine {
    /// Measures with `clients` connections and this service, whose times are those of `service` if they are drawn. `step`
    /// is told before each of [`STEPS`] steps.
    ///
    /// # Errors
    /// See [`RealError`].
    pub fn measure(
        placement: &Placement,
        served: &InProcessService,
        service: &ServiceTime,
        clients: u32,
        stop: &AtomicBool,
        mut step: impl FnMut(&str),
    ) -> Result<Self, RealError> {
        raise_socket_limit(clients)?;
        step("round trip");
        let nothing = ServiceTime::Constant(Nanos(1));
        let alone = Plan::Closed { connections: 1, outstanding: 1, service: nothing, seed: 1, duration: RTT_DURATION };
        let trip = run_closed_loop(placement, &synthetic::in_process(), &alone, stop)?.results.report.latency_from_send;
        let (rtt, rtt_p99) = (trip.p50, trip.p99);
        let alone = match served.is_measured() {
            false => None,
            true => {
                step("service alone");
                let sojourn = |connections| {
                    let service = service.clone();
                    let plan =
                        Plan::Closed { connections, outstanding: 1, service, seed: 1, duration: UNLOADED_DURATION };
                    Ok::<_, RealError>(run_closed_loop(placement, served, &plan, stop)?.results.report.server_sojourn)
                };
                let mean = Nanos(sojourn(1)?.mean_ns as u64);
                // Caches and memory are shared: with all cores at work each takes longer. What they wait for each other is in it,
                // too, so budgets that follow from it are on the safe side.
                Some(UnloadedLatency { mean, p99: sojourn(placement.server.len() as u32)?.p99 })
            }
        };
        step("stalls");
        let missed = measure_gaps(placement, stop);
        let mut rounds = Vec::with_capacity(ROUNDS);
        for round in 0..ROUNDS {
            step("capacity");
            let (service, seed) = (service.clone(), round as u64 + 1);
            let full = Plan::Closed { connections: clients, outstanding: 1, service, seed, duration: ROUND_DURATION };
            rounds.push(run_closed_loop(placement, served, &full, stop)?);
        }
        rounds.sort_by(|a, b| a.throughput().total_cmp(&b.throughput()));
        let middle = &rounds[ROUNDS / 2];
        let capacity = Rate(middle.throughput());
        // What a measured service takes has its share of stalls in it, and what it may do is the locks' affair: its machine is
        // one that costs so much per request besides the service that it can do what was measured.
        let stalls = Stalls::from_gaps(&missed).filter(|_| alone.is_none());
        let available = stalls.map_or(1.0, |stalls| stalls.available());
        let busy = Nanos::from_secs_f64(available * placement.server.len() as f64 / capacity.0);
        let alone = alone.map(|alone| UnloadedLatency { mean: alone.mean.min(busy), ..alone });
        let mean = alone.map_or(service.mean(), |alone| alone.mean);
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
            let deep = run_closed_loop(placement, served, &deep, stop)?;
            step("answers together");
            let quick = Plan::Closed {
                connections: clients,
                outstanding: 1,
                service: ServiceTime::Constant(Nanos(1)),
                seed: 1,
                duration: ROUND_DURATION,
            };
            let quick = run_closed_loop(placement, served, &quick, stop)?;
            let busy = Nanos::from_secs_f64(available * placement.server.len() as f64 / deep.throughput());
            let besides = busy.saturating_sub(service.mean());
            Ok::<_, RealError>(SharedCosts::from_counts(&costs, &deep.counts, besides, &quick.counts))
        };
        // Steps that a measured service has no use for are told all the same: a view counts them.
        let sockets = match alone {
            None => Some(shared()?),
            Some(_) => {
                step("deep sockets");
                step("answers together");
                None
            }
        };
        Ok(Machine { capacity, rtt, rtt_p99, costs, sockets, stalls, unloaded: alone })
    }
}

impl SharedCosts {
    /// Costs that explain a run with [`DEEP`] requests outstanding per client, whose requests cost `besides` besides their service, and
    /// one of answers that need next to no time. `alone` is what a message costs by itself.
    fn from_counts(alone: &MessageCosts, deep: &RequestCounts, besides: Nanos, quick: &RequestCounts) -> Self {
        let per = |ns: u64, events: u64| ns as f64 / events.max(1) as f64;
        let depth = f64::from(DEEP_OUTSTANDING);
        let writes = (deep.writes as f64 / deep.completed.max(1) as f64).min(1.0);
        // What the reads and the writes themselves cost, and the rest of a request.
        let known = alone.spawn.0 as f64 + alone.receive.0 as f64 / depth + alone.send.0 as f64 * writes;
        let left = (besides.0 as f64 - known).max(0.0);
        let reading = (per(deep.reading_ns, deep.received) - alone.receive.0 as f64 / depth).max(0.0);
        let receive = (reading / (1.0 - 1.0 / depth)).min(left / (1.0 - 1.0 / depth)).min(alone.receive.0 as f64);
        let send = (left - receive * (1.0 - 1.0 / depth)).clamp(0.0, alone.send.0 as f64);
        let together = per(quick.writing_ns, quick.writes).min(alone.send.0 as f64);
        SharedCosts { receive: Nanos(receive as u64), send: Nanos(send as u64), batched_write: Nanos(together as u64) }
    }
}

impl MessageCosts {
    /// Costs as the server has counted them, scaled where need be to `besides`, the known cost of a request besides its
    /// service: the clock that measures the parts goes on while the machine has taken the core away.
    fn from_counts(counts: &RequestCounts, besides: Nanos) -> Self {
        let part = |ns: u64, events: u64| ns as f64 / events.max(1) as f64;
        let (receive, send) = (part(counts.reading_ns, counts.received), part(counts.writing_ns, counts.writes));
        let scale = (besides.0 as f64 / (receive + send).max(1.0)).min(1.0);
        let (receive, send) = (Nanos((receive * scale) as u64), Nanos((send * scale) as u64));
        MessageCosts { receive, send, spawn: besides.saturating_sub(receive + send) }
    }
}

impl Stalls {
    /// The share of time that is left, 0..=1.
    pub fn available(&self) -> f64 {
        self.mean_interval.0 as f64 / (self.mean_interval + self.mean_length).0.max(1) as f64
    }

    fn from_gaps(missed: &ClockGaps) -> Option<Self> {
        if missed.lost == Nanos::ZERO {
            return None;
        }
        // Most stalls are interrupts of some tens of microseconds, most of the lost time lies in a few of milliseconds, and it
        // is those that queues feel. So not the mean stall, but the one that a lost moment lies in, on average; and as
        // often as loses the same time.
        let lasts = Nanos((missed.sum_of_squares / u128::from(missed.lost.0)) as u64);
        let ran = missed.duration.saturating_sub(missed.lost);
        let every = Nanos((u128::from(ran.0) * u128::from(lasts.0) / u128::from(missed.lost.0)) as u64);
        Some(Stalls { mean_interval: every.max(Nanos(1_000)), mean_length: lasts })
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

/// A closed loop on a server of its own, without control. One in which nothing was answered is tried again: other work may have
/// had the CPUs.
pub(crate) fn run_closed_loop(
    placement: &Placement,
    served: &InProcessService,
    plan: &Plan,
    stop: &AtomicBool,
) -> Result<ClosedLoopRun, RealError> {
    for _ in 0..ATTEMPTS {
        let round = try_closed_loop(placement, served, plan, stop)?;
        if round.throughput() > 0.0 {
            return Ok(round);
        }
    }
    Err(RealError::NoResponses)
}

fn try_closed_loop(
    placement: &Placement,
    served: &InProcessService,
    plan: &Plan,
    stop: &AtomicBool,
) -> Result<ClosedLoopRun, RealError> {
    // Nothing here depends on the objective.
    let (rtt, slo, params) = (Nanos::from_micros(10), Nanos::from_millis(1), Params::default());
    let server = start(placement, served, (&none::ALGORITHM, &params), (rtt, slo), Budget::UNLIMITED, false)?;
    let config = LoadConfig {
        ask: served.generator.clone(),
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

/// Keeps all CPUs of the placement busy and says what the server's first one misses.
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

/// Moves the calling thread; where that is not allowed it stays, and what it finds is of another CPU.
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
    fn what_is_shared_explains_the_deep_run() {
        let alone = MessageCosts { receive: Nanos(2_000), send: Nanos(6_000), spawn: Nanos(500) };
        // Eight requests per read, two answers per write; 300 ns for each further request, 200 for each answer.
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
        // A machine whose moods make the deep run dearer than one by one saves nothing, and no cost is above a message's own.
        let dear = SharedCosts::from_counts(&alone, &deep, Nanos(60_000), &quick);
        assert!(dear.receive <= alone.receive && dear.send <= alone.send, "{dear:?}");
        assert_eq!(SharedCosts::from_counts(&alone, &deep, Nanos(0), &quick).receive, Nanos::ZERO);
    }

    #[test]
    fn stalls_are_those_in_which_time_is_lost() {
        // Four of 5 ms.
        let squares = 4 * 5_000_000u128.pow(2);
        let missed =
            ClockGaps { duration: Nanos::from_millis(100), lost: Nanos::from_millis(20), sum_of_squares: squares };
        let stalls = Stalls::from_gaps(&missed).unwrap();
        assert_eq!(stalls, Stalls { mean_interval: Nanos::from_millis(20), mean_length: Nanos::from_millis(5) });
        assert!((stalls.available() - 0.8).abs() < 1e-9);
        // A hundred short ones beside them change the share of time, and the length little.
        let more =
            ClockGaps { lost: Nanos::from_millis(21), sum_of_squares: squares + 100 * 10_000u128.pow(2), ..missed };
        assert!(Stalls::from_gaps(&more).unwrap().mean_length > Nanos::from_micros(4_700));
        assert_eq!(Stalls::from_gaps(&ClockGaps { lost: Nanos::ZERO, ..missed }), None);
    }
}
