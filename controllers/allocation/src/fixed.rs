//! A fixed number of cores: what there is without an allocator, and what the others are compared with.

use super::policy::{AllocationPolicy, EVERY};
use super::{Allocator, Change, CoreSignals, Pace};
use leeward_core::params::{Kind, ParamSpec};

/// The registry's entry.
pub const POLICY: AllocationPolicy = AllocationPolicy {
    name: "static",
    summary: "a fixed number of cores",
    source: "",
    params: &[ParamSpec {
        name: "cores",
        kind: Kind::Count { min: 1, max: 4_096 },
        default: "as many as the service may have",
        doc: "how many",
        tune: &[],
    }],
    build: |params, limits| {
        let cores = params.count("cores", limits.max.into());
        Ok(Box::new(Fixed { cores: cores.clamp(limits.min.into(), limits.max.into()) as u32 }))
    },
};

/// See the module.
#[derive(Clone, Debug)]
pub struct Fixed {
    cores: u32,
}

impl Allocator for Fixed {
    fn pace(&self) -> Pace {
        Pace::Periodic(EVERY)
    }

    fn tick(&mut self, signals: &CoreSignals) -> Change {
        Change::to(signals.allocated(), self.cores)
    }
}
