//! The mean queueing delay kept within a range: a core more above it, a core less below it (McClure et al., NSDI'22).

use super::policy::{AllocationPolicy, EVERY, PERIOD};
use super::{Allocator, Change, CoreSignals, Pace};
use leeward_core::params::{Kind, ParamError, ParamSpec};
use leeward_core::units::Nanos;

/// The registry's entry.
pub const POLICY: AllocationPolicy = AllocationPolicy {
    name: "delay-range",
    summary: "a core more or less as the mean queueing delay leaves a range",
    source: "McClure et al., NSDI'22",
    params: &[
        ParamSpec {
            name: "low",
            kind: Kind::Duration { min: Nanos::ZERO, max: Nanos::from_secs(1) },
            default: "500ns",
            doc: "mean queueing delay below which a core is revoked",
            tune: &[],
        },
        ParamSpec {
            name: "high",
            kind: Kind::SPAN,
            default: "1us",
            doc: "mean queueing delay above which a core is granted",
            tune: &[],
        },
        PERIOD,
    ],
    build: |params, _| {
        let low = params.duration("low", Nanos(500));
        let high = params.duration("high", Nanos(1_000));
        if low > high {
            return Err(ParamError::Conflict(format!("`low` ({low}) must not be above `high` ({high})")));
        }
        Ok(Box::new(DelayRange { low, high, period: params.duration("period", EVERY) }))
    },
};

/// See the module.
#[derive(Clone, Debug)]
pub struct DelayRange {
    low: Nanos,
    high: Nanos,
    period: Nanos,
}

impl Allocator for DelayRange {
    fn pace(&self) -> Pace {
        Pace::Periodic(self.period)
    }

    fn tick(&mut self, signals: &CoreSignals) -> Change {
        if signals.mean_delay > self.high {
            Change::Grant(1)
        } else if signals.mean_delay < self.low && signals.granting == 0 {
            Change::Revoke(1)
        } else {
            Change::Keep
        }
    }
}
