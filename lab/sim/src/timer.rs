//! A client's timer, as all simulators have it: it is never taken back, but goes off in vain. Never here: the event that it is.

use leeward_core::units::Time;

/// When a timer goes off; never while it is not set.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Timer(Time);

impl Timer {
    /// A timer that is not set.
    pub(crate) const UNSET: Timer = Timer(Time::NEVER);

    /// Whether the timer that has just gone off is the one that is set.
    pub(crate) fn is_due(&mut self, now: Time) -> bool {
        let due = self.0 == now;
        if due {
            *self = Timer::UNSET;
        }
        due
    }

    /// Sets the timer to `wanted`, which is what it returns; `None` if nothing need be scheduled. A timer that is set too early
    /// stays: it goes off, does nothing, and is set anew then.
    pub(crate) fn set(&mut self, now: Time, wanted: Option<Time>) -> Option<Time> {
        let wanted = wanted?.max(Time(now.0 + 1));
        (wanted < self.0).then(|| {
            self.0 = wanted;
            wanted
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_earliest_setting_is_due() {
        let mut timer = Timer::UNSET;
        assert_eq!(timer.set(Time(5), None), None);
        assert_eq!(timer.set(Time(5), Some(Time(9))), Some(Time(9)));
        assert_eq!(timer.set(Time(5), Some(Time(12))), None, "it goes off before");
        assert_eq!(timer.set(Time(5), Some(Time(3))), Some(Time(6)), "never at once");
        assert!(timer.is_due(Time(6)) && !timer.is_due(Time(9)));
        assert_eq!(timer.set(Time(9), Some(Time(12))), Some(Time(12)));
    }
}
