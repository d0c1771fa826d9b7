//! The latest arrivals as a policy sees them: a copy of the ring, in order of time. Does not
//! contain the threads' writes ([`super::ring`]).

use leeward_core::units::{Nanos, Rate, Time};

/// Maximum number of arrivals in a window.
pub const WINDOW_MAX: usize = 64;

/// The latest arrivals, oldest first. The estimates ignore a clock that stands still: equal time
/// stamps have no rate.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct ArrivalWindow {
    stamps: [Time; WINDOW_MAX],
    len: u8,
    total: u64,
}

impl ArrivalWindow {
    /// A window without arrivals.
    pub const EMPTY: ArrivalWindow = ArrivalWindow { stamps: [Time::ZERO; WINDOW_MAX], len: 0, total: 0 };

    /// Creates a window of the last [`WINDOW_MAX`] of `stamps`, sorted, out of `total` arrivals.
    pub fn new(stamps: impl IntoIterator<Item = Time>, total: u64) -> Self {
        let mut window = ArrivalWindow { total, ..ArrivalWindow::EMPTY };
        let mut sorted = true;
        for stamp in stamps {
            let mut len = window.len();
            if len == WINDOW_MAX {
                window.stamps.copy_within(1.., 0);
                len -= 1;
            }
            sorted &= len == 0 || window.stamps[len - 1] <= stamp;
            window.stamps[len] = stamp;
            window.len = len as u8 + 1;
        }
        // Threads rarely store their time stamps in another order than they read the clock.
        if !sorted {
            window.stamps[..usize::from(window.len)].sort_unstable();
        }
        window
    }

    /// Arrivals in the window.
    pub fn len(&self) -> usize {
        usize::from(self.len)
    }

    /// Whether the window has no arrivals.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Arrivals since the plant started, including those no longer in the window.
    pub fn total(&self) -> u64 {
        self.total
    }

    /// Time stamps, oldest first.
    pub fn stamps(&self) -> &[Time] {
        &self.stamps[..self.len()]
    }

    /// The latest arrival.
    pub fn newest(&self) -> Option<Time> {
        self.stamps().last().copied()
    }

    /// Arrivals after the last two equal time stamps, without the first arrival after these. The
    /// clock stood still before it, so the gap to it is not a measurement.
    pub fn since_stall(&self) -> &[Time] {
        let stamps = self.stamps();
        match stamps.windows(2).rposition(|pair| pair[0] == pair[1]) {
            Some(tie) => stamps.get(tie + 2..).unwrap_or(&[]),
            None => stamps,
        }
    }

    /// Rate of the last `entries` arrivals as the paper estimates it (µTune §5): gaps over the time
    /// from the oldest to the youngest. A silence afterwards lowers it. `None` if fewer than two
    /// arrivals have clear time stamps.
    pub fn rate(&self, entries: usize, now: Time) -> Option<Rate> {
        let clear = self.since_stall();
        let last = &clear[clear.len().saturating_sub(entries.max(2))..];
        let (oldest, youngest) = (*last.first()?, *last.last()?);
        let span = youngest.since(oldest);
        if span == Nanos::ZERO {
            return None;
        }
        let gaps = (last.len() - 1) as f64;
        let seen = gaps / span.as_secs_f64();
        // Counts the silence since: at most as many arrivals as gaps, including the open one.
        let open = (gaps + 1.0) / now.since(oldest).as_secs_f64();
        Some(Rate(seen.min(open)))
    }
}

impl std::fmt::Debug for ArrivalWindow {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let stamps: Vec<u64> = self.stamps().iter().map(|stamp| stamp.0).collect();
        f.debug_struct("ArrivalWindow").field("total", &self.total).field("stamps", &stamps).finish()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn window(stamps: &[u64]) -> ArrivalWindow {
        ArrivalWindow::new(stamps.iter().map(|ms| Time(ms * 1_000_000)), stamps.len() as u64)
    }

    fn check(stamps: &[u64], now_ms: u64, expected: Option<f64>) {
        let rate = window(stamps).rate(5, Time(now_ms * 1_000_000)).map(|rate| rate.0.round());
        assert_eq!(rate, expected, "{stamps:?} at {now_ms} ms");
    }

    #[test]
    fn the_rate_is_the_number_of_gaps_over_their_time() {
        check(&[1, 2, 3, 4, 5], 5, Some(1_000.0));
        check(&[5, 1, 4, 2, 3], 5, Some(1_000.0)); // threads interleave
        check(&[0, 10, 11, 12, 13, 14], 14, Some(1_000.0)); // the last five
        check(&[1], 5, None);
        check(&[], 5, None);
    }

    #[test]
    fn time_without_arrivals_lowers_the_rate() {
        check(&[1, 2, 3, 4, 5], 6, Some(1_000.0));
        check(&[1, 2, 3, 4, 5], 101, Some(50.0));
    }

    #[test]
    fn a_stopped_clock_gives_no_rate() {
        check(&[7, 7, 7, 7, 7], 7, None);
        check(&[7, 7, 7, 7, 107], 107, None);
        check(&[7, 7, 107, 108, 109], 109, Some(1_000.0)); // without the gap of 100 ms
        check(&[1, 2, 3, 4, 4], 104, None); // without the silence
    }

    #[test]
    fn a_window_keeps_the_latest_stamps() {
        let window = ArrivalWindow::new((0..100).map(Time), 100);
        assert_eq!((window.len(), window.stamps()[0], window.newest()), (WINDOW_MAX, Time(36), Some(Time(99))));
    }
}
