//! Law of the concurrency limit. Does not contain the number of requests in the server
//! ([`super::in_flight`]).
//!
//! With L the limit, T the mean time in the server of this period, T₀ the shortest of all periods
//! since the last probe:
//!
//! ```text
//! gradient = clamp(tolerance · T₀ / T, 0.5, 1)
//! L ← (1 − smoothing) · L + smoothing · (gradient · L + √L)
//! ```
//!
//! √L is the allowed queue: it lets the limit grow while no request waits, and bounds the waiting
//! requests.
//!
//! T₀ drifts. A service that has become slower would look congested for ever. In a server that is
//! never idle, the shortest time includes a queue, so a limit based on recent times only would
//! creep up with it.
//!
//! The *probe* prevents both: from time to time the limit drops to its minimum until the queue has
//! drained, the next period's time becomes T₀, and the limit returns to its former value. A server
//! with spare capacity measures T₀ without a probe.

use leeward_core::units::{Nanos, Time};

pub(super) struct Config {
    pub(super) tolerance: f64,
    pub(super) smoothing: f64,
    /// Interval between measurements of T₀.
    pub(super) probe: Nanos,
    pub(super) min_limit: f64,
    pub(super) max_limit: f64,
}

/// Collected and unused times in the server.
#[derive(Default)]
pub(super) struct Sample {
    pub(super) sum_ns: u64,
    pub(super) count: u64,
}

/// Samples below which a mean is not used; the law then waits for more.
const MIN_SAMPLES: u64 = 10;
/// Smallest factor per step (before smoothing), as published.
const MIN_GRADIENT: f64 = 0.5;

enum Phase {
    /// The limit follows the gradient.
    Following,
    /// A probe: the limit is at its minimum, and the earlier queue drains.
    Draining { until: Time },
    /// A probe: completing requests have met no queue.
    Measuring,
}

pub(super) struct Law {
    config: Config,
    limit: f64,
    /// T₀; infinite before the first measurement.
    shortest_ns: f64,
    phase: Phase,
    /// Time of the last measurement of T₀.
    probed: Time,
}

impl Law {
    pub(super) fn new(config: Config) -> Self {
        // Starts at 20, as published, within the bounds.
        let limit = 20.0_f64.clamp(config.min_limit, config.max_limit);
        // A server that has just started has no queue, so its first requests measure T₀ without a
        // probe.
        Law { config, limit, shortest_ns: f64::INFINITY, phase: Phase::Measuring, probed: Time::ZERO }
    }

    /// Requests that may be in the server now.
    pub(super) fn limit(&self) -> f64 {
        match self.phase {
            Phase::Following => self.limit,
            Phase::Draining { .. } | Phase::Measuring => self.config.min_limit,
        }
    }

    /// Runs one period with `in_flight` requests in the server at its end. Keeps a `sample` that is
    /// too small.
    pub(super) fn step(&mut self, now: Time, sample: &mut Sample, in_flight: f64) {
        if let Phase::Draining { until } = self.phase {
            if now >= until {
                self.phase = Phase::Measuring;
            }
            *sample = Sample::default();
            return;
        }
        if sample.count < MIN_SAMPLES {
            return;
        }
        let mean_ns = sample.sum_ns as f64 / sample.count as f64;
        *sample = Sample::default();
        if let Phase::Measuring = self.phase {
            self.shortest_ns = mean_ns;
            self.probed = now;
            self.phase = Phase::Following;
            return;
        }

        self.shortest_ns = self.shortest_ns.min(mean_ns);
        // Far from the limit nothing is learned about it, in either direction.
        let has_room = in_flight < self.limit / 2.0;
        if !has_room {
            let gradient = (self.config.tolerance * self.shortest_ns / mean_ns.max(1.0)).clamp(MIN_GRADIENT, 1.0);
            let next = gradient * self.limit + self.limit.sqrt();
            self.limit += self.config.smoothing * (next - self.limit);
            self.limit = self.limit.clamp(self.config.min_limit, self.config.max_limit);
        }
        if now.since(self.probed) < self.config.probe {
            return;
        }
        if has_room {
            self.shortest_ns = mean_ns;
            self.probed = now;
        } else {
            // The requests in the server leave after about their present time in the server; waits
            // twice as long.
            self.phase = Phase::Draining { until: now + Nanos(mean_ns as u64) * 2 };
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn law() -> Law {
        Law::new(Config {
            tolerance: 2.0,
            smoothing: 0.2,
            probe: Nanos::from_millis(100),
            min_limit: 10.0,
            max_limit: 1_000.0,
        })
    }

    /// Runs `periods` of 100 µs; `time_us` gives the mean time in the server at a limit.
    fn run(law: &mut Law, now: &mut Time, periods: u64, time_us: impl Fn(f64) -> f64) {
        for _ in 0..periods {
            *now += Nanos::from_micros(100);
            let limit = law.limit();
            let mut sample = Sample { sum_ns: (time_us(limit) * 1e3) as u64 * 100, count: 100 };
            law.step(*now, &mut sample, limit);
        }
    }

    /// Ten cores and as much load as the limit admits: the time follows from Little's law.
    fn saturated(service_us: f64) -> impl Fn(f64) -> f64 {
        move |limit| service_us * (limit / 10.0).max(1.0)
    }

    #[test]
    fn the_limit_settles_with_a_short_queue_and_does_not_drift() {
        let (mut law, mut now) = (law(), Time::ZERO);
        run(&mut law, &mut now, 1_000, saturated(10.0));
        let after_100_ms = law.limit;
        run(&mut law, &mut now, 100_000, saturated(10.0));
        assert!((20.0..35.0).contains(&after_100_ms), "{after_100_ms}");
        assert!((law.limit - after_100_ms).abs() < 2.0, "{} after 10 s", law.limit);
    }

    #[test]
    fn the_limit_is_kept_when_the_service_becomes_slower() {
        let (mut law, mut now) = (law(), Time::ZERO);
        run(&mut law, &mut now, 2_000, saturated(10.0));
        let fast = law.limit;
        run(&mut law, &mut now, 3_000, saturated(100.0));
        assert!((law.limit - fast).abs() < 3.0, "{} at 100 us, {fast} at 10 us", law.limit);
    }

    #[test]
    fn probing_takes_less_than_half_a_percent_of_the_periods() {
        let (mut law, mut now) = (law(), Time::ZERO);
        run(&mut law, &mut now, 2_000, saturated(10.0));
        let mut probing = 0;
        for _ in 0..10_000 {
            run(&mut law, &mut now, 1, saturated(10.0));
            probing += u32::from(!matches!(law.phase, Phase::Following));
        }
        assert!((10..=40).contains(&probing), "{probing} of 10,000 periods");
    }

    #[test]
    fn the_limit_of_an_idle_server_never_shrinks() {
        let (mut law, mut now) = (law(), Time::ZERO);
        for _ in 0..10_000 {
            now += Nanos::from_micros(100);
            law.step(now, &mut Sample { sum_ns: 100_000, count: 10 }, 1.0);
            assert_eq!(law.limit(), 20.0, "at {now:?}");
        }
    }
}
