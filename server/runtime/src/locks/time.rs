//! The locks' clock: one for the process, since a lock belongs to no server. Only differences are
//! meaningful.

use leeward_core::units::Time;

/// Returns the current time.
#[cfg(not(loom))]
pub(super) fn now() -> Time {
    crate::clock::process()
}

/// Returns the model's time, which stands still unless the model moves it. All threads of a model
/// run on one thread of the checker.
#[cfg(loom)]
pub(super) fn now() -> Time {
    MODEL.with(std::cell::Cell::get)
}

#[cfg(loom)]
std::thread_local! {
    static MODEL: std::cell::Cell<Time> = const { std::cell::Cell::new(Time(1)) };
}

#[cfg(all(test, loom))]
pub(super) fn set_now(now: Time) {
    MODEL.with(|time| time.set(now));
}
