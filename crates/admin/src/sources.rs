//! Servers and gates that an admin port tells of, under their names. They may come and go. Never here: how they are told of.

use leeward_observe::{Decision, DecisionId, Snapshot, Source};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Servers and gates that are watched. Clones are the same list.
#[derive(Clone, Default)]
pub struct Sources(Arc<Mutex<Vec<Named>>>);

type Named = (String, Arc<dyn Source>);

impl Sources {
    /// Adds one under a name, in place of another one of that name.
    pub fn put(&self, name: &str, source: Arc<dyn Source>) {
        let mut named = self.lock();
        match named.iter_mut().find(|(known, _)| known == name) {
            Some((_, known)) => *known = source,
            None => named.push((name.into(), source)),
        }
    }

    /// Takes one away.
    pub fn remove(&self, name: &str) {
        self.lock().retain(|(known, _)| known != name);
    }

    /// The states of all at this moment.
    pub(crate) fn snapshots(&self) -> Vec<Snapshot> {
        let named = |(name, source): Named| Snapshot { port: name, ..source.snapshot() };
        self.all().into_iter().map(named).collect()
    }

    /// All of them. The lock is not held while they are asked.
    pub(crate) fn all(&self) -> Vec<Named> {
        self.lock().clone()
    }

    /// The decision of this number, and whose it is. Numbers are each source's own: the newest one is meant.
    pub(crate) fn decision(&self, id: DecisionId, name: Option<&str>) -> Option<(Named, Decision)> {
        let of = |named: Named| named.1.decision(id).map(|decision| (named, decision));
        let meant = self.all().into_iter().filter(|(known, _)| name.is_none_or(|name| name == known));
        meant.filter_map(of).max_by_key(|((_, source), decision)| source.context().unix_ns_of(decision))
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Named>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl std::fmt::Debug for Sources {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.lock().iter().map(|(name, _)| name)).finish()
    }
}
