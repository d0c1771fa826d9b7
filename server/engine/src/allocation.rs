//! The server's allocator: a policy of `leeward-core` with what it costs a real system to bring a core, and its
//! acquaintance with admission. Never here: how cores park and come back (`leeward-runtime`).

use leeward_allocation::registry::AllocationPolicy;
use leeward_allocation::{Allocator, CoreLimits, PollSchedule};
use leeward_core::params::{ParamError, Params, RawParam};

/// Defaults of the policies' parameters that differ from their own tables. An operating system takes some tens of
/// microseconds to bring a parked thread, the simulator 5: a core that parked after 3.1 us would be gone between two
/// requests. And there is admission control, whose rejections keep queues younger than a threshold of waiting: without
/// counting them one core may be there for ever.
pub const DEFAULTS: &[(&str, &str)] = &[("search", "50us"), ("rejections", "on")];

/// The policy with these parameters and [`DEFAULTS`].
///
/// # Errors
/// Parameters that can't stand together, and a policy that only a simulator can follow.
pub fn build(policy: &AllocationPolicy, params: &Params, limits: CoreLimits) -> Result<Box<dyn Allocator>, ParamError> {
    let mut pairs: Vec<(&str, RawParam)> = params.pairs().collect();
    for (name, value) in DEFAULTS {
        if !params.is_set(name) && policy.params.iter().any(|spec| spec.name == *name) {
            pairs.push((name, RawParam::Text((*value).into())));
        }
    }
    let allocator = policy.build(&policy.params(&pairs)?, limits)?;
    if allocator.poll_schedule() == (PollSchedule::EveryEvent { instant: true }) {
        let words = format!("`{}` wants cores that come at once: only the simulator has them", policy.name);
        return Err(ParamError::Conflict(words));
    }
    Ok(allocator)
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use leeward_allocation::registry;
    use leeward_core::units::Nanos;

    #[test]
    fn a_core_looks_for_longer_than_in_the_simulator_unless_told() {
        let built = |name: &str, pairs: &[(&str, RawParam)]| {
            let policy = registry::find(name).unwrap();
            build(policy, &policy.params(pairs).unwrap(), CoreLimits::new(1, 4))
        };
        assert_eq!(built("delay", &[]).unwrap().search(), Some(Nanos::from_micros(50)));
        let told = [("search", RawParam::Text("7us".into()))];
        assert_eq!(built("per-request", &told).unwrap().search(), Some(Nanos::from_micros(7)));
        assert_eq!(built("utilization", &[]).unwrap().search(), None);
        assert!(built("ideal", &[]).err().unwrap().to_string().contains("simulator"));
    }
}
