//! The share of requests that the queues for cores drop, and how much of it a growing pool may bring, under auto. Growth finds cores that
//! nobody uses, and pays for it with drops: each time it goes too far, a queue is dropped. Where a request is ten times as dear as
//! a drop that is cheap; where it costs twice as much as one, a quarter of all dropped was an eighth of the goodput lost (real-overall).
//! Never here: requests refused by a lock or a bound, since fewer credits are no remedy for those.
//!
//! - **Its price**: what a drop costs no plant tells. [`DROP`] is what one costs over loopback TCP.
//! - **No lock-out**: where next to nothing comes it says nothing, and by time it is forgotten.

use crate::server::Signals;
use crate::units::Nanos;

/// Part of the cores' time that drops may take until growth ends.
const SPENT: f64 = 1.0 / 64.0;
/// Time that a core needs to receive a request and to send its drop: 2.0 and 6.3 us, as measured for `real-overall`.
const DROP: Nanos = Nanos::from_micros(8);
/// The least share that may be dropped: a drop in a thousand is chance.
const LEAST: f64 = 0.001;
/// The largest: with half of all dropped, the cores are at work on nothing else, whatever it costs.
const MOST: f64 = 0.5;
/// Delay targets that are remembered: overload comes and goes within some ten.
const MEMORY: f64 = 50.0;
/// Requests for each core in a delay target with which the share is halved: so few say nothing.
const FEW: f64 = 0.25;

/// Requests dropped and received, per nanosecond.
#[derive(Debug)]
pub(super) struct Waste {
    cores: f64,
    target: f64,
    dropped: f64,
    received: f64,
    /// Share of what may be dropped that is dropped.
    used: f64,
}

impl Waste {
    pub(super) fn new(cores: u32, target: Nanos) -> Self {
        Waste {
            cores: cores.max(1).into(),
            target: target.max(Nanos(1)).0 as f64,
            dropped: 0.0,
            received: 0.0,
            used: 0.0,
        }
    }

    /// Notes what came since the last tick. `refused` are those of the drops that found no place in the server; `rate` is that of
    /// responses, per nanosecond.
    pub(super) fn note(&mut self, elapsed: Nanos, signals: &Signals, refused: u64, rate: f64) {
        let elapsed = elapsed.max(Nanos(1)).0 as f64;
        let weight = 1.0 - (-elapsed / (MEMORY * self.target)).exp();
        // Those refused are counted as they come, and their drops as they leave: a tick may have more of the one than of the other.
        let dropped = signals.drops as f64 - signals.lock_drops as f64 - refused as f64;
        self.dropped += (dropped / elapsed - self.dropped) * weight;
        self.received += (signals.arrivals as f64 / elapsed - self.received) * weight;
        let share = self.dropped.max(0.0) / (self.received + FEW * self.cores / self.target);
        // Without responses a request is as dear as can be.
        let request = self.cores / rate;
        self.used = share / (SPENT * request / DROP.0 as f64).clamp(LEAST, MOST);
    }

    /// Part of its step by which the pool may grow: all of it without drops, none with as many as there may be.
    pub(super) fn left(&self) -> f64 {
        (1.0 - self.used).max(0.0)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::units::Time;

    const TICK: Nanos = Nanos::from_micros(10);

    /// Round trips in which ten requests come to a core, so many of which are dropped; each takes so long.
    fn left(waste: &mut Waste, round_trips: u32, signals: &Signals, refused: u64, request: Nanos) -> f64 {
        for _ in 0..round_trips {
            waste.note(TICK, signals, refused, 1.0 / request.0 as f64);
        }
        waste.left()
    }

    fn dropping(drops: u64) -> Signals {
        Signals { arrivals: 10, drops, ..Signals::idle(Time::ZERO) }
    }

    fn waste() -> Waste {
        Waste::new(1, Nanos::from_micros(80))
    }

    #[test]
    fn the_dearer_a_request_the_more_may_be_dropped() {
        let after = |request| left(&mut waste(), 10_000, &dropping(1), 0, Nanos::from_micros(request));
        assert_eq!(after(5), 0.0);
        assert_eq!(after(20), 0.0);
        assert!((0.4..0.6).contains(&after(100)), "a tenth of a fifth: {}", after(100));
        assert!((0.7..0.9).contains(&after(1_000)), "a tenth of a half: {}", after(1_000));
    }

    #[test]
    fn whoever_is_refused_a_lock_or_a_place_is_no_waste() {
        let locked = Signals { lock_drops: 5, ..dropping(5) };
        assert_eq!(left(&mut waste(), 10_000, &locked, 0, TICK), 1.0);
        assert_eq!(left(&mut waste(), 10_000, &dropping(5), 5, TICK), 1.0);
    }

    #[test]
    fn nothing_outlives_the_drops() {
        let mut waste = waste();
        assert_eq!(left(&mut waste, 10_000, &dropping(10), 0, TICK), 0.0);
        assert!(left(&mut waste, 10_000, &dropping(0), 0, TICK) > 0.99);
        assert_eq!(left(&mut waste, 10_000, &dropping(10), 0, TICK), 0.0);
        let silent = Signals::idle(Time::ZERO);
        assert!(left(&mut waste, 10_000, &silent, 0, TICK) > 0.99, "a server to which nothing comes any more");
    }

    #[test]
    fn a_server_that_answers_nobody_is_bounded_as_the_dearest_is() {
        let mut waste = waste();
        waste.note(TICK, &dropping(1), 0, 0.0);
        assert!((0.0..=1.0).contains(&waste.left()));
    }
}
