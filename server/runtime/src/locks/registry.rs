//! The locks of this process by name, for a search of contended ones. The registry keeps no lock
//! alive.

use super::stats::{LockCounts, LockKind, LockStats};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};

/// Maximum number of names. Further locks share one entry, called [`OTHERS`]: a program that
/// generates names must not fill the memory.
pub const NAMES: usize = 1024;

/// Name of the locks beyond the maximum number of names.
pub const OTHERS: &str = "(others)";

type Names = BTreeMap<(&'static str, LockKind), Weak<LockCounts>>;

static REGISTRY: Mutex<Names> = Mutex::new(Names::new());

/// Returns the counts for a new lock, shared with the locks of the same name and kind.
pub(super) fn counts(name: &'static str, kind: LockKind) -> Arc<LockCounts> {
    let mut names = REGISTRY.lock().unwrap_or_else(PoisonError::into_inner);
    find_or_add(&mut names, name, kind)
}

fn find_or_add(names: &mut Names, name: &'static str, kind: LockKind) -> Arc<LockCounts> {
    if let Some(counts) = names.get(&(name, kind)).and_then(Weak::upgrade) {
        return counts;
    }
    if names.len() >= NAMES {
        names.retain(|_, counts| counts.strong_count() > 0);
    }
    if names.len() >= NAMES && name != OTHERS {
        return find_or_add(names, OTHERS, kind);
    }
    let counts = Arc::new(LockCounts::new(name, kind));
    names.insert((name, kind), Arc::downgrade(&counts));
    counts
}

/// Statistics of all live locks by name, those with the longest total wait first.
pub fn stats() -> Vec<LockStats> {
    let live: Vec<Arc<LockCounts>> = {
        let names = REGISTRY.lock().unwrap_or_else(PoisonError::into_inner);
        names.values().filter_map(Weak::upgrade).collect()
    };
    let mut stats: Vec<LockStats> = live.iter().map(|counts| counts.read()).collect();
    stats.sort_by(|one, other| other.waited.cmp(&one.waited).then_with(|| one.name.cmp(other.name)));
    stats
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_name_lives_as_long_as_its_locks() {
        let mut names = Names::new();
        let (one, two) = (find_or_add(&mut names, "a", LockKind::Mutex), find_or_add(&mut names, "a", LockKind::Mutex));
        assert!(Arc::ptr_eq(&one, &two));
        assert!(!Arc::ptr_eq(&one, &find_or_add(&mut names, "a", LockKind::RwLock)));
        one.count_uncontended(3);
        drop((one, two));
        assert_eq!(find_or_add(&mut names, "a", LockKind::Mutex).read().acquired, 0);
    }

    #[test]
    fn names_beyond_the_limit_share_one() {
        let mut names = Names::new();
        let name = |n: usize| -> &'static str { format!("lock {n}").leak() };
        let live: Vec<_> = (0..NAMES).map(|n| find_or_add(&mut names, name(n), LockKind::Mutex)).collect();
        let (one, other) =
            (find_or_add(&mut names, "one", LockKind::Mutex), find_or_add(&mut names, "other", LockKind::Mutex));
        assert!(Arc::ptr_eq(&one, &other) && one.name == OTHERS);
        drop(live);
        assert_eq!(find_or_add(&mut names, "one", LockKind::Mutex).name, "one", "room again");
        assert!(names.len() < NAMES);
    }
}
