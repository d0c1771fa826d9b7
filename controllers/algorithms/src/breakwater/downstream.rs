//! Limit on the pool of a server that calls others: at most the credits that the narrowest
//! downstream service allows (threads §3, "credits of tiers"; the thesis leaves this open, §4.1.1).
//! Does not contain the pool's own law.
//!
//! c_total ≤ W / f · (1 + overcommit). W is the window of the narrowest downstream service: the sum
//! of the credits that its servers grant. f is the number of calls to it per request. At least one
//! credit is left: its request finds out when the downstream servers grant credit again.
//!
//! Credits at clients without demand limit nothing. If the plant reports the requests in the
//! server, the limit therefore applies to these. The pool is limited once they reach half of what
//! the downstream servers allow. Its limit is then the allowed requests times the credits issued
//! per request in the server.
//!
//! The law's own pool is kept beside the limited one. While the limit holds the load back, a low
//! delay says nothing about this server, so the law's pool does not grow; a decrease shrinks it in
//! proportion. After a short limit the pool is therefore back at once, and not larger than the law
//! had found right.
//!
//! A lasting limit makes the law's pool outdated. It falls towards the limit by a part per tick,
//! and has to grow again by its law.

use super::config::Config;
use super::pool::Pool;
use leeward_core::server::Downstream;

/// Limit that the downstream servers put on the pool.
#[derive(Debug)]
pub(super) struct DownstreamLimit {
    overcommit: f64,
    /// The law's own pool, while the limit is below it.
    unlimited_total: Option<i64>,
    /// Credits that the downstream servers allow.
    allowed: i64,
    /// Credits issued per request in the server, a moving average.
    credits_per_request: f64,
}

/// Weight of a new value in the average of credits per request.
const AVERAGE_WEIGHT: f64 = 1.0 / 64.0;
/// Part of the law's excess over the limit that one tick removes.
const EXCESS_DECAY: f64 = 1.0 / 256.0;

impl DownstreamLimit {
    pub(super) fn new(config: &Config) -> Self {
        DownstreamLimit {
            overcommit: config.downstream_overcommit,
            unlimited_total: None,
            allowed: i64::MAX,
            credits_per_request: 1.0,
        }
    }

    /// Sets the limit of the downstream servers.
    pub(super) fn set_downstream(&mut self, pool: &Pool, event: &Downstream) {
        let allowed = (event.max_requests() * (1.0 + self.overcommit)).ceil().max(1.0);
        let allowed = match event.in_flight {
            None => allowed,
            Some(requests) => {
                let spread = pool.issued().max(0) as f64 / requests.max(1) as f64;
                self.credits_per_request += (spread.max(1.0) - self.credits_per_request) * AVERAGE_WEIGHT;
                if (requests as f64) < allowed / 2.0 {
                    f64::INFINITY
                } else {
                    (allowed * self.credits_per_request).ceil()
                }
            }
        };
        // The cast saturates: a number that is too large, or infinite, becomes `i64::MAX`.
        self.allowed = allowed as i64;
        let own = self.unlimited_total.unwrap_or_else(|| pool.total());
        self.apply(pool, own);
    }

    /// Lets `change` set the pool as it would without a limit, then limits the result.
    pub(super) fn apply_limited(&mut self, pool: &Pool, change: impl FnOnce(&Pool)) {
        let before = pool.total();
        change(pool);
        let after = pool.total();
        let own = match self.unlimited_total {
            None => after,
            Some(own) if after >= before => own - ((own - self.allowed).max(0) as f64 * EXCESS_DECAY).ceil() as i64,
            Some(own) => (own as f64 * after as f64 / before.max(1) as f64) as i64,
        };
        self.apply(pool, own);
    }

    fn apply(&mut self, pool: &Pool, own: i64) {
        self.unlimited_total = (own > self.allowed).then_some(own);
        pool.set_total(own.min(self.allowed));
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::super::config::PoolSignal;
    use super::*;
    use leeward_core::params::Params;
    use leeward_core::registry::Environment;
    use leeward_core::server::CoreId;
    use leeward_core::server::{ControlLoop, Registration, ServerHalves, Session, SessionSlot, Signals};
    use leeward_core::units::{Nanos, Time};
    use proptest::prelude::*;

    const SESSIONS: u32 = 100;

    /// A server with this initial pool and all sessions open.
    fn server(pool: u32) -> ServerHalves {
        let environment = Environment::new(4, Nanos::from_micros(10), Nanos::from_micros(200));
        let pairs = [("initial_pool", leeward_core::params::RawParam::Integer(pool.into()))];
        let params = Params::read(super::super::params::DELAY, &pairs).unwrap();
        let config = Config::read(PoolSignal::Delay, &params, &environment).unwrap();
        let mut halves = super::super::server::halves(&config, &environment);
        for slot in 0..SESSIONS {
            let mut session = Session::new(SessionSlot(slot), CoreId(0));
            halves.cores[0].open(&mut session, &Registration { now: Time::ZERO, demand: 0 });
        }
        halves
    }

    fn total(control: &dyn ControlLoop) -> i64 {
        control.gauges().credit_pool.unwrap()
    }

    fn tick_at(control: &mut dyn ControlLoop, now: Time, delay_us: u64) {
        control.tick(&Signals { run_delay: Nanos::from_micros(delay_us), ..Signals::idle(now) });
    }

    fn tick(control: &mut dyn ControlLoop, delay_us: u64) {
        tick_at(control, Time(1), delay_us);
    }

    #[test]
    fn the_downstream_limit_applies_and_lifts_within_one_tick() {
        let mut server = server(500);
        let control = server.control.as_mut();
        for (credits, per_request, expected) in [(40, 1.0, 50), (40, 2.0, 25), (0, 1.0, 1), (1, 4.0, 1)] {
            control.set_downstream(&Downstream::new(credits, per_request));
            tick(control, 0);
            assert_eq!(total(control), expected, "{credits} credits for {per_request} calls");
        }
        control.set_downstream(&Downstream::UNLIMITED);
        tick(control, 0);
        assert!((485..500).contains(&total(control)), "four ticks forget little: {}", total(control));
    }

    #[test]
    fn a_limited_pool_does_not_wind_up() {
        let mut server = server(500);
        let control = server.control.as_mut();
        control.set_downstream(&Downstream::new(8, 1.0));
        (0..10).for_each(|_| tick(control, 0));
        assert_eq!(total(control), 10);
        control.set_downstream(&Downstream::UNLIMITED);
        assert!((475..=490).contains(&total(control)), "no delay was no reason to grow: {}", total(control));
        control.set_downstream(&Downstream::new(8, 1.0));
        (0..10_000).for_each(|_| tick(control, 0));
        control.set_downstream(&Downstream::UNLIMITED);
        assert_eq!(total(control), 10, "the old pool is old news");
    }

    #[test]
    fn credits_of_idle_clients_do_not_count() {
        let mut server = server(500);
        let control = server.control.as_mut();
        control.set_downstream(&Downstream::new(8, 1.0).with_in_flight(4));
        assert_eq!(total(control), 500, "four requests, and credits for ten");
        control.set_downstream(&Downstream::new(8, 1.0).with_in_flight(5));
        assert_eq!(total(control), 10);
    }

    #[test]
    fn overload_also_shrinks_a_pool_limited_by_downstream() {
        let mut server = server(500);
        let control = server.control.as_mut();
        control.set_downstream(&Downstream::new(400, 1.0));
        // An overload is detected after 3 ms.
        (1..=400).for_each(|tick| tick_at(control, Time::ZERO + Nanos::from_micros(10) * tick, 1_000));
        assert_eq!(total(control), 4, "the number of cores");
        control.set_downstream(&Downstream::UNLIMITED);
        assert!(total(control) < 500, "{}", total(control));
    }

    proptest! {
        /// Bounds for all limits and delays: the pool stays within the limit and never becomes
        /// empty. Once nothing limits or queues, it grows to its maximum again.
        #[test]
        fn the_pool_respects_downstream_limits_and_recovers(steps in prop::collection::vec((0u64..600, 0.0f64..8.0, 0u64..400), 1..200)) {
            let mut server = server(200);
            let control = server.control.as_mut();
            for (credits, per_request, delay_us) in steps {
                let event = Downstream::new(credits, per_request);
                control.set_downstream(&event);
                tick(control, delay_us);
                let allowed = (event.max_requests() * 1.25).ceil().max(1.0);
                prop_assert!((1.0..=allowed).contains(&(total(control) as f64)), "{} of {allowed}", total(control));
            }
            control.set_downstream(&Downstream::UNLIMITED);
            (0..70_000).for_each(|_| tick(control, 0));
            prop_assert_eq!(total(control), i64::from(SESSIONS) * 64);
        }
    }
}
