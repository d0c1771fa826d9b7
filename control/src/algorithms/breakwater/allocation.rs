//! Breakwater where an allocator grants and parks the cores (poster SIGCOMM'23 §3): the pool grows with the cores, and its
//! minimum follows from the round trip. Never here: the pool's law between two grants ([`super::pool`]).

use super::config::Config;
use super::pool::Pool;
use crate::params::Params;
use crate::registry::{Environment, Provision};
use crate::server::CoresGranted;
use crate::units::Nanos;

/// Whether the pool is to know of the allocator: as asked for, or if there is one.
pub(super) fn is_aware(params: &Params, environment: &Environment) -> bool {
    let default = if environment.provision == Provision::Allocated { "on" } else { "off" };
    params.choice("allocator_aware", default) == "on"
}

/// The smallest pool: the number of cores, as in the published code; for an aware pool what all cores serve in the time
/// that a credit takes to come back, so that a server that has parked its cores still asks for enough to need them.
pub(super) fn default_min_pool(aware: bool, params: &Params, environment: &Environment) -> u64 {
    let cores = u64::from(environment.cores);
    if !aware {
        return cores;
    }
    // The objective is ten times service and round trip unless it was set (Breakwater §5.1). Where it was set to less than
    // the round trip needs, a service as long as that is a careful guess: it gives the smaller pool.
    let implied = (environment.slo / 10).saturating_sub(environment.rtt);
    let implied = if implied == Nanos::ZERO { environment.rtt } else { implied };
    let service = params.duration("service", implied).max(Nanos(1));
    let per_core = 1.0 + environment.rtt.0 as f64 / service.0 as f64;
    (cores as f64 * per_core).ceil().min(1e6) as u64
}

/// The pool's growth with each granted core.
#[derive(Debug)]
pub(super) struct Growth {
    min_pool: i64,
    max_window: i64,
    max_pool: i64,
}

impl Growth {
    pub(super) fn new(config: &Config) -> Self {
        Growth {
            min_pool: config.min_pool.into(),
            max_window: config.max_window.into(),
            max_pool: config.max_pool.map_or(i64::MAX, i64::from),
        }
    }

    /// c_total += N_a · c_total / N_t (poster §3), within the same bounds as ever.
    pub(super) fn granted(&self, pool: &Pool, event: &CoresGranted) {
        let total = pool.total();
        let share = f64::from(event.granted) / f64::from(event.total.max(event.granted).max(1));
        let grown = total + (total as f64 * share) as i64;
        let max_pool = (pool.sessions() * self.max_window).min(self.max_pool).max(self.min_pool);
        pool.set_total(grown.clamp(self.min_pool, max_pool));
    }
}
