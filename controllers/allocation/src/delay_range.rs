//! The mean queueing delay within a range: one more core above it, one less below it (McClure et
//! al., NSDI'22).

use super::policy::{AllocationPolicy, DEFAULT_PERIOD, PERIOD};
use super::{Allocator, CoreChange, CoreSignals, PollSchedule};
use leeward_core::params::{ParamError, ParamKind, ParamSpec};
use leeward_core::units::Nanos;

/// The registry's entry.
pub const POLICY: AllocationPolicy = AllocationPolicy {
    name: "delay-range",
    summary: "a core more or less as the mean queueing delay leaves a range",
    source: "McClure et al., NSDI'22",
    params: &[
        ParamSpec {
            name: "low",
            kind: ParamKind::Duration { min: Nanos::ZERO, max: Nanos::from_secs(1) },
            default: "500ns",
            doc: "mean queueing delay below which a core is revoked",
            tuning_values: &[],
        },
        ParamSpec {
            name: "high",
            kind: ParamKind::ANY_DURATION,
            default: "1us",
            doc: "mean queueing delay above which a core is granted",
            tuning_values: &[],
        },
        PERIOD,
    ],
    build: |params, _| {
        let low = params.duration("low", Nanos(500));
        let high = params.duration("high", Nanos(1_000));
        if low > high {
            return Err(ParamError::Conflict(format!("`low` ({low}) must not be above `high` ({high})")));
        }
        Ok(Box::new(DelayRange { low, high, period: params.duration("period", DEFAULT_PERIOD) }))
    },
};

/// Policy by a range of the mean delay; see the module.
#[derive(Clone, Debug)]
pub struct DelayRange {
    low: Nanos,
    high: Nanos,
    period: Nanos,
}

impl Allocator for DelayRange {
    fn poll_schedule(&self) -> PollSchedule {
        PollSchedule::Periodic(self.period)
    }

    fn tick(&mut self, signals: &CoreSignals) -> CoreChange {
        if signals.mean_delay > self.high {
            CoreChange::Grant(1)
        } else if signals.mean_delay < self.low && signals.granting == 0 {
            CoreChange::Revoke(1)
        } else {
            CoreChange::Keep
        }
    }
}
