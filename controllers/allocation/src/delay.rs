//! The queueing-delay threshold: grants one more core when a queue's oldest entry has waited for
//! too long; an idle core parks itself (Shenango, NSDI'19; poster §1).

use super::policy::{AllocationPolicy, DEFAULT_PERIOD, DEFAULT_SEARCH, PERIOD, SEARCH};
use super::{Allocator, CoreChange, CoreSignals, PollSchedule};
use leeward_core::params::{ParamKind, ParamSpec};
use leeward_core::units::Nanos;

/// The registry's entry.
pub const POLICY: AllocationPolicy = AllocationPolicy {
    name: "delay",
    summary: "one more core when any queue's oldest entry is older than a threshold; cores that find no work park",
    source: "Shenango, NSDI'19; poster SIGCOMM'23 §1",
    params: &[
        ParamSpec {
            name: "threshold",
            kind: ParamKind::ANY_DURATION,
            default: "10us",
            doc: "age of a queue's oldest entry above which a core is granted",
            tuning_values: &["5us", "10us", "20us"],
        },
        ParamSpec {
            name: "rejections",
            kind: ParamKind::SWITCH,
            default: "off",
            doc: "grant a core for rejected requests too: a queue that admission control keeps short never gets old enough",
            tuning_values: &[],
        },
        PERIOD,
        SEARCH,
    ],
    build: |params, _| {
        Ok(Box::new(DelayThreshold {
            threshold: params.duration("threshold", Nanos::from_micros(10)),
            rejections: params.choice("rejections", "off") == "on",
            period: params.duration("period", DEFAULT_PERIOD),
            search: params.duration("search", DEFAULT_SEARCH),
        }))
    },
};

/// Policy by queueing-delay threshold; see the module.
#[derive(Clone, Debug)]
pub struct DelayThreshold {
    threshold: Nanos,
    rejections: bool,
    period: Nanos,
    search: Nanos,
}

impl Allocator for DelayThreshold {
    fn poll_schedule(&self) -> PollSchedule {
        PollSchedule::Periodic(self.period)
    }

    fn tick(&mut self, signals: &CoreSignals) -> CoreChange {
        let waits_long = signals.oldest > self.threshold;
        // If requests are rejected before a queue is old enough, the service would keep one core
        // for ever.
        if waits_long || (self.rejections && signals.rejected > 0) { CoreChange::Grant(1) } else { CoreChange::Keep }
    }

    fn search(&self) -> Option<Nanos> {
        Some(self.search)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::CoreLimits;
    use leeward_core::params::RawParam;
    use leeward_core::units::Time;

    #[test]
    fn rejections_grant_a_core_if_enabled() {
        for (rejections, expected) in [(false, CoreChange::Keep), (true, CoreChange::Grant(1))] {
            let params = POLICY.params(&[("rejections", RawParam::Switch(rejections))]).unwrap();
            let mut allocator = POLICY.build(&params, CoreLimits::new(1, 4)).unwrap();
            let calm = CoreSignals { active: 1, oldest: Nanos::from_micros(10), ..CoreSignals::idle(Time::ZERO) };
            assert_eq!(allocator.tick(&calm), CoreChange::Keep);
            assert_eq!(allocator.tick(&CoreSignals { rejected: 1, ..calm }), expected);
            assert_eq!(allocator.tick(&CoreSignals { oldest: Nanos(10_001), ..calm }), CoreChange::Grant(1));
        }
    }
}
