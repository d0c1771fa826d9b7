//! Custom pool law: code from outside this crate sets the number of credits, within the bounds of
//! this module.

use super::{Law, PoolBounds};
use crate::breakwater::config::Config;
use crate::breakwater::pool::Pool;
use leeward_core::server::Signals;

/// State of the credit pool at a call of the law.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PoolState {
    /// `c_total`: credits in the pool.
    pub total: i64,
    /// `c_issued`: the sum of all windows.
    pub issued: i64,
    /// `n_c`: registered sessions.
    pub sessions: i64,
}

/// A custom law of the pool. The controller calls it once per round trip (Breakwater §3.2.1).
pub trait PoolLaw: Send {
    /// Returns the new number of credits; the controller clamps it to `c_min` and `c_max`.
    fn total(&mut self, pool: &PoolState, signals: &Signals) -> i64;
}

/// A [`PoolLaw`] with the bounds that all laws have.
pub(crate) struct CustomPoolLaw {
    law: Box<dyn PoolLaw>,
    bounds: PoolBounds,
}

impl CustomPoolLaw {
    pub(crate) fn new(config: &Config, law: Box<dyn PoolLaw>) -> Self {
        CustomPoolLaw { law, bounds: PoolBounds::new(config) }
    }
}

impl Law for CustomPoolLaw {
    fn tick(&mut self, pool: &Pool, signals: &Signals) {
        let state = PoolState { total: pool.total(), issued: pool.issued(), sessions: pool.sessions() };
        let total = self.law.total(&state, signals);
        pool.set_total(self.bounds.clamp(total, pool.sessions()));
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::breakwater::config::PoolSignal;
    use crate::breakwater::params::DELAY;
    use leeward_core::params::{Params, RawParam};
    use leeward_core::registry::Environment;
    use leeward_core::units::{Nanos, Time};

    struct ConstantLaw(i64);

    impl PoolLaw for ConstantLaw {
        fn total(&mut self, _: &PoolState, _: &Signals) -> i64 {
            self.0
        }
    }

    #[test]
    fn the_pool_of_a_custom_law_is_clamped_to_its_bounds() {
        let environment = Environment::new(4, Nanos::from_micros(10), Nanos::from_micros(200));
        let pairs = [("min_pool", RawParam::Integer(4)), ("max_window", RawParam::Integer(10))];
        let params = Params::read(DELAY, &pairs).unwrap();
        let config = Config::read(PoolSignal::Delay, &params, &environment).unwrap();
        let pool = Pool::new(10);
        (0..1_000).for_each(|_| pool.session_opened());
        for (wanted, expected) in [(50, 50), (i64::MIN, 4), (i64::MAX, 10_000)] {
            CustomPoolLaw::new(&config, Box::new(ConstantLaw(wanted))).tick(&pool, &Signals::idle(Time::ZERO));
            assert_eq!(pool.total(), expected);
        }
    }
}
