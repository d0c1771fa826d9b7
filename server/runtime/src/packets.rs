//! Waits of messages until a core reads them: the packet queue's part of the signal. A core can't
//! see into its sockets without reading them, so it publishes its findings after each read.

use crate::sync::{AtomicU64, Ordering, Padded};
use leeward_core::units::{Nanos, Time};

/// Packet delays, with an entry per core.
pub struct PacketDelays {
    /// Either a fixed wait, or the time since which a wait grows; the lowest bit tells which. Both
    /// share one word, so that no reader combines a new wait with the growth since an older poll.
    cores: Vec<Padded<AtomicU64>>,
    /// The longest wait that a core found in its last poll, ns, without its time asleep.
    found: Vec<Padded<AtomicU64>>,
}

const GROWS: u64 = 1;

impl PacketDelays {
    /// Makes entries without a wait for each core.
    pub fn new(cores: usize) -> Self {
        let zeros = || (0..cores).map(|_| Padded(AtomicU64::new(0))).collect();
        PacketDelays { cores: zeros(), found: zeros() }
    }

    /// Publishes the poll that `core` has just done: messages left in its network have waited for
    /// `found`. `grows`: messages keep arriving, so that some wait from now until its next poll.
    pub fn publish(&self, core: usize, now: Time, found: Nanos, grows: bool) {
        let value = if grows { now.0.saturating_sub(found.0) << 1 | GROWS } else { found.0 << 1 };
        self.cores[core].0.store(value, Ordering::Relaxed);
    }

    /// Notes the wait that `core` found in its last poll, caused by its own work. An allocator uses
    /// it. It does not grow by itself, or every working core would look as if messages waited for
    /// it.
    pub fn note_found(&self, core: usize, waited: Nanos) {
        self.found[core].0.store(waited.0, Ordering::Relaxed);
    }

    /// The wait that [`PacketDelays::note_found`] noted last.
    pub fn found(&self, core: usize) -> Nanos {
        Nanos(self.found[core].0.load(Ordering::Relaxed))
    }

    /// The longest wait on any core, as far as it is known at `now`. A core's finding holds until
    /// its next poll, and grows meanwhile if the core is busy.
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
    fn a_delay_lasts_until_the_next_poll_and_grows_on_a_busy_core() {
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

    /// A reader sees one of the published values, and never combines one value's wait with
    /// another's growth.
    #[test]
    fn a_reader_never_mixes_two_published_values() {
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
