//! A threading policy with its inputs. Does not contain policies: those are in
//! [`leeward_threading`].

use super::model::Tier;
use crate::SimError;
use crate::config::SimConfig;
use leeward_core::units::{Nanos, Time};
use leeward_threading::{
    ArrivalRing, LatencyWindow, PollSchedule, Setup, ThreadEnvironment, ThreadingPolicy, ThreadingSetup, registry,
};

/// Number of requests in a window of latencies.
const LATENCIES: usize = 500;

/// A policy and its inputs.
pub(super) struct Governor {
    pub(super) policy: Box<dyn ThreadingPolicy>,
    pub(super) pace: PollSchedule,
    pub(super) window: usize,
    pub(super) ring: ArrivalRing,
    /// Arrivals since the last decision on arrivals.
    pub(super) arrivals: u16,
    pub(super) last_decision: Time,
    pub(super) busy_at_decision: u128,
    /// Number of the policy's timer event, to tell an outdated event from the current one.
    pub(super) timer_id: u32,
    pub(super) setup_since: Time,
    pub(super) latencies: Vec<Nanos>,
    pub(super) window_latencies: LatencyWindow,
    pub(super) ended: u64,
    pub(super) late: u64,
    /// Whether threads have slept or woken since the last decision.
    pub(super) blocking_changed: bool,
}

impl Governor {
    /// Creates the policy of `tier`, if it has one.
    pub(super) fn new(config: &SimConfig, tier: &Tier) -> Result<Option<Self>, SimError> {
        let Some(model) = &tier.policy else { return Ok(None) };
        let spec = registry::find(&model.name).map_err(|error| SimError::Config(error.to_string()))?;
        let first = tier.threading;
        let environment = ThreadEnvironment::new(model.curves.clone(), first, tier.cpus as u16).with_slo(config.slo);
        let policy = spec.build(&model.params, &environment)?;
        Ok(Some(Governor {
            pace: policy.poll_schedule(),
            window: policy.window(),
            policy,
            ring: ArrivalRing::new(),
            arrivals: 0,
            last_decision: Time::ZERO,
            busy_at_decision: 0,
            timer_id: 0,
            setup_since: Time::ZERO,
            latencies: Vec::new(),
            window_latencies: LatencyWindow::default(),
            ended: 0,
            late: 0,
            blocking_changed: false,
        }))
    }

    /// The initial setup, and the maximum number of threads of any setup that the policy may
    /// choose.
    pub(super) fn initial_setup(&self) -> (Option<Setup>, u32) {
        let max_threads = self.policy.choices().iter().map(ThreadingSetup::threads).max().unwrap_or(0);
        (self.policy.initial().setup(), max_threads)
    }

    /// Records the latency of a request that has ended.
    pub(super) fn record_latency(&mut self, latency: Nanos, slo: Nanos) {
        self.ended += 1;
        self.late += u64::from(latency > slo);
        self.latencies.push(latency);
        if self.latencies.len() == LATENCIES {
            self.latencies.sort_unstable();
            let at = |permille: usize| self.latencies[(LATENCIES * permille / 1_000).min(LATENCIES - 1)];
            let (p50, p99) = (at(500), at(990));
            self.window_latencies =
                LatencyWindow { window: self.window_latencies.window + 1, samples: LATENCIES as u32, p50, p99 };
            self.latencies.clear();
        }
    }

    pub(super) fn needs_blocking_decision(&self) -> bool {
        self.blocking_changed && self.pace == PollSchedule::Blocking
    }

    pub(super) fn period(&self) -> Option<Nanos> {
        match self.pace {
            PollSchedule::Periodic(period) => Some(period.max(Nanos(1))),
            _ => None,
        }
    }
}
