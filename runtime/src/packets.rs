//! How long messages wait before a core reads them: the packet queue's part of the signal. A core can't see into its
//! sockets without reading them, so it publishes what it learns when it does.

use crate::sync::{AtomicU64, Ordering, Padded};
use leeward_control::units::{Nanos, Time};

/// One entry per core.
pub struct PacketDelays {
    cores: Vec<Padded<PacketDelay>>,
}

struct PacketDelay {
    /// The oldest wait found at the last read, ns.
    found: AtomicU64,
    /// When that was.
    read_at: AtomicU64,
    /// Whether that read left something behind, so that waits go on growing: 1 or 0.
    more: AtomicU64,
}

impl PacketDelays {
    /// No wait on any of so many cores.
    pub fn new(cores: usize) -> Self {
        let core =
            || Padded(PacketDelay { found: AtomicU64::new(0), read_at: AtomicU64::new(0), more: AtomicU64::new(0) });
        PacketDelays { cores: (0..cores).map(|_| core()).collect() }
    }

    /// `core` has just read its network: the oldest message had waited for `found`; `more` if it did not read all.
    pub fn publish(&self, core: usize, now: Time, found: Nanos, more: bool) {
        let entry = &self.cores[core].0;
        entry.found.store(found.0, Ordering::Relaxed);
        entry.read_at.store(now.0, Ordering::Relaxed);
        entry.more.store(u64::from(more), Ordering::Relaxed);
    }

    /// The longest wait on any core, as far as it is known at `now`. A core's finding stands until it reads again, and
    /// grows with time while it is known to have left something unread.
    pub fn delay(&self, now: Time) -> Nanos {
        let of_core = |entry: &Padded<PacketDelay>| {
            let entry = &entry.0;
            let found = Nanos(entry.found.load(Ordering::Relaxed));
            if entry.more.load(Ordering::Relaxed) == 1 {
                found + now.since(Time(entry.read_at.load(Ordering::Relaxed)))
            } else {
                found
            }
        };
        self.cores.iter().map(of_core).max().unwrap_or(Nanos::ZERO)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_wait_stands_until_the_next_read_and_grows_while_more_is_there() {
        let delays = PacketDelays::new(2);
        assert_eq!(delays.delay(Time(5)), Nanos::ZERO);
        delays.publish(0, Time(100), Nanos(30), false);
        delays.publish(1, Time(100), Nanos(10), true);
        assert_eq!(delays.delay(Time(110)), Nanos(30));
        assert_eq!(delays.delay(Time(150)), Nanos(60));
        delays.publish(1, Time(160), Nanos::ZERO, false);
        delays.publish(0, Time(160), Nanos::ZERO, false);
        assert_eq!(delays.delay(Time(170)), Nanos::ZERO);
    }
}
