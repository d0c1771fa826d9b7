//! How long messages wait before a core reads them: the packet queue's part of the signal. A core can't see into its
//! sockets without reading them, so it publishes what it learns when it does.

use crate::sync::{AtomicU64, Ordering, Padded};
use leeward_core::units::{Nanos, Time};

/// Packet delays, with an entry per core.
pub struct PacketDelays {
    /// A wait that stands, or the moment since when it grows, and the lowest bit says which. In one word, so that no
    /// reader takes a new wait for one that has grown since an older look.
    cores: Vec<Padded<AtomicU64>>,
    /// The longest wait that a core found at its last look, ns, without what it slept.
    found: Vec<Padded<AtomicU64>>,
}

const GROWS: u64 = 1;

impl PacketDelays {
    /// No wait on any of so many cores.
    pub fn new(cores: usize) -> Self {
        let zeros = || (0..cores).map(|_| Padded(AtomicU64::new(0))).collect();
        PacketDelays { cores: zeros(), found: zeros() }
    }

    /// `core` has just looked at its network: what is left there has waited for `found`. `grows` if messages keep coming,
    /// so that from now on some wait until it looks again.
    pub fn publish(&self, core: usize, now: Time, found: Nanos, grows: bool) {
        let value = if grows { now.0.saturating_sub(found.0) << 1 | GROWS } else { found.0 << 1 };
        self.cores[core].0.store(value, Ordering::Relaxed);
    }

    /// At its last look `core` found something that had waited for so long while it was busy: what an allocator asks for.
    /// It does not grow by itself, or every core at work would look as if somebody waited for it.
    pub fn note_found(&self, core: usize, waited: Nanos) {
        self.found[core].0.store(waited.0, Ordering::Relaxed);
    }

    /// Delay that [`PacketDelays::note_found`] said last.
    pub fn found(&self, core: usize) -> Nanos {
        Nanos(self.found[core].0.load(Ordering::Relaxed))
    }

    /// The longest wait on any core, as far as it is known at `now`. A core's finding stands until it looks again, and
    /// grows meanwhile if it is busy.
    pub fn delay(&self, now: Time) -> Nanos {
        let of_core = |entry: &Padded<AtomicU64>| {
            let value = entry.0.load(Ordering::Relaxed);
            if value & GROWS == GROWS { now.since(Time(value >> 1)) } else { Nanos(value >> 1) }
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

#[cfg(all(test, loom))]
mod model {
    use super::*;
    use loom::{sync::Arc, thread};

    /// A reader sees what was published before or after, never the one's wait with the other's growth.
    #[test]
    fn a_reader_never_mixes_two_findings() {
        loom::model(|| {
            let delays = Arc::new(PacketDelays::new(1));
            delays.publish(0, Time(100), Nanos(10), true);
            let reader = Arc::clone(&delays);
            let thread = thread::spawn(move || reader.delay(Time(1_000)));
            delays.publish(0, Time(900), Nanos(50), true);
            delays.publish(0, Time(950), Nanos(7), false);
            let seen = thread.join().unwrap();
            assert!([Nanos(910), Nanos(150), Nanos(7)].contains(&seen), "{seen}");
        });
    }
}
