//! Allowance for a backlog that waits for cores, where an allocator grants and parks them. Does not
//! contain the pool's growth with the cores ([`super::allocation`]).
//!
//! AQM and the allocator read the same queue. Suppose AQM rejects all that the few held cores can't
//! do at once. The allocator then never sees the queue for which it would have granted cores. The
//! rejected requests come back one round trip later as a burst, to cores that have parked
//! meanwhile.
//!
//! So a server that has not held all its cores for a whole period is not overloaded. It rejects
//! only requests whose responses could not be in time any more. This rule is Leeward's: the poster
//! (SIGCOMM'23) describes the problem (§2) and leaves AQM unchanged.

use super::pool::Pool;
use leeward_core::registry::{CoreProvisioning, Environment};
use leeward_core::server::{CoreGrant, Signals};
use leeward_core::units::Nanos;

/// Counts of held and missing cores, which decide whether a backlog may wait.
#[derive(Debug)]
pub(super) struct BacklogAllowance {
    /// Cores that the allocator can grant at most.
    cores: u32,
    /// Cores held now.
    active_cores: u32,
    /// Whether a core was missing at any time since the last tick.
    were_missing: bool,
    /// Whether the allocator granted a core since the last tick.
    granted: bool,
    /// Queueing delay from which the allocator should grant cores.
    backlog: Nanos,
    period: Nanos,
}

impl BacklogAllowance {
    /// Creates the record. Without an allocator all cores are always held. With one, no core counts
    /// as held until the first grant, and a backlog is allowed.
    pub(super) fn new(environment: &Environment, backlog: Nanos, period: Nanos) -> Self {
        let allocated = environment.provisioning == CoreProvisioning::Allocated;
        let held = if allocated { 0 } else { environment.cores };
        BacklogAllowance {
            cores: environment.cores,
            active_cores: held,
            were_missing: allocated,
            granted: false,
            backlog,
            period,
        }
    }

    /// Whether a backlog is allowed before the first tick.
    pub(super) fn is_allowed(&self) -> bool {
        self.were_missing
    }

    /// Records a grant or a parked core.
    pub(super) fn on_core_grant(&mut self, pool: &Pool, event: &CoreGrant) {
        self.active_cores = event.total;
        self.granted |= event.granted > 0;
        self.were_missing |= self.active_cores < self.cores;
        pool.set_allows_backlog(self.were_missing);
    }

    /// Runs one control period. It allows a backlog if cores were missing in the period, unless a
    /// backlog was left to wait and brought no core. With an allocator that does not react to the
    /// queue, or may not, the queue would otherwise grow as if there were no AQM.
    ///
    /// After one such period the backlog is allowed again: AQM may hold the queue at exactly the
    /// age at which the allocator does not act yet. It stays disallowed while the delay is a whole
    /// period above the AQM threshold, so the delay never gets two periods above that threshold.
    pub(super) fn tick(&mut self, pool: &Pool, signals: &Signals) {
        let was_left = pool.allows_backlog() || signals.delay() >= self.backlog + self.period;
        let in_vain = signals.delay() >= self.backlog && was_left && !self.granted;
        pool.set_allows_backlog(self.were_missing && !in_vain);
        self.were_missing = self.active_cores < self.cores;
        self.granted = false;
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use leeward_core::units::Time;
    use proptest::prelude::*;

    const BACKLOG: Nanos = Nanos::from_micros(10);
    const PERIOD: Nanos = Nanos::from_micros(5);
    const CORES: u32 = 4;

    struct Fixture {
        allowance: BacklogAllowance,
        pool: Pool,
    }

    impl Fixture {
        fn new(provision: CoreProvisioning) -> Self {
            let environment = Environment::new(CORES, Nanos::from_micros(30), Nanos::from_micros(310));
            let allowance =
                BacklogAllowance::new(&Environment { provisioning: provision, ..environment }, BACKLOG, PERIOD);
            let pool = Pool::new(100);
            pool.set_allows_backlog(allowance.is_allowed());
            Fixture { allowance, pool }
        }

        fn change(&mut self, granted: u32, total: u32) -> bool {
            self.allowance.on_core_grant(&self.pool, &CoreGrant { now: Time::ZERO, granted, total });
            self.pool.allows_backlog()
        }

        fn tick(&mut self, delay: Nanos) -> bool {
            self.allowance.tick(&self.pool, &Signals { run_delay: delay, ..Signals::idle(Time::ZERO) });
            self.pool.allows_backlog()
        }
    }

    #[test]
    fn no_backlog_is_allowed_without_an_allocator() {
        let mut world = Fixture::new(CoreProvisioning::Fixed);
        assert!(!world.pool.allows_backlog());
        assert!(!world.tick(Nanos::ZERO) && !world.tick(BACKLOG));
    }

    #[test]
    fn a_backlog_is_allowed_until_all_cores_were_held_for_a_whole_period() {
        let mut world = Fixture::new(CoreProvisioning::Allocated);
        assert!(world.tick(Nanos::ZERO), "no core was granted yet");
        assert!(world.change(2, 2) && world.tick(BACKLOG), "two more could be had");
        world.change(2, 4);
        assert!(world.tick(BACKLOG), "they came in this period only");
        assert!(!world.tick(BACKLOG) && !world.tick(Nanos::ZERO), "all were there");
        assert!(world.change(0, 3), "one has parked: there is room at once");
        world.change(1, 4);
        assert!(world.tick(BACKLOG), "it was missing for a moment");
        assert!(!world.tick(BACKLOG));
    }

    #[test]
    fn the_allowance_ends_when_a_backlog_brings_no_core() {
        let mut world = Fixture::new(CoreProvisioning::Allocated);
        world.change(1, 1);
        assert!(world.tick(BACKLOG), "one was on its way");
        assert!(!world.tick(BACKLOG), "none came");
        assert!(world.tick(BACKLOG), "another chance, for the queue is no longer than that");
        assert!(!world.tick(BACKLOG + PERIOD), "nor did it help");
        assert!(!world.tick(BACKLOG + PERIOD), "it is too long for another");
        assert!(world.change(1, 2), "one comes after all");
        assert!(world.tick(BACKLOG + PERIOD));
        assert!(!world.tick(BACKLOG));
        assert!(world.tick(BACKLOG - Nanos(1)), "the backlog is gone");
    }

    proptest! {
        /// For every allocator, two kinds of tick end the allowance: one that finds a backlog for
        /// which no core was granted, and one after a period with all cores held. Otherwise a
        /// missing core allows a backlog.
        #[test]
        fn the_backlog_allowance_matches_its_model(steps in prop::collection::vec((any::<bool>(), 0u64..20, 0u32..3, 0..=CORES), 1..200)) {
            let mut world = Fixture::new(CoreProvisioning::Allocated);
            let (mut held, mut missing, mut granted_since, mut allowed) = (0, true, false, true);
            for (is_tick, delay_us, granted, total) in steps {
                if is_tick {
                    let in_vain = !granted_since && (delay_us >= 15 || delay_us >= 10 && allowed);
                    allowed = missing && !in_vain;
                    prop_assert_eq!(world.tick(Nanos::from_micros(delay_us)), allowed);
                    (missing, granted_since) = (held < CORES, false);
                } else {
                    allowed = world.change(granted, total);
                    (held, granted_since) = (total, granted_since || granted > 0);
                    missing |= held < CORES;
                    prop_assert_eq!(allowed, missing);
                }
            }
        }
    }
}
