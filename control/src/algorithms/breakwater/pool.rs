//! The credits that all cores of a server share, and the laws by which the pool grows and shrinks.
//! Never here: sessions and windows.

use super::config::{Additive, Config};
use crate::sync::{AtomicI64, Ordering, Padded};
use crate::units::Nanos;

/// `c_total`, `c_issued` and `n_c`. Each is exact; what is read of two of them at once may be a moment apart, which the
/// algorithm tolerates by design (an issued credit more or less than the pool is its normal state).
#[derive(Debug)]
pub struct Pool {
    total: Padded<AtomicI64>,
    issued: Padded<AtomicI64>,
    sessions: Padded<AtomicI64>,
}

impl Pool {
    pub(crate) fn new(total: i64) -> Self {
        Pool {
            total: Padded(AtomicI64::new(total)),
            issued: Padded(AtomicI64::new(0)),
            sessions: Padded(AtomicI64::new(0)),
        }
    }

    /// `c_total`: the load the server believes it can take.
    pub fn total(&self) -> i64 {
        self.total.0.load(Ordering::Relaxed)
    }

    /// `c_issued`: the sum of all sessions' windows.
    pub fn issued(&self) -> i64 {
        self.issued.0.load(Ordering::Relaxed)
    }

    /// `n_c`: registered sessions.
    pub fn sessions(&self) -> i64 {
        self.sessions.0.load(Ordering::Relaxed)
    }

    /// Credits that may still be issued; negative when too many are out.
    pub fn open(&self) -> i64 {
        self.total() - self.issued()
    }

    /// `c_oc`: credits a session may hold beyond its known demand (Breakwater §3.2.2, eq. 4).
    pub fn overcommit(&self) -> i64 {
        let sessions = self.sessions().max(1);
        let open = self.open();
        // The division is the dear part and rarely needed: most of the time fewer credits are open than sessions.
        if open < 2 * sessions { 1 } else { open / sessions }
    }

    /// A window changed by `change`.
    pub(crate) fn issue(&self, change: i64) {
        if change != 0 {
            self.issued.0.fetch_add(change, Ordering::Relaxed);
        }
    }

    /// Takes one credit if one is open. The credit is counted as issued from now on.
    pub(crate) fn take_one(&self) -> bool {
        // Compare-and-swap: two cores that wake sessions at the same time must not both take the last one.
        let mut issued = self.issued();
        while issued < self.total() {
            match self.issued.0.compare_exchange_weak(issued, issued + 1, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => return true,
                Err(seen) => issued = seen,
            }
        }
        false
    }

    pub(crate) fn session_opened(&self) {
        self.sessions.0.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn session_closed(&self) {
        self.sessions.0.fetch_sub(1, Ordering::Relaxed);
    }

    pub(super) fn set_total(&self, total: i64) {
        self.total.0.store(total, Ordering::Relaxed);
    }
}

/// Additive increase, multiplicative decrease of the pool, one step per round trip (Breakwater §3.2.1).
#[derive(Debug)]
pub struct PoolLaw {
    alpha: f64,
    beta: f64,
    additive: Additive,
    target: Nanos,
    min_pool: i64,
    max_window: i64,
    carry: f64,
}

impl PoolLaw {
    pub(crate) fn new(config: &Config) -> Self {
        PoolLaw {
            alpha: config.alpha,
            beta: config.beta,
            additive: config.additive,
            target: config.target,
            min_pool: config.min_pool.into(),
            max_window: config.max_window.into(),
            carry: 0.0,
        }
    }

    /// One control period with measured delay `d_m`.
    pub(crate) fn step(&mut self, pool: &Pool, measured: Nanos) {
        let total = pool.total();
        let sessions = pool.sessions();
        let next = if measured < self.target {
            // Breakwater §3.2.1, eq. 1 and 3; the published code carries the fraction instead of rounding it up.
            let increase = self.alpha * sessions as f64;
            match self.additive {
                Additive::AtLeastOne => total + increase.max(1.0) as i64,
                Additive::Carried => {
                    self.carry += increase;
                    let whole = self.carry as i64;
                    self.carry -= whole as f64;
                    total + whole
                }
            }
        } else {
            // Breakwater §3.2.1, eq. 2.
            let excess = measured.saturating_sub(self.target).0 as f64 / self.target.0 as f64;
            self.carry = 0.0;
            (total as f64 * (1.0 - self.beta * excess).max(0.5)) as i64
        };
        let max_pool = (sessions * self.max_window).max(self.min_pool);
        pool.set_total(next.clamp(self.min_pool, max_pool));
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::params::{Params, Raw};
    use crate::registry::Environment;

    fn config(pairs: &[(&str, Raw)]) -> Config {
        let environment = Environment::new(10, Nanos::from_micros(10), Nanos::from_micros(200));
        Config::read(&Params::read(super::super::config::PARAMS, pairs).unwrap(), &environment).unwrap()
    }

    fn pool(total: i64, sessions: i64) -> Pool {
        let pool = Pool::new(total);
        (0..sessions).for_each(|_| pool.session_opened());
        pool
    }

    #[test]
    fn the_fraction_of_a_credit_is_carried() {
        let mut law = PoolLaw::new(&config(&[]));
        let pool = pool(50, 100); // α·n_c = 0.1: one credit in ten round trips
        for _ in 0..9 {
            law.step(&pool, Nanos::ZERO);
            assert_eq!(pool.total(), 50);
        }
        // Ten times 0.1 is a hair under 1 in binary: the eleventh step has it for sure.
        law.step(&pool, Nanos::ZERO);
        law.step(&pool, Nanos::ZERO);
        assert_eq!(pool.total(), 51);
    }

    #[test]
    fn the_paper_adds_at_least_one() {
        let mut law = PoolLaw::new(&config(&[("additive", Raw::Text("at_least_one".into()))]));
        let pool = pool(50, 100);
        law.step(&pool, Nanos::ZERO);
        assert_eq!(pool.total(), 51);
    }

    #[test]
    fn the_pool_shrinks_by_relative_excess_and_at_most_by_half() {
        for (measured_us, expected) in [(80, 1000), (120, 990), (160, 980), (8_000, 500), (1_000_000, 500)] {
            let mut law = PoolLaw::new(&config(&[]));
            let pool = pool(1000, 1000);
            law.step(&pool, Nanos::from_micros(measured_us));
            assert_eq!(pool.total(), expected, "at {measured_us} us");
        }
    }

    #[test]
    fn the_pool_stays_between_its_bounds() {
        let mut law = PoolLaw::new(&config(&[("alpha", Raw::Number(100.0))]));
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

    #[test]
    fn overcommit_is_the_open_share_and_at_least_one() {
        for (total, sessions, expected) in [(10, 100, 1), (100, 100, 1), (199, 100, 1), (200, 100, 2), (950, 100, 9)] {
            assert_eq!(pool(total, sessions).overcommit(), expected);
        }
        assert_eq!(pool(10, 0).overcommit(), 10);
    }
}
