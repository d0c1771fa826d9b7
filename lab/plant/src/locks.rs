//! Use of the server's locks in the measured part of a run: the difference between two samples of
//! the runtime's statistics. The server is part of this process, so no request is needed. Does not
//! contain the counting, which the runtime does.

use leeward_core::units::Nanos;
use leeward_outcome::LockOutcome;
use leeward_runtime::locks::{LockStats, stats};

/// Most locks that are reported: those with the longest waits.
const MAX_LOCKS: usize = 20;
/// Characters of a lock's name that are kept.
const MAX_NAME_LEN: usize = 60;

/// Samples the locks at the start and at the end of the measured part.
pub(crate) struct LockSampler {
    warmup: Nanos,
    duration: Nanos,
    /// Interval between two calls of [`Self::sample`].
    interval: Nanos,
    before: Option<(Nanos, Vec<LockStats>)>,
    after: Option<(Nanos, Vec<LockStats>)>,
}

impl LockSampler {
    pub(crate) fn new(warmup: Nanos, duration: Nanos, period: Nanos) -> Self {
        LockSampler { warmup, duration, interval: period, before: None, after: None }
    }

    /// Samples the locks if `at` is near the start or the end of the measured part; otherwise
    /// returns at once.
    pub(crate) fn sample(&mut self, at: Nanos) {
        let is_last = at + self.interval * 2 > self.duration;
        match (&self.before, &self.after) {
            _ if at < self.warmup => {}
            (None, _) if at < self.duration => self.before = Some((at, stats())),
            // The last sample in time, or the first late one.
            (Some(_), after) if is_last && (at <= self.duration || after.is_none()) => self.after = Some((at, stats())),
            _ => {}
        }
    }

    /// Use of the locks between the two samples; empty without two samples.
    pub(crate) fn outcomes(self) -> Vec<LockOutcome> {
        let (Some((from, before)), Some((to, after))) = (self.before, self.after) else { return Vec::new() };
        lock_outcomes(&before, &after, to.saturating_sub(from))
    }
}

fn lock_outcomes(before: &[LockStats], after: &[LockStats], span: Nanos) -> Vec<LockOutcome> {
    let same = |a: &LockStats, b: &LockStats| (a.name, a.kind) == (b.name, b.kind);
    let since = |lock: &LockStats| match before.iter().find(|earlier| same(earlier, lock)) {
        Some(earlier) => lock.since(earlier),
        None => lock.clone(),
    };
    let mut used: Vec<LockStats> =
        after.iter().map(since).filter(|lock| lock.acquired + lock.refused + lock.cancelled > 0).collect();
    used.sort_by(|a, b| (b.waited, b.refused, a.name).cmp(&(a.waited, a.refused, b.name)));
    used.truncate(MAX_LOCKS);
    used.iter().map(|lock| lock_outcome(lock, span)).collect()
}

fn lock_outcome(lock: &LockStats, span: Nanos) -> LockOutcome {
    LockOutcome {
        name: lock.name.chars().take(MAX_NAME_LEN).map(|c| if c.is_control() { ' ' } else { c }).collect(),
        kind: Some(lock.kind.name()),
        span,
        acquisitions: lock.acquired,
        contended: lock.contended,
        rejected: lock.refused,
        wait_mean_ns: lock.waited.0 as f64 / lock.acquired.max(1) as f64,
        wait_p50: lock.quantile_of_all(0.5),
        wait_p99: lock.quantile_of_all(0.99),
        wait_max: None,
        waiting: None,
        utilization: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use leeward_runtime::locks::Mutex;

    #[test]
    fn acquisitions_before_the_interval_and_idle_locks_are_excluded() {
        let name = "a lock\u{7} whose name is so long that nobody would want to read all of it in a table";
        let (idle, used) = (Mutex::new("never taken again", ()), Mutex::new(name, ()));
        drop(idle.lock_blocking());
        (0..640).for_each(|_| drop(used.lock_blocking()));
        let mut sampler = LockSampler::new(Nanos(10), Nanos(100), Nanos(10));
        sampler.sample(Nanos(9));
        sampler.sample(Nanos(12));
        (0..6_400).for_each(|_| drop(used.lock_blocking()));
        sampler.sample(Nanos(50));
        sampler.sample(Nanos(95));
        sampler.sample(Nanos(101));
        // Other tests of this process have locks, too.
        let outcomes = sampler.outcomes();
        let outcome = outcomes.iter().find(|lock| lock.name.starts_with("a lock  whose name")).expect("it was used");
        assert_eq!(
            (outcome.acquisitions, outcome.rejected, outcome.span, outcome.kind),
            (6_400, 0, Nanos(83), Some("mutex"))
        );
        assert_eq!(outcome.name.chars().count(), MAX_NAME_LEN);
        assert!(outcomes.iter().all(|lock| lock.name != "never taken again"));
    }

    #[test]
    fn a_run_that_ended_early_has_no_lock_outcomes() {
        let mut sampler = LockSampler::new(Nanos(10), Nanos(100), Nanos(10));
        sampler.sample(Nanos(12));
        sampler.sample(Nanos(60));
        assert!(sampler.outcomes().is_empty());
    }
}
