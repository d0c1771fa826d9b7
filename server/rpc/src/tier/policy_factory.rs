//! Factory of threading policies for the tier that a builder starts; the caller need not know the
//! service.
//!
//! Does not contain policies.

use leeward_threading::ThreadingPolicy;
use std::fmt;
use std::sync::Arc;

/// Makes threading policies for a number of CPUs.
#[derive(Clone)]
pub struct PolicyFactory {
    make: Arc<dyn Fn() -> Box<dyn ThreadingPolicy> + Send + Sync>,
    cpus: u16,
}

impl PolicyFactory {
    /// Creates a factory that calls `make` once per tier, for `cpus` CPUs.
    pub fn new(cpus: u16, make: impl Fn() -> Box<dyn ThreadingPolicy> + Send + Sync + 'static) -> Self {
        PolicyFactory { make: Arc::new(make), cpus }
    }

    /// Makes a policy, and returns it with its number of CPUs.
    pub(super) fn policy(&self) -> (Box<dyn ThreadingPolicy>, u16) {
        ((self.make)(), self.cpus)
    }
}

impl fmt::Debug for PolicyFactory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PolicyFactory").field("cpus", &self.cpus).finish_non_exhaustive()
    }
}
