//! The queueing-delay threshold: one more core when something has waited for too long; a core without work gives itself
//! back (Shenango, NSDI'19; poster §1).

use super::policy::{AllocationPolicy, EVERY, LOOKS, PERIOD, SEARCH};
use super::{Allocator, Change, CoreSignals, Pace};
use leeward_core::params::{Kind, ParamSpec};
use leeward_core::units::Nanos;

/// The registry's entry.
pub const POLICY: AllocationPolicy = AllocationPolicy {
    name: "delay",
    summary: "one more core when any queue's oldest entry is older than a threshold; cores that find no work park",
    source: "Shenango, NSDI'19; poster SIGCOMM'23 §1",
    params: &[
        ParamSpec {
            name: "threshold",
            kind: Kind::SPAN,
            default: "10us",
            doc: "age of a queue's oldest entry above which a core is granted",
            tune: &["5us", "10us", "20us"],
        },
        ParamSpec {
            name: "rejections",
            kind: Kind::SWITCH,
            default: "off",
            doc: "grant a core for rejected requests too: a queue that admission control keeps short never gets old enough",
            tune: &[],
        },
        PERIOD,
        SEARCH,
    ],
    build: |params, _| {
        Ok(Box::new(DelayThreshold {
            threshold: params.duration("threshold", Nanos::from_micros(10)),
            rejections: params.choice("rejections", "off") == "on",
            period: params.duration("period", EVERY),
            search: params.duration("search", LOOKS),
        }))
    },
};

/// See the module.
#[derive(Clone, Debug)]
pub struct DelayThreshold {
    threshold: Nanos,
    rejections: bool,
    period: Nanos,
    search: Nanos,
}

impl Allocator for DelayThreshold {
    fn pace(&self) -> Pace {
        Pace::Periodic(self.period)
    }

    fn tick(&mut self, signals: &CoreSignals) -> Change {
        let waits_long = signals.oldest > self.threshold;
        // Where requests are rejected sooner than a queue is old enough, one core would be there for ever.
        if waits_long || (self.rejections && signals.rejected > 0) { Change::Grant(1) } else { Change::Keep }
    }

    fn search(&self) -> Option<Nanos> {
        Some(self.search)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::CoreLimits;
    use leeward_core::params::Raw;
    use leeward_core::units::Time;

    #[test]
    fn rejections_are_a_reason_where_that_was_asked_for() {
        for (rejections, expected) in [(false, Change::Keep), (true, Change::Grant(1))] {
            let params = POLICY.params(&[("rejections", Raw::Switch(rejections))]).unwrap();
            let mut allocator = POLICY.build(&params, CoreLimits::new(1, 4)).unwrap();
            let calm = CoreSignals { active: 1, oldest: Nanos::from_micros(10), ..CoreSignals::idle(Time::ZERO) };
            assert_eq!(allocator.tick(&calm), Change::Keep);
            assert_eq!(allocator.tick(&CoreSignals { rejected: 1, ..calm }), expected);
            assert_eq!(allocator.tick(&CoreSignals { oldest: Nanos(10_001), ..calm }), Change::Grant(1));
        }
    }
}
