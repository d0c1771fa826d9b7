//! The ring of arrivals: the fast half of a threading policy, written by each thread that receives
//! and copied by the policy. Does not contain the evaluation of a copy ([`super::window`]).

use super::window::{ArrivalWindow, WINDOW_MAX};
use leeward_core::sync::{AtomicU64, CachePadded, Ordering};
use leeward_core::units::Time;

/// Bits of a slot for its lap of the ring. The others are the time: nine years of nanoseconds.
const LAP_BITS: u32 = 6;
const LAPS: u64 = 1 << LAP_BITS;

/// Time stamps of the latest arrivals, shared by all threads (µTune §4: a circular buffer; there
/// under a lock, here without one).
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
    /// Total arrivals, which is also the next arrival's ordinal.
    next: CachePadded<AtomicU64>,
    /// Time of an arrival, and the lap of its write. One word, so that no reader sees half of one.
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
    /// Creates a ring of [`WINDOW_MAX`] arrivals, the most that any policy uses.
    pub fn new() -> Self {
        ArrivalRing::default()
    }
}

impl<const N: usize> ArrivalRing<N> {
    /// Records an arrival and returns its ordinal, from 1. With [`super::PollSchedule::Arrivals`],
    /// the thread that recorded every n-th calls the policy.
    pub fn record(&self, now: Time) -> u64 {
        // Relaxed: each word stands for itself, and its lap tells a reader whether the slot has the
        // expected arrival.
        let ordinal = self.next.0.fetch_add(1, Ordering::Relaxed);
        self.slots.0[slot::<N>(ordinal)].store(word::<N>(ordinal, now), Ordering::Relaxed);
        ordinal + 1
    }

    /// Arrivals recorded so far.
    pub fn total(&self) -> u64 {
        self.next.0.load(Ordering::Relaxed)
    }

    /// Returns the last `entries` arrivals, sorted by time.
    ///
    /// It omits an arrival that a thread has announced and not stored yet. It also omits an arrival
    /// in an overwritten slot: by a newer arrival meanwhile, or by an older one whose thread was
    /// suspended for a whole lap.
    pub fn window(&self, entries: usize) -> ArrivalWindow {
        let total = self.total();
        let first = total.saturating_sub(entries.min(N).min(WINDOW_MAX) as u64);
        let words = (first..total).map(|ordinal| (ordinal, self.slots.0[slot::<N>(ordinal)].load(Ordering::Relaxed)));
        let stored = words.filter(|(ordinal, word)| is_of_lap::<N>(*word, *ordinal));
        ArrivalWindow::new(stored.map(|(_, word)| Time(word >> LAP_BITS)), total)
    }
}

/// Slot of an arrival. Consecutive arrivals are on different cache lines, so that their threads
/// don't wait for each other.
fn slot<const N: usize>(ordinal: u64) -> usize {
    const { assert!(N.is_power_of_two(), "an odd stride reaches every slot of these only") };
    (ordinal as usize).wrapping_mul(9) % N
}

fn lap<const N: usize>(ordinal: u64) -> u64 {
    // Laps start at one: an unwritten slot is of lap 0, which no reader expects before the slot is
    // written.
    (ordinal / N as u64 + 1) % LAPS
}

fn word<const N: usize>(ordinal: u64, now: Time) -> u64 {
    now.0 << LAP_BITS | lap::<N>(ordinal)
}

fn is_of_lap<const N: usize>(word: u64, ordinal: u64) -> bool {
    word % LAPS == lap::<N>(ordinal)
}

#[cfg(all(test, loom))]
mod model {
    //! Model checking with loom: two threads record and one copies, in all interleavings. Run with
    //! `RUSTFLAGS="--cfg loom" cargo test -p leeward-threading --lib --release ring`.

    use super::*;
    use leeward_core::sync::Arc;
    use loom::thread;

    /// Each thread records its own time stamps, so that a stamp identifies its thread.
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
            // The copy has at most as many stamps as the ring, in order, and none that is older
            // than the last two complete arrivals.
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
            let stamps = (total - 2..total).map(|ordinal| ring.slots.0[slot::<2>(ordinal)].load(Ordering::Relaxed));
            ArrivalWindow::new(stamps.map(|slot| Time(slot >> LAP_BITS)), total)
        });
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn the_ring_wraps_around() {
        let ring = ArrivalRing::<4>::default();
        for now in 1..=1_000 {
            assert_eq!(ring.record(Time(now)), now);
            let window = ring.window(3);
            assert_eq!(window.newest(), Some(Time(now)));
            assert_eq!(window.len() as u64, now.min(3));
        }
    }
}
