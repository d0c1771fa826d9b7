//! A client's timer, the same in all simulators. It is never cancelled; an outdated event has no
//! effect.
//!
//! Does not contain the event.

use leeward_core::units::Time;

/// Time at which a timer fires; [`Time::NEVER`] while it is not set.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Timer(Time);

impl Timer {
    /// A timer that is not set.
    pub(crate) const UNSET: Timer = Timer(Time::NEVER);

    /// Whether the timer that has just fired is the one that is set; resets it if so.
    pub(crate) fn is_due(&mut self, now: Time) -> bool {
        let due = self.0 == now;
        if due {
            *self = Timer::UNSET;
        }
        due
    }

    /// Sets the timer and returns the time for which an event must be scheduled; `None` if no event
    /// is needed.
    ///
    /// A timer that is set to an earlier time stays: it fires without effect, and is then set
    /// again.
    pub(crate) fn set(&mut self, now: Time, timeout: Option<Time>) -> Option<Time> {
        let timeout = timeout?.max(Time(now.0 + 1));
        (timeout < self.0).then(|| {
            self.0 = timeout;
            timeout
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_earliest_timeout_is_due() {
        let mut timer = Timer::UNSET;
        assert_eq!(timer.set(Time(5), None), None);
        assert_eq!(timer.set(Time(5), Some(Time(9))), Some(Time(9)));
        assert_eq!(timer.set(Time(5), Some(Time(12))), None, "it goes off before");
        assert_eq!(timer.set(Time(5), Some(Time(3))), Some(Time(6)), "never at once");
        assert!(timer.is_due(Time(6)) && !timer.is_due(Time(9)));
        assert_eq!(timer.set(Time(9), Some(Time(12))), Some(Time(12)));
    }
}
