//! Buffer cores: a few cores without work are always kept ready, by number or by share (McClure et al., NSDI'22).

use super::policy::{AllocationPolicy, EVERY, PERIOD};
use super::{Allocator, Change, CoreSignals, Pace};
use leeward_core::params::{Kind, ParamError, ParamSpec};
use leeward_core::units::Nanos;

const COUNT: Kind = Kind::Count { min: 0, max: 4_096 };
const SHARE: Kind = Kind::Number { min: 0.0, max: 1.0 };

/// The registry's entry.
pub const POLICY: AllocationPolicy = AllocationPolicy {
    name: "buffer",
    summary: "keeps the number of cores without work within a range",
    source: "McClure et al., NSDI'22",
    params: &[
        ParamSpec { name: "min", kind: COUNT, default: "1", doc: "fewest cores kept ready", tune: &[] },
        ParamSpec { name: "max", kind: COUNT, default: "4", doc: "most cores kept ready", tune: &[] },
        ParamSpec {
            name: "min_share",
            kind: SHARE,
            default: "by number",
            doc: "fewest cores kept ready, as a share of those allocated; instead of `min`",
            tune: &[],
        },
        ParamSpec {
            name: "max_share",
            kind: SHARE,
            default: "by number",
            doc: "most cores kept ready, as a share of those allocated; instead of `max`",
            tune: &[],
        },
        PERIOD,
    ],
    build: |params, limits| {
        let bound = |count: &str, share: &str, default: u64| -> Result<Bound, ParamError> {
            match (params.is_set(count), params.is_set(share)) {
                (true, true) => Err(ParamError::Conflict(format!("`{count}` and `{share}` are both set; one will do"))),
                (_, true) => Ok(Bound::Share(params.number(share, 0.0))),
                _ => Ok(Bound::Count(params.count(count, default).min(limits.max.into()) as u32)),
            }
        };
        let (min, max) = (bound("min", "min_share", 1)?, bound("max", "max_share", 4)?);
        if min.of(limits.max) > max.of(limits.max) {
            return Err(ParamError::Conflict("the fewest cores kept ready are more than the most".into()));
        }
        Ok(Box::new(BufferCores { min, max, period: params.duration("period", EVERY) }))
    },
};

/// A number of cores, or a share of those allocated.
#[derive(Clone, Copy, Debug)]
enum Bound {
    Count(u32),
    Share(f64),
}

impl Bound {
    /// In cores, rounded up: a share of few is still one.
    fn of(self, allocated: u32) -> u32 {
        match self {
            Bound::Count(count) => count,
            Bound::Share(share) => (share * f64::from(allocated)).ceil() as u32,
        }
    }
}

/// See the module.
#[derive(Clone, Debug)]
pub struct BufferCores {
    min: Bound,
    max: Bound,
    period: Nanos,
}

impl Allocator for BufferCores {
    fn pace(&self) -> Pace {
        Pace::Periodic(self.period)
    }

    fn tick(&mut self, signals: &CoreSignals) -> Change {
        let allocated = signals.allocated();
        let (min, max) = (self.min.of(allocated), self.max.of(allocated));
        // What waits will take as many of those that are on their way.
        let ready = (signals.idle + signals.granting).saturating_sub(signals.waiting);
        if ready < min {
            Change::Grant(min - ready)
        } else if signals.idle > max {
            Change::Revoke(signals.idle - max)
        } else {
            Change::Keep
        }
    }
}
