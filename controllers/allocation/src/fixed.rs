//! A fixed number of cores, as without an allocator: the baseline of the other policies.

use super::policy::{AllocationPolicy, DEFAULT_PERIOD};
use super::{Allocator, CoreChange, CoreSignals, PollSchedule};
use leeward_core::params::{ParamKind, ParamSpec};

/// The registry's entry.
pub const POLICY: AllocationPolicy = AllocationPolicy {
    name: "static",
    summary: "a fixed number of cores",
    source: "",
    params: &[ParamSpec {
        name: "cores",
        kind: ParamKind::Count { min: 1, max: 4_096 },
        default: "as many as the service may have",
        doc: "how many",
        tuning_values: &[],
    }],
    build: |params, limits| {
        let cores = params.count("cores", limits.max.into());
        Ok(Box::new(Fixed { cores: cores.clamp(limits.min.into(), limits.max.into()) as u32 }))
    },
};

/// Policy of a fixed number of cores; see the module.
#[derive(Clone, Debug)]
pub struct Fixed {
    cores: u32,
}

impl Allocator for Fixed {
    fn poll_schedule(&self) -> PollSchedule {
        PollSchedule::Periodic(DEFAULT_PERIOD)
    }

    fn tick(&mut self, signals: &CoreSignals) -> CoreChange {
        CoreChange::between_counts(signals.allocated(), self.cores)
    }
}
