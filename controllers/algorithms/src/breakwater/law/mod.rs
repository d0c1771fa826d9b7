//! Laws by which the credit pool grows and shrinks. A law is the only choice of the slow half:
//! windows, lazy distribution, AQM and the client are the same for all laws.
//!
//! - [`delay`]: the queueing delay for CPUs (Breakwater §3.2.1).
//! - [`efficiency`]: the throughput that more load brings (thesis §2.3.2, Hoover Algorithm 1).
//! - [`auto`]: the one of these two that has evidence of overload.
//! - [`custom`]: a law from outside this crate.
//! - [`iteration`]: the measurement of `efficiency` and `auto`.
//! - [`methods`]: the bounds of `sojourn`, by method, under `auto`.
//! - [`regrowth`]: growth while no request waits, under `auto`.
//! - [`sojourn`]: a bound for requests that wait in queues the controller can't see, under `auto`.
//! - [`percentile`]: the sojourn time of nearly all requests, under `auto`.

mod auto;
mod custom;
mod delay;
mod efficiency;
mod iteration;
mod methods;
mod percentile;
mod regrowth;
mod sojourn;

pub(super) use auto::AutoLaw;
pub(super) use custom::CustomPoolLaw;
pub use custom::{PoolLaw, PoolState};
pub(super) use delay::DelayLaw;
pub(super) use efficiency::EfficiencyLaw;

use super::config::{Config, WindowLimit};
use super::pool::Pool;
use leeward_core::server::Signals;

/// Adapts the pool once per tick.
pub(super) trait Law: Send {
    /// Runs one control tick.
    fn tick(&mut self, pool: &Pool, signals: &Signals);

    /// Requests that may be in the server, if the law bounds them.
    fn bound(&self) -> Option<u64> {
        None
    }

    /// Whether requests that arrived before the last tick are still in the server. `false` if the
    /// law does not count requests.
    fn is_occupied(&self) -> bool {
        false
    }
}

/// Bounds of the pool: `c_min` and `c_max`.
#[derive(Clone, Copy, Debug)]
struct PoolBounds {
    min_pool: i64,
    max_pool: i64,
    window_limit: WindowLimit,
}

impl PoolBounds {
    fn new(config: &Config) -> Self {
        PoolBounds {
            min_pool: config.min_pool.into(),
            max_pool: config.max_pool.map_or(i64::MAX, i64::from),
            window_limit: WindowLimit::new(config),
        }
    }

    /// Returns `c_max`: the credits that `sessions` can hold, or the operator's limit if lower;
    /// never below `c_min`.
    fn max_total(&self, sessions: i64) -> i64 {
        (sessions * self.window_limit.of(sessions)).min(self.max_pool).max(self.min_pool)
    }

    /// Keeps the pool within its bounds between two decisions, while sessions open and close.
    fn enforce(&self, pool: &Pool) {
        pool.set_total(self.clamp(pool.total(), pool.sessions()));
    }

    fn clamp(&self, total: i64, sessions: i64) -> i64 {
        total.clamp(self.min_pool, self.max_total(sessions))
    }
}
