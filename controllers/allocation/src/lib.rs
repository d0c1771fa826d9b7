//! Core allocation as pure code: the number of a service's cores, and the time after which an idle
//! core parks. Like the admission controllers it has no clocks, threads or sockets: the simulator
//! and the real server call the same code.
//!
//! For plants whose cores come and go, and for authors of policies. Entry points:
//! [`registry::find`] and [`Allocator`].
//!
//! Does not contain the choice of the core to grant or revoke, the duration of a grant, or the
//! distribution of work to cores. These are the plant's.
//!
//! - [`Allocator`]: the trait of a policy; [`CoreSignals`] is its input, [`CoreChange`] its output.
//! - [`registry`]: the policies by name; [`registry::AllocationPolicy`] is the entry of each.
//! - One file per policy: [`delay`], [`delay_range`], [`buffer`], [`utilization`], [`per_request`]
//!   (and `ideal`, the same with immediate grants), [`fixed`].
//!
//! The policies are those of McClure et al., NSDI'22. The poster *Understanding Interactions
//! between Overload Control and Core Allocation* (SIGCOMM'23) builds on them.
//!
//! ```
//! use leeward_allocation::{CoreChange, CoreLimits, CoreSignals, registry};
//! use leeward_core::units::{Nanos, Time};
//!
//! let delay = registry::find("delay").unwrap();
//! let params = delay.params(&[]).unwrap();
//! let mut allocator = delay.build(&params, CoreLimits::new(1, 32)).unwrap();
//! let mut signals = CoreSignals { active: 7, ..CoreSignals::idle(Time::ZERO) };
//! assert_eq!(allocator.tick(&signals), CoreChange::Keep);
//! signals.oldest = Nanos::from_micros(11); // an entry has waited for more than 10 us
//! assert_eq!(allocator.tick(&signals), CoreChange::Grant(1));
//! ```

#![forbid(unsafe_code)]

pub mod buffer;
pub mod delay;
pub mod delay_range;
pub mod fixed;
pub mod per_request;
mod policy;
pub mod registry;
pub mod utilization;

use leeward_core::units::{Nanos, Time};

/// Minimum and maximum number of a service's cores.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CoreLimits {
    /// Minimum; at least one.
    pub min: u32,
    /// Maximum.
    pub max: u32,
}

impl CoreLimits {
    /// Creates limits of at least one core, with the minimum lowered to the maximum if it is above.
    pub fn new(min: u32, max: u32) -> Self {
        let max = max.max(1);
        CoreLimits { min: min.clamp(1, max), max }
    }
}

/// Input of an allocator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CoreSignals {
    /// Now.
    pub now: Time,
    /// Cores that the service has and will keep, including idle ones.
    pub active: u32,
    /// Granted cores that can't be used yet.
    pub granting: u32,
    /// Active cores without work.
    pub idle: u32,
    /// Requests waiting in any queue, as messages or as tasks.
    pub waiting: u32,
    /// Age of the oldest entry of any queue.
    pub oldest: Nanos,
    /// Mean over the active cores of the age of their queues' oldest entry; an empty queue counts
    /// as zero.
    pub mean_delay: Nanos,
    /// Requests rejected since the last tick: load that shows neither in queues nor in busy cores.
    pub rejected: u64,
    /// CPU time that all cores spent on work since the last tick.
    pub busy: Nanos,
    /// CPU time of the service's cores since the last tick.
    pub available: Nanos,
}

impl CoreSignals {
    /// Signals without cores or queues.
    pub fn idle(now: Time) -> Self {
        let nothing = Nanos::ZERO;
        CoreSignals {
            now,
            active: 0,
            granting: 0,
            idle: 0,
            waiting: 0,
            oldest: nothing,
            mean_delay: nothing,
            rejected: 0,
            busy: nothing,
            available: nothing,
        }
    }

    /// Active cores and those being granted.
    pub fn allocated(&self) -> u32 {
        self.active + self.granting
    }
}

/// Change that an allocator requests. The plant applies it within the service's limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum CoreChange {
    /// The number of cores stays.
    Keep,
    /// Grants this number of cores.
    Grant(u32),
    /// Revokes this number of cores, idle ones first.
    Revoke(u32),
}

impl CoreChange {
    /// Returns the change from `allocated` cores to `wanted`.
    pub fn between_counts(allocated: u32, wanted: u32) -> CoreChange {
        match wanted.cmp(&allocated) {
            std::cmp::Ordering::Greater => CoreChange::Grant(wanted - allocated),
            std::cmp::Ordering::Less => CoreChange::Revoke(allocated - wanted),
            std::cmp::Ordering::Equal => CoreChange::Keep,
        }
    }
}

/// Times at which a plant calls an allocator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PollSchedule {
    /// Every period.
    Periodic(Nanos),
    /// At each arrival of a request and each core that runs out of work.
    EveryEvent {
        /// Whether cores come and go without delay. Only a simulator can do that, for a policy to
        /// compare with.
        instant: bool,
    },
}

/// A policy of core allocation. A server has one, which never blocks and never fails.
pub trait Allocator: Send {
    /// Returns the times at which the plant calls [`Allocator::tick`].
    fn poll_schedule(&self) -> PollSchedule;

    /// Returns the requested change. A late or spurious call does no harm.
    fn tick(&mut self, signals: &CoreSignals) -> CoreChange;

    /// Time for which a core searches for work before it parks. With `None` the core searches until
    /// the allocator revokes it.
    fn search(&self) -> Option<Nanos> {
        None
    }
}
