//! Cores that come and go: the surroundings of an allocator of `leeward-core`. Active cores ask it between two jobs.
//! `Roster` knows the active cores and lets the others rest; [`crate::cores`] decides what a core does with that.

mod core_states;
mod usage;

pub(crate) use core_states::{AllocatorLoad, CoreStates};
pub use usage::CoreUsage;

use leeward_allocation::{Allocator, CoreLimits};
use leeward_core::server::CoreGrant;

/// Policy and parameters that make cores come and go.
pub struct Allocation {
    /// Says how many more or fewer.
    pub allocator: Box<dyn Allocator>,
    /// How few and how many cores there may be.
    pub limits: CoreLimits,
    /// The server's other half of it.
    pub admission: Box<dyn AllocationMessages>,
}

/// Messages between core allocation and admission.
pub trait AllocationMessages: Send {
    /// Requests rejected so far: load that shows neither in queues nor in busy cores.
    fn rejected(&self) -> u64;

    /// Cores have been granted, or (`event.granted` is 0) have parked. Called while no other core can be: it should be
    /// quick, and must not come back here.
    fn cores_changed(&self, event: &CoreGrant);
}
