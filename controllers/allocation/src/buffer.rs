//! Buffer cores: the policy always keeps a few idle cores ready, by number or by share (McClure et
//! al., NSDI'22).

use super::policy::{AllocationPolicy, DEFAULT_PERIOD, PERIOD};
use super::{Allocator, CoreChange, CoreSignals, PollSchedule};
use leeward_core::params::{ParamError, ParamKind, ParamSpec};
use leeward_core::units::Nanos;

const COUNT: ParamKind = ParamKind::Count { min: 0, max: 4_096 };
const SHARE: ParamKind = ParamKind::Number { min: 0.0, max: 1.0 };

/// The registry's entry.
pub const POLICY: AllocationPolicy = AllocationPolicy {
    name: "buffer",
    summary: "keeps the number of cores without work within a range",
    source: "McClure et al., NSDI'22",
    params: &[
        ParamSpec { name: "min", kind: COUNT, default: "1", doc: "fewest cores kept ready", tuning_values: &[] },
        ParamSpec { name: "max", kind: COUNT, default: "4", doc: "most cores kept ready", tuning_values: &[] },
        ParamSpec {
            name: "min_share",
            kind: SHARE,
            default: "by number",
            doc: "fewest cores kept ready, as a share of those allocated; instead of `min`",
            tuning_values: &[],
        },
        ParamSpec {
            name: "max_share",
            kind: SHARE,
            default: "by number",
            doc: "most cores kept ready, as a share of those allocated; instead of `max`",
            tuning_values: &[],
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
        if min.cores(limits.max) > max.cores(limits.max) {
            return Err(ParamError::Conflict("the fewest cores kept ready are more than the most".into()));
        }
        Ok(Box::new(BufferCores { min, max, period: params.duration("period", DEFAULT_PERIOD) }))
    },
};

/// A number of cores, or a share of the allocated ones.
#[derive(Clone, Copy, Debug)]
enum Bound {
    Count(u32),
    Share(f64),
}

impl Bound {
    /// Returns the bound in cores, rounded up: a share of few cores is still one.
    fn cores(self, allocated: u32) -> u32 {
        match self {
            Bound::Count(count) => count,
            Bound::Share(share) => (share * f64::from(allocated)).ceil() as u32,
        }
    }
}

/// Policy that keeps buffer cores; see the module.
#[derive(Clone, Debug)]
pub struct BufferCores {
    min: Bound,
    max: Bound,
    period: Nanos,
}

impl Allocator for BufferCores {
    fn poll_schedule(&self) -> PollSchedule {
        PollSchedule::Periodic(self.period)
    }

    fn tick(&mut self, signals: &CoreSignals) -> CoreChange {
        let allocated = signals.allocated();
        let min = self.min.cores(allocated);
        // A share of few cores may be below the number `min`; grants and revokes would alternate.
        let max = self.max.cores(allocated).max(min);
        // Waiting requests will occupy as many of the cores being granted.
        let ready = (signals.idle + signals.granting).saturating_sub(signals.waiting);
        if ready < min {
            CoreChange::Grant(min - ready)
        } else if signals.idle > max {
            CoreChange::Revoke(signals.idle - max)
        } else {
            CoreChange::Keep
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::CoreLimits;
    use leeward_core::params::RawParam;
    use leeward_core::units::Time;

    /// Changes that follow each other on a server with `busy` cores at work.
    fn changes(allocator: &mut dyn Allocator, mut allocated: u32, busy: u32, limits: CoreLimits) -> Vec<CoreChange> {
        let tick = |_| {
            let idle = allocated.saturating_sub(busy);
            let change = allocator.tick(&CoreSignals { active: allocated, idle, ..CoreSignals::idle(Time::ZERO) });
            allocated = match change {
                CoreChange::Keep => allocated,
                CoreChange::Grant(cores) => (allocated + cores).min(limits.max),
                CoreChange::Revoke(cores) => allocated.saturating_sub(cores).max(limits.min),
            };
            change
        };
        (0..100).map(tick).collect()
    }

    #[test]
    fn grants_and_revokes_do_not_alternate() {
        let limits = CoreLimits::new(1, 32);
        let count = |name, value| (name, RawParam::Integer(value));
        let share = |name, value| (name, RawParam::Number(value));
        for params in [
            [count("min", 1), count("max", 4)],
            [count("min", 3), share("max_share", 0.25)],
            [count("min", 8), share("max_share", 0.25)],
            [share("min_share", 0.125), count("max", 4)],
            [share("min_share", 0.2), share("max_share", 0.3)],
            [share("min_share", 0.5), share("max_share", 0.5)],
        ] {
            let params = POLICY.params(&params).unwrap();
            for allocated in limits.min..=limits.max {
                for busy in 0..=allocated {
                    let mut allocator = POLICY.build(&params, limits).unwrap();
                    let changes = changes(&mut *allocator, allocated, busy, limits);
                    let granted = changes.iter().any(|change| matches!(change, CoreChange::Grant(_)));
                    let revoked = changes.iter().any(|change| matches!(change, CoreChange::Revoke(_)));
                    assert!(!(granted && revoked), "{params:?}: {busy} of {allocated} cores busy: {changes:?}");
                }
            }
        }
    }
}
