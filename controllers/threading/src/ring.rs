//! The ring of arrivals: the fast half of a threading policy, which every thread that receives writes and the policy copies. What a copy
//! says is [`super::window`]'s.

use super::window::{ArrivalWindow, WINDOW_MAX};
use leeward_core::sync::{AtomicU64, CachePadded, Ordering};
use leeward_core::units::Time;

/// Bits of a slot that name its lap of the ring; the others are the time: nine years of nanoseconds.
const LAP_BITS: u32 = 6;
const LAPS: u64 = 1 << LAP_BITS;

/// Stamps of the latest arrivals, shared by all threads (µTune §4: a circular buffer; there under a lock, here without one).
///
/// ```
/// use leeward_threading::ArrivalRing;
/// use leeward_core::units::Time;
///
/// let ring = ArrivalRing::new();
/// for us in [10, 20, 30] {
///     ring.record(Time(us * 1_000));
/// }
/// let window = ring.window(5);
/// assert_eq!((window.len(), window.total(), window.newest()), (3, 3, Some(Time(30_000))));
/// ```
#[derive(Debug)]
pub struct ArrivalRing<const N: usize = WINDOW_MAX> {
    /// Arrivals ever: the next one's ordinal.
    next: CachePadded<AtomicU64>,
    /// Time of an arrival, and the lap in which it was written. One word, so that no reader sees half of one.
    slots: CachePadded<[AtomicU64; N]>,
}

impl<const N: usize> Default for ArrivalRing<N> {
    fn default() -> Self {
        ArrivalRing {
            next: CachePadded(AtomicU64::new(0)),
            slots: CachePadded(std::array::from_fn(|_| AtomicU64::new(0))),
        }
    }
}

impl ArrivalRing {
    /// Of [`WINDOW_MAX`] arrivals, as many as any policy wants to see.
    pub fn new() -> Self {
        ArrivalRing::default()
    }
}

impl<const N: usize> ArrivalRing<N> {
    /// Records an arrival and returns its ordinal, from 1. Whoever recorded every n-th asks the policy, for a pace of
    /// [`super::Pace::Arrivals`].
    pub fn record(&self, now: Time) -> u64 {
        // Relaxed: each word stands for itself, and a reader tells by the lap whether a slot is the one it looks for.
        let place = self.next.0.fetch_add(1, Ordering::Relaxed);
        self.slots.0[slot::<N>(place)].store(word::<N>(place, now), Ordering::Relaxed);
        place + 1
    }

    /// Arrivals recorded so far.
    pub fn total(&self) -> u64 {
        self.next.0.load(Ordering::Relaxed)
    }

    /// The last `entries` arrivals, sorted by time. Left out are an arrival that a thread has announced and not stored yet, and one whose
    /// slot a thread has overwritten: a newer arrival's meanwhile, or an older one's whose thread was away for a whole lap.
    pub fn window(&self, entries: usize) -> ArrivalWindow {
        let total = self.total();
        let first = total.saturating_sub(entries.min(N).min(WINDOW_MAX) as u64);
        let words = (first..total).map(|place| (place, self.slots.0[slot::<N>(place)].load(Ordering::Relaxed)));
        let stored = words.filter(|(place, word)| is_of_lap::<N>(*word, *place));
        ArrivalWindow::new(stored.map(|(_, word)| Time(word >> LAP_BITS)), total)
    }
}

/// Where an arrival is kept. Those that follow each other are on different cache lines: their threads don't wait for each other's.
fn slot<const N: usize>(place: u64) -> usize {
    const { assert!(N.is_power_of_two(), "an odd stride reaches every slot of these only") };
    (place as usize).wrapping_mul(9) % N
}

fn lap<const N: usize>(place: u64) -> u64 {
    // From one: a slot that was never written is of no lap that is looked for before it is.
    (place / N as u64 + 1) % LAPS
}

fn word<const N: usize>(place: u64, now: Time) -> u64 {
    now.0 << LAP_BITS | lap::<N>(place)
}

fn is_of_lap<const N: usize>(word: u64, place: u64) -> bool {
    word % LAPS == lap::<N>(place)
}

#[cfg(all(test, loom))]
mod model {
    //! Two threads record, one copies, in every interleaving. Run with
    //! `RUSTFLAGS="--cfg loom" cargo test -p leeward-threading --lib --release ring`.

    use super::*;
    use leeward_core::sync::Arc;
    use loom::thread;

    /// Stamps tell who recorded them: each thread's own are apart from the other's.
    fn check(window: impl Fn(&ArrivalRing<2>) -> ArrivalWindow + Send + Sync + Copy + 'static) {
        loom::model(move || {
            let ring = Arc::new(ArrivalRing::<2>::default());
            let first = ring.record(Time(1));
            let second = ring.record(Time(2));
            assert_eq!((first, second), (1, 2));
            let other = Arc::clone(&ring);
            let recorder = thread::spawn(move || {
                other.record(Time(3));
                other.record(Time(4));
            });
            let mine = Arc::clone(&ring);
            let another = thread::spawn(move || mine.record(Time(5)));
            let copy = window(&ring);
            // No more than the ring holds, each in its order, and none that all of the last two came after.
            assert!(copy.len() <= 2);
            assert!(copy.stamps().is_sorted());
            let old = copy.stamps().iter().filter(|stamp| stamp.0 <= 2).count() as u64;
            assert!(old <= 4u64.saturating_sub(copy.total()), "{copy:?}");
            recorder.join().unwrap();
            another.join().unwrap();
            let end = window(&ring);
            assert_eq!(end.total(), 5);
            assert!(end.stamps().iter().all(|stamp| stamp.0 > 2), "{end:?}");
        });
    }

    #[test]
    fn ring_has_no_stale_stamp() {
        check(|ring| ring.window(2));
    }

    #[test]
    #[should_panic]
    fn canary_ring_without_laps_has_stale_stamps() {
        check(|ring| {
            let total = ring.total();
            let stamps = (total - 2..total).map(|place| ring.slots.0[slot::<2>(place)].load(Ordering::Relaxed));
            ArrivalWindow::new(stamps.map(|slot| Time(slot >> LAP_BITS)), total)
        });
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn the_ring_goes_round() {
        let ring = ArrivalRing::<4>::default();
        for now in 1..=1_000 {
            assert_eq!(ring.record(Time(now)), now);
            let window = ring.window(3);
            assert_eq!(window.newest(), Some(Time(now)));
            assert_eq!(window.len() as u64, now.min(3));
        }
    }
}
