//! A threading policy and its senses. The policies are those of [`leeward_threading`]; none is here.

use super::model::Tier;
use crate::SimError;
use crate::config::SimConfig;
use leeward_core::units::{Nanos, Time};
use leeward_threading::{ArrivalRing, Latencies, Pace, Setup, ThreadEnvironment, Threading, ThreadingPolicy, registry};

/// Requests of a window of latencies.
const LATENCIES: usize = 500;

/// A policy and its senses.
pub(super) struct Governor {
    pub(super) policy: Box<dyn ThreadingPolicy>,
    pub(super) pace: Pace,
    pub(super) window: usize,
    pub(super) ring: ArrivalRing,
    /// Arrivals since the policy was last asked for arrivals.
    pub(super) counted: u16,
    pub(super) asked: Time,
    pub(super) busy_then: u128,
    /// Number of the event that will ask it, so that an overtaken one means nothing.
    pub(super) ask: u32,
    pub(super) since: Time,
    pub(super) latencies: Vec<Nanos>,
    pub(super) seen: Latencies,
    pub(super) ended: u64,
    pub(super) late: u64,
    /// Threads have slept or woken since it was last asked.
    pub(super) stirred: bool,
}

impl Governor {
    /// The policy of `tier`, if it has one.
    pub(super) fn new(config: &SimConfig, tier: &Tier) -> Result<Option<Self>, SimError> {
        let Some(model) = &tier.policy else { return Ok(None) };
        let spec = registry::find(&model.name).map_err(|error| SimError::Config(error.to_string()))?;
        let first = tier.threading;
        let environment = ThreadEnvironment::new(model.curves.clone(), first, tier.cpus as u16).with_slo(config.slo);
        let policy = spec.build(&model.params, &environment)?;
        Ok(Some(Governor {
            pace: policy.pace(),
            window: policy.window(),
            policy,
            ring: ArrivalRing::new(),
            counted: 0,
            asked: Time::ZERO,
            busy_then: 0,
            ask: 0,
            since: Time::ZERO,
            latencies: Vec::new(),
            seen: Latencies::default(),
            ended: 0,
            late: 0,
            stirred: false,
        }))
    }

    /// The setup to begin with, and the most threads of any that it may want.
    pub(super) fn first(&self) -> (Option<Setup>, u32) {
        let most = self.policy.choices().iter().map(Threading::threads).max().unwrap_or(0);
        (self.policy.initial().setup(), most)
    }

    /// A request has ended after `latency`.
    pub(super) fn ended(&mut self, latency: Nanos, slo: Nanos) {
        self.ended += 1;
        self.late += u64::from(latency > slo);
        self.latencies.push(latency);
        if self.latencies.len() == LATENCIES {
            self.latencies.sort_unstable();
            let at = |permille: usize| self.latencies[(LATENCIES * permille / 1_000).min(LATENCIES - 1)];
            let (p50, p99) = (at(500), at(990));
            self.seen = Latencies { window: self.seen.window + 1, samples: LATENCIES as u32, p50, p99 };
            self.latencies.clear();
        }
    }

    pub(super) fn is_stirred_by_blocking(&self) -> bool {
        self.stirred && self.pace == Pace::Blocking
    }

    pub(super) fn period(&self) -> Option<Nanos> {
        match self.pace {
            Pace::Periodic(period) => Some(period.max(Nanos(1))),
            _ => None,
        }
    }
}
