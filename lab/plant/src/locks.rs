//! Use of the server's locks in the measured part of a run: the difference between two looks at the runtime's
//! statistics. The server is part of this process, so no request is needed. The runtime decides what is counted, and
//! how.

use leeward_core::units::Nanos;
use leeward_outcome::LockOutcome;
use leeward_runtime::locks::{LockStats, stats};

/// Locks that are told of at most: those that were waited for longest.
const MOST: usize = 20;
/// A name's length, characters: what is longer is cut.
const LONGEST_NAME: usize = 60;

/// Looks at the locks when the measured part begins, and once more when it ends.
pub(crate) struct LockWatch {
    warmup: Nanos,
    duration: Nanos,
    /// How often it is asked to look.
    every: Nanos,
    before: Option<(Nanos, Vec<LockStats>)>,
    after: Option<(Nanos, Vec<LockStats>)>,
}

impl LockWatch {
    pub(crate) fn new(warmup: Nanos, duration: Nanos, every: Nanos) -> Self {
        LockWatch { warmup, duration, every, before: None, after: None }
    }

    /// Looks, if `at` is a time for it. Cheap at any other.
    pub(crate) fn look(&mut self, at: Nanos) {
        let is_last = at + self.every * 2 > self.duration;
        match (&self.before, &self.after) {
            _ if at < self.warmup => {}
            (None, _) if at < self.duration => self.before = Some((at, stats())),
            // The last look in time, or the first that is late.
            (Some(_), after) if is_last && (at <= self.duration || after.is_none()) => self.after = Some((at, stats())),
            _ => {}
        }
    }

    /// Use of the locks between the two looks; nothing if there were not two.
    pub(crate) fn uses(self) -> Vec<LockOutcome> {
        let (Some((from, before)), Some((to, after))) = (self.before, self.after) else { return Vec::new() };
        uses(&before, &after, to.saturating_sub(from))
    }
}

fn uses(before: &[LockStats], after: &[LockStats], span: Nanos) -> Vec<LockOutcome> {
    let same = |a: &LockStats, b: &LockStats| (a.name, a.kind) == (b.name, b.kind);
    let since = |lock: &LockStats| match before.iter().find(|earlier| same(earlier, lock)) {
        Some(earlier) => lock.since(earlier),
        None => lock.clone(),
    };
    let mut used: Vec<LockStats> =
        after.iter().map(since).filter(|lock| lock.acquired + lock.refused + lock.cancelled > 0).collect();
    used.sort_by(|a, b| (b.waited, b.refused, a.name).cmp(&(a.waited, a.refused, b.name)));
    used.truncate(MOST);
    used.iter().map(|lock| told(lock, span)).collect()
}

fn told(lock: &LockStats, span: Nanos) -> LockOutcome {
    LockOutcome {
        name: lock.name.chars().take(LONGEST_NAME).map(|c| if c.is_control() { ' ' } else { c }).collect(),
        kind: Some(lock.kind.name()),
        span,
        acquired: lock.acquired,
        waited: lock.contended,
        refused: lock.refused,
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
    fn what_was_done_before_and_to_other_locks_is_left_out() {
        let name = "a lock\u{7} whose name is so long that nobody would want to read all of it in a table";
        let (idle, used) = (Mutex::new("never taken again", ()), Mutex::new(name, ()));
        drop(idle.lock_blocking());
        (0..640).for_each(|_| drop(used.lock_blocking()));
        let mut watch = LockWatch::new(Nanos(10), Nanos(100), Nanos(10));
        watch.look(Nanos(9));
        watch.look(Nanos(12));
        (0..6_400).for_each(|_| drop(used.lock_blocking()));
        watch.look(Nanos(50));
        watch.look(Nanos(95));
        watch.look(Nanos(101));
        // Other tests of this process have locks, too.
        let uses = watch.uses();
        let own = uses.iter().find(|lock| lock.name.starts_with("a lock  whose name")).expect("it was used");
        assert_eq!((own.acquired, own.refused, own.span, own.kind), (6_400, 0, Nanos(83), Some("mutex")));
        assert_eq!(own.name.chars().count(), LONGEST_NAME);
        assert!(uses.iter().all(|lock| lock.name != "never taken again"));
    }

    #[test]
    fn a_run_that_ended_early_tells_nothing() {
        let mut watch = LockWatch::new(Nanos(10), Nanos(100), Nanos(10));
        watch.look(Nanos(12));
        watch.look(Nanos(60));
        assert!(watch.uses().is_empty());
    }
}
