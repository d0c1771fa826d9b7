//! The locks' clock: one for the process, for a lock belongs to no server. Only differences of it mean anything.

use leeward_control::units::Time;

/// The time now.
#[cfg(not(loom))]
pub(super) fn now() -> Time {
    static CLOCK: std::sync::LazyLock<crate::Clock> = std::sync::LazyLock::new(crate::Clock::start);
    CLOCK.now()
}

/// A model has no time: what it checks must not depend on it.
#[cfg(loom)]
pub(super) fn now() -> Time {
    Time(1)
}
