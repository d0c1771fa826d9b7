//! Detector of overload. Until it detects one, no request is rejected for its delay or by a bound.
//! Without overload the cores work a queue off by themselves, and a rejection would make no
//! response earlier. A core that woke late, or that the machine took away for a moment, finds such
//! a queue.
//!
//! A queue shows an overload in one of three ways:
//! - **It grows while the cores work on it**: its delay grows in two windows of two objectives
//!   each, but more slowly than time passes. If no core works on a queue, its delay grows as fast
//!   as time. So does the delay of requests that arrived all at once.
//! - **It stands**: for fifteen objectives there was always a request in a queue for cores or, if
//!   the law counts requests, in the server; and in the last ten the queue got no shorter. Requests
//!   that arrive all at once, after a pause of the machine or of the clients, arrive in the first
//!   five.
//! - **It is nearly always there**: for nine tenths of the recent time. With few clients the queue
//!   runs empty now and then.
//!
//! An overload ends when for seven tenths of the recent time there was no queue, no rejection and
//! no session that waited for a credit. Controllers as published have no such detector.
//!
//! A tick observes one moment, and there are no ticks while cores sleep. The delay covers the time
//! between: a request that has waited since the last tick was there all along.

use super::pool::Pool;
use leeward_core::server::Signals;
use leeward_core::units::{Nanos, Time};

/// Part of the delay target from which a delay counts as a queue.
const QUEUE: f64 = 0.25;
/// Objectives, and departures, after which the growth of a queue is judged.
const GROWTH_WINDOW: (u64, u64) = (2, 40);
/// Growth of the delay per time that shows an overload: from a load of 1.05 to five times the
/// capacity.
const GROWTH: std::ops::Range<f64> = 0.05..0.8;
/// Objectives before a standing queue is judged: requests that arrive all at once have arrived by
/// then.
const SETTLING: u64 = 5;
/// Objectives after which a standing queue is judged: some tens of requests.
const STANDING_WINDOW: u64 = 10;
/// Arrivals per departure below which a queue gets shorter. The delay then falls by at least 0.1 of
/// the elapsed time.
const SHRINK_RATIO: f64 = 0.9;
/// Time constant of the recent time, in objectives. Credits keep the queue of one core so short
/// that it is often empty for a moment.
const TIME_CONSTANT: u64 = 25;
/// Share of the recent time from which an overload lasts. Cores at half load have a queue for less
/// than that. At their capacity the share is 0.8, unless the controller keeps the queue short by
/// rejections and credits.
const EXIT_SHARE: f64 = 0.3;
/// Share of the recent time with a queue that shows an overload.
const ENTRY_SHARE: f64 = 0.9;

/// Detector of overload, for one server.
#[derive(Debug)]
pub(super) struct OverloadDetector {
    queue: Nanos,
    objective: Nanos,
    /// Window over a queue that grows; its flag says that the window before grew as well.
    growth_window: Option<QueueWindow>,
    /// Window over a queue that stands; its flag says that the queue has settled.
    standing_window: Option<QueueWindow>,
    is_detected: bool,
    /// Share of the recent time with a queue or, in an overload, with rejections or unmet demand.
    share: f64,
    /// End of the time in which demand counts as unmet: an objective after a session has waited
    /// for a credit, half of one after a rejection. A tick may be much shorter than the time
    /// between two rejections.
    unmet_until: Time,
    now: Time,
}

/// Changes of a queue since the window began.
#[derive(Clone, Copy, Debug)]
struct QueueWindow {
    since: Time,
    /// Delay when the window began.
    delay: Nanos,
    arrivals: u64,
    departures: u64,
    flag: bool,
}

impl QueueWindow {
    fn new(signals: &Signals, flag: bool) -> QueueWindow {
        QueueWindow { since: signals.now, delay: signals.delay(), arrivals: 0, departures: 0, flag }
    }

    fn count(&mut self, signals: &Signals) {
        self.arrivals += signals.arrivals;
        self.departures += signals.completions + signals.rejections;
    }

    fn elapsed(&self, signals: &Signals) -> Nanos {
        signals.now.since(self.since)
    }

    /// Whether the delay grows as in an overload.
    fn is_growing(&self, signals: &Signals) -> bool {
        let growth = signals.delay().0 as f64 - self.delay.0 as f64;
        GROWTH.contains(&(growth / self.elapsed(signals).0 as f64))
    }

    /// Whether the cores are working the queue off. No core has counted requests that it has not
    /// received yet; only the delay covers these.
    fn is_shrinking(&self, signals: &Signals) -> bool {
        let falls = signals.delay() + self.elapsed(signals).scale(1.0 - SHRINK_RATIO) < self.delay;
        falls || (self.arrivals as f64) < SHRINK_RATIO * self.departures as f64
    }
}

impl OverloadDetector {
    /// Creates a detector for a delay target and an objective.
    pub(super) fn new(target: Nanos, objective: Nanos) -> Self {
        let (queue, objective) = (target.scale(QUEUE).max(Nanos(1)), objective.max(Nanos(1)));
        let (growing, standing) = (None, None);
        OverloadDetector {
            queue,
            objective,
            growth_window: growing,
            standing_window: standing,
            is_detected: false,
            share: 0.0,
            unmet_until: Time::ZERO,
            now: Time::ZERO,
        }
    }

    /// Runs one control tick. `is_occupied`: requests that were in the server at the last tick are
    /// still there, as far as the law counts them.
    pub(super) fn tick(&mut self, pool: &Pool, signals: &Signals, is_occupied: bool) {
        let (now, delay) = (signals.now, signals.delay());
        let passed = now.since(std::mem::replace(&mut self.now, now));
        if passed == Nanos::ZERO {
            // A tick that replaces a missed one observes nothing.
            return;
        }
        if pool.take_unmet_demand() {
            self.unmet_until = now + self.objective;
        } else if signals.rejections > 0 {
            self.unmet_until = self.unmet_until.max(now + self.objective / 2);
        }
        let has_queue = delay >= self.queue;
        let had_queue = has_queue && delay >= passed;
        self.follow_share(signals, passed, has_queue);
        self.standing_window = match self.standing_window.filter(|_| had_queue || is_occupied) {
            Some(window) => Some(self.extend_standing(window, signals)),
            None => (has_queue || is_occupied).then(|| QueueWindow::new(signals, false)),
        };
        let was_awake = passed < self.objective / 2;
        self.growth_window = match self.growth_window.filter(|_| had_queue && was_awake) {
            Some(window) => Some(self.extend_growth(window, signals)),
            None => has_queue.then(|| QueueWindow::new(signals, false)),
        };
        self.is_detected = self.share >= if self.is_detected { EXIT_SHARE } else { ENTRY_SHARE };
        pool.set_overload_detected(self.is_detected);
    }

    /// Updates the share of the recent time by the time since the last tick.
    fn follow_share(&mut self, signals: &Signals, passed: Nanos, has_queue: bool) {
        let part = if self.is_detected && signals.now < self.unmet_until {
            1.0
        } else if has_queue {
            // The queue began when its oldest request arrived.
            signals.delay().min(passed).0 as f64 / passed.0 as f64
        } else {
            0.0
        };
        let weight = 1.0 - (-(passed.0 as f64) / (self.objective * TIME_CONSTANT).0 as f64).exp();
        self.share += (part - self.share) * weight;
    }

    fn extend_growth(&mut self, mut window: QueueWindow, signals: &Signals) -> QueueWindow {
        window.count(signals);
        let (objectives, departures) = GROWTH_WINDOW;
        if window.elapsed(signals) < self.objective * objectives || window.departures < departures {
            return window;
        }
        let grows = window.is_growing(signals);
        if grows && window.flag {
            self.detect();
        }
        QueueWindow::new(signals, grows)
    }

    fn extend_standing(&mut self, mut window: QueueWindow, signals: &Signals) -> QueueWindow {
        window.count(signals);
        let has_settled = window.flag;
        if window.elapsed(signals) < self.objective * if has_settled { STANDING_WINDOW } else { SETTLING } {
            return window;
        }
        if has_settled && !window.is_shrinking(signals) {
            self.detect();
        }
        QueueWindow::new(signals, true)
    }

    fn detect(&mut self) {
        (self.is_detected, self.share) = (true, 1.0);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    const TARGET: Nanos = Nanos::from_micros(80);
    const OBJECTIVE: Nanos = Nanos::from_micros(200);

    struct Fixture {
        overload: OverloadDetector,
        pool: Pool,
        now: Time,
    }

    impl Fixture {
        fn new() -> Self {
            Fixture { overload: OverloadDetector::new(TARGET, OBJECTIVE), pool: Pool::new(100), now: Time::ZERO }
        }

        /// Runs ticks of 20 us with this delay, and with `came` arrivals and `went` departures in
        /// each. Returns the number of ticks that detected no overload.
        fn flow(&mut self, ticks: u32, delay_us: u64, (arrived, left): (u64, u64), is_occupied: bool) -> u32 {
            let mut quiet_ticks = 0;
            for _ in 0..ticks {
                self.now += Nanos::from_micros(20);
                let delay = Nanos::from_micros(delay_us);
                let quiet = Signals::idle(self.now);
                let signals = Signals { run_delay: delay, arrivals: arrived, completions: left, ..quiet };
                self.overload.tick(&self.pool, &signals, is_occupied);
                quiet_ticks += u32::from(!self.pool.is_overload_detected());
            }
            quiet_ticks
        }

        /// Runs ticks with as many arrivals as departures.
        fn advance(&mut self, ticks: u32, delay_us: u64, is_occupied: bool) -> u32 {
            self.flow(ticks, delay_us, (10, 10), is_occupied)
        }
    }

    #[test]
    fn a_short_lived_queue_is_no_overload() {
        let mut world = Fixture::new();
        for _ in 0..100 {
            assert_eq!(world.advance(100, 5_000, true), 100);
            assert_eq!(world.advance(200, 0, false), 200);
        }
        assert_eq!(world.advance(200, 10, false), 200, "a queue that is hardly one");
    }

    #[test]
    fn a_burst_that_drains_is_no_overload() {
        let mut world = Fixture::new();
        for _ in 0..20 {
            assert_eq!(world.flow(1, 50, (1_000, 0), true), 1);
            assert_eq!(world.flow(250, 2_000, (6, 10), true), 250);
            assert_eq!(world.advance(250, 0, false), 250);
        }
    }

    #[test]
    fn a_draining_packet_queue_is_no_overload() {
        let mut world = Fixture::new();
        for _ in 0..20 {
            // Each tick finds the oldest request younger by half of the elapsed time.
            let quiet_ticks = (0..500).map(|tick| world.advance(1, 5_000 - 10 * tick, true)).sum::<u32>();
            assert_eq!(quiet_ticks + world.advance(500, 0, false), 1_000);
        }
    }

    #[test]
    fn a_queue_that_does_not_shrink_is_an_overload() {
        for (delay_us, flow, is_occupied) in [(20, (10, 10), false), (0, (3, 3), true), (500, (20, 10), true)] {
            let mut world = Fixture::new();
            assert_eq!(world.flow(151, delay_us, flow, is_occupied), 150);
            assert_eq!(world.flow(500, delay_us, flow, is_occupied), 0);
        }
    }

    #[test]
    fn a_growing_queueing_delay_is_an_overload_soon() {
        for (per_tick_us, is_shown) in [(10, true), (1, true), (20, false), (0, false)] {
            let mut world = Fixture::new();
            let quiet_ticks = (0..100).map(|tick| world.advance(1, 30 + per_tick_us * tick, true)).sum::<u32>();
            assert_eq!(quiet_ticks < 100, is_shown, "{per_tick_us} us in each 20: {quiet_ticks}");
        }
    }

    #[test]
    fn a_nearly_permanent_queue_is_an_overload() {
        let mut world = Fixture::new();
        let quiet_ticks = (0..100).map(|_| world.advance(50, 1_000, false) + world.advance(2, 0, false)).sum::<u32>();
        assert!((500..1_500).contains(&quiet_ticks), "of 5,200: {quiet_ticks}");
    }

    #[test]
    fn a_queue_found_after_an_idle_interval_is_new() {
        let mut world = Fixture::new();
        for _ in 0..1_000 {
            world.now += Nanos::from_millis(10);
            assert_eq!(world.advance(1, 300, false), 1);
        }
    }

    #[test]
    fn an_overload_ends_when_cores_are_without_a_queue_most_of_the_time() {
        let mut world = Fixture::new();
        world.advance(160, 20, false);
        for _ in 0..200 {
            assert_eq!(world.advance(8, 20, false) + world.advance(2, 0, false), 0, "as at the capacity");
        }
        let quiet_ticks = (0..200).map(|_| world.advance(2, 20, false) + world.advance(8, 0, false)).sum::<u32>();
        assert!(
            (1_500..1_700).contains(&quiet_ticks),
            "as at half load, after some milliseconds: {quiet_ticks} of 2,000"
        );
    }

    /// A core that rejects more than half of what arrives does so in one tick of four, if its
    /// requests take twenty ticks each.
    #[test]
    fn an_overload_lasts_while_requests_are_rejected_now_and_then() {
        let mut world = Fixture::new();
        world.advance(160, 20, false);
        for _ in 0..2_000 {
            world.now += Nanos::from_micros(20);
            let signals = Signals { rejections: 1, ..Signals::idle(world.now) };
            world.overload.tick(&world.pool, &signals, false);
            assert!(world.pool.is_overload_detected());
            assert_eq!(world.advance(3, 0, false), 0, "of 80 us, the objective is 200 us");
        }
        assert!(world.advance(500, 0, false) > 150, "nobody is rejected");
    }

    #[test]
    fn an_overload_lasts_while_credits_are_short() {
        let mut world = Fixture::new();
        world.advance(160, 20, false);
        for _ in 0..2_000 {
            world.pool.record_unmet_demand();
            assert_eq!(world.advance(10, 0, false), 0, "credits are short");
        }
        assert!(world.advance(500, 0, false) > 150, "nobody lacks any");
    }
}
