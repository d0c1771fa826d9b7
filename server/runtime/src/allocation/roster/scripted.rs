//! Stand-ins for an allocator and for admission in the tests of the roster.

use super::*;

/// Wants the same thing for ever.
pub(super) struct Always {
    pub(super) change: Change,
    pub(super) search: Option<Nanos>,
}

impl Allocator for Always {
    fn pace(&self) -> Pace {
        Pace::Periodic(Nanos(10))
    }

    fn tick(&mut self, _: &CoreSignals) -> Change {
        self.change
    }

    fn search(&self) -> Option<Nanos> {
        self.search
    }
}

pub(super) struct Deaf;

impl Bystander for Deaf {
    fn rejected(&self) -> u64 {
        0
    }

    fn changed(&self, _: &CoresGranted) {}
}

pub(super) fn roster(change: Change, cores: usize, least: u32) -> Roster {
    let allocator = Box::new(Always { change, search: Some(Nanos(5)) });
    let limits = CoreLimits::new(least, cores as u32);
    Roster::new(Allocation { allocator, limits, admission: Box::new(Deaf) }, cores, Time::ZERO)
}

pub(super) const NOTHING: Load = Load { waiting: 0, oldest: Nanos::ZERO, ages: Nanos::ZERO, idle: Nanos::ZERO };
