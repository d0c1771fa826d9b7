//! Core allocation of the simulated server: the model of grants, and how work finds a core.
//! Allocation policies are in `leeward_allocation`.
//!
//! - [`Scheduling`]: the part of a server's model for core allocation.
//! - [`RevokePolicy`], [`StealAmount`], [`InitialCores`]: rules in which simulators differ.
//! - [`Balancing`]: where a message is queued, and how an idle core finds work.
//! - `search`: when a searching core reaches which queue.
//! - `scheduler`: the state of all cores; `crate::run::cores` advances it.
//! - `usage`: how long cores were in each state.

mod balancing;
pub(crate) mod scheduler;
mod search;
mod usage;

pub use balancing::{Balancing, DispatchPolicy, NAMES, StealPolicy};

use leeward_allocation::CoreLimits;
use leeward_core::params::Params;
use leeward_core::units::Nanos;

/// Model of core allocation and load balancing. The defaults are those of the poster (SIGCOMM'23
/// §1).
#[derive(Clone, Debug, PartialEq)]
pub struct Scheduling {
    /// Name of the allocation policy: see [`leeward_allocation::registry`].
    pub allocator: String,
    /// Parameters of the policy.
    pub params: Params,
    /// Minimum number of cores of the server.
    pub min_cores: u32,
    /// Time from a grant until the core is usable.
    pub allocation_delay: Nanos,
    /// CPU time of checking another core's queue. Taking an entry costs
    /// [`crate::config::Costs::steal`] besides.
    pub check_cost: Nanos,
    /// Load balancing policy.
    pub balancing: Balancing,
    /// Cores that may be revoked.
    pub revoke: RevokePolicy,
    /// Number of entries that a core steals at a time.
    pub steal: StealAmount,
    /// Cores at the beginning of the run.
    pub start: InitialCores,
}

/// Cores that a revocation may take.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RevokePolicy {
    /// Idle cores first, then any core: a busy one parks after its current step.
    #[default]
    Any,
    /// Idle cores only (the simulator of McClure et al., and the poster's).
    Idle,
}

/// Number of entries that an idle core steals at a time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum StealAmount {
    /// The oldest entry.
    #[default]
    One,
    /// The older half, rounded up (the simulator of McClure et al., and the poster's).
    Half,
}

/// Cores at the beginning of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum InitialCores {
    /// The minimum number.
    #[default]
    Min,
    /// All cores (the simulator of McClure et al., and the poster's).
    All,
}

impl Scheduling {
    /// The model of the poster, with the policy `allocator`.
    pub fn new(allocator: &str) -> Self {
        Scheduling {
            allocator: allocator.into(),
            params: Params::default(),
            min_cores: 1,
            allocation_delay: Nanos::from_micros(5),
            check_cost: Nanos(100),
            balancing: Balancing::default(),
            revoke: RevokePolicy::default(),
            steal: StealAmount::default(),
            start: InitialCores::default(),
        }
    }

    /// Limits of the allocator on a server of `cores` cores.
    pub fn limits(&self, cores: u32) -> CoreLimits {
        CoreLimits::new(self.min_cores, cores)
    }
}
