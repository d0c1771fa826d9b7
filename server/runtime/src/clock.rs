//! The real plant's time: nanoseconds since the clock was made, from the CPU's counter.

use leeward_core::units::{Nanos, Time};
use std::sync::{Arc, LazyLock};

/// Time since the first call, by one clock for the process. For objects that belong to no server,
/// such as locks and gates.
pub fn process() -> Time {
    static CLOCK: LazyLock<Clock> = LazyLock::new(Clock::start);
    CLOCK.now()
}

/// A monotonic clock. Clones show the same time.
#[derive(Clone, Debug)]
pub struct Clock {
    inner: quanta::Clock,
    zero: u64,
}

/// Advances a [manual](Clock::manual) clock. Clones advance the same one.
#[derive(Clone, Debug)]
pub struct ManualTime(Arc<quanta::Mock>);

impl ManualTime {
    /// Advances the clock by `span`.
    pub fn advance(&self, span: Nanos) {
        self.0.increment(span.0);
    }
}

impl Clock {
    /// Makes a clock that shows zero now. The first one of a process takes a moment to calibrate
    /// the CPU's counter.
    pub fn start() -> Self {
        let inner = quanta::Clock::new();
        let zero = inner.raw();
        Clock { inner, zero }
    }

    /// Makes a clock that stays at zero until it is advanced, for tests in virtual time.
    pub fn manual() -> (Self, ManualTime) {
        let (inner, mock) = quanta::Clock::mock();
        (Clock { inner, zero: 0 }, ManualTime(mock))
    }

    /// Time since the start. Two cores' readings may differ by some nanoseconds.
    pub fn now(&self) -> Time {
        Time(self.inner.delta_as_nanos(self.zero, self.inner.raw()))
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn the_clock_never_goes_back() {
        let clock = Clock::start();
        let mut last = clock.now();
        for _ in 0..10_000 {
            let now = clock.now();
            assert!(now >= last);
            last = now;
        }
        assert!(last > Time::ZERO);
        let asked = process();
        assert!(process() >= asked);
    }

    #[test]
    fn manual_time_advances_only_by_hand() {
        let (clock, time) = Clock::manual();
        assert_eq!((clock.now(), clock.now()), (Time::ZERO, Time::ZERO));
        time.advance(Nanos(1_500));
        assert_eq!(clock.clone().now(), Time(1_500));
    }
}
