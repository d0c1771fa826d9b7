//! The cores' utilization within a range: one more core above it, one less below it (Arachne,
//! OSDI'18; McClure et al., NSDI'22).

use super::policy::{AllocationPolicy, DEFAULT_PERIOD, PERIOD};
use super::{Allocator, CoreChange, CoreSignals, PollSchedule};
use leeward_core::params::{ParamError, ParamKind, ParamSpec};
use leeward_core::units::Nanos;

/// The registry's entry.
pub const POLICY: AllocationPolicy = AllocationPolicy {
    name: "utilization",
    summary: "a core more or less as the cores' utilization leaves a range",
    source: "McClure et al., NSDI'22",
    params: &[
        ParamSpec {
            name: "low",
            kind: ParamKind::Number { min: 0.0, max: 1.0 },
            default: "75%",
            doc: "utilization below which a core is revoked",
            tuning_values: &[],
        },
        ParamSpec {
            name: "high",
            kind: ParamKind::Number { min: 0.0, max: 1.0 },
            default: "95%",
            doc: "utilization above which a core is granted",
            tuning_values: &[],
        },
        PERIOD,
    ],
    build: |params, _| {
        let low = params.number("low", 0.75);
        let high = params.number("high", 0.95);
        if low > high {
            return Err(ParamError::Conflict(format!("`low` ({low}) must not be above `high` ({high})")));
        }
        Ok(Box::new(UtilizationRange { low, high, period: params.duration("period", DEFAULT_PERIOD) }))
    },
};

/// Policy by a range of utilization; see the module.
#[derive(Clone, Debug)]
pub struct UtilizationRange {
    low: f64,
    high: f64,
    period: Nanos,
}

impl Allocator for UtilizationRange {
    fn poll_schedule(&self) -> PollSchedule {
        PollSchedule::Periodic(self.period)
    }

    fn tick(&mut self, signals: &CoreSignals) -> CoreChange {
        if signals.available == Nanos::ZERO {
            return CoreChange::Keep;
        }
        let utilization = signals.busy.0 as f64 / signals.available.0 as f64;
        // Not in the paper, which has no admission control. A rejected request never makes a core
        // busy. The rejections of an overload would keep the utilization within its range, and the
        // cores parked.
        if utilization > self.high || signals.rejected > 0 {
            CoreChange::Grant(1)
        } else if utilization < self.low && signals.granting == 0 {
            CoreChange::Revoke(1)
        } else {
            CoreChange::Keep
        }
    }
}
