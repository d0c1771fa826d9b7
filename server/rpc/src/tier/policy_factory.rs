//! A policy of threading for whichever tier a builder starts: who starts a service need not know which one it is. Never here: the policy.

use leeward_threading::ThreadingPolicy;
use std::fmt;
use std::sync::Arc;

/// How a policy of threading is made, and the CPUs that it decides about.
#[derive(Clone)]
pub struct PolicyFactory {
    make: Arc<dyn Fn() -> Box<dyn ThreadingPolicy> + Send + Sync>,
    cpus: u16,
}

impl PolicyFactory {
    /// Policies that `make` makes, one per tier, on so many CPUs.
    pub fn new(cpus: u16, make: impl Fn() -> Box<dyn ThreadingPolicy> + Send + Sync + 'static) -> Self {
        PolicyFactory { make: Arc::new(make), cpus }
    }

    /// A policy, and its CPUs.
    pub(super) fn policy(&self) -> (Box<dyn ThreadingPolicy>, u16) {
        ((self.make)(), self.cpus)
    }
}

impl fmt::Debug for PolicyFactory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Governed").field("cpus", &self.cpus).finish_non_exhaustive()
    }
}
