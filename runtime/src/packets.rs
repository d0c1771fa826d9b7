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
    /// Whether something is likely to wait since then, so that the wait grows: 1 or 0.
    grows: AtomicU64,
}

impl PacketDelays {
    /// No wait on any of so many cores.
    pub fn new(cores: usize) -> Self {
        let core =
            || Padded(PacketDelay { found: AtomicU64::new(0), read_at: AtomicU64::new(0), grows: AtomicU64::new(0) });
        PacketDelays { cores: (0..cores).map(|_| core()).collect() }
    }

    /// `core` has just looked at its network: what is left there has waited for `found`. `grows` if messages keep coming,
    /// so that from now on some wait until it looks again.
    pub fn publish(&self, core: usize, now: Time, found: Nanos, grows: bool) {
        let entry = &self.cores[core].0;
        entry.found.store(found.0, Ordering::Relaxed);
        entry.read_at.store(now.0, Ordering::Relaxed);
        entry.grows.store(u64::from(grows), Ordering::Relaxed);
    }

    /// The longest wait on any core, as far as it is known at `now`. A core's finding stands until it looks again, and
    /// grows meanwhile if it is busy.
    pub fn delay(&self, now: Time) -> Nanos {
        let of_core = |entry: &Padded<PacketDelay>| {
            let entry = &entry.0;
            let found = Nanos(entry.found.load(Ordering::Relaxed));
            if entry.grows.load(Ordering::Relaxed) == 1 {
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
    fn a_wait_stands_until_the_next_look_and_grows_on_a_busy_core() {
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
