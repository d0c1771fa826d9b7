//! The locks' clock: one for the process, for a lock belongs to no server. Only differences of it mean anything.

use leeward_core::units::Time;

/// The time now.
#[cfg(not(loom))]
pub(super) fn now() -> Time {
    crate::clock::process()
}

/// A model's time stands still, unless the model moves it. All threads of a model are one of the checker's.
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
