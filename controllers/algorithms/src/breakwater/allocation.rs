//! Growth of Breakwater's pool where an allocator grants and parks cores (poster SIGCOMM'23 §3):
//! the pool grows with the cores. Does not contain the pool's minimum ([`super::config`]) or its
//! law between two grants ([`super::pool`]).

use super::config::{AllocatorAwareness, Config, WindowLimit};
use super::pool::Pool;
use leeward_core::server::{CoreGrant, Signals};
use leeward_core::units::Nanos;

/// The pool's growth with each granted core.
#[derive(Debug)]
pub(super) struct Growth {
    awareness: AllocatorAwareness,
    target: Nanos,
    min_pool: i64,
    window_limit: WindowLimit,
    max_pool: i64,
}

/// Divisor of an unused pool that gives its growth per period. About fifty round trips lead from
/// one core's worth of credits to that of a thousand clients.
const UNUSED_GROWTH: i64 = 8;

impl Growth {
    pub(super) fn new(config: &Config) -> Self {
        Growth {
            awareness: config.allocator_aware,
            target: config.target,
            min_pool: config.min_pool.into(),
            window_limit: WindowLimit::new(config),
            max_pool: config.max_pool.map_or(i64::MAX, i64::from),
        }
    }

    /// Runs one control period: grows the pool if it does not limit the load.
    ///
    /// The pool is unused if clients used less than half of it in the period, without a rejection
    /// and with a delay under the target. Under overload clients use all credits, so only the
    /// pool's own law acts.
    pub(super) fn tick(&self, pool: &Pool, signals: &Signals) {
        let total = pool.total();
        let used = i64::try_from(signals.arrivals).unwrap_or(i64::MAX);
        let is_unused = used < total / 2 && signals.rejections == 0 && signals.delay() < self.target;
        if self.awareness == AllocatorAwareness::On && is_unused {
            self.set(pool, total + (total / UNUSED_GROWTH).max(1));
        }
    }

    /// Adds the granted cores' share: c_total += N_a · c_total / N_t (poster §3), within the pool's
    /// bounds.
    pub(super) fn on_core_grant(&self, pool: &Pool, event: &CoreGrant) {
        let total = pool.total();
        let share = f64::from(event.granted) / f64::from(event.total.max(event.granted).max(1));
        let grown = total + (total as f64 * share) as i64;
        self.set(pool, grown);
    }

    fn set(&self, pool: &Pool, total: i64) {
        let sessions = pool.sessions();
        let max_pool = (sessions * self.window_limit.of(sessions)).min(self.max_pool).max(self.min_pool);
        pool.set_total(total.clamp(self.min_pool, max_pool));
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::super::config::PoolSignal;
    use super::*;
    use leeward_core::params::{Params, RawParam};
    use leeward_core::registry::Environment;
    use leeward_core::units::Time;

    fn config(pairs: &[(&str, RawParam)], environment: Environment) -> Config {
        Config::read(PoolSignal::Delay, &Params::read(super::super::params::DELAY, pairs).unwrap(), &environment)
            .unwrap()
    }

    /// 32 cores, a round trip of 30 us, and the objective for a service time of 1 us.
    fn poster() -> Environment {
        Environment::new(32, Nanos::from_micros(30), Nanos::from_micros(310))
    }

    fn pool(total: i64) -> Pool {
        let pool = Pool::new(total);
        (0..300).for_each(|_| pool.session_opened());
        pool
    }

    #[test]
    fn allocator_awareness_defaults_to_on_with_an_allocator() {
        let off = config(&[], poster());
        assert_eq!((off.allocator_aware, off.min_pool), (AllocatorAwareness::Off, 32));
        let on = config(&[], poster().with_allocator());
        assert_eq!((on.allocator_aware, on.min_pool), (AllocatorAwareness::On, 32 * 31));
        let forced_off = config(&[("allocator_aware", RawParam::Switch(false))], poster().with_allocator());
        assert_eq!((forced_off.allocator_aware, forced_off.min_pool), (AllocatorAwareness::Off, 32));
        let service = config(&[("service", RawParam::Text("10us".into()))], poster().with_allocator());
        assert_eq!(service.min_pool, 32 * 4);
        let tight = Environment::new(4, Nanos::from_micros(30), Nanos::from_micros(100)).with_allocator();
        assert_eq!(config(&[], tight).min_pool, 8, "an objective that says nothing of the service");
    }

    #[test]
    fn the_pool_grows_with_the_cores() {
        let growth = Growth::new(&config(&[("min_pool", RawParam::Integer(32))], poster().with_allocator()));
        let pool = pool(210);
        for (granted, total, expected) in [(1, 7, 240), (8, 16, 360), (0, 16, 360), (5, 0, 720)] {
            growth.on_core_grant(&pool, &CoreGrant { now: Time::ZERO, granted, total });
            assert_eq!(pool.total(), expected);
        }
        (0..60).for_each(|_| growth.on_core_grant(&pool, &CoreGrant { now: Time::ZERO, granted: 1, total: 1 }));
        assert_eq!(pool.total(), 300 * 64);
    }

    #[test]
    fn an_unused_pool_grows_and_a_used_pool_follows_its_law() {
        let growth = Growth::new(&config(&[("target", RawParam::Text("10us".into()))], poster().with_allocator()));
        for (arrivals, rejected, delay_us, expected) in
            [(100, 0, 0, 1_125), (500, 0, 0, 1_000), (100, 0, 10, 1_000), (100, 1, 0, 1_000)]
        {
            let pool = pool(1_000);
            let run_delay = Nanos::from_micros(delay_us);
            growth.tick(&pool, &Signals { arrivals, rejections: rejected, run_delay, ..Signals::idle(Time::ZERO) });
            assert_eq!(pool.total(), expected);
        }
    }
}
