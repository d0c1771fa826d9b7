//! Servers whose cores come and go: what the simulator is told of it. The policies of allocation are
//! `leeward_allocation`'s; what a grant costs, and how work finds a core, is here.
//!
//! - [`Scheduling`]: the part of a server's model that says so.
//! - [`Revoke`], [`Steal`], [`Start`]: rules in which simulators differ.
//! - [`Balancing`]: where a message goes, and how a core without work finds some.
//! - `search`: when a core that looks for work gets to whose queue.
//! - `scheduler`: the state of all cores; `crate::run::cores` moves it on.
//! - `usage`: who had the cores for how long.

mod balancing;
pub(crate) mod scheduler;
mod search;
mod usage;

pub use balancing::{Balancing, DispatchPolicy, NAMES, StealPolicy};

use leeward_allocation::CoreLimits;
use leeward_core::params::Params;
use leeward_core::units::Nanos;

/// How a server's cores come and go, and how work finds them. The defaults are those of the poster (SIGCOMM'23 §1).
#[derive(Clone, Debug, PartialEq)]
pub struct Scheduling {
    /// The policy's name: see [`leeward_allocation::registry`].
    pub allocator: String,
    /// Its parameters.
    pub params: Params,
    /// The fewest cores the server ever has.
    pub min_cores: u32,
    /// Time from a grant until the core can be used.
    pub allocation_delay: Nanos,
    /// CPU time to look into another core's queue. To take something out of it costs [`crate::config::Costs::steal`].
    pub check_cost: Nanos,
    /// How work and cores find each other.
    pub balancing: Balancing,
    /// Cores that may be revoked.
    pub revoke: RevokePolicy,
    /// Entries that a core takes from another's queue.
    pub steal: StealAmount,
    /// Cores that are there when the run begins.
    pub start: InitialCores,
}

/// Cores that a policy's revocations may take.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RevokePolicy {
    /// Cores without work first, then any: a busy one parks after what it is at.
    #[default]
    Any,
    /// Cores without work only (the simulator of McClure et al., and the poster's).
    Idle,
}

/// Entries that a core without work takes from another's queue at once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum StealAmount {
    /// The oldest.
    #[default]
    One,
    /// The older half, rounded up (the simulator of McClure et al., and the poster's).
    Half,
}

/// Cores that are there when a run begins.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum InitialCores {
    /// The fewest.
    #[default]
    Min,
    /// All (the simulator of McClure et al., and the poster's).
    All,
}

impl Scheduling {
    /// The policy `allocator`, everything else as in the poster.
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

    /// The limits on a server of so many cores.
    pub fn limits(&self, cores: u32) -> CoreLimits {
        CoreLimits::new(self.min_cores, cores)
    }
}
