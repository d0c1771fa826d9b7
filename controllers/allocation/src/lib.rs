//! Core allocation as pure code: how many cores a service gets, and when a core that finds nothing to do gives itself
//! back. Beside the admission controllers, and like them without clocks, threads or sockets: the simulator and the real
//! server call the same code.
//!
//! Never here: which core is granted or taken, how long that lasts, and how work finds a core. That is the plant's.
//!
//! - [`Allocator`]: what a plant asks; [`CoreSignals`] is what it tells, [`Change`] what it is told.
//! - [`registry`]: the policies by name; [`registry::AllocationPolicy`] is the entry of each.
//! - One file per policy: [`delay`], [`delay_range`], [`buffer`], [`utilization`], [`per_request`] (and `ideal`, the same
//!   where granting takes no time), [`fixed`].
//!
//! The policies are those of McClure et al., NSDI'22, on which the poster *Understanding Interactions between Overload
//! Control and Core Allocation* (SIGCOMM'23) builds.
//!
//! ```
//! use leeward_allocation::{Change, CoreLimits, CoreSignals, registry};
//! use leeward_core::units::{Nanos, Time};
//!
//! let delay = registry::find("delay").unwrap();
//! let params = delay.params(&[]).unwrap();
//! let mut allocator = delay.build(&params, CoreLimits::new(1, 32)).unwrap();
//! let mut signals = CoreSignals { active: 7, ..CoreSignals::idle(Time::ZERO) };
//! assert_eq!(allocator.tick(&signals), Change::Keep);
//! signals.oldest = Nanos::from_micros(11); // somebody has waited for longer than the threshold of 10 us
//! assert_eq!(allocator.tick(&signals), Change::Grant(1));
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

/// How few and how many cores a service may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CoreLimits {
    /// Fewest cores that the service has; at least one.
    pub min: u32,
    /// Most cores that the service has.
    pub max: u32,
}

impl CoreLimits {
    /// At least one core, and never a minimum above the maximum.
    pub fn new(min: u32, max: u32) -> Self {
        let max = max.max(1);
        CoreLimits { min: min.clamp(1, max), max }
    }
}

/// Signals that an allocator receives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CoreSignals {
    /// Now.
    pub now: Time,
    /// Cores that the service has and will keep, those without work included.
    pub active: u32,
    /// Cores that were granted and can't be used yet.
    pub granting: u32,
    /// Active cores that have nothing to do.
    pub idle: u32,
    /// Requests that wait in any queue, as messages or as tasks.
    pub waiting: u32,
    /// The longest that any queue's oldest entry has waited.
    pub oldest: Nanos,
    /// The mean over the active cores of the age of their queues' oldest entry; an empty queue counts as zero.
    pub mean_delay: Nanos,
    /// Requests rejected since the last tick: load that shows neither in queues nor in busy cores.
    pub rejected: u64,
    /// CPU time that all cores have spent on work since the last tick.
    pub busy: Nanos,
    /// CPU time that the service has had since the last tick.
    pub available: Nanos,
}

impl CoreSignals {
    /// No cores, nothing queued.
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

    /// Cores that are the service's, or soon will be.
    pub fn allocated(&self) -> u32 {
        self.active + self.granting
    }
}

/// Change that an allocator wants. The plant does as much of it as the service's limits allow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum CoreChange {
    /// The number of cores stays.
    Keep,
    /// So many more cores.
    Grant(u32),
    /// So many fewer, those without work first.
    Revoke(u32),
}

impl CoreChange {
    /// The change that leads from `allocated` cores to `wanted`.
    pub fn between_counts(allocated: u32, wanted: u32) -> CoreChange {
        match wanted.cmp(&allocated) {
            std::cmp::Ordering::Greater => CoreChange::Grant(wanted - allocated),
            std::cmp::Ordering::Less => CoreChange::Revoke(allocated - wanted),
            std::cmp::Ordering::Equal => CoreChange::Keep,
        }
    }
}

/// When an allocator wants to be asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PollSchedule {
    /// Every period.
    Periodic(Nanos),
    /// Whenever a request arrives or a core runs out of work. `instant`: a policy to compare with, for which cores come
    /// and go without delay; only a simulator can do that.
    EveryEvent {
        /// Whether granting takes no time.
        instant: bool,
    },
}

/// A policy of core allocation. A server has one value of it, which never blocks and never fails.
pub trait Allocator: Send {
    /// Times at which the policy wants to be asked.
    fn poll_schedule(&self) -> PollSchedule;

    /// The change that the policy wants now. A late or spurious call does no harm.
    fn tick(&mut self, signals: &CoreSignals) -> CoreChange;

    /// How long a core looks for work in vain before it parks, which gives it back. `None`: it looks on until the
    /// allocator revokes it.
    fn search(&self) -> Option<Nanos> {
        None
    }
}
