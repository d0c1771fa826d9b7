//! Core allocation: the environment of an allocator of `leeward-allocation`. Active cores ask it
//! between two jobs. `CoreStates` knows the active cores and parks the others; [`crate::cores`] has
//! the effect on a core's loop.

mod core_states;
mod usage;

pub(crate) use core_states::{AllocatorLoad, CoreStates};
pub use usage::CoreUsage;

use leeward_allocation::{Allocator, CoreLimits};
use leeward_core::server::CoreGrant;

/// Policy and limits of core allocation.
pub struct Allocation {
    /// Decides how many cores to grant or revoke.
    pub allocator: Box<dyn Allocator>,
    /// Minimum and maximum number of cores.
    pub limits: CoreLimits,
    /// Admission control's side.
    pub admission: Box<dyn AllocationMessages>,
}

/// Messages between core allocation and admission.
pub trait AllocationMessages: Send {
    /// Requests rejected so far. Neither queues nor busy cores show this load.
    fn rejected(&self) -> u64;

    /// Reports that cores were granted, or that cores parked (`event.granted` is 0). Called under
    /// the lock of the core states: it must be quick and must not call back.
    fn cores_changed(&self, event: &CoreGrant);
}
