//! Moments in which the machine takes a core away from the server: another process, an interrupt, the hypervisor. Drawn
//! per core from a stream of their own, so that every controller meets the same ones.

use crate::config::Stalls;
use leeward_control::units::{Nanos, Time};
use leeward_workload::rng::{Purpose, Rng};

/// The stalls of one core, one after the other.
struct OfCore {
    rng: Rng,
    /// The next one, or the one under way.
    from: Time,
    until: Time,
    /// The last one that has cost something.
    paid: (Time, Time),
}

/// The stalls of all cores.
pub(crate) struct StallClock {
    model: Option<Stalls>,
    cores: Vec<OfCore>,
}

impl StallClock {
    pub(crate) fn new(model: Option<Stalls>, cores: u32, seed: u64) -> Self {
        let of_core = |core: u32| {
            // Cores differ by seed: one stream for all would tie a core's stalls to when the others ask.
            let rng = Rng::new(seed.wrapping_add(u64::from(core) << 32), Purpose::Stalls);
            OfCore { rng, from: Time::ZERO, until: Time::ZERO, paid: (Time::ZERO, Time::ZERO) }
        };
        let count = if model.is_some() { cores } else { 0 };
        StallClock { model, cores: (0..count).map(of_core).collect() }
    }

    /// When what `core` begins at `now` and would end at `until` really ends.
    pub(crate) fn delayed(&mut self, core: usize, now: Time, mut until: Time) -> Time {
        let (Some(model), Some(own)) = (self.model, self.cores.get_mut(core)) else { return until };
        loop {
            if own.until <= now {
                own.from = own.until + model.every.scale(own.rng.exponential());
                own.until = own.from + model.lasts.scale(own.rng.exponential());
                // Two draws of zero must not hold the loop.
                own.until = own.until.max(own.from + Nanos(1));
                continue;
            }
            if own.from > until {
                return until;
            }
            let lost = own.until.since(own.from.max(now));
            until += lost;
            own.paid = (own.from.max(now), own.until);
            // This one is paid for: what comes next is drawn from its end.
            let (from, to) = (own.until, own.until);
            own.from = from + model.every.scale(own.rng.exponential());
            own.until = (own.from + model.lasts.scale(own.rng.exponential())).max(to + Nanos(1));
        }
    }

    /// Until when nothing at all happens on the server, if every core is taken away at `now`: the control loop runs on
    /// its cores, too.
    pub(crate) fn all_until(&self, now: Time) -> Option<Time> {
        let stalled = |own: &OfCore| own.paid.0 <= now && now < own.paid.1;
        if self.cores.iter().all(stalled) { self.cores.iter().map(|own| own.paid.1).min() } else { None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_share_of_time_that_is_lost_is_the_models() {
        let model = Stalls { every: Nanos::from_millis(9), lasts: Nanos::from_millis(1) };
        let mut clock = StallClock::new(Some(model), 1, 7);
        let (mut now, mut worked) = (Time::ZERO, 0u64);
        while now < Time(100_000_000_000) {
            now = clock.delayed(0, now, now + Nanos::from_micros(100));
            worked += 100_000;
        }
        let share = worked as f64 / now.0 as f64;
        assert!((share - 0.9).abs() < 0.01, "{share}");
    }

    #[test]
    fn stalls_that_pass_while_a_core_idles_cost_nothing() {
        let model = Stalls { every: Nanos::from_millis(1), lasts: Nanos::from_micros(1) };
        let mut clock = StallClock::new(Some(model), 2, 7);
        let late = Time(10_000_000_000);
        let until = clock.delayed(1, late, late + Nanos(10));
        assert!(until.since(late) < Nanos::from_millis(1));
    }

    #[test]
    fn without_a_model_nothing_is_delayed() {
        assert_eq!(StallClock::new(None, 4, 1).delayed(3, Time(5), Time(9)), Time(9));
    }
}
