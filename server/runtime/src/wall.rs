//! The wall clock, which the kernel uses for stamps, as the process's clock plus an offset. One
//! clock reading per request then serves its age, the gate and its CPU time. Does not contain
//! stamps.

use crate::clock;
use leeward_core::units::{Nanos, Time};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Lifetime of an offset. A wall clock that is set is noticed after this time; a slewed one drifts
/// by less than 1 us.
const OFFSET_LIFETIME: Nanos = Nanos(1_000_000);
/// Longest gap between the two readings around a wall-clock reading; a longer gap shows an
/// interruption.
const GAP_MAX: Nanos = Nanos(2_000);

/// Difference of the two clocks. Threads write it without a lock: every written offset is valid.
struct Wall {
    /// Wall clock minus the process's clock, in nanoseconds, wrapping.
    offset: AtomicU64,
    /// When the offset was measured, plus one; 0: never.
    found: AtomicU64,
}

static WALL: Wall = Wall::new();

/// Nanoseconds since the epoch at this reading of the process's clock; `None` before the epoch.
pub fn at(reading: Time) -> Option<u64> {
    WALL.at(reading, || (clock::process(), SystemTime::now(), clock::process()))
}

impl Wall {
    const fn new() -> Self {
        Wall { offset: AtomicU64::new(0), found: AtomicU64::new(0) }
    }

    /// See [`at`]; `look` reads the wall clock between two readings of the process's clock.
    fn at(&self, reading: Time, look: impl Fn() -> (Time, SystemTime, Time)) -> Option<u64> {
        let found = self.found.load(Ordering::Relaxed);
        if found != 0 && reading.since(Time(found - 1)) < OFFSET_LIFETIME {
            return Some(reading.0.wrapping_add(self.offset.load(Ordering::Relaxed)));
        }
        let mut wall = 0;
        for _ in 0..3 {
            let (before, now, after) = look();
            wall = nanos(now.duration_since(UNIX_EPOCH).ok()?);
            if after.since(before) <= GAP_MAX {
                self.offset.store(wall.wrapping_sub(after.0), Ordering::Relaxed);
                self.found.store(after.0.saturating_add(1), Ordering::Relaxed);
                return Some(wall.wrapping_sub(after.0).wrapping_add(reading.0));
            }
        }
        // On a machine this busy, the clock is read for each request.
        Some(wall)
    }
}

fn nanos(span: Duration) -> u64 {
    u64::try_from(span.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn wall(ms: u64) -> SystemTime {
        UNIX_EPOCH + Duration::from_millis(ms)
    }

    #[test]
    fn a_clock_change_is_noticed_after_a_millisecond() {
        let clocks = Wall::new();
        assert_eq!(clocks.at(Time(500), || (Time(500), wall(1_000), Time(600))), Some(1_000_000_000 - 100));
        let never = || unreachable!("the offset is fresh");
        assert_eq!(clocks.at(Time(1_600), never), Some(1_000_000_000 + 1_000));
        let back = || (Time(2_000_000), wall(10), Time(2_000_000));
        assert_eq!(clocks.at(Time(2_000_000), back), Some(10_000_000));
    }

    #[test]
    fn an_interrupted_clock_reading_is_not_cached() {
        let clocks = Wall::new();
        let late = || (Time(0), wall(7), Time(9_000_000));
        assert_eq!(clocks.at(Time(0), late), Some(7_000_000));
        assert_eq!(clocks.at(Time(1), || (Time(1), wall(8), Time(1))), Some(8_000_000));
    }

    #[test]
    fn a_clock_before_the_epoch_gives_no_time() {
        assert_eq!(Wall::new().at(Time(0), || (Time(0), UNIX_EPOCH - Duration::from_secs(1), Time(0))), None);
    }
}
