//! Admission by queueing delay: the pool's step once per network round trip (Breakwater §3.2.1).

use super::{Law, PoolBounds};
use crate::breakwater::config::{Config, IncreaseRounding};
use crate::breakwater::pool::Pool;
use crate::published::Version;
use leeward_core::server::Signals;
use leeward_core::units::Nanos;

/// Additive increase, multiplicative decrease of the pool, one step per round trip (Breakwater
/// §3.2.1).
#[derive(Debug)]
pub(crate) struct DelayLaw {
    alpha: f64,
    beta: f64,
    additive: IncreaseRounding,
    target: Nanos,
    bounds: PoolBounds,
    carry: f64,
    version: Version,
}

impl DelayLaw {
    pub(crate) fn new(config: &Config) -> Self {
        DelayLaw {
            alpha: config.alpha,
            beta: config.beta,
            additive: config.additive.unwrap_or(IncreaseRounding::Carried), // the published code
            target: config.target,
            bounds: PoolBounds::new(config),
            carry: 0.0,
            version: config.version,
        }
    }

    /// Whether the measured delay has reached its target, so that CPUs are overloaded.
    pub(super) fn is_overloaded(&self, measured: Nanos) -> bool {
        measured >= self.target
    }

    /// Credits that a period under the target adds.
    pub(super) fn increase(&self, pool: &Pool) -> f64 {
        let increase = self.alpha * pool.sessions() as f64;
        if self.additive == IncreaseRounding::AtLeastOne { increase.max(1.0) } else { increase }
    }

    /// Runs one control period with measured delay `d_m`.
    pub(crate) fn step(&mut self, pool: &Pool, measured: Nanos) {
        self.step_with_extra(pool, measured, 0);
    }

    /// Runs one control period, and adds `more` credits where the pool grows.
    pub(super) fn step_with_extra(&mut self, pool: &Pool, measured: Nanos, more: i64) {
        // Without an overload the cores work the queue off, so it costs no credit.
        if !pool.is_overload_detected() && self.is_overloaded(measured) {
            return self.bounds.enforce(pool);
        }
        let measured = self.version.measured(measured);
        let total = pool.total();
        let sessions = pool.sessions();
        let next = if !self.is_overloaded(measured) {
            // Breakwater §3.2.1, eq. 1 and 3; the published code carries the fraction instead of
            // rounding it up.
            let increase = self.alpha * sessions as f64;
            match self.additive {
                IncreaseRounding::AtLeastOne => total + more + increase.max(1.0) as i64,
                IncreaseRounding::Carried => {
                    self.carry += increase;
                    let whole = self.carry as i64;
                    self.carry -= whole as f64;
                    total + more + whole
                }
            }
        } else {
            // Breakwater §3.2.1, eq. 2.
            self.carry = 0.0;
            let excess = measured.saturating_sub(self.target).0;
            if self.version.is_published() {
                // The published code uses single precision between the steps, which can change the
                // result by a credit.
                let excess = excess as f32 / self.target.0 as f32;
                let less = (f64::from(excess) * self.beta) as f32;
                let factor = (1.0 - f64::from(less)).max(0.5) as f32;
                (total as f32 * factor) as i64
            } else {
                let excess = excess as f64 / self.target.0 as f64;
                (total as f64 * (1.0 - self.beta * excess).max(0.5)) as i64
            }
        };
        pool.set_total(self.bounds.clamp(next, sessions));
    }
}

impl Law for DelayLaw {
    fn tick(&mut self, pool: &Pool, signals: &Signals) {
        self.step(pool, signals.delay());
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::breakwater::config::PoolSignal;
    use leeward_core::params::{Params, RawParam};
    use leeward_core::registry::Environment;

    fn config(pairs: &[(&str, RawParam)]) -> Config {
        let environment = Environment::new(10, Nanos::from_micros(10), Nanos::from_micros(200));
        Config::read(PoolSignal::Delay, &Params::read(super::super::super::params::DELAY, pairs).unwrap(), &environment)
            .unwrap()
    }

    fn pool(total: i64, sessions: i64) -> Pool {
        let pool = Pool::new(total);
        (0..sessions).for_each(|_| pool.session_opened());
        pool
    }

    #[test]
    fn the_fraction_of_a_credit_is_carried() {
        let mut law = DelayLaw::new(&config(&[]));
        let pool = pool(50, 100); // α·n_c = 0.1: one credit in ten round trips
        for _ in 0..9 {
            law.step(&pool, Nanos::ZERO);
            assert_eq!(pool.total(), 50);
        }
        // Ten times 0.1 is slightly below 1 in binary; the eleventh step exceeds it.
        law.step(&pool, Nanos::ZERO);
        law.step(&pool, Nanos::ZERO);
        assert_eq!(pool.total(), 51);
    }

    #[test]
    fn the_at_least_one_step_adds_one_credit() {
        let mut law = DelayLaw::new(&config(&[("additive", RawParam::Text("at_least_one".into()))]));
        let pool = pool(50, 100);
        law.step(&pool, Nanos::ZERO);
        assert_eq!(pool.total(), 51);
    }

    #[test]
    fn the_pool_shrinks_by_relative_excess_and_at_most_by_half() {
        for (measured_us, expected) in [(80, 1000), (120, 990), (160, 980), (8_000, 500), (1_000_000, 500)] {
            let mut law = DelayLaw::new(&config(&[]));
            let pool = pool(1000, 1000);
            law.step(&pool, Nanos::from_micros(measured_us));
            assert_eq!(pool.total(), expected, "at {measured_us} us");
        }
    }

    #[test]
    fn the_pool_stays_between_its_bounds() {
        let mut law = DelayLaw::new(&config(&[("alpha", RawParam::Number(100.0))]));
        let pool = pool(10, 2);
        for _ in 0..20 {
            law.step(&pool, Nanos::from_secs(1));
        }
        assert_eq!(pool.total(), 10);
        for _ in 0..20 {
            law.step(&pool, Nanos::ZERO);
        }
        assert_eq!(pool.total(), 2 * 64);
    }
}
