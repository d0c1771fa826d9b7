//! Schedule of the controller's slow half: once per period, on the core that notices first.

use crate::sync::{AtomicU64, Mutex, Ordering, lock};
use leeward_core::units::{Nanos, Time};

/// Maximum missed ticks that are made up for at once. A core that slept for longer starts over.
const MISSED_TICKS: u64 = 1_000;

/// An action once per period, with its state.
pub struct Ticker<T> {
    state: Mutex<T>,
    /// Time at which the next tick is due.
    due: AtomicU64,
    /// Ticks so far.
    done: AtomicU64,
    period: Nanos,
}

impl<T> Ticker<T> {
    /// Makes a ticker whose first tick is due at once.
    pub fn new(period: Nanos, state: T) -> Self {
        Ticker {
            state: Mutex::new(state),
            due: AtomicU64::new(0),
            done: AtomicU64::new(0),
            period: period.max(Nanos(1)),
        }
    }

    /// Ticks if a tick is due and no other core does so. `tick` gets the number of periods missed
    /// before. Returns the number of ticks so far.
    pub fn run(&self, now: Time, tick: impl FnOnce(&mut T, u64)) -> u64 {
        if self.is_due(now)
            && let Ok(mut state) = self.state.try_lock()
            // Another core may have ticked between the check and the lock.
            && self.is_due(now)
        {
            let due = Time(self.due.load(Ordering::Relaxed));
            self.due.store((now + self.period).0, Ordering::Relaxed);
            tick(&mut state, (now.since(due).0 / self.period.0).min(MISSED_TICKS));
            self.done.store(self.done.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
        }
        self.done.load(Ordering::Relaxed)
    }

    fn is_due(&self, now: Time) -> bool {
        now.0 >= self.due.load(Ordering::Relaxed)
    }

    /// Time at which the next tick is due.
    pub fn due(&self) -> Time {
        Time(self.due.load(Ordering::Relaxed))
    }

    /// Changes the state between ticks; waits for a tick in progress.
    pub fn change<R>(&self, change: impl FnOnce(&mut T) -> R) -> R {
        change(&mut lock(&self.state))
    }

    /// Reads the state; waits for a tick in progress.
    pub fn with<R>(&self, look: impl FnOnce(&T) -> R) -> R {
        look(&lock(&self.state))
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn missed_periods_are_reported() {
        let ticks = Ticker::new(Nanos(10), Vec::new());
        let at = |now| ticks.run(Time(now), |missed: &mut Vec<u64>, unnoticed| missed.push(unnoticed));
        assert_eq!(at(0), 1);
        assert_eq!(at(9), 1);
        assert_eq!(at(10), 2);
        assert_eq!(ticks.due(), Time(20));
        assert_eq!(at(55), 3);
        assert_eq!(at(1_000_000), 4);
        assert_eq!(ticks.with(Vec::clone), [0, 0, 3, MISSED_TICKS]);
    }
}

#[cfg(all(test, loom))]
mod model {
    use super::*;
    use loom::{sync::Arc, thread};

    /// Two cores notice the same tick. It runs once, and a core that sees its count finds it done.
    #[test]
    fn a_period_is_ticked_once() {
        loom::model(|| {
            let ticks = Arc::new(Ticker::new(Nanos(10), 0));
            let other = Arc::clone(&ticks);
            let thread = thread::spawn(move || other.run(Time(5), |count, _| *count += 1));
            let seen = ticks.run(Time(5), |count, _| *count += 1);
            if seen > 0 {
                assert_eq!(ticks.with(|count| *count), 1);
            }
            thread.join().unwrap();
            assert_eq!(ticks.with(|count| *count), 1);
            assert_eq!((ticks.due(), ticks.run(Time(6), |count, _| *count += 1)), (Time(15), 1));
        });
    }
}
