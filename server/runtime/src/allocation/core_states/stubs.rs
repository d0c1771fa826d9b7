//! Stubs of an allocator and of admission for the tests of core states.

use super::*;

/// An allocator that always asks for the same change.
pub(super) struct ConstantAllocator {
    pub(super) change: CoreChange,
    pub(super) search_time: Option<Nanos>,
}

impl Allocator for ConstantAllocator {
    fn poll_schedule(&self) -> PollSchedule {
        PollSchedule::Periodic(Nanos(10))
    }

    fn tick(&mut self, _: &CoreSignals) -> CoreChange {
        self.change
    }

    fn search(&self) -> Option<Nanos> {
        self.search_time
    }
}

pub(super) struct NullMessages;

impl AllocationMessages for NullMessages {
    fn rejected(&self) -> u64 {
        0
    }

    fn cores_changed(&self, _: &CoreGrant) {}
}

pub(super) fn core_states(change: CoreChange, cores: usize, least: u32) -> CoreStates {
    let allocator = Box::new(ConstantAllocator { change, search_time: Some(Nanos(5)) });
    let limits = CoreLimits::new(least, cores as u32);
    CoreStates::new(Allocation { allocator, limits, admission: Box::new(NullMessages) }, cores, Time::ZERO)
}

pub(super) const NO_LOAD: AllocatorLoad =
    AllocatorLoad { waiting: 0, oldest: Nanos::ZERO, ages: Nanos::ZERO, idle: Nanos::ZERO };
