//! The server's core allocator: a policy of `leeward-allocation` with defaults for a real system
//! and admission control. Does not contain how cores park and resume (`leeward-runtime`).

use leeward_allocation::registry::AllocationPolicy;
use leeward_allocation::{Allocator, CoreLimits, PollSchedule};
use leeward_core::params::{ParamError, Params, RawParam};

/// Parameter defaults that differ from the policies' own tables.
///
/// `search`: an operating system takes some tens of microseconds to resume a parked thread, the
/// simulator 5. A core that parked after 3.1 us would be gone between two requests. `rejections`:
/// admission control keeps queues below a delay threshold. Without counting rejections, the
/// allocator might never grant a second core.
pub const DEFAULTS: &[(&str, &str)] = &[("search", "50us"), ("rejections", "on")];

/// Builds the policy with these parameters and [`DEFAULTS`].
///
/// # Errors
/// Conflicting parameters, or a policy that only a simulator can follow.
pub fn build(policy: &AllocationPolicy, params: &Params, limits: CoreLimits) -> Result<Box<dyn Allocator>, ParamError> {
    let mut pairs: Vec<(&str, RawParam)> = params.pairs().collect();
    for (name, value) in DEFAULTS {
        if !params.is_set(name) && policy.params.iter().any(|spec| spec.name == *name) {
            pairs.push((name, RawParam::Text((*value).into())));
        }
    }
    let allocator = policy.build(&policy.params(&pairs)?, limits)?;
    if allocator.poll_schedule() == (PollSchedule::EveryEvent { instant: true }) {
        let message = format!("`{}` needs cores that are granted instantly, which only the simulator has", policy.name);
        return Err(ParamError::Conflict(message));
    }
    Ok(allocator)
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use leeward_allocation::registry;
    use leeward_core::units::Nanos;

    #[test]
    fn the_default_search_time_is_longer_than_in_the_simulator() {
        let built = |name: &str, pairs: &[(&str, RawParam)]| {
            let policy = registry::find(name).unwrap();
            build(policy, &policy.params(pairs).unwrap(), CoreLimits::new(1, 4))
        };
        assert_eq!(built("delay", &[]).unwrap().search(), Some(Nanos::from_micros(50)));
        let pairs = [("search", RawParam::Text("7us".into()))];
        assert_eq!(built("per-request", &pairs).unwrap().search(), Some(Nanos::from_micros(7)));
        assert_eq!(built("utilization", &[]).unwrap().search(), None);
        assert!(built("ideal", &[]).err().unwrap().to_string().contains("simulator"));
    }
}
