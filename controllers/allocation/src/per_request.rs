//! A core per request: grants a core for each request that finds none free; an idle core parks.
//! Also *ideal*, the same with immediate grants: a bound that no system reaches (McClure et al.,
//! NSDI'22).

use super::policy::{AllocationPolicy, DEFAULT_SEARCH, SEARCH};
use super::{Allocator, CoreChange, CoreSignals, PollSchedule};
use leeward_core::units::Nanos;

/// The registry's entry.
pub const POLICY: AllocationPolicy = AllocationPolicy {
    name: "per-request",
    summary: "a core for each request, granted as it arrives",
    source: "McClure et al., NSDI'22",
    params: &[SEARCH],
    build: |params, _| Ok(Box::new(PerRequest { instant: false, search: params.duration("search", DEFAULT_SEARCH) })),
};

/// The registry's entry for the bound.
pub const IDEAL: AllocationPolicy = AllocationPolicy {
    name: "ideal",
    summary: "a core for each request at once, as if granting took no time; simulator only",
    source: "McClure et al., NSDI'22",
    params: &[],
    build: |_, _| Ok(Box::new(PerRequest { instant: true, search: Nanos::ZERO })),
};

/// Policy of a core per request; see the module.
#[derive(Clone, Debug)]
pub struct PerRequest {
    instant: bool,
    search: Nanos,
}

impl Allocator for PerRequest {
    fn poll_schedule(&self) -> PollSchedule {
        PollSchedule::EveryEvent { instant: self.instant }
    }

    fn tick(&mut self, signals: &CoreSignals) -> CoreChange {
        let ready = signals.idle + signals.granting;
        if signals.waiting > ready { CoreChange::Grant(signals.waiting - ready) } else { CoreChange::Keep }
    }

    fn search(&self) -> Option<Nanos> {
        Some(self.search)
    }
}
